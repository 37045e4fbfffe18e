#!/usr/bin/env python3
"""The time of measured Megatron-Core stacks, written again from the header (oracle_megatron_time.py), against `spillway score` on
every run of the shipped table; the same with a stack whose every figure is turned; a table of a made-up machine, whose
coefficients the fit must find.     megatron_time_oracle.py SPILLWAY SCRATCH SOURCE"""
import csv
import json
import math
import pathlib
import random
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_megatron_time import PHASES, Load, figures, step as bare_step
from oracle_run import Oracle

spillway, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "megatron_time_oracle"
scratch.mkdir(exist_ok=True)
data = source / "notebooks_data" / "measured"
preset = (source / "sim/megatron_stacks/megatron-h200-2026-11.yaml").read_text()
oracle = Oracle(spillway, "megatron_time_oracle")
check, run = oracle.check, oracle.run


def step(c, ranks):
    """Seconds of a step and of its phases. `ranks`: the rows of a run, by rank."""
    a = ranks[0]
    T, H, F, E, L = (int(a[k]) for k in ("tokens_per_rank", "hidden", "ffn", "experts", "layers"))
    names = ("rows_received", "rows_sent", "rows_kept_local", "max_expert_rows", "empty_experts", "assignments_received")
    padded = a["pad_to_capacity"] == "1"

    def load(r, l):
        M, N, kept, most, empty, chosen = (int(r[k + "_per_layer"].split(";")[l]) for k in names)
        live = E // len(ranks) - empty
        if M == live * most:
            experts = [most] * live
        else:  # rows fall from the busiest expert on by one ratio, which bisection finds
            low, high = 0.0, 1.0
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (low, middle) if most * sum(middle**i for i in range(live)) > M else (middle, high)
            experts = [most * low**i for i in range(live)]
        experts += [0] * empty
        return Load(M, N, [[x / len(ranks) for x in experts] for _ in ranks], M - kept, N - kept,
                    zeros=max(0, M - chosen) if padded else 0)

    loads = [[load(r, l) for r in ranks] for l in range(L)]
    _, seconds, spent = bare_step(c, T, H, F, E, loads, a["recompute"], a["pad_to_capacity"] == "1",
                                  a["capacity_factor"] not in ("", "0"))
    return seconds, spent


def near(a, b, part):
    return abs(a - b) <= part * abs(b)


with open(data / "megatron_h200_runs.csv", newline="") as file:
    table = list(csv.DictReader(file))
runs = {}
for row in table:
    runs.setdefault(row["run"], []).append(row)
check(len(runs) == 95 and all([r["rank"] for r in of] == ["0", "1", "2", "3"] for of in runs.values()), "runs of four ranks")


def balanced(of, wanted=None):
    keys = ["model", "layers", "tokens_per_rank", "recompute", "expert_module", "repeat"]
    plain = [r for r in runs.values() if r[0]["routing"] == "balanced" and r[0]["capacity_factor"] == ""]
    for count in (6, 5):
        for other in plain:
            if all(other[0][k] == of[0][k] for k in keys[:count]):
                return None if other is of or of in plain else other
    return None


def compare(text, *options):
    c = figures(text)
    score = json.loads(run("score", data / "megatron_h200_runs.csv", data / "megatron_h200_phases.csv", "--format", "json",
                           *options))
    said = {r["run"]: r for r in score["rows"] if r["rank"] == 0}
    want = {name: step(c, of) for name, of in runs.items()}
    true = {name: max(float(r["step_ms"]) for r in of) / 1e3 for name, of in runs.items()}
    ratios = []
    for name, of in runs.items():
        seconds = want[name][0]
        check(near(said[name]["step_ms"], 1e3 * seconds, 1e-9), f"{name}: {said[name]['step_ms']} is not {1e3 * seconds} ms")
        other = balanced(of)
        if other is None:
            check(said[name]["real_over_balanced"] is None, f"{name} has no partner")
            continue
        o = other[0]["run"]
        check(near(said[name]["real_over_balanced"], seconds / want[o][0], 1e-9), f"{name} over {o}")
        ratios.append(abs(seconds / want[o][0] / (true[name] / true[o]) - 1))
    errors = [abs(want[name][0] / true[name] - 1) for name in runs]
    inside = sum(abs(math.log(want[name][0] / true[name])) <= c["half_width"] for name in runs)
    check(score["steps_inside"] == inside, f"{score['steps_inside']} inside the interval, not {inside}")
    check(all(near(said[n]["step_high_ms"], 1e3 * want[n][0] * math.exp(c["half_width"]), 1e-9) for n in runs), "step_high_ms")
    check(all(near(said[n]["step_low_ms"], 1e3 * want[n][0] * math.exp(-c["half_width"]), 1e-9) for n in runs), "step_low_ms")
    check(near(score["step_mape"], statistics.mean(errors), 1e-9), "step_mape")
    check(near(score["step_max_abs_error"], max(errors), 1e-9), "step_max_abs_error")
    check(near(score["real_over_balanced_median_abs_error"], statistics.median(ratios), 1e-9), "median of the ratios")
    check(near(score["real_over_balanced_max_abs_error"], max(ratios), 1e-9), "greatest of the ratios")
    with open(data / "megatron_h200_phases.csv", newline="") as file:
        phases = list(csv.DictReader(file))
    for phase in score["phases"]:
        truth = {}
        for row in phases:
            truth[row["run"]] = truth.get(row["run"], 0.0) + float(row[phase["phase"]]) / 4e3
        errors = [abs(want[name][1][phase["phase"]] / t - 1) for name, t in truth.items()]
        total = sum(want[name][1][phase["phase"]] for name in truth) / sum(truth.values()) - 1
        check(near(phase["mean_abs_error"], statistics.mean(errors), 1e-9), phase["phase"])
        check(abs(phase["error"] - total) < 1e-9, phase["phase"] + ", sum")
    check([p["phase"] for p in score["phases"]] == PHASES, "15 phases")
    return score


score = compare(preset)
check(score["step_mape"] < 0.013 and score["real_over_balanced_median_abs_error"] < 0.007, "the scores of the preset")

# Another machine: every figure turned by up to a fifth.
random.seed(3)
turned = re.sub(r"value: (\S+)", lambda m: m[0] if m[1] in "01" else f"value: {min(float(m[1]) * random.uniform(0.85, 1.2), 1e30):.8g}", preset)
turned = re.sub(r"(long_message_share:\n  value: )\S+", r"\g<1>1.25", turned)
turned = re.sub(r"(host_layer_s:\n  value: )\S+", r"\g<1>0.0033", turned)  # so slow that the fit sees it
(scratch / "turned.yaml").write_text(turned)
compare(turned, "--time-stack", scratch / "turned.yaml")

# Tables of that machine: the fit finds its figures, as far as the starting values let go of them.
c = figures(turned)
with open(scratch / "made_runs.csv", "w", newline="") as file:
    out = csv.DictWriter(file, table[0].keys())
    out.writeheader()
    for of in runs.values():
        seconds, _ = step(c, of)
        out.writerows({**r, "step_ms": repr(1e3 * seconds)} for r in of)
made = []
for name, of in runs.items():
    spent = step(c, of)[1]
    rows = [[int(x) for x in r["rows_received_per_layer"].split(";")] for r in of]
    layers = int(of[0]["layers"])
    for rank in range(4):
        for layer in range(layers):
            made.append({"run": name, "rank": rank, "layer": layer, "rows": rows[rank][layer],
                         **{p: repr(1e3 * s / layers) for p, s in spent.items() if p != "wire"}})
with open(scratch / "made_phases.csv", "w", newline="") as file:
    out = csv.DictWriter(file, made[0].keys())
    out.writeheader()
    out.writerows(made)
printed = run("calibrate", "time", scratch / "made_runs.csv", scratch / "made_phases.csv", "--stack", scratch / "turned.yaml",
              "--format", "json")
for row in json.loads(printed):
    if row["coefficient"] == "half_width":  # the fits without a routing are as exact: what is left is the spread between GPUs
        check(near(row["value"], 0.03, 0.01), f"half_width: {row['value']}")
    elif row["evidence"] == "fitted":
        few = row["coefficient"] == "zero_share"  # 3 of 95 runs have rows of zeros
        check(near(row["value"], c[row["coefficient"]], 0.06 if few else 0.03), f"{row['coefficient']}: {row['value']}, made with {c[row['coefficient']]}")

oracle.finish()
