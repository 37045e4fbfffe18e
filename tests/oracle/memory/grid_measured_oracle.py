#!/usr/bin/env python3
"""What a GPU holds between steps, and at the peak of a step, under tensor, expert and expert-tensor parallelism, beside whole GPT
models of Megatron-Core on two H200 (notebooks_data/measured/megatron_h200_snapshots.csv, d98e8a64: local spec, so attention
that forms its scores; vocabulary-parallel embedding, head and loss, distributed optimizer). No number is fitted: what the program
holds beside the state is written here tensor by tensor, and the activations in local_spec.py.

grid_measured_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import pathlib
import shutil
import sys

import local_spec
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
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
SCALARS = 265  # held before the first layer runs, the same in every run


def predicted(row):
    heads, groups = HEADS[row["model"]]
    (folder / "model.json").write_text(json.dumps(dict(
        model_type="generic", hidden_size=row["hidden"], moe_intermediate_size=row["ffn"], num_attention_heads=heads,
        num_key_value_heads=groups, num_experts=row["experts"], num_experts_per_tok=row["top_k"],
        num_hidden_layers=row["layers"], tie_word_embeddings=False, vocab_size=VOCABULARY)))
    (folder / "cluster.yaml").write_text(CLUSTER.format(name="two", nodes=1, gpus_per_node=RANKS) + "gpu_generation: hopper\n")
    (folder / "job.yaml").write_text(
        "model: model.json\ncluster: cluster.yaml\n"
        f"parallel: {{expert: {row['expert']}, fsdp: 1, tensor: {row['tensor']}, expert_tensor: {row['expert_tensor']}}}\n"
        f"batch: {{sequences_per_gpu: 1, sequence_length: {row['tokens']}}}\n"
        "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
        "optimizer: distributed\nschemes: [megatron-alltoall]\nattention: unfused\nremat: none\n")
    return json.loads(oracle.must("explain", "--job", folder / "job.yaml", "--format", "json"))


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


def shape_of(row):
    heads, groups = HEADS[row["model"]]
    return local_spec.Shape(H=row["hidden"], F=row["ffn"], E=row["experts"], K=row["top_k"], heads=heads, kv=groups, D=HEAD,
                            S=row["tokens"], p=1, TP=row["tensor"], ETP=row["expert_tensor"])


def check_state(what, steps, state):
    """Takes what is no state from the bytes before a step; what is left is the state to the byte."""
    first, later = steps[0], {s["requested_before_bytes"] for s in steps[1:]}
    S, T, layers = first["tokens"], first["tokens"] // first["tensor"], first["layers"]
    routing = T * first["experts"] * (4 + 1) + T * first["top_k"] * 8  # probs, routing_map, permutation
    # Megatron's global buffer for the scores. It only grows, and the second model of a process has found the first one's.
    first_of_process = first["model"] == "olmoe"
    heads = HEADS[first["model"]][0] - (0 if first_of_process else HEADS["olmoe"][0])
    buffer = 2 * heads // first["tensor"] * S * S
    oracle.check(len(later) == 1 and first["step"] == 0, f"{what}: {later}")
    moments = later.pop() - first["requested_before_bytes"] - buffer - layers * routing - S * HEAD * 4  # angles of RoPE
    moments -= WORKSPACES if first_of_process else 0
    oracle.check(moments == state["optimizer"], f"{what}: moments {state['optimizer']}, measured {moments}")
    if not first_of_process:
        return  # another model was there before it, and part of that still is
    inputs = S * S + 3 * 8 * S + layers * T * first["top_k"] * 8  # mask; tokens, labels, positions; the choices to make
    rest = first["requested_before_bytes"] - inputs - SCALARS
    want = state["weights"] + state["gradients"] + state["master_weights"]
    oracle.check(rest == want, f"{what}: weights, gradients and master weights {want}, measured {rest}")


def check_peaks(what, steps):
    """Of every step behind the first, whose peak is the optimizer's: measured, and by the list of allocations."""
    shape = shape_of(steps[0])
    embedding = 9 * shape.S if shape.TP > 1 else 0  # tokens of another rank's part of the vocabulary, and which those are
    for step in steps[1:]:
        rows = [int(r) for r in step["rows_received_per_layer"].split(";")]
        want, at = local_spec.step(shape, rows)
        got = step["requested_peak_bytes"] - step["requested_before_bytes"]
        oracle.check(at == "product" and 0 <= got - want - embedding <= 1200,
                     f"{what} step {step['step']} {step['routing']}: {want + embedding} at {at}, measured {got}")


def check_explained(what, step, rows):
    """The footprint of a balanced step beside what was measured."""
    live = [r for r in rows if r["at_peak"] == "yes"]
    above = sum(r["bytes"] for r in live if r["kind"] == "temporary")
    got = step["requested_peak_bytes"] - step["requested_before_bytes"]
    oracle.check("scores_at_work" in [r["component"] for r in live], f"{what}: the peak is elsewhere")
    oracle.check(abs(above / got - 1) < 0.0005, f"{what}: {above} above the state, measured {got}")
    if step["model"] == "olmoe":
        peak, measured = sum(r["bytes"] for r in live), step["requested_peak_bytes"]
        oracle.check(abs(peak / measured - 1) < 0.0001, f"{what}: peak {peak}, measured {measured}")


for one, measured in read_runs().items():
    components = predicted(measured[0])
    check_state(f"{one}", measured, {r["component"]: r["bytes"] for r in components})
    check_peaks(f"{one}", measured)
    if one[-1] == 0:
        check_explained(f"{one}", measured[2], components)
oracle.finish(least=250)
