#!/usr/bin/env python3
"""Models whose attention Megatron-Core cuts in a way of its own, under tensor and context parallelism: Gated DeltaNet beside gated
attention (Qwen3-Next), a sparse indexer (DeepSeek-V3.2), norms over all heads (MiniMax-M2). Weights, gradients and optimizer of a
GPU are summed here matrix by matrix, and the collectives of a step call by call, from docs/schemes.md, section 5.10; what an
indexer computes on every GPU of a tensor group is taken from two times. Random shapes.

grid_mixers_oracle.py SPILLWAY SCRATCH ROOT [--cases N]"""
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_megatron_time import figures
from oracle_run import Oracle
from replay_case import CLUSTER

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
cases = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else 45
scratch = scratch / "grid_mixers_oracle"
scratch.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "grid_mixers_oracle")
STACK = "megatron-h200-2026-11"
COEFFICIENTS = figures((root / f"sim/megatron_stacks/{STACK}.yaml").read_text())
KINDS = ("qwen3_next", "deepseek_v32", "minimax_m2")


class Job:
    """Sizes by their letters; matrices() lists [elements, cut by tensor?] of one layer's mixer."""

    def __init__(self, rng, kind):
        pick = lambda values: int(rng.choice(values))
        self.kind, self.GPUS = kind, 16
        self.TP, self.CP = pick([1, 2, 4]), 1 if kind == "deepseek_v32" else pick([1, 2])
        self.DP = self.GPUS // self.TP // self.CP
        self.EP = pick([2, 4, 8])
        self.EDP = self.GPUS // self.EP
        self.L, self.H, self.V = pick([4, 5, 8]), 16 * pick([2, 3]), 96
        self.E, self.K, self.F, self.shared = 8, 2, 8, 8 * pick([1, 2])
        self.heads, self.kv, self.d = 8, 4, 8
        self.p, self.S = pick([1, 2]), 16 * pick([1, 3])
        self.dk, self.dv, self.nk, self.nv, self.conv = pick([4, 8]), pick([4, 6]), 8, 8 * pick([1, 2]), 4
        self.interval = pick([2, 4])
        self.q, self.c, self.nope, self.rope, self.v = 20, 12, 6, 2, 4
        self.ih, self.id, self.dense = pick([2, 3]), 10, pick([0, 1])
        self.full = bool(pick([0, 1]))
        self.T = self.p * self.S // (self.TP * self.CP)
        self.shares = [layer > 0 and bool(pick([0, 1])) for layer in range(self.L)]  # uses the choice of an indexer before it

    def delta(self, layer):
        return self.kind == "qwen3_next" and (layer + 1) % self.interval != 0

    def is_dense(self, layer):
        return self.kind == "deepseek_v32" and layer < self.dense

    def mixer(self, layer):
        """[(elements, cut)], and of the cut ones those whose gradients a tensor group sums all the same."""
        H, wide, kv = self.H, self.heads * self.d, self.kv * self.d
        if self.delta(layer):
            keys, values = self.nk * self.dk, self.nv * self.dv
            into = 2 * keys + 2 * values + 2 * self.nv  # q, k, v, z; beta, alpha
            return [(H * into, True), ((2 * keys + values) * self.conv, True), (self.nv, True), (self.nv, True),
                    (self.dv, False), (values * H, True)]
        if self.kind == "qwen3_next":  # the gate is as wide as the queries
            return [(H * (2 * wide + 2 * kv), True), (self.d, False), (self.d, False), (wide * H, True)]
        if self.kind == "minimax_m2":
            return [(H * (wide + 2 * kv), True), (wide, True), (kv, True), (wide * H, True)]
        n = self.heads
        indexer = [(self.q * self.ih * self.id, False), (H * self.id, False), (2 * self.id, False), (H * self.ih, False)]
        return [(H * self.q, False), (self.q, False), (self.q * n * (self.nope + self.rope), True), (H * (self.c + self.rope), False),
                (self.c, False), (self.c * n * (self.nope + self.v), True), (n * self.v * H, True)] + ([] if self.shares[layer] else indexer)

    def parameters(self):
        """Of one GPU: routed, the rest; and of the rest what tensor ranks sum."""
        H, routed, rest, summed = self.H, 0, 0.0, 0.0
        for layer in range(self.L):
            matrices = self.mixer(layer) + [(H, False), (H, False)]
            if self.is_dense(layer):
                matrices += [(3 * H * 48, True)]
            else:
                matrices += [(H * self.E, False)]
                if self.kind != "minimax_m2":
                    matrices += [(3 * H * self.shared, True)]
                if self.kind == "qwen3_next":
                    matrices += [(H, False)]
                else:
                    matrices += [(self.E, False)]  # the bias of the choice
                routed += self.E // self.EP * 3 * H * self.F
            rest += sum(n / self.TP if cut else n for n, cut in matrices)
            summed += sum(n for n, cut in matrices if not cut)
            if self.kind == "minimax_m2":  # named as norms of queries and keys are
                summed += (self.heads + self.kv) * self.d // self.TP
        return routed, rest + 2 * self.V * H / self.TP + H, summed + H

    def write(self, name):
        model = dict(model_type=self.kind, num_hidden_layers=self.L, hidden_size=self.H, vocab_size=self.V, hidden_act="silu",
                     num_attention_heads=self.heads, num_key_value_heads=self.kv, head_dim=self.d, num_experts_per_tok=self.K,
                     moe_intermediate_size=self.F, tie_word_embeddings=False)
        if self.kind == "qwen3_next":
            model.update(num_experts=self.E, shared_expert_intermediate_size=self.shared, intermediate_size=48, decoder_sparse_step=1,
                         mlp_only_layers=[], full_attention_interval=self.interval, linear_conv_kernel_dim=self.conv,
                         linear_key_head_dim=self.dk, linear_value_head_dim=self.dv, linear_num_key_heads=self.nk,
                         linear_num_value_heads=self.nv, norm_topk_prob=True)
        elif self.kind == "deepseek_v32":
            del model["head_dim"]
            model.update(n_routed_experts=self.E, n_shared_experts=self.shared // self.F, intermediate_size=48, kv_lora_rank=self.c,
                         q_lora_rank=self.q, qk_nope_head_dim=self.nope, qk_rope_head_dim=self.rope, v_head_dim=self.v,
                         first_k_dense_replace=self.dense, topk_method="noaux_tc", scoring_func="sigmoid", n_group=1, topk_group=1,
                         index_n_heads=self.ih, index_head_dim=self.id, index_topk=4, moe_layer_freq=1,
                         indexer_types=["shared" if shared else "full" for shared in self.shares], num_key_value_heads=self.heads)
        else:
            del model["moe_intermediate_size"]
            model.update(num_local_experts=self.E, intermediate_size=self.F, use_qk_norm=True, qk_norm_type="per_layer",
                         attn_type_list=[1] * self.L, scoring_func="sigmoid", use_routing_bias=True)
        (scratch / f"{name}.json").write_text(json.dumps(model))
        (scratch / "cluster.yaml").write_text(CLUSTER.format(name="c", nodes=2, gpus_per_node=8))
        path = scratch / f"{name}.yaml"
        path.write_text(f"model: ./{name}.json\ncluster: ./cluster.yaml\n"
                        f"parallel: {{expert: {self.EP}, fsdp: {self.EDP}, tensor: {self.TP}, context: {self.CP}, expert_tensor: 1}}\n"
                        f"batch: {{sequences_per_gpu: {self.p}, sequence_length: {self.S}}}\n"
                        "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
                        f"optimizer: distributed\nremat: {'full' if self.full else 'none'}\nschemes: [megatron-alltoall]\n")
        return path


def check_state(job, path, what):
    routed, rest, _ = job.parameters()
    got = {row["component"]: row["bytes"] for row in json.loads(oracle.must("explain", "--job", path, "--format", "json"))}
    shared = routed / job.EDP + rest / (job.DP * job.CP)
    for name, value in {"weights": 2 * (routed + rest), "gradients": 4 * (routed + rest), "optimizer": 8 * shared,
                        "master_weights": 4 * shared}.items():
        oracle.check(abs(got[name] - value) <= 1, f"{what} {name}: {got[name]} for {value}")


def collectives(job):
    """(group, bytes out of one GPU) of one step: every call of every layer."""
    TP, CP, T, b, again = job.TP, job.CP, job.T, 2, int(job.full)
    out = {"tensor_parallel": 0.0, "context_parallel": 0.0}

    def tensor(width, gathers, scatters):
        out["tensor_parallel"] += (TP - 1) / TP * TP * T * width * b * (gathers + scatters)

    def reduced(elements):
        out["tensor_parallel"] += 2 * (TP - 1) / TP * 4 * elements

    for layer in range(job.L):
        if job.kind == "deepseek_v32":
            tensor(job.q, 2 + again, 1)      # into the up projection of queries
            tensor(job.c, 1 + again, 1)      # absorbed: gathered by itself, kept
            tensor(job.rope, 1 + again, 1)
            if not job.shares[layer]:        # the indexer, without gradients
                tensor(job.H, 1 + again, 0)
                tensor(job.q, 1 + again, 0)
        else:
            tensor(job.H, 2 + again, 1)
        tensor(job.H, 1, 1 + again)          # out of attention or DeltaNet
        if job.is_dense(layer) or job.kind != "minimax_m2":
            tensor(job.H, 2 + again, 1)
            tensor(job.H, 1, 1 + again)
        if job.kind == "minimax_m2":
            for _ in range(2 + 2 * again):
                reduced(TP * T)
        if job.delta(layer):
            keys, values = job.nk * job.dk, job.nv * job.dv
            there, back = T * (2 * keys + 2 * values + 2 * job.nv) * b, T * values * b
            out["context_parallel"] += (CP - 1) / CP * (there + back) * (2 + again)
        else:
            out["context_parallel"] += (CP - 1) * T * 2 * job.kv * job.d * b * (3 + again)
    tensor(job.H, 1, 1)  # embedding
    tensor(job.H, 2, 1)  # head
    for _ in range(3):
        reduced(TP * T)
    reduced(job.parameters()[2])
    return out


def check_traffic(job, path, what):
    got = dict.fromkeys(("tensor_parallel", "context_parallel"), 0.0)
    for row in json.loads(oracle.must("explain", "--traffic", "--job", path, "--format", "json")):
        if row["purpose"] in got:
            got[row["purpose"]] += row["step_bytes"]
    for purpose, value in collectives(job).items():
        oracle.check(abs(got[purpose] - value) <= 1e-9 * value + 1, f"{what} {purpose}: {got[purpose]} for {value}")


def projections(name, tensor, model="./times.json"):
    path = scratch / f"{name}.yaml"
    path.write_text(f"model: {model}\ncluster: h200-8x8\nparallel: {{expert: 8, fsdp: 8, tensor: {tensor}, expert_tensor: 1}}\n"
                    "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
                    "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
                    "optimizer: distributed\nremat: full\nschemes: [megatron-alltoall]\n")
    rows = json.loads(oracle.must("plan", "--job", path, "--stack", STACK, "--format", "json"))["rows"]
    return rows[0]["time"]["components"]["attention_projections"]["seconds"]


def check_time():
    """Products of an indexer are made for all tokens of a tensor group by each of its GPUs; four passes under remat full."""
    text = json.loads((root / "sim/models/deepseek-v3.2.json").read_text())
    text.update(num_hidden_layers=4, first_k_dense_replace=1)
    text.pop("num_nextn_predict_layers")
    (scratch / "times.json").write_text(json.dumps(text))
    weights = 1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128
    flops = COEFFICIENTS["peak_flops"] * COEFFICIENTS["dense_flops_share"]
    one, indexer = projections("time1", 1), 4 * 2 * 4096 * 4 * weights / flops
    without = {key: value for key, value in text.items() if not key.startswith("index_")} | {"model_type": "deepseek_v3"}
    (scratch / "without.json").write_text(json.dumps(without))
    got = one - projections("without", 1, "./without.json")
    oracle.check(abs(got / indexer - 1) < 1e-6, f"an indexer's products: {got} for {indexer}")
    (scratch / "half.json").write_text(json.dumps(text | {"indexer_types": ["full", "shared"] * 2}))
    got = projections("half", 1, "./half.json") - projections("without", 1, "./without.json")
    oracle.check(abs(got / (indexer / 2) - 1) < 1e-6, f"two indexers' products in four layers: {got} for {indexer / 2}")
    for tensor in (2, 4, 8):
        got, want = projections(f"time{tensor}", tensor), (one - indexer) / tensor + indexer
        oracle.check(abs(got / want - 1) < 1e-9, f"projections with tensor {tensor}: {got} for {want}")


def check_refusals():
    rng = np.random.default_rng(3)
    for kind, key, words in (("qwen3_next", {"nk": 6, "nv": 12}, "does not divide the 6 key heads of Gated DeltaNet"),
                             ("qwen3_next", {"nk": 2, "nv": 4}, "use a product that does, such as 2"),
                             ("deepseek_v32", {"CP": 2}, "make context 1")):
        job = Job(rng, kind)
        job.TP, job.CP, job.S = 4, 1, 64
        vars(job).update(key)
        done = oracle.call("explain", "--job", job.write("refused"))
        oracle.check(done.returncode != 0 and words in done.stderr, f"{kind} {key}: {done.stderr}")
    for kind in KINDS:  # MaxText's mesh is another matter
        job = Job(rng, kind)
        job.TP, job.CP = 2, 1
        done = oracle.call("explain", "--job", job.write("refused"), "--set", "optimizer=sharded", "--scheme", "gmm", "--set",
                           "parallel.expert_tensor=2", "--set", f"parallel.fsdp={job.EDP // 2}")
        oracle.check(done.returncode != 0 and "make tensor and context 1" in done.stderr, f"{kind} sharded: {done.stderr}")


def check_ring_layers():
    """Keys and values go round the ring in every layer whose scores are over tokens, whatever window it has or heads of its own: as many
    layers of each sort as config.json says, once a micro-batch forward and, with their gradients, twice backward."""
    for name, micro, path in (("step-3.7-flash", 4, root / "tests/models/step-3.7-flash.json"), ("gpt-oss-20b", 2, root / "sim/models/gpt-oss-20b.json")):
        model = json.loads(path.read_text())
        layers, dense = model["num_hidden_layers"], model.get("first_k_dense_replace", 0)
        job = scratch / f"ring_{name}.yaml"
        job.write_text(f"model: {path}\ncluster: h100-8x8\nlibrary_limits: ignore\nparallel: {{expert: 8, fsdp: 0, expert_tensor: 1, context: 2}}\n"
                       f"batch: {{sequences_per_gpu: {micro}, sequence_length: 4096, micro_batches: {micro}}}\n"
                       "optimizer: distributed\nremat: none\nschemes: [megatron-alltoall]\n")
        sent = [row for row in json.loads(oracle.must("explain", "--job", job, "--traffic", "--format", "json")) if row["tensor"] == "keys_values"]
        for where, there in (("MoE layer", layers - dense), ("dense layer", dense)):
            for way, count in (("forward", 1), ("backward", 2)):
                times = sum(row["times"] * row["count"] for row in sent if (row["where"], row["pass"]) == (where, way))
                oracle.check(times == micro * there * count, f"{name}, {where} {way}: {times} for {micro} x {there} x {count}")


for seed in range(cases):
    one = Job(np.random.default_rng(seed), KINDS[seed % len(KINDS)])
    file, text = one.write(f"case{seed}"), f"case {seed} {vars(one)}"
    check_state(one, file, text)
    check_traffic(one, file, text)
check_time()
check_ring_layers()
check_refusals()
oracle.finish(least=5 * cases)
