#!/usr/bin/env python3
"""Tables of measured runs of whole models, and of single published layers: made-up rows, each asked of `plan` as a job and with routing that is as the
row's name says; `score` must say what plan says of it. Models are written here by hand, and their parameters counted; the summaries are made again
from the rows.

whole_oracle.py SPILLWAY SCRATCH SOURCE"""
import csv
import json
import math
import pathlib
import statistics
import sys

import h5py

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
folder = scratch / "whole_oracle"
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "whole_oracle")

COLUMNS = "name rank gpus expert_parallel family spec experts_module hidden layers dense_layers dense_ffn heads kv_heads head_dim q_lora kv_lora nope rope v " \
          "experts top_k ffn shared vocab sequence micro_batch remat routing optimizer algorithm layer_wise layout clip parameters " \
          "rows_received_per_layer requested_peak reserved_peak step_ms optimizer_ms".split()
PLAIN = dict(family="qn", hidden=1024, layers=3, heads=8, kv_heads=2, head_dim=64, experts=8, top_k=2, ffn=512, vocab=8192)
NORMS = dict(PLAIN, family="qw")
LATENT = dict(family="la", hidden=1024, layers=3, dense_layers=1, dense_ffn=2048, heads=8, q_lora=256, kv_lora=128, nope=64, rope=32, v=64, experts=8,
              top_k=2, ffn=512, shared=1024, vocab=8192)


def parameters(m, ep):
    """Of one GPU: weights by hand."""
    h, f = m["hidden"], m["ffn"]
    if "kv_lora" in m:
        qk = m["nope"] + m["rope"]
        attention = h * m["q_lora"] + m["q_lora"] + m["q_lora"] * m["heads"] * qk + h * (m["kv_lora"] + m["rope"]) + m["kv_lora"] \
            + m["kv_lora"] * m["heads"] * (m["nope"] + m["v"]) + m["heads"] * m["v"] * h
    else:
        attention = h * (m["heads"] + 2 * m["kv_heads"]) * m["head_dim"] + m["heads"] * m["head_dim"] * h
        attention += 2 * m["head_dim"] if m["family"] == "qw" else 0
    moe = h * m["experts"] + m["experts"] // ep * 3 * h * f + 3 * h * m.get("shared", 0)
    dense = m.get("dense_layers", 0)
    return 2 * m["vocab"] * h + h + m["layers"] * (attention + 2 * h) + dense * 3 * h * m.get("dense_ffn", 0) + (m["layers"] - dense) * moe


def config(m):
    """The same model as a config.json."""
    out = {"hidden_size": m["hidden"], "num_hidden_layers": m["layers"], "num_attention_heads": m["heads"], "num_experts_per_tok": m["top_k"],
           "moe_intermediate_size": m["ffn"], "vocab_size": m["vocab"], "tie_word_embeddings": False, "attention_bias": False}
    if "kv_lora" in m:
        return {**out, "model_type": "deepseek_v2", "n_routed_experts": m["experts"], "n_shared_experts": m["shared"] // m["ffn"],
                "first_k_dense_replace": m["dense_layers"], "intermediate_size": m["dense_ffn"], "q_lora_rank": m["q_lora"], "kv_lora_rank": m["kv_lora"],
                "qk_nope_head_dim": m["nope"], "qk_rope_head_dim": m["rope"], "v_head_dim": m["v"], "moe_layer_freq": 1, "n_group": 1, "topk_group": 1,
                "scoring_func": "softmax", "topk_method": "greedy"}
    out |= {"num_key_value_heads": m["kv_heads"], "head_dim": m["head_dim"]}
    if m["family"] == "qw":
        return {**out, "model_type": "qwen3_moe", "num_experts": m["experts"], "intermediate_size": 1, "decoder_sparse_step": 1, "mlp_only_layers": []}
    return {**out, "model_type": "generic", "num_experts": m["experts"]}


# model, GPUs, expert parallel, the row's own; then what plan is asked beside it
CASES = [
    (PLAIN, 1, 1, {}, []),
    (NORMS, 1, 1, dict(remat="full", micro_batch=1), []),
    (NORMS, 2, 2, dict(remat="moe_act+layernorm"), []),
    (LATENT, 2, 2, dict(optimizer="replicated"), []),
    (LATENT, 4, 2, dict(remat="moe"), []),
    (NORMS, 2, 2, dict(routing="hot1"), ["--routing", "hot-rank:share=1,ranks=2,rank=0"]),
    (NORMS, 4, 2, dict(routing="hot1", remat="moe"), ["--routing", "hot-rank:share=1,ranks=2,rank=0"]),
    (PLAIN, 2, 1, dict(algorithm="muon", layer_wise="True", layout="True", experts_module="sequential"),
     ["--set", "optimizer_algorithm=muon", "--set", "muon_layout=packed"]),
    (PLAIN, 1, 1, dict(spec="local"), ["--set", "attention=unfused"]),
]


def rows_of(index, figures=None):
    """As many as there are GPUs; figures: what was measured of each rank."""
    model, gpus, ep, own, _ = CASES[index]
    row = {**{c: "" for c in COLUMNS}, **model, **dict(name=f"case{index}", gpus=gpus, expert_parallel=ep, spec="te", experts_module="grouped", sequence=1024,
           micro_batch=2, remat="none", routing="balanced", optimizer="distributed", algorithm="adam", layer_wise="False", layout="False", clip=1.0), **own}
    assignments = row["micro_batch"] * row["sequence"] * row["top_k"]
    layers = model["layers"] - model.get("dense_layers", 0)
    for rank in range(gpus):
        rows = assignments if row["routing"] == "balanced" else ep * assignments * (rank % ep == 0)
        yield {**row, **dict(rank=rank, parameters=parameters(model, ep), rows_received_per_layer=";".join([str(rows)] * layers)), **(figures[rank] if figures else {})}


def score(name, columns, rows, *more):
    with open(folder / name, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return oracle.run("score", folder / name, *more)


def near(a, b, what, tolerance=1e-9):
    oracle.check(a is not None and b is not None and math.isclose(a, b, rel_tol=tolerance), f"{what}: {a} is not {b}")


def planned(index):
    model, gpus, ep, own, more = CASES[index]
    row = next(rows_of(index))
    path = folder / f"model{index}.json"
    path.write_text(json.dumps(config(model)))
    words = ["plan", "--stack", "megatron-plain-h100-2026-11", "--model", path, "--cluster", f"h100:{gpus}x1", "--expert-parallel", ep, "--sequence-length", row["sequence"], "--sequences-per-gpu",
             row["micro_batch"], "--remat", row["remat"], "--scheme", "megatron-alltoall", "--optimizer", row["optimizer"], "--set", "cross_entropy=unfused", "--set", "attention=sdpa",
             "--set", "memory_fraction=1", "--routing-steps", 8, "--allocator", "expandable_segments:False", "--format", "json", *more]
    if "--routing" not in more:
        words += ["--routing", "megatron-w0"]
    return json.loads(oracle.must(*words))["rows"][0]


first = json.loads(score("whole.csv", COLUMNS, [r for i in range(len(CASES)) for r in rows_of(i)], "--format", "json"))
by_name = {}
for said in first["rows"]:
    by_name.setdefault(said["name"], []).append(said)
oracle.check(first["skipped"] == 0 and len(first["rows"]) == sum(c[1] for c in CASES), f"skipped {first['skipped_rows']}")
for index, (model, gpus, ep, own, more) in enumerate(CASES):
    plan, said = planned(index), by_name[f"case{index}"]
    allocator, fullest = plan["memory"]["allocator"], said[0]
    for key in ("requested", "reserved"):
        near(max(r[f"{key}_bytes"] for r in said), allocator[key]["max_bytes"], f"case {index}: {key}")
    if own.get("spec") == "local":
        oracle.check(fullest["time"] is None and "softmax" in fullest["why_no_time"], f"case {index}: {fullest['why_no_time']}")
        continue
    # a hot rank's rows are plan's to the row; which of its experts has how many is drawn there and even here
    near(fullest["time"]["step_s"], plan["time"]["step_s" if "routing" in own else "balanced_step_s"], f"case {index}: step", 2e-3 if "routing" in own else 1e-9)
    near(sum(fullest["time"]["exposed"].values()), fullest["time"]["step_s"], f"case {index}: sum of exposed")
    oracle.check(all(r["time"] == fullest["time"] for r in said), f"case {index}: ranks have one step")
    oracle.check(all(r["rows"] == "equal" for r in said), f"case {index}: rows {said[0]['rows']}")

# Norms of queries and keys are read off the parameters: the same row without theirs is another model, with more bytes.
plain = next(rows_of(1)) | {"parameters": parameters(PLAIN, 1)}
other = json.loads(score("one.csv", COLUMNS, [plain], "--format", "json"))["rows"][0]
oracle.check(other["requested_bytes"] < by_name["case1"][0]["requested_bytes"], "norms cost memory")
wrong = json.loads(score("one.csv", COLUMNS, [plain | {"parameters": 2 * parameters(PLAIN, 1)}], "--format", "json"))
oracle.check(wrong["skipped"] == 1 and "parameters" in wrong["skipped_rows"][0]["reason"], f"twice the parameters: {wrong['skipped_rows']}")

# A run whose ranks are not all there, and rows that are not the routing's.
alone = json.loads(score("one.csv", COLUMNS, [next(rows_of(2))], "--format", "json"))
oracle.check(alone["skipped"] == 1 and "2 GPUs" in alone["skipped_rows"][0]["reason"], f"one of two ranks: {alone['skipped_rows']}")
moved = [r | {"rows_received_per_layer": ";".join([str(4096 + 1024 * (1 - 2 * r["rank"]))] * 3)} for r in rows_of(2)]
uneven = json.loads(score("one.csv", COLUMNS, moved, "--format", "json"))
oracle.check([r["rows"] for r in uneven["rows"]] == ["differ", "differ"], f"rows {[r['rows'] for r in uneven['rows']]}")
oracle.check(uneven["rows"][0]["requested_bytes"] > by_name["case2"][0]["requested_bytes"] > uneven["rows"][1]["requested_bytes"],
             "the table's rows count where the routing's are others")

# Rows of all layers, dense ones too; rows that nobody says; a word that is not known.
dense = [r | {"rows_received_per_layer": "0;" + r["rows_received_per_layer"]} for r in rows_of(3)]
same = json.loads(score("one.csv", COLUMNS, dense, "--format", "json"))["rows"]
oracle.check([r["rows"] for r in same] == ["equal"] * 2 and [r["requested_bytes"] for r in same] == [r["requested_bytes"] for r in by_name["case3"]], f"all layers: {same}")
silent = json.loads(score("one.csv", COLUMNS, [r | {"rows_received_per_layer": ""} for r in rows_of(2)], "--format", "json"))["rows"]
oracle.check([r["requested_bytes"] for r in silent] == [r["requested_bytes"] for r in by_name["case2"]], f"rows of the routing's name alone: {silent}")
lost = json.loads(score("one.csv", COLUMNS, [r | {"rows_received_per_layer": "", "routing": "none:7"} for r in rows_of(2)], "--format", "json"))
oracle.check(lost["skipped"] == 2 and "no trace" in lost["skipped_rows"][0]["reason"], f"neither rows nor a trace: {lost['skipped_rows']}")
other = json.loads(score("one.csv", COLUMNS, [r | {"spec": "woven"} for r in rows_of(2)], "--format", "json"))
oracle.check(other["skipped"] == 2 and "spec 'woven'" in other["skipped_rows"][1]["reason"], f"a spec that is not known: {other['skipped_rows']}")

# A trace's step: 64 source ranks of 1024 tokens on 4 GPUs, the first two of every sixteen whole; layer 4 reads the trace's layer 0. GPUs 0 and 1 are one
# group, 2 and 3 the other; the first GPU of each has experts 0 to 31.
traced = dict(NORMS, experts=64, top_k=8, layers=5)
with h5py.File(source / "traces" / "data" / "training_aux_e64_slice.h5") as file:
    counts = file["counts/by_rank"][list(file["steps/id"]).index(50)].astype(int)
chosen = [counts[16 * gpu] + counts[16 * gpu + 1] for gpu in range(4)]
received = [[sum(int(chosen[g][layer % 4][32 * (d % 2):32 * (d % 2) + 32].sum()) for g in range(d // 2 * 2, d // 2 * 2 + 2)) for layer in range(5)] for d in range(4)]
step = [{**next(rows_of(2)), **traced, **dict(name="traced", routing="aux:50", gpus=4, expert_parallel=2, rank=d, parameters=parameters(traced, 2), remat="none",
         rows_received_per_layer=";".join(map(str, received[d])))} for d in range(4)]
composed = json.loads(score("one.csv", COLUMNS, step, "--traces", source / "traces" / "data", "--format", "json"))
oracle.check(composed["rows_composed"] == composed["rows_agreed"] == 4, f"rows of a trace: {[r['rows'] for r in composed['rows']]}")
table = json.loads(score("one.csv", COLUMNS, step, "--format", "json"))
oracle.check([r["rows"] for r in table["rows"]] == ["as measured"] * 4, "without the trace the table's rows count")
for with_it, without in zip(composed["rows"], table["rows"]):
    near(with_it["requested_bytes"], without["requested_bytes"], "memory goes by the rows of a GPU", 1e-5)  # what it sends is even to a row
    near(with_it["time"]["step_s"], without["time"]["step_s"], "which experts of a GPU have them costs little", 0.05)
oracle.check(len({r["requested_bytes"] for r in table["rows"]}) > 1, "GPUs with other rows need other bytes")

# What was measured is made of what was predicted: every figure of the summary follows.
factors = [(1.0 + 0.01 * i, 0.9 + 0.02 * i, 0.5 + 0.2 * i, 2.0 - 0.1 * i) for i in range(len(first["rows"]))]
figures = [{"requested_peak": r["requested_bytes"] * a, "reserved_peak": r["reserved_bytes"] * b} |
           ({"step_ms": r["time"]["step_s"] * 1e3 * c, "optimizer_ms": r["time"]["optimizer_s"] * 1e3 * d} if r["time"] else {})
           for r, (a, b, c, d) in zip(first["rows"], factors)]
made, at = [], 0
for index, case in enumerate(CASES):
    made += list(rows_of(index, figures[at:at + case[1]]))
    at += case[1]
again = json.loads(score("whole.csv", COLUMNS, made, "--format", "json"))
timed = [i for i, r in enumerate(first["rows"]) if r["time"]]
for key, column, which in (("requested_mean_abs_error", 0, range(len(factors))), ("reserved_mean_abs_error", 1, range(len(factors))),
                           ("step_mape", 2, timed), ("optimizer_mape", 3, timed)):
    near(again[key], statistics.fmean(abs(1 / factors[i][column] - 1) for i in which), key, 1e-9)
inside = [first["rows"][i]["time"]["low_s"] <= first["rows"][i]["time"]["step_s"] * factors[i][2] <= first["rows"][i]["time"]["high_s"] for i in timed]
near(again["step_interval_coverage"], statistics.fmean(inside), "step_interval_coverage")
oracle.check(0 < sum(inside) < len(inside), f"{sum(inside)} of {len(inside)} inside: no test of coverage")
oracle.check(len(list(csv.DictReader(score("whole.csv", COLUMNS, made, "--format", "csv").splitlines()))) == len(made), "csv: a row a row")

# --- Single layers: experts of three matrices as they are, of two as three of two thirds the width ---

LAYER = "id cluster expert_parallel dispatcher recipe hidden ffn experts top_k groups groups_kept activation matrices_per_expert shared_experts " \
        "sequence_length micro_batch forward_ms backward_ms peak_allocated_gib".split()
SCHEMES = {"alltoall": "megatron-alltoall", "deepep": "megatron-flex", "hybridep": "megatron-flex:backend=hybridep"}
layers = [dict(zip(LAYER, (f"{dispatcher}{matrices}", "h100:8x1", 8, dispatcher, "none", 2048, ffn, 32, 4, 1, 1, "any", matrices, 0, 2048, 2, 1.0, 2.0, 1.0)))
          for dispatcher, matrices, ffn in (("alltoall", 3, 1024), ("deepep", 3, 1024), ("hybridep", 3, 1024), ("alltoall", 2, 1536))]
said = json.loads(score("layers.csv", LAYER, layers, "--format", "json"))
for row, one in zip(layers, said["rows"]):
    path = folder / "layer.json"
    path.write_text(json.dumps({"model_type": "generic", "num_hidden_layers": 1, "hidden_size": 2048, "vocab_size": 1024, "num_attention_heads": 1, "head_dim": 128,
                                "num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 1024, "tie_word_embeddings": False}))
    plan = json.loads(oracle.must("plan", "--model", path, "--cluster", "h100:8x1", "--set", "model_part=expert_layers", "--set", "layers=1", "--expert-parallel", 8,
                                  "--sequence-length", 2048, "--sequences-per-gpu", 2, "--remat", "none", "--optimizer", "distributed", "--set",
                                  "precision.gradients=bf16", "--scheme", SCHEMES[row["dispatcher"]], "--stack", one["stack"], "--routing", "uniform", "--format",
                                  "json"))["rows"][0]
    near(one["time"]["step_s"], plan["time"]["balanced_step_s"], f"layer {row['id']}")
    near(one["peak_gib"], plan["memory"]["balanced_peak_bytes"] / 2**30, f"layer {row['id']}: peak")
    oracle.check(one["asked_ffn"] == 1024 and one["true_step_s"] == 0.003, f"layer {row['id']}: {one['asked_ffn']}, {one['true_step_s']}")
near(said["step_mape"], statistics.fmean(abs(r["time"]["step_s"] / 0.003 - 1) for r in said["rows"]), "layers: step_mape")
near(said["step_max_abs_error"], max(abs(r["time"]["step_s"] / 0.003 - 1) for r in said["rows"]), "layers: step_max_abs_error")
refused = json.loads(score("layers.csv", LAYER, [layers[0] | {"matrices_per_expert": 4}, layers[0] | {"shared_experts": 1}, layers[0] | {"dispatcher": "owl"},
                                                 layers[0] | {"expert_parallel": 3}], "--format", "json"))
oracle.check(refused["skipped"] == 4 and all(r["reason"] for r in refused["skipped_rows"]) and refused["step_mape"] is None, f"refused: {refused['skipped_rows']}")

# Cells that are none, and columns that are missing.
for name, columns, rows, column, cell in [("whole.csv", COLUMNS, list(rows_of(0)), c, v) for c, v in
                                          (("hidden", "-1"), ("gpus", "x"), ("heads", "1e99"), ("parameters", ""), ("step_ms", "fast"))] + \
        [("layers.csv", LAYER, layers[:1], c, v) for c, v in (("ffn", "0"), ("forward_ms", "-1"), ("top_k", "2.5"))]:
    with open(folder / name, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerow({**rows[0], column: cell})
    done = oracle.call("score", folder / name)
    oracle.check(done.returncode == 2 and column in done.stderr and done.stderr.count("\n") == 1, f"{name}: {column} '{cell}': {done.returncode}, {done.stderr}")

for name, columns, rows, column in (("whole.csv", COLUMNS, list(rows_of(0)), "kv_heads"), ("layers.csv", LAYER, layers[:1], "top_k")):
    with open(folder / name, "w", newline="") as file:
        writer = csv.DictWriter(file, [c for c in columns if c != column], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    done = oracle.call("score", folder / name)
    oracle.check(done.returncode == 3 and f'no column "{column}"' in done.stderr, f"{name} without {column}: {done.returncode}, {done.stderr}")

oracle.finish(90)
