"""The results of calls: dataclasses that print as tables, and draw themselves in a notebook."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Optional

import numpy as np

from ._chart import columns, curves, table
from ._library import lib


def from_struct(kind: Any, values: Any, **more: Any) -> Any:
    """A dataclass from the members of a C struct that have the names of its fields."""
    known = {
        name: getattr(values, name)
        for name in kind.__dataclass_fields__
        if name not in more and hasattr(values, name)
    }
    return kind(**known, **more)


@dataclass(frozen=True)
class LengthResult:
    """An evaluation at one length. nll is in nats per token; standard_error is that of nll."""

    length: int
    protocol: str
    stride: int
    nll: float
    standard_error: float
    ppl: float
    word_ppl: float
    bits_per_byte: float
    tokens: int
    words: int
    bytes: int
    seconds: float
    tokens_per_s: float
    peak_bytes: int
    tiles_used: float
    skipped_weight: float

    @classmethod
    def _of(cls, result: Any) -> LengthResult:
        name = lib.alibi_protocol_view(result.protocol).contents.name.decode()
        return from_struct(cls, result, protocol=name)


@dataclass(frozen=True)
class Evaluation:
    """Evaluations of one model at several lengths."""

    model: str
    train_length: int
    results: tuple[LengthResult, ...]
    trained_on: bool = False  # the model was trained on the text, as far as its run says

    _HEAD = ("length", "ppl", "nll", "error", "bits/byte", "tokens", "tokens/s")

    def _rows(self) -> list[list[str]]:
        return [
            [
                str(r.length),
                f"{r.ppl:.4g}",
                f"{r.nll:.4f}",
                f"{r.standard_error:.4f}",
                f"{r.bits_per_byte:.4f}",
                str(r.tokens),
                f"{r.tokens_per_s:.0f}",
            ]
            for r in self.results
        ]

    def __iter__(self) -> Iterator[LengthResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> LengthResult:
        return self.results[index]

    def at(self, length: int) -> LengthResult:
        """The result at a length; KeyError if it was not asked for."""
        for result in self.results:
            if result.length == length:
                return result
        raise KeyError(length)

    def __str__(self) -> str:
        protocol = self.results[0].protocol if self.results else ""
        return f"{self.model}: {protocol}\n" + columns(self._HEAD, self._rows())

    def _repr_svg_(self) -> str:
        points = [(r.length, r.ppl) for r in self.results]
        return curves({"ppl": points}, f"{self.model}: perplexity", "perplexity", self.train_length)

    def _repr_html_(self) -> str:
        return self._repr_svg_() + table(self._HEAD, self._rows())


@dataclass(frozen=True)
class Scores:
    """The log-probability of each token of a text. The first is NaN where nothing predicts it."""

    ids: np.ndarray
    logprobs: np.ndarray
    pieces: tuple[str, ...]
    alternatives: tuple[tuple[tuple[int, float], ...], ...]
    logprob: float
    scored: int

    @property
    def ppl(self) -> float:
        """Perplexity per scored token."""
        return float(np.exp(-self.logprob / self.scored)) if self.scored else float("nan")

    def _rows(self) -> list[list[str]]:
        return [
            [str(id), repr(piece), f"{logprob:.4f}"]
            for id, piece, logprob in zip(self.ids, self.pieces, self.logprobs)
        ]

    def __str__(self) -> str:
        total = f"{self.scored} tokens, logprob {self.logprob:.4f}, ppl {self.ppl:.4g}"
        return columns(("id", "text", "logprob"), self._rows()) + "\n" + total

    def _repr_html_(self) -> str:
        return table(("id", "text", "logprob"), self._rows())


@dataclass(frozen=True)
class Training:
    """A training run. Steps and seconds include those before a resume."""

    folder: str
    step: int
    parameters: int
    loss: float
    valid_step: int
    valid_loss: float
    valid_tokens: int
    best_step: int
    best_loss: float
    seconds: float
    tokens_per_s: float
    peak_bytes: int
    curve: tuple[tuple[int, float], ...]  # (step, loss), as log.jsonl has it

    def __fspath__(self) -> str:
        """The folder, so that a run is a path: Model.open(run), Corpus.of_run(run)."""
        return self.folder

    def __str__(self) -> str:
        valid = f", validation loss {self.valid_loss:.4f}" if self.valid_step == self.step else ""
        return (
            f"step {self.step}, loss {self.loss:.4f}{valid}, {self.parameters} parameters, "
            f"{self.tokens_per_s:.0f} tokens/s, in '{self.folder}'"
        )

    def _repr_svg_(self) -> str:
        return curves({"loss": self.curve}, f"{self.folder}: training", "loss", x_label="step")


@dataclass(frozen=True)
class Trial:
    """One training of a method, and its evaluations."""

    method: str
    seed: int
    parameters: int
    train_loss: float
    train_seconds: float
    results: tuple[LengthResult, ...]  # only lengths that the method has
    stream: Optional[LengthResult]


@dataclass(frozen=True)
class Comparison:
    """One model per method and seed, tested at every length."""

    folder: str
    train_length: int
    lengths: tuple[int, ...]
    trials: tuple[Trial, ...]
    text: str  # tables and a plot for a terminal, as the program prints them

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(trial.method for trial in self.trials))

    def curve(self, method: str) -> list[tuple[int, float]]:
        """(length, perplexity) of a method: exp of the mean nll over its seeds."""
        by_length: dict[int, list[float]] = {}
        for trial in self.trials:
            for result in trial.results if trial.method == method else ():
                by_length.setdefault(result.length, []).append(result.nll)
        return [(length, float(np.exp(np.mean(nll)))) for length, nll in sorted(by_length.items())]

    def __str__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        title = f"trained at {self.train_length} tokens, tested longer"
        series = {method: self.curve(method) for method in self.methods}
        return curves(series, title, "perplexity", self.train_length)

    def _repr_html_(self) -> str:
        rows = []
        for method in self.methods:
            at = dict(self.curve(method))
            rows.append([method, *(f"{at[n]:.4g}" if n in at else "-" for n in self.lengths)])
        return self._repr_svg_() + table(["method", *map(str, self.lengths)], rows)
