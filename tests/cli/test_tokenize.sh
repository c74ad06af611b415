#!/bin/bash
# Tokenizing: vocabularies, shards, ids; and what comes of them in train, eval, generate, compare
# and inspect.
. "$(dirname "$0")/lib.sh"
model=("${tiny[@]:2}") # without the size of the built-in text
"$ALIBI" text --out all.txt "${text[@]}" > /dev/null

# What cannot be
expect 2 "^alibi: tokenize: no output; give --out DIR" "$ALIBI" tokenize all.txt
expect 2 "--end names a token of a tokenizer; give --tokenizer too" \
    "$ALIBI" tokenize --end x all.txt -o end-shards
expect 2 "no output; give --out FILE" "$ALIBI" tokenize --train all.txt
expect 2 "option '--out' needs a value: PATH" "$ALIBI" tokenize all.txt -o
expect 2 "unknown option '--out'" "$ALIBI" eval -o x
expect 2 "--train makes a tokenizer and --tokenizer uses one" \
    "$ALIBI" tokenize --train --tokenizer t.json all.txt -o x
expect 2 "different jobs" "$ALIBI" tokenize --train --print-ids all.txt
expect 2 "different jobs" "$ALIBI" tokenize --decode --print-ids all.txt
expect 2 "such as --vocab, go with --train" "$ALIBI" tokenize --vocab 300 all.txt -o x
expect 2 "--out and --json are not for them" "$ALIBI" tokenize --print-ids all.txt -o x
expect 2 "--out and --json are not for them" "$ALIBI" tokenize --decode --json all.txt
expect 2 "--decode reads ids" "$ALIBI" tokenize --decode --document line all.txt
expect 2 "'--shard-tokens'.* 9999 is out of range" \
    "$ALIBI" tokenize --shard-tokens 9999 all.txt -o x
expect 2 "--shard-tokens is for shards" "$ALIBI" tokenize --print-ids --shard-tokens 10000 all.txt
expect 2 "--shard-tokens is for shards" \
    "$ALIBI" tokenize --train --shard-tokens 10000 all.txt -o x.json
expect 2 "'--vocab'.* -1 is out of range" "$ALIBI" tokenize --train --vocab -1 all.txt -o x.json
expect 2 "'--type'.*'wrods' is not one of .*did you mean 'words'" \
    "$ALIBI" tokenize --train --type wrods all.txt -o x.json
expect 2 "'--document'.*'lines' is not one of .*did you mean 'line'" \
    "$ALIBI" tokenize --document lines all.txt -o x
expect 2 "'$folder' is a folder; give the file to write, such as '$folder/tokenizer.json'" \
    "$ALIBI" tokenize --train all.txt -o "$folder"
expect 2 "'--pattern' is for bpe" \
    "$ALIBI" tokenize --train --type words --pattern gpt2 all.txt -o x.json
expect 3 "cannot create .none/t.json.: its folder does not exist" \
    "$ALIBI" tokenize --train all.txt -o none/t.json
expect 3 "'absent.txt'" "$ALIBI" tokenize --train all.txt absent.txt -o x.json
expect 3 "'absent.txt'" "$ALIBI" tokenize absent.txt -o x
expect 3 "'absent.json'" "$ALIBI" tokenize --tokenizer absent.json all.txt -o x
expect 2 "--valid needs files" "$ALIBI" train "${tiny[@]}" --valid all.txt --out x
if script -qec true /dev/null > /dev/null 2>&1; then # there is a pseudo-terminal to be had
    script -qec "'$ALIBI' tokenize -o x" /dev/null > stdout 2> stderr
    [ $? = 2 ] && grep -q "standard input is a terminal" stdout && pass "no file and a terminal" ||
        fail "terminal" "no such message"
fi
[ -e x ] || [ -e x.json ] && fail "usage errors leave nothing" "$(ls)" ||
    pass "usage errors leave nothing"

# A vocabulary
check "learn a BPE" "$ALIBI" tokenize --train --vocab 600 all.txt -o bpe.json --quiet
grep -qE "^bpe, 600 ids, in 'bpe.json'; 0:[0-9]{2}, peak [0-9.]+ MiB$" stdout && [ ! -s stderr ] &&
    pass "600 ids" || fail "--train" "another line"
expect 3 "'bpe.json' exists; remove it or choose another name" \
    "$ALIBI" tokenize --train --vocab 300 all.txt -o bpe.json --quiet
check "on one thread" env OMP_NUM_THREADS=1 \
    "$ALIBI" tokenize --train --vocab 600 all.txt -o again.json --quiet --json
is_json stdout && [ "$(member stdout vocab)" = 600 ] && pass "is JSON" ||
    fail "--train --json" "no JSON"
is_json bpe.json && cmp -s bpe.json again.json && pass "the same file on any number of threads" ||
    fail "threads" "another tokenizer"
check "from standard input" \
    bash -c "'$ALIBI' tokenize --train --vocab 600 --quiet -o piped.json < all.txt"
cmp -s bpe.json piped.json && pass "gives the same" || fail "standard input" "another tokenizer"
head -n 20 all.txt > short.txt
check "learn more than a text has" \
    "$ALIBI" tokenize --train --vocab 4000 short.txt -o short.json
grep -qE '^the vocabulary has [0-9]+ ids, not 4000: all pairs that occur at least 2 times' stderr &&
    pass "is noted" || fail "--vocab 4000" "no note"
check "learn words" "$ALIBI" tokenize --train --type words all.txt -o words.json --quiet
distinct=$(tr -s ' \t\n\r\v\f' '\n' < all.txt | sed '/^$/d' | LC_ALL=C sort -u | wc -l)
grep -q "^words, $((distinct + 2)) ids" stdout && pass "all $distinct words, <unk> and <eos>" ||
    fail "--type words" "not $((distinct + 2))"
for file in bpe.json words.json; do
    check "inspect $file" "$ALIBI" inspect $file
    check "inspect $file --json" "$ALIBI" inspect $file --json
    is_json stdout && pass "is JSON" || fail "inspect $file --json" "no JSON"
done

# Shards
ids_of() { # folder: the ids of its shards, one per line
    for shard in "$1"/*.bin; do tail -c +1025 "$shard"; done | od -An -v -tu2 | tr -s ' ' '\n' |
        sed '/^$/d'
}
# request.json has the names and times of files, and lock says who wrote last.
same_shards() { # name, folder, folder
    if diff -r -x request.json -x lock "$2" "$3" > stdout 2> stderr; then
        pass "$1"
    else
        fail "$1" "they differ"
    fi
}
check "shards" "$ALIBI" tokenize --tokenizer bpe.json all.txt --shard-tokens 20000 -o shards --quiet
ids_of shards > ids
read -r documents tokens words bytes _ <<< "$(sed -n 2p stdout)"
[ "$documents $words $bytes" = "1 $(LC_ALL=C wc -w < all.txt) $(wc -c < all.txt)" ] &&
    pass "counts documents, words and bytes" || fail "counts" "$documents $words $bytes"
grep -qE "^[0-9]+ shards in 'shards', tokenizer: bpe, 600 ids; [0-9.]+ MB/s, peak" stdout &&
    ! grep -q '.\{81\}' stdout && pass "names the tokenizer, in 80 columns" ||
    fail "shards" "another line"
[ "$tokens" = "$(wc -l < ids)" ] && [ "$tokens" -gt 40000 ] &&
    pass "and $tokens tokens, as many as the files have" || fail "counts" "$tokens tokens"
set -- shards/*.bin
shard=$1
[ $# = $(((tokens + 19999) / 20000)) ] && [ "$(stat -c %s "$1")" = 41024 ] && pass "$# shards" ||
    fail "--shard-tokens" "$# shards"
[ "$(od -An -tu4 -N 12 "$1" | tr -s ' ')" = " 20240520 1 20000" ] && pass "the header is llm.c's" ||
    fail "header" "another one"
[ -s shards/tokenizer.json ] && is_json shards/index.json &&
    pass "index.json and tokenizer.json are beside them" || fail "shards" "$(ls shards)"
check "once more" \
    "$ALIBI" tokenize --tokenizer bpe.json all.txt --shard-tokens 20000 -o shards --quiet --json
is_json stdout && [ "$(member stdout tokens)" = "$tokens" ] &&
    grep -q '"bytes_per_s": null' stdout && pass "tells the same as JSON, and no speed" ||
    fail "again" "other counts"
check "on one thread" env OMP_NUM_THREADS=1 \
    "$ALIBI" tokenize --tokenizer bpe.json all.txt --shard-tokens 20000 -o single --quiet
same_shards "gives the same files" shards single
expect 3 "'shards' holds the finished shards of another request, use another --out: it has another tokenizer \(bpe, 600 ids\) than this request \(bytes, 257 ids\)" "$ALIBI" tokenize all.txt --shard-tokens 20000 -o shards --quiet
expect 3 "'shards' holds token shards already" "$ALIBI" tokenize shards -o broken --quiet
expect 3 "'$1' holds token shards already" "$ALIBI" tokenize --print-ids "$1"
expect 3 "'run'" \
    bash -c "mkdir -p run && echo text > run/notes.txt && '$ALIBI' tokenize all.txt -o run --quiet"

check "inspect shards" "$ALIBI" inspect shards
grep -q "verified" stdout && pass "are verified" || fail "inspect shards" "not verified"
check "inspect shards --json" "$ALIBI" inspect shards --json
is_json stdout && [ "$(member stdout tokens)" = "$tokens" ] && pass "is JSON" ||
    fail "inspect shards --json" "no JSON, or other counts"
check "inspect index.json" "$ALIBI" inspect shards/index.json --json
[ "$(member stdout tokens)" = "$tokens" ] && pass "is the folder" ||
    fail "inspect index.json" "other counts"
check "inspect one shard" "$ALIBI" inspect "$1"
grep -q "every byte, every id" stdout && grep -q "type  *bpe" stdout &&
    pass "verified with its folder's index" || fail "inspect one shard" "not verified"
for part in "$1" shards/index.json shards/tokenizer.json; do
    name=$(basename "$part")
    rm -rf altered && cp -r shards altered && alter "altered/$name"
    expect 3 "altered.*" "$ALIBI" inspect altered
    expect 3 "altered.*" "$ALIBI" train altered "${model[@]}" --out x
    rm -rf altered && cp -r shards altered && truncate -s -3 "altered/$name"
    expect 3 "altered.*" "$ALIBI" inspect altered
    rm "altered/$name"
    run "$ALIBI" inspect altered
    [ "$code" = 3 ] && grep -q altered stderr && pass "without $name" ||
        fail "without $name" "exit code $code"
done

# Ids on standard output, and back
for tokenizer in bytes bpe.json; do
    check "--print-ids with $tokenizer" \
        "$ALIBI" tokenize --tokenizer $tokenizer --print-ids all.txt --quiet
    mv stdout printed
    [ "$(wc -l < printed)" = 1 ] && pass "a document is a line" ||
        fail "--print-ids" "$(wc -l < printed) lines"
    check "--decode" "$ALIBI" tokenize --tokenizer $tokenizer --decode printed
    cmp -s stdout all.txt && pass "is the text again" || fail "--decode" "another text"
done
tr ' ' '\n' < printed | cmp -s - ids && pass "the ids are those of the shards" ||
    fail "--print-ids" "other ids"
printf 'd\303\251j\303\240 vu\n\n\nsecond  line \360\237\230\200' > odd.txt

# A tokenizer that merges characters, puts a blank before text, and has a begin token
llama=$SOURCE/tests/golden/tokenizers/llama2.json
check "a tokenizer of characters" \
    "$ALIBI" tokenize --tokenizer "$llama" --print-ids --document line odd.txt
[ "$(grep -c '^1 .* 2$' stdout)" = 2 ] && pass "a document is between begin and end" ||
    fail "begin and end" "$(cat stdout)"
mv stdout printed
check "--decode" "$ALIBI" tokenize --tokenizer "$llama" --decode printed
printf 'd\303\251j\303\240 vu\nsecond  line \360\237\230\200' | cmp -s - stdout &&
    pass "is the text again" || fail "--decode" "$(cat stdout)"
check "training with it" "$ALIBI" train all.txt --tokenizer "$llama" "${model[@]}" -o llama-run
check "a score" "$ALIBI" score llama-run --text "the end" --json
grep -q '"token": " t' stdout && pass "has the first token, with its blank" ||
    fail "score" "$(cat stdout)"
for protocol in rolling llama.cpp; do
    check "protocol $protocol" "$ALIBI" eval llama-run all.txt --protocol $protocol --lengths 16 \
        --tokens 400 --quiet
done
check "a document of its own" "$ALIBI" generate llama-run --tokens 5 --temperature 0

check "--document line" "$ALIBI" tokenize --print-ids --document line odd.txt
[ "$(wc -l < stdout)" = 2 ] && pass "2 documents" ||
    fail "--document line" "$(wc -l < stdout) documents"
check "--document blank-line" "$ALIBI" tokenize --print-ids --document blank-line odd.txt all.txt
[ "$(wc -l < stdout)" -gt 2 ] && pass "$(wc -l < stdout) documents" ||
    fail "--document blank-line" "$(wc -l < stdout) documents"
check "through a pipe and back" bash -c "
    '$ALIBI' tokenize --print-ids --tokenizer bpe.json < odd.txt |
        '$ALIBI' tokenize --tokenizer bpe.json --decode | cmp - odd.txt"
check "two documents back" bash -c "'$ALIBI' tokenize --print-ids odd.txt all.txt | '$ALIBI' tokenize --decode | cmp - <(cat odd.txt; echo; cat all.txt)"
expect 3 "'standard input' line 2: byte 0x78 is not part of an id" \
    bash -c "printf '97 256\n98 x\n' | '$ALIBI' tokenize --decode > /dev/null"
expect 3 "'standard input' line 1: an id is above 256" \
    bash -c "echo 97 257 | '$ALIBI' tokenize --decode"
expect 3 "'standard input' line 1: an id is above 256" \
    bash -c "echo 99999999999999999999999 | '$ALIBI' tokenize --decode"
expect 3 "cannot open 'absent'" "$ALIBI" tokenize --decode absent
expect 3 "'shards' is a folder; --decode reads files of ids" "$ALIBI" tokenize --decode shards
check "words and back" bash -c "
    '$ALIBI' tokenize --print-ids --tokenizer words.json all.txt |
        '$ALIBI' tokenize --tokenizer words.json --decode | sed 's/ $//' | cmp - all.txt"
run bash -c "'$ALIBI' tokenize --print-ids all.txt > /dev/full"
[ "$code" = 5 ] && grep -q 'cannot write the results' stderr && pass "a full disk behind stdout" ||
    fail "/dev/full" "exit code $code"
"$ALIBI" tokenize --print-ids all.txt --quiet 2> stderr | head -c 10 > stdout
[ "${PIPESTATUS[0]}" = 0 ] && [ ! -s stderr ] && pass "a closed pipe ends it quietly" ||
    fail "pipe" "not quiet"

# Where text comes from
shards() { # name, ARGUMENT...: the shards are those of all.txt
    local name=$1
    shift
    rm -rf other
    check "$name" "$ALIBI" tokenize --tokenizer bpe.json --shard-tokens 20000 --quiet "$@" -o other
    [ -d other ] && same_shards "gives the same shards" shards other
}
rm -rf other
check "standard input" bash \
    -c "'$ALIBI' tokenize --tokenizer bpe.json --shard-tokens 20000 --quiet -o other < all.txt"
cmp -s <(ids_of other) ids && pass "gives the same ids" || fail "standard input" "other ids"
rm -rf other
check "standard input as '-'" bash -c "cat all.txt | '$ALIBI' tokenize - --tokenizer bpe.json --shard-tokens 20000 --quiet -o other"
cmp -s <(ids_of other) ids && pass "gives the same ids" || fail "standard input" "other ids"
for packer in gzip zstd; do
    command -v $packer > /dev/null || { skip 1 "no $packer" && continue; }
    $packer -c < all.txt > packed
    shards "packed by $packer" packed
    head -c 30000 packed > cut
    expect 3 "'cut'" "$ALIBI" tokenize cut --quiet -o broken
done
mkdir -p texts/below
cp odd.txt texts/b.txt && cp all.txt texts/below/c.txt && echo first > texts/a.txt
"$ALIBI" tokenize --print-ids texts/a.txt texts/b.txt texts/below/c.txt > wanted
check "a folder" "$ALIBI" tokenize --print-ids texts
cmp -s stdout wanted && pass "is its files in the order of their names" || fail "folder" "other ids"
expect 3 "cannot write to 'texts/shards': it is within 'texts'" \
    "$ALIBI" tokenize texts -o texts/shards --quiet
mkdir nothing
expect 3 "'nothing'" "$ALIBI" tokenize nothing -o broken --quiet
printf '%s\n' '{"id": 1, "text": "d\u00e9j\u00e0 vu", "body": "b"}' \
    '{"text": "two\nlines", "id": 2, "body": "c"}' > lines.jsonl
check "JSON lines" bash -c "'$ALIBI' tokenize --print-ids lines.jsonl | '$ALIBI' tokenize --decode"
[ "$(cat stdout)" = "$(printf 'd\303\251j\303\240 vu\ntwo\nlines')" ] && pass "are documents" ||
    fail "JSON lines" "another text"
check "another field" \
    bash -c "'$ALIBI' tokenize --print-ids --format jsonl --field body < lines.jsonl"
[ "$(cat stdout)" = "$(printf '98 256\n99 256')" ] && pass "is the text" ||
    fail "--field" "other ids"
echo '{"text": 3}' >> lines.jsonl
expect 3 "'lines.jsonl:3': 'text' is not a string" "$ALIBI" tokenize lines.jsonl -o broken --quiet
expect 3 "'lines.jsonl:1': 'title' is missing" \
    "$ALIBI" tokenize lines.jsonl --field title -o broken --quiet
: > empty.txt
expect 3 "empty.txt" "$ALIBI" tokenize empty.txt -o broken --quiet
printf 'second \377 line' > latin.txt
expect 3 "'latin.txt' is not UTF-8" "$ALIBI" tokenize latin.txt -o broken --quiet
expect 3 "'latin.txt' is not UTF-8" "$ALIBI" tokenize --train latin.txt -o x.json --quiet

# Files that are not text are named, in a folder too, with what to do
mkdir mixed && cp odd.txt mixed/a.txt
not_text() { # pattern; the file is on standard input
    cat > mixed/b
    expect 3 "^alibi: tokenize: .*'mixed/b'.*$1" "$ALIBI" tokenize mixed -o broken --quiet
}
printf '%%PDF-1.4\n' | not_text "a PDF; extract its text with pdftotext"
printf 'a\0b\0c\0d\0e\0f\0g\0h\0i\0' | not_text "UTF-16 without .* iconv -f UTF-16LE -t UTF-8"
printf '\377\376a\0' | not_text "in UTF-16; convert it with iconv -f UTF-16 -t UTF-8"
printf 'PK\3\4rest' | not_text "a zip archive; unpack it with unzip"
printf 'PAR1\25\4\25\20' | not_text "a Parquet table; convert it to JSON lines"
printf '\200\4\225rest' | not_text "a Python pickle"
printf 'caf\351 au lait' | not_text "is not UTF-8: byte 0xe9 at offset 3 .*iconv -f WINDOWS-1252"
tar -czf - odd.txt | not_text "a tar archive; unpack it with tar -xf"

# A byte-order mark is skipped; Windows line ends are kept, with a note
printf '\357\273\277a\r\n' > windows.txt
check "a file from Windows" "$ALIBI" tokenize --print-ids windows.txt
[ "$(cat stdout)" = "97 13 10 256" ] && grep -q "'windows.txt' has Windows line ends" stderr &&
    pass "is read without its mark, and noted" || fail "windows.txt" "other ids, or no note"

# <|endoftext|> is a token for a tokenizer that has it, else text; --document makes it a separator
printf 'one<|endoftext|>two' > marked.txt
"$ALIBI" tokenize --train --type words marked.txt -o marked-words.json --quiet > /dev/null
end=$("$ALIBI" inspect bpe.json --json | sed -nE 's/.*"end": *([0-9]+).*/\1/p')
ids() { "$ALIBI" tokenize --print-ids --quiet "$@" marked.txt | tr '\n' ' '; }
[ "$(ids)" = "111 110 101 60 124 101 110 100 111 102 116 101 120 116 124 62 116 119 111 256 " ] &&
    pass "text for bytes" || fail "<|endoftext|>" "$(ids)"
[ "$(ids --tokenizer marked-words.json)" = "2 1 " ] && pass "text for words" ||
    fail "<|endoftext|>" "$(ids --tokenizer marked-words.json)"
[ "$(ids --tokenizer bpe.json | tr ' ' '\n' | grep -cx "$end")" = 2 ] &&
    pass "the end of a document for a BPE that has it" || fail "<|endoftext|>" "not id '$end'"
for tokenizer in bytes marked-words.json bpe.json; do
    "$ALIBI" tokenize --print-ids --quiet --tokenizer $tokenizer --document '<|endoftext|>' \
        marked.txt > parted
    printf one > one && printf two > two
    "$ALIBI" tokenize --print-ids --quiet --tokenizer $tokenizer one two | cmp -s - parted &&
        pass "--document parts it for $tokenizer" || fail "--document" "$(cat parted)"
done
run "$ALIBI" tokenize --print-ids marked.txt
grep -q "'marked.txt' contains <|endoftext|>; .*--document '<|endoftext|>'" stderr &&
    pass "and is noted otherwise" || fail "<|endoftext|>" "no note"
printf 'a\n***\nb * c\n***\nd\n' > stars.txt
check "a line of stars" "$ALIBI" tokenize --document '***' stars.txt -o stars --json --quiet
[ "$(member stdout documents) $(member stdout bytes)" = "3 10" ] && pass "parts three documents" ||
    fail "--document '***'" "$(cat stdout)"
expect 3 "'document' was '\*\*\*', now it is 'file'" "$ALIBI" tokenize stars.txt -o stars --quiet

[ -e broken ] && fail "bad input leaves nothing" "there is a folder" ||
    pass "bad input leaves nothing"
cp bpe.json tokenizer.json
check "a tokenizer as text" "$ALIBI" tokenize tokenizer.json all.txt -o noted
grep -q "^'tokenizer.json' is read as text; a tokenizer is given with --tokenizer" stderr &&
    pass "is noted" || fail "tokenizer.json" "no note"
[ "$(grep -c '^tokenize: 100%' stderr)" = 1 ] && pass "the end is told once" ||
    fail "progress" "$(grep -c 100% stderr) ends"

# Tokenizers that cannot be
refuse() { # pattern, text of the file
    printf '%s' "$2" > bad.json
    expect 3 "'bad.json'.*$1" "$ALIBI" tokenize --tokenizer bad.json all.txt -o broken --quiet
}
refuse "" ''
refuse "" '{'
refuse "" '[]'
refuse "" '{"type": "sentences"}'
refuse " is a WordPiece tokenizer; only BPE is read" '{
    "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece", "vocab": {}}}'
printf '%s' "$(sed 's/"normalizer": *null/"normalizer": {"type": "NFKC"}/' bpe.json)" > bad.json
cmp -s bad.json bpe.json && fail "bad.json" "no normalizer to be changed" ||
    expect 3 "'bad.json'.*normalizer" \
    "$ALIBI" tokenize --tokenizer bad.json all.txt -o broken --quiet
head -c 5000 bpe.json > bad.json
expect 3 "'bad.json'" "$ALIBI" tokenize --tokenizer bad.json all.txt -o broken --quiet

# Stopped and continued
"$ALIBI" text --out big.txt --text-bytes 6000000 > /dev/null
big=(big.txt big.txt big.txt big.txt --tokenizer bpe.json --shard-tokens 100000 --quiet)
check "a larger text" "$ALIBI" tokenize "${big[@]}" -o whole
has_shard() { compgen -G "$1/*.bin" > /dev/null; }
stop() { # signal, folder: sent when the first shard is there
    "$ALIBI" tokenize "${big[@]}" -o "$2" > stdout 2> stderr &
    pid=$!
    wait_for has_shard "$2"
    kill -"$1" $pid
    wait $pid 2> /dev/null
    code=$?
    [ ! -e "$2/index.json" ] || fail "SIG$1" "came too late"
}
stop TERM stopped
[ "$code" = 75 ] && grep -qE "^alibi: tokenize: stopped; 'stopped' has [0-9]+ complete shards?, and the same command resumes after" stderr && [ "$(wc -l < stderr)" = 1 ] && [ ! -s stdout ] &&
    pass "SIGTERM: 75, and how to go on" || fail "SIGTERM" "exit code $code"
expect 3 "'stopped'" "$ALIBI" train stopped "${model[@]}" --out x
expect 3 "'stopped'" "$ALIBI" tokenize all.txt -o stopped --quiet
check "the same command" "$ALIBI" tokenize "${big[@]}" -o stopped
same_shards "ends in the same bytes" whole stopped
mkfifo pipe
for signal in TERM INT; do
    rm -rf waiting
    "$ALIBI" tokenize --quiet -o waiting < pipe > stdout 2> stderr &
    pid=$!
    exec 9> pipe
    echo "the start of a text" >&9
    wait_for test -e waiting/progress.json
    kill -$signal $pid
    wait $pid 2> /dev/null
    code=$?
    exec 9>&-
    [ "$code" = 75 ] && grep -q "stopped before 'waiting' had a complete shard" stderr &&
        pass "SIG$signal while a pipe is silent: 75" ||
        fail "SIG$signal while a pipe is silent" "exit code $code"
done
stop INT again
[ "$code" = 75 ] && pass "SIGINT: 75" || fail "SIGINT" "exit code $code"
stop KILL again
[ "$code" = 137 ] && pass "and then kill -9" || fail "kill -9" "exit code $code"
check "the same command" "$ALIBI" tokenize "${big[@]}" -o again
same_shards "ends in the same bytes" whole again
for delay in 0.05 0.1 0.2 0.3 0.5; do
    "$ALIBI" tokenize "${big[@]}" -o killed > /dev/null 2>&1 &
    pid=$!
    sleep $delay
    kill -KILL $pid 2> /dev/null
    wait $pid 2> /dev/null
done
check "killed again and again" "$ALIBI" tokenize "${big[@]}" -o killed
same_shards "ends in the same bytes" whole killed
"$ALIBI" tokenize "${big[@]}" -o shared > /dev/null 2>&1 &
pid=$!
wait_for has_shard shared
kill -STOP $pid
expect 5 "'shared.*(in use|another)" "$ALIBI" tokenize "${big[@]}" -o shared
kill -CONT $pid
wait $pid
same_shards "the first one is not disturbed" whole shared
for fault in file:{1,2,3,5,8,13,21,34,55,89} memory:{1,2,3,5,8,13,21,34,55,89,144,233}; do
    rm -rf faulty
    run env ALIBI_FAULT=$fault "$ALIBI" tokenize --tokenizer bpe.json all.txt --shard-tokens 20000 \
        -o faulty --quiet
    first=$code
    case $code in 0) ;; 4 | 5) [ "$(wc -l < stderr)" = 1 ] && [ ! -s stdout ] ||
        fail "$fault" "not one line" ;; *) fail "$fault" "exit code $code" ;; esac
    run "$ALIBI" tokenize --tokenizer bpe.json all.txt --shard-tokens 20000 -o faulty --quiet
    [ "$code" = 0 ] && diff -r -x request.json -x lock shards faulty > /dev/null &&
        pass "$fault: exit $first, then the same shards" || fail "$fault" "exit code $code, then"
done

# Models
nll_of() { # ARGUMENT of eval...
    run "$ALIBI" eval "$@" --quiet --json --tokens 1600
    member stdout nll
}
check "train on shards" "$ALIBI" train shards "${model[@]}" -o run-shards
check "train on text" "$ALIBI" train all.txt --tokenizer bpe.json "${model[@]}" -o run-text
cmp -s "$(newest run-shards)/model.safetensors" "$(newest run-text)/model.safetensors" &&
    pass "gives the same model" || fail "shards and text" "two models"
cmp -s "$(newest run-shards)/tokenizer.json" shards/tokenizer.json &&
    pass "the tokenizer is in the checkpoint" || fail "tokenizer.json" "another one"
first=$(nll_of run-shards shards) second=$(nll_of run-text all.txt) \
    third=$(nll_of run-text --data shards)
[ -n "$first" ] && [ "$first" = "$second" ] && [ "$first" = "$third" ] &&
    pass "eval reads both: nll $first" || fail "eval" "$first, $second, $third"
check "generate" "$ALIBI" generate run-shards --prompt "It was" --tokens 200 --temperature 3
iconv -f UTF-8 -t UTF-8 stdout > /dev/null 2>&1 && [ "$(wc -c < stdout)" -gt 10 ] && pass "text" ||
    fail "generate" "no text"
check "resume on shards" "$ALIBI" train shards "${model[@]}" -o run-shards --resume
check "shards of bytes" "$ALIBI" tokenize all.txt -o bytes --quiet
expect 3 "(text|tokenizer)" "$ALIBI" train bytes "${model[@]}" -o run-shards --resume
expect 3 "'bytes'.*tokenizer" "$ALIBI" eval run-shards bytes --quiet
expect 3 "tokenizer" "$ALIBI" train shards --tokenizer words.json "${model[@]}" -o x
check "train with the tokenizer that shards have" \
    "$ALIBI" train shards --tokenizer bpe.json "${model[@]}" -o run-same
mkdir foreign && cp shards/*.bin foreign
expect 3 "foreign.*.*--tokenizer" "$ALIBI" train foreign "${model[@]}" -o x
check "one shard of a folder" "$ALIBI" train "$shard" "${model[@]}" -o run-one
expect 3 "'$shard' was tokenized with another tokenizer \(bpe, 600 ids\)" \
    "$ALIBI" train "$shard" --tokenizer words.json "${model[@]}" -o x
check "shards of others" "$ALIBI" train foreign --tokenizer bpe.json "${model[@]}" -o run-foreign
expect 3 "foreign/.*" "$ALIBI" train foreign --tokenizer bytes "${model[@]}" -o x
"$ALIBI" text --out valid.txt "${text[@]}" --split valid > /dev/null
check "--valid" "$ALIBI" compare all.txt --valid valid.txt --tokenizer bpe.json "${model[@]}" \
    --methods alibi --lengths 16,32 --eval-tokens 640 -o compared
check "the built-in text with a tokenizer" \
    "$ALIBI" train "${tiny[@]}" --tokenizer bpe.json -o run-built-in
expect 3 "(text|tokenizer)" "$ALIBI" train "${tiny[@]}" -o run-built-in --resume
check "eval of it" "$ALIBI" eval run-built-in "${text[@]}" --tokens 1600 --quiet
check "train on words" "$ALIBI" train all.txt --tokenizer words.json "${model[@]}" -o run-words
first=$("$ALIBI" eval run-words all.txt --quiet --tokens 1600 | awk 'END { print $2, $3 }')
[ -n "$first" ] && pass "their token and word perplexity: $first" || fail "words" "no perplexity"
sed 's/["\\]//g; s/.*/{"text": "&"}/' all.txt > all.jsonl
check "JSON lines to train on" "$ALIBI" train all.jsonl "${model[@]}" -o run-lines
[ -e x ] && fail "bad input leaves nothing" "there is a folder" ||
    pass "bad input leaves nothing"
finish
