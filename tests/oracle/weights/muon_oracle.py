#!/usr/bin/env python3
"""Megatron-Core's layer-wise distributed optimizer (Muon): which GPU updates which matrix, and what that makes of weights, gradients,
optimizer state and their collectives, by a brute force written from docs/schemes.md, section 7.16: every matrix of every layer by
itself, every shard asked, every GPU of a stage summed. Then what its step takes, by the same matrices one by one, and that law beside
what was measured on an H200.

muon_oracle.py SPILLWAY SCRATCH SOURCE"""
import csv
import json
import math
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
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


# Figures of an H200 and of sim/megatron_stacks/megatron-h200-2026-11.yaml.
PEAK, DENSE, COPY, LINK, NIC, LATENCY = 9.894e14, 0.806, 4.09e12, 3.76484e11, 4.35e10, 3.33e-5


def orthogonal_s(m, n):
    """Five iterations: X X', a polynomial of the small square, that times X; and bytes of each operand, read or written."""
    s, l = sorted((m, n))
    flops = 5 * (2 * s * l * s + 2 * s * s * s + 2 * s * s * l)
    bytes_ = (4 + 8 + 6 + 6) * l * s + 5 * ((2 * l * s + 2 * s * s) + 4 * s * s + (4 * l * s + 2 * s * s))
    return flops / (PEAK * DENSE * 0.806) + bytes_ / COPY


def update_s(m, n):
    return m * n * (4 + 8 + 8 + 12 + 8 + 6) / COPY  # momentum, decay, sum, scale, and the weights' cast


def matrix_s(m, n, near, cut, axis, parts):
    """Of a part [m, n] of one of `cut` GPUs: its products, its gather."""
    whole = [m, n]
    whole[axis] *= cut
    pieces = [(cut * r, whole[1]) for r in parts] if parts else [tuple(whole)]
    gpu = update_s(m, n) + sum(orthogonal_s(*p) for p in pieces)
    seconds = max(gpu, 0.5e-3 * len(pieces) + 0.08e-3)
    if cut == 1:
        return seconds, 0.0
    return seconds + 8 * whole[0] * whole[1] / COPY, LATENCY + 4 * whole[0] * whole[1] * (cut - 1) / cut / (NIC if near % cut else LINK)


def cut_of(model, m, n, g, expert):
    """GPUs that share the matrix, along which side, and what of its rows is orthogonalized apart."""
    H, heads = MODELS[model][0], {"deepseek-v3": 0, "mixtral-8x7b": (32, 8), "qwen3-30b-a3b": (32, 4)}[model]
    if expert:
        return g["t"], int(m == H and n != H), None
    if (m, n) == (MODELS[model][2], H) or (m, n) in ((1536, 7168), (576, 7168)):
        return 1, 0, None
    if heads and (m, n) == ((heads[0] + 2 * heads[1]) * 128 // g["tp"], H):
        return g["tp"], 0, [k * 128 // g["tp"] for k in (heads[0], heads[1], heads[1])]
    return g["tp"], int(m == H), None


def pack(shapes, shards):
    """Elements of each shard, of a whole buffer, and the matrices of each shard. `shapes` in the order of a model."""
    room = sum(m * n for m, n in shapes) / shards * 1.3
    ends, work, mine, held = [0] * shards, [0] * shards, [0] * shards, [[] for _ in range(shards)]
    for m, n in sorted(reversed(shapes), key=lambda s: -max(s) * min(s) ** 2):
        begin = [-(-e // 64) * 64 for e in ends]
        fits = [i for i in range(shards) if begin[i] + m * n <= room]
        i = min(fits, key=lambda i: work[i]) if fits else min(range(shards), key=lambda i: ends[i])
        ends[i], work[i], mine[i] = begin[i] + m * n, work[i] + max(m, n) * min(m, n) ** 2, mine[i] + m * n
        held[i].append((m, n))
    step = math.lcm(64, math.lcm(shards, 128) // shards)
    return mine, -(-max(ends) // step) * step * shards, held


def stage(model, first, layers, g, ends, near):
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
    (a, whole_a, held_a), (b, whole_b, held_b) = pack(experts, replicas), pack(rest, g["data"])
    spent = []
    for gpu in range(g["tp"] * g["data"]) if replicas > 1 or g["data"] > 1 else [0]:
        mine = [(s, True) for s in held_a[gpu // (g["R"] * g["t"])]] + [(s, False) for s in held_b[gpu // g["tp"]]]
        of = [matrix_s(*s, near, *cut_of(model, *s, g, e)) for s, e in mine]
        spent.append((sum(p for p, _ in of), sum(x for _, x in of)))
    slowest = max(spent, key=sum)
    alone = [matrix_s(*s, near, *cut_of(model, *s, g, e)) for e, shapes in ((True, experts), (False, rest)) for s in shapes]
    everything = (sum(p for p, _ in alone), sum(x for _, x in alone))
    fullest = max(a[gpu // (g["R"] * g["t"])] + b[gpu // g["tp"]] for gpu in range(g["tp"] * g["data"]))
    buffers = whole_a + whole_b + adam
    return dict(weights=2 * buffers, gradients=4 * buffers, optimizer=4 * (fullest + 2 * adam / g["data"]),
                master_weights=4 * (fullest + adam / g["data"])), (whole_a, whole_b + adam), (sum(a) + sum(b), whole_a + whole_b), slowest, everything, adam


dice, seen, grown, timed = np.random.default_rng(16), 0, 0.0, 0
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
    near = 8 if gpus * g["pp"] % 8 == 0 and g["tp"] < 4 else 4 if g["tp"] * g["t"] == 1 else g["tp"] * g["t"]
    near = near if gpus * g["pp"] % near == 0 else 1
    path.write_text(f"model: {model}\ncluster: h200:{near}x{gpus * g['pp'] // near}\nparallel: {{expert: {g['R']}, expert_tensor: {g['t']}, tensor: {g['tp']}, "
                    f"fsdp: {gpus // g['R'] // g['t']}, pipeline: {g['pp']}}}\n"
                    "batch: {sequences_per_gpu: 4, sequence_length: 4096, micro_batches: 4}\n"
                    "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
                    "optimizer: distributed\noptimizer_algorithm: muon\nschemes: [megatron-alltoall]\n")
    L, first, stages = MODELS[model][6], 0, []
    for s in range(g["pp"]):
        layers = L // g["pp"] + (s < L % g["pp"])
        stages.append(stage(model, first, layers, g, (s == 0, s == g["pp"] - 1), near))
        first += layers
    got = {c["component"]: c["bytes"] for c in json.loads(oracle.must("explain", "--job", path, "--format", "json"))}
    names = ("weights", "gradients", "optimizer", "master_weights")
    off = [max(abs(got[n] / want[n] - 1) for n in names) for want, *_ in stages]
    oracle.check(min(off) < 1e-9, f"{model} {g}: {[got[n] for n in names]}, not one of {[list(s[0].values()) for s in stages]}")
    grown = max(grown, max(whole / of for _, _, (of, whole), *_ in stages))
    items = json.loads(oracle.must("explain", "--traffic", "--job", path, "--format", "json"))
    for name, index in (("experts", 0), ("others", 1)):
        want = sum(s[1][index] for s in stages)
        for item in items:
            if item["tensor"] == name:
                size = {"all_gather": 2, "reduce_scatter": 4}[item["operation"]]
                oracle.check(abs(item["bytes"] / size / want - 1) < 1e-9, f"{model} {g} {name}: {item['bytes'] / size}, not {want}")
    for optimizer, index in (("distributed", 3), ("replicated", 4)):
        parts = json.loads(oracle.must("plan", "--job", path, "--optimizer", optimizer, "--stack", "megatron-h200-2026-11", "--sequences-per-gpu",
                                       g["tp"] if g["pp"] == 1 else 4, "--sequence-length", 256, "--micro-batches", 1 if g["pp"] == 1 else 4,
                                       "--format", "json"))["rows"][0]["time"]
        if near % g["t"]:  # GPUs of several nodes share experts: refused
            oracle.check(parts["components"] is None, f"{model} {g}, {optimizer}: a time")
            continue
        at, parts = parts, {name: part["exposed_s"] for name, part in parts["components"].items()}
        got = parts["muon"], parts.get("muon_gathers", 0.0)
        off = [max(abs(x - y) / max(sum(s[index]), 1e-30) for x, y in zip(got, s[index])) for s in stages]
        oracle.check(min(off) < 1e-9, f"{model} {g}, {optimizer}: {got}, not one of {[s[index] for s in stages]}")
        oracle.check(at["low_s"] <= at["step_s"] - got[0] / 2 - got[1] and at["high_s"] >= at["step_s"] + sum(got), f"{model} {g}: interval")
        members = g["data"] if optimizer == "distributed" else 1  # Adam's share: embedding, head, norms
        adam = [s[5] / members * (2 * 4 + 4 * 4 + 2 + 4) / COPY for s in stages]
        oracle.check(min(abs(parts["optimizer"] - want) for want in adam) < 1e-3 * min(adam) + 3e-7, f"{model} {g}: Adam {parts['optimizer']}, {adam}")
        timed += 1
oracle.check(timed >= 36, f"{timed} times")
measured = 0
for row in csv.DictReader(open(source / "notebooks_data/measured/h200_optimizer.csv")):
    m, n, count, seconds = int(row["rows"]), int(row["columns"]), int(row["count"]), float(row["seconds"])
    if row["measurement"] in ("newton_schulz", "muon_step"):
        whole = row["measurement"] == "muon_step"
        want = count * max(orthogonal_s(m, n) + whole * update_s(m, n), 0.5e-3 + whole * 0.08e-3)
        oracle.check(abs(want / seconds - 1) < 0.15, f"{row}: {want} s by the law")
        measured += 1
oracle.check(measured == 24, f"{measured} measurements")
oracle.check(grown > 2, f"a matrix larger than a GPU's share pads the buffer: {grown}")
oracle.finish(least=50)
