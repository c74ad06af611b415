#!/bin/bash
# packaging/debian/build.sh BUILD OUT [OPTION...]: the Debian package of what the build folder BUILD
# has, in the folder OUT. It prints the path of the package. Options are those of dpkg-deb.
#
# One package has everything: program, library, header, manual, completions, recipes, experiments
# and documents, and the GPU backend if it was built. It installs into /usr, whatever prefix BUILD
# is configured for. DEBFULLNAME and DEBEMAIL name its maintainer, SOURCE_DATE_EPOCH its date.
#
# Needs cmake, binutils and dpkg-shlibdeps (of dpkg-dev), but neither root nor fakeroot.
set -euo pipefail
umask 022
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath "$1")
out=$(realpath "$2")
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/alibi
share=$stage/usr/share
documents=$share/doc/alibi
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
architecture=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-The alibi authors} <${DEBEMAIL:-alibi@example.org}>"
date=$(LC_ALL=C date -u -R ${SOURCE_DATE_EPOCH:+-d "@$SOURCE_DATE_EPOCH"})

# ---- files

if ! DESTDIR=$stage cmake --install "$build" --prefix /usr > "$work/log"; then
    cat "$work/log" >&2
    exit 1
fi
rm "$share/alibi/installed.txt" # dpkg knows what is installed
mv "$share/zsh/site-functions" "$share/zsh/vendor-completions" # where Debian's zsh searches
# Debian has a folder for each architecture. The loader searches there: no rpath.
libraries=$stage/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
if [ ! -d "$libraries" ]; then
    mv "$stage/usr/lib" "$work/lib"
    mkdir "$stage/usr/lib"
    mv "$work/lib" "$libraries"
fi
sed -i 's/ -Wl,-rpath,[^ ]*//; s|^prefix=.*|prefix=/usr|' "$libraries/pkgconfig/alibi.pc"
library=$(find "$libraries" -name 'libalibi.so.*.*.*')
cuda=$(find "$libraries" -name libalibi_cuda.so)
mpi=$(find "$libraries" -name libalibi_mpi.so)
strip --strip-unneeded --remove-section=.comment "$stage/usr/bin/alibi" "$library" \
    ${cuda:+"$cuda"} ${mpi:+"$mpi"}
mkdir -p "$documents"
cp "$source/README.md" "$source/CHANGES.md" "$documents"
cp -r "$source/docs" "$source/examples" "$documents"
{
    printf '%s\n' "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/" \
        "Upstream-Name: alibi" "" "Files: *" "Copyright: 2026 The alibi authors" "License: Expat"
    sed '1,/^Permission/{/^Permission/!d}; s/^$/./; s/^/ /' "$source/LICENSE"
} > "$documents/copyright"
printf 'alibi (%s) unstable; urgency=medium\n\n  * CHANGES.md says what is new.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$date" | gzip -9n > "$documents/changelog.gz"
gzip -9n "$share"/man/man1/*
chmod -R u+w,go+rX "$stage"

# ---- what it needs, from the libraries that it was linked to

mkdir "$work/debian" "$stage/DEBIAN"
touch "$work/debian/control"
# NVIDIA's libraries are of no Debian package. MPI is needed only where a launcher of it is, so
# that the package does not depend on it. Debian has several builds of OpenBLAS; the one with
# OpenMP shares our threads.
depends() { # FILE...
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "$@" 2> shlibdeps.log) ||
        { cat "$work/shlibdeps.log" >&2 && exit 1; }
}
{
    echo "Package: alibi"
    echo "Version: $version"
    echo "Architecture: $architecture"
    echo "Maintainer: $maintainer"
    echo "Installed-Size: $(du -k -s --apparent-size "$stage" | cut -f 1)"
    depends "$stage/usr/bin/alibi" "$library" ${cuda:+"$cuda"} |
        sed -E 's/^shlibs:Depends=/Depends: /
            s/\blibopenblas0( \([^)]*\))?(,|$)/libopenblas0-openmp | &/'
    sed '/^#/d' "$source/packaging/debian/control"
} > "$stage/DEBIAN/control"
soname=$(objdump -p "$library" | sed -n 's/^ *SONAME *//p')
echo "libalibi ${soname#libalibi.so.} alibi (>= $version)" > "$stage/DEBIAN/shlibs"
echo "activate-noawait ldconfig" > "$stage/DEBIAN/triggers"
mkdir -p "$share/lintian/overrides"
{
    # One package has the program, the library and what is needed to compile with it.
    echo "alibi: package-name-doesnt-match-sonames"
    echo "alibi: link-to-shared-library-in-wrong-package"
    # The GPU backend finds NVIDIA's libraries where their installer puts them.
    [ -z "$cuda" ] || echo "alibi: custom-library-search-path"
    # Backends are loaded by name.
    [ -z "$cuda$mpi" ] || echo "alibi: sharedobject-in-library-directory-missing-soname"
} > "$share/lintian/overrides/alibi"
(cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) > "$stage/DEBIAN/md5sums"

dpkg-deb --root-owner-group "$@" --build "$stage" "$out/alibi_${version}_$architecture.deb" \
    > /dev/null
echo "$out/alibi_${version}_$architecture.deb"
