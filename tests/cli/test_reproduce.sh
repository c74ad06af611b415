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
        "stream": { "protocol": "stream", "tokens": 500, "models": ["alibi-{L}"] }
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
holds "a plan makes nothing" test ! -e whole
check "an experiment" "${run[@]}" --out whole
cp stdout table
has "a verdict" '^1\. holds: ALiBi trained at 16 holds at 64\. .Figure 1' table
has "with the paper's numbers" 'paper: 18\.3' table
has "and its contrary" '^2\. does not hold: ' table
has "and one against a number" '^3\. holds: ' table
has "a table per evaluation" '^sliding: ' table
for file in results.json results.csv report.html experiment.json texts/text.json; do
    holds "writes $file" test -s whole/$file
done
holds "results.json is JSON" is_json whole/results.json
has "with verdicts" '"verdict": "does not hold"' whole/results.json
holds "a line per model, seed, evaluation and length" \
    test "$(grep -cE '^(alibi|sinusoidal)-16,[12],' whole/results.csv)" = 18
holds "the vocabulary is learned once and kept" test -s whole/texts/text/tokenizer.json

# What does not depend on the machine's speed.
numbers() { grep -oE '"(nll|ppl|value|log_ratio|standard_error)": *[^,}]*' "$1/results.json"; }
same_numbers() { # what, folder
    if cmp -s <(numbers "$2") <(numbers whole); then pass "$1"; else fail "$1" "$2 differs"; fi
}
check "the same command again" "${run[@]}" --out whole
holds "prints the same at once" cmp -s stdout table
check "the plan of what is done" "${run[@]}" --out whole --plan
has "has no trainings" '^all +0 ' stdout
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
without_memory() { sed -E '/^report: /d; s/ +[0-9.]+ [KM]iB//; s/ +/ /g' "$1"; }
holds "and the same text" cmp -s <(without_memory stdout) <(without_memory table)

# Checkpoints are not needed any more, and the small files suffice elsewhere.
check "without checkpoints" "${run[@]}" --out thin --discard-checkpoints --only alibi-16
holds "they are gone" test -z "$(ls -d thin/models/*/step-* 2> /dev/null)"
has "what is missing is not shown" 'not shown|holds' stdout
mkdir elsewhere
(cd thin && find . -name '*.json' -size -200k | cpio -pdm --quiet ../elsewhere 2> /dev/null ||
    cp -r . ../elsewhere)
rm -rf elsewhere/texts/text
check "continued elsewhere" "${run[@]}" --out elsewhere
same_numbers "gives the same numbers" elsewhere
rm -rf elsewhere/texts/text elsewhere/models/*/step-*
check "and needs neither text nor checkpoints to report" "$ALIBI" reproduce tiny.json no-such-file \
    --out elsewhere --quiet
same_numbers "gives the same numbers" elsewhere

# Other commands know such a folder.
cp thin/report.html page
check "the page again" "$ALIBI" report thin
has "of what is unfinished" 'report.html .unfinished' stdout
holds "is the same" cmp -s thin/report.html page
check "inspect" "$ALIBI" inspect whole
has "shows verdicts" '^  1 +holds: ALiBi trained at 16 holds at 64' stdout

# Tiers: cpu by default on the CPU; a folder keeps its own.
check "the tier cpu" "$ALIBI" reproduce tiny.json "${text[@]}" --out tier --quiet
has "is the default here" 'Two tiny models .tier cpu' stdout
has "one seed proves less" '^1\. holds in this one seed: ' stdout
expect 3 "'tier' holds the tier 'cpu' .* and this is 'full'" "${run[@]}" --out tier
expect 2 "has no tier 'gpu'" "$ALIBI" reproduce tiny.json --tier gpu --out none
check "numbers of a tier" "$ALIBI" reproduce tiny.json "${text[@]}" --tier quick --quiet \
    --only sinusoidal-8 --out quick
has "have their lengths" '^sinusoidal-8,1,sinusoidal,8,windows,nonoverlapping,32,' quick/results.csv

# Other settings and other texts are refused; more evaluations are welcome.
sed 's/0\.02/0.03/' tiny.json > other.json
expect 3 "lr 0.02.* and the experiment has 0.03" "$ALIBI" reproduce other.json "${text[@]}" \
    --tier full --out whole --quiet
printf 'a line of text that is there to be read, number %d\n' $(seq 900) > own.txt
rm -rf few && cp -r whole few && rm -r few/models/alibi-16-seed-1
expect 3 "holds results of another text 'text' .built-in text" "$ALIBI" reproduce tiny.json \
    own.txt --tier full --out few --quiet
check "a text of one's own" "$ALIBI" reproduce tiny.json own.txt --tier full --out own --quiet \
    --only alibi-16
check "named" "$ALIBI" reproduce tiny.json text=own.txt text.valid=own.txt --tier full \
    --out own-valid --quiet --only alibi-16
sed 's/\["L"\], "tokens"/["L", "2L"], "tokens"/' tiny.json > more.json
check "another length is added" "$ALIBI" reproduce more.json "${text[@]}" --tier full --out whole \
    --quiet
holds "and evaluated" \
    test "$(grep -cE '^(alibi|sinusoidal)-16,[12],.*,sliding,' whole/results.csv)" = 8

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
check "costs that are not selected" "$ALIBI" reproduce speed.json --out costs --quiet --only alibi
holds "are not measured" test ! -e costs/speed.json
check "an experiment of costs" "$ALIBI" reproduce speed.json --out costs --quiet --only speed
has "prints speed and memory" '^sinusoidal +32 +[0-9.KM]+ ±.*% +[0-9.]+ [KM]iB' stdout
has "judges them" '^1. does not hold: ' stdout
holds "trains nothing" test -z "$(ls costs/models)"
cp stdout table
check "again" "$ALIBI" reproduce speed.json --out costs --quiet
holds "measures nothing again" cmp -s stdout table

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
broken "line 26: 'claims.0.holds_if.0.is.model': there is no model 'alibi-32'; did you" \
    's/alibi-\{L\}", "length": "4L", "paper"/alibi-{2L}", "length": "4L", "paper"/'
broken "line 26: 'claims.0.holds_if.0.is.length': 128 is not one of the lengths of 'windows'" \
    's/"length": "4L", "paper"/"length": "8L", "paper"/'
broken "line 12: .* at most|'sinusoidal-16'|already" 's/"sinusoidal"\]/"sinusoidal", "sinusoidal"]/'
broken "'broken.json' line [0-9]+, column" 's/"seeds": \[1, 2\],/"seeds": [1, 2]/'
broken "line 2: 'experiment'" 's/"experiment": 1/"experiment": 2/'
broken "line 21: 'claims.0.claim': '\{...\}' must hold a number" 's/holds at \{4L\}/holds at {4M}/'
broken "line 28: 'claims.0.holds_if.0.within'" 's/"within": 40/"within": "x"/'
sed 's/"sinusoidal"\]/"sinusoidal"], "width": [16, 32]/' speed.json > broken.json
expect 3 "line 6: 'evaluations.speed.models': .* differ in more than" "$ALIBI" reproduce broken.json
broken "line 5: 'seeds.1': 1 is listed twice" 's/\[1, 2\]/[1, 1]/'
holds "nothing was made" test ! -e broken
expect 3 "no experiment 'nothing'.*wikipedia-small" "$ALIBI" reproduce nothing
expect 2 "no model 'rotary'" "${run[@]}" --only rotary --out none

# The experiments that come with the program.
check "the list" "$ALIBI" reproduce
for file in "$SOURCE"/experiments/*.json; do
    name=$(basename "$file" .json)
    has "lists $name" "^  $name " stdout
done
finish
