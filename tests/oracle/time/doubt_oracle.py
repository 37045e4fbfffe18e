#!/usr/bin/env python3
"""Intervals of Megatron-Core's steps from named doubts, written again from sim/time/megatron/megatron_doubt.h and the stacks' own figures: what
is fitted and what is counted, exchanges between nodes, a GPU whose runs are in the fit and one whose are not, an untuned release.

doubt_oracle.py SPILLWAY SCRATCH SOURCE"""
import json
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
oracle = Oracle(str(program), "doubt_oracle")
folder = scratch / "doubt_oracle"
folder.mkdir(parents=True, exist_ok=True)
LAYERS = ("router", "expert_products", "row_moves", "exchanges", "waiting", "host_wait", "expert_recompute")


def figures(path):
    return {k: float(v) for k, v in re.findall(r"^(\w+):\n  value: (\S+)", path.read_text(), re.M)}


def plan(cluster, *more):
    said = json.loads(oracle.must("plan", "--model", "qwen3-30b-a3b", "--cluster", cluster, "--expert-parallel", 8, "--optimizer", "distributed",
                                  "--remat", "none", "--routing", "uniform", "--format", "json", *more))
    return said["rows"][0], " ".join(said["rows"][0]["assumptions"] + said.get("notes", []))


def widths(cluster, stack, scaled=False, network=False, untuned=False, more=()):
    """Logarithms of step over low and of high over step, beside those wanted."""
    c = {**figures(source / "sim/stack_defaults/megatron.yaml"), **figures(source / f"sim/megatron_stacks/{stack}.yaml")}
    row, _ = plan(cluster, *(("--set", "untuned_release=true") if untuned else ()), *more)
    time = row["time"]
    step, parts = time["step_s"], {k: p["exposed_s"] for k, p in time["components"].items()}
    layers = sum(parts.get(k, 0.0) for k in LAYERS)
    wire = parts["exchanges"]  # remat none: nothing is repeated
    want = ((c["half_width"] + c["model_half_width"]) * layers + c["counted_half_width"] * (step - layers)
            + network * c["exchange_half_width"] * wire) / step + scaled * c["scaled_half_width"]
    return (math.log(step / time["low_s"]), math.log(time["high_s"] / step)), (want, want + untuned * c["untuned_half_width"])


FLEX = ("--scheme", "megatron-flex", "--sequence-length", 4096, "--sequences-per-gpu", 4, "--micro-batches", 4)
# a Blackwell that no run of the fit is of: B200 by another name, and a memory of its own
other = (source / "sim/clusters/b200-8x8.yaml").read_text()
other = re.sub(r"^name: .*$", "name: b222-8x8", other, flags=re.M)
(folder / "b222.yaml").write_text(re.sub(r"(hbm_bytes_per_s:\n  value: )\S+", r"\g<1>7.1e12", other))
CASES = [("gb200", "te-gb200", {}), ("gb300", "te-gb200", {}), ("b200:8x1", "te-gb200", {}), ("b300:8x1", "te-gb200", {}),
         (str(folder / "b222.yaml"), "te-gb200", dict(scaled=True)), ("h100:8x1", "te-h100", {}), ("h200:8x1", "te-h100", dict(scaled=True)),
         ("gb200", "te-gb200", dict(untuned=True)), ("gb300", "te-gb200", dict(untuned=True)), ("h100:8x1", "te-h100", dict(untuned=True)),
         ("h100:8x2", "te-h100", dict(network=True, more=("--expert-parallel", 16)))]
for cluster, stack, doubts in CASES:
    more = FLEX + tuple(doubts.pop("more", ()))
    got, want = widths(cluster, f"megatron-{stack}-2026-11", more=more, **doubts)
    for side, a, b in zip(("low", "high"), got, want):
        oracle.check(abs(a - b) < 1e-9, f"{cluster}, {doubts}: {side} is {a:.6f} away, not {b:.6f}")

# The causes by name: what they sum to is the interval. Exchanges between nodes are one.
shared, figure = figures(source / "sim/stack_defaults/megatron.yaml"), figures(source / "sim/megatron_stacks/megatron-te-gb200-2026-11.yaml")
for cluster, ranks, named in (("h100:8x1", 8, {"routing", "models", "counted_work"}), ("h100:8x2", 16, {"routing", "models", "counted_work", "between_nodes"}),
                              ("h200:8x16", 128, {"routing", "models", "counted_work", "between_nodes", "gpu"})):
    row, said = plan(cluster, *FLEX, "--expert-parallel", ranks)
    time = row["time"]
    oracle.check(set(time["doubts"]) == named, f"{cluster}: causes {sorted(time['doubts'])}, not {sorted(named)}")
    oracle.check(abs(sum(time["doubts"].values()) - math.log(time["high_s"] / time["step_s"])) < 1e-9, f"{cluster}: {time['doubts']}")
    part = shared["exchange_half_width"] * time["components"]["exchanges"]["exposed_s"] / time["step_s"]
    oracle.check(ranks == 8 or abs(time["doubts"]["between_nodes"] - part) < 1e-9, f"{cluster}: {time['doubts']}, not {part}")
    oracle.check(("published of up to 8 nodes, 9 of 10 exchanges within a factor of 1.27" in said) == (ranks > 8), f"{cluster}: {said}")
    oracle.check(("sizes other than 8 16 32 64" in said) == (ranks == 128), f"{cluster}: {said}")
    # another size is wider, by what sizes that were left out of the fit need
    own, layers = figures(source / "sim/megatron_stacks/megatron-te-h100-2026-11.yaml"), sum(time["components"].get(k, {"exposed_s": 0})["exposed_s"] for k in LAYERS)
    want = own["model_half_width"] + (own["ranks_half_width"] if ranks == 128 else 0)
    oracle.check(own["ranks_half_width"] > 0.01 and abs(time["doubts"]["models"] * time["step_s"] / layers - want) < 1e-9, f"{cluster}: {time['doubts']}, not {want} of {layers}")
    oracle.check("bare layers" not in said and "counted work" not in said and "fitted to training runs of whole models" in said, f"{cluster}: {said}")
# What recomputation repeats goes between nodes once more. By hand, routing balanced: of every rank's 4096 x 8 rows of 2 x 2048 bytes 8 of 16 leave the
# node and 7 stay on its links; a layer has 4 exchanges and 2 more of its forward pass again, and as many starts with one more a forward pass.
H100, L = figures(source / "sim/clusters/h100-8x8.yaml"), 48
for stack, scheme in (("megatron-te-h100-2026-11", "megatron-alltoall"), ("megatron-h200-2026-11", "megatron-alltoall"), ("megatron-h200-2026-11", "megatron-allgather")):
    c = {**shared, **figures(source / f"sim/megatron_stacks/{stack}.yaml")}
    scale = H100["link_bytes_per_s"] / figures(source / "sim/clusters/h200-8x8.yaml")["link_bytes_per_s"] if "h200" in stack else 1
    start, rows = max(c["exchange_start_s"], c["exchange_latency_s"]), 4096 * (8 if "alltoall" in scheme else 16)
    by_nic = 2 * 2048 * rows / 2 / (c["exchange_nic_share"] * H100["nic_bytes_per_s"])
    by_link = 2 * 2048 * rows * 7 / 16 * (1 + c["duplex_share"]) / (c["exchange_bytes_per_s"] * scale)
    legs = max(by_nic, by_link) + c["exchange_serial_share"] * min(by_nic, by_link)
    pair = 3 * legs if "allgather" in scheme else 2 * legs  # sums of fp32 go back
    for remat, times, starts in (("none", 2, 5), ("full", 3, 8), ("moe", 3, 8), ("moe_act", 2, 5)):
        time = json.loads(oracle.must("plan", "--model", "qwen3-30b-a3b", "--cluster", "h100:8x2", "--expert-parallel", 16, "--optimizer", "distributed", "--remat", remat,
                                      "--imbalance", 1, "--sequence-length", 4096, "--scheme", scheme, "--stack", stack, "--format", "json"))["rows"][0]["time"]
        want, parts = L * (times * pair + starts * start), {k: v["exposed_s"] for k, v in time["components"].items()}
        oracle.check(abs(time["between_nodes"]["seconds"] / want - 1) < 1e-9, f"{scheme}, remat {remat}: {time['between_nodes']['seconds']} s between nodes, not {want}")
        part = shared["exchange_half_width"] * want / time["step_s"]
        oracle.check(abs(time["doubts"]["between_nodes"] / part - 1) < 1e-9, f"{scheme}, remat {remat}: {time['doubts']}, not {part}")
        if "allgather" in scheme:  # not measured in a layer: its exchanges and the moves of rows beside them, of both forward passes
            copy, M = figures(source / "sim/stack_defaults/megatron.yaml") | c, 4096 * 8
            rate = c["copy_bytes_per_s"] * H100["hbm_bytes_per_s"] / figures(source / "sim/clusters/h200-8x8.yaml")["hbm_bytes_per_s"]
            once = (copy["sort_bytes"] * 4096 * 128 + 4 * M * 2048) / rate + (40 + 2 + 2) * c["kernel_s"] + 4 * M * 2048 / (c["scatter_bytes_per_s"] * rate / c["copy_bytes_per_s"])
            moves = parts["row_moves"] + (once * L if times == 3 else 0)
            part = c["dispatcher_half_width"] * (want + moves) / time["step_s"]
            oracle.check(abs(time["doubts"]["dispatcher"] / part - 1) < 1e-9, f"{scheme}, remat {remat}: {time['doubts']}, not {part} of the dispatcher")
for remat in ("none", "full"):  # torchtitan has Megatron-Core's exchanges
    time = json.loads(oracle.must("plan", "--model", "qwen3-30b-a3b", "--cluster", "h100:8x2", "--expert-parallel", 16, "--optimizer", "sharded", "--remat", remat, "--imbalance",
                                  1, "--scheme", "torchtitan", "--format", "json"))["rows"][0]["time"]
    c, rows = {**shared, **figures(source / "sim/megatron_stacks/megatron-te-h100-2026-11.yaml")}, 4096 * 8
    by_nic, by_link = 4096 * rows / 2 / (c["exchange_nic_share"] * H100["nic_bytes_per_s"]), 4096 * rows * 7 / 16 * (1 + c["duplex_share"]) / c["exchange_bytes_per_s"]
    legs = max(by_nic, by_link) + c["exchange_serial_share"] * min(by_nic, by_link)
    want = L * ((6 if remat == "full" else 4) * legs + (8 if remat == "full" else 5) * max(c["exchange_start_s"], c["exchange_latency_s"]))
    oracle.check(abs(time["between_nodes"]["seconds"] / want - 1) < 1e-9, f"torchtitan, remat {remat}: {time['between_nodes']}, not {want}")
# torchtitan's kernels are other software on any GPU; the GPU is a doubt of its own, where no run of it was fitted.
for cluster, wider in (("b200:8x4", False), (str(folder / "b222.yaml"), True)):
    said = json.loads(oracle.must("plan", "--model", "deepseek-v3", "--cluster", cluster, "--gpus", 32, "--expert-parallel", 32, "--optimizer", "sharded", "--scheme",
                                  "torchtitan", "--sequence-length", 4096, "--format", "json"))["rows"][0]["time"]["doubts"]["gpu"]
    want = figure["foreign_half_width"] + wider * figure["scaled_half_width"]
    oracle.check(abs(said - want) < 1e-9, f"torchtitan on {cluster}: {said}, not {want}")

# What a note says of them; and the speed is that of a tuned release.
tuned, untuned = plan("gb300", *FLEX), plan("gb300", *FLEX, "--set", "untuned_release=true")
oracle.check(tuned[0]["time"]["step_s"] == untuned[0]["time"]["step_s"] and tuned[0]["time"]["low_s"] == untuned[0]["time"]["low_s"],
             "an untuned release may be slower, no more")
oracle.check("by runs of this GPU too" in tuned[1] and "untuned release" not in tuned[1] and "untuned release" in untuned[1], f"notes: {tuned[1]} {untuned[1]}")
oracle.check("by runs of this GPU too" not in plan(str(folder / "b222.yaml"), *FLEX)[1], "no run is of that GPU")
# Two points of one job share its release: how sure it is which is faster stays.
sure = [json.loads(oracle.must("plan", "--model", "qwen3-30b-a3b", "--cluster", "gb300", "--expert-parallel", 8, "--optimizer", "distributed", "--remat",
                               "none", "--routing", "uniform", "--format", "json", "--scheme", "megatron-alltoall", "--scheme", "megatron-flex", *more))
        for more in ((), ("--set", "untuned_release=true"))]
oracle.check(len(sure[0]["rows"]) == 2 and [r["time"]["step_s"] for r in sure[0]["rows"]] == [r["time"]["step_s"] for r in sure[1]["rows"]], "two points")
said = oracle.call("plan", "--job", source / "sim/jobs/deepseek-v3-mi355x.yaml", "--scheme", "gmm", "--set", "untuned_release=true")
oracle.check(said.returncode == 2 and "untuned_release" in said.stderr, f"a key of Megatron-Core's schemes: {said.returncode} {said.stderr}")
oracle.finish(least=35)
