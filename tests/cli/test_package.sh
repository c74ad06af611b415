#!/bin/bash
# The Debian package of this build: what it has and needs, and that the program runs from it.
. "$(dirname "$0")/lib.sh"

for tool in dpkg-deb dpkg-shlibdeps strip; do
    command -v $tool > /dev/null && continue
    skip 1 "no $tool"
    finish
done
export DEBFULLNAME="A Person" DEBEMAIL=person@example.org SOURCE_DATE_EPOCH=1700000000
package() { # folder: packs quickly
    mkdir -p "$1" && "$SOURCE/packaging/debian/build.sh" "$(dirname "$program")" "$1" -Zgzip -z1
}
check "builds" package once
deb=$(cat stdout)
[ -s "$deb" ] && pass "$(basename "$deb")" || { fail "build.sh" "no package" && finish; }
version=$("$program" --version | cut -d ' ' -f 2)
field() { dpkg-deb --field "$deb" "$1"; }
[ "$(field Package) $(field Version)" = "alibi $version" ] && pass "has the program's version" ||
    fail "control" "$(field Package) $(field Version)"
[ "$(field Maintainer)" = "A Person <person@example.org>" ] && pass "names its maintainer" ||
    fail "control" "Maintainer: $(field Maintainer)"
for library in libc6 libgomp1 libjansson4 "libopenblas0-openmp | libopenblas0" libpcre2-8-0 \
    libzstd1 zlib1g; do
    field Depends | grep -qF "$library" && pass "needs $library" ||
        fail "Depends" "no $library: $(field Depends)"
done

# Installed into a root of its own, by dpkg if it may.
mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates root/var/lib/dpkg/triggers
touch root/var/lib/dpkg/status
if [ "$(id -u)" = 0 ]; then
    check "dpkg installs it" dpkg --root="$PWD/root" --force-depends --log="$PWD/dpkg.log" \
        --install "$deb"
    grep -q '^Status: install ok' root/var/lib/dpkg/status && pass "and knows it" ||
        fail "dpkg" "$(grep Status root/var/lib/dpkg/status)"
else
    check "dpkg-deb unpacks it" dpkg-deb --extract "$deb" root
fi
bytes=$(($(du -k -s --apparent-size root/usr | cut -f 1) - $(field Installed-Size)))
[ "${bytes#-}" -le 64 ] && pass "says how large it is" || fail "Installed-Size" "$bytes KiB off"
for file in include/alibi.h lib/*/libalibi.so lib/*/pkgconfig/alibi.pc share/man/man1/alibi.1.gz \
    share/man/man1/alibi-train.1.gz share/bash-completion/completions/alibi \
    share/zsh/vendor-completions/_alibi share/fish/vendor_completions.d/alibi.fish \
    share/alibi/recipes/byte-10m.json share/alibi/experiments/wikipedia-small.json \
    share/doc/alibi/README.md share/doc/alibi/docs/cli.md share/doc/alibi/examples/score.c \
    share/doc/alibi/copyright share/doc/alibi/changelog.gz; do
    ls root/usr/$file > /dev/null 2>&1 && pass "has $file" || fail "package" "no $file"
done
grep -rlF "$SOURCE" root/usr/share root/usr/lib/*/pkgconfig > named
[ ! -s named ] && pass "names no path of the build" || fail "package" "$(head -n 3 named)"
rm -rf hidden && mkdir hidden && cp -r root hidden # recipes are found beside it, wherever it is
run env -i hidden/root/usr/bin/alibi --version
[ "$(cut -d ' ' -f -2 stdout)" = "alibi $version" ] && pass "its program runs" ||
    fail "program" "code $code"
check "and trains" hidden/root/usr/bin/alibi train "${tiny[@]}" --device cpu --out run
check "and finds recipes" hidden/root/usr/bin/alibi plan --recipe byte-10m --device cpu
run hidden/root/usr/bin/alibi reproduce
grep -q wikipedia-small stdout && pass "and experiments" || fail "reproduce" "exit code $code"

# The same build gives the same package.
check "builds again" package again
cmp -s "$deb" "$(cat stdout)" && pass "to the same bytes" || fail "build.sh" "another package"

if command -v lintian > /dev/null; then
    run lintian --allow-root --tag-display-limit 0 --fail-on error,warning "$deb"
    [ "$code" = 0 ] && pass "lintian finds no error and no warning" ||
        fail "lintian" "$(grep '^[EW]:' stdout | head -n 5)"
else
    skip 1 "no lintian"
fi
finish
