#!/usr/bin/env python3
"""Requested bytes of whole Megatron-Core models on one and two H100 (notebooks_data/megatron/whole_models_h100.csv), run by run:
what `score` says is within 0.05 % of what was measured, and never above it by more than 0.01 %.

whole_measured_oracle.py SPILLWAY ROOT"""
import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, root = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
oracle = Oracle(str(program), "whole_measured_oracle")
# Rank 0 of the older layer-wise optimizer held fewer moments than the hand that is described (the fullest of its ranks).
OTHER = {("qw-g2-muon", 0)}
# One rank with all rows, which runs its experts again; and one that holds most in the backward pass of its last layer.
WIDE = {"qw-g2-hot1-moe": 0.15, "qw-g1-s2048b1": 0.1}

table = json.loads(oracle.must("score", root / "notebooks_data/megatron/whole_models_h100.csv", "--format", "json"))
seen = collections.Counter()
for row in table["rows"]:
    if (row["name"], row["rank"]) in OTHER:
        continue
    error = 100 * (row["requested_bytes"] / row["true_requested_bytes"] - 1)
    seen[row["remat"]] += 1
    oracle.check(-WIDE.get(row["name"], 0.05) < error < 0.01, f"{row['name']} rank {row['rank']}: {error:+.3f} %")
oracle.check(len(seen) >= 7 and sum(seen.values()) >= 55, f"runs by remat: {dict(seen)}")
oracle.finish(least=55)
