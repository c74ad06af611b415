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

expect 3 "'nowhere' holds no comparison, experiment or training run" "$ALIBI" report nowhere
expect 3 "holds no comparison" "$ALIBI" report .
expect 2 "every" "$ALIBI" report compared --watch --every 0
expect 2 "" "$ALIBI" report

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
    fail "the page that stays" "loads itself again"
else
    pass "the page that stays does not load itself"
fi
kill -TERM $training
wait $training
check "--watch of a finished run ends at once" "$ALIBI" report --watch compared
finish
