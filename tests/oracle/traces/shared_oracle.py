#!/usr/bin/env python3
"""Many processes give the bytes of one, also in network namespaces of their own, and a run that was killed goes on and gives them
too. KILLS times (10) a process is killed with SIGKILL at a random time: nothing torn is left, and the same command goes on.
Checkpoints that were cut short, damaged or made by another command are cut back or refused.

shared_oracle.py SPILLWAY SCRATCH ROOT [MPIEXEC WALK_COST [KILLS [SEED]]]    WALK_COST: tests/bench/walk_cost, which has every process speak"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from processes import HANG_S

program, scratch, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve() / "shared", pathlib.Path(sys.argv[3]).resolve()
mpiexec = sys.argv[4] if len(sys.argv) > 4 else None
walk_cost = os.path.abspath(sys.argv[5]) if len(sys.argv) > 5 else None
most_kills = int(sys.argv[6]) if len(sys.argv) > 6 else 10
seed = int(sys.argv[7]) if len(sys.argv) > 7 else 7
job = root / "sim/jobs/scratch-moe-e64.yaml"
checks, chance = 0, random.Random(seed)
environment = dict(os.environ, OMP_NUM_THREADS="1")


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"shared_oracle, seed {seed}: {what}")


def launch(processes, *more):
    if processes == 1:
        return []
    said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True).stdout
    links = more or ("--mca", "btl", "vader,self")
    own = ["--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ob1", *links] if "open" in said.lower() else []
    return [mpiexec, *own, "-n", str(processes)]


def run(processes, *words, status=0, more=()):
    done = subprocess.run([*launch(processes, *more), program, *map(str, words)], capture_output=True, cwd=scratch, env=environment)
    check(done.returncode == status, f"{processes} processes, {words}: status {done.returncode}: {done.stderr.decode()[-600:]}")
    return done.stdout if status == 0 else done.stderr.decode()


def same_in_each(*words, status=0):
    """The first process alone takes the records; the others, told what was found, must come to the same to the last byte."""
    said = scratch / "said"
    shutil.rmtree(said, ignore_errors=True)
    said.mkdir()
    want_here = subprocess.run([program, *map(str, words)], capture_output=True, cwd=scratch, env=environment, check=False).stdout
    done = subprocess.run([*launch(3), walk_cost, "each", said, *map(str, words)], capture_output=True, cwd=scratch, env=environment)
    check(done.returncode == status and done.stdout == want_here and want_here, f"3 processes, {words}: another result than of one: {done.stderr.decode()[-600:]}")
    for other in ("1", "2"):
        check((said / other).read_bytes() == want_here, f"{words}: process {other} has not come to what the first has")
    costs = [*done.stderr.decode().splitlines(), *((said / f"{other}.cost").read_text() for other in ("1", "2"))]
    return sum(json.loads(line)["groups"] for line in costs if line.startswith('{"units"'))


def apart():
    """How to start 4 processes without a network or memory in common; None where this machine cannot, and why."""
    start = [root / "tests/oracle/traces/apart.sh", "4", mpiexec]
    if "--mca" not in launch(2):
        return None, "mpirun is not Open MPI's"
    tried = subprocess.run([*start, "readlink", "/proc/self/ns/net"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return None, tried.stderr.strip().splitlines()[-1:]
    check(len(set(tried.stdout.split())) == 4, f"apart.sh: {tried.stdout}")
    return start, None


def spillways(parent):
    """The program's own processes below `parent`, supervisors and workers."""
    parents, running = {}, os.path.realpath(program)
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            after_name = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1]
            parents[int(entry)] = (int(after_name.split()[1]), os.readlink(f"/proc/{entry}/exe"))
        except OSError:
            pass
    below = {parent}
    for _ in range(8):
        below |= {pid for pid, (of, _) in parents.items() if of in below}
    return sorted(pid for pid in below if parents.get(pid, (0, ""))[1] == running)


def ended(started, killed):
    """The exit status. Open MPI 4.1's mpirun sometimes waits for itself for ever, after it has told of the kill and all processes
    are gone; then it is ended here."""
    alone, end = 0, time.monotonic() + HANG_S
    while alone < 4 and time.monotonic() < end:
        try:
            return started.wait(timeout=1)
        except subprocess.TimeoutExpired:
            alone = alone + 1 if killed and not spillways(started.pid) else 0
    check(alone > 0, "a process was killed, and others go on")
    started.kill()
    started.wait()
    return -1


def progressed(before):
    try:
        return (scratch / "ck").stat().st_size > max(before, 24)
    except OSError:
        return False


def leftovers():
    return [p.name for p in scratch.iterdir() if ".spw-" in p.name]


shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
run(1, "trace", "generate", "t.h5", "--experts", "64", "--top-k", "8", "--layers", "4", "--steps", "24", "--ranks", "64",
    "--tokens-per-rank", "128", "--seed", "3", "--distribution", "drift:drift=0.3")
small = ("replay", "t.h5", "--job", job, "--sequences-per-gpu", "1", "--sequence-length", "128", "--stack", "none", "--scheme",
         "gmm-deepep", "--scheme", "dense:capacity_factor=1.25", "--overload")
whole = (*small, "--drop-at-most", "1", "--steps", "0:12", "--output", "result.h5")
result = scratch / "result.h5"
want = run(1, *whole)
want_file = result.read_bytes()

# One GPU's allocator over several steps: of two processes one takes it as the job sets it and one with the other setting, and the first
# step that comes again counts in both.
if mpiexec is not None:
    run(1, "trace", "generate", "alone.h5", "--experts", "64", "--top-k", "8", "--layers", "4", "--steps", "4", "--ranks", "1", "--tokens-per-rank", "256",
        "--seed", "3", "--distribution", "zipf")
    alone = ("replay", "alone.h5", "--model", "scratch-moe-e64", "--cluster", "h100:1x1", "--scheme", "megatron-alltoall", "--sequences-per-gpu", "1",
             "--sequence-length", "256", "--format", "json")
    want_alone = run(1, *alone)
    check(json.loads(want_alone)["rows"][0]["memory"]["allocator"]["processes"] == 1, "another number of GPUs than one is followed")
    for processes in (2, 3):
        check(run(processes, *alone) == want_alone, f"{processes} processes: the halves of one GPU's allocator give another answer")

# A checkpoint that is cut anywhere, or whose end is damaged, is one of fewer steps.
run(1, *whole, "--checkpoint", "ck")
check(not (scratch / "ck").exists(), "a checkpoint stays although all is done")
kept = (*small, "--checkpoint", "ck")
want_small = run(1, *small)
started = subprocess.Popen([program, *map(str, kept)], stdout=subprocess.DEVNULL, cwd=scratch, env=environment)
data = b""
while started.poll() is None:
    try:
        data = max(data, (scratch / "ck").read_bytes(), key=len)
    except OSError:
        pass
check(100 < len(data) < 200_000, f"a checkpoint of {len(data)} bytes: it should hold what the steps have left, no records")
for size in (0, 5, 30, len(data) // 2, len(data)):
    (scratch / "ck").write_bytes(data[:size])
    check(run(1, *kept) == want_small, f"a checkpoint of {size} bytes of {len(data)} gives another result")
for at in (60, len(data) - 1):
    (scratch / "ck").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    check(run(1, *kept) == want_small, f"a checkpoint damaged at {at} gives another result")
(scratch / "ck").write_bytes(data)
said = run(1, *kept, "--seed", "9", status=2)
check("another command" in said and (scratch / "ck").read_bytes() == data, f"a checkpoint of another command: {said}")
(scratch / "ck").write_bytes(b"my thesis, which is longer than a head")
check("no checkpoint" in run(1, *kept, status=3) and (scratch / "ck").read_bytes().startswith(b"my thesis"), "a file was taken for a checkpoint")
(scratch / "ck").unlink()

if mpiexec is not None:
    # What many processes would each do as a whole is refused, before anything is read or written; a word alone is no command of theirs.
    for words in (("explain", "--job", job), ("trace", "slice", "t.h5", "--steps", "0:1", "--output", "s.h5"), ("trace",), ("trace", "inf"), ("model",),
                  ("score", "no/such/table.csv"), ("verify", "--random", "1"), ("info", "t.h5"), ("report", "result.h5", "--output", "r.html")):
        said = run(2, *words, status=2)
        check("2 processes can share replay, plan, trace info and trace verify" in said, f"{words}: {said}")
    check(not (scratch / "s.h5").exists() and not (scratch / "r.html").exists(), "a command that was refused wrote its file")
    for words in (("trace", "info", "t.h5"), ("trace", "verify", "t.h5")):
        check(run(2, *words) == run(1, *words), f"{words} by 2 processes prints something else")

    for processes in (2, 4, 7):
        result.unlink()
        check(run(processes, *whole) == want, f"{processes} processes print something else than one")
        check(result.read_bytes() == want_file, f"{processes} processes write another file than one")
    check(run(3, *small, more=("--mca", "btl", "tcp,self")) == want_small, "another result without shared memory")
    start, why = apart()
    if start is None:
        print(f"shared_oracle: not tried in network namespaces: {why}")
    else:
        result.unlink()
        done = subprocess.run([*start, program, *map(str, whole)], capture_output=True, cwd=scratch, env=environment, check=False)
        check(done.returncode == 0 and done.stdout == want and result.read_bytes() == want_file,
              f"4 processes in network namespaces: {done.stderr.decode()[-600:]}")
    rails = (root / "sim/clusters/h200-rail-128x8.yaml").read_text()
    (scratch / "rails.yaml").write_text(rails.replace("nodes: 128", "nodes: 8").replace("size: [32, 4]", "size: [4, 2]"))
    levels = (*small, "--cluster", scratch / "rails.yaml", "--expert-parallel", "64", "--format", "json")
    check(b"spine" in run(1, *levels) and run(3, *levels) == run(1, *levels), "a cluster with levels: another result of 3 processes")
    for words in (("trace", "info", "t.h5", "--expert-parallel", "8"), ("trace", "verify", "t.h5"),
                  ("plan", "--job", job, "--trace", "t.h5", "--steps", "0:2", "--layers", "0:2", "--sequence-length", "128")):
        check(run(3, *words) == run(1, *words), f"3 processes, {words[0]} {words[1]}: another result than of one")
    megatron = ("--job", root / "sim/jobs/olmoe-h200-megatron.yaml", "--sequences-per-gpu", "1", "--sequence-length", "128")
    # a GPU whose steps fail, retry or just fit, by the allocator's setting
    full = (*megatron[:2], "--sequences-per-gpu", "256", "--sequence-length", "128", "--steps", "0:6", "--scheme", "megatron-alltoall",
            "--format", "json")
    for words in (("replay", "t.h5", *megatron, "--steps", "0:4", "--format", "json", "--stack", "megatron-te-h100-2026-11"),
                  ("replay", "t.h5", *full, "--memory-fraction", "0.64"), ("replay", "t.h5", *full, "--memory-fraction", "0.72"),
                  ("replay", "t.h5", *megatron, "--steps", "0:3", "--pipeline", "2", "--every-rank", "--format", "json"),
                  ("replay", "t.h5", *megatron, "--steps", "0:2", "--each-step"),
                  ("plan", *megatron[:2], "--sequence-length", "128", "--trace", "t.h5", "--steps", "0:2", "--layers", "0:2", "--search",
                   "--over", "expert-parallel=8", "--over", "remat=selective", "--sequences-per-gpu", "1,2"),
                  (*small, "--steps", "0:2", "--drop-at-most", "1", "--fits-at", "50"),
                  ("trace", "info", "t.h5", "--expert-parallel", "8")):
        same_in_each(*words)
    same_in_each("trace", "verify", "t.h5", "--longest-run", "1", "--format", "json", status=1)
    begun = same_in_each(*small)
    check(24 <= begun <= 24 + 4 * 3, f"24 steps are begun {begun} times by 3 processes: each should be of one, but for the last")
    check(run(32, *small) == want_small, "32 processes, of which each has few units: another result")
    damaged = scratch / "damaged.h5"
    damaged.write_bytes((scratch / "t.h5").read_bytes()[:-20000])
    said = [line for line in run(3, "replay", "damaged.h5", "--job", job, status=3).splitlines() if line.startswith("spillway:")]
    check(len(said) == 1 and "damaged.h5" in said[0], f"three processes say of one damaged file: {said}")
    check("without mpirun" in run(2, "trace", "slice", "t.h5", "x.h5", status=2) and not (scratch / "x.h5").exists(), "slice by two processes")

    result.unlink()
    begun = time.monotonic()
    run(3, *whole)
    result.unlink()
    takes, finished, kills, gone_on = time.monotonic() - begun, 0, 0, 0
    while kills < most_kills or gone_on == 0:
        words = [*launch(chance.choice((2, 3, 4))), program, *map(str, whole), "--checkpoint", "ck"]
        with open(scratch / "out", "wb") as out:
            started = subprocess.Popen(words, stdout=out, stderr=subprocess.DEVNULL, cwd=scratch, env=environment)
            until, grown = time.monotonic() + chance.uniform(0.2, 0.9) * takes, (scratch / "ck").stat().st_size if (scratch / "ck").exists() else 0
            if kills % 2 == 0:  # else as soon as more is done than the run before has left
                time.sleep(until - time.monotonic())
            while kills % 2 == 1 and started.poll() is None and not progressed(grown):
                time.sleep(0.002)
            found = spillways(started.pid)
            if found:
                os.kill(chance.choice(found), signal.SIGKILL)
                kills += 1
            code = ended(started, bool(found))
        if code == 0:
            finished += 1
            check((scratch / "out").read_bytes() == want and result.read_bytes() == want_file, "a run that went on gives other bytes")
            result.unlink()
        check(not result.exists() or result.read_bytes() == want_file, "a run that was killed has left half a file")
        result.unlink(missing_ok=True)  # whole: it was killed after that
        gone_on += code != 0 and (scratch / "ck").exists() and (scratch / "ck").stat().st_size > 24
    check(run(3, *whole, "--checkpoint", "ck") == want, "what goes on after the kills prints something else")
    check(result.read_bytes() == want_file, "what goes on after the kills writes another file")
    check(not leftovers(), f"{leftovers()} stay, although the same output was begun again")
    print(f"seed {seed}: {kills} kills, {gone_on} with a checkpoint to go on with; {finished} runs finished before they were killed")
print(f"shared_oracle: {checks} checks")
