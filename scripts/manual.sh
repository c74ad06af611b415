#!/bin/sh
# scripts/manual.sh PROGRAM FOLDER: manual pages and completions, as the program writes them, in the
# folders that they have below the prefix's share/.
set -eu
program=$1
folder=$2
rm -rf "$folder"
mkdir -p "$folder/man/man1" "$folder/bash-completion/completions" "$folder/zsh/site-functions" \
    "$folder/fish/vendor_completions.d"
"$program" help --as man > "$folder/man/man1/alibi.1"
for command in $("$program" help | sed -nE 's/^  ([a-z]+) .*/\1/p'); do
    page=$folder/man/man1/alibi-$command.1
    [ "$command" = help ] || "$program" help --as man "$command" > "$page"
done
"$program" help --as bash > "$folder/bash-completion/completions/alibi"
"$program" help --as zsh > "$folder/zsh/site-functions/_alibi"
"$program" help --as fish > "$folder/fish/vendor_completions.d/alibi.fish"
touch "$folder/written"
