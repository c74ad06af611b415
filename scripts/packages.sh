#!/bin/sh
# Installs the Debian packages that the build and the tests need and that are missing: as root, with
# sudo, or else by printing the command to run.
set -eu
packages="gcc libc6-dev make cmake ninja-build pkg-config clang-format libopenblas-openmp-dev
    libjansson-dev libpcre2-dev libzstd-dev zlib1g-dev libcmocka-dev"
# nvcc needs g++.
if command -v nvcc > /dev/null 2>&1 || [ -x /usr/local/cuda/bin/nvcc ]; then
    packages="$packages g++"
fi

installed() { # package
    dpkg-query -W -f '${Status}' "$1" 2> /dev/null | grep -q 'install ok installed'
}

missing=""
for package in $packages; do
    installed "$package" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

echo "installing the missing Debian packages:$missing" >&2
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo > /dev/null 2>&1 && sudo -n true 2> /dev/null; then
    as_root="sudo"
else
    echo "run this as root, then try again:" >&2
    echo "  apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
$as_root apt-get install -y -qq --no-install-recommends $missing > /dev/null
