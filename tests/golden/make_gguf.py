#!/usr/bin/env python3
"""Writes tests/golden/gguf with the `gguf` package of llama.cpp.

    python3 tests/golden/make_gguf.py        needs gguf, numpy, sentencepiece and llama-cpp-python, and a release build; seconds

kinds.gguf has metadata of every kind and tensors of every type; test_gguf.c reads it. The tensors `q8_0`, `f16` and `bf16`
hold the numbers of the F32 tensor `numbers`, so that decoding and encoding can be compared with the package's to the last bit:
ties, blocks of zeros, subnormal scales and the largest of fp16.

sentencepiece.gguf has tokens with scores, and sentencepiece.ids the ids that llama.cpp gives for sentencepiece.txt.
The others, which test_llamacpp.c reads as well, are models of tests/golden/data (whose logits PyTorch computed) and tokenizers of
tests/golden/tokenizers, under the names and in the layout that llama.cpp's own converters give them.
"""
import json
import pathlib
import struct
import subprocess
import tempfile

import gguf
import numpy as np
from compare_sentencepiece import PROGRAM, learn, write_gguf
from llama_cpp import Llama

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


def kinds():
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
    finish(w)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- models

def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, t in header.items():
        if name.startswith(("gradient.", "golden.", "__")):
            continue
        begin, end = (8 + size + at for at in t["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], "<f4").reshape(t["shape"])
    return tensors


NAMES = {
    "embedding": "token_embd", "position": "position_embd", "embedding_norm": "token_embd_norm", "norm": "output_norm",
    "head": "output", "norm1": "attn_norm", "norm2": "ffn_norm", "attention.qkv": "attn_qkv",
    "attention.out": "attn_output", "ff.up": "ffn_up", "ff.down": "ffn_down",
}


def permute(x, heads):
    """As LlamaModel.permute() of llama.cpp: from halves that are rotated together to pairs."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(x.shape)


def add_tensor(w, name, x, c, split):
    stem, end = name.rsplit(".", 1)
    prefix = ""
    if stem.startswith("blocks."):
        _, layer, stem = stem.split(".", 2)
        prefix = f"blk.{layer}."
    if split and stem == "attention.qkv":
        q = c["width"]
        kv = q // c["heads"] * c["kv_heads"]
        w.add_tensor(prefix + "attn_q.weight", permute(x[:q], c["heads"]))
        w.add_tensor(prefix + "attn_k.weight", permute(x[q:q + kv], c["kv_heads"]))
        w.add_tensor(prefix + "attn_v.weight", x[q + kv:].copy())
    elif split and stem == "ff.up":
        w.add_tensor(prefix + "ffn_gate.weight", x[:c["ff_width"]].copy())
        w.add_tensor(prefix + "ffn_up.weight", x[c["ff_width"]:].copy())
    else:
        w.add_tensor(f"{prefix}{NAMES[stem]}.{end}", x)


def model(name, arch):
    """A model of tests/golden/data as a file of that architecture."""
    c = json.loads((FOLDER.parent / "data" / f"{name}.json").read_text())
    w = gguf.GGUFWriter(FOLDER / f"{arch}.gguf", arch)
    w.add_context_length(c["max_length"] or 48)
    w.add_embedding_length(c["width"])
    w.add_block_count(c["layers"])
    w.add_feed_forward_length(c["ff_width"])
    w.add_head_count(c["heads"])
    if arch == "llama":
        w.add_head_count_kv(c["kv_heads"])
        w.add_layer_norm_rms_eps(c["norm_eps"])
        w.add_rope_dimension_count(c["width"] // c["heads"])
        w.add_vocab_size(c["vocab"])
    else:
        w.add_layer_norm_eps(c["norm_eps"])
    if arch == "mpt":
        w.add_max_alibi_bias(c["bias_max"])
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    w.add_tokenizer_model("none")
    for tensor, x in read_safetensors(FOLDER.parent / "data" / f"{name}.safetensors").items():
        add_tensor(w, tensor, x, c, arch == "llama")
    finish(w)


# ---- tokenizers

def tokenizer(name, pre):
    t = json.loads((FOLDER.parent / "tokenizers" / f"{name}.json").read_text())
    added = {a["id"]: a for a in t["added_tokens"]}
    tokens = {i: text for text, i in t["model"]["vocab"].items()} | {i: a["content"] for i, a in added.items()}
    types = [gguf.TokenType.NORMAL if i not in added else
             gguf.TokenType.CONTROL if added[i]["special"] else gguf.TokenType.USER_DEFINED for i in range(len(tokens))]
    w = gguf.GGUFWriter(FOLDER / f"tokenizer-{name}.gguf", "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list([tokens[i] for i in range(len(tokens))] + ["[PAD]"] * 3)
    w.add_token_types(types + [gguf.TokenType.UNUSED] * 3)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]])
    w.add_eos_token_id(max(i for i, a in added.items() if a["special"]))
    finish(w)


MIXED = """Größe  and   blanks\tof     every kind \u2581 <user> here </s>x
漢字 and 🙂 and \u0301, banana ananas aaaaaaa abababa --------
  def f(x):
      return  x\n\n\n
"""


def characters():
    """Tokens with scores, as SentencePiece learns them from the built-in text."""
    with tempfile.TemporaryDirectory() as folder:
        trained = pathlib.Path(folder) / "trained.txt"
        subprocess.run([PROGRAM, "text", "--quiet", "--text-bytes", "100000", "--out", trained], check=True)
        m = learn(pathlib.Path(folder), "bpe-600", trained)
        text = MIXED + trained.read_text()[:3000] + MIXED
    write_gguf(FOLDER / "sentencepiece.gguf", m, True, False)
    theirs = Llama(str(FOLDER / "sentencepiece.gguf"), vocab_only=True, verbose=False)
    ids = theirs.tokenize(text.encode(), add_bos=False, special=True)
    (FOLDER / "sentencepiece.txt").write_text(text)
    (FOLDER / "sentencepiece.ids").write_text(" ".join(map(str, ids)) + "\n")


def main():
    FOLDER.mkdir(exist_ok=True)
    kinds()
    for name, arch in (("gpt2", "gpt2"), ("bloom-8", "bloom"), ("mpt-8", "mpt"), ("rotary-halves", "llama")):
        model(name, arch)
    for name, pre in (("gpt2", "gpt-2"), ("bloom", "bloom"), ("llama3", "llama-bpe"), ("nfc", "mpt")):
        tokenizer(name, pre)
    characters()


if __name__ == "__main__":
    main()
