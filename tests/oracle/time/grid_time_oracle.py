#!/usr/bin/env python3
"""Times of Megatron-Core jobs under tensor and context parallelism, with pencil and paper: products outside the experts are those of
the same job on one GPU a data-parallel rank, over TP x CP; collectives are the bytes of `explain --traffic` (which
grid_oracle counts) over the rate of the link that their group crosses, and a latency each; in a network of levels over the busiest
of all ports that the rings of all groups cross. The interval has them hidden whole and at twice their time.

grid_time_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
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


# Two nodes a leaf, the GPUs of even and of odd numbers on a switch each; two leaves a spine, two spines a core.
SIZE, SWITCHES, PORTS, LATENCY = (2, 2, 2), (2, 1, 1), (50e9, 30e9, 70e9), (600, 1200, 2500)
LEVELS = ("levels:\n  name: [leaf, spine, core]\n  size: [2, 2, 2]\n  switches: [2, 1, 1]\n  port_mb_per_s: [50000, 30000, 70000]\n"
          "  latency_ns: [600, 1200, 2500]\n  evidence: assumed\n  source: a test\n")
(folder / "levels.yaml").write_text((root / "sim/clusters/h200-8x8.yaml").read_text() + LEVELS)


def member(level, gpu):
    """Where a GPU leaves by: its NIC, its rail of a leaf, its spine."""
    leaf = gpu // NODE // 2
    return (gpu, (leaf, gpu % 2), leaf // 2)[level]


def pace(group, stride, levels):
    """Seconds a byte and a call of rings of `group` GPUs `stride` apart, all at once."""
    call = COEFFICIENTS["exchange_latency_s"]
    if NODE % (group * stride) == 0:
        return 1 / COEFFICIENTS["exchange_bytes_per_s"], call
    slowest, top = 1.0, -1
    for level in range(3 if levels else 0):
        sent = {}
        for first in range(GPUS):
            if first // stride % group == 0:
                ring = [first + i * stride for i in range(group)]
                for a, b in zip(ring, ring[1:] + ring[:1]):
                    if a // NODE != b // NODE and member(level, a) != member(level, b):
                        for port in (("out", member(level, a)), ("in", member(level, b))):
                            sent[port] = sent.get(port, 0) + 1
        if sent:
            slowest, top = max(slowest, max(sent.values()) * PORTS[0] / PORTS[level]), level
    return slowest / COEFFICIENTS["network_bytes_per_s"], call + sum(LATENCY[:top + 1]) * 1e-9


def job(name, tensor, context, stages, remat, micro, cluster="h200-8x8"):
    path = folder / f"{name}.yaml"
    path.write_text(f"model: scratch-moe-e64\ncluster: {cluster}\n"
                    f"library_limits: ignore\nparallel: {{expert: 8, fsdp: {GPUS // 8 // stages}, tensor: {tensor}, context: {context}, "
                    f"expert_tensor: 1, pipeline: {stages}}}\n"
                    f"batch: {{sequences_per_gpu: 4, sequence_length: 512, micro_batches: {micro}}}\n"
                    "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
                    f"optimizer: distributed\nremat: {remat}\nschemes: [megatron-alltoall]\n")
    return path


def time_of(path):
    done = oracle.must("replay", TRACE, "--job", path, "--stack", STACK, "--steps", "0:1", "--layers", "0:1", "--format", "json")
    row = json.loads(done)["rows"][0]
    return row["time"], row["time"]["components"], row


def collectives(path, tensor, context, stages, levels):
    """Seconds by component of the mean stage, forward and backward."""
    out = dict.fromkeys(GRID, 0.0)
    for item in json.loads(oracle.must("explain", "--traffic", "--job", path, "--format", "json")):
        if item["purpose"] not in ("tensor_parallel", "context_parallel"):
            continue
        byte, call = pace(*((tensor, 1) if item["purpose"] == "tensor_parallel" else (context, tensor)), levels)
        name = item["purpose"]
        if name == "tensor_parallel" and item["where"] in ("ends", "step"):
            name += "_ends" if item["where"] == "ends" else "_gradients"
        out[name] += item["step_bytes"] * byte + item["count"] * item["times"] / stages * call
    return out


def near(a, b):
    return abs(a - b) <= 1e-9 * max(abs(b), 1e-12)


def check(seed, tensor, context, stages, remat, micro, cluster="h200-8x8"):
    what = f"{seed}: tensor {tensor}, context {context}, stages {stages}, remat {remat}, micro-batches {micro}, {cluster}"
    cut = tensor * context
    time, got, row = time_of(job("grid", tensor, context, stages, remat, micro, cluster))
    _, plain, _ = time_of(job("plain", 1, 1, stages, remat, micro, cluster))
    for name in OUTSIDE:
        if name in plain:
            oracle.check(near(got[name]["seconds"], plain[name]["seconds"] / cut), f"{what} {name}: {got[name]}, {plain[name]}")
    want = collectives(job("grid", tensor, context, stages, remat, micro, cluster), tensor, context, stages, cluster != "h200-8x8")
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
for tensor, context in ((4, 4), (4, 16), (2, 16), (2, 32), (1, 16), (1, 64), (4, 2)):
    check("levels", tensor, context, 1, "full", 2, "./levels.yaml")

# Experts that GPUs of two nodes share have no time; shared on one node, tokens are those of a data-parallel rank all the same.
job("shared", 2, 1, 1, "full", 2)
shared = ("replay", TRACE, "--job", folder / "shared.yaml", "--stack", STACK, "--steps", "0:1", "--layers", "0:1", "--format", "json",
          "--set", "parallel.expert_tensor=2", "--set", "parallel.fsdp=4")
time = json.loads(oracle.must(*shared))["rows"][0]["time"]
total = sum(time["components"][name]["seconds"] for name in GRID if name in time["components"])
total += time["components"]["expert_tensor_parallel"]["seconds"]
oracle.check(time["low_s"] < time["step_s"] - total and time["high_s"] > time["step_s"] + total, f"shared: {time}")
refused = oracle.call(*shared[:-6], "--set", "parallel.expert_tensor=16", "--set", "parallel.expert=4", "--set", "parallel.fsdp=1")
oracle.check(refused.returncode == 0 and "GPUs of several nodes share" in refused.stdout, refused.stdout + refused.stderr)
for imbalance in ("1", "2", "8"):
    time = json.loads(oracle.must("plan", "--job", folder / "shared.yaml", "--stack", STACK, "--imbalance", imbalance, "--format", "json",
                                  *shared[-4:], "--set", "batch.micro_batches=1"))["rows"][0]["time"]
    oracle.check((imbalance == "1") == near(time["step_s"], time["balanced_step_s"]), f"shared, imbalance {imbalance}: {time}")

# Of what has no time, the reason is told, and not another.
job("tensor", 2, 1, 1, "full", 2)
ALLTOALL = ("--scheme", "megatron-alltoall")
for words, arguments in (("padded to an alignment", ("--scheme", "megatron-alltoall:align=16")),
                         ("format than bf16", (*ALLTOALL, "--set", "precision.weights=fp32")),
                         ("no recompute module", (*ALLTOALL, "--remat", "minimal"))):
    done = oracle.must("plan", "--job", folder / "tensor.yaml", "--stack", STACK, *arguments)
    why = [line for line in done.splitlines() if line.startswith("no times")]
    oracle.check(len(why) == 1 and words in why[0], f"{arguments}: {done}")
plain = oracle.must("plan", "--job", folder / "tensor.yaml", "--stack", STACK, *ALLTOALL)
oracle.check("no times" not in plain, plain)

# An optimizer of which the host has a share: what leaves the GPU's, and what waits for the host.
def ends(*more):
    time = json.loads(oracle.must("plan", "--job", folder / "tensor.yaml", "--stack", STACK, *ALLTOALL, "--format", "json", *more))["rows"][0]["time"]
    return time, {name: part for name, part in time["components"].items()}


whole_time, whole = ends()
precision = json.loads(oracle.must("explain", "--job", folder / "tensor.yaml", *ALLTOALL, "--format", "json"))
moments = next(c["bytes"] for c in precision if c["component"] == "optimizer")
master = next(c["bytes"] for c in precision if c["component"] == "master_weights")
parameters = master / 4
oracle.check(near(moments, 8 * parameters), f"moments in fp32: {moments}, {master}")
for share in (0.25, 0.5, 1.0):
    time, parts = ends("--set", f"optimizer_on_host={share}")
    copy, adam = share * parameters * 4 / 55.2e9, share * parameters * (12 + 16) / 113e9
    gpu = (1 - share) * whole["optimizer"]["exposed_s"]
    for name, seconds, exposed in (("host_gradients", copy, copy), ("host_optimizer", adam, max(adam - gpu, 0)), ("host_weights", copy, copy)):
        got = parts[name]
        oracle.check(abs(got["seconds"] - seconds) < 1e-6 * seconds and abs(got["exposed_s"] - exposed) < 1e-6 * seconds, f"host {share}: {name} {got}, {seconds} {exposed}")
    oracle.check(abs(parts["optimizer"]["exposed_s"] - gpu) < 1e-6 * whole["optimizer"]["exposed_s"], f"host {share}: {parts['optimizer']}, {gpu}")
    more = 2 * copy + max(adam - gpu, 0) - share * whole["optimizer"]["exposed_s"]
    oracle.check(abs(time["step_s"] - whole_time["step_s"] - more) < 1e-9, f"host {share}: {time['step_s']} after {whole_time['step_s']}, not {more} more")
    oracle.check(time["low_s"] <= time["step_s"] - 2 * copy - max(adam - gpu, 0) / 2 and time["high_s"] >= time["step_s"] + 2 * copy + adam, f"host {share}: {time}")
    oracle.check("host_gradients" not in whole, "no host, no copies")
measured = 0
for row in csv.DictReader(open(root / "notebooks_data/measured/h200_optimizer.csv")):
    elements, seconds = int(row["rows"]) * int(row["columns"]) * int(row["count"]), float(row["seconds"])
    if row["measurement"] in ("gradients_there", "weights_back"):
        oracle.check(abs(elements * 4 / 55.2e9 / seconds - 1) < 0.15, f"{row}: a copy of masters")
        measured += 1
    elif row["measurement"] == "host_adam" and row["threads"] == "16":
        oracle.check(abs(elements * 28 / 113e9 / seconds - 1) < 0.16, f"{row}: Adam on the host")
        measured += 1
oracle.check(measured == 21, f"{measured} measurements of the host")
oracle.finish(least=100)
