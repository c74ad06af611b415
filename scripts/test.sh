#!/bin/bash
# Runs tests that are built and counts what they checked.
#
#   scripts/test.sh        the layout, and the tests of the release build
#   scripts/test.sh more   what takes longer: slow tests; a fault at every point instead of every
#                          fifth; all cases of attention instead of a third; all tests but the
#                          program's under the address and undefined-behaviour sanitizers; sessions
#                          under the thread sanitizer
#
# Output: one line per test program, and everything that a failing one printed. build/test.log has
# all output; "more" appends to it, so its last line counts both:
#
#   1234 passed, 0 failed, 46 skipped (no GPU: 45, no clang-format 14: 1)
set -uo pipefail
cd "$(dirname "$0")/.."
log=build/test.log
status=0

build() { # preset
    cmake --preset "$1" > /dev/null && cmake --build --preset "$1" -- --quiet || exit 1
}

# Test programs run side by side, so each has one thread, unless its tests are about threads and
# choose a number.
run() { # title, build folder, ctest arguments...
    echo "== $1"
    OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} ctest --verbose --no-tests=error -j "$(nproc)" \
        --test-dir "${@:2}" 2>&1 |
        tee -a "$log" | grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test'
    [ "${PIPESTATUS[0]}" = 0 ] && return
    status=1
    echo "== again, with all output: what failed"
    ctest --test-dir "$2" --rerun-failed --output-on-failure
}

# The sum over all programs: each ends with cmocka's "[  PASSED  ] 12 test(s)." and the like.
count() { # PASSED, FAILED or SKIPPED
    sed -nE "s/^[0-9]+: \[  $1 +\] ([0-9]+) test.*/\1/p" "$log" |
        awk '{ n += $1 } END { print n + 0 }'
}

# "no GPU: 45, no clang-format 14: 1": the reasons that tests and the layout gave.
reasons() {
    sed -nE 's/^([0-9]+: )?skipped: (.*)/\2/p' "$log" | sort | uniq -c | sort -rn |
        sed -E 's/^ *([0-9]+) (.*)/\2: \1/' | paste -sd ';' | sed 's/;/, /g'
}

describe_cuda() {
    local nvcc version
    if [ -e build/release/libalibi_cuda.so ]; then
        nvcc=$(sed -n 's/^ALIBI_NVCC:FILEPATH=//p' build/release/CMakeCache.txt)
        version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
        echo "CUDA: compiled with nvcc $version"
    else
        echo "CUDA: nvcc was not found, the GPU backend is not built"
    fi
}

if ! grep -q '^CMOCKA_FOUND:INTERNAL=1' build/release/CMakeCache.txt; then
    echo "the tests are not built: they need cmocka (Debian and Ubuntu: libcmocka-dev)" >&2
    exit 1
fi
case ${1-} in
"")
    : > "$log"
    echo "== layout"
    scripts/check_layout.sh | tee -a "$log" || status=1
    describe_cuda
    run "release build" build/release -LE slow
    ;;
more)
    scripts/build.sh slow_tests || exit 1
    build sanitize
    build thread
    ALIBI_EVERY_FAULT=1 run "release build, slow tests, every fault" build/release -L 'slow|fault'
    ALIBI_EVERY_CASE=1 run "release build, every case of every operation" build/release \
        -R 'ops/test_(cases|skipping)'
    run "address and undefined-behaviour sanitizers" build/sanitize -LE cli
    run "thread sanitizer" build/thread -L thread
    ;;
*)
    echo "usage: scripts/test.sh [more]" >&2
    exit 2
    ;;
esac

passed=$(count PASSED)
failed=$(count FAILED)
skipped=$(($(count SKIPPED) + $(grep -c '^skipped: ' "$log")))
why=$(reasons)
# A program that crashed or timed out has counted nothing, and the layout counts as one.
[ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
echo "$passed passed, $failed failed, $skipped skipped${why:+ ($why)}"
exit "$status"
