#!/usr/bin/env python3
"""A trace larger than the memory that is allowed streams: what is needed is said beforehand and held, or refused; progress on
standard error and nowhere else; one pass over the file however many schemes, batches and splits are asked.

stream_oracle.py SPILLWAY SCRATCH ROOT [sanitized]"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from processes import drawn_on_terminal

program, scratch, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve() / "stream", pathlib.Path(sys.argv[3]).resolve()
sanitized = len(sys.argv) > 4
oracle = Oracle(program, "stream_oracle")
check = oracle.check
TRACE, JOB = scratch / "t.h5", root / "sim/jobs/scratch-moe-e64.yaml"
STEPS = 1 if sanitized else 8
SHAPE = ("--experts", "64", "--top-k", "8", "--layers", "8", "--ranks", "64", "--tokens-per-rank", "2048", "--sequence-length", "512",
         "--seed", "3")
LINE = re.compile(r"spillway: (\w+): (\d+) of (\d+) (\w+), ([\d.]+) %, ([\d.e+]+) a second, (\d+) (s|min|h|days) left")
LESS = re.compile(r"spillway: search: 22 points, about \d+ \w+ left; \^C prints the best so far; less: --over ")  # said once, of a long one
environment = {name: value for name, value in os.environ.items() if name != "SPILLWAY_PROGRESS_S"}
SCHEMES = [word for scheme in ("gmm", "gmm-deepep", "ragged", "ring", "dense:capacity_factor=1.25", "dense:capacity_factor=2")
           for word in ("--scheme", scheme)]


def call(*words, **more):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, env={**environment, **more})


def unbidden(*words):
    """A run that nobody asked for lines of progress: what it says, which is nothing where it took less than a minute."""
    begun = time.monotonic()
    done = call(*words)
    check(done.returncode == 0 and (done.stderr == "" or time.monotonic() - begun > 60), f"{words[:2]}: a short run says {done.stderr}")
    return done


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
BAR = r"\rgenerate \[#*\.*\] +\d+% [\d.e+]+ layers/s, \d+ (?:s|min|h|days) left\x1b\[K"
said, status = drawn_on_terminal([program, "trace", "generate", TRACE, *SHAPE, "--steps", str(3 * STEPS)], re.compile(BAR.encode()),
                                 env={**environment, "OMP_NUM_THREADS": "1"})
drawn = re.findall(BAR, said)
check(status == 0 and len(drawn) > 0, f"a terminal was told {said[:300]!r}")
check(said.count("\n") <= 2 and ("\r\x1b[K" in said or not drawn), f"more than one line, or it stays: {said[-300:]!r}")

check(call("trace", "generate", TRACE, *SHAPE, "--steps", STEPS).returncode == 0, "no trace to read")

# Elsewhere: lines every so many seconds, and none of a short run.
replay = ("replay", TRACE, "--job", JOB, "--sequence-length", "512", "--stack", "none")
plain = unbidden(*replay)
often = call(*replay, SPILLWAY_PROGRESS_S="0.0001")
lines = [LINE.fullmatch(line) for line in often.stderr.splitlines()]
check(all(lines) and len(lines) > 1, f"progress says {often.stderr[:500]!r}")
check(often.stdout == plain.stdout, "progress has changed what is printed")
for one in filter(None, lines):
    done, total, share = int(one[2]), int(one[3]), float(one[5])
    check(one[1] == "replay" and one[4] == "layers" and total == 8 * STEPS and abs(share - 100 * done / total) <= 0.051, one[0])
check(all(int(a[2]) < int(b[2]) for a, b in zip(lines, lines[1:]) if a and b), "progress goes back")
for never in ("0", "3600", "often"):
    check(call(*replay, SPILLWAY_PROGRESS_S=never).stderr == "", f"SPILLWAY_PROGRESS_S={never} says something")

# Every part of a search and of the advice on factors tells how far it is.
search = ("plan", "--search", "--model", "olmoe-1b-7b", "--cluster", "h200:8x1", "--scheme", "megatron-alltoall", "--optimizer", "distributed",
          "--sequences-per-gpu", "1,2", "--over", "pipeline=1,2", "--over", "expert-parallel=4,8", "--over", "remat=none,full")
advise = (*replay, "--advise", "--scheme", "ring", "--steps", "0:1", "--layers", "0:2")
for words, parts in ((search, {"bounds", "search"}), (advise, {"advise"})):
    plain, often = unbidden(*words), call(*words, SPILLWAY_PROGRESS_S="0.000001")
    lines = [LINE.fullmatch(line) for line in often.stderr.splitlines() if not LESS.match(line)]
    told = {one[1]: (int(one[2]), int(one[3])) for one in filter(None, lines)}
    check(all(lines) and parts <= set(told), f"{words[:2]}: progress of {told}, not of {parts}: {often.stderr[:300]!r}")
    check(all(0 < done <= total for done, total in told.values()), f"{words[:2]}: {told}")
    check(often.stdout == plain.stdout, f"{words[:2]}: progress has changed what is printed")

# One pass: as many bytes are read for one scheme and batch as for six schemes, two batches and two splits.
slack, size = (256 if sanitized else 16) << 10, TRACE.stat().st_size  # a sanitizer reads of its own
for command, wider in ((replay, ()), (("plan", "--trace", *replay[1:]), ("--expert-parallel", "4,8"))):
    one = read_by(*command, "--sequences-per-gpu", "2", "--scheme", "gmm")
    many = read_by(*command, "--sequences-per-gpu", "2,4", *SCHEMES, *wider)
    check(size * 0.9 < one and (sanitized or one < size * 1.5), f"{command[0]}: {one} bytes were read of a trace of {size}")
    check(abs(many - one) < slack, f"{command[0]}: {one} bytes were read for one scheme and batch, {many} for many")
for words in (("trace", "info", TRACE), ("trace", "info", TRACE, "--format", "json"), ("trace", "verify", TRACE)):
    check(sanitized or read_by(*words) < size * 1.5, f"{words[:2]}: more than one pass")


def repeat(source, out, times):
    """The trace with its steps `times` over: compressed chunks are copied as they are."""
    with h5py.File(source) as old, h5py.File(out, "w") as new:
        new.attrs.update(old.attrs)
        steps = old["step"].shape[0]

        def copy(name, one):
            if not isinstance(one, h5py.Dataset):
                new.require_group(name).attrs.update(one.attrs)
                return
            grows = name.startswith(("tokens/", "steps/", "counts/")) or name == "step"
            if not grows:
                old.copy(one, new, name)
                return
            if name == "tokens/step_offset":
                new[name] = np.concatenate([one[:-1] + i * one[-1] for i in range(times)] + [one[-1:] * times])
            elif name in ("step", "steps/id"):
                new[name] = np.concatenate([one[:] + i * steps for i in range(times)])
            elif one.chunks is None or one.shape[0] % one.chunks[0]:
                new[name] = np.concatenate([one[:]] * times)
            else:
                made = new.create_dataset(name, (one.shape[0] * times, *one.shape[1:]), one.dtype, chunks=one.chunks,
                                          compression="gzip", shuffle=one.shuffle)
                for i in range(one.id.get_num_chunks()):
                    at = one.id.get_chunk_info(i).chunk_offset
                    mask, data = one.id.read_direct_chunk(at)
                    for j in range(times):
                        made.id.write_direct_chunk((at[0] + j * one.shape[0], *at[1:]), data, mask)
            new[name].attrs.update(one.attrs)
        old.visititems(copy)


def measured(*words):
    """Exit status, the most MB of any process of the program, standard output and error."""
    watch = ("import resource, subprocess, sys\n"
             "code = subprocess.run(sys.argv[1:]).returncode\n"
             "open('peak', 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6))\n"
             "sys.exit(code)")
    done = subprocess.run([sys.executable, "-c", watch, program, *map(str, words)], capture_output=True, text=True, check=False,
                          cwd=scratch, env={**environment, "OMP_NUM_THREADS": "2"})
    return done.returncode, float((scratch / "peak").read_text()), done.stdout, done.stderr


SAID = re.compile(r"spillway: memory: at most (\d+) MB of the (\d+) MB allowed: (\d+) MB program and libraries, (\d+) MB to read the "
                  r"trace, (\d+) MB tables and results\n")


def bounded(words, trace_bytes, times=0):
    """The smallest bound that is offered works and is held, a smaller one is refused. times: the trace is so much larger."""
    code, _, _, said = measured(*words, "--memory", "1MB")
    smallest = re.search(r"the smallest that works is --memory (\d+)MB", said)
    check(code == 2 and smallest, f"{words}: 1 MB: {said}")
    if not smallest:
        return
    least = int(smallest[1])
    check(measured(*words, "--memory", f"{least - 3}MB")[0] == 2, f"{words}: {least - 3} MB are not refused")
    code, peak, out, said = measured(*words, "--memory", f"{least + 1}MB")  # another start may lie a page higher
    line = SAID.search(said)
    check(code == 0 and line and int(line[1]) <= int(line[2]) == least + 1, f"{words}: {least + 1} MB: {said}")
    check(peak < least + 1, f"{words}: {peak} MB of {least + 1} allowed")
    check(trace_bytes > times * 1e6 * least, f"{words}: a trace of {trace_bytes} bytes is not much larger than {least} MB")
    check(out == measured(*words)[2], f"{words}: bounded, it prints something else")


# Memory: a trace of seven times the bound and more.
if not sanitized:
    long, counts = scratch / "long.h5", scratch / "counts.h5"
    repeat(TRACE, long, 7)
    six = (*replay[2:], "--sequences-per-gpu", "2,4", *SCHEMES)
    bounded(("replay", long, *replay[2:], "--sequences-per-gpu", "4", "--scheme", "gmm"), long.stat().st_size, 7)
    long.unlink()
    bounded(("trace", "info", TRACE, "--format", "csv"), size)
    bounded(("replay", TRACE, *six, "--steps", "0:4"), size)
    bounded(("replay", TRACE, *replay[2:], "--scheme", "megatron-alltoall", "--scheme", "deepep", "--steps", "0:4"), size)
    bounded(("plan", "--trace", TRACE, *six, "--expert-parallel", "4,8", "--steps", "0:4"), size)
    bounded(("replay", TRACE, *six, "--steps", "0:4", "--output", scratch / "r.h5"), size)
    # a row a step: rows that are kept until they are printed count, here a hundred of them
    many = scratch / "many.h5"
    call("trace", "generate", many, "--experts", "64", "--top-k", "8", "--layers", "2", "--ranks", "64", "--tokens-per-rank", "128",
         "--sequence-length", "64", "--steps", "150")
    steps = ("replay", many, "--job", JOB, "--sequence-length", "64", "--stack", "none", "--scheme", "gmm", "--scheme", "ring", "--each-step")
    for more in ((), ("--format", "json"), ("--output", scratch / "s.h5")):
        bounded((*steps, *more), many.stat().st_size)
    call("trace", "generate", counts, "--counts-only", "--experts", "64", "--top-k", "8", "--layers", "8", "--steps", "4", "--ranks",
         "64", "--tokens-per-rank", "2048")
    bounded(("replay", counts, *six), size)
    for words, why in ((("plan", "--job", JOB), "--trace"), (("plan", "--trace", TRACE, "--job", JOB, "--search"), "--search")):
        check(why in call(*words, "--memory", "4GB").stderr, f"{words}: --memory")
for wrong in ("", "4XB", "-1GB", "0", "nan"):
    done = call(*replay, "--memory", wrong)
    check(done.returncode == 2 and "as in 4GB" in done.stderr, f"--memory '{wrong}': {done.stderr}")
TRACE.unlink()
oracle.finish(least=30)
