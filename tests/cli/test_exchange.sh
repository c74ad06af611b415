#!/bin/bash
# Models of other programs, as people bring and take them: the commands of docs/exchange.md.
. "$(dirname "$0")/lib.sh"

nll() { # model, then options
    "$ALIBI" eval "$1" "${text[@]}" --tokens 2000 --quiet --json "${@:2}" > eval.json &&
        member eval.json nll
}
close() { # a, b
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-8) }'
}

# A model that was trained here as one of BLOOM, and back.
check "train" "$ALIBI" train "${tiny[@]}" --embedding-norm --out run
check "export --format hf" "$ALIBI" export run --format hf --out hf
grep -q "as a model of family 'bloom' in 'hf'" stdout && grep -q "multiplied by 4" stdout &&
    pass "names the family and what changed" || fail "export" "$(cat stdout)"
[ "$(ls hf | tr '\n' ' ')" = "config.json generation_config.json model.safetensors \
tokenizer.json tokenizer_config.json " ] &&
    pass "writes the files of transformers" || fail "hf" "$(ls hf)"
grep -q '"architectures": \["BloomForCausalLM"\]' hf/config.json && pass "names the architecture" ||
    fail "config.json" "$(cat hf/config.json)"
check "import" "$ALIBI" import hf/ --out back
grep -q "^bloom: .* position alibi, trained at 16 tokens, in 'back'" stdout &&
    pass "says what it is" || fail "import" "$(cat stdout)"
for length in 16 200; do
    close "$(nll run --lengths $length)" "$(nll back --lengths $length)" &&
        pass "the same loss at $length" || fail "back" "another loss at $length"
done
check "import --json" "$ALIBI" import hf --out json --json --quiet
is_json stdout && grep -q '"tokenizer": true' stdout && pass "is JSON" || fail "import" "no JSON"
check "train --init continues it" "$ALIBI" train "${text[@]}" --tokenizer hf --init back \
    --train-length 24 --batch 2 --steps 2 --quiet --out tuned
check "and exports it" "$ALIBI" export tuned --format hf --weights bf16 --shard-size 1e-5 --out bf16
grep -q model-00001-of bf16/model.safetensors.index.json && grep -q bfloat16 bf16/config.json &&
    pass "in bf16 and several files" || fail "bf16" "$(ls bf16)"
check "which are read again" "$ALIBI" import bf16 --out again --quiet

# Without a tokenizer that can be read text is ids; those of bytes are their numbers.
cp -r hf none && rm none/tokenizer*.json
run "$ALIBI" import none --out ids
[ "$code" = 0 ] &&
    grep -q "text for this model must be token ids: it has neither tokenizer.json nor" stderr &&
    pass "a model without a tokenizer is imported" || fail "import" "code $code: $(cat stderr)"
cp -r hf odd && sed -i 's/"BPE"/"WordPiece"/' odd/tokenizer.json
run "$ALIBI" import odd --out odd-ids
[ "$code" = 0 ] && grep -q "must be token ids: .*odd/tokenizer.json" stderr &&
    pass "and one with a tokenizer that cannot be read" || fail "import" "code $code"
check "export of ids" "$ALIBI" export ids --format hf --out ids-hf --quiet
grep -q "^warning: Hugging Face gets no tokenizer: .* of type 'ids', which means .* ids" stderr &&
    [ ! -e ids-hf/tokenizer.json ] && pass "says what the other program lacks" ||
    fail "export" "$(cat stderr)"
total() { "$ALIBI" score "$@" --quiet --json > score.json && member score.json logprob; }
sum=$(total back --prompt "It" --text " was")
close "${sum#-}" "$(total ids --prompt "73 116" --text "32 119 97 115" | tr -d -)" &&
    pass "ids score as their text does" || fail "score" "$sum is not $(cat score.json)"
expect 3 "'Once' is not an id: .* numbers from 0 to 256" "$ALIBI" score ids --text "Once" --quiet
expect 3 "'257' is not an id" "$ALIBI" score ids --text "1 257" --quiet
check "generate ids" "$ALIBI" generate ids --prompt "72 105" --tokens 5 --quiet
grep -qE '^72 105( [0-9]+){5} ?$' stdout && pass "are numbers" || fail "generate" "$(cat stdout)"

# transformers does not read the tokenizer of a Qwen2 as the file has it, unless it is Qwen2's.
qwen2=(--position rotary --norm rmsnorm --activation swiglu --no-biases --qkv-biases)
"$ALIBI" text --quiet --text-bytes 30000 --out words.txt > /dev/null
cuts="(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
cuts+='|\s*[\r\n]+|\s+(?!\S)|\s+'
"$ALIBI" tokenize --quiet --train --vocab 400 --pattern "$cuts" words.txt -o plain.json > /dev/null
sed 's/"normalizer": null/"normalizer": {"type": "NFC"}/' plain.json > nfc.json
for name in plain nfc; do
    check "train with $name.json" "$ALIBI" train words.txt --tokenizer $name.json "${tiny[@]:2}" \
        "${qwen2[@]}" --out "run-$name"
    check "export" "$ALIBI" export "run-$name" --format hf --out "hf-$name"
    warned=$(grep -c "load it with PreTrainedTokenizerFast" stderr)
    [ "$name $warned" = "plain 1" ] || [ "$name $warned" = "nfc 0" ] &&
        pass "says how transformers reads $name.json" || fail "export" "$warned warnings: $name"
done

# Special tokens survive a round trip, as far as tokenizer.json knows them or their names say it.
flags='"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, '
flags+='"special": true}'
named="{\"id\": 400, \"content\": \"<unk>\", $flags,\n"
named+="{\"id\": 401, \"content\": \"<pad>\", $flags"
sed "s/$flags],/$flags,\n$named],/" plain.json > named.json
check "train with named tokens" "$ALIBI" train words.txt --tokenizer named.json "${tiny[@]:2}" \
    --embedding-norm --out run-named
check "export" "$ALIBI" export run-named --format hf --out hf-named
check "import" "$ALIBI" import hf-named --out named
check "export again" "$ALIBI" export named --format hf --out hf-again
for each in "hf-again bos_token <|endoftext|>" "hf-again eos_token <|endoftext|>" \
    "hf-again unk_token <unk>" "hf-again pad_token <pad>" "hf bos_token <|endoftext|>"; do
    read -r where key token <<< "$each"
    grep -qF "\"$key\": \"$token\"" "$where/tokenizer_config.json" && pass "$each" ||
        fail "$each" "$(tr -d '\n' < "$where/tokenizer_config.json")"
done
grep -qE 'unk|pad' hf/tokenizer_config.json && fail "hf" "has unknown or padding tokens" ||
    pass "no token is invented"

# The section of README.md, on a smaller model; its last options shorten what would take long.
mkdir readme && cp -r hf readme/bloom-560m
check "text" "$ALIBI" text "${text[@]}" --quiet --out readme/text.txt
sed -n '/^## Bring your own model/,/^## What/p' "$SOURCE/README.md" |
    sed -e ':join' -e '/\\$/{N;s/ *\\\n */ /;b join' -e '}' |
    sed -n 's/^    alibi //p' | sed 's/ *#.*//' > readme/lines
[ "$(wc -l < readme/lines)" = 6 ] && pass "README has six lines" ||
    fail "README" "$(cat readme/lines)"
while read -r line; do
    less=()
    case $line in
    eval*) less=(--tokens 8k) ;;
    probe*) less=(--blocks 2) ;;
    train*) less=(--batch 1 --steps 2) ;;
    esac
    # shellcheck disable=SC2086
    (cd readme && "$ALIBI" $line "${less[@]}" --quiet) > stdout 2> stderr &&
        pass "alibi $line" || fail "alibi $line" "in README.md"
done < readme/lines
[ -s readme/tuned.gguf ] && [ -s readme/tuned-hf/model.safetensors ] &&
    pass "both files are there" || fail "README" "$(ls readme)"

# Refusals; more of them are in golden/test_exchange.
expect 2 "give --out" "$ALIBI" import hf
expect 3 "not empty" "$ALIBI" import hf --out back
expect 3 "not empty" "$ALIBI" export run --format hf --out back
expect 3 "'hub/bloom': there is no such .* local folder or GGUF file, .*: hf download" \
    "$ALIBI" import hub/bloom --out x
for file in model.safetensors config.json; do
    expect 3 "cannot import 'hf/$file': .* folder of its config.json; give 'hf'$" \
        "$ALIBI" import "hf/$file" --out x
done
expect 3 "'words.txt': it is not a GGUF file; import reads .* folders with a config.json" \
    "$ALIBI" import words.txt --out x
for file in config.json tokenizer_config.json generation_config.json; do
    expect 3 "'hf/$file' is a part of a model, .*: give 'hf'$" "$ALIBI" inspect "hf/$file"
done
expect 3 "'bf16/model.safetensors.index.json' is a part of a model, .* give 'bf16'$" \
    "$ALIBI" inspect bf16/model.safetensors.index.json
mkdir pickled && cp hf/config.json pickled && touch pickled/pytorch_model.bin
expect 3 "pickled .bin files, which run code" "$ALIBI" import pickled --out x
check "train" "$ALIBI" train "${tiny[@]}" --out plain
expect 3 "embedding-norm true where the model has false; a file can be had with --format gguf" \
    "$ALIBI" export plain --format hf --out x
check "inspection" "$ALIBI" inspect hf
grep -qE "^  model_type +" stdout && grep -q "^model.*safetensors$" stdout &&
    pass "names the family and the files" || fail "inspect" "$(head -n 5 stdout)"
while read -r position there; do
    check "train $position" "$ALIBI" train "${tiny[@]}" --layers 2 --steps 2 \
        --position "$position" --out "run-$position"
    expect 3 "no .* of Hugging Face has position $position; $there(, one for all| where .* $position;)" \
        "$ALIBI" export "run-$position" --format hf --out x
done << END
fox their methods are alibi, learned and rotary
rotary,rotary:window=8 the closest, '[a-z_]+', has position rotary
alibi:train-slopes the closest, 'falcon', has position alibi:scaled
rotary:layout=pairs:share=0.5 the closest, 'gpt_neox', has position rotary:share=0.5:spread
END
check "train alibi:scaled" "$ALIBI" train "${tiny[@]}" --position alibi:scaled --out scaled
expect 3 "llama.cpp has position alibi:scaled; the closest, 'mpt', has position alibi where .*hf$" \
    "$ALIBI" export scaled --format gguf --out x
[ ! -e x ] && pass "a refusal leaves no folder" || fail "x" "it is there"

# transformers loads what is exported.
for python in "$SOURCE/build/transformers/bin/python" python3; do
    "$python" -c 'import transformers, torch' 2> /dev/null && break
    python=
done
if [ -z "$python" ]; then
    skip 1 "no transformers"
    finish
fi
make=$SOURCE/tests/golden/make_exchange.py
run "$python" "$make" --source sources
for name in $(ls sources); do
    "$ALIBI" import sources/$name --out models/$name --quiet 2> stderr > stdout &&
        "$ALIBI" export models/$name --format hf --out exported/$name --quiet 2> stderr > stdout ||
        fail "$name" "$(cat stderr)"
done
run "$python" "$make" --load exported/*
[ "$code" = 0 ] && pass "transformers has the logits of every exported model" ||
    fail "make_exchange.py --load" "$(tail -n 12 stdout)"
"$python" - hf << 'END' > stdout 2> stderr && pass "and the ids of its tokenizer" ||
import sys, transformers
t = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
text = "It was \u00e9vening\n\n<|endoftext|>"
want = list(text[:-13].encode()) + [256]
assert t(text, add_special_tokens=False)["input_ids"] == want, t(text)
assert t.eos_token_id == t.bos_token_id == 256 and t.pad_token is None
t = transformers.AutoTokenizer.from_pretrained("hf-again")
assert (t.bos_token_id, t.eos_token_id, t.unk_token_id, t.pad_token_id) == (0, 0, 400, 401), t
END
    fail "AutoTokenizer" "$(tail -n 1 stderr)"
"$python" - << 'END' > stdout 2> stderr && pass "and of those of Qwen2, read as it is said" ||
import tokenizers, transformers
text = "It was \u00e9vening e\u0301, 1984:  the 12th"
for name, kind in ("plain", "PreTrainedTokenizerFast"), ("nfc", "AutoTokenizer"):
    want = tokenizers.Tokenizer.from_file(f"{name}.json").encode(text, add_special_tokens=False).ids
    read = getattr(transformers, kind).from_pretrained(f"hf-{name}")
    assert read(text, add_special_tokens=False)["input_ids"] == want, name
END
    fail "tokenizers of Qwen2" "$(tail -n 1 stderr)"
for family in llama mpt; do
    run "$python" "$SOURCE/bench/large_import.py" "$ALIBI" readme/text.txt --family $family \
        --size tiny --file-bytes 100000 --device cpu --lengths 64,256 --tokens 1000 --check
    [ "$code" = 0 ] && grep -qE '^import: .* peak memory [1-9]' stdout &&
        pass "bench/large_import.py --family $family" ||
        fail "large_import.py" "code $code: $(tail -n 1 stdout) $(tail -n 1 stderr)"
done
finish
