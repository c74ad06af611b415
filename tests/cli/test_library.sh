#!/bin/bash
# The shared library as others use it: the example runs, and the names it shows are those of
# alibi.h.
. "$(dirname "$0")/lib.sh"

run "$EXAMPLE" run 3
[ "$code" = 0 ] && [ "$(grep -cE '^length +[0-9]+  perplexity [0-9.]+$' stdout)" = 5 ] &&
    pass "the example trains and tests" \
    || fail "example" "exit code $code"
# A user's program: its own compile line, from installed files alone, and started without any hint.
# The installed tree may be anywhere: in a prefix, below a DESTDIR, moved.
compile() { # what, folder with the installed tree: examples/score.c becomes user/a.out
    local line libraries
    line=$(sed -nE 's/^ \*   (cc score\.c .*pkg-config[^)]*\)).*/\1/p' "$SOURCE/examples/score.c")
    libraries=$(dirname "$(find "$PWD/$2" -name libalibi.so | head -n 1)")
    rm -rf user && mkdir user && cp "$SOURCE/examples/score.c" user
    (cd user && env -i PATH="$PATH" PKG_CONFIG_PATH="$libraries/pkgconfig" \
        sh -ec "${line:?no compile line in examples/score.c}") > cc.log 2>&1 &&
        env -i user/a.out run "In the evening" > stdout 2> stderr < /dev/null &&
        pass "$1: a program compiles and starts" || fail "$1" "$(cat cc.log)"
}
build=$(dirname "$SCORE")
cmake --install "$build" --prefix "$PWD/installed" > install.log 2>&1 || fail "install" "prefix"
compile "a prefix" installed
mv installed moved
compile "a moved tree" moved
DESTDIR=$PWD/stage cmake --install "$build" > install.log 2>&1 || fail "install" "DESTDIR"
compile "a DESTDIR" stage
cc -std=c17 -Wall -Wextra -Werror -fsyntax-only -I "$SOURCE/include" "$SOURCE"/examples/*.c \
    2> cc.log && pass "the examples compile without warnings" || fail "examples" "$(cat cc.log)"
run env -i user/a.out run "In the evening"
[ "$code" = 0 ] && [ "$(grep -cE '^id +[0-9]+  logprob +-[0-9.]+  likeliest' stdout)" = 14 ] &&
    [ "$(wc -l < stdout)" -ge 14 ] && pass "a program scores a text and continues it" ||
    fail "score" "exit code $code"
run env -i user/a.out missing "In the evening"
[ "$code" = 1 ] && grep -q "missing" stderr && pass "and says what is missing" ||
    fail "score" "exit code $code"
# The first token of each sequence sees itself alone.
run "$build/attend"
[ "$code" = 0 ] && [ "$(grep -cE '^token [0-7]  log-sum-exp +-?[0-9.]+  output' stdout)" = 8 ] &&
    grep -q '^token 0 .* output -1.0000 ' stdout && grep -q '^token 3 .* output -0.5000 ' stdout &&
    pass "a program attends to packed sequences" || fail "attend" "exit code $code"
run "$EXAMPLE" "$SOURCE/README.md" 3
[ "$code" = 1 ] && grep -q "README.md" stderr && pass "its error names the place" ||
    fail "example" "exit code $code"

library=$(dirname "$EXAMPLE")/libalibi.so
nm -D --defined-only "$library" | awk '$2 ~ /[TDBR]/ { print $3 }' | sort > shown
grep -oE 'alibi_[a-z_]+\(' "$SOURCE/include/alibi.h" | tr -d '(' | sort -u > declared
if [ -s shown ] && [ -z "$(comm -23 shown declared)" ]; then
    pass "$(wc -l < shown) names are shown, all of them of alibi.h"
else
    fail "names" "also shown: $(comm -23 shown declared | head -n 3 | tr '\n' ' ')"
fi
missing=$(sed -nE 's/^ALIBI_API .*[ *](alibi_[a-z_]+)\(.*/\1/p' "$SOURCE/include/alibi.h" |
    sort -u | comm -23 - shown)
[ -z "$missing" ] && pass "and none of alibi.h is missing" || fail "names" "missing: $missing"
finish
