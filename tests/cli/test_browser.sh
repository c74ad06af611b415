#!/bin/bash
# The report page in a real browser: wide and narrow, light and dark, touched, sorted, copied.
. "$(dirname "$0")/lib.sh"

check "a page" "$ALIBI" compare "${tiny[@]}" --methods alibi,sinusoidal,none,rotary --seeds 1,2 \
    --lengths 16,32,64 --eval-tokens 640 --sliding-tokens 320 --stream-tokens 128 --eval-every 2 \
    --out compared
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ] || ! command -v python3 > /dev/null; then
    skip 26 "no Chromium, or no Python"
    finish
fi
run python3 "$SOURCE/tests/cli/browser.py" "$browser" compared/report.html
while read -r outcome what; do
    if [ "$outcome" = ok ]; then pass "$what"; else fail "$what" "in the browser"; fi
done < stdout
[ "$(grep -c '^ok ' stdout)" = 26 ] && [ "$code" = 0 ] && pass "all of it was looked at" ||
    fail "the browser" "exit code $code"
finish
