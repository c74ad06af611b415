#!/bin/bash
# The page of a folder: written again, and rewritten while a run goes.
. "$(dirname "$0")/lib.sh"

has() { # what, extended pattern, file
    if grep -qE -- "$2" "$3"; then pass "$1"; else fail "$1" "not in $3"; fi
}

check "compare" "$ALIBI" compare "${tiny[@]}" --methods alibi,none --lengths 16,32 \
    --eval-tokens 640 --out compared
mv compared/report.html first.html
check "report" "$ALIBI" report compared
has "says where the page is" '^report: compared/report.html$' stdout
if cmp -s first.html compared/report.html; then
    pass "writes the page that compare wrote"
else
    fail "writes the page that compare wrote" "it is another"
fi
check "a method's run" "$ALIBI" report compared/alibi
has "has its own page" '<h1>alibi after 6 steps</h1>' compared/alibi/report.html

expect 3 "there is no folder 'nowhere'" "$ALIBI" report nowhere
mkdir empty
expect 3 "'empty' holds no comparison, experiment or training run" "$ALIBI" report empty
expect 3 "holds no comparison" "$ALIBI" report .
checkpoint=$(newest compared/alibi)
expect 3 "'$checkpoint' has no page of its own, '.*/compared/alibi' above it has one" \
    "$ALIBI" report "$checkpoint"
expect 2 "every" "$ALIBI" report compared --watch --every 0
expect 2 "" "$ALIBI" report

# Several runs on one page.
check "several runs" "$ALIBI" report compared/alibi compared/none/
has "says where the page is" '^report: report.html$' stdout
has "with their names" '<h1>2 runs</h1>' report.html
has "and what they differ in" '<th scope="row">position</th><td>alibi</td><td>none</td>' report.html
check "at a place of its own" "$ALIBI" report compared/alibi -o one.html
has "also of one run" '<h1>1 run</h1>' one.html
check "its own page again" "$ALIBI" report compared/alibi -o one.html
echo "a letter" > letter.html
expect 3 "'letter.html' exists and is no page of runs" "$ALIBI" report compared/alibi -o letter.html
has "a file that is no page stays" '^a letter$' letter.html
expect 3 "'compared' holds a comparison, not a training run" "$ALIBI" report compared compared/alibi
expect 3 "'nowhere' holds no training run" "$ALIBI" report compared/alibi nowhere
expect 2 "33 runs: a page shows 1 to 32" "$ALIBI" report $(yes compared/alibi | head -n 33)

# The page follows a run, and ends with it.
train=("$ALIBI" train "${tiny[@]}" --out run)
"${train[@]}" --steps 100000 --save-every 100000 > /dev/null 2>&1 &
training=$!
wait_for grep -qs '"step": 5,' run/log.jsonl
"$ALIBI" report --watch --every 1 run > stdout 2> stderr &
watching=$!
wait_for grep -qs 'http-equiv="refresh" content="1"' run/report.html
has "the page says how far the run is" 'Unfinished: [a-z0-9]+ is at step [0-9]+ of 100000' \
    run/report.html
step() { grep -oE 'at step [0-9]+' run/report.html; }
before=$(step)
moved() { [ "$(step)" != "$before" ]; }
if wait_for moved; then pass "and is rewritten"; else fail "and is rewritten" "it is not"; fi
kill -INT $watching
code=0
wait $watching || code=$?
if [ "$code" = 0 ]; then pass "Ctrl-C ends it"; else fail "Ctrl-C ends it" "exit code $code"; fi
if grep -q 'http-equiv="refresh"' run/report.html; then
    fail "the final page" "it reloads itself"
else
    pass "the final page does not reload itself"
fi
"$ALIBI" report --watch --every 1 run compared/none -o both.html > stdout 2> stderr &
watching=$!
wait_for grep -qs '1 of 2 models are done; run is at step [0-9]* of 100000' both.html &&
    pass "--watch follows several runs" || fail "--watch of several runs" "no page"
kill -INT $watching
wait $watching
kill -TERM $training
wait $training
check "--watch of a finished run ends at once" "$ALIBI" report --watch compared
finish
