#!/bin/bash
# What several processes do together besides training: they evaluate, compare and reproduce with the
# numbers of one process, speak with one voice, and refuse what they cannot divide.
. "$(dirname "$0")/lib.sh"

need_mpi 58
export SOURCE_DATE_EPOCH=1700000000
ranks() { # N, then the arguments of the program
    mpirun -n "$1" --oversubscribe "$program" "${@:2}"
}
odd() { # NAME=VALUE, in the environment of rank 1 of 2 alone, then the arguments of the program
    mpirun --oversubscribe -n 1 "$program" "${@:2}" : -n 1 -x "$1" "$program" "${@:2}"
}
# Times and memory aside.
numbers() { sed -E 's/"([a-z_]*seconds|[a-z_]*per_s|peak_bytes)": [0-9.e+-]+/"\1": 0/g' "$1"; }
same() { diff <(numbers "$1") <(numbers "$2") > stdout 2> stderr; } # TWO FILES

# ---- one voice

check "one version" ranks 3 --version
check "printed once" test "$(wc -l < stdout)" = 1
expect_ranks 2 "no command 'trian'; did you mean 'train'" ranks 2 trian
expect_ranks 2 "train: unknown option '--stepps'" ranks 3 train --stepps 3
expect_ranks 2 "generate: 2 processes were started, and this command does not divide" ranks 2 \
    generate none --prompt x
expect_ranks 2 "train: rank 1 on '.*': unknown option '--no'" mpirun --oversubscribe \
    -n 1 "$program" train --device cpu "${tiny[@]}" --out odd : -n 1 "$program" train --no
check "nothing was left" test ! -e odd

# ---- a launcher that does not connect its processes: one line, not a training at each of them

alone=(train --device cpu "${tiny[@]}" --out alone)
expect 2 "4 processes were started, but MPI connects 1: the launcher is of another MPI" \
    env PMI_RANK=0 PMI_SIZE=4 "$program" "${alone[@]}"
expect 2 "srun started 4 processes without connecting them: use srun --mpi=pmix" \
    env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 "$program" "${alone[@]}"
for rank in PMI_RANK=1 SLURM_PROCID=1; do
    run env $rank PMI_SIZE=4 SLURM_STEP_NUM_TASKS=4 "$program" "${alone[@]}"
    if [ $code = 2 ] && [ ! -s stderr ]; then pass "$rank is silent"; else fail "$rank" "$code"; fi
done
check "nothing was trained" test ! -e alone
check "one task of Slurm is a process" env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 "$program" \
    "${alone[@]}"
mkdir without
cp "$program" without
expect_ranks 7 "2 processes were started to work together: .*libalibi_mpi.so" mpirun -n 2 \
    --oversubscribe without/alibi "${alone[@]}"

# ---- evaluation: several batches, and a last one that is shorter

big=("${tiny[@]}" --text-bytes 400000 --accumulate 6 --eval-every 3 --deterministic-sum)
check "one process trains and validates" "$program" train --device cpu "${big[@]}" --out model
check "3 ranks do" ranks 3 train --device cpu "${big[@]}" --out model3
check "the same log and weights" diff -r -x timing.json -x lock model model3
eval=(eval model --device cpu --lengths 16,100 --json --quiet)
check "one process evaluates" "$program" "${eval[@]}"
cp stdout one.json
for n in 1 2 3; do
    check "$n ranks evaluate" ranks "$n" "${eval[@]}"
    cp stdout "ranks$n.json"
    check "$n ranks: the numbers of one process" same one.json "ranks$n.json"
done
probe() { # N KIND, then options
    check "one process: $2" "$program" probe "$2" model --device cpu --json --quiet "${@:3}"
    cp stdout one.json
    check "$1 ranks: $2" ranks "$1" probe "$2" model --device cpu --json --quiet "${@:3}"
    cp stdout ranks.json
    check "$2: the numbers of one process" same one.json ranks.json
}
probe 2 targets --blocks 64
probe 3 attention --windows 40 --lengths 500
probe 2 tasks --tasks markov,recall --cases 300 --lengths 64 --length 64
expect_ranks 2 "eval: protocol stream: .* 2 ranks cannot divide it" ranks 2 eval model \
    --device cpu --protocol stream
expect_ranks 2 "eval: rank 1 on '.*' has another request than rank 0" mpirun --oversubscribe \
    -n 1 "$program" eval model --device cpu : -n 1 "$program" eval model --device cpu --length 64
# A checkpoint of the same name and configuration, as on a machine with a copy that is out of date.
check "another learning rate" "$program" train --device cpu "${big[@]}" --lr 0.02 --out copy
expect_ranks 2 "eval: rank 1 on '.*' has another file of weights than rank 0" mpirun \
    --oversubscribe -n 1 "$program" eval model --device cpu : \
    -n 1 "$program" eval copy --device cpu
expect_ranks 4 "eval: rank 1 on '.*': " odd ALIBI_FAULT=memory:150 "${eval[@]}"

# ---- a comparison: whole models at each rank

compare=(compare --device cpu "${text[@]}" --methods alibi,none,sinusoidal --lengths 16,32
    --layers 1 --width 16 --heads 2 --train-length 16 --batch 2 --steps 20 --save-every 10
    --warmup 2 --eval-tokens 640 --sliding-tokens 320 --stream-tokens 300 --quiet)
check "one process compares" "$program" "${compare[@]}" --out one
table() { sed -E '/^report: /d; /^far text: /d; s/ +[0-9.]+ [KMG]iB//' stdout; } # not its memory
table > table
check "2 ranks compare" ranks 2 "${compare[@]}" --out two
table > table2
check "they print the same" diff table table2
check "the same results" same one/results.json two/results.json
expect_ranks 6 "compare: none: .*not finite.* 1 of 3 models have no result" odd ALIBI_FAULT=nan:2 \
    "${compare[@]}" --out three
check "3 ranks do the rest" ranks 3 "${compare[@]}" --out three
check "with the same results" same one/results.json three/results.json

# ---- a rank that fails or is stopped ends the others, long before their work is done

begin() { # FOLDER, options: two ranks are at work, rank 0 on alibi and rank 1 on none
    mpirun -n 2 --oversubscribe "$program" "${compare[@]}" --steps 10000000 "${@:2}" --out "$1" \
        > said 2> words < /dev/null &
    launcher=$!
    check "$1: both are at work" wait_for eval \
        "grep -qs '\"step\": 3,' $1/alibi/log.jsonl && grep -qs '\"step\": 3,' $1/none/log.jsonl"
}
end() { # its code and words are those of a command of run()
    wait $launcher
    code=$?
    mv said stdout
    mv words stderr
}
begin failed --save-every 500
mv failed/none moved && touch failed/none # where rank 1 will soon save
end
if [ $code = 3 ]; then pass "failed: 3"; else fail "failed" "exit code $code"; fi
check "failed: one line names the rank" test \
    "$(grep -c "^alibi: compare: rank 1 on '.*': " stderr)" = 1
step=$(newest failed/alibi | sed 's/.*step-0*//')
check "failed: rank 0 has saved its last step" eval \
    "tail -n 1 failed/alibi/log.jsonl | grep '\"step\": $step,'"
begin long --save-every 10000000
kill -TERM "$(rank_process 1)"
end
if [ $code = 75 ]; then pass "stopped: 75"; else fail "stopped" "exit code $code"; fi
check "stopped: one line says so" test "$(grep -c "^alibi: compare: stopped; .*'long'" stderr)" = 1
check "stopped: both have saved" ls long/alibi/step-* long/none/step-*

# ---- an experiment: texts that rank 0 prepares, models with the weights of another

cat > tiny.json << 'END'
{
    "experiment": 1, "numbers": { "L": 16 }, "seeds": [1, 2],
    "texts": { "text": { "tokenizer": "bpe", "vocab": 300 } },
    "settings": { "layers": 1, "width": 16, "heads": 2, "batch": 4, "steps": 20, "warmup": 5,
                  "lr": 0.02, "save_every": 40, "eval_every": 0, "train_length": "L" },
    "models": {
        "plain": { "settings": { "position": "rotary" } },
        "yarn": { "of": "plain", "as_position": "rope:stretch=yarn:factor=4" },
        "alibi": { "settings": { "position": "alibi" } }
    },
    "evaluations": {
        "windows": { "lengths": ["L", "4L"], "tokens": 640 },
        "tasks": { "kind": "tasks", "tasks": ["latest"], "cases": 20, "lengths": ["L", "4L"] }
    },
    "claims": [ { "claim": "ALiBi is worse at {4L}.", "holds_if": [
        { "is": { "model": "alibi", "length": "4L" }, "above": { "model": "alibi", "length": "L" } }
    ] } ]
}
END
check "a text" "$program" text "${text[@]}" -o own.txt
reproduce=(reproduce tiny.json own.txt --device cpu --quiet --discard-checkpoints)
check "one process reproduces" "$program" "${reproduce[@]}" --out whole
check "3 ranks reproduce" ranks 3 "${reproduce[@]}" --out divided
check "reproduce: the same results" same whole/results.json divided/results.json
expect_ranks 2 "reproduce: rank 1 on '.*' has another --only than rank 0" mpirun --oversubscribe \
    -n 1 "$program" "${reproduce[@]}" --out other : \
    -n 1 "$program" "${reproduce[@]}" --out other --only alibi

finish
