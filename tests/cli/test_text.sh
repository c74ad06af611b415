#!/bin/bash
# The built-in text, and files that are no text.
. "$(dirname "$0")/lib.sh"

check "text writes the built-in text" "$ALIBI" text --out all.txt "${text[@]}"
check "the same seed" "$ALIBI" text --out again.txt "${text[@]}"
cmp -s all.txt again.txt && pass "gives the same bytes" || fail "same seed" "other bytes"
expect 3 "'all.txt' exists; remove it" "$ALIBI" text --out all.txt "${text[@]}"
check "to standard output" "$ALIBI" text --out - "${text[@]}"
cmp -s all.txt stdout && pass "the same bytes, and nothing else" || fail "--out -" "other bytes"
check "another seed" "$ALIBI" text --out other.txt "${text[@]}" --text-seed 2
cmp -s all.txt other.txt && fail "another seed" "the same bytes" || pass "gives other bytes"
for split in train valid test; do
    check "text --split $split" "$ALIBI" text --out $split.txt "${text[@]}" --split $split
done
[ "$(cat train.txt valid.txt test.txt | wc -w)" = "$(wc -w < all.txt)" ] &&
    pass "the splits are the text" || fail "splits" "words lost"
check "the default size" "$ALIBI" text --out full.txt
[ "$(stat -c %s full.txt)" -ge 4000000 ] && pass "is 4 MB" ||
    fail "default size" "$(stat -c %s full.txt) bytes"
expect 5 "'/dev/full'" "$ALIBI" text --out /dev/full "${text[@]}"

bad() { # code, pattern, file: train, compare and eval all refuse it
    expect "$1" "^alibi: train: .*$2" "$ALIBI" train "${tiny[@]}" "$3" --out bad
    expect "$1" "^alibi: compare: .*$2" "$ALIBI" compare "${tiny[@]}" "$3" --out bad
    expect "$1" "^alibi: eval: .*$2" "$ALIBI" eval run --quiet --data "$3"
}
check "a run to evaluate" "$ALIBI" train "${tiny[@]}" --out run

bad 3 "'absent.txt'" absent.txt
: > empty.txt
bad 3 "'empty.txt' is empty" empty.txt
mkdir nothing
bad 3 "'nothing'" nothing
cp "$program" binary.txt
bad 3 "'binary.txt' as text: it is a program" binary.txt
printf 'first line\nsecond \377 line\n' > latin.txt
bad 3 "'latin.txt' is not UTF-8: byte 0xff at offset 18 \(line 2\)" latin.txt
printf 'ends within a character: \303' > cut.txt
bad 3 "'cut.txt' is not UTF-8" cut.txt
printf 'short' > short.txt
bad 3 "'short.txt'.*tokens" short.txt
printf 'some text' > locked.txt
chmod 000 locked.txt
if [ ! -r locked.txt ]; then
    bad 3 "'locked.txt': Permission denied" locked.txt
elif command -v setpriv > /dev/null; then
    # The superuser may read everything, so someone else tries.
    cp "$program" program && chmod 755 "$folder" program
    expect 3 "^alibi: train: .*'locked.txt': Permission denied" setpriv --reuid 65534 \
        --clear-groups ./program train --device cpu "${tiny[@]}" locked.txt --out /nonexistent
else
    skip 1 "no user who may not read a file"
fi
expect 3 "'absent.txt'" "$ALIBI" train "${tiny[@]}" all.txt absent.txt --out bad
[ -e bad ] && fail "bad text leaves nothing" "there is a folder" ||
    pass "bad text leaves nothing"

# A corpus shorter than the length
expect 3 "tokens" "$ALIBI" train "${tiny[@]}" --train-length 1000000 --out bad
expect 3 "tokens" \
    "$ALIBI" compare "${tiny[@]}" --methods none --lengths 16,1000000 --eval-tokens 0 --out bad
expect 3 "tokens" "$ALIBI" eval run --quiet "${text[@]}" --length 1000000

# Odd but valid text
printf 'one line without an end, over and over and over and over and over and over and over and over and over and over.' > line.txt
printf 'd\303\251j\303\240 vu \342\202\254 \360\237\230\200\n%.0s' $(seq 100) > accents.txt
check "several files, one without a line end" \
    "$ALIBI" train "${tiny[@]}" --train-length 8 line.txt accents.txt --out odd
check "a file whose name begins with a dash" \
    bash -c "cp accents.txt ./--odd && '$ALIBI' eval odd --quiet --length 8 -- --odd"
finish
