#!/bin/bash
# One model that several processes train: the same bytes for any number of them, resumed with
# another number, stopped and killed, and used wrongly.
. "$(dirname "$0")/lib.sh"

need_mpi 53
ranks() { # N, then the arguments of train
    mpirun -n "$1" --oversubscribe "$program" train --device cpu "${@:2}"
}
small=(--text-bytes 200000 --layers 1 --width 16 --heads 2 --train-length 16 --batch 3
    --accumulate 12 --steps 6 --save-every 2 --eval-every 2 --eval-tokens 2000 --warmup 2
    --dropout 0.1 --clip 0.5 --quiet)
same_runs() { diff -r -x timing.json -x lock "$1" "$2" > stdout 2> stderr; }

# ---- the same bytes: weights, moments, log

check "one process, sums in order" "$program" train --device cpu "${small[@]}" --deterministic-sum \
    --out one
for n in 1 2 3 4; do
    check "$n ranks train" ranks "$n" "${small[@]}" --deterministic-sum --out "ranks$n"
    check "$n ranks: the bytes of one process" same_runs one "ranks$n"
done
check "one process, nesterov" "$program" train --device cpu "${small[@]}" --deterministic-sum \
    --optimizer nesterov --lr 0.5 --out nesterov1
check "3 ranks, nesterov" ranks 3 "${small[@]}" --deterministic-sum --optimizer nesterov --lr 0.5 \
    --out nesterov3
check "nesterov: the same bytes" same_runs nesterov1 nesterov3

# Layers of more than a million numbers are sent during the backward pass.
wide=(--text-bytes 200000 --layers 4 --width 304 --heads 2 --train-length 16 --batch 1
    --accumulate 4 --steps 2 --eval-every 0 --warmup 1 --deterministic-sum --quiet)
check "one process, large layers" "$program" train --device cpu "${wide[@]}" --out wide1
check "2 ranks, large layers" ranks 2 "${wide[@]}" --out wide2
check "large layers: the same bytes" same_runs wide1 wide2

# ---- without the option: the same bytes for the same number, and the loss of one process

check "one process" "$program" train --device cpu "${small[@]}" --out plain1
check "3 ranks" ranks 3 "${small[@]}" --out plain3
check "3 ranks again" ranks 3 "${small[@]}" --out plain3b
check "the same number of ranks: the same bytes" same_runs plain3 plain3b
losses() { sed -nE 's/.*"loss": ([0-9.]+).*/\1/p' "$1/log.jsonl"; }
check "the loss of one process up to rounding" awk '
    FNR == NR { loss[FNR] = $1; n++; next }
    { d = $1 - loss[FNR]; if (d < 0) d = -d; if (d > 1e-5) exit 1; m++ }
    END { exit m != 6 || n != 6 }' <(losses plain1) <(losses plain3)

# ---- resumed with another number of ranks

constant=("${small[@]}" --deterministic-sum --schedule constant)
check "one process, never interrupted" "$program" train --device cpu "${constant[@]}" --out whole
check "3 ranks take 4 steps" ranks 3 "${constant[@]}" --steps 4 --out resumed
check "2 ranks resume" ranks 2 --resume --out resumed --steps 6 --quiet
expect_ranks 2 "train: 5 ranks cannot divide a step of 12 passes.* to resume a run, 4 ranks" \
    ranks 5 --resume --out resumed --steps 9 --quiet
rm -r resumed/step-00000004 whole/step-00000004 # they say for how many steps
check "resumed with another number: the bytes of a run that was never interrupted" same_runs \
    resumed whole

# ---- stopped at one rank: all save and end with 75

long=("${small[@]}" --steps 20000 --save-every 20000 --eval-every 0 --deterministic-sum)
begin() { # arguments of train: $launcher is mpirun
    mpirun -n 3 --oversubscribe "$program" train --device cpu "${long[@]}" "$@" > stdout 2> stderr \
        < /dev/null &
    launcher=$!
}
begin --out stopped
wait_for grep -qs '"step": 3,' stopped/log.jsonl
kill -TERM "$(rank_process 1)"
wait $launcher
code=$?
if [ $code = 75 ]; then pass "stopped: 75"; else fail "stopped" "exit code $code"; fi
check "stopped: one line says so" test "$(grep -c 'train: stopped at step' stderr)" = 1
step=$(newest stopped | sed 's/.*step-0*//')
check "stopped: 2 ranks resume" ranks 2 --resume --out stopped --steps "$((step + 1))" --quiet

# ---- a rank dies: the others end, and the run resumes

begin --save-every 1 --out killed
wait_for grep -qs '"step": 3,' killed/log.jsonl
begun=$SECONDS
kill -KILL "$(rank_process 2)"
wait $launcher
code=$?
cp stderr words
if [ $code != 0 ]; then pass "killed: not 0"; else fail "killed" "exit code $code"; fi
check "killed: the others end within 120 s" test $((SECONDS - begun)) -lt 120
check "killed: the rank is named" grep -q 'rank [0-2]' words
step=$(newest killed | sed 's/.*step-0*//')
check "killed: 3 ranks resume" ranks 3 --resume --out killed --steps "$((step + 1))" --quiet

# ---- rank 0 is lost: another rank of its machine speaks, and no more than one

export ALIBI_RANK_TIMEOUT=3
mpirun -n 3 --oversubscribe "$program" train --device cpu "${long[@]}" --save-every 1 --out mute \
    > stdout 2> stderr < /dev/null &
launcher=$!
wait_for grep -qs '"step": 3,' mute/log.jsonl
kill -STOP "$(rank_process 0)"
wait $launcher
code=$?
cp stderr words
if [ $code = 5 ]; then pass "rank 0 is lost: 5"; else fail "rank 0 is lost" "exit code $code"; fi
check "rank 0 is lost: one line" test "$(grep -c '^alibi: ' words)" = 1
check "rank 0 is lost: it is named" grep -q \
    "^alibi: train: rank 0 on '.*' has given no sign of life for 3 s" words

# ---- a connection that fails: one line for all ranks

ALIBI_RANK_TIMEOUT=abc expect_ranks 2 "ALIBI_RANK_TIMEOUT is 'abc': it must be 1 to 3600" ranks 3 \
    "${small[@]}" --out wrong
unset ALIBI_RANK_TIMEOUT
version=$("$program" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
mkdir other
LC_ALL=C sed "s/${version//./\\.}/9.9.9/g" "$program" > other/alibi
chmod +x other/alibi
cp "$(dirname "$program")/libalibi_mpi.so" other
expect_ranks 2 "rank 2 on '.*' has another version of alibi than rank 0" mpirun --oversubscribe \
    -n 2 "$program" train --device cpu "${small[@]}" --out wrong : \
    -n 1 other/alibi train --device cpu "${small[@]}" --out wrong

# ---- a folder that rank 1 does not see, or no longer: it is another one in its working directory

mkdir here there
apart() { # arguments of train
    mpirun --oversubscribe -n 1 -wdir "$folder/here" "$program" train --device cpu "$@" : \
        -n 1 -wdir "$folder/there" "$program" train --device cpu "$@"
}
check "apart: rank 0 saves alone" apart "${small[@]:0:${#small[@]}-1}" --deterministic-sum \
    --out one
cp stderr words
check "apart: a note says so" grep -q \
    "not all ranks see 'one' and may write there: rank 0 fetches" words
check "apart: the bytes of one process" same_runs one here/one
check "apart: nothing is elsewhere" test -z "$(ls there)"
ln -s ../here/lost there/lost
apart "${long[@]}" --save-every 1 --out lost > said 2> words < /dev/null &
launcher=$!
wait_for grep -qs '"step": 3,' here/lost/log.jsonl
rm there/lost
wait $launcher
code=$?
if [ $code = 5 ]; then pass "lost: 5"; else fail "lost" "exit code $code"; fi
check "lost: one line" test "$(grep -c '^alibi: ' words)" = 1
check "lost: it names the rank and the file" grep -q \
    "^alibi: train: rank 1 on '.*': cannot open 'lost/step-0.*; rank 0 has made it" words
step=$(newest here/lost | sed 's/.*step-0*//')
check "lost: 3 ranks resume" ranks 3 --resume --out here/lost --steps "$((step + 1))" --quiet

# ---- wrong use: one line of ours, among those of mpirun

two() { # arguments of rank 0, --, of rank 1
    local first=() all=(--device cpu "${small[@]}" --out wrong)
    while [ "$1" != -- ]; do first+=("$1") && shift; done
    mpirun --oversubscribe -n 1 "$program" train "${all[@]}" "${first[@]}" : \
        -n 1 "$program" train "${all[@]}" "${@:2}"
}
expect_ranks 2 "train: 3 ranks cannot divide a step of 4 passes.*--batch 4 --accumulate 3" \
    ranks 3 "${small[@]}" --accumulate 4 --out wrong
expect_ranks 2 "train: --autotune wide is for one process: .*; omit it" \
    ranks 2 "${small[@]}" --autotune wide --out wrong
expect_ranks 2 "train: rank 1 on '.*' has another recipe than rank 0" two --lr 0.1 -- --lr 0.2
expect_ranks 2 "train: rank 1 on '.*' has another text than rank 0" two -- --text-bytes 300000
yes "a text to train on" | head -n 2000 > text.txt
expect_ranks 3 "train: rank 1 on '.*': cannot open 'none.txt'" two text.txt -- none.txt
expect_ranks 3 "train: rank 0 on '.*': 'one' already holds a run" ranks 2 "${small[@]}" --out one
expect_ranks 6 "train: rank 1 on '.*': step 1: the loss is not finite" mpirun --oversubscribe \
    -n 1 "$program" train --device cpu "${small[@]}" --out nan : -n 1 -x ALIBI_FAULT=nan:1 \
    "$program" train --device cpu "${small[@]}" --out nan
check "nothing was left" test ! -e wrong

finish
