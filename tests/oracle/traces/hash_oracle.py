#!/usr/bin/env python3
"""Hash layers, and tokens with 16 and 22 choices: what the trace holds by h5py, what a law of words makes of the experts by brute force,
and that the simulator's rows, bytes and drops are those of the reference that executes.

hash_oracle.py SPILLWAY SCRATCH"""
import collections
import json
import pathlib
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
scratch = scratch / "hash_oracle"
scratch.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "hash_oracle")
LAYERS, EXPERTS, TOP_K, RANKS, TOKENS = 3, 32, 4, 8, 512


def generate(name, distribution, *more, experts=EXPERTS, top_k=TOP_K):
    path = scratch / name
    oracle.must("trace", "generate", path, "--experts", experts, "--top-k", top_k, "--layers", LAYERS, "--ranks", RANKS, "--tokens-per-rank",
                TOKENS, "--distribution", distribution, *more)
    with h5py.File(path) as file:
        found = []
        file.visititems(lambda key, item: found.append(key) if key.endswith("expert_id") else None)
        ids = np.concatenate([file[key][...].reshape(1, -1) for key in sorted(found)], axis=0) if len(found) > 1 else file[found[0]][...]
    return path, ids.reshape(LAYERS, RANKS * TOKENS, top_k) if ids.shape[0] == LAYERS else np.moveaxis(ids.reshape(-1, LAYERS, top_k), 1, 0)


def rows(layer):
    return [tuple(row) for row in np.sort(layer, axis=1).tolist()]


# Two hash layers: a token is its id, so that there are no more pairs of rows than ids; the third layer is free.
vocabulary, words = 60, 1.2
path, ids = generate("zipf.h5", f"hash:hash=2,vocabulary={vocabulary},words={words},popularity=lognormal")
pairs = collections.Counter(zip(rows(ids[0]), rows(ids[1])))
oracle.check(len(pairs) <= vocabulary, f"{len(pairs)} pairs of {vocabulary} ids")
oracle.check(len(set(rows(ids[2]))) > 20 * vocabulary, "the third layer does not follow the ids")
law = np.arange(1, vocabulary + 1) ** -words
law /= law.sum()
seen, want = np.sort(list(pairs.values()))[::-1], law * RANKS * TOKENS
for i in range(8):  # the most frequent words, in order: within five standard deviations
    oracle.check(abs(seen[i] - want[i]) < 5 * np.sqrt(want[i]) + 1, f"word {i}: {seen[i]} for {want[i]:.0f}")

# The fullest expert by brute force over the rows that were seen, which is uneven however the router is trained.
load = np.zeros(EXPERTS)
for (first, _), count in pairs.items():
    load[list(first)] += count
info = json.loads(oracle.must("trace", "info", path, "--format", "json"))
layers = info if isinstance(info, list) else info["layers"]
value = next(v for k, v in layers[0].items() if "max" in k and "mean" in k and "expert" in k or k == "max_over_mean")
oracle.check(abs(value - load.max() / load.mean()) < 1e-9, f"the fullest expert: {value}, not {load.max() / load.mean()}")

# A given table: ids that do not occur choose nothing; 3 of 4 tokens are id 7.
(scratch / "ids.csv").write_text("id,count\n0,0\n7,300\n9,100\n")
_, ids = generate("given.h5", "hash", "--ids", scratch / "ids.csv")
counts = sorted(collections.Counter(rows(ids[0])).values())
oracle.check(len(counts) == 2 and abs(counts[1] - 0.75 * RANKS * TOKENS) < 5 * np.sqrt(RANKS * TOKENS * 0.1875), f"ids 7 and 9: {counts}")

# Predicted is executed: hash layers, and many choices a token; few tokens, as every value is computed.
for name, experts, top_k, distribution in (("hash", 32, 4, "hash:vocabulary=20,words=1.5"), ("many16", 64, 16, "lognormal"),
                                           ("many22", 512, 22, "group-limited:groups=8,kept=4,popularity=lognormal")):
    path = scratch / f"{name}.h5"
    oracle.must("trace", "generate", path, "--experts", experts, "--top-k", top_k, "--layers", 1, "--ranks", 4, "--tokens-per-rank", 4,
                "--distribution", distribution)
    done = oracle.call("verify", "--trace", path, "--expert-parallel", 4, "--format", "json")
    oracle.check(done.returncode == 0, f"{name}: {done.stdout[-300:]} {done.stderr}")

# A plan takes such routing, and its search for what runs out varies the law of words.
model = dict(model_type="generic", num_hidden_layers=2, hidden_size=256, vocab_size=1000, num_attention_heads=4, num_experts=64,
             num_experts_per_tok=22, moe_intermediate_size=64)
(scratch / "many.json").write_text(json.dumps(model))
(scratch / "job.yaml").write_text("model: ./many.json\ncluster: h200-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                                  "batch: {sequences_per_gpu: 1, sequence_length: 512}\nremat: full\nschemes: [\"dense:capacity_factor=1\"]\n")
even, uneven = (json.loads(oracle.must("plan", "--job", scratch / "job.yaml", "--routing", f"hash:vocabulary=500,words={w}", "--format", "json"))
                for w in (0, 3))


def dropped(plan):
    return plan["rows"][0]["drops"]["fraction"]


oracle.check(0 < 2 * dropped(even) < dropped(uneven), f"words drop no more: {dropped(uneven)} and {dropped(even)}")
oracle.finish(least=15)
