#!/usr/bin/env python3
"""Device memory in use of runs on two GPUs that were predicted first: torchtitan's layers under FSDP2 (notebooks_data/measured/torchtitan_device.csv, torchtitan_later.csv)
and Megatron-Core with TransformerEngine (whole_device.csv). What was said before, as the tables beside them have it, and what `replay` says today.
Blind bounds are of the written predictions, which nobody changes; today's came after the runs were seen.

device_measured_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
sys.dont_write_bytecode = True
tables = root / "notebooks_data/measured"
sys.path.insert(0, str(tables))
import torchtitan_jobs  # noqa: E402
import whole_device_jobs  # noqa: E402

oracle = Oracle(str(program), "device_measured_oracle")
GIB = 1 << 30
REQUESTED = 0.3  # per cent
RESERVED = {"words_none": 3.8, "selective": 1.6}  # of the first, logits of 1.2 GB find a block 100 MB too small
USUAL = {"torchtitan": 1.2, "megatron": 2.6}
scratch.mkdir(parents=True, exist_ok=True)


def read(name, key):
    found = {}
    with open(tables / name, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row[key], []).append(row)
    return found


def most(rows, what):
    return max(int(r[what]) for r in rows)


def blind(measured, predicted):
    """Runs whose device in use was said to 0.6 GiB."""
    return {n: (int(predicted[n][0]["in_use_bytes"]) - most(rows, "in_use_bytes")) / GIB for n, rows in measured.items()}


def compare(name, rows, memory, usual):
    for what, bound in (("requested", REQUESTED), ("reserved", RESERVED.get(name, usual))):
        error = 100 * (memory["allocator"][what]["max_bytes"] / most(rows, f"{what}_bytes") - 1)
        oracle.check(abs(error) < bound, f"{name}: {what} {error:+.2f} %")
    oracle.check(memory["verdict"] == "fits", f"{name} ran, and is called {memory['verdict']}")


titan, whole = read("torchtitan_device.csv", "case"), read("whole_device.csv", "name")
later = read("torchtitan_later.csv", "case")
said = (blind(titan, read("torchtitan_device_predicted.csv", "case")), blind(later, read("torchtitan_later_predicted.csv", "case")),
        blind(whole, read("whole_device_predicted.csv", "name")))
for errors, inside in zip(said, (3, 7, 3)):
    oracle.check(sum(abs(e) <= 0.6 for e in errors.values()) == inside, f"said before, within 0.6 GiB: {errors}")
for name, rows in {**titan, **later}.items():
    _, memory = torchtitan_jobs.ask(str(program), scratch, name, {**torchtitan_jobs.DEVICE_CASES, **torchtitan_jobs.LATER_CASES}[name])
    compare(name, rows, memory, USUAL["torchtitan"])
    for r in rows:
        outside = torchtitan_jobs.MEASURED_OUTSIDE[int(r["expert"])]
        oracle.check(abs(int(r["outside_bytes"]) - outside) < 0.01 * GIB, f"{name}: {r['outside_bytes']} bytes outside, said {outside}")
for given in whole_device_jobs.runs():
    if given["name"] not in whole:
        continue
    run, memory = whole_device_jobs.ask(str(program), scratch, given)
    compare(given["name"], whole[given["name"]], memory, USUAL["megatron"])
    for r in whole[given["name"]]:
        last = whole_device_jobs.LAST_STAGE if run["pipeline"] > 1 and int(r["stage"]) + 1 == run["pipeline"] else 0
        outside = whole_device_jobs.outside_of(run) + last
        oracle.check(abs(int(r["outside_bytes"]) - outside) < 0.01 * GIB, f"{given['name']}: {r['outside_bytes']} bytes outside, said {outside}")
oracle.check(len(titan) == 7 and len(later) == 7 and len(whole) == 3, "all runs of the tables")
oracle.finish(least=50)
