#!/usr/bin/env python3
"""Published memory (notebooks_data/megatron/published_memory.csv) beside `plan`: within 4 %, or the table says what is missing. Rows of
two models were asked about after every rule was written.

published_memory_oracle.py SPILLWAY ROOT"""
import pathlib
import sys

from oracle_run import Oracle

program, root = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
sys.dont_write_bytecode = True
sys.path.insert(0, str(root / "notebooks_data"))
import published_memory  # noqa: E402

oracle = Oracle(str(program), "published_memory_oracle")
MOST = {"seen": 0.04, "not used": 0.02}
DEVICE = (19e9, 29e9)  # what a device has beside the allocator, whatever the batch
counts = dict.fromkeys((*MOST, "missing"), 0)
for row in published_memory.scored(program):
    said = f"{row['row']}, {row['what']}: {100 * row['error']:+.2f} %"
    if row["missing"]:
        counts["missing"] += 1
        oracle.check(row["error"] < -0.03, f"{said}: is anything missing?")
        if row["what"] == "device":
            beside = int(row["published_bytes"]) - row["said"]
            oracle.check(DEVICE[0] < beside < DEVICE[1], f"{said}: {beside / 1e9:.1f} GB beside the allocator")
        continue
    counts[row["looked_at"]] += 1
    oracle.check(abs(row["error"]) < MOST[row["looked_at"]], said)
oracle.check(counts["seen"] >= 9 and counts["not used"] >= 4 and counts["missing"] <= 16, f"rows {counts}")
oracle.finish(least=30)
