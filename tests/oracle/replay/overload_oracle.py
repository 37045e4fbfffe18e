#!/usr/bin/env python3
"""Overload factors of `trace info` and `replay` against a brute force over tokens, written from sim/replay/overload.h alone:
every count is made anew from the ids, the pipeline is played event by event. What a factor costs is held against `plan
--imbalance`, which states the same unevenness without a trace.

overload_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import io
import json
import pathlib
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import Case, Tokens, replay, run

program, root = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[3]).resolve()
folder = pathlib.Path(sys.argv[2]).resolve() / "overload_oracle"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
NAMES = ("max", "average", "cumulative", "slowest_by_layer", "slowest_rank")
checks = 0


def near(what, got, want, tolerance=1e-12):
    global checks
    checks += 1
    if not abs(got - want) <= tolerance * max(1.0, abs(want)):
        sys.exit(f"FAILED {what}: got {got}, want {want}")


def most_kept(per_micro_batch, stage, stages):
    """The most that forward passes have left behind, event by event: 1F1B."""
    count = len(per_micro_batch)
    warm = min(stages - 1 - stage, count)
    events = ["F"] * warm + ["F", "B"] * (count - warm) + ["B"] * warm
    now = most = forward = backward = 0
    for event in events:
        if event == "F":
            now, forward = now + per_micro_batch[forward], forward + 1
        else:
            now, backward = now - per_micro_batch[backward], backward + 1
        most = max(most, now)
    return most


def factors(rows, group, stage_of):
    """rows [layers of the job][micro-batches][ranks] -> the five."""
    layers, micro, ranks = rows.shape
    stages, single, waits, alone, kept = max(stage_of) + 1, [], [], [], []
    for first in range(0, ranks, group):
        part = rows[:, :, first:first + group]
        mean = part.mean(axis=2)
        there = mean > 0
        if not there.any():
            continue
        single += list(part.max(axis=2)[there] / mean[there])
        waits.append(part.max(axis=2).sum() / mean.sum())
        alone.append(part.sum(axis=(0, 1)).max() / mean.sum())
        for stage in range(stages):
            mine = [l for l in range(layers) if stage_of[l] == stage]
            balanced = most_kept(mean[mine].sum(axis=0), stage, stages)
            if balanced > 0:
                kept += [most_kept(part[mine][:, :, r].sum(axis=0), stage, stages) / balanced for r in range(group)]
    return dict(zip(NAMES, (max(single), float(np.mean(single)), max(kept), max(waits), max(alone))))


def compare(what, got, steps, ids, run_rows, group):
    """got: JSON; steps: factors of each; run_rows [ranks]: sums over all steps and layers."""
    for name in NAMES:
        values = [s[name] for s in steps]
        near(f"{what} {name} mean", got[name]["mean"], float(np.mean(values)))
        near(f"{what} {name} worst", got[name]["worst"], max(values))
        at = got[name]["worst_step"]
        near(f"{what} {name} worst step", values[ids.index(at)], max(values))
    parts = run_rows.reshape(-1, group)
    near(f"{what} run", got["slowest_rank_of_run"], max(p.max() / p.mean() for p in parts if p.sum() > 0))


def layer_lines(what, got, rows, group):
    """rows [steps][layers][micro-batches][ranks]."""
    for l, layer in enumerate(got):
        parts = rows[:, l].reshape(-1, group)
        values = [p.max() / p.mean() for p in parts if p.sum() > 0]
        near(f"{what} layer {l} average", layer["average"], float(np.mean(values)))
        near(f"{what} layer {l} max", layer["max"], max(values))


def count(ids, source, experts, ranks, group):
    """Rows of every rank: ids [tokens][top_k]."""
    rows = np.zeros(ranks, np.int64)
    for token, choices in enumerate(ids):
        for x in choices:
            if x < experts:
                rows[source[token] // group * group + int(x) // (experts // group)] += 1
    return rows


# --- Replays ---

def random_replay(seed):
    rng = np.random.default_rng(seed)
    group, groups, stages = int(rng.choice([1, 2, 4])), int(rng.integers(1, 3)), int(rng.choice([1, 1, 2, 3]))
    micro = int(rng.choice([1, 2, 4]))
    if stages == 1 and seed % 2:
        micro = 1
    local, top_k, per, length = int(rng.integers(1, 4)), 2, micro * int(rng.integers(1, 3)), 5
    experts, ranks = group * local, group * groups
    if experts < top_k:
        experts, local = 2 * group, 2
    model_layers = max(stages, int(rng.integers(2, 6)))
    layers = model_layers if seed % 3 else int(rng.integers(1, model_layers + 1))
    case = Case(nodes=stages, gpus_per_node=ranks, expert=group, experts=experts, top_k=top_k, hidden=16, ffn=8,
                model_layers=model_layers, sequences=per, length=length, schemes=("gmm", "megatron-alltoall"))
    job = case.write(folder, f"r{seed}")
    job.write_text(job.read_text().replace(f"fsdp: {case.ranks // group}", f"fsdp: {groups}, pipeline: {stages}")
                   .replace("batch: {", f"batch: {{micro_batches: {micro}, "))
    steps, tokens = 3, ranks * per * length
    rank = np.tile(np.repeat(np.arange(ranks), per * length), steps)
    sequence = np.tile(np.repeat(np.arange(ranks * per), length), steps)
    weight = rng.random((layers, experts)) ** 3 + 0.01
    ids = np.stack([np.argsort(-(rng.random((steps * tokens, experts)) ** (1 / weight[l])), axis=1)[:, :top_k]
                    for l in range(layers)], axis=1).astype(np.uint8)
    trace = Tokens(ids, [tokens] * steps, experts, ranks, rank, sequence, np.tile(np.arange(length), steps * ranks * per))
    path = trace.write(folder / f"r{seed}.h5")
    stage_of = []
    for s in range(stages):
        stage_of += [s] * (model_layers // stages + (s < model_layers % stages))
    out = folder / f"r{seed}_out.h5"
    result = replay(program, path, job, "--output", out)
    rows = np.zeros((steps, layers, micro, ranks), np.int64)
    for s in range(steps):
        for l in range(layers):
            for m in range(micro):
                part = (np.arange(len(rank)) // tokens == s) & (sequence % per // (per // micro) == m)
                rows[s, l, m] = count(ids[part, l], rank[part], experts, ranks, group)
    job_rows = rows[:, [i % layers for i in range(model_layers)]]
    want = [factors(job_rows[s], group, stage_of) for s in range(steps)]
    with h5py.File(out) as f:
        for r, row in enumerate(result["rows"]):
            got, what = row["overload"], f"replay {seed} {row['scheme']}"
            compare(what, got, want, [0, 10, 20], job_rows.sum(axis=(0, 1, 2)), group)
            layer_lines(what, got["layers"], rows, group)
            near(f"{what} ranks", got["ranks"], group)
            for s in range(steps):
                for name in NAMES:
                    near(f"{what} step {s} {name}", f[f"overload_{name}"][r, s], want[s][name])
                for l in range(layers):
                    parts = rows[s, l].reshape(-1, group)
                    values = [p.max() / p.mean() for p in parts]
                    near(f"{what} {s} {l}", f["overload_layer_average"][r, s, l], float(np.mean(values)))
                    near(f"{what} {s} {l}", f["overload_layer_max"][r, s, l], max(values))


# --- Traces ---

def info(path, *arguments):
    done = run(program, "trace", "info", path, "--format", "json", *arguments)
    if done.returncode != 0 or done.stderr:
        sys.exit(f"trace info {path}: {done.returncode} {done.stderr}")
    return json.loads(done.stdout)["overload"]


def random_trace(seed, sources, asked):
    rng = np.random.default_rng(seed)
    experts, layers, top_k, steps = 12, 3, 3, 4
    lengths = [int(n) for n in rng.integers(1, 60, steps)]
    n = sum(lengths)
    ids = np.argsort(rng.random((n, layers, experts)) * (1 + np.arange(experts)), axis=2)[:, :, :top_k].astype(np.uint8)
    ids[rng.random(ids.shape) < 0.2] = 255
    ids[:, 0, 0][ids[:, 0].min(axis=1) == 255] = 0
    source = rng.integers(0, sources, n) if sources else np.zeros(n, np.int64)
    trace = Tokens(ids, lengths, experts, sources, source if sources else None)
    path = trace.write(folder / f"t{seed}.h5")
    group = asked or sources
    got = info(path, *(("--expert-parallel", asked) if asked else ()))
    if sources <= group or sources % group:
        source = np.zeros(n, np.int64)
        sources = group
    offset, rows = trace.offsets, np.zeros((steps, layers, 1, sources), np.int64)
    for s in range(steps):
        for l in range(layers):
            part = slice(offset[s], offset[s + 1])
            rows[s, l, 0] = count(ids[part, l], source[part], experts, sources, group)
    near("ranks", got["ranks"], group)
    near("groups", got["groups"], sources // group)
    compare(f"trace {seed}", got, [factors(rows[s], group, [0] * layers) for s in range(steps)],
            [10 * s for s in range(steps)], rows.sum(axis=(0, 1, 2)), group)
    layer_lines(f"trace {seed}", got["layers"], rows, group)
    with h5py.File(path, "a") as f:  # the same from counts alone
        counts = np.zeros((steps, max(trace.ranks, 1), layers, experts), np.uint32)
        own = trace.source_rank if trace.ranks else np.zeros(n, np.int64)
        for s in range(steps):
            for t in range(offset[s], offset[s + 1]):
                for l in range(layers):
                    for x in ids[t, l]:
                        if x < experts:
                            counts[s, own[t], l, x] += 1
        del f["tokens"]
        f.attrs["content"] = "counts"
        f["counts/routed"] = counts.sum(axis=1, dtype=np.uint32)
        if trace.ranks:
            f["counts/by_rank"] = counts
    again = info(path, *(("--expert-parallel", asked) if asked else ()))
    for name in NAMES:
        near(f"counts {seed} {name}", again[name]["mean"], got[name]["mean"])


def no_ranks():
    trace = Tokens(np.zeros((5, 1, 1), np.uint8), [5], 4)
    path = trace.write(folder / "none.h5")
    if info(path) is not None:
        sys.exit("factors of a trace without ranks")
    got = info(path, "--expert-parallel", 4)  # all rows on one rank of four
    for name in NAMES:
        near(name, got[name]["mean"], 4.0)
    done = run(program, "trace", "info", path, "--expert-parallel", 3)
    if done.returncode != 2 or "must divide the experts" not in done.stderr:
        sys.exit(f"3 ranks of 4 experts: {done.returncode} {done.stderr}")


def unlike_layers():
    """Counts by rank of two layers, of which the second has half the experts."""
    path, group, experts, sources, steps = folder / "unlike.h5", 4, (16, 8), 8, 3
    done = run(program, "trace", "generate", path, "--experts", 16, "--top-k", 2, "--layers", 2, "--steps", steps, "--ranks", sources,
               "--tokens-per-rank", 64, "--distribution", "zipf:exponent=0.7")
    if done.returncode != 0:
        sys.exit(f"unlike layers: {done.stderr}")
    with h5py.File(path, "a") as f:
        counts = f["counts/by_rank"][...]
        for r in range(sources):  # every rank has favourites of its own
            counts[:, r, 1] = np.roll(counts[:, r, 1, :8] // 2 + counts[:, r, 1, 8:] // 2, r, axis=-1).repeat(2, axis=-1)[..., :16]
        counts[:, :, 1, 8:] = 0
        f["counts/by_rank"][...], f["counts/routed"][...] = counts, counts.sum(axis=1)
        f["model/num_experts"][...] = experts
        ids = [int(i) for i in f["steps/id"][...]]
        del f["tokens"]
        f.attrs["content"] = "counts"
    rows = np.zeros((steps, 2, 1, sources), np.int64)
    for s in range(steps):
        for l, all_experts in enumerate(experts):
            for r in range(sources):
                for x in range(all_experts):
                    rows[s, l, 0, r // group * group + x // (all_experts // group)] += counts[s, r, l, x]
    got = info(path, "--expert-parallel", group)
    compare("unlike layers", got, [factors(rows[s], group, [0, 0]) for s in range(steps)], ids, rows.sum(axis=(0, 1, 2)), group)
    layer_lines("unlike layers", got["layers"], rows, group)


# --- What it costs ---

def costs():
    """A step as uneven as the mean of a factor is what `plan --imbalance` says of that number."""
    trace, job = root / "traces/data/training_aux_e64_slice.h5", root / "sim/jobs/scratch-moe-e64.yaml"
    for stack, scheme in (("maxtext-rocm-2026-05", "gmm"), ("megatron-h200-2026-11", "megatron-alltoall")):
        result = replay(program, trace, job, "--scheme", scheme, "--stack", stack)
        row = result["rows"][0]
        overload, balanced = row["overload"], row["time"]["balanced_step_s"]
        near(f"{scheme} over balanced", overload["over_balanced"], row["time"]["step_s"] / balanced)
        for name in NAMES:
            stated = overload[name]
            done = run(program, "plan", "--job", job, "--scheme", scheme, "--stack", stack, "--imbalance",
                       repr(stated["mean"]), "--format", "json")
            plan = json.loads(done.stdout)
            point = (plan.get("points") or plan.get("rows"))[0]
            step = point["time"]["step_s"] if "time" in point else point["step_s"]
            near(f"{scheme} {name} time", stated["step_s"], step, 1e-9)
            near(f"{scheme} {name} over", stated["over_balanced"], stated["step_s"] / balanced)
        if not overload["slowest_rank"]["step_s"] <= overload["slowest_by_layer"]["step_s"] <= overload["max"]["step_s"]:
            sys.exit(f"{scheme}: costs out of order")
        table = run(program, "replay", trace, "--job", job, "--scheme", scheme, "--stack", stack, "--overload", "--format", "csv")
        lines = list(csv.DictReader(io.StringIO(table.stdout)))
        near("lines", len(lines), len(NAMES) + 1 + 4)
        for line, name in zip(lines, NAMES):
            near(f"csv {name}", float(line["mean"]), overload[name]["mean"])
            near(f"csv {name}", float(line["step_s"]), overload[name]["step_s"])
        for line, layer in zip(lines[len(NAMES) + 1:], overload["layers"]):
            near("csv cost", float(line["layer_cost_s"]), layer["cost_s"])


for seed in range(24):
    random_replay(seed)
for seed, (sources, asked) in enumerate([(4, 0), (6, 3), (12, 4), (6, 6), (0, 4), (5, 3), (3, 6), (12, 12)]):
    random_trace(seed, sources, asked)
no_ranks()
unlike_layers()
costs()
print(f"{checks} checks")
sys.exit(0 if checks else 1)
