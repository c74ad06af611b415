#!/bin/bash
# Wrong inputs: one line that says what to do, and before a text is read, which may take minutes.
. "$(dirname "$0")/lib.sh"
"$ALIBI" text --out book.txt --text-bytes 60000 > /dev/null
"$ALIBI" text --out other.txt --text-bytes 60000 --text-seed 2 > /dev/null
check "a model" "$ALIBI" train book.txt "${tiny[@]:2}" --out run
check "a learned one" "$ALIBI" train book.txt "${tiny[@]:2}" --position learned --out learned

expect 2 "--text-bytes 5: the built-in text has at least 9000 bytes; give more, or a FILE$" \
    "$ALIBI" train --text-bytes 5
expect 2 "at least 9000 bytes; give more$" "$ALIBI" text --text-bytes 5 --out text
expect 3 "cannot create 'nodir/x': its folder does not exist" "$ALIBI" text --out nodir/x

# What the arguments really are.
for _ in $(seq 99); do printf 'a\001\351b\002'; done > noise.txt
expect 3 "'noise.txt' is not text: it has binary data" "$ALIBI" train noise.txt "${tiny[@]:2}" \
    --out new
expect 3 "there is no folder 'nosuch'" "$ALIBI" report nosuch
expect 3 "'run': it is a model of this program" "$ALIBI" import run --out new
for file in recipe.json log.jsonl source.json step-00000006/state.json; do
    expect 3 "'run/$file' is a part of a .*: give 'run(/step-00000006)?'$" \
        "$ALIBI" inspect "run/$file"
done
expect 3 "'mine.json' is neither a tokenizer.json .* nor .* safetensors, GGUF, .* or a text$" \
    bash -c "echo '{ \"layers\": 2 }' > mine.json && '$ALIBI' inspect mine.json"
printf '{"text": "a log of words"}\n' > log.jsonl
check "a text with the name of a log is a text" "$ALIBI" inspect log.jsonl
expect 2 "no text: .*'run' was trained on '.*/book.txt'" "$ALIBI" eval run
expect 3 "cannot open 'absent.txt'" "$ALIBI" reproduce wikipedia-small absent.txt --plan --tier cpu
run "$ALIBI" reproduce demo-chain book.txt --tier cpu --plan
[ "$code" = 0 ] && ! grep -q book.txt stdout &&
    grep -q "^the models of 'demo-chain' read no text, .*: 'book.txt' is not used" stderr &&
    pass "notes a text that is not used" || fail "demo-chain book.txt" "exit code $code"
mkdir project && touch project/main.c project/train.log
expect 3 "cannot train in 'project': it has other files, such as 'main.c'" \
    "$ALIBI" train book.txt "${tiny[@]:2}" --out project
expect 3 "cannot reproduce in 'project': it has other files, such as 'main.c'" \
    "$ALIBI" reproduce demo-chain --tier cpu --out project --quiet
mkdir books && cp book.txt books/
expect 3 "cannot train in 'books': it has other files, such as 'book.txt'" \
    "$ALIBI" train other.txt "${tiny[@]:2}" --out books
expect 3 "cannot reproduce in 'books': it has other files, such as 'book.txt'" \
    "$ALIBI" reproduce demo-chain --tier cpu --out books --quiet
"$ALIBI" tokenize book.txt --quiet -o shards > /dev/null
"$ALIBI" export run -o model > /dev/null
mkdir other-model && touch other-model/{config.json,model.safetensors}
ls -R shards model other-model books > before
while read -r folder wanted; do
    expect 3 "cannot compare in '$folder': it $wanted" \
        "$ALIBI" compare book.txt --out "$folder" --quiet
done << 'END'
project has other files, such as 'main.c'; choose a new or an empty folder$
books has other files, such as 'book.txt'; choose a new or an empty folder$
shards holds token shards; choose another folder$
model is a checkpoint; choose another folder$
other-model has other files, such as 'model.safetensors'; choose a new or an empty folder$
END
ls -R shards model other-model books | cmp -s - before && pass "nothing is written there" ||
    fail "compare --out" "$(ls -R shards model other-model books)"
run "$ALIBI" eval run book.txt --split valid --document line --quiet
grep -q "trained on 'book.txt'" stderr && pass "the same file, cut otherwise, is seen" ||
    fail "--document" "no warning"
run "$ALIBI" train "${tiny[@]:2:10}" --steps 2 --mix book.txt=0.7,other.txt=0.5 --out shares
grep -q "the shares add up to 1.2" stderr && pass "shares that do not add up to 1 are divided" ||
    fail "--mix" "no note"

# Results inside a folder that is read as text would be text too, so no run there could be resumed.
mkdir -p texts/held-out && cp book.txt texts/ && cp other.txt texts/held-out/
outside() { # what is written, what is read, command...
    expect 3 "cannot write to '$1': it is within '$2', which is read as text; .* outside" "${@:3}"
}
outside texts/run texts "$ALIBI" train texts "${tiny[@]:2}" --out texts/run
outside texts/run texts/ "$ALIBI" train texts/ "${tiny[@]:2}" --out texts/run --resume
outside texts/a/b texts "$ALIBI" train --mix texts=0.5,book.txt=0.5 "${tiny[@]:2}" --out texts/a/b
outside texts/tb texts "$ALIBI" train texts "${tiny[@]:2}" --out new --tensorboard texts/tb
outside texts/run texts "$ALIBI" compare texts --out texts/run --quiet
outside texts/run texts "$ALIBI" reproduce demo-chain texts --tier cpu --out texts/run --quiet
outside texts/held-out/run texts/held-out \
    "$ALIBI" train book.txt "${tiny[@]:2}" --valid texts/held-out --out texts/held-out/run
outside texts/held-out/run texts/held-out \
    "$ALIBI" compare book.txt --valid texts/held-out --out texts/held-out/run --quiet
outside texts/held-out/run texts/held-out "$ALIBI" reproduce demo-chain book.txt --tier cpu \
    --valid texts/held-out --out texts/held-out/run --quiet
[ "$(find texts new 2> /dev/null | wc -l)" = 4 ] && pass "nothing is written among texts" ||
    fail "texts" "$(find texts new)"
check "a run beside its text" "$ALIBI" train texts "${tiny[@]:2}" --out moved
mv moved texts/
expect 3 "the run 'texts/moved' is inside a folder of its text, .*; move it out of that folder" \
    "$ALIBI" train --resume --out texts/moved --quiet
rm -r texts/moved
check "a run inside shards" "$ALIBI" train shards "${tiny[@]:2}" --out shards/run

# A pipe without a writer stands for a text that takes long: whoever opens it waits.
mkfifo slow
at_once() { # code, pattern, command...
    expect "$1" "$2" timeout 10 "${@:3}"
}
at_once 2 "unknown position method 'ropee': did you mean 'rotary'" \
    "$ALIBI" train slow --position ropee
at_once 2 "heads 3 do not divide width" "$ALIBI" train slow --heads 3
at_once 2 "min-lr 1 is above lr" "$ALIBI" train slow --min-lr 1
at_once 3 "'run' already holds a run" "$ALIBI" train slow --out run
at_once 3 "'book.txt': it is a file" "$ALIBI" train slow --out book.txt
at_once 3 "cannot open 'absent'" "$ALIBI" train slow --valid absent --out new
at_once 3 "cannot open 'absent'" "$ALIBI" train slow absent --out new
at_once 3 "cannot open 'absent'" "$ALIBI" train --mix slow=0.5,absent=0.5 --out new
at_once 2 "--mix 'slow=0,book.txt=1'.*shares above 0" "$ALIBI" train --mix slow=0,book.txt=1
at_once 2 "--mix 'slow=0.5'.*2 to 32 texts" "$ALIBI" train --mix slow=0.5 --out new
at_once 2 "no task 'pass'; there are passkey, " \
    "$ALIBI" train --mix slow=0.5,task:pass=0.5 --out new
at_once 2 "task 'passkey' hides its keys in text, and there is none" \
    "$ALIBI" train --mix task:passkey=1 --out new --quiet
at_once 2 "--mix .*PATH=SHARE" "$ALIBI" train --mix slow=0.5,book.txt --out new
at_once 2 "did you mean 'rotary'" "$ALIBI" compare slow --methods alibi,ropee --out new
at_once 2 "'alibi' is listed twice" "$ALIBI" compare slow --methods alibi,alibi --out new
at_once 2 "64 is listed twice" "$ALIBI" compare slow --lengths 64,64 --out new
at_once 2 "less than the largest length" "$ALIBI" compare slow --lengths 64k --out new
at_once 3 "'run': it holds a training run" "$ALIBI" compare slow --out run
at_once 3 "'texts/run': it is within 'texts'" "$ALIBI" train slow texts --out texts/run
at_once 3 "'texts/run': it is within 'texts'" "$ALIBI" compare slow --valid texts --out texts/run
at_once 2 "stride 99 is more than length 16" \
    "$ALIBI" eval run slow --protocol sliding --stride 99
at_once 2 "scoring 8 tokens does not fill .*; score more, or use a shorter length" \
    "$ALIBI" eval run slow --tokens 8
at_once 2 "block 8 is less than length 16" "$ALIBI" eval run slow --tokens 64 --block 8
at_once 3 "learned.*ends at 16" "$ALIBI" eval learned slow --length 64
[ ! -e new ] && pass "no folder remains" || fail "new" "it is there"

# Names that people type.
expect 2 "did you mean 'gelu-tanh' or 'gelu-erf'" "$ALIBI" train --activation gelu
expect 2 "option '--vocab': 10 is outside" "$ALIBI" tokenize --train book.txt --vocab 10 -o t.json
run "$ALIBI" eval run other.txt --protocol slide --quiet
head -n 1 stdout | grep -q '^sliding' && pass "slide is sliding" || fail "slide" "not understood"

for list in "--lengths 128 512" "--lengths 128 ,512" "--lengths=128 512"; do
    expect 2 "no file ',?512'; if it belongs to the list of --lengths, .*: --lengths 128,512$" \
        "$ALIBI" eval run $list
done
expect 2 "--seeds 1,2,3k$" "$ALIBI" compare book.txt --seeds 1, 2 3k --out new
cp book.txt 512
check "a number that is a file" "$ALIBI" eval run --lengths 16 512 book.txt --quiet
expect 2 "option '--lengths': the list has an empty entry" "$ALIBI" eval run --lengths 16,,32

# What to do.
expect 3 "evaluating at length 999999 takes 1000000; use a shorter length" \
    "$ALIBI" eval run other.txt --length 999999 --quiet
printf 'a few' > few.txt
expect 3 "has [0-9]* tokens, but a window needs 65 .*give more text, or a smaller --train-length" \
    "$ALIBI" train few.txt --train-length 64 --out new
for where in "train ADDRESS" "eval ADDRESS" "eval run ADDRESS" "score run ADDRESS" \
    "train book.txt --valid ADDRESS" "inspect ADDRESS"; do
    expect 3 "cannot open .*'https://a.example/b.txt': it is an address; download the file first" \
        "$ALIBI" ${where/ADDRESS/https://a.example/b.txt}
done
run "$ALIBI" train book.txt "${tiny[@]:2}" --steps 1 --warmup 2 --out short
grep -q "^warning: warmup 2 is longer than the training, --steps 1:" stderr && pass "warmup" ||
    fail "warmup" "another warning"

# Folders of this program are not texts, in any command that takes one.
mkdir comparison experiment
touch comparison/{text,recipe}.json experiment/{experiment.json,lock}
for where in "train" "train --resume" "compare --out new" "eval run" "probe targets run" \
    "train book.txt --valid" "tokenize --train --out t.json"; do
    expect 3 "'run' is a training run, not a text; to resume it: alibi train --resume --out run$" \
        "$ALIBI" $where run
done
expect 3 "'run' is a training run, not a text" \
    "$ALIBI" train --mix book.txt=0.5,run=0.5 --quiet --out new
expect 3 "'comparison' is a comparison, not a text" "$ALIBI" train comparison --out new
expect 3 "'experiment' is an experiment, not a text" "$ALIBI" train experiment --out new
expect 3 "/step-00000006' is a checkpoint, not a text; .*--init" \
    "$ALIBI" train "$(newest run)" --out new
[ ! -e new ] && pass "no folder remains" || fail "new" "it is there"

# A run that is not there is not resumed, whatever is said about its training.
expect 3 "cannot resume 'runs/train': there is no run in it" "$ALIBI" train --resume --steps 4
expect 3 "cannot resume 'absent': there is no run in it" \
    "$ALIBI" train --resume --steps 4 --lr 0.1 --out absent
[ ! -e runs ] && pass "nothing was trained" || fail "runs" "it is there"

# Options of other commands.
expect 2 "no option '--resume': the same command resumes" "$ALIBI" compare book.txt --resume
expect 2 "no option '--data': .*alibi train TEXT" "$ALIBI" train --data book.txt
expect 2 "no option '--data': .*alibi compare TEXT" "$ALIBI" compare --data=book.txt
expect 2 "unknown option '--dat'" "$ALIBI" train --dat book.txt

# A text in the place of a file, and a file that is not text.
expect 3 "there is no file 'It was a dark night'.*--text" "$ALIBI" score run "It was a dark night"
: > empty.txt
expect 3 "'empty.txt' is empty; give a text to score" "$ALIBI" score run empty.txt
expect 3 "'standard input' is empty; give a text to score" "$ALIBI" score run
expect 3 "'book.txt' is not an experiment \(.*\); give its name before the text: alibi reproduce" \
    "$ALIBI" reproduce book.txt
printf '%%PDF-1.4\n%%\342\343\n' > paper.pdf
expect 3 "cannot read 'paper.pdf' as text: it is a PDF" "$ALIBI" score run paper.pdf
printf 'caf\351' > latin.txt
expect 3 "'latin.txt' is not UTF-8: byte 0xe9 at offset 3" "$ALIBI" score run latin.txt

# All lengths are checked before the first is scored.
expect 3 "evaluating at length 999999 takes 1000000; use a shorter length" \
    "$ALIBI" eval run other.txt --lengths 16,999999 --quiet

# Trainings that are odd.
small=(--layers 1 --width 64 --heads 2 --train-length 16 --batch 2 --steps 2)
warned() { # how often, pattern
    [ "$(grep -c "^warning: $2" stderr)" = "$1" ] && pass "warns $1 times: $2" ||
        fail "$2" "$(grep -c "^warning: $2" stderr) warnings"
}
head -c 1500 book.txt > page.txt
run "$ALIBI" train page.txt "${small[@]}" --out page --quiet
warned 1 "the text has [0-9]* tokens to train on, far too few"
run "$ALIBI" train --resume --steps 3 --out page --quiet
warned 0 "the text has"
run "$ALIBI" train book.txt "${small[@]}" --out enough --quiet
warned 0 "the text has"
run "$ALIBI" compare page.txt "${small[@]}" --methods alibi,none --lengths 16 --out both --quiet
warned 1 "the text has"
for command in "book.txt ${tiny[*]:2} --steps 10 --lr 10" --resume; do
    run "$ALIBI" train $command --out higher --json
    warned 1 "the loss ended at .*: the training has diverged; use a smaller --lr than 10"
    [ "$code" = 6 ] && grep -q '"diverged": true' stdout &&
        grep -qE "the training has diverged to a loss of [0-9.e+]*; 'higher' keeps it" stderr &&
        pass "a training that ends far above its start fails" || fail "$command" "exit code $code"
done
check "its checkpoint is there" "$ALIBI" inspect higher
run "$ALIBI" train book.txt "${tiny[@]:2}" --steps 40 --out usual --quiet
warned 0 "the loss"

# Without a text, a note says which one is used, unless an option asks for it.
once=("${small[@]}" --warmup 1)
noted() { # how often, command...
    run "$ALIBI" "${@:2}"
    [ "$code" = 0 ] && [ "$(grep -c "^no FILE is given, .*: alibi $2 FILE$" stderr)" = "$1" ] &&
        pass "notes the built-in text $1 times: ${*:2}" ||
        fail "${*:2}" "exit code $code, or another number of notes"
}
noted 1 train "${once[@]}" --out on-builtin
noted 0 train --resume --steps 3 --out on-builtin
noted 0 train "${once[@]}" "${text[@]}" --out on-asked
noted 0 train book.txt "${once[@]}" --out on-file
noted 1 compare "${once[@]}" --methods alibi --lengths 16 --eval-tokens 64 --out of-builtin
noted 0 compare book.txt "${once[@]}" --methods alibi --lengths 16 --eval-tokens 64 --out of-file

# A model that is asked for before it is saved first.
"$ALIBI" train book.txt "${tiny[@]:2}" --steps 1000000 --save-every 1000000 --out early \
    > early.log 2>&1 &
trainer=$!
wait_for test -e early/log.jsonl
expect 3 "'early' holds no checkpoint yet: a training is under way and saves every 1000000 steps" \
    "$ALIBI" generate early
expect 3 "'early' holds no checkpoint yet: a training is under way" "$ALIBI" inspect early
kill -9 "$trainer"
wait "$trainer" 2> /dev/null
expect 3 "'early' holds no checkpoint: it is a training run that ended before its first" \
    "$ALIBI" generate early

# A mixture: paths with commas, and numbers that do not depend on the locale.
cp book.txt "a,b=1.txt"
check "a comma and an equals sign in a path" \
    "$ALIBI" train --mix "a,b=1.txt=2^-1,other.txt=0.5" "${tiny[@]:2}" --out mixed
grep -q 'a,b=1.txt' mixed/source.json && grep -q '"share": 0.5' mixed/source.json &&
    pass "is the path, with its share" || fail "--mix" "$(cat mixed/source.json)"

# A folder in use is known before the text is read, too.
( flock 9; exec sleep 30 ) 9> run/lock &
holder=$!
wait_for eval '! flock -n run/lock true'
at_once 5 "folder 'run' is in use" "$ALIBI" train slow --resume --out run
kill "$holder"
finish
