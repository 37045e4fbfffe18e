#!/usr/bin/env python3
"""What `spillway explain` prints of random jobs adds up: a formula's numbers come to the bytes of its row, its letters, told from the job's
files alone, to those numbers; shapes likewise. Rows come to what is needed up to them, and those at the peak to what `plan` says of the
same job; so do tensors of the traffic.

formulas_oracle.py SPILLWAY SCRATCH ROOT [--cases N] [--seed N]"""
import json
import math
import pathlib
import random
import re
import sys

from oracle_run import Oracle
from replay_case import CLUSTER


def argument(name, default):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


program, scratch = sys.argv[1], pathlib.Path(sys.argv[2]) / "formulas_oracle"
cases = argument("--cases", 60)
scratch.mkdir(parents=True, exist_ok=True)
oracle = Oracle(program, "formulas_oracle")
check = oracle.check
BYTES = {"bf16": 2, "fp32": 4}
MAXTEXT = ["gmm", "gmm:buffer_factor=1.5", "gmm-deepep", "ring", "ring:token_chunks=2", "ragged", "ragged-deepep", "ragged-ring",
           "dense:capacity_factor=1.25", "dense:capacity_factor=1.25,layout=gathered", "dense:capacity_factor=1.25,layout=peeled"]
PYTORCH = ["megablocks", "tutel:capacity_factor=1.5", "scattermoe", "sonicmoe", "torchtitan", "torchtitan-hybridep", "torchtitan-async", "deepep",
           "hybrid-ep", "moe-dedup:buffer_factor=1.5"]
MEGATRON = ["megatron-alltoall", "megatron-alltoall:align=16", "megatron-alltoall:capacity_factor=1.5,pad=true", "megatron-allgather",
            "megatron-flex", "megatron-flex:backend=hybridep", "megatron-ncclep", "megatron-syncfree:rank_capacity=1.5", "primus-syncfree",
            "primus-megamoe"]
REMAT = {"maxtext": ["full", "minimal", "save_out_proj", "save_qkv_proj", "none"], "pytorch": ["full", "selective", "none"],
         "megatron": ["full", "none", "moe_act", "moe", "layernorm", "moe_act+layernorm", "core_attn"]}
FEATURES = {  # of Megatron-Core, one or none a job
    "precision.recipe": ["delayed", "blockwise", "mxfp8"], "cross_entropy": ["native", "te"], "attention": ["unfused"],
    "optimizer_algorithm": ["muon"], "finetune.frozen": ["experts"], "overlap_grad_reduce": ["true"], "offload_modules": ["moe_act", "expert_fc1"],
    "gradient_accumulation_fusion": ["false"], "moe_shared_expert_overlap": ["true"]}


class Job:
    """A random one, in which no two sizes are alike, and what its letters stand for."""

    def __init__(self, rng, number):
        pick, self.rng = rng.choice, rng
        self.family, schemes = pick([("maxtext", MAXTEXT), ("pytorch", PYTORCH), ("megatron", MEGATRON), ("megatron", MEGATRON)])
        self.scheme, megatron = pick(schemes), self.family == "megatron"
        self.EP, self.FS = pick([(2, 1), (2, 3), (4, 2), (3, 4), (6, 1), (4, 1), (8, 3)])
        self.TP, self.CP, self.PP = (pick([(1, 1, 1), (1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (1, 1, 2), (2, 1, 3)]) if megatron
                                     else (1, 1, pick([1, 1, 1, 2])) if self.family == "pytorch" else (1, 1, 1))
        self.micro = pick([1, 2, 3]) if self.PP == 1 and self.family != "maxtext" else self.PP * pick([1, 2]) if self.PP > 1 else 1
        stage = math.lcm(self.EP * self.FS, self.TP * self.CP)
        self.FS, self.DP, self.G = stage // self.EP, stage // self.TP // self.CP, stage
        self.e, self.K, self.p = pick([2, 3, 5]), pick([1, 2]), self.micro * pick([1, 2])
        self.S = 2 * self.CP * self.TP * pick([24, 40, 56])
        self.H, self.F, self.V, self.heads, self.hd = 64 * pick([3, 5]), 32 * pick([7, 11, 13]), 16 * pick([55, 61]), 8, pick([16, 48])
        self.kv = pick([2, 4, 8])
        self.moe, self.dense = self.PP * pick([1, 2, 3]), 0 if self.PP > 1 else pick([0, 0, 1, 2])
        self.F_dense, self.shared = 32 * 17, pick([0, 0, 1])
        self.remat = pick(REMAT[self.family])
        self.precision = {k: pick(list(BYTES)) for k in ("weights", "gradients", "optimizer", "activations")}
        if self.precision["weights"] == "fp32" or megatron:
            self.precision["gradients"] = "fp32"
        if self.precision["activations"] == "fp32":
            self.precision["weights"] = "fp32"
        if megatron:
            self.precision["activations"] = self.precision["weights"] = "bf16"
        self.optimizer = "distributed" if megatron else pick(["sharded", "sharded", "replicated"])
        self.set = []
        if megatron and rng.random() < 0.6:
            key = pick(list(FEATURES))
            self.set = ["--set", f"{key}={pick(FEATURES[key])}"]
        if self.family == "pytorch" and self.optimizer == "sharded" and rng.random() < 0.5:
            self.set = ["--set", pick(["fsdp2.reshard_after_forward=off", "fsdp2.reshard_after_forward=always", "fsdp2.prefetch=2"])]
        self.path = self.write(f"job{number}")

    def write(self, name):
        E = self.EP * self.e
        model = dict(model_type="deepseek_v2" if self.shared else "generic", num_hidden_layers=self.dense + self.moe, hidden_size=self.H,
                     vocab_size=self.V, num_attention_heads=self.heads, num_experts_per_tok=self.K, moe_intermediate_size=self.F,
                     first_k_dense_replace=self.dense, intermediate_size=self.F_dense)
        if self.shared:
            model.update(n_routed_experts=E, n_shared_experts=self.shared, kv_lora_rank=24, q_lora_rank=40, qk_nope_head_dim=16,
                         qk_rope_head_dim=8, v_head_dim=16, tie_word_embeddings=False, topk_method="greedy")
        else:
            model.update(num_experts=E, num_key_value_heads=self.kv, head_dim=self.hd)
        (scratch / f"{name}.json").write_text(json.dumps(model))
        per_node = self.G if self.G <= 8 else self.G // 2 if self.G % 2 == 0 else self.G // 3
        (scratch / f"{name}_cluster.yaml").write_text(CLUSTER.format(name="c", nodes=self.G * self.PP // per_node, gpus_per_node=per_node))
        split = dict(expert=self.EP, fsdp=self.FS, tensor=self.TP, context=self.CP, pipeline=self.PP, data=self.DP, expert_tensor=1)
        if self.TP == self.CP == 1:
            split = dict(expert=self.EP, fsdp=self.FS, pipeline=self.PP)
        job = scratch / f"{name}.yaml"
        job.write_text(f"model: ./{name}.json\ncluster: ./{name}_cluster.yaml\nlibrary_limits: ignore\nparallel: {json.dumps(split)}\n"
                       f"batch: {{sequences_per_gpu: {self.p}, sequence_length: {self.S}, micro_batches: {self.micro}}}\n"
                       f"precision: {json.dumps(self.precision)}\noptimizer: {self.optimizer}\nremat: {self.remat}\n"
                       f"schemes: [\"{self.scheme}\"]\n")
        return job

    def letters(self):
        """What docs/schemes.md calls them, of one micro-batch."""
        words = dict(H=self.H, F=self.F, V=self.V, E=self.EP * self.e, K=self.K, e=self.e, R=self.EP, p=self.p // self.micro, heads=self.heads,
                     b=BYTES[self.precision["activations"]], w=BYTES[self.precision["weights"]], g=BYTES[self.precision["gradients"]],
                     o=BYTES[self.precision["optimizer"]], T=self.p // self.micro * self.S // self.CP // self.TP, G=self.G, TP=self.TP, CP=self.CP,
                     DP=self.DP, EDP=self.FS, F_dense=self.F_dense, F_shared=self.shared * self.F, t=1,
                     kv_heads=self.kv, head_dim=self.hd, v=self.hd, P_routed=3 * self.moe * self.EP * self.e * self.H * self.F)
        if "optimizer_algorithm=muon" in " ".join(self.set):  # whose matrices are padded
            del words["P_routed"]
        if self.shared:
            words.update(q_lora=40, kv_lora=24, nope=16, rope=8, v=16)
        gathered = {"w": words["b"], "g": words["b"]}  # weights at work, and what is summed of their gradients
        return [words, {**words, **gathered}, {**words, "w": words["b"]}, {**words, "g": words["w"]}, {**words, "w": words["g"]}]


# --- Formulas ---

NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def value_of(text, letters):
    """Of sums and products, written side by side or with x; None where a word is none of the letters."""
    words = re.findall(rf"{NUMBER}|[A-Za-z_]\w*|[-+/(),]", text)
    if "".join(words) != text.replace(" ", ""):
        return None
    out = []
    for word in words:
        if word == "x":
            out.append("*")
            continue
        if re.fullmatch(r"[A-Za-z_]\w*", word) and word not in letters and word not in ("min", "max", "ceil"):
            return None
        if out and re.match(r"[\w(.]", word) and re.match(r"[\w).]", out[-1][-1]) and out[-1] not in ("min", "max", "ceil", "*"):
            out.append("*")
        out.append(f"float({word})" if re.match(NUMBER, word) else repr(float(letters[word])) if word in letters else word)
        if word in letters or re.match(NUMBER, word):
            out[-1] = f"({out[-1]})"
    try:
        return float(eval("".join(out), {"__builtins__": {}}, {"min": min, "max": max, "ceil": math.ceil, "float": float}))
    except (SyntaxError, TypeError, ZeroDivisionError):
        return None


def close(a, b, within=2e-5):
    return abs(a - b) <= within * max(abs(a), abs(b)) + 1.0


seen = {"numbers": 0, "letters": 0, "shapes": 0, "traffic": 0, "planned": 0}
unread = {}


def check_formula(what, row, letters):
    name, text, size = row["component"], row["formula"], row["bytes"]
    if "in fp8" in text or text.startswith("of units of"):  # more bytes, and what is kept of them, which are not said
        return
    for more, sign in ((rf" \+ ({NUMBER}) of norms", -1), (rf" - ({NUMBER}) of modules that run again", 1)):
        found = re.search(more, text)
        size += sign * float(found[1]) if found else 0.0
        text = re.sub(more, "", text)
    found = re.search(r" x (\d+)(?: / \d+)?, but (\d+) B of each second moment", text)
    if found:
        size *= 2 / (1 + int(found[2]) / int(found[1]))
        text = re.sub(", but.*", "", text)
    parts = text.split(" = ")
    shape = re.fullmatch(rf"\[(?:\w+ = )?(.*?), (.*)\] x (\d+) B = ({NUMBER}) x ({NUMBER}) x (\d+)", text)
    if shape:
        a, b, c = map(float, shape.groups()[3:])
        check(close(a * b * c, size), f"{what}: {text}, {size}")
        for said, number in ((shape[1], a), (shape[2], b)):
            told = value_of(said, letters[0])
            if told is not None:
                seen["shapes"] += 1
                check(close(told, number), f"{what}: {said} is {told}: {text}")
        return
    told = value_of(parts[-1], {})
    if told is None:
        unread.setdefault(name, text)
        return
    seen["numbers"] += 1
    check(close(told, size), f"{what}: {text} is {told}, not {size}")
    if len(parts) > 1 and size > 0:
        told = next((v for v in (value_of(parts[-2], k) for k in letters) if v is None or close(v, size)), math.nan)
        if told is not None:
            seen["letters"] += 1
            check(close(told, size), f"{what}: {text}: its letters are {told}, not {size}")
        else:
            unread.setdefault(name, text)


def check_memory(what, job, peak):
    done = oracle.call("explain", "--job", job.path, *job.set, "--stack", "none", "--format", "json")
    if done.returncode:
        check(False, f"{what}: {done.stderr}")
        return
    rows, upto = json.loads(done.stdout), 0.0
    for row in rows:
        check(row["bytes"] >= 0 and row["kind"] in ("argument", "temporary"), f"{what}: {row}")
        if row["at_peak"] == "yes":
            upto += row["bytes"]
            check(row["upto_bytes"] == upto, f"{what}: {row['component']} {row['upto_bytes']}, up to it {upto}")
        check_formula(f"{what} {row['component']}", row, job.letters())
    if peak is not None:
        check(upto == peak["max_bytes"], f"{what}: {upto} explained, {peak['max_bytes']} planned")
        state = sum(row["bytes"] for row in rows if row["at_peak"] == "yes" and row["kind"] == "argument")
        check(state == peak["argument_bytes"], f"{what}: {state} of state explained, {peak['argument_bytes']} planned")
        named = {}
        for row in rows:
            if row["at_peak"] == "yes":
                named[row["component"]] = named.get(row["component"], 0) + row["bytes"]
        planned = {k: v for k, v in peak["components"].items() if v}
        check({k: v for k, v in named.items() if v} == planned, f"{what}: {named.items() ^ planned.items()}")


def moved(operation, gpus):
    """Shares of a buffer that leave a GPU."""
    if operation == "send":
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (gpus - 1) / gpus


def check_traffic(what, job, planned):
    done, letters, together = oracle.call("explain", "--job", job.path, *job.set, "--traffic", "--format", "json"), job.letters(), {}
    check(done.returncode == 0, f"{what}: {done.stderr}")
    for row in json.loads(done.stdout) if done.returncode == 0 else ():
        size, name = row["bytes"], f"{what}: {row['purpose']} {row['tensor']} {row['operation']}"
        told = next((v for v in (value_of(row["formula"], k) for k in letters) if v is None or close(v, size) or close(v, size * row["count"])),
                    math.nan)
        if told is None:
            unread.setdefault("traffic " + row["tensor"], row["formula"])
        else:
            seen["traffic"] += 1
            check(told == told, f"{name}: {row['formula']}, {size} of {row['count']}")
        want = row["times"] * row["count"] * size * moved(row["operation"], row["gpus"]) / job.PP
        check(close(want, row["step_bytes"]), f"{name}: {row['step_bytes']} a step, not {want}")
        together[row["purpose"]] = together.get(row["purpose"], 0.0) + row["step_bytes"]
    parts = planned["components"] if planned else {}
    for purpose, sent in together.items():
        if purpose in parts and purpose != "exchanges":  # of which a plan counts what depends on routing
            check(close(sent, parts[purpose]), f"{what}: {sent} explained of {purpose}, {parts[purpose]} planned")
            seen["planned"] += 1


def main():
    rng, accepted = random.Random(argument("--seed", 33)), 0
    for number in range(cases):
        job = Job(rng, number)
        what = f"{number} {job.scheme} {job.remat} EP {job.EP} TP {job.TP} CP {job.CP} PP {job.PP} {' '.join(job.set)}"
        done = oracle.call("plan", "--job", job.path, *job.set, "--imbalance", 1, "--stack", "none", "--format", "json")
        if done.returncode > 1:
            if "--show" in sys.argv:
                print(what, done.stderr.strip()[:200])
            continue
        accepted += 1
        row = json.loads(done.stdout)["rows"][0]
        check_memory(what, job, row["memory"])
        check_traffic(what, job, row.get("traffic"))
    if "--show" in sys.argv:
        print(accepted, seen, *(f"{name} | {formula}" for name, formula in unread.items()), sep="\n")
    check(accepted > cases / 3 and all(count > cases for count in seen.values()), f"too few are looked at: {accepted} jobs, {seen}")
    oracle.finish(20 * cases)


main()
