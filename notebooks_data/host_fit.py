#!/usr/bin/env python3
"""The host's figures of sim/megatron_stacks/megatron-te-h100-few-2026-11.yaml, fitted to whole training steps of
measured/whole_pipelines_h100.csv and whole_rounds_h200.csv, and how far steps are off whose kind no fit has seen.  Needs numpy and h5py.

host_fit.py SPILLWAY SCRATCH [--parts] [--stack FILE]

`spillway replay` says of every run what its kernels take; rates and shares are those of published runs and of kernels measured alone.
Fitted are the host's work for a layer, an expert and an fp8 recipe, and gaps of a layer, by the law of sim/time/megatron/megatron_host.h: a forward
or a backward pass takes what its kernels take or what the host takes, whichever is more. Beside them, of the first table alone, whose steps are the
fourth to the tenth of a process, what a layer takes longer whose experts have unlike rows: shapes that cuBLAS has not met. Steps are
means of the measured ones, and medians of the second table; the loss grows slower than the square, and a prior holds every figure
within a factor of e.
--parts: each run, and where its step goes"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE / "measured"))
import pipeline_jobs  # noqa: E402
import whole_rounds_jobs  # noqa: E402
from whole_routing import choices  # noqa: E402

STACK = "megatron-te-h100-few-2026-11"
START = dict(layer=14.0, expert=0.08, unlike=8.0, gap=1.5, recipe=4.0)  # ms; a layer's of Transformer Engine measured alone
FORWARD = 0.56  # of the host's work; measured
NOT_KERNELS = ("launch_gaps", "pipeline_bubble", "optimizer", "gradient_scatters", "weight_gathers")


def unlike(run, model):
    """Share of a rank's experts whose number of rows no other has, of the first MoE layers."""
    shares, ranks = [], run["expert_parallel"]
    tokens, experts = run["micro_batch"] * run["sequence"], model["num_experts"]
    for layer in range(model.get("first_k_dense_replace", 0), model.get("first_k_dense_replace", 0) + 3):
        rows = sum(numpy.bincount(choices(run["routing"], 3, 0, layer, source, tokens, model["num_experts_per_tok"], experts, ranks).ravel(),
                                  minlength=experts) for source in range(ranks))
        for mine in numpy.split(rows, ranks):
            away = abs(mine[:, None] - mine[None, :]) + 2 * numpy.eye(len(mine))
            shares.append(((away > 1).all(axis=1) & (mine > 0)).mean())
    return numpy.reshape(shares, (-1, ranks)).max(axis=1).mean()


def taken(run, said, true, optimizer, cold):
    """One run: its sizes, where its step goes, what it took."""
    model = pipeline_jobs.MODELS[run["model"]]
    part = {k: 1e3 * v["exposed_s"] for k, v in said["components"].items()}
    stages, layers = run["pipeline"], model["num_hidden_layers"] + run["predictions"]
    each = [c.count("t") + c.count("m") for c in expand(run["layout"]).split("|")] if run["layout"] else [layers / stages] * stages
    busiest = max(sum(each[s::stages]) for s in range(stages))
    dense = 0 if stages > 1 else model.get("first_k_dense_replace", 0)
    return dict(name=run["name"], run=run, part=part, said=said, true=true, optimizer=optimizer, layers=busiest, moe=busiest - dense,
                turns=run["micro_batches"] * busiest + (layers - busiest) / max(1, run["virtual_stages"]) * (stages > 1),
                kernels=sum(v for k, v in part.items() if k not in NOT_KERNELS) / run["micro_batches"] / busiest,
                experts=model["num_experts"] // run["expert_parallel"], unlike=unlike(run, model) if cold else 0.0, cold=cold,
                again=1.0 if run["remat"] == "full" else 0.0)


def read(spillway, scratch, stack):
    for name, ranks in pipeline_jobs.read().items():
        if not pipeline_jobs.ran(ranks):
            continue
        run = ranks[0]
        if ">" not in run["routing"]:
            run["steps"] = 2
        said = whole_rounds_jobs.ask(spillway, scratch, run, "--stack", stack)
        yield taken(run, said, max(float(r["step_ms"]) for r in ranks), min(float(r["optimizer_ms"]) for r in ranks), True)
    steps = whole_rounds_jobs.measured()
    for one in whole_rounds_jobs.cells():
        times = steps.get((one["of"], one["cell"]))
        if times is None or one["cell"].endswith("fresh"):  # not run; shapes that are new in part
            continue
        said = whole_rounds_jobs.ask(spillway, scratch, dict(one, cluster="h200-8x8"), "--stack", stack)
        yield taken(one, said, numpy.median(list(times.values())), None, False)


def expand(layout):
    """"Et*3|t" as "Ettt|t"."""
    return re.sub(r"(\w)\*(\d+)", lambda m: m[1] * int(m[2]), layout)


def predict(r, v):
    per = v["layer"] + v["recipe"] * bool(r["run"]["fp8"])
    per += (v["expert"] * r["experts"] + v["unlike"] * r["unlike"]) * r["moe"] / r["layers"]
    passes, total = 3 + r["again"], (1 + r["again"] / 3) * per
    ahead, forward = FORWARD * per, (r["kernels"] + v["gap"]) / passes
    each = max(forward, ahead) + max((passes - 1) * forward, total - ahead)
    return r["turns"] * each + sum(r["part"].get(k, 0.0) for k in NOT_KERNELS[2:])


def fit(runs):
    """Gauss and Newton on the logarithms, with weights that fall as 1 / sqrt(1 + z^2)."""
    start, x = numpy.log(list(START.values())), numpy.log(list(START.values()))

    def misses(x):
        v = dict(zip(START, numpy.exp(x)))
        return numpy.array([math.log(predict(r, v) / r["true"]) / 0.08 for r in runs])

    def loss(x):
        return (2 * (numpy.sqrt(1 + misses(x) ** 2) - 1)).sum() + ((x - start) ** 2).sum()

    for _ in range(30):
        z = misses(x)
        slope = numpy.array([(misses(x + 1e-4 * unit) - z) / 1e-4 for unit in numpy.eye(len(x))]).T
        weight = 1 / numpy.sqrt(1 + z * z)
        step = numpy.linalg.solve(slope.T @ (weight[:, None] * slope) + numpy.eye(len(x)), -slope.T @ (weight * z) - (x - start))
        while numpy.abs(step).max() > 1e-6 and loss(x + step) >= loss(x):
            step = step / 2
        x = x + step
    return dict(zip(START, numpy.exp(x)))


def percent(errors):
    return f"{100 * numpy.mean(numpy.abs(errors)):.1f} ({100 * numpy.mean(errors):+.1f})"


KINDS = (("table", lambda r: "first steps" if r["cold"] else "rounds"), ("model", lambda r: r["run"]["model"]), ("GPUs", lambda r: r["run"]["gpus"]), ("stages", lambda r: r["run"]["pipeline"]),
         ("virtual stages", lambda r: r["run"]["virtual_stages"]), ("expert-parallel", lambda r: r["run"]["expert_parallel"]),
         ("sequences a micro-batch", lambda r: r["run"]["micro_batch"]), ("experts a rank", lambda r: r["experts"]),
         ("routing", lambda r: r["run"]["routing"].split(":")[0] if ">" not in r["run"]["routing"] else "turns"),
         ("recompute", lambda r: r["run"]["remat"]), ("run", lambda r: r["name"]))

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spillway"), parser.add_argument("scratch", type=pathlib.Path), parser.add_argument("--parts", action="store_true"), parser.add_argument("--stack", default=str(HERE.parent / f"sim/megatron_stacks/{STACK}.yaml"))
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    runs = list(read(given.spillway, given.scratch, given.stack))
    text = pathlib.Path(given.stack).read_text()
    now = 1e3 * float(text.split("matrix_host_s:\n  value: ")[1].split()[0])
    best = fit(runs)
    matrix = [now + (r["optimizer"] - r["part"]["optimizer"]) / (2 * r["experts"] * r["moe"]) for r in runs if r["optimizer"]]
    print(f"ms of the optimizer for a matrix of an expert: median {numpy.median(matrix):.3f}, stack {now:.3f}")
    print("ms:", ", ".join(f"{k} {v:.4g}" for k, v in best.items()))
    said = [r["said"]["step_s"] * 1e3 / r["true"] - 1 for r in runs]
    inside = sum(r["said"]["low_s"] <= r["true"] / 1e3 <= r["said"]["high_s"] for r in runs)
    print(f"{len(runs)} runs, mean error (with its sign), %: of the stack {percent(said)}, {inside} inside their intervals;",
          f"of this fit {percent([predict(r, best) / r['true'] - 1 for r in runs])}")
    for r, error in zip(runs, said) if given.parts else ():
        parts = ", ".join(f"{k} {v:.0f}" for k, v in r["part"].items() if v >= 1)
        print(f"  {r['name']:22s} {1e3 * r['said']['step_s']:5.0f} {r['true']:5.0f} ms {100 * error:+4.0f} %  {parts}")
    print("| kind | runs | of the stack | left out of a fit |\n|---|---:|---:|---:|")
    for kind, of in KINDS:
        unseen = {}
        for group in sorted({of(r) for r in runs}, key=str):
            v = fit([r for r in runs if of(r) != group])
            unseen[group] = [predict(r, v) / r["true"] - 1 for r in runs if of(r) == group]
        if kind != "run":
            for group, errors in unseen.items():
                print(f"| {kind} {group} | {len(errors)} | {percent([e for e, r in zip(said, runs) if of(r) == group])} | {percent(errors)} |")
        print(f"| each {kind} | {len(runs)} | | {percent([e for errors in unseen.values() for e in errors])} |")
