#!/usr/bin/env python3
"""The routing of a plan that names none: the loads of the reference from its trace, choices drawn from them, a router's limit to
groups of experts token by token, and a plan over them against a plan over the same choices as a trace.

routing_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import csv
import io
import json
import math
import pathlib
import re
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]) / "routing", pathlib.Path(sys.argv[3])
scratch.mkdir(parents=True, exist_ok=True)
oracle = Oracle(program, "routing_oracle")
check = oracle.check


def measured():
    """Choices by layer and expert of step 399 of the shipped trace, counted token by token."""
    with h5py.File(root / "traces/data/training_aux_e64_slice.h5") as trace:
        at = list(trace["steps/id"][()]).index(399)
        first, end = trace["tokens/step_offset"][()][at:at + 2]
        ids = trace["tokens/expert_id"][first:end]
        return [int(x) for x in trace["layer"][()]], np.array([np.bincount(ids[:, l].ravel(), minlength=64) for l in range(ids.shape[1])])


def loads(counts, experts):
    """The mean of the sorted loads over each expert's share, by a fine grid: 64 x experts pieces, of which each is in one load."""
    fine = np.repeat(np.sort(counts)[::-1].astype(float), experts)
    return fine.reshape(experts, 64).mean(1) / counts.mean()


def inclusion(load, top_k):
    """min(1, c load) with the sum top_k, by bisection."""
    low, high = 0.0, float(top_k) / load.min()
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.minimum(1.0, middle * load).sum() < top_k else (low, middle)
    return np.minimum(1.0, high * load)


def generated(name, experts, top_k, distribution, ranks=16, tokens=2048, layers=4, seed=1):
    path = scratch / f"{name}.h5"
    oracle.must("trace", "generate", "--experts", experts, "--top-k", top_k, "--layers", layers, "--ranks", ranks, "--tokens-per-rank", tokens,
                "--seed", seed, "--distribution", distribution, path)
    with h5py.File(path) as trace:
        return path, trace["tokens/expert_id"][()].astype(int)


layer_ids, counts = measured()

# The data file is the trace.
lines = [line for line in (root / "traces/data/reference_loads.csv").read_text().splitlines() if not line.startswith("#")]
table = list(csv.DictReader(io.StringIO("\n".join(lines))))
check([int(row["layer"]) for row in table] == layer_ids, "the layers of the data file")
check(np.array_equal(np.array([[int(row[f"expert_{x}"]) for x in range(64)] for row in table]), counts), "the data file is not the trace's step 399")

# Realised loads, sorted, are those of the reference as far as chance lets them: |count - T pi| <= 6 sqrt(T pi (1 - pi)) + 12.
for experts, top_k in ((64, 8), (256, 8), (128, 4), (8, 2), (16, 8), (60, 4), (384, 8)):
    for groups, kept in ((0, 0),) if experts % 8 or top_k % 4 else ((0, 0), (8, 4)):
        words = f"reference:groups={groups},kept={kept}" if groups else "reference"
        path, ids = generated("loads", experts, top_k, words, seed=experts + top_k)
        tokens = len(ids)
        check(all(len(set(token)) == top_k for token in ids[::97, 0].tolist()), f"{experts}, {words}: an expert twice in a token")
        for layer in range(4):
            got = np.sort(np.bincount(ids[:, layer].ravel(), minlength=experts))[::-1]
            pi = inclusion(loads(counts[layer], experts), top_k)
            # The i-th largest of noisy counts lies within the noise of the i-th largest mean.
            room = 6.0 * np.sqrt(tokens * pi * (1.0 - pi)) + 12.0
            if groups and experts // groups * kept < 4 * top_k:
                continue  # groups so small that some expert of one is always chosen
            check((abs(got - tokens * pi) <= room).all(), f"{experts} experts, top-{top_k}, {words}, layer {layer}: {abs(got - tokens * pi).max()}")
        if groups:
            size = experts // groups
            seen = np.array([len(set(token // size)) for token in ids[:, 1]])
            check(seen.max() <= kept and seen.max() > 1, f"a token has experts of {seen.max()} groups, {words}")

# Popular experts lie anywhere: seeds and layers differ.
hot = {int(np.bincount(generated("seed", 64, 8, "reference", 2, 1024, 2, seed)[1][:, layer].ravel(), minlength=64).argmax())
       for seed in range(1, 7) for layer in range(2)}
check(len(hot) > 5, f"the hottest expert of 12 is always among {hot}")

# More skew is never less uneven, expert by expert; 0 is even.
most = [np.bincount(generated("power", 64, 2, f"reference:exponent={power}")[1][:, 0].ravel(), minlength=64).max() for power in (0, 0.5, 1, 2, 3)]
check(most == sorted(most) and most[0] < 1.2 * 16 * 2048 * 2 / 64, f"the hottest expert by exponent: {most}")

# --- A plan ---

JOB = """model: {model}
cluster: mi355x-8x8
parallel: {{expert: {expert}, fsdp: {fsdp}}}
batch: {{sequences_per_gpu: 1, sequence_length: 512}}
schemes: ["dense:capacity_factor=1.25", gmm, gmm-deepep]
"""


def plan(job, *words):
    return json.loads(oracle.must("plan", "--job", job, "--format", "json", *words))


def same(a, b, what):
    """But for what is expected, which a trace does not say."""
    for x, y in zip(a["rows"], b["rows"]):
        for part in ("memory", "traffic", "drops", "time"):
            drawn = [{k: v for k, v in row[part].items() if not k.startswith("expected")} for row in (x, y)]
            check(drawn[0] == drawn[1], f"{what}: {x['scheme']}: {part}")


def over(tokens, pi, capacity):
    """Mean and variance of what is over the capacity of an expert, by the binomial law as a product of sums of logarithms."""
    if pi >= 1.0:
        return max(0.0, tokens - capacity), 0.0
    b = np.arange(capacity + 1, tokens + 1)
    log_choose = math.lgamma(tokens + 1) - np.array([math.lgamma(k + 1) + math.lgamma(tokens - k + 1) for k in b])
    p = np.exp(log_choose + b * math.log(pi) + (tokens - b) * math.log1p(-pi))
    mean = (p * (b - capacity)).sum()
    return mean, (p * (b - capacity) ** 2).sum() - mean * mean


def expects(rows, experts, top_k, moe_layers, what):
    """Of dense under the reference: 64 GPUs, a sequence of 512 tokens each. Experts that are full leave less to others, so the spread
    is below that of independent ones."""
    capacity = int(-(-512 * top_k // experts) * 1.25)
    units = [over(512, pi, capacity) for layer in counts for pi in inclusion(loads(layer, experts), top_k)]
    mean, spread = (sum(x) / 4 / (512 * top_k) for x in ([u[0] for u in units], [u[1] / (512 * top_k) for u in units]))
    drops, apart = rows["dense:capacity_factor=1.25"]["drops"], math.sqrt(spread / (64 * moe_layers))
    check(math.isclose(drops["expected_fraction"], mean, rel_tol=1e-6), f"{what}: {drops} expected, {mean} by the binomial law")
    check(0.5 * apart < drops["expected_sd"] < apart, f"{what}: {drops['expected_sd']} is the spread, {apart} of independent experts")
    drawn = apart * math.sqrt(moe_layers / 4)  # in four layers
    check(abs(drops["fraction"] - mean) < 5 * drawn, f"{what}: {drops} drawn, {mean} expected")
    check(all("expected_fraction" not in rows[scheme]["drops"] for scheme in ("gmm", "gmm-deepep")), f"{what}: no drops, none expected")
    for row in rows.values():
        expected = row["traffic"]["expected"]
        check(expected["rows_mean"] == 512 * top_k and expected["rows_sd"] > 0, f"{what}: {expected}")
        check(abs(expected["rows_fullest"] / expected["rows_mean"] - 1) > 0.05, f"{what}: {expected}")


def close(a, b, what):
    """Counts without tokens are as likely as those of tokens: 32,768 tokens in four layers, 4,096 to a group of 8 GPUs."""
    for x, y in zip(a["rows"], b["rows"]):
        pairs = [(x["memory"]["max_bytes"], y["memory"]["max_bytes"], 0.05), (x["traffic"]["rows_max"], y["traffic"]["rows_max"], 0.06)]
        pairs += [(x["traffic"][key], y["traffic"][key], 0.01) for key in ("dispatch_bytes_per_gpu",) if y["traffic"][key] > 0]
        pairs += [(x["time"]["step_s"], y["time"]["step_s"], 0.03)] if x["time"]["step_s"] is not None else []
        for got, want, share in pairs:
            check(abs(got / want - 1) < share, f"{what}: {x['scheme']}: {got} near {want}")
        check(abs(x["drops"]["fraction"] - y["drops"]["fraction"]) < 0.01, f"{what}: {x['scheme']}: {x['drops']} near {y['drops']}")
        check(x["drops"]["assignments"] == y["drops"]["assignments"], f"{what}: {x['scheme']}: all choices")


# A scheme that looks at tokens has them drawn, and those beside it are what they are alone.
TOKENS = ("--scheme", "moe-dedup:buffer_factor=1,max_shards=2")
COUNTED = ("--scheme", "tutel:capacity_factor=1", "--scheme", "tutel:capacity_factor=1.5")  # drops what is over a capacity: counts say how much
BESIDE = ("--scheme", "gmm", "--scheme", "gmm-deepep", *TOKENS)

for model, expert, experts, groups in (("olmoe-1b-7b", 8, 64, ""), ("deepseek-v3", 16, 256, ":groups=8,kept=4")):
    job = scratch / f"{model}.yaml"
    job.write_text(JOB.format(model=model, expert=expert, fsdp=64 // expert))
    answer = plan(job)
    # The default is the reference, under the model's limit, drawn as `trace generate` draws it, or as likely.
    path, ids = generated("whole", experts, 8, f"reference{groups}", 64, 512)
    exact = plan(job, *TOKENS)
    same(exact, plan(job, "--trace", path, *TOKENS), f"{model}: the reference as a trace")
    traced, mixed = plan(job, "--trace", path), plan(job, *BESIDE)
    close(answer, traced, f"{model}: the reference as a trace")
    close(plan(job, *COUNTED), plan(job, "--trace", path, *COUNTED), f"{model}: a capacity by counts and by tokens")
    check(answer["rows"][1]["traffic"] != traced["rows"][1]["traffic"], f"{model}: tokens are drawn where nobody looks at them")
    same({"rows": mixed["rows"][2:]}, exact, f"{model}: tokens beside counts")
    same({"rows": mixed["rows"][:2]}, {"rows": answer["rows"][1:]}, f"{model}: counts beside tokens")
    same(answer, plan(job, "--routing", "reference"), f"{model}: the reference by name")
    # Uniform gives what it gave: two layers without a limit.
    old, _ = generated("old", experts, 8, "uniform", 64, 512, 2)
    uniform = plan(job, "--routing", "uniform:groups=0")
    same(plan(job, "--routing", "uniform:groups=0", *TOKENS), plan(job, "--trace", old, *TOKENS), f"{model}: uniform as it was")
    close(uniform, plan(job, "--trace", old), f"{model}: uniform as it was")
    if not groups:
        same(uniform, plan(job, "--routing", "uniform"), f"{model}: uniform without a limit")
    # Rows by rank: own sums over the tokens of each group of ranks.
    source = np.arange(len(ids)) // 512 // expert
    rank = ids // (experts // expert)
    most = max(np.bincount(rank[source == g, layer].ravel(), minlength=expert).max() for g in range(64 // expert) for layer in range(4))
    rows = {row["scheme"]: row for row in answer["rows"]}
    check(traced["rows"][1]["traffic"]["rows_max"] == most, f"{model}: {most} rows by own sums, {traced['rows'][1]['traffic']['rows_max']}")
    # What lies beside: balanced rows, no drops, the step of balanced routing.
    for row in answer["rows"]:
        time, beside = row["time"], row["drops"]["balanced_fraction"]
        check(beside == 0.0, f"{model}: {row['scheme']} drops {beside} of balanced routing")
        check(row["memory"]["balanced_peak_bytes"] <= row["memory"]["max_bytes"], f"{model}: {row['scheme']} needs less than balanced")
        check(time["step_s"] is None or math.isclose(time["balanced_tokens_per_s_per_gpu"] * time["balanced_step_s"], 512, rel_tol=1e-9),
              f"{model}: {row['scheme']}: balanced tokens/s")
    # A scheme that drops is not called fastest for what it drops under uniform routing alone.
    check(rows["dense:capacity_factor=1.25"]["drops"]["fraction"] > 0.03, f"{model}: dense drops {rows['dense:capacity_factor=1.25']['drops']}")
    expects(rows, experts, 8, {"olmoe-1b-7b": 16, "deepseek-v3": 58}[model], model)
    check(all("expected" not in row["traffic"] and "expected_fraction" not in row["drops"] for row in traced["rows"]), f"{model}: expected of a trace")
    fastest = answer["rows"][answer["plan"]["fastest"]]
    check(fastest["drops"]["fraction"] <= 0.01, f"{model}: the fastest, {fastest['scheme']}, drops")
    text = oracle.must("plan", "--job", job, "--wide", "--details")
    check("with balanced routing: " in text and "--routing balanced" in text, f"{model}: {text}")
    check("with balanced routing: " not in oracle.must("plan", "--job", job, "--routing", "uniform", "--details"), "balanced beside uniform")

# Every name is in the help of `trace generate` and in what an unknown one is told; balanced is uniform by another name, hash is not even.
said = oracle.must("help", "routing")
names = re.findall(r"^  ([a-z0-9-]+): ", said.split("Generators")[1], re.M)
megatron = " ".join(name for name in names if name.startswith("megatron-"))
listed, told = oracle.must("trace", "generate", "--help"), oracle.call("plan", "--job", job, "--routing", "nothing").stderr
for text in (listed, told):
    text = re.sub(r"megatron-w0\s+to w7", megatron, text)
    check(len(names) > 15 and all(re.search(rf"\b{name}\b", text) for name in names), f"{names} are not all in {text}")
even = [plan(job, "--routing", name)["rows"] for name in ("balanced", "uniform")]
check(even[0] == even[1], "balanced is not uniform")
for name, is_even in (("balanced", True), ("group-limited", True), ("hash", False), ("reference", False)):
    check(("routing is even" in oracle.must("plan", "--job", job, "--wide", "--routing", name)) == is_even, f"{name}: even is {is_even}")

# Nodes reached: an own draw of uniform choices of 4 of 8 groups, 8 of the 128 experts in them, over 2 nodes of 8 ranks.
random = np.random.default_rng(3)
job = scratch / "deepseek-v3.yaml"
job.write_text(JOB.format(model="deepseek-v3", expert=16, fsdp=4))


def reach(groups):
    """Ranks of a group of 16 that a token reaches, its own left out; and the share that lies on the other node."""
    tokens, seen = 20000, []
    for _ in range(tokens):
        among = np.arange(256).reshape(groups, -1)[random.permutation(groups)[:groups // 2 if groups > 1 else 1]].ravel()
        seen.append(len(set(random.choice(among, 8, replace=False) // 16)))
    return float(np.mean(seen)) * 15 / 16


for routing, groups in (("uniform", 8), ("uniform:groups=0", 1)):
    row = next(row for row in plan(job, "--routing", routing)["rows"] if row["scheme"] == "gmm-deepep")
    row_bytes = row["traffic"]["dispatch_bytes_per_gpu"] / 512
    own = reach(groups)
    check(abs(row["traffic"]["expected"]["other_ranks"] / own - 1) < 0.01, f"{routing}: {row['traffic']['expected']}, {own} by own draw")
    ratio = row["time"]["step_s"] / row["time"]["balanced_step_s"]
    check(abs(ratio - 1) < 0.01, f"{routing}: {ratio} times balanced, whose tokens keep to the groups, too")
    if groups == 8:
        limited, limited_own = row_bytes, own
    else:
        check(abs(limited / row_bytes / (limited_own / own) - 1) < 0.01, f"the limit leaves {limited / row_bytes} of the bytes, {limited_own / own} by own draw")
        check(limited / row_bytes < 0.95, f"the limit leaves {limited / row_bytes}")

# Enough groups stand for all: at least 2,048 GPUs, and on nodes of 6 groups of 8 lie as the first does after 24 GPUs only.
for nodes, cluster, there in ((8, "mi355x:8x512", 2048), (6, "mi355x:6x700", 2064)):
    gpus = {8: 4096, 6: 4200}[nodes]
    job = scratch / f"many{nodes}.yaml"
    job.write_text(JOB.format(model="olmoe-1b-7b", expert=8, fsdp=gpus // 8).replace("mi355x-8x8", cluster))
    path, _ = generated(f"many{nodes}", 64, 8, "reference", 512, 512)
    every, some = plan(job, "--trace", path), plan(job)
    close(some, every, f"{gpus} GPUs")
    stands = f"{there} of a stage's {gpus} GPUs are replayed: its other expert-parallel groups differ by chance alone"
    check(stands in some["rows"][1]["assumptions"], f"groups that stand for others: {some['rows'][1]['assumptions']}")
    check(not any("of a stage's" in line for line in every["rows"][1]["assumptions"]), "all groups of a trace are replayed")

oracle.finish(150)
