#!/usr/bin/env python3
"""The time of measured Megatron-Core stacks, written again from the header of sim/time/megatron_time.h, against `spillway score` on
every run of the shipped table; the same with a stack whose every figure is turned; a table of a made-up machine, whose
coefficients the fit must find.     megatron_time_oracle.py SPILLWAY SCRATCH SOURCE"""
import csv
import json
import math
import pathlib
import random
import re
import statistics
import subprocess
import sys

spillway, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "megatron_time_oracle"
scratch.mkdir(exist_ok=True)
data = source / "notebooks_data" / "measured"
preset = (source / "sim/megatron_stacks/megatron-h200-2026-11.yaml").read_text()
PHASES = ["forward_route", "forward_permute", "forward_dispatch_a2a", "forward_sort_chunks", "forward_experts",
          "forward_unsort_chunks", "forward_combine_a2a", "forward_unpermute", "backward_permute", "backward_dispatch_a2a",
          "backward_sort_chunks", "backward_experts", "backward_unsort_chunks", "backward_combine_a2a", "backward_unpermute"]
bad = checks = 0


def check(good, what):
    global bad, checks
    checks += 1
    if not good:
        bad += 1
        print("FAIL", what)


def run(*arguments):
    done = subprocess.run([spillway, *map(str, arguments)], capture_output=True, text=True)
    check(done.returncode == 0, f"{arguments}: {done.stderr}")
    return done.stdout


def figures(text):
    return {k: float(v) for k, v in re.findall(r"^(\w+):\n  value: (\S+)", text, re.M)}


def up(x, tile):
    return math.ceil(x / tile) * tile


def step(c, ranks):
    """Seconds of a step and of its phases (mean over ranks, sum over layers). `ranks`: the rows of a run, by rank."""
    a = ranks[0]
    T, H, F, E, L = (int(a[k]) for k in ("tokens_per_rank", "hidden", "ffn", "experts", "layers"))
    e, R = E // len(ranks), range(len(ranks))
    padded, dropping = a["pad_to_capacity"] == "1", a["capacity_factor"] not in ("", "0")
    lists = {k: [[int(x) for x in r[k + "_per_layer"].split(";")] for r in ranks]
             for k in ("rows_received", "rows_sent", "rows_kept_local", "max_expert_rows", "empty_experts")}
    gemm = c["peak_flops"] * c["gemm_flops_share"]
    gpu, met, known = [0.0 for _ in R], 0.0, [0.0 for _ in R]
    spent = dict.fromkeys(PHASES, 0.0)

    def copy(b):
        return b / c["copy_bytes_per_s"]

    def to(times, phase):
        for r in R:
            if phase:
                spent[phase] += (times[r] - gpu[r]) / len(ranks)
            gpu[r] = times[r]

    def meet(phase):
        nonlocal met
        took = [t - met for t in gpu]
        b = c["jitter_share"] * max(took)
        if b > 0:
            met += max(took) + b * math.log(sum(math.exp((t - max(took)) / b) for t in took))
        to([met for _ in R], phase)

    def exchange(phase, l, latencies=1):
        nonlocal met
        ins = [lists["rows_received"][r][l] - lists["rows_kept_local"][r][l] for r in R]
        outs = [lists["rows_sent"][r][l] - lists["rows_kept_local"][r][l] for r in R]
        seconds = max(max(i, o) + c["duplex_share"] * min(i, o) for i, o in zip(ins, outs)) * 2 * H / c["exchange_bytes_per_s"]
        message = max(ins + outs) * 2 * H / (len(ranks) - 1)
        if len(set(ins + outs)) > 1 and message > 2**27:
            seconds *= max(1, c["long_message_share"] * (2**28 if message > 2**28 else 2**27) / message)
        meet(phase)
        met += seconds + latencies * c["exchange_latency_s"]
        to([met for _ in R], phase)

    def of(l, r):
        M, live, most = lists["rows_received"][r][l], e - lists["empty_experts"][r][l], lists["max_expert_rows"][r][l]
        even = M == live * most
        tiles = live * up(most, 128) if even else M + 64 * live
        chunks = 4 * M * H / c["slots_bytes_per_s"] if padded else copy(4 * M * H) + (0 if even else 40e-6)
        return M, tiles, live, (chunks + 2 * c["kernel_s"]) if M else 0.0

    def add(phase, seconds):
        to([gpu[r] + seconds(r) for r in R], phase)

    def forward(l, again):
        nonlocal known
        name = (lambda phase: None) if again else (lambda phase: "forward_" + phase)
        first = l == 0 and not again
        add(name("route"), lambda r: copy(16 * T * H + (800 * T * E if dropping else 0)) + 2 * T * H * E / c["router_flops"] +
            25 * c["kernel_s"])
        if first:
            to([max(t, 0.32 * c["host_first_s"]) for t in gpu], name("route"))
        add(name("permute"), lambda r: copy(48 * T * E) + 40 * c["kernel_s"])
        if not padded:
            to([max(gpu[r], c["host_first_s"] if first else known[r] + c["host_layer_s"]) for r in R], name("permute"))
            known = list(gpu)
            add(name("permute"), lambda r: 0.2e-3 if dropping else 0)
        add(name("permute"), lambda r: copy(4 * lists["rows_sent"][r][l] * H))
        exchange(name("dispatch_a2a"), l, 2)
        add(name("sort_chunks"), lambda r: of(l, r)[3])
        add(name("experts"), lambda r: 2 * of(l, r)[1] * (H * up(2 * F, 256) + F * up(H, 256)) / gemm +
            copy(c["activation_bytes"] * of(l, r)[0] * F) + 4 * c["kernel_s"])
        add(name("unsort_chunks"), lambda r: of(l, r)[3])
        exchange(name("combine_a2a"), l)
        add(name("unpermute"), lambda r: 4 * lists["rows_sent"][r][l] * H / c["scatter_bytes_per_s"])

    def backward_experts(l, r):
        M, tiles, live, _ = of(l, r)
        flops = 2 * tiles * (2 * F * up(H, 256) + H * up(F, 256))
        flops += 2 * M * (up(H, 128) * up(2 * F, 256) + up(F, 128) * up(H, 256))
        activation = c["activation_gradient_bytes"] + (c["activation_bytes"] if a["recompute"] == "moe_act" else 0)
        return (flops / gemm + copy(activation * M * F) + 30 * e * H * F / c["main_grad_bytes_per_s"] +
                copy(6 * (e - live) * H * F) + 4 * c["kernel_s"])

    for l in range(L):
        forward(l, False)
    for l in reversed(range(L)):
        if a["recompute"] == "moe":
            forward(l, True)
        add("backward_unpermute", lambda r: copy(4 * lists["rows_sent"][r][l] * H))
        exchange("backward_combine_a2a", l)
        add("backward_unsort_chunks", lambda r: of(l, r)[3])
        add("backward_experts", lambda r: backward_experts(l, r))
        add("backward_sort_chunks", lambda r: of(l, r)[3])
        meet("backward_sort_chunks")
        exchange("backward_dispatch_a2a", l)
        add("backward_permute", lambda r: 4 * lists["rows_sent"][r][l] * H / c["index_add_bytes_per_s"] +
            copy(c["norm_gradient_bytes"] * T * H) + 4 * T * H * E / c["router_flops"])
    return max(gpu), spent


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
check(score["step_mape"] < 0.0175 and score["real_over_balanced_median_abs_error"] < 0.0095, "the scores of the preset")

# Another machine: every figure turned by up to a fifth.
random.seed(3)
turned = re.sub(r"value: (\S+)", lambda m: f"value: {min(float(m[1]) * random.uniform(0.85, 1.2), 1e30):.8g}", preset)
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
                         **{p: repr(1e3 * s / layers) for p, s in spent.items()}})
with open(scratch / "made_phases.csv", "w", newline="") as file:
    out = csv.DictWriter(file, made[0].keys())
    out.writeheader()
    out.writerows(made)
printed = run("calibrate", "time", scratch / "made_runs.csv", scratch / "made_phases.csv", "--stack", scratch / "turned.yaml",
              "--format", "json")
for row in json.loads(printed):
    if row["evidence"] == "fitted":
        check(near(row["value"], c[row["coefficient"]], 0.03), f"{row['coefficient']}: {row['value']}, made with {c[row['coefficient']]}")

print(f"{checks} checks, {bad} failed")
sys.exit(1 if bad or not checks else 0)
