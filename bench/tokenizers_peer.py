"""Hugging Face's `tokenizers` on the documents that alibi gets, for bench/against_tokenizers.sh.

    documents TEXT BYTES OUT.jsonl       the first bytes of a text as documents of about 4 KiB
    train DOCUMENTS VOCAB OUT.json       a byte-level BPE with GPT-2's expression
    encode DOCUMENTS TOKENIZER OUT.bin   encode_batch and encode_batch_fast; 16-bit ids, an end id
                                         after each document
    run NAME COMMAND...                  any program: seconds from start to end

All but the first print a JSON object with the seconds and the peak memory of the process in bytes.
The seconds are those of the call, without reading and writing, except for `run`.
"""
import array
import json
import resource
import subprocess
import sys
import time

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
DOCUMENT = 4096


def write_documents(text, limit, out):
    done, document = 0, ""
    utf8 = {"encoding": "utf-8", "newline": "\n"}
    with open(text, **utf8) as lines, open(out, "w", **utf8) as f:
        for line in lines:
            document += line
            if len(document) < DOCUMENT:
                continue
            f.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
            done += len(document.encode())
            document = ""
            if done >= limit:
                break
    return done


def read_documents(path):
    with open(path, encoding="utf-8", newline="\n") as f:
        return [json.loads(line)["text"] for line in f]


def report(name, seconds, who=resource.RUSAGE_SELF):
    peak = resource.getrusage(who).ru_maxrss * 1024
    print(json.dumps({"name": name, "seconds": seconds, "peak": peak}), flush=True)


def train(path, vocab, out):
    documents = read_documents(path)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=[END], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    start = time.perf_counter()
    t.train_from_iterator((documents[i:i + 1000] for i in range(0, len(documents), 1000)), trainer)
    report("train_from_iterator", time.perf_counter() - start)
    t.save(out)


def encode(path, tokenizer, out):
    documents = read_documents(path)
    t = Tokenizer.from_file(tokenizer)
    end = t.token_to_id(END)
    for call in (t.encode_batch_fast, t.encode_batch):  # the leaner first: the peak is then its own
        encodings = None
        start = time.perf_counter()
        encodings = call(documents, add_special_tokens=False)
        report(call.__name__, time.perf_counter() - start)
    with open(out, "wb") as f:
        for e in encodings:
            array.array("H", e.ids + [end]).tofile(f)


def run(name, *command):
    start = time.perf_counter()
    status = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    report(name, time.perf_counter() - start, resource.RUSAGE_CHILDREN)
    sys.exit(status)


def main():
    command, *arguments = sys.argv[1:]
    if command == "documents":
        print(write_documents(arguments[0], int(arguments[1]), arguments[2]))
    elif command == "train":
        train(arguments[0], int(arguments[1]), arguments[2])
    elif command == "encode":
        encode(*arguments)
    elif command == "run":
        run(*arguments)
    else:
        sys.exit(f"no command '{command}'")


if __name__ == "__main__":
    main()
