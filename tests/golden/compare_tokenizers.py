#!/usr/bin/env python3
"""Holds the tokenizers of alibi against Hugging Face's `tokenizers`, live: more text than golden files can have.

    compare_tokenizers.py files  --tokenizer FILE... --data FOLDER...   every file, as one document, by lines, by blank lines
    compare_tokenizers.py random --tokenizer FILE...                   random bytes, random Unicode, and every code point

Needs tokenizers. `files` reads what `alibi tokenize --print-ids` prints while both go through the file, whatever its size;
`random` calls the library. ALIBI and ALIBI_LIBRARY say where they are, else build/release. The exit code is 1 if anything
differs, and the shortest text found that shows it is printed.
"""
import argparse
import ctypes
import json
import os
import pathlib
import random
import subprocess
import sys

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("ALIBI", str(ROOT / "build/release/alibi"))
LIBRARY = os.environ.get("ALIBI_LIBRARY", str(ROOT / "build/release/libalibi.so"))


# ---- the two sides


class Ours:
    """A tokenizer through the C interface."""

    library = None

    def __init__(self, path):
        if Ours.library is None:
            Ours.library = ctypes.CDLL(LIBRARY)
            Ours.library.alibi_error.restype = ctypes.c_char_p
            for name in ("text", "ids"):
                getattr(Ours.library, f"alibi_{name}_free").argtypes = [ctypes.c_void_p]
        self.handle = ctypes.c_void_p()
        self.check(self.library.alibi_tokenizer_open(ctypes.byref(self.handle), os.fsencode(path), None))
        self.end = self.library.alibi_tokenizer_end(self.handle)
        self.begin = self.library.alibi_tokenizer_begin(self.handle)

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.library.alibi_error().decode())

    def encode(self, data):
        ids, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_int64()
        self.check(self.library.alibi_tokenizer_encode(self.handle, data, ctypes.c_size_t(len(data)), ctypes.byref(ids),
                                                       ctypes.byref(count)))
        out = ids[: count.value]
        self.library.alibi_ids_free(ids)
        return out

    def decode(self, ids):
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.library.alibi_tokenizer_decode(self.handle, (ctypes.c_int32 * len(ids))(*ids),
                                                       ctypes.c_int64(len(ids)), ctypes.byref(text), ctypes.byref(size)))
        out = ctypes.string_at(text, size.value)
        self.library.alibi_text_free(text)
        return out


def without_prefix(step):
    """The same normalizer or pre-tokenizer, without a blank before text."""
    if not step:
        return step
    for key in ("normalizers", "pretokenizers"):
        if key in step:
            return dict(step, **{key: [without_prefix(s) for s in step[key] if s["type"] != "Prepend"]})
    if step["type"] == "Metaspace":
        return dict(step, prepend_scheme="never", add_prefix_space=False)
    return dict(step, add_prefix_space=False) if step["type"] == "ByteLevel" else step


class Theirs:
    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(path)
        file = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        more = dict(file, normalizer=without_prefix(file["normalizer"]), pre_tokenizer=without_prefix(file["pre_tokenizer"]))
        self.prefixes = more != file or file["model"].get("byte_fallback", False)
        self.more = Tokenizer.from_str(json.dumps(more))  # for text that continues
        self.added = [token["content"] for token in file["added_tokens"]]
        cut = self.tokenizer.pre_tokenizer
        self.whole = cut is not None and len(cut.pre_tokenize_str("a b")) == 1  # tokens may go across blanks
        self.strips = any(token["lstrip"] or token["rstrip"] for token in file["added_tokens"])

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decoded(self, text, ids):
        """What the ids of the text decode to. Added tokens cut the text before it is normalized, so it is not the normalized
        text."""
        if self.prefixes or self.strips or self.tokenizer.normalizer:
            return self.tokenizer.decode(ids, skip_special_tokens=False).encode()
        return text.encode()

    def encode_all(self, texts, continues=False):
        tokenizer = self.more if continues else self.tokenizer
        return [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]


def shortest(text, fails):
    """Takes out of the text what it can while it still fails: halves first, single characters last."""
    size = len(text)
    while size > 0:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size:]
            if fails(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


# ---- files


def last_cut(text):
    """Where the last such blank stands, or 0."""
    at = text.rfind(" ")
    while at > 0 and not (text[at - 1].isascii() and text[at - 1].isalpha()):
        at = text.rfind(" ", 0, at)
    return max(at, 0)


def pieces(path, size=1 << 18):
    """The text in parts that can be encoded one by one: cut before a blank with a letter before it, where every expression in
    use ends a piece, and no token of characters in use goes across."""
    rest = ""
    with open(path, encoding="utf-8", newline="") as f:
        while more := f.read(size):
            rest += more
            if cut := last_cut(rest):
                yield rest[:cut]
                rest = rest[cut:]
    if rest:
        yield rest


BLANKS = " \t\n\v\f\r"


def lines(path):
    """Lines with their line end; blank ones are no documents."""
    with open(path, encoding="utf-8", newline="\n") as f:
        yield from (line for line in f if line.strip(BLANKS))


def paragraphs(path):
    """What stands between blank lines."""
    document = ""
    with open(path, encoding="utf-8", newline="\n") as f:
        for line in f:
            if line.strip(BLANKS):
                document += line
            elif document:
                yield document
                document = ""
    if document:
        yield document


def batches(texts, size=1 << 22):
    batch, held = [], 0
    for text in texts:
        batch.append(text)
        held += len(text)
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


class Difference(Exception):
    """Carries a text that the two sides may encode differently."""


def start(tokenizer, path, document):
    """`alibi tokenize` on one file; its ids come on stdout, a line per document."""
    reading = ["--tokenizer", tokenizer, "--format", "text", "--document", document]
    command = [PROGRAM, "tokenize", "--quiet", "--print-ids", *reading, path]
    return subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=1 << 20)


def expect(stream, expected, text):
    got = stream.read(len(expected))
    if got != expected:
        raise Difference(text)


def compare_document(stream, theirs, ours, path):
    """The whole file is one line of ids; returns bytes and tokens."""
    size = tokens = 0
    expect(stream, b"%d " % ours.begin if ours.begin >= 0 else b"", "the begin")
    whole = pathlib.Path(path).read_bytes().decode()
    if theirs.whole or (theirs.prefixes and any(token in whole for token in theirs.added)):
        texts = [whole]  # a blank may be put after an added token, which the tokenizer of text that continues does not do
    else:
        texts = pieces(path)
    for batch in batches(texts):
        encoded = theirs.encode_all(batch, continues=True)
        if size == 0:
            encoded[0] = theirs.encode(batch[0])
        for text, ids in zip(batch, encoded):
            raw = text.encode()
            expect(stream, b"".join(b"%d " % i for i in ids), text)
            if ours.decode(ids) != theirs.decoded(text, ids):
                raise Difference(text)
            size, tokens = size + len(raw), tokens + len(ids)
    expect(stream, b"%d\n" % ours.end, "the end")
    return size, tokens


def compare_documents(stream, theirs, ours, documents):
    """A line of ids each."""
    size = tokens = 0
    for batch in batches(documents):
        for text, ids in zip(batch, theirs.encode_all(batch)):
            around = [i for i in (ours.begin,) if i >= 0] + ids
            expect(stream, b"".join(b"%d " % i for i in around) + b"%d\n" % ours.end, text)
            size, tokens = size + len(text.encode()), tokens + len(ids)
    return size, tokens


DOCUMENTS = {
    "file": compare_document,
    "line": lambda stream, theirs, ours, path: compare_documents(stream, theirs, ours, lines(path)),
    "blank-line": lambda stream, theirs, ours, path: compare_documents(stream, theirs, ours, paragraphs(path)),
}


def compare_file(tokenizer, theirs, ours, path, document):
    program = start(tokenizer, path, document)
    try:
        size, tokens = DOCUMENTS[document](program.stdout, theirs, ours, path)
        if program.stdout.read(1):
            raise Difference("what comes behind the end")
        program.stdout.close()
        same = program.wait() == 0
    except Difference as difference:
        program.kill()
        program.wait()
        size, tokens, same = 0, 0, False
        explain(theirs, ours, str(difference))
    name = os.path.basename(tokenizer)
    print(f"{name:24} {document:10} {path:44} {size:11} {tokens:10} {'yes' if same else 'NO'}", flush=True)
    return same


def explain(theirs, ours, text):
    """A text of the file that differs, made short; one that does not differ by itself was cut wrongly by the program."""
    def fails(t):
        return ours.encode(t.encode()) != theirs.encode(t)

    if fails(text):
        text = shortest(text, fails)
        print(f"  {text!r}: ours {ours.encode(text.encode())}, theirs {theirs.encode(text)}")
    else:
        print(f"  not within a text by itself: {text[:60]!r}")


def find(paths):
    """Text files, those of folders included; tables of contents are none."""
    for path in map(pathlib.Path, paths):
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        yield from (str(p) for p in files if p.suffix in (".txt", ".tokens"))


def compare_files(arguments):
    print(f"{'tokenizer':24} {'document':10} {'file':44} {'bytes':>11} {'tokens':>10} identical")
    same = True
    for tokenizer in arguments.tokenizer:
        theirs, ours = Theirs(tokenizer), Ours(tokenizer)
        for path in find(arguments.data):
            for document in arguments.document:
                same &= compare_file(tokenizer, theirs, ours, path, document)
    return same


# ---- random texts


def random_bytes(r):
    return r.randbytes(r.randrange(1, 80))


BITS = [" ", "  ", "\n", "\r\n", "\t", "'", "'s", "'t", "'LL", "'Re", "1", "12", "345", "٣", "a", "B", "the", " of", "é",
        "\u0301", "\u00a0", "\u3000", "\u200d", "\u2581", "<x>", "<s>", "<|endoftext|>", "</s>", "one two", "  x", "!", "...", "—", "中文", "👍🏽",
        "(", "|", ")", "।", "\u0085", "\x1c", "\ufeff"]


POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def random_unicode(r):
    return "".join(r.choice(BITS) if r.random() < 0.5 else chr(r.choice(POINTS)) for _ in range(r.randrange(1, 40)))


def compare_texts(what, theirs, ours, texts):
    """Ids and the way back; one line, and the shortest of those that differ."""
    def holds(text, ids):
        return ours.encode(text.encode()) == ids and ours.decode(ids) == theirs.decoded(text, ids)

    wrong = [text for text, ids in zip(texts, theirs.encode_all(texts)) if not holds(text, ids)]
    print(f"  {what:44} {len(texts):8} texts {len(wrong):6} differ", flush=True)
    for text in sorted(wrong, key=len)[:3]:
        explain(theirs, ours, text)
    return not wrong


def compare_raw(ours, texts):
    wrong = [t for t in texts if ours.decode(ours.encode(t)) != t]
    print(f"  {'random bytes, there and back':44} {len(texts):8} texts {len(wrong):6} differ", flush=True)
    for text in sorted(wrong, key=len)[:3]:
        print(f"  {shortest(text, lambda t: ours.decode(ours.encode(t)) != t)!r}")
    return not wrong


def ranges(numbers):
    """1, 2, 3, 7 as [(1, 3), (7, 7)]."""
    out = []
    for n in numbers:
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return out


def compare_code_points(theirs, ours):
    """Each one after a letter, after a blank and before a digit."""
    wrong = []
    for block in range(0, 0x110000, 0x4000):
        points = [c for c in range(block, block + 0x4000) if not 0xD800 <= c < 0xE000]
        texts = [f"a{chr(c)}{chr(c)}b {chr(c)}1\n{chr(c)}" for c in points]
        wrong += [c for c, t, ids in zip(points, texts, theirs.encode_all(texts)) if ours.encode(t.encode()) != ids]
    print(f"  {'every code point':44} {0x110000 - 0x800:8} texts {len(wrong):6} differ", flush=True)
    print("".join(f"    U+{a:04X}..U+{b:04X}\n" for a, b in ranges(wrong)), end="")
    return not wrong


def compare_random(arguments):
    r, same = random.Random(arguments.seed), True
    raw = [random_bytes(r) for _ in range(arguments.count)]
    for tokenizer in arguments.tokenizer:
        print(tokenizer)
        theirs, ours = Theirs(tokenizer), Ours(tokenizer)
        replaced = [b.decode(errors="replace") for b in raw]
        same &= compare_texts("random bytes, what is no UTF-8 replaced", theirs, ours, replaced)
        same &= theirs.prefixes or theirs.tokenizer.normalizer is not None or compare_raw(ours, raw)
        same &= compare_texts("random Unicode", theirs, ours, [random_unicode(r) for _ in range(arguments.count)])
        if arguments.code_points:
            same &= compare_code_points(theirs, ours)
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    files = commands.add_parser("files", help="encode whole files on both sides")
    files.add_argument("--document", nargs="+", choices=DOCUMENTS, default=list(DOCUMENTS))
    files.add_argument("--data", nargs="+", required=True, help="files and folders of .txt and .tokens")
    files.set_defaults(run=compare_files)
    texts = commands.add_parser("random", help="encode random texts on both sides")
    texts.add_argument("--count", type=int, default=10000)
    texts.add_argument("--seed", type=int, default=1)
    texts.add_argument("--code-points", action="store_true", help="every code point too")
    texts.set_defaults(run=compare_random)
    for command in (files, texts):
        command.add_argument("--tokenizer", nargs="+", required=True, help="tokenizer.json files")
    arguments = parser.parse_args()
    sys.exit(0 if arguments.run(arguments) else 1)


if __name__ == "__main__":
    main()
