#!/bin/bash
# Commands, options and recipes that cannot be: the exit code, one line, and the nearest name.
. "$(dirname "$0")/lib.sh"

expect 2 "^alibi: no command 'tran'; did you mean 'train'\?" "$ALIBI" tran
expect 2 "^alibi: no command 'xyzzy'; 'alibi help' lists them" "$ALIBI" xyzzy
expect 2 "no command 'evil'; did you mean 'eval'" "$ALIBI" help evil
expect 2 "^alibi: train: unknown option '--heds': did you mean '--heads'\?" "$ALIBI" train --heds 4
expect 2 "unknown option '--xyzzyxyzzy'$" "$ALIBI" train --xyzzyxyzzy 1
expect 2 "unknown option '--no-heads'" "$ALIBI" train --no-heads
expect 2 "no option '-s'" "$ALIBI" train -s 4
expect 2 "option '--steps' needs a value: N" "$ALIBI" train --steps
expect 2 "option '--out' needs a value: DIR" "$ALIBI" train --out --resume
expect 2 "option '--out' needs a value: DIR" "$ALIBI" train -o
expect 2 "unknown option '--out'" "$ALIBI" generate -o a
expect 2 "too few arguments; usage: alibi eval MODEL" "$ALIBI" eval
expect 2 "'b' is one argument too many" "$ALIBI" generate a b
expect 2 "'--device'.*'cudda' is not one of auto\|cpu\|cuda: did you mean 'cuda'" \
    "$ALIBI" train --device cudda
expect 2 "'--device'.*'tpu' is not one of auto\|cpu\|cuda$" "$ALIBI" train --device tpu
expect 2 "unknown option '--learning-rate': did you mean '--lr'" "$ALIBI" train --learning-rate 1
expect 2 "unknown option '--n-layers': did you mean '--layers'" "$ALIBI" train --n-layers 1
expect 2 "no command 'evaluate'; did you mean 'eval'" "$ALIBI" evaluate
expect 2 "unknown option '--device'" "$ALIBI" text --device cpu --out a
expect 2 "no benchmark 'speed'" "$ALIBI" bench speed
expect 2 "--sequences .*'train'.*'decode'" "$ALIBI" bench train --sequences 3
expect 2 "--methods .*'decode'.*'train'" "$ALIBI" bench decode --methods alibi
expect 2 "--operations .*'decode'.*'ops'" "$ALIBI" bench decode --operations norm
expect 2 "--repeats .*'memory'.*'train', 'attention', 'decode', 'ops'" \
    "$ALIBI" bench memory --repeats 3
expect 2 "--length .*'attention'.*'train', 'decode'" "$ALIBI" bench attention --length 8
expect 2 "--verify .*'ops'.*'attention'" "$ALIBI" bench ops --verify
expect 2 "--recompute .*'memory'.*'train'" "$ALIBI" bench memory --recompute block
expect 2 "--layers .*'attention'" "$ALIBI" bench attention --layers 2
expect 2 "--model .*'train'.*'attention --model'" "$ALIBI" bench train --model run
expect 2 "--data .*'attention'; it is for 'attention --model'" "$ALIBI" bench attention --data a
expect 2 "'a' is one argument too many" "$ALIBI" bench attention a
for option in "--heads 2" "--kv-heads 1" "--head-width 8" "--score 3" "--bias none"; do
    expect 2 "${option% *} has no effect on 'attention --model'" \
        "$ALIBI" bench attention --model run $option
done
expect 2 "--recipe has no effect with --model" \
    "$ALIBI" bench attention --model run --recipe byte-10m
expect 3 "cannot open model 'absent'" "$ALIBI" bench attention --model absent
expect 2 "'--tokenizer' does not apply to a model" \
    "$ALIBI" bench attention --model run --tokenizer a
expect 2 "--lr has no effect on a benchmark" "$ALIBI" bench train --lr 0.1
expect 2 "--train-length .*use --length" "$ALIBI" bench decode --train-length 8
expect 2 "give --out FILE" "$ALIBI" text
for option in "--link-gbps 100" "--pass-seconds 0.245"; do
    expect 2 "${option% *} is for several GPUs; give their number with --gpus" \
        "$ALIBI" plan --gpu-memory 80 $option
done
expect 2 "--vocab 100 .*257 ids" "$ALIBI" train "${tiny[@]}" --vocab 100
echo "a text" > book.txt
expect 3 "'book.txt' is not a tokenizer.json: " "$ALIBI" train "${tiny[@]}" --tokenizer book.txt
expect 2 "ALIBI_FAULT is 'disk'" env ALIBI_FAULT=disk "$ALIBI" text --out a
expect 2 "unknown fault 'disk'" env ALIBI_FAULT=disk:1 "$ALIBI" text --out a

# Values
expect 2 "'--steps'.*'ten' is not a whole number" "$ALIBI" train --steps ten
expect 2 "'--steps'.*0 is out of range" "$ALIBI" train --steps=0
expect 2 "'--lr'.*'fast' is not a number" "$ALIBI" train --lr fast
expect 2 "'--lr'.*nan" "$ALIBI" train --lr nan
expect 2 "'--norm'.*'layernrm' is not one of layernorm\|rmsnorm: did you mean 'layernorm'" \
    "$ALIBI" train --norm layernrm
expect 2 "heads 3 do not divide width 16" "$ALIBI" train "${tiny[@]}" --heads 3
expect 2 "heads 3 do not divide width 16" "$ALIBI" compare "${tiny[@]}" --heads 3
expect 2 "heads 3 do not divide width 16" "$ALIBI" bench train --width 16 --heads 3
expect 2 "'alibbi'.*'alibi'" "$ALIBI" train "${tiny[@]}" --position alibbi
expect 2 "'rotery'.*'rotary'" "$ALIBI" compare "${tiny[@]}" --methods alibi,rotery
expect 2 "twice" "$ALIBI" compare "${tiny[@]}" --methods alibi,alibi
expect 2 "lengths: 64 is listed twice" "$ALIBI" compare "${tiny[@]}" --lengths 64,128,64
expect 2 "'--position' does not apply to a comparison; give --methods" \
    "$ALIBI" compare --position alibi
for command in train compare; do
    expect 2 "'--train-length'.*0 is out of range" "$ALIBI" "$command" --train-length 0
    expect 2 "'--train-length'.*-5 is out of range" "$ALIBI" "$command" --train-length -5
    expect 2 "'--train-length'.*99999999999 is out of range" \
        "$ALIBI" "$command" --train-length 99999999999
    expect 2 "'--train-length'.*64 bits" "$ALIBI" "$command" --train-length 99999999999999999999
done
expect 2 "'--lengths'.*0 is out of range" "$ALIBI" compare --lengths 64,0
expect 2 "'--lengths': the list has an empty entry" "$ALIBI" compare --lengths 64,
expect 2 "'--lengths': the list has an empty entry" "$ALIBI" compare --lengths "64, "
expect 2 "'--lengths'.*'6 4' is not a whole number" "$ALIBI" compare --lengths "6 4, 128"
expect 2 "'rotery'.*'rotary'" "$ALIBI" compare "${tiny[@]}" --methods "alibi, rotery"
expect 2 "'--lengths': the list has an empty entry" "$ALIBI" compare --lengths 64, --batch 1
expect 2 "'--steps'.*'4kb' is not a whole number" "$ALIBI" train --steps 4kb
expect 2 "'--clip'.*'50%' is a percentage" "$ALIBI" train --clip 50%
expect 2 "'--text-bytes'.*-1 is out of range" "$ALIBI" compare --text-bytes -1
[ -e runs ] && fail "usage errors leave nothing" "there is a folder 'runs'" ||
    pass "usage errors leave nothing"

# Recipes
recipe() { printf '%s\n' "$@" > recipe.json; }
expect 3 "'absent.json'" "$ALIBI" train --recipe absent.json
recipe '{' '  "layers": 2,' '  "heds": 4' '}'
expect 3 "'recipe.json' line 3: unknown key 'heds': did you mean 'heads'\?" \
    "$ALIBI" train --recipe recipe.json
recipe '{ "layers": 2, }'
expect 3 "'recipe.json'.*line 1" "$ALIBI" train --recipe recipe.json
recipe '{ "layers": 2, "layers": 3 }'
expect 3 "'recipe.json'.*layers" "$ALIBI" train --recipe recipe.json
recipe '[1, 2]'
expect 3 "'recipe.json'.*object" "$ALIBI" train --recipe recipe.json
recipe '{ "layers": "two" }'
expect 3 "'recipe.json' line 1: 'layers'" "$ALIBI" train --recipe recipe.json
recipe '{ "layers": 2.5 }'
expect 3 "'recipe.json' line 1: 'layers'" "$ALIBI" train --recipe recipe.json
recipe '{ "layers": 0 }'
expect 3 "'recipe.json' line 1: 'layers'.*out of range" "$ALIBI" train --recipe recipe.json
recipe '{ "quiet": true }'
expect 3 "unknown key 'quiet'" "$ALIBI" train --recipe recipe.json
: > recipe.json
expect 3 "'recipe.json'" "$ALIBI" train --recipe recipe.json
head -c 4096 /dev/urandom > recipe.json
expect 3 "'recipe.json'" "$ALIBI" train --recipe recipe.json
for _ in $(seq 5000); do printf '['; done > recipe.json
expect 3 "'recipe.json'" "$ALIBI" train --recipe recipe.json

# The recipe is read first, and options override it wherever they are.
recipe '{ "layers": 2, "width": 16, "heads": 2, "train_length": 8, "batch": 1, "steps": 2,
    "text_bytes": 200000 }'
check "a flag before the recipe overrides it" \
    "$ALIBI" train --quiet --layers 1 --recipe recipe.json --no-tied --out run
if grep -q '"layers": 1' run/recipe.json && grep -q '"width": 16' run/recipe.json &&
    grep -q '"tied": false' run/recipe.json &&
    grep -q '"text_seed": 1' run/recipe.json && grep -q '"text_bytes": 200000' run/recipe.json; then
    pass "the recipe is in the folder of the run"
else
    fail "the recipe is in the folder of the run" "$(tr -d '\n' < run/recipe.json)"
fi

# Names, numbers and lists as people type them; what is written down has one form.
check "other names, units, shares and spaces in lists" \
    "$ALIBI" compare "${tiny[@]}" --methods RoPE, nope --lengths 16, 2^5, 64 --lr 10^-3 \
    --norm RMSNorm --decay-share 50% --text-bytes 200k --out typed
for written in '"methods": \["rotary", "none"\]' '"lengths": \[16, 32, 64\]' '"norm": "rmsnorm"' \
    '"decay_share": 0.5' '"text_bytes": 204800'; do
    if grep -q "$written" typed/recipe.json; then
        pass "$written is in the recipe"
    else
        fail "$written" "$(tr -d '\n' < typed/recipe.json)"
    fi
done
check "rope is written as rotary" "$ALIBI" train "${tiny[@]}" --position rope --out rope
if grep -q '"position": "rotary"' rope/recipe.json; then
    pass "the recipe says rotary"
else
    fail "the recipe" "$(tr -d '\n' < rope/recipe.json)"
fi
check "and resumes under either name" \
    "$ALIBI" train "${tiny[@]}" --position RoPE --out rope --resume

short=(--adaptive-cutoffs "" --text-bytes 200000 --train-length 16777216) # few ids, few bytes
for recipe in "$SOURCE"/recipes/*.json; do
    command=train
    grep -q '"methods"' "$recipe" && command=compare
    # A length beyond the text stops it after the checks and before the work.
    expect 3 "tokens" "$ALIBI" "$command" --quiet --recipe "$recipe" "${short[@]}"
    # The recipe of a model serves for a comparison too: its position is passed over.
    expect 3 "tokens" "$ALIBI" compare --quiet --recipe "$recipe" "${short[@]}"
done
finish
