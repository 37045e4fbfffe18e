#!/usr/bin/env python3
"""p50, p99 and most of memory, by counting over the steps of `replay --output`: pNN is the smallest value that occurred and that at
least NN % of the steps do not exceed (sim/statistics/quantiles.h). The value of a step is what a replay of that step alone says. The
same for what PyTorch's allocator has and reserves, for the share of steps that do not fit, and for the worst step.

quantiles_oracle.py SPILLWAY SCRATCH"""
import math
import pathlib
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import Case, Tokens, replay

program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "quantiles_oracle"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
checks = failed = 0
SCHEMES = ("megatron-alltoall", "megablocks", "deepep", "gmm")  # gmm holds the same, whatever arrives


def check(good, what):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print(what)


def quantile(values, percent):
    """By definition, value for value."""
    return min(v for v in values if 100 * sum(w <= v for w in values) >= percent * len(values))


def written(steps, seed):
    """A trace whose steps are crowded, each to another degree and in no order, and its job."""
    rng = np.random.default_rng(seed)
    case = Case(1, 4, 4, 8, 2, 2048, 1024, 2, 2, 16, "full", SCHEMES)
    tokens = case.ranks * case.tokens
    ids = np.empty((steps * tokens, 2, 2), np.uint8)
    for step in range(steps):
        crowd = (rng.random((tokens, 2, 1)) ** rng.uniform(1, 6) * 8).astype(np.uint8)
        ids[step * tokens:(step + 1) * tokens] = np.concatenate([crowd, (crowd + rng.integers(1, 8, crowd.shape)) % 8], axis=2)
    rank = np.tile(np.repeat(np.arange(case.ranks), case.tokens), steps)
    sequence = np.tile(np.arange(tokens) // case.length, steps)
    position = np.tile(np.arange(tokens) % case.length, steps)
    trace = Tokens(ids, [tokens] * steps, 8, case.ranks, rank, sequence, position)
    return trace.write(folder / f"{steps}.h5"), case.write(folder, str(steps))


def series(result_file, field, i):
    with h5py.File(result_file) as f:
        return [round(v * 2**30) for v in f[field][i]]


def hold(what, got, values):
    for key, want in (("p50_bytes", quantile(values, 50)), ("p99_bytes", quantile(values, 99)), ("max_bytes", max(values))):
        check(got[key] == want, f"{what}: {key} is {got[key]}, by counting {want}")


def hold_allocator(what, got, values):
    """The first step has no moments yet: its routing counts as it would be once they are there, one value that no step of the file has."""
    keys, rest = ("p50_bytes", "p99_bytes", "max_bytes"), values[1:]
    unknown = {got[key] for key in keys} - set(rest)
    fits = [again for again in {*unknown, *rest, values[0]} if again >= values[0]
            and [got[key] for key in keys] == [quantile([again, *rest], 50), quantile([again, *rest], 99), max([again, *rest])]]
    check(len(unknown) <= 1 and fits, f"{what}: {[got[key] for key in keys]} of {values[0]} and {rest[:8]}")


def run(steps, seed, each):
    path, job = written(steps, seed)
    out = folder / f"{steps}_out.h5"
    rows = replay(program, path, job, "--output", out)["rows"]
    for i, (scheme, row) in enumerate(zip(SCHEMES, rows)):
        memory, where = row["memory"], f"{scheme}, {steps} steps"
        peaks = series(out, "peak_gib", i)
        check(len(peaks) == steps and (steps < 5 or (len(set(peaks)) > 3) == (scheme != "gmm")), f"{where}: peaks {set(peaks)}")
        hold(where, memory, peaks)
        worst = memory["worst"]["step"]
        check(peaks[worst // 10] == max(peaks), f"{where}: step {worst} is not the worst")
        if memory["allocator"] is not None:
            hold_allocator(f"{where}, allocated", memory["allocator"]["allocated"], series(out, "allocated_gib", i))
            hold_allocator(f"{where}, reserved", memory["allocator"]["reserved"], series(out, "reserved_gib", i))
    for step in each:
        alone = replay(program, path, job, "--steps", f"{step}:{step + 1}")["rows"]
        for i, (scheme, row) in enumerate(zip(SCHEMES, alone)):
            want = row["memory"]["max_bytes"]
            check(series(out, "peak_gib", i)[step] == want, f"{scheme}: step {step} of {steps} differs from the step alone, {want}")


def tail(n, k, p):
    """The chance of k or more of n."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


def refused(steps, percent):
    """A budget that the greater ones of the steps pass. Without an allocator the live bytes decide."""
    path, job = written(steps, steps)
    text = job.read_text().replace("sequence_length: 16}", "sequence_length: 16, micro_batches: 2}")
    job.write_text(text)
    out = folder / "refused.h5"
    row = replay(program, path, job, "--scheme", SCHEMES[0], "--no-allocator", "--output", out)["rows"][0]
    peaks = series(out, "peak_gib", 0)
    hold(f"{steps} steps of two micro-batches", row["memory"], peaks)
    limit = quantile(peaks, percent)
    job.write_text(text + f"memory_fraction: {(limit + 0.25) / (80 * 2**30)!r}\n")
    memory = replay(program, path, job, "--scheme", SCHEMES[0], "--no-allocator")["rows"][0]["memory"]
    over = sum(peak > limit for peak in peaks)
    where = f"{over} of {steps} steps above {limit}"
    check(memory["budget_bytes"] == limit, f"{where}: the budget is {memory['budget_bytes']}")
    check(memory["oom_probability"] == over / steps, f"{where}: the probability is {memory['oom_probability']}")
    check((memory["verdict"] == "oom") == (over > 0), f"{where}: {memory['verdict']}")
    low, high = memory["oom_low"], memory["oom_high"]
    check(low == 0 if over == 0 else abs(tail(steps, over, low) - 0.025) < 1e-9, f"{where}: the interval begins at {low}")
    check(high == 1 if over == steps else abs(1 - tail(steps, over + 1, high) - 0.025) < 1e-9, f"{where}: the interval ends at {high}")


for steps, percent in ((1, 100), (7, 50), (40, 90), (40, 10), (100, 99), (100, 100)):
    refused(steps, percent)
for steps in (1, 2, 3, 4, 7, 10, 50, 99, 100, 101, 199, 201):
    run(steps, steps, range(steps) if steps <= 10 else ())
print(f"{checks} checks, {failed} failed")
sys.exit(1 if failed or checks < 300 else 0)
