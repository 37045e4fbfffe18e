#!/usr/bin/env python3
"""What the loss holds (docs/schemes.md, section 7.5) beside what Megatron-Core's, TransformerEngine's and torchtitan's own code held on
a CPU and on an H200 (notebooks_data/measured/cross_entropy.csv), which loss a job has that does not say, and which are refused.

loss_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from replay_case import CLUSTER

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
folder = scratch / "loss_oracle"
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "loss_oracle")
HIDDEN = 64
A_TOKEN = 40  # bytes of a token that are not counted: labels, masks, positions, sums; less than that, for every loss that is made


def job(scheme, loss, tensor=1, predictions=0, sequences=1, length=64, words=1024, activations="bf16"):
    model = dict(model_type="deepseek_v3", num_hidden_layers=2, hidden_size=HIDDEN, vocab_size=words, num_attention_heads=4,
                 num_key_value_heads=4, intermediate_size=96, moe_intermediate_size=32, n_routed_experts=8, n_shared_experts=1,
                 num_experts_per_tok=2, first_k_dense_replace=1, q_lora_rank=16, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4,
                 v_head_dim=8, num_nextn_predict_layers=predictions, tie_word_embeddings=False)
    (folder / "model.json").write_text(json.dumps(model))
    stages = 2 if predictions else 1
    (folder / "cluster.yaml").write_text(CLUSTER.format(name="case", nodes=1, gpus_per_node=2 * stages))
    layout = f", pipeline_model_parallel_layout: '{'Et|t' + 'm' * predictions + 'L'}'" if predictions else ""
    tensors = f", tensor: {tensor}, expert_tensor: 1" if tensor > 1 else ""
    path = folder / "job.yaml"
    path.write_text(f"model: ./model.json\ncluster: ./cluster.yaml\nparallel: {{expert: 2, fsdp: 1, pipeline: {stages}{tensors}{layout}}}\n"
                    + (f"cross_entropy: {loss}\n" if loss else "")
                    + ("optimizer: distributed\n" if scheme.startswith("megatron") else "")
                    + f"batch: {{sequences_per_gpu: {sequences}, sequence_length: {length}, micro_batches: 1}}\n"
                      f"precision: {{activations: {activations}}}\nremat: none\nschemes: [\"{scheme}\"]\n")
    return path


def held(path):
    """Bytes by component of the loss, of the stage that explain shows."""
    rows = json.loads(oracle.must("explain", "--job", path, "--format", "json"))
    return {row["component"]: row["bytes"] for row in rows if row["component"] in ("logits", "logits_of_predictions", "hidden_gradient")}


def check_measured():
    with open(root / "notebooks_data/measured/cross_entropy.csv", newline="") as file:
        rows = [{k: v if k in ("device", "loss") else int(v) for k, v in row.items()} for row in csv.DictReader(file)]
    for row in rows:
        tokens, losses = row["sequences"] * row["sequence_length"], 1 + row["predictions"]
        own = row["loss"] == "chunked" or row["loss"].startswith("torchtitan_")
        got = held(job("torchtitan" if own else "megatron-alltoall", row["loss"].removeprefix("torchtitan_"), row["processes"],
                       row["predictions"], row["sequences"], row["sequence_length"], row["vocabulary"]))
        hidden = got.get("hidden_gradient", 0)
        oracle.check(hidden == (4 * tokens * HIDDEN if row["loss"] == "chunked" else 0), f"{row}: gradient of hidden states {hidden}")
        more = max(row["forward_peak_bytes"], row["backward_peak_bytes"]) - (sum(got.values()) - hidden)
        oracle.check(0 <= more < A_TOKEN * tokens * losses, f"{row}: {got}, {more} bytes fewer than were held")
        kept = row["kept_bytes"] - got.get("logits_of_predictions", 0) / max(row["predictions"], 1) * losses
        if row["predictions"]:
            oracle.check(0 <= kept < A_TOKEN * tokens * losses, f"{row}: {got}, {kept} bytes fewer than are kept")


def check_defaults():
    TV = 64 * 1024
    for scheme, loss, each, said in (("megatron-alltoall", "", 6, "Megatron-Core's own loss"), ("megatron-alltoall", "unfused", 6, ""),
                                     ("megatron-alltoall", "fused", 4, ""), ("gmm", "", 4, ""), ("megablocks", "", 4, ""),
                                     ("torchtitan", "", 14 / 8, "torchtitan's loss"), ("torchtitan", "fused", 4, ""), ("torchtitan", "unfused", 12, "")):
        path = job(scheme, loss)
        got, text = held(path), oracle.must("explain", "--job", path)
        oracle.check(got["logits"] == each * TV, f"{scheme} {loss}: {got}")
        for sentence in ("Megatron-Core's own loss", "torchtitan's loss"):
            oracle.check((f"assumed: {sentence}" in text) == (sentence == said), f"{scheme} {loss}: {sentence}")
    # of two layers that predict both losses wait, of each what is kept until it runs backward: column three of 7.5's table
    for loss, each in (("unfused", 4), ("native", 4), ("te", 4), ("te_in_place", 2), ("te_2_20", 2), ("fused", 2)):
        got = held(job("megatron-alltoall", loss, predictions=2))
        oracle.check(got["logits_of_predictions"] == 2 * each * TV, f"{loss}: {got}, want {2 * each * TV} kept by predictions")
    # logits in fp32: Megatron-Core's softmax takes their place; TransformerEngine's gradient does not
    for loss, each in (("unfused", 4), ("te", 8), ("te_in_place", 4), ("te_2_20", 8)):
        got = held(job("megatron-alltoall", loss, activations="fp32"))
        oracle.check(got["logits"] == each * TV, f"fp32 {loss}: {got}")


def check_refused():
    for scheme, loss, right in (("megatron-alltoall", "chunked", "use unfused, native, te, te_in_place, te_2_20 or fused"), ("gmm", "te", "use fused"),
                                ("torchtitan", "native", "use chunked, unfused or fused"), ("gmm", "chunked", "use fused")):
        done = oracle.call("explain", "--job", job(scheme, loss))
        oracle.check(done.returncode == 2 and right in done.stderr, f"{scheme} {loss}: {done.returncode} {done.stderr}")


check_measured()
check_defaults()
check_refused()
oracle.finish(least=80)
