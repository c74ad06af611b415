#!/bin/bash
# Manual pages and completions, which the program writes from its tables: they have everything that
# help has, render without a warning, and complete in the shells that are here.
. "$(dirname "$0")/lib.sh"

# What --help lists of a command, in the form that completions offer: --no-x for a flag that is on.
options_of() {
    "$program" "$1" --help | grep -oE '^  --[^ ]+' | sed 's/^  //; s/\[no-\]/no-/' | sort
}

# ---- manual pages

mkdir pages
"$program" help --as man > pages/alibi.1
for command in $commands; do
    "$program" help --as man "$command" > "pages/alibi-$command.1"
    missing=
    for option in $(options_of "$command"); do
        roff=$(sed 's/^--no-/--\\fR[\\fBno-\\fR]\\fB/; s/-/\\-/g' <<< "$option")
        grep -qF -- "\\fB$roff\\fR" "pages/alibi-$command.1" || missing+=" $option"
    done
    [ -z "$missing" ] && pass "alibi-$command(1) has every option of help" ||
        fail "alibi-$command(1)" "lacks$missing"
    grep -qF "alibi\\-$command (1)" pages/alibi.1 && pass "alibi(1) refers to it" ||
        fail "alibi(1)" "does not name alibi-$command(1)"
done
if command -v groff > /dev/null; then
    for page in pages/*; do
        groff -ww -b -man -Tutf8 "$page" > rendered 2> warnings
        [ "$(wc -l < rendered)" -ge 20 ] && [ ! -s warnings ] && pass "$page: no warning" ||
            fail "$page" "$(head -n 3 warnings)"
    done
else
    skip 1 "no groff"
fi
if command -v mandoc > /dev/null; then # the style of lines is not ours, and there is no date
    run mandoc -T lint -W warning pages/*
    grep -v 'missing date' stdout > warnings
    [ ! -s warnings ] && pass "mandoc: no warning" || fail "mandoc" "$(head -n 3 warnings)"
else
    skip 1 "no mandoc"
fi
check "the form after the command" "$program" help train --as man
cmp -s stdout pages/alibi-train.1 && pass "is the same page" || fail "help train --as man" "differs"
expect 2 "'nonsense' is one argument too many; usage: alibi help" "$program" help train nonsense
expect 2 "unknown option '--bar'; usage: alibi help" "$program" help train --bar
expect 2 "'score' is one argument too many" "$program" help --as man train score
expect 2 "no form 'html' of help" "$program" help --as html
expect 2 "no form '' of help" "$program" help --as
expect 2 "no form 'html' of help" "$program" train --help=html
expect 2 "no command 'trian'; did you mean 'train'" "$program" help --as man trian
expect 2 "one file for all commands" "$program" help --as bash train

# ---- completions: a line, whose last word is completed, and what must be offered

cat > cases << 'END'
alibi tr|train
alibi help insp|inspect
alibi train --optimi|--optimizer
alibi train --no-ti|--no-tied
alibi train --optimizer |adamw nesterov
alibi train --position si|sinusoidal
alibi compare --methods alibi,ro|alibi,rotary
alibi train --recipe byte|byte-10m
alibi reproduce wikipedia|wikipedia-small
alibi bench att|attention
alibi eval mod|model.d
alibi train --out mod|model.d
alibi inspect a b|a\ b.txt
END
mkdir model.d
touch "a b.txt" model.txt
for shell in bash zsh fish; do "$program" help --as $shell > completion.$shell; done

cat > bash.sh << 'END'
. ./completion.bash
read -ra COMP_WORDS <<< "$1"
[[ $1 != *\  ]] || COMP_WORDS+=("")
COMP_WORDS=("${COMP_WORDS[@]//=/ = }")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_alibi
printf '%s\n' "${COMPREPLY[@]}"
END
while IFS='|' read -r line offered; do
    [[ $line != *"a b" ]] || line="alibi inspect a" # a file with a blank is one answer
    run bash bash.sh "$line"
    missing=
    while read -r word; do
        grep -qxF -- "$word" stdout || missing+=" '$word'"
    done < <(sed 's/\\ /_/g; s/ /\n/g; s/_/ /g' <<< "$offered")
    [ -z "$missing" ] && [ ! -s stderr ] && pass "bash: $line" || fail "bash: $line" "no$missing"
done < cases
run bash bash.sh "alibi train --out mod"
grep -q 'model.txt' stdout && fail "bash" "a file where a folder belongs" ||
    pass "bash: folders only"
run bash bash.sh "alibi train --steps "
[ -z "$(cat stdout)" ] && pass "bash: nothing for a number" || fail "bash" "something for a number"
for command in $commands; do
    bash bash.sh "alibi $command -" | sort > offered
    options_of "$command" | comm -3 - offered > different
    [ ! -s different ] && pass "bash: the options of $command" ||
        fail "bash: $command" "$(tr -d '\n' < different)"
done
run bash -c '. ./completion.bash; COMP_WORDS=(alibi train --optimizer = ne); COMP_CWORD=4; _alibi
    printf "%s\n" "${COMPREPLY[@]}"; complete -p alibi'
[ "$(cat stdout)" = "nesterov
complete -F _alibi alibi" ] && pass "bash: --name=value" || fail "bash" "--name=value"

if command -v fish > /dev/null; then
    while IFS='|' read -r line offered; do
        [[ $line != *"a b" ]] || line="alibi inspect a"
        HOME=$folder run fish --no-config -c "source completion.fish; complete -C '$line'"
        cut -f 1 stdout | sed 's|/$||; s/\\//g' > offers
        missing=
        while read -r word; do
            grep -qxF -- "$word" offers || missing+=" '$word'"
        done < <(sed 's/\\ /_/g; s/ /\n/g; s/_/ /g' <<< "$offered")
        [ -z "$missing" ] && [ ! -s stderr ] && pass "fish: $line" ||
            fail "fish: $line" "no$missing"
    done < cases
else
    skip 1 "no fish"
fi

# zsh completes only where someone types: in a terminal, with control-D to list the choices.
cat > zsh.sh << 'END'
zmodload zsh/zpty
zpty t zsh -f -i
zpty -w t 'autoload -Uz compinit; compinit -u -D; source ./completion.zsh; COLUMNS=300
    LISTMAX=10000; setopt no_always_last_prompt; bindkey "^D" list-choices; PROMPT=REA""DY'
zpty -r t answer '*READY*' # only then the line is edited, and control-D does not end the shell
zpty -n -w t "$1"$'\x04\x15'"echo DO\"\"NE"$'\n'
zpty -r t answer '*DONE*'
print -r -- $answer
END
if command -v zsh > /dev/null; then
    while IFS='|' read -r line offered; do
        case $line in *mod | *"a b" | *ro) continue ;; esac # a single file is not listed
        run timeout 30 zsh -f zsh.sh "$line"
        missing=
        for word in $offered; do
            tr '\r' ' ' < stdout | grep -qE -- "(^|[^a-z-])$word( |$)" || missing+=" '$word'"
        done
        [ -z "$missing" ] && pass "zsh: $line" || fail "zsh: $line" "no$missing"
    done < cases
else
    skip 1 "no zsh"
fi

# ---- make install and make uninstall

build=$(dirname "$program")
if [ -d "$build/manual" ]; then
    cmake --install "$build" --prefix "$PWD/prefix" > install.log 2>&1
    for file in man/man1/alibi.1 man/man1/alibi-train.1 bash-completion/completions/alibi \
        zsh/site-functions/_alibi fish/vendor_completions.d/alibi.fish; do
        [ -s "prefix/share/$file" ] && pass "installs $file" || fail "install" "no $file"
    done
    cmp -s prefix/share/bash-completion/completions/alibi completion.bash &&
        pass "which is up to date" || fail "install" "another completion than the program's"
    if command -v man > /dev/null; then
        MANPATH=$PWD/prefix/share/man check "man alibi-train" man -P cat alibi-train
    else
        skip 1 "no man"
    fi
    touch prefix/share/alibi/recipes/mine.json
    check "uninstalls" "$SOURCE/scripts/uninstall.sh" "$PWD/prefix"
    left=$(find prefix ! -type d)
    [ "$left" = prefix/share/alibi/recipes/mine.json ] && pass "all of it, and nothing else" ||
        fail "uninstall" "left: $left"
    run "$SOURCE/scripts/uninstall.sh" "$PWD/prefix"
    [ "$code" = 1 ] && grep -q "nothing to uninstall" stderr && pass "once" ||
        fail "uninstall" "exit code $code"
else
    skip 1 "no manual in this build"
fi
finish
