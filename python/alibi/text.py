"""Tokenizers, and texts as tokens."""
from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Iterable, Optional, Sequence, Union

import numpy as np

from ._header import Pointer, named
from ._library import (
    Handle,
    LogCallback,
    Options,
    PathLike,
    ProgressCallback,
    UsageError,
    choice,
    lib,
    long_call,
    path_bytes,
    pointers,
    strings,
    structs,
    text_bytes,
    texts_bytes,
    whole,
)

SPLITS = ("train", "valid", "test", "all")  # as in enum alibi_split
TokenizerLike = Union["Tokenizer", PathLike]


class Tokenizer(Handle):
    """Text to token ids and back."""

    @classmethod
    def open(cls, path: PathLike = "bytes", end: Optional[str] = None) -> Tokenizer:
        """Opens a tokenizer.json, a folder with one or with vocab.json and merges.txt, or "bytes",
        the built-in tokenizer. `end` names the token that ends a document."""
        pointer = pointers["alibi_tokenizer"]()
        ends = text_bytes("end", end) if end is not None else None
        lib.alibi_tokenizer_open(ctypes.byref(pointer), path_bytes(path), ends)
        return cls(pointer, lib.alibi_tokenizer_free)

    @classmethod
    def _borrowed(cls, pointer: Pointer, owner: Any) -> Tokenizer:
        return cls(pointer, lambda _: None, owner)

    @property
    def type(self) -> str:
        """ "bytes", "bpe" or "words"."""
        return lib.alibi_tokenizer_type(self).decode()

    @property
    def vocab(self) -> int:
        """Ids are 0 to vocab - 1."""
        return lib.alibi_tokenizer_vocab(self)

    @property
    def end(self) -> Optional[int]:
        """The id after each document."""
        end = lib.alibi_tokenizer_end(self)
        return end if end >= 0 else None

    @property
    def begin(self) -> Optional[int]:
        """The id before each document."""
        begin = lib.alibi_tokenizer_begin(self)
        return begin if begin >= 0 else None

    def encode(self, text: Union[str, bytes]) -> np.ndarray:
        """The ids of a text, int32, without begin and end."""
        data = text_bytes("text", text)
        ids = ctypes.POINTER(ctypes.c_int32)()
        count = ctypes.c_int64()
        lib.alibi_tokenizer_encode(self, data, len(data), ctypes.byref(ids), ctypes.byref(count))
        try:
            return _copied(ids, count.value)
        finally:
            lib.alibi_ids_free(ids)

    def decode_bytes(self, ids: Sequence[int], continues: bool = False) -> bytes:
        """The bytes of ids, which may end inside a character. Some tokenizers put a blank before a
        text, which is dropped here, unless the ids continue a text."""
        array = as_ids(ids)
        text = ctypes.c_char_p()
        size = ctypes.c_size_t()
        decode = lib.alibi_tokenizer_decode_more if continues else lib.alibi_tokenizer_decode
        decode(
            self, ids_pointer(array), len(array), ctypes.byref(text), ctypes.byref(size)
        )
        try:
            return ctypes.string_at(text, size.value)
        finally:
            lib.alibi_text_free(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode(errors="replace")

    def write(self, path: PathLike) -> None:
        """As tokenizer.json."""
        lib.alibi_tokenizer_write(self, path_bytes(path))

    def __repr__(self) -> str:
        return f"<alibi.Tokenizer {self.type}, {self.vocab} ids>"


def as_tokenizer(tokenizer: Optional[TokenizerLike], end: Optional[str] = None) -> Any:
    """A str or a Path is what Tokenizer.open() opens."""
    if isinstance(tokenizer, (str, os.PathLike)):
        return Tokenizer.open(tokenizer, end)
    if end is not None:
        raise UsageError(f"end '{end}' names a token of a tokenizer that is given as a path; "
                         "otherwise give it to Tokenizer.open()")
    return tokenizer


def as_ids(ids: Sequence[int]) -> np.ndarray:
    """Ids as the library reads them. One that does not fit in 32 bits is not cut silently."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(f"token ids must be integers in one dimension, not {array.dtype} of "
                         f"shape {array.shape}")
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int32).max):
        raise UsageError("token ids must be from 0 to 2147483647")
    return np.ascontiguousarray(array, dtype=np.int32)


def ids_pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


def _copied(pointer: Any, count: int) -> np.ndarray:
    return np.ctypeslib.as_array(pointer, (count,)).copy() if count else np.empty(0, np.int32)


class Corpus(Handle):
    """A text as tokens, in three splits."""

    files = True  # False: the built-in text

    @classmethod
    def builtin(
        cls, seed: int = 1, size: int = 1 << 22, tokenizer: Optional[TokenizerLike] = None
    ) -> Corpus:
        """Text that a generator makes from the seed, of about `size` bytes."""
        pointer = pointers["alibi_corpus"]()
        lib.alibi_corpus_builtin(
            ctypes.byref(pointer),
            whole("seed", seed),
            whole("size", size),
            as_tokenizer(tokenizer),
            None,
        )
        corpus = cls(pointer, lib.alibi_corpus_free)
        corpus.files = False
        return corpus

    @classmethod
    def open(
        cls,
        *paths: PathLike,
        valid: Optional[PathLike] = None,
        tokenizer: Optional[TokenizerLike] = None,
        end: Optional[str] = None,
        document: str = "file",
        format: str = "auto",
        field: str = "text",
        progress: Optional[ProgressCallback] = None,
        log: Optional[LogCallback] = None,
    ) -> Corpus:
        """Text files, folders of them, or token shards. `valid`: the text of the validation split;
        without it that is a part of `paths`. end: the token of `tokenizer` that ends a document.

        document: a document is a "file", a "line", the lines between blank lines ("blank-line"), or
        the text between separators, such as "<|endoftext|>". format: "text", "jsonl", or "auto", by
        the name of a file. field: the member of JSON lines with the text.
        """
        reading = Options(reading="alibi_reading")
        reading.set(document=document, format=format, field=field)
        how = ctypes.byref(reading.values["reading"])
        pointer = pointers["alibi_corpus"]()
        files = strings([path_bytes(path) for path in paths])
        valid_path = path_bytes(valid) if valid is not None else None
        own = as_tokenizer(tokenizer, end)
        long_call(
            lambda call: lib.alibi_corpus_open(
                ctypes.byref(pointer), files, len(paths), valid_path, own, how, call
            ),
            progress=progress,
            log=log,
        )
        return cls(pointer, lib.alibi_corpus_free)

    @classmethod
    def of_texts(
        cls, texts: Union[str, Iterable[str]], tokenizer: Optional[TokenizerLike] = None
    ) -> Corpus:
        """Texts in memory, a document each. A str is one document."""
        data = texts_bytes("texts", texts)
        sizes = (ctypes.c_size_t * len(data))(*map(len, data))
        pointer = pointers["alibi_corpus"]()
        own = as_tokenizer(tokenizer)
        long_call(
            lambda call: lib.alibi_corpus_texts(
                ctypes.byref(pointer), strings(data), sizes, len(data), own, call
            )
        )
        return cls(pointer, lib.alibi_corpus_free)

    @classmethod
    def of_run(cls, run: PathLike) -> Corpus:
        """The text that the run in a folder is trained on, with its tokenizer."""
        pointer = pointers["alibi_corpus"]()
        lib.alibi_corpus_of_run(ctypes.byref(pointer), path_bytes(run), None)
        return cls(pointer, lib.alibi_corpus_free)

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer._borrowed(lib.alibi_corpus_view_tokenizer(self), self)

    @property
    def name(self) -> str:
        """Its first path, "texts" in memory, or "built-in text"."""
        return self._info("all").name.decode(errors="replace")

    def tokens(self, split: str = "all") -> int:
        """How many tokens a split has."""
        return self._info(split).tokens

    def _info(self, split: str) -> Any:
        info = structs["alibi_corpus_info"]()
        lib.alibi_corpus_get_info(self, choice("split", split, SPLITS), ctypes.byref(info))
        return info

    def __repr__(self) -> str:
        return f"<alibi.Corpus '{self.name}', {self.tokens()} tokens>"


Texts = Union[Corpus, str, Path, Iterable[Union[str, Path]]]


_ENDINGS = (".txt", ".md", ".json", ".jsonl", ".ndjson", ".gz", ".zst", ".bin")


def _name_of_file(text: str) -> bool:
    """Whether a text is the name of a file, or looks like one."""
    if len(text) > 255 or "\n" in text or "\0" in text:
        return False
    return (os.path.exists(text) or text.endswith(_ENDINGS)
            or ("/" in text and " " not in text))


def as_corpus(texts: Texts, tokenizer: Optional[TokenizerLike]) -> Corpus:
    """A str is a text, a Path is a file or a folder."""
    if isinstance(texts, Corpus):
        if tokenizer is not None:
            raise UsageError("a Corpus has its tokenizer: give tokenizer= when it is opened")
        return texts
    if not isinstance(texts, Iterable) and not isinstance(texts, Path):
        raise UsageError(f"texts must be a Corpus, str or pathlib.Path, not {named(texts)}")
    parts = [texts] if isinstance(texts, (str, bytes, Path)) else list(texts)
    if parts and all(isinstance(part, Path) for part in parts):
        return Corpus.open(*parts, tokenizer=tokenizer)
    for part in parts:
        if not isinstance(part, str):
            raise UsageError(f"texts must be all str, which are texts, or all pathlib.Path, which "
                             f"are files, not {named(part)}")
    if parts and all(map(_name_of_file, parts)):
        seems = "is" if os.path.exists(parts[0]) else "looks like"
        raise UsageError(f"{parts[0]!r} is a text, but {seems} the name of a file: for a file give "
                         f"pathlib.Path({parts[0]!r}), for this text Corpus.of_texts([...])")
    return Corpus.of_texts(parts, tokenizer)
