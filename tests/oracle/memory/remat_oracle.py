#!/usr/bin/env python3
"""Lists of Megatron-Core's recompute modules, on random models (MLA and GQA, layers without experts, shared experts), batches and
pipelines, in bf16 and under fp8 recipes: every tensor that a layer keeps, with the module that computes it again (docs/schemes.md,
sections 5.2, 7.3, 7.4 and 7.12), summed over the layers in flight. What waits, what is live beside a MoE layer, a dense layer, the loss and attention at work, the peak;
and what Megatron-Core's own layers hold on a CPU (megatron_cpu_modules.csv). Written from the document.

remat_oracle.py SPILLWAY SCRATCH ROOT [--cases N]"""
import csv
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from replay_case import CLUSTER

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
cases = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else 60
folder = scratch / "remat_oracle"
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "remat_oracle")
# recipe, kind of GPU, bytes an element of a waiting copy, rows of an expert are a multiple of
RECIPES = (("delayed", "hopper", 1, 16), ("delayed", "blackwell", 1, 16), ("tensorwise", "hopper", 1, 16),
           ("blockwise", "hopper", 1 + 4 / 128, 16), ("mxfp8", "blackwell", 1 + 1 / 32, 32))
MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")


class Case:
    def __init__(self, rng):
        pick = lambda *values: int(rng.choice(values))
        self.mla, self.local = pick(0, 1, 1) == 1, pick(0, 0, 1) == 1
        self.local = self.local and not self.mla  # the local spec is described for GQA
        self.R = pick(1, 2, 4)
        self.E, self.K = self.R * pick(2, 4), pick(1, 2)
        self.H, self.F, self.dense_F, self.shared = 64 * pick(1, 2), 8 * pick(1, 2, 4), 32 * pick(1, 5, 40), pick(0, 1, 2)
        self.heads, self.kv, self.D = 4 * pick(1, 2), 4, 16 * pick(1, 2)
        self.q_lora, self.kv_lora, self.nope, self.rope, self.v = pick(0, 24, 48), 16 * pick(1, 2), 16 * pick(1, 4), 8, 16 * pick(1, 3)
        self.p, self.S = pick(1, 2), 64 * pick(1, 2)
        self.stages, self.micro = pick(1, 1, 2), pick(1, 2, 4)
        self.L = self.stages * pick(2, 3)
        self.first_dense = pick(0, 1, 1, self.L - 1)
        free = [m for m in MODULES if m != "mla_up_proj" or self.mla]
        self.modules = {m for m in free if pick(0, 1)} or {"layernorm"}
        if "moe" in self.modules:
            self.modules -= {"moe_act", "shared_experts"}
        self.plain()
        if pick(0, 1) and not self.local:
            self.recipe, self.gpu, self.c, self.align = RECIPES[pick(*range(len(RECIPES)))]
            self.F, self.S = 32 * pick(1, 2), 128 * pick(1, 2)
            if self.recipe == "delayed":  # which Megatron-Core refuses with these
                self.modules = self.modules - {"moe_act", "layernorm"} or {"shared_experts"}

    def plain(self):
        self.recipe, self.gpu, self.c, self.align = "none", "other", 2, "none"

    def write(self, remat):
        model = dict(model_type="generic", hidden_size=self.H, moe_intermediate_size=self.F, num_attention_heads=self.heads, vocab_size=64,
                     num_experts=self.E, num_experts_per_tok=self.K, num_hidden_layers=self.L, tie_word_embeddings=False,
                     first_k_dense_replace=self.first_dense, intermediate_size=self.dense_F, n_shared_experts=self.shared)
        model |= (dict(q_lora_rank=self.q_lora or None, kv_lora_rank=self.kv_lora, qk_nope_head_dim=self.nope, qk_rope_head_dim=self.rope,
                       v_head_dim=self.v) if self.mla else dict(head_dim=self.D, num_key_value_heads=self.kv))
        (folder / "model.json").write_text(json.dumps(model))
        (folder / "cluster.yaml").write_text(CLUSTER.format(name="case", nodes=1, gpus_per_node=self.R * self.stages) +
                                                   f"gpu_generation: {self.gpu}\n")
        (folder / "job.yaml").write_text(
            f"model: ./model.json\ncluster: ./cluster.yaml\nremat: {remat}\nattention: {'unfused' if self.local else 'flash'}\n"
            f"parallel: {{expert: {self.R}, fsdp: 1, pipeline: {self.stages}}}\noptimizer: distributed\n"
            f"batch: {{sequences_per_gpu: {self.p * self.micro}, sequence_length: {self.S}, micro_batches: {self.micro}}}\n"
            f"precision: {{weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16, recipe: {self.recipe}}}\n"
            f"schemes: [\"megatron-alltoall{'' if self.recipe == 'none' else f':align={self.align}'}\"]\n")
        return folder / "job.yaml"

    def tensors(self, moe):
        """(part, bytes, modules that compute it again) of what a layer keeps, the routed experts' and its input aside."""
        T, one = self.p * self.S, lambda elements: 2 * self.p * self.S * elements
        read = lambda elements: self.c * self.p * self.S * elements  # the input of a linear layer that nobody else keeps
        fp8, rstd = self.recipe != "none", 4 * T
        separate = {"layernorm"} if self.mla or self.local else set()  # else a part of the product that reads it
        if fp8 and self.mla:  # cast for the keys and for the queries; a query projection without a rank is an up projection
            yield "attention", read(self.H), {"layernorm"}
            yield "attention", read(self.H), {"layernorm"} if self.q_lora else {"mla_up_proj"}
            if not self.q_lora and "mla_up_proj" in self.modules:
                yield "attention", one(self.H), {"layernorm"}
            yield "attention", rstd, {"layernorm"}
        else:
            yield "attention", read(self.H) + rstd, separate
        yield "attention", one(self.H), set()  # the residual stream
        if moe or self.local or not fp8:
            yield "norm", one(self.H) + rstd, {"layernorm"} if moe or self.local else {"mlp"}
        else:
            yield "norm", read(self.H) + rstd, {"mlp"}
        if self.recipe == "delayed":  # the output projection's own copy
            yield "attention", read(self.heads * (self.v if self.mla else self.D)), set()
        if self.mla:
            key, up = self.heads * (self.nope + self.rope), {"mla_up_proj"}
            for elements, again in ((self.q_lora, set()), (self.kv_lora + self.rope, set()),
                                    (key, up), (key, up), (self.heads * self.v, up), (self.heads * self.v, set())):
                yield "attention", one(elements), again
            yield "attention", read(self.q_lora + self.kv_lora) + (2 if self.q_lora else 1) * rstd, up
        else:
            query, key = self.heads * self.D, self.kv * self.D
            # Keys and values that heads share are repeated by the local spec; when the core runs again its input waits instead.
            repeats = self.local and key < query and "core_attn" not in self.modules
            # TransformerEngine copies the values, so that the fused product of queries, keys and values is let go.
            copies = not self.local and self.gpu in ("hopper", "blackwell") and "core_attn" not in self.modules
            yield "attention", one(4 * query if repeats else 2 * (query + key) if copies else 3 * (query + key)), set()
        if self.local:
            yield "scores", 6 * self.p * self.heads * self.S**2, {"core_attn"}
            yield "attention", 4 * 2 * T * self.D, set()  # cosine and sine
        else:
            yield "log-sum-exp", 4 * self.heads * T, {"core_attn"}
        if moe:
            yield "ffn", self.shared_bytes(), {"shared_experts", "moe"}
        else:
            yield "ffn", one(2 * self.dense_F) + read(self.dense_F), {"mlp"}

    def shared_bytes(self):
        """Both of the first product, and the activation; its input in fp8 under delayed alone."""
        T, width = self.p * self.S, self.shared * self.F
        return T * width * (4 + self.c) + (self.c * T * self.H if self.recipe == "delayed" and self.shared else 0)

    def kept(self, moe):
        return sum(size for _, size, again in self.tensors(moe) if not again & self.modules)

    def at_work(self):
        """Of the attention of a layer whose FFN runs backward: what was kept, and the norm that the FFN reads."""
        return sum(size for part, size, again in self.tensors(True)
                   if part in ("norm", "log-sum-exp") or part == "attention" and not again & self.modules)

    def norm_at_work(self):
        """Bytes an element of MLA's normed input while the core's inputs and gradients are there: its copies, or, of a norm that is run
        again, the bf16 tensor that the down projections keep; a query projection without a rank has its own copy by then."""
        if self.recipe == "none":
            return 2
        again = "layernorm" in self.modules
        keys, queries = 0 if again else self.c, self.c if not (again and self.q_lora) else 0
        return keys + queries + (2 if again or not self.q_lora else 0)

    def experts(self):
        """5.2, all ranks alike."""
        N, T = self.p * self.S * self.K, self.p * self.S
        act = 0 if "moe_act" in self.modules else self.F
        whole = N * (self.c * (self.H + act) + 4 * self.F) + 4 * N + T * (17 * self.E + 4 * self.K) + 8 * N
        return 0 if "moe" in self.modules else whole

    def stage(self, index):
        """Layers without and with experts, and how many of them the passes in flight keep."""
        size = self.L // self.stages
        dense = max(0, min(self.first_dense - index * size, size))
        flight = min(self.micro, self.stages - index)
        return dense, size - dense, flight


def hold(case, what):
    remat = rng_form(case)
    got = {row["component"]: row for row in json.loads(
        oracle.must("explain", "--job", case.write(remat), "--format", "json"))}
    live = sum(row["bytes"] for row in got.values() if row["component"].startswith("moe."))
    peaks = []
    for index in range(case.stages):
        dense, moe, flight = case.stage(index)
        waiting = flight * (dense * case.kept(False) + moe * (case.kept(True) + case.experts()))
        peaks.append((dense, moe, flight, waiting))
    total = sum(row["bytes"] for row in got.values() if row["at_peak"] == "yes")
    T = case.p * case.S
    state = sum(got[name]["bytes"] for name in ("weights", "gradients", "optimizer", "master_weights", "fp8_weights", "fp8_histories")
                if name in got)
    # The stage that explain shows is known by its carries, and by its waiting layers.
    shown = [(d, m, f, w) for d, m, f, w in peaks if abs(got["carries"]["bytes"] - f * (d + m) * T * case.H * 2) < 1]
    named = {key: got[key]["bytes"] if key in got else 0 for key in
             ("saved_activations", "saved_rows", "saved_by_other_layers", "saved_beside_dense_layer", "attention", "attention_again",
              "shared_expert", "dense_ffn")}
    fits = [s for s in shown if abs(named["saved_activations"] + named["saved_rows"] - s[3]) < 2]
    oracle.check(bool(fits), f"{what} {vars(case)}: {named['saved_activations']} + {named['saved_rows']} wait, by the document {shown}")
    if not fits:
        return None
    dense, moe, flight, waiting = fits[0]
    oracle.check(abs(named["attention"] - case.at_work()) < 2,
                 f"{what} {vars(case)}: attention {named['attention']}, by the document {case.at_work()}")
    shared = 0 if "shared_experts" in case.modules else case.shared_bytes()
    oracle.check(named["shared_expert"] == shared, f"{what}: shared expert {named['shared_expert']} for {shared}")
    if "mla_up_proj" in case.modules:
        key, value, latent = case.heads * (case.nope + case.rope), case.heads * case.v, case.q_lora + case.kv_lora
        # of its layer, norms of the FFN gone
        kept = T * (case.norm_at_work() * case.H + (2 + case.c) * latent + 2 * (case.rope + 2 * key + 2 * value) + 4 * case.heads)
        gradients = 2 * T * (case.H + 2 * key + 2 * value)
        oracle.check(abs(named["attention_again"] - kept - gradients) < 2, f"{what}: attention again {named['attention_again']}")
    else:
        oracle.check("attention_again" not in got, f"{what}: attention again")
    # Moments: the other layers wait, one is at work.
    buffers = sum(got[name]["bytes"] for name in ("scores_buffer", "attention_mask", "cublas_workspaces", "te_workspaces", "unfilled_gradients", "stage_output_gradient",
                                          "stage_input_gradient", "communication_buffers")
                  if name in got)
    one_dispatcher = T * (5 * case.E + 8 * case.K) if "moe" in case.modules and moe else 0
    left = moe * 4 * T * case.H if "moe" in case.modules else 0
    always, at_work = state + got["carries"]["bytes"] + buffers + max(moe - 1, 0) * one_dispatcher, named["attention"]
    at_work += sum(size for part, size, again in case.tensors(True) if part == "scores" and not again & case.modules)
    core = sum(got[name]["bytes"] for name in ("scores_at_work", "attention_inputs", "attention_gradients", "attention_again") if name in got)
    moments = []
    # Dense layers come first: when one runs backward the MoE layers of its pass have given back what they kept, inputs too.
    behind = moe * (case.kept(True) + case.experts() + T * case.H * 2)
    for layers, one, more, gone, attends in (
            (moe, case.kept(True) + case.experts(), shared + live, 0, True),
            (dense, case.kept(False), T * ((6 + case.c) * case.dense_F + (case.c - 2) * case.H) + one_dispatcher + left, behind, not moe)):
        moments += [always + at_work + more + waiting - one - gone] if layers else []
        moments += [always + one_dispatcher + core + waiting - one] if layers and core and attends else []
    if "logits" in got:
        moments.append(always + one_dispatcher + waiting + 6 * T * 64 + T * (4 * case.H + 4))
    oracle.check(abs(max(moments) - total) < 4, f"{what} {vars(case)}: peak {total}, by the document {max(moments)} of {moments}")
    return total


def rng_form(case):
    """The list in any order and either form."""
    words = sorted(case.modules, key=lambda m: (len(m) * 7 + case.H + case.L) % 11)
    return "+".join(words) if case.p == 1 else f"[{', '.join(words)}]"


def check_names(case):
    """One module is the policy of that name, and none is what a list of nothing here would keep."""
    case.plain()
    for module, name in (("core_attn", "selective"), ("moe_act", "moe_act"), ("moe", "moe")):
        case.modules = {module}
        rows = [oracle.must("explain", "--job", case.write("none"), "--remat", r, "--format", "json") for r in (name, module)]
        oracle.check(rows[0] == rows[1], f"{module} is not {name}")
        hold(case, f"{module} alone")


def check_measured():
    """What each list frees of a layer without and one with experts, beside the bytes that autograd holds of them. What is not counted
    in section 7.4, and so not freed, is named: the angles of the rotation, the type of the mask."""
    held = {}
    with open(root / "notebooks_data/measured/megatron_cpu_modules.csv", newline="") as file:
        for row in csv.DictReader(file):
            bytes_of = held.setdefault((row["spec"], row["attention"]), {}).setdefault(row["modules"], {})
            bytes_of[row["experts"]] = int(row["kept_bytes"])
    for (spec, attention), lists in held.items():
        case = Case(np.random.default_rng(0))
        case.plain()
        case.mla, case.local, case.R, case.E, case.K, case.H, case.F, case.dense_F = attention == "mla", spec == "local", 1, 8, 2, 64, 48, 96
        case.shared, case.heads, case.kv, case.D, case.q_lora, case.kv_lora = 1, 4, 4, 16, 24, 20
        case.nope, case.rope, case.v, case.p, case.S, case.stages, case.micro, case.L, case.first_dense = 16, 8, 12, 2, 64, 1, 1, 2, 1
        T, waits = case.p * case.S, {}
        if spec == "fused":  # all of a dense layer
            rows = json.loads(oracle.must("explain", "--job", case.write("none"), "--format", "json"))
            whole = next(row["bytes"] for row in rows if row["component"] == "attention") + 2 * 3 * T * case.dense_F
            whole += (2 * 4 * case.S * case.rope if case.mla else 4 * 2 * case.S * case.D)
            oracle.check(whole == lists["none"]["no"], f"{attention}: a dense layer holds {whole} for {lists['none']['no']}")
        for modules in [m for m in lists if "moe" not in m.split("+")]:
            rows = json.loads(oracle.must("explain", "--job", case.write(modules), "--format", "json"))
            waits[modules] = next(row["bytes"] for row in rows if row["component"] == "saved_activations")
        for modules, spillway in waits.items():
            names = set(modules.split("+"))
            angles = 2 * 4 * case.S * case.rope if "mla_up_proj" in names else 0
            mask = 2 * 4 if "core_attn" in names else 0
            freed = sum(lists["none"][e] - lists[modules][e] for e in ("yes", "no"))
            want = freed - angles + mask
            oracle.check(abs(waits["none"] - spillway - want) < 2, f"{spec} {attention} {modules}: {waits['none'] - spillway} freed for {want}")


V3 = ("--model", "deepseek-v3", "--expert-parallel", 64, "--scheme", "megatron-alltoall", "--optimizer", "distributed", "--format", "json")


def check_traffic():
    """With tensor and context: what the products of the modules gather and scatter once more, and keys and values round the ring."""
    def sent(remat):
        rows = json.loads(oracle.must("explain", *V3, "--cluster", "h200:8x32", "--tensor", 2, "--context", 2, "--expert-tensor", 1,
                                      "--traffic", "--remat", remat))
        return {(r["purpose"], r["tensor"], r["where"], r["pass"], r["operation"]): r["count"] for r in rows}
    gather, scatter = "all_gather", "reduce_scatter"
    once = {"mla_up_proj": [("queries", gather), ("keys_values", gather)], "mlp": [("ffn_input", gather), ("ffn_output", scatter)],
            "shared_experts": [("ffn_input", gather), ("ffn_output", scatter)], "core_attn": [("keys_values", "send")], "layernorm": [],
            "moe_act": []}
    none = sent("none")
    for module, tensors in once.items():
        want = dict(none)
        places = {"mlp": ["dense layer"], "shared_experts": ["MoE layer"]}.get(module, ["dense layer", "MoE layer"])
        for (tensor, operation), place in ((t, p) for t in tensors for p in places):
            key = ("context_parallel" if operation == "send" else "tensor_parallel", tensor, place, "backward", operation)
            want[key] = want.get(key, 0) + 1
        oracle.check(sent(module) == want, f"{module}: sends {set(sent(module).items()) ^ set(want.items())}")


def check_products():
    """MLA's up projections are made four times, the other projections three times."""
    def seconds(remat):
        rows = json.loads(oracle.must("plan", *V3, "--cluster", "h200:8x8", "--remat", remat))["rows"]
        return rows[0]["time"]["components"] if "time" in rows[0] else rows[0]["step_time"]["components"]
    up = 1536 * 128 * 192 + 512 * 128 * 256
    all_products = 7168 * (1536 + 512 + 64) + up + 128 * 128 * 7168
    none, again = seconds("none"), seconds("mla_up_proj")
    ratio = again["attention_projections"]["seconds"] / none["attention_projections"]["seconds"]
    oracle.check(abs(ratio - (1 + up / (3 * all_products))) < 1e-4, f"mla_up_proj: products take {ratio} times")
    for part in ("attention", "dense_ffn", "shared_expert", "head"):
        oracle.check(again[part] == none[part], f"mla_up_proj: {part}")


for seed in range(cases):
    hold(Case(np.random.default_rng(seed)), f"case {seed}")
check_names(Case(np.random.default_rng(3)))
check_measured()
check_traffic()
check_products()
oracle.finish(least=3 * cases)
