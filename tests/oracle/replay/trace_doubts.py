#!/usr/bin/env python3
"""`exact` only where nothing that the trace says of itself differs from the job: a trace of another model, of layers that
are dense in the job, or with padding among its tokens is replayed, says so, and is not exact.

trace_doubts.py SPILLWAY SCRATCH"""
import json
import pathlib
import shutil
import sys

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import Case, Tokens, replay, run

program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "trace_doubts"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
failures, checks = [], 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        failures.append(what)


def tokens_of(case, layers):
    rng = np.random.default_rng(1)
    rows = case.ranks * case.tokens
    ids = np.argsort(rng.random((rows, layers, case.experts)), axis=2)[:, :, :case.top_k].astype(np.uint8)
    return Tokens(ids, [rows], case.experts, case.ranks, np.repeat(np.arange(case.ranks), case.tokens))


case = Case(nodes=1, gpus_per_node=4, expert=2, experts=6, top_k=2, sequences=2, length=8, model_layers=2)
good = tokens_of(case, 2).write(folder / "good.h5")
job = case.write(folder)
SAME = dict(name="case", num_layers=2, hidden_size=case.hidden, moe_intermediate_size=case.ffn)


def answer(what, said, evidence, words, change=None, of=job, trace=good):
    """Evidence of the trace with these attributes of its model, and what the sentences must hold."""
    path = folder / "changed.h5"
    shutil.copy(trace, path)
    with h5py.File(path, "r+") as f:
        for key, value in said.items():
            f["model"].attrs[key] = value
        if change:
            change(f)
    row = replay(program, path, of)["rows"][0]
    text = " ".join(row["assumptions"])
    check(row["evidence"] == evidence, f"{what}: {row['evidence']}, want {evidence}: {text}")
    for word in words:
        check(word in text, f"{what}: no '{word}' in: {text}")
    if not words:
        check("of another model" not in text and "does not say" not in text, f"{what}: {text}")


def placed(*ids):
    return lambda f: f["layer"].__setitem__(slice(None), ids)


def flagged(f):
    f["tokens/flags"] = np.zeros(64, np.uint8)
    f["tokens/flags"][5:9] = [1, 2, 4, 8]


answer("all that is said agrees", SAME, "exact", [])
answer("nothing is said", {}, "exact", ["does not say of which model"])
answer("as in the faults", dict(name="deepseek-v3", num_layers=61, hidden_size=7168, moe_intermediate_size=2048), "folded",
       ["another model, deepseek-v3", "hidden size 7168 for the job's 16", "expert width 2048 for the job's 8",
        "layers 61 for the job's 2"])
for key, value, words in (("num_layers", 3, "layers 3 for the job's 2"), ("hidden_size", 32, "hidden size 32 for the job's 16"),
                          ("moe_intermediate_size", 9, "expert width 9 for the job's 8")):
    answer(key, {**SAME, key: value}, "folded", [words])
answer("layers that the job lacks", SAME, "folded", ["layer 2 of the trace has no experts"], placed(1, 2))
answer("padding", SAME, "folded", ["flags as padding", "2 of them at step 0"], flagged)
synthetic = dict(name="synthetic", num_layers=7)
answer("made for no model", synthetic, "exact", ["the trace is synthetic"], lambda f: f.attrs.__setitem__("synthetic", 1))
answer("real, for all its name", synthetic, "folded", ["another model, synthetic"])

dense = Case(nodes=1, gpus_per_node=4, expert=2, experts=6, top_k=2, sequences=2, length=8, model_layers=3)
dense_job = dense.write(folder, "dense")
model = json.loads((folder / "dense_model.json").read_text())
(folder / "dense_model.json").write_text(json.dumps({**model, "first_k_dense_replace": 1, "intermediate_size": 32}))
answer("its own layers", {**SAME, "num_layers": 3}, "exact", [], placed(1, 2), dense_job)
answer("a dense layer", {**SAME, "num_layers": 3}, "folded", ["layer 0 of the trace has no experts in the job's"], placed(0, 1),
       dense_job)

# A preset has a name; a model of a file has the file's.
mixtral = Case(nodes=1, gpus_per_node=4, expert=2, experts=8, top_k=2, sequences=1, length=4, model_layers=32)
of_mixtral = tokens_of(mixtral, 32).write(folder / "mixtral.h5")
mixtral_job = mixtral.write(folder, "mixtral")
mixtral_job.write_text(mixtral_job.read_text().replace("./mixtral_model.json", "mixtral-8x7b"))
for name, evidence, words in (("mistralai/Mixtral-8x7B-v0.1", "exact", []), ("Mixtral-8x7B-Instruct", "exact", []),
                              ("Qwen/Qwen3-30B-A3B", "folded", ["another model, Qwen/Qwen3-30B-A3B:"])):
    answer(name, dict(name=name, num_layers=32), evidence, words, None, mixtral_job, of_mixtral)

def repeated(f):
    f["tokens/sequence"] = np.repeat(np.arange(8), 8).astype(np.int32)
    f["tokens/position"] = np.tile([0, 1, 2, 3, 4, 5, 6, 6], 8).astype(np.int32)


answer("two tokens at one place", SAME, "folded", ["several tokens have one place in a sequence, at step 0 first"], repeated)
answer("evaluation", SAME, "folded", ["1 step of phase eval is replayed as of training"],
       lambda f: f["steps/phase"].__setitem__(0, 1))
answer("no phase", SAME, "exact", [], lambda f: f["steps/phase"].__setitem__(0, 4))


def weighted(order, *weights):
    def change(f):
        f["tokens/weight"] = np.tile(np.array(weights, np.float16), (64, 2, 1))
        f["tokens/expert_id"].attrs["order"] = order
    path = folder / "weighted.h5"
    shutil.copy(good, path)
    with h5py.File(path, "r+") as f:
        change(f)
    return run(program, "replay", path, "--job", job, "--scheme", "tutel:capacity_factor=1"), run(program, "trace", "verify", path)


for order, weights, status in (("descending_weight", (0.2, 0.8), 3), ("descending_weight", (0.8, 0.2), 0),
                               ("descending_weight", (0.5, 0.5), 0), ("unspecified", (0.2, 0.8), 0)):
    done, verified = weighted(order, *weights)
    check(done.returncode == status and ("above the slot before it" in done.stderr) == (status == 3), f"{order} {weights}: {done.stderr}")
    check(verified.returncode == (status == 3), f"verify, {order} {weights}: {verified.stdout}")


def info_of(change):
    path = folder / "info.h5"
    shutil.copy(good, path)
    with h5py.File(path, "r+") as f:
        change(f)
    return run(program, "trace", "info", path).stdout


text = info_of(flagged)
check("flags      2 of the tokens are padding or of a dummy run" in text and "phases" not in text, f"info: {text}")
check("phases     1 decode" in info_of(lambda f: f["steps/phase"].__setitem__(0, 3)), "info: phases")

# Imports: experts that nobody chooses.
ids = np.argsort(np.random.default_rng(2).random((600, 2, 8)), axis=2)[:, :, :2].astype(np.int32)
for shift, experts, words in ((0, 8, ""), (1, 9, "1 expert of 9, from 0 to 0, is in no layer"), (0, 16, "8 experts of 16, from 8 to 15, are in no layer")):
    np.save(folder / "ids.npy", ids + shift)
    done = run(program, "trace", "import", "array", folder / "ids.npy", "--output", folder / "ids.h5", "--experts", experts, "--top-k", 2,
               "--axes", "tokens,layers,k")
    *rest, wrote = done.stderr.splitlines()
    check(done.returncode == 0 and wrote.startswith("wrote ") and words in "".join(rest) and len(rest) == (words != ""),
          f"{shift} {experts}: {done.stderr!r}")

# Where experts lay is not used, and that is said.
answer("a placement", {}, "exact", ["/placement) is not used"],
       change=lambda f: (f.create_dataset("placement/first_step", data=np.zeros(1, np.int64)),
                         f.create_dataset("placement/physical_to_logical", data=np.zeros((1, 2, 8), np.int32))))
placed = json.loads(run(program, "trace", "info", folder / "changed.h5", "--format", "json").stdout)
plain = json.loads(run(program, "trace", "info", good, "--format", "json").stdout)
check(placed["trace"]["has_placement"] is True and plain["trace"]["has_placement"] is False, f"trace info: {placed}")
check(not any("/placement" in text for text in replay(program, good, job)["rows"][0]["assumptions"]), "a placement that is not there")

# Counts alone: a layer of which nothing was counted is no even layer, and a rank of none has the others' shares.
ids = h5py.File(good)["tokens/expert_id"][:]
by_rank = np.array([[np.bincount(ids[r * 16:r * 16 + 16, layer].ravel(), minlength=6) for layer in range(2)] for r in range(4)],
                   np.uint32)[None]


def counts_of(counts, name="counts.h5"):
    path = folder / name
    shutil.copy(good, path)
    with h5py.File(path, "r+") as f:
        del f["tokens"]
        f.attrs["content"] = "counts"
        f["counts/by_rank"], f["counts/routed"] = counts, counts.sum(1)
    return path


nothing = by_rank.copy()
nothing[0, :, 1] = 0
done = run(program, "replay", counts_of(nothing), "--job", job)
check(done.returncode == 3 and "the counts of step 0, layer 1 are all 0" in done.stderr, f"no counts: {done.stderr!r}")
one_idle = np.zeros_like(by_rank)
one_idle[0, :3, :, :2] = 16  # both on the first rank of a group: ranks 1 and 3 send all of 32 rows of 32 bytes
got = replay(program, counts_of(one_idle), job, "--scheme", "gmm")["rows"][0]["traffic"]
check(got["dispatch_bytes_per_gpu"] == 2 * 32 * 32 / 4, f"a rank without counts: {got}")

print("\n".join(failures))
print(f"{checks} checks, {len(failures)} failed")
sys.exit(1 if failures or not checks else 0)
