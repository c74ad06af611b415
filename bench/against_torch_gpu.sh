#!/bin/bash
# Training steps by alibi and by compiled PyTorch on this GPU, alternating case by case: speed,
# memory and their ratio.
#
#   bench/against_torch_gpu.sh                                  all cases
#   bench/against_torch_gpu.sh wiki-alibi gpt2-sinusoidal       some of them
#
# Both train the same model: bf16 with fp32 master weights, AdamW, clipping, GELU, biases, and an
# output layer tied to an embedding of 50,304 tokens. Times are medians of REPEATS (8) steps after
# warm-up. alibi computes every pair of attention. TFLOP/s follow the usual formula for both, 6 P +
# 6 N L C per token. GiB is the peak memory of tensors, for alibi with its workspaces. ALIBI is the
# program, PYTHON a Python with PyTorch. If one of the two fails, stderr says why and the row has a
# dash; the exit code is 1 if that was alibi.
#
# `alibi bench train --methods` measures the cost of each position method.
set -euo pipefail
cd "$(dirname "$0")/.."
alibi=${ALIBI:-build/release/alibi}
python=${PYTHON:-python3}
repeats=${REPEATS:-8}
vocab=50304
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# name -> layers width heads position batch length
declare -A cases=(
    [wiki-sinusoidal]="16 1024 8 sinusoidal 32 1024"
    [wiki-rotary]="16 1024 8 rotary 32 1024"
    [wiki-alibi]="16 1024 8 alibi 32 1024"
    [wiki-sinusoidal-512]="16 1024 8 sinusoidal 72 512"
    [wiki-alibi-512]="16 1024 8 alibi 72 512"
    [wiki-sinusoidal-3072]="16 1024 8 sinusoidal 12 3072"
    [wiki-alibi-3072]="16 1024 8 alibi 12 3072"
    [gpt2-sinusoidal]="12 768 12 sinusoidal 64 1024"
    [gpt2-alibi]="12 768 12 alibi 64 1024"
    [1.3b-sinusoidal]="25 2048 16 sinusoidal 16 1024"
    [1.3b-alibi]="25 2048 16 alibi 16 1024"
)
order="wiki-sinusoidal wiki-rotary wiki-alibi wiki-sinusoidal-512 wiki-alibi-512
    wiki-sinusoidal-3072 wiki-alibi-3072 gpt2-sinusoidal gpt2-alibi 1.3b-sinusoidal 1.3b-alibi"

ours() { # layers width heads position batch length: JSON
    "$alibi" bench train --quiet --device cuda --precision bf16 --skip 0 --repeats "$repeats" \
        --vocab $vocab --json --layers "$1" --width "$2" --heads "$3" --position "$4" \
        --batch "$5" --length "$6"
}

theirs() {
    "$python" bench/torch_gpu_step.py "$1" "$2" "$3" $vocab "$4" "$5" "$6" "$repeats"
}

# attempt WHO FILE CASE...: {} in the file if it fails, and why on stderr
attempt() {
    "$1" "${@:3}" > "$2" 2> "$folder/stderr" && return 0
    echo "$1, ${*:3}: $(tail -n 1 "$folder/stderr")" >&2
    echo '{}' > "$2"
    return 1
}

compare() { # name: a row
    local values
    read -ra values <<< "${cases[$1]}"
    attempt theirs "$folder/theirs.json" "${values[@]}" || true
    attempt ours "$folder/ours.json" "${values[@]}" || failed=1
    "$python" - "$folder" "$1" "${values[@]}" << 'ROW'
import json, sys
folder, name, layers, width, _, _, batch, length = sys.argv[1:9]
theirs, ours = (json.load(open(f"{folder}/{who}.json")) for who in ("theirs", "ours"))
ours = ours[0] if ours else ours


def figures(step):
    if not step:
        return f"{'-':>8} {'-':>8} {'-':>7}"
    flops = 6 * step["parameters"] + 6 * int(layers) * int(length) * int(width)
    speed = step["tokens_per_s"]
    return f"{speed / 1e3:8.1f} {speed * flops / 1e12:8.1f} {step['peak_bytes'] / 2**30:7.1f}"


ratio = f"{ours['tokens_per_s'] / theirs['tokens_per_s']:6.2f}" if ours and theirs else f"{'-':>6}"
print(f"{name:22} {batch:>5} {length:>6} {figures(theirs)} {figures(ours)} {ratio}", flush=True)
ROW
}

chosen=("$@")
[ $# -gt 0 ] || read -d '' -ra chosen <<< "$order" || true
for name in "${chosen[@]}"; do
    [ -n "${cases[$name]-}" ] || { echo "no case '$name'; there are" $order >&2 && exit 2; }
done
"$python" -c 'import torch; print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")'
echo "$repeats steps each"
printf '%-22s %5s %6s %25s %25s\n' "" "" "" "PyTorch" "alibi"
printf '%-22s %5s %6s %8s %8s %7s %8s %8s %7s %6s\n' case batch length \
    ktok/s TFLOP/s GiB ktok/s TFLOP/s GiB ratio
for name in "${chosen[@]}"; do
    compare "$name"
done
exit $failed
