"""An alibi model for lm-evaluation-harness.

    python -m alibi.harness run --model alibi --model_args path=runs/book --tasks lambada_openai

takes the arguments of `lm_eval`, which does not find models of other packages by itself. From
Python, importing this module registers the model, and AlibiLM can be given to
lm_eval.simple_evaluate(). Needs the package lm-eval.
"""
from __future__ import annotations

import logging
import sys
from typing import Any, Optional, Sequence

import lm_eval.models  # noqa: F401  lm_eval loads its own models only if none is registered yet
import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from ._library import BadInputError, Error, UsageError, real, whole
from .model import Device, Model, Session

_UNKNOWN_LENGTH = 2048


@register_model("alibi")
class AlibiLM(TemplateLM):
    """path: a checkpoint or a run. max_length: tokens of context at most; default: the length that
    the model was trained at. batch_size: how many prompts generate_until() continues together; 8
    for the harness's "auto". max_batch_size and trust_remote_code are the harness's own, and have
    no effect here."""

    def __init__(
        self,
        path: Optional[str] = None,
        max_length: Optional[int] = None,
        batch_size: Any = 8,
        device: Optional[str] = None,
        precision: str = "auto",
        skip: float = 0.0,
        max_gen_toks: int = 256,
        max_batch_size: Any = None,
        trust_remote_code: Any = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown:
            raise UsageError(f"model_args has no '{next(iter(unknown))}'; it has path, max_length, "
                             "precision, skip and max_gen_toks")
        if path is None:
            raise UsageError("model_args has no path: give path=RUN, a checkpoint or a run")
        self.max_gen_toks = whole("max_gen_toks", max_gen_toks, 1)
        self.skip = real("skip", skip, most=0.999)
        self.batch_size = 8
        if not str(batch_size).startswith("auto"):
            self.batch_size = whole("batch_size", batch_size, 1)
        if max_length is not None:
            max_length = whole("max_length", max_length, 1)
        # Without --device lm_eval passes cuda:0, and its own models then use the CPU if there is no
        # GPU.
        where = ("auto" if device in (None, "cuda:0") else device).split(":")
        gpu: Any = where[1] if where[1:] else 0
        self.model = Model.open(path, device=Device(where[0], precision, gpu))
        logging.getLogger("lm_eval.alibi").info("'%s' on %s", path, self.model.device.name)
        self._tokens = self.model.tokenizer
        self.max_length = max_length or self.model.train_length or _UNKNOWN_LENGTH

    @property
    def eot_token_id(self) -> int:
        end = self._tokens.end
        if end is None:
            raise BadInputError(f"the tokenizer of '{self.model.path}' has no end-of-document "
                                "token, which is the context of a text without one")
        return end

    @property
    def prefix_token_id(self) -> int:
        """The context of a text without one."""
        begin = self._tokens.begin
        return begin if begin is not None else self.eot_token_id

    def tok_encode(
        self, string: str, add_special_tokens: Optional[bool] = None, **_: Any
    ) -> list[int]:
        return self._tokens.encode(string).tolist()

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Requests that differ only in their last token, as the choices of a question often do,
        share one pass."""
        groups: dict[tuple[tuple[int, ...], int], list[int]] = {}
        cut = []
        for i, (_, context, continuation) in enumerate(requests):
            tokens = (context + continuation)[-(self.max_length + 1) :]
            scored = min(len(continuation), len(tokens) - 1)
            cut.append((tokens, scored))
            groups.setdefault((tuple(tokens[:-1]), scored), []).append(i)
        results: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        session = Session(self.model, skip=self.skip)
        for (tokens, scored), members in groups.items():
            if scored < 1:
                continue  # nothing to score has probability 1
            session.clear()
            first = len(tokens) - (scored - 1)
            session.feed(tokens[:first])
            logprobs, likeliest = session.score(tokens[first:])
            before = float(logprobs.sum())
            greedy = bool((likeliest == np.array(tokens[first:], np.int32)).all())
            last = self._logprobs(session.last_logits())
            for i in members:
                token = cut[i][0][-1]
                results[i] = (before + float(last[token]), greedy and int(last.argmax()) == token)
        return results

    def _logprobs(self, logits: np.ndarray) -> np.ndarray:
        """Padding rows of the embedding count in the normaliser, and are never chosen."""
        wide = logits.astype(np.float64)
        largest = wide.max()
        return (wide - largest - np.log(np.exp(wide - largest).sum()))[: self._tokens.vocab]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Each token of a text once, in windows of max_length."""
        sums = []
        for request in requests:
            windows = [
                (None, *make_disjoint_window(window))
                for window in get_rolling_token_windows(
                    token_list=self.tok_encode(request.args[0]),
                    prefix_token=self.prefix_token_id,
                    max_seq_len=self.max_length,
                    context_len=1,
                )
            ]
            sums.append(sum(logprob for logprob, _ in self._loglikelihood_tokens(windows)))
        return sums

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Prompts with the same options are continued together, batch_size at a time."""
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(repr(sorted(request.args[1].items())), []).append(i)
        results = [""] * len(requests)
        for members in groups.values():
            options = requests[members[0]].args[1]
            for at in range(0, len(members), self.batch_size):
                some = members[at : at + self.batch_size]
                texts = self._generate([requests[i].args[0] for i in some], options)
                for i, text in zip(some, texts):
                    results[i] = text
        return results

    def _generate(self, prompts: list[str], options: dict[str, Any]) -> list[str]:
        tokens = int(options.get("max_gen_toks", self.max_gen_toks))
        sampled = options.get("do_sample", float(options.get("temperature", 0.0) or 0.0) > 0)
        return self.model.complete(
            [self._shortened(prompt, self.max_length - tokens) for prompt in prompts],
            tokens=tokens,
            temperature=float(options.get("temperature") or 1.0) if sampled else 0.0,
            top_k=int(options.get("top_k") or 0),
            top_p=float(options.get("top_p") or 1.0),
            until=options.get("until") or (),
            skip=self.skip,
        )

    def _shortened(self, prompt: str, room: int) -> str:
        """The end of a prompt that leaves room for the answer, as lm_eval cuts for other models."""
        ids = self.tok_encode(prompt)
        if len(ids) <= max(room, 1):
            return prompt
        return self._tokens.decode_bytes(ids[-max(room, 1) :]).decode(errors="ignore")


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except Error as error:
        print(f"alibi.harness: {error}", file=sys.stderr)
        sys.exit(error.status)
