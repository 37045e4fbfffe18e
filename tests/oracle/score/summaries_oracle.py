#!/usr/bin/env python3
"""Every figure that `score` says of all rows follows from the rows that it prints, and CSV has the numbers of JSON:
summaries_oracle.py SPILLWAY SCRATCH ROOT. One table of every kind; of long ones some rows."""
import collections
import csv
import json
import math
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

oracle = Oracle(sys.argv[1], "summaries_oracle")
folder, data = pathlib.Path(sys.argv[2]) / "summaries", pathlib.Path(sys.argv[3]) / "notebooks_data"
folder.mkdir(exist_ok=True)
MB = 1e6
# kind of table: file, and every how many-th row; -80: the first 80, whose steps have all their ranks
TABLES = {"published": ("published/deepseek3_mi355x_2026_05.csv", 9), "compiled": ("compiled/maxtext_memory.csv", 23),
          "judged": ("judged/mixtral_8x7b_h200_2025.csv", 1), "runs": ("megatron/megatron_runs.csv", 20),
          "whole": ("megatron/whole_models_h100.csv", 7), "bare": ("megatron/megatron_bare_layers.csv", 1),
          "measured": ("measured/megatron_h200_runs.csv", -80), "figures": ("figures/sonicmoe_figures_digitised.csv", 1),
          "dispatch": ("kernels/h200_dispatch.csv", 1), "layer": ("kernels/h200_layer.csv", 2)}


def shortened(kind):
    file, step = TABLES[kind]
    lines = (data / file).read_text().splitlines()
    rows = [i for i, line in enumerate(lines) if line and not line.startswith("#")]
    left_out = {i for n, i in enumerate(rows[1:]) if (n % step if step > 0 else n >= -step)}
    path = folder / pathlib.Path(file).name
    path.write_text("\n".join(line for i, line in enumerate(lines) if i not in left_out) + "\n")
    return path


def at(row, key):
    for part in key.split("."):
        row = None if row is None else row.get(part)
    return row


def both(rows, key, true):
    """Pairs of what is said and what is true, where both are known."""
    return [(at(r, key), at(r, true)) for r in rows if at(r, key) is not None and at(r, true) is not None]


def errors(rows, key, true):
    return [said / real - 1 for said, real in both(rows, key, true)]


def mean(values):
    return statistics.fmean(values) if values else None


def median(values):
    return statistics.median(values) if values else None


def largest(values):
    return max(values) if values else None


def magnitudes(values):
    return [abs(value) for value in values]


def within(rows, true, low, high):
    known = [r for r in rows if None not in (at(r, true), at(r, low), at(r, high))]
    return mean([at(r, low) <= at(r, true) <= at(r, high) for r in known])


def of_published(rows):
    temporary, total = errors(rows, "temporary_gib", "true_temporary_gib"), errors(rows, "total_gib", "true_total_gib")
    speed = errors(rows, "time.tokens_per_s_per_gpu", "true_tokens_per_s_per_gpu")
    judged = [r for r in rows if r["true_verdict"] is not None]
    right = [r["verdict"] == r["true_verdict"] for r in judged]
    step_of = [(r["true_tokens_per_s_per_gpu"], r["time"]) for r in rows if r["time"] and r["true_tokens_per_s_per_gpu"]]
    return {"cells": len(rows), "verdicts": len(judged), "verdicts_wrong": right.count(False), "verdict_agreement": mean(right),
            "temporary_gib_median_abs_error": median(magnitudes(temporary)), "temporary_gib_max_abs_error": largest(magnitudes(temporary)),
            "temporary_gib_within_12_percent": mean([abs(e) <= 0.12 for e in temporary]),
            "total_gib_median_abs_error": median(magnitudes(total)), "total_gib_max_abs_error": largest(magnitudes(total)),
            "interval_coverage": within(rows, "true_temporary_gib", "low_gib", "high_gib"),
            "interval_width_median": median([(r["high_gib"] - r["low_gib"]) / r["temporary_gib"] for r in rows]),
            "throughput_cells": len(speed), "throughput_mape": mean(magnitudes(speed)), "throughput_max_abs_error": largest(magnitudes(speed)),
            "throughput_interval_coverage": mean([t["low_s"] <= t["step_s"] * t["tokens_per_s_per_gpu"] / true <= t["high_s"]
                                                  for true, t in step_of]),
            "outside_fit": sum(r["outside_fit"] != "" for r in rows)}


def of_runs(rows):
    speed = errors(rows, "time.tokens_per_s_per_gpu", "true_tokens_per_s_per_gpu")
    memory = errors(rows, "memory.peak_gib", "true_memory_gib")
    timed = [r for r in rows if r["time"] and r["true_tokens_per_s_per_gpu"]]
    return {"cells": len(rows), "throughput_cells": len(speed), "throughput_mape": mean(magnitudes(speed)), "throughput_bias": mean(speed),
            "throughput_median_abs_error": median(magnitudes(speed)), "throughput_max_abs_error": largest(magnitudes(speed)),
            "throughput_interval_coverage": mean([r["inside"] for r in timed]),
            "throughput_interval_width_median": median([r["time"]["high_s"] / r["time"]["low_s"] for r in timed]),
            "memory_cells": len(memory), "memory_mean_abs_error": mean(magnitudes(memory))}


def of_whole(rows):
    out = {"cells": len(rows), "step_interval_coverage": within(rows, "true_step_s", "time.low_s", "time.high_s"),
           "step_interval_width_median": median([r["time"]["high_s"] / r["time"]["low_s"] for r in rows if r["time"]])}
    for name, mape, key, true in (("requested", "mean_abs_error", "requested_bytes", "true_requested_bytes"),
                                  ("reserved", "mean_abs_error", "reserved_bytes", "true_reserved_bytes"),
                                  ("step", "mape", "time.step_s", "true_step_s"), ("optimizer", "mape", "time.optimizer_s", "true_optimizer_s")):
        off = errors(rows, key, true)
        out |= {f"{name}_cells": len(off), f"{name}_{mape}": mean(magnitudes(off)), f"{name}_median_abs_error": median(magnitudes(off)),
                f"{name}_bias": mean(off), f"{name}_max_abs_error": largest(magnitudes(off))}
    return out


def of_bare(rows):
    off = errors(rows, "time.step_s", "true_step_s")
    return {"cells": len(rows), "step_cells": len(off), "step_mape": mean(magnitudes(off)), "step_bias": mean(off),
            "step_max_abs_error": largest(magnitudes(off)), "step_interval_coverage": within(rows, "true_step_s", "time.low_s", "time.high_s"),
            "step_interval_width_median": median([r["time"]["high_s"] / r["time"]["low_s"] for r in rows if r["time"]])}


def of_measured(rows):
    out = {"cells": len(rows)}
    for name in ("requested", "allocated_after_forward", "allocated", "reserved"):
        pairs = both(rows, f"{name}_bytes", f"true_{name}_bytes")
        off = [abs(said / real - 1) for said, real in pairs]
        out |= {f"{name}_median_abs_error": median(off), f"{name}_max_abs_error": largest(off),
                f"{name}_within_1_mb": sum(abs(said - real) <= MB for said, real in pairs)}
    steps = [r for r in {(r["run"], r["step"]): r for r in rows if at(r, "true_step_ms") is not None}.values()]
    off = magnitudes(errors(steps, "step_ms", "true_step_ms"))
    ratio = magnitudes(errors(steps, "real_over_balanced", "true_real_over_balanced"))
    return out | {"steps": len(steps), "step_mape": mean(off), "step_max_abs_error": largest(off),
                  "steps_inside": sum(r["step_low_ms"] <= r["true_step_ms"] <= r["step_high_ms"] for r in steps),
                  "real_over_balanced_median_abs_error": median(ratio), "real_over_balanced_max_abs_error": largest(ratio)}


def of_figures(rows):
    off = magnitudes(errors(rows, "predicted_bytes", "true_bytes"))
    return {"cells": len(off), "median_abs_error": median(off), "max_abs_error": largest(off)}


def of_dispatch(rows):
    off = magnitudes(errors(rows, "predicted_ms", "measured_ms"))
    return {"cells": len(off), "dispatch_median_abs_error": median(off), "dispatch_max_abs_error": largest(off)}


def of_layer(rows):
    out = {"cells": len(rows)}
    for side in ("forward", "backward"):
        off = magnitudes(errors([r for r in rows if r["pass"] == side and r["phase"] == "total"], "predicted_ms", "measured_ms"))
        out |= {f"{side}_median_abs_error": median(off), f"{side}_max_abs_error": largest(off)}
    return out


def same(said, want):
    if said is None or want is None or isinstance(said, str):
        return said == want
    return math.isclose(said, want, rel_tol=1e-8, abs_tol=1e-9)


def hold(what, said, want):
    for key, value in want.items():
        oracle.check(key in said and same(said[key], value), f"{what}: {key} is {said.get(key)}, the rows say {value}")


def grouped(rows, key):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups


OTHER = {"low_s": "time.low_s", "high_s": "time.high_s", "step_s": "time.step_s", "optimizer_s": "time.optimizer_s",
         "tokens_per_s_per_gpu": "time.tokens_per_s_per_gpu", "peak_gib": "memory.peak_gib"}  # where JSON nests what CSV lays flat
ERRORS = {"step_error": ("step_s", "true_step_s"), "optimizer_error": ("optimizer_s", "true_optimizer_s"), "peak_error": ("peak_gib", "true_peak_gib"),
          "throughput_error": ("tokens_per_s_per_gpu", "true_tokens_per_s_per_gpu"), "memory_error": ("peak_gib", "true_memory_gib"),
          "temporary_error": ("temporary_gib", "true_temporary_gib"), "total_error": ("total_gib", "true_total_gib"),
          "requested_error": ("requested_bytes", "true_requested_bytes"), "reserved_error": ("reserved_bytes", "true_reserved_bytes")}


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def hold_csv(kind, text, rows):
    """Each column has the number of its key, and what is called an error is one."""
    table, compared = list(csv.DictReader(text.splitlines())), 0
    oracle.check(len(table) == len(rows), f"{kind}: {len(table)} rows of CSV, {len(rows)} of JSON")
    for line, row in zip(table, rows):
        for key, cell in line.items():
            said = at(row, OTHER[key]) if key in OTHER and at(row, OTHER[key]) is not None else row.get(key)
            if isinstance(said, (int, float)) and not isinstance(said, bool) and number(cell) is not None:
                compared += 1
                oracle.check(math.isclose(number(cell), said, rel_tol=1e-6), f"{kind}: {key} is {cell} in CSV and {said} in JSON")
        for key, (predicted, true) in ERRORS.items():
            if number(line.get(key, "")) is not None:
                want = number(line[predicted]) / number(line[true]) - 1
                oracle.check(math.isclose(number(line[key]), want, rel_tol=1e-6, abs_tol=1e-9), f"{kind}: {key} {line[key]}, the row says {want}")
        if None not in (number(line.get("low_s", "")), number(line.get("high_s", ""))):
            oracle.check(number(line["low_s"]) <= number(line["step_s"]) <= number(line["high_s"]), f"{kind}: {line}")
    oracle.check(compared > len(rows), f"{kind}: only {compared} cells of CSV found in JSON")


def hold_table(kind, text, said):
    """The summary that a person reads: its last line of columns is of all rows."""
    line = next(line for line in reversed(text.splitlines()) if re.match(r"all +\d", line)).split()[1:]
    keys = ("cells", "skipped", "verdicts", None, None, "temporary_gib_median_abs_error", "temporary_gib_max_abs_error", None,
            "total_gib_median_abs_error", "total_gib_max_abs_error", None, None, "interval_width_median", "throughput_cells",
            "throughput_mape", "throughput_max_abs_error")
    oracle.check(len(line) == len(keys), f"{kind}: {len(line)} columns of the summary")
    for key, cell in zip(keys, line):
        share = key is not None and key.endswith(("error", "median", "mape"))
        want = "-" if key and said[key] is None else f"{100 * said[key]:.1f}" if share else f"{said[key]}" if key else cell
        oracle.check(cell == want, f"{kind}: the summary's {key} is {cell}, JSON says {want}")


FIGURES = {"published": of_published, "compiled": of_published, "judged": of_published, "runs": of_runs, "whole": of_whole, "bare": of_bare,
           "measured": of_measured, "figures": of_figures, "dispatch": of_dispatch, "layer": of_layer}
for kind, figures in FIGURES.items():
    path = shortened(kind)
    said = json.loads(oracle.must("score", path, "--format", "json"))
    rows = said["rows"]
    oracle.check(len(rows) > 1, f"{kind}: {len(rows)} rows")
    hold(kind, said, figures(rows))
    for list_key, key in (("schemes", "scheme"), ("tables", "table"), ("methods", "method")):
        groups = grouped(rows, key) if list_key in said else {}
        for part in said.get(list_key, []):
            hold(f"{kind}, {part[key]}", part, figures(groups.get(part[key], [])))
    hold_csv(kind, oracle.must("score", path, "--format", "csv"), rows)
    if figures is of_published:
        hold_table(kind, oracle.must("score", path, "--wide"), said)
oracle.finish(1000)
