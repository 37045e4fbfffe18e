#!/usr/bin/env python3
"""`spillway model CONFIG --layers`: matrices of every kind of layer, times the layers, are the model's parameters, which are held against
classes of transformers elsewhere; Mixtral and a small Qwen3-Next by hand. `--diff A B`: what it prints of two models is what --format json
says of each.

model_layers.py SPILLWAY SCRATCH ROOT"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "model_layers"
scratch.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "model_layers")


def rows_of(name):
    return json.loads(oracle.must("model", name, "--layers", "--format", "json"))


def total_of(name):
    return json.loads(oracle.must("model", name, "--format", "json"))["parameters_total"]


def layers_in(runs):
    """The layers of "0-2, 5, 7-41 by 2"."""
    for run in runs.split(", "):
        if run != "...":
            ends, _, step = run.partition(" by ")
            first, _, last = ends.partition("-")
            yield from range(int(first), int(last or first) + 1, int(step or 1))


def check_sum(name):
    rows, total = rows_of(name), total_of(name)
    oracle.check(all(r["inputs"] * r["outputs"] * r["count"] == r["parameters"] for r in rows), f"{name}: a row is not its product")
    got = sum(r["layer_count"] * r["parameters"] for r in rows)
    oracle.check(got == total, f"{name}: matrices add up to {got}, not {total}")
    layers = {r["layers"]: r["layer_count"] for r in rows if r["layers"] != "beside them"}
    named = sorted(layer for runs in layers for layer in layers_in(runs))
    oracle.check("..." in str(layers) or named == list(range(sum(layers.values()))), f"{name}: {layers}")


for path in sorted((root / "sim/models").glob("*.json")) + sorted((root / "tests/models").glob("*.json")):
    check_sum(path)

facts = [json.loads(line) for line in (root / "tests/models/classes.jsonl").read_text().splitlines()]
for i, fact in enumerate(facts):
    path = scratch / f"fact{i}.json"
    path.write_text(json.dumps(fact["config"]))
    check_sum(path)

path = scratch / "unlike.json"  # layers that differ in experts and choices
path.write_text(json.dumps(dict(model_type="qwen3_moe", hidden_size=8, vocab_size=16, num_hidden_layers=4, num_attention_heads=2, head_dim=4,
                                num_key_value_heads=1, intermediate_size=5, moe_intermediate_size=6, mlp_only_layers=[0],
                                num_experts=[0, 4, 2, 3], num_experts_per_tok=[0, 2, 1, 2])))
check_sum(path)

# Mixtral by hand: 32 layers alike, 8 heads of keys and values of 128.
want = [("attention", "queries", 4096, 4096, 1), ("attention", "keys", 4096, 1024, 1), ("attention", "values", 4096, 1024, 1),
        ("attention", "output", 4096, 4096, 1), ("router", "router", 4096, 8, 1), ("routed experts", "gate", 4096, 14336, 8),
        ("routed experts", "up", 4096, 14336, 8), ("routed experts", "down", 14336, 4096, 8), ("norms", "norms", 1, 4096, 2),
        ("model", "embedding", 32000, 4096, 1), ("model", "final norm", 1, 4096, 1), ("model", "head", 4096, 32000, 1)]
got = [(r["part"], r["matrix"], r["inputs"], r["outputs"], r["count"]) for r in rows_of("mixtral-8x7b")]
oracle.check(got == want, f"Mixtral: {got}")

# Layers of two mixers and of dense FFNs are kinds of their own.
(scratch / "mixed.json").write_text(json.dumps(dict(
    model_type="qwen3_next", num_hidden_layers=5, hidden_size=8, vocab_size=10, num_attention_heads=2, num_key_value_heads=1, head_dim=4,
    intermediate_size=6, moe_intermediate_size=2, shared_expert_intermediate_size=2, num_experts=4, num_experts_per_tok=2,
    mlp_only_layers=[0, 3], layer_types=["linear_attention", "linear_attention", "full_attention", "full_attention", "linear_attention"],
    linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=4, linear_value_head_dim=4, linear_conv_kernel_dim=2)))
kinds = {r["layers"] for r in rows_of(scratch / "mixed.json")}
oracle.check(kinds == {"0", "1, 4", "2", "3", "beside them"}, f"kinds of layers: {kinds}")
check_sum(scratch / "mixed.json")

# Two models: every line of parts that the JSON of each has.
a, b = (json.loads(oracle.must("model", name, "--format", "json")) for name in ("glm-4.5", "deepseek-v3"))
diff = {r["what"]: (r["a"], r["b"]) for r in json.loads(oracle.must("model", "--diff", "glm-4.5", "deepseek-v3", "--format", "json"))}
part = [{p["part"]: p["parameters"] for p in m["parts"]} for m in (a, b)]
for what, name in (("parameters of all routed experts", "routed experts"), ("parameters of the embedding", "embedding"),
                   ("parameters of all mixers", "attention")):
    oracle.check(diff.get(what) == (part[0][name], part[1][name]), f"{what}: {diff.get(what)}")
oracle.check(diff["parameters in all"] == (a["parameters_total"], b["parameters_total"]), "parameters in all")
oracle.check(diff["layers"] == (92, 61) and diff["which layers have experts"] == ("3-91", "3-60"), f"layers: {diff}")
oracle.check(diff["attention"] == ("grouped queries", "latent") and diff["norms of queries and keys"] == ("yes", "no"), f"attention: {diff}")
oracle.check(json.loads(oracle.must("model", "--diff", "mixtral-8x7b", "mixtral-8x7b", "--format", "json")) == [], "a model and itself")
oracle.finish(least=150)
