#!/usr/bin/env python3
"""Tables of bare layers: two plain matrices of a width are scored as three gated ones of two thirds of it, rounded to the nearest, and the
rows of a table do not depend on each other.

bare_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

oracle = Oracle(sys.argv[1], "bare_oracle")
folder, data = pathlib.Path(sys.argv[2]) / "bare", pathlib.Path(sys.argv[3]) / "notebooks_data"
folder.mkdir(parents=True, exist_ok=True)
with open(data / "megatron/megatron_bare_layers.csv") as file:
    shipped = list(csv.DictReader(line for line in file if not line.startswith("#")))


def score(rows):
    path = folder / "bare.csv"
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, shipped[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return {row["id"]: row for row in json.loads(oracle.must("score", path, "--format", "json"))["rows"]}


def same(one, other):
    """But for what names the row."""
    return all(one[key] == other[key] for key in one if key not in ("id", "line", "ffn"))


made = []
for at, ffn in enumerate((1023, 1024, 1025, 1536, 2048, 2560)):
    for way in shipped[at % 2:: 2]:
        plain = way | {"id": f"{way['id']}-{ffn}-plain", "ffn": ffn, "matrices_per_expert": 2}
        asked = (4 * ffn + 3) // 6  # the nearest
        made += [plain, plain | {"id": f"{way['id']}-{ffn}-gated", "ffn": asked, "matrices_per_expert": 3}]
together = score(made)
for plain, gated in zip(made[::2], made[1::2]):
    two, three = together[plain["id"]], together[gated["id"]]
    oracle.check(two["asked_ffn"] == three["asked_ffn"] == gated["ffn"] and two["ffn"] == plain["ffn"],
                 f"{plain['id']}: asked {two['asked_ffn']} and {three['asked_ffn']}, the nearest is {gated['ffn']}")
    oracle.check(same(two, three), f"{plain['id']}: {two}, as gated ones {three}")
for plain in made[::8]:
    alone = score([plain])[plain["id"]]
    oracle.check(same(alone, together[plain["id"]]), f"{plain['id']}: alone {alone}, among others {together[plain['id']]}")
oracle.finish(least=30)
