#!/bin/bash
# Experiments: verdicts, resuming after any kill, folders without checkpoints, broken files.
. "$(dirname "$0")/lib.sh"

has() { # what, extended pattern, file
    if grep -qE -- "$2" "$3"; then pass "$1"; else fail "$1" "not in $3"; fi
}
holds() { # what, COMMAND...
    local what=$1
    shift
    if "$@"; then pass "$what"; else fail "$what" "it does not"; fi
}

cat > tiny.json << 'END'
{
    "experiment": 1,
    "title": "Two tiny models",
    "numbers": { "L": 16 },
    "seeds": [1, 2],
    "texts": { "text": { "about": "any text", "tokenizer": "bpe", "vocab": 300 } },
    "settings": {
        "layers": 1, "width": 16, "heads": 2, "step_tokens": 64, "train_tokens": 6400,
        "warmup": 5, "lr": 0.02, "save_every": 40, "eval_every": 0
    },
    "models": {
        "methods": { "settings": { "position": ["alibi", "sinusoidal"], "train_length": ["L"] } }
    },
    "evaluations": {
        "windows": { "lengths": ["L", "2L", "4L"], "tokens": 640 },
        "sliding": { "protocol": "sliding", "lengths": ["L"], "tokens": 640 },
        "stream": { "protocol": "stream", "tokens": 500, "models": ["alibi-{L}"] },
        "targets": { "kind": "targets", "lengths": ["L/2", "L", "4L"], "blocks": 30 },
        "attention": { "kind": "attention", "lengths": ["L", "4L"], "models": ["alibi-{L}"] },
        "tasks": { "kind": "tasks", "tasks": ["latest", "markov"], "cases": 20,
                   "lengths": ["L", "4L"] }, "cost": { "kind": "stream", "lengths": ["2L", "8L"] }
    },
    "claims": [
        {
            "claim": "ALiBi trained at {L} holds at {4L}.",
            "where": "Figure 1",
            "paper": "18.3 and 19.7",
            "holds_if": [
                {
                    "is": { "model": "alibi-{L}", "length": "4L", "paper": 18.3 },
                    "below": { "model": "alibi-{L}", "length": "L", "paper": 19.7 },
                    "within": 40
                }
            ]
        },
        {
            "claim": "It is ten times as bad.",
            "holds_if": [
                {
                    "is": { "model": "alibi-{L}", "length": "4L" },
                    "above": { "model": "alibi-{L}", "length": "L" },
                    "by": 900
                }
            ]
        },
        {
            "claim": "A bound is a number.",
            "holds_if": [ { "is": { "model": "alibi-{L}", "length": "L" }, "below": 1e6 } ]
        },
        {
            "claim": "ALiBi does not use text farther than {L}.",
            "evaluation": "targets",
            "holds_if": [
                {
                    "is": { "model": "alibi-{L}", "length": "4L", "condition": "swapped" },
                    "below": { "model": "alibi-{L}", "length": "4L", "condition": "own" },
                    "within": 90
                },
                {
                    "is": { "model": "alibi-{L}", "length": "4L", "condition": "window" },
                    "below": { "model": "alibi-{L}", "length": "L", "targets": "all" },
                    "within": 90
                }
            ]
        },
        {
            "claim": "Repeats of far text are ten times as hard as others.",
            "evaluation": "targets",
            "holds_if": [
                {
                    "is": { "model": "alibi-{L}", "length": "4L", "targets": "repeats" },
                    "above": { "model": "alibi-{L}", "length": "4L", "targets": "others" },
                    "by": 900
                }
            ]
        },
        {
            "claim": "ALiBi finds the latest write at {L}.",
            "evaluation": "tasks",
            "holds_if": [
                { "is": { "model": "alibi-{L}", "length": "L", "task": "latest" }, "above": 0.95 }
            ]
        },
        {
            "claim": "And at {4L}.",
            "evaluation": "tasks",
            "holds_if": [
                { "is": { "model": "alibi-{L}", "length": "4L", "task": "latest" }, "above": 0.95 }
            ]
        },
        {
            "claim": "Its cache grows with the context.",
            "evaluation": "cost",
            "holds_if": [
                {
                    "is": { "model": "alibi-{L}", "length": "8L", "quantity": "cache_bytes" },
                    "above": { "model": "alibi-{L}", "length": "2L", "quantity": "cache_bytes" },
                    "by": 50
                }
            ]
        }
    ],
    "tiers": {
        "cpu": { "about": "one seed", "seeds": [1], "evaluations": { "stream": null } },
        "quick": { "numbers": { "L": 8 }, "settings": { "train_tokens": 640 } }
    }
}
END
run=("$ALIBI" reproduce tiny.json "${text[@]}" --tier full --quiet)

check "its plan" "${run[@]}" --out whole --plan --time
has "models, trainings, tokens and time" '^alibi-16 +2 +[0-9.k]+ +6.4k +.* [0-9]+:[0-9]+$' stdout
has "the sum" '^all +4 +25.6k ' stdout
has "the disk" '^disk for checkpoints: .*, or ' stdout
has "and whose memory it is" '^memory: of one training, in fp32 on the CPU, which has .* free$' stdout
check "the plan as JSON" "${run[@]}" --out whole --plan --json
holds "is JSON" is_json stdout
has "with the device" '"device": "cpu"' stdout
has "and its memory" '"available_bytes": [1-9]' stdout
disk=$(grep -oE '"disk": *[0-9]+' stdout | grep -oE '[0-9]+$')
discarded=$(grep -oE '"disk_discarded": *[0-9]+' stdout | grep -oE '[0-9]+$')
holds "discarding never needs more" test "$discarded" -le "$disk"
expect 2 "needs --plan" "${run[@]}" --out whole --time
expect 2 "'book=b.txt': the experiment has no text of that name; its text is 'text'" \
    "$ALIBI" reproduce tiny.json book=b.txt --out whole
holds "a plan makes nothing" test ! -e whole
check "an experiment" "${run[@]}" --out whole
cp stdout table
has "a verdict" '^1\. holds: ALiBi trained at 16 holds at 64\. .Figure 1' table
has "with the paper's numbers" 'paper: 18\.3' table
has "and its contrary" '^2\. does not hold: ' table
has "and one against a number" '^3\. holds: ' table
has "a table per evaluation" '^sliding: ' table
has "and one against other text, and a window" '^4\. holds: ALiBi does not use' table
has "and one of repeats against others" '^5\. does not hold: Repeats' table
has "fixed targets" '^alibi-16 +8 +[0-9.]+ ±[0-9.]+ +-?[0-9.]+ ±[0-9.]+ +–$' table
has "and what its columns are" '^gain: nll with L tokens of context - nll with these; swapped: ' table
has "with their controls, as wide as the terminal" '^ +64( +-?[0-9.]+ ±[0-9.]+){3}$' table
has "the rest in a second part" '^ +64( +-?[0-9.]+ ±[0-9.]+){2}$' table
has "and a verdict" '^alibi-16 +(breaks|holds|uses(, [a-z0-9 ]+)?|–) +[0-9.]+( +-?[0-9.]+)+$' table
has "by rules that it prints" '^  breaks  the loss with the longest context is above ' table
has "and one of a score" '^6\. does not hold: ALiBi finds' table
has "and none past what was learned" '^7\. not shown: And at 64' table
has "of which it says why" 'the task was not learned' table
has "and one of a cost" '^8\. holds: Its cache grows' table
has "the cost of a token by context" '^cost: the cost of a token by context, on ' table
has "in time and memory" \
    '^alibi-16 +32 +[0-9.]+K? ±<?[0-9.]+ +[0-9.]+ ±<?[0-9.]+ +[0-9.]+ KiB +[0-9.]+ KiB$' table
has "beside the verdict" '^alibi-16 .* [0-9.]+ times ' table
has "tasks" '^tasks: score of latest by length, 20 cases each, chance 0' table
has "that are not learned" '^alibi-16 +[0-9.]+( ±[0-9.]+)? +not learned$' table
has "attention by distance" '^alibi-16 +64 +[0-9.]+ +23\.8 +[0-9.]+% +66%$' table
for file in results.json results.csv report.html experiment.json texts/text.json; do
    holds "writes $file" test -s whole/$file
done
holds "results.json is JSON" is_json whole/results.json
has "with the cost of a stream" \
    '"evaluation": "cost".*"decode_seconds": [0-9.e-]+,.*"cache_bytes"' whole/results.json
has "with verdicts" '"verdict": "does not hold"' whole/results.json
holds "a line per model, seed, evaluation and length" \
    test "$(grep -E '^(alibi|sinusoidal)-16,[12],' whole/results.csv |
        grep -vcE ',(targets|tasks|cost),')" = 18
holds "and one per series" \
    test "$(grep -cE '^(alibi|sinusoidal)-16,[12],.*,targets,' whole/results.csv)" = 60
has "of a context, a condition and a kind" \
    '^alibi-16,2,alibi,16,targets,targets,64,.*,swapped,repeats,{7}$' whole/results.csv
has "and one per task and length" '^alibi-16,2,alibi,16,tasks,tasks,16,.*,latest,20,[0-9.e-]+,' \
    whole/results.csv
holds "and one per cost, length and seed" \
    test "$(grep -cE '^(alibi|sinusoidal)-16,[12],.*,cost,cost,' whole/results.csv)" = 24
has "with its error" \
    '^alibi-16,2,alibi,16,cost,cost,32,.*,,decode_seconds,[0-9.e-]+,[0-9.e-]+$' whole/results.csv
has "the page has the scores of tasks" '<td class="score" style="--score:[0-9]+%">0\.' \
    whole/report.html
has "by depth" '<th scope="row">80–100%</th>' whole/report.html
has "and losses against the lowest" '<small>Bayes: 0\.[0-9]+</small>' whole/report.html
has "results.json has the verdict" '"reach": "(breaks|holds|uses)"' whole/results.json
holds "the vocabulary is learned once and kept" test -s whole/texts/text/tokenizer.json

# What does not depend on the machine's speed.
numbers() {
    grep -oE '"(nll|ppl|value|log_ratio|standard_error|gain|swapped|shares|score)": *[^,}]*' \
        "$1/results.json"
}
same_numbers() { # what, folder
    if cmp -s <(numbers "$2") <(numbers whole); then pass "$1"; else fail "$1" "$2 differs"; fi
}
check "the same command again" "${run[@]}" --out whole
holds "prints the same at once" cmp -s stdout table
check "the plan of what is done" "${run[@]}" --out whole --plan
has "has no trainings" '^all +0 ' stdout
mkdir -p more && sed 's/"lengths": \["L"\], "tokens": 640/"lengths": ["2L"], "tokens": 640/' \
    tiny.json > more/tiny.json
check "the plan of a new test" "$ALIBI" reproduce more/tiny.json "${text[@]}" --tier full --quiet \
    --out whole --plan --json
holds "trains nothing again" grep -qE '^  "train_tokens": 0(\.0)?,?$' stdout
has "and has the tests of both seeds" '"test_tokens": 5120' stdout
check "as JSON" "${run[@]}" --out whole --json
holds "prints results.json" cmp -s stdout whole/results.json

# Stopped anywhere: with SIGTERM, or by a file operation that fails.
"${run[@]}" --out killed > stdout 2> stderr &
pid=$!
wait_for test -s killed/models/alibi-16-seed-1/log.jsonl
kill -TERM $pid 2> /dev/null
wait $pid
for n in 30 90 150 220 300 400; do
    ALIBI_FAULT=file:$n "${run[@]}" --out killed > /dev/null 2>&1
done
check "killed several times and resumed" "${run[@]}" --out killed
same_numbers "gives the same numbers" killed
without_costs() {
    sed -E '/^report: /d; / KiB +[0-9.]+ KiB$/d; s/[0-9.e+]+ times//; s/ +[0-9.]+ [KM]iB//; s/ +/ /g' \
        "$1"
}
holds "and the same text" cmp -s <(without_costs stdout) <(without_costs table)

check "a comparison" "$ALIBI" compare "${text[@]}" --methods alibi --steps 4 --train-length 16 \
    --lengths 16 --eval-tokens 64 --layers 1 --width 16 --heads 2 --out compared --quiet

# Checkpoints are not needed any more, and the small files suffice elsewhere.
check "without checkpoints" "${run[@]}" --out thin --discard-checkpoints --only alibi-16
holds "they are gone" test -z "$(ls -d thin/models/*/step-* 2> /dev/null)"
has "what is missing is not shown" 'not shown|holds' stdout
expect 3 "'thin' holds no checkpoint: it is an experiment, of which no model has" "$ALIBI" eval thin
expect 3 "'whole' holds no checkpoint, but models that do; give one: 'whole/models/alibi-16-s" \
    "$ALIBI" eval whole
mkdir elsewhere
(cd thin && find . -name '*.json' -size -200k | cpio -pdm --quiet ../elsewhere 2> /dev/null ||
    cp -r . ../elsewhere)
rm -rf elsewhere/texts/text
check "continued elsewhere" "${run[@]}" --out elsewhere
same_numbers "gives the same numbers" elsewhere
mv elsewhere/texts texts
expect 3 "'elsewhere/texts/text.json', which describes the text of 'elsewhere/models/al" \
    "$ALIBI" report elsewhere
mv texts elsewhere
rm -rf elsewhere/texts/text elsewhere/models/*/step-*
check "and needs neither tokenizer nor checkpoints to report" "${run[@]}" --out elsewhere
same_numbers "gives the same numbers" elsewhere

# Other commands know such a folder.
cp thin/report.html page
check "the page again" timeout 60 "$ALIBI" report thin --watch
holds "of a run that did what --only asked for ends at once" \
    test "$(cat stdout)" = "report: thin/report.html"
holds "is the same" cmp -s thin/report.html page
rm -r elsewhere/models/sinusoidal-16-seed-2
check "of one that lacks a model" "$ALIBI" report elsewhere
has "says so" 'report.html .unfinished' stdout
check "inspect" "$ALIBI" inspect whole
has "shows verdicts" '^  1 +holds: ALiBi trained at 16 holds at 64' stdout

# Tiers: cpu by default on the CPU; a folder keeps its own.
check "the tier cpu" "$ALIBI" reproduce tiny.json "${text[@]}" --out tier --quiet
has "is the default here" 'Two tiny models .tier cpu' stdout
has "one seed proves less" '^1\. holds in this one seed: ' stdout
expect 3 "'tier' holds the tier 'cpu' .* and this is 'full'" "${run[@]}" --out tier
expect 2 "has no tier 'gpu'; it has full" "$ALIBI" reproduce tiny.json --tier gpu --out none
expect 2 "has no tier 'papr'; it has full, paper and cpu" \
    "$ALIBI" reproduce reach-confirm --tier papr --out none
for tier in full paper; do # which may not fit this device
    run "$ALIBI" reproduce reach-confirm --tier $tier --plan --quiet --out none
    has "reach-confirm, $tier, has kerple and a ceiling" '^kerple-1024 +1 .*300M ' stdout
    has "trained on as many tokens" '^reach-ceiling +1 .*300M ' stdout
done
check "numbers of a tier" "$ALIBI" reproduce tiny.json "${text[@]}" --tier quick --quiet \
    --only sinusoidal-8 --out quick
has "have their lengths" '^sinusoidal-8,1,sinusoidal,8,windows,nonoverlapping,32,' quick/results.csv

# Other settings and other texts are refused; more evaluations are welcome.
mkdir -p other
cp whole/experiment.json entered
refused() { # pattern, what, ARGUMENT...
    local pattern=$1 what=$2
    shift 2
    expect 3 "$pattern" "$ALIBI" reproduce "$@" --tier full --quiet
    holds "$what leaves experiment.json" cmp -s whole/experiment.json entered
}
sed 's/0\.02/0.03/' tiny.json > other/tiny.json
refused "lr 0.02.* and the experiment has 0.03" "another rate" \
    other/tiny.json "${text[@]}" --out whole
sed 's/300/310/' tiny.json > other/tiny.json
refused "text.json' is of a text with vocab 300, and the experiment has 310" "another vocabulary" \
    other/tiny.json "${text[@]}" --out whole
cp tiny.json other.json
refused "'whole' holds the experiment 'tiny', and this is 'other'" "another experiment" \
    other.json "${text[@]}" --out whole
printf 'a line of text that is there to be read, number %d\n' $(seq 900) > own.txt
refused "holds results of another text 'text' .built-in text" "another text" tiny.json own.txt \
    --out whole
refused "'no-such.txt'" "a text that is not there" tiny.json no-such.txt --out whole
printf 'caf\351\n' > latin.txt
: > none.txt
for bad in none latin; do
    expect 3 "'$bad.txt' is (empty|not UTF-8)" "$ALIBI" reproduce tiny.json $bad.txt --tier full \
        --out refused --quiet
    holds "$bad.txt leaves no folder" [ ! -e refused ]
done
mkdir refused
expect 3 "'none.txt' is empty" "$ALIBI" reproduce tiny.json none.txt --tier full --out refused \
    --quiet
holds "a folder that was there stays" [ -d refused ]
rm -r refused
expect 3 "'none.txt' is empty" "$ALIBI" reproduce tiny.json own.txt --valid none.txt --tier full \
    --out refused --quiet
holds "a tokenizer that was learned stays" [ -e refused/texts/text/tokenizer.json ]
rm -r refused
refused "holds results of another text" "another built-in text" tiny.json "${text[@]}" \
    --text-seed 99 --out whole
rm -rf few && cp -r whole few && rm -r few/models/alibi-16-seed-1
expect 3 "holds results of another text 'text' .built-in text" "$ALIBI" reproduce tiny.json \
    own.txt --tier full --out few --quiet
check "a text of one's own" "$ALIBI" reproduce tiny.json own.txt --tier full --out own --quiet \
    --only alibi-16
check "named" "$ALIBI" reproduce tiny.json text=own.txt text.valid=own.txt --tier full \
    --out own-valid --quiet --only alibi-16
check "documents that are too short" "$ALIBI" reproduce tiny.json own.txt --document line \
    --tier full --out lines --only alibi-16
holds "are named once" test "$(grep -c "targets: no value, .* a context of 64 needs 68" stderr)" = 1
has "and nothing is claimed of them" '^4\. not measured: ' stdout
has "the rest is measured" '^alibi-16 .*±' stdout
paste -d' ' - - - < own.txt > longer.txt
check "documents that have room for some" "$ALIBI" reproduce tiny.json longer.txt --document line \
    --tier full --out longer --only alibi-16
has "are used for those" 'targets: no value for contexts above 16, ' stderr
has "which have values" '^alibi-16 +8 +[0-9.]+ ±' stdout
has "and the others none" '^ +64 +– +– +– ' stdout
own=("$ALIBI" reproduce tiny.json own.txt --tier full --quiet --only alibi-16)
cp own.txt same.txt
check "the same text by another name" "$ALIBI" reproduce tiny.json same.txt --tier full --quiet \
    --only alibi-16 --out own
has "is still the first" '"path": "own.txt"' own/results.json
has "with its bytes" "\"files_bytes\": $(stat -c %s own.txt)," own/results.json
sed -i 1d same.txt
expect 3 "holds results of another text 'text' .own.txt" "$ALIBI" reproduce tiny.json same.txt \
    --tier full --quiet --only alibi-16 --out own
expect 3 "holds results of the text 'text' .own.txt.* and none was given" "$ALIBI" reproduce \
    tiny.json --tier full --quiet --only alibi-16 --out own
expect 3 "with another --valid" "${own[@]}" --valid same.txt --out own
expect 3 "with another --valid" "${own[@]}" --out own-valid
expect 3 "or it was read in another way" "${own[@]}" --document line --out own

# A folder has one use.
expect 3 "cannot reproduce in 'compared': it holds a comparison" "${run[@]}" --out compared
expect 3 "cannot reproduce in 'whole/models/alibi-16-seed-1': it holds a training run" \
    "${run[@]}" --out whole/models/alibi-16-seed-1
expect 3 "cannot train in 'whole': it holds an experiment" "$ALIBI" train "${text[@]}" --steps 1 \
    --out whole
expect 3 "cannot compare in 'whole': it holds an experiment" "$ALIBI" compare "${text[@]}" \
    --steps 1 --out whole

# A tokenizer that nothing depends on yet is learned again when something else is asked for.
rm -rf stopped && mkdir -p stopped/texts/text
cp own/experiment.json stopped/
cp own/texts/text/tokenizer.json stopped/texts/text/
sed 's/300/280/' tiny.json > other/tiny.json
check "another one after a stop" "$ALIBI" reproduce other/tiny.json own.txt --tier full --quiet \
    --only alibi-16 --out stopped
has "is learned" '"vocab": 280,' stopped/texts/text.json

# Two texts: one may have the tokenizer of the other, and a result belongs to its text.
printf 'other words are there to be counted and read, by number %d\n' $(seq 900) > second.txt
cat > two.json << 'END'
{
    "experiment": 1,
    "texts": {
        "a": { "tokenizer": "bpe", "vocab": 280 },
        "b": { "tokenizer_of": "a" },
        "c": { "tokenizer": "bpe", "vocab": 280 }
    },
    "settings": { "layers": 1, "width": 16, "heads": 2, "batch": 4, "train_length": 16,
                  "steps": 20, "eval_every": 0 },
    "models": { "alibi": { "text": "a", "settings": { "position": "alibi" } } },
    "evaluations": { "windows": { "lengths": [16], "tokens": 320, "text": "b" } }
}
END
two=(a=own.txt b=second.txt c=second.txt --quiet)
check "evaluation on another text" "$ALIBI" reproduce two.json "${two[@]}" --out two
cp stdout table
mkdir -p changed
sed 's/"text": "b"/"text": "a"/' two.json > changed/two.json
check "changed to the model's own" "$ALIBI" reproduce changed/two.json "${two[@]}" --out two
differs() { ! cmp -s "$1" "$2"; }
holds "is measured again" differs stdout table
sed 's/"text": "b"/"text": "c"/' two.json > changed/two.json
expect 3 "model 'alibi': .*has another tokenizer .* than the model" "$ALIBI" reproduce \
    changed/two.json "${two[@]}" --out other-tokenizer
holds "and nothing was trained" test -z "$(ls other-tokenizer/models)"
sed 's/"tokenizer_of": "a"/"tokenizer_of": "c"/' two.json > changed/two.json
expect 3 "'texts.b.tokenizer_of': there is no earlier text 'c'" "$ALIBI" reproduce \
    changed/two.json "${two[@]}" --out none
echo '{ "init": "whole/models/alibi-16-seed-1" }' > changed/start.json
sed 's/"layers"/"recipe": ".\/start.json", "layers"/' two.json > changed/two.json
expect 3 "'settings.recipe': .*start.json' has 'init', which does not apply" "$ALIBI" reproduce \
    changed/two.json "${two[@]}" --out none

# The folder has the members of a recipe, and can be moved to where there is none.
echo '{ "recipe": 1, "seed": 3, "layers": 2, "ff_width": 24 }' > changed/own.json
sed 's/"layers"/"recipe": ".\/own.json", "layers"/' two.json > changed/two.json
check "settings that start from a recipe" "$ALIBI" reproduce changed/two.json "${two[@]}" \
    --out from-recipe
mv from-recipe moved
mv changed/own.json .
check "the report of a folder that was moved" "$ALIBI" report moved
has "has the recipe's settings" '"ff_width": 24' moved/experiment.json
has "but those of the experiment where both have one" '"layers": 1' moved/experiment.json
mv own.json changed
touch moved/now
check "continued there" "$ALIBI" reproduce changed/two.json "${two[@]}" --out moved
holds "nothing is trained again" test -z "$(find moved/models -name result.json -newer moved/now)"

# A plan estimates what tests of a whole text will read.
sed 's/"tokens": 320, "text": "b"/"tokens": 0/' two.json > changed/two.json
plan=("$ALIBI" reproduce changed/two.json --plan --quiet --out none)
check "the plan of a whole text" "${plan[@]}" a=own.txt
has "is an estimate" 'the tests read about [0-9.k]+ more, an estimate from the sizes' stdout
check "with a validation text" "${plan[@]}" a=own.txt a.valid=own.txt --json
has "says so" '"test_estimated": true' stdout
holds "counts four bytes for a token" test "$(grep -oE '"test_tokens": *[0-9]+' stdout |
    grep -oE '[0-9]+$' | tail -1)" = $(($(stat -c %s own.txt) / 4))
gzip -c own.txt > own.txt.gz
check "of a compressed text" "${plan[@]}" a=own.txt.gz
has "it does not know" 'the tests read 0 more, not counting whole texts' stdout

# Added lengths are measured; the results of other evaluations stay.
sed 's/\["L"\], "tokens"/["L", "2L"], "tokens"/
    s/"stream": { "protocol"/"long": { "lengths": ["8L"], "tokens": 640 }, &/' \
    tiny.json > other/tiny.json
windows() { grep '"evaluation": "windows"' whole/models/*/result.json; }
windows > table
check "another length is added" "$ALIBI" reproduce other/tiny.json "${text[@]}" --tier full \
    --out whole --quiet
holds "and what was measured stays" cmp -s <(windows) table
holds "and evaluated" \
    test "$(grep -cE '^(alibi|sinusoidal)-16,[12],.*,sliding,' whole/results.csv)" = 8

# A training whose loss is not finite ends without a value; the others are trained.
cat > wild.json << 'END'
{
    "experiment": 1,
    "texts": { "text": {} },
    "settings": { "layers": 1, "width": 16, "heads": 2, "batch": 4, "train_length": 16,
                  "steps": 60, "eval_every": 0, "clip": 0, "warmup": 0, "optimizer": "nesterov" },
    "models": { "wild": { "settings": { "lr": 1000 } }, "tame": { "settings": { "lr": 0.01 } } },
    "evaluations": { "windows": { "lengths": [16], "tokens": 320 },
                     "targets": { "kind": "targets", "lengths": [16, 64], "blocks": 10 },
                     "attention": { "kind": "attention", "lengths": [16] } },
    "claims": [
        { "claim": "It has learned.",
          "holds_if": [ { "is": { "model": "wild", "length": 16 }, "below": 1e6 } ] }
    ]
}
END
check "a loss that is not finite" "$ALIBI" reproduce wild.json own.txt --out wild
has "is named" 'warning: wild: .*not finite.*; it has no value' stderr
has "the others are measured" '^tame[ †]+[0-9.]+±' stdout
has "nothing is claimed of it" '^1. not measured' stdout
has "fixed targets of the others" '^tame +16 +[0-9.]+ ±' stdout
holds "and none of it" test "$(grep -cE '^wild +16 ' stdout)" = 0
cp stdout table
check "again" "$ALIBI" reproduce wild.json own.txt --out wild --quiet
holds "it is not tried again" cmp -s stdout table

# The protocols of other programs: the numbers that eval has, usable in claims, their rules named.
cat > protocols.json << 'END'
{
    "experiment": 1,
    "texts": { "text": { "tokenizer": "bpe", "vocab": 300 } },
    "settings": { "layers": 1, "width": 16, "heads": 2, "batch": 4, "train_length": 16,
                  "warmup": 5, "lr": 0.02, "steps": 100, "eval_every": 0 },
    "models": { "alibi": {}, "learned": { "settings": { "position": "learned" } } },
    "evaluations": {
        "guide": { "protocol": "stride", "lengths": [16, 32], "stride": 8, "tokens": 400 },
        "llama": { "protocol": "llama.cpp", "lengths": [16, 64] },
        "harness": { "protocol": "rolling", "lengths": [16], "tokens": 500 }
    },
    "claims": [
        {
            "claim": "The program hardly matters.",
            "holds_if": [
                {
                    "is": { "model": "alibi", "evaluation": "harness", "length": 16 },
                    "below": { "model": "alibi", "evaluation": "llama", "length": 16 },
                    "within": 300
                }
            ]
        }
    ]
}
END
check "protocols of other programs" "$ALIBI" reproduce protocols.json "${text[@]}" --out protocols
has "in a claim" '^1. holds in this one seed: ' stdout
has "their stride" '^Protocol stride, stride 8\. First tokens: ' stdout
has "a length without a value" '^learned: no value at length 64' stderr
has "their rules on the page" 'Protocol rolling\. First tokens: a document begins' \
    protocols/report.html
has "and for programs" '"normaliser": "scored tokens; words and bytes of the documents"' \
    protocols/results.json
has "and in the table" ',"a chunk begins with the begin or end token.*",scored tokens,{9}$' \
    protocols/results.csv
as_eval() { # evaluation, eval's options
    "$ALIBI" eval protocols/models/alibi-seed-1 "${text[@]}" --split valid --quiet --json "${@:2}" |
        grep -B1 '"standard_error"' | grep -oE '"nll": *[0-9]\.[0-9]{12}' > stdout
    holds "$1 has eval's numbers" cmp -s stdout \
        <(grep "^alibi,1,.*,$1," protocols/results.csv | cut -d, -f10 |
            sed -E 's/^(.{14}).*/"nll": \1/')
}
as_eval guide --protocol stride --stride 8 --lengths 16,32 --tokens 400
as_eval llama --protocol llama.cpp --lengths 16,64
as_eval harness --protocol rolling --lengths 16 --tokens 500
foreign() { # pattern, sed program
    sed -E "$2" protocols.json > broken.json
    expect 3 "$1" "$ALIBI" reproduce broken.json "${text[@]}" --out broken --quiet
}
foreign "'evaluations.harness.protocol': one of nonoverlapping, .*rolling is expected" \
    's/"rolling"/"roling"/'
foreign "'evaluations.llama.lengths': protocol llama.cpp scores nothing at length 2" 's/16, 64/2/'
foreign "'evaluations.llama.stride': only the protocols sliding and stride" \
    's/"llama.cpp", /&"stride": 8, /'
foreign "'evaluations.llama.block': protocol llama.cpp reads .* without blocks" \
    's/"llama.cpp", /&"block": 64, /'
holds "nothing was made" test ! -e broken
foreign "evaluation 'llama': .*at length 64 takes 127 tokens, there are 100" \
    's/16, 64\]/&, "tokens": 100/'
rm -rf broken

# Costs belong to no model, and need no training.
cat > speed.json << 'END'
{
    "experiment": 1,
    "texts": { "text": {} },
    "settings": { "layers": 1, "width": 16, "heads": 2, "batch": 4, "train_length": 16 },
    "models": { "methods": { "settings": { "position": ["alibi", "sinusoidal"] } } },
    "evaluations": { "speed": { "kind": "speed", "lengths": [16, 32] } },
    "claims": [
        {
            "claim": "The memory of sinusoidal embeddings is half of ALiBi's.",
            "holds_if": [
                {
                    "is": { "model": "sinusoidal", "length": 32, "quantity": "train_memory" },
                    "below": { "model": "alibi", "length": 32, "quantity": "train_memory" },
                    "by": 100
                }
            ]
        }
    ]
}
END
check "its plan" "$ALIBI" reproduce speed.json --out costs --quiet --plan --time --json
has "has time for them" '"speed_seconds": [0-9]' stdout
check "and not if they are not selected" \
    "$ALIBI" reproduce speed.json --out costs --quiet --plan --time --json --only alibi
has "has none" '"speed_seconds": 0' stdout
check "costs that are not selected" "$ALIBI" reproduce speed.json --out costs --quiet --only alibi
holds "are not measured" test ! -e costs/speed.json
check "an experiment of costs" "$ALIBI" reproduce speed.json --out costs --quiet --only speed
has "prints speed and memory" '^sinusoidal +32 +[0-9.KM]+ ±.*% +[0-9.]+ [KM]iB' stdout
has "judges them" '^1. does not hold: ' stdout
has "results.csv has them, of no seed" \
    '^alibi,,alibi,16,speed,speed,32,.*,,train_seconds,[0-9.e-]+,[0-9.e-]+$' costs/results.csv
has "and the memory" '^alibi,,alibi,16,speed,speed,32,.*,,train_memory,[0-9]+.*,$' costs/results.csv
holds "trains nothing" test -z "$(ls costs/models)"
cp stdout table
check "again" "$ALIBI" reproduce speed.json --out costs --quiet
holds "measures nothing again" cmp -s stdout table
at_16() { grep -E '"model": "alibi", "length": 16,' costs/speed.json; }
at_16 > table
sed 's/16, 32/16, 32, 64/' speed.json > other/speed.json
check "another length" "$ALIBI" reproduce other/speed.json --out costs --quiet
holds "is measured with all others" test "$(grep -c '"model": ' costs/speed.json)" = 6
at_16 > stdout
holds "in the same rounds" differs stdout table

# A model that does not fit has no time.
cat > large.json << 'END'
{
    "experiment": 1,
    "texts": { "text": {} },
    "settings": { "layers": 1, "width": 16, "heads": 2, "batch": 4, "steps": 4 },
    "models": { "small": {}, "large": { "settings": { "layers": 64, "width": 32768 } } },
    "evaluations": { "windows": { "lengths": [128], "tokens": 640 },
                     "speed": { "kind": "speed", "models": ["large"], "lengths": [128] } },
    "claims": []
}
END
run "$ALIBI" reproduce large.json --out large --quiet --plan --time
has "a model that fits has a time" '^small +1 .* 0:[0-9]+$' stdout
has "one that does not has none" '^large +1 .* [0-9.]+ TiB +-$' stdout
has "and the sum says so" '^the total time excludes the models that do not fit$' stdout
has "what fits is said by the error" 'a model does not fit in the .*iB of the device' stderr
holds "with its exit code" test "$code" = 4
run "$ALIBI" reproduce large.json --out large --quiet --plan --time --json
has "nor in JSON" '"seconds": null' stdout
holds "which has the same exit code" test "$code" = 4
run "$ALIBI" reproduce large.json --out large --quiet --plan --time --only speed
has "nor for evaluations of speed" '^large +0 .* [0-9.]+ TiB +-$' stdout
has "and without any that fits the sum has none" '^all +0 +0 +-$' stdout

# Tasks among the windows of training: learned at L, scored past it, their shares in the settings.
cat > mixed.json << 'END'
{
    "experiment": 1,
    "texts": { "text": {} },
    "settings": { "layers": 2, "width": 32, "heads": 4, "batch": 16, "train_length": 64,
                  "steps": 700, "warmup": 50, "lr": 0.005, "save_every": 300, "eval_every": 0,
                  "train_slopes": true },
    "models": { "alibi": { "settings": { "mix": "task:markov=0.7,task:latest=0.1" } } },
    "evaluations": {
        "windows": { "lengths": [64], "tokens": 640 },
        "tasks": { "kind": "tasks", "tasks": ["markov"], "lengths": [64, 256], "cases": 50 }
    },
    "claims": [
        { "claim": "The chain is used.", "evaluation": "tasks",
          "holds_if": [ { "is": { "model": "alibi", "length": 256 }, "above": 0.9 } ] }
    ]
}
END
mixed=("$ALIBI" reproduce mixed.json own.txt --quiet)
check "tasks in the training" "${mixed[@]}" --out mixed
has "are learned, and have scores past it" '^alibi +0\.9[0-9]+ ±[0-9.]+ +0\.9' stdout
has "which a claim compares" '^1\. holds in this one seed' stdout
has "the loss of the chain has Bayes' beside it" '^128 to 255 +0\.[0-9]{4} +0\.[0-9]{4}$' stdout
has "slopes that were learned are in the results" \
    '"name": "slopes", "place": -1, "heads": \[[0-9.e-]+, [0-9.e-]+, [0-9.e-]+, [0-9.e-]+\]' \
    mixed/results.json
has "and are dots on the page" '<circle class="dot"' mixed/report.html
has "the shares are in the results" '"mix": \{ "markov": 0.7, "latest": 0.1 \}' mixed/results.json
cp stdout table
ALIBI_FAULT=file:60 "${mixed[@]}" --out resumed > /dev/null 2>&1
check "stopped and resumed" "${mixed[@]}" --out resumed
holds "gives the same" cmp -s <(without_costs stdout) <(without_costs table)
sed 's/markov=0.7/markov=0.6/' mixed.json > other/mixed.json
expect 3 'mix .*0.7.* and the experiment has .*0.6' "$ALIBI" reproduce other/mixed.json own.txt \
    --out mixed --quiet
sed 's/"mix": "[^"]*"//' mixed.json > other/mixed.json
expect 3 'mix .*0.7.* and the experiment has \{\}' "$ALIBI" reproduce other/mixed.json own.txt \
    --out mixed --quiet
unmixed() { # pattern, mix
    sed "s/\"mix\": \"[^\"]*\"/\"mix\": $2/" mixed.json > other/mixed.json
    expect 3 "$1" "$ALIBI" reproduce other/mixed.json own.txt --out unmixed --quiet
}
unmixed "line 7: 'models.alibi.settings.mix': no task 'markow'; there are" '"task:markow=0.1"'
unmixed "line 7: .*mix': each share must be above 0" '"task:markov=0.5,task:recall=0.51"'
unmixed "line 7: .*mix': tasks with their shares of the windows are expected" '"book.txt=0.5"'
unmixed "line 7: .*mix': tasks with their shares" '0.5'
unmixed "line 7: .*mix': 'task:latest' is listed twice" '"task:latest=0.1,task:latest=0.2"'
holds "nothing was made" test ! -e unmixed
sed -e 's/"mix": "[^"]*"/"mix": "task:latest=1"/' mixed.json > other/mixed.json
expect 2 "task 'latest' hides its keys in text, and there is none" \
    "$ALIBI" reproduce other/mixed.json own.txt --out unread --quiet

# Tasks that fill all windows: one, and several.
for mix in task:markov=1 task:markov=0.6,task:recall=0.4; do
    sed -e "s/\"mix\": \"[^\"]*\"/\"mix\": \"$mix\"/" -e 's/"steps": 700/"steps": 20/' \
        -e '/"windows"/d' mixed.json > other/mixed.json
    rm -rf alone
    check "only tasks in the training: $mix" "$ALIBI" reproduce other/mixed.json own.txt --quiet \
        --out alone
    has "they were not learned in 20 steps" '^alibi +[-0-9.]+ ±[0-9.]+ +not learned' stdout
done

# Models with the weights of another: tested with another position, and with a fitted temperature.
cat > derived.json << 'END'
{
    "experiment": 1,
    "title": "Derived",
    "numbers": { "L": 16 },
    "texts": { "mine": { "tokenizer": "bytes" } },
    "settings": { "layers": 1, "width": 16, "heads": 2, "batch": 4, "steps": 60, "lr": 0.05,
                  "warmup": 2, "position": "rotary", "train_length": "L" },
    "models": {
        "plain": {},
        "yarn": { "of": "plain", "as_position": "rope:stretch=yarn:factor=4" },
        "fitted": { "of": "plain", "fit": { "tokens": 512 } }
    },
    "evaluations": { "windows": { "lengths": ["L", "4L"], "tokens": 640 } },
    "claims": []
}
END
check "a plan" "$ALIBI" reproduce derived.json --plan --out derived
has "one training" '^all +1 ' stdout
has "none of a derived model" '^yarn +0 ' stdout
check "a plan of one model" "$ALIBI" reproduce derived.json --plan --only yarn --out derived
has "counts it" '^Derived: 1 model, 0 trainings' stdout
has "and lists it" '^yarn +0 ' stdout
holds "no other" test "$(grep -cE '^(plain|fitted) ' stdout)" = 0
expect 2 "no model or group 'plan'; did you mean 'plain'\?" \
    "$ALIBI" reproduce derived.json --plan --only plan
expect 3 "no experiment 'demo-chan'; did you mean 'demo-chain'\?" "$ALIBI" reproduce demo-chan
check "models with the weights of another" "$ALIBI" reproduce derived.json "${text[@]}" --quiet \
    --discard-checkpoints --out derived
nll() { # model, number of the length
    sed -nE 's/.*"evaluation": "windows".*"nll": ([-0-9.e]+).*/\1/p' \
        "derived/models/$1-seed-1/result.json" | sed -n "$2p"
}
holds "no training of their own" test ! -e derived/models/yarn-seed-1/log.jsonl
check "the page of one of its trainings" "$ALIBI" report derived/models/plain-seed-1
for part in models/yarn-seed-1 models texts; do
    expect 3 "'derived/$part' has no page of its own, '.*/derived' above it has one" \
        "$ALIBI" report derived/$part
done
holds "checkpoints went when all were tested" test ! -e derived/models/plain-seed-1/step-00000060
holds "YaRN changes the loss" test "$(nll yarn 2)" != "$(nll plain 2)"
holds "a temperature does nothing at the training length" test "$(nll fitted 1)" = "$(nll plain 1)"
has "its position" '"fitted": "rotary' derived/results.json
has "one training is counted" '^  "trainings": 1,$' derived/results.json
has "of three models" '^  "seeds": 3,$' derived/results.json
has "only it has a curve of its training" \
    'fig-train-desc.*plain: [0-9.]+ at 1, .*yarn: no values. fitted: no values' derived/report.html
has "what it is, on the page" '^fitted: plain, with.* \(seed 1\)' derived/report.html
has "the position it is tested with" '"position": "rotary:stretch=yarn:factor=4"' \
    derived/results.json
check "the same again" "$ALIBI" reproduce derived.json "${text[@]}" --quiet --out derived
holds "nothing is trained again" test ! -e derived/models/plain-seed-1/step-00000060
underived() { # pattern, sed program
    sed -E "$2" derived.json > broken.json
    expect 3 "$1" "$ALIBI" reproduce broken.json --out broken
}
underived "line 10: 'models.yarn.of': there is no earlier model 'plan'; did you mean 'plain'" \
    's/"plain", "as/"plan", "as/'
underived "line 11: 'models.fitted.of': 'yarn' has the weights of another itself; name 'plain'" \
    's/"plain", "fit/"yarn", "fit/'
underived "line 10: 'models.yarn.as_position': .*no option 'strech'" 's/stretch=/strech=/'
underived "line 10: 'models.yarn': \"as_position\" or \"fit\" is missing: .*'plain'" \
    's/, "as_position": "[^"]*"//'
underived "line 11: 'models.fitted.fit.length': 16 is not longer than .* of 'plain', 16: " \
    's/"tokens": 512/"length": "L"/'
for own in '"seeds": [1]' '"settings": {}' '"text": "mine"'; do
    key=$(cut -d '"' -f 2 <<< "$own")
    underived "line 10: 'models.yarn.$key': a model with \"of\" .* the $key of 'plain'; remove" \
        "s/\"of\": \"plain\", \"as/$own, &/"
done
for key in as_position fit; do
    underived "'models.[a-z]*.$key': only a model with the weights of another .*; add \"of\"" \
        "s/\"of\": \"plain\", \"$key/\"$key/"
done
underived "line 10: 'models.yarn.of': 'yarn' cannot have its own weights; name an earlier model" \
    's/"plain", "as/"yarn", "as/'
underived "line 10: 'models.yarn.of': 'fitted' comes later in the file; move it before 'yarn'" \
    's/"plain", "as/"fitted", "as/'
underived "line 10: 'models.yarn.of': 'plain' is a group of models; name one .*'16'" \
    's/"plain": \{\}/"plain": { "settings": { "width": [16, 32] } }/'
underived "line 10: 'models.yarn.of': the name of one earlier model is expected" \
    's/"plain", "as/["plain"], "as/'
underived "line 10: 'models.yarn.as_position': the weights of 'plain' .*: .*do not learn the same" \
    's/"rope:[^"]*"/"kerple"/'
underived "line 11: 'models.fitted.fit': the weights of 'plain' .*: length 64: .* ends at 16" \
    's/"rotary"/"learned"/; /"yarn"/d; s/"models"/\n&/'

# Broken files: one line with file, line and key, before anything runs.
broken() { # pattern, sed program
    sed -E "$2" tiny.json > broken.json
    expect 3 "$1" "$ALIBI" reproduce broken.json --tier full --out broken
}
broken "'broken.json' line 8: 'settings.widht': unknown key 'widht': did you mean 'width'" \
    's/"width"/"widht"/'
broken "'broken.json' line 8: 'settings.width': .*number" 's/"width": 16/"width": "x"/'
broken "'broken.json' line 12: 'models.methods': unknown position method 'alibj'|'alibj'" \
    's/\["alibi"/["alibj"/'
broken "'broken.json' line 15: 'evaluations.windows.tokens': 63 is less" \
    's/"tokens": 640 \},/"tokens": 63 },/'
broken "line 30: 'claims.0.holds_if.0.is.model': there is no model 'alibi-32'; did you" \
    's/alibi-\{L\}", "length": "4L", "paper"/alibi-{2L}", "length": "4L", "paper"/'
broken "line 30: 'claims.0.holds_if.0.is.length': 128 is not one of the lengths of 'windows'" \
    's/"length": "4L", "paper"/"length": "8L", "paper"/'
broken "line 12: .* at most|'sinusoidal-16'|already" 's/"sinusoidal"\]/"sinusoidal", "sinusoidal"]/'
broken "'broken.json' line [0-9]+, column" 's/"seeds": \[1, 2\],/"seeds": [1, 2]/'
broken "line 2: 'experiment': the file has version 2, and alibi [0-9.]+ reads version 1" \
    's/"experiment": 1/"experiment": 2, "another_key": 3/'
broken "line 25: 'claims.0.claim': '\{...\}' must hold a number" 's/holds at \{4L\}/holds at {4M}/'
broken "line 32: 'claims.0.holds_if.0.within'" 's/"within": 40/"within": "x"/'
broken "line 18: 'evaluations.targets.lengths': the contexts lack 16, which is near for 'alibi" \
    's/"L\/2", "L", "4L"/"L\/2", "4L"/'
broken "line 18: 'evaluations.targets.windows': an evaluation of kind 'targets' has no such key" \
    's/"blocks": 30/"windows": 30/'
broken "line 18: 'evaluations.targets.blocks': " 's/"blocks": 30/"blocks": 0/'
broken "line 18: 'evaluations.targets.kind': .*\"attention\", \"tasks\" or \"stream\" is" \
    's/"kind": "targets"/"kind": "target"/'
broken "line [0-9]+: 'claims.3.holds_if.0.is.condition': \"own\", \"swapped\" or \"window\" is" \
    's/"condition": "swapped"/"condition": "swaped"/'
broken "line [0-9]+: 'claims.4.holds_if.0.is.targets': \"all\", \"repeats\" or \"others\" is" \
    's/"targets": "repeats"/"targets": "repeat"/'
broken "'claims.3.holds_if.0.is.length': a context of 16 is near, so it has no condition" \
    's/"length": "4L", "condition": "swapped"/"length": "L", "condition": "swapped"/'
broken "'claims.0.holds_if.0.is.condition': no such key, except for fixed targets" \
    's/"length": "4L", "paper"/"length": "4L", "condition": "own", "paper"/'
broken "'claims.3.holds_if.0.is.evaluation': 'attention' measures attention" \
    's/"evaluation": "targets"/"evaluation": "attention"/'
broken "line 20: 'evaluations.tasks.tasks.0': no task 'lates'; there are passkey, .*latest" \
    's/\["latest"/["lates"/'
broken "line 20: 'evaluations.tasks.tasks.1': 'latest' is listed twice" 's/"markov"\]/"latest"]/'
broken "line 21: 'evaluations.tasks.lengths': the lengths lack 16, at which 'alibi-16' has to" \
    's/^( {19}"lengths": \[)"L", /\1/'
broken "line 20: 'evaluations.tasks.cases': 0 is not within" 's/"cases": 20/"cases": 0/'
broken "line 20: 'evaluations.tasks.gram': an evaluation of kind 'tasks' has no such key" \
    's/"cases": 20/"gram": 3/'
broken "'claims.5.holds_if.0.is.task': there is no task 'recall'" \
    's/"L", "task": "latest"/"L", "task": "recall"/'
broken "'claims.5.holds_if.0.is.task': the name of one of the tasks is expected" \
    's/"length": "L", "task": "latest"/"length": "L"/'
broken "'claims.5.holds_if.0.is.quantity': \"score\" is expected" \
    's/"length": "L", "task"/"length": "L", "quantity": "ppl", "task"/'
broken "'claims.5.holds_if.0.above': a score is at most 1" \
    's/("L", "task": "latest" \}, "above": )0/\12/'
broken "'claims.0.holds_if.0.is.task': no such key, except for tasks" \
    's/"length": "4L", "paper"/"length": "4L", "task": "latest", "paper"/'
sed 's/"sinusoidal"\]/"sinusoidal"], "width": [16, 32]/' speed.json > broken.json
expect 3 "line 6: 'evaluations.speed.models': .* differ in more than" "$ALIBI" reproduce broken.json
broken "'evaluations.windows.lengths.1': '2K' is no number" 's/"L", "2L", "4L"/"L", "2K", "4L"/'
broken "step_tokens 1048577 is not a multiple" 's/"step_tokens": 64/"step_tokens": 1048577/'
broken "is a batch of 131072, and 65536 is the largest" \
    's/"step_tokens": 64/"step_tokens": 2097152/'
broken "line 5: 'seeds.1': 1 is listed twice" 's/\[1, 2\]/[1, 1]/'
holds "nothing was made" test ! -e broken
expect 3 "no experiment 'nothing'.*wikipedia-small" "$ALIBI" reproduce nothing
expect 2 "no model or group 'rotary'; its groups are methods" "${run[@]}" --only rotary --out none
expect 2 "no model or group 'metods'; did you mean 'methods'" \
    "$ALIBI" reproduce wikipedia-small --only metods --plan

# The experiments that come with the program.
check "the list" "$ALIBI" reproduce
for file in "$SOURCE"/experiments/*.json; do
    name=$(basename "$file" .json)
    has "lists $name" "^  $name " stdout
done
holds "and what each tier cpu takes" \
    test "$(grep -c '^ *tier cpu: ' stdout)" = "$(ls "$SOURCE"/experiments/*.json | wc -l)"
has "with the text of one" '^ +text: English books; 4 models, 4 trainings on 800M' stdout
has "or none" '^ +text: none; 2 models, 12 trainings' stdout
COLUMNS=60 check "a plan in a narrow terminal" "$ALIBI" reproduce wikipedia-small --plan --out none
holds "its first lines are as narrow" \
    test "$(sed '/^$/q' stdout | awk '{ if (length > n) n = length } END { print n + 0 }')" -lt 60
for file in "$SOURCE"/experiments/*.json; do
    name=$(basename "$file" .json)
    run "$ALIBI" reproduce "$name" --plan --tier full --out none # some need a large GPU
    has "plan of $name" "^all +[0-9]+ " stdout
    check "plan of $name, tier cpu" "$ALIBI" reproduce "$name" --plan --tier cpu --out none
    cp stderr plan-$name
done
has "a plan says that the built-in text is too small" \
    "text 'words': no files were given, and the run will fail .* give words=PATH" \
    plan-wikitext2-words
holds "of that experiment only" test "$(grep -l "the run will fail" plan-* | wc -l)" = 1
words=(wikitext2-words --tier cpu --out none --quiet)
expect 2 "12000 is not within the vocabulary" "$ALIBI" reproduce "${words[@]}"
rm -r none
check "and not with a text" "$ALIBI" reproduce "${words[@]}" --plan words=tiny.json
holds "says nothing" test ! -s stderr
finish
