#!/usr/bin/env python3
"""Writes the golden files of test_exchange.c: small models of each family, with the logits that transformers computes for them.

    python3 tests/golden/make_exchange.py [NAME ...]     needs torch, transformers, safetensors; seconds on a CPU

Per model, in tests/golden/exchange/NAME:

    config.json     as save_pretrained() writes it
    tensors.txt     a line per tensor of model.safetensors: name, type, shape. Their numbers are not stored: they are functions of
                    name and index (numbers() below), which the test computes too
    logits.bin      int32 L, V; the tokens int32 [L]; the logits float32 [L, V], computed in fp32 from weights in that type

    python3 tests/golden/make_exchange.py --source FOLDER         writes the golden models as transformers has them
    python3 tests/golden/make_exchange.py --load FOLDER...        loads folders with the names of golden models, and compares
"""
import pathlib
import shutil
import struct
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers as T
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).parent / "exchange"
L, V = 48, 67
TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
LLAMA = dict(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=40, max_position_embeddings=16)

# Trained, so they say, at 16 tokens.
MODELS = {
    "bloom": ("F32", T.BloomConfig(vocab_size=V, hidden_size=36, n_layer=2, n_head=6, seq_length=16)),
    "mpt": ("BF16", T.MptConfig(vocab_size=V, d_model=32, n_layers=2, n_heads=4, max_seq_len=16)),
    "falcon": ("F16", T.FalconConfig(vocab_size=V, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, alibi=True,
                                     bias=True, multi_query=False, parallel_attn=False, max_position_embeddings=16)),
    "gpt2": ("F32", T.GPT2Config(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=L, n_inner=72)),
    "neox": ("BF16", T.GPTNeoXConfig(vocab_size=V, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                                     intermediate_size=40, max_position_embeddings=16, rotary_pct=0.5)),
    "neox-serial": ("F32", T.GPTNeoXConfig(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                           intermediate_size=40, max_position_embeddings=16, rotary_pct=1.0,
                                           use_parallel_residual=False, hidden_act="gelu_new", tie_word_embeddings=True)),
    "llama": ("F32", T.LlamaConfig(**LLAMA)),
    "llama3": ("BF16", T.LlamaConfig(**LLAMA, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=24))),
    "mistral": ("F16", T.MistralConfig(**LLAMA, sliding_window=13)),
    "qwen2": ("BF16", T.Qwen2Config(**LLAMA)),
    "qwen3": ("F32", T.Qwen3Config(**LLAMA, head_dim=8)),
}


def numbers(name, shape):
    """Multiples of 1/8192 within 1/4, around 1 for the weights of norms: from a hash of the name's CRC-32 and the index."""
    i = np.arange(int(np.prod(shape)), dtype=np.uint32)
    h = (i * np.uint32(2654435761)) ^ np.uint32(zlib.crc32(name.encode()))
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        h ^= h >> np.uint32(shift)
        h *= np.uint32(factor)
    h ^= h >> np.uint32(15)
    values = ((h & np.uint32(4095)).astype(np.float32) - 2048) / 8192
    if len(shape) == 1 and name.endswith(".weight"):
        values += 1
    return torch.from_numpy(values.reshape(shape))


def forward(model, tokens):
    if model.config.model_type == "mpt":
        model.config.max_seq_len = len(tokens)  # which ends its table of biases
    with torch.no_grad():
        return model.float().eval()(torch.tensor([tokens])).logits[0].numpy()


def make(name):
    kind, config = MODELS[name]
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as made:
        model = T.AutoModelForCausalLM.from_config(config)
        model.save_pretrained(made)
        tensors = {k: numbers(k, tuple(t.shape)).to(TYPES[kind]) for k, t in load_file(f"{made}/model.safetensors").items()}
        save_file(tensors, f"{made}/model.safetensors", metadata={"format": "pt"})
        shutil.copy(f"{made}/config.json", folder)
        model = T.AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32)
        tokens = [(7 * i * i + 3 * i + 5) % V for i in range(L)]
        logits = forward(model, tokens)
    with open(folder / "tensors.txt", "w") as out:
        for key in sorted(tensors):
            print(key, kind, *tensors[key].shape, file=out)
    with open(folder / "logits.bin", "wb") as out:
        out.write(struct.pack("<2i", L, V) + np.array(tokens, "<i4").tobytes() + logits.astype("<f4").tobytes())
    print(f"{name}: {sum(t.numel() for t in tensors.values())} numbers, logits within {abs(logits).max():.2f}")


def source(name, folder):
    """config.json and weights in a folder of their own."""
    folder = pathlib.Path(folder) / name
    folder.mkdir(parents=True)
    shutil.copy(FOLDER / name / "config.json", folder)
    lines = [line.split() for line in (FOLDER / name / "tensors.txt").read_text().splitlines()]
    tensors = {key: numbers(key, tuple(map(int, shape))).to(TYPES[kind]) for key, kind, *shape in lines}
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})


def load(folder, golden):
    """Loads an exported folder, and compares its logits with those of the golden file."""
    data = (FOLDER / golden / "logits.bin").read_bytes()
    length, vocab = struct.unpack("<2i", data[:8])
    tokens = np.frombuffer(data, "<i4", length, 8).tolist()
    expected = np.frombuffer(data, "<f4", length * vocab, 8 + 4 * length).reshape(length, vocab)
    model, info = T.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    left = [info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[k]]
    error = abs(forward(model, tokens) - expected).max()
    print(f"{golden} {type(model).__name__} {error:.2g}{' ' + str(left) if left else ''}")
    return error < 1e-4 and not left


if __name__ == "__main__":
    torch.manual_seed(1)
    if sys.argv[1:2] == ["--load"]:
        sys.exit(not all([load(f, pathlib.Path(f).name) for f in sys.argv[2:]]))
    if sys.argv[1:2] == ["--source"]:
        sys.exit(any(source(name, sys.argv[2]) for name in MODELS))
    for each in sys.argv[1:] or MODELS:
        make(each)
