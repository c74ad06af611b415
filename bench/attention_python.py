"""alibi.attention() on PyTorch tensors beside PyTorch's own attention, in one process.

    attention_python.py [--device cuda] [--lengths 1024,4096,16384] [--widths 64,128]
                        [--tokens 16384] [--columns 2048] [--rounds 7] [--json FILE]

Causal attention in bf16, forward, and forward with backward, at TOKENS = batch x length and COLUMNS
= heads x width:

    alibi           alibi.attention() with ALiBi's slopes
    FlexAttention   compiled flex_attention() with ALiBi's score_mod and a causal block mask
    flash, cuDNN    scaled_dot_product_attention() without a bias, by PyTorch's FlashAttention and by
                    cuDNN: a floor, since they compute less

All read the same tensors [batch, length, heads, width]. Every round times each of them once, over
as many calls as take about 5 ms, in an order that alternates; times are medians of the rounds.
TFLOP/s count the pairs that the mask leaves. Errors are relative to attention in double precision
of the same numbers, over the first and the last head: |x - exact| / |exact| of the output, and the
largest of the three gradients. What a peer cannot do is a dash, and why is on stderr.

alibi is found as `import alibi` finds it: PYTHONPATH=python after `make build`, or the package.
"""
import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import alibi

BATCH_SECONDS = 5e-3  # of calls between two looks at the clock
NAMES = ("alibi", "FlexAttention", "flash", "cuDNN")


def slopes_of(heads, device):
    return torch.tensor([2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)], device=device)


def by_alibi(case):
    return lambda q, k, v: alibi.attention(q, k, v, case.slopes)


def by_flex(case):
    slopes, length = case.slopes, case.length

    def add_bias(score, b, h, i, j):
        return score + slopes[h] * (j - i)

    def is_seen(b, h, i, j):
        return i >= j

    torch.compiler.reset()  # of a shape that is done: PyTorch keeps only so many
    mask = create_block_mask(is_seen, None, None, length, length, device=case.device)
    compiled = torch.compile(flex_attention, dynamic=False)

    def attend(q, k, v):
        views = (a.transpose(1, 2) for a in (q, k, v))
        return compiled(*views, score_mod=add_bias, block_mask=mask).transpose(1, 2)

    return attend


def by_sdpa(backend):
    def make(case):
        def attend(q, k, v):
            with sdpa_kernel(backend):
                views = (a.transpose(1, 2) for a in (q, k, v))
                return F.scaled_dot_product_attention(*views, is_causal=True).transpose(1, 2)

        return attend

    return make


MAKERS = dict(zip(NAMES, (by_alibi, by_flex, by_sdpa(SDPBackend.FLASH_ATTENTION),
                          by_sdpa(SDPBackend.CUDNN_ATTENTION))))


class Case:
    """The tensors of one width and length."""

    def __init__(self, options, width, length):
        self.device, self.width, self.length = options.device, width, length
        self.batch, self.heads = options.tokens // length, options.columns // width
        self.slopes = slopes_of(self.heads, self.device)
        torch.manual_seed(1)
        shape = (self.batch, length, self.heads, width)
        self.q, self.k, self.v, self.dy = (
            torch.randn(shape, device=self.device).to(torch.bfloat16) for _ in range(4))
        self.inputs = [a.requires_grad_() for a in (self.q, self.k, self.v)]

    def run(self, attend, backward):
        if not backward:
            with torch.no_grad():
                return attend(*self.inputs)
        for a in self.inputs:
            a.grad = None
        out = attend(*self.inputs)
        out.backward(self.dy)
        return out.detach()

    def flops(self, backward):
        pairs = self.length * (self.length + 1) / 2
        return 4 * self.batch * self.heads * self.width * pairs * (3.5 if backward else 1)


def exact(case, head, slope):
    """Output and gradients of one head of the first sequence, in double precision."""
    inputs = [a.detach()[0, :, head].double().requires_grad_() for a in case.inputs]
    q, k, v = inputs
    place = torch.arange(case.length, device=case.device)
    scores = q @ k.T * case.width ** -0.5 - slope * (place[:, None] - place[None, :])
    scores = scores.masked_fill(place[:, None] < place[None, :], -torch.inf)
    out = scores.softmax(-1) @ v
    out.backward(case.dy[0, :, head].double())
    return [out.detach()] + [a.grad for a in inputs]


def errors_of(case, attends):
    """(error of the output, largest error of the gradients) by name."""
    worst = {name: [0.0] * 4 for name in attends}
    results = {name: [case.run(attend, True)] + [a.grad for a in case.inputs]
               for name, attend in attends.items()}
    for head in {0, case.heads - 1}:
        of_slope = {slope: exact(case, head, slope) for slope in {0.0, case.slopes[head].item()}}
        for name, tensors in results.items():
            biased = name in ("alibi", "FlexAttention")
            wanted = of_slope[case.slopes[head].item() if biased else 0.0]
            for n, (got, right) in enumerate(zip(tensors, wanted)):
                error = (got[0, :, head].double() - right).norm() / right.norm()
                worst[name][n] = max(worst[name][n], error.item())
    return {name: (errors[0], max(errors[1:])) for name, errors in worst.items()}


def seconds_of(case, attend, backward, calls):
    """Per call; on a GPU by its own clock."""
    if case.device == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            case.run(attend, backward)
        return (time.perf_counter() - start) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        case.run(attend, backward)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls


def time_all(case, attends, backward, rounds):
    """Seconds of a call by name: the median of the rounds."""
    calls, times = {}, {name: [] for name in attends}
    for name, attend in attends.items():
        seconds_of(case, attend, backward, 2)
        seconds = seconds_of(case, attend, backward, 3)
        calls[name] = max(1, int(BATCH_SECONDS / seconds))
    names = list(attends)
    for n in range(rounds):
        for name in names if n % 2 == 0 else reversed(names):
            times[name].append(seconds_of(case, attends[name], backward, calls[name]))
    return {name: statistics.median(each) for name, each in times.items()}


def peers_of(case):
    """Those that can do it."""
    attends = {}
    for name, make in MAKERS.items():
        try:
            attend = make(case)
            case.run(attend, True)
            attends[name] = attend
        except Exception as why:  # of any peer, with any reason
            if name == "alibi":
                raise
            print(f"{name}, width {case.width}, length {case.length}: "
                  f"{str(why).splitlines()[0]}", file=sys.stderr)
    return attends


def measure(case, rounds):
    attends = peers_of(case)
    errors = errors_of(case, attends)
    times = [time_all(case, attends, backward, rounds) for backward in (False, True)]
    return [{"attention": name, "width": case.width, "length": case.length, "batch": case.batch,
             "heads": case.heads, "forward_seconds": times[0][name],
             "both_seconds": times[1][name],
             "forward_tflops": case.flops(False) / times[0][name] / 1e12,
             "both_tflops": case.flops(True) / times[1][name] / 1e12,
             "output_error": errors[name][0], "gradient_error": errors[name][1]}
            for name in attends]


def print_rows(rows):
    ours = rows[0]
    by_name = {row["attention"]: row for row in rows}
    for name in NAMES:
        place = f"{ours['width']:5} {ours['length']:6} {name:14}"
        row = by_name.get(name)
        if row is None:
            print(f"{place} {'-':>9}", flush=True)
            continue
        figures = " ".join(f"{1e3 * row[what + '_seconds']:9.3f} {row[what + '_tflops']:8.1f} "
                           f"{row[what + '_seconds'] / ours[what + '_seconds']:6.2f}"
                           for what in ("forward", "both"))
        print(f"{place} {figures} {row['output_error']:9.1e} {row['gradient_error']:9.1e}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    for name, default in (("--lengths", "1024,4096,16384"), ("--widths", "64,128")):
        parser.add_argument(name, default=[int(n) for n in default.split(",")],
                            type=lambda text: [int(n) for n in text.split(",")])
    for name, default in (("--tokens", 16384), ("--columns", 2048), ("--rounds", 7)):
        parser.add_argument(name, default=default, type=int)
    parser.add_argument("--json", help="a file for all figures")
    options = parser.parse_args()
    device = "CPU" if options.device == "cpu" else torch.cuda.get_device_name()
    print(f"{device}, PyTorch {torch.__version__}, bf16, {options.tokens} tokens, heads x width "
          f"{options.columns}, {options.rounds} rounds")
    figures = f"{'ms':>9} {'TFLOP/s':>8} {'/ours':>6}"
    print(f"{'':27} {'forward':>25} {'forward and backward':>25} {'error of':>9} {'error of':>9}")
    print(f"{'width':>5} {'length':>6} {'attention':14} {figures} {figures} {'output':>9} "
          f"{'gradients':>9}")
    results = []
    for width in options.widths:
        for length in options.lengths:
            rows = measure(Case(options, width, length), options.rounds)
            results += rows
            print_rows(rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": device, "torch": torch.__version__, "tokens": options.tokens,
                       "columns": options.columns, "rounds": options.rounds, "rows": results},
                      file, indent=1)


if __name__ == "__main__":
    main()
