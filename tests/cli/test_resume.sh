#!/bin/bash
# A run knows its text and its options: resuming needs nothing else, and --steps extends it.
. "$(dirname "$0")/lib.sh"

"$ALIBI" text --out book.txt "${text[@]}" --split train > /dev/null
head -c 3000 book.txt > other.txt
options=("${tiny[@]}" --eval-every 2 --lr 2e-3)

stop_after_a_step() { # options: a NaN ends the run after its second step
    run env ALIBI_FAULT=nan:3 "$ALIBI" train "$@"
    [ "$code" = 6 ] || fail "stopping" "exit code $code"
}

check "a run" "$ALIBI" train book.txt --valid other.txt "${options[@]}" --out whole
stop_after_a_step book.txt --valid other.txt "${options[@]}" --out stopped
(mkdir -p elsewhere && cd elsewhere &&
    "$ALIBI" train --resume --out ../stopped --quiet > ../stdout 2> ../stderr)
[ $? = 0 ] && diff -r whole/step-00000006 stopped/step-00000006 > /dev/null &&
    cmp -s whole/log.jsonl stopped/log.jsonl &&
    pass "train --resume --out DIR, from another folder: the same bytes" ||
    fail "resume" "$(cat stderr)"

stop_after_a_step "${options[@]}" --out builtin
check "the built-in text too" "$ALIBI" train --resume --out builtin --quiet
check "and a text with its tokenizer" bash -c \
    "'$ALIBI' tokenize --train --vocab 300 book.txt -o bpe.json --quiet > /dev/null &&
    '$ALIBI' train book.txt --tokenizer bpe.json ${options[*]} --out bpe > /dev/null &&
    rm bpe.json && '$ALIBI' train --resume --steps 7 --out bpe --quiet"

cp -r whole moved && cp book.txt book2.txt && rm book.txt
expect 3 "book.txt' is no longer there; give the path" \
    "$ALIBI" train --resume --steps 8 --out moved --quiet
check "the text at its new path" \
    "$ALIBI" train book2.txt --valid other.txt --resume --steps 8 --out moved --quiet
grep -q '"step": 8, "valid_loss"' moved/log.jsonl && grep -q book2.txt moved/source.json &&
    pass "is remembered" || fail "source.json" "$(cat moved/source.json)"
expect 3 "has done 8 steps" "$ALIBI" train --resume --steps 7 --out moved --quiet
expect 3 "width 16, this run asks for 32; omit --width" \
    "$ALIBI" train --resume --width 32 --out moved --quiet
run "$ALIBI" train --resume --steps 12 --init whole --out moved
[ "$code" = 0 ] && grep -q "steps 12 instead of 8: the learning rate" stderr &&
    pass "the note of an extended run has both learning rates" || fail "extend" "no note"
grep -q -- "--init is for a new run" stderr && pass "--init is said to be ignored" ||
    fail "--init" "no note"

"$ALIBI" train <(cat book2.txt) "${options[@]}" --out piped --quiet > /dev/null &&
    pass "a text that has no path to open again" || fail "piped" "not trained on"
expect 3 "is no longer there; give the path" "$ALIBI" train --resume --steps 8 --out piped --quiet

check "--keep-best" "$ALIBI" train book2.txt "${options[@]}" --keep-best --out best --json
step=$(member stdout best_step)
check "the best checkpoint opens by its name" "$ALIBI" eval best/best --data book2.txt --quiet
check "inspect describes it" "$ALIBI" inspect best/best
grep -qE "^path +best/step-0*$step$" stdout && pass "as the checkpoint that it is" ||
    fail "inspect best/best" "another path"
expect 3 "'nowhere'" "$ALIBI" inspect nowhere/best/
check "with a slash at its end too" "$ALIBI" eval best/best/ --data book2.txt --quiet
check "and so does the run" "$ALIBI" eval best// --data book2.txt --quiet
[ -d "best/step-0000000$step" ] && pass "and is that of step $step" || fail "best" "no folder"

# Mixtures
"$ALIBI" text --out wiki.txt --text-bytes 100000 --text-seed 9 --split train > /dev/null
mix=(--mix book2.txt=3,wiki.txt=1 "${options[@]}")
check "--mix" "$ALIBI" train "${mix[@]}" --out mixed --json
loss=$(member stdout valid_loss)
number='([0-9.]+)'
losses=$(tail -1 mixed/log.jsonl |
    sed -nE "s/.*_losses\": \{\"book2.txt\": $number, \"wiki.txt\": $number\}.*/\\1 \\2/p")
awk -v loss="$loss" '{ d = 0.75 * $1 + 0.25 * $2 - loss; exit !(NF == 2 && d * d < 1e-20) }' \
    <<< "$losses" && pass "the validation loss is the mean of the texts, weighted by shares" ||
    fail "valid_losses" "$losses"
grep -q '"valid_texts": \[' stdout && grep -q '"name": "wiki.txt"' stdout &&
    pass "the result has each text" || fail "valid_texts" "missing"
check "--mix for people" "$ALIBI" train "${mix[@]}" --no-quiet --out mixed3
grep -qE "validation after step [0-9]+: book2.txt [0-9.]+, wiki.txt [0-9.]+; weighted mean" stderr &&
    pass "every validation names its texts" || fail "--mix" "no validation by text"
grep -qE "^book2.txt +75.0% +[0-9]+ +[0-9.]+$" stdout && pass "so does the last table" ||
    fail "--mix" "no table"
stop_after_a_step "${mix[@]}" --out mixed2
check "a mixture resumes by itself" "$ALIBI" train --resume --out mixed2 --quiet
diff -r mixed/step-00000006 mixed2/step-00000006 > /dev/null &&
    cmp -s mixed/log.jsonl mixed2/log.jsonl && pass "to the same bytes" || fail "mix" "other bytes"
expect 3 "differs from the one" \
    "$ALIBI" train --mix book2.txt=1,wiki.txt=1 --resume --out mixed --quiet
# Tasks in a mixture
tasks=(--mix task:induction=1,book2.txt=2,task:needles=1 "${options[@]}")
check "tasks in --mix" "$ALIBI" train "${tasks[@]}" --out tasks --json
grep -q '"name": "task:needles"' stdout && grep -q '"task:induction": [0-9.]*, "book2.txt": ' \
    tasks/log.jsonl && pass "are logged by name" || fail "tasks" "no losses"
stop_after_a_step "${tasks[@]}" --out tasks2
check "a mixture with tasks resumes by itself" "$ALIBI" train --resume --out tasks2 --quiet
diff -r tasks/step-00000006 tasks2/step-00000006 > /dev/null &&
    cmp -s tasks/log.jsonl tasks2/log.jsonl && pass "to the same bytes" ||
    fail "tasks" "other bytes"
check "a task alone" "$ALIBI" train --mix task:markov=1 "${options[@]}" --out chain --quiet
expect 3 "differs from the one" \
    "$ALIBI" train --mix task:induction=1 --resume --out chain --quiet
sed -i 's/"markov"/"markow"/' chain/source.json
expect 3 "chain/source.json': no task 'markow'; there are passkey, .*, markov" \
    "$ALIBI" train --resume --out chain --steps 8 --quiet
# Six shares of 1/6, as they are written, do not add up to 1.
sixths=$(printf ',wiki.txt=1%.0s' 1 2 3 4 5)
"$ALIBI" train --mix "book2.txt=1$sixths" "${options[@]}" --out sixths --quiet > /dev/null
check "the shares of a mixture stay the same" "$ALIBI" train --resume --out sixths --quiet
expect 2 "PATH=SHARE" "$ALIBI" train --mix book2.txt,wiki.txt=1 --out mixed3
expect 2 "2 to 32 texts" "$ALIBI" train --mix book2.txt=1 --out mixed3 --quiet
expect 2 "shares above 0" "$ALIBI" train --mix book2.txt=1,wiki.txt=0 --out mixed3 --quiet
expect 2 "takes the place of FILE" "$ALIBI" train book2.txt --mix wiki.txt=1 --out mixed3
finish
