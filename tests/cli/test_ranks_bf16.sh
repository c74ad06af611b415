#!/bin/bash
# Two processes that train in bf16 on one GPU, which is emulated: the bytes of one process. In the
# second step they compute with the bf16 copies of weights that the other one has updated. Without a
# GPU, the other tests of several processes train in fp32.
. "$(dirname "$0")/lib.sh"

need_mpi 5
built=$(dirname "$program")
if [ ! -e "$built/emulate/libalibi_cuda.so" ]; then
    skip 5 "the emulated GPU was not built"
    finish
fi
mkdir bin
cp "$program" "$built/libalibi_mpi.so" "$built/emulate/libalibi_cuda.so" bin/
small=(--device cuda --precision bf16 --gpu 0 --comm mpi --text-bytes 100000 --layers 1 --width 8
    --heads 1 --train-length 8 --batch 1 --accumulate 2 --steps 2 --save-every 1 --eval-every 0
    --warmup 1 --dropout 0.1 --clip 0.5 --deterministic-sum --quiet)
ranks() { # N, then the arguments of train
    mpirun -n "$1" --oversubscribe bin/alibi train "${small[@]}" "${@:2}"
}

check "one process" bin/alibi train "${small[@]}" --out one
check "2 ranks" ranks 2 --out two
check "2 ranks: the bytes of one process" same_weights one two
check "2 ranks, sharded gradients" ranks 2 --shard gradients --out sharded
check "2 ranks, sharded gradients: the bytes of one process" same_weights one sharded

finish
