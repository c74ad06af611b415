#!/bin/bash
# Using a trained model: eval, generate, inspect, bench.
. "$(dirname "$0")/lib.sh"
check "a model" "$ALIBI" train "${tiny[@]}" --steps 60 --lr 0.01 --save-every 20 --out run
check "a learned one" "$ALIBI" train "${tiny[@]}" --position learned --out learned

# eval
eval_json() { run "$ALIBI" eval run --quiet "${text[@]}" --json "$@"; }
check "eval" "$ALIBI" eval run --quiet "${text[@]}" --lengths 16,64
[ "$(wc -l < stdout)" = 6 ] && grep -q 'word ppl' stdout &&
    sed -n 2p stdout | grep -q '^first tokens: .*; nll per: scored tokens$' &&
    tail -n 1 stdout | grep -q "^change: nll against length 16, .*one standard error$" &&
    pass "a head, a row per length, and what the errors are" || fail "eval" "another table"
change=$(awk '$1 == 64 { print $7 }' stdout)
[ "$(awk '$1 == 16 { print $7 }' stdout)" = - ] && pass "the first length has no change" ||
    fail "change" "of the first length"
head -n 1 stdout | grep -q "^nonoverlapping, split valid of .*: all [0-9]* tokens of the split$" &&
    pass "the head names protocol, split and tokens" || fail "eval" "no split"
check "sliding" \
    "$ALIBI" eval run --quiet "${text[@]}" --tokens 160 --protocol sliding --lengths " 16 , 64"
awk 'NR > 2 && !/^change/ { print $1, $2 }' stdout > strides
[ "$(tr '\n' ';' < strides)" = "length stride;16 8;64 32;" ] &&
    pass "the stride is a column" || fail "sliding" "another table"
head -n 1 stdout | grep -q '2 blocks of 64 tokens over the whole split$' &&
    pass "every length scores the same blocks" || fail "sliding" "other blocks"
eval_json --lengths 16,64
[ "$change" = "$(awk '/"change"/ { d = $2 }
    /"change_error"/ { printf "%+.4f±%.4f\n", d, $2 }' stdout | tail -n 1)" ] &&
    pass "the change is that of the JSON: $change" || fail "change" "$change"
run "$ALIBI" eval run --quiet "${text[@]}" --tokens 160 --lengths "$(seq -s , 17 47)"
awk '/^ +[0-9]/ { rows++; digits = $2; gsub(/[^0-9]/, "", digits); wrong += length(digits) != 4 }
    END { exit rows != 31 || wrong > 0 }' stdout &&
    pass "perplexities have four digits, zeros too" || fail "digits" "fewer in a row"

# A model known to the last digit: exported, changed, imported; all weights but two are 0.
# The last norm gives x, its first bias, which only the embedding of "a" reads: on a text of nothing
# else the perplexity is 1 + 256 / exp(x).
patch_file() { # bytes for printf, offset
    printf "$1" | dd of=known/model.safetensors bs=1 seek="$2" conv=notrunc status=none
}
"$ALIBI" train "${tiny[@]}" --embedding-norm --out normed > /dev/null
"$ALIBI" export normed --format hf --out known --quiet > stdout
size=$(stat -c %s known/model.safetensors)
data=$((8 + $(od -An -tu8 -N 8 known/model.safetensors))) # after the header and its length
truncate -s $data known/model.safetensors
truncate -s "$size" known/model.safetensors
patch_file '\x00\x00\x80\x3f' $((data + 97 * 16 * 4)) # 1: the embedding is the first tensor
head -c 400 /dev/zero | tr '\0' a > a.txt
rounds() { # the bytes of x, the perplexity, how it is shown
    patch_file "$1" $((size - 16 * 4)) # the last bias is the last tensor
    rm -rf rounded
    "$ALIBI" import known --out rounded --quiet > stdout 2> stderr
    run "$ALIBI" eval rounded a.txt --length 16 --tokens 160 --contiguous --quiet
    [ "$(awk '$1 == 16 { print $2 }' stdout)" = "$3" ] && pass "$2 is shown as $3" ||
        fail "$2 is shown as $3" "as $(awk '$1 == 16 { print $2 }' stdout)"
}
rounds '\x39\x45\x56\x40' 9.9998 10.00
rounds '\x4c\x38\x73\x3f' 99.998 100.0
rounds '\x83\x47\xae\xbf' 999.98 1000
rounds '\x10\x90\x6a\xc0' 9999.8 10000
check "one length" "$ALIBI" eval run --quiet "${text[@]}" --length 16
! grep -q change stdout && pass "has no change" || fail "change" "of one length"
eval_json --lengths 16,64 --tokens 160
[ "$(grep -c '"blocks": 2,' stdout)" = 2 ] && [ "$(grep -c '"tokens": 128,' stdout)" = 2 ] &&
    pass "blocks in JSON" || fail "blocks" "other blocks"
eval_json --length 16 --tokens 160 --block 40
[ "$(member stdout blocks)" = 4 ] && pass "--block" || fail "--block" "$(member stdout blocks)"
eval_json --length 16 --tokens 160 --contiguous
[ "$(member stdout blocks)" = 1 ] && [ "$(member stdout start)" = 0 ] &&
    pass "--contiguous" || fail "--contiguous" "$(member stdout blocks)"
expect 2 "block 8 is less than length 16" \
    "$ALIBI" eval run --length 16 --tokens 160 --block 8 "${text[@]}"
expect 2 "--block has no effect without --tokens" "$ALIBI" eval run --block 64 "${text[@]}"
expect 2 "--block has no effect with --contiguous" \
    "$ALIBI" eval run --tokens 160 --block 64 --contiguous "${text[@]}"
eval_json --length 16 --tokens 1600
is_json stdout && [ "$(member stdout length)" = 16 ] && [ "$(member stdout tokens)" = 1600 ] &&
    pass "eval --json" || fail "eval --json" "no JSON"
nll=$(member stdout nll)
eval_json --length 16 --tokens 1600 --protocol sliding --stride 16
[ "$(member stdout nll)" = "$nll" ] && pass "sliding by the length is nonoverlapping" ||
    fail "sliding" "nll $(member stdout nll), not $nll"
eval_json --length 16 --tokens 1600 --protocol sliding --stride 4
is_json stdout && [ "$(member stdout stride)" = 4 ] && [ "$(member stdout tokens)" = 1600 ] &&
    [ "$(member stdout nll)" != "$nll" ] &&
    pass "sliding scores every token once" || fail "sliding" "$(member stdout tokens) tokens"
eval_json --length 16 --tokens 1600 --window 16
[ "$(member stdout nll)" = "$nll" ] && pass "a window as long as the input cuts nothing" ||
    fail "--window 16" "nll $(member stdout nll), not $nll"
eval_json --length 16 --tokens 1600 --window 2
[ "$(member stdout nll)" != "$nll" ] && [ "$(member stdout window)" = 2 ] &&
    pass "a shorter one cuts attention" || fail "--window 2" "nll $(member stdout nll)"
check "it is named" "$ALIBI" eval run --quiet "${text[@]}" --tokens 160 --window 2
grep -q 'cut to the last 2 tokens' stdout || fail "--window 2" "not named in the table"
expect 2 "-1 is out of range" "$ALIBI" eval run --window -1
eval_json --tokens 1600
[ "$(member stdout length)" = 16 ] && pass "the default length is the training length" ||
    fail "length" "$(member stdout length)"
check "loss by position" "$ALIBI" eval run --quiet "${text[@]}" --tokens 160 --by-position
grep -q 'position' stdout && pass "is printed" || fail "--by-position" "not printed"
"$ALIBI" text --out valid.txt "${text[@]}" --split valid > /dev/null
eval_json --tokens 1600
nll=$(member stdout nll)
run "$ALIBI" eval run --quiet --json --tokens 1600 --data valid.txt
file=$(member stdout nll)
run "$ALIBI" eval run --quiet --json --tokens 1600 valid.txt
[ "$(member stdout nll)" = "$file" ] && pass "--data FILE and FILE are the same" ||
    fail "--data" "$file"
run "$ALIBI" eval run --quiet --tokens 160 valid.txt
head -n 1 stdout | grep -q "split all of 'valid.txt':" && pass "all of a file" ||
    fail "valid.txt" "another split"
run "$ALIBI" eval run --tokens 160 valid.txt --split valid
grep -q '^split valid is these files from 90% to 95%;' stderr &&
    pass "what a split of files is" || fail "--split valid" "no note"
expect 2 "'--tokenizer' does not apply to a model" "$ALIBI" eval run --tokenizer bytes
expect 2 "'--tokenizer' does not apply to a model" "$ALIBI" generate run --tokenizer bytes
awk -v a="$nll" -v b="$file" 'BEGIN { exit !(a - b < 0.2 && b - a < 0.2) }' &&
    pass "the validation text as a file gives about the same" || fail "valid.txt" "$nll, $file"
run "$ALIBI" eval run --quiet --json --tokens 1600
[ "$(member stdout nll)" = "$nll" ] && pass "a run knows the built-in text of its training" ||
    fail "no text" "nll $(member stdout nll), not $nll"
cp -r "$(newest run)" alone
expect 2 "no text: 'alone' is not known .* FILE or --data FILE, or --text-bytes" \
    "$ALIBI" eval alone --quiet
check "but may be tested on it" "$ALIBI" eval alone --quiet --tokens 160 "${text[@]}"
run "$ALIBI" eval "$(newest run)" --quiet "${text[@]}" --json --tokens 1600
[ "$(member stdout nll)" = "$nll" ] && pass "a checkpoint is a model too" ||
    fail "checkpoint" "another nll"

# Text that the model was trained on.
mkdir texts
"$ALIBI" text --out texts/a.txt --text-bytes 60000 > /dev/null
"$ALIBI" text --out held.txt --text-bytes 60000 --text-seed 5 > /dev/null
cp texts/a.txt copy.txt
check "a model of files" "$ALIBI" train texts "${tiny[@]:2}" --out files
check "one with --valid" "$ALIBI" train texts --valid held.txt "${tiny[@]:2}" --out valid
[ ! -s stderr ] && pass "other text to validate on" || fail "--valid" "a warning"
warns() { # pattern or "", RUN, FILE...
    run "$ALIBI" eval "${@:2}" --quiet --tokens 160
    if [ -z "$1" ]; then
        [ ! -s stderr ] && pass "no warning: ${*:2}" || fail "${*:2}" "a warning"
    else
        [ "$(grep -cE "^warning: the model was trained on .*$1" stderr)" = 1 ] &&
            pass "trained on: ${*:2}" || fail "${*:2}" "no warning"
    fi
}
warns "--split valid was held out" files texts
warns "--split valid was held out" files "$PWD/copy.txt" # the same tokens elsewhere
warns "--split valid was held out" files texts --split train
warns "" files texts --split valid
warns "" files copy.txt --split test
warns "" files held.txt
warns "evaluate on other text" files texts/a.txt held.txt # inside the folder
warns "evaluate on other text" valid texts --split valid
warns "evaluate on other text" valid copy.txt
warns "" valid held.txt
warns "--split valid was held out" run --split all
warns "" run
run "$ALIBI" eval files texts --quiet --json --tokens 160
grep -q '"trained_on": true' stdout && pass "in JSON too" || fail "trained_on" "not in JSON"
run "$ALIBI" train texts --valid texts/a.txt "${tiny[@]:2}" --out overlap
grep -q "^warning: the validation text 'texts/a.txt' is also text to train on" stderr &&
    pass "validation on training text" || fail "--valid" "no warning"
run "$ALIBI" train texts --valid copy.txt "${tiny[@]:2}" --out overlap2
grep -q "^warning: the validation text 'copy.txt' is also text to train on" stderr &&
    pass "or on a copy of it" || fail "--valid" "no warning"

expect 2 "0 is out of range" "$ALIBI" eval run --length 0
expect 2 "-1 is out of range" "$ALIBI" eval run --length -1
expect 2 "99999999999 is out of range" "$ALIBI" eval run --length 99999999999
expect 2 "--length and --lengths" "$ALIBI" eval run --length 16 --lengths 16 "${text[@]}"
expect 2 "stride 32 is more than length 16" \
    "$ALIBI" eval run --length 16 --protocol sliding --stride 32 "${text[@]}"
expect 2 "no effect without --protocol sliding" "$ALIBI" eval run --stride 8 "${text[@]}"
for protocol in stride llama.cpp rolling; do
    eval_json --length 16 --tokens 1600 --protocol $protocol
    is_json stdout && grep -q "\"protocol\": \"$protocol\"" stdout &&
        grep -q '"first_token": ' stdout && grep -q '"normaliser": "scored tokens' stdout &&
        [ "$(member stdout tokens)" -gt 600 ] &&
        pass "protocol $protocol" || fail "$protocol" "$(member stdout tokens) tokens"
done
check "a table of another program's protocol" \
    "$ALIBI" eval run --quiet "${text[@]}" --protocol llama.cpp --tokens 1600
grep -q '^first tokens: a chunk begins' stdout && pass "names its rules" ||
    fail "llama.cpp" "no rule"
expect 2 "--block has no effect with --protocol rolling" \
    "$ALIBI" eval run --protocol rolling --tokens 160 --block 64 "${text[@]}"
expect 2 "'slidin'.*did you mean 'sliding'" "$ALIBI" eval run --protocol slidin
expect 2 "not both" "$ALIBI" eval run a.txt --data b.txt
expect 3 "'absent'" "$ALIBI" eval absent
expect 3 "'valid.txt' is not a model: it is a file, not a folder" "$ALIBI" eval valid.txt
for command in eval "probe targets" fit score; do
    expect 3 "'valid.txt' is not a model: .*; the model comes first, so give 'run' before it" \
        "$ALIBI" $command valid.txt run
done
touch x.gguf
expect 3 "'x.gguf' is not a model of this program: it is a GGUF file, which 'alibi import' reads" \
    "$ALIBI" eval x.gguf valid.txt
mkdir -p empty within/notes
expect 3 "'empty' holds no checkpoint: it is empty; give the folder of a training run" \
    "$ALIBI" eval empty
expect 3 "'within' holds no checkpoint, but 'notes'; give the folder" "$ALIBI" eval within
cp -r run within/run
expect 3 "'within' holds no checkpoint, but models that do; give one: 'within/run'$" \
    "$ALIBI" eval within
touch empty/config.json
expect 3 "'empty' holds no checkpoint: it may be a model of another program, which 'alibi import'" \
    "$ALIBI" eval empty
expect 3 "learned.*16" "$ALIBI" eval learned --quiet --length 64 "${text[@]}"

# score
score_json() { run "$ALIBI" score run --quiet --json "$@"; }
check "score" "$ALIBI" score run --quiet --text "It was"
[ "$(wc -l < stdout)" = 8 ] && tail -n 1 stdout | grep -q '^6 tokens, logprob -' &&
    pass "a row per token, and the sum" || fail "score" "another table"
run "$ALIBI" score run --quiet --text "I"
tail -n 1 stdout | grep -q '^1 token, logprob -' && pass "one token is no plural" ||
    fail "score" "$(tail -n 1 stdout)"
"$ALIBI" train "${tiny[@]}" --lr 0.3 --out wild > stdout 2> stderr # its nll is about 12
run "$ALIBI" score wild --quiet --text "ZZZZqqxxzz"
tail -n 1 stdout | grep -qE 'token ppl [0-9]{5,8}$' &&
    pass "a large perplexity has all its digits" || fail "score" "$(tail -n 1 stdout)"
score_json --text "It was"
is_json stdout && [ "$(member stdout scored)" = 6 ] && pass "score --json" || fail "score" "no JSON"
sum=$(member stdout logprob)
score_json --prompt "It" --text " was"
both=$(member stdout logprob)
score_json --prompt "It" --text " "
first=$(member stdout logprob)
score_json --prompt "It " --text "was"
awk -v a="$both" -v b="$first" -v c="$(member stdout logprob)" \
    'BEGIN { d = a - b - c; exit !(d < 1e-3 && d > -1e-3) }' &&
    pass "log-probabilities of parts add up" || fail "--prompt" "$both, $first"
printf 'It was' > sentence.txt
score_json sentence.txt
[ "$(member stdout logprob)" = "$sum" ] && pass "a file" || fail "score FILE" "another sum"
"$ALIBI" score run --quiet --json < sentence.txt > stdout
[ "$(member stdout logprob)" = "$sum" ] && pass "standard input" || fail "score" "another sum"
score_json --text "It was" --top 2
[ "$(grep -c '"likeliest"' stdout)" = 6 ] && [ "$(grep -c '"id"' stdout)" = 18 ] &&
    pass "--top" || fail "--top" "others"
expect 2 "not both" "$ALIBI" score run sentence.txt --text It
expect 3 "cannot open 'absent.txt'" "$ALIBI" score run absent.txt
expect 3 "cannot read the text from 'empty'" "$ALIBI" score run empty
expect 3 "there is no text to score" "$ALIBI" score run --text "" --quiet
expect 3 "learned.*16" "$ALIBI" score learned --quiet --text "longer than sixteen"

# generate
check "generate" "$ALIBI" generate run --prompt "In the evening" --tokens 200 --seed 7
cp stdout first
head -c 14 stdout | grep -q '^In the evening$' && [ "$(wc -c < stdout)" -gt 15 ] &&
    pass "echoes the prompt" || fail "generate" "no prompt"
check "the same seed" "$ALIBI" generate run --prompt "In the evening" --tokens 200 --seed 7
cmp -s stdout first && pass "gives the same text" || fail "seed" "another text"
check "another seed" "$ALIBI" generate run --prompt "In the evening" --tokens 200 --seed 8
cmp -s stdout first && fail "seed" "the same text" || pass "gives another text"
check "no echo" "$ALIBI" generate run --prompt "In the evening" --tokens 200 --seed 7 --no-echo
cmp -s <(tail -c +15 first) stdout && pass "is the same without the prompt" ||
    fail "--no-echo" "another text"
printf 'In the evening' | "$ALIBI" generate run --prompt - --tokens 200 --seed 7 > stdout 2> stderr
cmp -s stdout first && pass "the prompt from standard input" || fail "--prompt -" "another text"
check "an empty prompt, always the likeliest token" \
    "$ALIBI" generate run --temperature 0 --tokens 20
check "hot" "$ALIBI" generate run --prompt "d$(printf '\303\251')j" --temperature 100 \
    --tokens 2000 --seed 3
iconv -f UTF-8 -t UTF-8 stdout > /dev/null 2>&1 && pass "is valid UTF-8 all the same" ||
    fail "hot" "not UTF-8"
check "top-k and top-p" "$ALIBI" generate run --prompt x --top-k 1 --top-p 0.5 --tokens 20
expect 3 "the prompt is not UTF-8 text at byte 1" \
    bash -c "printf 'a\\377' | '$ALIBI' generate run --prompt -"
expect 2 "UTF-8" "$ALIBI" generate run --prompt "$(printf 'a\377')"
expect 2 "-1 is out of range" "$ALIBI" generate run --temperature -1
expect 2 "1.5 is out of range" "$ALIBI" generate run --top-p 1.5
expect 2 "'--top-p'.* 0 is out of range" "$ALIBI" generate run --top-p 0
expect 3 "a prompt of 1 tokens and 100 more" "$ALIBI" generate learned --prompt x --tokens 100
expect 3 "'absent'" "$ALIBI" generate absent
"$ALIBI" generate run --tokens 100000 --temperature 2 2> stderr | head -c 10 > stdout
[ "${PIPESTATUS[0]}" = 0 ] && [ ! -s stderr ] && pass "a closed pipe ends it quietly" ||
    fail "pipe" "exit code"
# Each writes more than once, to a reader that is gone before the first time. The benchmark would
# otherwise go on for minutes.
while read -r command; do
    { sleep 0.2; timeout 60 "$ALIBI" $command < /dev/null 2> stderr; } | true
    code=${PIPESTATUS[0]}
    [ "$code" = 0 ] && [ ! -s stderr ] && pass "a closed pipe ends $command quietly" ||
        fail "$command | true" "exit code $code"
done << END
help --as fish
help train
text --out -
bench ops --repeats 1000
probe attention run --text-bytes 200000 --lengths 16,32 --quiet
eval run --text-bytes 200000 --lengths 16,32 --quiet
generate run --tokens 100000 --temperature 2 --quiet
END
run bash -c "'$ALIBI' help --as fish > /dev/full"
[ "$code" = 5 ] && grep -q 'cannot write the results' stderr && pass "a full disk behind help" ||
    fail "/dev/full" "exit code $code"
run bash -c "'$ALIBI' generate run --tokens 5 > /dev/full"
[ "$code" = 5 ] && grep -q 'cannot write the results' stderr && pass "a full disk behind stdout" ||
    fail "/dev/full" "exit code $code"

# Trained slopes
check "a model that trains its slopes" "$ALIBI" train "${tiny[@]}" --train-slopes --lr 0.02 \
    --out slopes
run "$ALIBI" inspect run --json
fixed=$(tr -d ' \n' < stdout | grep -o '"slopes":[^]]*')
run "$ALIBI" inspect slopes --json
[ -n "$fixed" ] && trained=$(tr -d ' \n' < stdout | grep -o '"slopes":[^]]*') &&
    [ "$trained" != "$fixed" ] && pass "inspect prints slopes that moved" ||
    fail "inspect" "slopes $trained, fixed ones $fixed"
grep -q '"train_slopes": true' stdout && pass "and that they are trained" ||
    fail "inspect" "no train_slopes"
check "eval" "$ALIBI" eval slopes --quiet "${text[@]}" --lengths 16,64
check "generate" "$ALIBI" generate slopes --quiet --prompt "the" --tokens 20
check "export" "$ALIBI" export slopes --weights bf16 --out slopes16
run "$ALIBI" inspect slopes16 --json
grep -q '"slopes"' stdout && pass "are in an export" || fail "inspect slopes16" "no slopes"

# inspect
for path in run "$(newest run)" "$(newest run)/model.safetensors"; do
    check "inspect $path" "$ALIBI" inspect "$path"
    [ -s stdout ] || fail "inspect $path" "says nothing"
    check "inspect $path --json" "$ALIBI" inspect "$path" --json
    is_json stdout && pass "is JSON" || fail "inspect --json" "is no JSON"
done
"$ALIBI" inspect run | grep -qE '^  norm +layernorm$' && pass "words are bare for people" ||
    fail "inspect" "no 'norm layernorm'"
check "inspect a text" "$ALIBI" inspect valid.txt
grep -qE '^kind +text$' stdout && pass "is known as a text" ||
    fail "inspect valid.txt" "another kind"
[ "$("$ALIBI" inspect run | grep -cE '^ *vocab ')" = 1 ] && pass "the vocabulary is printed once" ||
    fail "inspect" "not one 'vocab'"
expect 3 "'absent'" "$ALIBI" inspect absent
for command in eval generate; do
    expect 3 "cannot open model 'absent': No such file" "$ALIBI" "$command" absent
done
head -c 1000 /dev/urandom > noise
expect 3 "'noise'" "$ALIBI" inspect noise
head -c 2000 "$(newest run)/model.safetensors" > cut.safetensors
expect 3 "'cut.safetensors'" "$ALIBI" inspect cut.safetensors

# bench
small=(--layers 1 --width 16 --heads 2)
check "bench train" "$ALIBI" bench train "${small[@]}" --batch 2 --length 16 --repeats 2
grep -q 'products' stdout && [ "$(wc -l < stdout)" = 2 ] && pass "a head and a row" ||
    fail "bench train" "another table"
check "bench train --json" "$ALIBI" bench train "${small[@]}" --batch 2 --length 16 --repeats 2 \
    --json
is_json stdout && [ "$(member stdout length)" = 16 ] && [ -n "$(member stdout share)" ] &&
    pass "is JSON" || fail "bench train --json" "no JSON"
check "bench train --methods" "$ALIBI" bench train "${small[@]}" --batch 2 --length 16 --repeats 3 \
    --methods alibi,none,alibi --json
is_json stdout && [ "$(grep -c '"ratio":' stdout)" = 3 ] && pass "a ratio for each method" ||
    fail "bench train --methods" "$(cat stdout)"
check "bench memory --json" "$ALIBI" bench memory "${small[@]}" --lengths 256,1024,4096 --json
is_json stdout && pass "is JSON" || fail "bench memory --json" "no JSON"
grep -oE '"peak_bytes": *[0-9]+' stdout | sed 's/.*: *//' | tr '\n' ' ' > peaks
awk '{ good = $3 > 0 && $3 < 8 * $2 } END { exit !good }' peaks &&
    pass "memory is not quadratic: $(cat peaks)" ||
    fail "bench memory" "$(cat peaks)"
expect 2 "--lengths is empty" "$ALIBI" bench memory "${small[@]}" --lengths= --json
# Positions of `learned` end at 8: the second length fails.
expect 3 "16" \
    "$ALIBI" bench memory "${small[@]}" --position learned --max-length 8 --lengths 8,16 --json
run "$ALIBI" bench memory "${small[@]}" --position learned --max-length 8 --lengths 8,16
[ "$code" = 3 ] && [ "$(wc -l < stdout)" = 2 ] && pass "the table has what was measured" ||
    fail "bench memory" "exit code $code"
run "$ALIBI" bench memory "${small[@]}" --vocab 1000 --lengths 8
grep -qE '^model +1000 +8 ' stdout && pass "the table has the vocabulary" ||
    fail "bench memory --vocab" "another table"

# What the training may leave out and compute again does not come from a recipe's skip, and does
# from its recompute.
echo '{ "layers": 1, "width": 16, "heads": 2, "batch": 2, "train_length": 16,
    "skip": 0.5, "recompute": "block" }' > step.json
check "bench train of a recipe" "$ALIBI" bench train --recipe step.json --repeats 2 --json
[ "$(member stdout skip)" = 0 ] && grep -q '"recompute": "block"' stdout &&
    pass "every pair, blocks again" || fail "bench train" "otherwise"
check "bench train --skip --recompute" \
    "$ALIBI" bench train --recipe step.json --repeats 2 --skip 0.25 --recompute cheap --json
[ "$(member stdout skip)" = 0.25 ] && grep -q '"recompute": "cheap"' stdout && pass "as told" ||
    fail "bench train" "otherwise"
check "bench attention" "$ALIBI" bench attention --lengths 128 --repeats 1 --json
[ "$(member stdout skip)" = 5.9604644775390625e-08 ] && pass "2^-24 where nothing is said" ||
    fail "bench attention" "$(member stdout skip)"

# Attention of the layers of a model: of the built-in text that it was trained on, or of a file.
check "a model of two layers" "$ALIBI" train "${tiny[@]}" --layers 2 --out two
layers=(bench attention --model two --repeats 1 --quiet)
check "bench attention --model" "$ALIBI" "${layers[@]}" --lengths 16,512 --verify
sed -n 1p stdout | grep -q "^attention of 'two', split valid of 'built-in text': all layers (2)" &&
    [ "$(awk '/^ +[0-9]/ { print $1, NF }' stdout | tr '\n' ';')" = "16 10;512 10;" ] &&
    pass "a head and a row per length" || fail "bench attention --model" "another table"
check "without skipping" "$ALIBI" "${layers[@]}" --skip 0 --no-backward --no-decode
[ "$(awk '/^ +[0-9]/ { print $1, NF, $4 }' stdout | tr '\n' ';')" = "16 4 100.0%;64 4 100.0%;" ] &&
    pass "the training length and four times that, without ratios" ||
    fail "bench attention --model --skip 0" "another table"
"$ALIBI" text --out two.txt --text-bytes 20000 --split valid > /dev/null
check "a file" "$ALIBI" "${layers[@]}" two.txt --lengths 512 --skip 1e-3 --batch 2 --json
is_json stdout && grep -q '"text": "two.txt"' stdout && [ "$(grep -c '"layer":' stdout)" = 2 ] &&
    pass "each layer in JSON" || fail "bench attention --model --json" "no JSON"
near() { # the difference of two numbers is at most a millionth of them
    awk "BEGIN { d = ($1) / ($2) - 1; exit !(d < 1e-6 && d > -1e-6) }"
}
for part in forward backward decode; do # of all layers, then of each; with skipping, then without
    set -- $(grep -oE "\"${part}_seconds\": [0-9.e-]+" stdout | sed 's/.*: //')
    [ $# = 6 ] && near "$1" "$3 + $5" && near "$2" "$4 + $6" &&
        pass "$part: the sum of the layers" || fail "$part" "no sum: $*"
done
used=$(member stdout tiles_used)
near "$(member stdout forward_gflops)" "$(member stdout forward_dense_gflops) * $used" &&
    awk "BEGIN { exit !(0 < $used && $used < 1) }" && pass "rates are of every pair: $used used" ||
    fail "bench attention --model --json" "rates do not fit $used"
work="$(member stdout forward_dense_gflops) * $(member stdout forward_seconds) * 1e9"
near "$work" "2 * 2 * 2 * 512 * 512 * 16" && pass "two products, two layers, two windows" ||
    fail "forward_dense_gflops" "$work"
expect 3 "'two.txt' has [0-9]* tokens, too few for a batch of 9 x 4096; take fewer or shorter" \
    "$ALIBI" "${layers[@]}" two.txt --lengths 4096 --batch 9
for json in "" --json; do # a later length fails
    run "$ALIBI" "${layers[@]}" --lengths 16,1M $json
    [ "$code" = 3 ] && grep -q '1048576.*; the results of 1 of 2 lengths are printed$' stderr &&
        pass "a length that fails${json:+, $json}" || fail "bench attention $json" "exit code $code"
    [ "$(grep -c '^GFLOP/s: as if\|"length": 16,' stdout)" = 1 ] && pass "keeps those before it" ||
        fail "bench attention $json" "the results are lost"
done
is_json stdout && pass "in JSON too" || fail "bench attention --json" "no JSON"
expect 2 "--data or as a FILE" "$ALIBI" "${layers[@]}" two.txt --data two.txt

# The built-in cases are the recipes of the same names.
case_of() { # name, JSON: model, vocabulary and parameters of the first case of that name
    awk -v name="\"$1\"" \
        '/^  {/ { on = 0 } $1 == "\"recipe\":" && index($2, name) { on = !seen++ } on' "$2" |
        grep -E '^      |"(parameters|vocab)"'
}
run "$ALIBI" bench train --length 1 --batch 1 --repeats 1 --json
mv stdout built-in
for name in gpt2-124m byte-10m; do
    case_of $name built-in > expected
    run "$ALIBI" bench train --recipe "$SOURCE/recipes/$name.json" \
        --vocab "$(member expected vocab)" --length 1 --batch 1 --repeats 1 --json
    case_of $name stdout > found
    [ "$(wc -l < expected)" -gt 20 ] && cmp -s expected found &&
        pass "$name is its recipe, $(member found parameters) parameters" ||
        fail "$name" "$(diff expected found | tr '\n' ' ')"
done

# The environment
run env ALIBI_SIMD=abacus "$ALIBI" bench memory "${small[@]}" --lengths 8,16
[ "$code" = 0 ] && [ "$(grep -c "^warning: ALIBI_SIMD is 'abacus'" stderr)" = 1 ] &&
    pass "an unknown ALIBI_SIMD is told, once" || fail "ALIBI_SIMD" "not told"
run env ALIBI_SIMD=plain "$ALIBI" bench memory "${small[@]}" --lengths 8
[ "$code" = 0 ] && [ ! -s stderr ] && pass "ALIBI_SIMD=plain" ||
    fail "ALIBI_SIMD=plain" "exit code $code"

# JSON with the name of a file that is no text
odd=$(printf 'odd\377\303\251"')
cp -r run "$odd"
run "$ALIBI" eval "$odd" --quiet "${text[@]}" --tokens 160 --json
is_json stdout && grep -qF "$(printf '"model": "odd\\ufffd\303\251\\""')" stdout &&
    pass "odd bytes in names" || fail "odd bytes" "$(sed -n 2p stdout)"
run "$ALIBI" inspect "$odd" --json
iconv -f UTF-8 -t UTF-8 stdout > /dev/null 2>&1 && is_json stdout && pass "inspect has them too" ||
    fail "inspect" "not UTF-8"

# Commands that save nothing do not catch signals.
ends() { # signal, exit code, COMMAND...
    local signal=$1 wanted=$2
    shift 2
    run timeout --preserve-status -s "$signal" 1 "$@"
    [ "$code" = "$wanted" ] && [ ! -s stderr ] && pass "SIG$signal ends $2: $wanted" ||
        fail "SIG$signal, $2" "exit code $code"
}
ends INT 130 "$ALIBI" generate run --tokens 10000000 --temperature 0
ends TERM 143 "$ALIBI" generate run --tokens 10000000 --temperature 0
ends INT 130 "$ALIBI" eval run --quiet --length 4096 --protocol sliding --stride 1
ends INT 130 "$ALIBI" bench train --repeats 1000

# Eval has something to lose once a length is done.
stops() { # signal, OPTION...: it is sent when the second length has begun
    : > stderr # not what an earlier one has said
    "$ALIBI" eval run --lengths 16,4096 --protocol sliding --stride 1 "${text[@]}" "${@:2}" \
        > stdout 2> stderr < /dev/null &
    local evaluation=$!
    wait_for grep -q '^evaluating at 4096' stderr
    kill -"$1" "$evaluation"
    code=0
    wait "$evaluation" || code=$?
    [ "$code" = 75 ] && grep -q 'stopped; the results of 1 of 2 lengths are printed$' stderr &&
        pass "SIG$1 ends eval ${*:2}: 75" || fail "SIG$1, eval ${*:2}" "exit code $code"
}
stops TERM
[ "$(awk '$1 == 16' stdout | wc -l)" = 1 ] && pass "with the row that is done" ||
    fail "eval" "no row"
stops INT --json
is_json stdout && [ "$(grep -c '"nll": .*' stdout)" -ge 1 ] && grep -q '"stopped": true' stdout &&
    [ "$(grep -c '"length"' stdout)" = 1 ] && pass "whole JSON of what is done" ||
    fail "eval --json" "not all of it"

# Nor does a failure lose it: the first allocation that fails once a length is done.
after_one() { # OPTION...
    for n in $(seq 100 5 1000); do
        run env ALIBI_FAULT=memory:$n "$ALIBI" eval run --quiet --lengths 16,32 "${text[@]}" "$@"
        grep -q 'the results of 1 of 2 lengths are printed$' stderr && break
    done
    [ "$code" = 4 ] && [ "$(wc -l < stderr)" = 1 ] && grep -q 'not enough memory for' stderr &&
        pass "a failure after one length: ${*:-table}" || fail "eval $*" "exit code $code"
}
after_one
[ "$(awk '$1 == 16' stdout | wc -l)" = 1 ] && grep -q '^change: ' stdout &&
    pass "with the row that is done, and its key" || fail "eval" "no row"
after_one --json
is_json stdout && grep -q '"stopped": true' stdout && [ "$(grep -c '"length"' stdout)" = 1 ] &&
    pass "whole JSON of what is done" || fail "eval --json" "not all of it"
finish
