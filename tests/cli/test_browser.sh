#!/bin/bash
# The report page in a real browser: wide and narrow, light and dark, touched, sorted, copied.
. "$(dirname "$0")/lib.sh"

check "a page" "$ALIBI" compare "${tiny[@]}" --methods alibi,sinusoidal,none,rotary --seeds 1,2 \
    --lengths 16,32,64 --eval-tokens 640 --sliding-tokens 320 --stream-tokens 128 --eval-every 2 \
    --out compared
cat > tiny.json << 'END'
{
    "experiment": 1,
    "title": "Two tiny models",
    "numbers": { "L": 16 },
    "seeds": [1, 2],
    "texts": { "text": {} },
    "settings": { "layers": 2, "width": 16, "heads": 2, "batch": 4, "train_length": 16,
                  "steps": 20, "eval_every": 10 },
    "models": { "methods": { "settings": { "position": ["alibi", "rotary"] } } },
    "evaluations": {
        "windows": { "lengths": ["L", "2L", "4L"], "tokens": 640 },
        "targets": { "kind": "targets", "lengths": ["L", "2L", "4L"], "blocks": 8 },
        "attention": { "kind": "attention", "lengths": ["2L"], "windows": 2 },
        "speed": { "kind": "speed", "lengths": ["L", "2L"] }
    },
    "claims": [
        {
            "claim": "ALiBi holds at {4L}, which is a claim of more than one line on a telephone.",
            "where": "Figure 1",
            "paper": "18.3 and 19.7",
            "holds_if": [
                {
                    "is": { "model": "alibi", "length": "4L", "paper": 18.3 },
                    "below": { "model": "alibi", "length": "L", "paper": 19.7 },
                    "within": 40
                }
            ]
        }
    ]
}
END
check "the page of an experiment" "$ALIBI" reproduce tiny.json "${text[@]}" --out reproduced --quiet
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ] || ! command -v python3 > /dev/null; then
    skip 43 "no Chromium, or no Python"
    finish
fi
run python3 "$SOURCE/tests/cli/browser.py" "$browser" compared/report.html \
    reproduced/report.html
while read -r outcome what; do
    if [ "$outcome" = ok ]; then pass "$what"; else fail "$what" "in the browser"; fi
done < stdout
[ "$(grep -c '^ok ' stdout)" = 43 ] && [ "$code" = 0 ] && pass "all of it was looked at" ||
    fail "the browser" "exit code $code"
finish
