#!/usr/bin/env python3
"""`spillway plan --until` against a grid of plain plans: every severity up to `good` fits, every one from `bad` on does not, and
the words of the answer are those of the routing that a trace of that severity has.

until_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import csv
import io
import json
import math
import pathlib
import sys

from oracle_run import Oracle

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
oracle = Oracle(program, "until_oracle")
check, run = oracle.check, oracle.must
JOB = """model: scratch-moe-e64
cluster: h200-2x8
parallel: {expert: 8, fsdp: 2}
batch: {sequences_per_gpu: 2, sequence_length: 512}
optimizer: distributed
memory_fraction: %s
schemes: [%s]
"""


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
            fits = row["memory"]["max_bytes"] <= row["memory"]["budget_bytes"]
            want = {"never": True, "always": False}.get(answer["answer"])
            want = severity <= float(answer["good"]) if want is None else want
            check(row["scheme"] == answer["scheme"] and fits == want, f"{name} at {severity}: fits {fits}, by --until {want}")
    return found


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
    text = run("plan", "--job", job, "--until", "step=1.02")
    check("good up to imbalance" in text and "times the mean, MaxVio" in text and "too long at imbalance" in text, text)
    oracle.finish()


main()
