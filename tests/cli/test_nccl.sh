#!/bin/bash
# Processes that exchange numbers by NCCL, with stand-ins for NCCL and for the GPUs: their bytes are
# those of one process on the CPU, and wrong use gets one line.
. "$(dirname "$0")/lib.sh"

need_mpi 18
built=$(dirname "$program")
if [ ! -e "$built/fake/libnccl.so.2" ]; then
    skip 18 "the stand-ins were not built"
    finish
fi
mkdir bin broken
cp "$program" "$built/libalibi_mpi.so" "$built/fake/libalibi_cuda.so" bin/
echo "not a library" > broken/libnccl.so.2
export TMPDIR=$PWD LD_LIBRARY_PATH=$built/fake
small=(--text-bytes 200000 --layers 3 --width 16 --heads 2 --train-length 16 --batch 3
    --accumulate 6 --steps 3 --save-every 2 --eval-every 0 --warmup 2 --dropout 0.1 --clip 0.5)
ranks() { # N, then the arguments of train
    mpirun -n "$1" --oversubscribe bin/alibi train --device cuda --precision fp32 "${@:2}"
}

# ---- the bytes of one process

check "one process" "$program" train --device cpu "${small[@]}" --deterministic-sum --out one \
    --quiet
for n in 1 2 3; do
    check "$n ranks" ranks "$n" "${small[@]}" --deterministic-sum --comm nccl --out "nccl$n" --quiet
    check "$n ranks: the bytes of one process" same_weights one "nccl$n"
done
both=(--wire bf16 --shard gradients --quiet)
check "by MPI: bf16, sharded gradients" ranks 2 "${small[@]}" "${both[@]}" --comm mpi --out both
check "by NCCL: bf16, sharded gradients" ranks 2 "${small[@]}" "${both[@]}" --comm nccl --out both2
check "by either: the same bytes" same_weights both both2
check "nothing is left of the messages" test -z "$(ls -d fake-nccl-* 2> /dev/null)"

# ---- where NCCL cannot be used: by MPI with a note, or an error if it was demanded

note="gradients pass through the host's memory"
check "two ranks on one GPU" env ALIBI_FAKE_GPU=a mpirun -n 2 --oversubscribe bin/alibi train \
    --device cuda --precision fp32 "${small[@]}" --deterministic-sum --out shared
cp stderr words
check "two ranks on one GPU: a note" grep -q "$note: ranks 0 and 1 share the GPU a" words
check "two ranks on one GPU: the same bytes" same_weights one shared
wrong=(ranks 2 "${small[@]}" --comm nccl --out wrong --quiet)
ALIBI_FAKE_GPU=a expect_ranks 2 "train: ranks 0 and 1 share the GPU a of '.*', and NCCL needs one" \
    "${wrong[@]}"
expect_ranks 2 "train: NCCL connects GPUs" "${wrong[@]}" --device cpu
FAKE_NCCL_FAILS=1 expect_ranks 7 \
    "train: NCCL failed in ncclCommInitRank: unhandled system error" "${wrong[@]}"
LD_LIBRARY_PATH=$PWD/broken expect_ranks 7 "train: libnccl.so.2 cannot be loaded" "${wrong[@]}"

finish
