#!/bin/bash
# BPE training and encoding by alibi and by Hugging Face's tokenizers on the same documents,
# alternating, with 2 threads each. Prints seconds, MB/s, the ratio, the peak memory of each
# process, and whether the ids are the same.
#
#   bench/against_tokenizers.sh [TEXT] [ENCODE_MB] [TRAIN_MB] [VOCAB] [REPEATS]
#
# The defaults are the built-in text, 50, 100, 32000 and 3. The time of alibi is that of the whole
# program: start, reading, encoding, writing shards. The time of tokenizers is that of the call
# alone: the documents are in memory before, and the ids stay there. PYTHON is a Python with
# tokenizers; if it has none, they are installed under build/.
set -euo pipefail
cd "$(dirname "$0")/.."
alibi=${ALIBI:-build/release/alibi}
python=${PYTHON:-python3}
encode_mb=${2:-50} train_mb=${3:-100} vocab=${4:-32000} repeats=${5:-3}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} RAYON_NUM_THREADS=${RAYON_NUM_THREADS:-2}
export TOKENIZERS_PARALLELISM=true
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if ! "$python" -c 'import tokenizers' 2> /dev/null; then
    [ -x build/tokenizers/bin/python ] || "$python" -m venv build/tokenizers
    python=build/tokenizers/bin/python
    "$python" -c 'import tokenizers' 2> /dev/null || "$python" -m pip install --quiet tokenizers
fi
peer() { "$python" bench/tokenizers_peer.py "$@"; }

text=${1:-}
if [ -z "$text" ]; then
    text=$folder/text.txt
    "$alibi" text --quiet --text-bytes $((train_mb * 1050000)) --out "$text" > /dev/null
fi
train_bytes=$(peer documents "$text" $((train_mb * 1000000)) "$folder/train.jsonl")
encode_bytes=$(peer documents "$text" $((encode_mb * 1000000)) "$folder/encode.jsonl")

echo "$OMP_NUM_THREADS threads, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
    "tokenizers $("$python" -c 'import tokenizers; print(tokenizers.__version__)')," \
    "the best of $repeats alternating runs"
for ((i = 0; i < repeats; i++)); do
    peer train "$folder/train.jsonl" "$vocab" "$folder/theirs.json" >> "$folder/train.log"
    rm -f "$folder/ours.json"
    peer run alibi "$alibi" tokenize --quiet --train --vocab "$vocab" "$folder/train.jsonl" \
        --out "$folder/ours.json" >> "$folder/train.log"
done
for ((i = 0; i < repeats; i++)); do
    for trained in theirs ours; do
        rm -rf "${folder:?}/$trained"
        peer encode "$folder/encode.jsonl" "$folder/$trained.json" "$folder/$trained.bin" \
            >> "$folder/$trained.log"
        peer run alibi "$alibi" tokenize --quiet --tokenizer "$folder/$trained.json" \
            "$folder/encode.jsonl" --out "$folder/$trained" >> "$folder/$trained.log"
    done
done

"$python" - "$folder" "$train_bytes" "$encode_bytes" <<'TABLE'
import glob, json, sys
folder, train_bytes, encode_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
HEADER = 1024  # of a shard
status = 0


def best(path):
    """The fastest run and the highest peak of each program, alibi last."""
    rows = {}
    for row in map(json.loads, open(path)):
        known = rows.setdefault(row["name"], row)
        known["seconds"] = min(known["seconds"], row["seconds"])
        known["peak"] = max(known["peak"], row["peak"])
    return list(rows.values())


def same_ids(name):
    paths = sorted(glob.glob(f"{folder}/{name}/*.bin"))
    shards = b"".join(open(path, "rb").read()[HEADER:] for path in paths)
    return len(shards) // 2 if shards == open(f"{folder}/{name}.bin", "rb").read() else 0


print(f"{'':34} {'':20} {'seconds':>8} {'MB/s':>7} {'ratio':>6} {'peak MB':>8}  ids")
for what, log, size in (("train", "train", train_bytes),
                        ("encode, their vocabulary", "theirs", encode_bytes),
                        ("encode, our vocabulary", "ours", encode_bytes)):
    rows, ids = best(f"{folder}/{log}.log"), ""
    if log != "train":
        same = same_ids(log)
        ids, status = f"{same} the same" if same else "DIFFERENT", status or not same
    for row in rows:
        seconds, last = row["seconds"], row is rows[-1]
        print(f"{what + f' {size / 1e6:.0f} MB':34} {row['name']:20} {seconds:8.2f} "
              f"{size / 1e6 / seconds:7.1f} {seconds / rows[-1]['seconds']:6.2f} "
              f"{row['peak'] / 1e6:8.0f}  {ids if last else ''}".rstrip())


def merges(path):
    """As pairs, in either spelling."""
    listed = json.load(open(path))["model"]["merges"]
    return [m if isinstance(m, list) else m.split(" ") for m in listed]


theirs, ours = merges(f"{folder}/theirs.json"), merges(f"{folder}/ours.json")
shorter = min(len(theirs), len(ours))
same = next((i for i in range(shorter) if theirs[i] != ours[i]), shorter)
print(f"merges: {len(theirs)} theirs, {len(ours)} ours, the first {same} in the same order; "
      "ratio: their seconds / ours")
sys.exit(status)
TABLE
