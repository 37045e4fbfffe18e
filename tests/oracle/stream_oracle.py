#!/usr/bin/env python3
"""A trace larger than the memory that is allowed streams: progress on standard error and nowhere else, and one pass over the file
however many schemes, batches and splits are asked.

stream_oracle.py SPILLWAY SCRATCH ROOT [sanitized]"""
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys

from oracle_run import Oracle

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]) / "stream", pathlib.Path(sys.argv[3])
sanitized = len(sys.argv) > 4
oracle = Oracle(program, "stream_oracle")
check = oracle.check
TRACE, JOB = scratch / "t.h5", root / "sim/jobs/scratch-moe-e64.yaml"
STEPS = 1 if sanitized else 12
SHAPE = ("--experts", "64", "--top-k", "8", "--layers", "8", "--steps", STEPS, "--ranks", "64", "--tokens-per-rank", "2048",
         "--sequence-length", "512", "--seed", "3")
LINE = re.compile(r"spillway: (\w+): (\d+) of (\d+) (\w+), ([\d.]+) %, ([\d.e+]+) a second, (\d+) (s|min|h|days) left")
environment = {name: value for name, value in os.environ.items() if name != "SPILLWAY_PROGRESS_S"}
SCHEMES = [word for scheme in ("gmm", "gmm-deepep", "ragged", "ring", "dense:capacity_factor=1.25", "dense:capacity_factor=2")
           for word in ("--scheme", scheme)]


def call(*words, **more):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, env={**environment, **more})


def on_terminal(*words, **more):
    """What the program writes to a terminal that is its standard error."""
    ours, its = pty.openpty()
    running = subprocess.Popen([program, *map(str, words)], stdout=subprocess.PIPE, stderr=its, env={**environment, **more})
    os.close(its)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    check(running.stdout.read() == b"" and running.wait() == 0, f"{words}: standard output, or a failure")
    return said.decode()


def read_by(*words):
    """Bytes that the program has read from files, all its processes together."""
    def counted():
        return int(pathlib.Path("/proc/self/io").read_text().split()[1])
    with open(scratch / "out", "wb") as out, open(scratch / "err", "wb") as err:
        before = counted()
        done = subprocess.run([program, *map(str, words)], stdout=out, stderr=err, check=False, env=environment)
        read = counted() - before
    check(done.returncode == 0, f"{words}: {(scratch / 'err').read_text()}")
    return read


shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)

# Progress on a terminal: one line that is drawn over itself, with rate and time left, and gone at the end.
said = on_terminal("trace", "generate", TRACE, *SHAPE, OMP_NUM_THREADS="1")
drawn = re.findall(r"\rgenerate \[#*\.*\] +\d+% [\d.e+]+ layers/s, \d+ (?:s|min|h|days) left\x1b\[K", said)
check(len(drawn) > 0 or sanitized, f"a terminal was told {said[:300]!r}")
check(said.count("\n") <= 2 and ("\r\x1b[K" in said or not drawn), f"more than one line, or it stays: {said[-300:]!r}")

# Elsewhere: lines every so many seconds, and none of a short run.
replay = ("replay", TRACE, "--job", JOB, "--sequence-length", "512", "--stack", "none")
plain = call(*replay)
check(plain.returncode == 0 and plain.stderr == "", f"a short run says {plain.stderr}")
often = call(*replay, SPILLWAY_PROGRESS_S="0.02")
lines = [LINE.fullmatch(line) for line in often.stderr.splitlines()]
check(all(lines) and len(lines) > 2, f"progress says {often.stderr[:500]!r}")
check(often.stdout == plain.stdout, "progress has changed what is printed")
for one in filter(None, lines):
    done, total, share = int(one[2]), int(one[3]), float(one[5])
    check(one[1] == "replay" and one[4] == "layers" and total == 8 * STEPS and abs(share - 100 * done / total) <= 0.051, one[0])
check(all(int(a[2]) < int(b[2]) for a, b in zip(lines, lines[1:]) if a and b), "progress goes back")
for never in ("0", "3600", "often"):
    check(call(*replay, SPILLWAY_PROGRESS_S=never).stderr == "", f"SPILLWAY_PROGRESS_S={never} says something")

# One pass: as many bytes are read for one scheme and batch as for six schemes, two batches and two splits.
slack, size = 16 << 10, TRACE.stat().st_size
for command, wider in ((replay, ()), (("plan", "--trace", *replay[1:]), ("--expert-parallel", "4,8"))):
    one = read_by(*command, "--sequences-per-gpu", "2", "--scheme", "gmm")
    many = read_by(*command, "--sequences-per-gpu", "2,4", *SCHEMES, *wider)
    check(size * 0.9 < one < size * 1.5, f"{command[0]}: {one} bytes were read of a trace of {size}")
    check(abs(many - one) < slack, f"{command[0]}: {one} bytes were read for one scheme and batch, {many} for many")
for words in (("trace", "info", TRACE), ("trace", "info", TRACE, "--format", "json"), ("trace", "verify", TRACE)):
    check(read_by(*words) < size * 1.5, f"{words[:2]}: more than one pass")
TRACE.unlink()
oracle.finish(least=30)
