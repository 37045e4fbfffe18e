#!/usr/bin/env python3
"""Step times of transformers (sim/time/transformers_time.h) as a plan gives them: runs measured on one and two H100 lie in their intervals
(notebooks_data/measured/transformers_h100.csv), products are counted here by hand, and what was not measured has a wider interval or no time.

transformers_time_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
oracle = Oracle(str(program), "transformers_time_oracle")
scratch.mkdir(parents=True, exist_ok=True)
text = (root / "sim/stack_defaults/transformers.yaml").read_text()
figure = {k: float(v) for k, v in re.findall(r"^hf_(\w+):\n  value: (\S+)", text, re.M)}
with open(root / "notebooks_data/measured/transformers_h100.csv", newline="") as f:
    runs = [r for r in csv.DictReader(f) if r["seen"] not in ("not listed", "not timed")]


def model_of(run):
    """A config.json of the run's model."""
    number = {k: int(run[k]) for k in ("layers", "hidden", "heads", "kv_heads", "head_dim", "experts", "top_k", "ffn", "vocab")}
    config = {"hidden_size": number["hidden"], "num_hidden_layers": number["layers"], "num_attention_heads": number["heads"],
              "num_key_value_heads": number["kv_heads"], "num_experts_per_tok": number["top_k"], "vocab_size": number["vocab"],
              "tie_word_embeddings": False, "attention_bias": False, "model_type": run["family"]}
    if run["family"] == "qwen3_moe":
        config.update(head_dim=number["head_dim"], moe_intermediate_size=number["ffn"], num_experts=number["experts"], decoder_sparse_step=1,
                      mlp_only_layers=[], intermediate_size=6144)
    elif run["family"] == "mixtral":
        config.update(head_dim=number["head_dim"], intermediate_size=number["ffn"], num_local_experts=number["experts"])
    else:
        config.update(intermediate_size=number["ffn"], num_experts=number["experts"])
    path = scratch / f"{run['run']}.json"
    path.write_text(json.dumps(config))
    return path


def plan(model, cluster, gpus, sequences, length, *more):
    split = ["--optimizer", "sharded", "--fsdp", gpus] if gpus > 1 else ["--optimizer", "replicated"]
    words = ["plan", "--model", model, "--cluster", cluster, "--scheme", "transformers:logits=kept", "--sequences-per-gpu", sequences,
             "--sequence-length", length, *split, *more, "--format", "json"]
    return json.loads(oracle.must(*words))


def of_run(run, *more, cluster=None, gpus=None, routing="uniform"):
    gpus = gpus or int(run["ranks"])
    words = ["--precision", "bf16" if run["state"] == "bf16" else "mixed", "--remat", "full" if run["checkpointing"] == "1" else "none", "--routing", routing]
    if run["state"] != "bf16":
        words = ["--set", "precision.weights=fp32", "--set", "precision.gradients=fp32", *words[2:]]
    if run["lora_rank"] != "0":
        words += ["--set", "finetune.frozen=base", "--set", f"finetune.lora_rank={run['lora_rank']}", "--set", "finetune.lora_targets=attention"]
    return plan(model_of(run), cluster or f"h100:{gpus}x1", gpus, run["sequences"], run["length"], *words, *more)["rows"][0]


def by_hand(run):
    """FLOP of dense products and of experts in a step without checkpointing or adapters: three passes; narrow routers count by their bytes."""
    n = {k: int(v) for k, v in run.items() if v.isdigit()}
    tokens, wide = n["sequences"] * n["length"], n["heads"] * n["head_dim"]
    layer = n["hidden"] * (2 * wide + 2 * n["kv_heads"] * n["head_dim"]) + (n["hidden"] * n["experts"] if n["experts"] >= 128 else 0)
    return 6.0 * tokens * (n["layers"] * layer + n["hidden"] * n["vocab"]), 6.0 * tokens * n["layers"] * n["top_k"] * 3 * n["hidden"] * n["ffn"]


errors = []
for run in runs:
    row = of_run(run)
    time, measured = row["time"], float(run["step_ms"]) / 1e3
    oracle.check(time["step_s"] is not None, f"{run['run']}: no time: {row.get('why_no_time')}")
    if time["step_s"] is None:
        continue
    errors.append(time["step_s"] / measured - 1)
    oracle.check(time["low_s"] <= measured <= time["high_s"], f"{run['run']}: {measured} s measured, {time['low_s']} to {time['high_s']}")
    parts = time["components"]
    oracle.check(math.isclose(sum(p["exposed_s"] for p in parts.values()), time["step_s"], rel_tol=1e-9), f"{run['run']}: the parts are not the step")
    if run["checkpointing"] == "0" and run["lora_rank"] == "0":
        dense, experts = by_hand(run)
        oracle.check(math.isclose(parts["expert_products"]["seconds"], experts / figure["grouped_flops"], rel_tol=1e-6), f"{run['run']}: experts {parts}")
        oracle.check(math.isclose(parts["dense_products"]["seconds"], dense / figure["dense_flops"], rel_tol=0.02), f"{run['run']}: dense {parts}, {dense}")
oracle.check(len(errors) == 31 and sum(map(abs, errors)) / 31 < 0.05 and max(map(abs, errors)) < 0.14, f"errors {errors}")

known = {r["run"]: r for r in runs}
one, two = known["p_qwen_ckpt"], known["f_ckpt"]
width = lambda row: row["time"]["high_s"] / row["time"]["low_s"]
step = of_run(one)["time"]["step_s"]
oracle.check(of_run(one, routing="zipf:exponent=1.2")["time"]["step_s"] == step, "routing changes a step of grouped products")
h200 = of_run(one, cluster="h200:1x1")
oracle.check(h200["time"]["step_s"] < step and width(h200) > 1.6 * width(of_run(one)), f"H200: {h200['time']}")
eight, nodes = of_run(two, gpus=8, cluster="h100:8x1"), of_run(two, gpus=16, cluster="h100:8x2")
oracle.check(width(of_run(two)) < width(eight) < width(nodes), "more GPUs have no wider interval")
for row, why in ((of_run(one, cluster="b200:1x1"), "Hopper"), (of_run(one, "--stack", "none"), "--stack none")):
    oracle.check(row["time"]["step_s"] is None and why in row["why_no_time"], f"{why}: {row['time']}")
row = plan("olmoe-1b-7b", "h100:8x1", 8, 1, 4096, "--set", "fsdp2.reshard_after_forward=always", "--set", "fsdp2.replicas=2", "--precision", "bf16")["rows"][0]
oracle.check(row["time"]["step_s"] is None and "replicas" in row["why_no_time"], f"replicas: {row['time']}")
# Modules that ran on a CPU alone: products by hand, an interval that is wider than that of what was measured
T = 4096


def passes(reduced):
    """The program's own parts of a reduced model of one sequence, forward and backward."""
    row = plan(root / f"notebooks_data/measured/{reduced}.json", "h100:1x1", 1, 1, T, "--precision", "bf16", "--remat", "none")["rows"][0]
    time = row["time"]
    oracle.check(time["step_s"] is not None and width(row) > 1.8 * width(of_run(one)), f"{reduced}: {row.get('why_no_time')}")
    return {k: v["seconds"] for k, v in (time["components"] if time["step_s"] else {}).items()}


def config(reduced):
    return json.loads((root / f"notebooks_data/measured/{reduced}.json").read_text())


nano, name = config("transformers_mixers_cpu/nano"), "transformers_mixers_cpu/nano"
wide, keys = nano["mamba_num_heads"] * nano["mamba_head_dim"], nano["n_groups"] * nano["ssm_state_size"]
scan = 2.0 * T * (nano["chunk_size"] * keys + (nano["chunk_size"] + 2 * nano["ssm_state_size"]) * wide)  # B C, its use; states, their use
mambas = nano["layers_block_type"].count("linear_attention")
got = passes(name)["scans"]
oracle.check(math.isclose(got, mambas * 3.5 * scan / figure["scan_flops"], rel_tol=1e-6), f"Mamba-2 scans {got}")
for reduced, heads, joined in (("transformers_saved_cpu/v4_one", "index_n_heads", True), ("transformers_saved_cpu/m3_one", "index_n_heads", False)):
    c = config(reduced)
    layers = [w for w in c["layer_types"] if w in ("compressed_sparse_attention", "minimax_m3_sparse")]
    seen = T // c["compress_rates"]["compressed_sparse_attention"] if joined else T
    got = passes(reduced)["indexers"]
    oracle.check(math.isclose(got, len(layers) * 2.0 * T * seen * c[heads] * c["index_head_dim"] / figure["fp32_flops"], rel_tol=1e-6),
                 f"{reduced}: indexers {got}")
for reduced in ("transformers_mixers_cpu/next", "transformers_mixers_cpu/kimi"):
    oracle.check(passes(reduced)["scans"] > 0, f"{reduced}: no scans")
found = json.loads(oracle.must("plan", "--search", "--over", "micro-batches=1", "--sequences-per-gpu", "1,2", "--model", "olmoe-1b-7b", "--cluster", "h100:8x1",
                               "--scheme", "transformers",
                               "--optimizer", "sharded", "--precision", "bf16", "--routing", "uniform", "--format", "json"))
good = all(p["step_s"] and p["step_s_low"] < p["step_s"] < p["step_s_high"] for p in found["front"])
oracle.check(found["front"] and found["best"]["step_s"] and good, f"search: {found['best']}")
oracle.finish(least=100)
