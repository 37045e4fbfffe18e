#!/usr/bin/env python3
"""Weak scaling of a replay: what a shard costs when every process brings one. By simulation where there are no cores, by processes whose
units sleep, which need none, and by whole replays on the cores that there are.

weak_scaling.py SPILLWAY WALK_COST MPIRUN FOLDER JOB

Every one of N processes has a core and a shard of its own. All compute units (a layer of a step), as many as a shard has each; the first
also takes the records of all N shards, in the pauses of which it computes, as base/walk_shared.c does:

    seconds a unit of the shard = max(compute + take + gather, N x (take + gather))

compute, take: processor time of one process and one thread, measured inside a replay by tests/bench/walk_cost.c, the best of five.
gather: seconds a unit of a walk that computes nothing, by mpirun with 2, 4 and 7 processes over shared memory: the worst, of the
best of five each. More processes than cores share a core there, so that it is too high for processes with cores of their own.
Reading is assumed to be no bottleneck: N processes read N times as much at once."""
import json
import os
import pathlib
import resource
import subprocess
import sys

program, walk_cost, mpirun, folder, job = sys.argv[1:6]
folder = pathlib.Path(folder)
environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
STEPS, LAYERS, TIMES = 16, 8, 5
SHAPE = ("--experts", "64", "--top-k", "8", "--layers", LAYERS, "--ranks", "64", "--tokens-per-rank", "2048", "--sequence-length", "512",
         "--seed", "3", "--distribution", "drift:drift=0.3")


def run(processes, *words):
    start = [mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", processes] if processes > 1 else []
    return subprocess.run(list(map(str, [*start, *words])), capture_output=True, text=True, check=True, env=environment)


def processor_s():
    """Of all processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def replay(processes):
    """So many shards by so many processes."""
    words = ("replay", folder / f"{processes}.h5", "--job", job, "--sequences-per-gpu", "4", "--sequence-length", "512", "--stack", "none")
    begun = processor_s()
    run(processes, walk_cost, "reduce", 1, 8)  # what it takes to start
    between = processor_s()
    said = run(processes, walk_cost, *words).stderr.splitlines()
    one = json.loads(next(line for line in said if line.startswith("{")))
    return one | {"processor_s": processor_s() - between - (between - begun)}


def reduce(processes, *words):
    return json.loads(run(processes, walk_cost, "reduce", *words).stdout)["seconds_a_unit"]


folder.mkdir(parents=True, exist_ok=True)
real = (1, 2, 4)
for processes in real:
    run(1, program, "trace", "generate", folder / f"{processes}.h5", *SHAPE, "--steps", STEPS * processes)
found = {processes: [] for processes in real}
for _ in range(TIMES):  # in turn, as others use the machine
    for processes in real:
        found[processes].append(replay(processes))
for processes in real:
    (folder / f"{processes}.h5").unlink()
compute = min(one["compute_s"] / one["units"] for one in found[1])
take = min(one["take_s"] / one["units"] for one in found[1])
record = found[1][0]["record_bytes"]
print(f"compute {compute * 1e3:.2f} ms, take {take * 1e6:.0f} us a unit, a record has {record} bytes; {os.cpu_count()} cores, load "
      f"{os.getloadavg()[0]:.1f}")
print(f"whole replays, a shard a process, best of {TIMES}: | processes | ms a unit of a shard | processor ms a unit, of all processes |")
for processes in real:
    each = [processes * one["walk_s"] / one["all_units"] for one in found[processes]]
    used = [one["processor_s"] / one["all_units"] for one in found[processes]]
    print(f"| {processes} | {min(each) * 1e3:.2f} | {min(used) * 1e3:.2f} |")
gather = {}
for processes in (2, 4, 7):
    times = [reduce(processes, 4000, record) for _ in range(TIMES)]
    gather[processes] = min(times)
    print(f"gather by {processes}: {gather[processes] * 1e6:.1f} us a unit (best of {TIMES}; worst {max(times) * 1e6:.1f})")
worst = max(gather.values())
print("units that sleep: | processes | ms a unit of a shard | efficiency |")
for processes in (2, 4, 16, 64):
    each = min(processes * reduce(processes, 256 * processes, record, round(compute * 1e6), round(take * 1e6)) for _ in range(2))
    print(f"| {processes} | {each * 1e3:.2f} | {(compute + take) / each:.2f} |")
print("| processes | ms a unit of a shard | the first gathers and takes | efficiency | units a second, all |\n|---|---|---|---|---|")
for processes in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
    shared = processes * (take + (worst if processes > 1 else 0.0))
    each = max(compute + shared / processes, shared)
    print(f"| {processes} | {each * 1e3:.2f} | {100 * shared / each:.0f} % | {(compute + take) / each:.2f} | {processes / each:.0f} |")
