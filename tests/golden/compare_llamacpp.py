#!/usr/bin/env python3
"""Compares models here with the same models in llama.cpp: logits, greedy tokens, perplexity by length.

    python3 tests/golden/compare_llamacpp.py [FOLDER [ARCHITECTURE...]]     needs llama-cpp-python and numpy, and a release build

For each architecture, all by default, a small model is trained on the built-in text (FOLDER, a new one by default, keeps them),
exported as a GGUF file and run by both on a text that it has not seen. Some minutes. llama.cpp is run in three ways:

    exact     keys and values in fp32, attention without its flash kernel
    default   keys and values in fp16, as it does by itself
    flash     the flash kernel, whose mask, ALiBi's distances with it, is fp16: distances above 2048 are rounded

Prints a line per architecture, type of weights, way and length: perplexity in both, by how many percent they differ, and the
largest difference of a log-probability; then the greedy tokens that agree. Exits 1 if F32 weights run exactly give another
greedy token, or a perplexity that differs by more than 0.1%.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import alibi  # noqa: E402
from llama_cpp import Llama  # noqa: E402

PROGRAM = ROOT / "build" / "release" / "alibi"
F32 = 0  # as ggml numbers its types
LLAMA = "--norm rmsnorm --activation swiglu --no-biases --no-tied --kv-heads 2 --ff-width 160"
MODELS = {
    "gpt2": ("--position learned --max-length 512", (256, 512)),
    "bloom": ("--position alibi --embedding-norm", (256, 2048, 8192)),
    "mpt": ("--position alibi --no-biases", (256, 2048, 8192)),
    "gptneox": ("--position rotary:share=0.5:spread --parallel --no-tied", (256, 512)),
    "qwen2": (f"--position rotary --qkv-biases {LLAMA}", (256, 512)),
    "qwen3": (f"--position rotary --qk-norm {LLAMA}", (256, 512)),
    "llama": (f"--position rotary {LLAMA}", (256, 512)),
}
WAYS = {"exact": {"type_k": F32, "type_v": F32}, "default": {}, "flash": {"flash_attn": True}}
GREEDY = 100


def run(*arguments):
    subprocess.run([PROGRAM, *map(str, arguments), "--quiet"], check=True, stdout=subprocess.DEVNULL)


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def scores(logits, ids):
    """The log-probability of each id after the ones before it."""
    return log_softmax(logits[:-1])[np.arange(len(ids) - 1), ids[1:]]


def load(path, length, way):
    return Llama(str(path), n_ctx=length, n_batch=512, logits_all=True, n_threads=1, verbose=False, **WAYS[way])


def their_logits(path, ids, way):
    model = load(path, len(ids), way)
    model.eval(ids)
    return np.array(model.scores[:len(ids)])


def their_greedy(path, prompt, way):
    model = load(path, len(prompt) + GREEDY, way)
    model.eval(prompt)
    chosen = []
    for _ in range(GREEDY):
        chosen.append(int(np.argmax(model.scores[model.n_tokens - 1])))
        model.eval([chosen[-1]])
    return chosen


def our_greedy(model, prompt):
    session = alibi.Session(model)
    session.feed(prompt)
    chosen = []
    for _ in range(GREEDY):
        chosen.append(int(np.argmax(session.last_logits())))
        session.feed([chosen[-1]])
    return chosen


def same(ours, theirs):
    """How many tokens agree before the first that does not."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(ours))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    failed = False
    run("text", "--text-bytes", 200000, "--text-seed", 7, "--out", folder / "text.txt")
    text = list((folder / "text.txt").read_bytes())
    for name in sys.argv[2:] or MODELS:
        options, lengths = MODELS[name]
        if not (folder / name).exists():
            run("train", "--layers", 4, "--width", 64, "--heads", 4, "--train-length", 256, "--batch", 8, "--steps", 100,
                "--device", "cpu", "--out", folder / name, *options.split())
        model = alibi.Model.open(str(folder / name), device="cpu")
        prompt = text[:64]
        greedy = our_greedy(model, prompt)
        for weights in ("fp32", "q8_0"):
            path = folder / f"{name}-{weights}.gguf"
            if not path.exists():
                run("export", folder / name, "--format", "gguf", "--weights", weights, "--out", path)
            for way in WAYS if weights == "fp32" else ("default",):
                strict = weights == "fp32" and way == "exact"
                for length in lengths:
                    ids = text[1000:1000 + length]
                    a, b = scores(model.logits(ids), ids), scores(their_logits(path, ids, way), ids)
                    ours, theirs = np.exp(-a.mean()), np.exp(-b.mean())
                    percent = 100 * (theirs / ours - 1)
                    print(f"{name:6} {weights} {way:8} {length:5}  perplexity {ours:9.5f} {theirs:9.5f}  {percent:+.4f}%  "
                          f"log-probability within {np.abs(a - b).max():.1e}", flush=True)
                    failed |= strict and abs(percent) > 0.1
                agreed = same(greedy, their_greedy(path, prompt, way))
                print(f"{name:6} {weights} {way:8} greedy  {agreed} of {GREEDY} tokens equal", flush=True)
                failed |= strict and agreed < GREEDY
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
