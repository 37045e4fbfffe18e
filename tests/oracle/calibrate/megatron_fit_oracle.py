#!/usr/bin/env python3
"""What `calibrate time` says of measured Megatron-Core stacks, made again: every shape and routing that is left out by a fit of tables without it, whose
errors are those of `score`; the interval that follows; what the written stack says of its tables; the phases and steps of the text.

megatron_fit_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import math
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from fit_files import quantile

spillway, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "megatron_fit_oracle"
data, preset = root / "notebooks_data/measured", root / "sim/megatron_stacks/megatron-h200-2026-11.yaml"
oracle = Oracle(spillway, "megatron_fit_oracle")
LABELS = {"shape": "model", "routing": "routing"}
COVERED, GPUS = 0.9, 0.03


def read(name):
    with (data / name).open(newline="") as file:
        return list(csv.DictReader(file))


def write(folder, runs, phases):
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("some_runs.csv", runs), ("some_phases.csv", phases)):
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    return [folder / "some_runs.csv", folder / "some_phases.csv"]


def rounded(text, value, what, digits):
    oracle.check(abs(float(text) - value) <= 0.52 * 10.0**-digits, f"{what}: printed {text}, not {value}")


def fitted(tables, *more):
    out = tables[0].parent / "out"
    out.mkdir(exist_ok=True)
    text = oracle.must("calibrate", "time", *tables, "--output", out, "--wide", *more)
    return text, out / "megatron-h200-2026-11.yaml"


def steps_of(tables, stack):
    """run -> what score says of it by this stack; steps that lack a rank are none."""
    rows = json.loads(oracle.must("score", *tables, "--time-stack", stack, "--format", "json"))["rows"]
    return {row["run"]: row for row in rows if row["true_step_ms"] is not None}


def off(row):
    return row["step_ms"] / row["true_step_ms"] - 1


def ratio_off(row):
    pair = row["real_over_balanced"], row["true_real_over_balanced"]
    return None if None in pair else abs(pair[0] / pair[1] - 1)


def hold(text, found, names, errors):
    """The line of a name that was left out."""
    label, name, steps, mean, most, ratios, median = found
    of = [row for row in names if row is not None]
    ratio = [r for r in map(ratio_off, of) if r is not None]
    what = f"{label} {name} left out"
    oracle.check((int(steps), int(ratios)) == (len(of), len(ratio)), f"{what}: {steps} steps and {ratios} ratios, not {len(of)} and {len(ratio)}")
    rounded(mean, 100 * statistics.fmean(abs(off(row)) for row in of), f"{what}: mean", 2)
    rounded(most, 100 * max(abs(off(row)) for row in of), f"{what}: most", 2)
    oracle.check((median == "-") == (not ratio), f"{what}: {median}")
    if ratio:
        rounded(median, 100 * quantile(ratio, 0.5), f"{what}: median", 2)
    if label == "routing":
        errors += [abs(math.log1p(off(row))) for row in of]


def main():
    runs, phases = read("megatron_h200_runs.csv"), read("megatron_h200_phases.csv")
    names = list(dict.fromkeys(row["run"] for row in runs))
    shape = {row["run"]: row["model"] for row in runs}  # two of them: without either, and then without a routing, enough are left to fit
    keep = {name for n, name in enumerate(names) if shape[name] == "dsv2lite" or shape[name] == "ds3-e64" and n % 2 == 0}
    lost = names[2]  # a rank of it is missing
    runs = [row for row in runs if row["run"] in keep and not (row["run"] == lost and row["rank"] == "2")]
    phases = [row for row in phases if row["run"] in keep]
    whole = write(scratch / "whole", runs, phases)
    text, stack = fitted(whole)
    of = {row["run"]: row for row in runs}
    said, errors = steps_of(whole, stack), []
    oracle.check(lost not in said and lost in of, f"{lost} has no step")
    found = re.findall(r"^(shape|routing) +(\S+) +(\d+) +(\S+) +(\S+) +(\d+) +(\S+)$", text, re.M)
    want = [(label, name) for label, column in LABELS.items() for name in dict.fromkeys(of[run][column] for run in said)]
    oracle.check([row[:2] for row in found] == want and len(want) > 8, f"left out: {found}, not {want}")
    for row in found:
        column = LABELS[row[0]]
        rest = [r for r in runs if r[column] != row[1]]
        without = write(scratch / "without", rest, [p for p in phases if of[p["run"]][column] != row[1]])
        by = steps_of(whole, fitted(without)[1])
        hold(text, row, [by[run] for run in said if of[run][column] == row[1]], errors)
    half = math.hypot(quantile(errors, COVERED), GPUS)
    last = re.search(r"^The interval is \+-(\S+) %; it holds (\d+) of (\d+) steps whose routing was left out\.$", text, re.M)
    rounded(last[1], 100 * math.expm1(half), "interval", 1)
    inside = sum(e <= half for e in errors)
    oracle.check((int(last[2]), int(last[3])) == (inside, len(errors)), f"{last[0]}: {inside} of {len(errors)}")
    hold_stack(stack.read_text(), half, len(errors), [of[run] for run in said], sum(float(v) > 0 for v in phase_means(phases, said).values()))
    hold_steps(text, said)
    hold_phases(text, phases, said, stack)
    hold_coefficients(whole, text, stack.read_text())
    oracle.finish(150)


def phase_means(phases, said):
    """(run, phase) -> seconds: mean over ranks, sum over layers."""
    out = {}
    for row in phases:
        for phase in [key for key in row if key.startswith(("forward_", "backward_"))]:
            if row["run"] in said:
                out[row["run"], phase] = out.get((row["run"], phase), 0.0) + float(row[phase]) / 4e3
    return out


def hold_stack(wrote, half, count, steps, phases):
    width = re.search(r'^half_width:\n  value: (\S+)\n(?:  uncertainty.*\n)?  evidence: (\w+)\n  source: "(.*)"$', wrote, re.M)
    rounded(width[1], half, "written half_width", 5)
    source = f"holds 90 % of {count} steps whose routing was left out; 3 % between equal GPUs"
    oracle.check(width[2] == "fitted" and width[3] == source, f"half_width: {width[0]}, not {source}")
    tokens = [int(row["tokens_per_rank"]) for row in steps]
    gpus = " ".join(dict.fromkeys(row["gpus"] for row in steps))
    for line in (f"tokens_min: {min(tokens)}", f"tokens_max: {max(tokens)}", f'expert_parallel: "{gpus}"', 'tables: "some_runs.csv some_phases.csv"'):
        oracle.check(line in wrote.splitlines(), f"written stack: no line {line}")
    source = f'source: "spillway calibrate time, {len(steps)} steps and {phases} phases of the tables"'
    oracle.check(source in wrote, f"written stack: no {source}")


def hold_steps(text, said):
    steps = list(said.values())
    ratio = [r for r in map(ratio_off, steps) if r is not None]
    first = re.search(r"^step: mean \|error\| (\S+) %, most (\S+) %, of (\d+) runs; (\d+) inside their interval$", text, re.M)
    rounded(first[1], 100 * statistics.fmean(abs(off(row)) for row in steps), "steps: mean", 2)
    rounded(first[2], 100 * max(abs(off(row)) for row in steps), "steps: most", 2)
    inside = sum(row["step_low_ms"] <= row["true_step_ms"] <= row["step_high_ms"] for row in steps)
    oracle.check((int(first[3]), int(first[4])) == (len(steps), inside), f"{first[0]}: {inside} of {len(steps)}")
    second = re.search(r"^real / balanced: median \|error\| (\S+) %, most (\S+) %, of (\d+) runs$", text, re.M)
    rounded(second[1], 100 * quantile(ratio, 0.5), "ratios: median", 2)
    rounded(second[2], 100 * max(ratio), "ratios: most", 2)
    oracle.check(int(second[3]) == len(ratio), f"{second[0]}: of {len(ratio)}")


def hold_phases(text, phases, said, stack):
    means = phase_means(phases, said)
    found = re.findall(r"^((?:forward|backward)_\w+) +(\S+) +(\S+) +(\S+) +(\S+) +(\S+)$", text, re.M)
    oracle.check(len(found) == 15, f"{len(found)} phases")
    for name, _, measured, *_ in found:
        rounded(measured, 1e3 * statistics.fmean(s for (_, phase), s in means.items() if phase == name), f"{name}: measured", 3)


def hold_coefficients(tables, text, wrote):
    """JSON, CSV, text and the written stack have the same figures."""
    said = json.loads(oracle.must("calibrate", "time", *tables, "--format", "json"))
    cells = list(csv.DictReader(oracle.must("calibrate", "time", *tables, "--format", "csv").splitlines()))
    oracle.check(len(said) == len(cells) > 20, f"{len(said)} coefficients, {len(cells)} in CSV")
    old = preset.read_text()
    for row, cell in zip(said, cells):
        key = row["coefficient"]
        oracle.check(cell["coefficient"] == key and all(math.isclose(float(cell[k]), row[k], rel_tol=1e-9) for k in ("before", "value", "uncertainty")) and
                     (cell["evidence"], cell["source"]) == (row["evidence"], row["source"]), f"CSV of {key}: {cell}, not {row}")
        block = re.search(rf"^{key}:\n((?:  .+\n)*)", wrote, re.M)
        value = re.search(r"value: (\S+)", block[1])[1] if block else row["value"]
        oracle.check(math.isclose(float(value), row["value"], rel_tol=2e-4, abs_tol=1e-12), f"written {key}: {value}, not {row['value']}")
        line = re.search(rf"^{key} +(\S+) +(\S+) +(\S+) +(\w+) ", text, re.M)
        oracle.check(line is not None and line[4] == row["evidence"], f"text of {key}: {line}")
        for at, (name, digits) in enumerate((("before", 4), ("value", 4), ("uncertainty", 2)), 1):
            oracle.check(line is not None and math.isclose(float(line[at]), row[name], rel_tol=0.6 * 10.0**(1 - digits), abs_tol=1e-30), f"text of {key}: {line}, {name} {row[name]}")
        if not row["source"].startswith("spillway calibrate") and key != "half_width":
            before = re.search(rf"^{key}:\n  value: (\S+)", old, re.M)
            oracle.check(before is None or math.isclose(float(before[1]), row["value"], rel_tol=1e-9, abs_tol=1e-300) and row["before"] == row["value"], f"{key} is not fitted: {row}")


main()
