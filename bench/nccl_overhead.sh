#!/bin/bash
# The cost of NCCL's calls: training by one process, and by one rank that sends all gradients to
# itself by NCCL, in turn.
#
#   bench/nccl_overhead.sh [PASSES...]      passes of a step (--accumulate), default: 1 4 32
#
# A pass has 16 windows of 1,024 tokens, and the model the shape of GPT-2 124M with 16,384 ids.
# OPTIONS are added to those of `alibi train`. The time of a step is that of LONG steps less that of
# SHORT (12 and 4), divided by the difference, so what only the first steps do does not count; the
# table has medians of REPEATS (3). Both must write the same bytes; otherwise the exit code is 1.
# The rank is not bound to one core, as mpirun does by default: its threads would share that core.
# ALIBI is the program.
set -euo pipefail
cd "$(dirname "$0")/.."
alibi=${ALIBI:-build/release/alibi}
short=${SHORT:-4} long=${LONG:-12} repeats=${REPEATS:-3}
model=(--recipe recipes/gpt2-124m.json --vocab 16384 --train-length 1024 --batch 16 --warmup 2
    --eval-every 0 --quiet --json)
read -ra options <<< "${OPTIONS-}"
last=$(printf 'step-%08d/model.safetensors' "$long")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

alone() { "$alibi" train --device cuda "${model[@]}" "${options[@]}" "$@"; }
by_nccl() {
    mpirun -n 1 --bind-to none --allow-run-as-root "$alibi" train --device cuda --comm nccl \
        "${model[@]}" "${options[@]}" "$@"
}

# step_ms WHO PASSES: the milliseconds of a step. The model of the longer run stays in folder/WHO.
step_ms() {
    local steps seconds=()
    for steps in "$short" "$long"; do
        rm -rf "${folder:?}/$1"
        "$1" --accumulate "$2" --steps "$steps" --out "$folder/$1" > "$folder/result.json"
        seconds+=("$(sed -nE 's/.*"seconds": ([0-9.e-]+).*/\1/p' "$folder/result.json")")
    done
    awk -v a="${seconds[0]}" -v b="${seconds[1]}" -v steps=$((long - short)) \
        'BEGIN { printf "%.3f\n", 1000 * (b - a) / steps }'
}

median() { sort -g "$1" | awk '{ at[NR] = $1 } END { print at[int((NR + 1) / 2)] }'; }

[ $# -gt 0 ] || set -- 1 4 32
printf '%-8s %12s %12s %9s\n' passes "alone, ms" "by NCCL, ms" cost
for passes in "$@"; do
    rm -f "$folder"/*.times
    for ((i = 0; i < repeats; i++)); do
        for who in alone by_nccl; do
            step_ms $who "$passes" >> "$folder/$who.times"
        done
        cmp "$folder/alone/$last" "$folder/by_nccl/$last"
    done
    awk -v passes="$passes" -v a="$(median "$folder/alone.times")" \
        -v b="$(median "$folder/by_nccl.times")" \
        'BEGIN { printf "%-8s %12.2f %12.2f %+8.1f%%\n", passes, a, b, 100 * (b / a - 1) }'
done
