#!/bin/bash
# The comparison: results, resuming, refusing what does not fit.
. "$(dirname "$0")/lib.sh"
methods=$("$ALIBI" train --help | sed '1,/^Position methods:/d' | grep -oE '^  [a-z0-9-]+ ')
all=(--methods "$(echo $methods | tr ' ' ',')" --lengths 64,16,32 --eval-tokens 640)

check "compare" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --out whole
for word in $methods whole/report.html whole/results.json whole/results.csv; do
    grep -q "$word" stdout && pass "prints $word" || fail "compare" "does not print $word"
done
cp stdout table
for file in results.json results.csv report.html; do
    [ -s whole/$file ] && pass "writes $file" || fail "compare" "no $file"
done
is_json whole/results.json && pass "results.json is JSON" || fail "results.json" "is no JSON"
for key in name train_tokens_per_s train_seconds peak_bytes parameters device precision by_length length nll ppl word_ppl bits_per_byte tokens tokens_per_s; do
    grep -q "\"$key\"" whole/results.json && pass "results.json has $key" || fail "results.json" "lacks $key"
done
grep -q '"device": "cpu"' whole/results.json && grep -q '"precision": "fp32"' whole/results.json && pass "results.json names the device" || fail "results.json" "another device"
head -n 1 whole/results.csv | grep -q ',parameters,device,precision,' && sed -n 2p whole/results.csv | grep -q ',cpu,fp32,' &&
    pass "results.csv names the device" || fail "results.csv" "another device"
grep -q '<dt>device</dt><dd>cpu, fp32</dd>' whole/report.html && pass "report.html names the device" || fail "report.html" "another device"
grep -qE '(src|href)="(https?:)?//' whole/report.html && fail "report.html" "needs the network" || pass "report.html needs nothing else"

check "the same command again" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --out whole
cmp -s stdout table && pass "prints the same at once" || fail "again" "another table"
check "compare --json" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --out whole --json
is_json stdout && cmp -s stdout whole/results.json && pass "prints results.json" || fail "--json" "something else"
expect 3 "'whole' holds another comparison" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --steps 7 --out whole
expect 3 "'whole' holds another comparison" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --text-seed 7 --out whole
expect 3 "'whole' holds no checkpoint; .* such as 'whole/alibi'" "$ALIBI" eval whole
expect 2 "eval-tokens" "$ALIBI" compare "${tiny[@]}" --methods none --lengths 1024 --eval-tokens 100 --out few

# What it leaves behind is enough to repeat it: the recipe, and the command in the report.
losses() { grep -oE '"(nll|ppl)": *[^,}]*' "$1/results.json"; } # folder
check "another built-in text" "$ALIBI" compare "${tiny[@]}" --methods alibi,rotary --lengths 16,32 --text-seed 3 --eval-tokens 640 \
    --sliding-tokens 320 --stream-tokens 512 --out first
check "its recipe again" "$ALIBI" compare --quiet --recipe first/recipe.json --out second
cmp -s <(losses first) <(losses second) && pass "gives the same numbers" || fail "recipe.json" "other numbers"
check "its recipe into its own folder" "$ALIBI" compare --quiet --recipe first/recipe.json --out first
check "the recipe of one of its runs" "$ALIBI" train --quiet --recipe first/alibi/recipe.json --out run
cmp -s run/log.jsonl first/alibi/log.jsonl && pass "trains the same" || fail "a run's recipe.json" "another training"
sed -n '/^<pre><code>alibi compare --methods/,/<\/pre>/p' first/report.html | sed 's/<[^>]*>//g; s/^alibi/"$ALIBI"/' > command
echo ' --quiet --out third' >> command
tr -d '\\\n' < command > line
check "the report's command" bash -c "$(cat line)"
cmp -s <(losses first) <(losses third) && pass "gives the same numbers" || fail "the report's command" "other numbers"
grep -q '"sliding": { *"stride": 16' first/results.json && pass "a sliding window of stride 16" || fail "sliding" "no such window"
check "without a sliding window" "$ALIBI" compare --quiet --recipe first/recipe.json --sliding-tokens 0 --out plain
cmp -s <(losses plain) <(sed 's/"sliding.*//' first/results.json | grep -oE '"(nll|ppl)": *[^,}]*') &&
    pass "the other numbers are the same" || fail "--sliding-tokens 0" "other numbers"

grep -q '"stream": { *"length": 512' first/results.json && pass "a stream of 512 tokens" || fail "stream" "no such stream"
[ "$(grep -c '"stream": null' whole/results.json)" = 2 ] && pass "two methods cannot stream" || fail "stream" "not two without"
grep -q '^As one stream of' table && pass "prints the stream" || fail "stream" "not printed"
check "without a stream" "$ALIBI" compare --quiet --recipe first/recipe.json --stream-tokens 0 --out plain-stream
cmp -s <(losses plain-stream) <(grep -v '"stream": {' first/results.json | grep -oE '"(nll|ppl)": *[^,}]*') &&
    pass "the other numbers are the same" || fail "--stream-tokens 0" "other numbers"

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
    pass "SIGINT: 75, and how to resume"
else
    fail "SIGINT" "exit code $code"
fi
[ ! -e stopped/results.json ] && pass "no results yet" || fail "SIGINT" "came too late"
check "inspect what was stopped" "$ALIBI" inspect stopped
grep -qE '^kind +unfinished comparison$' stdout && grep -qE '^steps +3000$' stdout && grep -qE '^    step +[1-9]' stdout &&
    pass "says how far it is" || fail "inspect" "something else"
check "inspect what was stopped --json" "$ALIBI" inspect stopped --json
is_json stdout && [ "$(member stdout steps)" = 3000 ] && pass "is JSON" || fail "inspect --json" "is no JSON"
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
check "resumes after a NaN" "$ALIBI" compare "${long[@]}" --out nan
printf 'a line of text that is there to be read, number %d\n' $(seq 500) > own.txt
check "files of one's own" "$ALIBI" compare own.txt "${tiny[@]}" --methods alibi --lengths 16,32 --eval-tokens 640 --out own
printf 'a line that is kept for validation, number %d\n' $(seq 40) > kept.txt
expect 3 "of the same text, but with another --valid" "$ALIBI" compare own.txt --valid kept.txt "${tiny[@]}" --methods alibi \
    --lengths 16,32 --eval-tokens 640 --out own
expect 3 "the validation text of 'own.txt' has [0-9]+ tokens, .* length 9999" "$ALIBI" compare own.txt --valid kept.txt "${tiny[@]}" \
    --methods alibi --lengths 16,9999 --eval-tokens 0 --out kept
finish
