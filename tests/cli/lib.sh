# lib.sh - what the tests of the program share
#
# Needs ALIBI, the program, and SOURCE, the root of the repository. Each script runs in a folder of
# its own, which is removed at the end.
#
# The tests say what holds on the CPU of any machine. Therefore $ALIBI is the program with
# --device cpu, which a later option overrides; $program is the program itself. test_device.sh tries
# the other devices.
set -u
: "${ALIBI:?the program to test}" "${SOURCE:?the root of the repository}"
[ -x "$ALIBI" ] || { echo "'$ALIBI' is not a program" && exit 1; }
program=$(realpath "$ALIBI")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
passed=0
failed=0
skipped=0

# Every command that help lists, and those that take --device.
commands=$("$program" help | sed -nE 's/^  ([a-z]+) .*/\1/p' | grep -vx help | tr '\n' ' ')
on_device=" "
for command in $commands; do
    "$program" "$command" --help | grep -q '^  --device ' && on_device+="$command "
done
ALIBI=$folder/alibi
cat > "$ALIBI" << END
#!/bin/bash
case "$on_device" in
    *" \${1-} "*) exec "$program" "\$1" --device cpu "\${@:2}" ;;
    *) exec "$program" "\$@" ;;
esac
END
chmod +x "$ALIBI"

# A model that trains in no time, and the text for it.
text=(--text-bytes 200000)
tiny=("${text[@]}" --layers 1 --width 16 --heads 2 --train-length 16 --batch 2 --steps 6
    --save-every 2 --warmup 2 --quiet)

pass() { passed=$((passed + 1)); echo "ok      $1"; }

skip() { # how many checks, why ("no GPU"): scripts/test.sh counts the reasons
    skipped=$((skipped + $1))
    for _ in $(seq "$1"); do echo "skipped: $2"; done
}

fail() { # name, why
    failed=$((failed + 1))
    echo "FAILED  $1: $2"
    sed 's/^/        stderr: /' stderr | head -n 5
    sed 's/^/        stdout: /' stdout | head -n 5
}

# run COMMAND...: its output is in the files stdout and stderr, its exit code in $code.
run() {
    code=0
    "$@" > stdout 2> stderr < /dev/null || code=$?
}

# check NAME COMMAND...: the command succeeds.
check() {
    local name=$1
    shift
    run "$@"
    if [ "$code" = 0 ]; then pass "$name"; else fail "$name" "exit code $code"; fi
}

# expect CODE PATTERN COMMAND...: the command fails with that code, prints exactly one line, which
# matches, on stderr, and prints no result.
expect() {
    local wanted=$1 pattern=$2 name
    shift 2
    name="$wanted $pattern"
    run "$@"
    if [ "$code" != "$wanted" ]; then
        fail "$name" "exit code $code"
    elif [ "$(wc -l < stderr)" != 1 ]; then
        fail "$name" "$(wc -l < stderr) lines on stderr"
    elif ! grep -qE -- "$pattern" stderr; then
        fail "$name" "another message"
    elif [ -s stdout ]; then
        fail "$name" "something on stdout"
    else
        pass "$name"
    fi
}

# expect_ranks CODE PATTERN COMMAND...: processes that mpirun started fail with that code, and among
# its lines on stderr exactly one is ours, which matches after "alibi: ".
expect_ranks() {
    # Ranks that fail together have said so before the first of them ends: mpirun, which kills the
    # others then, need not give them its second.
    OMPI_MCA_odls_base_sigkill_timeout=0 run "${@:3}"
    if [ "$code" != "$1" ]; then
        fail "$1 $2" "exit code $code"
    elif [ "$(grep -c '^alibi: ' stderr)" != 1 ] || ! grep -qE "^alibi: $2" stderr; then
        fail "$1 $2" "another message"
    else
        pass "$1 $2"
    fi
}

# The process of that rank among those of mpirun, whose own id is $launcher.
rank_process() { # RANK
    local pid
    for pid in $(pgrep -P "$launcher" alibi); do
        grep -qzx "OMPI_COMM_WORLD_RANK=$1" /proc/"$pid"/environ && echo "$pid"
    done
}

same_weights() { # TWO RUNS: all but the files that have their options
    diff -r -x timing.json -x lock -x recipe.json -x state.json -x manifest.json "$1" "$2" \
        > stdout 2> stderr
}

# is_json FILE
is_json() {
    if command -v python3 > /dev/null; then
        python3 -m json.tool "$1" > /dev/null
    else
        head -c 1 "$1" | grep -q '[[{]' && tail -n 1 "$1" | grep -q '[]}]$' &&
            ! grep -qE '\b(nan|inf)\b' "$1"
    fi
}

# The value of the first member of that name in a JSON file: a number.
member() { # file, key
    grep -oE "\"$2\": *-?[0-9.eE+-]+" "$1" | head -n 1 | sed 's/.*: *//'
}

# Whether there is a GPU that the program can use.
has_gpu() { "$program" plan --device cuda --json 2> /dev/null | grep -q '"gpu": true'; }

newest() { ls -d "$1"/step-* | tail -n 1; } # checkpoint of a run

# One byte in the middle of a file becomes another one.
alter() {
    local at=$(($(stat -c %s "$1") / 2)) byte
    byte=$(od -An -tu1 -j "$at" -N 1 "$1")
    printf "\\$(printf %03o $(((byte + 1) % 256)))" |
        dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

# Polls until the command succeeds. The limit is for what never comes, and far from what a machine
# with other work needs.
wait_for() { # COMMAND...
    local end=$((SECONDS + 120))
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

finish() {
    echo "[  PASSED  ] $passed test(s)."
    [ "$skipped" = 0 ] || echo "[  SKIPPED ] $skipped test(s)."
    [ "$failed" = 0 ] && exit 0
    echo "[  FAILED  ] $failed test(s)."
    exit 1
}

# same_losses TWO FILES: lines "name": number, the same names with numbers that differ by at most a
# millionth: a product may sum in another order for another number of rows.
same_losses() {
    paste "$1" "$2" | awk '{ gsub(",", ""); d = $2 - $4; if (d < 0) d = -d
        if ($1 != $3 || d > 1e-6 * (1 + $2)) bad = 1; n++ } END { exit bad || n < 2 }'
}

need_mpi() { # N: where there is no MPI, so many tests are skipped
    if ! command -v mpirun > /dev/null || [ ! -e "$(dirname "$program")/libalibi_mpi.so" ]; then
        skip "$1" "no MPI"
        finish
    fi
    # Launchers that run side by side would make and remove the same folder in /tmp, and name files
    # there by process ids, which namespaces may share.
    mkdir "$folder/.mpi"
    export OMPI_MCA_orte_tmpdir_base=$folder/.mpi
    # As root, with more ranks than cores, which then take turns.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
    export OMP_NUM_THREADS=1 OMPI_MCA_hwloc_base_binding_policy=none
}
