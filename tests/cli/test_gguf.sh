#!/bin/bash
# Models as GGUF files: written for llama.cpp, read back by its package and by us.
. "$(dirname "$0")/lib.sh"

nll() { # model
    "$ALIBI" eval "$1" "${text[@]}" --quiet --json > eval.json && member eval.json nll
}

small=("${text[@]}" --layers 2 --width 32 --heads 4 --train-length 16 --batch 2 --steps 4 --quiet)
llama=(--norm rmsnorm --activation swiglu --no-biases --no-tied --kv-heads 2 --ff-width 48)
while read -r name family options; do
    check "train $name" "$ALIBI" train "${small[@]}" --embedding-scale 1 $options --out "$name"
    check "export" "$ALIBI" export "$name" --format gguf --out "$name.gguf"
    grep -q "parameters as a model of family '$family' in '$name.gguf'" stdout &&
        pass "as $family" || fail "export $name" "another family"
    check "import" "$ALIBI" import "$name.gguf" --out "$name-back"
    check "export of weights" "$ALIBI" export "$name" --out "$name-weights"
    cmp -s "$name-weights/model.safetensors" "$name-back/model.safetensors" &&
        cmp -s "$name-weights/tokenizer.json" "$name-back/tokenizer.json" &&
        pass "the same weights and tokenizer" || fail "$name" "other bytes"
    [ -n "$(nll "$name")" ] && [ "$(nll "$name")" = "$(nll "$name-back")" ] &&
        pass "the same loss" || fail "$name" "another loss"
done << END
learned gpt2 --position learned
norm bloom --embedding-norm
steep mpt --position alibi:bias-max=10
plain mpt --position none --no-biases --activation gelu-erf
rotary llama --position rotary ${llama[*]}
pairs llama --position rotary:layout=pairs:base=500 ${llama[*]}
qkv qwen2 --position rotary --qkv-biases ${llama[*]}
qk qwen3 --position rotary --qk-norm ${llama[*]}
neox gptneox --position rotary:share=0.5:spread --parallel --no-tied
biases mpt --no-biases --norm-biases
END
"$ALIBI" export plain --format gguf --out erf.gguf > /dev/null 2> stderr
grep -q "warning: llama.cpp computes GELU by its approximation with tanh" stderr &&
    pass "GELU by erf is a warning" || fail "erf" "no warning"

for type in fp32 bf16 fp16 q8_0; do
    check "export --weights $type" "$ALIBI" export norm --format gguf --weights $type \
        --out "$type.gguf"
    check "import" "$ALIBI" import "$type.gguf" --out "$type" --json
    is_json stdout && grep -q '"family": "bloom"' stdout && pass "is JSON" ||
        fail "import" "no JSON"
    awk -v a="$(nll norm)" -v b="$(nll $type)" \
        'BEGIN { exit !(a > 0 && (b / a - 1) ^ 2 < 1e-6) }' &&
        pass "the same loss to a thousandth" || fail "$type" "another loss"
done
[ "$(stat -c %s q8_0.gguf)" -lt "$(stat -c %s fp16.gguf)" ] && pass "q8_0 is smaller than fp16" ||
    fail "q8_0" "not smaller"

# A BPE and padded rows; then models that llama.cpp does not have.
"$ALIBI" text --quiet --text-bytes 30000 --out words.txt > /dev/null
"$ALIBI" tokenize --quiet --train --vocab 400 words.txt -o bpe.json > /dev/null
"$ALIBI" tokenize --quiet --tokenizer bpe.json words.txt -o shards > /dev/null
check "train on a BPE" "$ALIBI" train shards --layers 1 --width 32 --heads 2 --train-length 16 \
    --batch 2 --steps 2 --vocab 416 --quiet --out bpe
check "export" "$ALIBI" export bpe --format gguf --out bpe.gguf
grep -q "its embedding is multiplied by 5.65685 there" stdout && pass "says what is scaled" ||
    fail "embedding scale" "not said"
check "inspection" "$ALIBI" inspect bpe.gguf
grep -qE "^  general.architecture +mpt" stdout && grep -qE "^  token_embd.weight +F32" stdout &&
    pass "names architecture and tensors" || fail "inspect" "$(head -n 3 stdout)"
check "import" "$ALIBI" import bpe.gguf --out bpe-back
cmp -s bpe-back/tokenizer.json "$(newest bpe)/tokenizer.json" && pass "the same tokenizer" ||
    fail "bpe" "another tokenizer"
check "export without --format" "$ALIBI" export bpe --out named.gguf
cmp -s named.gguf bpe.gguf && pass "the name decides" || fail "named.gguf" "other bytes"
check "export with a slash" "$ALIBI" export bpe --out slash.gguf/
[ -f slash.gguf ] && cmp -s slash.gguf bpe.gguf && pass "the slash means nothing" ||
    fail "slash.gguf/" "not that file"
for format in alibi hf; do
    expect 2 "--format $format writes a folder, and 'none.gguf' is the name of a GGUF file; give" \
        "$ALIBI" export bpe --format $format --out none.gguf --quiet
done
expect 3 "the file exists" "$ALIBI" export bpe --format gguf --out bpe.gguf --quiet
expect 2 "as q8_0, which only GGUF files have" "$ALIBI" export bpe --format hf --weights q8_0 \
    --out none --quiet
expect 2 "only GGUF files have weights as q8_0; give --format gguf, or" \
    "$ALIBI" export bpe --weights q8_0 --out none --quiet
check "train t5" "$ALIBI" train "${tiny[@]}" --position t5 --out t5
expect 3 "no family of llama.cpp has position t5; their methods are alibi, learned, none and rotary" \
    "$ALIBI" export t5 --format gguf --out none.gguf --quiet
head -c 1000 bpe.gguf > cut.gguf
expect 3 "cannot read 'cut.gguf': " "$ALIBI" import cut.gguf --out none --quiet
expect 3 "it is not a GGUF file" "$ALIBI" import words.txt --out none --quiet
[ ! -e none ] && [ ! -e none.gguf ] && pass "a refusal leaves nothing" ||
    fail "refusal" "left a file"

for python in "$SOURCE/build/gguf/bin/python" python3; do
    "$python" -c 'import gguf' 2> /dev/null && break
    python=
done
if [ -z "$python" ]; then
    skip 1 "no gguf package"
    finish
fi
for name in learned norm steep rotary fp16 q8_0; do
    weights=$name-weights
    [ -e "$weights" ] || weights=norm-weights
    run "$python" "$SOURCE/tests/golden/read_gguf.py" $name.gguf $weights/model.safetensors
    difference=$(tail -1 stdout | sed -nE 's/.*"difference": ([0-9.e-]+)}/\1/p')
    limit=0
    case $name in fp16) limit=0.001 ;; q8_0) limit=0.01 ;; esac
    awk -v d="${difference:-1}" -v limit=$limit 'BEGIN { exit !(d <= limit) }' &&
        pass "the package reads $name" || fail "$name" "difference ${difference:-none}"
done
grep -qx "general.architecture bloom" stdout && grep -qx "bloom.attention.head_count 4" stdout &&
    pass "and its metadata" || fail "metadata" "other values"
finish
