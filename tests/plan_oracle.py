#!/usr/bin/env python3
"""`spillway plan` against `spillway replay` of every split by itself, and its answers against a search over all points.

plan_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import json
import math
import pathlib
import subprocess
import sys

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TRACE = root / "traces/data/training_aux_e64_slice.h5"
SCHEMES = ["dense:capacity_factor=1.25", "dense:capacity_factor=2", "gmm", "gmm-deepep", "ring"]
JOB = """model: scratch-moe-e64
cluster: mi355x-8x8
parallel: {expert: 8, fsdp: 8}
batch: {sequences_per_gpu: [1, 2], sequence_length: 512}
memory_fraction: %s
schemes: [%s]
"""
checks = failed = 0


def check(good, what):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print(f"plan_oracle: {what}")


def run(*arguments):
    out = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    if out.returncode != 0:
        sys.exit(f"plan_oracle: {' '.join(map(str, arguments))}: exit {out.returncode}\n{out.stderr}")
    return out.stdout


def key(row):
    return row["scheme"], row["expert_parallel"], row["sequences_per_gpu"]


def fits(row):
    return row["memory"]["max_bytes"] <= row["memory"]["budget_bytes"]


def measures(row):
    """Less is better in each."""
    speed = row["time"]["tokens_per_s_per_gpu"]
    return row["memory"]["max_bytes"], -(speed or 0.0), row["drops"]["fraction"]


def front(rows):
    good = [i for i, row in enumerate(rows) if fits(row)]
    worse = lambda a, b: all(x <= y for x, y in zip(measures(rows[b]), measures(rows[a]))) and \
        measures(rows[a]) != measures(rows[b]) and \
        (rows[a]["time"]["step_s"] is None) == (rows[b]["time"]["step_s"] is None)
    return [i for i in good if not any(worse(i, j) for j in good if j != i)]


def judge(plan, job):
    rows = plan["rows"]
    check(plan["format"] == "spillway-result", "the format is not spillway-result")
    check(len({key(row) for row in rows}) == len(rows), "a point stands twice")
    for split in sorted({row["expert_parallel"] for row in rows}):
        alone = json.loads(run("replay", TRACE, "--job", job, "--expert-parallel", split, "--stack",
                               plan["settings"]["stack"], "--format", "json"))
        want = {key(row): row for row in alone["rows"]}
        for row in rows:
            if row["expert_parallel"] != split:
                continue
            for part in ("memory", "traffic", "drops", "time", "fsdp", "evidence"):
                expected = want[key(row)][part]
                if part == "drops" and row[part]["tokens_fully_dropped"] is None:  # a plan need not count them
                    expected = {**expected, "tokens_fully_dropped": None}
                check(row[part] == expected, f"{key(row)}: {part} differs from replay's")
    check(plan["plan"]["front"] == front(rows), "the front is not that of a search over all points")
    timed = [i for i, row in enumerate(rows) if fits(row) and row["time"]["step_s"] is not None]
    for name, among in (("fastest", timed),
                        ("fastest_dropless", [i for i in timed if rows[i]["drops"]["dropped"] == 0])):
        best = max(among, key=lambda i: rows[i]["time"]["tokens_per_s_per_gpu"], default=None)
        got = plan["plan"][name]
        check((got is None) == (best is None), f"{name}: {got}, by search {best}")
        if got is not None and best is not None:
            check(rows[got]["time"]["tokens_per_s_per_gpu"] == rows[best]["time"]["tokens_per_s_per_gpu"],
                  f"{name}: point {got}, by search {best}")
    for i in timed:
        time = rows[i]["time"]
        check(math.isclose(sum(c["exposed_s"] for c in time["components"].values()), time["step_s"],
                           rel_tol=1e-9), f"{key(rows[i])}: exposed seconds do not sum to the step")
        check(math.isclose(time["tokens_per_s_per_gpu"] * time["step_s"],
                           rows[i]["sequences_per_gpu"] * rows[i]["sequence_length"], rel_tol=1e-9),
              f"{key(rows[i])}: tokens over seconds")
    return timed


def main():
    scratch.mkdir(parents=True, exist_ok=True)
    job = scratch / "job.yaml"
    job.write_text(JOB % ("0.93", ", ".join(SCHEMES)))
    plan = json.loads(run("plan", "--job", job, "--trace", TRACE, "--expert-parallel", "2,8,64", "--format", "json",
                          "--tokens", "1T"))
    check(len(plan["rows"]) == 2 * 3 * len(SCHEMES), f"{len(plan['rows'])} points, not 30")
    check(bool(judge(plan, job)), "no point has a time")
    fastest = plan["rows"][plan["plan"]["fastest"]]
    cost = plan["plan"]["fastest_cost"]
    rate = 64 * fastest["time"]["tokens_per_s_per_gpu"]
    check(math.isclose(cost["gpu_hours"], 64e12 / rate / 3600, rel_tol=1e-9), "GPU-hours of 10^12 tokens")
    check(math.isclose(cost["tokens_per_day"], rate * 86400, rel_tol=1e-9), "tokens a day")

    factor = plan["plan"]["break_even_capacity_factor"]
    if factor is not None:  # dense with a little less is faster than the fastest without drops, with a little more slower
        best = plan["rows"][plan["plan"]["fastest_dropless"]]
        schemes = ", ".join(f"dense:capacity_factor={factor * more:.9f}" for more in (0.97, 1.03))  # slots are whole
        job.write_text((JOB % ("0.93", schemes)).replace("[1, 2]", str(best["sequences_per_gpu"])))
        less, more = (row["time"]["step_s"] for row in json.loads(run(
            "plan", "--job", job, "--trace", TRACE, "--expert-parallel", best["expert_parallel"], "--format", "json"))["rows"])
        check(less <= best["time"]["step_s"] <= more,
              f"dense around the break-even factor takes {less} to {more} s, not {best['time']['step_s']} s")

    job.write_text(JOB % ("0.002", ", ".join(SCHEMES)))  # little memory: some points do not fit
    tight = json.loads(run("plan", "--job", job, "--trace", TRACE, "--expert-parallel", "2,8,64", "--format", "json"))
    judge(tight, job)
    misfits = sum(not fits(row) for row in tight["rows"])
    check(0 < misfits < len(tight["rows"]), f"{misfits} of {len(tight['rows'])} points do not fit: the test sees nothing")

    job.write_text(JOB % ("0.93", ", ".join(SCHEMES)))  # an imbalance slows what is dropless, and only that
    steps = []
    for imbalance in ("1", "1.5"):
        rows = json.loads(run("plan", "--job", job, "--trace", TRACE, "--imbalance", imbalance, "--format", "json"))["rows"]
        steps.append({key(row): row["time"]["step_s"] for row in rows})
    for point, step in steps[0].items():
        if step is None:
            continue
        slower = steps[1][point] > step * (1 + 1e-9)
        check(slower != point[0].startswith("dense"), f"{point}: {step} s balanced, {steps[1][point]} s at 1.5")
    print(f"plan_oracle: {checks} checks, {failed} failed")
    sys.exit(failed > 0)


main()
