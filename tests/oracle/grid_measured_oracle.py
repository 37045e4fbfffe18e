#!/usr/bin/env python3
"""What a GPU holds between steps under tensor, expert and expert-tensor parallelism, beside whole GPT models of Megatron-Core on
two H200 (notebooks_data/measured/megatron_h200_snapshots.csv, d98e8a64: attention, vocabulary-parallel embedding, head and
loss, distributed optimizer). No number is fitted: what the program holds beside the state is written here tensor by tensor.

grid_measured_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import pathlib
import shutil
import sys

from oracle_run import Oracle
from replay_case import CLUSTER

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
folder = scratch / "grid_measured_oracle"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
oracle = Oracle(str(program), "grid_measured_oracle")
HEADS = {"olmoe": (16, 16), "mini": (32, 8)}  # of queries, of keys and values
HEAD, VOCABULARY, RANKS = 128, 32768, 2
WORKSPACES = 2 * 32 * 2**20  # of cuBLAS, for the threads of the forward and of the backward pass: once a process
START = 2**20 + 265  # held before the first layer runs, the same in every run


def predicted(row):
    heads, groups = HEADS[row["model"]]
    (folder / "model.json").write_text(json.dumps(dict(
        model_type="generic", hidden_size=row["hidden"], moe_intermediate_size=row["ffn"], num_attention_heads=heads,
        num_key_value_heads=groups, num_experts=row["experts"], num_experts_per_tok=row["top_k"],
        num_hidden_layers=row["layers"], tie_word_embeddings=False, vocab_size=VOCABULARY)))
    (folder / "cluster.yaml").write_text(CLUSTER.format(name="two", nodes=1, gpus_per_node=RANKS))
    (folder / "job.yaml").write_text(
        "model: model.json\ncluster: cluster.yaml\n"
        f"parallel: {{expert: {row['expert']}, fsdp: 1, tensor: {row['tensor']}, expert_tensor: {row['expert_tensor']}}}\n"
        f"batch: {{sequences_per_gpu: 1, sequence_length: {row['tokens']}}}\n"
        "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
        "optimizer: distributed\nschemes: [megatron-alltoall]\n")
    rows = json.loads(oracle.must("explain", "--job", folder / "job.yaml", "--format", "json"))
    return {r["component"]: r["bytes"] for r in rows}


def read_runs():
    """First and later steps of every whole model, all columns that are numbers as such."""
    runs = {}
    with open(root / "notebooks_data" / "measured" / "megatron_h200_snapshots.csv", newline="") as table:
        for row in csv.DictReader(table):
            row = {k: int(v) if v.isdigit() else v for k, v in row.items()}
            if row["snapshot"].startswith("gpt"):
                key = (row["model"], row["tensor"], row["expert"], row["expert_tensor"], row["rank"])
                runs.setdefault(key, []).append(row)
    return runs


def check(key, steps):
    first, later = steps[0], {s["requested_before_bytes"] for s in steps[1:]}
    what, S, T, layers = f"{key}", first["tokens"], first["tokens"] // first["tensor"], first["layers"]
    state = predicted(first)
    routing = T * first["experts"] * (4 + 1) + T * first["top_k"] * 8  # probs, routing_map, permutation
    logits = S * VOCABULARY // first["tensor"] * 4 * min(first["tensor"], 2)  # of the last step's loss; cut, the sum's too
    first_of_process = first["model"] == "olmoe"
    oracle.check(len(later) == 1 and first["step"] == 0, f"{what}: {later}")
    moments = later.pop() - first["requested_before_bytes"] - logits - layers * routing - S * HEAD * 4  # angles of RoPE
    moments -= WORKSPACES if first_of_process else 0
    oracle.check(moments == state["optimizer"], f"{what}: moments {state['optimizer']}, measured {moments}")
    if not first_of_process:
        return  # another model was there before it, and part of that still is
    inputs = S * S + 3 * 8 * S  # mask; tokens, labels, positions
    rest = first["requested_before_bytes"] - inputs - START
    want = state["weights"] + state["gradients"] + state["master_weights"]
    oracle.check(rest == want, f"{what}: weights, gradients and master weights {want}, measured {rest}")


for one, measured in read_runs().items():
    check(one, measured)
oracle.finish(least=30)
