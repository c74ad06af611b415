#!/bin/bash
# Processes that exchange numbers by NCCL, with stand-ins for NCCL and for the GPUs: their bytes are
# those of one process on the CPU, and wrong use gets one line.
. "$(dirname "$0")/lib.sh"

need_mpi 77
built=$(dirname "$program")
if [ ! -e "$built/fake/libnccl.so.2" ]; then
    skip 77 "the stand-ins were not built"
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
check "each rank sees one GPU" env CUDA_VISIBLE_DEVICES=3 mpirun -n 2 --oversubscribe bin/alibi \
    train --device cuda --precision fp32 "${small[@]}" --deterministic-sum --out single --quiet
both=(--wire bf16 --shard gradients --quiet)
check "by MPI: bf16, sharded gradients" ranks 2 "${small[@]}" "${both[@]}" --comm mpi --out both
check "by NCCL: bf16, sharded gradients" ranks 2 "${small[@]}" "${both[@]}" --comm nccl --out both2
check "by either: the same bytes" same_weights both both2

# ---- from GPUs to the CPU and back

cp -r one same
for steps in 4 5; do
    check "one process, step $steps" "$program" train --device cpu --resume --steps $steps \
        --out same --quiet
done
check "the CPU resumes what 2 GPUs have saved" "$program" train --device cpu --resume --steps 4 \
    --comm mpi --out nccl2 --quiet
check "3 GPUs resume what the CPU has saved" ranks 3 --resume --steps 5 --comm nccl --out nccl2 \
    --quiet
check "there and back: the bytes of one process" same_weights same nccl2

# ---- several exchanges in flight: layers large enough to be sent during the backward pass

wide=(--text-bytes 200000 --layers 4 --width 304 --heads 2 --train-length 16 --batch 1
    --accumulate 2 --steps 2 --eval-every 0 --warmup 1 --quiet)
export FAKE_NCCL_COUNT=$PWD/in-flight
several() { [ "$(sort -n in-flight | tail -1)" -ge 2 ] && rm in-flight; }
for how in "--wire fp32" "--wire bf16" "--shard gradients"; do
    check "$how: by MPI" ranks 2 "${wide[@]}" $how --comm mpi --out "mpi $how"
    check "$how: by NCCL" ranks 2 "${wide[@]}" $how --comm nccl --out "nccl $how"
    check "$how: several exchanges in flight" several
    check "$how: the same bytes" same_weights "mpi $how" "nccl $how"
done
unset FAKE_NCCL_COUNT

# ---- in bf16: ranks have shards of the masters, and send each other the copies

rounded() { # N, then the arguments of train
    ALIBI_FAKE_BF16=1 mpirun -n "$1" --oversubscribe bin/alibi train --device cuda \
        --precision bf16 "${small[@]}" --deterministic-sum --quiet "${@:2}"
}
learned=(--position learned --max-length 16 --no-tied)
check "bf16: one process" rounded 1 --out rounded1
check "bf16: one process, learned positions" rounded 1 "${learned[@]}" --out learned1
for how in "2 --comm mpi" "3 --comm nccl" "2 --comm nccl --shard gradients"; do
    check "bf16, $how" rounded $how --out "rounded $how"
    check "bf16, $how: the bytes of one process" same_weights rounded1 "rounded $how"
    check "bf16, $how: learned positions" rounded $how "${learned[@]}" --out "learned $how"
    check "bf16, $how: the same bytes" same_weights learned1 "learned $how"
done
check "bf16: one process resumes what 3 have saved" rounded 1 --resume --steps 6 \
    --out "rounded 3 --comm nccl"
check "bf16: 2 resume what one has saved" rounded 2 --resume --steps 6 --out rounded1 --comm nccl
check "bf16: the same bytes" same_weights rounded1 "rounded 3 --comm nccl"
check "bf16: 2 start with the weights of another run" rounded 2 --init rounded1 --out begun2
check "bf16: one starts with them" rounded 1 --init rounded1 --out begun1
check "bf16: started, the same bytes" same_weights begun1 begun2
mkdir here there # rank 1 does not see what rank 0 writes
apart() { # arguments of train
    ALIBI_FAKE_BF16=1 mpirun --oversubscribe \
        -n 1 -wdir "$PWD/here" "$PWD/bin/alibi" train "$@" : \
        -n 1 -wdir "$PWD/there" "$PWD/bin/alibi" train "$@"
}
check "bf16, apart: rank 0 saves alone" apart --device cuda --precision bf16 "${small[@]}" \
    --deterministic-sum --comm nccl --out begun
check "bf16, apart: the bytes of one process" same_weights \
    "rounded 2 --comm nccl --shard gradients" here/begun

check "bench/nccl_overhead.sh" env ALIBI="$PWD/bin/alibi" REPEATS=1 SHORT=2 LONG=3 \
    OPTIONS="--precision fp32 --vocab 300 ${small[*]}" "$SOURCE/bench/nccl_overhead.sh" 2

# ---- keys and values of windows that ranks divide

eval=(eval one --length 500 --tokens 2000 --json --quiet)
losses() { grep -E '"(nll|tokens)":' stdout; }
check "one process evaluates" "$program" "${eval[@]}" --device cpu
losses > whole
check "2 ranks divide windows" mpirun -n 2 --oversubscribe bin/alibi "${eval[@]}" --device cuda \
    --precision fp32 --split-windows
losses > divided
check "divided windows: the losses of one process" same_losses whole divided
check "nothing is left of the messages" test -z "$(ls -d fake-nccl-* 2> /dev/null)"

# ---- where NCCL cannot be used: by MPI with a note, or an error if it was demanded

note="data passes through the host's memory"
check "two ranks on one GPU" env ALIBI_FAKE_GPU=a mpirun -n 2 --oversubscribe bin/alibi train \
    --device cuda --precision fp32 "${small[@]}" --deterministic-sum --out shared
cp stderr words
check "two ranks on one GPU: a note" grep -q "$note: ranks 0 and 1 share the GPU a" words
check "two ranks on one GPU: no advice to do what is done" bash -c "! grep -q -e --comm words"
check "two ranks on one GPU: the same bytes" same_weights one shared
wrong=(ranks 2 "${small[@]}" --comm nccl --out wrong --quiet)
ALIBI_FAKE_GPU=a expect_ranks 2 "train: ranks 0 and 1 share the GPU a of '.*', and NCCL needs one" \
    "${wrong[@]}"
expect_ranks 2 "train: NCCL connects GPUs.*; or use --comm mpi" "${wrong[@]}" --device cpu
FAKE_NCCL_FAILS=1 expect_ranks 7 \
    "train: NCCL failed in ncclCommInitRankConfig: unhandled system error" "${wrong[@]}"
LD_LIBRARY_PATH=$PWD/broken expect_ranks 7 "train: libnccl.so.2 cannot be loaded" "${wrong[@]}"
ALIBI_NCCL_TIMEOUT=0 expect_ranks 2 "train: ALIBI_NCCL_TIMEOUT is '0': it must be 1 to 3600" \
    "${wrong[@]}"

# ---- a rank that does not answer: no wait is without end

long=(train --device cuda --precision fp32 "${wide[@]}" --steps 100000 --save-every 2 --comm nccl
    --out)
odd() { # VARIABLE, ARGUMENTS: it is in the environment of rank 1 of 2 alone
    mpirun --oversubscribe -n 1 bin/alibi "${@:2}" : -n 1 -x "$1=1" bin/alibi "${@:2}"
}
expect_ranks 7 "train: rank 1 on '.*': NCCL failed in ncclCommInitRankConfig: unhandled" \
    odd FAKE_NCCL_FAILS "${long[@]}" odd
export ALIBI_NCCL_TIMEOUT=4
expect_ranks 7 "train: (rank 0 on '.*': )?ncclCommInitRankConfig has not ended within 4 s" \
    odd FAKE_NCCL_ABSENT "${long[@]}" odd
FAKE_NCCL_COUNT=$PWD/in-flight expect_ranks 5 \
    "train: rank 0 on '.*': an exchange by NCCL has not ended within 4 s" \
    odd FAKE_NCCL_MUTE "${long[@]}" odd
check "a rank that sends nothing: several exchanges in flight" several
check "a rank that never joins: by MPI" odd FAKE_NCCL_ABSENT train --device cuda --precision fp32 \
    "${small[@]}" --deterministic-sum --out absent
cp stderr words
check "a rank that never joins: a note" grep -qE \
    "$note: (rank [01] on '.*': )?ncclComm.* has not" words
check "a rank that never joins: the same bytes" same_weights one absent
unset ALIBI_NCCL_TIMEOUT
expect_ranks 5 "train: rank 1 on '.*': NCCL failed in .*: remote process exited" \
    odd FAKE_NCCL_BREAKS "${long[@]}" odd
ALIBI_RANK_TIMEOUT=8 mpirun -x ALIBI_RANK_TIMEOUT -n 2 --oversubscribe bin/alibi "${long[@]}" \
    stopped > stdout 2> stderr < /dev/null &
launcher=$!
check "two ranks train" wait_for grep -qs '"step": 3,' stopped/log.jsonl
kill -STOP "$(rank_process 1)"
wait $launcher
code=$?
cp stderr words
if [ $code = 5 ]; then pass "a rank that is stopped: 5"; else fail "stopped" "exit code $code"; fi
check "a rank that is stopped: one line" test "$(grep -c '^alibi: ' words)" = 1
check "a rank that is stopped: it is named" grep -q \
    "^alibi: train: rank 1 on '.*' has given no sign of life for 8 s" words
check "a rank that is stopped: one process resumes" "$program" train --device cpu --resume \
    --out stopped --steps "$(($(newest stopped | sed 's/.*step-0*//') + 1))" --comm mpi --quiet

finish
