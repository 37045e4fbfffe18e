#!/usr/bin/env python3
"""What copies to the host and back take of a step under Megatron-Core: activations, casts that are made anew, experts of two matrices,
the optimizer's share; what is refused. By hand, from docs/schemes.md, section 7.17, and from the models' own configurations.

offload_time_oracle.py SPILLWAY SCRATCH ROOT"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from offloaded import BYTES_PER_S, finish, folder, program, same, traffic
from replay_case import Case, run, without_formats


def close(what, got, want):
    same(f"{what}: {got}, {want}", abs(got - want) <= 1e-9 * abs(want), True)


# --- Time ---

STACK = "megatron-te-h100-2026-11"  # whose passes are as long as their work, not as the host's


def planned(name, *arguments):
    done = run(program, "plan", *arguments, "--stack", STACK, "--routing", "uniform", "--format", "json", "--scheme", "megatron-alltoall")
    if done.returncode != 0:
        sys.exit(f"FAILED plan {name}: {done.stderr}")
    row = json.loads(done.stdout)["rows"][0]
    return row["time"], row["time"]["components"]


def times():
    """Passes that their products fill wait for no copy; passes of copies alone take what these take."""
    exposures = []
    for name, hidden, ffn, modules in (("wide", 4096, 2048, "moe_act"), ("thin", 128, 8192, "moe_act")):
        case = Case(gpus_per_node=4, expert=4, experts=8, hidden=hidden, ffn=ffn, model_layers=4, length=16384, remat="none",
                    schemes=("megatron-alltoall",))
        job = case.write(folder, f"t{name}")
        text = without_formats(job).replace(f"./t{name}_cluster.yaml", "h200:4x1") + "optimizer: distributed\n"
        job.write_text(text)
        before, _ = planned(name, "--job", job)
        job.write_text(text + f"offload_modules: [{modules}]\n")
        after, parts = planned(name, "--job", job)
        copies, waits = parts["host_copies"]["seconds"], parts["host_copies"]["exposed_s"]
        exposures.append(waits)
        one_way = 3 * 16384 * 2 * 2 * ffn * 2 / BYTES_PER_S
        close(f"{name} copies", copies, 2 * one_way)
        _, predicting = planned(name, "--job", job, "--set", "parallel.mtp_num_layers=1")  # 5 layers with experts, of which the last stays
        close(f"{name} copies of a predicting layer", 3 * predicting["host_copies"]["seconds"], 4 * copies)
        close(f"{name} step", after["step_s"], before["step_s"] + waits)
        same(f"{name} interval", after["low_s"] >= one_way * (1 - 1e-9) and after["high_s"] >= after["step_s"] - waits + copies, True)
        if name == "thin":
            end = sum(parts[part]["exposed_s"] for part in ("gradient_scatters", "weight_gathers", "optimizer"))
            close("thin passes", after["step_s"], copies + end)
    same("exposures", (exposures[0] == 0.0, exposures[1] > 0.0), (True, True))
    done = run(program, "plan", "--job", job, "--cluster", "mi300x:4x1")
    same("another link", "whose link to the host was not measured" in done.stdout, True)


def casts():
    """Under a recipe an offloaded input of fc1 is cast again: read once more, and in one scale a tensor both copies made anew."""
    text = (pathlib.Path(sys.argv[3]) / "sim/megatron_stacks/megatron-h200-2026-11.yaml").read_text()
    per_s = float(re.search(r"copy_bytes_per_s:\n  value: (\S+)", text).group(1))
    for recipe, more in (("blockwise", 3 + 3 - 4), ("tensorwise", 5 + 6 - 6)):
        case = Case(gpus_per_node=4, expert=4, experts=8, hidden=1024, ffn=512, model_layers=4, length=4096, remat="none",
                    schemes=("megatron-alltoall:align=16",))
        job = case.write(folder, f"c{recipe}")
        text = without_formats(job).replace(f"./c{recipe}_cluster.yaml", "h200:4x1") + f"optimizer: distributed\nprecision: {{recipe: {recipe}}}\n"
        seconds = []
        for modules in ("[]", "[moe_act]", "[expert_fc1]"):
            job.write_text(text + f"offload_modules: {modules}\n")
            done = run(program, "plan", "--job", job, "--routing", "uniform", "--format", "json", "--stack", "megatron-h200-2026-11")
            if done.returncode != 0:
                sys.exit(f"FAILED casts {recipe}: {done.stderr}")
            seconds.append(json.loads(done.stdout)["rows"][0]["time"]["components"]["fp8_casts"]["seconds"])
        same(f"casts {recipe} moe_act", seconds[1], seconds[0])
        same(f"casts {recipe}: {seconds}", abs(seconds[2] - seconds[0] - 4 * 4096 * 2 * 1024 * more / per_s) < 1e-6 * seconds[0], True)


# --- Experts of two matrices ---

def two_matrices():
    """relu2 has no gate: fc1's output is as wide as an expert, on the way to the host as in memory. From the model's own config."""
    config = json.loads((pathlib.Path(sys.argv[3]) / "sim/models/nemotron-3-nano.json").read_text())
    job = folder / "two_matrices.yaml"
    job.write_text("model: nemotron-3-nano\ncluster: h100:8x1\nparallel: {expert: 8, fsdp: 1}\nbatch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
                   "optimizer: distributed\nremat: none\noffload_modules: [moe_act]\nschemes: [megatron-alltoall]\n")
    items = [i for i in traffic(job, "two matrices") if i["purpose"] == "host_offload" and i["tensor"] == "fc1_output"]
    rows, ffn = 4096 * config["num_experts_per_tok"], config["moe_intermediate_size"]
    same("two matrices: there and back", [i["bytes"] for i in items], 2 * [rows * ffn * 2])


# --- The optimizer's share on the host ---

def share_on_host():
    """Gradients of the share go to the host in fp32: of all that a GPU holds where replicas keep the state whole, of its part of them where it is
    distributed over the four that hold the same. Elements from the model's own config."""
    config = json.loads((pathlib.Path(sys.argv[3]) / "sim/models/olmoe-1b-7b.json").read_text())
    routed = config["num_hidden_layers"] * config["num_experts"] * 3 * config["hidden_size"] * config["intermediate_size"]
    for optimizer, holders in (("replicated", 1), ("distributed", 4)):
        job = folder / "share.yaml"
        job.write_text("model: olmoe-1b-7b\ncluster: h100:8x2\nparallel: {expert: 4, fsdp: 4}\nbatch: {sequences_per_gpu: 1, sequence_length: 1024}\n"
                       f"optimizer: {optimizer}\noptimizer_on_host: 0.5\nremat: full\nschemes: [megatron-alltoall]\n")
        there = [i["bytes"] for i in traffic(job, "a share") if i["purpose"] == "host_offload" and i["tensor"] == "experts" and i["pass"] == "backward"]
        same(f"a share, {optimizer}", there, [routed // 4 // holders // 2 * 4])


# --- Refusals ---

def refusals():
    case = Case(hidden=64, ffn=32, remat="none", model_layers=4, schemes=("megatron-alltoall",))
    job = case.write(folder, "refused")
    text = without_formats(job) + "optimizer: distributed\noffload_modules: [moe_act]\n"
    job.write_text(text)
    same("accepted", run(program, "explain", "--job", job).returncode, 0)
    changes = (("remat: none", "remat: full", "run again right before"), ("remat: none", "remat: moe", "run again right before"),
               ("[moe_act]", "[attn_proj]", "without core_attn"), ("[moe_act]", "[mlp_norm]", "remat: layernorm"),
               ("[moe_act]", "[qkv_linear]", "expert_fc1 and moe_act; remat"), ("[moe_act]", "[attn_norm]", "with GQA"), ("[moe_act]", "[moe]", "no module of Megatron-Core"),
               ("[moe_act]", "[moe_act, moe_act]", "name it once"), ("megatron-alltoall", "torchtitan", "is of Megatron-Core"),
               ("megatron-alltoall", "megatron-syncfree:rank_capacity=2", "is of Megatron-Core"),
               ("optimizer: distributed", "optimizer: sharded", "optimizer: distributed or replicated"),
               ("optimizer: distributed", "optimizer: distributed\nmodel_part: expert_layers", "whole"),
               ("optimizer: distributed", "optimizer: distributed\nattention: unfused", "attention: flash"),
               ("optimizer: distributed", "optimizer: distributed\nfinetune: {frozen: experts}", "leave finetune"),
               ("megatron-alltoall", "megatron-alltoall:align=16\"\nprecision: {recipe: delayed}\n#\"", "refuses under delayed"))
    for old, new, words in changes:
        job.write_text(text.replace(old, new).replace("[moe_act]", "[expert_fc1]" if "recipe" in new else "[moe_act]"))
        cluster = folder / "refused_cluster.yaml"
        if "recipe" in new:
            cluster.write_text(cluster.read_text().split("gpu_generation")[0] + "gpu_generation: hopper\n")
        done = run(program, "explain", "--job", job)
        same(f"refused {new}: {done.stderr}", (done.returncode, words in done.stderr), (2, True))


times()
casts()
two_matrices()
share_on_host()
refusals()
finish()
