#!/usr/bin/env python3
"""Writes the golden files of test_golden.c: small random models with the logits and gradients that PyTorch computes for them.

    python3 tests/golden/make_golden.py [NAME ...]     needs torch, transformers, safetensors; seconds on a CPU

Per model, in tests/golden/data: NAME.json, the configuration with the keys of a recipe, and NAME.safetensors with

    <parameter>              weights, named and shaped as the library has them
    golden.tokens            I32 [B, L]
    golden.logits            F32 [B, L, V]; log-probabilities if the vocabulary is in clusters
    gradient.<parameter>     of the mean cross-entropy of the next token, over all B * (L - 1) targets
    golden.trained           F32 [B, L, V], in some: logits of training, which have no temperature; gradients are of their loss
    golden.dropout           F32 [3 or 4], in some: dropout of the residual branches and the embedding, of attention's weights, of
                             activations, and of tails; then logits and gradients are those of training, with the masks drawn
                             below

Where transformers has the model, the numbers are its own; the model written out below is held against them first. Where it has
none, they are those of the model below; its output layer in clusters is held against torch.nn.AdaptiveLogSoftmaxWithLoss.
"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save
from transformers.models.t5.modeling_t5 import T5Attention

B, L, V = 2, 23, 61
FOLDER = pathlib.Path(__file__).parent / "data"

BASE = dict(
    vocab=V, layers=2, width=16, heads=4, kv_heads=0, ff_width=0, norm="layernorm", norm_eps=1e-5, activation="gelu-tanh",
    biases=True, tied=True, embedding_norm=False, final_norm=True, embedding_scale=1.0, position="none", bias_max=8.0,
    max_length=0, rotary_base=10000.0, rotary_layout="halves", t5_buckets=32, t5_max_distance=128,
    adaptive_cutoffs=[], adaptive_factor=4,
)


def configure(**changes):
    c = {**BASE, **changes}
    c["kv_heads"] = c["kv_heads"] or c["heads"]
    c["ff_width"] = c["ff_width"] or 4 * c["width"]
    return c


# ---- positions


PRESETS = {
    "hybrid": "3*rotary:window=64,none:logn",
    "reach": "3*rotary:window=64,alibi:logn:free=0.5",
    "scale-invariant": "rotary:share=0.5:tau=10",
}


def elements(c):
    """The elements of a pattern such as "2*rotary:window=5,none:logn", one for each of its layers."""
    pattern = c["position"]
    name, _, window = pattern.partition(":window=")
    if name in PRESETS:
        pattern = PRESETS[name].replace("window=64", "window=" + window)
    out = []
    for element in pattern.split(","):
        times, _, rest = element.rpartition("*")
        out += [rest] * int(times or 1)
    return out


def layer(c, n):
    """The method of layer n, its options, and which of the different elements it is."""
    pattern = elements(c)
    element = pattern[n % len(pattern)]
    method, *options = element.split(":")
    values = dict(o.partition("=")[::2] for o in options)
    return method, values, list(dict.fromkeys(pattern)).index(element)


# ---- weights


def clusters(c):
    """(first id, number of ids, width) of each cluster of the vocabulary."""
    edges = [0, *c["adaptive_cutoffs"], V]
    return [(first, end - first, c["width"] // c["adaptive_factor"] ** k)
            for k, (first, end) in enumerate(zip(edges, edges[1:]))]


def ends(c, place):
    """The shapes of the embedding or of the output layer; place: "embedding" or "head"."""
    if not c["adaptive_cutoffs"]:
        return {place + ".weight": (V, c["width"])}
    out, tails = {}, len(c["adaptive_cutoffs"])
    for k, (_, count, width) in enumerate(clusters(c)):
        more = tails if k == 0 and (place == "head" or c["tied"]) else 0
        out[f"{place}.{k}.weight"] = (count + more, width)
        if k > 0 or place == "embedding":
            out[f"{place}.{k}.projection.weight"] = (c["width"], width)
    return out


def free_heads(c, n):
    return round(float(layer(c, n)[1].get("free", 0)) * c["heads"])


def logn_heads(c, n):
    return free_heads(c, n) or c["heads"]


def table_name(kind):
    return f"position.{kind}.weight" if kind else "position.weight"


def shapes(c):
    """Every parameter of a configuration, by name."""
    C, F_, head = c["width"], c["ff_width"], c["width"] // c["heads"]
    out = ends(c, "embedding")

    def norm(name):
        out[name + ".weight"] = (C,)
        if c["biases"]:
            out[name + ".bias"] = (C,)

    def linear(name, rows, columns):
        out[name + ".weight"] = (rows, columns)
        if c["biases"]:
            out[name + ".bias"] = (rows,)

    if c["position"] == "learned":
        out["position.weight"] = (c["max_length"], C)
    for n in range(c["layers"]):
        method, options, kind = layer(c, n)
        if method == "t5":
            out[table_name(kind)] = (int(options.get("buckets", c["t5_buckets"])), c["heads"])
        if method in ("kerple", "bam"):
            out[table_name(kind)] = (2, c["heads"])
        if "train-slopes" in options:
            out[table_name(kind)] = (1, c["heads"])
    if c["embedding_norm"]:
        norm("embedding_norm")
    for n in range(c["layers"]):
        norm(f"blocks.{n}.norm1")
        linear(f"blocks.{n}.attention.qkv", (c["heads"] + 2 * c["kv_heads"]) * head, C)
        if c.get("qk_norm"):
            for which in "qk":
                out[f"blocks.{n}.attention.{which}_norm.weight"] = (head,)
        if layer(c, n)[0] == "fox":
            out[f"blocks.{n}.attention.gate.weight"] = (c["heads"] - free_heads(c, n), C)
            out[f"blocks.{n}.attention.gate.bias"] = (c["heads"] - free_heads(c, n),)
        if "logn" in layer(c, n)[1]:
            out[f"blocks.{n}.attention.logn"] = (logn_heads(c, n),)
        linear(f"blocks.{n}.attention.out", C, C)
        norm(f"blocks.{n}.norm2")
        linear(f"blocks.{n}.ff.up", 2 * F_ if c["activation"] == "swiglu" else F_, C)
        linear(f"blocks.{n}.ff.down", C, F_)
    if c["final_norm"]:
        norm("norm")
    if not c["tied"]:
        out |= ends(c, "head")
    return out


def draw(shape, name):
    """Large enough that logits differ and every gradient counts; weights of norms and factors on slopes are around 1."""
    x = torch.randn(shape)
    if (len(shape) == 1 or shape[0] == 1) and name.endswith(("weight", "logn")):
        return 1 + 0.1 * x
    return 0.2 * x


# ---- dropout: masks that are a function of seed, place and element, written out from lib/ops/ops.h and lib/model/walk.h

SEED, STREAM = 9, 4


def philox(seed, stream, index):
    """Four 32-bit numbers: Philox4x32-10 (Salmon et al., SC 2011)."""
    low, high = 0xFFFFFFFF, 32
    c = [index & low, index >> high, stream & low, stream >> high]
    key = [seed & low, seed >> high]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> high) ^ c[1] ^ key[0], p1 & low, (p0 >> high) ^ c[3] ^ key[1], p0 & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return c


def mask(p, place, elements):
    """0 or 1 / (1 - p) for each element number."""
    seed = (SEED + place * 0x9E3779B97F4A7C15) % 2**64
    kept = [philox(seed, STREAM, i // 4)[i % 4] * 2.0**-32 >= p for i in elements]
    return torch.tensor(kept, dtype=torch.float32) / (1 - p)


def drop(c, which, place, x):
    """Of a tensor whose elements are numbered in order."""
    p = c.get("dropout", {}).get(which, 0.0)
    return x * mask(p, place, range(x.numel())).view(x.shape) if p else x


def drop_weights(c, n, x):
    """Of [B, H, L, L]: queries i, i + 8 and keys j, j + 8 share a block of four numbers."""
    p, half = c.get("dropout", {}).get("attention", 0.0), (L + 15) // 16 * 8
    if not p:
        return x
    low = [i // 16 * 8 + i % 8 for i in range(L)]
    elements = [4 * ((head * half + low[i]) * half + low[j]) + 2 * (i // 8 % 2) + j // 8 % 2
                for head in range(B * c["heads"]) for i in range(L) for j in range(L)]
    return x * mask(p, 2**30 + 2 * n, elements).view(x.shape)


# ---- the model, written out


def norm(c, w, name, x):
    bias = w.get(name + ".bias", 0.0)
    if c["norm"] == "rmsnorm":
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["norm_eps"])
    else:
        x = x - x.mean(-1, keepdim=True)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["norm_eps"])
    return x * w[name + ".weight"] + bias


def linear(w, name, x):
    return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)


def activate(c, x):
    if c["activation"] == "swiglu":
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up
    if c["activation"] == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if c["activation"] == "gelu-tanh" else "none")


def alibi_slopes(c, free):
    """The last heads are free."""
    heads = c["heads"] - free
    power = 2 ** int(math.log2(heads))
    step = c["bias_max"] / power
    exponents = [h + 1 if h < power else h - power + 0.5 for h in range(heads)]
    return torch.tensor([2.0 ** (-step * e) for e in exponents] + [0.0] * free)


def curve(method, options, d, u, v):
    """Of the distances, by two numbers per head [H, 1, 1]."""
    if method == "bam":
        return u.exp() * (d + 0.01) ** v
    if "power" in options:
        exponent = 2 * torch.sigmoid(v)
        return u.exp() * torch.where(d > 0, d.clamp(min=1) ** exponent, 0.0)
    return u.exp() * torch.log(1 + v.exp() * d)


def gates(c, w, n, x):
    """[B, H, L, L]: the sum of log gates after key j up to query i; the last heads are free."""
    log_f = F.logsigmoid(linear(w, f"blocks.{n}.attention.gate", x)).transpose(1, 2)
    between = torch.ones(L, L).tril()[:, None, :] * torch.ones(L, L).triu(1)[None, :, :]  # i, j, l: j < l <= i
    free = torch.zeros(B, free_heads(c, n), L, L)
    return torch.cat([torch.einsum("bhl,ijl->bhij", log_f, between), free], dim=1)


def gain(options, distance):
    """Scale-invariant attention: a_t of the distance t, whose logits are a_t q . k + m_t."""
    return (1 + 2 * torch.log(distance.clamp(min=0) / float(options["tau"]) + 1)).sqrt() if "tau" in options else 1.0


def score_bias(c, w, n, distance):
    """[H, queries, keys] or 0, before the mask."""
    method, options, kind = layer(c, n)
    if method == "alibi":
        slopes, factor = alibi_slopes(c, free_heads(c, n)), float(options.get("factor", 1))
        if options.get("stretch") == "linear":
            slopes = slopes / factor
        if options.get("stretch") == "ntk":  # the steepest stays, the flattest is divided by the factor
            slopes = slopes * factor ** (-(slopes.max() / slopes).log() / (slopes.max() / slopes.min()).log())
        if "train-slopes" in options:  # what is learned are factors on the fixed ones
            slopes = slopes * w[table_name(kind)][0]
        return -slopes[:, None, None] * distance
    if method == "t5":
        bucket = T5Attention._relative_position_bucket(
            -distance, bidirectional=False, num_buckets=int(options.get("buckets", c["t5_buckets"])),
            max_distance=int(options.get("max-distance", c["t5_max_distance"])))
        return w[table_name(kind)][bucket].permute(2, 0, 1)
    if method in ("kerple", "bam"):
        return -curve(method, options, distance.clamp(min=0), *w[table_name(kind)][:, :, None, None])
    return 1 - gain(options, distance) ** 2 if "tau" in options else 0.0


def rotate(c, x, options, positions):
    """x [B, heads, L, D]."""
    D, base, size = x.shape[-1], c["rotary_base"], 1.0
    stretch, factor = options.get("stretch"), float(options.get("factor", 1))
    if stretch == "ntk":
        base *= factor ** (D / (D - 2))
    frequency = base ** (-2.0 * torch.arange(D // 2, dtype=torch.float64) / D)
    if stretch == "pi":
        frequency = frequency / factor
    if stretch == "yarn":
        wavelength = 2 * math.pi / frequency
        ramp = ((int(options.get("original", c.get("train_length"))) / wavelength - 1) / (32 - 1)).clamp(0, 1)
        frequency, size = (1 - ramp) * frequency / factor + ramp * frequency, 0.1 * math.log(factor) + 1
    frequency[round(float(options.get("share", 1)) * (D // 2)):] = 0  # the fastest pairs are rotated
    angle = positions[:, None] * frequency
    cos, sin = (size * angle.cos()).float(), (size * angle.sin()).float()
    if c["rotary_layout"] == "halves":
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


def attend_stream(c, w, n, q, k, v):
    """StreamingLLM's cache, query by query: the first keys and the last ones, at the positions that they have in it."""
    method, options, _ = layer(c, n)
    window, sinks, out = int(options["window"]), int(options["sinks"]), []
    for i in range(L):
        held = list(range(i + 1)) if i < window + sinks else [*range(sinks), *range(i - window + 1, i + 1)]
        places, query, keys = torch.arange(len(held)), q[:, :, i:i + 1], k[:, :, held]
        if method == "rotary":
            query, keys = rotate(c, query, options, places[-1:]), rotate(c, keys, options, places)
        if "logn" in options:
            query = query * w[f"blocks.{n}.attention.logn"][:, None, None] * math.log(max(len(held), 2))
        keys, values = (x.repeat_interleave(c["heads"] // c["kv_heads"], dim=1) for x in (keys, v[:, :, held]))
        distance = places[-1:, None] - places[None]
        scores = query @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1]) * gain(options, distance)
        out.append((scores + score_bias(c, w, n, distance)).softmax(-1) @ values)
    return torch.cat(out, dim=2)


def temper(c, options, seen):
    """Outside training: queries by how many keys each sees."""
    temperature = 0.0 if c.get("training") else float(options.get("temperature", 0))
    return 1 + temperature * (seen / c["train_length"]).clamp(min=1).log()[:, None] if temperature else 1.0


def attend_all(c, w, n, q, k, v, gates):
    H, G, D, name = c["heads"], c["kv_heads"], c["width"] // c["heads"], f"blocks.{n}.attention"
    method, options, _ = layer(c, n)
    positions, later = torch.arange(L), torch.ones(L, L, dtype=torch.bool).triu(1)
    if method == "rotary":
        q, k = rotate(c, q, options, positions), rotate(c, k, options, positions)
    if "window" in options:
        later |= torch.ones(L, L, dtype=torch.bool).tril(-int(options["window"]))
    q = q * temper(c, options, (~later).sum(-1))
    if "logn" in options:
        seen = (~later).sum(-1).clamp(min=2)
        scaled = q[:, -logn_heads(c, n):] * w[name + ".logn"][:, None, None] * seen.log()[:, None]
        q = torch.cat([q[:, :H - logn_heads(c, n)], scaled], dim=1)
    k, v = k.repeat_interleave(H // G, dim=1), v.repeat_interleave(H // G, dim=1)
    distance = positions[:, None] - positions[None]
    scores = q @ k.transpose(-1, -2) / math.sqrt(D) * gain(options, distance) + score_bias(c, w, n, distance) + gates
    return drop_weights(c, n, scores.masked_fill(later, -math.inf).softmax(-1)) @ v


def attend(c, w, n, x):
    name = f"blocks.{n}.attention"
    H, G, D = c["heads"], c["kv_heads"], c["width"] // c["heads"]
    qkv = linear(w, name + ".qkv", x).view(B, L, H + 2 * G, D).transpose(1, 2)
    q, k, v = qkv.split([H, G, G], dim=1)
    if c.get("qk_norm"):  # RMS norm, whatever the other norms are
        q, k = (norm({**c, "norm": "rmsnorm"}, w, f"{name}.{which}_norm", y) for which, y in (("q", q), ("k", k)))
    if "sinks" in layer(c, n)[1]:
        y = attend_stream(c, w, n, q, k, v)
    else:
        y = attend_all(c, w, n, q, k, v, gates(c, w, n, x) if layer(c, n)[0] == "fox" else 0.0)
    return linear(w, name + ".out", y.transpose(1, 2).reshape(B, L, H * D))


def sinusoids(c):
    """All sines, then all cosines; the slowest wave has frequency 1/10000."""
    waves = c["width"] // 2
    k = torch.arange(waves, dtype=torch.float64)
    angle = torch.arange(L)[:, None] * torch.exp(-k * math.log(10000.0) / (waves - 1))
    return torch.cat([angle.sin(), angle.cos()], dim=-1).float()


def embed(c, w, tokens):
    if not c["adaptive_cutoffs"]:
        return w["embedding.weight"][tokens]
    x = torch.zeros(B, L, c["width"])
    for k, (first, count, _) in enumerate(clusters(c)):
        here = (tokens >= first) & (tokens < first + count)
        rows = w[f"embedding.{k}.weight"][tokens[here] - first] @ w[f"embedding.{k}.projection.weight"].T
        x = x.masked_scatter(here[..., None], rows)
    return x


def drop_tail(c, k, targets, x):
    """Of the rows of x with a target in tail k, as they follow each other; no other row counts in training."""
    p, (first, count, width) = c.get("dropout", {}).get("tail", 0.0), clusters(c)[k]
    if not p:
        return x
    here = (targets >= first) & (targets < first + count)
    factors = mask(p, -k, range(int(here.sum()) * width)).view(-1, width)
    return x * torch.ones_like(x).masked_scatter(here[..., None], factors)


def log_probabilities(c, w, x, place, tokens):
    """log p(id) in the head, log p(tail) + log p(id | tail) in a tail."""
    targets = torch.cat([tokens[:, 1:], torch.full((B, 1), -1)], 1)
    ranges = clusters(c)
    head = F.log_softmax(x @ w[place + ".0.weight"].T, -1)
    parts = [head[..., :ranges[0][1]]]
    for k in range(1, len(ranges)):
        hidden = drop_tail(c, k, targets, x @ w[f"{place}.{k}.projection.weight"])
        logits = hidden @ w[f"{place}.{k}.weight"].T
        parts.append(head[..., ranges[0][1] + k - 1, None] + F.log_softmax(logits, -1))
    return torch.cat(parts, -1)


def hold_against_pytorch(c, w, x, place, ours):
    layer = torch.nn.AdaptiveLogSoftmaxWithLoss(c["width"], V, c["adaptive_cutoffs"], float(c["adaptive_factor"]))
    with torch.no_grad():
        layer.head.weight.copy_(w[place + ".0.weight"])
        for k, (project, out) in enumerate(layer.tail, 1):
            project.weight.copy_(w[f"{place}.{k}.projection.weight"].T)
            out.weight.copy_(w[f"{place}.{k}.weight"])
        assert_same(ours, layer.log_prob(x.reshape(B * L, -1)).view(B, L, V), "the output layer in clusters")


def written_out(c, w, tokens):
    x = (c["embedding_scale"] or math.sqrt(c["width"])) * embed(c, w, tokens)
    if c["position"] == "learned":
        x = x + w["position.weight"][:L]
    if c["position"] == "sinusoidal":
        x = x + sinusoids(c)
    if c["embedding_norm"]:
        x = norm(c, w, "embedding_norm", x)
    x = drop(c, "residual", 0, x)
    for n in range(c["layers"]):
        block = f"blocks.{n}"
        x = x + drop(c, "residual", 1 + 2 * n, attend(c, w, n, norm(c, w, block + ".norm1", x)))
        up = linear(w, block + ".ff.up", norm(c, w, block + ".norm2", x))
        activated = drop(c, "activation", 2**30 + 1 + 2 * n, activate(c, up))
        x = x + drop(c, "residual", 2 + 2 * n, linear(w, block + ".ff.down", activated))
    if c["final_norm"]:
        x = norm(c, w, "norm", x)
    place = "embedding" if c["tied"] else "head"
    if not c["adaptive_cutoffs"]:
        return x @ w[place + ".weight"].T
    y = log_probabilities(c, w, x, place, tokens)
    if not c.get("dropout"):
        hold_against_pytorch(c, w, x, place, y)
    return y


# ---- the same models in transformers: how each is made, and what its tensors are called here. The renaming only permutes rows, so
# it serves gradients as well as weights.


def gpt2(c):
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=c["max_length"], n_embd=c["width"], n_layer=c["layers"], n_head=c["heads"],
        n_inner=c["ff_width"], layer_norm_epsilon=c["norm_eps"], activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    return transformers.GPT2LMHeadModel(config)


def gpt2_names(c, p):
    """Its linear layers are stored [in, out]."""
    out = {"embedding.weight": p["transformer.wte.weight"], "position.weight": p["transformer.wpe.weight"]}
    parts = {"norm1": "ln_1", "attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj", "norm2": "ln_2",
             "ff.up": "mlp.c_fc", "ff.down": "mlp.c_proj"}
    for n in range(c["layers"]):
        for ours, theirs in parts.items():
            weight = p[f"transformer.h.{n}.{theirs}.weight"]
            out[f"blocks.{n}.{ours}.weight"] = weight.T if weight.dim() == 2 else weight
            out[f"blocks.{n}.{ours}.bias"] = p[f"transformer.h.{n}.{theirs}.bias"]
    out["norm.weight"], out["norm.bias"] = p["transformer.ln_f.weight"], p["transformer.ln_f.bias"]
    return out


def bloom(c):
    config = transformers.BloomConfig(
        vocab_size=V, hidden_size=c["width"], n_layer=c["layers"], n_head=c["heads"], layer_norm_epsilon=c["norm_eps"],
        hidden_dropout=0.0, attention_dropout=0.0)
    return transformers.BloomForCausalLM(config)


def bloom_names(c, p):
    """Its rows of q, k and v alternate head by head."""
    H, D = c["heads"], c["width"] // c["heads"]
    out = {"embedding.weight": p["transformer.word_embeddings.weight"]}
    parts = {"norm1": "input_layernorm", "attention.qkv": "self_attention.query_key_value",
             "attention.out": "self_attention.dense", "norm2": "post_attention_layernorm",
             "ff.up": "mlp.dense_h_to_4h", "ff.down": "mlp.dense_4h_to_h"}
    for kind in ("weight", "bias"):
        out["embedding_norm." + kind] = p["transformer.word_embeddings_layernorm." + kind]
        out["norm." + kind] = p["transformer.ln_f." + kind]
        for n in range(c["layers"]):
            for ours, theirs in parts.items():
                x = p[f"transformer.h.{n}.{theirs}.{kind}"]
                if ours == "attention.qkv":
                    x = x.reshape(H, 3, D, -1).transpose(0, 1).reshape(x.shape)
                out[f"blocks.{n}.{ours}.{kind}"] = x
    return out


def mpt(c):
    config = transformers.MptConfig(
        vocab_size=V, d_model=c["width"], n_layers=c["layers"], n_heads=c["heads"], max_seq_len=2 * L,
        layer_norm_epsilon=c["norm_eps"])
    return transformers.MptForCausalLM(config)


def mpt_names(c, p):
    out = {"embedding.weight": p["transformer.wte.weight"], "norm.weight": p["transformer.norm_f.weight"]}
    parts = {"norm1": "norm_1", "attention.qkv": "attn.Wqkv", "attention.out": "attn.out_proj", "norm2": "norm_2",
             "ff.up": "ffn.up_proj", "ff.down": "ffn.down_proj"}
    for n in range(c["layers"]):
        for ours, theirs in parts.items():
            out[f"blocks.{n}.{ours}.weight"] = p[f"transformer.blocks.{n}.{theirs}.weight"]
    return out


def llama(c, family="Llama", **more):
    config = getattr(transformers, family + "Config")(
        vocab_size=V, hidden_size=c["width"], intermediate_size=c["ff_width"], num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"], rms_norm_eps=c["norm_eps"], hidden_act="silu",
        max_position_embeddings=2 * L, rope_parameters={"rope_type": "default", "rope_theta": c["rotary_base"]},
        tie_word_embeddings=c["tied"], attn_implementation="eager", **more)
    return getattr(transformers, family + "ForCausalLM")(config)


def qwen3(c):
    """Llama with norms of queries and keys."""
    return llama(c, "Qwen3", head_dim=c["width"] // c["heads"])


def llama_names(c, p):
    out = {"embedding.weight": p["model.embed_tokens.weight"], "norm.weight": p["model.norm.weight"],
           "head.weight": p["lm_head.weight"]}
    parts = {"norm1": ["input_layernorm"], "attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
             "attention.out": ["self_attn.o_proj"], "norm2": ["post_attention_layernorm"],
             "ff.up": ["mlp.gate_proj", "mlp.up_proj"], "ff.down": ["mlp.down_proj"]}
    if c.get("qk_norm"):
        parts |= {f"attention.{which}_norm": [f"self_attn.{which}_norm"] for which in "qk"}
    for n in range(c["layers"]):
        for ours, theirs in parts.items():
            out[f"blocks.{n}.{ours}.weight"] = torch.cat([p[f"model.layers.{n}.{t}.weight"] for t in theirs])
    return out


# ---- running


def next_token_loss(logits, tokens):
    return F.cross_entropy(logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1))


def run_written_out(c, weights, tokens):
    w = {name: x.clone().requires_grad_() for name, x in weights.items()}
    logits = written_out({**c, "training": True}, w, tokens)
    next_token_loss(logits, tokens).backward()
    return logits.detach(), {name: x.grad for name, x in w.items()}


def run_transformers(c, make, names, tokens):
    model = make(c).float().eval()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(draw(p.shape, name))
    logits = model(tokens, use_cache=False).logits
    next_token_loss(logits, tokens).backward()
    weights = names(c, {name: p.detach() for name, p in parameters.items()})
    gradients = names(c, {name: p.grad for name, p in parameters.items()})
    return weights, logits.detach(), gradients


def assert_same(a, b, what, limit=1e-5):
    error = (a - b).abs().max().item() / b.abs().max().item()
    assert error < limit, f"{what}: the library's and those written out differ by {error:.1e}"


def make_golden(name, c, make=None, names=None):
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        return
    torch.manual_seed(sum(name.encode()))
    tokens = torch.randint(0, V, (B, L))
    if make:
        weights, logits, gradients = run_transformers(c, make, names, tokens)
        ours, our_gradients = run_written_out(c, weights, tokens)
        assert_same(ours, logits, f"{name} logits")
        for key, gradient in gradients.items():
            assert_same(our_gradients[key], gradient, f"{name} gradient of {key}")
    else:
        weights = {key: draw(shape, key) for key, shape in shapes(c).items()}
        logits, gradients = run_written_out(c, weights, tokens)
    assert {key: tuple(x.shape) for key, x in weights.items()} == shapes(c), name
    more = {}
    if "temperature" in c["position"]:
        more["golden.trained"], logits = logits, written_out(c, weights, tokens)
    write(name, c, tokens, weights, logits, gradients, more)


def write(name, c, tokens, weights, logits, gradients, more):
    tensors = {key: x.contiguous() for key, x in weights.items()}
    tensors |= {"gradient." + key: x.contiguous() for key, x in gradients.items()}
    tensors |= {"golden.tokens": tokens.to(torch.int32), "golden.logits": logits.contiguous()} | more
    c = dict(c)
    if dropout := c.pop("dropout", None):
        tensors["golden.dropout"] = torch.tensor(list(dropout.values()))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.safetensors").write_bytes(save(tensors))
    (FOLDER / f"{name}.json").write_text(json.dumps(c, indent=2) + "\n")
    print(f"{name:16} {(FOLDER / f'{name}.safetensors').stat().st_size:7} bytes   largest logit {logits.abs().max():.2f}")


def main():
    torch.set_num_threads(1)
    make_golden("gpt2", configure(position="learned", max_length=32), gpt2, gpt2_names)
    for heads in (8, 12, 17):
        c = dict(position="alibi", heads=heads, width=2 * heads, layers=1 if heads == 17 else 2)  # one: a small file
        make_golden(f"bloom-{heads}", configure(**c, embedding_norm=True), bloom, bloom_names)
        make_golden(f"mpt-{heads}", configure(**c, biases=False, activation="gelu-erf"), mpt, mpt_names)
    make_golden("alibi-bias-max", configure(position="alibi", heads=6, width=12, bias_max=16.0))
    make_golden("rotary-halves", configure(position="rotary", norm="rmsnorm", norm_eps=1e-6, activation="swiglu", biases=False,
                                           tied=False, kv_heads=2, ff_width=24), llama, llama_names)
    make_golden("qk-norm-rotary", configure(position="rotary", norm="rmsnorm", norm_eps=1e-6, activation="swiglu", biases=False,
                                            tied=False, kv_heads=2, ff_width=24, qk_norm=True), qwen3, llama_names)
    make_golden("qk-norm", configure(position="alibi:free=0.4:logn,rotary:window=7:logn", heads=5, width=20, kv_heads=1,
                                     qk_norm=True))
    make_golden("rotary-pairs", configure(position="rotary", rotary_layout="pairs", heads=3, width=12))
    make_golden("t5", configure(position="t5", heads=3, width=12, t5_buckets=8, t5_max_distance=16))
    make_golden("sinusoidal", configure(position="sinusoidal", heads=3, width=12, activation="relu", final_norm=False,
                                        embedding_scale=0.0))
    make_golden("hybrid", configure(position="hybrid:window=7", layers=4, heads=3, width=12))
    make_golden("sinks", configure(position="rotary:window=5:sinks=3,alibi:window=4:sinks=2:logn,t5:window=6:sinks=4", layers=3,
                                   heads=4, width=16, kv_heads=2, t5_buckets=8, t5_max_distance=16))
    make_golden("scale-invariant", configure(position="rotary:share=0.5:tau=10,rotary:tau=2:window=5:sinks=2", heads=4, width=16,
                                             kv_heads=2, qk_norm=True))
    make_golden("pattern", configure(position="alibi:window=6:logn,rotary:logn,t5:buckets=8:max-distance=16", layers=3,
                                     heads=3, width=12, kv_heads=1))
    make_golden("shares", configure(position="alibi:free=0.4:logn,rotary:share=0.5", heads=5, width=20))
    for method, ways in (("rotary", ("pi", "ntk", "yarn")), ("alibi", ("linear", "ntk"))):
        pattern = ",".join(f"{method}:stretch={way}:factor=4" for way in ways)
        make_golden(f"stretched-{method}", configure(position=pattern, layers=len(ways), heads=2, width=16, ff_width=16,
                                                     train_length=150))
    make_golden("gates", configure(position="fox,rotary:window=7,fox:free=0.4:logn", layers=3, heads=5, width=20, kv_heads=1))
    make_golden("curves", configure(position="kerple,kerple:power:window=9,bam:logn", layers=3, heads=3, width=12))
    make_golden("slopes", configure(position="alibi:train-slopes,alibi:train-slopes:free=0.4:logn:window=9", heads=3, width=12))
    make_golden("temperature", configure(position="none:temperature=0.5,rotary:window=15:temperature=2:logn", train_length=9))
    make_golden("yarn-original", configure(position="rotary:stretch=yarn:factor=4:original=60", heads=2, layers=1, width=16,
                                           ff_width=16, train_length=240))
    make_golden("reach", configure(position="reach:window=7", layers=4, heads=4, width=16, ff_width=16))
    make_golden("scale-invariant-preset", configure(position="scale-invariant", heads=2, width=16, ff_width=16))
    paper = dict(activation="relu", final_norm=False, embedding_scale=0.0, adaptive_cutoffs=[20, 40])
    make_golden("adaptive-tied", configure(position="alibi", **paper))
    dropout = dict(dropout=dict(residual=0.3, attention=0.25, activation=0.125))  # exact in fp32, or not
    make_golden("dropout-alibi", configure(position="alibi", heads=3, width=12, activation="relu", final_norm=False, **dropout))
    make_golden("dropout-rotary", configure(position="rotary", activation="swiglu", biases=False, kv_heads=2, ff_width=24,
                                            embedding_norm=True, **dropout))
    make_golden("adaptive-untied", configure(position="sinusoidal", **paper | dict(
        tied=False, adaptive_cutoffs=[7, 12, 50], adaptive_factor=2)))
    dropout = dict(dropout=dict(residual=0.3, attention=0.25, activation=0.125, tail=0.2))
    make_golden("dropout-adaptive", configure(position="alibi", layers=1, **paper, **dropout))


if __name__ == "__main__":
    main()
