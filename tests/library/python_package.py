#!/usr/bin/env python3
"""The Python package against the command line, a file read by h5py, and counts made here.

python_package.py PACKAGE_FOLDER LIBRARY SPILLWAY SCRATCH SOURCE"""
import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import warnings

folder, shared, program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:6])
os.environ["SPILLWAY_LIBRARY"] = str(shared)
sys.path.insert(0, str(folder))
import h5py  # noqa: E402
import numpy  # noqa: E402

import spillway_moe as spillway  # noqa: E402
from package_checks import Checks  # noqa: E402

checks = Checks(spillway.Error)
check, fails = checks.check, checks.fails


def said(*words):
    return json.loads(subprocess.run([program, *map(str, words), "--format", "json"], check=True, capture_output=True).stdout)


data, job = source / "traces/data/training_aux_e64_slice.h5", source / "sim/jobs/scratch-moe-e64.yaml"
scratch.mkdir(parents=True, exist_ok=True)

# The same answers as the program, options as keywords.
got = spillway.replay(data, job=job, scheme=["gmm", "ring"], sequences_per_gpu=[1, 2], each_step=True)
want = said("replay", data, "--job", job, "--scheme", "gmm", "--scheme", "ring", "--sequences-per-gpu", "1,2", "--each-step")
check(got.json == want and len(got.rows) == len(want["rows"]) == 8, "replay differs from the program")
check(list(got.rows["memory.peak_bytes"]) == [r["memory"]["peak_bytes"] for r in want["rows"]], "the columns of replay")
check((got.components().sum(axis=1).to_numpy() > 0).all(), "components")
check(spillway.plan(job, scheme="gmm").json == said("plan", "--job", job, "--scheme", "gmm"), "plan differs")
planned = spillway.plan(job, set={"batch.sequences_per_gpu": "[1,2]"}, scheme=["gmm", "ring"])
check(len(planned.rows) == 4 and 0 < len(planned.front) <= 4, "the rows of a plan")
check(list(spillway.explain(job, scheme="gmm")["bytes"]) == [c["bytes"] for c in said("explain", "--job", job, "--scheme", "gmm")],
      "explain differs")
check(spillway.model("glm-4.5").total == said("model", "glm-4.5")["parameters_total"], "model differs")
check(spillway.model("glm-4.5", check="400B").active > 0, "a check that fails has an answer")

# A job that is a dictionary.
own = {"model": "scratch-moe-e64", "cluster": "mi355x-8x8", "parallel": {"expert": 8, "fsdp": 8},
       "batch": {"sequences_per_gpu": 2, "sequence_length": 512}, "precision": "bf16", "schemes": ["gmm"]}
check(spillway.replay(data, job=own).rows["memory.peak_bytes"][0] ==
      spillway.replay(data, job=job, scheme="gmm").rows["memory.peak_bytes"][0], "a dictionary is another job")
fails("job: unknown key 'modle'", spillway.plan, {"modle": "scratch-moe-e64"})
for little in ({}, {"batch": {"sequences_per_gpu": [1, 2], "sequence_length": 2048}}, {"parallel": {"expert": 2}}):
    keys = [word for key, value in little.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    got, want = spillway.plan({"model": "olmoe-1b-7b", "cluster": "h100:8x1", "schemes": ["gmm"], **little}).json, \
        said("plan", "--model", "olmoe-1b-7b", "--cluster", "h100:8x1", "--scheme", "gmm", *keys)
    for answer in (got, want):
        answer["settings"].pop("arguments")
    check(got == want, f"a dictionary with {[*little]} has other defaults than the command")
fails("model 'olmo' is unknown", spillway.plan, {"model": "olmo", "cluster": "h100:8x1"})
fails("job: 5 is no job; the path of a job's file", spillway.plan, 5)
result = scratch / "result.h5"
spillway.replay(data, job=own, output=result)
with spillway.open_result(result) as dataset:
    check(dataset["rows_received"].dims == ("result", "step", "layer", "rank"), "the dimensions of a result")

check(json.loads(spillway.replay(data, job=own).json["settings"]["job_file"]) == own, "a result names another job than the dictionary")

# Paths in a dictionary are taken from the working directory, as those of the command line are; and nothing is written there.
preset = source / "sim/clusters/mi355x-8x8.yaml"
work = scratch / "work"
shutil.rmtree(work, ignore_errors=True)
work.mkdir()
(work / "my-cluster.yaml").write_text(preset.read_text())
os.chdir(work)
near = {**own, "cluster": pathlib.Path("my-cluster.yaml"), "batch": {**own["batch"], "sequences_per_gpu": numpy.array([2])}}
check(list(spillway.plan(near).rows["memory.peak_bytes"]) == list(spillway.plan(own).rows["memory.peak_bytes"]), "a relative path")
check([p.name for p in work.iterdir()] == ["my-cluster.yaml"], "a question leaves a file")
fails("no-such.yaml", spillway.plan, {**own, "cluster": "no-such.yaml"})
fails("not {1}", spillway.plan, {**own, "schemes": {1}}, kind=TypeError)
fails("job: unknown key", spillway.plan, {**own, "no_such": 1})

# A search and an --until have answers of their own, the program's.
space = {"pipeline": [1, 2], "micro-batches": [1]}
words = ("plan", "--job", job, "--scheme", "gmm", "--sequences-per-gpu", "1,2", "--search", "--over", "pipeline=1,2", "--over",
         "micro-batches=1", "--price", "2")
found = spillway.plan(job, scheme="gmm", sequences_per_gpu=[1, 2], search=True, over=space, price=2)
want = said(*words)
for answer in (found.json, want):  # the words of the command differ: a list is repeated, or joined
    for plan in answer["plans"]:
        plan["settings"].pop("arguments")
check(found.json == want and type(found).__name__ == "Search", "a search differs from the program's")
check(found.best["tokens_per_s_per_gpu"] == max(found.front["tokens_per_s_per_gpu"]) and found.best["cost.money"] > 0, "its best point")
check(found.plans[0].fastest["memory.max_bytes"] == found.best["peak_bytes"] and found.best_sure["surely_fits"], "its plans")
check(len(spillway.search(job, scheme="gmm", sequences_per_gpu=1, over=["pipeline=1", "micro-batches=1"]).front) > 0, "search()")
nothing = spillway.search(job, scheme="gmm", sequences_per_gpu=1, over=space, tokens_per_day=1e15)
check(nothing.best is None and nothing.best_sure is None and not len(nothing.front) and nothing.plans == [], "a search that finds nothing")
bare = dict(model="olmoe-1b-7b", cluster="mi300x:8x1", expert_parallel=8, scheme="gmm", stack="none")
uneven = spillway.plan(**bare, until="oom")
check(uneven.json == said("plan", "--model", "olmoe-1b-7b", "--cluster", "mi300x:8x1", "--expert-parallel", 8, "--scheme", "gmm",
                          "--stack", "none", "--until", "oom") and list(uneven.rows["question"]) == ["oom"], "an --until differs")
check(list(spillway.until(**bare, question=["oom", "step=2"]).rows["question"]) == ["oom", "step=2"], "until()")

# Every other option of plan, replay and explain.
for options in ({"traffic": True}, {"peer": "megatron"}, {"as": "simumax"}, {"stack": "maxtext-rocm-2026-05"}, {"trace": data, "rank": 3}):
    flags = [word for name, value in options.items()
             for word in (["--" + name.replace("peer", "as")] + ([] if value is True else [value]))]
    got = spillway.explain(job, scheme="gmm", **options)
    check(len(got) == len(said("explain", "--job", job, "--scheme", "gmm", *flags)) > 0, f"explain {options}")
for options in ({"overload": True}, {"advise": True}, {"fits_at": 99}, {"drop_at_most": 1},
                {"steps": "0:1", "layers": "0:2"}, {"chrome_trace": work / "chrome.json"}, {"checkpoint": work / "kept"},
                {"memory": "40GB"}, {"tokens": 1e12, "price": 2}, {"seed": 3}):
    got = spillway.replay(data, job=job, scheme="dense:capacity_factor=1.25", stack="maxtext-rocm-2026-05", **options)
    check(len(got.rows) == 1 and numpy.isfinite(got.rows["time.step_s"][0]), f"replay {options}")
fails("no copies of experts", spillway.replay, data, job=job, scheme="gmm", stack="maxtext-rocm-2026-05", balancer="eplb:replicas=8,every=1")
check("balance" in " ".join(spillway.replay(data, job=job, scheme="gmm", balancer="eplb:replicas=8,every=1").json), "a balancer")
for options in ({"all": True}, {"expert_parallel": "all"}, {"imbalance": 1.5}, {"routing": "zipf:exponent=0.5", "routing_steps": 2},
                {"drop_at_most": 5}, {"chrome_trace": work / "plan.json"}, {"set": {"precision.optimizer": "fp32"}}):
    check(spillway.plan(job, scheme="gmm", **options).fastest is not None, f"plan {options}")
for name, value in (("format", "csv"), ("help", True), ("usage", True), ("version", True), ("wide", True)):
    for ask_it in (spillway.plan, spillway.explain):
        fails("--" + name, ask_it, job, **{name: value})
fails("an option takes", spillway.plan, job, seed=object(), kind=TypeError)
fails("go with", spillway.plan, job, search=True, all=True)
with warnings.catch_warnings(record=True) as said_beside:
    warnings.simplefilter("always")
    spillway.replay(data, job=job, scheme="gmm", allocator="expandable_segments:True", set={"batch.micro_batches": 1, "remat": "none"})
    spillway.replay(data, job=job, scheme="dense:capacity_factor=1", allocator="expandable_segments:True")
check(any("has no effect here" in str(w.message) for w in said_beside), "a note of the program is not told")

# Errors are told, and nothing else happens.
fails("'--no-such' is no option", spillway.replay, data, job=job, no_such=1)
fails("no-such.h5", spillway.Trace, "no-such.h5")
fails("which trace?", spillway.ask, "replay")
fails("no question", spillway.ask, "dance")

# A trace: as h5py reads it.
with h5py.File(data) as file:
    ids = file["tokens/expert_id"][:]
with spillway.Trace(data) as trace:
    check((trace.steps, trace.layers, trace.experts, trace.top_k) == (2, 4, 64, 8), repr(trace))
    check(list(trace.step_ids) == [50, 399], "the steps' names")
    for step in range(trace.steps):
        for layer in range(trace.layers):
            choices = trace.choices(step, layer)
            check(choices.shape == (trace.step_tokens[step], 8), "the shape of the choices")
            counted = numpy.bincount(choices[choices >= 0], minlength=trace.experts)
            check((counted == trace.counts(step, layer)).all(), "counts and choices differ")
    total = numpy.bincount(ids[ids < 64].ravel(), minlength=64)
    check((trace.counts().sum(axis=(0, 1)) == total).all(), "the counts are not the file's")
    check((trace.counts(step=1)[2] == trace.counts(1, 2)).all() and trace.counts(layer=2).shape == (2, 64), "the axes of counts")
    check(len(trace.balance()) == 4 and trace.source_ranks(0).max() == 63, "balance and source ranks")
    fails("step 2", trace.choices, 2, 0, kind=IndexError)
    fails("layer 4", trace.counts, 0, 4)
fails("closed", trace.counts, 0, 0, kind=ValueError)

# A trace of one's own.
random = numpy.random.default_rng(1)
expert = numpy.argsort(random.random((3, 10, 16)), axis=2)[..., :4]
expert[0, 3, 3] = -1
weight = numpy.sort(random.random((3, 10, 4)).astype(numpy.float16), axis=2)[..., ::-1]
path = scratch / "own.h5"
path.unlink(missing_ok=True)
with spillway.TraceWriter(path, layers=3, experts=16, top_k=4, ranks=2, weights=True, layer_ids=[1, 3, 5], model="own",
                          by_falling_weight=True) as writer:
    writer.step(7, expert, weight, [0] * 5 + [1] * 5)
    fails("expert", writer.step, 8, expert[:2], weight, [0] * 10, kind=ValueError)
    check(not path.exists(), "the file is there before it is whole")
with spillway.Trace(path) as trace:
    check((trace.choices(0, 0) == expert[0]).all() and (trace.weights(0, 2) == weight[2]).all(), "written and read differ")
    check(list(trace.layer_ids) == [1, 3, 5] and trace.info()["trace"]["model"] == "own", "what the file says of itself")
    check((trace.verify()["failed"] == 0).all(), f"verify: {trace.verify()}")
# The order of a token's slots is what was said, with weights and without; weights that rise are refused only where it is that they fall.
for weights, falling in ((False, False), (False, True), (True, False), (True, True)):
    path = scratch / f"order_{weights:d}{falling:d}.h5"
    path.unlink(missing_ok=True)
    rising = weight[..., ::-1]
    with spillway.TraceWriter(path, layers=3, experts=16, top_k=4, weights=weights, by_falling_weight=falling) as writer:
        writer.step(7, expert, weight if weights else None)
        if weights and falling:
            fails("weight", writer.step, 8, expert, rising)
        else:
            writer.step(8, expert, rising if weights else None)
    with h5py.File(path) as file:
        order = file["tokens/expert_id"].attrs.get("order")
    check((order == "descending_weight") == falling, f"weights {weights}, falling {falling}: the file says {order}")
    with spillway.Trace(path) as trace:
        check(trace.verify()["failed"].sum() == 0, f"weights {weights}, falling {falling}: {trace.verify()}")
        check(trace.steps == (1 if weights and falling else 2), f"{trace.steps} steps")
try:
    with spillway.TraceWriter(scratch / "none.h5", layers=1, experts=4, top_k=1):
        raise KeyError
except KeyError:
    check(not (scratch / "none.h5").exists(), "an error in the with statement leaves a file")
with spillway.Trace.generate(scratch / "made.h5", experts=32, top_k=2, layers=2, ranks=4, tokens_per_rank=64) as trace:
    check(trace.tokens == 256, "generate")

# What ctypes or NumPy would cut, and what no reader takes, is refused; the steps around it stay.
path = scratch / "refused.h5"
with spillway.TraceWriter(path, layers=2, experts=8, top_k=1, ranks=8, weights=True) as writer:
    def step(id, expert=numpy.zeros((2, 3, 1), int), weight=numpy.full((2, 3, 1), 0.5), rank=(0, 1, 7)):
        writer.step(id, numpy.asarray(expert), weight, rank)

    step(1)
    nine = numpy.zeros((2, 3, 1), int)
    nine[1, 0, 0] = 9
    fails("expert 9 of 8", step, 2, nine)  # the second layer, when the first one is there
    for rank in ([65536, 0, 0], [-1, 0, 0], [1.9, 0, 0], ["1", "2", "3"]):
        fails("source_rank", step, 2, rank=rank, kind=ValueError)
    fails("source rank 8 of 8", step, 2, rank=[8, 0, 0])
    for value in (numpy.nan, numpy.inf, 1e9):
        fails("weight", step, 2, weight=numpy.full((2, 3, 1), value), kind=ValueError)
    fails("a weight below 0", step, 2, weight=numpy.full((2, 3, 1), -1.0))
    fails("weight", step, 2, weight=numpy.full((2, 3, 1), "1"), kind=ValueError)
    for name in (2**63, -2**63 - 1, 1.5, "2"):
        fails("id", step, name, kind=ValueError)
    fails("must rise", step, 1)
    step(2)
with spillway.Trace(path) as trace:
    check(list(trace.step_ids) == [1, 2] and trace.tokens == 6, f"refused steps: {trace}")
    for position in (-1, 2):
        fails(f"step {position}", trace.counts, position, kind=IndexError)
    fails("layer -1", trace.choices, 0, -1, kind=IndexError)
    for value in (2**64, 1.5):
        fails("layer", trace.choices, 0, value, kind=ValueError)
        fails("step", trace.counts, value, kind=ValueError)
SIZES = dict(layers=1, experts=8, top_k=1)
for option, values in {"layers": (-1, 2**64 + 1, 1.5), "experts": (-1, 2**64 + 8), "top_k": (2**64 + 1,), "ranks": (-1, 2.0),
                       "hidden": (2**64,), "model_layers": (-5,), "layer_ids": ([2**32 + 5], [0.5], [-1])}.items():
    for value in values:
        fails(option, spillway.TraceWriter, scratch / "none.h5", **{**SIZES, option: value}, kind=ValueError)
fails("3 at position 1", spillway.TraceWriter, scratch / "none.h5", **{**SIZES, "layers": 2}, layer_ids=[3, 3])
for option in ("model", "source", "license", "generator", "note"):
    fails("NUL", spillway.TraceWriter, scratch / "none.h5", **SIZES, **{option: "a\0b"}, kind=ValueError)
fails("NUL", spillway.Trace, f"{path}\0x", kind=ValueError)
fails("NUL", spillway.ask, "trace info", f"{path}\0x", kind=ValueError)
fails("NUL", spillway.ask, "trace info", f"{path}\0x")  # what is wrong with an argument is spillway_moe.Error, too
fails("NUL", spillway.plan, model="mixtral-8x7b\0", cluster="h100")
fails("NUL", spillway.TraceWriter, f"{path}\0x", **SIZES, kind=ValueError)
check(not (scratch / "none.h5").exists(), "a refused writer leaves a file")

# A notebook's cell that runs twice: each file is written, read and written again.
for turn in range(2):
    with spillway.TraceWriter(path, **SIZES) as writer:
        writer.step(turn, numpy.full((1, 3, 1), turn))
    with spillway.Trace(path) as trace:
        check(trace.counts().sum() == 3 and list(trace.step_ids) == [turn], "a file that was written twice")
    spillway.ask("trace slice", str(path), str(scratch / "again.h5"), "--steps", "0:1")
    check(spillway.ask("trace info", str(scratch / "again.h5"))["format"], "a slice that was written twice")
    spillway.replay(data, job=own, output=result)
    with spillway.Trace.generate(scratch / "made.h5", experts=32, top_k=2, layers=2, ranks=4, tokens_per_rank=64) as trace:
        check(trace.tokens == 256, "generate")
        fails("close that reader first", spillway.ask, "trace slice", str(path), str(scratch / "made.h5"), "--steps", "0:1")

# Processes that are forked after a call: OpenMP's threads are not copied.
def rows_of(sequences):
    return len(spillway.replay(data, job=own, sequences_per_gpu=[sequences]).rows)


with multiprocessing.get_context("fork").Pool(2) as pool:
    check(pool.map_async(rows_of, [1, 2]).get(timeout=300) == [1, 1], "forked processes")

# Threads: each has its own error.
wrong = []


def ask(name):
    for _ in range(3):
        try:
            spillway.model(name)
            wrong.append(name)
        except spillway.Error as error:
            if name not in str(error):
                wrong.append(str(error))


threads = [threading.Thread(target=ask, args=(f"no-model-{i}",)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check(not wrong, str(wrong))
print(f"{checks.count} checks")
