"""alibi.h as ctypes: every constant, struct and function of the header, by its name.

The header is the whole public interface, and its layout is regular, so it is read instead of being
copied: a struct that grows in C grows here. tests/python compares sizes and offsets with those of a
C compiler.
"""
from __future__ import annotations

import ctypes
import operator
import os
import re
from typing import Any, Optional

from ._errors import UsageError


class Status(ctypes.c_int):
    """alibi_status as a result: a class of its own, since it is checked where int is not."""


def named(value: Any) -> str:
    """A value as messages name it: itself if it is short, otherwise its type."""
    if value is None or isinstance(value, (str, bytes, int, float)):
        text = repr(value)
        if len(text) <= 80:
            return text
    return f"a value of type {type(value).__name__}"


class Pointer(ctypes.c_void_p):
    """A pointer to an object of the library. Each opaque type has a class of its own, and functions
    accept only that: as a plain void pointer, C would take a text or another object for it."""

    @classmethod
    def from_param(cls, value: Any) -> Pointer:
        pointer = getattr(value, "_as_parameter_", value)
        if isinstance(pointer, cls) and pointer:
            return pointer
        name = cls.__name__.partition("_")[2].capitalize()
        hint = f"; {name}.open() opens one" if isinstance(value, (str, os.PathLike)) else ""
        given = None if isinstance(pointer, cls) else value
        raise UsageError(f"a {name} is needed, not {named(given)}{hint}")


class _OrNull:
    """An argument that may be NULL."""

    def __init__(self, kind: type[Pointer]) -> None:
        self.kind = kind

    def from_param(self, value: Any) -> Optional[Pointer]:
        return None if value is None else self.kind.from_param(value)


class _Whole:
    """A whole number as an argument: of any type that is one, such as NumPy's. It is not cut."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def from_param(self, value: Any) -> Any:
        number = operator.index(value)
        argument = self.kind(number)
        if argument.value != number:
            raise TypeError(f"{number} is out of range")
        return argument


_SCALARS: dict[str, Any] = {
    "void": None,
    "bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "alibi_status": Status,
}
_WHOLE = (ctypes.c_int, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t)


def _split(text: str) -> list[str]:
    """Parts between the commas that are outside of parentheses."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in parts + [text[start:]]]


class Header:
    """`constants` by name, `structs` and `pointers` to opaque types as ctypes classes, `functions`
    as (result, arguments)."""

    def __init__(self, text: str) -> None:
        self.constants: dict[str, int] = {}
        self.structs: dict[str, Any] = {}
        self.pointers: dict[str, type[Pointer]] = {}
        self.functions: dict[str, tuple[Any, list[Any]]] = {}
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
        text = re.sub(r"\bconst\b", " ", text)
        declarations = re.compile(
            r"enum\s+\w*\s*\{(?P<enum>[^}]*)\}"
            r"|struct\s+(?P<struct>\w+)\s*\{(?P<fields>[^}]*)\}\s*;"
            r"|typedef\s+struct\s+(?P<opaque>\w+)\s+(?P=opaque)\s*;"
            r"|ALIBI_API\s+(?P<function>[^;]*);"
        )
        for found in declarations.finditer(text):
            if found["enum"] is not None:
                self._read_enum(found["enum"])
            elif found["struct"]:
                self._read_struct(found["struct"], found["fields"])
            elif found["opaque"]:
                self.pointers[found["opaque"]] = type(found["opaque"], (Pointer,), {})
            else:
                self._read_function(found["function"])

    def _number(self, text: str) -> int:
        return self.constants[text] if text in self.constants else int(text, 0)

    def _read_enum(self, text: str) -> None:
        value = -1
        for member in filter(None, _split(text)):
            name, _, given = (part.strip() for part in member.partition("="))
            value = self._number(given) if given else value + 1
            self.constants[name] = value

    def _read_struct(self, name: str, text: str) -> None:
        fields: list[tuple[str, Any]] = []
        for declaration in filter(None, (part.strip() for part in text.split(";"))):
            fields += self._declare(declaration)
        self.structs[name] = type(name, (ctypes.Structure,), {"_fields_": fields})

    def _read_function(self, text: str) -> None:
        found = re.match(r"(?s)(.*?)(\w+)\s*\((.*)\)\s*$", text)
        assert found, text
        ((_, result),) = self._declare(found[1] + " result")
        arguments = [] if found[3].strip() == "void" else _split(found[3])
        kinds = [self._declare(argument)[0][1] for argument in arguments]
        self.functions[found[2]] = (result, [self._argument(found[2], kind) for kind in kinds])

    def _argument(self, function: str, kind: Any) -> Any:
        """A type as that of an argument. An array is passed as a pointer. NULL is allowed for what
        is freed, for no other ranks, and for the tokenizer of bytes."""
        if isinstance(kind, type(ctypes.c_char * 1)):
            return ctypes.c_void_p
        if kind in _WHOLE:
            return _Whole(kind)
        null = function.endswith("_free") or kind is self.pointers.get("alibi_comm") or (
            function.startswith("alibi_corpus_") and kind is self.pointers.get("alibi_tokenizer"))
        return _OrNull(kind) if null and kind in self.pointers.values() else kind

    def _declare(self, text: str) -> list[tuple[str, Any]]:
        """The names of a declaration and their types: `int64_t done, total` has two."""
        function = re.match(r"(?s)(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)\s*$", text)
        if function:
            ((_, result),) = self._declare(function[1] + " result")
            arguments = [self._declare(argument)[0][1] for argument in _split(function[3])]
            # As c_char_p a callback would see text only up to its first 0 byte.
            raw = [ctypes.c_void_p if kind is ctypes.c_char_p else kind for kind in arguments]
            return [(function[2], ctypes.CFUNCTYPE(result, *raw))]
        found = re.match(r"(?s)\s*(?:(struct|enum)\s+)?(\w+)\b(.*)$", text)
        assert found, text
        base = ctypes.c_int if found[1] == "enum" else self._base(found[2])
        return [self._declarator(base, part) for part in _split(found[3])]

    def _base(self, name: str) -> Any:
        return _SCALARS[name] if name in _SCALARS else self.structs.get(name) or self.pointers[name]

    def _declarator(self, base: Any, text: str) -> tuple[str, Any]:
        found = re.match(r"(?s)([\s*]*)(\w*)((?:\s*\[\s*\w+\s*\])*)\s*$", text)
        assert found, text
        kind, stars = base, found[1].count("*")
        if kind in self.pointers.values():
            stars -= 1  # the type is the pointer
        if stars and kind in (None, ctypes.c_char):
            kind, stars = (ctypes.c_char_p if kind else ctypes.c_void_p), stars - 1
        for _ in range(stars):
            kind = ctypes.POINTER(kind)
        for size in reversed(re.findall(r"\w+", found[3])):
            kind = kind * self._number(size)
        return found[2], kind
