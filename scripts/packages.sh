#!/bin/sh
# Installs what is missing of what the build needs, or with the argument "test" of what the tests
# need, with "deb" or "wheel" of what such a package needs: as root, with sudo, or else by printing
# the command to run. Another compiler or a library of your own will do. Without apt-get it does
# nothing: then docs/install.md has the names, and CMake says what is missing.
set -eu
command -v apt-get > /dev/null || exit 0

has() { command -v "$1" > /dev/null 2>&1; }
library() { has pkg-config && pkg-config --exists "$1"; }
compiles() { # a program of C with OpenMP
    echo 'int main(void) { return 0; }' | ${CC:-cc} -x c -fopenmp - -o /dev/null 2> /dev/null
}

missing=""
need() { # package, COMMAND that succeeds if it is there
    package=$1
    shift
    "$@" || missing="$missing $package"
}

case ${1-} in
"")
    need "gcc libc6-dev" compiles
    need cmake has cmake
    need ninja-build has ninja
    need pkg-config has pkg-config
    need libopenblas-openmp-dev library openblas
    need libjansson-dev library jansson
    need libpcre2-dev library libpcre2-8
    need libzstd-dev library libzstd
    need zlib1g-dev library zlib
    if has nvcc || [ -x /usr/local/cuda/bin/nvcc ]; then
        need g++ has g++
    fi
    ;;
test)
    need libcmocka-dev library cmocka
    need g++ has g++
    need "libopenmpi-dev openmpi-bin" has mpicc
    need clang-format has clang-format
    need git has git
    ;;
deb)
    need dpkg-dev has dpkg-shlibdeps
    need binutils has strip
    ;;
wheel)
    need python3 has python3
    ;;
*)
    echo "usage: scripts/packages.sh [test|deb|wheel]" >&2
    exit 2
    ;;
esac
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=""
elif has sudo && sudo -n true 2> /dev/null; then
    as_root="sudo"
else
    echo "${1:-build} needs packages that only root can install; run this, then try again:" >&2
    echo "  sudo apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi
echo "installing missing packages:$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# apt is silent unless it fails.
log=$(mktemp)
if ! $as_root apt-get install -y -qq --no-install-recommends $missing > "$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
rm -f "$log"
