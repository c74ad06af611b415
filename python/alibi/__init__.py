"""alibi: train language models short, test them long.

    import alibi
    run = alibi.train(out="runs/book", position="alibi", train_length=64, steps=300)
    model = alibi.Model.open("runs/book")
    print(model.evaluate(lengths=[64, 256, 1024]))

The package calls libalibi.so through ctypes. Calls release the GIL, so threads run in parallel, and
Ctrl-C stops a long call, which saves what it can. `alibi.lib` has every function of alibi.h, with
`alibi.structs` and `alibi.constants`.
"""
from ._attention import attention, attention_varlen, attention_with_kvcache
from ._library import (
    BadInputError,
    DeviceError,
    Error,
    FileError,
    Interrupted,
    NumericError,
    OutOfMemoryError,
    Progress,
    UsageError,
    constants,
    lib,
    pointers,
    structs,
)
from .model import Device, Model, Session
from .results import Comparison, Evaluation, LengthResult, Scores, Training, Trial
from .text import Corpus, Tokenizer
from .training import compare, train

__version__: str = lib.alibi_version().decode()

__all__ = [
    "BadInputError",
    "Comparison",
    "Corpus",
    "Device",
    "DeviceError",
    "Error",
    "Evaluation",
    "FileError",
    "Interrupted",
    "LengthResult",
    "Model",
    "NumericError",
    "OutOfMemoryError",
    "Progress",
    "Scores",
    "Session",
    "Tokenizer",
    "Training",
    "Trial",
    "UsageError",
    "attention",
    "attention_varlen",
    "attention_with_kvcache",
    "compare",
    "constants",
    "lib",
    "pointers",
    "structs",
    "train",
]
