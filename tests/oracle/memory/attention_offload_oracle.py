#!/usr/bin/env python3
"""Megatron-Core's offloading of attention (core_attn, attn_proj), group by group as its manager has it, written from docs/schemes.md, section
7.17: what a stage's attention holds between the passes and beside an FFN at work, what is copied, where Megatron-Core stops. Grouped and latent
attention, dense layers, experts' modules beside them, pipelines, tensors that are too small; what is refused.

attention_offload_oracle.py SPILLWAY SCRATCH"""
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
oracle = Oracle(str(program), "attention_offload_oracle")
scratch.mkdir(parents=True, exist_ok=True)
LEAST = 1 << 20  # elements
EXPERTS = {"expert_fc1", "moe_act"}
COMMON = dict(vocab_size=64, num_hidden_layers=1, hidden_size=512, tie_word_embeddings=False)


class Stops(Exception):
    """All groups of a pass stay, and they are several."""


def grouped(layers, heads, kv_heads, dim):
    model = dict(COMMON, model_type="generic", num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=dim,
                 num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256)
    return model, dict(query=heads * dim, key=kv_heads * dim, value=kv_heads * dim, output=heads * dim, lse=2 * heads), 0


def latent(layers, dense, heads):
    model = dict(COMMON, model_type="deepseek_v3", num_hidden_layers=layers, first_k_dense_replace=dense, num_attention_heads=heads, num_key_value_heads=heads,
                 q_lora_rank=128, kv_lora_rank=128, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, intermediate_size=1024,
                 moe_intermediate_size=256, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1, moe_layer_freq=1,
                 num_nextn_predict_layers=0)
    return model, dict(query=heads * 48, key=heads * 48, value=heads * 32, output=heads * 32, lse=2 * heads), dense


def passes(stage, stages, micro):
    """(backward, micro-batch) in the order of 1F1B."""
    warm = min(stages - 1 - stage, micro)
    order = [(False, m) for m in range(warm)]
    for m in range(micro - warm):
        order += [(False, m + warm), (True, m)]
    return order + [(True, m) for m in range(micro - warm, micro)]


class Stage:
    """Attention of a stage's layers; sizes in bytes of T tokens, `goes` those that are large enough. layers: is it a MoE layer?"""

    def __init__(self, modules, sizes, goes, layers, order):
        self.modules, self.sizes, self.goes, self.layers, self.order = modules, sizes, goes, layers, order
        self.turn = [m for backward, m in order if backward]
        self.begun, self.done, self.stack = 0, set(), {m: [] for m in self.turn}
        self.held = {}  # (pass, layer) -> bytes
        self.between = self.work = self.copied = 0

    def now(self):
        return sum(self.held.values())

    def front(self):
        return self.turn[self.begun] if self.begun < len(self.turn) else None

    def groups(self, layer):
        return [g for g in ("core_attn", "attn_proj") if g in self.modules] + [g for g in ("expert_fc1", "moe_act") if g in self.modules and self.layers[layer]]

    def stays(self, at, layer, group):
        last = max(l for l in range(len(self.layers)) if group in self.groups(l))
        return layer == last and at in (self.turn[0], self.front())

    def leaves(self, group):
        """(bytes that leave the GPU, bytes that are copied)."""
        if group == "core_attn":
            copied = sum(self.sizes[n] for n in ("query", "key", "value", "output", "lse") if self.goes[n])
            return copied - (self.sizes["output"] if self.goes["output"] else 0), copied
        return (self.sizes["output"],) * 2 if group == "attn_proj" and self.goes["output"] else (0, 0)

    def forward(self, at):
        every = [(layer, g) for layer in range(len(self.layers)) for g in self.groups(layer)]
        if len(every) > 1 and all(self.stays(at, *one) for one in every):
            raise Stops
        for layer in range(len(self.layers)):
            self.held[at, layer] = sum(self.sizes[n] for n in ("query", "key", "value", "output", "lse"))
            for group in self.groups(layer):
                if not self.stays(at, layer, group):
                    gone, copied = self.leaves(group)
                    self.held[at, layer] -= gone
                    self.copied += copied
                    self.stack[at].append((layer, group))
        self.done.add(at)
        self.between = max(self.between, self.now())

    def bring(self, at):
        layer, group = self.stack[at].pop()
        self.held[at, layer] += self.leaves(group)[1]  # the core's output is a tensor of its own now

    def ends(self, at):
        if self.stack[at]:
            self.bring(at)
        elif self.front() in self.done and self.stack[self.front()]:
            self.bring(self.front())

    def backward(self, at):
        self.begun += 1
        for layer in reversed(range(len(self.layers))):
            self.work = max(self.work, self.now())
            for _ in [g for g in self.groups(layer) if g in EXPERTS]:
                self.ends(at)
            for _ in [g for g in self.groups(layer) if g not in EXPERTS]:
                self.ends(at)
            del self.held[at, layer]

    def play(self):
        for backward, m in self.order:
            (self.backward if backward else self.forward)(m)
        assert not self.held and not any(self.stack.values())
        return self


def explained(job, *more):
    return json.loads(oracle.must("explain", "--job", job, *more, "--format", "json"))


def written(name, model, tokens, stages, micro, modules, more=""):
    (scratch / f"{name}.json").write_text(json.dumps(model))
    job = scratch / f"{name}.yaml"
    job.write_text(f"model: {scratch / name}.json\ncluster: h100-8x8\ngpus: {2 * stages}\nparallel: {{expert: 2, fsdp: 1, pipeline: {stages}}}\nremat: none\n"
                   f"batch: {{sequences_per_gpu: {micro}, sequence_length: {tokens}, micro_batches: {micro}}}\noptimizer: distributed\nlibrary_limits: ignore\n"
                   f"schemes: [megatron-alltoall]\noffload_modules: [{', '.join(modules)}]\n{more}")
    return job


def judge(seed):
    draw = random.Random(seed)
    stages, micro = draw.choice([(1, 1), (1, 3), (2, 4), (2, 2), (4, 8)])
    each, tokens = draw.choice([1, 2, 3, 3, 4]), draw.choice([1024, 4096, 8192])
    layers = each * stages
    model, widths, dense = grouped(layers, 16, draw.choice([2, 16]), draw.choice([64, 128])) if seed % 2 else latent(layers, min(draw.randint(0, 2), layers - 1), 16)
    modules = draw.choice([["core_attn"], ["core_attn", "attn_proj"], ["core_attn", "attn_proj"], ["core_attn", "attn_proj", "expert_fc1", "moe_act"], ["core_attn", "moe_act"]])
    sizes = {n: 2 * tokens * w for n, w in widths.items()}
    goes = {n: tokens * (w // 2 if n == "lse" else w) >= LEAST for n, w in widths.items()}
    kinds = [[layer >= dense for layer in range(s * each, (s + 1) * each)] for s in range(stages)]
    what = f"{seed}: {modules}, {stages} stages of {each}, {micro} micro-batches, {tokens} tokens, {dense} dense"
    job = written(f"s{seed}", model, tokens, stages, micro, modules)
    try:
        played = [Stage(modules, sizes, goes, kinds[s], passes(s, stages, micro)).play() for s in range(stages)]
    except Stops:
        done = oracle.call("explain", "--job", job)
        oracle.check(done.returncode == 2 and "Chunk mismatch" in done.stderr, f"{what} stops: {done.stderr}")
        return None
    plain = [Stage([], sizes, goes, kinds[s], passes(s, stages, micro)).play() for s in range(stages)]
    host = [i for i in explained(job, "--traffic") if i["purpose"] == "host_offload" and i["tensor"] in ("query", "key", "value", "core_output", "log_sum_exp", "projection_input")]
    oracle.check(round(sum(i["step_bytes"] for i in host) * stages) == 2 * sum(s.copied for s in played), f"{what}: copies {host}")
    found = {c["component"]: c["bytes"] for c in explained(job)}
    without = {c["component"]: c["bytes"] for c in explained(written(f"w{seed}", model, tokens, stages, micro, []))}
    if found["carries"] != without["carries"]:  # another stage is the fullest
        return sum(s.copied for s in played) > 0
    loss = found.get("saved_activations", 0) + found["staying_attention"] - without.get("saved_activations", 0)
    want = [s.between - p.between for s, p in zip(played, plain)]
    oracle.check(loss in want if stages > 1 else loss == want[0], f"{what}: between the passes {loss}, {want}")
    again = found.get("core_output_again", 0)
    work = found.get("saved_by_other_layers", 0) + again - without.get("saved_by_other_layers", 0)
    want = [s.work - p.work for s, p in zip(played, plain)]
    late = sizes["output"] + sum(v for n, v in sizes.items() if goes[n])
    oracle.check(any(w <= work <= w + again for w in want) if not dense else any(w - late <= work <= w + again for w in want), f"{what}: at work {work}, {want}")
    return sum(s.copied for s in played) > 0


results = [judge(seed) for seed in range(100)]
oracle.check(results.count(None) >= 3 and results.count(True) >= 50 and results.count(False) >= 1, f"the cases say little: {results}")

# Seconds of the copies, both ways, are their bytes at the measured rate of the link, with dense layers and experts' modules too.
BYTES_PER_S = 55.2e9  # docs/schemes.md, 7.17
for name, given, modules in (("grouped", grouped(4, 16, 4, 64)[0], ["core_attn"]), ("latent", latent(4, 2, 16)[0], ["core_attn", "attn_proj"]),
                             ("mixed", latent(5, 1, 16)[0], ["core_attn", "attn_proj", "expert_fc1", "moe_act"])):
    job = written(f"t_{name}", given, 4096, 1, 2, modules)
    host = [i for i in explained(job, "--traffic") if i["purpose"] == "host_offload"]
    row = json.loads(oracle.must("plan", "--job", job, "--stack", "megatron-te-h100-2026-11", "--routing", "uniform", "--format", "json"))["rows"][0]
    seconds = row["time"]["components"]["host_copies"]["seconds"]
    oracle.check(abs(seconds * BYTES_PER_S / sum(i["step_bytes"] for i in host) - 1) < 1e-6, f"{name}: {seconds} s for {host}")

model, _, _ = grouped(4, 16, 4, 64)
mla, _, _ = latent(4, 1, 16)
for name, given, modules, more, words in (
        ("alone", model, ["attn_proj"], "", "refuses attn_proj without core_attn"), ("core", model, ["core_attn"], "remat: selective\n", "core of attention runs again"),
        ("full", model, ["core_attn"], "remat: full\n", "core of attention runs again"), ("up", mla, ["core_attn"], "remat: mla_up_proj\n", "made again"),
        ("recipe", model, ["core_attn", "attn_proj"], "precision: {recipe: tensorwise}\n", "copies of the core's output"),
        ("moe", model, ["core_attn", "moe_act"], "remat: moe\n", "experts run again"), ("norm", model, ["mlp_norm"], "", "not counted")):
    job = written(f"r_{name}", given, 4096, 1, 1, modules, more)
    job.write_text("\n".join(line for line in job.read_text().splitlines() if not (more.startswith("remat") and line == "remat: none")) + "\n")
    done = oracle.call("explain", "--job", job)
    oracle.check(done.returncode == 2 and words in done.stderr, f"{name}: {done.stderr}")
for more in ("remat: moe\n", "remat: [moe_act, layernorm]\n"):
    job = written("t_taken", mla, 4096, 1, 1, ["core_attn", "attn_proj"], more)
    job.write_text(job.read_text().replace("remat: none\n", ""))
    oracle.check(oracle.call("explain", "--job", job).returncode == 0, f"with {more}")
oracle.finish(least=200)
