#!/usr/bin/env python3
"""Writes lib/text/categories.inc: the general category of every code point, by Unicode 16.

    python3 -m pip install unicodedata2==16.0.0
    python3.11 scripts/unicode.py > lib/text/categories.inc

Needs Python 3.11, whose own tables are those of Unicode 14: code points that the two versions see
differently are marked. Version 16 is that of Hugging Face's `tokenizers` 0.23 (its Oniguruma).
"""
import unicodedata

import unicodedata2

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


def main():
    assert unicodedata.unidata_version == "14.0.0" and unicodedata2.unidata_version == "16.0.0"
    table = b"".join(encode(*run) for run in runs())
    print("/* Written by scripts/unicode.py: do not edit. */")
    for at in range(0, len(table), 20):
        print("".join(f"{byte}," for byte in table[at:at + 20]))


if __name__ == "__main__":
    main()
