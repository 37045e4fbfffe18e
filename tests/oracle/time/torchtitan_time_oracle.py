#!/usr/bin/env python3
"""Step times of torchtitan (sim/time/megatron/torchtitan_time.h): its passes are those of the Megatron-Core job that the header names, FSDP2's
collectives and what of them waits are counted by hand, and rows of published runs lie in their intervals.

torchtitan_time_oracle.py SPILLWAY SCRATCH ROOT"""
import json
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
oracle = Oracle(str(program), "torchtitan_time_oracle")
scratch.mkdir(parents=True, exist_ok=True)
text = (root / "sim/megatron_stacks/megatron-te-h100-2026-11.yaml").read_text()
figures = {k: float(v) for k, v in re.findall(r"^(\w+):\n  value: (\S+)", text, re.M)}
grouped = scratch / "grouped.yaml"  # one launch for all experts
grouped.write_text(re.sub(r"(expert_gap_s:\n  value: )\S+", r"\g<1>0", text))

# OLMoE: parameters of a layer, of its experts, and of embedding, head and the last norm
H, F, E, LAYERS, VOCAB, GPUS = 2048, 1024, 64, 16, 50304, 8
REST, ROUTED, ENDS = 4 * H * H + 4 * H + E * H, E * 3 * H * F, 2 * VOCAB * H + H
TWIN = ["--scheme", "megatron-alltoall", "--optimizer", "sharded", "--set", "moe_permute_fusion=false", "--set", "moe_router_fusion=false", "--set",
        "cross_entropy=unfused"]
COLLECTIVES = ("gradient_scatters", "weight_gathers")


def plan(expert, stages, micro, remat, *more):
    words = ["plan", "--model", "olmoe-1b-7b", *([] if "--cluster" in more else ["--cluster", f"h100:{GPUS}x1"]), "--expert-parallel", expert, "--pipeline", stages, "--micro-batches", micro,
             "--sequences-per-gpu", 2 * micro, "--sequence-length", 4096, "--precision", "bf16", "--remat", remat, "--routing", "uniform", *more]
    return json.loads(oracle.must(*words, "--format", "json"))["rows"][0]


for expert, stages, micro, remat in ((4, 1, 1, "full"), (8, 1, 1, "none"), (1, 1, 1, "full"), (2, 2, 4, "full"), (4, 2, 2, "none")):
    name = f"expert {expert}, {stages} stages, {micro} micro-batches, {remat}"
    time = plan(expert, stages, micro, remat, "--scheme", "torchtitan", "--stack", "megatron-te-h100-2026-11")["time"]
    twin = plan(expert, stages, micro, remat, *TWIN, "--stack", grouped)["time"]
    parts, others = time["components"], twin["components"]
    for part in set(parts) | set(others):
        if part not in COLLECTIVES:
            oracle.check(math.isclose(parts[part]["exposed_s"], others[part]["exposed_s"], rel_tol=1e-9), f"{name}: {part}, {parts[part]}, {others[part]}")
    ranks = GPUS // stages
    fsdp = ranks // expert
    held = (LAYERS * ROUTED / expert * (fsdp - 1) / fsdp + (LAYERS * REST + ENDS) * (ranks - 1) / ranks) / stages
    for part, times in (("gradient_scatters", 1), ("weight_gathers", 1 if stages > 1 else 2)):
        seconds = times * 2 * held / figures["exchange_bytes_per_s"]
        oracle.check(math.isclose(parts[part]["seconds"], seconds, rel_tol=1e-3), f"{name}: {part} {parts[part]['seconds']}, by hand {seconds}")
        first = seconds * stages / LAYERS  # the layer that has none before it; passes of these jobs are longer than all of it
        if stages == 1:
            oracle.check(math.isclose(parts[part]["exposed_s"], first, rel_tol=1e-3), f"{name}: {part} waits {parts[part]['exposed_s']}, by hand {first}")
        oracle.check(parts[part]["exposed_s"] <= parts[part]["seconds"] / (LAYERS / stages) * 1.001, f"{name}: {part} waits {parts[part]}")
    oracle.check(math.isclose(sum(p["exposed_s"] for p in parts.values()), time["step_s"], rel_tol=1e-9), f"{name}: the parts are not the step")
    oracle.check(time["high_s"] / time["low_s"] > twin["high_s"] / twin["low_s"], f"{name}: no wider than a job that was fitted")

# Several micro-batches without stages: each as one alone, its gathers and reductions with it; the optimizer once.
one, four = plan(4, 1, 1, "full", "--scheme", "torchtitan")["time"], plan(4, 1, 4, "full", "--scheme", "torchtitan")["time"]
for part, of in four["components"].items():
    times = 1 if part == "optimizer" else 4
    for figure in ("seconds", "exposed_s"):  # tokens are drawn for each micro-batch
        oracle.check(math.isclose(of[figure], times * one["components"][part][figure], rel_tol=1e-6 if part in COLLECTIVES else 0.02, abs_tol=1e-9),
                     f"4 micro-batches: {part} {figure} {of}, of one {one['components'][part]}")

# Replicas (HSDP): shards are scattered and gathered within one, and what a GPU then has is summed over them, in each micro-batch.
for expert, stages, micro, replicas in ((2, 1, 1, 2), (2, 1, 4, 4), (1, 1, 2, 8), (2, 2, 4, 2)):
    name = f"expert {expert}, {stages} stages, {micro} micro-batches, {replicas} replicas"
    row = plan(expert, stages, micro, "full", "--scheme", "torchtitan", "--set", f"fsdp2.replicas={replicas}")
    time = row["time"]
    scattered = summed = 0.0
    for elements, over in ((LAYERS * ROUTED / expert, GPUS // stages // expert // replicas), (LAYERS * REST + ENDS, GPUS // stages // replicas)):
        scattered += elements / stages * (over - 1) / over
        summed += elements / stages / over * (replicas - 1) / replicas
    times = micro if stages == 1 else 1
    for part, elements in (("gradient_scatters", scattered + 2 * summed), ("weight_gathers", scattered * (1 if stages > 1 else 2))):
        seconds = times * 2 * elements / figures["exchange_bytes_per_s"]
        oracle.check(math.isclose(time["components"][part]["seconds"], seconds, rel_tol=1e-3),
                     f"{name}: {part} {time['components'][part]['seconds']}, by hand {seconds}")
        oracle.check(time["components"][part]["exposed_s"] <= seconds, f"{name}: {part} waits longer than it takes")
    oracle.check(any("replicas (HSDP)" in outside["feature"] for outside in row["outside_fit"]), f"{name}: not outside of the fit")

for words, why in ((["--set", "fsdp2.reshard_after_forward=off"], "torchtitan"), (["--set", "fsdp2.state=host"], "torchtitan")):
    row = plan(4, 1, 1, "full", "--scheme", "torchtitan", *words)
    oracle.check(row["time"]["step_s"] is None and why in row["why_no_time"], f"{words} has a time: {row['time']}")

rows = {r["row_id"]: r for r in json.loads(oracle.must("score", root / "notebooks_data/megatron/megatron_runs.csv", "--format", "json"))["rows"]}
for row, published in (("nb41", 651), ("nb42", 859), ("nb43", 918), ("tt18", 6169), ("tt19", 7401)):
    time = rows[row]["time"]
    step = time["step_s"] * time["tokens_per_s_per_gpu"] / published
    oracle.check(time["low_s"] <= step <= time["high_s"], f"{row}: {published} tokens/s, {time['tokens_per_s_per_gpu']}")
timed = sum(bool(r["time"]) for r in rows.values())
oracle.check(timed >= 139, f"{timed} of {len(rows)} published rows have a time as asked: README says 139")
for faster, slower, published in (("nb43", "nb42", 918 / 859), ("tt19", "tt18", 7401 / 6169)):  # mxfp8 over bf16
    said = rows[faster]["time"]["tokens_per_s_per_gpu"] / rows[slower]["time"]["tokens_per_s_per_gpu"]
    oracle.check(1.0 < said and abs(said / published - 1) < 0.12, f"{faster} over {slower}: {said}, published {published}")

# torchao casts in each pass: operands wait in bf16, so memory and traffic are those without a recipe; what is no product of a linear layer
# takes as long, and the products of the dense layers shrink by what the GPU's fp8 is faster.
BLACKWELL = ["--cluster", "b200:8x1", "--scheme", "torchtitan"]
plain, cast = (plan(4, 1, 1, "full", *BLACKWELL, *more) for more in ([], ["--set", "precision.recipe=mxfp8"]))
for figure in ("max_bytes", "argument_bytes", "budget_bytes"):
    oracle.check(plain["memory"][figure] == cast["memory"][figure], f"mxfp8: {figure} {plain['memory'][figure]}, {cast['memory'][figure]}")
parts, others = plain["time"]["components"], cast["time"]["components"]
for part in ("dispatch", "combine", "gradient_scatters", "weight_gathers", "head", "loss"):
    if part in parts:
        oracle.check(math.isclose(parts[part]["seconds"], others[part]["seconds"], rel_tol=1e-9), f"mxfp8: {part} {parts[part]}, {others[part]}")
gain = parts["expert_products"]["seconds"] / others["expert_products"]["seconds"]
oracle.check(1.2 < gain < 2.0, f"mxfp8: experts' products are {gain} times as fast, at most 2 by the peaks")
for scheme, recipe, why in (("torchtitan", "delayed", "not modelled"), ("gmm", "mxfp8", "not modelled"), ("gmm", "delayed", "not modelled"),
                            ("dense:capacity_factor=1", "mxfp8", "not modelled"), ("megatron-alltoall:align=32", "mxfp8", "not modelled"),
                            ("torchtitan", "blockwise", "blockwise")):
    done = oracle.call("plan", "--model", "olmoe-1b-7b", "--cluster", "b200:8x1", "--optimizer", "sharded", "--scheme", scheme, "--set",
                       f"precision.recipe={recipe}")
    oracle.check(done.returncode == 2 and why in done.stderr, f"{scheme}, {recipe}: {done.returncode} {done.stderr}")

# MaxText's dense layers under flax's delayed scaling: memory as in bf16 with one more doubt, products of matrices twice as fast at most.
for row, published in (("mtg4", 2568), ("mtg8", 2910), ("mtg10", 2991), ("mtg12", 3034), ("mtg14", 3062)):
    time = rows[row]["time"]
    step = time["step_s"] * time["tokens_per_s_per_gpu"] / published
    oracle.check(time["low_s"] <= step <= time["high_s"] and abs(time["tokens_per_s_per_gpu"] / published - 1) < 0.12, f"{row}: {time}")
DENSE = ["--cluster", "mi355x:8x1", "--scheme", "dense:capacity_factor=1.25"]
plain, cast = (plan(8, 1, 1, "full", *DENSE, *more) for more in ([], ["--set", "precision.recipe=delayed"]))
oracle.check(plain["memory"]["max_bytes"] == cast["memory"]["max_bytes"] and plain["memory"]["high_bytes"] < cast["memory"]["high_bytes"], "delayed: memory")
parts, others = plain["time"]["components"], cast["time"]["components"]
for part in parts:
    gain = parts[part]["seconds"] / others[part]["seconds"] if others[part]["seconds"] else 1.0
    product = part in ("attention_projections", "expert_products", "mask_products")
    oracle.check(1.2 < gain < 2.0 if product else math.isclose(gain, 1.0, rel_tol=1e-9), f"delayed: {part} {gain}")
oracle.finish(least=80)
