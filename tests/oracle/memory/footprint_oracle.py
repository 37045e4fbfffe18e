#!/usr/bin/env python3
"""The footprint of a GPU, component by component, against a second writing of docs/schemes.md, section 7, and of the published
config.json files. It was written without a look at sim/memory/live/footprint.c. `spillway explain` must give the same bytes for every
preset over splits, pipelines, remat policies, precisions, optimizers and batches.

footprint_oracle.py SPILLWAY SCRATCH ROOT"""
import json
import pathlib
import re
import sys
from dataclasses import dataclass, replace
from fractions import Fraction

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "footprint_oracle"
scratch.mkdir(parents=True, exist_ok=True)
checks = failed = 0
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}
MEGATRON = ("selective", "moe_act", "moe")
# What MaxText's policies keep: names of decoders.py get_remat_policy that a layer's projections carry (7.3).
POLICIES = {"minimal": "qkv out wi", "minimal_with_context": "qkv out wi context", "save_out_proj": "out", "save_qkv_proj": "qkv",
            "save_dot_except_mlp": "qkv out", "save_dot_except_mlpwi": "qkv out"}


def check(good, what):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print(what)


class Model:
    """Shapes and parameters of one layer, from a Hugging Face config.json."""

    def __init__(self, name):
        c = json.loads((root / "sim" / "models" / f"{name}.json").read_text())
        kind = c["model_type"]
        self.name, self.H, self.V, self.L = name, c["hidden_size"], c["vocab_size"], c["num_hidden_layers"]
        self.K = c["num_experts_per_tok"]
        self.E = next(c[k] for k in ("n_routed_experts", "num_experts", "num_local_experts") if k in c)
        self.F = c.get("moe_intermediate_size", c["intermediate_size"])
        self.dense_layers = c.get("first_k_dense_replace", 0)  # the first ones
        self.F_dense = c["intermediate_size"] if self.dense_layers else 0
        self.F_shared = c.get("n_shared_experts", 0) * self.F
        self.heads, H = c["num_attention_heads"], self.H
        self.mla = "kv_lora_rank" in c
        if self.mla:
            self.q_lora, self.kv_lora = c["q_lora_rank"] or 0, c["kv_lora_rank"]
            self.nope, self.rope, self.v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
            q = self.heads * (self.nope + self.rope)
            attention = (H * self.q_lora + self.q_lora + self.q_lora * q) if self.q_lora else H * q  # down, norm, up; or plain
            attention += H * (self.kv_lora + self.rope) + self.kv_lora  # down with the shared rope key, norm
            attention += self.kv_lora * self.heads * (self.nope + self.v) + self.heads * self.v * H
        else:
            self.kv_heads, self.head_dim = c.get("num_key_value_heads", self.heads), c.get("head_dim", H // self.heads)
            q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
            attention = H * q + 2 * H * kv + q * H
            attention += (q + 2 * kv + H + self.heads) if kind == "gpt_oss" else 0  # four biases, a sink a head
            attention += {"qwen3_moe": 2 * self.head_dim, "olmoe": q + kv, "minimax_m2": q + kv,
                          "glm4_moe": q + 2 * kv + (2 * self.head_dim if c.get("use_qk_norm") else 0)}.get(kind, 0)  # norms of q and k; biases
        self.qk_norm = {"qwen3_moe": "head", "olmoe": "all", "minimax_m2": "all",
                        "glm4_moe": "head" if c.get("use_qk_norm") else None}.get(kind)
        expert = 3 * H * self.F + ((2 * self.F + H) if kind == "gpt_oss" else 0)
        router = self.E * H + (self.E if kind in ("gpt_oss", "glm4_moe", "minimax_m2") or c.get("topk_method") == "noaux_tc" else 0)
        self.routed = self.E * expert  # of a layer
        self.router = router
        self.other = attention + 2 * H + 3 * H * self.F_shared + router  # of an MoE layer, experts aside
        self.dense = attention + 2 * H + 3 * H * self.F_dense  # of a dense layer
        assert not c["tie_word_embeddings"]

    def attention_elements(self, megatron, te=False, core_again=False):
        """A of section 7.4; Megatron-Core copies keys and values out of MLA's projection, whose output goes, and TransformerEngine does so
        with GQA's values."""
        if self.mla:
            return (3 * self.H + 2 * self.q_lora + 2 * self.heads * (self.nope + self.rope) + 2 * self.kv_lora + self.rope
                    + self.heads * ((0 if megatron else self.nope) + 2 * self.v))
        return 3 * self.H + (2 if te and not core_again else 3) * (self.heads + self.kv_heads) * self.head_dim

    def weight_shapes(self, dense, moe):
        """Of the linear layers of TransformerEngine, (outputs, inputs)."""
        H, heads = self.H, self.heads
        if self.mla:
            query = heads * (self.nope + self.rope)
            shapes = {(self.q_lora, H), (query, self.q_lora)} if self.q_lora else {(query, H)}
            shapes |= {(self.kv_lora + self.rope, H), (heads * (self.nope + self.v), self.kv_lora), (H, heads * self.v)}
        else:
            shapes = {((heads + 2 * self.kv_heads) * self.head_dim, H), (H, heads * self.head_dim)}
        for width, there in ((self.F, moe), (self.F_shared, moe), (self.F_dense, dense)):
            shapes |= {(2 * width, H), (H, width)} if there and width else set()
        return shapes

    def norms(self, b, te=False):
        """Bytes a token that norms of one layer keep beside A (7.19): two of the stream, those of MLA's latents or those of queries and
        keys, which are a norm a head or one of all heads, 4 bytes each; and a copy of the queries."""
        if self.mla:
            return 4 * (2 + (2 if self.q_lora else 1))
        if not self.qk_norm:
            return 4 * 2
        copied = self.heads + (self.kv_heads if te else 0)  # PyTorch's norm reads the keys where they are
        return 4 * (2 + (self.heads + self.kv_heads if self.qk_norm == "head" else 2)) + copied * self.head_dim * b

    def policy_elements(self, policy, is_moe):
        """Elements a token that a MaxText policy keeps in one layer."""
        if self.mla:
            q = k = self.heads * (self.nope + self.rope)
            v = context = self.heads * self.v
        else:
            q = context = self.heads * self.head_dim
            k = v = self.kv_heads * self.head_dim
        width = {"qkv": q + k + v, "out": self.H, "context": context, "wi": 2 * (self.F_shared if is_moe else self.F_dense)}
        return sum(width[name] for name in POLICIES[policy].split())


@dataclass
class Job:
    expert: int = 8
    fsdp: int = 8
    pipeline: int = 1
    gpus: int = 64
    virtual: int = 1
    sequences: int = 2
    micro: int = 1
    length: int = 4096
    remat: str = "full"
    optimizer: str = "sharded"
    precision: tuple = ("bf16", "bf16", "bf16", "bf16")  # weights, gradients, optimizer, activations
    master: str = ""
    part: str = ""
    layers: int = 0
    fraction: float = 0.93
    schemes: tuple = ("dense:capacity_factor=1.25", "dense:capacity_factor=2", "gmm", "gmm:buffer_factor=1.5", "ring")

    def write(self, model):
        precision = ", ".join(f"{k}: {v}" for k, v in zip(("weights", "gradients", "optimizer", "activations"), self.precision))
        nodes, inside = (self.gpus // 8, 8) if self.gpus > 8 else (1, self.gpus)
        cluster = (root / "sim/clusters/h200-8x8.yaml").read_text()
        cluster = cluster.replace("nodes: 8\n", f"nodes: {nodes}\n").replace("gpus_per_node: 8\n", f"gpus_per_node: {inside}\n")
        (scratch / "cluster.yaml").write_text(cluster)
        text = [f"model: {model.name}", "cluster: ./cluster.yaml",
                f"parallel: {{expert: {self.expert}, fsdp: {self.fsdp}, pipeline: {self.pipeline}, virtual_stages: {self.virtual}}}",
                f"batch: {{sequences_per_gpu: {self.sequences}, sequence_length: {self.length}, micro_batches: {self.micro}}}",
                f"precision: {{{precision}{', master: ' + self.master if self.master else ''}}}", f"remat: {self.remat}",
                f"optimizer: {self.optimizer}", f"memory_fraction: {self.fraction}"]
        text += [f"model_part: {self.part}", f"layers: {self.layers}"] if self.part else []
        path = scratch / "job.yaml"
        path.write_text("\n".join(text) + "\n")
        return path


@dataclass
class Stage:
    """Layers of a pipeline stage, and those whose inputs its passes in flight keep (7.9)."""
    dense: int
    moe: int
    kept_dense: int
    kept_moe: int
    first: bool
    last: bool


def stages(model, job):
    blocks = job.pipeline * job.virtual
    sizes = [model.L // blocks + (i < model.L % blocks) for i in range(blocks)]
    starts = [sum(sizes[:i]) for i in range(blocks)]
    dense = [max(0, min(model.dense_layers - start, size)) for start, size in zip(starts, sizes)]
    for s in range(job.pipeline):
        mine = range(s, blocks, job.pipeline)
        all_dense, all_layers = sum(dense[b] for b in mine), sum(sizes[b] for b in mine)
        flight, now, best = [], [0, 0], (0, 0)
        for backward, chunk in passes(job, s):  # a chunk's forward passes are kept until their backward pass
            b = mine[chunk]
            flight += [-1 if backward else 1]
            sign = flight[-1]
            now = [now[0] + sign * dense[b], now[1] + sign * (sizes[b] - dense[b])]
            best = max(best, tuple(now), key=lambda kept: kept[0] + kept[1])
        yield Stage(all_dense, all_layers - all_dense, *best, s == 0, s == job.pipeline - 1)


def passes(job, stage):
    """(backward, chunk) of a stage in order: its warm-up passes forward, then one forward and one backward in turn, then the rest."""
    P, v, M = job.pipeline, job.virtual, job.micro
    order = [c for group in range(0, M, P) for c in range(v) for _ in range(min(P, M - group))] if v > 1 else [0] * M
    ahead = min(M * v, (2 * (P - 1 - stage) + (v - 1) * P) if v > 1 else P - 1 - stage)
    backward = [v - 1 - c for c in order]
    result = [(False, c) for c in order[:ahead]]
    for i, c in enumerate(order[ahead:]):
        result += [(False, c), (True, backward[i])]
    return result + [(True, c) for c in backward[len(order) - ahead:]]


def live_set(model, job, scheme, T, b):
    """Greatest sum of a layer's tensors inside recompute and backward, and what a layer saves without remat (1.3, 2.2, 5.2)."""
    N, H, F, E = T * model.K, model.H, model.F, model.E
    name, _, option = scheme.partition(":")
    factor = Fraction(re.search(r"factor=([\d.]+)", option)[1]) if option else 0
    if name == "dense":
        C = int(max(-(-job.length * model.K // E) * factor, factor))
        D = T // job.length * E * C
        recomputed = 2 * D * H + 3 * D * F + 2 * T * E * C
        return max(3 * D * H + 3 * D * F + 3 * T * E * C, recomputed) * b, recomputed * b
    if name == "gmm":
        rows = int(N * factor) if factor else job.expert * T * min(E // job.expert, model.K)
        return (3 * rows * H + 3 * rows * F + 2 * N * H) * b, (rows * H + 3 * rows * F + N * H) * b
    if name == "megatron-alltoall" and 2 * F <= H and E > job.expert:
        saved = N * (H + 3 * F) * b + 4 * N + T * (17 * E + 4 * model.K) + 8 * N
        if job.remat == "moe_act":
            return None, saved - N * F * b
        return saved + 4 * N * H * b + 4 * N, saved
    return None, None


def state(model, job, stage):
    """Weights, gradients, master weights and moments of one GPU (7.1, 7.8)."""
    w, g, o = (BYTES[p] for p in job.precision[:3])
    routed = stage.moe * model.routed
    rest = stage.moe * model.other + stage.dense * model.dense
    rest += (model.V * model.H if stage.first else 0) + (model.V * model.H + model.H if stage.last else 0)
    whole, gpus = Fraction(routed, job.expert) + rest, job.expert * job.fsdp
    held = {"sharded": Fraction(routed + rest, gpus)}.get(job.optimizer, whole)
    shared = whole if job.optimizer == "replicated" else Fraction(routed + rest, gpus)
    master = 0 if job.optimizer == "sharded" else 4 if w < 4 else 0
    master = BYTES[job.master] if job.master in BYTES else 0 if job.master == "none" else master
    return {"weights": held * w, "optimizer": 2 * shared * o, "master_weights": shared * master, "gradients": held * g}


def whole_model(model, job, stage, scheme, live, saved):
    """Components by name, each with the moments at which it lives: m(oe), d(ense), l(oss)."""
    w, g, _, b = (BYTES[p] for p in job.precision)
    T, H = job.sequences // job.micro * job.length, model.H
    parts = {name: (value, "mdl") for name, value in state(model, job, stage).items()}
    if job.optimizer == "sharded":
        experts = model.routed if "gathered" in scheme else Fraction(model.routed, job.expert) * (job.fsdp > 1)
        several = job.expert * job.fsdp > 1
        parts["gathered_expert_weights"] = (2 * experts * w, "m")
        parts["expert_weight_gradients"] = (experts * g, "m")
        parts["gathered_other_weights"] = (2 * model.other * w * several, "m")
        parts["gathered_dense_weights"] = ((2 * w + g) * model.dense * several, "d")
    megatron = job.optimizer != "sharded" or scheme.startswith("megatron")
    te = scheme.startswith("megatron")  # on Hopper
    lse = 4 * model.heads + (model.norms(b, te) if megatron else 0)
    elements = model.attention_elements(megatron, te, job.remat == "selective")
    attention, shared, ffn = T * (elements * b + lse), 3 * T * model.F_shared * b, 3 * T * model.F_dense * b
    parts["carries"] = ((stage.kept_dense + stage.kept_moe) * T * H * b, "mdl")
    parts["attention"] = (attention, "md")
    parts["shared_expert"] = (shared, "m")
    parts["dense_ffn"] = (4 * T * model.F_dense * b, "d")
    each = (b + 4 if b < 4 else 4) if megatron else 2 * b  # Megatron-Core's softmax in fp32, in the place of logits in fp32
    parts["logits"] = (each * T * model.V, "l") if stage.last else (0, "")
    if megatron:  # 7.19; the GPUs are of Hopper's generation
        parts["cublas_workspaces"] = (2 * 32 * 2 ** 20 if stage.last or not te else 0, "mdl")
        parts["final_norm"] = (T * (2 * H * b + 4), "l") if stage.last else (0, "")
        if runs_again(job, scheme):
            one = T * (5 * model.E + 8 * model.K)
            parts["dispatchers"] = ((stage.moe - 1) * one if stage.moe else 0, "mdl")
            parts["last_dispatcher"] = (one if stage.moe else 0, "dl")  # of the layer at work it is among its tensors
    if te:
        parts["te_workspaces"] = ((1 + (4 if stage.moe else 0)) * (32 * 2 ** 20 + 1024), "mdl")
        head = model.V * H if stage.last else 0
        parts["unfilled_gradients"] = ((sum(x * y for x, y in model.weight_shapes(stage.dense, stage.moe)) + head) * b, "mdl")
        between, several = T * H * b * (job.pipeline > 1), job.virtual > 1
        parts["stage_received_ahead"] = (2 * between * several, "mdl")
        for name, times in (("stage_output_gradient", "mdl"), ("stage_output", "l")):
            parts[name] = (between * (not stage.last or several), times)
        for name, times in (("stage_input_gradient", "mdl"), ("stage_input_before", "l")):
            parts[name] = (between * (not stage.first or several) * (job.micro > 1), times)
    parts["live"] = (live, "m")
    if job.remat in POLICIES:
        kept = (stage.kept_moe * model.policy_elements(job.remat, True) + stage.kept_dense * model.policy_elements(job.remat, False))
        parts["saved_by_policy"] = (kept * T * b, "mdl")
    if job.remat == "none" or job.remat in MEGATRON:
        core = attention - (T * 4 * model.heads if job.remat == "selective" else 0)
        moe = core + (0 if job.remat == "moe" else shared + saved)
        dense = core + ffn
        everything = stage.kept_moe * moe + stage.kept_dense * dense
        parts["saved, MoE"] = (everything - moe, "m")
        parts["saved, dense"] = (everything - dense, "d")
        parts["saved, loss"] = (everything, "l")
    return parts


# PyTorch frees what a layer kept when its backward pass ends; a program of MaxText keeps the stack of all layers (7.9).
FREED = ("megatron", "megablocks")
WAITING = ("carries", "saved_", "kept_by_policy", "moe_layers_left")


def runs_again(job, scheme):
    """Of Megatron-Core's own dispatchers, where MoE layers run again: what they leave behind (7.19)."""
    return scheme.startswith("megatron-") and job.remat not in ("none", "selective", "moe_act")


def waits(model, job, index, scheme, saved):
    """Of a stage whose layers are freed one by one: (moment, bytes that wait) of every layer's backward pass and every loss, by running
    its passes with a list of what is alive."""
    T, b = job.sequences // job.micro * job.length, BYTES[job.precision[3]]
    blocks = job.pipeline * job.virtual
    sizes = [model.L // blocks + (i < model.L % blocks) for i in range(blocks)]
    alive = []  # [chunk, layer, input, residuals]
    left = set(range(model.dense_layers, model.L)) if runs_again(job, scheme) else None  # by the step before
    left = left and {layer for layer in left if sum(layer >= sum(sizes[:block + 1]) for block in range(blocks)) % job.pipeline == index}
    for backward, chunk in passes(job, index):
        block = chunk * job.pipeline + index
        layers = range(sum(sizes[:block]), sum(sizes[:block + 1]))
        if not backward:
            for layer in layers:
                is_moe = layer >= model.dense_layers
                (left or set()).discard(layer)
                policy = model.policy_elements(job.remat, is_moe) if job.remat in POLICIES else 0
                residuals = 0
                if job.remat == "none" or job.remat in MEGATRON:
                    megatron = job.optimizer != "sharded" or scheme.startswith("megatron")
                    te = scheme.startswith("megatron")
                    attention = model.attention_elements(megatron, te, job.remat == "selective") * b
                    attention += 0 if job.remat == "selective" else 4 * model.heads
                    attention += model.norms(b, te) if megatron else 0
                    ffn = model.F_shared * (job.remat != "moe") if is_moe else model.F_dense
                    residuals = T * (attention + 3 * ffn * b) + (saved if is_moe and job.remat != "moe" else 0)
                alive.append([chunk, layer, T * (model.H + policy) * b, residuals])
            if index == job.pipeline - 1 and chunk == job.virtual - 1:
                yield "l", sum(a[2] + a[3] for a in alive) + len(left or ()) * 2 * T * model.H * b
            continue
        for layer in reversed(layers):
            at = next(i for i, a in enumerate(alive) if a[:2] == [chunk, layer])
            alive[at][3] = 0  # at work now
            (left or set()).discard(layer)
            yield "m" if layer >= model.dense_layers else "d", sum(a[2] + a[3] for a in alive) + len(left or ()) * 2 * T * model.H * b
            if left is not None and layer >= model.dense_layers:
                left.add(layer)
            del alive[at]


def bare_layers(model, job, live, saved):
    """Expert layers alone (7.10), biases included."""
    w, g, _, b = (BYTES[p] for p in job.precision)
    T, H, L = job.sequences * job.length, model.H, job.layers
    experts = Fraction(model.routed, job.expert)
    held = L * (experts + model.router + H)
    parts = {"weights": held * w, "gradients": held * g, "inputs": 2 * T * H * b, "expert_weight_gradients": experts * w, "live": live}
    parts["block_outputs"] = L * T * H * b
    if job.remat == "none":
        parts["norm_outputs"] = L * T * H * b
        parts["saved, MoE"] = (L - 1) * saved
    return {name: (value, "m") for name, value in parts.items()}


def best(model, job, scheme, live, saved):
    """The stage and the moment whose sum is greatest: (sum, moment, components)."""
    found = []
    if job.part:
        parts = bare_layers(model, job, live, saved)
        return sum(value for value, _ in parts.values()), "m", parts
    for index, stage in enumerate(stages(model, job)):
        parts = whole_model(model, job, stage, scheme, live, saved)
        if scheme.startswith(FREED):
            parts = {name: part for name, part in parts.items() if not name.startswith(("carries", "saved"))}
            for moment, waiting in waits(model, job, index, scheme, saved):
                found.append((sum(value for value, when in parts.values() if moment in when) + waiting, moment,
                              {**parts, "waiting": (waiting, moment)}))
            continue
        for moment in "m" * (stage.moe > 0) + "d" * (stage.dense > 0) + "l" * stage.last:
            found.append((sum(value for value, when in parts.values() if moment in when), moment, parts))
    return max(found, key=lambda f: f[0])


def hold(model, job, scheme, rows, where):
    """Every component that `explain` prints of one scheme, and the sum of those at the peak."""
    T, b = job.sequences // job.micro * job.length, BYTES[job.precision[3]]
    got = {row["component"]: row for row in rows}
    printed = sum(row["bytes"] for row in rows if row["component"].startswith("moe."))
    buffers = sum(row["bytes"] for row in rows if "buffer" in row["component"])
    live, saved = live_set(model, job, scheme, T, b)
    if live is None:  # the tensors of this scheme are held by scheme_oracle.py
        live = printed
    elif printed:
        check(printed == live, f"{where}: the layer's tensors take {printed} bytes, by the document {live}")
    if saved is None and (job.remat == "none" or job.remat in ("selective", "moe_act")):
        return
    peak, moment, parts = best(model, job, scheme, live, saved)
    total = sum(row["bytes"] for row in rows if row["at_peak"] == "yes")
    check(abs(total - buffers - peak) < 1, f"{where}: the peak is {total - buffers:.1f}, by the document {float(peak):.1f} at {moment}")
    for name, (value, when) in parts.items():
        if name == "live" or name.startswith("saved, "):
            continue
        if name == "waiting":
            there = sum(row["bytes"] for other, row in got.items() if other.startswith(WAITING) and row["at_peak"] == "yes")
            check(abs(there - value) < 1, f"{where}: {there:.1f} wait for their backward pass, by the document {float(value):.1f}")
            got = {other: row for other, row in got.items() if not other.startswith(WAITING)}
            continue
        row = got.pop(name, {"bytes": 0, "at_peak": "no"})
        check(abs(row["bytes"] - value) < 1 or (moment not in when and row["bytes"] == 0),
              f"{where}: {name} takes {row['bytes']:.1f}, by the document {float(value):.1f}")
        check(value == 0 or (row["at_peak"] == "yes") == (moment in when), f"{where}: {name} at the peak: {row['at_peak']}")
    kept = sum(row["bytes"] for name, row in got.items() if name.startswith("saved_") and row["at_peak"] == "yes")
    want = sum(value for name, (value, when) in parts.items() if name.startswith("saved, ") and moment in when)
    check(abs(kept - want) < 1, f"{where}: the other layers keep {kept:.1f}, by the document {float(want):.1f}")
    unknown = [name for name in got if not name.startswith(("moe.", "saved_")) and "buffer" not in name]
    check(not unknown, f"{where}: components that the document does not know: {unknown}")


def explain(job, path, scheme_list, form, *arguments):
    command = [program, "explain", "--job", path, "--format", form, *arguments] + [a for s in scheme_list for a in ("--scheme", s)]
    done = caller.call(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{job}: {done.stderr}")
    return done.stdout


def verdict(model, job, path, rows, scheme):
    """fits, tight or oom against memory_fraction of the GPU's memory, which the cluster's file states."""
    line = re.search(r"^peak .* of ([\d.]+) GiB: (?:live )?(\w+)", explain(job, path, [scheme], "table"), re.M)
    hbm = float(re.search(r"hbm_gib:\s+value: ([\d.]+)", (root / "sim/clusters/h200-8x8.yaml").read_text())[1])
    budget = job.fraction * hbm * 2**30
    peak = sum(row["bytes"] for row in rows if row["at_peak"] == "yes")
    check(line and abs(float(line[1]) - budget / 2**30) < 0.006, f"{model.name}: the budget {line and line[1]}, not {budget / 2**30:.2f}")
    want = "oom" if peak > budget else "tight" if peak > 0.95 * budget else "fits"
    check(line and line[2] == want, f"{model.name}: {line and line[2]}, not {want}")


megatron = dict(optimizer="distributed", schemes=("megatron-alltoall", "megablocks"), precision=("bf16", "fp32", "fp32", "bf16"))
JOBS = [
    Job(), Job(sequences=1), Job(sequences=8), Job(sequences=4, length=1024), Job(expert=4, fsdp=16), Job(fsdp=1, pipeline=8),
    Job(expert=2, fsdp=32, remat="none"), Job(remat="none"), Job(remat="none", sequences=6, micro=3), Job(micro=2),
    Job(fsdp=4, pipeline=2, sequences=8, micro=8), Job(fsdp=2, pipeline=4, sequences=4, micro=2, remat="none"),
    Job(fsdp=2, pipeline=4, sequences=8, micro=8, remat="minimal"), Job(fsdp=4, pipeline=2, virtual=2, sequences=8, micro=4),
    *(Job(remat=policy) for policy in POLICIES),
    Job(precision=("fp32", "fp32", "fp32", "fp32")), Job(precision=("fp8", "bf16", "fp32", "bf16")), Job(master="fp32"),
    *(Job(**{**megatron, "optimizer": "replicated", "master": master}) for master in ("", "none", "bf16", "auto")),
    Job(**{**megatron, "precision": ("bf16", "bf16", "fp32", "fp16")}), Job(**{**megatron, "precision": ("fp32",) * 4}),
    *(Job(**megatron, remat=remat) for remat in ("full", "none")),
    *(Job(**{**megatron, "schemes": ("megatron-alltoall",)}, remat=remat) for remat in MEGATRON),
    Job(**megatron, fsdp=2, pipeline=4, sequences=1), Job(**megatron, fsdp=2, pipeline=4, sequences=8, micro=8), Job(**megatron, fsdp=2, pipeline=4, sequences=8, micro=8, remat="none"),
    Job(expert=1, fsdp=1, gpus=1, length=512, schemes=("dense:capacity_factor=1.25", "gmm")), Job(expert=2, fsdp=2, gpus=4), Job(schemes=("dense:capacity_factor=1,layout=gathered",)),
    *(Job(expert=64, fsdp=1, remat=remat, schemes=("dense:capacity_factor=0.25",)) for remat in ("full", "none", "minimal")),
    *(Job(expert=2, fsdp=1, pipeline=32, sequences=4, micro=4, remat=remat) for remat in ("full", "none", "minimal")),
    *(Job(expert=1, fsdp=1, pipeline=16, gpus=16, sequences=4, micro=4, remat=remat, schemes=("dense:capacity_factor=0.25",))
      for remat in ("full", "none")),
    Job(part="expert_layers", layers=3, expert=64, fsdp=1), Job(part="expert_layers", layers=2, expert=64, fsdp=1, remat="none"),
]

# The families that Model above describes, each part of them; the parameters of the others are held by tests/models.
DESCRIBED = {"deepseek_v2", "deepseek_v3", "kimi_k2", "generic", "gpt_oss", "mixtral", "olmoe", "qwen3_moe", "glm4_moe", "minimax_m2"}
for path in sorted((root / "sim" / "models").glob("*.json")):
    if json.loads(path.read_text())["model_type"] not in DESCRIBED or path.stem == "glm-4.5":
        continue
    model = Model(path.stem)
    for number, job in enumerate(JOBS):
        if model.E % job.expert or model.L < job.pipeline * job.virtual:
            continue
        file = job.write(model)
        rows = json.loads(explain(job, file, job.schemes, "json"))
        if job.pipeline > 1 and job.micro == 1 and job.optimizer == "sharded":  # a pipeline of MaxText has as many micro-batches as stages
            job = replace(job, micro=job.pipeline, sequences=job.sequences * job.pipeline)
        for scheme in job.schemes:
            mine = [row for row in rows if row["scheme"] == scheme]
            hold(model, job, scheme, mine, f"{model.name}, job {number} ({scheme}, {job.remat})")
        if number % 3 == 0:
            verdict(model, job, file, mine, scheme)
model, job = Model("olmoe-1b-7b"), Job()  # several batches and schemes at once are those batches and schemes, one by one
file = job.write(model)
several = json.loads(explain(job, file, ("gmm", "ring"), "json", "--sequences-per-gpu", "1,3"))
for sequences in (1, 3):
    job.sequences = sequences
    for scheme in ("gmm", "ring"):
        rows = [row for row in several if row["scheme"] == scheme and row["sequences_per_gpu"] == sequences]
        check(len(rows) > 10, f"{len(rows)} components of {scheme} with {sequences} sequences")
        hold(model, job, scheme, rows, f"{scheme}, {sequences} of 1,3 sequences")
print(f"{checks} checks, {failed} failed")
sys.exit(1 if failed or checks < 5000 else 0)
