#!/bin/bash
# The shared library as others use it: the example runs, and the names it shows are those of
# alibi.h.
. "$(dirname "$0")/lib.sh"

run "$EXAMPLE" run 3
[ "$code" = 0 ] && [ "$(grep -cE '^length +[0-9]+  perplexity [0-9.]+$' stdout)" = 5 ] &&
    pass "the example trains and tests" \
    || fail "example" "exit code $code"
# A user's program: compiled against the installed header and library, nothing else.
cmake --install "$(dirname "$SCORE")" --prefix "$PWD/installed" > install.log 2>&1 &&
    libraries=$(dirname "$(find "$PWD/installed" -name libalibi.so | head -n 1)") &&
    cc -std=c17 -Wall -Wextra -Werror "$SOURCE/examples/score.c" -o score -Wl,-rpath,"$libraries" \
        $(PKG_CONFIG_PATH=$libraries/pkgconfig pkg-config --cflags --libs alibi) 2> cc.log &&
    pass "examples/score.c compiles against the installed library" || fail "install" "$(cat cc.log)"
run ./score run "In the evening"
[ "$code" = 0 ] && [ "$(grep -cE '^id +[0-9]+  logprob +-[0-9.]+  likeliest' stdout)" = 14 ] &&
    [ "$(wc -l < stdout)" -ge 14 ] && pass "a program scores a text and continues it" ||
    fail "score" "exit code $code"
run ./score missing "In the evening"
[ "$code" = 1 ] && grep -q "missing" stderr && pass "and says what is missing" ||
    fail "score" "exit code $code"
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
