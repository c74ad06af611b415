"""A compiled training step of the paper's models in PyTorch on a GPU (bench/against_torch_gpu.sh).

    torch_gpu_step.py LAYERS WIDTH HEADS VOCAB POSITION BATCH LENGTH REPEATS

Prints one JSON object: seconds of a step (median of the repeats, after 4 steps to compile and warm
up), tokens per second, parameters, and peak memory of tensors. This is the fastest way to train
such models in PyTorch: fp32 parameters, bf16 autocast, fused AdamW, clipped gradients,
torch.compile; attention is scaled_dot_product_attention, for ALiBi FlexAttention. Each case has its
own process, so that none finds memory or compiled code of another.
"""
import json
import math
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

WARM_UP = 4
DEVICE = "cuda"


def slopes(heads):
    """As in lib/position/alibi.c: those of a power of two, then every second of twice as many."""
    power = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    return torch.tensor(first + [2 ** (-8 * (h + 0.5) / power) for h in range(heads - power)])


def angles(length, width):
    """[length, width / 2]: position times frequency, of sinusoidal and rotary positions alike."""
    frequency = 10000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.outer(torch.arange(length).float(), frequency)


def rotate(x, cos, sin):
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=-1)


class Attention(nn.Module):
    def __init__(self, width, heads, position, length):
        super().__init__()
        self.heads, self.position = heads, position
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        if position == "alibi":
            self.register_buffer("slopes", slopes(heads), persistent=False)
        if position == "rotary":
            turn = angles(length, width // heads)
            self.register_buffer("cos", turn.cos(), persistent=False)
            self.register_buffer("sin", turn.sin(), persistent=False)

    def attend(self, q, k, v, mask):
        if self.position != "alibi":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        slope = self.slopes

        def add_bias(score, b, h, i, j):
            return score + slope[h] * (j - i)

        return flex_attention(q, k, v, score_mod=add_bias, block_mask=mask)

    def forward(self, x, mask):
        B, L, C = x.shape
        q, k, v = self.qkv(x).view(B, L, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        if self.position == "rotary":
            cos, sin = self.cos.to(q.dtype), self.sin.to(q.dtype)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return self.out(self.attend(q, k, v, mask).transpose(1, 2).reshape(B, L, C))


class Block(nn.Module):
    def __init__(self, width, heads, position, length):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, position, length)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, width, heads, vocab, position, length):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads, position, length) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        if position == "sinusoidal":
            turn = angles(length, width)
            waves = 0.02 * torch.cat((turn.sin(), turn.cos()), dim=-1)
            self.register_buffer("positions", waves, persistent=False)
        else:
            self.positions = None

    def forward(self, tokens, targets, mask):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions
        for block in self.blocks:
            x = block(x, mask)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def causal(b, h, i, j):
    return i >= j


def make_step(layers, width, heads, vocab, position, batch, length):
    model = Model(layers, width, heads, vocab, position, length).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(model)
    mask = None
    if position == "alibi":
        mask = create_block_mask(causal, None, None, length, length, device=DEVICE)
    tokens, targets = torch.randint(vocab, (2, batch, length), device=DEVICE).unbind(0)

    def step():
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = compiled(tokens, targets, mask)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, sum(p.numel() for p in model.parameters())


def measure(layers, width, heads, vocab, position, batch, length, repeats):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    step, parameters = make_step(layers, width, heads, vocab, position, batch, length)
    seconds = []
    for i in range(WARM_UP + repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if i >= WARM_UP:
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    return {"parameters": parameters, "step_seconds": median,
            "tokens_per_s": batch * length / median,
            "peak_bytes": torch.cuda.max_memory_allocated()}


def main():
    layers, width, heads, vocab = map(int, sys.argv[1:5])
    batch, length, repeats = map(int, sys.argv[6:9])
    step = measure(layers, width, heads, vocab, sys.argv[5], batch, length, repeats)
    print(json.dumps(step))


if __name__ == "__main__":
    main()
