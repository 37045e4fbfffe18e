#!/usr/bin/env python3
"""The law of `plan --imbalance`: tokens are drawn from the popularities that it states, experts are put on ranks at random, and rows
are counted. A search under it, and how well it foretells the shipped trace.

imbalance_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import json
import math
import pathlib
import statistics
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
oracle = Oracle(program, "imbalance_oracle")
check, run = oracle.check, oracle.must
JOB = """model: %s
cluster: h200-8x8
parallel: {expert: 8, fsdp: 8}
batch: {sequences_per_gpu: 2, sequence_length: 512}
schemes: [dense:capacity_factor=1.25, gmm]
"""
dice = np.random.default_rng(20261126)


def chosen(experts, top_k, sigma):
    """How often a token chooses each expert: log-normal quantiles, none above once a token."""
    z = np.array([statistics.NormalDist().inv_cdf((i + 0.5) / experts) for i in range(experts)])
    share = np.exp(sigma * (z - z.max()))
    once = np.zeros(experts, bool)
    while True:
        out = np.where(once, 1.0, share * (top_k - once.sum()) / share[~once].sum())
        if (out <= 1 + 1e-12).all():
            return np.minimum(out, 1.0)
        once |= out > 1


def draw(probability, top_k, tokens):
    """[tokens, experts] of 0 and 1: top_k different experts a token, each as often as asked (Madow 1949, a new order each token)."""
    order = np.argsort(dice.random((tokens, len(probability))), axis=1)
    ends = np.cumsum(probability[order], axis=1)
    ends[:, -1] = top_k
    below = np.floor(ends - dice.random((tokens, 1)) + 1)
    picked = np.diff(below, axis=1, prepend=np.zeros((tokens, 1))) > 0
    out = np.zeros_like(picked)
    np.put_along_axis(out, order, picked, axis=1)
    return out


def uneven(rows, ranks, placements=3000):
    """Mean over random placements of the fullest rank's rows over the mean of all."""
    order = np.argsort(dice.random((placements, len(rows))), axis=1)
    return rows[order].reshape(placements, ranks, -1).sum(2).max(1).mean() / (rows.sum() / ranks)


def law_of(job, *words):
    return json.loads(run("plan", "--job", job, *words, "--scheme", "gmm", "--stack", "none", "--format", "json"))["plan"]["imbalance"]


def brute_force(job):
    for model, experts, top_k, stated, ranks in (("scratch-moe-e64", 64, 8, 1.5, 8), ("mixtral-8x7b", 8, 2, 1.3, 4),
                                                 ("deepseek-v3", 256, 8, 1.25, 32), ("qwen3-30b-a3b", 128, 8, 2.0, 8)):
        job.write_text(JOB % model)
        law = law_of(job, "--imbalance", f"{stated},ep={ranks}")
        check((law["max_over_mean"], law["expert_parallel"], law["together"]) == (stated, ranks, 0), f"{model}: {law}")
        probability = chosen(experts, top_k, law["sigma"])
        picked = draw(probability, top_k, 20000)
        check((picked.sum(1) == top_k).all(), "the drawing of this test is wrong")
        rows = picked.sum(0)
        sizes = {size["expert_parallel"]: size["max_over_mean"] for size in law["sizes"]}
        check(sorted(sizes) == [r for r in range(1, experts + 1) if experts % r == 0] and sizes[1] == 1, f"{model}: {sizes}")
        for size, told in sizes.items():
            counted = uneven(rows, size)
            check(math.isclose(told, counted, rel_tol=0.02), f"{model} at EP {size}: told {told}, counted {counted}")


def beyond(job):
    """More than random placement gives: a share of placements has experts in the order of their popularity, or all have and sigma grows."""
    job.write_text(JOB % "scratch-moe-e64")
    for stated, ranks in ((2.4, 4), (4.0, 8), (7.0, 8), (1.9, 2)):
        law = law_of(job, "--imbalance", f"{stated},ep={ranks}")
        check(law["together"] > 0 and (law["sigma"] == 2 or law["sigma"] > 2 and law["together"] == 1), f"{law}")
        falling = np.sort(chosen(64, 8, law["sigma"]))[::-1]
        for size in law["sizes"]:
            parts = size["expert_parallel"]
            want = (1 - law["together"]) * uneven(falling, parts) + law["together"] * falling[:64 // parts].sum() * parts / 8
            check(math.isclose(size["max_over_mean"], max(1, want), rel_tol=0.02), f"{stated} at EP {ranks}: {size}, not {want}")


def options(job):
    """Where the number was measured: as said, or the first size of --expert-parallel, or the job's."""
    job.write_text(JOB % "scratch-moe-e64")
    for words, ranks in (([], 8), (["--expert-parallel", "16"], 16), (["--expert-parallel", "4,16"], 4), (["--expert-parallel", "all"], 8)):
        check(law_of(job, "--imbalance", "1.5", *words)["expert_parallel"] == ranks, f"{words}: not EP {ranks}")
    same = law_of(job, "--imbalance", "1.5,ep=16")
    for name in ("avg_overload_factor", "moe/avg_overload_factor", "max_overload_factor", "moe/max_cum_overload_factor"):  # Megatron-Core's
        check(law_of(job, "--imbalance", f"{name}=1.5,ep=16") == same, f"{name} is not understood")
    plan = json.loads(run("plan", "--job", job, "--imbalance", "1.5", "--expert-parallel", "all", "--format", "json"))
    sizes = {size["expert_parallel"]: size["max_over_mean"] for size in plan["plan"]["imbalance"]["sizes"]}
    for row in plan["rows"]:
        rows = row["traffic"]["rows_max"] / row["traffic"]["rows_mean"]
        if row["scheme"] == "gmm":
            check(abs(rows - sizes[row["expert_parallel"]]) < 2e-3, f"EP {row['expert_parallel']}: {rows}, not {sizes}")
    drops = [row["drops"]["fraction"] for row in plan["rows"] if row["scheme"] != "gmm"]
    want = chosen(64, 8, plan["plan"]["imbalance"]["sigma"])
    lost = np.maximum(0, want - 1.25 * 8 / 64).sum() / 8
    check(len(drops) == 7 and all(abs(drop - lost) < 3e-3 for drop in drops), f"dropped {drops}, not {lost} at every size")
    text = run("plan", "--job", job, "--imbalance", "1.5", "--expert-parallel", "all")
    check("1.5 at EP 8, stated; EP 1: 1, 2: " in text and "log-normal" in text, text)


def search(job):
    """One rank is even: under a stated imbalance it wins where it would lose, and is the best point of plain plans, too."""
    job.write_text(JOB % "scratch-moe-e64")
    found = lambda *words: json.loads(run("plan", "--search", "--job", job, "--scheme", "gmm", "--over", "expert-parallel=1,2,8",
                                          "--over", "pipeline=1", "--over", "micro-batches=1,2", "--over", "remat=full",
                                          "--over", "virtual-stages=0", "--sequences-per-gpu", "32", *words, "--format", "json"))
    for words, ranks in (([], None), (["--imbalance", "6"], 1)):
        answer = found(*words)
        points = [json.loads(run("plan", "--job", job, "--scheme", "gmm", "--expert-parallel", "1,2,8", "--micro-batches", parts, "--remat",
                                 "full", "--sequences-per-gpu", "32", *([f"{words[0]}", "6,ep=8"] if words else []), "--format", "json"))
                  for parts in (1, 2)]
        best = max((row for plan in points for row in plan["rows"]), key=lambda row: row["time"]["tokens_per_s_per_gpu"])
        check(answer["best"]["expert_parallel"] == best["expert_parallel"] and ranks in (None, best["expert_parallel"]),
              f"{words}: {answer['best']} {best['expert_parallel']}")
        check(math.isclose(answer["best"]["tokens_per_s_per_gpu"], best["time"]["tokens_per_s_per_gpu"], rel_tol=1e-9), f"{words}")
        check(answer["fates"]["cannot_be"] == 0, f"{words}: {answer['fates']}")
        check((answer["imbalance_law"] is None) == (not words), f"{words}: {answer['imbalance_law']}")
    again = json.loads(run("plan", "--job", job, *answer["best"]["options"].split(), "--format", "json"))
    check(again["plan"]["imbalance"] == answer["imbalance_law"], "the options of a point state another imbalance")


def foretells(job):
    """What the law makes of EP 8 in the shipped trace is the trace's own at other sizes, to 15 % in the mean over its layers."""
    job.write_text(JOB % "scratch-moe-e64")
    with h5py.File(root / "traces/data/training_aux_e64_slice.h5") as trace:
        counts = trace["counts/routed"][:].reshape(-1, 64).astype(float)
    real = {ranks: statistics.mean(uneven(rows, ranks) for rows in counts) for ranks in (2, 4, 8, 16, 32, 64)}
    laws = [law_of(job, "--imbalance", f"{uneven(rows, 8):.6f},ep=8") for rows in counts]
    for ranks, want in real.items():
        told = statistics.mean(size["max_over_mean"] for law in laws for size in law["sizes"] if size["expert_parallel"] == ranks)
        check(abs(math.log(told / want)) < 0.15, f"EP {ranks}: {told}, the trace has {want}")


def main():
    scratch.mkdir(parents=True, exist_ok=True)
    job = scratch / "job.yaml"
    brute_force(job)
    beyond(job)
    options(job)
    search(job)
    foretells(job)
    oracle.finish()


main()
