"""The training steps of `alibi bench train` in PyTorch on the CPU: fp32, eager, AdamW, clipping.

Prints one JSON object per case: tokens per second, median of the repeats. bench/against_torch.sh
runs it and alibi. ALiBi is scaled_dot_product_attention with the bias as a mask, as models in
PyTorch do it on a CPU.
"""
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = [  # name, layers, width, heads, vocabulary, position, batch, length
    ("gpt2-124m", 12, 768, 12, 50257, "learned", 4, 64),
    ("byte-10m", 6, 384, 6, 257, "alibi", 4, 256),
    ("byte-10m", 6, 384, 6, 257, "alibi", 1, 4096),
]


def slopes(heads):
    power = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    return torch.tensor(first + [2 ** (-8 * (h + 0.5) / power) for h in range(heads - power)])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, bias):
        B, L, C = x.shape
        qkv = self.qkv(self.norm1(x)).view(B, L, 3, self.heads, C // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)
        x = x + self.out(y.transpose(1, 2).reshape(B, L, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, width, heads, vocab, position, length):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(1024, width) if position == "learned" else None
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.bias = None
        if position == "alibi":
            distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
            bias = -slopes(heads)[:, None, None] * distance
            self.bias = bias.masked_fill(distance < 0, float("-inf"))[None]

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        if self.positions:
            x = x + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.bias)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def measure(name, layers, width, heads, vocab, position, batch, length, repeats):
    torch.manual_seed(0)
    model = Model(layers, width, heads, vocab, position, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens, targets = torch.randint(vocab, (2, batch, length)).unbind(0)
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(tokens, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    step = statistics.median(seconds[1:])
    return {"recipe": name, "batch": batch, "length": length, "step_seconds": step,
            "tokens_per_s": batch * length / step}


def main():
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for case in CASES:
        print(json.dumps(measure(*case, repeats)), flush=True)


if __name__ == "__main__":
    main()
