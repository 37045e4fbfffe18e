#!/usr/bin/env python3
"""Megatron-Core's layer-wise distributed optimizer (Muon): which GPU updates which matrix, and what that makes of weights, gradients,
optimizer state and their collectives, by a brute force written from docs/schemes.md, section 7.16: every matrix of every layer by
itself, every shard asked, every GPU of a stage summed.

muon_oracle.py SPILLWAY SCRATCH"""
import json
import math
import pathlib
import sys

import numpy as np

from oracle_run import Oracle

program, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
folder = scratch / "muon_oracle"
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "muon_oracle")


def attention(name, tp):
    if name == "deepseek-v3":
        return [(1536, 7168), (128 * 192 // tp, 1536), (576, 7168), (128 * 256 // tp, 512), (7168, 128 * 128 // tp)]
    hidden, heads, keys = {"mixtral-8x7b": (4096, 32, 8), "qwen3-30b-a3b": (2048, 32, 4)}[name]
    return [((heads + 2 * keys) * 128 // tp, hidden), (hidden, heads * 128 // tp)]


# H, F, experts, dense layers, dense F, shared F, layers, vocabulary, norms inside of a layer
MODELS = {"deepseek-v3": (7168, 2048, 256, 3, 18432, 2048, 61, 129280, 1536 + 512 + 256),
          "mixtral-8x7b": (4096, 14336, 8, 0, 0, 0, 32, 32000, 0), "qwen3-30b-a3b": (2048, 768, 128, 0, 0, 0, 48, 151936, 2 * 128)}


def pack(shapes, shards):
    """Elements of each shard, and of a whole buffer. `shapes` in the order of a model."""
    room = sum(m * n for m, n in shapes) / shards * 1.3
    ends, work, mine = [0] * shards, [0] * shards, [0] * shards
    for m, n in sorted(reversed(shapes), key=lambda s: -max(s) * min(s) ** 2):
        begin = [-(-e // 64) * 64 for e in ends]
        fits = [i for i in range(shards) if begin[i] + m * n <= room]
        i = min(fits, key=lambda i: work[i]) if fits else min(range(shards), key=lambda i: ends[i])
        ends[i], work[i], mine[i] = begin[i] + m * n, work[i] + max(m, n) * min(m, n) ** 2, mine[i] + m * n
    step = math.lcm(64, math.lcm(shards, 128) // shards)
    return mine, -(-max(ends) // step) * step * shards


def stage(model, first, layers, g, ends):
    """Bytes by component of the fullest GPU, elements of both buffers with what is no matrix. ends: embedding here, head here."""
    H, F, E, dense, wide, shared, _, vocab, inner = MODELS[model]
    experts, rest, small = [], [], 0
    for layer in range(first, first + layers):
        rest += attention(model, g["tp"])
        small += 2 * H + (inner if model != "deepseek-v3" else 1536 + 512)
        if layer < dense:
            rest += [(2 * wide // g["tp"], H), (H, wide // g["tp"])]
            continue
        experts += [(2 * F // g["t"], H), (H, F // g["t"])] * (E // g["R"])
        rest += [(E, H)] + ([(2 * shared // g["tp"], H), (H, shared // g["tp"])] if shared else [])
        small += 256 if model == "deepseek-v3" else 0  # a bias of the choice
    adam = small + (vocab * H // g["tp"] if ends[0] else 0) + (vocab * H // g["tp"] + H if ends[1] else 0)
    replicas = g["tp"] * g["data"] // (g["R"] * g["t"])
    (a, whole_a), (b, whole_b) = pack(experts, replicas), pack(rest, g["data"])
    fullest = max(a[gpu // (g["R"] * g["t"])] + b[gpu // g["tp"]] for gpu in range(g["tp"] * g["data"]))
    buffers = whole_a + whole_b + adam
    return dict(weights=2 * buffers, gradients=4 * buffers, optimizer=4 * (fullest + 2 * adam / g["data"]),
                master_weights=4 * (fullest + adam / g["data"])), (whole_a, whole_b + adam), (sum(a) + sum(b), whole_a + whole_b)


dice, seen, grown = np.random.default_rng(16), 0, 0.0
while seen < 24:
    model = str(dice.choice(list(MODELS)))
    g = {k: int(dice.choice(v)) for k, v in dict(tp=[1, 1, 2, 4], R=[1, 2, 4, 8], t=[1, 1, 2], pp=[1, 1, 2, 4], data=[1, 2, 3, 4, 8, 16]).items()}
    if seen == 23:  # a matrix of a dense layer is more than a GPU's share of its stage
        model, g = "deepseek-v3", dict(tp=1, R=8, t=1, pp=16, data=64)
    gpus = g["tp"] * g["data"]
    if seen < 23 and (gpus % (g["R"] * g["t"]) or gpus * g["pp"] > 256):
        continue
    seen += 1
    path = folder / f"job{seen}.yaml"
    path.write_text(f"model: {model}\ncluster: h200:1x{gpus * g['pp']}\nparallel: {{expert: {g['R']}, expert_tensor: {g['t']}, tensor: {g['tp']}, "
                    f"fsdp: {gpus // g['R'] // g['t']}, pipeline: {g['pp']}}}\n"
                    "batch: {sequences_per_gpu: 4, sequence_length: 4096, micro_batches: 4}\n"
                    "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
                    "optimizer: distributed\noptimizer_algorithm: muon\nschemes: [megatron-alltoall]\n")
    L, first, stages = MODELS[model][6], 0, []
    for s in range(g["pp"]):
        layers = L // g["pp"] + (s < L % g["pp"])
        stages.append(stage(model, first, layers, g, (s == 0, s == g["pp"] - 1)))
        first += layers
    got = {c["component"]: c["bytes"] for c in json.loads(oracle.must("explain", "--job", path, "--format", "json"))}
    names = ("weights", "gradients", "optimizer", "master_weights")
    off = [max(abs(got[n] / want[n] - 1) for n in names) for want, _, _ in stages]
    oracle.check(min(off) < 1e-9, f"{model} {g}: {[got[n] for n in names]}, not one of {[list(s[0].values()) for s in stages]}")
    grown = max(grown, max(whole / of for _, _, (of, whole) in stages))
    items = json.loads(oracle.must("explain", "--traffic", "--job", path, "--format", "json"))
    for name, index in (("experts", 0), ("others", 1)):
        want = sum(s[1][index] for s in stages)
        for item in items:
            if item["tensor"] == name:
                size = {"all_gather": 2, "reduce_scatter": 4}[item["operation"]]
                oracle.check(abs(item["bytes"] / size / want - 1) < 1e-9, f"{model} {g} {name}: {item['bytes'] / size}, not {want}")
oracle.check(grown > 2, f"a matrix larger than a GPU's share pads the buffer: {grown}")
oracle.finish(least=50)
