#!/bin/bash
# Clusters of the vocabulary: a model of words from its tokenizer to its use.
. "$(dirname "$0")/lib.sh"

"$ALIBI" text --quiet --text-bytes 300000 --out words.txt > /dev/null
check "words" "$ALIBI" tokenize --quiet --train --type words words.txt -o words.json
check "shards" "$ALIBI" tokenize --quiet --tokenizer words.json words.txt -o words
model=(--layers 1 --width 32 --heads 2 --train-length 16 --batch 2 --save-every 3 --eval-every 0
    --adaptive-dropout 0.2 --quiet)

check "train" "$ALIBI" train words "${model[@]}" --adaptive-cutoffs 40,200 --steps 6 --out run
cp -r run half
rm -r half/step-00000006
check "and resume" "$ALIBI" train --resume --out half --quiet
cmp -s run/step-00000006/model.safetensors half/step-00000006/model.safetensors &&
    pass "to the same bytes" || fail "resume" "other weights"
check "inspect" "$ALIBI" inspect run
grep -q "embedding.2.projection" stdout && pass "lists the clusters" || fail "inspect" "no cluster"

check "eval" "$ALIBI" eval run words --length 64 --tokens 640 --quiet --json
nll=$(member stdout nll)
check "export" "$ALIBI" export run --weights bf16 --out bf16
check "eval of it" "$ALIBI" eval bf16 words --length 64 --tokens 640 --quiet --json
awk -v a="$nll" -v b="$(member stdout nll)" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-4) }' &&
    pass "evaluates as the run does" || fail "export" "another loss"
check "generate" "$ALIBI" generate run --prompt "the" --tokens 5 --quiet
check "score" "$ALIBI" score run --text "$(head -c 300 words.txt)" --quiet

expect 2 "adaptive-cutoffs: 9000 is not within the vocabulary of [0-9]* ids" \
    "$ALIBI" train words "${model[@]}" --adaptive-cutoffs 40,9000 --steps 1 --out none
expect 2 "adaptive-cutoffs: 40 after 40; they must rise" \
    "$ALIBI" train words "${model[@]}" --adaptive-cutoffs 40,40 --steps 1 --out none
expect 2 "adaptive-cutoffs: the last of 4 clusters would have no numbers" \
    "$ALIBI" train words "${model[@]}" --adaptive-cutoffs 4,40,400 --steps 1 --out none
check "no clusters after all" "$ALIBI" train words "${model[@]}" --adaptive-cutoffs "" --steps 1 \
    --out alike
finish
