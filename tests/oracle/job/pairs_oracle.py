#!/usr/bin/env python3
"""Every pair of a job's features, held to laws that need no second program: two features do to a job together what each does alone.

A feature is a few options. Of every model and every pair of features one job's memory and one job's traffic are asked and held to this:
refused alike whichever feature is named first, in one sentence; else the same bytes in any order; bytes of state are those of a stage,
counted here from the sizes of config.json; and whatever a feature multiplies by r where it is alone, it multiplies by r beside any other
(so what it leaves alone, it leaves alone there), but for EXCEPTIONS, each with its reason.

pairs_oracle.py SPILLWAY SCRATCH [--show]"""
import json
import math
import operator
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from replay_case import CLUSTER

os.environ["OMP_NUM_THREADS"] = "1"
program, folder, show = sys.argv[1], pathlib.Path(sys.argv[2]) / "pairs_oracle", "--show" in sys.argv
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(program, "pairs_oracle")
check = oracle.check
GPUS, EP = 32, 2

# --- Models, in which no two sizes are alike ---

MODELS = {
    "plain": dict(model_type="generic", num_hidden_layers=8, hidden_size=192, vocab_size=1040, num_attention_heads=8, num_key_value_heads=4,
                  head_dim=48, num_experts=12, num_experts_per_tok=3, moe_intermediate_size=224),
    "latent": dict(model_type="deepseek_v2", num_hidden_layers=8, hidden_size=320, vocab_size=976, num_attention_heads=8, num_experts_per_tok=2,
                   moe_intermediate_size=352, first_k_dense_replace=1, intermediate_size=544, n_routed_experts=16, n_shared_experts=1,
                   kv_lora_rank=24, q_lora_rank=40, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=32, tie_word_embeddings=False,
                   topk_method="greedy"),
    "tied": dict(model_type="qwen3_moe", num_hidden_layers=7, hidden_size=192, vocab_size=880, num_attention_heads=12, num_key_value_heads=2,
                 head_dim=32, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=416, tie_word_embeddings=True),
}

# --- Features: what is said, by name ---

PIPE, MTP = {"parallel.pipeline": 2}, {"parallel.mtp_num_layers": 1}
MEGATRON = {
    "tensor": {"parallel.tensor": 2},
    "tensor 4": {"parallel.tensor": 4},
    "context": {"parallel.context": 2},
    "experts cut": {"parallel.expert_tensor": 2},
    "stages": PIPE,
    "virtual": {**PIPE, "parallel.virtual_stages": 2},
    "first stage": {**PIPE, "parallel.decoder_first_pipeline_num_layers": 3},
    "last stage": {**PIPE, "parallel.decoder_last_pipeline_num_layers": 2},
    "loss counts": {**PIPE, "parallel.account_for_loss_in_pipeline_split": "true"},
    "prediction": MTP,
    "predicting stage": {**PIPE, **MTP},
    "replicated": {"optimizer": "replicated"},
    "instances": {"optimizer_instances": 2},
    "host": {"optimizer_on_host": 0.5},
    "muon": {"optimizer_algorithm": "muon"},
    "whole muon": {"optimizer_algorithm": "muon", "optimizer": "replicated"},
    "fp32 gradients off": {"precision.gradients": "bf16"},
    "full": {"remat": "full"},
    "moe_act": {"remat": "moe_act"},
    "shared": {"remat": "shared_experts"},
    "core_attn": {"remat": "core_attn"},
    "moe again": {"remat": "moe"},
    "layernorm": {"remat": "layernorm"},
    "offload": {"offload_modules": "expert_fc1"},
    "offload act": {"offload_modules": "moe_act"},
    "delayed": {"precision.recipe": "delayed"},
    "blockwise": {"precision.recipe": "blockwise"},
    "lora": {"finetune.frozen": "base", "finetune.lora_rank": 8},
    "frozen": {"finetune.frozen": "experts"},
    "unfused": {"attention": "unfused"},
    "native loss": {"cross_entropy": "native"},
    "graphs": {"cuda_graph_impl": "transformer_engine"},
    "overlap": {"overlap_grad_reduce": "true"},
    "no accumulation": {"gradient_accumulation_fusion": "false"},
    "more sequences": {"batch.sequences_per_gpu": 8},
    "longer": {"batch.sequence_length": 1024},
    "more micro-batches": {"batch.micro_batches": 8, "batch.sequences_per_gpu": 8},
}
TITAN = {
    "stages": PIPE,
    "virtual": {**PIPE, "parallel.virtual_stages": 2},
    "replicas": {"fsdp2.reshard_after_forward": "always", "fsdp2.replicas": 2},
    "always": {"fsdp2.reshard_after_forward": "always"},
    "never": {"fsdp2.reshard_after_forward": "never"},
    "host": {"fsdp2.state": "host"},
    "full": {"remat": "full"},
    "selective_op": {"remat": "selective_op"},
    "bf16": {"precision.weights": "bf16", "precision.gradients": "bf16", "precision.optimizer": "bf16"},
    "more sequences": {"batch.sequences_per_gpu": 8},
    "longer": {"batch.sequence_length": 1024},
    "more experts apart": {"parallel.expert": 4},
}


# --- What config.json says of a model's parameters: routed, cut by a tensor group, whole on each of its GPUs, and matrices of layers ---

def layer_of(m, experts):
    """(routed, cut, whole, and of cut and whole what Adam has beside Muon) of a layer."""
    H, heads = m["hidden_size"], m["num_attention_heads"]
    if "kv_lora_rank" in m:
        q, kv, rope, nope, v = (m[k] for k in ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
        cut, whole = q * heads * (nope + rope) + kv * heads * (nope + v) + heads * v * H, H * q + H * (kv + rope) + q + kv
    else:
        hd = m["head_dim"]
        cut, whole = H * hd * (2 * heads + 2 * m["num_key_value_heads"]), 2 * hd * (m["model_type"] == "qwen3_moe")
    whole += 2 * H
    if not experts:
        return 0, cut + 3 * H * m["intermediate_size"], whole, 0, 2 * H
    E, F = m.get("num_experts") or m["n_routed_experts"], m["moe_intermediate_size"]
    return 3 * E * H * F, cut + 3 * H * F * m.get("n_shared_experts", 0), whole + E * H, 0, 2 * H


def blocks_of(m, f):
    """Layers of every block of every stage: [stage][chunk] is a range of layers."""
    L, P, v = m["num_hidden_layers"], f.get("parallel.pipeline", 1), f.get("parallel.virtual_stages", 1)
    first, last = f.get("parallel.decoder_first_pipeline_num_layers"), f.get("parallel.decoder_last_pipeline_num_layers")
    if first or last:
        stage = [first or L - last, last or L - first]
        lengths = [stage[s] // v for _ in range(v) for s in range(P)]
    elif "parallel.account_for_loss_in_pipeline_split" in f:
        lengths = [(L + 1) // (P * v)] * (P * v)
        lengths[-1] -= 1
    else:
        lengths = [L // (P * v) + (b < L % (P * v)) for b in range(P * v)]
    starts = [sum(lengths[:b]) for b in range(P * v)]
    return [[range(starts[c * P + s], starts[c * P + s] + lengths[c * P + s]) for c in range(v)] for s in range(P)]


def parameters(m, f):
    """Of each stage (routed, cut, whole, Adam's cut and whole ones beside Muon)."""
    H, V, dense, stages = m["hidden_size"], m["vocab_size"], m.get("first_k_dense_replace", 0), blocks_of(m, f)
    tied, predicts, out = m.get("tie_word_embeddings", False), f.get("parallel.mtp_num_layers", 0), []
    for s, chunks in enumerate(stages):
        last = s == len(stages) - 1
        parts = [layer_of(m, layer >= dense) for chunk in chunks for layer in chunk]
        tables = (s == 0) + (last and not (tied and s == 0)) + bool(last and predicts and s > 0 and not tied)
        parts.append((0, tables * H * V, H if last else 0, tables * H * V, H if last else 0))
        for _ in range(predicts if last else 0):
            parts += [layer_of(m, True), (0, 2 * H * H, 3 * H, 0, 3 * H)]
        out.append(tuple(map(sum, zip(*parts))))
    return out


def state_of(m, f):
    """Of each stage the bytes of weights, gradients, moments, and master weights under Megatron-Core's optimizer."""
    T, C, P = (f.get(f"parallel.{k}", 1) for k in ("tensor", "context", "pipeline"))
    X, replicated, copies = f.get("parallel.expert_tensor", 1), f.get("optimizer") == "replicated", f.get("optimizer_instances", 1)
    stay, g = 1 - f.get("optimizer_on_host", 0), 2 if "precision.gradients" in f else 4
    for routed, cut, whole, adam_cut, adam_whole in parameters(m, f):
        experts, rest = routed / EP / X, cut / T + whole
        trained = 0 if f.get("finetune.frozen") == "experts" else experts
        kept = trained + rest if replicated else copies * (trained / (GPUS / P / EP / X) + rest / (GPUS / P / T))
        state = {"weights": 2 * (experts + rest), "gradients": g * (trained + rest), "master_weights": 4 * kept * stay}
        if "optimizer_algorithm" not in f:
            yield {**state, "optimizer": 8 * kept * stay}
        elif replicated:  # one moment of matrices, two of all else
            yield {**state, "optimizer": 4 * (kept + adam_cut / T + adam_whole)}
        else:  # packed: padded, and of the GPU that has most
            yield {}


def sharded_of(m, f):
    """The same where all is sharded (torchtitan's FSDP2): experts over fsdp, the rest over all GPUs of a stage, but for replicas."""
    P, w = f.get("parallel.pipeline", 1), 2 if "precision.weights" in f else 4
    for routed, cut, whole, *_ in parameters(m, f):
        held = f.get("fsdp2.replicas", 1) * (routed + cut + whole) / (GPUS / P)
        there = 0 if f.get("fsdp2.state") == "host" else held
        yield {"weights": w * there, "optimizer": 2 * w * there}


# --- What does not go by the law, and why: (what, one feature, the other, reason), as patterns of whole words ---

STATE = ("weights", "gradients", "optimizer", "master_weights")  # held by counting, which says more
IN_MEMORY = "[^ ]+|saved.*"
EXCEPTIONS = [
    (IN_MEMORY, "last stage", ".*", "the first stage, of 6 layers, or the last, with the head: either may need most"),
    (".*all_gather.*", "replicas|always|never", "stages|virtual", "PyTorch's stages gather once a step whatever was said, and prefetch"),
    ("(expert|other)_weights .*", "muon|whole muon", ".*", "buffers are padded to whole matrices; muon_oracle packs them itself"),
    (r"moe\..*", "no accumulation", ".*", "gradients that wait as tensors make another moment of the layer its greatest"),
    (IN_MEMORY, "unfused", "stages|virtual|first stage|predicting stage", "scores of all passes in flight make the first stage, or another moment, the greatest"),
    ("attention|saved.*", "unfused", "tensor|tensor 4|core_attn|layernorm|longer", "scores grow by S^2, and are cut, or made again, as no other tensor is"),
    ("attention|saved.*", "tensor 4", "core_attn|layernorm|delayed|blockwise", "heads that several GPUs have are cut by no more than there are"),
    ("saved.*", "virtual", "prediction|predicting stage", "the last stage, where prediction stands, may need most"),
    ("attention|saved.*|other_weights .*|unfilled_gradients", "lora", "tensor|tensor 4", "adapters are cut whole, and have inputs of the whole group"),
    ("unfilled_gradients", "tensor|tensor 4", ".*", "of parameters, some of which a tensor group cuts"),
    ("fsdp2.parameters", "never|more experts apart", "stages|virtual", "stages keep all their layers gathered whatever was said"),
    ("moe.*|saved_rows.*", "moe_act", "experts cut|blockwise", "what runs again is cut, or cast, only where it is made"),
    ("attention|saved_activ.*|saved_by.*", "delayed|blockwise", "layernorm|shared|moe again", "what runs again keeps no casts"),
    ("saved_rows.*", "offload act", "more sequences|longer", "the host takes tensors of 2^20 elements and more"),
    ("saved_rows.*", "blockwise", "offload", "an input that is cast is what the host takes"),
    ("saved.*", "lora", "moe again", "a frozen base keeps no inputs of shared experts, nor does what runs again"),
]


needed = set()


def excepted(what, a, b):
    if what in STATE:
        return True
    found = [w for w in EXCEPTIONS if re.fullmatch(w[0], what) and any(re.fullmatch(w[1], x) and re.fullmatch(w[2], y) for x, y in ((a, b), (b, a)))]
    needed.update(found)
    return bool(found)


# --- Questions ---

def ask(job, said, *more):
    words = [word for key, value in said.items() for word in ("--set", f"{key}={value}")]
    return oracle.call("explain", "--job", job, "--stack", "none", "--format", "json", *words, *more)


def memory_of(what, done):
    """Bytes by component; they come to what the row says of all up to it."""
    out, upto = {}, 0.0
    for row in json.loads(done.stdout):
        check(math.isfinite(row["bytes"]) and row["bytes"] >= 0, f"{what}: {row}")
        if row["at_peak"] == "yes":
            upto += row["bytes"]
            check(upto == row["upto_bytes"], f"{what}: {row['component']} {row['upto_bytes']}, not {upto}")
        name, kinds = row["component"], re.fullmatch(r"(\d+) x ([\d.e+]+) \+ (\d+) x ([\d.e+]+)", row["formula"])
        out[name] = out.get(name, 0.0) + row["bytes"]
        if kinds and name.startswith("saved"):  # of layers with experts and of dense ones, each by itself
            number = [float(k) for k in kinds.groups()]
            del out[name]
            out.update({f"{name} of layers": number[0] * number[1], f"{name} of dense layers": number[2] * number[3]})
    return out


def traffic_of(done):
    """Times and bytes by what is sent, and over whom."""
    out = {}
    for row in json.loads(done.stdout):
        name = " ".join(row[k] for k in ("purpose", "tensor", "where", "pass", "operation", "over"))
        out[name + ", times"] = out.get(name + ", times", 0) + row["times"] * row["count"]
        out[name + ", bytes"] = out.get(name + ", bytes", 0) + row["times"] * row["count"] * row["bytes"]
        out[name + ", GPUs"] = row["gpus"]
    return out


def same(a, b, within=1e-9):
    return abs(a - b) <= within * max(abs(a), abs(b)) + 0.5


def check_ring(what, model, said, sent):
    """Keys and values that go round a context group: of the heads that a GPU has, one at least, which other GPUs may have too."""
    if said.get("parallel.context", 1) == 1 or "kv_lora_rank" in model:
        return
    tokens = said.get("batch.sequences_per_gpu", 4) // said.get("batch.micro_batches", 4) * said.get("batch.sequence_length", 512) / 2
    heads = max(model["num_key_value_heads"] / said.get("parallel.tensor", 1), 1)
    for row in json.loads(sent):
        if row["purpose"] == "context_parallel" and row["tensor"] == "keys_values":
            check(row["bytes"] == 2 * 2 * tokens * heads * model["head_dim"], f"{what}: {row}, of {heads} heads of {tokens} tokens")


broken = {}


def check_pair(what, names, shared, alone, together):
    """What each multiplies, or adds, alone is what it multiplies, or adds, beside the other."""
    base, a, b = alone[shared], alone[names[0]], alone[names[1]]
    for part in base:
        values = [k.get(part, 0) for k in (base, a, b, together)]
        near = 2e-5 if " of " in part else 1e-9  # numbers of a formula are rounded
        good = not values[0] or any(same(f(values[0], values[3]), f(values[1], values[2]), near) for f in (operator.mul, operator.add))
        if good or excepted(part, *names):
            continue
        broken.setdefault((part.split(",")[0], *names), []).append(f"{what.split()[0]} {values}")
        check(show, f"{what}: {part} is {values[0]}, with {names[0]} {values[1]}, with {names[1]} {values[2]}, with both {values[3]}")


def check_state(what, model, said, memory, law):
    choices = list(law(model, said))
    check(any(all(same(memory.get(k, 0), v) for k, v in choice.items())
              for choice in choices), f"{what}: {({k: memory.get(k, 0) for k in choices[0]})} is the state of no stage: {choices}")


def check_model(name, scheme, optimizer, features, law):
    (folder / f"{name}.json").write_text(json.dumps(MODELS[name]))
    (folder / "cluster.yaml").write_text(CLUSTER.format(name="c", nodes=4, gpus_per_node=8) + "gpu_generation: hopper\n")
    job = folder / f"{name}_{scheme}.yaml"
    job.write_text(f"model: ./{name}.json\ncluster: ./cluster.yaml\nlibrary_limits: ignore\nparallel: {{expert: {EP}, fsdp: 0, expert_tensor: 1}}\n"
                   f"batch: {{sequences_per_gpu: 4, sequence_length: 512, micro_batches: 4}}\noptimizer: {optimizer}\nremat: none\n"
                   f"schemes: [\"{scheme}\"]\n")
    memory, traffic, refused = {}, {}, set()
    for names in [(), *[(a,) for a in features], *[(a, b) for i, a in enumerate(features) for b in list(features)[i + 1:]]]:
        what, said = f"{name} {scheme} {' + '.join(names)}", {}
        if any(features[a].get(k, v) != v for a in names for k, v in features[names[-1]].items()) or refused & set(names):
            continue
        for a in names:
            said.update(features[a])
        done = ask(job, said)
        if len(names) == 2 and (len(names[0]) + len(names[1])) % 4 == 0 or done.returncode:  # of those that are answered a quarter
            other = ask(job, dict(reversed(said.items())))
            check((done.returncode, done.stdout, done.stderr) == (other.returncode, other.stdout, other.stderr),
                  f"{what}: {done.stderr or 'answered'}, the other way round {other.stderr or 'answered'}")
        if done.returncode:
            check(done.returncode == 2 and re.fullmatch(r"spillway: [^\n]+\n", done.stderr), f"{what}: {done.returncode} {done.stderr}")
            if len(names) < 2:
                refused.add(names[0])
                check(names[0] in ALONE.get(name, ()), f"{what} is refused alone: {done.stderr}")
            counts["refused"] += 1
            continue
        counts["answered"] += 1
        key = names if len(names) != 1 else names[0]
        memory[key] = memory_of(what, done)
        shared_heads = said.get("parallel.tensor", 1) > MODELS[name]["num_key_value_heads"] if "num_key_value_heads" in MODELS[name] else False
        if not shared_heads and not law_skips & {k for a in names for k in features[a].items()}:
            check_state(what, MODELS[name], said, memory[key], law)
        sent = ask(job, said, "--traffic")
        check(sent.returncode == 0, f"{what}: traffic: {sent.stderr}")
        check_ring(what, MODELS[name], said, sent.stdout)
        traffic[key] = traffic_of(sent) if sent.returncode == 0 else {}
        if len(names) == 2:
            shared = dict(features[names[0]].items() & features[names[1]].items())  # what both say is no part of what either does
            shared = next((a for a in features if features[a] == shared), ())
            check_pair(what, names, shared, memory, memory[key])
            check_pair(what, names, shared, traffic, traffic[key])


ALONE = {"plain": {"shared", "loss counts"}, "tied": {"shared", "unfused"}, "latent": {"loss counts", "unfused"}}  # of features, what a model has not
law_skips = {("finetune.frozen", "base")}  # state by rules of their own
counts = {"answered": 0, "refused": 0}
for model in MODELS:
    check_model(model, "megatron-alltoall", "distributed", MEGATRON, state_of)
check_model("plain", "torchtitan", "sharded", TITAN, sharded_of)
if show:
    together = {}
    for (part, a, b), cases in broken.items():
        together.setdefault(part, []).append((a, b, cases[0]))
    for part, cases in sorted(together.items()):
        print(part, len(cases), *[f"\n      {a} + {b}: {c}" for a, b, c in cases[:400]])
for row in EXCEPTIONS:
    check(row in needed, f"no pair needs the exception {row}")
print(counts)
oracle.finish(least=1000)
