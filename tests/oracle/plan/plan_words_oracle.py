#!/usr/bin/env python3
"""What a person is told of a plan: its first lines, marks of memory that is not all, doubts, the capacity that tempts, words of the glossary.

plan_words_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import json
import math
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from planned import JOB, TRACE, check, fits, judge_answers, key, line, oracle, program, root, run, scratch, surely_fits
import program as caller


def lost_by_popularity(experts, top_k, factor, sigma):
    """Of all choices, those beyond `factor` times an even expert's share."""
    z = [statistics.NormalDist().inv_cdf(1 - (i + 0.5) / experts) for i in range(experts)]
    whole = 0
    while (top_k - whole) > sum(math.exp(sigma * (z[i] - z[whole])) for i in range(whole, experts)):
        whole += 1
    rest = sum(math.exp(sigma * (z[i] - z[whole])) for i in range(whole, experts))
    chosen = [1.0] * whole + [(top_k - whole) * math.exp(sigma * (z[i] - z[whole])) / rest for i in range(whole, experts)]
    return sum(max(0.0, p - factor * top_k / experts) for p in chosen) / top_k


def capacity(job):
    """What the fullest rank may hold ends at the capacity, whatever imbalance is stated; the rest of its choices is lost."""
    job.write_text(JOB % ("0.93", "megatron-alltoall"))
    names, factor, times = ("megatron-alltoall", "megatron-alltoall:capacity_factor=1.25,policy=position",
                            "megatron-flex:capacity_factor=1.25,policy=position", "tutel:capacity_factor=1.25",
                            "hybrid-ep:budget=1.25"), 1.25, 6.0
    arguments = ["plan", "--job", job, "--sequences-per-gpu", "2", *(f"--scheme={name}" for name in names)]
    plan = json.loads(run(*arguments, "--imbalance", str(times), "--format", "json"))
    stated = plan["rows"]
    for row in stated:
        name, rows, drops = row["scheme"], row["traffic"], row["drops"]
        if name == names[0]:
            check(drops["dropped"] == 0 and "at_least" not in drops, f"{name}: {drops}")
            check(rows["rows_max"] == times * rows["rows_mean"], f"{name}: {rows}")
            continue
        least_lost = (times - factor) / 8  # of all choices: one rank of eight has too many
        lost = max(least_lost, lost_by_popularity(64, 8, factor, plan["plan"]["imbalance"]["sigma"]))
        check(drops["at_least"] and drops["tokens_fully_dropped"] is None, f"{name}: {drops}")
        if name == "hybrid-ep:budget=1.25":  # a limit of the rank's: whichever of its experts are popular
            check(least_lost - 1e-3 < drops["fraction"] < least_lost + 0.05, f"{name}: {drops}")
        else:
            check(abs(drops["fraction"] - lost) < 2e-3, f"{name}: {drops}, not {lost}")
        if name != "tutel:capacity_factor=1.25":  # whose slots are there, full or empty
            check(rows["rows_max"] <= 8 * 1024 * 8 / 8 * factor, f"{name}: {rows}")
            check(abs(rows["rows_mean"] - 8192 * (1 - drops["fraction"])) <= 1, f"{name}: {rows}")
            held, want = row["memory"]["max_bytes"], stated[0]["memory"]["max_bytes"]
            check(held < want, f"{name}: {held}, of all choices {want}")
    text = run(*arguments, "--imbalance", str(times), "--all").split("every point")[1]
    ratio = stated[1]["traffic"]["rows_max"] / stated[1]["traffic"]["rows_mean"]
    cells = line(text, names[1])
    check(f">={100 * stated[1]['drops']['fraction']:.2f} %" in cells and f" {ratio:.2f} " in cells, f"the table says '{cells}'")


def in_glossary(text):
    """The labels before lines, the headings of tables, and every abbreviation are words of `help words`."""
    listed = set()
    for entry in re.findall(r"^  ([^ :][^:\n]*): ", oracle.must("help", "words"), re.M):
        listed |= {entry, *entry.split(", ")}
    labels = {match[1] for match in re.finditer(r"^(?:(outside the fit|no times|cannot be|[a-z]+)(?=: |  +|(?<=precision) ))", text, re.M)}
    table = text.split(" by sequences per GPU")[1].splitlines()[1]
    heads = {word for word in re.split(r"  +", table.strip()) if not word.isdigit()}
    short = set(re.findall(r"\b[A-Z]{2,}\b", text)) | {mark for mark in ("oom", "?", "*") if f"{mark}:" in text or f"{mark} N:" in text}
    names = set(re.findall(r"\b(?:megatron-\S+|dense\S*|gmm\S*)", text))
    for word in sorted((labels | heads | short) - names - {"more"}):  # more: names the option
        check(word in listed, f"'{word}' of a plan is not in help words")


def begins(job):
    """Three lines: what, the fastest point, whether it fits; the figures are those of JSON. A short plan has at most 30 lines."""
    job.write_text(JOB % ("0.93", "gmm, dense:capacity_factor=2"))
    words = ["plan", "--job", job, "--sequences-per-gpu", "1,2,4", "--drop-at-most", "100"]
    made = json.loads(oracle.must(*words, "--format", "json"))
    best = made["rows"][made["plan"]["fastest"]]
    text = oracle.must(*words, "--wide")
    first = text.splitlines()[:3]
    check([row.split()[0] for row in first] == ["plan", "fastest", "fits"], f"a plan begins with {first}")
    check(f"{best['scheme']}, EP {best['expert_parallel']}, {best['sequences_per_gpu']} seq" in first[1] and
          f"{best['time']['tokens_per_s_per_gpu']:.0f} tokens/s" in first[1], f"fastest: {first[1]}")
    check("it surely fits" in first[2] or "it may not fit" in first[2] or "it is tight" in first[2], f"fits: {first[2]}")
    check(len(oracle.must(*words).splitlines()) <= 30, "a plan of six points has more than 30 lines")
    ten = ["--scheme", "megatron-alltoall", "--scheme", "megatron-flex", "--optimizer", "distributed", "--sequences-per-gpu", "1,2,4,8,16"]
    for more in ([], ["--cluster", "h200:8x16"], ["--stack", "none"], ["--memory-fraction", "0.2"], ["--cluster", "mi300x:8x8", "--price", "2"]):
        said = oracle.must("plan", "--job", job, *ten, *more)
        check(len(said.splitlines()) <= 30, f"a plan of ten points has {len(said.splitlines())} lines: {more}")
        told_fit, unsure = re.search(r": 10 points, (\d+) fits?(?:, (\d+) may not fit)?", " ".join(said.split())).groups()
        rows = json.loads(oracle.must("plan", "--job", job, *ten, *more, "--format", "json"))["rows"]
        surely = sum(row["memory"]["surely_fits"] and row["memory"]["verdict"] != "oom" for row in rows)
        fits = sum(row["memory"]["verdict"] != "oom" for row in rows)
        check((int(told_fit), int(unsure or 0)) == (surely, fits - surely), f"{told_fit} fit, {unsure} may not: {surely} and {fits - surely} by the rows")
        check(said.count("?: may not fit") == ("?" in said.split(" by sequences per GPU")[1].split("\n", 1)[1].split("\n\n")[0]), f"the mark ?: {said}")
        in_glossary(said)
    check(len(set(filter(None, text.splitlines()))) == len(list(filter(None, text.splitlines()))), "a line is printed twice")
    check("--details" in text.splitlines()[-1] and "points that no other beats" not in text, "the rest is not left to --details")


def says(job):
    """What a person is told: marks of memory that is not all, what was not fitted, why there is no time."""
    job.write_text(JOB % ("0.93", "gmm, dense:capacity_factor=2, megablocks"))
    both = json.loads(run("plan", "--job", job, "--trace", TRACE, "--format", "json"))["rows"]
    kinds = {row["scheme"]: row["memory"]["kind"] for row in both}
    check(kinds == {"gmm": "arena", "dense:capacity_factor=2": "arena", "megablocks": "live"}, f"kinds {kinds}")
    for row in both:
        check((row["memory"]["allocator"] is not None) == (row["scheme"] == "megablocks"), f"{key(row)}: is the allocator replayed?")
    for row in json.loads(run("plan", "--job", job, "--trace", TRACE, "--no-allocator", "--format", "json"))["rows"]:
        told = any("allocator reserves beyond" in text for text in row["assumptions"])
        check(told == (row["scheme"] == "megablocks") and row["memory"]["allocator"] is None, f"{key(row)}: is the allocator said to be left out? {told}")
    text = run("plan", "--job", job, "--trace", TRACE, "--expert-parallel", "4,8,4", "--sequences-per-gpu", "1,1", "--all", "--no-allocator")
    check("points    6, 6 fit (2 by what must be live alone)" in text, "a batch or a split that stands twice is planned twice")
    check("*" in line(text, "megablocks") and "*" not in line(text, "gmm "), "what is live is not marked, or all is")
    check(line(text, "*: what must be live") != "", "the mark is not explained")
    limits = line(text, "outside the fit: ")
    check("model not" in limits and "expert-parallel sizes other than 8 16" in limits, f"outside the fit: '{limits}'")
    check("(outside the fit)" in line(text, "fastest"), "the fastest point is not said to be outside the fit")
    check("PyTorch" in line(text, "no times"), "why a scheme has no time is not said")
    check(line(text, "real routing") != "" and line(text, "generated routing") == "", "a trace is real routing")
    text = run("plan", "--job", job)
    check(line(text, "generated routing") != "" and "expert-parallel sizes" not in text, "generated routing, EP 8")
    text = run("plan", "--job", job, "--imbalance", "1.5", "--all")
    check(line(text, "stated imbalance") != "" and "over balanced" in text, "a stated imbalance is called so")
    rows = [row.split() for row in text.split("every point")[1].splitlines() if row.startswith(("gmm", "dense", "mega"))]
    ratios = {row[0]: row[-6] for row in rows}  # max/mean
    check(ratios == {"gmm": "1.50", "dense:capacity_factor=2": "1.00", "megablocks": "1.50"}, f"max/mean {ratios}")
    capacity(job)
    text = run("plan", "--job", job, "--stack", "none")
    check("no point has a time" in line(text, "fastest") and "--stack none" in line(text, "no times") and
          line(text, "software") == "", "without a stack nothing is timed")
    job.write_text((JOB % ("0.93", "gmm")) + "remat: none\n")
    text = run("plan", "--job", job)
    check("remat none" in line(text, "no times") and "step times" not in text, "remat none has no times")
    job.write_text((JOB % ("0.93", "gmm")).replace("mi355x", "mi300x"))
    check("cluster not in the fitted tables" in line(run("plan", "--job", job), "outside the fit: "), "another cluster")
    job.write_text((JOB % ("0.93", "gmm")).replace("mi355x", "h100"))
    text = run("plan", "--job", job)
    check("software  xla-cuda-0.10.2: " in text and "no run of xla-cuda-0.10.2 was fitted" in text, "NVIDIA's own stack")
    job.write_text((JOB % ("0.93", "gmm")) + "remat: save_out_proj\n")
    check("timed as full" in line(run("plan", "--job", job), "outside the fit: "), "another policy is timed as full")
    job.write_text(JOB % ("0.93", "gmm"))
    check("was not fitted" in line(run("plan", "--job", job, "--stack", "xla-rocm-0.10.2-amd"), "no times"),
          "a stack without speed")
    copy = scratch / "copy.yaml"  # a file of memory has the speed of the preset that bears its name
    copy.write_text((root / "sim/stacks/maxtext-rocm-2026-05.yaml").read_text())
    by_name, by_file = (run("plan", "--job", job, "--stack", stack) for stack in ("maxtext-rocm-2026-05", copy))
    check(by_name == by_file and line(by_file, "no times") == "", "a stack's file and its name plan alike")
    refused = caller.call([program, "plan", "--job", job, "--stack", "what"], capture_output=True, text=True)
    check(refused.returncode == 2 and "xla-rocm-0.10.2-amd" in refused.stderr and "none" in refused.stderr,
          f"--stack what: {refused.returncode} {refused.stderr}")
    job.write_text((root / "sim/jobs/deepseek-v3-mi355x-plan.yaml").read_text())
    even = ("--routing", "uniform")
    made = json.loads(run("plan", "--job", job, *even, "--format", "json"))
    judge_answers(made)
    best, sure = (made["rows"][made["plan"][name]] for name in ("fastest_dropless", "fastest_dropless_sure"))
    check(best is sure, "the fastest point is not the one that surely fits")
    tight = min((row for row in made["rows"] if fits(row) and not surely_fits(row) and row["drops"]["dropped"] == 0),
                key=lambda row: -row["time"]["tokens_per_s_per_gpu"])
    check(tight["time"]["tokens_per_s_per_gpu"] > best["time"]["tokens_per_s_per_gpu"], "none is faster: the test sees nothing")
    lines = run("plan", "--job", job, *even).splitlines()
    at = next(i for i, text in enumerate(lines) if text.startswith("without drops"))
    faster = next((i for i in range(at, at + 6) if f"faster is {tight['scheme']}, EP 8, {tight['sequences_per_gpu']} " in lines[i]), at)
    check(faster > at and "tight, and may not fit" in lines[faster + 1], f"what is faster: '{lines[at:at + 6]}'")
    for row, told in ((best, lines[at]), (tight, lines[faster])):
        time = row["time"]
        check(f"{time['tokens_per_s_per_gpu']:.0f} tokens/s a GPU ({time['tokens_per_s_low']:.0f} to {time['tokens_per_s_high']:.0f})" in told, told)
    time = best["time"]
    check(f"step {time['step_s']:.1f} s ({time['low_s']:.1f} to {time['high_s']:.1f})" in lines[at], lines[at])
    check(not any(text.startswith(("generated routing", "break-even")) for text in lines), "what even routing costs is told")
    uneven = json.loads(run("plan", "--job", job, "--format", "json"))
    told = run("plan", "--job", job).splitlines()
    slowed = uneven["rows"][uneven["plan"]["fastest_dropless"]]
    ratio, step = next(text for text in told if text.startswith("generated routing")), slowed["time"]
    check(f"{step['balanced_step_s']:.1f} s ({step['balanced_low_s']:.1f} to {step['balanced_high_s']:.1f})" in ratio, ratio)
    points = run("plan", "--job", job, *even, "--all").split("every point")[1]  # a faster one that is tight may beat it
    check(f" {time['low_s']:.1f}-{time['high_s']:.1f} " in points, f"no interval of a point: {points}")
    spread = 100 * (time["tokens_per_s_high"] / time["tokens_per_s_per_gpu"] - 1)
    check(f"to +{spread:.1f} % (" in line("\n".join(lines), "intervals of tokens/s: "), "the table of speeds has no intervals")
    even = next(text for text in told if text.startswith("break-even"))
    check(f"{slowed['scheme']}, EP 8, {slowed['sequences_per_gpu']} sequences" in even, f"'{even}'")


def needs():
    """A point that is out of memory needs more than there is: what must be live, or, where that would fit, more than the budget."""
    words = ["plan", "--model", "qwen3-30b-a3b", "--cluster", "h100:8x2", "--sequences-per-gpu", "1,2,4,8", "--expert-parallel", "8,16", "--scheme",
             "megatron-flex", "--optimizer", "distributed"]
    rows = json.loads(oracle.must(*words, "--format", "json"))["rows"]
    cells = [cell for line in oracle.must(*words).splitlines() if line.startswith("megatron-flex ") for cell in re.findall(r"oom \S+", line)]
    out = [row["memory"] for row in rows if row["memory"]["verdict"] == "oom"]
    told = [f"oom >{m['budget_bytes'] // 2**30}" if m["max_bytes"] <= m["budget_bytes"] else f"oom {m['max_bytes'] / 2**30:.0f}*" for m in out]
    check(len(set(told)) > 1 and any(">" in cell for cell in told), f"the case says nothing: {told}")
    check(sorted(cells) == sorted(told), f"{cells} for {told}")


scratch.mkdir(parents=True, exist_ok=True)
needs()
begins(scratch / "job.yaml")
says(scratch / "job.yaml")
oracle.finish()
