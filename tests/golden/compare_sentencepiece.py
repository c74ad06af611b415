#!/usr/bin/env python3
"""Holds tokenizers that GGUF files have as tokens with scores against llama.cpp, live.

    compare_sentencepiece.py FOLDER TEXT [OTHER...]      needs sentencepiece, gguf, llama-cpp-python, and a release build

SentencePiece learns vocabularies of several kinds and sizes from TEXT. Each is written as the GGUF file of a small model into
FOLDER, with scores and without merges, and imported. Then all texts, random strings of their parts, runs of blanks, and words
that repeat must have the same ids here and in llama.cpp. Exits 1 if one has not, and prints the shortest that was found.
"""
import pathlib
import random
import subprocess
import sys

import gguf
import numpy as np
import sentencepiece
from llama_cpp import Llama

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import alibi  # noqa: E402

PROGRAM = ROOT / "build" / "release" / "alibi"
KINDS = {"bpe-600": ("bpe", 600, True), "bpe-4000": ("bpe", 4000, True), "bpe-12000": ("bpe", 12000, True),
         "bpe-no-prefix": ("bpe", 2000, False), "unigram-3000": ("unigram", 3000, True)}
TRAINED_BYTES, STRINGS = 3_000_000, 20000


def learn(folder, name, text):
    kind, vocab, prefix = KINDS[name]
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / name), vocab_size=vocab, model_type=kind, byte_fallback=True,
        split_digits=True, allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, minloglevel=2,
        normalization_rule_name="identity", character_coverage=0.9995, add_dummy_prefix=prefix, max_sentence_length=20000,
        user_defined_symbols=["<user>"], num_threads=1)
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))


def write_gguf(path, m, prefix, tensors=True):
    """The tokens with their scores and types, and a model of one layer or none."""
    T, V, C, F = gguf.TokenType, m.vocab_size(), 32, 32
    types = [T.USER_DEFINED if m.id_to_piece(i) == "<user>" else T.BYTE if m.is_byte(i) else T.UNKNOWN if m.is_unknown(i)
             else T.CONTROL if m.is_control(i) else T.NORMAL for i in range(V)]
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(64)
    w.add_embedding_length(C)
    w.add_block_count(1)
    w.add_feed_forward_length(F)
    w.add_head_count(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("llama")
    w.add_token_list([m.id_to_piece(i) for i in range(V)])
    w.add_token_scores([m.get_score(i) for i in range(V)])
    w.add_token_types(types)
    w.add_bos_token_id(m.bos_id())
    w.add_eos_token_id(m.eos_id())
    w.add_add_space_prefix(prefix)
    shapes = {"token_embd": (V, C), "output": (V, C), "output_norm": (C,), "blk.0.attn_norm": (C,), "blk.0.ffn_norm": (C,),
              "blk.0.ffn_gate": (F, C), "blk.0.ffn_up": (F, C), "blk.0.ffn_down": (C, F)}
    shapes |= {f"blk.0.attn_{p}": (C, C) for p in ("q", "k", "v", "output")}
    for name, shape in shapes.items() if tensors else ():
        w.add_tensor(f"{name}.weight", np.full(shape, 0.01, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def strings(text, pieces):
    """Parts of the text, of the vocabulary, and runs in which the same token can be made in several ways."""
    r = random.Random(1)
    for i in range(STRINGS):
        parts = []
        for _ in range(r.randint(1, 8)):
            kind = r.randrange(5)
            if kind == 0:
                at = r.randrange(len(text))
                parts.append(text[at:at + r.randint(1, 30)])
            elif kind == 1:
                parts.append(r.choice(pieces).replace("\u2581", " "))
            elif kind == 2:
                parts.append(r.choice(" \n\t-=a") * r.randint(1, 20))
            elif kind == 3:
                parts.append("".join(r.choice("aban te") for _ in range(r.randint(1, 12))))
            else:
                parts.append(r.choice(pieces).replace("\u2581", " ") * r.randint(1, 5))
        yield "".join(parts)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    texts = [pathlib.Path(p).read_text(errors="ignore") for p in sys.argv[2:]]
    trained = folder / "trained.txt"
    trained.write_bytes(texts[0].encode()[:TRAINED_BYTES])
    failed = False
    for name, (_, _, prefix) in KINDS.items():
        m, path = learn(folder, name, trained), folder / f"{name}.gguf"
        write_gguf(path, m, prefix)
        subprocess.run([PROGRAM, "import", path, "--out", folder / name, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        ours, theirs = alibi.Tokenizer.open(str(folder / name)), Llama(str(path), vocab_only=True, verbose=False)
        pieces = [m.id_to_piece(i) for i in range(m.vocab_size()) if not m.is_byte(i) and not m.is_control(i)]
        wrong, ids, count = None, 0, 0
        for text in [line for t in texts for line in t.split("\n\n")] + list(strings(texts[0], pieces)):
            a = list(map(int, ours.encode(text)))
            ids, count = ids + len(a), count + 1
            if text and a != theirs.tokenize(text.encode(), add_bos=False, special=True) and (
                    wrong is None or len(text) < len(wrong)):
                wrong = text
        print(f"{name:14} {count} texts, {ids} ids: {'equal' if wrong is None else f'{wrong!r} differs'}", flush=True)
        failed |= wrong is not None
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
