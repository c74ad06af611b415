#!/bin/bash
# Event files of a training, as TensorBoard reads them: complete, and no step twice after a resume.
. "$(dirname "$0")/lib.sh"

run "$ALIBI" train "${tiny[@]}" --eval-every 3 --out run --tensorboard curves
[ "$code" = 0 ] && [ "$(ls curves | grep -c '^events.out.tfevents.')" = 1 ] &&
    pass "a training writes a file" || fail "train --tensorboard" "exit code $code"
# As if it had been killed before its last checkpoint: steps 5 and 6 are taken again.
rm -r "$(newest run)"
check "it resumes" "$ALIBI" train --resume --out run --steps 8 --tensorboard curves --quiet
[ "$(ls curves | wc -l)" = 2 ] && pass "in a file of its own" || fail "resume" "$(ls curves)"
check "a complete run is left alone" "$ALIBI" train --resume --out run --tensorboard curves --quiet
[ "$(ls curves | wc -l)" = 2 ] && pass "and writes no file" || fail "resume" "$(ls curves)"
expect 3 "'run/recipe.json'" "$ALIBI" train "${tiny[@]}" --out other \
    --tensorboard run/recipe.json
check "a training writes into its own folder" \
    "$ALIBI" train "${tiny[@]}" --position learned --out own --tensorboard own
check "which resumes" "$ALIBI" train --resume --out own --steps 8 --tensorboard own --quiet


yes 'lorem lorem' | head -n 8000 > lines.txt
check "a mixture that begins with a task" "$ALIBI" train --mix task:latest=0.5,lines.txt=0.5 \
    "${tiny[@]:2}" --out mixed --tensorboard mixed
grep -aqE '(lor|ore|rem).*»' mixed/events.out.tfevents.* &&
    pass "has samples that continue its text" ||
    fail "sample" "$(grep -a » mixed/events.out.tfevents.*)"

check "tasks alone" "$ALIBI" train --mix task:induction=0.5,task:recall=0.5 "${tiny[@]:2}" \
    --out tasks --tensorboard tasks
grep -aq sample tasks/events.out.tfevents.* &&
    fail "sample" "of a training without text" || pass "have no samples of text"

for python in "$SOURCE/build/tensorboard/bin/python" python3; do
    "$python" -c 'import tensorboard' 2> /dev/null && break
    python=
done
if [ -z "$python" ]; then
    skip 1 "no TensorBoard"
    finish
fi
for folder_of in curves own; do
    run "$python" "$SOURCE/tests/golden/read_events.py" $folder_of
    cp stdout $folder_of.txt
    [ "$code" = 0 ] && pass "TensorBoard reads every event of $folder_of" ||
        fail "read_events.py $folder_of" "$(tail -n 1 stderr)"
done
for curve in "loss/train 8 1 8" "loss/valid 3 3 8" "optimizer/gradient_norm 8 1 8" \
    "optimizer/learning_rate 8 1 8" "speed/tokens_per_s 8 1 8" "memory/peak_mib 8 1 8" \
    "sample 4 2 8"; do
    grep -q "^$curve " curves.txt && pass "curve: $curve" || fail "$curve" "$(cat curves.txt)"
done
last=$(tail -n 2 run/log.jsonl | grep -oE '"loss": [0-9.]+' | sed 's/.* //')
shown=$(sed -n 's/^loss\/train .* //p' curves.txt)
awk -v a="$last" -v b="$shown" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' &&
    pass "the loss is that of the log" || fail "loss" "'$last' in the log, '$shown' shown"
finish
