#!/bin/bash
# A method for each layer: patterns, their options and names, windows and their caches.
. "$(dirname "$0")/lib.sh"
small=("${tiny[@]}" --layers 4)
pattern=3*rotary:window=8,none

check "a pattern" "$ALIBI" train "${small[@]}" --position "$pattern" --out pattern
check "all at once, spelled in another way" \
    "$ALIBI" train "${small[@]}" --position "rope:window=8, 2*RoPE:window=8 + nope" --out spelled
if cmp -s {pattern,spelled}/step-00000006/model.safetensors &&
    grep -qF "\"position\": \"$pattern\"" spelled/recipe.json &&
    grep -qF "\"position\": \"$pattern\"" spelled/step-00000006/config.json; then
    pass "one pattern, one name, the same weights"
else
    fail "spellings" "other weights, or not written as $pattern"
fi
check "options of the model or of the method" \
    "$ALIBI" train "${small[@]}" --position alibi --bias-max 4 --out flag
check "the same as an option of the method" \
    "$ALIBI" train "${small[@]}" --position alibi:bias-max=4 --out own
if cmp -s {flag,own}/step-00000006/model.safetensors &&
    ! cmp -s {flag,pattern}/step-00000006/model.safetensors; then
    pass "--bias-max 4 is alibi:bias-max=4"
else
    fail "alibi:bias-max=4" "not the weights of --bias-max 4"
fi
expect 3 'has position "alibi:bias-max=4", this run asks for "alibi:bias-max=5"' \
    "$ALIBI" train "${small[@]}" --position alibi:bias-max=5 --out own --resume

# A preset, with an option passed on, is its pattern.
check "hybrid" "$ALIBI" train "${small[@]}" --position hybrid:window=8 --out hybrid
check "its pattern" "$ALIBI" train "${small[@]}" --position 3*rotary:window=8,none:logn --out long
if cmp -s {hybrid,long}/step-00000006/model.safetensors &&
    ! cmp -s {hybrid,pattern}/step-00000006/model.safetensors &&
    grep -qF '"position": "hybrid:window=8"' hybrid/step-00000006/config.json; then
    pass "hybrid:window=8 is a name for its pattern"
else
    fail "hybrid" "not the weights of its pattern"
fi
# Local layers that see most of a training window leave nothing to learn for the others.
while read -r position length notes; do
    rm -rf noted
    check "training $position at $length" "$ALIBI" train "${small[@]}" --steps 2 --warmup 1 \
        --train-length "$length" --position "$position" --no-quiet --out noted
    if [ "$(grep -c "see [0-9]* keys, a quarter or more .* 32: .*try [a-z]*:window=4" stderr)" = \
        "$notes" ]; then
        pass "$notes notes about the window of $position"
    else
        fail "$position" "not $notes notes about its window"
    fi
done << 'END'
reach 32 1
hybrid:window=8 32 1
hybrid:window=8 33 0
hybrid:window=7 32 0
3*rotary:window=64,none 32 0
drope:window=64 32 0
END
# Layers that lose their position late, when the default schedule has almost no rate left.
for how in "drope 1" "drope --schedule wsd --decay-share 0.1 0" "drope:until=0.25 0" "rotary 0"; do
    rm -rf noted
    check "training $how" "$ALIBI" train "${small[@]}" --steps 16 --warmup 1 --no-quiet \
        --out noted --position ${how% *}
    [ "$(grep -c "'drope' ends after step 14, when the .* is 4[.0-9]*% .*; try .* --decay-share 0.1" \
        stderr)" = "${how##* }" ] && pass "${how##* } notes about its rate" ||
        fail "$how" "not ${how##* } notes about its rate"
done
check "presets beside each other" "$ALIBI" compare "${text[@]}" --layers 4 --width 16 --heads 2 \
    --batch 2 --steps 2 --warmup 1 --train-length 32 --methods alibi,reach,hybrid --seeds 1,2 \
    --lengths 32 --eval-tokens 640 --out several
noted=$(grep -o "try [a-z]*:window=4" stderr | tr '\n' ' ')
[ "$noted" = "try reach:window=4 try hybrid:window=4 " ] &&
    pass "have a note each, and not per seed" || fail "compare" "other notes: $noted"
cp -r hybrid cut
rm -r cut/step-00000006
check "a run that lost its last checkpoint" "$ALIBI" train "${text[@]}" --resume --out cut --quiet
if cmp -s {hybrid,cut}/step-00000006/model.safetensors; then
    pass "resumes to the same bytes"
else
    fail "resume" "other weights"
fi

# Use of the model: past its training length, as a stream, token by token.
check "evaluation" "$ALIBI" eval hybrid "${text[@]}" --split valid --lengths 16,64 --tokens 512
check "cut to the last keys" "$ALIBI" eval hybrid "${text[@]}" --split valid --lengths 64 \
    --window 16 --tokens 512
check "one window" "$ALIBI" eval hybrid "${text[@]}" --split valid --lengths 500 --tokens 500 \
    --contiguous --json
window=$(member stdout nll)
check "as a stream" "$ALIBI" eval hybrid "${text[@]}" --split valid --protocol stream \
    --tokens 500 --json
if [ "$window" ] && [ "${window:0:6}" = "$(member stdout nll | head -c 6)" ]; then
    pass "a stream has the loss of one window"
else
    fail "stream" "$(member stdout nll), not $window"
fi
check "generation" "$ALIBI" generate hybrid --prompt "It was" --tokens 100 --temperature 0

# StreamingLLM's cut, of any model at test time, and in training.
check "with sinks" "$ALIBI" eval hybrid "${text[@]}" --split valid --lengths 500 --tokens 500 \
    --contiguous --as-position hybrid:window=8:sinks=4 --json
sinks=$(member stdout nll)
check "with sinks, as a stream" "$ALIBI" eval hybrid "${text[@]}" --split valid \
    --protocol stream --tokens 500 --as-position hybrid:window=8:sinks=4 --json
if [ "${sinks:0:6}" = "$(member stdout nll | head -c 6)" ] && [ "$sinks" != "$window" ]; then
    pass "a stream with sinks has the loss of one window, and not the loss without them"
else
    fail "sinks" "$(member stdout nll), not $sinks; without them $window"
fi
check "training with sinks" "$ALIBI" train "${small[@]}" --out sinks \
    --position rotary:window=8:sinks=2,alibi:window=5:sinks=1
cp -r sinks cut-sinks
rm -r cut-sinks/step-00000006
check "its resume" "$ALIBI" train "${text[@]}" --resume --out cut-sinks --quiet
if cmp -s {sinks,cut-sinks}/step-00000006/model.safetensors; then
    pass "a run with sinks resumes to the same bytes"
else
    fail "resume with sinks" "other weights"
fi
check "generation with sinks" "$ALIBI" generate sinks --prompt "It was" --tokens 100
for stretched in rotary:stretch=yarn alibi:stretch=ntk; do
    expect 2 "'stretch' of '${stretched%%:*}' has no effect without a factor" \
        "$ALIBI" eval hybrid "${text[@]}" --split valid --as-position $stretched
done
expect 2 "'sinks' of 'alibi' has no effect without a window" \
    "$ALIBI" train "${small[@]}" --position alibi:sinks=4 --out no-window
check "scale-invariant" "$ALIBI" train "${small[@]}" --position scale-invariant:tau=5 --out scale
check "its pattern" "$ALIBI" train "${small[@]}" --position rotary:share=0.5:tau=5 --out scales
if cmp -s {scale,scales}/step-00000006/model.safetensors &&
    grep -qF '"position": "scale-invariant:tau=5"' scale/step-00000006/config.json; then
    pass "scale-invariant:tau=5 is a name for its pattern"
else
    fail "scale-invariant" "not the weights of its pattern"
fi
check "its evaluation" "$ALIBI" eval scale "${text[@]}" --split valid --lengths 16,64 --tokens 512
check "its generation" "$ALIBI" generate scale --prompt "It was" --tokens 100
check "learned curves" "$ALIBI" train "${small[@]}" --position kerple,bam --out curves
check "their numbers" "$ALIBI" inspect curves --json
if grep -q '"kerple_p": \[' stdout && grep -q '"kerple_a": \[' stdout &&
    grep -q '"bam_beta_1": \[' stdout; then
    pass "inspect has the numbers of curves"
else
    fail "inspect" "no kerple_p, kerple_a or bam_beta_1"
fi
check "gates" "$ALIBI" train "${small[@]}" --position fox:free=0.5:logn --out gates
check "their reach" "$ALIBI" inspect gates --json
if grep -q '"gate_tokens_0": \[' stdout; then
    pass "inspect has the reach of gates"
else
    fail "inspect" "no gate_tokens_0"
fi
check "a text of a model with gates" "$ALIBI" generate gates --prompt "It was" --tokens 100
expect 2 "leaves no head with gates; use 'none'" "$ALIBI" train "${small[@]}" \
    --position fox:free=1 --out gateless
check "free heads" "$ALIBI" train "${small[@]}" --position alibi-free --out free
check "the same without the name" \
    "$ALIBI" train "${small[@]}" --position alibi:logn:free=0.5 --out half
if cmp -s {free,half}/step-00000006/model.safetensors &&
    grep -qF '"position": "alibi-free"' free/step-00000006/config.json; then
    pass "alibi-free is alibi:logn:free=0.5"
else
    fail "alibi-free" "not the weights of its pattern"
fi
check "their factors" "$ALIBI" inspect free
expect 2 "0.001 of .* heads is less than one" \
    "$ALIBI" train "${small[@]}" --position alibi:free=0.001 --out none
# Positions that end: the checkpoint says what the model has become.
check "drope" "$ALIBI" train "${small[@]}" --position drope:until=0.5 --out drope
if grep -qF '"position": "none"' drope/step-00000006/config.json &&
    grep -qF '"position": "drope:until=0.5"' drope/recipe.json; then
    pass "a model without positions after half of the steps"
else
    fail "drope" "$(grep '"position"' drope/recipe.json drope/step-*/config.json)"
fi
check "which resumes" "$ALIBI" train --resume --out drope
# Another position at test time, with the weights as they are.
held=("${text[@]}" --split valid --lengths 64 --tokens 256 --json)
check "a model as it was trained" "$ALIBI" eval own "${held[@]}"
plain=$(member stdout nll)
check "as itself" "$ALIBI" eval own "${held[@]}" --as-position alibi:bias-max=4
same=$(member stdout nll)
expect 2 "'drope' ends after a share of the training steps, and a test has none: use .*'rotary'" \
    "$ALIBI" eval own "${held[@]}" --as-position drope
check "stretched" "$ALIBI" eval own "${held[@]}" --as-position \
    alibi:bias-max=4:stretch=ntk:factor=8
if [ "$plain" ] && [ "$plain" = "$same" ] && [ "$plain" != "$(member stdout nll)" ] &&
    grep -qF '"as_position": "alibi:bias-max=4:stretch=ntk:factor=8"' stdout; then
    pass "a stretched model differs, and says so"
else
    fail "--as-position" "nll $plain, as itself $same, stretched $(member stdout nll)"
fi
check "two elements that lose an option" "$ALIBI" train "${small[@]}" \
    --position rotary:base=5000,rotary:base=500 --out bases
check "as rotary" "$ALIBI" eval bases "${held[@]}" --as-position rotary
grep -q "lacks ':base=5000:base=500', with which 'bases' was trained" stderr &&
    pass "names the values of both" || fail "two elements" "not both values are named"
check "a model with options of rotary" \
    "$ALIBI" train "${small[@]}" --position rotary:share=0.5:spread --out options
while read -r position wanted; do
    check "as $position" "$ALIBI" eval options "${held[@]}" --as-position "$position"
    found=$(sed -n "s/.*lacks '\(.*\)', with which 'options' was trained.*/\1/p" stderr)
    if [ "$found" = "$wanted" ]; then
        pass "$position lacks '$wanted'"
    else
        fail "$position" "lacks '$found', not '$wanted'"
    fi
done << 'END'
rotary:window=8 :share=0.5:spread
rotary:window=8:share=0.5 :spread
rotary:window=8:share=0.5:spread
rotary:share=1:Spread=false
rotary:window=8:share=0.5,none :spread
none
END
check "generation with it" "$ALIBI" generate own --prompt "It was" --tokens 20 --as-position none
expect 2 "cannot be used with 'kerple': they do not learn the same, as 'position.weight' shows" \
    "$ALIBI" eval own "${held[@]}" --as-position kerple
expect 2 "no effect without stretch" "$ALIBI" eval own "${held[@]}" --as-position alibi:factor=8
check "inspection" "$ALIBI" inspect hybrid
if grep -qF "hybrid:window=8" stdout && grep -qE '^ *logn_3 +0\.[0-9]+ +0\.[0-9]+' stdout; then
    pass "inspect names the pattern"
else
    fail "inspect" "no pattern"
fi

# A comparison of one method with two options, and of patterns; its folders have plain names.
methods=alibi,alibi:bias-max=16,hybrid:window=4,3*rotary:window=8+none
check "a comparison" "$ALIBI" compare "${small[@]}" --methods "$methods" \
    --lengths 16,32 --out comparison
if [ -d comparison/alibi ] && [ -d comparison/alibi-bias-max-16 ] &&
    [ -d comparison/hybrid-window-4 ] && [ -d comparison/3-rotary-window-8-none ] &&
    grep -qF '3*rotary:window=8,none' stdout; then
    pass "a folder for each, and its name in the table"
else
    fail "comparison" "$(ls comparison)"
fi
cp stdout first
check "the same again" "$ALIBI" compare "${small[@]}" --methods "$methods" \
    --lengths 16,32 --out comparison
if cmp -s <(grep -F 'rotary' stdout) <(grep -F 'rotary' first); then
    pass "nothing is trained again"
else
    fail "comparison" "other numbers"
fi
expect 2 "methods: 'alibi' is listed twice" \
    "$ALIBI" compare "${small[@]}" --methods alibi,alibi:bias-max=8 --lengths 16 --out twice

# Models of an experiment: plain names of folders, the pattern in the results.
cat > three.json << 'END'
{
    "experiment": 1,
    "title": "Three positions",
    "texts": { "text": { "about": "any text" } },
    "settings": {
        "layers": 4, "width": 16, "heads": 2, "batch": 2, "train_length": 16, "steps": 4,
        "warmup": 1, "eval_every": 0
    },
    "models": {
        "all": { "settings": { "position": ["rope", "hybrid:window=4", "3*rotary:window=8,none"] } }
    },
    "evaluations": { "windows": { "lengths": [16, 32], "tokens": 320 } },
    "claims": [
        {
            "claim": "They differ by less than ten times.",
            "holds_if": [
                {
                    "is": { "model": "hybrid-window-4", "length": 32 },
                    "below": { "model": "3-rotary-window-8-none", "length": 32 }, "within": 900
                }
            ]
        }
    ]
}
END
check "an experiment" "$ALIBI" reproduce three.json "${text[@]}" --quiet --out experiment
if [ -d experiment/models/hybrid-window-4-seed-1 ] &&
    grep -q '^rope,1,rotary,16,' experiment/results.csv &&
    grep -qF '3-rotary-window-8-none,1,"3*rotary:window=8,none",16,' experiment/results.csv; then
    pass "a folder for each, and its pattern in the table"
else
    fail "experiment" "$(ls experiment)"
fi

# Patterns that cannot be: the element and the choices.
expect 2 "position 'alibbi:window=4': unknown position method 'alibbi': did you mean 'alibi'" \
    "$ALIBI" train "${small[@]}" --position none,alibbi:window=4
expect 2 "position 'rotary:windw=4': 'rotary' has no option 'windw': did you mean 'window'" \
    "$ALIBI" train "${small[@]}" --position none,rotary:windw=4
expect 2 "position 'rotary:window=x': window: 'x' is not a whole number" \
    "$ALIBI" train "${small[@]}" --position rotary:window=x
expect 2 "a pattern of 5 layers, but the model has 4" \
    "$ALIBI" train "${small[@]}" --position 4*rotary,none
expect 2 "'hybrid' has no option 'every': it is 3[*]rotary:window=64,none:logn" \
    "$ALIBI" train "${small[@]}" --position hybrid:every=2
expect 2 "a pattern of 4 layers, but the model has 1" \
    "$ALIBI" train "${tiny[@]}" --position hybrid
expect 2 "'sinusoidal' acts once" "$ALIBI" train "${small[@]}" --position sinusoidal,none
finish
