#!/bin/bash
# Attention by alibi and by PyTorch on this CPU, one after the other with the same number of
# threads: forward, and forward with backward, 12 heads of 64 in fp32. Prints times and ratios;
# alibi without skipping, and with a budget of 2^-24. Needs a Python with PyTorch:
# PYTHON=path/to/python bench/against_torch_attention.sh [REPEATS [LENGTH...]]
set -euo pipefail
cd "$(dirname "$0")/.."
alibi=${ALIBI:-build/release/alibi}
python=${PYTHON:-python3}
repeats=${1:-3}
shift || true
lengths=("$@")
[ ${#lengths[@]} -gt 0 ] || lengths=(1024 4096 16384)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

list=$(IFS=,; echo "${lengths[*]}")
ours() { # options
    "$alibi" bench attention --quiet --device cpu --repeats "$repeats" --lengths "$list" \
        --no-decode --json "$@"
}
ours --skip 0 > "$folder/exact.json"
ours > "$folder/skip.json"
for length in "${lengths[@]}"; do # a process for each, so that its peak memory is its own
    "$python" bench/torch_attention.py "$repeats" "$length" >> "$folder/torch.jsonl"
done
"$python" - "$folder" <<'TABLE'
import json, os, sys
folder = sys.argv[1]
exact, skip = (json.load(open(f"{folder}/{name}.json")) for name in ("exact", "skip"))
theirs = {(r["length"], r["variant"]): r for r in map(json.loads, open(folder + "/torch.jsonl"))}
print(f"{os.environ['OMP_NUM_THREADS']} threads, 12 heads of 64, fp32; milliseconds, "
      "and speed-up over both of PyTorch's")
print(f"{'length':>6} {'':8} {'PyTorch alibi':>14} {'causal':>9} {'alibi exact':>12} {'':>13} "
      f"{'alibi 2^-24':>12} {'':>13} {'tiles':>6}")
for e, s in zip(exact, skip):
    alibi, causal = theirs[e["length"], "alibi"], theirs[e["length"], "causal"]
    for what, key in (("forward", "forward_seconds"), ("both", "both_seconds")):
        backward = what == "both"
        ours = [r["forward_seconds"] + backward * r["backward_seconds"] for r in (e, s)]
        ratios = [f"{alibi[key] / t:.1f}x {causal[key] / t:.1f}x" for t in ours]
        print(f"{e['length']:6} {what:8} {1e3 * alibi[key]:14.1f} {1e3 * causal[key]:9.1f} "
              f"{1e3 * ours[0]:12.1f} {ratios[0]:>13} {1e3 * ours[1]:12.1f} {ratios[1]:>13} "
              f"{s['tiles_used']:6.1%}")
print("peak memory, MB (PyTorch's of the whole process):")
for s in skip:
    alibi, causal = (theirs[s["length"], kind]["peak_bytes"] / 1e6 for kind in ("alibi", "causal"))
    print(f"{s['length']:6} alibi {s['peak_bytes'] / 1e6:.0f}, PyTorch alibi {alibi:.0f}, "
          f"causal {causal:.0f}")
TABLE
