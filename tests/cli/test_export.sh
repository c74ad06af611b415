#!/bin/bash
# Weights without their training; models that start from others; padded vocabularies.
. "$(dirname "$0")/lib.sh"

nll() { # model
    "$ALIBI" eval "$1" "${text[@]}" --quiet --json > eval.json && member eval.json nll
}
first_loss() { # run
    head -1 "$1/log.jsonl" | grep -oE '"loss": [0-9.]+' | cut -d' ' -f2
}

check "train" "$ALIBI" train "${tiny[@]}" --out run
for type in fp32 bf16 fp16; do
    check "export --weights $type" "$ALIBI" export run --weights $type --out $type
    grep -q "parameters as $type in '$type'" stdout || fail "export $type" "no result line"
    [ ! -e $type/optimizer.safetensors ] && pass "has no optimizer" ||
        fail "export $type" "it has one"
    check "inspect" "$ALIBI" inspect $type
    check "generate" "$ALIBI" generate $type --prompt It --tokens 5 --quiet
    awk -v a="$(nll run)" -v b="$(nll $type)" 'BEGIN { exit !(a > 0 && (b - a) ^ 2 < 1e-4) }' &&
        pass "evaluates as the run does" || fail "eval $type" "another loss"
done
[ "$(nll run)" = "$(nll fp32)" ] && pass "to the same digits in fp32" || fail "fp32" "another loss"
check "export --json" "$ALIBI" export run --out json --json
is_json stdout && grep -q '"weights": "fp32"' stdout && pass "is JSON" ||
    fail "export --json" "no JSON"
expect 3 "not empty" "$ALIBI" export run --out fp32
expect 2 "out" "$ALIBI" export run
expect 3 "is a checkpoint" "$ALIBI" train "${tiny[@]}" --out fp32 --resume

# A run that starts from a model takes its options and weights, and needs it no more once it runs.
other=("${text[@]}" --train-length 24 --batch 2 --steps 4 --quiet)
check "train --init" "$ALIBI" train "${other[@]}" --init bf16 --out tuned
grep -q '"init": "bf16"' tuned/recipe.json && pass "its recipe names the model" ||
    fail "recipe.json" "no init"
check "train without it" "$ALIBI" train "${other[@]}" --recipe "$(newest run)/config.json" \
    --train-length 24 --out fresh
awk -v a="$(first_loss tuned)" -v b="$(first_loss fresh)" 'BEGIN { exit !(a < b) }' &&
    pass "it starts below random weights" || fail "--init" "another first loss"
rated() { # how many notes on the learning rate, then options
    run "$ALIBI" train "${text[@]}" --train-length 24 --batch 2 --steps 1 --init run "${@:2}"
    [ "$code" = 0 ] && [ "$(grep -c "^the learning rate 0.004 is .* --lr 1e-4$" stderr)" = "$1" ] &&
        pass "--init ${*:2} has $1 notes on its learning rate" || fail "--init" "code $code"
}
rated 1 --out default-rate
rated 0 --lr 1e-4 --out own-rate
rated 0 --resume --steps 2 --out default-rate
check "another number of heads" "$ALIBI" train "${other[@]}" --init run --heads 4 --out four-heads
grep -q '"kv_heads": 4' "$(newest four-heads)/config.json" && pass "the key heads follow" ||
    fail "--heads 4" "$(grep heads "$(newest four-heads)/config.json")"
check "another position method" "$ALIBI" train "${other[@]}" --init run --position learned \
    --out learned
expect 3 "embedding.weight' has shape" "$ALIBI" train "${other[@]}" --init run --width 64 --out wide
expect 3 "'nowhere'" "$ALIBI" train "${other[@]}" --init nowhere --out none
[ ! -e wide ] && [ ! -e none ] && pass "a refusal leaves no folder" || fail "--init" "left a folder"
"$ALIBI" text --quiet --text-bytes 30000 --out words.txt > /dev/null
"$ALIBI" tokenize --quiet --train --vocab 400 words.txt -o words.json > /dev/null
"$ALIBI" tokenize --quiet --tokenizer words.json words.txt -o words > /dev/null
expect 3 "its tokenizer .bytes, 257 ids. is not that of the text .bpe, 400 ids." \
    "$ALIBI" train words --quiet --steps 2 --init run --out none
rm -rf bf16
check "resumes without the model" "$ALIBI" train "${other[@]}" --init bf16 --resume --out tuned

# More rows of the embedding than ids.
check "train --vocab" "$ALIBI" train "${tiny[@]}" --vocab 320 --out padded
grep -q '"vocab": 320' "$(newest padded)/config.json" && pass "has 320 rows" ||
    fail "--vocab" "other rows"
[ -n "$(nll padded)" ] && pass "evaluates" || fail "padded" "no loss"
check "generates ids of the tokenizer only" "$ALIBI" generate padded --prompt It --tokens 40 \
    --temperature 2 --quiet
check "resumes" "$ALIBI" train "${tiny[@]}" --vocab 320 --out padded --resume
expect 3 "vocab 320, this run asks for 257" "$ALIBI" train "${tiny[@]}" --vocab 257 \
    --out padded --resume
expect 2 "257 ids" "$ALIBI" train "${tiny[@]}" --vocab 200 --out small
finish
