#!/usr/bin/env python3
"""`spillway plan --until` against a grid of plain plans: every severity up to `good` fits, every one from `bad` on does not, the
same of the ends of the interval, and the words of the answer are those of the routing that a trace of that severity has. A
tempered trace is tempered here by water-filling in Python.

until_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import collections
import csv
import io
import json
import math
import pathlib
import subprocess
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
oracle = Oracle(program, "until_oracle")
check = oracle.check


def run(*arguments):
    """By what must be live: what the allocator reserves rises and falls with the severity (test_until has its interval)."""
    told = "--allocator" in arguments or arguments[0] != "plan"
    return oracle.must(*arguments, *([] if told else ["--no-allocator"]))
JOB = """model: scratch-moe-e64
cluster: h200-2x8
parallel: {expert: 8, fsdp: 2}
batch: {sequences_per_gpu: 2, sequence_length: 512}
optimizer: distributed
memory_fraction: %s
schemes: [%s]
"""


SHARE = 3.16  # of the live bytes that are not state, what an allocator takes at most


def state_of(memory):
    return memory["argument_bytes"]


def until(job, *arguments):
    return list(csv.DictReader(io.StringIO(run("plan", "--job", job, "--until", *arguments, "--format", "csv"))))


def planned(job, family, key, severity):
    given = ["--imbalance", f"{severity:.17g}"] if family is None else \
        ["--routing", f"{family}{',' if ':' in family else ':'}{key}={severity:.17g}"]
    return json.loads(run("plan", "--job", job, *given, "--format", "json"))["rows"]


def memory(job, family, key, low, high):
    answers = until(job, "oom", *([] if family is None else ["--routing", family]))
    found = 0
    for i, answer in enumerate(answers):
        name = f"{family} {answer['scheme']}"
        check(answer["monotone"] == "yes", f"{name}: not monotone")
        grid = [low + (high - low) * n / 12 for n in range(13)]
        if answer["answer"] == "found":
            found += 1
            good, bad = float(answer["good"]), float(answer["bad"])
            check(0 < bad - good <= (high - low) / 1024 * 1.001, f"{name}: {good} to {bad}")
            grid += [good, bad]
        for severity in grid:
            row = planned(job, family, key, severity)[i]
            memory_of = row["memory"]
            fits = memory_of["max_bytes"] <= memory_of["budget_bytes"]
            sure = state_of(memory_of) + SHARE * (memory_of["max_bytes"] - state_of(memory_of)) <= memory_of["budget_bytes"]
            check(sure == (answer["sure"] != "" and severity <= float(answer["sure"]) * (1 + 1e-12)) or
                  0 < severity - float(answer["sure"] or low) < (high - low) / 1024 * 1.001,
                  f"{name} at {severity}: surely fits {sure}, by --until up to {answer['sure']}")
            want = {"never": True, "always": False}.get(answer["answer"])
            want = severity <= float(answer["good"]) if want is None else want
            check(row["scheme"] == answer["scheme"] and fits == want, f"{name} at {severity}: fits {fits}, by --until {want}")
    return found


def shares():
    """The most that PyTorch's allocator took over the live bytes, both without the state, in all that was measured."""
    most = collections.defaultdict(float)
    for name in ("megatron_h200_reserved.csv", "megatron_h200_shapes.csv"):
        live = {}
        for row in csv.DictReader(open(root / "notebooks_data/measured" / name)):
            key = row["sequence"], row["model"], row["rank"]
            before, peak = live.get(key, (int(row["allocated_before_bytes"]), 0))
            live[key] = before, max(peak, int(row["requested_peak_bytes"]))
            if "max_split" not in row["allocator"]:
                kind = "expandable" in row["allocator"]
                most[kind] = max(most[kind], (int(row["reserved_bytes"]) - before) / (live[key][1] - before))
    for name in ("megatron_h200_runs.csv", "megatron_h200_two_ranks.csv"):
        for row in csv.DictReader(open(root / "notebooks_data/measured" / name)):
            before = int(row["allocated_before_bytes"])
            most[False] = max(most[False], (int(row["reserved_peak_bytes"]) - before) / (int(row["requested_peak_bytes"]) - before))
    check(3.15 < most[False] <= SHARE and 1.03 < most[True] <= 1.04, f"measured shares: {dict(most)}")


def tempered(own, everyone, tokens, exponent):
    """What a rank is to choose: c by bisection, where the program sorts."""
    there = own > 0
    log_weight = np.where(there, np.log(np.maximum(own, 1)) + (exponent - 1) * np.log(np.maximum(everyone, 1) / everyone.max()), -np.inf)
    low, high = -800.0, 2000.0
    for _ in range(200):
        middle = (low + high) / 2
        with np.errstate(over="ignore"):
            total = np.minimum(tokens, np.exp(log_weight + middle))[there].sum()
        low, high = (middle, high) if total < own.sum() else (low, middle)
    with np.errstate(over="ignore"):
        return np.where(there, np.minimum(tokens, np.exp(log_weight + low)), 0.0)


def histogram(ids, experts):
    return np.bincount(ids[ids < experts].ravel(), minlength=experts)


def recorded(job):
    """--until of a trace: its words and its bytes at the exponent 1 are those of the trace; tempered by Python it is as uneven."""
    path = scratch / "trace.h5"
    run("trace", "generate", path, "--experts", "64", "--top-k", "8", "--layers", "2", "--steps", "2", "--ranks", "16",
        "--tokens-per-rank", "512", "--distribution", "lognormal:sigma=0.4,drift=0.2", "--seed", "3")
    with h5py.File(path) as file:
        ids, source, offset = file["tokens/expert_id"][()], file["tokens/source_rank"][()], file["tokens/step_offset"][()]
    if ids.shape[0] == 2:  # [layer][token]
        ids = np.moveaxis(ids, 0, 1)

    def skew(exponent):
        part = expert = 0.0
        for step in range(2):
            rows = slice(int(offset[step]), int(offset[step + 1]))
            for layer in range(2):
                chosen, of = ids[rows, layer], source[rows]
                everyone = histogram(chosen, 64)
                loads = sum(tempered(histogram(chosen[of == s], 64), everyone, 512, exponent) for s in range(16))
                expert = max(expert, loads.max() * 64 / loads.sum())
                part = max(part, loads.reshape(8, 8).sum(1).max() * 8 / loads.sum())
        return part, expert

    plain = json.loads(run("plan", "--job", job, "--trace", path, "--format", "json"))["rows"]
    fraction = f"{plain[0]['memory']['max_bytes'] * 1.08 / (139.80 * 2**30):.9f}"
    answers = until(job, "oom,step=1.01", "--trace", path, "--memory-fraction", fraction)
    check([a["question"] for a in answers] == ["oom", "oom", "step=1.01", "step=1.01"], f"{answers}")
    for answer, row in zip(answers, plain + plain):
        name = f"recorded, {answer['scheme']}, {answer['question']}"
        part, expert = skew(1.0)
        check(answer["today"] == "1" and math.isclose(float(answer["today_max_over_mean"]), part, rel_tol=1e-9) and
              math.isclose(float(answer["today_expert_max_over_mean"]), expert, rel_tol=1e-9), f"{name}: today {answer}, {part} {expert}")
        same = row["memory"]["max_bytes"] if answer["question"] == "oom" else row["time"]["step_s"] / row["time"]["balanced_step_s"]
        check(math.isclose(float(answer["today_value"]), same, rel_tol=1e-12), f"{name}: {answer['today_value']} today, planned {same}")
        if answer["answer"] != "found":
            continue
        part, expert = skew(float(answer["good"]))
        check(math.isclose(float(answer["max_over_mean"]), part, rel_tol=2e-3), f"{name}: GPU {answer['max_over_mean']}, {part}")
        check(math.isclose(float(answer["expert_max_over_mean"]), expert, rel_tol=2e-3), f"{name}: {answer}, {expert}")
    check([a["answer"] for a in answers][::2] == ["found", "found"], f"nothing found: {answers}")


LAYERS = "router expert_products row_moves exchanges waiting host_wait expert_recompute".split()


def step_ends(job):
    """By the whole interval: a linear scan of severities, and of the ends themselves, by the components of plain plans."""
    stack = (root / "sim/megatron_stacks/megatron-te-h100-2026-11.yaml").read_text()
    width = {k: float(stack.split(f"\n{k}:\n  value: ")[1].split()[0]) for k in
             ("half_width", "model_half_width", "counted_half_width")}
    factor, step, low, high = 1.06, 7 / 1024, 1.0, 8.0

    balanced = planned(job, None, "", 1.0)[0]["time"]

    def ends(severity):
        """The least and the most that the step may be over the balanced one."""
        rows = [planned(job, None, "", severity)[0]["time"], balanced]
        layers, counted = ([sum(v["exposed_s"] for k, v in row["components"].items() if (k in LAYERS) == of) / row["step_s"]
                            for row in rows] for of in (True, False))
        ratio = rows[0]["step_s"] / rows[1]["step_s"]  # ranks and tokens as measured; the rest counted
        doubt = width["half_width"] * layers[0] + width["model_half_width"] * abs(layers[0] - layers[1]) + \
            width["counted_half_width"] * abs(counted[0] - counted[1])
        return ratio * math.exp(-doubt), ratio * math.exp(doubt)

    answer, = until(job, f"step={factor}", "--scheme", "megatron-alltoall")
    sure, good, bad = (float(answer[k]) for k in ("sure", "good", "bad"))
    check(low < sure < good < bad <= good + step * 1.001, f"{answer}")
    check(ends(sure)[1] <= factor < ends(sure + step)[1], f"surely up to {sure}: {ends(sure)}, {ends(sure + step)}")
    check(math.isclose(float(answer["value_good_high"]), ends(good)[1], rel_tol=1e-9) and
          math.isclose(float(answer["value_good_low"]), ends(good)[0], rel_tol=1e-9), f"{answer} {ends(good)}")
    worst = float(answer["surely_bad"]) if answer["surely_bad"] else math.inf
    for n in range(10):
        severity = low + (high - low) * n / 9
        least, most = ends(severity)
        check((most <= factor) == (severity <= sure) or sure < severity < sure + step, f"{severity}: {least} to {most}, {answer}")
        check((least > factor) == (severity >= worst) or worst - step < severity < worst, f"{severity}: {least} to {most}, {answer}")


def sizes(job):
    """Each expert-parallel size has its own range, and a line for each of its points."""
    text = run("plan", "--job", job, "--until", "oom,step=1.1", "--expert-parallel", "4,8,16")
    check(max(map(len, text.splitlines())) <= 120, text)
    for asked in ("4,8,2", "2,4,8", "8,2"):  # one GPU can have all rows of its group: as many times the mean as there are GPUs
        check("imbalance from 1 to 8," in run("plan", "--job", job, "--until", "oom", "--expert-parallel", asked), f"the range of {asked}")
    rows = until(job, "oom,step=1.1", "--expert-parallel", "4,8,16")
    check(len(rows) == 2 * 2 * 3 and [r["expert_parallel"] for r in rows[::4]] == ["4", "8", "16"], f"{rows}")
    alone = [until(job, "oom,step=1.1", "--expert-parallel", str(n)) for n in (4, 8, 16)]
    check(rows == sum(alone, []), "sizes together are sizes alone")
    for row in rows:
        if row["answer"] == "never":
            check(float(row["good"]) == min(float(row["expert_parallel"]), 64 / 8), f"{row}")
    check(json.loads(run("plan", "--job", job, "--until", "oom", "--expert-parallel", "4,8", "--format", "json"))[0]["question"] == "oom", "")


def stages(job):
    """A stated imbalance with stages and micro-batches is routing in which one GPU's experts get that share of all choices, in every
    layer and micro-batch."""
    given = ["--scheme", "megatron-alltoall", "--pipeline", "2", "--micro-batches", "2", "--remat", "none", "--optimizer", "distributed",
             "--expert-parallel", "8"]
    plan = lambda *words: json.loads(run("plan", "--job", job, *given, *words, "--format", "json"))["rows"][0]
    for times, close in ((2, 0.01), (5, 0.01), (8, 1e-12)):  # all choices leave nothing to chance
        stated, drawn = plan("--imbalance", times), plan("--routing", f"hot-rank:ranks=8,share={times / 8}")
        held, want = (row["memory"]["max_bytes"] for row in (stated, drawn))
        check(math.isclose(held, want, rel_tol=close), f"stated {times}: {held} bytes, drawn {want}")
        check(math.isclose(stated["time"]["step_s"], drawn["time"]["step_s"], rel_tol=0.02), f"stated {times}: {stated['time']}")
    row, = until(job, "oom", *given)
    check(row["severity"] == "imbalance" and row["answer"] == "never" and row["stage"] == row["first_out"] == "", f"{row}")
    given += ["--allocator", "expandable_segments:False", "--memory-fraction", "0.01"]
    row, = until(job, "oom", *given)
    check(row["stage"] == "0" and row["first_out"] == "stage 0 of 2, the fullest GPU", f"{row}")
    died = plan("--imbalance", row["bad"])["memory"]["allocator"]["runs_out"]
    where = f"first at step {died['step']} on rank {died['rank']} of stage {died['stage']}, micro-batch {died['micro_batch']}, "
    said = " ".join(run("plan", "--job", job, *given, "--until", "oom").split())
    check(row["answer"] == "found" and f"runs out of memory {where}" in said, f"{row}, {where}: {said}")


def one_rank(job):
    """A group of one GPU is even, and that is said of its points, not that they cannot be."""
    for share, answer in (("0.93", "never"), ("0.001", "always")):
        row, *others = until(job, "oom", "--scheme", "megatron-alltoall", "--expert-parallel", "1", "--memory-fraction", share)
        check(not others and (row["answer"], row["severity"], row["max_over_mean"]) == (answer, "imbalance", "1"), f"{share}: {row}")


def main():
    scratch.mkdir(parents=True, exist_ok=True)
    job = scratch / "job.yaml"
    schemes = "megatron-alltoall, megatron-allgather"
    job.write_text(JOB % ("0.93", schemes))
    even, skewed = (planned(job, None, "", x)[0]["memory"]["max_bytes"] for x in (1, 8))
    check(skewed > even * 1.01, "memory follows the routing")
    budget = 139.80 * 2**30
    job.write_text(JOB % (f"{(even + 0.4 * (skewed - even)) / budget:.9f}", schemes))
    check(memory(job, None, "imbalance", 1.0, 8.0) >= 1, "nothing runs out of memory: the test sees nothing")
    memory(job, "k-hot:hot=8", "heat", 0.0, 1.0)
    answer, = until(job, "oom", "--scheme", "megatron-alltoall", "--routing", "max-violation:hot=8")
    violation = float(answer["good"])
    check(math.isclose(float(answer["max_violation"]), violation, rel_tol=1e-9) and
          math.isclose(float(answer["max_over_mean"]), 1 + violation, rel_tol=1e-9), f"{answer}")  # the set is one GPU's experts

    job.write_text(JOB % ("0.93", schemes))
    for answer, i in zip(until(job, "step=1.02"), range(2)):
        for end, longer in (("good", False), ("bad", True)):
            time = planned(job, None, "", float(answer[end]))[i]["time"]
            check((time["step_s"] > 1.02 * time["balanced_step_s"]) == longer, f"{answer} {end}: {time['step_s']}")
        check(math.isclose(float(answer["max_over_mean"]), float(answer["good"])), f"{answer}")
    never, = until(job, "oom", "--scheme", "megatron-allgather", "--memory-fraction", "0.9")
    check(never["answer"] == "never" and never["bad"] == "", f"{never}")
    text = run("plan", "--job", job, "--until", "step=1.02", "--scheme", "megatron-alltoall")
    check("good up to imbalance" in text and "(MaxVio" in text and "too long at imbalance" in text, text)
    shares()
    step_ends(job)
    recorded(job)
    sizes(job)
    stages(job)
    one_rank(job)
    oracle.finish()


main()
