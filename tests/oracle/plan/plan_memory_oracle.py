#!/usr/bin/env python3
"""Memory of planned points: what the allocator reserves, advice that is followed and then fits, and precision.

plan_memory_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from planned import JOB, TRACE, check, fits, judge, key, line, oracle, program, root, run, scratch
import program as caller


def allocator(job):
    """--allocator: what replay says of the same points, and what a person is told of points that run out."""
    conf = ["--allocator", "expandable_segments:False,max_split_size_mb:64"]
    seen = set()
    for fraction in ("0.93", "0.002", "0.001"):
        job.write_text(JOB % (fraction, "megatron-alltoall, deepep, gmm"))
        plan = json.loads(run("plan", "--job", job, "--trace", TRACE, "--expert-parallel", "8,16", *conf, "--format", "json"))
        judge(plan, job, *conf)
        for row in plan["rows"]:
            there = row["memory"]["allocator"] is not None
            check(there == (row["scheme"] != "gmm"), f"{key(row)}: is the allocator replayed? {there}")
            if there:
                seen.add(row["memory"]["verdict"])
        text = run("plan", "--job", job, "--trace", TRACE, "--expert-parallel", "8,16", *conf, "--all")
        check(" reserved " in text and line(text, "r: what PyTorch's allocator reserves") != "", "reserved memory is not shown")
        check("by what must be live alone" not in text, "points are called live alone")
        points = {(words[0], words[1], words[3]): words[6] for words in map(str.split, text.split("every point")[1].splitlines()) if len(words) > 9}
        for row in plan["rows"]:
            if row["memory"]["allocator"] and fits(row):
                gib = row["memory"]["allocator"]["reserved"]["max_bytes"] / 2**30
                told = f"{gib:.{1 if gib < 9.95 else 0}f}"
                check(points.get(tuple(map(str, key(row)))) == told, f"{key(row)}: no {gib} GiB in the table")
                check(row["time"]["step_s"] is not None or told + "r" in text, f"{key(row)}: no {told}r in the first table")
    check(seen >= {"fits", "oom"}, f"verdicts {seen}: the test sees nothing")
    plain = run("plan", "--job", job, "--trace", TRACE, "--no-allocator")
    check(" reserved " not in plain and line(plain, "*: what must be live") != "", "without an allocator")
    refused = caller.call([program, "plan", "--job", job, "--allocator", "maybe"], capture_output=True, text=True)
    check(refused.returncode == 2 and "--allocator" in refused.stderr, f"--allocator maybe: {refused.stderr}")
    idle = run("plan", "--job", job, "--scheme", "gmm", *conf)
    check("nothing to replay" in line(idle, "allocator: "), "an allocator without anything to replay")

    drift = scratch / "drift.h5"  # stranded blocks: live memory fits, reserved runs out, expandable segments do not
    run("trace", "generate", drift, "--counts-only", "--experts", 64, "--top-k", 6, "--ranks", 8, "--tokens-per-rank", 4096, "--layers", 4,
        "--steps", 12, "--distribution", "drift:drift=0.1,popularity=lognormal,sigma=0.3")
    source = (root / "notebooks_data/reserved/v2lite_mi355x.yaml").read_text().replace("cluster: ", f"cluster: {root}/notebooks_data/reserved/")
    found = False
    for fraction in (0.40, 0.38, 0.36, 0.34, 0.33, 0.32, 0.31, 0.30):
        job.write_text(source.replace("memory_fraction: 1", f"memory_fraction: {fraction}"))
        row, = json.loads(run("plan", "--job", job, "--trace", drift, "--stack", "none", "--allocator", "expandable_segments:False", "--format", "json"))["rows"]
        replayed = row["memory"]["allocator"]
        if replayed["failed_steps"] == 0:
            continue
        text = run("plan", "--job", job, "--trace", drift, "--stack", "none", "--allocator", "expandable_segments:False")
        told = next((l for l in text.splitlines() if ": out of memory in " in l), "")
        check(f"out of memory in {replayed['failed_steps']} of 12 steps" in told and "oom" in text, told)
        check(("--allocator expandable_segments:True may do" in told) == (replayed["with_expandable_segments"]["failed_steps"] == 0), told)
        check("points that no other beats" not in text, "a table of no points")
        check("memory_fraction" not in told, f"what another fraction would do is not known: {told}")
        found = found or replayed["with_expandable_segments"]["failed_steps"] == 0
        grown = json.loads(run("plan", "--job", job, "--trace", drift, "--stack", "none", "--allocator", "expandable_segments:True", "--format", "json"))["rows"][0]
        same = grown["memory"]["allocator"]
        alone = {name: same[name] for name in replayed["with_expandable_segments"]}
        check(alone == same["with_expandable_segments"] == replayed["with_expandable_segments"], "expandable segments, as set and beside")
    check(found, "nothing that expandable segments would help: the test sees nothing")


BIG = """model: %s
cluster: %s
parallel: {expert: %d, fsdp: %d, pipeline: %d}
batch: {sequences_per_gpu: [%d], sequence_length: 4096, micro_batches: %d}
precision: {weights: bf16, gradients: %s, optimizer: %s}
optimizer: %s
remat: %s
memory_fraction: %s
schemes: [%s]
"""


def follow(advice, fields, source):
    """The fields of a job after the advice, as written; None where it says that nothing helps."""
    model, cluster, expert, fsdp, pipeline, sequences, parts, gradients, moments, optimizer, remat, fraction, scheme = fields
    number = lambda pattern: (lambda found: [int(x) for x in found.groups()] if found else None)(re.search(pattern, advice))
    if "would do" not in advice and "may do" not in advice:
        return None
    if found := re.search(r"memory_fraction ([0-9.]+)", advice):
        fraction = found.group(1)
    if found := number(r"(\d+) sequences? a GPU"):
        sequences = found[0]
    if "remat full" in advice:
        remat = "full"
    if "precision.optimizer bf16" in advice:
        moments = "bf16"
    if found := re.search(r"optimizer: (\w+)", advice):
        optimizer = found.group(1)
    if found := number(r"expert (\d+) x fsdp (\d+)"):
        expert, fsdp = found
    if found := number(r"x pipeline (\d+)"):
        pipeline, stages = found[0], found[0] // pipeline
        if found := number(r"(\d+) micro-batches"):
            check(found[0] == parts * stages, f"'{advice}': {parts} micro-batches in {stages} times the stages")
            parts, sequences = found[0], sequences * stages
    if found := number(r"(\d+) GPUs"):
        check(found[0] == expert * fsdp * pipeline, f"'{advice}' is not {found[0]} GPUs")
        text = re.sub(r"(?m)^nodes: .*", f"nodes: {found[0] // 8}", (root / f"sim/clusters/{cluster}.yaml").read_text())
        (source / "more.yaml").write_text(text)
        cluster = "more.yaml"
    return model, cluster, expert, fsdp, pipeline, sequences, parts, gradients, moments, optimizer, remat, fraction, scheme


def other_scheme(job):
    """Where a scheme does not fit and nothing smaller helps, another of the plan that does, and drops no more than may be dropped."""
    fields = ("deepseek-v3", "mi355x-8x8", 8, 8, 1, 12, 6, "bf16", "bf16", "sharded", "full", "0.93",
              '"dense:capacity_factor=0.5", ragged, gmm')
    job.write_text(BIG % fields)
    plan = json.loads(run("plan", "--job", job, "--format", "json"))
    rows = {row["scheme"]: row for row in plan["rows"]}
    told = [m["advice"] for m in plan["plan"]["does_not_fit"] if plan["rows"][m["point"]]["scheme"] == "ragged"]
    check(len(told) == 1 and told[0].startswith("gmm would do"), f"another scheme: {told}")
    check(not fits(rows["ragged"]) and fits(rows["gmm"]) and fits(rows["dense:capacity_factor=0.5"]), "the case says nothing")
    check(rows["dense:capacity_factor=0.5"]["drops"]["fraction"] > 0.01, "the case says nothing of drops")


def cheapest(job):
    """On fewer GPUs than those advised no split fits, of all stages and expert-parallel sizes with one sequence a micro-batch."""
    for model, cluster, gpus, most in (("gpt-oss-120b", "b200", 8, 16), ("deepseek-v3", "h100", 128, 256), ("deepseek-v3", "gb200", 576, 576)):
        words = ["plan", "--model", model, "--gpus", gpus, "--cluster", cluster, "--optimizer", "distributed", "--scheme", "megatron-alltoall"]
        plan = json.loads(run(*words, "--format", "json"))
        told, = plan["plan"]["does_not_fit"]
        check(told["gpus"] == most and (most == gpus or told["advice"].startswith(f"{most} GPUs")), f"{model} on {cluster}: {told}")
        check(told["advice"] in re.sub(r"\s+", " ", run(*words)), f"{model} on {cluster}: {told} is not in the first lines")
        stages, expert = (int((re.search(p, told["advice"]) or [0, 1])[1]) for p in (r"pipeline (\d+)", r"expert (\d+)"))
        words[words.index(gpus)] = told["gpus"]
        row, = json.loads(run(*words, "--pipeline", stages, "--expert-parallel", expert, "--sequences-per-gpu", stages, "--micro-batches", stages,
                              "--format", "json"))["rows"]
        check(fits(row), f"{model} on {cluster}: '{told['advice']}' does not do")
        for stages in (1, 2, 4, 8, 16) if most > gpus else ():
            sizes = [e for e in range(1, gpus // stages + 1) if gpus // stages % e == 0 and plan["trace"]["experts"] % e == 0]
            words[words.index("--gpus") + 1] = gpus
            rows = json.loads(run(*words, "--pipeline", stages, "--expert-parallel", ",".join(map(str, sizes)), "--sequences-per-gpu", stages,
                                  "--micro-batches", stages, "--format", "json"))["rows"] if sizes else []
            check(not any(fits(row) for row in rows), f"{model} on {cluster}: {gpus} GPUs would do in {stages} stages")


def advice(job):
    """What is advised was tried: the job that follows the advice fits. State that is too large by itself is called so."""
    kinds = set()
    cases = (("deepseek-v3", "h200-8x8", 8, 8, 1, 1, 1, "fp32", "fp32", "distributed", "none", "0.93", "megatron-alltoall"),
             ("deepseek-v3", "h200-8x8", 8, 8, 1, 1, 1, "bf16", "bf16", "sharded", "full", "0.93", "ragged"),
             ("deepseek-v3", "mi355x-8x8", 8, 8, 1, 12, 1, "bf16", "bf16", "sharded", "full", "0.93", "gmm"),
             ("qwen3-235b-a22b", "h200-8x8", 8, 8, 1, 1, 1, "fp32", "fp32", "distributed", "full", "0.93", "megatron-alltoall"),
             ("qwen3-30b-a3b", "h100-8x8", 8, 8, 1, 8, 1, "fp32", "fp32", "distributed", "none", "0.93", "megatron-alltoall"),
             ("mixtral-8x22b", "h100-8x8", 8, 8, 1, 2, 1, "fp32", "fp32", "replicated", "full", "0.93", "megatron-alltoall"),
             ("qwen3-30b-a3b", "h100-8x8", 8, 8, 1, 1, 1, "fp32", "fp32", "distributed", "none", "0.6", "megatron-alltoall"))
    for fields in cases:
        job.write_text(BIG % fields)
        plan = json.loads(run("plan", "--job", job, "--format", "json"))
        misfits, text = plan["plan"]["does_not_fit"], run("plan", "--job", job)
        check(len(misfits) == 1 and misfits[0]["advice"] in text, f"{fields}: {misfits}")
        if len(misfits) != 1:
            continue
        memory = plan["rows"][misfits[0]["point"]]["memory"]
        check(misfits[0]["state_alone"] == (memory["argument_bytes"] > memory["budget_bytes"]), f"{fields}: {misfits}")
        check(misfits[0]["state_alone"] == ("its state alone is" in text), f"{fields}: {text}")
        after = follow(misfits[0]["advice"], fields, job.parent)
        kinds.add(re.sub(r"[0-9.]+", "N", misfits[0]["advice"]))
        check("no point of this plan does" not in text, f"{fields}: nothing was tried")
        if after is None:
            continue
        check(not (misfits[0]["state_alone"] and after[:5] == fields[:5] and after[7:] == fields[7:]),
              f"{fields}: fewer sequences for a state that is too large")
        job.write_text(BIG % after)
        got = json.loads(run("plan", "--job", job, "--format", "json"))["rows"]
        check(len(got) == 1 and fits(got[0]), f"{fields}: '{misfits[0]['advice']}' does not do")
    other_scheme(job)
    cheapest(job)
    check(len(kinds) >= 4, f"advice {kinds}: the test sees little")

    job.write_text(JOB % ("0.93", "'megatron-alltoall:capacity_factor=1.25,policy=probs', gmm, megatron-alltoall"))  # no weights in made routing
    plan, text = json.loads(run("plan", "--job", job, "--format", "json")), run("plan", "--job", job)
    check({row["scheme"] for row in plan["rows"]} == {"gmm", "megatron-alltoall"}, "a scheme that lacks weights loses its row")
    check({r["scheme"] for r in plan["plan"]["refused"]} == {"megatron-alltoall:capacity_factor=1.25,policy=probs"}, f"{plan['plan']['refused']}")
    check("drops by router weight" in line(text, "cannot be"), "why the row is lost")
    job.write_text(JOB % ("0.93", "'megatron-alltoall:capacity_factor=1.25,policy=probs'"))
    out = caller.call([program, "plan", "--job", str(job)], capture_output=True, text=True)
    check(out.returncode == 2 and "router weight" in out.stderr, f"nothing left to plan: {out.returncode} {out.stderr}")
    job.write_text((JOB % ("0.93", "gmm, megatron-alltoall")) + "optimizer: distributed\n")
    plan = json.loads(run("plan", "--job", job, "--format", "json"))
    check([row["scheme"] for row in plan["rows"]][:1] == ["megatron-alltoall"] and plan["plan"]["refused"], "gmm with Megatron's optimizer")


def precision(job):
    """fp8: bytes of what is live are exact, times of it there are none, and what a recipe adds is said; fp16 is not called bf16."""
    source = (root / "sim/jobs/deepseek-v3-mi355x.yaml").read_text().replace("sequence_length: 4096", "sequence_length: 512")
    names = ("weights", "gradients", "optimizer", "activations")

    def planned(kinds, *extra):
        job.write_text(re.sub("(?m)^precision:.*", "precision: {" + ", ".join(f"{n}: {k}" for n, k in zip(names, kinds)) + "}", source))
        arguments = ["plan", "--job", job, "--sequences-per-gpu", 1, "--scheme", "gmm", *extra]
        return json.loads(run(*arguments, "--format", "json")), run(*arguments)

    even, text = planned(["bf16"] * 4)
    check(line(text, "precision ").startswith("precision bf16 weights, bf16 gradients, bf16 activations; Adam: bf16 moments, no master "
                                              "weights (weights, gradients and moments in fp32 take more: --precision mixed)") and even["rows"][0]["time"]["step_s"] is not None, "bf16")
    live, _ = planned(["bf16"] * 4, "--stack", "none")
    for i, name in enumerate(names):
        kinds = ["fp8" if j == i else "bf16" for j in range(4)]
        plan, text = planned(kinds)
        row, = plan["rows"]
        check(plan["settings"]["precision"][name] == "fp8", f"{plan['settings']['precision']}")
        check((row["time"]["step_s"] is None) == (name != "optimizer"), f"fp8 {name}: a time of {row['time']['step_s']} s")
        told = [a for a in row["assumptions"] if a.startswith(f"fp8 {name}: one byte an element")]
        check(len(told) == 1 and ("master weights" in told[0]) == (name == "weights"), f"fp8 {name}: {row['assumptions']}")
        check(any("beyond what was fitted" in a and "precision other than bf16" in a for a in row["assumptions"]), f"fp8 {name}: inside the fit")
        check(told[0] in line(text, "precision") and ("fp8 as a format" in line(text, "no times")) == (name != "optimizer"), f"fp8 {name}: {text}")
        check("precision other than bf16" in line(text, "outside the fit"), f"fp8 {name}: {line(text, 'outside the fit')}")
        bytes_of = lambda p: p["rows"][0]["memory"]
        alone, _ = planned(kinds, "--stack", "none")
        parameters = even["settings"]["parameters_total"] / 64  # a GPU's share; two moments
        less = {"weights": 1, "optimizer": 2}.get(name, 0) * parameters
        check(abs(bytes_of(live)["argument_bytes"] - bytes_of(alone)["argument_bytes"] - less) < 64, f"fp8 {name}: bytes of the state")
        check(bytes_of(alone)["max_bytes"] < bytes_of(live)["max_bytes"], f"fp8 {name}: peak")
    mixed, text = planned(["fp16", "fp32", "fp32", "fp16"])
    check(line(text, "precision ").startswith("precision fp16 weights, fp32 gradients, fp16 activations; Adam: fp32 moments, no master weights"), text)
    _, text = planned(["bf16"] * 4, "--set", "precision.optimizer=fp32", "--set", "precision.master=fp32")
    check(line(text, "precision ").startswith("precision bf16 weights, bf16 gradients, bf16 activations; Adam: fp32 moments, fp32 master weights"), text)
    check(mixed["settings"]["precision"] == {**dict(zip(names, ["fp16", "fp32", "fp32", "fp16"])), "master": "none"}, f"{mixed['settings']['precision']}")
    check("precision other than bf16" in line(text, "outside the fit"), "fp32 moments are inside the fit")
    _, text = planned(["fp32"] * 4)
    check("fp32" in line(text, "no times"), f"fp32 activations: {line(text, 'no times')}")
    job.write_text(source.replace("sequence_length: 512", "sequence_length: 8192"))
    text = run("plan", "--job", job, "--sequences-per-gpu", 1, "--scheme", "gmm-deepep")
    check("sequences of other than 4096 tokens" in line(text, "outside the fit"), "long sequences are inside the fit")


scratch.mkdir(parents=True, exist_ok=True)
allocator(scratch / "job.yaml")
advice(scratch / "job.yaml")
precision(scratch / "job.yaml")
oracle.finish()
