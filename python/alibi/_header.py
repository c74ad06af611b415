"""alibi.h as ctypes: every constant, struct and function of the header, by its name.

The header is the whole public interface, and its layout is regular, so it is read instead of being
copied: a struct that grows in C grows here. tests/python compares sizes and offsets with those of a
C compiler.
"""
from __future__ import annotations

import ctypes
import re
from typing import Any


class Status(ctypes.c_int):
    """alibi_status as a result: a class of its own, since it is checked where int is not."""


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
    """`constants` by name, `structs` as ctypes classes, `functions` as (result, arguments)."""

    def __init__(self, text: str) -> None:
        self.constants: dict[str, int] = {}
        self.structs: dict[str, Any] = {}
        self.functions: dict[str, tuple[Any, list[Any]]] = {}
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
        text = re.sub(r"\bconst\b", " ", text)
        declarations = re.compile(
            r"enum\s+\w*\s*\{(?P<enum>[^}]*)\}"
            r"|struct\s+(?P<struct>\w+)\s*\{(?P<fields>[^}]*)\}\s*;"
            r"|ALIBI_API\s+(?P<function>[^;]*);"
        )
        for found in declarations.finditer(text):
            if found["enum"] is not None:
                self._read_enum(found["enum"])
            elif found["struct"]:
                self._read_struct(found["struct"], found["fields"])
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
        self.functions[found[2]] = (
            result,
            [self._decayed(self._declare(argument)[0][1]) for argument in arguments],
        )

    @staticmethod
    def _decayed(kind: Any) -> Any:
        """An array is passed as a pointer."""
        return ctypes.c_void_p if isinstance(kind, type(ctypes.c_char * 1)) else kind

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
        """None for a type whose content is unknown here: only pointers to it occur."""
        return _SCALARS[name] if name in _SCALARS else self.structs.get(name)

    def _declarator(self, base: Any, text: str) -> tuple[str, Any]:
        found = re.match(r"(?s)([\s*]*)(\w*)((?:\s*\[\s*\w+\s*\])*)\s*$", text)
        assert found, text
        kind, stars = base, found[1].count("*")
        if stars and kind in (None, ctypes.c_char):
            kind, stars = (ctypes.c_char_p if kind else ctypes.c_void_p), stars - 1
        for _ in range(stars):
            kind = ctypes.POINTER(kind)
        for size in reversed(re.findall(r"\w+", found[3])):
            kind = kind * self._number(size)
        return found[2], kind
