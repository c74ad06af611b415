#!/bin/bash
# All tests: the layout of the code, everything in the release build, and all but the program's tests again under the address
# and undefined-behaviour sanitizers. Every test prints what it checked into build/test.log; here one line each, and all of it
# where one failed. Ends with "N passed, M failed".
set -uo pipefail
cd "$(dirname "$0")/.."
log=build/test.log
status=0
: > "$log"

run() { # name, ctest arguments
    echo "== $1"
    ctest --verbose --test-dir "${@:2}" 2>&1 | tee -a "$log" | grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test'
    [ "${PIPESTATUS[0]}" = 0 ] && return
    status=1
    ctest --test-dir "$2" --rerun-failed --output-on-failure
}

# How many tests the programs and scripts counted, each line once.
count() { grep -oE "^[0-9]+: \[  $1  \] [0-9]+ test" "$log" | awk '{ s += $(NF - 1) } END { print s + 0 }'; }

cuda() {
    local nvcc
    nvcc=$(sed -n 's/^ALIBI_NVCC:FILEPATH=//p' build/release/CMakeCache.txt)
    [ -e build/release/libalibi_cuda.so ] || { echo "CUDA: nvcc is not here, the GPU backend is not built"; return; }
    echo "CUDA: compiled with nvcc $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p'); GPU tests need a GPU"
}

make -s check-format || status=1
cuda
cmake --preset sanitize > /dev/null && cmake --build --preset sanitize -- --quiet || exit 1
run "release build" build/release
run "sanitized build" build/sanitize -LE cli

passed=$(count PASSED)
failed=$(count FAILED)
[ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
echo "$passed passed, $failed failed"
exit "$status"
