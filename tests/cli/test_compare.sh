#!/bin/bash
# The comparison: results, resuming, and requests that are refused.
. "$(dirname "$0")/lib.sh"
methods=$("$ALIBI" train --help | sed '1,/^Position methods:/d' | grep -oE '^  [a-z0-9-]+ ' |
    grep -vE 'hybrid|reach') # which have four layers
all=(--methods "$(echo $methods | tr ' ' ',')" --lengths 64,16,32 --eval-tokens 640)

has() { # what, extended pattern, file
    if grep -qE -- "$2" "$3"; then pass "$1"; else fail "$1" "not in $3"; fi
}
holds() { # what, COMMAND...
    local what=$1
    shift
    if "$@"; then pass "$what"; else fail "$what" "it does not"; fi
}
losses() { grep -oE '"(nll|ppl)": *[^,}]*' "$1/results.json"; } # folder
same_losses() { # what, folder, folder
    if cmp -s <(losses "$2") <(losses "$3"); then pass "$1"; else fail "$1" "$2 and $3 differ"; fi
}

check "compare" "$ALIBI" compare "${tiny[@]}" "${all[@]}" --out whole
cp stdout table
for word in $methods whole/report.html whole/results.json whole/results.csv; do
    has "prints $word" "$word" table
done
has "names the probe of far text" '^far text: alibi probe targets whole/METHOD says' table
check "which takes one of the folders" \
    "$ALIBI" probe targets whole/alibi --blocks 2 --contexts 16,32
for file in results.json results.csv report.html; do
    holds "writes $file" test -s whole/$file
done
holds "results.json is JSON" is_json whole/results.json
for key in name train_tokens_per_s train_seconds peak_bytes parameters device precision \
    by_length length nll ppl word_ppl bits_per_byte tokens tokens_per_s; do
    has "results.json has $key" "\"$key\"" whole/results.json
done
has "results.json names the device" '"device": "cpu"' whole/results.json
has "results.json names the precision" '"precision": "fp32"' whole/results.json
has "results.csv has the device" ',parameters,device,precision,' whole/results.csv
has "results.csv names the device" ',cpu,fp32,' whole/results.csv
for key in machine date version checksum path unigram_nll passage seeds spread; do
    has "results.json has $key" "\"$key\"" whole/results.json
done
has "results.csv has provenance" ',machine,date,version,text,text_bytes,text_checksum' \
    whole/results.csv
has "prints the text and its checksum" 'Text: built-in text.* checksum [0-9a-f]{8}' \
    <(tr '\n' ' ' < table)
has "prints which tokens were scored" 'Perplexity by test length, on [0-9]+ tokens: ' table
has "report.html names the device" '<dt>device</dt><dd>cpu, fp32</dd>' whole/report.html
if grep -qE '(src|href)="(https?:)?//' whole/report.html; then
    fail "report.html" "needs the network"
else
    pass "report.html loads nothing"
fi

again=("$ALIBI" compare "${tiny[@]}" "${all[@]}" --out whole)
check "the same command again" "${again[@]}"
holds "prints the same at once" cmp -s stdout table
check "compare --json" "${again[@]}" --json
holds "prints results.json" cmp -s stdout whole/results.json
expect 3 "'whole' holds another comparison" "${again[@]}" --steps 7
expect 3 "'whole' holds another comparison" "${again[@]}" --text-seed 7
expect 3 "'whole' holds no checkpoint, but models that do; give one: 'whole/alibi', 'whole/" \
    "$ALIBI" eval whole
expect 2 "eval-tokens" "$ALIBI" compare "${tiny[@]}" --methods none --lengths 1024 \
    --eval-tokens 100 --out few

# The folder is enough to repeat the comparison: the recipe, and the command in the report.
check "another built-in text" "$ALIBI" compare "${tiny[@]}" --methods alibi,rotary \
    --lengths 16,32 --text-seed 3 --eval-tokens 640 --sliding-tokens 320 --stream-tokens 512 \
    --out first
repeat=("$ALIBI" compare --quiet --recipe first/recipe.json)
check "its recipe again" "${repeat[@]}" --out second
same_losses "gives the same numbers" first second
check "its recipe into its own folder" "${repeat[@]}" --out first
check "the recipe of one of its runs" "$ALIBI" train --quiet --recipe first/alibi/recipe.json \
    --out run
holds "trains the same" cmp -s run/log.jsonl first/alibi/log.jsonl
sed -n '/^<pre><code>alibi compare --methods/,/<\/pre>/p' first/report.html |
    sed 's/<[^>]*>//g; s/^alibi/"$ALIBI"/' > command
echo ' --quiet --out third' >> command
tr -d '\\\n' < command > line
check "the report's command" bash -c "$(cat line)"
same_losses "gives the same numbers" first third

# The sliding window and the stream are extra: without them the other numbers are the same.
has "the rules of the protocol" '"normaliser": "scored tokens"' first/results.json
has "and on the page" 'Protocol sliding, stride half the length\. First tokens: ' first/report.html
has "a sliding window of stride 16" '"sliding": \{ *"protocol": "sliding", *"stride": 16' \
    first/results.json
mkdir -p without
sed 's/"sliding.*//' first/results.json > without/results.json
check "without a sliding window" "${repeat[@]}" --sliding-tokens 0 --out plain
same_losses "the other numbers are the same" plain without
has "a stream of 512 tokens" '"stream": \{ *"length": 512' first/results.json
has "prints the stream" '^As one stream of' table
holds "two methods cannot stream" test "$(grep -c '"stream": null' whole/results.json)" = 4
grep -vE '"(stream|passage)": \{' first/results.json > without/results.json
check "without a stream" "${repeat[@]}" --stream-tokens 0 --out plain-stream
same_losses "the other numbers are the same" plain-stream without

# Said before it starts.
check "a comparison that is not quiet" "$ALIBI" compare --recipe first/recipe.json --out loud
has "says what it will do" 'to train: 2 of 2 x 1 models .methods x seeds., 6 steps each' stderr

# More seeds, added to a comparison that is there.
check "two more seeds" "${repeat[@]}" --seeds 1,2,3 --out first
has "prints mean and spread" '^alibi .*[0-9]±[0-9]' stdout
has "says what it is" 'mean of 3 seeds' stdout
holds "seeds have folders" test -d first/alibi-seed-2 -a -d first/rotary-seed-3
holds "a line per method, seed, length and protocol" \
    test "$(grep -cE '^alibi,3,16,(16|32),(nonoverlapping|sliding),' first/results.csv)" = 4
holds "results.json is JSON" is_json first/results.json
expect 3 "\(seeds \[1, 2, 3\] there, \[1\] asked\)" "${repeat[@]}" --seed 1 --out first \
    --methods alibi,rotary --seeds 1
expect 2 "seeds: 2 is listed twice" "${repeat[@]}" --seeds 2,2 --out twice

# Stopped and resumed gives the same numbers.
long=("$ALIBI" compare "${tiny[@]}" --methods alibi,none --lengths 16,32 --width 32 --batch 8
    --steps 3000 --save-every 10000 --eval-tokens 3200)
check "a longer comparison" "${long[@]}" --out long
"${long[@]}" --out stopped > stdout 2> stderr &
pid=$!
wait_for grep -qs '"step":' stopped/alibi/log.jsonl
kill -INT $pid
wait $pid
code=$?
holds "SIGINT: exit code 75" test $code = 75
holds "no results yet" test ! -e stopped/results.json -a ! -s stdout
holds "one line on stderr" test "$(wc -l < stderr)" = 1
has "that says how to resume" "'stopped'.*same command" stderr
check "inspect what was stopped" "$ALIBI" inspect stopped
has "its kind" '^kind +unfinished comparison$' stdout
has "the steps it needs" '^steps +3000$' stdout
has "the step it has reached" '^    step +[1-9]' stdout
check "inspect what was stopped --json" "$ALIBI" inspect stopped --json
holds "is JSON" is_json stdout
holds "with the steps" test "$(member stdout steps)" = 3000
check "the same command finishes" "${long[@]}" --out stopped
same_losses "with the same numbers" long stopped

"${long[@]}" --steps 100000 --out shared > /dev/null 2>&1 &
pid=$!
wait_for grep -qs '"step":' shared/alibi/log.jsonl
expect 5 "'shared.*(in use|another)" "${long[@]}" --steps 100000 --out shared
kill -TERM $pid
wait $pid
expect 6 "alibi: step .*; 1 of 2 models have no result" env ALIBI_FAULT=nan:3 "${long[@]}" --out nan
holds "the other model is trained" test -e nan/none/result.json
check "resumes after a NaN" "${long[@]}" --out nan
same_losses "with the same numbers" long nan

# Files, and a validation text.
printf 'a line of text that is there to be read, number %d\n' $(seq 500) > own.txt
printf 'a line that is kept for validation, number %d\n' $(seq 40) > kept.txt
own=("$ALIBI" compare own.txt "${tiny[@]}" --methods alibi --lengths 16,32 --eval-tokens 640)
check "a file" "${own[@]}" --out own
expect 3 "of the same text, but with another --valid" "${own[@]}" --valid kept.txt --out own
expect 3 "the validation text of 'own.txt' has [0-9]+ tokens, .* length 9999" "${own[@]}" \
    --valid kept.txt --lengths 16,9999 --eval-tokens 0 --out kept
finish
