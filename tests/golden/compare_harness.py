#!/usr/bin/env python3
"""Runs lm-evaluation-harness on models here and on their exports in transformers.

    python3 tests/golden/compare_harness.py [FAMILY...]     needs lm-eval[hf] and torch, and a release build

For each family, all by default, a small model is trained on a built-in text, and exported. The harness reads three tasks from
files: choices (loglikelihood), texts of some windows with characters that are not in form C (loglikelihood_rolling), prompts
(generate_until). The harness's `hf` runs them on the export, `alibi` on the run, both in fp32 with 64 tokens of context. Prints a
line per family. Exits 1 if a log-likelihood differs by more than 0.001, or a choice of the likeliest token or a text differs.
A minute or two on a CPU; nothing is downloaded.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("ALIBI_LIBRARY", str(ROOT / "build" / "release" / "libalibi.so"))
import lm_eval  # noqa: E402
import numpy as np  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

import alibi.harness  # noqa: E402,F401  registers the model

PROGRAM = ROOT / "build" / "release" / "alibi"
LLAMA = "--norm rmsnorm --activation swiglu --no-biases"
FAMILIES = {
    "bloom": "--embedding-norm",
    "mpt": "--no-biases --activation gelu-erf",
    "falcon": "--position alibi:scaled --activation gelu-erf",
    "gpt2": "--position learned --max-length 256",
    "gpt_neox": "--position rotary:share=0.25:spread --parallel --no-tied",
    "llama": f"--position rotary {LLAMA} --kv-heads 2 --no-tied",
    "mistral": f"--position rotary:window=40 {LLAMA} --kv-heads 2 --no-tied",
    "qwen2": f"--position rotary {LLAMA} --qkv-biases",
    "qwen3": f"--position rotary {LLAMA} --qk-norm",
}
# AutoTokenizer cuts text for every qwen2 as Qwen2 does, so its tokenizer is one that does.
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTEXT, LIMIT = 64, 1e-3
TASKS = {
    "choice": ("multiple_choice", {"doc_to_text": "{{q}}", "doc_to_choice": "{{choices}}", "doc_to_target": "label",
                                   "metric_list": [{"metric": "acc"}]}),
    "rolling": ("loglikelihood_rolling", {"doc_to_text": "", "doc_to_target": "{{text}}",
                                          "metric_list": [{"metric": "word_perplexity"}]}),
    "generate": ("generate_until", {"doc_to_text": "{{q}}", "doc_to_target": "x", "metric_list": [{"metric": "exact_match"}],
                                    "generation_kwargs": {"until": [".", "\n\n"], "max_gen_toks": 24, "do_sample": False}}),
}


def run(*arguments):
    subprocess.run([PROGRAM, *map(str, arguments), "--quiet"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def write_tasks(folder, text):
    said = [s for s in re.split(r"(?<=[.!?])\s+", text) if 40 < len(s) < 200]
    documents = {"choice": [], "rolling": [], "generate": []}
    for i in range(24):
        begin, end = said[3 * i].rsplit(" ", 1)
        others = said[3 * i + 1].split(" ")
        documents["choice"].append({"q": begin, "label": 0, "choices": [end, others[0], "\u00e9" + others[-1], "the end of it."]})
    for i in range(6):
        more = " caf\u00e9 e\u0301 1984" if i % 2 else ""
        documents["rolling"].append({"text": " ".join(said[100 + 20 * i:][:9 if i else 1]) + more})
    for i in range(8):
        documents["generate"].append({"q": " ".join(said[300 + i].split(" ")[:5 + i])})
    for name, (kind, options) in TASKS.items():
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(d) + "\n" for d in documents[name]))
        task = {"task": f"local_{name}", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}},
                "test_split": "test", "output_type": kind, **options}
        (folder / f"{name}.yaml").write_text(json.dumps(task))  # JSON is YAML


def evaluate(tasks, model, **options):
    """The answers to each task's requests, in the order of its documents."""
    result = lm_eval.simple_evaluate(model=model, model_args={"max_length": CONTEXT, **options}, tasks=tasks.all_tasks,
                                     task_manager=tasks, log_samples=True, bootstrap_iters=0, batch_size=4, device="cpu")
    by_task = {name: sorted(samples, key=lambda s: s["doc_id"]) for name, samples in result["samples"].items()}
    return {name: [[answer[0] for answer in s["resps"]] for s in samples] for name, samples in by_task.items()}


def numbers(answers):
    """Log-likelihoods, and whether each was of the likeliest tokens."""
    pairs = [a if isinstance(a, (tuple, list)) else (a, None) for document in answers for a in document]
    return np.array([float(a) for a, *_ in pairs]), [str(greedy) for _, greedy in pairs]


def compare(name, folder, tasks):
    tokenizer = folder / ("qwen2.json" if name == "qwen2" else "bpe.json")
    run("train", folder / "text.txt", "--tokenizer", tokenizer, "--layers", 3, "--width", 64, "--heads", 4, "--train-length",
        CONTEXT, "--batch", 8, "--steps", 60, "--device", "cpu", "--out", folder / name, *FAMILIES[name].split())
    run("export", folder / name, "--format", "hf", "--out", folder / f"{name}-hf")
    ours = evaluate(tasks, "alibi", path=str(folder / name), precision="fp32")
    theirs = evaluate(tasks, "hf", pretrained=str(folder / f"{name}-hf"), dtype="float32")
    same, line = True, []
    for task in ("local_choice", "local_rolling"):
        (a, greedy), (b, their_greedy) = numbers(ours[task]), numbers(theirs[task])
        error = np.abs(a - b).max()
        same &= bool(error < LIMIT) and greedy == their_greedy
        line.append(f"{len(a)} of {task[6:]} down to {a.min():.0f} within {error:.1e}")
    texts = [a == b for a, b in zip(ours["local_generate"], theirs["local_generate"])]
    same &= all(texts)
    print(f"{name:9} {', '.join(line)}, {sum(texts)} of {len(texts)} texts equal: {'yes' if same else 'NO'}", flush=True)
    return same


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        text = folder / "text.txt"
        run("text", "--text-bytes", 300000, "--out", text)
        run("tokenize", "--train", "--vocab", 600, text, "--out", folder / "bpe.json")
        run("tokenize", "--train", "--vocab", 600, "--pattern", QWEN2, text, "--out", folder / "qwen2.json")
        known = json.loads((folder / "qwen2.json").read_text())
        (folder / "qwen2.json").write_text(json.dumps(known | {"normalizer": {"type": "NFC"}}))
        (folder / "tasks").mkdir()
        write_tasks(folder / "tasks", text.read_text())
        tasks = TaskManager(include_path=str(folder / "tasks"), include_defaults=False)
        sys.exit(not all([compare(name, folder, tasks) for name in sys.argv[1:] or FAMILIES]))


if __name__ == "__main__":
    main()
