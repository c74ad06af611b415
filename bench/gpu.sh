#!/bin/bash
# The measurements of docs/gpu.md on this GPU, in the order of that page. Each is printed after the
# command that makes it.
#
#   bench/gpu.sh [PART...]    default: all of them
#
#   tests       every test that needs a GPU, with and without lists of kept tiles, and as an Ampere;
#               the Python package's tests of attention
#   torch       training and attention beside compiled PyTorch
#   step        where the time of a step goes
#   methods     the cost of position methods, also in long windows
#   attention   attention alone, every pair
#   skipping    attention with skipping, beside every pair: on random numbers and, with MODEL=RUN
#               and TEXT=FILE, on the operands of that model
#   decoding    a token after 4,096, 65,536 and a million others
#   memory      recomputation
#   nccl        what NCCL's calls cost one rank
#
# ALIBI is the program, PYTHON a Python with PyTorch. Measurements that fail are listed at the end,
# and then the exit code is 1.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export ALIBI=${ALIBI:-build/release/alibi} PYTHON=${PYTHON:-python3}
build=$(dirname "$ALIBI")
paper=(--layers 16 --width 1024 --heads 8 --vocab 50304)
failed=()

show() { # COMMAND...
    printf '\n$ %s\n' "$*"
    "$@" || failed+=("$*")
}

bench() { show "$ALIBI" bench "$1" --quiet --device cuda "${@:2}"; }

# Side by side, since most of their time is the reference on the CPU. The test of devices is alone:
# it takes all memory of the GPU.
tests() {
    local commands=() words part t pids=() logs i=0
    for part in 'attention*' '!attention*'; do
        for words in "" ALIBI_LISTS_FROM=0 ALIBI_MMA_SYNC=1; do
            commands+=("env $words ALIBI_TEST=$part $build/test_cuda_attention")
        done
    done
    for part in 'attention*' '[!a]*' 'a[!t]*'; do
        commands+=("env ALIBI_OPERATION=$part $build/test_cases")
    done
    words="env ALIBI_MMA_SYNC=1 ALIBI_EVERY_CASE=1 ALIBI_OPERATION=attention*"
    commands+=("$words $build/test_cases")
    for t in cuda_skipping cuda_model cuda_long decoding sessions stream attend; do
        commands+=("$build/test_$t")
    done
    commands+=("env ALIBI=$ALIBI SOURCE=$PWD bash tests/cli/test_device.sh")
    commands+=("env PYTHONPATH=python $PYTHON -m unittest tests/python/test_attention.py")
    logs=$(mktemp -d)
    set -f # patterns are for the tests
    for words in "${commands[@]}"; do
        OMP_NUM_THREADS=2 $words > "$logs/${#pids[@]}" 2>&1 &
        pids+=($!)
    done
    set +f
    for words in "${commands[@]}" "$build/test_cuda_device" "$build/test_cuda_autotune"; do
        printf '\n$ %s\n' "$words"
        if [ "${pids[i]-}" ]; then
            wait "${pids[i]}" || failed+=("$words")
        else
            $words > "$logs/$i" 2>&1 || failed+=("$words")
        fi
        grep -E 'PASSED|FAILED|ERROR|^Ran ' "$logs/$i"
        ! grep -qE 'PASSED  \] 0 test|^Ran 0 ' "$logs/$i" || failed+=("$words: ran nothing")
        i=$((i + 1))
    done
    rm -r "$logs"
}

torch() {
    show bench/against_torch_gpu.sh wiki-alibi gpt2-sinusoidal wiki-alibi-3072 1.3b-alibi
    show env PYTHONPATH=python "$PYTHON" bench/attention_python.py
}

step() {
    bench train "${paper[@]}" --batch 32 --length 1024
    bench train --recipe gpt2-124m --vocab 50304 --batch 64 --length 1024
}

methods() {
    local length
    for length in 512 1024 3072; do
        bench train "${paper[@]}" --batch $((36864 / length)) --length $length --repeats 30 \
            --methods sinusoidal,rotary,t5,alibi,alibi
    done
    bench train --layers 8 --width 512 --heads 8 --vocab 16384 --length 512 --batch 64 \
        --methods alibi,scale-invariant,fox,kerple,hybrid
    for length in 4096 16384; do
        bench train --recipe gpt2-124m --vocab 50304 --batch $((32768 / length)) --length $length \
            --repeats 11 --methods alibi,rotary,hybrid,reach
    done
}

attention() {
    local width length
    for width in 128 64; do
        for length in 1024 4096 16384; do
            bench attention --skip 0 --backward --no-decode --repeats 15 --heads $((2048 / width)) \
                --head-width $width --batch $((16384 / length)) --lengths $length
        done
    done
}

skipping() {
    local from shape=(--batch 1 --heads 16 --head-width 128 --backward --repeats 7)
    bench attention "${shape[@]}" --lengths 2048,4096,8192,16384 --skip 0
    for from in 0 1; do
        printf '\nALIBI_LISTS_FROM=%d\n' $from
        ALIBI_LISTS_FROM=$from bench attention "${shape[@]}" --lengths 2048,4096,8192,16384,65536
    done
    [ -z "${MODEL-}" ] || bench attention --model "$MODEL" "$TEXT" --lengths 4096,16384,65536
}

decoding() {
    local model=(--recipe gpt2-124m --vocab 50304 --repeats 40) position length
    bench decode "${model[@]}" --position alibi --length 4096 --sequences 32
    for position in alibi hybrid reach; do
        for length in 4096 65536 1048576; do
            bench decode "${model[@]}" --position $position --length $length --sequences 1
        done
    done
}

memory() {
    local level
    for level in none cheap block; do
        bench train "${paper[@]}" --batch 32 --length 1024 --recompute $level
    done
}

nccl() { show bench/nccl_overhead.sh; }

[ $# -gt 0 ] || set -- tests torch step methods attention skipping decoding memory nccl
for part in "$@"; do
    case $part in
    tests | torch | step | methods | attention | skipping | decoding | memory | nccl) $part ;;
    *)
        echo "bench/gpu.sh: no part '$part'; its first lines list them" >&2
        exit 2
        ;;
    esac
done
[ ${#failed[@]} = 0 ] && exit 0
printf '\nfailed:\n' >&2
printf '  %s\n' "${failed[@]}" >&2
exit 1
