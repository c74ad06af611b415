#!/bin/bash
# Using a trained model: eval, generate, inspect, bench.
. "$(dirname "$0")/lib.sh"
check "a model" "$ALIBI" train "${tiny[@]}" --steps 60 --lr 0.01 --save-every 20 --out run
check "a learned one" "$ALIBI" train "${tiny[@]}" --position learned --out learned

# eval
eval_json() { run "$ALIBI" eval run --quiet "${text[@]}" --json "$@"; }
check "eval" "$ALIBI" eval run --quiet "${text[@]}" --lengths 16,64
[ "$(wc -l < stdout)" = 3 ] && grep -q 'word ppl' stdout && pass "a head and a row per length" || fail "eval" "another table"
eval_json --length 16 --tokens 1600
is_json stdout && [ "$(member stdout length)" = 16 ] && [ "$(member stdout tokens)" = 1600 ] && pass "eval --json" || fail "eval --json" "no JSON"
nll=$(member stdout nll)
eval_json --length 16 --tokens 1600 --protocol sliding --stride 16
[ "$(member stdout nll)" = "$nll" ] && pass "sliding by the length is nonoverlapping" || fail "sliding" "nll $(member stdout nll), not $nll"
eval_json --length 16 --tokens 1600 --protocol sliding --stride 4
is_json stdout && [ "$(member stdout stride)" = 4 ] && [ "$(member stdout tokens)" = 1600 ] && [ "$(member stdout nll)" != "$nll" ] &&
    pass "sliding scores every token once" || fail "sliding" "$(member stdout tokens) tokens"
eval_json --tokens 1600
[ "$(member stdout length)" = 16 ] && pass "the default length is the training length" || fail "length" "$(member stdout length)"
check "loss by position" "$ALIBI" eval run --quiet "${text[@]}" --tokens 160 --by-position
grep -q 'position' stdout && pass "is printed" || fail "--by-position" "not printed"
"$ALIBI" text --out valid.txt "${text[@]}" --split valid > /dev/null
eval_json --tokens 1600
nll=$(member stdout nll)
run "$ALIBI" eval run --quiet --json --tokens 1600 --data valid.txt
file=$(member stdout nll)
run "$ALIBI" eval run --quiet --json --tokens 1600 valid.txt
[ "$(member stdout nll)" = "$file" ] && pass "--data FILE and FILE are the same" || fail "--data" "$file"
awk -v a="$nll" -v b="$file" 'BEGIN { exit !(a - b < 0.2 && b - a < 0.2) }' && pass "the validation text as a file gives about the same" || fail "valid.txt" "$nll, $file"
run "$ALIBI" eval "$(newest run)" --quiet "${text[@]}" --json --tokens 1600
[ "$(member stdout nll)" = "$nll" ] && pass "a checkpoint is a model too" || fail "checkpoint" "another nll"
expect 2 "0 is out of range" "$ALIBI" eval run --length 0
expect 2 "-1 is out of range" "$ALIBI" eval run --length -1
expect 2 "99999999999 is out of range" "$ALIBI" eval run --length 99999999999
expect 2 "--length and --lengths" "$ALIBI" eval run --length 16 --lengths 16 "${text[@]}"
expect 2 "stride 32 is more than length 16" "$ALIBI" eval run --length 16 --protocol sliding --stride 32 "${text[@]}"
expect 2 "no use without --protocol sliding" "$ALIBI" eval run --stride 8 "${text[@]}"
expect 2 "'slidin'.*did you mean 'sliding'" "$ALIBI" eval run --protocol slidin
expect 2 "not both" "$ALIBI" eval run a.txt --data b.txt
expect 3 "'absent'" "$ALIBI" eval absent
expect 3 "learned.*16" "$ALIBI" eval learned --quiet --length 64 "${text[@]}"

# generate
check "generate" "$ALIBI" generate run --prompt "In the evening" --tokens 200 --seed 7
cp stdout first
head -c 14 stdout | grep -q '^In the evening$' && [ "$(wc -c < stdout)" -gt 15 ] && pass "echoes the prompt" || fail "generate" "no prompt"
check "the same seed" "$ALIBI" generate run --prompt "In the evening" --tokens 200 --seed 7
cmp -s stdout first && pass "gives the same text" || fail "seed" "another text"
check "another seed" "$ALIBI" generate run --prompt "In the evening" --tokens 200 --seed 8
cmp -s stdout first && fail "seed" "the same text" || pass "gives another text"
check "no echo" "$ALIBI" generate run --prompt "In the evening" --tokens 200 --seed 7 --no-echo
cmp -s <(tail -c +15 first) stdout && pass "is the same without the prompt" || fail "--no-echo" "another text"
printf 'In the evening' | "$ALIBI" generate run --prompt - --tokens 200 --seed 7 > stdout 2> stderr
cmp -s stdout first && pass "the prompt from standard input" || fail "--prompt -" "another text"
check "an empty prompt, always the likeliest token" "$ALIBI" generate run --temperature 0 --tokens 20
check "hot" "$ALIBI" generate run --prompt "d$(printf '\303\251')j" --temperature 100 --tokens 2000 --seed 3
iconv -f UTF-8 -t UTF-8 stdout > /dev/null 2>&1 && pass "is valid UTF-8 all the same" || fail "hot" "not UTF-8"
check "top-k and top-p" "$ALIBI" generate run --prompt x --top-k 1 --top-p 0.5 --tokens 20
expect 3 "the prompt is not UTF-8 text at byte 1" bash -c "printf 'a\\377' | '$ALIBI' generate run --prompt - --no-echo"
expect 2 "UTF-8" "$ALIBI" generate run --prompt "$(printf 'a\377')"
expect 2 "-1 is out of range" "$ALIBI" generate run --temperature -1
expect 2 "1.5 is out of range" "$ALIBI" generate run --top-p 1.5
expect 3 "a prompt of 1 tokens and 100 more" "$ALIBI" generate learned --prompt x --tokens 100 --no-echo
expect 3 "'absent'" "$ALIBI" generate absent
"$ALIBI" generate run --tokens 100000 --temperature 2 2> stderr | head -c 10 > stdout
[ "${PIPESTATUS[0]}" = 0 ] && [ ! -s stderr ] && pass "a closed pipe ends it quietly" || fail "pipe" "exit code"
run bash -c "'$ALIBI' generate run --tokens 5 > /dev/full"
[ "$code" = 5 ] && grep -q 'cannot write the results' stderr && pass "a full disk behind stdout" || fail "/dev/full" "exit code $code"

# inspect
for path in run "$(newest run)" "$(newest run)/model.safetensors"; do
    check "inspect $path" "$ALIBI" inspect "$path"
    [ -s stdout ] || fail "inspect $path" "says nothing"
    check "inspect $path --json" "$ALIBI" inspect "$path" --json
    is_json stdout && pass "is JSON" || fail "inspect --json" "is no JSON"
done
expect 3 "'absent'" "$ALIBI" inspect absent
head -c 1000 /dev/urandom > noise
expect 3 "'noise'" "$ALIBI" inspect noise
head -c 2000 "$(newest run)/model.safetensors" > cut.safetensors
expect 3 "'cut.safetensors'" "$ALIBI" inspect cut.safetensors

# bench
small=(--layers 1 --width 16 --heads 2 --repeats 2)
check "bench train" "$ALIBI" bench train "${small[@]}" --batch 2 --length 16
grep -q 'CBLAS' stdout && [ "$(wc -l < stdout)" = 2 ] && pass "a head and a row" || fail "bench train" "another table"
check "bench train --json" "$ALIBI" bench train "${small[@]}" --batch 2 --length 16 --json
is_json stdout && [ "$(member stdout length)" = 16 ] && [ -n "$(member stdout share)" ] && pass "is JSON" || fail "bench train --json" "no JSON"
check "bench memory --json" "$ALIBI" bench memory "${small[@]}" --lengths 256,1024,4096 --json
is_json stdout && pass "is JSON" || fail "bench memory --json" "no JSON"
grep -oE '"peak_bytes": *[0-9]+' stdout | sed 's/.*: *//' | tr '\n' ' ' > peaks
awk '{ exit !($3 > 0 && $3 < 8 * $2) }' peaks && pass "memory is not quadratic: $(cat peaks)" || fail "bench memory" "$(cat peaks)"
run "$ALIBI" bench train --recipe "$SOURCE/recipes/byte-10m.json" --length 8 --batch 1 --repeats 1 --json
recipe=$(member stdout parameters)
run "$ALIBI" bench memory --lengths 8 --json
grep -q '"byte-10m"' stdout && [ "$recipe" -gt 10000000 ] && pass "byte-10m has $recipe parameters" || fail "byte-10m" "$recipe parameters"
finish
