#!/bin/bash
# Probes of a trained model: fixed targets with growing context, attention by distance.
. "$(dirname "$0")/lib.sh"
check "a model" "$ALIBI" train "${tiny[@]}" --steps 60 --lr 0.01 --out run
check "the text" "$ALIBI" text --out valid.txt "${text[@]}" --split valid

probe=(probe targets run --quiet valid.txt --document blank-line --blocks 12 --block 16)
check "fixed targets" "$ALIBI" "${probe[@]}" --contexts 8,16,32,64
head -n 1 stdout | grep -q "^fixed targets, split all of 'valid.txt': 12 blocks of 16 tokens in " &&
    pass "the head names the text and the targets" || fail "probe" "another head"
[ "$(grep -c '^ *\(8\|16\|32\|64\) ' stdout)" = 12 ] &&
    pass "a row per context for all targets, repeats and others" || fail "probe" "other rows"
columns=$(sed -n '/^all: /{n;s/context\|nll//g;p}' stdout | tr ' ' '\n' | sort -u)
[ "$(wc -w <<< "$columns")" = 5 ] && pass "five kinds of columns" || fail "probe" "others: $columns"
for column in $columns; do
    grep -q "^  $column  " stdout && pass "the column $column is explained" ||
        fail "probe" "what is $column?"
done
grep -q '^L = 16; in nats' stdout && pass "and L is given" || fail "probe" "what is L?"
grep -q '^The model†\? \(holds\|breaks\|uses far text\(, to 32 tokens\|, by no single step\)\?\): from 16 to 64 tokens' stdout &&
    pass "the verdict" || fail "probe" "no verdict"
grep -q '^  uses    the gain of the longest context over L' stdout && pass "and its rules" ||
    fail "probe" "no rules"
run "$ALIBI" "${probe[@]}" --json
is_json stdout && grep -q '"reach": "' stdout && [ "$(member stdout length)" = 16 ] &&
    [ "$(member stdout falls_to)" -ge 16 ] &&
    [ "$(grep -c '"context": 256,' stdout)" = 3 ] &&
    [ "$(member stdout gram)" = 12 ] &&
    pass "contexts to 16 times the training length in JSON" || fail "probe --json" "no JSON"
cp stdout first
run "$ALIBI" "${probe[@]}" --json
diff <(grep -v '"date"\|"seconds"' first) <(grep -v '"date"\|"seconds"' stdout) > /dev/null &&
    pass "the same numbers again" || fail "probe" "other numbers"
check "built-in text" "$ALIBI" probe targets run --quiet --contexts 32 --blocks 2 --block 4
expect 3 "no document of 20016 tokens.*its longest has" "$ALIBI" "${probe[@]}" --contexts 20000
check "one block" "$ALIBI" "${probe[@]}" --contexts 8,16 --blocks 1
head -n 1 stdout | grep -q ": 1 block of 16 tokens in 1 document (" && pass "in one document" ||
    fail "probe --blocks 1" "another head"
# Without a context beyond the training length there is nothing to gain.
grep -q '^No verdict: no context is longer than 16 tokens' stdout &&
    ! grep -q '^The model' stdout &&
    pass "no verdict" || fail "probe --contexts 8,16" "a verdict"
grep -qE '^ +8 +[0-9.]+ +- ' stdout && pass "one block has no error" ||
    fail "probe --blocks 1" "an error"
run "$ALIBI" "${probe[@]}" --contexts 8,16 --json
grep -q '"reach": null' stdout && pass "and none in JSON" || fail "probe --json" "a verdict"
check "a model of two steps" "$ALIBI" train "${tiny[@]}" --steps 2 --out fresh
check "its targets" "$ALIBI" probe targets fresh "${probe[@]:3}" --contexts 16,32
grep -q '^The model† ' stdout && grep -q '^† It has learned little' stdout &&
    pass "a model that has learned nothing is marked" || fail "probe" "no dagger"
check "a learned model" "$ALIBI" train "${tiny[@]}" --position learned --out learned
expect 3 "need 271 positions, and position method 'learned' ends at 16; use smaller --contexts" \
    "$ALIBI" probe targets learned valid.txt --block 16
expect 2 "no probe 'target'; there are 'targets', 'attention' and 'tasks'" \
    "$ALIBI" probe target run valid.txt
expect 2 "0 is out of range" "$ALIBI" "${probe[@]}" --contexts 0
expect 2 "n-gram of 40 tokens" "$ALIBI" "${probe[@]}" --contexts 32 --gram 40
expect 3 "'absent'" "$ALIBI" probe targets absent valid.txt

# attention
attention=(probe attention run --quiet valid.txt --windows 3)
check "attention" "$ALIBI" "${attention[@]}"
[ "$(grep -c '^attention, split all of' stdout)" = 2 ] && grep -q '3 windows of 64 tokens' stdout &&
    pass "at the training length and four times that" || fail "attention" "other lengths"
[ "$(grep -c '^    0     [01] ' stdout)" = 4 ] && [ "$(grep -c '^equal ' stdout)" = 2 ] &&
    pass "a row per head, and one for equal weights" || fail "attention" "other rows"
run "$ALIBI" "${attention[@]}" --lengths 32 --length 8 --json
is_json stdout && [ "$(member stdout near)" = 8 ] && [ "$(member stdout queries)" = 48 ] &&
    [ "$(grep -c '"entropy"' stdout)" = 3 ] && pass "attention --json" || fail "attention" "no JSON"
for json in "" --json; do # a later length fails
    run "$ALIBI" "${attention[@]}" --lengths 32,1M $json
    [ "$code" = 3 ] && [ "$(wc -l < stderr)" = 1 ] &&
        grep -q '1048576.*; the results of 1 of 2 lengths are printed$' stderr &&
        pass "a length that fails${json:+, $json}" || fail "attention $json" "exit code $code"
    [ "$(grep -c '^equal \|"uniform"' stdout)" = 1 ] && pass "keeps those before it" ||
        fail "attention $json" "the results are lost"
done
is_json stdout && grep -q '"stopped": true' stdout && pass "and JSON says so" ||
    fail "attention --json" "no word of it"
expect 2 "--blocks has no effect on 'probe attention'" "$ALIBI" "${attention[@]}" --blocks 4
expect 2 "--windows has no effect on 'probe targets'" "$ALIBI" "${probe[@]}" --windows 4

# tasks
check "other text" "$ALIBI" text --out train.txt "${text[@]}" --split train
check "a chain" "$ALIBI" train --mix task:markov=3,train.txt=1 --layers 2 --width 32 --heads 4 \
    --train-length 64 --batch 16 --steps 900 --warmup 20 --lr 0.005 --quiet --out chain
tasks=(probe tasks chain valid.txt --quiet --cases 50)
check "tasks" "$ALIBI" "${tasks[@]}"
head -n 1 stdout | grep -q "^tasks, text from split all of 'valid.txt': 50 cases .* L = 64" &&
    [ "$(grep -c '^[a-z-]*: .* chance' stdout)" = 7 ] &&
    pass "a table for each" || fail "tasks" "other tables"
grep -q '^ .* not learned: the score at 64 is below 0.95' stdout &&
    [ "$(grep -c '^    1024  *0.[0-9]* ' stdout)" = 1 ] &&
    pass "lengths past L only for the task that was learned" || fail "tasks" "other cells"
run "$ALIBI" "${tasks[@]}" --tasks markov,recall --lengths 48,128 --json
is_json stdout && grep -q '"learned": true' stdout && grep -q '"state": "not learned"' stdout &&
    [ "$(grep -c '"length": \(48\|64\|128\),' stdout)" = 7 ] && grep -q '"bayes": ' stdout &&
    pass "tasks --json" || fail "tasks" "no JSON"
cp stdout first
run "$ALIBI" "${tasks[@]}" --tasks markov,recall --lengths 48,128 --json
diff <(grep -v '"date"\|"seconds"' first) <(grep -v '"date"\|"seconds"' stdout) > /dev/null &&
    pass "the same numbers again" || fail "tasks" "other numbers"
check "without a text" "$ALIBI" probe tasks chain --quiet --cases 2 --lengths 128
head -n 1 stdout | grep -q "split valid of 'built-in text'" && pass "things are hidden in ours" ||
    fail "tasks" "another text"
run "$ALIBI" probe tasks run --cases 2 --no-quiet valid.txt
[ "$code" = 0 ] && grep -q "skipped: task 'passkey' needs windows of at least" stderr &&
    pass "tasks that do not fit are skipped" || fail "tasks" "no note"
run "$ALIBI" "${tasks[@]}" --tasks markov,recall --lengths 128 --as-position none
[ "$code" = 0 ] && [ "$(grep -c '^ *64 .* with the position of its training$' stdout)" = 2 ] &&
    [ "$(grep -c '^ *128 ' stdout)" = 1 ] && grep -q 'at 64 with the position of .* below' stdout &&
    pass "another position is judged by that of the training" || fail "tasks" "another rule"
expect 3 "task 'passkey' needs windows of at least 46 tokens; the length is 16" \
    "$ALIBI" probe tasks run --quiet valid.txt --tasks passkey
expect 2 "no task 'pass'; there are passkey, " "$ALIBI" "${tasks[@]}" --tasks pass
expect 3 "too few to hide something in windows of 1048576" \
    "$ALIBI" "${tasks[@]}" --tasks latest --lengths 1M
expect 2 "--blocks has no effect on 'probe tasks'" "$ALIBI" "${tasks[@]}" --blocks 4
expect 2 "--cases has no effect on 'probe attention'" "$ALIBI" "${attention[@]}" --cases 4
check "positions that end" "$ALIBI" probe tasks learned valid.txt --quiet --tasks markov --cases 2
[ "$(grep -c '^ *[0-9]*  no positions' stdout)" = 4 ] && pass "have no value past their table" ||
    fail "tasks" "values"
finish
