#!/bin/bash
# The Python package: installed by pip into a fresh virtual environment that has nothing but NumPy.
. "$(dirname "$0")/lib.sh"

# NumPy is Debian's, or is fetched once into build/numpy.
numpy=$SOURCE/build/numpy
has_numpy() { PYTHONPATH=$numpy python3 -c 'import numpy' 2> /dev/null; }
if ! python3 -c 'import sys, venv, pip; sys.exit(sys.version_info < (3, 9))' 2> /dev/null; then
    skip 1 "no Python with venv and pip"
    finish
fi
has_numpy ||
    run python3 -m pip install -q --only-binary :all: --target "$numpy" numpy
if ! has_numpy; then
    rm -rf "$numpy"
    skip 1 "no NumPy"
    finish
fi

system=--system-site-packages
[ ! -d "$numpy" ] || system=
python3 -m venv --without-pip $system venv
site=$(echo "$folder"/venv/lib/python3*/site-packages)
[ ! -d "$numpy" ] || echo "$numpy" > "$site/numpy.pth"
export ALIBI_BUILD=$(dirname "$program")
check "pip installs the package" \
    python3 -m pip install -q --no-index --no-deps --target "$site" "$SOURCE/python"
# Who starts it in a folder of downloads does not run what is there.
LD_DEBUG=libs venv/bin/python -c 'import alibi' > tried 2>&1
LD_DEBUG=libs "$program" --version >> tried 2>&1
grep -q 'trying file=/.*/libpcre2' tried || skip 1 "no LD_DEBUG"
relative=$(grep -E -m 1 'trying file=[^/]' tried)
[ -z "$relative" ] && pass "no library is looked for in the current folder" ||
    fail "loader" "$relative"
run env ALIBI="$program" venv/bin/python -W error::ResourceWarning -m unittest discover -v \
    -s "$SOURCE/tests/python"
cp stderr tests.txt
sed -nE 's/^(test_.*) \.\.\. ok$/\1/p' tests.txt > passed.txt
while read -r name; do pass "$name"; done < passed.txt
sed -nE "s/.* \.\.\. skipped '(.*)'$/\1/p" tests.txt > skipped.txt
while read -r line; do skip 1 "$line"; done < skipped.txt
[ "$code" = 0 ] || fail "tests/python" "$(grep -E '^(FAIL|ERROR|[A-Za-z.]*Error)' tests.txt)"
[ "$code" = 0 ] || cat tests.txt
finish
