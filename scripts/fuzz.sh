#!/bin/bash
# Fuzzes every parser of foreign bytes: scripts/fuzz.sh [RUNS [TARGET...]]
#
# By default each target gets 10,000,000 executions under libFuzzer, AddressSanitizer and
# UndefinedBehaviorSanitizer. Inputs that reach new code stay in build/fuzz/corpus, so the next call
# continues from there. Inputs that fail are kept in build/fuzz/findings. Ends with a table.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-10000000}
shift || true
targets=${*:-$(basename -s .c tests/fuzz/fuzz_*.c)}
build=build/fuzz

if ! command -v clang > /dev/null; then
    echo "fuzzing needs the packages clang, libclang-rt-14-dev and libomp-dev" >&2
    exit 1
fi
mkdir -p $build/findings
cmake -S . -B $build -G Ninja -D CMAKE_C_COMPILER=clang -D CMAKE_BUILD_TYPE=Release \
    -D CMAKE_C_FLAGS_RELEASE="-O2 -g1" -D ALIBI_FUZZER=ON > /dev/null
cmake --build $build --target fuzzers -- --quiet

# Runs one target on its seeds and on the corpus of earlier calls.
fuzz() {
    mkdir -p "$build/corpus/$1"
    "$build/$1" -runs="$runs" -max_len=4096 -timeout=60 -rss_limit_mb=4096 -seed=1 \
        -print_final_stats=1 -artifact_prefix="$build/findings/$1-" \
        "$build/corpus/$1" "tests/fuzz/seeds/$1" > "$build/$1.log" 2>&1
}

table=$(printf '%-24s %12s %8s %s' target executions seconds findings)
status=0
for target in $targets; do
    echo "fuzzing $target, $runs executions (log: $build/$target.log)"
    rm -f "$build/findings/$target"-*
    start=$SECONDS
    fuzz "$target" || status=1
    done=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")
    findings=$(find "$build/findings" -name "$target-*" | wc -l)
    row=$(printf '%-24s %12s %8d %d' "$target" "${done:-0}" $((SECONDS - start)) "$findings")
    table+=$'\n'$row
    [ "$findings" = 0 ] || tail -n 40 "$build/$target.log"
done
echo "$table"
exit $status
