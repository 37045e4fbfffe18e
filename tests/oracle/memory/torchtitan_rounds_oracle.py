#!/usr/bin/env python3
"""Runs of torchtitan's layers under FSDP2 on two H100 (notebooks_data/measured/torchtitan_rounds.csv), micro-batches 1 and 2, uneven routing, and
six under a limit: what `replay` says of their routing beside what was measured. That two micro-batches have all sharded gradients more at the loss
than one is the difference of two runs, which needs no bound.

torchtitan_rounds_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
sys.dont_write_bytecode = True
sys.path.insert(0, str(root / "notebooks_data/measured"))
import torchtitan_jobs  # noqa: E402

oracle = Oracle(str(program), "torchtitan_rounds_oracle")
REQUESTED, RESERVED = 0.25, 2.3  # per cent; the rows were seen
EDGE = set()  # runs that are called out of memory
scratch.mkdir(parents=True, exist_ok=True)
measured, said = {}, {}
with open(root / "notebooks_data/measured/torchtitan_rounds.csv", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        measured.setdefault(row["case"], []).append(row)
for name, given in {**torchtitan_jobs.CASES, **torchtitan_jobs.FAILING}.items():
    _, memory = torchtitan_jobs.ask(str(program), scratch, name, given)
    replayed, ranks = memory["allocator"], measured[name]
    said[name] = replayed["requested"]["max_bytes"]
    dead = [r for r in ranks if r["outcome"] != "ran"]
    if dead:
        death = replayed["runs_out"] or {}
        oracle.check(memory["verdict"] == "oom", f"{name} ran out, and is called {memory['verdict']}")
        oracle.check(death.get("step") == int(dead[0]["death_step"]), f"{name}: step {death}")
        oracle.check(death.get("rank") in [int(r["rank"]) for r in dead], f"{name}: rank {death}")
        oracle.check(bool(death.get("optimizer")) == (dead[0]["death_in"] == "optimizer"), f"{name}: {death}")
        oracle.check(death.get("optimizer") or death.get("micro_batch") == int(dead[0]["death_micro_batch"]), f"{name}: micro-batch {death}")
        continue
    oracle.check((memory["verdict"] == "oom") == (name in EDGE), f"{name} ran, and is called {memory['verdict']}")
    for what, bound in (("requested", REQUESTED), ("reserved", RESERVED)):
        truth = max(int(r[f"{what}_bytes"]) for r in ranks)
        error = 100 * (replayed[what]["max_bytes"] / truth - 1)
        oracle.check(abs(error) < bound, f"{name}: {what} {error:+.2f} %")
for kind in ("none", "words"):  # both are fullest at the loss
    more = {n: int(measured[f"m{n}_{kind}"][0]["requested_bytes"]) for n in (1, 2)}
    error = said[f"m2_{kind}"] - said[f"m1_{kind}"] - (more[2] - more[1])
    oracle.check(abs(error) < 0.001 * (more[2] - more[1]), f"{kind}: a second micro-batch adds {error:+d} bytes more than measured")
oracle.finish(least=50)
