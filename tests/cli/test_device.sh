#!/bin/bash
# Where a model runs: --device, --precision, and the plan of memory. What needs a GPU is tried where
# there is one.
. "$(dirname "$0")/lib.sh"
loud=("${tiny[@]:0:${#tiny[@]}-1}") # without --quiet

# The CPU
check "train --device cpu" "$program" train "${loud[@]}" --device cpu --out cpu
grep -qiE 'gpu|cuda|device' stderr && fail "--device cpu" "speaks of devices" ||
    pass "says nothing of devices"
expect 2 "bf16" "$program" train "${tiny[@]}" --device cpu --precision bf16 --out none
check "--precision fp32" "$program" train "${tiny[@]}" --device cpu --precision fp32 --out fp32
cmp -s cpu/log.jsonl fp32/log.jsonl && pass "is what the CPU has anyway" ||
    fail "--precision fp32" "another training"
grep -qE '"(device|precision)"' cpu/recipe.json && fail "recipe.json" "has the machine's options" ||
    pass "a run's recipe has no device"
[ -e none ] && fail "--precision bf16" "left a folder" || pass "a refusal leaves nothing behind"
check "--autotune wide" "$program" train "${tiny[@]}" --device cpu --autotune wide --out one
diff -r "$(newest cpu)" "$(newest one)" > stdout 2> stderr &&
    pass "the CPU has one algorithm for each product" || fail "--autotune wide" "other bytes"

# A recipe may name one, for every command that has them, and an option overrides it.
echo '{ "device": "cpu", "precision": "fp32" }' > recipe.json
for command in "train ${tiny[*]} --out r1" \
    "compare ${tiny[*]} --methods alibi --lengths 16 --eval-tokens 160 --out r2" \
    "eval cpu --quiet ${text[*]} --tokens 160" "generate cpu --tokens 4" "plan" \
    "bench memory --layers 1 --width 16 --heads 2 --lengths 16"; do
    check "a recipe with a device: ${command%% *}" "$program" $command --recipe recipe.json
    [ -s stderr ] && fail "${command%% *}" "speaks on stderr" || pass "says nothing"
done
echo '{ "device": "cpu", "precision": "bf16" }' > recipe.json
expect 2 "bf16" "$program" eval cpu --recipe recipe.json
check "an option overrides it" \
    "$program" eval cpu --quiet "${text[@]}" --tokens 160 --recipe recipe.json --precision fp32
expect 3 "unknown key 'device'" "$program" text --recipe recipe.json --out a

# The plan
check "plan" "$ALIBI" plan --layers 2 --width 32 --heads 2 --vocab 1000 --batch 3 --train-length 64
for word in none cheap block weights gradients optimizer activations passing workspace total free \
    'largest batch' 'longest input'; do
    grep -q "$word" stdout && pass "has $word" || fail "plan" "lacks $word"
done
head -n 1 stdout | grep -q 'batch 3 x 64 tokens, fp32 on cpu' &&
    pass "its first line says of what" || fail "plan" "$(head -n 1 stdout)"
check "plan --json" "$ALIBI" plan --recipe "$SOURCE/recipes/gpt2-124m.json" --vocab 50304 \
    --batch 2 --recompute block --json
is_json stdout && pass "is JSON" || fail "plan --json" "no JSON"
grep -q '"gpu": false' stdout && [ "$(member stdout available_bytes)" -gt 1000000000 ] &&
    grep -q '"fits": true' stdout && grep -q '"recompute": "block"' stdout &&
    pass "the host has what the machine has" || fail "plan --json" "says otherwise"
[ "$(member stdout parameters)" -gt 120000000 ] && pass "$(member stdout parameters) parameters" ||
    fail "plan" "$(member stdout parameters)"
totals=$(grep -oE '"total_bytes": *[0-9]+' stdout | sed 's/.*: *//' | tr '\n' ' ')
awk '{ exit !(NF == 3 && $1 > $2 && $2 > $3 && $3 > 0) }' <<< "$totals" &&
    pass "each level takes less: $totals" || fail "plan" "$totals"
wrong=$(awk '/_bytes/ {
    sub(/,/, "", $2)
    if ($1 == "\"available_bytes\":") next
    if ($1 != "\"total_bytes\":") { sum += $2; next }
    if (sum != $2 + 0) print
    sum = 0
}' stdout)
[ -z "$wrong" ] &&
    pass "the parts make up the total" || fail "plan" "the parts are not the total"
check "plan --gpu-memory" \
    "$program" plan --recipe "$SOURCE/recipes/paper-1.3b.json" --vocab 50304 --gpu-memory 80
[ ! -s stderr ] && head -n 1 stdout | grep -q 'bf16 on a GPU' &&
    grep -qE '^free +80.0 GiB' stdout && grep -qE '^largest batch +[1-9]' stdout &&
    pass "plans for a GPU that is elsewhere" || fail "plan --gpu-memory" "$(cat stdout stderr)"
run "$program" plan --recipe "$SOURCE/recipes/paper-1.3b.json" --vocab 50304 --gpu-memory 30
[ "$code" = 4 ] && grep -q 'needs .* 30.0 GiB free.*--recompute block' stderr &&
    pass "and says what does not fit there" || fail "plan --gpu-memory" "exit code $code"
run "$program" plan --recipe "$SOURCE/recipes/paper-1.3b.json" --vocab 50304 --gpu-memory 8 \
    --gpus 64
[ "$code" = 4 ] && grep -q '8.0 GiB free: --shard gradients --recompute block fits' stderr &&
    pass "plan: sharded gradients may fit" || fail "plan: sharded gradients" "exit code $code"
expect 2 "heads 3 do not divide width 16" "$ALIBI" plan --width 16 --heads 3
check "plan for several GPUs" "$ALIBI" plan --recipe "$SOURCE/recipes/paper-1.3b.json" \
    --vocab 50304 --gpu-memory 80 --gpus 32 --link-gbps 400 --pass-seconds 0.245 --json
# (4 + 2) * 31/32 * 1.36e9 bytes at 50 GB/s, and one pass
step=$(sed -n '/"cluster"/,$p' stdout | grep -oE '"step_seconds": [0-9.]+' | sed 's/.*: //')
check "plan: a step is a pass and the exchange" \
    awk -v step="$step" 'BEGIN { exit step < 0.40 || step > 0.41 }'
# 64 GPUs cannot divide its 32 passes of 16 windows, but 64 of 8; the passes take half as long.
run "$ALIBI" plan --gpus 64 --gpu-memory 80 --recipe "$SOURCE/recipes/paper-1.3b.json" \
    --vocab 50304 --pass-seconds 0.2
[ "$code" = 0 ] && grep -q 'with --batch 8 --accumulate 64, as many windows' stderr &&
    grep -q 'A step is 1 x 0.1 s of passes' stdout && pass "plan: another split of a step" ||
    fail "plan: another split of a step" "$(cat stdout stderr)"
run "$ALIBI" plan --gpus 64 --gpu-memory 80 --link-gbps 400
[ "$code" = 0 ] && grep -q 'with --batch 16 --accumulate 64, a step of more windows' stderr &&
    pass "plan: a step of too few windows" ||
    fail "plan: a step of too few windows" "$(cat stdout stderr)"
grep -q 'of passes + the exchange = .* tokens/s' stdout && grep -q '^400 TFLOP/s' stdout &&
    pass "plan: the time of a pass is assumed" || fail "plan: assumed" "$(cat stdout)"
check "plan: at another rate" "$ALIBI" plan --gpus 32 --gpu-memory 80 --vocab 50304 \
    --recipe "$SOURCE/recipes/paper-1.3b.json" --gpu-tflops 566 --json
# 16 * 1024 * (6 * 1.36e9 + 6 * 24 * 1024 * 2048) operations: 0.245 s, as on an H200
check "plan: the pass of 1.3B" awk -v pass="$(member stdout pass_seconds)" \
    'BEGIN { exit pass < 0.24 || pass > 0.25 }'
run "$ALIBI" plan --gpus 8 --gpu-memory 80 --recipe "$SOURCE/recipes/paper-1.3b.json" \
    --vocab 50304 --shard gradients
[ "$code" = 0 ] && grep -q '4 times as gradients of 4 bytes and once as weights of 2;' stdout &&
    pass "plan: sharded gradients are sent in each pass" ||
    fail "plan: sharded gradients are sent in each pass" "$(cat stdout stderr)"
# Without a GPU each measurement ends there, and not at an option that does not exist.
run env CUDA_VISIBLE_DEVICES= "$SOURCE/bench/gpu.sh" step methods attention skipping decoding memory
[ "$code" = 1 ] && [ "$(grep -c '^\$ .* bench' stdout)" -gt 15 ] &&
    [ "$(grep -c '^\$ .* bench' stdout)" = "$(grep -c ': bench: device cuda: ' stderr)" ] &&
    pass "bench/gpu.sh: its commands are understood" || fail "bench/gpu.sh" "$(cat stdout stderr)"
# plan refuses what training refuses, wherever the GPUs are.
for where in "" "--gpu-memory 80"; do
    expect 2 "autotune wide is for one process: .*; omit it" \
        "$ALIBI" plan --gpus 4 --accumulate 4 --autotune wide $where
    check "plan: one process may, $where" "$ALIBI" plan --gpus 1 --autotune wide $where
done

# A driver that is too old, where there is a backend that would ask it
mkdir driver && cc -shared -fPIC -o driver/libcuda.so.1 "$SOURCE/tests/cli/old_driver.c"
if [ -e "$(dirname "$program")/libalibi_cuda.so" ]; then
    expect 7 "driver is too old: it has CUDA 12.2, [0-9.]+ is needed" \
        env LD_LIBRARY_PATH="$PWD/driver" "$program" plan --device cuda
    check "auto with an old driver" \
        env LD_LIBRARY_PATH="$PWD/driver" "$program" train "${loud[@]}" --out old
    grep -q 'driver is too old.*running on the CPU' stderr && pass "notes it and takes the CPU" ||
        fail "auto" "no note"
else
    skip 3 "no CUDA backend"
fi

# auto, and what is asked for and not there
if has_gpu; then
    check "auto" "$program" train "${loud[@]}" --out auto
    grep -qi 'cpu' stderr && fail "auto" "speaks of the CPU" ||
        pass "takes the GPU and has nothing to note"
    expect 7 "no GPU is visible" env CUDA_VISIBLE_DEVICES= "$program" plan --device cuda
    check "train --device cuda" "$program" train "${tiny[@]}" --device cuda --out cuda
    cmp -s auto/log.jsonl cuda/log.jsonl && pass "the same, bit for bit" ||
        fail "cuda" "another training"
    check "fewer steps, then the rest" "$program" train "${tiny[@]}" --device cuda --out half
    rm -rf half/step-00000006 &&
        check "resume" "$program" train "${tiny[@]}" --device cuda --out half --resume
    diff -r "$(newest cuda)" "$(newest half)" > stdout 2> stderr && pass "ends in the same bytes" ||
        fail "resume" "other bytes"
    # windows that skip tiles, heads of 64: the order of the sums of dQ must survive a resume too
    long=("${text[@]}" --layers 2 --width 128 --heads 2 --train-length 2048 --batch 1
        --steps 6 --save-every 3 --warmup 2 --quiet)
    check "long windows" "$program" train "${long[@]}" --device cuda --out long
    check "long windows again" "$program" train "${long[@]}" --device cuda --out long-half
    rm -rf long-half/step-00000006 &&
        check "resume" "$program" train "${long[@]}" --device cuda --out long-half --resume
    diff -r "$(newest long)" "$(newest long-half)" > stdout 2> stderr &&
        pass "ends in the same bytes" || fail "resume of long windows" "other bytes"
    # algorithms that the first step has chosen: products large enough to be tuned
    wide=("${text[@]}" --layers 1 --width 512 --heads 4 --train-length 512 --batch 4
        --steps 6 --save-every 3 --warmup 2 --quiet)
    check "--autotune wide" \
        "$program" train "${wide[@]}" --device cuda --autotune wide --out wide
    [ "$(grep -c '"algorithm":' wide/step-00000003/products.json)" -ge 4 ] &&
        pass "stores what it has chosen" || fail "--autotune wide" "no algorithms"
    cp -r wide wide-half && rm -rf wide-half/step-00000006 && # without the option, as it is stored
        check "resume" "$program" train "${wide[@]}" --device cuda --out wide-half --resume
    diff -r "$(newest wide)" "$(newest wide-half)" > stdout 2> stderr &&
        pass "ends in the same bytes" || fail "resume of --autotune wide" "other bytes"
    check "fp32" "$program" train "${tiny[@]}" --device cuda --precision fp32 --out single
    awk -v a="$(tail -n 1 cpu/log.jsonl | sed 's/.*"loss": *\([^,}]*\).*/\1/')" \
        -v b="$(tail -n 1 single/log.jsonl | sed 's/.*"loss": *\([^,}]*\).*/\1/')" \
        'BEGIN { exit !(a > 0 && a - b < 1e-3 && b - a < 1e-3) }' &&
        pass "has the loss of the CPU" || fail "fp32" "another loss"
    check "a model of the GPU on the CPU" \
        "$program" eval cuda --quiet "${text[@]}" --tokens 160 --device cpu
    check "a model of the CPU on the GPU" \
        "$program" eval cpu --quiet "${text[@]}" --tokens 160 --device cuda
    check "generate --device cuda" "$program" generate cpu --tokens 20 --device cuda
    check "compare --device cuda" "$program" compare "${tiny[@]}" --lengths 16,32 \
        --eval-tokens 640 --device cuda --out compared
    grep -A 1 '"device": ' compared/results.json | grep -q '"precision": "bf16"' &&
        ! grep -q '"device": "cpu"' compared/results.json &&
        pass "its results name the GPU" ||
        fail "compare --device cuda" \
        "$(grep -o '"device": [^,]*' compared/results.json | head -n 1)"
    check "bench train --device cuda" "$program" bench train --layers 2 --width 128 --heads 2 \
        --batch 2 --length 64 --repeats 2 --device cuda --json
    is_json stdout && grep -q '"gpu": true' stdout && grep -q '"seconds":' stdout &&
        pass "has the time of each part" || fail "bench train" "no parts"
    check "bench attention --model" "$program" bench attention --model cuda --quiet \
        --lengths 16,512 --repeats 1 --device cuda --json
    is_json stdout && [ "$(grep -c '"layer": 0' stdout)" = 2 ] &&
        pass "times the attention of its layer" || fail "bench attention --model" "no layer"
    check "plan --device cuda" "$program" plan --device cuda --json
    [ "$(member stdout available_bytes)" -gt 0 ] && [ "$(member stdout largest_batch)" -ge 16 ] &&
        pass "knows what is free" || fail "plan" "does not know"
    run "$program" plan --device cuda --layers 96 --width 12288 --heads 96 --vocab 50304 \
        --batch 64 --train-length 2048 --json
    [ "$code" = 4 ] && is_json stdout && grep -q '"fits": false' stdout &&
        [ "$(wc -l < stderr)" = 1 ] && pass "what does not fit: 4, one line" ||
        fail "plan" "exit code $code"
    expect 4 "memory|free" \
        "$program" train "${tiny[@]}" --layers 96 --width 12288 --heads 96 --device cuda --out big
else
    skip 31 "no GPU"
    for command in "train ${tiny[*]} --out none" "compare ${tiny[*]} --out none" "eval cpu" \
        "generate cpu" plan "bench train"; do
        expect 7 "^alibi: ${command%% *}: .*(GPU|CUDA|cuda)" "$program" $command --device cuda
    done
    [ -e none ] && fail "--device cuda" "left a folder" || pass "a refusal leaves nothing behind"
    check "auto" env LD_LIBRARY_PATH="$PWD/driver" "$program" train "${loud[@]}" --out noted
    [ "$(grep -ciE 'cpu.*(gpu|cuda)|(gpu|cuda).*cpu' stderr)" = 1 ] &&
        pass "with a driver: notes once that it is the CPU, and why" || fail "auto" "no note"
    check "auto" "$program" train "${loud[@]}" --out auto
    if ldconfig -p 2> /dev/null | grep -q 'libcuda\.so\.1'; then
        skip 1 "a driver without a GPU"
    else
        grep -qiE 'gpu|cuda' stderr && fail "auto" "speaks of a GPU" ||
            pass "without one: says nothing of GPUs"
    fi
    cmp -s cpu/log.jsonl auto/log.jsonl && pass "and trains the same" ||
        fail "auto" "another training"
    check "auto --quiet" "$program" train "${tiny[@]}" --out quiet
    [ -s stderr ] && fail "--quiet" "not quiet" || pass "says nothing"
fi

# Ranks that share the GPU, in bf16: the bytes of one process, whoever moves the data.
has_gpu || { skip 16 "no GPU" && finish; }
need_mpi 16
shared=("${text[@]}" --device cuda --gpu 0 --layers 2 --width 64 --heads 2 --train-length 64
    --batch 2 --accumulate 4 --steps 4 --save-every 2 --warmup 2 --dropout 0.1 --clip 0.5
    --schedule constant --deterministic-sum --quiet)
ranks() { mpirun -n "$1" --oversubscribe "$program" train "${@:2}"; }
same_runs() { diff -r -x timing.json -x lock -x recipe.json "$1" "$2" > stdout 2> stderr; }
check "one process" "$program" train "${shared[@]}" --out alone
while read -r n how; do
    rm -rf several
    check "$n ranks, $how" ranks "$n" "${shared[@]}" $how --out several
    check "$n ranks, $how: the bytes of one process" same_runs alone several
done << 'END'
1 --comm nccl
2 --comm mpi --shard gradients
4 --comm mpi --shard gradients
2 --comm mpi
4 --comm mpi
END
rm -rf several/step-00000004
check "2 ranks resume" ranks 2 --resume --out several --device cuda --gpu 0 --comm mpi --quiet
check "2 ranks resume the run of 4: the bytes of one process" same_runs alone several
check "4 ranks on the CPU resume a run of the GPU" ranks 4 --resume --out several --device cpu \
    --steps 6 --comm mpi --quiet
check "a GPU resumes a run of the CPU" \
    "$program" train --resume --out several --device cuda --gpu 0 --steps 8 --quiet
[ -d several/step-00000008 ] && pass "to the end" || fail "GPU, CPU, GPU" "$(ls several)"
finish
