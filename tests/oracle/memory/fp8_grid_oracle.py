#!/usr/bin/env python3
"""fp8 and fp4 recipes under tensor, context and expert-tensor parallelism (docs/schemes.md, sections 5.10 and 7.12): TransformerEngine's linear
modules in small, as Megatron-Core puts a layer together of them, say which weights a GPU has, which copy of an input waits, and
what every gather sends. Random models, grids, recipes and remat policies; bf16 is the same layer without a recipe.

fp8_grid_oracle.py SPILLWAY SCRATCH ROOT [--cases N]"""
import json
import math
import pathlib
import re
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
cases = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else 40
scratch = scratch / "fp8_grid_oracle"
scratch.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "fp8_grid_oracle")
# recipe, GPU: does a tensor have one scale; copies; multiples of tokens, widths and rows
RECIPES = [("delayed", "h200"), ("tensorwise", "h100"), ("delayed", "b200"), ("tensorwise", "b200"), ("blockwise", "h200"), ("mxfp8", "b200"), ("nvfp4", "b200")]
ALIGN = {"mxfp8": 32, "nvfp4": 128}
NVFP4 = 1 / 2 + 1 / 16  # two numbers a byte, and a byte of scale for 16


class Quantizer:
    """What a recipe makes of a bf16 tensor: bytes an element of the copy by row and of the copy by column."""

    def __init__(self, recipe, gpu):
        self.recipe, self.hopper = recipe, gpu[0] == "h"
        self.per_tensor = recipe in ("delayed", "tensorwise")
        self.copy = NVFP4 if recipe == "nvfp4" else 1 if self.per_tensor else 1 + 1 / 32
        self.written = NVFP4 if recipe == "nvfp4" else 1  # of a copy, as a cast is counted
        self.copies = 1 if self.per_tensor and not self.hopper else 2
        self.weight = self.copies * (NVFP4 if recipe == "nvfp4" else 1 if self.per_tensor else 1 + (4 / 128**2 if recipe == "blockwise" else 1 / 32))

    def sends(self, tokens, width, both):
        """Bytes an element of a gather; both: the products of either pass read it."""
        if self.recipe == "blockwise" and (tokens % 128 or width % 128):
            return 2
        return self.copy * (2 if both and not self.per_tensor else 1)

    def settles(self, tokens, width):
        if self.recipe == "blockwise" and (tokens % 128 or width % 128):
            return 2 + self.copy
        if self.recipe == "nvfp4":
            return 2 * NVFP4  # columns, interleaved as they came
        return 2 if self.recipe == "blockwise" or (self.per_tensor and self.hopper) else 0

    def held(self, tokens, width):
        if self.recipe == "blockwise" and (tokens % 128 or width % 128):
            return 2 + self.copy
        return {"blockwise": 2 + 1 / 32, "mxfp8": 1 + 1 / 32, "nvfp4": 2 * NVFP4}.get(self.recipe, 2 if self.hopper else 1)


class Module:
    """A linear layer; cut: "column", "row", or None where every GPU has all of it. fused: its input is a norm's output, which nobody
    else keeps; original: the bf16 input is kept by another, and Megatron-Core has this module keep it too but under `delayed`."""

    def __init__(self, inputs, outputs, cut, original=False, dropped=True, again=False):
        self.inputs, self.outputs, self.cut, self.original, self.dropped = inputs, outputs, cut, original, dropped
        self.again = again  # its product runs again by itself, by a recompute module

    def weights(self, TP):
        return self.inputs * self.outputs / (TP if self.cut else 1)

    def kept(self, q, TP, T):
        """Bytes more than in bf16 of what waits: the input of T tokens, or TP T with a TP-th of the width."""
        elements = T * self.inputs
        if self.original:
            return elements * q.copy if q.recipe == "delayed" else 0
        return elements * (q.copy - (2 if self.dropped else 0))

    def collectives(self, q, TP, T, again):
        """Wire bytes of a GPU; forward, perhaps again, backward."""
        out, passes = 0, 2 if again or self.again else 1
        if TP == 1 or self.cut is None:
            return 0
        share = (TP - 1) / TP
        scales = 0
        if self.cut == "column":
            out += share * TP * T * self.inputs * ((passes + 1) * q.sends(T, self.inputs, False) + 2)
            scales = passes + (1 if self.original else 0)
        else:
            out += share * TP * T * self.outputs * (2 * passes + q.sends(T, self.outputs, True))
            scales = 1
        return out + (2 * share * 4 * scales if q.recipe in ("tensorwise", "nvfp4") else 0)

    def casts(self, q, TP, T, again):
        """Bytes read and written by casts, and to lay out what was gathered, per GPU."""
        read = 4 if q.recipe in ("tensorwise", "nvfp4") else 2
        mine, inputs = self.outputs / (TP if self.cut == "column" else 1), T * self.inputs
        gradients = (TP if self.cut == "column" else 1) * T * mine
        bytes_ = (read + q.copies * q.written) * (inputs * (2 if again or self.again else 1) + gradients)
        if self.original and q.recipe != "delayed":
            bytes_ += inputs * (2 * (read + q.written) - (read + q.copies * q.written))
        if TP > 1 and self.cut:
            width = self.inputs if self.cut == "column" else self.outputs
            bytes_ += TP * T * width * q.settles(T, width)
        return bytes_


class Case:
    def __init__(self, rng):
        pick = lambda values: values[int(rng.integers(len(values)))]
        self.recipe, self.gpu = pick(RECIPES)
        self.q = Quantizer(self.recipe, self.gpu)
        self.TP, self.CP, self.DP = pick([1, 2, 4]), pick([1, 1, 2]), pick([1, 2])
        if self.TP * self.CP == 1:
            self.TP = 2
        stage = self.TP * self.CP * self.DP
        self.ETP = pick([1, 1, 2]) if stage % 2 == 0 else 1
        self.EP = pick([d for d in (1, 2, 4) if stage % (d * self.ETP) == 0])
        self.EDP, self.stage = stage // self.EP // self.ETP, stage
        self.p, self.S = pick([1, 2]), self.TP * self.CP * 2 * pick([32, 64, 128])
        self.T = self.p * self.S // (self.TP * self.CP)
        unit = 32 * self.TP * self.ETP
        self.H, self.F, self.E, self.K = 32 * pick([4, 5, 8]), unit * pick([1, 2]), self.EP * pick([2, 4]), 2
        self.mla = pick([False, True])
        self.heads, self.kv, self.d = 4 * pick([1, 2]), 4, 32
        self.q_lora, self.kv_lora, self.rope, self.v = pick([128, 96]), pick([128, 64]), 32, 32
        self.shared, self.dense = (pick([0, unit]), pick([0, 1])) if self.mla else (0, 0)
        self.dense_ffn = unit * 2
        self.layers = self.dense + pick([1, 2])
        self.remat = pick(["full", "none", "selective", "moe"] + ["moe_act"] * (self.recipe != "delayed"))
        self.gather = pick([False, True])
        lists = ["mlp", "shared_experts"] + ["mla_up_proj"] * self.mla
        if self.recipe != "delayed":
            lists += ["layernorm", "layernorm+mlp+shared_experts+moe_act"] + ["layernorm+mla_up_proj"] * self.mla
        if pick([False, True]):
            self.remat = pick(lists)
        backends = ["alltoall", "flex", "syncfree:rank_capacity=1.5"] + ["ncclep"] * (self.EP > 1)
        self.scheme = f"megatron-{pick(backends) if self.ETP == 1 else 'alltoall:pay=router'}"
        self.scheme += f"{',' if ':' in self.scheme else ':'}align={ALIGN.get(self.recipe, 16)}"

    def modules(self):
        H, heads, names = self.H, self.heads, self.remat.split("+")
        norms, up = "layernorm" in names, "mla_up_proj" in names
        if self.mla:
            attention = [Module(H, self.q_lora, None, norms, dropped=True), Module(H, self.kv_lora + self.rope, None, norms, dropped=False),
                         Module(self.q_lora, heads * (self.d + self.rope), "column", again=up),
                         Module(self.kv_lora, heads * (self.d + self.v), "column", again=up), Module(heads * self.v, H, "row", original=True)]
        else:
            attention = [Module(H, (heads + 2 * self.kv) * self.d, "column"), Module(heads * self.d, H, "row", original=True)]
        alone, mlp = "shared_experts" in names, "mlp" in names
        shared = [Module(H, 2 * self.shared, "column", not alone, again=alone), Module(self.shared, H, "row", again=alone)]
        shared = shared if self.shared else []
        dense = [Module(H, 2 * self.dense_ffn, "column", again=mlp), Module(self.dense_ffn, H, "row", again=mlp)]
        return attention, shared, dense

    def write(self, name, recipe, **change):
        c = {**vars(self), **change}
        model = dict(model_type="deepseek_v2" if self.mla else "generic", num_hidden_layers=self.layers, hidden_size=self.H, vocab_size=128,
                     num_attention_heads=self.heads, num_key_value_heads=self.kv, head_dim=self.d, num_experts=self.E,
                     num_experts_per_tok=self.K, moe_intermediate_size=self.F)
        if self.mla:
            for key in ("num_experts", "head_dim"):
                del model[key]
            model.update(n_routed_experts=self.E, n_shared_experts=1 if self.shared else 0, intermediate_size=self.dense_ffn,
                         kv_lora_rank=self.kv_lora, q_lora_rank=self.q_lora, qk_nope_head_dim=self.d, qk_rope_head_dim=self.rope,
                         v_head_dim=self.v, first_k_dense_replace=self.dense, tie_word_embeddings=False, topk_method="greedy")
            if self.shared:
                model["n_shared_experts"], self.shared = 1, self.F
        (scratch / f"{name}.json").write_text(json.dumps(model))
        job = scratch / f"{name}.yaml"
        scheme = c["scheme"] if recipe != "none" else re.sub(r"align=\d+", "align=none", c["scheme"])
        scheme = scheme.replace("pay=router,align=none", "align=none")
        job.write_text(f"model: ./{name}.json\ncluster: {self.gpu}:{min(c['stage'], 8)}x{max(c['stage'] // 8, 1)}\n"
                       f"library_limits: ignore\nparallel: {{expert: {self.EP}, fsdp: {c['EDP']}, tensor: {c['TP']}, context: {c['CP']}, expert_tensor: {c['ETP']}}}\n"
                       f"batch: {{sequences_per_gpu: {self.p}, sequence_length: {c['S']}}}\n"
                       f"precision: {{gradients: fp32, optimizer: fp32, recipe: {recipe}"
                       f"{', fp8_param_gather: true' if self.gather and recipe != 'none' else ''}}}\n"
                       f"optimizer: distributed\nremat: {self.remat}\nschemes: [\"{scheme}\"]\n")
        return job


def components(job):
    return {c["component"]: c["bytes"] for c in json.loads(oracle.must("explain", "--job", job, "--format", "json"))}


def near(what, got, want, tolerance=1e-9):
    oracle.check(abs(got - want) <= tolerance * max(abs(want), abs(got)) + 2, f"{what}: {got} for {want}")


def check_memory(case, name, what, attention, shared, dense):
    q, T, TP = case.q, case.T, case.TP
    got, plain = components(case.write(name, case.recipe)), components(case.write(name + "_plain", "none"))
    moe = case.layers - case.dense
    norms = case.layers * (case.q_lora + case.kv_lora if case.mla else 0)  # of MLA's latents, whole
    linear = sum(m.weights(TP) for m in attention) * case.layers + sum(m.weights(TP) for m in shared) * moe
    linear += sum(m.weights(TP) for m in dense) * case.dense + moe * case.E / case.EP * 3 * case.H * case.F / case.ETP + norms
    near(f"{what} weights' copies", got["fp4_weights" if case.recipe == "nvfp4" else "fp8_weights"], linear * q.weight)
    near(f"{what} weights", got["weights"], plain["weights"] - (2 * linear if case.gather else 0))
    for same in ("gradients", "optimizer", "master_weights", "carries", "logits"):
        near(f"{what} {same}", got[same], plain[same])
    lists = case.remat not in ("full", "none", "selective", "moe", "moe_act")  # remat_oracle.py has what they keep
    for part, modules, there in (("attention", attention, True), ("shared_expert", shared, case.shared), ("dense_ffn", dense, case.dense)):
        if there and not lists:
            near(f"{what} {part}", got[part], plain[part] + sum(m.kept(q, TP, T) for m in modules))
    if TP > 1:
        near(f"{what} gathered at the loss", got["gathered_sequence"], 4 * TP * T * case.H)
    oracle.check(("gathered_dense_sequence" in got) == (TP > 1 and case.dense > 0), f"{what}: {sorted(got)}")
    if TP > 1 and case.dense:
        near(f"{what} gathered", got["gathered_dense_sequence"], TP * T * case.H * (q.held(T, case.H) + 2))
    if case.remat != "none":
        return
    kept = sum(m.kept(q, TP, T) for m in attention) * case.layers + sum(m.kept(q, TP, T) for m in shared) * moe
    kept += case.dense * sum(m.kept(q, TP, T) for m in dense)
    near(f"{what} saved", got["saved_activations"], plain["saved_activations"] + kept)


def check_experts(case, name, what):
    """The experts' tensors follow the rows that a GPU holds: those of a job without tensor and context parallelism whose GPUs have
    as many tokens."""
    if case.ETP > 1:
        return
    cut = components(case.write(name, case.recipe))
    whole = components(case.write(name + "_whole", case.recipe, TP=1, CP=1, S=case.T // case.p))
    for part in {k for k in (*cut, *whole) if k.startswith("moe.") or k == "communication_buffers"}:
        near(f"{what} {part}", cut.get(part, 0), whole.get(part, 0))


def check_traffic(case, name, what, attention, shared, dense):
    T, TP, CP = case.T, case.TP, case.CP
    again, moe, repeats = case.remat == "full", case.layers - case.dense, case.remat in ("full", "moe")
    sums = {}
    for row in json.loads(oracle.must("explain", "--traffic", "--job", case.write(name, case.recipe), "--format", "json")):
        sums[row["purpose"]] = sums.get(row["purpose"], 0) + row["step_bytes"]
    want = sum(m.collectives(case.q, TP, T, again) for m in attention) * case.layers
    want += sum(m.collectives(case.q, TP, T, repeats) for m in shared) * moe + sum(m.collectives(case.q, TP, T, again) for m in dense) * case.dense
    share = (TP - 1) / TP
    if case.mla:  # the rotary key, in bf16
        want += share * TP * T * case.rope * 2 * (3 if again else 2) * case.layers
    whole = case.layers * (2 * case.H + (case.H * (case.q_lora + case.kv_lora + case.rope) + case.q_lora + case.kv_lora if case.mla else 0))
    whole += moe * case.E * case.H + case.H
    want += share * (5 * TP * T * case.H * 2 + 2 * 3 * TP * T * 4 + 2 * 4 * whole)
    near(f"{what} tensor_parallel", sums.get("tensor_parallel", 0), want)
    width = case.heads * (case.d + case.rope + case.v) if case.mla else case.kv * 2 * case.d
    ring = (CP - 1) * (3 + (1 if case.remat in ("full", "selective") else 0)) * T * width * 2 * case.layers
    near(f"{what} context_parallel", sums.get("context_parallel", 0), ring)


def check_time(case, name, what, attention, shared, dense):
    if "alltoall" not in case.scheme and "flex" not in case.scheme:
        return
    copy = float(re.search(r"copy_bytes_per_s:\n  value: (\S+)", (root / "sim/megatron_stacks/megatron-h200-2026-11.yaml").read_text()).group(1))

    def timed(recipe, gpu):
        kept, case.gpu = case.gpu, gpu
        job, case.gpu = case.write(name, recipe), kept
        answer = json.loads(oracle.must("plan", "--job", job, "--stack", "megatron-h200-2026-11", "--routing", "uniform", "--format",
                                        "json"))
        return (answer.get("points") or answer.get("rows"))[0]

    point = timed(case.recipe, case.gpu)
    if case.gpu != "h200":  # rates are scaled, all copies alike
        copy *= timed("none", "h200")["time"]["components"]["elementwise"]["seconds"]
        copy /= timed("none", case.gpu)["time"]["components"]["elementwise"]["seconds"]
    text, moe, again = json.dumps(point), case.layers - case.dense, case.remat == "full"
    rows, repeats = (Module(case.H, 2 * case.F, None), Module(case.F, case.H, None)), case.remat in ("full", "moe")
    cast = lambda modules, T, again: sum(m.casts(case.q, case.TP, T, again) for m in modules)
    want = cast(attention, case.T, again) * case.layers + cast(shared, case.T, repeats) * moe + cast(dense, case.T, again) * case.dense
    want += cast(rows, case.T * case.K, repeats) * moe
    if "moe_act" in case.remat:  # of the activation: forward by row; again by column, with one scale a tensor in all copies
        read = 4 if case.recipe in ("tensorwise", "nvfp4") else 2
        again = 1 + (case.q.copies if case.q.per_tensor else 1) - case.q.copies
        want += case.T * case.K * case.F * moe * (read + again * case.q.written)
    got = point["time"]["components"]["fp8_casts"]["seconds"]
    oracle.check(abs(got - want / copy) <= 1e-6 * got, f"{what} casts: {got} s for {want / copy}")
    for words in (f"recipe {case.recipe}: products at", "tensor and context parallelism counted"):
        oracle.check(words in text, f"{what}: no '{words}' in outside_fit")
    oracle.check(point["time"]["low_s"] < point["time"]["step_s"] < point["time"]["high_s"], f"{what}: {point['time']}")


def check_refusals():
    case = Case(np.random.default_rng(0))
    case.TP, case.CP, case.ETP, case.EP, case.stage, case.EDP, case.p, case.recipe, case.gpu = 2, 2, 1, 2, 4, 2, 1, "mxfp8", "b200"
    case.scheme, case.S = "megatron-alltoall:align=32", 4 * 32
    job = case.write("refused", "mxfp8")
    oracle.check(oracle.call("explain", "--job", job).returncode == 0, "32 tokens a GPU")
    for arguments, words in ((["--sequence-length", "64"], "16 tokens of a sequence part, and TransformerEngine takes multiples of 32"),
                             (["--scheme", "megatron-allgather"], "use megatron-alltoall")):
        done = oracle.call("explain", "--job", job, *arguments)
        oracle.check(done.returncode == 2 and words in done.stderr, f"{arguments}: {done.stderr}")


for seed in range(cases):
    case = Case(np.random.default_rng(seed))
    case.write(f"case{seed}", "none")  # a shared expert is as wide as a routed one
    parts = case.modules()
    what = f"case{seed} {case.recipe} {case.gpu} TP {case.TP} CP {case.CP} ETP {case.ETP} {case.remat} {case.scheme}"
    check_memory(case, f"case{seed}", what, *parts)
    check_experts(case, f"case{seed}", what)
    check_traffic(case, f"case{seed}", what, *parts)
    check_time(case, f"case{seed}", what, *parts)
check_refusals()
oracle.finish(least=10 * cases)
