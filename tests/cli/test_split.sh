#!/bin/bash
# Windows that several processes divide among them: the losses are those of one process.
# tests/unit/test_sequence.c tests what they send each other.
. "$(dirname "$0")/lib.sh"

need_mpi 26
ranks() { # N, then the arguments of the program
    mpirun -n "$1" --oversubscribe "$program" "${@:2}"
}
train() { # POSITION FOLDER
    check "$2" "$program" train --device cpu --text-bytes 200000 --layers 2 --width 32 --heads 4 \
        --kv-heads 2 --train-length 64 --batch 4 --steps 30 --warmup 3 --lr 0.005 --eval-every 0 \
        --quiet --position "$1" --out "$2"
}
losses() { grep -E '"(length|nll|tokens)":' stdout; }
split() { # MODEL N, options: after one(), the same by N ranks
    check "$1: $2 ranks" ranks "$2" eval "$1" --device cpu --json --quiet --split-windows "${@:3}"
    losses > ranks
    cp stdout ranks.json
    check "$1: $2 ranks have the losses of one" same_losses one ranks
}
one() { # MODEL, options
    check "$1: one process" "$program" eval "$1" --device cpu --json --quiet "${@:2}"
    losses > one
}
number() { sed -nE "s/.*\"$1\": ([0-9]+).*/\1/p" ranks.json | tail -n 1; }

train alibi slopes
train '2*rotary:window=100:sinks=4' local
train 'fox,alibi' gates

# Less than a tile, less than one for each rank, an odd number of them; last windows are shorter.
options=(--lengths 5,100,1001 --tokens 4004)
one slopes "${options[@]}"
for n in 1 2 3 4; do split slopes $n "${options[@]}"; done
check "some keys do not travel" test "$(number sent_bytes)" -lt "$(number earlier_bytes)"
split slopes 3 "${options[@]}" --skip 0
check "without a budget all do" test "$(number sent_bytes)" = "$(number earlier_bytes)"
sliding=(--length 1400 --protocol sliding --stride 700 --tokens 4200)
one local "${sliding[@]}"
split local 3 "${sliding[@]}"
check "a window bounds what travels" test $((2 * $(number sent_bytes))) -lt \
    "$(number earlier_bytes)"

one gates --length 500 --tokens 2000
split gates 3 --length 500 --tokens 2000

# ---- refused, or ended by one rank

expect_ranks 2 "eval: verifying the skipped weight needs all keys" \
    ranks 2 eval slopes --device cpu --split-windows --verify
expect_ranks 2 "eval: rank 1 on '.*' has another request" mpirun --oversubscribe \
    -n 1 "$program" eval slopes --device cpu --split-windows : \
    -n 1 "$program" eval slopes --device cpu
expect_ranks 4 "eval: rank 1 on '.*': " mpirun --oversubscribe \
    -n 1 "$program" eval slopes --device cpu --split-windows --quiet --length 300 : \
    -n 1 -x ALIBI_FAULT=memory:280 "$program" eval slopes --device cpu --split-windows --quiet \
    --length 300 # within a pass

finish
