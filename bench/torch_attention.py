"""PyTorch's attention on the CPU, timed as `alibi bench attention` times ours.

    torch_attention.py REPEATS LENGTH...

Prints a JSON line per length and variant: forward, and forward with backward. The variants are
scaled_dot_product_attention with an ALiBi bias tensor, and causal without a bias; 12 heads of 64,
fp32. bench/against_torch_attention.sh runs both programs.
"""
import json
import os
import resource
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

HEADS, WIDTH = 12, 64


def slopes():
    """As the paper's code has them for 12 heads: those of 8, then every second one of 16."""
    return torch.tensor([2.0 ** -(h + 1) for h in range(8)] + [2.0 ** -(h + 0.5) for h in range(4)])


def alibi_bias(length):
    distance = torch.arange(length).view(-1, 1) - torch.arange(length).view(1, -1)
    bias = -slopes().view(-1, 1, 1) * distance
    return bias.masked_fill_(distance < 0, float("-inf")).unsqueeze(0)


def median(call, repeats):
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def measure(name, length, repeats):
    size = (10 / WIDTH ** 0.5) ** 0.5
    q, k, v = (s * torch.randn(1, HEADS, length, WIDTH) for s in (size, size, 1.0))
    dy = torch.randn(1, HEADS, length, WIDTH)
    bias = alibi_bias(length) if name == "alibi" else None

    def forward():
        return scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)

    def both():
        for t in (q, k, v):
            t.grad = None
        forward().backward(dy)

    forward_seconds = median(forward, repeats)
    for t in (q, k, v):
        t.requires_grad_(True)
    return {"variant": name, "length": length, "forward_seconds": forward_seconds,
            "both_seconds": median(both, repeats),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main():
    repeats, lengths = int(sys.argv[1]), [int(x) for x in sys.argv[2:]]
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    for length in lengths:
        for name in ("causal", "alibi"):  # the lean one first: the peak of a process only grows
            print(json.dumps(measure(name, length, repeats)), flush=True)


if __name__ == "__main__":
    main()
