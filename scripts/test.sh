#!/bin/bash
# All tests: the layout of the code, everything in the release build, and the unit, operation and fault tests again under the
# address and undefined-behaviour sanitizers. Ends with "N passed, M failed".
set -uo pipefail
cd "$(dirname "$0")/.."
log=build/test.log
status=0
: > "$log"

run() { # name, ctest arguments
    local name=$1
    shift
    echo "== $name"
    ctest --output-on-failure "$@" 2>&1 | tee -a "$log" | grep -vE '^(Test project|    Start|Internal|Label|Total|Errors|$)' 
    [ "${PIPESTATUS[0]}" = 0 ] || status=1
}

make -s check-format || status=1

cmake --preset sanitize > /dev/null && cmake --build --preset sanitize || exit 1
run "release build" --test-dir build/release --verbose
run "sanitized build" --test-dir build/sanitize -L 'unit|ops|fault|golden' --verbose

count() { grep -oE "$1" "$log" | grep -oE '[0-9]+' | awk '{ s += $1 } END { print s + 0 }'; }
passed=$(count '\[  PASSED  \] [0-9]+ test')
failed=$(count '\[  FAILED  \] [0-9]+ test')
[ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
echo "$passed passed, $failed failed"
exit "$status"
