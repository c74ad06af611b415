#!/usr/bin/env python3
"""Writes tests/golden/protocols/expected.txt: perplexities by the rules of every protocol, computed by PyTorch alone.

    python3 tests/golden/make_protocols.py     needs torch and safetensors; seconds on a CPU

Beside it are a small trained model (`alibi export`) and documents.jsonl. The model is written out here in double precision, and
the protocols are written from the rules of docs/evaluation.md, each as a plain loop over windows that are read alone. A line is

    protocol length stride tokens nll word_ppl bits_per_byte        '-': the protocol's source does not define it
"""
import functools
import json
import math
import pathlib
import re

import torch
from safetensors.torch import load_file

torch.set_num_threads(1)
torch.set_grad_enabled(False)
FOLDER = pathlib.Path(__file__).parent / "protocols"
END = 256

config = json.loads((FOLDER / "model/config.json").read_text())
weights = {k: v.double() for k, v in load_file(FOLDER / "model/model.safetensors").items()}
documents = [json.loads(line)["text"] for line in (FOLDER / "documents.jsonl").read_text().splitlines()]
text = [i for d in documents for i in [*d.encode(), END]]


# ---- the model


def norm(name, x):
    x = x - x.mean(-1, keepdim=True)
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + config["norm_eps"])
    return x * weights[name + ".weight"] + weights[name + ".bias"]


def linear(name, x):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def attention(name, x):
    H, D, L = config["heads"], config["width"] // config["heads"], len(x)
    q, k, v = linear(name + ".qkv", x).view(L, 3, H, D).permute(1, 2, 0, 3)
    slopes = torch.tensor([2.0 ** (-config["bias_max"] * (h + 1) / H) for h in range(H)], dtype=torch.float64)
    distance = torch.arange(L)[:, None] - torch.arange(L)[None, :]
    scores = q @ k.transpose(1, 2) / math.sqrt(D) - slopes[:, None, None] * distance
    y = scores.masked_fill(distance < 0, -math.inf).softmax(-1) @ v
    return linear(name + ".out", y.transpose(0, 1).reshape(L, H * D))


@functools.lru_cache(maxsize=4096)
def log_probabilities(ids):
    """[len(ids), V]: row i is over the token after ids[i]."""
    x = config["embedding_scale"] * weights["embedding.weight"][torch.tensor(ids)]
    for n in range(config["layers"]):
        x = x + attention(f"blocks.{n}.attention", norm(f"blocks.{n}.norm1", x))
        up = torch.nn.functional.gelu(linear(f"blocks.{n}.ff.up", norm(f"blocks.{n}.norm2", x)), approximate="tanh")
        x = x + linear(f"blocks.{n}.ff.down", up)
    return torch.log_softmax(norm("norm", x) @ weights["embedding.weight"].T, -1)


def loss(ids, targets):
    """Of the last len(targets) places."""
    rows = log_probabilities(tuple(ids))[-len(targets):]
    return [-rows[i, t].item() for i, t in enumerate(targets)]


# ---- the protocols: each returns the sum of the losses, what it is divided by, and the tokens scored


def nonoverlapping(L, S):
    losses = []
    for a in range(0, len(text) - 1, L):
        inputs = text[a:a + L] if a + L < len(text) else text[a:-1]
        losses += loss(inputs, text[a + 1:a + 1 + len(inputs)])
    return sum(losses), len(losses), len(losses)


def sliding(L, S):
    """A token at a time: token j is scored by the first window that reaches it."""
    losses = []
    for j in range(1, len(text)):
        k = 0 if j <= L else math.ceil((j - L) / S)
        losses.append(-log_probabilities(tuple(text[k * S:k * S + L]))[j - 1 - k * S, text[j]].item())
    return sum(losses), len(losses), len(losses)


def stream(L, S):
    losses = loss(text[:-1], text[1:])
    return sum(losses), len(losses), len(losses)


def stride(L, S):
    total, divisor, scored, previous = 0.0, 0, 0, 0
    for begin in range(0, len(text), S):
        end = min(begin + L, len(text))
        valid = end - previous                                        # labels that are not ignored
        window = text[begin:end]
        labels = [t if i >= len(window) - valid else None for i, t in enumerate(window)]
        rows = log_probabilities(tuple(window))
        losses = [-rows[i, t].item() for i, t in enumerate(labels[1:]) if t is not None]
        if losses:
            total += sum(losses) / len(losses) * (valid - 1)
            divisor += valid - 1
            scored += len(losses)
        previous = end
        if end == len(text):
            break
    return total, divisor, scored


def llama_cpp(L, S):
    tokens, losses = [END, *text], []
    for chunk in range(len(tokens) // L):
        window = [END, *tokens[chunk * L + 1:(chunk + 1) * L]]
        rows = log_probabilities(tuple(window))
        losses += [-rows[i, window[i + 1]].item() for i in range(L // 2, L - 1)]
    return sum(losses), len(losses), len(losses)


def rolling(L, S):
    losses = []
    for d in documents:
        tokens = list(d.encode())
        done = min(L, len(tokens))
        losses += loss([END, *tokens[:done - 1]], tokens[:done])
        while done < len(tokens):
            end = min(done + L, len(tokens))
            losses += loss(tokens[end - L - 1:end - 1], tokens[done:end])
            done = end
    return sum(losses), len(losses), len(losses)


def row(name, rule, L, S):
    total, divisor, tokens = rule(L, S)
    extra = ["-", "-"]
    if name == "rolling":
        extra = [repr(math.exp(total / sum(len(re.split(r"\s+", d)) for d in documents))),
                 repr(total / math.log(2) / sum(len(d.encode()) for d in documents))]
    return " ".join([name, str(L), str(S), str(tokens), repr(total / divisor), *extra])


lines = [row("stream", stream, 0, 0)]
for L in 16, 32, 50, 128:
    lines.append(row("nonoverlapping", nonoverlapping, L, L))
    lines.append(row("llama.cpp", llama_cpp, L, L))
    lines.append(row("rolling", rolling, L, L))
    for S in (1, 7, L) if L == 16 else (L // 2, L):
        lines.append(row("sliding", sliding, L, S))
        lines.append(row("stride", stride, L, S))
(FOLDER / "expected.txt").write_text("\n".join(lines) + "\n")
