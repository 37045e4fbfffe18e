#!/usr/bin/env python3
"""Step times of Megatron-Core jobs, as `spillway replay` says them, from the token ids of the shipped trace by a brute force and formulas
that are written again (megatron_steps.py): three dispatchers, groups in a node and over nodes, micro-batches, pipelines, another
cluster, bare layers, experts that GPUs share (random grids of them, replayed and of a stated imbalance). Then what `plan` makes of them.

megatron_job_oracle.py SPILLWAY SCRATCH SOURCE"""
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from megatron_steps import (E, F, H, H200, K, LAYERS, MOE, SHARED, STACK, T, TRACE, VOCAB, WHOLE, at_the_end, loads_at, outside,
    predict, program, scaled, scratch, source)
from oracle_megatron_time import Load, step as bare_step
from oracle_run import Oracle
import program as caller

CLUSTER = "name: x\nnodes: {nodes}\ngpus_per_node: {gpus}\n" + "".join(
    f"{k}: {{{{value: {v}, evidence: assumed, source: a test}}}}\n" for k, v in
    [("hbm_gib", 80), ("fp8_flops", 2e15), ("launch_s", 5e-6)] + [(k, "{%s}" % k) for k in H200])
JOB = """model: scratch-moe-e64
cluster: ./{name}.yaml
library_limits: ignore
parallel: {{expert: {expert}, fsdp: {fsdp}, pipeline: {stages}, expert_tensor: {sharers}}}
batch: {{sequences_per_gpu: 2, sequence_length: 512, micro_batches: {micro}}}
precision: {{weights: bf16, gradients: {gradients}, optimizer: fp32, activations: bf16}}
optimizer: {optimizer}
remat: {remat}
cuda_graph_impl: {graph}
overlap_moe_expert_parallel_comm: {overlap}
{keys}
cross_entropy: {loss}
{part}schemes: [{schemes}]
"""
oracle = Oracle(program, "megatron_job_oracle")
check, run = oracle.check, oracle.run


def near(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


ALL = ["megatron-alltoall", "megatron-flex", "megatron-allgather"]
CASES = [  # what differs from the first
    dict(schemes=ALL + ["megatron-alltoall:capacity_factor=1.25,policy=position",
                        "megatron-alltoall:capacity_factor=1,policy=position,pad=true"]),
    dict(schemes=["megatron-flex:backend=hybridep", "megatron-syncfree:rank_capacity=8", "megatron-syncfree:rank_capacity=8,graph=full"]),
    dict(schemes=["megatron-flex:backend=hybridep", "megatron-syncfree:rank_capacity=8"], gpus=8, expert=16, remat="moe", micro=2, stages=2),
    dict(schemes=ALL, gpus=8, expert=16, remat="full"),
    dict(schemes=ALL[:2], gpus=4, expert=64, remat="moe", optimizer="replicated"),
    dict(schemes=ALL[:1], micro=2, remat="moe_act", gradients="bf16"),
    dict(schemes=ALL, micro=2, stages=2, remat="selective"),
    dict(schemes=ALL[:1], micro=2, stages=2, remat="core_attn+moe_act+layernorm+mlp"),
    dict(schemes=ALL[:1], remat="layernorm+moe"),
    dict(schemes=ALL[:2], cluster=dict(bf16_flops=2e15, hbm_bytes_per_s=8e12, link_bytes_per_s=537.6e9, nic_bytes_per_s=25e9)),
    dict(schemes=ALL[:1], expert=64, gpus=64, part="model_part: expert_layers\nlayers: 4\n", optimizer="sharded"),
    dict(schemes=ALL[1:2], optimizer="sharded"),
    dict(schemes=ALL[:1] + ["megatron-alltoall:capacity_factor=1.25,policy=position"], expert=4, sharers=2, gpus=4),
    dict(schemes=ALL[:1], expert=8, sharers=4, remat="full", micro=2, stages=2),
    dict(schemes=ALL + ["megatron-flex:backend=hybridep", "megatron-syncfree:rank_capacity=8,graph=full",
                        "megatron-alltoall:capacity_factor=1,policy=position,pad=true"], stack=WHOLE),
    dict(schemes=ALL[:2], stack=WHOLE, graph="transformer_engine", micro=2, stages=2, loss="native"),
    dict(schemes=ALL[:2] + ["megatron-flex:backend=hybridep"], stack=WHOLE, overlap="true", remat="moe_act", loss="te", micro=2),
    dict(schemes=ALL[:1], stack=WHOLE, remat="full", loss="te"),
    dict(schemes=ALL[:1], stack=WHOLE, overlap="true", expert=16, graph="local", remat="layernorm", micro=2),
    dict(schemes=["megatron-syncfree:rank_capacity=8,graph=full", "megatron-alltoall:capacity_factor=1,policy=position,pad=true"], stack=WHOLE,
         graph="full_iteration", overlap="true", loss="te_in_place", gradients="bf16", micro=2),
    dict(schemes=ALL[:2] + ["megatron-alltoall:capacity_factor=1,policy=position,pad=true"], stack="floor", micro=2, gradients="bf16"),
    dict(schemes=ALL[:2], stack="floor", graph="local"), dict(schemes=ALL[:2], stack="floor", remat="full", stages=2, micro=2),
    # keys of recipes: what hides, and kernels of PyTorch
    dict(schemes=ALL[:2], stack=WHOLE, keys={"overlap_grad_reduce": True}),
    dict(schemes=ALL[:1], stack=WHOLE, micro=2, stages=2, keys={"overlap_grad_reduce": True, "overlap_param_gather": True}),
    dict(schemes=ALL[:1], stack=WHOLE, micro=2, stages=4, expert=4, gpus=4, keys={"overlap_grad_reduce": True, "overlap_param_gather": True}),
    dict(schemes=ALL[:1], stack=WHOLE, optimizer="replicated", keys={"overlap_grad_reduce": True}),
    dict(schemes=ALL[:1], stack=WHOLE, cluster=dict(H200, link_bytes_per_s=1e9, nic_bytes_per_s=1e8), keys={"overlap_grad_reduce": True, "overlap_param_gather": True}),
    dict(schemes=ALL, stack=WHOLE, remat="full", keys={"moe_permute_fusion": "false", "moe_router_fusion": "false", "apply_rope_fusion": "false"}),
    dict(schemes=ALL[:1] + ["megatron-flex:backend=hybridep"], stack=WHOLE, remat="moe_act", stages=2, micro=2, keys={"moe_permute_fusion": "false", "moe_router_fusion": "false", "apply_rope_fusion": "false"}),
    dict(schemes=ALL[:1], keys={"moe_permute_fusion": "false", "moe_router_fusion": "false", "apply_rope_fusion": "false"}),
    dict(schemes=ALL[:1], stack=WHOLE, keys={"moe_permute_fusion": "true", "moe_router_fusion": "true", "apply_rope_fusion": "true", "megatron_core_release": "0.17"}),
    dict(schemes=ALL[:1], expert=1, sharers=8, gpus=8, remat="moe_act", optimizer="replicated"),
]
# A host so slow that its work is the pace.
floor = (source / f"sim/megatron_stacks/{WHOLE}.yaml").read_text().replace("host_floor_s:\n  value: 0\n", "host_floor_s:\n  value: 0.05\n")
floor += "".join(f"{key}:\n  value: {value}\n  evidence: assumed\n  source: made up\n"
                 for key, value in dict(expert_floor_s=0.002, unlike_floor_s=0.03, matrix_host_s=0.0007, floor_forward_share=0.55).items())
(scratch / "floor.yaml").write_text(floor)
# Experts that GPUs share, in random grids: a node holds whole sharers, and a group of them may span nodes.
dice = np.random.default_rng(2026)
for _ in range(24):
    t, gpus = int(dice.choice([2, 4, 8])), int(dice.choice([8, 16, 32, 64]))
    R = int(dice.choice([r for r in (1, 2, 4, 8, 16, 32) if r * t <= 64]))
    CASES.append(dict(
        schemes=ALL[:1] + list(dice.choice(["megatron-alltoall:capacity_factor=1.25,policy=position",
                                            "megatron-alltoall:capacity_factor=2,policy=position,pad=true"], int(dice.choice([0, 1])))),
        expert=R, sharers=t, gpus=gpus, micro=int(dice.choice([1, 1, 2])), stages=int(dice.choice([1, 1, 1, 2, 4])),
        remat=str(dice.choice(["none", "full", "moe", "moe_act", "selective"])), gradients=str(dice.choice(["fp32", "bf16"])),
        optimizer=str(dice.choice(["distributed", "replicated"])),
        cluster=H200 if dice.integers(2) else dict(bf16_flops=2e15, hbm_bytes_per_s=8e12, link_bytes_per_s=537.6e9, nic_bytes_per_s=25e9),
        imbalance=float(dice.choice([1.0, 1.25, 1.7, 2.0, 3.3, 6.0]))))
rows, of_stated = {}, 0
for number, case in enumerate(CASES):
    job = dict(dict(name=f"case{number}", expert=8, gpus=8, micro=1, stages=1, remat="none", optimizer="distributed", gradients="fp32",
                    part="", cluster=H200, sharers=1, stack=STACK, graph="none", overlap="false", loss="unfused", keys={}), **case)
    job["fsdp"] = 64 // job["expert"] // job["sharers"]
    (scratch / f"case{number}.yaml").write_text(CLUSTER.format(nodes=64 * job["stages"] // job["gpus"], gpus=job["gpus"], **job["cluster"]))
    path = scratch / f"job{number}.yaml"
    path.write_text(JOB.format(**dict(job, keys="\n".join(f"{k}: {json.dumps(v) if v is True else v}" for k, v in job["keys"].items()), schemes=", ".join(f'"{s}"' for s in job["schemes"]))))
    stack = scratch / "floor.yaml" if job["stack"] == "floor" else job["stack"]
    result = json.loads(run("replay", TRACE, "--job", path, "--stack", stack, "--format", "json"))
    check(job["stack"] == "floor" or result["settings"]["stack"] == job["stack"], "the stack is among the settings")
    for scheme, row in zip(job["schemes"], result["rows"]):
        time, want = row["time"], predict(scheme, job, job["cluster"])
        what = f"case {number}, {scheme}"
        rows[number, scheme] = row
        check(near(time["step_s"], want), f"{what}: {time['step_s']} s, not {want}")
        check(near(sum(part["exposed_s"] for part in time["components"].values()), time["step_s"]), f"{what}: components")
        check(min(part["seconds"] for part in time["components"].values()) >= 0, f"{what}: negative seconds")
        check(near(time["tokens_per_s_per_gpu"], T / job["stages"] / time["step_s"]), f"{what}: tokens/s")
        check("capacity_factor" in scheme or job["keys"] or time["step_s"] > time["balanced_step_s"] or near(time["step_s"], time["balanced_step_s"]) and job["stack"] == "floor", f"{what}: real over balanced")
        R, crossed = job["expert"] * job["sharers"], time["between_nodes"]
        check((crossed is not None) == (R > job["gpus"]), f"{what}: between nodes {crossed}")
        if crossed is not None:  # token copies by NICs, by the brute force
            micro = job["micro"]
            most = [max(max(load.nics for load in loads_at(scheme, step, l, range(g * R, (g + 1) * R), m, micro, job["gpus"], job["sharers"]))
                        for g in range(64 // R)) for step in range(2) for l in range(4) for m in range(micro)]
            copied = 2 * H * sum(most) / len(most)
            check(near(crossed["nic_bytes"], copied), f"{what}: {crossed['nic_bytes']} bytes by a NIC, not {copied}")
            check((crossed["nodes"], crossed["rails"]) == (R // job["gpus"], job["gpus"]), f"{what}: {crossed}")
            check(crossed["once_a_node"] == scheme.startswith(("megatron-flex", "megatron-syncfree")), f"{what}: {crossed}")
            moved, again = time["components"]["exchanges"], 0.0
            if job["remat"] in ("full", "moe"):  # half of both passes' exchanges, which have five starts a layer where a forward pass has three
                start = max(SHARED["exchange_start_s"], scaled(job["cluster"], job["stack"])["exchange_latency_s"])
                again = [moved["seconds"] / 2 + start / 2 * micro * n for n in ((MOE,) if job["stages"] == 1 else range(1, MOE + 1))]
            check(any(near(crossed["seconds"], moved["exposed_s"] + a) for a in again or [0.0]) and crossed["half_width"] == SHARED["exchange_half_width"], f"{what}: {crossed}")
        said = " ".join(a for a in row["assumptions"] if a.startswith(scheme + ":"))
        for words, there in (("sizes other than 4", job["expert"] * job["sharers"] != 4 and job["stack"] == STACK), ("counted, not fitted", not job["part"] and job["stack"] == STACK),
                             ("pipelines", job["stages"] > 1 and job["stack"] == STACK),
                             ("between nodes", job["expert"] * job["sharers"] > job["gpus"]),
                             (f"shared by {job['sharers']} GPUs counted, not measured", job["sharers"] > 1), ("scaled from", job["cluster"] is not H200 or job["stack"] != STACK),
                             ("DeepEP", ("flex" in scheme or "syncfree" in scheme) and job["stack"] == STACK),
                             ("all-gather dispatcher", "allgather" in scheme and job["stack"] == STACK)):
            check((words in said) == there, f"{what}: '{words}' said of the fit: {not there}")

    imbalance = min(job.get("imbalance", 0.0), job["expert"])
    if imbalance > 0 and job["micro"] * job["stages"] == 1:  # else it is refused
        of_stated += 1
        time = json.loads(run("plan", "--job", path, "--stack", STACK, "--scheme", ALL[0], "--imbalance", str(imbalance), "--format",
                              "json"))["rows"][0]["time"]
        want = predict(ALL[0], job, job["cluster"], imbalance)
        check(near(time["step_s"], want), f"case {number}, imbalance {imbalance}: {time['step_s']} s, not {want} s: {case}")
check(sum("imbalance" in case for case in CASES) >= 20 and of_stated >= 6, f"random grids of shared experts, {of_stated} stated")

# A layer of multi-token prediction on the stage that sets the pace: a MoE layer more beside seven, a second head and loss, and the
# product [2 H, H] in front of it.
config = json.loads((source / "sim/models/scratch-moe-e64.json").read_text())
(scratch / "mtp.json").write_text(json.dumps(dict(config, num_nextn_predict_layers=1)))
parts = []
for layout in ("Et|tttttttL", "Et|tttttttmL"):
    path = scratch / "mtp.yaml"
    path.write_text((scratch / "job0.yaml").read_text().replace("model: scratch-moe-e64", "model: ./mtp.json").replace("pipeline: 1", "pipeline: 2")
                    .replace("cluster: ./case0.yaml", "cluster: h100-16x8"))
    row = json.loads(run("replay", TRACE, "--job", path, "--stack", WHOLE, "--scheme", "megatron-flex:backend=hybridep", "--format", "json", "--set",
                         f"parallel.pipeline_model_parallel_layout={layout}"))["rows"][0]
    parts.append({name: part["seconds"] for name, part in row["time"]["components"].items()})
for name, times in (("attention_projections", 8 / 7), ("attention", 8 / 7), ("elementwise", 8 / 7), ("launch_gaps", 8 / 7), ("loss", 2),
                    ("head", 2 + 2 * H / VOCAB)):
    check(near(parts[1][name], times * parts[0][name]), f"prediction of tokens: {name} {parts[1][name]} s, not {times} x {parts[0][name]}")
check(parts[1]["expert_products"] > 1.1 * parts[0]["expert_products"], "prediction of tokens: its experts")

# The step of a replay of one step is the step of `--each-step`, and their mean that of both.
each = json.loads(run("replay", TRACE, "--job", scratch / "job0.yaml", "--stack", STACK, "--each-step", "--format", "json",
                      "--scheme", ALL[0]))["rows"]
check(len(each) == 2 and near(sum(r["time"]["step_s"] for r in each) / 2, rows[0, ALL[0]]["time"]["step_s"]), "step by step")
check(each[0]["time"]["step_s"] > each[1]["time"]["step_s"], "the collapsed step takes longer than the recovered one")

# Without a name of Megatron-Core's software there are no times, and the compiled ones are as they are alone.
plain = json.loads(run("replay", TRACE, "--job", scratch / "job0.yaml", "--format", "json"))["rows"]
check(all(row["time"]["step_s"] is None for row in plain), "no --stack, no times")

# plan: balanced over itself, an imbalance, why there is no time.
options = ("--job", scratch / "job0.yaml", "--format", "json", "--scheme", ALL[0], "--stack", STACK)
for number, part in ((0, "te"), (next(i for i, case in enumerate(CASES) if case.get("part")), "h200")):
    itself = json.loads(run("plan", "--job", scratch / f"job{number}.yaml", "--format", "json", "--trace", TRACE))["settings"]["stack"]
    check(itself.startswith("megatron-" + part), f"plan finds the software of what the job trains by itself, not {itself}")
planned = json.loads(run("plan", *options, "--trace", TRACE))
check(near(planned["rows"][0]["time"]["step_s"], rows[0, ALL[0]]["time"]["step_s"]), "plan and replay")
even, twice = (json.loads(run("plan", *options, "--imbalance", x))["rows"][0]["time"] for x in ("1", "2"))
check(near(even["step_s"], even["balanced_step_s"]) and near(even["step_s"], planned["rows"][0]["time"]["balanced_step_s"]),
      "an imbalance of 1 is balanced")
check(even["step_s"] < twice["step_s"] < 2 * even["step_s"], f"an imbalance of 2: {twice['step_s']} over {even['step_s']} s")
balanced = [Load(T * K, T * K, [[T // 8] * 8] * 8, T * 7, T * 7)] * 8
c = scaled(H200)
half, whole, _ = bare_step(c, T, H, F, E, [balanced] * MOE)
want = whole + sum(outside(c, "none", 0, LAYERS, True, T)) + at_the_end(
    c, dict(expert=8, sharers=1, fsdp=8, stages=1, gpus=8, gradients="fp32", optimizer="distributed", keys={}), 0, LAYERS, MOE, H200, [], [])
check(near(even["step_s"], want), f"balanced: {even['step_s']} s, not {want}")
both = run("plan", "--job", source / "sim/jobs/deepseek-v3-mi355x.yaml", "--scheme", "gmm", "--scheme", "megatron-flex", "--stack",
           "maxtext-rocm-2026-05,megatron-h200-2026-11", "--sequences-per-gpu", "1", "--details")
check("no times" not in both and "software  maxtext-rocm-2026-05,megatron-h200-2026-11" in both, f"two kinds of software: {both}")
for scheme, remat, why in (("megablocks", "none", "PyTorch without a time model"), ("megatron-alltoall:align=16", "none", "alignment"),
                           ("megatron-alltoall", "minimal", "no recompute module")):
    path = scratch / "untimed.yaml"
    path.write_text((scratch / "job0.yaml").read_text().replace("remat: none", f"remat: {remat}").replace("distributed", "sharded"))
    said = caller.call([program, "plan", "--job", path, "--scheme", scheme], capture_output=True, text=True).stdout
    check(any(line.startswith("no times") and why in line for line in said.splitlines()), f"{scheme}, remat {remat}: {said}")
for names, why in (("what", STACK), ("megatron-h200-2026-11,megatron-h200-2026-11", "second stack"), (",", "empty place")):
    done = caller.call([program, "replay", TRACE, "--job", scratch / "job0.yaml", "--stack", names], capture_output=True, text=True)
    check(done.returncode == 2 and why in done.stderr, f"--stack {names}: {done.returncode} {done.stderr}")
copy = scratch / "copy.yaml"
copy.write_text((source / f"sim/megatron_stacks/{STACK}.yaml").read_text())
again = json.loads(run("replay", TRACE, "--job", scratch / "job0.yaml", "--stack", copy, "--format", "json"))["rows"][0]
check(near(again["time"]["step_s"], rows[0, ALL[0]]["time"]["step_s"]), "a file is as good as a name")

oracle.finish()
