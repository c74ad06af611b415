#!/bin/bash
# What several processes that train one model send each other: numbers of another type, and the
# gradients of one layer at a time. The rest of their work is in test_cluster.sh.
. "$(dirname "$0")/lib.sh"

need_mpi 22
ranks() { # N, then the arguments of train
    mpirun -n "$1" --oversubscribe "$program" train --device cpu "${@:2}"
}
small=(--text-bytes 200000 --layers 3 --width 16 --heads 2 --train-length 16 --batch 3
    --accumulate 12 --steps 4 --save-every 2 --eval-every 0 --warmup 2 --dropout 0.1 --clip 0.5
    --deterministic-sum --quiet)
losses() { sed -nE 's/.*"loss": ([0-9.]+).*/\1/p' "$1/log.jsonl"; }
near() { # TWO RUNS, LIMIT: the losses of 4 steps differ, by less than that
    paste <(losses "$1") <(losses "$2") | awk -v most="$3" '
        { d = $1 - $2; if (d < 0) d = -d; if (d > most) far = 1; if (d > 0) any = 1 }
        END { exit NR != 4 || far || !any }'
}

check "one process" "$program" train --device cpu "${small[@]}" --out one

# ---- bf16 on the wire: rounded gradients of each pass, added in fp32 in the order of passes

for n in 1 2 3 4; do
    check "$n ranks, bf16" ranks "$n" "${small[@]}" --wire bf16 --out "bf$n"
done
check "one rank sends nothing" same_weights one bf1
check "bf16: 2 and 3 ranks give the same bytes" same_weights bf2 bf3
check "bf16: 2 and 4 ranks give the same bytes" same_weights bf2 bf4
check "bf16: the loss up to rounding" near one bf2 2e-3
expect 3 "cannot resume 'bf2': its checkpoint has wire \"bf16\"" \
    "$program" train --device cpu --resume --wire fp32 --steps 6 --out bf2 --quiet

# ---- sharded gradients: the bytes of one process, whose sums are in order too

for n in 2 3 4; do
    check "$n ranks, sharded gradients" ranks "$n" "${small[@]}" --shard gradients --out "shard$n"
    check "$n ranks, sharded gradients: the same bytes" same_weights one "shard$n"
done
gated=("${small[@]}" --position 'fox,2*alibi' --parallel --no-tied)
check "layers of several sizes" "$program" train --device cpu "${gated[@]}" --out gated1
check "layers of several sizes, sharded" ranks 3 "${gated[@]}" --shard gradients --wire fp32 \
    --out gated3
check "layers of several sizes: the same bytes" same_weights gated1 gated3
check "2 ranks resume with other shards" ranks 2 --resume --shard gradients --steps 6 --out one \
    --quiet
check "2 ranks resume without" ranks 2 --resume --steps 6 --out shard3 --quiet
check "resumed: the same bytes" same_weights one shard3

finish
