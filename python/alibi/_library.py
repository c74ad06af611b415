"""The shared library: loading it, its errors as exceptions, and calls that take long."""
from __future__ import annotations

import ctypes
import os
import queue
import re
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Union

from ._errors import (
    BadInputError,
    DeviceError,
    Error,
    FileError,
    Interrupted,
    NumericError,
    OutOfMemoryError,
    UsageError,
)
from ._header import Header, Pointer, Status, named

PathLike = Union[str, "os.PathLike[str]"]


_ERRORS = {
    kind.status: kind
    for kind in (
        UsageError,
        BadInputError,
        OutOfMemoryError,
        FileError,
        NumericError,
        DeviceError,
        Interrupted,
    )
}


def _find() -> tuple[Path, Path]:
    """The library and its header: those of the package, or of the source tree around it."""
    package = Path(__file__).resolve().parent
    tree = package.parent.parent
    places = [
        (package / "libalibi.so", package / "alibi.h"),
        (tree / "build" / "release" / "libalibi.so", tree / "include" / "alibi.h"),
    ]
    for library, header in places:
        if library.exists() and header.exists():
            return library, header
    raise ImportError(
        f"libalibi.so is neither in '{package}' nor in '{places[1][0].parent}': "
        "install the package with `pip install ./python`, or run `make build`"
    )


def _in_python(line: str) -> str:
    """The library's line with options as they are called here: train_length for --train-length."""
    return re.sub(r"(?<![\w-])--([a-z][a-z0-9-]*)", lambda m: m[1].replace("-", "_"), line)


def _check(status: Status, function: Any, arguments: Any) -> None:
    if status.value != 0:
        raise _ERRORS.get(status.value, Error)(_in_python(lib.alibi_error().decode()))


def _refused(name: str, kinds: list[Any], arguments: Any, reason: Exception) -> UsageError:
    """ctypes wraps what a conversion raises, so arguments are converted again for the reason."""
    for number, (kind, argument) in enumerate(zip(kinds, arguments), 1):
        try:
            kind.from_param(argument)
        except UsageError as error:
            return error
        except TypeError as error:
            return UsageError(f"{name}(), argument {number}: {error}")
    return UsageError(f"{name}(): {reason}")


def _function(library: ctypes.CDLL, name: str, result: Any, kinds: list[Any]) -> Any:
    """A function of the library, which refuses arguments of other types as the library would."""
    call = getattr(library, name)
    call.restype, call.argtypes = result, kinds
    if result is Status:
        call.errcheck = _check

    def function(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except ctypes.ArgumentError as error:
            raise _refused(name, kinds, arguments, error) from None

    function.__name__ = function.__qualname__ = name
    function.restype, function.argtypes = result, kinds  # type: ignore[attr-defined]
    return function


def find_recipe(recipe: PathLike) -> Path:
    """A file, or the recipe of the package with that name."""
    path = Path(os.fsdecode(path_bytes(recipe)))
    package = Path(__file__).resolve().parent
    if path.exists() and not path.is_dir() or len(path.parts) != 1:
        return path
    known = {
        found.stem: found
        for folder in (package.parent.parent / "recipes", package / "recipes")
        for found in sorted(folder.glob("*.json"))
    }
    name = path.name.removesuffix(".json")
    if name not in known:
        names = strings([*map(str.encode, known)])
        nearest = lib.alibi_nearest(os.fsencode(name), names, len(known))
        hint = f"; did you mean '{nearest.decode()}'?" if nearest else ""
        raise BadInputError(f"no recipe '{name}': there is no such file, and the recipes of the "
                            f"package are {', '.join(known)}{hint}")
    return known[name]


def _load() -> tuple[Any, Header]:
    path, header_path = _find()
    header = Header(header_path.read_text())
    library = ctypes.CDLL(str(path))  # a CDLL releases the GIL for the time of each call
    functions = {
        name: _function(library, name, *kinds) for name, kinds in header.functions.items()
    }
    return types.SimpleNamespace(**functions), header


lib, _header = _load()
constants = _header.constants
structs = _header.structs
pointers = _header.pointers


def path_bytes(path: PathLike) -> bytes:
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"a path is needed, not {named(path)}")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise UsageError(f"{named(path)} cannot be a path") from None
    if b"\0" in encoded:  # which would end it in C
        raise UsageError(f"a path has no byte 0: {named(path)}")
    return encoded


def text_bytes(what: str, text: Union[str, bytes]) -> bytes:
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise UsageError(f"{what} must be a str, not {named(text)}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is not text: {error.reason} at {error.start}") from None


def texts_bytes(what: str, texts: Union[str, bytes, Iterable[str]]) -> list[bytes]:
    """One text is a list of one."""
    if isinstance(texts, (str, bytes)):
        texts = [texts]
    if not isinstance(texts, Iterable):
        raise UsageError(f"{what} must be a str or a list of them, not {named(texts)}")
    return [text_bytes(f"each of {what}", text) for text in texts]


def strings(values: list[bytes]) -> Any:
    """A C array of strings."""
    return (ctypes.c_char_p * len(values))(*values)


class Handle:
    """An object of the library, which is released when Python's object is. `keeps`: objects that it
    needs until then."""

    def __init__(self, pointer: Pointer, free: Any = None, *keeps: Any) -> None:
        if not isinstance(pointer, Pointer):
            name = type(self).__name__
            raise UsageError(f"a {name} is not made from {named(pointer)}; {name}.open() opens one")
        self._as_parameter_ = pointer
        self._free = weakref.finalize(self, _release, free, pointer, keeps)


def _release(free: Any, pointer: Pointer, keeps: Any) -> None:
    free(pointer)


# ---- calls that take long


@dataclass(frozen=True)
class Progress:
    """How far a call is. `loss` is NaN, and `valid_loss` 0, where there is none yet."""

    task: str
    unit: str
    done: int
    total: int
    seconds: float
    seconds_left: float
    tokens_per_s: float
    loss: float
    valid_loss: float

    def __str__(self) -> str:
        loss = f", loss {self.loss:.4f}" if self.loss == self.loss else ""
        return (
            f"{self.task}: {self.done} of {self.total} {self.unit}{loss}, "
            f"{self.seconds_left:.0f} s left"
        )


ProgressCallback = Callable[[Progress], Any]
LogCallback = Callable[[str, str], Any]


def _read_progress(p: Any) -> Progress:
    values = {name: getattr(p, name) for name, _ in p._fields_}
    values["task"] = (values["task"] or b"").decode()
    values["unit"] = (values["unit"] or b"").decode()
    return Progress(**{name: values[name] for name in Progress.__dataclass_fields__})


def tell(log: Optional[LogCallback], level: str, line: str) -> None:
    """A line for the caller: of his log, or else as a Python warning if it is one."""
    if log is not None:
        log(level, _in_python(line))
    elif level == "warning":
        warnings.warn(_in_python(line), stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """As warnings.warn() counts in tell(): the nearest line outside of the package."""
    package = os.path.dirname(__file__) + os.sep
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    return level


def long_call(
    function: Callable[[Any], Any],
    *,
    progress: Optional[ProgressCallback] = None,
    log: Optional[LogCallback] = None,
    skip: float = 0.0,
    events: Optional[PathLike] = None,
) -> Any:
    """Runs function(call) in a thread of its own, with a struct alibi_call.

    The thread that called only waits, so Ctrl-C reaches it at once: the call is asked to stop,
    saves what it can, and then KeyboardInterrupt continues. Callbacks run in the thread that
    called; an exception in one stops the call in the same way.
    """
    for name, callback in (("progress", progress), ("log", log)):
        if callback is not None and not callable(callback):
            raise UsageError(f"{name} must be a function, not {named(callback)}")
    events_of_call: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stop = structs["alibi_stop"]()
    call = structs["alibi_call"](skip=real("skip", skip, most=0.999), stop=ctypes.pointer(stop))
    fields = dict(structs["alibi_call"]._fields_)

    def send_progress(_: Any, p: Any) -> None:
        events_of_call.put((progress, (_read_progress(p.contents),)))

    def send_log(_: Any, level: int, line: int) -> None:
        name = "warning" if level == constants["ALIBI_WARNING"] else "note"
        events_of_call.put((tell, (log, name, ctypes.string_at(line).decode())))

    if progress is not None:
        call.progress = fields["progress"](send_progress)
    call.log = fields["log"](send_log)
    if events is not None:
        call.events = path_bytes(events)
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((function(ctypes.byref(call)), None))
        except BaseException as error:
            outcome.append((None, error))
        events_of_call.put(None)

    thread = threading.Thread(target=run, daemon=True, name="alibi")
    thread.start()
    try:
        while (event := events_of_call.get()) is not None:
            callback, arguments = event
            callback(*arguments)
    except BaseException as error:
        lib.alibi_stop_request(ctypes.byref(stop))
        _join(thread)
        if isinstance(error, KeyboardInterrupt) and isinstance(outcome[0][1], Interrupted):
            raise KeyboardInterrupt(str(outcome[0][1])) from None
        raise
    _join(thread)
    result, failure = outcome[0]
    if failure is not None:
        raise failure
    return result


def _join(thread: threading.Thread) -> None:
    """Waits for a call that was asked to stop: it is saving, and a second Ctrl-C must not leave it
    running with memory that Python frees."""
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt:
            continue


# ---- options: the library's tables, set by keyword


class Options:
    """Groups of options and the structs with their values. Values are set by the names of flags and
    recipes, and checked by the library."""

    def __init__(self, **groups: str) -> None:
        """groups: title="name of the struct", where alibi_<title>_options() has its table."""
        group = structs["alibi_option_group"]
        self.values = {title: structs[name]() for title, name in groups.items()}
        self.groups = (group * len(groups))()
        for entry, (title, values) in zip(self.groups, self.values.items()):
            count = ctypes.c_int()
            entry.title = title.encode()
            entry.options = getattr(lib, f"alibi_{title}_options")(ctypes.byref(count))
            entry.count = count.value
            entry.values = ctypes.cast(ctypes.pointer(values), ctypes.c_void_p)
        lib.alibi_options_init(self.groups, len(self.groups))
        self._free = weakref.finalize(
            self, _free_options, self.groups, len(self.groups), self.values
        )

    def set(self, **values: Any) -> None:
        for name, value in values.items():
            if value is not None:
                text = _option_bytes(name, value)
                lib.alibi_options_set(self.groups, len(self.groups), name.encode(), text)

    def sets(self, titles: set[str], values: dict[str, Any]) -> bool:
        """Whether one of the values is of an option of these groups."""
        names = {
            option.name.decode().replace("-", "_")
            for group in self.groups
            if group.title.decode() in titles
            for option in group.options[: group.count]
        }
        return any(name in names for name, value in values.items() if value is not None)

    def read(self, path: PathLike) -> None:
        lib.alibi_options_read(self.groups, len(self.groups), path_bytes(path))

    def as_dict(self, title: str) -> dict[str, Any]:
        """The values of a group by name, as set() takes them."""
        values = self.values[title]
        fields = {getattr(type(values), field[0]).offset: field[0] for field in values._fields_}
        (group,) = (group for group in self.groups if group.title == title.encode())
        result: dict[str, Any] = {}
        for option in group.options[: group.count]:
            value = getattr(values, fields[option.offset])
            if option.type == constants["ALIBI_OPTION_CHOICE"]:
                value = option.choices.decode().split("|")[value]
            elif option.type == constants["ALIBI_OPTION_INTS"]:
                value = value.at[: value.count]
            elif option.type == constants["ALIBI_OPTION_NAMES"]:
                value = [name.value.decode() for name in value.at[: value.count]]
            result[option.name.decode().replace("-", "_")] = (
                value.decode() if isinstance(value, bytes) else value
            )
        return result


def _read_option(kind: str, place: Any, name: str, value: Any, **how: Any) -> Any:
    """The value of an argument that is no option of the library's tables, by the same rules: 1e6,
    "8k", a name in any case."""
    option = structs["alibi_option"](name=name.encode(), type=constants[kind], **how)
    values = ctypes.cast(ctypes.pointer(place), ctypes.c_void_p)
    group = structs["alibi_option_group"](options=ctypes.pointer(option), count=1, values=values)
    lib.alibi_options_set(ctypes.byref(group), 1, name.encode(), _option_bytes(name, value))
    return place.value


def whole(name: str, value: Any, least: int = 0) -> int:
    if type(value) is int and least <= value < 2**63:
        return value
    return _read_option("ALIBI_OPTION_INT", ctypes.c_int64(), name, value, min=least, max=2.0**63)


def wholes(name: str, values: Any, least: int = 0) -> list[int]:
    """Of a list, or of one number."""
    if hasattr(values, "tolist"):  # of NumPy
        values = values.tolist()
    if isinstance(values, str):
        values = [part.strip() for part in values.split(",")]
    if not isinstance(values, Iterable) or isinstance(values, bytes):
        values = [values]
    return [whole(name, value, least) for value in values]


def real(name: str, value: Any, least: float = 0.0, most: float = 2.0**63) -> float:
    if type(value) in (float, int) and least <= value <= most:
        return float(value)
    return _read_option("ALIBI_OPTION_REAL", ctypes.c_double(), name, value, min=least, max=most)


def choice(name: str, value: Any, names: Iterable[str]) -> int:
    """The index of one of `names`."""
    choices = "|".join(names).encode()
    return _read_option("ALIBI_OPTION_CHOICE", ctypes.c_int(), name, value, choices=choices)


def _free_options(groups: Any, count: int, values: Any) -> None:
    lib.alibi_options_free(groups, count)


def _option_bytes(name: str, value: Any) -> bytes:
    """The library refuses what is not UTF-8, but a byte 0 would end the value in C."""
    text = spelled(name, value).encode(errors="surrogatepass")
    if b"\0" in text:
        raise UsageError(f"option '{name}' has a byte 0: {named(value)}")
    return text


def spelled(name: str, value: Any) -> str:
    """The value of an option as on the command line. Whole numbers of any type are written without
    a point."""
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    if isinstance(value, (list, tuple, range)):
        return ",".join(spelled(name, part) for part in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return str(value)
    raise UsageError(f"option '{name}' cannot be {named(value)}")
