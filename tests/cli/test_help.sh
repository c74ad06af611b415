#!/bin/bash
# Help, version, and that help and documentation name the same options.
. "$(dirname "$0")/lib.sh"
manual=$SOURCE/docs/cli.md

run "$ALIBI"
if [ "$code" = 2 ] && grep -q '^usage:' stderr && [ ! -s stdout ]; then
    pass "alone: help on stderr"
else
    fail "alone" "code $code"
fi
for form in help --help -h "help help" "help --help"; do
    run "$ALIBI" $form
    if [ "$code" = 0 ] && grep -q '^usage:' stdout && [ ! -s stderr ]; then
        pass "alibi $form"
    else
        fail "alibi $form" "code $code"
    fi
done
run "$ALIBI" --version
if [ "$code" = 0 ] && grep -qE '^alibi [0-9]+\.[0-9]+\.[0-9]+( .*)?$' stdout; then
    pass "--version"
else
    fail "--version" "code $code"
fi
if [ "$(git -C "$SOURCE" rev-parse --show-toplevel 2> /dev/null)" = "$(realpath "$SOURCE")" ] &&
    (cd "$SOURCE" && test -e "$(git rev-parse --git-path logs/HEAD)"); then
    commit=$(sed -nE 's/.* \(commit ([0-9a-f]+)\)$/\1/p' stdout)
    [ -n "$commit" ] && git -C "$SOURCE" cat-file -e "$commit" 2> /dev/null &&
        pass "names a commit of the repository" || fail "--version" "commit '$commit'"
else
    skip 1 "no clone of the repository"
fi

for command in compare train eval probe score generate import export tokenize inspect text plan \
    bench; do
    case " $commands" in
    *" $command "*) pass "help lists $command" ;;
    *) fail "help" "does not list $command" ;;
    esac
done

# What --help lists, one name per line.
options_of() { "$ALIBI" "$1" --help | grep -oE '^  --[^ ]+' | sed 's/^  --//; s/\[no-\]//' | sort; }

lacking() { # of the names on standard input those that the manual lacks
    while read -r name; do
        grep -qE -- "\`--(no-)?$name[ \`]" "$manual" || printf ' --%s' "$name"
    done
}

for command in $commands; do
    check "$command --help" "$ALIBI" "$command" --help
    cp stdout first
    check "help $command" "$ALIBI" help "$command"
    if cmp -s stdout first; then
        pass "says the same"
    else
        fail "help $command" "differs from $command --help"
    fi
    check "$command: help wins over what else is there" \
        "$ALIBI" "$command" --no-such-option a b c --help
    if grep -q "^    alibi $command " "$manual" && grep -q "^## alibi $command" "$manual"; then
        pass "$command is in the overview and has its section in the manual"
    else
        fail "$command" "not in the overview of docs/cli.md, or without a section"
    fi
    for width in 60 100; do
        COLUMNS=$width run "$ALIBI" "$command" --help
        # One word, such as a pattern, is not broken.
        widest=$(sed 1d stdout | awk 'NF > 1 && length > n { n = length } END { print n + 0 }')
        if [ "$widest" -le $width ] && [ "$widest" -gt 40 ]; then
            pass "$command: fits $width columns"
        else
            fail "$command" "$widest columns"
        fi
    done
    options_of "$command" > options
    missing=$(lacking < options)
    if [ -s options ] && [ -z "$missing" ]; then
        pass "$command: all $(wc -l < options) options are in the manual"
    else
        fail "$command" "docs/cli.md lacks$missing"
    fi
    cat options >> all
    if ! grep -qx out options || "$ALIBI" "$command" --help |
        grep -qE '^  --out ([A-Z]+), -o \1 '; then
        pass "$command: -o is listed with --out"
    else
        fail "$command" "no -o with --out"
    fi
done

"$ALIBI" help | grep -o 'alibi help --as' | sed 's/.*--//' >> all
unknown=$(grep -oE '`--[a-z0-9-]+[ `]' "$manual" | sed 's/`--//; s/[ `]$//; s/^no-//' | sort -u |
    grep -vxF -f all)
if [ -z "$unknown" ]; then
    pass "the manual has no option that is not there"
else
    fail "docs/cli.md" "$unknown"
fi

# The methods that help explains, each with its place in the documentation; those of the paper are
# among them.
"$ALIBI" train --help | sed '1,/^Position methods:/d' | grep -oE '^  [a-z0-9-]+ ' |
    tr -d ' ' > methods
while read -r method; do
    if grep -q "^| \`--position NAME\` .*\`$method\`" "$manual" &&
        grep -q "\`$method\`" "$SOURCE/docs/positions.md"; then
        pass "$method is documented"
    else
        fail "$method" "not in docs/cli.md or docs/positions.md"
    fi
done < methods
for method in none learned sinusoidal rotary t5 alibi; do
    if grep -qx "$method" methods; then
        pass "help explains $method"
    else
        fail "$method" "not in help"
    fi
done
finish
