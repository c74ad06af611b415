"""Training one model, and comparing position methods."""
from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any, Optional, Sequence

from ._header import named
from ._library import (
    BadInputError,
    LogCallback,
    Options,
    PathLike,
    ProgressCallback,
    UsageError,
    find_recipe,
    lib,
    long_call,
    path_bytes,
    spelled,
    structs,
)
from .model import as_device
from .results import Comparison, LengthResult, Training, Trial, from_struct
from .text import Corpus, Texts, TokenizerLike, as_corpus

# Minutes on two cores, as the program's: docs/cli.md.
_COMPARE_DEFAULTS = {"train_length": 64, "batch": 8, "steps": 1200, "warmup": 40, "eval_every": 0}


def _text(texts: Optional[Texts], options: Options, tokenizer: Optional[TokenizerLike]) -> Corpus:
    if texts is not None:
        return as_corpus(texts, tokenizer)
    builtin = options.values["builtin"]
    return Corpus.builtin(builtin.seed, builtin.bytes, tokenizer)


# Options of the commands that belong to another call here.
_OF_TEXT = "give the text as alibi.Corpus.open(PATH, {name}=...)"
_OF_DEVICE = "give device=alibi.Device(NAME, {name}=...)"
_ELSEWHERE = {
    **dict.fromkeys(("valid", "document", "format", "field", "end"), _OF_TEXT),
    **dict.fromkeys(("gpu", "autotune"), _OF_DEVICE),
    "mix": "mixtures of texts are for the program: alibi train --mix",
    "data": "give the text first: train(pathlib.Path(PATH))",
}
_NOT_OF_COMPARE = {
    "position": "give methods=, one model each",
    "init": "every model of a comparison starts from its seed",
    "keep_best": "every model of a comparison is that of the last step",
}


def _set(options: Options, given: dict[str, Any], elsewhere: dict[str, str]) -> None:
    for name, value in given.items():
        if value is not None and name in elsewhere:
            why = elsewhere[name].format(name=name)
            raise UsageError(f"option '{name}' does not apply here: {why}")
    options.set(**given)


def _curve(folder: PathLike) -> tuple[tuple[int, float], ...]:
    """The loss of each step; if a step was repeated after a resume, the last one."""
    losses: dict[int, float] = {}
    with open(os.path.join(folder, "log.jsonl"), encoding="utf-8") as log:
        for line in log:
            entry = json.loads(line)
            if "loss" in entry and entry["loss"] is not None:
                losses[entry["step"]] = entry["loss"]
    return tuple(sorted(losses.items()))


def train(
    texts: Optional[Texts] = None,
    out: PathLike = "runs/train",
    *,
    resume: bool = False,
    tokenizer: Optional[TokenizerLike] = None,
    device: Any = "auto",
    precision: str = "auto",
    recipe: Optional[PathLike] = None,
    tensorboard: Optional[PathLike] = None,
    progress: Optional[ProgressCallback] = None,
    log: Optional[LogCallback] = None,
    **options: Any,
) -> Training:
    """Trains a model into the folder `out`, or resumes its training.

    texts: a Corpus; or str, which are texts; or pathlib.Path, which are files. None: the built-in
    text, or with resume the text of the run. options: those of `alibi train`, with underscores:
    position="alibi", layers=4, steps=1000. recipe: a file of options, or the name of one of the
    package, such as "byte-10m"; others override it. With init=, a model to start from, the options
    of that model apply unless others are given.

    Ctrl-C saves a checkpoint and raises KeyboardInterrupt. The same call with resume=True continues
    bit-exact as if it had never been stopped.
    """
    if not isinstance(resume, bool):
        raise UsageError(f"resume must be True or False, not {named(resume)}")
    values = Options(config="alibi_config", training="alibi_training", builtin="alibi_builtin")
    folder = path_bytes(out)
    own = Path(out, "recipe.json")
    resumed = resume and own.exists() and not Path(out, "text.json").exists()
    if resumed:
        values.read(own)
    elif options.get("init") is not None:
        start = path_bytes(spelled("init", options["init"]))
        lib.alibi_model_read_start(ctypes.byref(values.values["config"]), start, None)
    if recipe is not None:
        values.read(find_recipe(recipe))
    _set(values, options, _ELSEWHERE)
    if resume and texts is None and recipe is None and not own.exists():
        if not values.sets({"config", "builtin"}, options):
            raise BadInputError(f"cannot resume '{os.fspath(out)}': there is no run in it; give "
                                "the folder of one as out=, or a text to start one")
    config, training = values.values["config"], values.values["training"]
    lib.alibi_train_check(ctypes.byref(config), ctypes.byref(training), folder, resume)
    where = as_device(device, precision)
    of_run = resumed and texts is None and tokenizer is None
    corpus = Corpus.of_run(out) if of_run else _text(texts, values, tokenizer)
    result = structs["alibi_train_result"]()
    long_call(
        lambda call: lib.alibi_train(
            where,
            ctypes.byref(config),
            ctypes.byref(training),
            corpus,
            folder,
            resume,
            ctypes.byref(result),
            call,
        ),
        progress=progress,
        log=log,
        events=tensorboard,
    )
    return from_struct(Training, result, folder=os.fspath(out), curve=_curve(out))


def compare(
    texts: Optional[Texts] = None,
    out: PathLike = "runs/compare",
    *,
    methods: Optional[Sequence[str]] = None,
    lengths: Optional[Sequence[int]] = None,
    seeds: Optional[Sequence[int]] = None,
    tokenizer: Optional[TokenizerLike] = None,
    device: Any = "auto",
    precision: str = "auto",
    recipe: Optional[PathLike] = None,
    progress: Optional[ProgressCallback] = None,
    log: Optional[LogCallback] = None,
    **options: Any,
) -> Comparison:
    """Trains one model per position method and seed on the same data, and tests each at every
    length. The folder `out` receives results.json, results.csv, report.html and recipe.json.

    texts, options and recipe are as of train(), with the defaults of `alibi compare`. Ctrl-C saves
    and raises KeyboardInterrupt; the same call resumes.
    """
    values = Options(
        compare="alibi_compare",
        config="alibi_config",
        training="alibi_training",
        builtin="alibi_builtin",
    )
    values.set(**_COMPARE_DEFAULTS)
    if recipe is not None:
        values.read(find_recipe(recipe))
    values.set(methods=methods, lengths=lengths, seeds=seeds)
    _set(values, options, {**_ELSEWHERE, **_NOT_OF_COMPARE})
    request = [ctypes.byref(values.values[name]) for name in ("compare", "config", "training")]
    folder = path_bytes(out)
    lib.alibi_compare_check(*request, folder)
    where = as_device(device, precision)
    corpus = _text(texts, values, tokenizer)
    result = ctypes.POINTER(structs["alibi_compare_result"])()
    long_call(
        lambda call: lib.alibi_compare_run(
            where, *request, corpus, folder, ctypes.byref(result), call
        ),
        progress=progress,
        log=log,
    )
    try:
        return _read_comparison(result.contents, out)
    finally:
        lib.alibi_compare_free(result)


def _read_comparison(result: Any, out: PathLike) -> Comparison:
    text = ctypes.c_char_p()
    lib.alibi_compare_text(ctypes.byref(text), ctypes.byref(result), 80, False)
    try:
        shown = (text.value or b"").decode()
    finally:
        lib.alibi_text_free(text)
    trials = []
    for method in result.method[: result.methods]:
        for seed in method.seed[: method.seeds]:
            trials.append(
                from_struct(
                    Trial,
                    seed,
                    method=method.name.decode(),
                    results=tuple(
                        LengthResult._of(r) for r in seed.by_length[: seed.lengths] if r.tokens
                    ),
                    stream=LengthResult._of(seed.stream) if seed.stream.tokens else None,
                )
            )
    lengths = result.compare.lengths
    return Comparison(
        folder=os.fspath(out),
        train_length=result.training.train_length,
        lengths=tuple(lengths.at[: lengths.count]),
        trials=tuple(trials),
        text=shown,
    )
