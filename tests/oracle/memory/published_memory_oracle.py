#!/usr/bin/env python3
"""Published memory (notebooks_data/megatron/published_memory.csv) beside `plan`: within 4 %, or the table says what is missing; what ran
is called fitting, what did not is not. Rows of three models were asked about after every rule was written.

published_memory_oracle.py SPILLWAY ROOT"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, root = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
sys.dont_write_bytecode = True
sys.path.insert(0, str(root / "notebooks_data"))
import published_memory  # noqa: E402

oracle = Oracle(str(program), "published_memory_oracle")
MOST = {"seen": 0.04, "not used": 0.025, "never": 0.05}  # of routing that is drawn: a draw moves them by 0.2 %
DEVICE = (19e9, 29e9)  # what a device has beside the allocator, whatever the batch
WIDE = {"px23": 42e9}  # it reserves 193 or 212 GB, by what earlier steps left in the cache
failed = 0
counts = dict.fromkeys((*MOST, "missing"), 0)
for row in published_memory.scored(program):
    name = f"{row['row']}, {row['what']}"
    if row["outcome"] != "ran":
        failed += 1
        oracle.check(row["verdict"] == "oom", f"{name} ran out of memory, and is called {row['verdict']}")
        continue
    oracle.check(row["verdict"] in ("fits", "tight"), f"{name} ran, and is called {row['verdict']}")
    said = f"{name}: {100 * row['error']:+.2f} %"
    if row["missing"]:
        counts["missing"] += 1
        oracle.check(row["error"] < -0.03, f"{said}: is anything missing?")
        if row["what"] == "device":
            beside = int(row["published_bytes"]) - row["said"]
            oracle.check(DEVICE[0] < beside < WIDE.get(row["row"], DEVICE[1]), f"{said}: {beside / 1e9:.1f} GB beside the allocator")
        continue
    counts[row["looked_at"]] += 1
    oracle.check(abs(row["error"]) < MOST[row["looked_at"]], said)
oracle.check(counts["seen"] >= 9 and counts["not used"] >= 4 and counts["never"] >= 2 and counts["missing"] <= 16, f"rows {counts}")
oracle.check(failed >= 4, f"{failed} runs that failed")
oracle.finish(least=60)
