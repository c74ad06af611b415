"""Models: scores, logits, evaluation, generation."""
from __future__ import annotations

import codecs
import ctypes
import os
from typing import Any, Iterator, Optional, Sequence, Union

import numpy as np

from ._library import (
    BadInputError,
    Error,
    Handle,
    LogCallback,
    Options,
    PathLike,
    ProgressCallback,
    UsageError,
    choice,
    constants,
    lib,
    long_call,
    path_bytes,
    pointers,
    real,
    structs,
    tell,
    text_bytes,
    texts_bytes,
    whole,
    wholes,
)
from .results import Evaluation, LengthResult, Scores
from .text import SPLITS, Corpus, Texts, Tokenizer, as_corpus, as_ids, ids_pointer

# As in enum alibi_protocol.
PROTOCOLS = ("nonoverlapping", "sliding", "stream", "stride", "llama.cpp", "rolling")


class Device(Handle):
    """Where models run, and in which numbers: the options --device, --precision, --gpu and
    --autotune of the program."""

    def __init__(
        self,
        device: str = "auto",
        precision: str = "auto",
        gpu: int = 0,
        autotune: str = "same-bits",
    ) -> None:
        options = Options(compute="alibi_compute")
        options.set(device=device, precision=precision, gpu=gpu, autotune=autotune)
        pointer = pointers["alibi_device"]()
        compute = ctypes.byref(options.values["compute"])
        lib.alibi_device_open(ctypes.byref(pointer), compute, None)
        super().__init__(pointer, lib.alibi_device_free)

    @property
    def name(self) -> str:
        """ "cpu" or the name of the GPU."""
        info = structs["alibi_device_info"]()
        lib.alibi_device_get_info(self, ctypes.byref(info))
        return info.name.decode()

    def __repr__(self) -> str:
        return f"<alibi.Device {self.name}>"


def as_device(device: Any, precision: str = "auto") -> Device:
    if not isinstance(device, Device):
        return Device(device, precision)
    if precision != "auto":
        raise UsageError("a Device has its precision: give alibi.Device(name, precision)")
    return device


class Session(Handle):
    """The KV caches of some sequences of a model. Used by one thread at a time."""

    def __init__(self, model: Model, sequences: int = 1, skip: float = 0.0) -> None:
        pointer = pointers["alibi_session"]()
        options = structs["alibi_session_options"](sequences=whole("sequences", sequences, 1))
        call = structs["alibi_call"](skip=real("skip", skip, most=0.999))
        lib.alibi_session_new(
            ctypes.byref(pointer), model, ctypes.byref(options), ctypes.byref(call)
        )
        super().__init__(pointer, lib.alibi_session_free, model)
        self.model = model

    def feed(self, ids: Sequence[int], sequence: int = 0) -> None:
        """Appends tokens to a sequence."""
        array = as_ids(ids)
        lib.alibi_session_feed(self, sequence, ids_pointer(array), len(array))

    def score(self, ids: Sequence[int], sequence: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Appends tokens, and returns the log-probability that each had (NaN if nothing was before
        it), and the likeliest id in its place (-1)."""
        array = as_ids(ids)
        logprobs = np.empty(len(array))
        choices = (structs["alibi_choice"] * max(len(array), 1))()
        lib.alibi_session_score(
            self,
            sequence,
            ids_pointer(array),
            len(array),
            logprobs.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
            1,
            choices,
        )
        return logprobs, np.array([choices[i].id for i in range(len(array))], np.int32)

    def logits(self, ids: Sequence[int], sequence: int = 0) -> np.ndarray:
        """Appends tokens, and returns the logits after each: [len(ids), vocab]."""
        array = as_ids(ids)
        out = np.empty((len(array), self.model.vocab), np.float32)
        lib.alibi_session_logits(
            self,
            sequence,
            ids_pointer(array),
            len(array),
            out.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        )
        return out

    def last_logits(self, sequence: int = 0) -> np.ndarray:
        """The logits after the last token of a sequence: [vocab]."""
        view = lib.alibi_session_view_logits(self, sequence)
        if not view:
            raise UsageError(f"sequence {sequence} has no last token: feed it first")
        return np.ctypeslib.as_array(view, (self.model.vocab,)).copy()

    def clear(self, sequence: int = 0) -> None:
        """The sequence is empty again."""
        lib.alibi_session_clear(self, sequence)


class Model(Handle):
    """A trained model. Any number of threads may use one at once."""

    path: str
    device: Device

    @classmethod
    def open(
        cls,
        path: PathLike,
        device: Any = "auto",
        precision: str = "auto",
        log: Optional[LogCallback] = None,
    ) -> Model:
        """Opens a checkpoint, or the newest one in the folder of a run; RUN/best is the one with
        the lowest validation loss. device: "auto", "cpu", "cuda" or a Device."""
        where = as_device(device, precision)
        pointer = pointers["alibi_model"]()
        long_call(
            lambda call: lib.alibi_model_open(ctypes.byref(pointer), where, path_bytes(path), call),
            log=log,
        )
        model = cls(pointer, lib.alibi_model_free, where)
        model.path, model.device = os.fspath(path), where
        return model

    def __fspath__(self) -> str:
        """What was opened, so that a model is a path: train(init=model)."""
        return self.path

    def _config(self) -> Any:
        return lib.alibi_model_view_config(self).contents

    @property
    def config(self) -> dict[str, Any]:
        """Its model options: train(**model.config) trains a model of the same architecture."""
        options = Options(config="alibi_config")
        ctypes.pointer(options.values["config"])[0] = self._config()
        return options.as_dict("config")

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer._borrowed(lib.alibi_model_view_tokenizer(self), self)

    @property
    def vocab(self) -> int:
        """Rows of the embedding, padding included."""
        return self._config().vocab

    @property
    def position(self) -> str:
        """The position method, or its pattern over the layers."""
        return self._config().position.decode()

    @property
    def train_length(self) -> int:
        """The length that it was trained at; 0: not known."""
        return self._config().train_length

    @property
    def parameters(self) -> int:
        return lib.alibi_model_parameters(self)

    def __repr__(self) -> str:
        return (
            f"<alibi.Model '{self.path}', {self.position}, {self.parameters} parameters, "
            f"trained at {self.train_length}>"
        )

    def score(
        self,
        text: str,
        prompt: str = "",
        alternatives: int = 0,
        skip: float = 0.0,
        progress: Optional[ProgressCallback] = None,
    ) -> Scores:
        """The log-probability of each token of a text after a prompt. With an empty prompt the text
        is the beginning of a document."""
        data, before = text_bytes("text", text), text_bytes("prompt", prompt)
        alternatives = whole("alternatives", alternatives)
        out = ctypes.POINTER(structs["alibi_scores"])()
        long_call(
            lambda call: lib.alibi_score(
                ctypes.byref(out), self, before, len(before), data, len(data), alternatives, call
            ),
            progress=progress,
            skip=skip,
        )
        try:
            return self._read_scores(out.contents)
        finally:
            lib.alibi_scores_free(out)

    def _read_scores(self, r: Any) -> Scores:
        ids = np.ctypeslib.as_array(r.ids, (r.count,)).copy()
        tokenizer = self.tokenizer
        choices = [
            tuple((r.choices[k].id, r.choices[k].logprob)
                  for k in range(i * r.alternatives, (i + 1) * r.alternatives))
            for i in range(r.count if r.alternatives else 0)
        ]
        return Scores(
            ids=ids,
            logprobs=np.ctypeslib.as_array(r.logprobs, (r.count,)).copy(),
            pieces=tuple(tokenizer.decode([id]) for id in ids),
            alternatives=tuple(choices),
            logprob=r.logprob,
            scored=r.scored,
        )

    def logits(self, ids: Sequence[int], skip: float = 0.0) -> np.ndarray:
        """The logits after each token: float32 [len(ids), vocab]. Nothing is put before the ids."""
        return Session(self, skip=skip).logits(ids)

    def evaluate(
        self,
        texts: Optional[Texts] = None,
        lengths: Union[int, str, Sequence[int], None] = None,
        protocol: str = "nonoverlapping",
        split: Optional[str] = None,
        stride: int = 0,
        tokens: int = 0,
        window: int = 0,
        skip: float = 0.0,
        progress: Optional[ProgressCallback] = None,
        log: Optional[LogCallback] = None,
    ) -> Evaluation:
        """The perplexity of texts at one or more lengths; every length scores the same tokens.

        texts: a Corpus; or str, which are texts, a document each; or pathlib.Path, which are files.
        None: the built-in text that the model was trained on. split: None is all of texts, and the
        validation split of the built-in text. stride 0: half the length. tokens 0: all are scored.
        A warning says if the model was trained on the text.
        """
        number = choice("protocol", protocol, PROTOCOLS)
        protocol = PROTOCOLS[number]
        stride, tokens = whole("stride", stride), whole("tokens", tokens)
        window = whole("window", window)
        if texts is None:
            corpus = self._own_text()
        else:
            own = None if isinstance(texts, Corpus) else self.tokenizer
            corpus = as_corpus(texts, own)
        part = choice("split", split or ("all" if corpus.files else "valid"), SPLITS)
        strided = lib.alibi_protocol_view(number).contents.strided
        if stride and not strided:
            raise UsageError(f"stride has no effect with protocol '{protocol}'")
        if protocol == "stream" and lengths is not None:
            raise UsageError("protocol 'stream' has no length: every token has all earlier tokens "
                             "as context")
        if lengths is None and self.train_length == 0 and protocol != "stream":
            raise UsageError(f"'{self.path}' does not record its training length; give lengths")
        asked = [self.train_length] if lengths is None else wholes("lengths", lengths, 1)
        if not asked:
            raise UsageError("lengths is empty: give at least one")
        requests = [
            structs["alibi_eval"](
                length=length,
                protocol=number,
                stride=(stride or (length + 1) // 2) if strided else 0,
                tokens=tokens,
                block=max(asked),
                window=window,
            )
            for length in asked
        ]
        for request in requests:
            lib.alibi_eval_check(self, ctypes.byref(request), None)
        trained_on = self._warn_if_seen(corpus, part, log)
        results = []
        for request in requests:
            result = structs["alibi_eval_result"]()
            long_call(
                lambda call: lib.alibi_evaluate(
                    self, corpus, part, ctypes.byref(request), ctypes.byref(result), call
                ),
                progress=progress,
                log=log,
                skip=skip,
            )
            results.append(LengthResult._of(result))
        return Evaluation(self.path, self.train_length, tuple(results), trained_on)

    def _warn_if_seen(self, corpus: Corpus, split: int, log: Optional[LogCallback]) -> bool:
        """If it is not known, nothing is said."""
        seen = ctypes.c_int()
        try:
            lib.alibi_model_has_seen(self, corpus, split, ctypes.byref(seen))
        except Error:
            return False
        if seen.value == constants["ALIBI_UNSEEN"]:
            return False
        partly = seen.value == constants["ALIBI_SEEN_PARTLY"]
        tell(log, "warning",
             f"the model was trained on '{corpus.name}', so it does better on it than on new text; "
             + ("split='valid' was held out" if partly else "evaluate on other text"))
        return True

    def _own_text(self) -> Corpus:
        builtin = structs["alibi_builtin"]()
        lib.alibi_model_get_builtin(self, ctypes.byref(builtin))
        if builtin.bytes == 0:
            raise BadInputError(
                f"no text: '{self.path}' is not known to be trained on the built-in text; "
                "give texts"
            )
        return Corpus.builtin(builtin.seed, builtin.bytes, self.tokenizer)

    def generate(
        self,
        prompt: str = "",
        tokens: int = 256,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
        skip: float = 0.0,
    ) -> Iterator[str]:
        """Continues a prompt: an iterator of pieces of text, each computed when it is asked for. An
        empty prompt is the beginning of a document, and the end of the document ends it."""
        tokens = whole("tokens", tokens)
        tokenizer = self.tokenizer
        sampling = _sampling(temperature, top_k, top_p, seed)
        data = text_bytes("prompt", prompt)
        ids = tokenizer.encode(data)
        held = b""
        if tokenizer.begin is not None and (len(ids) == 0 or ids[0] != tokenizer.begin):
            ids = np.append(np.array([tokenizer.begin], np.int32), ids)
        if len(ids) == 0:
            if tokenizer.end is None:
                raise BadInputError(
                    "the prompt is empty, and the tokenizer has no end-of-document token that "
                    "could start a document: give a prompt"
                )
            ids = np.array([tokenizer.end], np.int32)
        elif tokenizer.decode_bytes(ids[-1:]).endswith(b" ") and data[-1:] not in b" \t\r\v\f":
            held = b" "  # a word's token ends in a blank, which the model has read
        session = Session(self, skip=skip)
        session.feed(ids)
        return self._continue(session, sampling, held, tokens, begins=not data)

    def _continue(
        self, session: Session, sampling: Any, held: bytes, tokens: int, begins: bool
    ) -> Iterator[str]:
        tokenizer = self.tokenizer
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        token, sequence = ctypes.c_int32(), ctypes.c_int64(0)
        for index in range(tokens):
            if index > 0:
                lib.alibi_session_step(session, ctypes.byref(sequence), ctypes.byref(token), 1)
            lib.alibi_session_sample(
                session, 0, ctypes.byref(sampling), index, ctypes.byref(token)
            )
            if token.value == tokenizer.end and tokenizer.type != "words":
                break  # the end of words is the end of a line
            data = tokenizer.decode_bytes([token.value], continues=index > 0 or not begins)
            piece = decoder.decode(held + data)
            held = b""
            if piece:
                yield piece
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest

    def complete(
        self,
        prompts: Union[str, Sequence[str]],
        tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
        until: Union[str, Sequence[str]] = (),
        skip: float = 0.0,
    ) -> list[str]:
        """Continues several prompts together, one pass for a token of each; prompt i has the random
        numbers of seed + i. A continuation ends before the first of the texts `until`. A str is one
        prompt, or one such text."""
        data = texts_bytes("prompts", prompts)
        texts = [b""] * len(data)
        ends = [end for end in texts_bytes("until", until) if end]

        def emit(_: Any, which: int, text: int, size: int) -> bool:
            # A stop text may begin in an earlier piece, but not end there.
            longest = max((len(end) for end in ends), default=0)
            start = max(0, len(texts[which]) - longest)
            texts[which] += ctypes.string_at(text, size)
            return not any(texts[which].find(end, start) >= 0 for end in ends)

        array = (structs["alibi_prompt"] * len(data))(*((text, len(text)) for text in data))
        how = structs["alibi_generation"](tokens=whole("tokens", tokens))
        how.sampling = _sampling(temperature, top_k, top_p, seed)
        callback = lib.alibi_generate.argtypes[4](emit)
        long_call(
            lambda call: lib.alibi_generate(
                self, array, len(data), ctypes.byref(how), callback, None, call
            ),
            skip=skip,
        )
        return [_before(text, ends).decode(errors="replace") for text in texts]


def _sampling(temperature: float, top_k: int, top_p: float, seed: int) -> Any:
    return structs["alibi_sampling"](
        real("temperature", temperature),
        whole("top_k", top_k),
        real("top_p", top_p, most=1.0),
        whole("seed", seed),
    )


def _before(text: bytes, ends: Sequence[bytes]) -> bytes:
    places = [place for place in (text.find(end) for end in ends) if place >= 0]
    return text[: min(places, default=len(text))]
