#!/usr/bin/env python3
"""Lets one allocation after another fail under a program that uses libspillway. Whatever the libraries beneath do about it, the program
must come to its end, and be told that memory ran out, or get its answer.

library.py LIBRARY_CALLS FAIL_CALL.so SPILLWAY SCRATCH [--sample N]"""
import argparse
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import cases

parser = argparse.ArgumentParser()
for name in ("calls", "shim", "spillway", "scratch"):
    parser.add_argument(name, type=lambda text: pathlib.Path(text).resolve())
parser.add_argument("--sample", type=int, default=12)
asked = parser.parse_args()
scratch = asked.scratch / "library"
shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
cases.make_inputs(asked.spillway, scratch / "inputs")
counts = scratch / "counts"


def run(arguments, fault=None):
    """(exit status, stderr, allocations, failed ones)"""
    counts.write_bytes(bytes(8 * 14))
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2",
                   "LD_PRELOAD": str(asked.shim), "SPW_FAULT_COUNTS": str(counts), **({"SPW_FAULT": fault} if fault else {})}
    done = subprocess.run([asked.calls, *arguments], cwd=scratch / "inputs", env=environment, capture_output=True, text=True,
                          errors="replace", timeout=300)
    numbers = struct.unpack("14Q", counts.read_bytes())
    return done.returncode, done.stderr, numbers[0], numbers[-1]


bad = tried = 0
status, said, before, _ = run([])
assert status == 0, said
for question in (["replay", "trace.h5", "--job", "job.yaml"], ["trace info", "trace.h5"], ["model", "olmoe-1b-7b"]):
    status, said, whole, _ = run(question)
    assert status == 0, said
    for step in range(asked.sample):
        first = before + (whole - before) * step // asked.sample + step % 3
        for after in ("", ":on"):
            status, said, _, failed = run(question, f"alloc:{first}:12{after}")
            tried += failed > 0
            if failed and status != 0:
                bad += 1
                print(f"FAIL {question[0]}, allocation {first}{after}: exit {status}: {said.strip()[:200]}", flush=True)
print(f"{tried} faults, {bad} ended wrongly")
sys.exit(1 if bad or not tried else 0)
