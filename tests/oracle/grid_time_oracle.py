#!/usr/bin/env python3
"""Times of Megatron-Core jobs under tensor and context parallelism, with pencil and paper: products outside the experts are those of
the same job on one GPU a data-parallel rank, over TP x CP; collectives are the bytes of `explain --traffic` (which
grid_oracle counts) over the rate of the link that their group crosses, and a latency each. The interval has them hidden whole and at
twice their time.

grid_time_oracle.py SPILLWAY SCRATCH ROOT"""
import json
import pathlib
import sys

import numpy as np

from oracle_megatron_time import figures
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
folder = scratch / "grid_time_oracle"
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "grid_time_oracle")
TRACE, STACK = root / "traces/data/training_aux_e64_slice.h5", "megatron-h200-2026-11"
COEFFICIENTS = figures((root / f"sim/megatron_stacks/{STACK}.yaml").read_text())
NODE, GPUS = 8, 64
OUTSIDE = ("attention_projections", "attention", "dense_ffn", "shared_expert", "head", "elementwise")
GRID = ("tensor_parallel", "context_parallel", "tensor_parallel_ends", "tensor_parallel_gradients")


def job(name, tensor, context, stages, remat, micro):
    path = folder / f"{name}.yaml"
    path.write_text(f"model: scratch-moe-e64\ncluster: h200-8x8\n"
                    f"parallel: {{expert: 8, fsdp: {GPUS // 8 // stages}, tensor: {tensor}, context: {context}, "
                    f"expert_tensor: 1, pipeline: {stages}}}\n"
                    f"batch: {{sequences_per_gpu: 4, sequence_length: 512, micro_batches: {micro}}}\n"
                    "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
                    f"optimizer: distributed\nremat: {remat}\nschemes: [megatron-alltoall]\n")
    return path


def time_of(path):
    done = oracle.must("replay", TRACE, "--job", path, "--stack", STACK, "--steps", "0:1", "--layers", "0:1", "--format", "json")
    row = json.loads(done)["rows"][0]
    return row["time"], row["time"]["components"], row


def collectives(path, tensor, context, stages, micro):
    """Seconds by component of the mean stage, forward and backward."""
    out = dict.fromkeys(GRID, 0.0)
    for item in json.loads(oracle.must("explain", "--traffic", "--job", path, "--format", "json")):
        if item["purpose"] not in ("tensor_parallel", "context_parallel"):
            continue
        group = tensor if item["purpose"] == "tensor_parallel" else tensor * context
        rate = COEFFICIENTS["exchange_bytes_per_s" if NODE % group == 0 else "network_bytes_per_s"]
        name = item["purpose"]
        if name == "tensor_parallel" and item["where"] in ("ends", "step"):
            name += "_ends" if item["where"] == "ends" else "_gradients"
        out[name] += item["step_bytes"] / rate + item["count"] * item["times"] / stages * COEFFICIENTS["exchange_latency_s"]
    return out


def near(a, b):
    return abs(a - b) <= 1e-9 * max(abs(b), 1e-12)


def check(seed, tensor, context, stages, remat, micro):
    what = f"{seed}: tensor {tensor}, context {context}, stages {stages}, remat {remat}, micro-batches {micro}"
    cut = tensor * context
    time, got, row = time_of(job("grid", tensor, context, stages, remat, micro))
    _, plain, _ = time_of(job("plain", 1, 1, stages, remat, micro))
    for name in OUTSIDE:
        if name in plain:
            oracle.check(near(got[name]["seconds"], plain[name]["seconds"] / cut), f"{what} {name}: {got[name]}, {plain[name]}")
    want = collectives(job("grid", tensor, context, stages, remat, micro), tensor, context, stages, micro)
    total = 0.0
    for name, seconds in want.items():
        have = got[name]["seconds"] if name in got else 0.0
        total += have
        if stages == 1 or name == "tensor_parallel_gradients":
            oracle.check(near(have, seconds), f"{what} {name}: {have} for {seconds}")
    step = time["step_s"]
    oracle.check((total > 0) == (cut > 1), f"{what}: {total} s of collectives")
    oracle.check(near(time["tokens_per_s_per_gpu"], 4 * 512 / cut / stages / step), f"{what}: {time}")
    oracle.check(time["low_s"] < step - total and time["high_s"] > step + total, f"{what}: {time}, {total}")
    note = "tensor and context parallelism counted, not measured" in json.dumps(row)
    oracle.check(note == (cut > 1), f"{what}: {row}")


generator = np.random.default_rng(20)
for case in range(12):
    pick = [int(generator.choice(v)) for v in ((1, 2, 4), (1, 2, 4), (1, 1, 2))]
    if pick[0] * pick[1] * pick[2] > GPUS:
        continue
    check(case, *pick, str(generator.choice(["none", "full", "moe", "selective"])), int(generator.choice([2, 4])))
refused = oracle.call("replay", TRACE, "--job", job("grid", 2, 1, 1, "full", 2), "--set", "parallel.expert_tensor=2", "--set",
                      "parallel.fsdp=4", "--stack", STACK, "--steps", "0:1", "--layers", "0:1")
oracle.check(refused.returncode == 0 and "expert tensor parallelism, whose gathers" in refused.stdout, refused.stderr)
oracle.finish(least=100)
