#!/usr/bin/env python3
"""Prints a GGUF file as llama.cpp's `gguf` package reads it.

    python3 tests/golden/read_gguf.py FILE MODEL.safetensors

A line for each number or text of the metadata, and a last line: how many tensors there are, and the largest difference between
a number of theirs, decoded by the package, and the one of that rank in MODEL.safetensors. Numbers are compared after sorting
all of them, so names and order do not matter.
"""
import json
import struct
import sys

import gguf
import numpy as np


def weights(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    return np.sort(np.frombuffer(data[8 + size:], "<f4"))


reader = gguf.GGUFReader(sys.argv[1])
for name, field in reader.fields.items():
    if len(field.types) == 1:
        print(name, field.contents() if name != "tokenizer.huggingface.json" else len(field.contents()))
theirs = np.sort(np.concatenate([gguf.quants.dequantize(t.data, t.tensor_type).ravel() for t in reader.tensors]))
ours = weights(sys.argv[2])
difference = float(np.max(np.abs(theirs - ours))) if theirs.shape == ours.shape else float("inf")
print(json.dumps({"tensors": len(reader.tensors), "difference": difference}))
