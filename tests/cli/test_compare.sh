#!/bin/bash
# The comparison: results, resuming, refusing what does not fit.
. "$(dirname "$0")/lib.sh"
all=(--methods none,learned,sinusoidal,rotary,t5,alibi --lengths 64,16,32 --eval-tokens 640)

check "compare" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --out whole
for word in none learned sinusoidal rotary t5 alibi whole/report.html whole/results.json whole/results.csv; do
    grep -q "$word" stdout && pass "prints $word" || fail "compare" "does not print $word"
done
cp stdout table
for file in results.json results.csv report.html; do
    [ -s whole/$file ] && pass "writes $file" || fail "compare" "no $file"
done
is_json whole/results.json && pass "results.json is JSON" || fail "results.json" "is no JSON"
for key in name train_tokens_per_s train_seconds peak_bytes parameters by_length length nll ppl word_ppl bits_per_byte tokens tokens_per_s; do
    grep -q "\"$key\"" whole/results.json && pass "results.json has $key" || fail "results.json" "lacks $key"
done
grep -qE '(src|href)="(https?:)?//' whole/report.html && fail "report.html" "needs the network" || pass "report.html needs nothing else"

check "the same command again" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --out whole
cmp -s stdout table && pass "prints the same at once" || fail "again" "another table"
check "compare --json" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --out whole --json
is_json stdout && cmp -s stdout whole/results.json && pass "prints results.json" || fail "--json" "something else"
expect 3 "'whole' holds another comparison" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --steps 7 --out whole
expect 3 "'whole' holds another comparison" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --text-seed 7 --out whole
expect 2 "eval-tokens" "$ALIBI" compare "${tiny[@]}" --methods none --lengths 1024 --eval-tokens 100 --out few

# Stopped and continued gives the same numbers.
long=("${tiny[@]}" --methods alibi,none --lengths 16,32 --width 32 --batch 8 --steps 3000 --save-every 10000 --eval-tokens 3200)
check "a longer comparison" "$ALIBI" compare "${long[@]}" --out long
"$ALIBI" compare "${long[@]}" --out stopped > stdout 2> stderr &
pid=$!
wait_for grep -qs '"step":' stopped/alibi/log.jsonl
kill -INT $pid
wait $pid
code=$?
if [ "$code" = 75 ] && [ "$(wc -l < stderr)" = 1 ] && grep -q "'stopped'.*same command" stderr && [ ! -s stdout ]; then
    pass "SIGINT: 75, and how to go on"
else
    fail "SIGINT" "exit code $code"
fi
[ ! -e stopped/results.json ] && pass "no results yet" || fail "SIGINT" "came too late"
check "the same command finishes" "$ALIBI" compare "${long[@]}" --out stopped
cmp -s <(grep -oE '"(nll|ppl)": *[^,]*' long/results.json) <(grep -oE '"(nll|ppl)": *[^,]*' stopped/results.json) &&
    pass "with the same numbers" || fail "resume" "other numbers"

"$ALIBI" compare "${long[@]}" --steps 100000 --out shared > /dev/null 2>&1 &
pid=$!
wait_for grep -qs '"step":' shared/alibi/log.jsonl
expect 5 "'shared.*(in use|another)" "$ALIBI" compare "${long[@]}" --steps 100000 --out shared
kill -TERM $pid
wait $pid
expect 6 "step" env ALIBI_FAULT=nan:3 "$ALIBI" compare "${long[@]}" --out nan
check "goes on after a NaN" "$ALIBI" compare "${long[@]}" --out nan
printf 'a line of text that is there to be read, number %d\n' $(seq 500) > own.txt
check "files of one's own" "$ALIBI" compare own.txt "${tiny[@]}" --methods alibi --lengths 16,32 --eval-tokens 640 --out own
finish
