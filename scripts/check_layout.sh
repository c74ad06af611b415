#!/bin/bash
# Checks what no compiler checks, and names every place that breaks a rule:
#
#   format    clang-format 14 decides the layout of C and CUDA sources (`make format` repairs it);
#             skipped without it, since each version has a taste of its own
#   columns   sources, scripts and prose have at most 100 columns
#   rooms     a room of lib/ includes only the rooms that docs/architecture.md allows it
#   public    the program and the examples include alibi.h and nothing of lib/
#   links     documents have a title; files that they link to or name exist, and so do headings
#   words     comments and documents avoid the words that style rejects
#
# Usage: check_layout.sh [RULE...], all rules by default. Exits 1 if one is broken.
set -uo pipefail
shopt -s lastpipe # complain() at the end of a pipe sets a variable of this shell
cd "$(dirname "$0")/.."

columns=100
broken=0

# Tracked and new files that match the patterns, without those just deleted.
files() {
    git ls-files -co --exclude-standard -- "$@" | while read -r file; do
        [ -e "$file" ] && echo "$file"
    done
}

# Prints the complaints on stdin, if any, and remembers that there were some.
complain() { # rule
    local lines
    lines=$(cat)
    [ -n "$lines" ] || return 0
    printf '%s\n' "$lines" | sed "s/\$/  [$1]/"
    broken=1
}

check_format() {
    if ! clang-format --version 2> /dev/null | grep -q 'version 14\.'; then
        echo "skipped: no clang-format 14"
        return
    fi
    files '*.c' '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror 2>&1 |
        complain format
}

# UTF-8 continuation bytes take no column; mawk and the C locale see bytes. Three things may be
# longer: a line of C with a string, which clang-format does not break; a line of a script with a
# quoted text of 60 columns or more; and one word that cannot be broken, such as an address.
check_columns() {
    files '*.c' '*.cpp' '*.h' '*.cu' '*.cuh' | LC_ALL=C xargs awk -v columns=$columns '
        { line = $0; gsub(/[\200-\277]/, "", line) }
        length(line) > columns && !/"/ { print FILENAME ":" FNR ": " length(line) " columns" }
    ' | complain columns
    files 'scripts/*' '*.sh' Makefile CMakeLists.txt CMakePresets.json .ci/run | sort -u |
        LC_ALL=C xargs awk -v columns=$columns '
        { line = $0; gsub(/[\200-\277]/, "", line) }
        length(line) > columns {
            longest = 0
            n = split(line, part, /["\047]/)
            for (i = 2; i < n; i++)
                if (length(part[i]) > longest) longest = length(part[i])
            if (longest < 60) print FILENAME ":" FNR ": " length(line) " columns"
        }
    ' | complain columns
    # Prose: not fenced or indented code, not tables.
    files '*.md' | LC_ALL=C xargs awk -v columns=$columns '
        FNR == 1 { fenced = 0 }
        /^ *```/ { fenced = !fenced }
        fenced || /^    / || /^ *\|/ { next }
        { line = $0; gsub(/[\200-\277]/, "", line); words = split(line, unused, " ") }
        length(line) > columns && words > 1 { print FILENAME ":" FNR ": " length(line) " columns" }
    ' | complain columns
}

# The table of rooms in docs/architecture.md is the rule: "| `room` | headers | rooms it uses |". A
# room uses only rooms that are listed above it, so no cycle is possible, and of another room only
# the headers that it offers.
check_rooms() {
    {
        grep -E '^\| `[a-z]+` \|' docs/architecture.md
        files 'lib/*.c' 'lib/*.h' 'lib/*.cu' 'lib/*.cuh' |
            xargs grep -HnoE '^ *# *include "[^"]+"' | sed -E 's/ *# *include "([^"]+)"/\1/'
    } | awk '
        /^\|/ {
            gsub(/`/, ""); split($0, cell, / *\| */)
            room = cell[2]; known[room] = 1
            n = split(cell[3], header, /, */)
            for (i = 1; i <= n; i++) offers[room "/" header[i]] = 1
            n = split(cell[4], used, /, */)
            for (i = 1; i <= n; i++) {
                if (used[i] != "" && (!(used[i] in known) || used[i] == room))
                    print "docs/architecture.md: " room " uses " used[i] ", which is not above it"
                uses[room, used[i]] = 1
            }
            next
        }
        {
            split($0, part, ":"); place = part[1] ":" part[2]; target = part[3]
            split(part[1], path, "/"); room = path[2]
            if (!(room in known) && !(room in told)) {
                print part[1] ": docs/architecture.md does not list the room " room
                told[room] = 1
            }
            if (target == "alibi.h" || target !~ /\//) next
            split(target, path, "/")
            if (path[1] == room || !(room in known)) next
            if (!((room, path[1]) in uses))
                print place ": " room " may not use " path[1] " (" target ")"
            else if (!(target in offers))
                print place ": " target " is for the files of " path[1] " only"
        }
    ' | complain rooms
}

check_public() {
    files 'cli/*.[ch]' 'examples/*.c' |
        xargs grep -HnE '^ *# *include "' | grep -vE '"(alibi|cli)\.h"' | complain public
}

# The names by which links reach the headings of a document: those that GitHub gives them.
anchors_of() {
    sed -nE 's/^#+ //p' "$1" | LC_ALL=C sed -E 's/.*/\L&/; s/[^a-z0-9 _-]//g; s/ /-/g'
}

# Two forms: [text](path), relative to the document, with #heading or without, and `name.c` or
# `folder/name.c`, which is the end of the path of some file. Names with <placeholders> or * are
# not looked for.
check_links() {
    local file target page
    files '*.md' | while read -r file; do
        grep -q '^# ' "$file" || echo "$file: has no title"
        grep -oE '\]\([^)#:]+[)#]' "$file" | sed -E 's/^..//; s/.$//' | while read -r target; do
            [ -e "$(dirname "$file")/$target" ] || echo "$file: '$target' does not exist"
        done
        grep -oE '\]\([^):]*#[^)]+\)' "$file" | sed -E 's/^..//; s/.$//' | while read -r target; do
            page=$(dirname "$file")/${target%%#*}
            [ "${target%%#*}" ] || page=$file
            [ ! -e "$page" ] || anchors_of "$page" | grep -xF -- "${target#*#}" > /dev/null ||
                echo "$file: '$target': there is no such heading"
        done
        grep -oE '`[A-Za-z0-9_./-]+\.(c|h|cu|cuh|sh|py)`' "$file" | tr -d '`' | sort -u |
            while read -r target; do
                [ -n "$(files "$target" "*/$target")" ] || echo "$file: '$target' does not exist"
            done
    done | complain links
}

check_words() {
    files '*.md' '*.c' '*.cpp' '*.h' '*.cu' '*.cuh' |
        xargs grep -HnoiwE 'anew|whoever|a tokenizing|goes on|left out|lent' | complain words
}

for rule in "${@:-format columns rooms public links words}"; do
    for name in $rule; do check_"$name"; done
done
exit $broken
