#!/usr/bin/env python3
"""Generates a trace of many choices, replays it and deletes it; prints how much memory each part held on its way, and its rate.

large_run.py SPILLWAY FOLDER JOB [STEPS [WORD...]]

FOLDER needs room for the trace: about 0.6 bytes a choice. A step is 64 ranks x 2048 tokens x 8 layers x top-8 = 8,388,608
choices, so 1200 steps are 1.007e10. WORDs are more options of the replay. Memory is the resident set of the process that works,
when it had read or written 10, 50 and 100 % of its bytes; the highest is what the kernel says at the end."""
import os
import pathlib
import resource
import subprocess
import sys
import time

RANKS, TOKENS, LAYERS, TOP_K = 64, 2048, 8, 8
program, folder, job = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 1200
more = sys.argv[5:]
trace = folder / "large.h5"
choices = RANKS * TOKENS * LAYERS * TOP_K * steps


def field(pid, name, key):
    for line in pathlib.Path(f"/proc/{pid}/{name}").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0


def children(pid):
    below = [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid] + [one for child in below for one in children(child)]


def sample(pid, counter):
    """Bytes read or written so far and KiB resident, of the process that has moved most bytes."""
    best = (0, 0)
    try:
        for one in children(pid):
            try:
                best = max(best, (field(one, "io", counter), field(one, "status", "VmRSS")))
            except OSError:
                pass
    except OSError:
        pass
    return best


def watched(what, counter, words):
    begun, seen = time.monotonic(), []
    with open(folder / "large.out", "w") as out:
        running = subprocess.Popen([program, *words], stdout=out)
        while running.poll() is None:
            seen.append(sample(running.pid, counter))
            time.sleep(0.05)
    seconds = time.monotonic() - begun
    if running.returncode != 0:
        sys.exit(f"large_run: {what} ended with status {running.returncode}")
    last = max(moved for moved, _ in seen)
    at = [next(kib for moved, kib in seen if moved >= share * last) for share in (0.1, 0.5, 1.0)]
    highest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"{what}: {seconds:.0f} s, {choices / seconds / 1e6:.0f} million choices a second, {last / 1e9:.2f} GB {counter}, "
          f"resident at 10 / 50 / 100 %: {at[0] / 1024:.1f} / {at[1] / 1024:.1f} / {at[2] / 1024:.1f} MiB, "
          f"highest of all so far {highest / 1024:.1f} MiB", flush=True)


folder.mkdir(parents=True, exist_ok=True)
try:
    print(f"{choices:.4g} choices in {steps} steps, {os.cpu_count()} cores", flush=True)
    watched("generate", "wchar", ["trace", "generate", str(trace), "--experts", "64", "--top-k", str(TOP_K), "--layers", str(LAYERS),
            "--steps", str(steps), "--ranks", str(RANKS), "--tokens-per-rank", str(TOKENS), "--sequence-length", "512", "--seed", "3",
            "--distribution", "drift:drift=0.3"])
    print(f"trace: {trace.stat().st_size / 1e9:.2f} GB", flush=True)
    watched("replay", "rchar", ["replay", str(trace), "--job", job, "--sequences-per-gpu", "4", "--sequence-length", "512", "--stack",
            "none", *more])
    print((folder / "large.out").read_text())
finally:
    trace.unlink(missing_ok=True)
    (folder / "large.out").unlink(missing_ok=True)
