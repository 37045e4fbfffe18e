#!/usr/bin/env python3
"""Two ranks train and capture, and are killed, stopped, run out of disk or raise at random moments. Whole files or none; a full disk never
ends the training; what is neither there nor told as lost is an error.     capture_hurt.py SCRATCH SOURCE [RUNS [SEED]]

The test of every day makes a few runs; by hand: capture_hurt.py /tmp/hurt . 200. A disk that is full is a limit on the size of files (half of
the runs: one that is lifted later), and a tmpfs of 300 kB where user namespaces are allowed."""
import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings

SCRATCH, SOURCE = pathlib.Path(sys.argv[1]).resolve() / "capture_hurt", pathlib.Path(sys.argv[2]).resolve()
RUNS, SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 12, int(sys.argv[4]) if len(sys.argv) > 4 else 1
sys.path.insert(0, str(SOURCE / "python"))
import h5py
import numpy as np

from spillway_moe.capture import Capture

STEPS, RANKS, LAYERS, EXPERTS, TOP_K = 12, 2, 2, 16, 2
KINDS = ("kill", "terminate", "full", "full for a while", "tmpfs", "raise", "leave")


def choices(run, rank, step, tokens):
    rng = np.random.default_rng([run, rank, step])
    return np.argsort(rng.random((tokens, LAYERS, EXPERTS)), -1)[..., :TOP_K].astype("i4")


def train(run, rank, kind, folder, report, at, tokens):
    """One rank. What it trained and what the capture says is lost goes to `report`."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    trained = []
    with Capture(folder, experts=EXPERTS, top_k=TOP_K, layers=range(LAYERS), rank=rank, ranks=RANKS) as capture:
        try:
            for step in range(STEPS):
                if step == at and kind.startswith("full"):
                    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
                if step == at + 3 and kind == "full for a while":
                    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                with contextlib.suppress(KeyError) if kind == "raise" else contextlib.nullcontext(), capture.step(step):
                    capture.add_sequences([choices(run, rank, step, tokens)])
                    if kind == "raise" and step % 5 == at % 5:
                        raise KeyError("of the training program")
                    if kind == "leave" and step == at:
                        sys.exit(7)
                    trained.append(step)
                if kind in ("kill", "terminate"):
                    time.sleep(0.004)
        finally:
            if kind.startswith("full"):
                capture.close()
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    report.write_text(json.dumps({"trained": trained, "lost": sorted(capture.lost)}))


def start(*arguments):
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        train(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        print(f"rank: {type(error).__name__}: {error}", flush=True)
    os._exit(code)


def whole(path, run, rank, tokens):
    """The step that a file holds, exactly what was chosen."""
    with h5py.File(path) as h:
        step = int(h["steps/id"][0])
        want = choices(run, rank, step, tokens)
        good = len(h["steps/id"]) == 1 and list(h["rank"][:]) == [rank] and (h["tokens/expert_id"][:] == want).all()
        return step if good and h["counts/routed"][:].sum() == want.size else None


def attempt(run, rng, kind, folder):
    tokens, at = int(rng.integers(50, 4000)), int(rng.integers(1, STEPS))
    reports = [SCRATCH / f"report{run}_{rank}" for rank in range(RANKS)]
    ranks = [start(run, rank, kind, folder, reports[rank], at, tokens) for rank in range(RANKS)]
    if kind in ("kill", "terminate"):
        time.sleep(float(rng.random()) * 0.2)
        for process in ranks:
            os.kill(process, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
    for rank, process in enumerate(ranks):
        state = os.waitpid(process, 0)[1]
        there = [whole(path, run, rank, tokens) for path in sorted(folder.glob(f"rank{rank:05}_step*.h5"))]
        said = f"run {run}, {kind} at {at}, rank {rank}, {tokens} tokens: files of steps {there}"
        assert None not in there, f"{said}: one is not whole"
        if kind in ("kill", "terminate"):
            assert os.WIFSIGNALED(state) or state == 0, f"{said}: status {state}"
            assert there == list(range(len(there))), f"{said}: a hole"
            continue
        assert os.waitstatus_to_exitcode(state) == (7 if kind == "leave" else 0), f"{said}: training ended with {state}"
        if kind == "leave":
            assert there == list(range(at)), said
            continue
        told = json.loads(reports[rank].read_text())
        assert told["trained"] == [s for s in range(STEPS) if kind != "raise" or s % 5 != at % 5], f"{said}: trained {told['trained']}"
        assert sorted(there + told["lost"]) == told["trained"], f"{said}: lost {told['lost']}"
        if kind == "full" and tokens > 1000:
            assert set(range(at, STEPS)) <= set(told["lost"]), f"{said}: lost {told['lost']}, although no file could be written"
    left = [path.name for path in folder.glob("*") if not path.name.endswith(".h5")]
    assert kind in ("kill", "terminate") or left == [], f"run {run}, {kind}: left {left}"


def main():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    rng, done = np.random.default_rng(SEED), {}
    disk = SCRATCH / "disk"
    disk.mkdir()
    small = "--inside" in sys.argv and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], stderr=subprocess.DEVNULL).returncode == 0
    for run in range(RUNS):
        kind = KINDS[run % len(KINDS)] if run < len(KINDS) else str(rng.choice(KINDS))
        if kind == "tmpfs" and not small:
            kind = "full"
        folder = (disk if kind == "tmpfs" else SCRATCH) / f"run{run}"
        attempt(run, rng, kind, folder)
        done[kind] = done.get(kind, 0) + 1
        shutil.rmtree(folder, ignore_errors=True)  # a rank that is killed at once makes none
    if small:
        subprocess.run(["umount", disk], check=True)
    shutil.rmtree(SCRATCH)
    print(f"capture_hurt: {RUNS} checks: {done}")


if "--inside" not in sys.argv and subprocess.run(["unshare", "-Urm", "true"], stderr=subprocess.DEVNULL).returncode == 0:
    os.execvp("unshare", ["unshare", "-Urm", sys.executable, __file__, str(SCRATCH.parent), str(SOURCE), str(RUNS), str(SEED), "--inside"])
main()
