#!/usr/bin/env python3
"""A random model with the shape of a published one: made on the spot, imported, evaluated.

    bench/large_import.py build/release/alibi text.txt
    bench/large_import.py build/release/alibi text.txt --family mpt --size tiny --device cpu --check

Writes a folder as transformers does, in bf16 and in several files, with a tokenizer that the
program learns from the text. Imports it and prints the peak memory of that; evaluates the import
at each length and prints the command's table. --check scores the beginning of the text with
transformers as well; the exit code is 1 if the mean log-probabilities differ by more than 0.01 on a
GPU, or 0.0001 on a CPU. Needs PyTorch, safetensors, and four bytes of disk for each parameter: 27
GB for 7B.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import save_file

SIZES = {  # family -> size -> vocabulary, width, heads, layers, feed-forward width
    "llama": {"7b": (32000, 4096, 32, 32, 11008), "tiny": (512, 64, 4, 2, 176)},
    "mpt": {"7b": (50432, 4096, 32, 32, 16384), "tiny": (512, 64, 4, 2, 256)},
}
TRAIN_LENGTH = 2048
CHECKED_BYTES = 4000  # of the text
PRECISION = {"cuda": torch.bfloat16, "cpu": torch.float32}  # what the program computes in there
LIMIT = {"cuda": 0.01, "cpu": 0.0001}


def llama(V, C, H, N, F):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": V,
              "hidden_size": C, "num_attention_heads": H, "num_key_value_heads": H,
              "num_hidden_layers": N, "intermediate_size": F, "hidden_act": "silu",
              "max_position_embeddings": TRAIN_LENGTH, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False}
    shapes = {"model.embed_tokens.weight": (V, C)}
    for i in range(N):
        block = f"model.layers.{i}."
        shapes |= {f"{block}self_attn.{m}_proj.weight": (C, C) for m in "qkvo"}
        shapes |= {f"{block}mlp.gate_proj.weight": (F, C), f"{block}mlp.up_proj.weight": (F, C),
                   f"{block}mlp.down_proj.weight": (C, F), f"{block}input_layernorm.weight": (C,),
                   f"{block}post_attention_layernorm.weight": (C,)}
    return config, shapes | {"model.norm.weight": (C,), "lm_head.weight": (V, C)}


def mpt(V, C, H, N, F):
    config = {"model_type": "mpt", "architectures": ["MptForCausalLM"], "vocab_size": V,
              "d_model": C, "n_heads": H, "n_layers": N, "expansion_ratio": F // C,
              "max_seq_len": TRAIN_LENGTH, "attn_config": {"alibi": True, "alibi_bias_max": 8},
              "no_bias": True, "learned_pos_emb": True, "tie_word_embeddings": True}
    shapes = {"transformer.wte.weight": (V, C)}
    for i in range(N):
        block = f"transformer.blocks.{i}."
        shapes |= {f"{block}norm_1.weight": (C,), f"{block}attn.Wqkv.weight": (3 * C, C),
                   f"{block}attn.out_proj.weight": (C, C), f"{block}norm_2.weight": (C,),
                   f"{block}ffn.up_proj.weight": (F, C), f"{block}ffn.down_proj.weight": (C, F)}
    return config, shapes | {"transformer.norm_f.weight": (C,)}


FAMILIES = {"llama": llama, "mpt": mpt}


def divide(shapes, limit):
    """The names by file: a new one where the next tensor would exceed the limit in bytes."""
    files, room = [], 0
    for name, shape in shapes.items():
        size = 2 * torch.Size(shape).numel()
        if not files or size > room:
            files.append([])
            room = limit
        files[-1].append(name)
        room -= size
    return files


def random_tensor(shape, device):
    """Norms are near one. Matrices keep the size of what they multiply, so that no layer is lost
    in the others and attention is not uniform: the check would not see an error there."""
    x = torch.empty(shape, dtype=torch.bfloat16, device=device)
    x = x.normal_(1.0, 0.1) if len(shape) == 1 else x.normal_(0.0, shape[1] ** -0.5)
    return x.cpu()


def write_model(folder, config, shapes, limit):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    files, where = divide(shapes, limit), {}
    torch.manual_seed(1)
    for i, names in enumerate(files):
        file = f"model-{i + 1:05d}-of-{len(files):05d}.safetensors"
        save_file({n: random_tensor(shapes[n], device) for n in names}, folder / file,
                  metadata={"format": "pt"})
        where |= {n: file for n in names}
    total = sum(2 * torch.Size(s).numel() for s in shapes.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16"}))
    return total, len(files)


def run(*command, output=None):
    """Seconds and peak memory in MB of a command that succeeded. The memory is read while it runs:
    what wait4() says of a child includes the memory of this process at its start."""
    start, memory = time.perf_counter(), 0
    child = subprocess.Popen([str(c) for c in command], stdout=output)
    while child.poll() is None:
        lines = pathlib.Path(f"/proc/{child.pid}/status").read_text().splitlines()
        memory = max([memory] + [int(l.split()[1]) for l in lines if l.startswith("VmHWM")])
        time.sleep(0.01)
    if child.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {child.returncode}")
    return time.perf_counter() - start, memory / 1024


def check(program, folder, model, text, device):
    """Whether the program and transformers find the beginning of the text equally likely."""
    from transformers import AutoModelForCausalLM
    begin = text.read_bytes()[:CHECKED_BYTES].decode(errors="ignore")
    said = subprocess.run([program, "score", model, "--text", begin, "--device", device, "--json",
                           "--quiet"], check=True, stdout=subprocess.PIPE)
    tokens = json.loads(said.stdout)["tokens"]
    ours = torch.tensor([t["logprob"] for t in tokens])
    end = json.loads((folder / "tokenizer.json").read_text())["added_tokens"][0]["id"]
    ids = torch.tensor([end] + [t["id"] for t in tokens])  # as at the beginning of a document
    peer = AutoModelForCausalLM.from_pretrained(folder, dtype=PRECISION[device]).to(device)
    with torch.no_grad():
        logits = peer(ids[None].to(device)).logits[0, :-1].float().cpu()
    theirs = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    print(f"score of {len(ours)} tokens: mean log-probability {ours.mean():.5f}, in transformers "
          f"{theirs.mean():.5f}; largest difference of one {(ours - theirs).abs().max():.5f}")
    return abs(float(ours.mean() - theirs.mean())) <= LIMIT[device]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program", help="alibi")
    p.add_argument("text", type=pathlib.Path)
    p.add_argument("--family", choices=FAMILIES, default="llama")
    p.add_argument("--size", choices=("7b", "tiny"), default="7b")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--lengths", default="2048,8192")
    p.add_argument("--tokens", default="131072", help="scored at each length")
    p.add_argument("--file-bytes", type=int, default=5_000_000_000, help="of weights, at most")
    p.add_argument("--folder", help="a new one, in which the files stay; default: they are removed")
    p.add_argument("--check", action="store_true", help="compare with transformers")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(a.folder or temporary)
        theirs, ours = folder / "theirs", folder / "ours"
        theirs.mkdir(parents=True)
        sizes = SIZES[a.family][a.size]
        config, shapes = FAMILIES[a.family](*sizes)
        run(a.program, "tokenize", "--train", "--vocab", sizes[0], a.text, "--quiet", "--out",
            theirs / "tokenizer.json", output=subprocess.DEVNULL)
        start = time.perf_counter()
        size, files = write_model(theirs, config, shapes, a.file_bytes)
        print(f"{a.family}, {size // 2} parameters, {size / 1e9:.1f} GB in bf16 in {files} files: "
              f"made in {time.perf_counter() - start:.0f} s", flush=True)
        seconds, memory = run(a.program, "import", theirs, "--out", ours, "--quiet")
        print(f"import: {seconds:.0f} s, peak memory {memory:.0f} MB", flush=True)
        seconds, memory = run(a.program, "eval", ours, a.text, "--lengths", a.lengths, "--tokens",
                              a.tokens, "--device", a.device, "--quiet")
        print(f"eval: {seconds:.0f} s, peak memory of the host {memory:.0f} MB", flush=True)
        sys.exit(a.check and not check(a.program, theirs, ours, a.text, a.device))


if __name__ == "__main__":
    main()
