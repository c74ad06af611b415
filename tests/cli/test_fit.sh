#!/bin/bash
# A temperature that is fitted to a model, stored with it, and used.
. "$(dirname "$0")/lib.sh"
held=("${text[@]}" --split valid --lengths 64 --tokens 256 --json)

check "a model" "$ALIBI" train "${tiny[@]}" --position rotary --lr 0.05 --steps 60 --out run
cp -r run before
check "as it was trained" "$ALIBI" eval run "${held[@]}"
trained=$(member stdout nll)
check "a fit" "$ALIBI" fit run "${text[@]}" --split train --tokens 2k --json
c=$(printf %g "$(member stdout temperature)")
position=$(sed -nE 's/.*"position": "([^"]*)".*/\1/p' stdout | head -1)
if [ "$position" = "rotary:temperature=$c" ] || { [ "$position" = rotary ] && [ "$c" = 0 ]; }; then
    pass "temperature $c is in its position"
else
    fail "position" "'$position', temperature $c"
fi
if diff -r --exclude fitted.json run before > differences; then
    pass "the checkpoint itself is as it was"
else
    fail "the checkpoint" "$(cat differences)"
fi
check "a model with another temperature" "$ALIBI" fit run "${text[@]}" --split train --tokens 2k \
    --as-position rotary --out copy
check "used without being asked" "$ALIBI" eval run "${held[@]}"
fitted=$(member stdout nll)
check "in the copy too" "$ALIBI" eval copy "${held[@]}"
copied=$(member stdout nll)
check "written out" "$ALIBI" eval run "${held[@]}" --as-position "$position"
written=$(member stdout nll)
check "switched off" "$ALIBI" eval run "${held[@]}" --as-position trained
if [ "$fitted" = "$written" ] && [ "$fitted" = "$copied" ] &&
    [ "$trained" = "$(member stdout nll)" ]; then
    pass "loss $fitted with it, $trained without"
else
    fail "losses" "$fitted, $written, $copied; $trained, $(member stdout nll)"
fi
check "another one by hand" "$ALIBI" eval run "${held[@]}" --as-position rotary:temperature=2.5
if [ "$trained" != "$(member stdout nll)" ]; then
    pass "a temperature changes the loss past the training length"
else
    fail "temperature 2.5" "the loss of none"
fi
check "inspection" "$ALIBI" inspect run
if grep -qE "^fitted +$position" stdout; then
    pass "inspect names it"
else
    fail "inspect" "no line 'fitted'"
fi
"$ALIBI" export run --format gguf --out run.gguf > stdout 2> stderr
if [ "$position" = rotary ] || grep -qF "without what was fitted to it: $position" stderr; then
    pass "an export for llama.cpp says that it is without it"
else
    fail "export" "$(cat stderr)"
fi
check "a training that resumes" "$ALIBI" train --resume --steps 62 --out run
check "a table" "$ALIBI" fit run "${text[@]}" --split train --tokens 2k
if grep -qE '^ +0\.[0-9]{3}\* ' stdout && grep -qF 'Loss by temperature at length 64' stdout; then
    pass "with its best row marked"
else
    fail "the table" "no row is marked"
fi
printf '{"fitted": 1, "position": "none"}\n' > run/step-00000062/fitted.json
expect 3 "fitted.json" "$ALIBI" eval run "${held[@]}"
expect 2 "a temperature acts past the training length, 16" \
    "$ALIBI" fit before "${text[@]}" --length 16
finish
