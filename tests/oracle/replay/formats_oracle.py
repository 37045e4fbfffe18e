#!/usr/bin/env python3
"""The CSV of replay and plan against the JSON of the same run: a column has the value of the field of its name, row by row.
formats_oracle.py SPILLWAY ROOT"""
import csv
import io
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

spillway, root = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
oracle = Oracle(spillway, "formats_oracle")
# What stands in a part of a row; columns of one name would need a rule of their own.
PARTS = ("time", "cost", "drops", "traffic", "memory")
OTHERS = {"drop_fraction": ("drops", "fraction"), "step_bytes_per_gpu": ("traffic", "step_bytes_per_gpu")}
TIMES = [f"{which}{end}" for which in ("", "balanced_", "worst_") for end in ("step_s", "low_s", "high_s")] + [
    f"tokens_per_s_{end}" for end in ("per_gpu", "low", "high")]
COSTS = [f"{what}{end}" for what in ("tokens_per_day", "flops_per_s_per_gpu", "mfu", "days", "gpu_hours", "money") for end in ("", "_low", "_high")]


def same(cell, value):
    if value is None:
        return cell == ""
    if isinstance(value, bool):
        return cell == ("yes" if value else "no")
    return math.isclose(float(cell), value, rel_tol=1e-12) if isinstance(value, (int, float)) else cell == value


def compare(*words):
    rows = json.loads(oracle.must(*words, "--format", "json"))["rows"]
    lines = list(csv.DictReader(io.StringIO(oracle.must(*words, "--format", "csv"))))
    oracle.check(len(lines) == len(rows) > 0, f"{words}: {len(lines)} lines of CSV for {len(rows)} rows")
    for line, row in zip(lines, rows):
        fields = {name: row[part][name] for part in PARTS for name in row[part] if not isinstance(row[part][name], (dict, list))}
        fields |= {name: row[part][field] for name, (part, field) in OTHERS.items()}
        for name in set(line) & set(fields):
            oracle.check(same(line[name], fields[name]), f"{words}, {row['scheme']}: {name} is {line[name]}, not {fields[name]}")
        missing = [name for name in TIMES + COSTS if name not in line or name not in fields]
        oracle.check(not missing, f"{words}: {missing} are not in both")
        oracle.check(line["scheme"] == row["scheme"] and line["sequences_per_gpu"] == str(row["sequences_per_gpu"]), f"{words}: {line}")


trace, job = root / "traces/data/training_aux_e64_slice.h5", root / "sim/jobs/scratch-moe-e64.yaml"
stack = ("--stack", "maxtext-rocm-2026-05")
compare("replay", trace, "--job", job, *stack, "--scheme", "gmm", "--scheme", "dense:capacity_factor=1.25", "--sequences-per-gpu", "1,2",
        "--tokens", "1T", "--set", "price_per_gpu_hour=2.5")
compare("replay", trace, "--job", job, *stack, "--scheme", "gmm", "--each-step")
compare("plan", "--job", job, *stack, "--scheme", "gmm", "--scheme", "ring", "--tokens", "1T")
compare("replay", trace, "--job", job, "--scheme", "gmm")  # no times
oracle.finish(least=200)
