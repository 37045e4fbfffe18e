#!/usr/bin/env python3
"""A trace of many choices in shards, replayed by one process and by several: choices a second and core, the memory of the largest
process, and from these what 10^11 choices would take. Shards are generated one after the other, each with a seed of its own, as the
program writes traces (compressed); the shards behind the first MADE are copies of them with later steps. All are deleted at the end.

large_shards.py SPILLWAY FOLDER JOB [CHOICES [SHARDS [MADE [MPIRUN PROCESSES...]]]]

CHOICES (1e10, the tenth of 10^11, in 10 shards that are all made) are rounded to whole steps of a shard: a step is 64 ranks x 2048 tokens x 8 layers x top-8 =
8,388,608 choices. FOLDER needs up to 0.6 bytes a choice. A process has one thread."""
import os
import pathlib
import shutil
import subprocess
import sys
import time

import h5py

RANKS, TOKENS, LAYERS, TOP_K, WHOLE = 64, 2048, 8, 8, 1e11
STEP = RANKS * TOKENS * LAYERS * TOP_K
program, folder, job = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]) / "large_shards", sys.argv[3]
wanted = float(sys.argv[4]) if len(sys.argv) > 4 else 1e10
shards = int(sys.argv[5]) if len(sys.argv) > 5 else 10
made = int(sys.argv[6]) if len(sys.argv) > 6 else shards
mpirun, counts = (sys.argv[7], [int(n) for n in sys.argv[8:]]) if len(sys.argv) > 7 else (None, [])
steps = max(1, round(wanted / shards / STEP))
choices = steps * shards * STEP
environment = dict(os.environ, OMP_NUM_THREADS="1")


def measure(words):
    """Seconds, processor seconds of all processes below, and MiB of the largest."""
    begun = time.monotonic()
    running = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, env=environment)  # it speaks of what goes wrong
    _, status, used = os.wait4(running.pid, 0)
    if status != 0:
        sys.exit(f"large_shards: {words}: wait status {status}")
    return time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def generate():
    begun = time.monotonic()
    for shard in range(shards):
        path = folder / f"shard{shard:03d}.h5"
        if shard < made:
            measure([program, "trace", "generate", path, "--experts", 64, "--top-k", TOP_K, "--layers", LAYERS, "--steps", steps, "--ranks",
                     RANKS, "--tokens-per-rank", TOKENS, "--sequence-length", 512, "--seed", 3 + shard, "--distribution", "drift:drift=0.3"])
        else:
            shutil.copy(folder / f"shard{shard % made:03d}.h5", path)
        with h5py.File(path, "r+") as file:  # the steps that follow those of the shard before
            file["steps/id"][...] = [shard * steps + step for step in range(steps)]
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{choices:.4g} choices in {shards} shards of {steps} steps, {min(made, shards)} of them made and the others copies, {size / 1e9:.2f} GB; generated in {time.monotonic() - begun:.0f} s; "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)


def replay(processes):
    start = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", processes] if processes > 1 else []
    seconds, used, largest = measure([*start, program, "replay", folder, "--job", job, "--sequences-per-gpu", 4, "--sequence-length", 512,
                                      "--stack", "none"])
    cores = min(processes, os.cpu_count())
    times = WHOLE / choices
    print(f"| {processes} | {seconds:.0f} | {choices / seconds / 1e6:.0f} | {choices / seconds / cores / 1e6:.0f} | {choices / used / 1e6:.0f} | "
          f"{largest:.0f} | {seconds * times:.0f} |", flush=True)


shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
try:
    generate()
    print("| processes | seconds | million choices a second | of a core | of a second of processor time | MiB, largest process | "
          "10^11 choices, seconds (extrapolated) |\n|---|---|---|---|---|---|---|", flush=True)
    for count in [1, *counts]:
        replay(count)
finally:
    shutil.rmtree(folder, ignore_errors=True)
