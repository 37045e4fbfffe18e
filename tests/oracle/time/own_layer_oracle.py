#!/usr/bin/env python3
"""Whole layers of our own kernels: the routings of the benchmark drawn again, and the formulas of sim/time/layer_time.h and
gemm_time.h written again, against `spillway score` on tables made from them and on the shipped one; tables that cannot be trusted.

own_layer_oracle.py SPILLWAY SCRATCH SOURCE"""
import bisect
import collections
import csv
import json
import math
import pathlib
import re
import statistics
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

import program as caller

program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "own_layer_oracle"
scratch.mkdir(exist_ok=True)
SETS, MASK = 4, (1 << 64) - 1
COLUMNS = "scheme,ranks,gpus,tokens_per_rank,hidden,ffn,experts,top_k,routing,pass,phase,rows_max,rows_mean,bytes_off_rank,ms".split(",")
oracle = Oracle(program, "own_layer_oracle")
check = oracle.check


def near(a, b, part=1e-9):
    return abs(a - b) <= part * abs(b)


# --- The cluster ---

text = (source / "sim/clusters/h200-8x8.yaml").read_text()
lists = {k: [int(x) for x in v.split(",")] for k, v in re.findall(r"^  (\w+): \[(.*)\]$", text, re.M)}
k = {key: float(value) for key, value in re.findall(r"^  (\w+): ([\d.e+]+)$", text.split("\nkernels:\n")[1], re.M)}
PEAK, HBM = (float(re.search(rf"^{name}:\n  value: (\S+)", text, re.M)[1]) for name in ("bf16_flops", "hbm_bytes_per_s"))
RATE = 1e6 * lists["exchange_mb_per_s"][-1]

# --- Grouped GEMM ---

curves = collections.defaultdict(list)
for at, shape in enumerate(zip(lists["in"], lists["out"])):
    curves[shape].append(at)


def roof(rows, a, b):
    return max(2 * rows * a * b / PEAK, 2 * (a * b + rows * (a + b)) / HBM)


def steffen(x, y, at):
    at = min(max(at, x[0]), x[-1])
    n = len(x)
    h = [x[i + 1] - x[i] for i in range(n - 1)]
    s = [(y[i + 1] - y[i]) / h[i] for i in range(n - 1)]
    slope = [s[0]] + [0.0] * (n - 2) + [s[-1]]
    for i in range(1, n - 1):
        p = (s[i - 1] * h[i] + s[i] * h[i - 1]) / (h[i - 1] + h[i])
        slope[i] = (math.copysign(1, s[i - 1]) + math.copysign(1, s[i])) * min(abs(s[i - 1]), abs(s[i]), 0.5 * abs(p))
    i = min(max(bisect.bisect_right(x, at) - 1, 0), n - 2)
    d = at - x[i]
    return y[i] + d * (slope[i] + d * ((3 * s[i] - 2 * slope[i] - slope[i + 1]) / h[i] +
                                       d * (slope[i] + slope[i + 1] - 2 * s[i]) / h[i] ** 2))


def gemm(rows, a, b, which):
    """Seconds of the experts with `rows` each."""
    speed = lists[which + "_tflops"]
    total, known = 0.0, {}
    tile = 64 if which == "weight_gradient" else 128
    for n in rows:
        n = n if n <= tile else -(-n // tile) * tile
        if n == 0 and which != "weight_gradient":
            continue
        if n not in known:
            share = weights = 0.0
            for (p, q), points in curves.items():
                xs = [math.log(lists["rows_per_expert"][i]) for i in points]
                ys = [(roof(lists["rows_per_expert"][i], p, q) + 0.6e-6) /
                      (2 * lists["rows_per_expert"][i] * p * q / (1e12 * speed[i])) for i in points]
                w = 1 / (math.log(p / a) ** 2 + math.log(q / b) ** 2 + 1e-9)
                share += w * steffen(xs, ys, math.log(max(n, 1)))
                weights += w
            known[n] = (roof(n, a, b) + 0.6e-6) / (share / weights)
        total += known[n]
    return total


# --- Routing ---

def bits(seed, i):
    z = (((seed * 0x632be59bd9b4e019 + i + 1) & MASK) * 0x9e3779b97f4a7c15) & MASK
    z = ((z ^ z >> 30) * 0xbf58476d1ce4e5b9) & MASK
    z = ((z ^ z >> 27) * 0x94d049bb133111eb) & MASK
    return z ^ z >> 31


def choices(skewed, tokens, top_k, experts, seed):
    below, total, out, draw = [], 0.0, [], 0
    for x in range(experts):
        total += (x + 1.0) ** -0.8 if skewed else 1
        below.append(struct.unpack("f", struct.pack("f", total))[0])
    for _ in range(tokens):
        chosen = []
        for _ in range(top_k):
            for turn in range(17):
                x = min(bisect.bisect_right(below, (bits(seed, draw) >> 11) * 2.0**-53 * total), experts - 1)
                draw += 1
                if x not in chosen:
                    break
            while x in chosen:
                x = (x + 1) % experts
            chosen.append(x)
        out.append(chosen)
    return out


# --- A layer ---

def layer(scheme, R, T, H, F, E, K, tokens):
    """tokens[rank][token] = ids. Seconds and bytes by (pass, phase), rows of the ranks."""
    e, ranks = E // R, range(R)
    name = scheme.split(":")[0]
    by_choice, ring = name in ("gmm", "dense"), name == "ring"
    slots = 0
    if name == "dense":
        factor = float(scheme.split("=")[1])
        slots = int(max(math.ceil(T * K / E) * factor, factor))
    n = [[0] * E for _ in ranks]
    U, out, into = [0] * R, [0] * R, [0] * R
    for s in ranks:
        for ids in tokens[s]:
            for x in ids:
                n[s][x] += 1
            wanted = {x // e for x in ids}
            for d in wanted:
                U[d] += 1
            for d in ([x // e for x in ids] if by_choice else wanted):
                if d != s:
                    out[s] += 1
                    into[d] += 1
    experts = [[sum(n[s][x] for s in ranks) for x in range(d * e, (d + 1) * e)] for d in ranks]
    M = [sum(of) for of in experts]
    W = {"deepep": M, "ring": [R * T * K] * R}.get(name, [R * T * min(e, K)] * R)
    A = [T] * R if by_choice else U if name == "deepep" else [R * T] * R
    N = [T * K] * R if by_choice else M
    touched = [T] * R if by_choice else U
    if ring:
        out = into = [(R - 1) * T] * R
    if name == "dense":
        N = [sum(min(x, slots) for x in n[s]) for s in ranks]
        M = W = [E * slots] * R
        experts = [[R * slots] * e for _ in ranks]
        out = into = [(R - 1) * e * slots] * R
    seconds, sent = {}, {}

    def run(direction, steps):
        clock, spent = [0.0] * R, collections.defaultdict(lambda: [0.0] * R)
        for phase, what, *more in steps:
            if what == "exchange":
                kind, row, beside, quiet = more
                most = max(out + into)
                start = k[kind + "_start_us"] - (k["notices_us"] if quiet else 0)
                end = max(clock) + 1e-6 * start + most * (1e-9 * k[kind + "_row_ns"] + row / (k[kind + "_share"] * RATE))
                took = [end - c for c in clock]
                sent[direction, phase] = sum(out) / R * (row + beside)
            else:
                took = more[0]
            for r in ranks:
                clock[r] += took[r]
                spent[phase][r] += took[r]
        for phase, of in spent.items():
            seconds[direction, phase] = max(of)
        seconds[direction, "total"] = max(clock)
        sent[direction, "total"] = sum(v for (d, _), v in sent.items() if d == direction)

    def moved(elements, rate, size=2):
        return [size * H * x / (1e9 * k[rate + "_gb_per_s"]) for x in elements]

    def product(which, a, b, width):
        return [gemm(experts[r], a, b, which) + 2 * (W[r] - M[r]) * width / (1e9 * k["copy_gb_per_s"]) for r in ranks]

    def swiglu(each, rate):
        return [each * w * F / (1e9 * k[rate + "_gb_per_s"]) for w in W]

    fan_out = moved([T + w for w in W], "slots") if name == "dense" else moved([a + b for a, b in zip(A, N)], "fan_out")
    fan_in = moved([a + b for a, b in zip(A, N)], "fan_in")
    gradient = moved([a + 2 * b for a, b in zip(touched, N)], "fan_in_gradient")
    if name == "dense":
        gradient = [g + c for g, c in zip(gradient, moved([w - b for w, b in zip(W, N)], "slots"))]
    plan = {"dense": 1e-9 * k["slot_ns"] * T * K, "gmm": 1e-6 * (k["plan_us"] + k["notices_us"]),
            "ring": 1e-6 * k["plan_us"] + 8 * T * E * (R + 1) / (1e9 * k["copy_gb_per_s"])}.get(name, 1e-6 * k["plan_us"])
    there = [("gemm1", "local", product("forward", H, 2 * F, 2 * F)), ("swiglu", "local", swiglu(6, "swiglu")),
             ("gemm2", "local", product("forward", F, H, H))]
    back = [("gemm2 input gradient", "local", product("input_gradient", F, H, F)),
            ("gemm2 weight gradient", "local", product("weight_gradient", F, H, 0)),
            ("swiglu gradient", "local", swiglu(10, "swiglu_gradient")),
            ("gemm1 input gradient", "local", product("input_gradient", H, 2 * F, H)),
            ("gemm1 weight gradient", "local", product("weight_gradient", H, 2 * F, 0))]
    plan, fan_out, fan_in = ("plan", "local", [plan] * R), ("fan-out", "local", fan_out), ("fan-in", "local", fan_in)
    gradient, undone = ("fan-in gradient", "local", gradient), ("fan-out gradient", "local", fan_in[2])
    row = 2 * H
    if by_choice:
        run("forward", [plan, fan_out, ("dispatch", "exchange", "send", row, 0, True), *there,
                        ("combine", "exchange", "return", row, 0, False), fan_in])
        run("backward", [gradient, ("combine gradient", "exchange", "send", row, 0, True), *back,
                         ("dispatch gradient", "exchange", "return", row, 0, False), undone])
    elif ring:
        side = ("fan-in gradient", "local", [4 * E * R * T / (1e9 * k["copy_gb_per_s"])] * R)
        run("forward", [("dispatch", "exchange", "send", row + 8 * E, 0, True), plan, fan_out, *there, fan_in,
                        ("combine", "exchange", "return", row, 0, False)])
        run("backward", [("combine gradient", "exchange", "send", row, 0, True), gradient, side,
                         ("router gradient", "exchange", "return", 4 * E, 0, False), *back, undone,
                         ("dispatch gradient", "exchange", "return", row, 0, False)])
    else:
        run("forward", [("dispatch", "exchange", "send", row, 8 * K + 4, False), plan, fan_out, *there, fan_in,
                        ("combine", "exchange", "return", row, 4, False)])
        run("backward", [("combine gradient", "exchange", "send", row, 4, True), gradient, *back, undone,
                         ("dispatch gradient", "exchange", "return", row, 4 * K + 4, False)])
    return seconds, sent, max(M), sum(M) / R


drawn = {}


def point(scheme, R, T, H, F, E, K, routing):
    """Means over the sets."""
    sums = [collections.Counter(), collections.Counter()]
    rows = [0.0, 0.0]
    for s in range(SETS):
        key = (routing, T, K, E, R, s)
        if key not in drawn:
            drawn[key] = [choices(routing == "skewed", T, K, E, s * 64 + r) for r in range(R)]
        seconds, sent, most, mean = layer(scheme, R, T, H, F, E, K, drawn[key])
        for into, of in zip(sums, (seconds, sent)):
            for phase, value in of.items():
                into[phase] += value / SETS
        rows[0] += most / SETS
        rows[1] += mean / SETS
    return sums[0], sums[1], rows


def score(path, want=0):
    named = [] if path == shipped else ["--cluster", "h200-8x8"]  # the shipped table has a column `cluster`
    done = caller.call([program, "score", path, "--format", "json", *named], capture_output=True, text=True)
    check(done.returncode == want, f"{path.name}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def write(path, rows):
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


# --- Tables made from the formulas ---

SHAPES = [(2, 512, 7168, 2048, 256, 8), (4, 192, 2048, 768, 128, 8), (2, 300, 4096, 1792, 8, 2)]
SCHEMES = ["gmm-deepep", "deepep", "gmm", "ring", "dense:capacity_factor=1.25"]
made, truth = [], []
for R, T, H, F, E, K in SHAPES:
    for scheme in SCHEMES:
        for routing in ("uniform", "skewed"):
            seconds, sent, rows = point(scheme, R, T, H, F, E, K, routing)
            for (direction, phase), value in seconds.items():
                made.append(dict(scheme=scheme, ranks=R, gpus=R, tokens_per_rank=T, hidden=H, ffn=F, experts=E, top_k=K,
                                 routing=routing, phase=phase, rows_max=round(rows[0]), rows_mean=round(rows[1]),
                                 bytes_off_rank=round(sent.get((direction, phase), 0)), ms=repr(1.25e3 * value), **{"pass": direction}))
                truth.append(value)
shipped = source / "notebooks_data/kernels/h200_layer.csv"
write(scratch / "made.csv", made)
said = score(scratch / "made.csv")
check(said["cells"] == len(made) == len(said["rows"]), "all rows are scored")
for row, value, one in zip(said["rows"], truth, made):
    check(near(row["predicted_ms"], 1e3 * value), f"{one}: {row['predicted_ms']} ms, not {1e3 * value}")
check(said["bytes_agree"] == said["bytes_known"] > 0, f"bytes: {said['bytes_agree']} of {said['bytes_known']}")
for direction in ("forward", "backward"):
    check(near(said[direction + "_median_abs_error"], 0.2, 1e-6) and near(said[direction + "_max_abs_error"], 0.2, 1e-6),
          f"{direction}: a fifth below what the table says")

# --- The shipped table ---

said = score(shipped)
with open(shipped, newline="") as file:
    table = list(csv.DictReader(file))
points, totals = {}, {}
check(len(table) == len(said["rows"]) == 576, "the shipped table")
for row, one in zip(said["rows"], table):
    shape = tuple(int(one[c]) for c in ("ranks", "tokens_per_rank", "hidden", "ffn", "experts", "top_k"))
    key = (one["scheme"], *shape, one["routing"])
    if key not in points:
        points[key] = point(*key)
    want = points[key][0][one["pass"], one["phase"]]
    check(near(row["predicted_ms"], 1e3 * want), f"{key}, {one['phase']}: {row['predicted_ms']} ms, not {1e3 * want}")
    if one["phase"] == "total":
        totals[one["scheme"], one["hidden"], one["pass"], one["routing"]] = row["predicted_ms"], row["measured_ms"]
check(said["bytes_agree"] == said["bytes_known"] == 186, f"bytes: {said['bytes_agree']} of {said['bytes_known']}")
for direction, median, most in (("forward", 0.06, 0.31), ("backward", 0.09, 0.22)):  # docs/validation_time_kernels.md
    errors = [abs(p / m - 1) for (_, _, d, _), (p, m) in totals.items() if d == direction]
    check(len(errors) == 30 and near(said[direction + "_median_abs_error"], statistics.median(errors)), f"{direction}: median")
    check(near(said[direction + "_max_abs_error"], max(errors)), f"{direction}: most")
    check(statistics.median(errors) < median and max(errors) < most, f"{direction}: {statistics.median(errors)}, {max(errors)}")
ratios = []
for (scheme, hidden, direction, routing), (predicted, measured) in totals.items():
    if routing == "skewed":
        even = totals[scheme, hidden, direction, "uniform"]
        ratios.append(abs(predicted / even[0] / (measured / even[1]) - 1))
check(len(ratios) == 30 and statistics.median(ratios) < 0.03, f"skewed over uniform: {statistics.median(ratios)}")

# --- Tables that cannot be trusted ---

for change, why in ((dict(ms="0"), "ms \"0\""), (dict(scheme="tutel:capacity_factor=1"), "none of our kernels"),
                    (dict(scheme="gnm"), "gnm"), (dict(routing="zipf"), "routing"), (dict(phase="nap"), "phase"),
                    (dict(phase="router gradient"), "has no phase"), (dict(rows_max=7), "drawn again"), (dict(ranks=3), "divide"),
                    (dict(top_k=999), "top-999"), (dict(experts="2.5"), "whole number"), (dict(bytes_off_rank="-1"), "bytes_off_rank")):
    write(scratch / "bad.csv", [{**made[0], **change}])
    message = score(scratch / "bad.csv", 3)
    check("bad.csv:2" in message and why in message, f"{change}: {message}")
done = caller.call([program, "score", scratch / "made.csv", scratch / "made.csv"], capture_output=True, text=True)
check(done.returncode == 2 and "one table at a time" in done.stderr, f"two tables: {done.returncode} {done.stderr}")
done = caller.call([program, "score", scratch / "made.csv"], capture_output=True, text=True)
check(done.returncode == 2 and "--cluster" in done.stderr, f"a table without a cluster: {done.stderr}")
done = caller.call([program, "score", scratch / "made.csv", "--cluster", "h200-8x8"], capture_output=True, text=True)
check(done.returncode == 0 and "-20.0 %" in done.stdout and "to the byte" in done.stdout, f"as a table: {done.stdout[:400]}")

oracle.finish()
