#!/bin/sh
# scripts/uninstall.sh PREFIX: removes what is listed in PREFIX/share/alibi/installed.txt, then the
# folders that only alibi has.
set -eu
prefix=$1
list=$prefix/share/alibi/installed.txt
if [ ! -f "$list" ]; then
    echo "nothing to uninstall: there is no '$list'; give the PREFIX of the installation" >&2
    exit 1
fi
while read -r file; do
    case $file in
    "" | /* | *..*) ;; # never outside the prefix
    *) rm -f "$prefix/$file" ;;
    esac
done < "$list"
rm -f "$list"
for folder in share/alibi/recipes share/alibi/experiments share/alibi; do
    [ ! -d "$prefix/$folder" ] || rmdir "$prefix/$folder" || true # files of your own stay
done
echo "uninstalled alibi from $prefix"
