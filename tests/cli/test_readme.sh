#!/bin/bash
# The command lines of README.md: each command is there, and so is every option that its line names.
. "$(dirname "$0")/lib.sh"

# Indented lines that call the program, from its command on and without a trailing comment. (In a
# row of a table a number follows the name.)
sed -nE 's/^ {4}(build\/release\/)?alibi ([a-z])/\2/p' "$SOURCE/README.md" |
    sed -E 's/ +#.*//' > lines
[ "$(wc -l < lines)" -ge 3 ] && pass "$(wc -l < lines) lines call the program" ||
    fail "README.md" "$(wc -l < lines) lines call the program"
while read -r line; do
    command=${line%% *}
    run "$ALIBI" "$command" --help
    missing=
    for option in $(grep -oE -- '--[a-z][a-z0-9-]*' <<< "$line"); do
        grep -qE -- "^  --(\[no-\])?${option#--}( |$)" stdout ||
            grep -qE -- "^  --\[no-\]${option#--no-}( |$)" stdout || missing+=" $option"
    done
    [ "$code" = 0 ] && [ -z "$missing" ] && pass "alibi $line" ||
        fail "alibi $line" "exit code $code${missing:+, no option}$missing"
done < lines
finish
