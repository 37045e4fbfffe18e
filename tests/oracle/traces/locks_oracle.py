#!/usr/bin/env python3
"""File systems of a network: traces and results are read and written where there are no file locks, and read where nothing may be
written, by one process and by many, with the bytes of a local disk. Who asks for locks that are not there is told so.

locks_oracle.py SPILLWAY SCRATCH ROOT NO_LOCKS [MPIEXEC [WALK_COST]]"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

program, scratch, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve() / "locks", pathlib.Path(sys.argv[3]).resolve()
no_locks, mpiexec = os.path.abspath(sys.argv[4]), sys.argv[5] if len(sys.argv) > 5 else None
checks = 0
plain = {name: value for name, value in os.environ.items() if name != "HDF5_USE_FILE_LOCKING"}
plain["OMP_NUM_THREADS"] = "1"
without = dict(plain, LD_PRELOAD=no_locks)


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"locks_oracle: {what}")


def run(environment, *words, processes=1, status=0, before=()):
    start = []
    if processes > 1:
        said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True).stdout.lower()
        start = [mpiexec, *(["--allow-run-as-root", "--oversubscribe"] if "open" in said else []), "-n", str(processes)]
    done = subprocess.run([*before, *start, program, *map(str, words)], capture_output=True, cwd=scratch, env=environment)
    check(done.returncode == status, f"{words}, {processes} processes: status {done.returncode}: {done.stderr.decode()[-600:]}")
    return done.stdout if status == 0 else done.stderr.decode()


def content(name):
    """A trace without the second in which it was written."""
    return re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", b"", (scratch / name).read_bytes())


def files():
    return sorted(path.name for path in scratch.iterdir())


shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
made = ("--experts", "64", "--top-k", "8", "--layers", "2", "--steps", "6", "--ranks", "64", "--tokens-per-rank", "128", "--seed", "3")
run(plain, "trace", "generate", "t.h5", *made)
run(without, "trace", "generate", "other.h5", *made)
check(content("t.h5") == content("other.h5"), "a trace that is written without locks has other bytes")
replay = ("replay", "t.h5", "--job", root / "sim/jobs/scratch-moe-e64.yaml", "--sequences-per-gpu", "1", "--sequence-length", "128", "--stack",
          "none", "--scheme", "gmm-deepep", "--scheme", "dense:capacity_factor=1.25")
kept = (*replay, "--output", "result.h5", "--checkpoint", "ck")
want = run(plain, *kept)
want_file = (scratch / "result.h5").read_bytes()
for processes in (1, 3) if mpiexec is not None else (1,):
    (scratch / "result.h5").unlink()
    check(run(without, *kept, processes=processes) == want and (scratch / "result.h5").read_bytes() == want_file,
          f"{processes} processes without locks find something else")
for words in (("trace", "info", "t.h5"), ("trace", "verify", "t.h5")):
    check(run(without, *words) == run(plain, *words), f"{words} without locks: something else")
run(without, "trace", "slice", "t.h5", "slice.h5", "--steps", "0:2")

# Who asks for locks gets them where they are, and a word about it where they are not.
asked, there = dict(without, HDF5_USE_FILE_LOCKING="TRUE"), files()
for words, name in ((("trace", "info", "t.h5"), "t.h5"), (replay, "t.h5"), (("trace", "generate", "new.h5", *made), "new.h5")):
    said = run(asked, *words, status=3)
    check(name in said and "HDF5_USE_FILE_LOCKING" in said and "FALSE" in said, f"{words}, locks asked for: {said}")
check(files() == there, f"what failed for want of locks has left {set(files()) - set(there)}")
for processes in (1, 3) if mpiexec is not None else (1,):
    check(run(dict(plain, HDF5_USE_FILE_LOCKING="TRUE"), *replay, processes=processes) == run(plain, *replay), "locks change what is found")

# A folder that nothing may be written into, by a mount of its own where the machine allows that.
(scratch / "fixed").mkdir()
shutil.copy(scratch / "t.h5", scratch / "fixed")
mounted = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
           'mount --bind fixed fixed && mount -o remount,ro,bind fixed && cd fixed && exec "$@"', "sh")
tried = subprocess.run([*mounted, "touch", "x"], capture_output=True, text=True, cwd=scratch, check=False)
if "ead-only" in tried.stderr:
    check(run(plain, *replay, before=mounted) == run(plain, *replay), "a folder that is read-only gives another result")
    for words in ((*replay, "--output", "r.h5"), (*replay, "--checkpoint", "ck")):
        said = run(plain, *words, before=mounted, status=3)
        check(words[-1] in said and "ead-only" in said, f"{words[-2:]} in a read-only folder: {said}")
else:
    print(f"locks_oracle: a read-only folder was not tried: {tried.stderr.strip()}")
print(f"locks_oracle: {checks} checks")
