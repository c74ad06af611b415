#!/bin/bash
# Training and everything that can happen to it; what was saved is never lost.
. "$(dirname "$0")/lib.sh"

same_checkpoint() { # name, run, run: the newest checkpoints are byte for byte the same
    if diff -r "$(newest "$2")" "$(newest "$3")" > stdout 2> stderr; then
        pass "$1"
    else
        fail "$1" "they differ"
    fi
}

check "train" "$ALIBI" train "${tiny[@]}" --out whole
grep -qE '^step 6, loss [0-9.]+, validation loss [0-9.]+, .* in .whole.$' stdout &&
    [ ! -s stderr ] || fail "train" "no result line"
[ "$(grep -c '"loss"' whole/log.jsonl)" = 6 ] && [ "$(wc -l < whole/log.jsonl)" = 7 ] &&
    pass "a log line per step, and one of the validation after the last" ||
    fail "log.jsonl" "$(wc -l < whole/log.jsonl) lines"
check "train --json" "$ALIBI" train "${tiny[@]}" --out json --json
is_json stdout && [ "$(member stdout step)" = 6 ] && pass "is JSON" || fail "train --json" "no JSON"
loss=$(member stdout valid_loss)
run "$ALIBI" eval json "${text[@]}" --quiet --json
[ -n "$loss" ] && [ "$(member stdout nll)" = "$loss" ] &&
    pass "its validation loss is what eval says" || fail "valid_loss" "$loss"
same_checkpoint "the same seed gives the same checkpoint" whole json
check "another seed" "$ALIBI" train "${tiny[@]}" --out other --seed 2
cmp -s "$(newest whole)/model.safetensors" "$(newest other)/model.safetensors" &&
    fail "seed" "no effect" || pass "gives another model"

# A folder that holds a run
expect 3 "'whole'.*resume" "$ALIBI" train "${tiny[@]}" --out whole
check "resuming a finished run does nothing" "$ALIBI" train "${tiny[@]}" --out whole --resume
same_checkpoint "and changes nothing" whole json
expect 3 "width" "$ALIBI" train "${tiny[@]}" --width 32 --out whole --resume
expect 3 "text" "$ALIBI" train "${tiny[@]}" --text-seed 5 --out whole --resume

# A validation text of its own
for split in train valid test; do
    "$ALIBI" text --out $split.txt "${text[@]}" --split $split > /dev/null
done
check "--valid" "$ALIBI" train train.txt --valid valid.txt "${tiny[@]}" --out valid
expect 3 "'train.txt' is the same, but the validation text differs; give --valid" \
    "$ALIBI" train train.txt "${tiny[@]}" --out valid --resume
expect 3 "the validation text differs" \
    "$ALIBI" train train.txt --valid test.txt "${tiny[@]}" --out valid --resume
expect 3 "'test.txt' differs from the one" \
    "$ALIBI" train test.txt --valid valid.txt "${tiny[@]}" --out valid --resume
"$ALIBI" tokenize train.txt valid.txt -o joined --quiet > /dev/null
"$ALIBI" tokenize train.txt -o front --quiet > /dev/null
"$ALIBI" tokenize valid.txt -o back --quiet > /dev/null
check "a corpus in one piece" "$ALIBI" train joined "${tiny[@]}" --out joint
expect 3 "'front' differs from the one" \
    "$ALIBI" train front --valid back "${tiny[@]}" --out joint --resume
check "the same again" "$ALIBI" train train.txt --valid valid.txt "${tiny[@]}" --out valid --resume
head -c 12 valid.txt > short.txt
check "a validation text that is too short for a window" \
    "$ALIBI" train train.txt --valid short.txt "${tiny[@]}" --out short --json
grep -q '"valid_loss": null' stdout && [ "$(member stdout valid_tokens)" = 0 ] &&
    pass "has no loss" || fail "short --valid" "a loss"

# Interrupted and resumed equals never stopped.
long=("${tiny[@]}" --width 32 --batch 8 --steps 4000 --save-every 2500)
check "a longer run" "$ALIBI" train "${long[@]}" --out long
"$ALIBI" train "${long[@]}" --out stopped > stdout 2> stderr &
pid=$!
wait_for grep -qs '"step":' stopped/log.jsonl
kill -TERM $pid
wait $pid
code=$?
if [ "$code" = 75 ] && grep -qE "^alibi: train: stopped .*'stopped'.*--resume" stderr; then
    pass "SIGTERM: 75, and how to continue"
else
    fail "SIGTERM" "exit code $code"
fi
step=$(basename "$(newest stopped)")
[[ "$step" < step-00004000 ]] && pass "stopped early, at $step" ||
    fail "SIGTERM" "came too late: $step"
check "resume" "$ALIBI" train "${long[@]}" --out stopped --resume
same_checkpoint "the resumed run ends in the same bytes" long stopped
cmp -s <(grep -o '"loss":[^,}]*' long/log.jsonl) <(grep -o '"loss":[^,}]*' stopped/log.jsonl) &&
    pass "and has logged the same losses" || fail "log" "other losses"

# Killed without warning
"$ALIBI" train "${long[@]}" --save-every 500 --out killed > /dev/null 2>&1 &
pid=$!
wait_for test -d killed/step-00000500
kill -KILL $pid
wait $pid 2> /dev/null
check "resume after kill -9" "$ALIBI" train "${long[@]}" --save-every 500 --out killed --resume
cmp -s "$(newest long)/model.safetensors" "$(newest killed)/model.safetensors" &&
    pass "gives the same model" || fail "kill -9" "another model"

# A second signal, a second or more after the first, ends the program at once and as a signal does:
# 75 would promise that all is saved. The first comes during a step of a minute.
twice() { # first signal, second signal, exit code
    OMP_NUM_THREADS=1 "$program" train "${tiny[@]}" --layers 2 --width 1024 --train-length 256 \
        --batch 16 --accumulate 16 --device cpu --out twice > stdout 2> stderr &
    pid=$!
    wait_for test -e twice/recipe.json
    sleep 0.5
    kill -"$1" $pid
    sleep 1.1
    kill -"$2" $pid
    wait $pid 2> /dev/null
    code=$?
    [ "$code" = "$3" ] && ! grep -qs '"step":' twice/log.jsonl &&
        pass "$1, then $2: exit code $3 at once" || fail "$1, $2" "exit code $code"
    rm -rf twice
}
twice INT INT 130
twice INT TERM 143
twice TERM INT 130

# Sooner it is the same request: timeout(1) signals its child, and then the group that the child is
# in.
for signal in TERM INT; do
    "$program" train "${long[@]}" --steps 1000000 --device cpu \
        --out "soon-$signal" > stdout 2> stderr &
    pid=$!
    wait_for grep -qs '"step":' "soon-$signal/log.jsonl"
    kill -$signal $pid && kill -$signal $pid
    wait $pid 2> /dev/null
    code=$?
    [ "$code" = 75 ] && pass "$signal twice at once: saved, 75" ||
        fail "$signal twice" "exit code $code"
done

# Two runs into one folder
"$ALIBI" train "${long[@]}" --steps 100000 --out shared > first 2>&1 &
pid=$!
wait_for grep -qs '"step":' shared/log.jsonl
expect 5 "'shared.*(in use|another)" \
    "$ALIBI" train "${long[@]}" --steps 100000 --out shared --resume
kill -TERM $pid
wait $pid
[ $? = 75 ] && pass "the first one is not disturbed" || fail "two runs" "$(cat first)"

# Not a number
expect 6 "step 5" env ALIBI_FAULT=nan:5 "$ALIBI" train "${tiny[@]}" --out nan
[ "$(basename "$(newest nan)")" = step-00000004 ] && pass "the checkpoint before it stays" ||
    fail "nan" "$(newest nan)"
check "and resumes" "$ALIBI" train "${tiny[@]}" --out nan --resume
same_checkpoint "as if nothing had been" whole nan

# The disk is full: by a limit on the size of files, and at every single file operation.
run bash -c "trap '' XFSZ; ulimit -f 4; exec '$ALIBI' train \"\$@\"" - "${long[@]}" --out full
if [ "$code" = 5 ] && [ "$(wc -l < stderr)" = 1 ]; then
    pass "a full disk is said"
else
    fail "full disk" "exit code $code"
fi
check "a run to save into" "$ALIBI" train "${tiny[@]}" --steps 4 --out base
for n in 1 2 3 5 8 13 21 34 55 89 144; do
    rm -rf disk && cp -r base disk
    run env ALIBI_FAULT=file:$n "$ALIBI" train "${tiny[@]}" --steps 4 --out disk --resume
    first=$code
    { [ "$code" = 5 ] && [ "$(wc -l < stderr)" = 1 ]; } || [ "$code" = 0 ] ||
        fail "file operation $n of a resume fails" "exit code $code"
    run "$ALIBI" eval disk --quiet "${text[@]}" --tokens 160
    [ "$code" = 0 ] && pass \
        "file operation $n of a resume fails: exit $first, the checkpoint loads" ||
        fail "file:$n" "no checkpoint"
done
for n in 10 20 30 40 50 60 70 80; do
    rm -rf disk
    run env ALIBI_FAULT=file:$n "$ALIBI" train "${tiny[@]}" --out disk
    first=$code
    { [ "$code" = 5 ] && [ "$(wc -l < stderr)" = 1 ]; } || [ "$code" = 0 ] ||
        fail "file operation $n fails" "exit code $code"
    run "$ALIBI" train "${tiny[@]}" --out disk --resume
    if [ "$code" = 0 ] &&
        cmp -s "$(newest whole)/model.safetensors" "$(newest disk)/model.safetensors"; then
        pass "file operation $n fails: exit $first, resumed to the same model"
    else
        fail "file:$n" "exit code $code on resume"
    fi
done

# Checkpoints that were cut or altered: named, and the one before is used on resume.
for part in model.safetensors optimizer.safetensors config.json manifest.json; do
    for how in cut alter; do
        rm -rf broken && cp -r whole broken
        file=$(newest broken)/$part
        if [ $how = cut ]; then
            truncate -s $(($(stat -c %s "$file") / 2)) "$file"
        else
            alter "$file"
        fi
        expect 3 "step-00000006.*" "$ALIBI" eval "$(newest broken)" --quiet
        run "$ALIBI" train "${tiny[@]}" --out broken --resume
        if [ "$code" = 0 ] && grep -q 'step-00000006' stderr &&
            diff -r "$(newest whole)" "$(newest broken)" > /dev/null; then
            pass "$part $how: named, and the checkpoint before it resumes"
        else
            fail "$part $how" "exit code $code"
        fi
    done
done
for checkpoint in broken/step-*; do alter "$checkpoint/model.safetensors"; done
run "$ALIBI" eval broken --quiet
[ "$code" = 3 ] && grep -q "none of the 2 checkpoints in .broken. verifies" stderr &&
    pass "none verifies" || fail "none verifies" "exit code $code"
rm -rf empty && mkdir empty
expect 3 "'empty'" "$ALIBI" eval empty --quiet

# Memory
for n in 1 2 3 5 8 13 21 34 55 89 144 233 377; do
    rm -rf memory
    run env ALIBI_FAULT=memory:$n "$ALIBI" train "${tiny[@]}" --out memory
    { [ "$code" = 4 ] && [ "$(wc -l < stderr)" = 1 ] && [ ! -s stdout ]; } || [ "$code" = 0 ] ||
        fail "allocation $n fails" "exit code $code"
    first=$code
    run "$ALIBI" train "${tiny[@]}" --out memory --resume
    [ "$code" = 0 ] && pass "allocation $n fails: exit $first, and it resumes" ||
        fail "memory:$n" "exit code $code on resume"
done
expect 4 "GiB are free" "$ALIBI" train "${tiny[@]}" --width 1048576 --layers 4096 --out memory2

# Progress
run "$ALIBI" train "${tiny[@]:0:${#tiny[@]}-1}" --out loud
grep -qE '^train.*: 100%, 6/6 steps, .* tokens/s, loss [0-9.]+' stderr &&
    pass "a plain progress line at the end" || fail "progress" "no line"
grep -q $'\r' stderr && fail "progress" "a terminal's line in a file" ||
    pass "and none of a terminal's"
if script -qec true /dev/null > /dev/null 2>&1; then # there is a pseudo-terminal to be had
    TERM=xterm run script -qec "'$ALIBI' train ${tiny[*]:0:${#tiny[@]}-1} --out terminal" /dev/null
    grep -q $'\r.*\[#*\] 100%' stdout && pass "on a terminal one line is rewritten" ||
        fail "terminal" "no bar"
fi
finish
