#!/usr/bin/env python3
"""gpt-oss under transformers with eager attention: six runs measured on one H100 (notebooks_data/measured/transformers_oss_h100.csv), and what
a kernel that reads the sinks, checkpointing and other models make of it.

transformers_oss_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
oracle = Oracle(str(program), "transformers_oss_oracle")
scratch.mkdir(parents=True, exist_ok=True)
with open(root / "notebooks_data/measured/transformers_oss_h100.csv", newline="") as f:
    runs = list(csv.DictReader(f))
UNFUSED = ["--set", "attention=unfused"]


def model_of(run):
    sizes = {theirs: int(run[ours]) for theirs, ours in (
        ("hidden_size", "hidden"), ("num_hidden_layers", "layers"), ("num_attention_heads", "heads"), ("num_key_value_heads", "kv_heads"), ("head_dim", "head_dim"),
        ("num_local_experts", "experts"), ("num_experts_per_tok", "top_k"), ("intermediate_size", "ffn"), ("vocab_size", "vocab"))}
    path = scratch / f"{run['run']}.json"
    path.write_text(json.dumps({**sizes, "model_type": "gpt_oss", "attention_bias": True, "sliding_window": 128, "tie_word_embeddings": False}))
    return path


def words_of(run, *more):
    adapters = ["--set", "finetune.frozen=base", "--set", f"finetune.lora_rank={run['lora_rank']}", "--set", "finetune.lora_targets=attention"]
    return ["plan", "--model", model_of(run), "--cluster", "h100:1x1", "--scheme", "transformers:logits=kept", "--sequences-per-gpu", run["sequences"],
            "--sequence-length", run["length"], "--precision", "bf16", "--set", "optimizer=sharded", "--remat", "full" if run["checkpointing"] == "1" else "none",
            *(adapters if run["lora_rank"] != "0" else []), *more, "--format", "json"]


def row_of(run, *more):
    return json.loads(oracle.must(*words_of(run, *more)))["rows"][0]


for run in runs:
    row = row_of(run, *UNFUSED)
    memory, time, name = row["memory"], row["time"], run["run"]
    requested = memory["max_bytes"] / int(run["requested_bytes"])
    reserved = memory["allocator"]["reserved"]["max_bytes"] / int(run["reserved_bytes"])
    oracle.check(abs(requested - 1) < 0.006, f"{name}: {requested:.4f} of what was requested")
    oracle.check(abs(reserved - 1) < (0.1 if name == "o_lora_plain" else 0.03), f"{name}: {reserved:.4f} of what was reserved")
    measured = float(run["step_ms"]) / 1e3
    oracle.check(time["low_s"] < measured < time["high_s"], f"{name}: {measured} s are not within {time['low_s']} to {time['high_s']}")
    oracle.check("gpt-oss' attention and biases" in json.dumps(row), f"{name}: nothing says that its kernels were not timed")

# Scores by hand: a kernel that reads the sinks has none of them. Where nothing is checkpointed every layer keeps its softmax [S, h, L, L + 1] and the
# places of the greatest, and of fewer heads of keys and values copies for every head.
for run in runs:
    eager, kernel = row_of(run, *UNFUSED)["memory"]["max_bytes"], row_of(run)["memory"]["max_bytes"]
    heads, length, sequences, layers = (int(run[k]) for k in ("heads", "length", "sequences", "layers"))
    scores = 2 * sequences * heads * length * (length + 1)
    if run["checkpointing"] == "0":
        oracle.check(eager - kernel > 0.9 * layers * scores, f"{run['run']}: {eager - kernel} more for {layers} softmaxes of {scores} bytes")
        oracle.check(eager - kernel < (layers + 5) * scores, f"{run['run']}: {eager - kernel} more for {layers} softmaxes and what one layer works with")

said = oracle.call("plan", "--model", "qwen3-30b-a3b", "--cluster", "h100:1x1", "--scheme", "transformers", "--precision", "bf16", "--set", "optimizer=sharded",
                   "--sequences-per-gpu", 1, "--sequence-length", 4096, *UNFUSED)
oracle.check(said.returncode == 2 and "for gpt-oss under transformers" in said.stderr, f"Qwen3 with eager attention: {said.stderr}")
oracle.finish(least=30)
