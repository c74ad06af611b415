#!/bin/bash
# A temperature that is fitted to a model, stored with it, and used.
. "$(dirname "$0")/lib.sh"
held=("${text[@]}" --split valid --lengths 1024 --tokens 4k --json)
# As rotary, a model that was trained with alibi dilutes its attention over long inputs.
fit=("${text[@]}" --split train --tokens 4k --length 4096 --as-position rotary)

check "a model" "$ALIBI" train "${tiny[@]}" --batch 8 --lr 0.02 --steps 200 \
    --save-every 200 --out run
cp -r run before
check "as it was trained" "$ALIBI" eval run "${held[@]}"
trained=$(member stdout nll)
check "a fit" "$ALIBI" fit run "${fit[@]}" --json
c=$(printf %g "$(member stdout temperature)")
position=$(sed -nE 's/.*"position": "([^"]*)".*/\1/p' stdout | head -1)
if [ "$position" = "rotary:temperature=$c" ] && [ "$c" != 0 ]; then
    pass "temperature $c is in its position"
else
    fail "position" "'$position', temperature $c"
fi
if diff -r --exclude fitted.json run before > differences; then
    pass "the checkpoint itself is as it was"
else
    fail "the checkpoint" "$(cat differences)"
fi
check "a model with another temperature" "$ALIBI" fit run "${fit[@]}" --out copy
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
for format in hf gguf; do
    expect 3 "its fitted temperature .--as-position trained exports it without.: .*$position" \
        "$ALIBI" export run --format $format --out exported --quiet
done
check "an export without it" "$ALIBI" export run --format gguf --quiet --as-position trained \
    --out run.gguf
check "a training that resumes" "$ALIBI" train --resume --steps 202 --out run
check "a table" "$ALIBI" fit run "${fit[@]}"
if grep -qE '^ +0\.[0-9]{3}\* ' stdout && grep -qF 'Loss by temperature at length 4096' stdout; then
    pass "with its best row marked"
else
    fail "the table" "no row is marked"
fi

# A model that has learned nothing gains nothing.
check "a model of six steps" "$ALIBI" train "${tiny[@]}" --position rotary --out fresh
cp run/step-00000202/fitted.json fresh/step-00000006
check "a fit that finds nothing" "$ALIBI" fit fresh "${text[@]}" --split train --tokens 2k
if grep -qF "no temperature helps: nothing is stored in 'fresh'" stdout &&
    [ ! -e fresh/step-00000006/fitted.json ]; then
    pass "stores nothing, and takes away what was there"
else
    fail "fit" "$(tail -n 1 stdout)"
fi
check "as JSON, into a folder" "$ALIBI" fit fresh "${text[@]}" --split train --tokens 2k --json \
    --out unused
if [ "$(member stdout temperature)" = 0 ] && grep -q '"out": "unused"' stdout; then
    pass "finds none"
else
    fail "fit --out" "$(cat stdout)"
fi
check "writes the model without one" "$ALIBI" eval unused "${text[@]}" --lengths 64 --tokens 2k
expect 3 "cannot save a model in 'run': the folder is not empty" \
    "$ALIBI" fit fresh "${text[@]}" --out run --quiet
chmod 555 fresh/step-*
fit=(fit fresh --device cpu "${text[@]}" --quiet)
if [ ! -w fresh/step-00000006 ]; then
    expect 5 "cannot create .*: Permission denied" "$program" "${fit[@]}"
elif command -v setpriv > /dev/null; then
    # The superuser may write everywhere, so someone else tries.
    cp "$program" program && chmod 755 "$folder" program
    expect 5 "cannot create .*: Permission denied" setpriv --reuid 65534 --clear-groups \
        ./program "${fit[@]}"
else
    skip 1 "no user who may not write a file"
fi
chmod 755 fresh/step-*
printf '{"fitted": 1, "position": "none"}\n' > run/step-00000202/fitted.json
expect 3 "fitted.json" "$ALIBI" eval run "${held[@]}"
expect 2 "a temperature acts past the training length, 16" \
    "$ALIBI" fit before "${text[@]}" --length 16
finish
