#!/bin/bash
# The same training steps by alibi and by PyTorch on this CPU, one after the other with the same
# number of threads; prints the ratio. Needs a Python with PyTorch:
# PYTHON=path/to/python bench/against_torch.sh [REPEATS]
set -euo pipefail
cd "$(dirname "$0")/.."
alibi=${ALIBI:-build/release/alibi}
python=${PYTHON:-python3}
repeats=${1:-5}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$alibi" bench train --device cpu --repeats "$repeats" --json > "$folder/alibi.json"
"$python" bench/torch_step.py "$repeats" > "$folder/torch.jsonl"
"$python" - "$folder" <<'TABLE'
import json, os, sys
ours = json.load(open(sys.argv[1] + "/alibi.json"))
theirs = [json.loads(line) for line in open(sys.argv[1] + "/torch.jsonl")]
print(f"{os.environ['OMP_NUM_THREADS']} threads, tokens per second of training")
print(f"{'recipe':12} {'batch':>5} {'length':>6} {'alibi':>8} {'PyTorch':>8} {'ratio':>6}")
for a, t in zip(ours, theirs):
    assert (a["recipe"], a["batch"], a["length"]) == (t["recipe"], t["batch"], t["length"])
    speed, peer = a["tokens_per_s"], t["tokens_per_s"]
    print(f"{a['recipe']:12} {a['batch']:5} {a['length']:6} {speed:8.0f} {peer:8.0f} "
          f"{speed / peer:6.2f}")
TABLE
