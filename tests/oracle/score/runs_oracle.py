#!/usr/bin/env python3
"""Tables of published training runs: every made-up row is asked of `plan` by options that are written here from the table's columns, as
docs/validation_time_megatron.md says them, and `score` must say what plan says of balanced routing: step, interval, speed, memory. Its summary is then
made again from its rows.

The script of notebooks_data that makes a page's tables of it is asked, too.

runs_oracle.py SPILLWAY SCRATCH SOURCE"""
import csv
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
folder = scratch / "runs_oracle"
(folder / "models").mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "runs_oracle")

(folder / "models" / "tiny-moe.json").write_text(json.dumps({
    "model_type": "qwen3_moe", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
    "head_dim": 64, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 512, "intermediate_size": 2048, "vocab_size": 32000,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": False, "attention_bias": False}))

COLUMNS = "row_id source model hardware gpus precision dispatcher tp pp cp vp ep mbs gbs seq remat recipe graph ep_overlap notes " \
          "published_tokens_s_gpu published_memory_gib published_status command".split()
BRIDGE = ["precision.gradients=bf16", "cross_entropy=te_in_place"]
LM = ["precision.gradients=fp32", "cross_entropy=te_in_place"]
UNTUNED = ["untuned_release=true"]
PRIMUS = ["precision.gradients=fp32", "cross_entropy=unfused"]
FP8 = ["precision.fp8_param_gather=true"]
NODE = {"h100": 8, "b200": 8, "mi355x": 8, "gb200": 72, "gb300": 72}

# the row; then what is not in its columns: settings, the scheme, the published speed over the predicted one
ROWS = [
    (dict(row_id="a2a", source="megatron_bridge 26.02", model="Qwen3_30B_a3B", hardware="h100", gpus=16, precision="bf16",
          dispatcher="alltoall", ep=8, mbs=1, gbs=64), BRIDGE, "megatron-alltoall", 0.8),
    (dict(row_id="deepep", source="Megatron-LM something", model="Tiny-MoE 1B", hardware="b200", gpus=32, precision="mxfp8",
          dispatcher="DeepEP", tp=2, pp=2, vp=2, ep=8, mbs=2, gbs=128, remat="moe_act"), LM, "megatron-flex:align=32", 1.3),
    (dict(row_id="rack", source="megatron_bridge 26.04", model="Qwen3_30B_a3B", hardware="gb300", gpus=48, precision="mxfp8",
          dispatcher="HybridEP", ep=16, mbs=2, gbs=192, graph="full_iteration"), BRIDGE + FP8,
     "megatron-syncfree:rank_capacity=1.5,graph=full,align=32", 1.0),
    (dict(row_id="two_racks", source="Megatron-Bridge skill", model="Tiny-MoE", hardware="gb200", gpus=128, precision="tensorwise",
          dispatcher="HybridEP", pp=2, ep=16, mbs=1, gbs=256, graph="none", ep_overlap="False", remat="full"), BRIDGE + FP8,
     "megatron-flex:backend=hybridep,align=16", 20.0),
    (dict(row_id="context", source="Primus moe_package", model="Tiny-MoE", hardware="mi355x", gpus=16, precision="bf16", dispatcher="alltoall",
          cp=2, ep=4, mbs=1, gbs=32, seq=8192), PRIMUS, "megatron-alltoall", 1.1),
    (dict(row_id="drop", source="megatron_bridge 25.09", model="Tiny-MoE (tokendrop)", hardware="h100", gpus=8, precision="bf16",
          dispatcher="alltoall", ep=8, mbs=2, gbs=32), BRIDGE, "megatron-alltoall:capacity_factor=1,pad=true", 0.9),
    (dict(row_id="a2a_again", source="megatron_bridge 26.04", model="Qwen3_30B_a3B", hardware="h100", gpus=16, precision="bf16",
          dispatcher="alltoall", ep=8, mbs=1, gbs=64), BRIDGE, "megatron-alltoall", 0.9),
    (dict(row_id="a2a_full", source="megatron_bridge 26.04", model="Qwen3_30B_a3B", hardware="h100", gpus=16, precision="bf16",
          dispatcher="alltoall", ep=8, mbs=1, gbs=64, remat="full"), BRIDGE, "megatron-alltoall", 1.0),
    (dict(row_id="a2a_pipeline", source="megatron_bridge 26.04", model="Qwen3_30B_a3B", hardware="h100", gpus=16, precision="bf16",
          dispatcher="alltoall", ep=4, pp=4, mbs=1, gbs=4), BRIDGE, "megatron-alltoall", 2.0),
    (dict(row_id="nightly", source="Megatron-LM functional-test", model="Tiny-MoE", hardware="b200", gpus=16, precision="bf16",
          dispatcher="DeepEP", ep=8, mbs=1, gbs=64), UNTUNED + ["cross_entropy=native", "precision.gradients=fp32", "moe_router_fusion=false"],
     "megatron-flex", 0.99),
    (dict(row_id="ladder", source="Megatron-LM ladder", model="MXFP8 DeepEP: CUDA Graphs", hardware="b200", gpus=8, precision="bf16", dispatcher="DeepEP",
          ep=8, mbs=1, gbs=64, command="plan --model tiny-moe.json"), UNTUNED + LM, "megatron-flex", 0.98),
    (dict(row_id="later", source="Megatron-LM ladder", model="MXFP8 DeepEP: CUDA Graphs capture", hardware="b200", gpus=24, precision="bf16",
          dispatcher="DeepEP", ep=8, mbs=1, gbs=48, command="plan --model tiny-moe.json"), LM, "megatron-flex", 1.02),
    (dict(row_id="first", source="Megatron-LM ladder", model="MXFP8 AlltoAll: Baseline", hardware="b200", gpus=40, precision="bf16",
          dispatcher="alltoall", ep=8, mbs=1, gbs=80, command="plan --model tiny-moe.json"), UNTUNED + LM + ["moe_router_fusion=false"],
     "megatron-alltoall", 1.01),
    (dict(row_id="compiled", source="maxtext", model="mixtral-8x7b", hardware="mi355x", gpus=8, precision="bf16", dispatcher="dense", ep=8, mbs=8,
          gbs=64, remat="full", command="plan --scheme dense:capacity_factor=1.25"), [], "dense:capacity_factor=1.25", 1.05),
]


def complete(row):
    return {**{c: "" for c in COLUMNS}, **dict(tp=1, pp=1, cp=1, vp=1, seq=4096, remat="none", published_status="OK"), **row}


def options(row, settings, scheme):
    """plan's, from the columns."""
    node = max(n for n in range(1, NODE[row["hardware"]] + 1) if row["gpus"] % n == 0)
    micro = row["gbs"] // (row["mbs"] * (row["gpus"] // (row["tp"] * row["pp"] * row["cp"])))
    model = "qwen3-30b-a3b" if row["model"].startswith("Qwen") else "mixtral-8x7b" if row["model"].startswith("mix") else str(folder / "models" / "tiny-moe.json")
    words = ["plan", "--model", model, "--cluster", f"{row['hardware']}:{node}x{row['gpus'] // node}", "--tensor", row["tp"], "--pipeline", row["pp"],
             "--context", row["cp"], "--expert-parallel", row["ep"], "--expert-tensor", 1, "--sequence-length", row["seq"],
             "--sequences-per-gpu", row["mbs"] * micro, "--micro-batches", micro, "--remat", row["remat"], "--scheme", scheme]
    if row["vp"] > 1:
        words += ["--virtual-stages", row["vp"]]
    if row["dispatcher"] != "dense":
        words += ["--optimizer", "distributed", "--set", "precision.optimizer=fp32", "--set", "precision.master=fp32"]
    if row["precision"] != "bf16":
        words += ["--set", f"precision.recipe={row['precision']}"]
    for one in settings:
        words += ["--set", one]
    return words + ["--routing", "uniform", "--format", "json"]


def score(rows, *more):
    with open(folder / "runs.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(map(complete, rows))
    return oracle.run("score", folder / "runs.csv", *more)


def near(a, b, what, tolerance=1e-9):
    oracle.check(math.isclose(a, b, rel_tol=tolerance), f"{what}: {a} is not {b}")


# Every row is plan's balanced point.
kinds = set()
first = json.loads(score([row for row, *_ in ROWS], "--format", "json"))
for (row, settings, scheme, _), said in zip(ROWS, first["rows"]):
    planned = json.loads(oracle.must(*options(complete(row), settings, scheme)))["rows"][0]
    time, name = said["time"], row["row_id"]
    oracle.check(time is not None and said["why_no_time"] is None, f"{name}: {said['why_no_time']}")
    for key, mine in (("balanced_step_s", "step_s"), ("balanced_low_s", "low_s"), ("balanced_high_s", "high_s"),
                      ("balanced_tokens_per_s_per_gpu", "tokens_per_s_per_gpu")):
        near(time[mine], planned["time"][key], f"{name}: {mine}")
    near(said["memory"]["peak_gib"], planned["memory"]["balanced_peak_bytes"] / 2**30, f"{name}: peak")
    near(sum(time["exposed"].values()), time["step_s"], f"{name}: sum of exposed")
    oracle.check(said["memory"]["verdict"].startswith("live ") == (planned["memory"]["kind"] == "live"), f"{name}: {said['memory']} of {planned['memory']['kind']}")
    kinds.add(planned["memory"]["kind"])
    oracle.check(said["scheme"] == scheme, f"{name}: scheme {said['scheme']}, not {scheme}")
    oracle.check(said["true_tokens_per_s_per_gpu"] is None and said["inside"] is None, f"{name}: nothing was published")
oracle.check(kinds == {"live", "arena"}, f"of these kinds alone: {kinds}")

# Speeds are published that were predicted, times a factor: every figure of the summary follows.
published = [dict(row, published_tokens_s_gpu=said["time"]["tokens_per_s_per_gpu"] * factor) for (row, _, _, factor), said in zip(ROWS, first["rows"])]
published += [dict(ROWS[0][0], row_id="graph", graph="knitted", published_tokens_s_gpu=5, published_status="OOM"),
              dict(ROWS[0][0], row_id="nobody", model="nobody", published_tokens_s_gpu=5)]
again = json.loads(score(published, "--format", "json"))
errors = [1 / factor - 1 for *_, factor in ROWS]
inside = [r["time"]["low_s"] <= r["time"]["step_s"] / factor <= r["time"]["high_s"] for (*_, factor), r in zip(ROWS, first["rows"])]
near(again["throughput_mape"], statistics.fmean(map(abs, errors)), "mape", 1e-6)
near(again["throughput_bias"], statistics.fmean(errors), "bias", 1e-6)
near(again["throughput_median_abs_error"], statistics.median(map(abs, errors)), "median", 1e-6)
near(again["throughput_max_abs_error"], max(map(abs, errors)), "largest", 1e-6)
near(again["throughput_interval_coverage"], statistics.fmean(inside), "coverage")
near(again["throughput_interval_width_median"], statistics.median(r["time"]["high_s"] / r["time"]["low_s"] for r in first["rows"]), "width")
# Pairs of one model and equal GPUs. A chance of 90 of 100 needs 1.2816 standard deviations; the half width holds 1.6449, and is at least
# the stack's own of pairs and at most that and both whole intervals.
timed = [r for r in again["rows"] if r["inside"] is not None]
pairs = [(a, b) for i, a in enumerate(timed) for b in timed[:i] if all(a[k] == b[k] for k in ("model", "hardware", "gpus"))]
speeds = [tuple(math.log(r["time"]["tokens_per_s_per_gpu"]) for r in p) + tuple(math.log(r["true_tokens_per_s_per_gpu"]) for r in p) for p in pairs]
right = [(a - b) * (c - d) > 0 for a, b, c, d in speeds]
stack = (source / "sim" / "megatron_stacks" / "megatron-te-h100-2026-11.yaml").read_text()
least = float(re.search(r"^pair_half_width:\n  value: (\S+)$", stack, re.M).group(1))
most = [least + sum(math.log(r["time"]["high_s"] / r["time"]["low_s"]) for r in p) for p in pairs]
surely = [abs(a - b) > w * 1.2816 / 1.6448 for (a, b, _, _), w in zip(speeds, most)]
maybe = [abs(a - b) > least * 1.2815 / 1.6449 for a, b, _, _ in speeds]
oracle.check(len(pairs) == 6, f"{len(pairs)} pairs in the oracle")
oracle.check(again["pairs"] == len(pairs) and again["pairs_order_right"] == sum(right) and again["pairs_tied"] == sum(a == b for a, b, _, _ in speeds) == 1,
             f"pairs: {again['pairs']}, {again['pairs_order_right']}, {again['pairs_tied']}")
oracle.check(sum(surely) <= again["pairs_called"] <= sum(maybe) and again["pairs_called_right"] >= sum(s and r for s, r in zip(surely, right)) > 0 and
             again["pairs_called"] - again["pairs_called_right"] <= sum(m and not r for m, r in zip(maybe, right)),
             f"called: {again['pairs_called']}, right {again['pairs_called_right']}; {surely}, {maybe}, {right}")
wrong = sum(r["memory"] is not None and (r["memory"]["verdict"] == "oom") != (r["true_verdict"] == "oom") for r in again["rows"])
counts = {"cells": len(ROWS) + 2, "throughput_cells": len(ROWS), "skipped": 2, "verdicts": len(ROWS) + 1, "verdicts_wrong": wrong}
oracle.check({k: again[k] for k in counts} == counts, f"counts: { {k: again[k] for k in counts} }, not {counts}")
oracle.check([r["row_id"] for r in again["skipped_rows"]] == ["graph", "nobody"] and all(r["reason"] for r in again["skipped_rows"]),
             f"skipped_rows {again['skipped_rows']}")

# CSV has the same rows, all of them.
table = list(csv.DictReader(score(published, "--format", "csv").splitlines()))
oracle.check([r["row_id"] for r in table] == [r["row_id"] for r in again["rows"]], "csv: other rows")
for row, said in zip(table, again["rows"]):
    if said["time"] is None:
        oracle.check((row["step_s"], row["why_no_time"]) == ("", said["why_no_time"]), f"csv: {row['row_id']}: {row}")
    else:
        near(float(row["step_s"]), said["time"]["step_s"], f"csv: {row['row_id']}")

# The page's tables: of all rows, of each group, the worst first, and what is not answered. Left out: the first row alone.
score(published, "--format", "json")
(folder / "left_out.json").write_text(json.dumps({"rows": again["rows"][:1]}))
(folder / "causes.csv").write_text("row_id,cause\ntwo_racks,because\n")
(folder / "page.md").write_text("before\n<!-- megatron_scores: begin -->\nold\n<!-- megatron_scores: end -->\nafter\n")
script = source / "notebooks_data" / "megatron_scores.py"
subprocess.run([sys.executable, script, program, folder / "runs.csv", "--left-out", folder / "left_out.json", "--causes", folder / "causes.csv", "--write",
                folder / "page.md"], check=True)
page = (folder / "page.md").read_text()
told = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")]
mean = f"{100 * statistics.fmean(map(abs, errors)):.1f}"
oracle.check(page.startswith("before\n") and page.endswith("after\n") and "old" not in page, "the page around the tables stays")
oracle.check(["all", f"{len(ROWS)} of {len(ROWS) + 2}", mean] in [row[:3] for row in told], f"page: no line of all rows with {mean}")
oracle.check(["h100", "bf16", "alltoall", "26.02", "1 of 3", "25.0", "1 of 1", "25.0", "", ""] in told, "page: no line of the first row's group")
oracle.check([row[0] for row in told if row[-1] == "because"] == ["two_racks"] and ["context", "-9"] in [[row[0], row[4]] for row in told if len(row) == 7],
             "page: the ten worst")
oracle.check(any(row[0] == "1" and row[-1] == "nobody" for row in told), "page: what is not answered")

# A table in pieces says the same of each row.
for at in (0, 3, len(published) - 1):
    one = json.loads(score([published[at]], "--format", "json"))["rows"][0]
    oracle.check({**one, "line": 0} == {**again["rows"][at], "line": 0}, f"{one['row_id']}: another answer alone")

oracle.finish(80)
