#!/usr/bin/env python3
"""Writes the tables of characters in lib/text.

    python3 -m pip install unicodedata2==16.0.0
    python3.11 scripts/unicode.py categories > lib/text/categories.inc
    python3.11 scripts/unicode.py normal > lib/text/normal.inc

categories: the general category of every code point, by Unicode 16. Needs Python 3.11, whose own
tables are those of Unicode 14: code points that the two versions see differently are marked.
normal: canonical decompositions and combining classes, by Unicode 9.

Hugging Face's `tokenizers` 0.23 has both versions: Oniguruma's categories, and another library's
normalization. The normalization of a character never changes once it is assigned, so Unicode 9 is
Unicode 16 without later characters; those that matter are listed below.
"""
import sys
import unicodedata

import unicodedata2

# ---- categories

NAMES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co "
         "Cn").split()
DIFFERS = 0x20


def kind(code):
    """The index of the category, and whether Unicode 14 has another one, or none."""
    old, new = unicodedata.category(chr(code)), unicodedata2.category(chr(code))
    return NAMES.index(new) | (DIFFERS if old != new or old == "Cn" else 0)


def runs():
    start = 0
    for code in range(1, 0x110001):
        if code == 0x110000 or kind(code) != kind(start):
            yield kind(start), code - start
            start = code


def encode(what, length):
    """The kind, with the bytes of the length in its two high bits; a length of 1 takes none."""
    rest = b"" if length == 1 else length.to_bytes((length.bit_length() + 7) // 8, "little")
    return bytes([what | len(rest) << 6]) + rest


# ---- normalization

LATER = """7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1ace 1df6-1dfa a82c 105c9 105e4
10d24-10d27 10d69-10d6d 10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b 11383 11385
1138e 11391 113c5 113c7-113c8 113ce-113d0 1145e 11839-1183a 11938 1193d-1193e 11943 119e0 11a34
11a47 11a99 11d42 11d44-11d45 11d97 11f41-11f42 16121-16128 1612f 16d68-16d6a 16ff0-16ff1 1e08f
1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef"""


def later():
    for part in LATER.split():
        first, _, last = part.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


def decompositions():
    """(code, first, second, composes); second is 0 if there is none. Hangul is computed instead."""
    skip = set(later())
    for code in range(0x110000):
        parts = unicodedata2.decomposition(chr(code))
        if parts and parts[0] != "<" and code not in skip:
            first, second = ([int(p, 16) for p in parts.split()] + [0])[:2]
            composes = unicodedata2.normalize("NFC", chr(code)) == chr(code)
            yield code, first, second, int(composes)


def marks(table):
    """(first, last, combining class, unsure): runs of characters that a normalized text may not
    have everywhere. Unsure: never, or not after every character."""
    skip = set(later())
    unsure = {code for code, _, _, composes in table if not composes}
    unsure |= {second for _, _, second, composes in table if composes}
    unsure |= {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
    start, before = 0, (0, 0)
    for code in range(0x110001):
        known = code < 0x110000 and code not in skip
        now = (unicodedata2.combining(chr(code)), int(code in unsure)) if known else (0, 0)
        if now != before:
            if before != (0, 0):
                yield start, code - 1, *before
            start, before = code, now


def write_normal():
    table = list(decompositions())
    print("static const struct decomposition decompositions[] = {")
    for code, first, second, _ in table:
        print(f"{{{code},{first},{second}}},")
    pairs = sorted((t[1], t[2], i) for i, t in enumerate(table) if t[3])
    print("};\nstatic const uint16_t by_parts[] = {")
    for at in range(0, len(pairs), 16):
        print("".join(f"{i}," for _, _, i in pairs[at:at + 16]))
    print("};\nstatic const struct mark marks[] = {")
    for mark in marks(table):
        print("{" + ",".join(map(str, mark)) + "},")
    print("};")


# ---- the files


def write_categories():
    assert unicodedata.unidata_version == "14.0.0"
    table = b"".join(encode(*run) for run in runs())
    for at in range(0, len(table), 20):
        print("".join(f"{byte}," for byte in table[at:at + 20]))


def main():
    assert unicodedata2.unidata_version == "16.0.0"
    print("/* Written by scripts/unicode.py: do not edit. */")
    {"categories": write_categories, "normal": write_normal}[sys.argv[1]]()


if __name__ == "__main__":
    main()
