#!/usr/bin/env python3
"""Writes tests/golden/gguf/kinds.gguf with the `gguf` package of llama.cpp: metadata of every kind, tensors of every type.

    python3 tests/golden/make_gguf.py        needs gguf and numpy; a second

test_gguf.c reads it. The tensors `q8_0`, `f16` and `bf16` hold the numbers of the F32 tensor `numbers`, so that decoding and
encoding can be compared with the package's to the last bit: ties, blocks of zeros, subnormal scales and the largest of fp16.
"""
import pathlib

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).parent / "gguf"


def numbers():
    """[8, 64]: ordinary numbers, and blocks that are at the edges of Q8_0."""
    random = np.random.default_rng(1)
    x = random.normal(0, 0.02, (8, 64)).astype(np.float32)
    x[1] *= np.exp(random.normal(0, 4, 64)).astype(np.float32)
    x[2, :32] = 0
    x[2, 32:] = np.arange(32) - 15.5  # ties once they are divided by the scale
    x[2, 63] = 127
    x[3, :32] *= 1e-6  # the scale is a subnormal number of fp16
    x[3, 32:] *= 1e-12  # or 0
    x[4] *= 3e6
    x[4] = np.clip(x[4], -65504, 65504)
    x[5, 7] = -127.0 / 128
    return x


def main():
    FOLDER.mkdir(exist_ok=True)
    w = gguf.GGUFWriter(FOLDER / "kinds.gguf", "test")
    w.add_uint8("kinds.u8", 200)
    w.add_int8("kinds.i8", -100)
    w.add_uint16("kinds.u16", 60000)
    w.add_int16("kinds.i16", -30000)
    w.add_uint32("kinds.u32", 4000000000)
    w.add_int32("kinds.i32", -2000000000)
    w.add_float32("kinds.f32", 0.1)
    w.add_bool("kinds.bool", True)
    w.add_string("kinds.text", "größer")
    w.add_uint64("kinds.u64", 2**63)
    w.add_int64("kinds.i64", -2**62)
    w.add_float64("kinds.f64", 0.1)
    w.add_array("kinds.texts", ["", "a", "Ġthe"])
    w.add_array("kinds.integers", [3, -1, 7])
    w.add_array("kinds.reals", [0.5, -2.25])
    x = numbers()
    w.add_tensor("numbers", x)
    w.add_tensor("vector", np.arange(5, dtype=np.float32))
    w.add_tensor("f16", x.astype(np.float16))
    for kind in (gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.Q8_0):
        w.add_tensor(kind.name.lower(), gguf.quants.quantize(x, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
