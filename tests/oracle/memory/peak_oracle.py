#!/usr/bin/env python3
"""What must be live is never above what PyTorch's allocator has handed out. Random jobs under random, skewed routing, over schemes,
remats and optimizers, with dense layers before, between and behind the others, in micro-batches, in pipelines and interleaved ones:
the live memory of `replay`, found by walking
over what waits, is the peak of the list of births and deaths that the allocator is given, to the byte, and its blocks are not below.

peak_oracle.py SPILLWAY SCRATCH [--cases N]"""
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from replay_case import CLUSTER, Tokens

program, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
cases = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else 30
folder = scratch / "peak_oracle"
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "peak_oracle")
MEGATRON = ("megatron-alltoall", "megatron-allgather", "megatron-flex", "megatron-ncclep")
OTHERS = ("hybrid-ep", "megablocks", "torchtitan", "torchtitan-hybridep", "deepep")
MODULES = ("none", "none", "full", "selective", "moe_act", "moe", "[layernorm, moe_act]")


def one(seed, pairs=False):
    """pairs: forward passes beside backward ones, and gradients of weights behind those of inputs in half of them."""
    rng = np.random.default_rng(seed)
    pick = lambda values: values[int(rng.integers(len(values)))]
    megatron = rng.random() < 0.6
    scheme, remat = pick(MEGATRON if megatron else OTHERS), pick(MODULES if megatron else ("none", "none", "full"))
    unfused = megatron and rng.random() < 0.2 and remat in ("none", "full")
    optimizer = pick(("distributed", "replicated") + (() if unfused else ("sharded",)))
    R, E, K, S, layers = pick((2, 4)), 8, pick((1, 2)), 128 * pick((1, 2)), pick((2, 3, 5))
    gpus, step, dense = R * pick((1, 2)), pick((1, 1, 2)), int(rng.integers(0, layers))
    stages, chunks, parts = pick(((1, 1, 1), (1, 1, 3), (2, 1, 1), (2, 1, 4), (3, 1, 4), (2, 2, 4), (2, 2, 6)))
    if pairs:
        scheme, remat, optimizer, unfused = pick(MEGATRON[::2]), pick(("none", "moe_act", "selective")), "distributed", False
        stages, chunks, parts = pick(((1, 1, 2), (1, 1, 5), (2, 2, 4), (2, 3, 6)))
    layers = max(layers, stages * chunks)
    kind = {"decoder_sparse_step": step} if step > 1 else {}
    if step == 1 and dense:  # dense layers first
        kind = {"first_k_dense_replace": dense}
    moe = [l for l in range(layers) if (l + 1) % step == 0 and (step > 1 or l >= dense)]
    model = dict(model_type="generic", hidden_size=256, moe_intermediate_size=pick((64, 128)), intermediate_size=pick((128, 1024)),
                 num_attention_heads=4, head_dim=32, num_key_value_heads=2, num_experts=E, num_experts_per_tok=K,
                 num_hidden_layers=layers, tie_word_embeddings=False, vocab_size=64, **kind)
    (folder / "model.json").write_text(json.dumps(model))
    (folder / "cluster.yaml").write_text(CLUSTER.format(name="case", nodes=stages, gpus_per_node=gpus))
    (folder / "job.yaml").write_text(
        f"model: ./model.json\ncluster: ./cluster.yaml\nremat: {remat}\noptimizer: {optimizer}\n"
        + ("attention: unfused\n" if unfused else "")
        + (f"overlap_moe_expert_parallel_comm: true\ndelay_wgrad_compute: {json.dumps(seed % 2 == 0)}\n" if pairs else "") +
        f"library_limits: ignore\nparallel: {{expert: {R}, fsdp: {gpus // R}, pipeline: {stages}, virtual_stages: {chunks}}}\n"
        f"batch: {{sequences_per_gpu: {parts}, micro_batches: {parts}, sequence_length: {S}}}\n"
        "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n")
    tilt = rng.permuted(np.tile(np.arange(E) * pick((0.0, 0.1, 0.4)), (len(moe), 1)), axis=1)
    ids = np.argsort(rng.random((2 * gpus * parts * S, len(moe), E)) + tilt, axis=2)[:, :, :K].astype(np.uint8)
    source = np.tile(np.repeat(np.arange(gpus), parts * S), 2)
    Tokens(ids, [gpus * parts * S] * 2, E, ranks=gpus, source_rank=source).write(folder / "trace.h5")
    what = f"case {seed}: {scheme}, remat {remat}, {optimizer}, layers {layers} with experts {moe}, unfused {unfused}, " \
        f"{stages} stages, {chunks} chunks, {parts} micro-batches, pairs {pairs}"
    done = oracle.call("replay", folder / "trace.h5", "--job", folder / "job.yaml", "--scheme", scheme, "--format", "json",
                       "--allocator", "expandable_segments:False")
    oracle.check(done.returncode == 0, f"{what}: {done.stderr}")
    if done.returncode != 0:
        return
    row = json.loads(done.stdout)["rows"][0]
    memory = row["memory"]
    oracle.check(memory["allocator"] is not None, f"{what}: no allocator was replayed")
    if memory["allocator"] is None:
        return
    live, list_peak, blocks = (memory["max_bytes"], *(memory["allocator"][k]["max_bytes"] for k in ("requested", "allocated")))
    # of passes in flight that recompute nothing, the walk takes a forward pass to have what the recomputation of another would
    near = 8 if stages * parts == 1 or remat == "full" else live // 100
    oracle.check(abs(live - list_peak) <= near, f"{what}: {live} live, {list_peak} by the list of births and deaths")
    oracle.check(live <= blocks + near - 8, f"{what}: {live} live in blocks of {blocks}")
    timeline = json.loads(done.stdout).get("timeline") or []
    for drawn in timeline:
        oracle.check(max(drawn["bytes"]) == drawn["peak_bytes"] == memory["peak_bytes"], f"{what}: drawn up to {max(drawn['bytes'])}")


for case in range(cases):
    one(case)
for case in range(1000, 1010):
    one(case, True)
oracle.finish(least=3 * cases)
