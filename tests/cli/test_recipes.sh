#!/bin/bash
# Recipes by name and version; what a training says about its time, warm-up and plan.
. "$(dirname "$0")/lib.sh"

# An installation: the program with its recipes beside it.
mkdir -p installed/bin installed/share/alibi/recipes
cp "$program" installed/bin/alibi
cp "$SOURCE"/recipes/*.json installed/share/alibi/recipes
LD_LIBRARY_PATH=$(dirname "$program") run installed/bin/alibi plan --recipe byte-10m --device cpu
[ "$code" = 0 ] && grep -q "^byte-10m: 10.7M parameters" stdout &&
    pass "an installed recipe is found by its name" || fail "byte-10m" "exit code $code"
run "$ALIBI" plan --recipe byte-10m --device cpu
[ "$code" = 0 ] && grep -q "^byte-10m: 10.7M parameters" stdout &&
    pass "so is one of the source" || fail "byte-10m" "exit code $code"
expect 3 "no recipe 'byte-9m'.*byte-10m, gpt2-124m" "$ALIBI" plan --recipe byte-9m
expect 3 "'missing/x.json'" "$ALIBI" plan --recipe missing/x.json
echo '{ "width": 64 }' > byte-10m
run "$ALIBI" plan --recipe byte-10m --device cpu
grep -q "10.7M" stdout && fail "a file" "is not found first" || pass "a file comes before a name"

for recipe in paper-wikitext103:267744:247M paper-books:29000:231M paper-1.3b:50304:1.4G; do
    IFS=: read -r name vocab parameters <<< "$recipe"
    run "$ALIBI" plan --recipe "$name" --vocab "$vocab" --gpu-memory 140
    [ "$code" = 0 ] && grep -q "^$name: $parameters parameters" stdout &&
        pass "$name has $parameters parameters" || fail "$name" "exit code $code"
done
expect 2 "adaptive-cutoffs: 60000 is not within the vocabulary of 257 .*; use .*--vocab N" \
    "$ALIBI" plan --recipe paper-wikitext103

for recipe in '{ "recipe": 1, "width": 64 }' '{ "width": 64 }'; do
    echo "$recipe" > recipe.json
    check "$recipe" "$ALIBI" plan --recipe recipe.json --device cpu
done
echo '{ "recipe": 2, "width": 64 }' > recipe.json
expect 3 "'recipe.json' line 1: the recipe has version 2" "$ALIBI" plan --recipe recipe.json
printf '{ "recipe": 1,\n "widht": 64 }\n' > recipe.json
expect 3 "'recipe.json' line 2: .*'widht'" "$ALIBI" plan --recipe recipe.json

run "$ALIBI" train "${tiny[@]}" --warmup 60 --out warm
[ "$code" = 0 ] && grep -q "warmup 60 is longer than the training, .* 6: .*ends at 0.0004;" stderr &&
    pass "a warm-up that never ends is warned of" || fail "warmup" "exit code $code"
is_json warm/recipe.json && [ "$(member warm/recipe.json recipe)" = 1 ] &&
    pass "the recipe of a run has its version" || fail "recipe.json" "no version"

"$ALIBI" train "${tiny[@]}" --steps 900000000 --save-every 1000000 --out far > stdout 2> stderr &
pid=$!
wait_for grep -q "takes an hour" stderr
kill -TERM $pid
wait $pid
grep -qE "steps take about [0-9.]+ (s|minutes|hours) on this machine, .*; --steps [0-9]+ takes an hour" stderr &&
    pass "a training that takes hours says so, and what takes one" || fail "time" "no warning"

check "plan --time" "$ALIBI" plan --layers 1 --width 16 --heads 2 --device cpu --time --quiet
grep -qE "^[0-9.e-]+ s per step, [0-9:]+ for 1000 steps$" stdout && pass "has a time" ||
    fail "plan --time" "no time"
expect 2 "omit --gpu-memory" "$ALIBI" plan --layers 1 --width 16 --heads 2 --gpu-memory 8 --time
run "$ALIBI" plan --recipe gpt2-124m --batch 512 --train-length 1024 --gpu-memory 8
[ "$code" = 4 ] && grep -qE "512 x .*: --recompute block --batch [0-9]+ fits" stderr &&
    pass "plan names the setting that would fit" || fail "plan" "exit code $code"
finish
