#!/usr/bin/env python3
"""Weak scaling of a replay, by simulation where there are no cores: what a shard costs, as often as there are shards, and what
gathering costs, measured with more processes than cores.

weak_scaling.py SPILLWAY WALK_COST MPIRUN FOLDER JOB

Every one of N processes has a shard of its own and a core of its own. It computes the units (a layer of a step) of its shard, and
takes the records of all N shards, as base/walk.c does:

    seconds a unit of the shard = compute + N x (take + gather)

compute, take: of one process and one thread, measured inside a replay by tests/bench/walk_cost.c.
gather: seconds a unit of a walk that computes nothing, by mpirun with 2, 4 and 7 processes over shared memory: the worst, of the
best of five each. More processes than cores share a core there, so that it is too high for processes with cores of their own;
that N processes gather a record no slower than 7 do is assumed: each receives every record once, and rounds are of a second.
Reading is assumed to be no bottleneck: N processes read N times as much at once."""
import json
import os
import pathlib
import subprocess
import sys

program, walk_cost, mpirun, folder, job = sys.argv[1:6]
folder = pathlib.Path(folder)
environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
trace = folder / "weak.h5"
SHAPE = ("--experts", "64", "--top-k", "8", "--layers", "8", "--steps", "16", "--ranks", "64", "--tokens-per-rank", "2048",
         "--sequence-length", "512", "--seed", "3", "--distribution", "drift:drift=0.3")


def run(*words):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True, env=environment)


folder.mkdir(parents=True, exist_ok=True)
run(program, "trace", "generate", trace, *SHAPE)
replay = ("replay", trace, "--job", job, "--sequences-per-gpu", "4", "--sequence-length", "512", "--stack", "none")
found = [json.loads(run(walk_cost, *replay).stderr.splitlines()[-1]) for _ in range(3)]
best = min(found, key=lambda one: one["compute_s"])
compute, take, record = best["compute_s"] / best["units"], best["take_s"] / best["units"], best["record_bytes"]
trace.unlink()
print(f"compute {compute * 1e3:.2f} ms, take {take * 1e6:.0f} us a unit, a record has {record} bytes; {os.cpu_count()} cores, load "
      f"{os.getloadavg()[0]:.1f}")
gather = {}
for processes in (1, 2, 4, 7):
    start = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", processes] if processes > 1 else []
    times = [json.loads(run(*start, walk_cost, "reduce", 2000, record).stdout)["seconds_a_unit"] for _ in range(5)]
    gather[processes] = min(times)
    print(f"gather by {processes}: {gather[processes] * 1e6:.1f} us a unit (best of 5; worst {max(times) * 1e6:.1f})")
worst = max(gather.values())
print("| processes | ms a unit of a shard | of it gathered and taken | efficiency | units a second, all |\n|---|---|---|---|---|")
for processes in (1, 2, 4, 8, 16, 32, 64, 128, 256):
    shared = processes * (take + (worst if processes > 1 else 0.0))
    each = compute + shared
    print(f"| {processes} | {each * 1e3:.2f} | {100 * shared / each:.0f} % | {(compute + take) / each:.2f} | {processes / each:.0f} |")
