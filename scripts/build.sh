#!/bin/bash
# scripts/build.sh [TARGET...]: builds them, or everything, and shows how far it is. On a terminal
# that is ninja's own line. Elsewhere it is a line at each tenth, and whatever goes wrong.
set -uo pipefail
cd "$(dirname "$0")/.."
build=(cmake --build --preset release ${1:+--target "$@"})
[ -t 1 ] && exec "${build[@]}"
NINJA_STATUS='[%f/%t] ' "${build[@]}" 2>&1 | awk '
    /^-- / || /^ninja: no work to do/ { next }
    !/^\[[0-9]+\/[0-9]+\] / { print; next }
    {
        split(substr($1, 2), n, /[\/\]]/)
        tenth = int(10 * n[1] / n[2])
        if (tenth > said && n[2] >= 10)
            print "  " 10 * tenth "%"
        said = tenth
        fflush()
    }'
