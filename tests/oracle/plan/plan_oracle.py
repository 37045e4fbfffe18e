#!/usr/bin/env python3
"""`spillway plan` against `spillway replay` of every split by itself, and its answers against a search over all points.

plan_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import json
import math
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle, most_bytes

import program as caller

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TRACE = root / "traces/data/training_aux_e64_slice.h5"
SCHEMES = ["dense:capacity_factor=1.25", "dense:capacity_factor=2", "gmm", "gmm-deepep", "ring"]
JOB = """model: scratch-moe-e64
cluster: mi355x-8x8
precision: bf16
library_limits: ignore
parallel: {expert: 8, fsdp: 8}
batch: {sequences_per_gpu: [1, 2], sequence_length: 512}
memory_fraction: %s
schemes: [%s]
"""
oracle = Oracle(program, "plan_oracle")
check = oracle.check


def run(*arguments):
    details = ("--details",) if arguments[0] == "plan" and "--format" not in arguments else ()
    text = oracle.must(*arguments, *details, "--wide")  # its tables are read by row
    return text.split("\n\n", 1)[1] if details else text  # without the three lines, which are looked at below


def key(row):
    return row["scheme"], row["expert_parallel"], row["sequences_per_gpu"]


def surely_fits(row):
    return fits(row) and max(most_bytes(row), row["memory"]["max_bytes"]) <= row["memory"]["budget_bytes"]


def fits(row):
    """By the replayed allocator where there is one."""
    if row["memory"]["allocator"]:
        return row["memory"]["allocator"]["failed_steps"] == 0
    return row["memory"]["max_bytes"] <= row["memory"]["budget_bytes"]


def measures(row):
    """Less is better in each."""
    speed = row["time"]["tokens_per_s_per_gpu"]
    return row["memory"]["max_bytes"], -(speed or 0.0), row["drops"]["fraction"]


def front(rows):
    good = [i for i, row in enumerate(rows) if fits(row)]
    worse = lambda a, b: all(x <= y for x, y in zip(measures(rows[b]), measures(rows[a]))) and \
        measures(rows[a]) != measures(rows[b]) and \
        (rows[a]["time"]["step_s"] is None) == (rows[b]["time"]["step_s"] is None) and \
        rows[a]["memory"]["kind"] == rows[b]["memory"]["kind"]
    return [i for i in good if not any(worse(i, j) for j in good if j != i)]


def judge(plan, job, *extra):
    rows = plan["rows"]
    check(plan["format"] == "spillway-result", "the format is not spillway-result")
    check(len({key(row) for row in rows}) == len(rows), "a point stands twice")
    for split in sorted({row["expert_parallel"] for row in rows}):
        alone = json.loads(run("replay", TRACE, "--job", job, "--expert-parallel", split, "--stack",
                               plan["settings"]["stack"], *extra, "--format", "json"))
        want = {key(row): row for row in alone["rows"]}
        for row in rows:
            if row["expert_parallel"] != split:
                continue
            for part in ("memory", "traffic", "drops", "time", "fsdp", "evidence"):
                expected = want[key(row)][part]
                if part == "drops" and row[part]["tokens_fully_dropped"] is None:  # a plan need not count them
                    expected = {**expected, "tokens_fully_dropped": None}
                check(row[part] == expected, f"{key(row)}: {part} differs from replay's")
    return judge_answers(plan)


def rank(rows, i):
    """Less is better: with a time, surely fits, faster, less memory; without one the larger batch, less memory; then the order of the rows."""
    time, memory = rows[i]["time"], rows[i]["memory"]["max_bytes"]
    doubt = not surely_fits(rows[i])
    if time["step_s"] is None:
        return 1, doubt, -rows[i]["sequences_per_gpu"], memory, i
    return 0, doubt, -time["tokens_per_s_per_gpu"], memory, i


def judge_times(row):
    """Every number of a step time has an interval around it, and tokens/s are those of the ends; a row without one says why."""
    time = row["time"]
    told = [text for text in row["assumptions"] if text.startswith(f"{row['scheme']}: no times: ")]
    check((row["why_no_time"] is None) == (time["step_s"] is not None), f"{key(row)}: why_no_time {row['why_no_time']}")
    check(told == ([f"{row['scheme']}: no times: {row['why_no_time']}"] if row["why_no_time"] and told else []), f"{key(row)}: {told}, and {row['why_no_time']}")
    if time["step_s"] is None:
        check(all(value is None for value in time.values()), f"{key(row)}: a time of a row without one: {time}")
        return
    for name, low, high in (("step_s", "low_s", "high_s"), ("balanced_step_s", "balanced_low_s", "balanced_high_s"),
                            ("aligned_step_s", "aligned_low_s", "aligned_high_s"), ("worst_step_s", "worst_low_s", "worst_high_s"),
                            ("tokens_per_s_per_gpu", "tokens_per_s_low", "tokens_per_s_high")):
        check(0 < time[low] < time[name] < time[high], f"{key(row)}: {name} is {time[name]}, between {time[low]} and {time[high]}")
    for speed, step in (("tokens_per_s_low", "high_s"), ("tokens_per_s_high", "low_s"), ("tokens_per_s_per_gpu", "step_s")):
        check(math.isclose(time[speed] * time[step], row["sequences_per_gpu"] * row["sequence_length"], rel_tol=1e-9), f"{key(row)}: {speed}")


def judge_outside(row):
    """The list names every feature that the sentences name, memory and time apart."""
    for of, words in (("memory", ": beyond what was fitted: "), ("time", ": times beyond what was fitted: ")):
        told = [text.split(words)[1].split("; ") for text in row["assumptions"] if text.startswith(row["scheme"] + words)]
        named = [item["feature"] for item in row["outside_fit"] if item["of"] == of]
        check(sorted(named) == sorted(feature for part in told for feature in part), f"{key(row)}: outside the fit {named}, told {told}")


def judge_answers(plan):
    rows, answers = plan["rows"], plan["answers"]
    check(plan["plan"]["front"] == answers["front"] == front(rows), "the front is not that of a search over all points")
    check(answers["order"] == sorted((i for i, row in enumerate(rows) if fits(row)), key=lambda i: rank(rows, i)),
          f"the order {answers['order']} is not that of a search")
    check(answers["drop_at_most"] == plan["plan"]["drop_at_most"], "two limits of drops")
    room = [i for i, row in enumerate(rows) if fits(row)] or range(len(rows))
    check(answers["least_memory"] == min(room, key=lambda i: (rows[i]["memory"]["max_bytes"], i)), f"least memory {answers['least_memory']}")
    for row in rows:
        check(row["memory"]["surely_fits"] == (fits(row) and surely_fits(row)), f"{key(row)}: surely fits")
        judge_times(row)
        judge_outside(row)
    timed = [i for i, row in enumerate(rows) if fits(row) and row["time"]["step_s"] is not None]
    most = plan["plan"]["drop_at_most"]
    within = [i for i in timed if rows[i]["drops"]["fraction"] <= most]
    for name, among in (("fastest", within), ("fastest_whatever_drops", timed),
                        ("fastest_sure", [i for i in within if surely_fits(rows[i])]),
                        ("fastest_dropless", [i for i in timed if rows[i]["drops"]["dropped"] == 0]),
                        ("fastest_dropless_sure",
                         [i for i in timed if rows[i]["drops"]["dropped"] == 0 and surely_fits(rows[i])])):
        best = min(among, key=lambda i: rank(rows, i), default=None)
        check(plan["plan"][name] == answers[name] == best, f"{name}: {plan['plan'][name]}, {answers[name]}, by search {best}")
    for i in timed:
        time = rows[i]["time"]
        check(math.isclose(sum(c["exposed_s"] for c in time["components"].values()), time["step_s"],
                           rel_tol=1e-9), f"{key(rows[i])}: exposed seconds do not sum to the step")
        check(math.isclose(time["tokens_per_s_per_gpu"] * time["step_s"],
                           rows[i]["sequences_per_gpu"] * rows[i]["sequence_length"], rel_tol=1e-9),
              f"{key(rows[i])}: tokens over seconds")
    return timed


def line(text, start):
    """The line that starts so, with those that continue it."""
    rows = text.splitlines()
    at = next((i for i, row in enumerate(rows) if row.startswith(start)), None)
    if at is None:
        return ""
    end = at + 1
    while end < len(rows) and rows[end].startswith("        "):
        end += 1
    return " ".join([rows[at], *(row.strip() for row in rows[at + 1:end])])


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


def refuses(job):
    """A stated imbalance is that of one expert-parallel size: no other is refused for it, and what the size cannot have is an error."""
    arguments = ["plan", "--job", job, "--trace", TRACE, "--imbalance", "6"]
    plan = json.loads(run(*arguments, "--imbalance", "6,ep=8", "--expert-parallel", "1,4,8,16", "--format", "json"))
    check("refused" not in plan["plan"] and {row["expert_parallel"] for row in plan["rows"]} == {1, 4, 8, 16}, "a size is left out")
    check(plan["settings"]["parallel"]["expert"] == plan["rows"][plan["plan"]["fastest"] or 0]["expert_parallel"] and
          plan["settings"]["parallel"]["fsdp"] == plan["rows"][plan["plan"]["fastest"] or 0]["fsdp"], "the settings' split")
    for extra in (["--expert-parallel", "4"], ["--imbalance", "6,ep=4"], ["--imbalance", "1.5,ep=1"], ["--imbalance", "1.5,ep=3"]):
        out = caller.call([program, *map(str, arguments + extra)], capture_output=True, text=True)
        said = {"1": "ep=8", "3": "do not divide"}.get(extra[1][-1], "[1, 4]")
        check(out.returncode == 2 and said in out.stderr and str(TRACE) not in out.stderr, f"{extra}: {out.returncode} {out.stderr}")


OVER_ONE = [word for size in ("pipeline=1", "tensor=1", "context=1", "micro-batches=4", "remat=none") for word in ("--over", size)]


def micro_batches(job):
    """A batch that micro_batches does not divide is left out and said, from the job's list and from the command line; alone it is an error."""
    text = JOB % ("0.93", "gmm, megatron-alltoall")
    job.write_text(text.replace("sequences_per_gpu: [1, 2]", "sequences_per_gpu: [2, 4, 6], micro_batches: 4"))
    for extra, kept, lost in (([], {4}, {2, 6}), (["--sequences-per-gpu", "4,6,8,6"], {4, 8}, {6})):
        plan = json.loads(run("plan", "--job", job, "--expert-parallel", "4,8", *extra, "--format", "json"))
        check({row["sequences_per_gpu"] for row in plan["rows"]} == kept, f"micro-batches {extra}: {[key(row) for row in plan['rows']]}")
        want = {(s, e, q) for s in ("gmm", "megatron-alltoall") for e in (4, 8) for q in lost}
        refused = plan["plan"]["refused"]
        check({key(r) for r in refused} == want and len(refused) == len(want), f"micro-batches {extra}: {[key(r) for r in refused]}")
        check(all(r["reason"] == f"micro_batches 4 does not divide {r['sequences_per_gpu']} sequences of a GPU" for r in refused), f"{refused}")
        told = run("plan", "--job", job, *extra)
        check(all(f"micro_batches 4 does not divide {q} sequences" in told for q in lost), told)
    # A search looks for micro-batches of its own: it takes a list whole, one batch beside powers of two, and the command line as it is.
    for batches, extra, want in (("[4, 6]", [], [4, 6]), ("[4]", [], [1, 2, 4, 8]), ("[12]", [], [1, 2, 4, 8, 12]), ("[4]", ["--sequences-per-gpu", "4"], [4]),
                                 ("[4]", ["--sequences-per-gpu", "6,4,6"], [4, 6])):
        job.write_text(text.replace("sequences_per_gpu: [1, 2]", f"sequences_per_gpu: {batches}, micro_batches: 4"))
        space = json.loads(run("plan", "--job", job, "--search", "--no-allocator", *OVER_ONE, *extra, "--format", "json"))["space"]["sequences-per-gpu"]
        check((space if len(want) == len(space) else space[:len(want)]) == want and (len(space) > 3 or space == want), f"searched batches of {batches} {extra}: {space}")
    job.write_text(text.replace("sequences_per_gpu: [1, 2]", "sequences_per_gpu: [2, 4, 6], micro_batches: 4"))
    for arguments in (["plan", "--job", job, "--sequences-per-gpu", "2,6"], ["replay", TRACE, "--job", job]):
        out = caller.call([program, *map(str, arguments)], capture_output=True, text=True)
        check(out.returncode == 2 and "micro_batches 4 does not divide" in out.stderr, f"{arguments}: {out.returncode} {out.stderr}")


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


DROPPING = "dense:capacity_factor=1.25"


def drops(job):
    """What is called fastest drops at most what may be dropped; what tempts says its drops and the factor that it needs."""
    job.write_text(JOB % ("0.93", f"{DROPPING}, gmm"))
    arguments = ["plan", "--job", job, "--trace", TRACE]
    for limit in (None, 10, 60):
        extra = [] if limit is None else ["--drop-at-most", limit]
        plan = json.loads(run(*arguments, *extra, "--format", "json"))
        rows, answers, text = plan["rows"], plan["plan"], run(*arguments, *extra)
        check(answers["drop_at_most"] == (limit or 1) / 100, f"--drop-at-most {limit}: {answers['drop_at_most']}")
        judge_answers(plan)
        best = rows[answers["fastest"]]
        check((best["scheme"] == DROPPING) == (limit == 60), f"--drop-at-most {limit}: {best['scheme']} is called fastest")
        for told in (l for l in text.splitlines() if DROPPING in l and "with --precision" not in l):
            check(" %" in told, f"no drop rate in '{told}'")
        check(len(answers["drops_too_much"]) == (limit != 60), f"{answers['drops_too_much']}")
        for need in answers["drops_too_much"]:
            row, factor = rows[need["point"]], need["factor"]
            check(row["drops"]["fraction"] > answers["drop_at_most"] >= need["fraction"], f"{need}")
            for other, within in ((factor, True), (factor - 0.001, False)):
                got, = json.loads(run("replay", TRACE, "--job", job, "--scheme", f"dense:capacity_factor={other:.3f}", "--sequences-per-gpu",
                                      row["sequences_per_gpu"], "--format", "json"))["rows"]
                check((got["drops"]["fraction"] <= answers["drop_at_most"]) == within, f"factor {other}: {got['drops']['fraction']}")
            told = line(text, "drops too much")
            check(f"drops {100 * row['drops']['fraction']:.2f} %" in told and f"from capacity_factor={factor:g}, " in told, told)
    even = line(run(*arguments, "--drop-at-most", "100"), "break-even")
    check(even == "" or "which drops " in even, f"dense at the break-even factor says no drops: '{even}'")


def changing(job):
    """Routing that changes over steps is replayed over them: the plan is that of the same trace, its worst and mean step."""
    job.write_text(JOB % ("0.93", 'gmm, "megatron-alltoall:capacity_factor=8,policy=position", dense:capacity_factor=2'))  # one looks at tokens
    for routing, steps in (("collapse:peak=8", 15), ("collapse:peak=4,rise=3,recovery=1", 7), ("drift:drift=0.3", 16), ("zipf:exponent=1", 1)):
        made = json.loads(run("plan", "--job", job, "--routing", routing, "--sequences-per-gpu", 1, "--format", "json"))
        path = scratch / "changing.h5"
        run("trace", "generate", path, "--experts", 64, "--top-k", 8, "--ranks", 64, "--tokens-per-rank", 512, "--layers", 2,
            "--steps", steps, "--distribution", routing, "--seed", 1)
        read = json.loads(run("plan", "--job", job, "--trace", path, "--sequences-per-gpu", 1, "--format", "json"))
        for drawn, row in zip(made["rows"], read["rows"]):
            check(drawn["steps"]["count"] == row["steps"]["count"] == steps, f"{routing}: {drawn['steps']} steps, not {steps}")
            for part in ("memory", "traffic", "drops", "time") if "position" in row["scheme"] else ():
                check(drawn[part] == row[part], f"{routing}: {key(row)}: {part} differs from that of the generated trace")
            for name, share in (("step_s", 0.03), ("worst_step_s", 0.05)):
                check(abs(drawn["time"][name] / row["time"][name] - 1) < share, f"{routing}: {key(row)}: {name} {drawn['time'][name]} of counts")
            alone = [json.loads(run("replay", path, "--job", job, "--scheme", row["scheme"], "--sequences-per-gpu", 1, "--steps", f"{i}:{i + 1}",
                                    "--stack", made["settings"]["stack"], "--format", "json"))["rows"][0] for i in range(steps)]
            times, lost = ([step[part][name] for step in alone] for part, name in (("time", "step_s"), ("drops", "fraction")))
            check(math.isclose(row["time"]["step_s"], sum(times) / steps, rel_tol=1e-9), f"{routing}: {key(row)}: mean over the steps")
            check(row["time"]["worst_step_s"] == max(times) and times[row["time"]["worst_step"]] == max(times), f"{routing}: {key(row)}: worst step")
            check(row["drops"]["worst_fraction"] == max(lost), f"{routing}: {key(row)}: the step that drops most")
        counted, = json.loads(run("plan", "--job", job, "--routing", routing, "--sequences-per-gpu", 1, "--scheme", "gmm", "--format", "json"))["rows"]
        check(all(counted[part] == made["rows"][0][part] for part in ("memory", "traffic", "drops", "time")), f"{routing}: gmm alone is another")
        text = run("plan", "--job", job, "--routing", routing, "--sequences-per-gpu", 1)
        check((f"its first {steps} steps (--routing-steps)" in line(text, "routing ")) == (steps > 1), line(text, "routing "))
        check((f"in the mean of {steps} steps" in line(text, "generated routing")) == (steps > 1), line(text, "generated routing"))
        if routing == "collapse:peak=8":
            gmm = made["rows"][0]["time"]
            check(gmm["step_s"] > 1.02 * gmm["balanced_step_s"] and gmm["worst_step_s"] > gmm["step_s"], f"a collapse costs nothing: {gmm}")
    few = json.loads(run("plan", "--job", job, "--routing", "collapse:peak=8", "--routing-steps", 3, "--format", "json"))
    check({row["steps"]["count"] for row in few["rows"]} == {3}, "--routing-steps 3")
    for arguments, why in ((["--routing", "collapse:rise=1000"], "--routing-steps 1013"), (["--trace", path, "--routing-steps", 3], "--steps"),
                           (["--routing", "drift", "--routing-steps", 0], "1 or more")):
        out = caller.call([program, "plan", "--job", str(job), *map(str, arguments)], capture_output=True, text=True)
        check(out.returncode == 2 and why in out.stderr, f"{arguments}: {out.returncode} {out.stderr}")


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


def straddling(job):
    """Groups that straddle nodes are said, and what they cost; uniform routing costs as much as balanced."""
    text = re.sub(r"(?m)^gpus_per_node: .*", "gpus_per_node: 72", (root / "sim/clusters/b200-8x8.yaml").read_text())
    (job.parent / "racks.yaml").write_text(text)
    job.write_text("model: deepseek-v3\ncluster: racks.yaml\nparallel: {expert: 64, fsdp: 9}\nbatch: {sequences_per_gpu: 1, sequence_length: 2048}\n"
                   "schemes: [gmm-deepep, megatron-alltoall]\n")
    even = ("--routing", "uniform")
    plan = json.loads(run("plan", "--job", job, *even, "--format", "json"))
    for row in plan["rows"]:
        time = row["time"]
        check(abs(time["step_s"] / time["balanced_step_s"] - 1) < 0.02, f"{key(row)}: uniform is {time['step_s'] / time['balanced_step_s']} times balanced")
        check(time["balanced_step_s"] > 1.2 * time["aligned_step_s"], f"{key(row)}: straddling costs nothing")
        check(any("7 of 9 straddle nodes" in text for text in row["assumptions"]), f"{key(row)}: {row['assumptions']}")
    told = line(run("plan", "--job", job, *even, "--scheme", "megatron-alltoall"), "straddling")
    time = plan["rows"][1]["time"]
    check(f"7 of 9 groups of 64 GPUs" in told and f"{time['balanced_step_s'] / time['aligned_step_s']:.3f} times" in told, told)


def pool():
    """Sixteen times the GPUs whose routing is drawn: what is planned from a sixteenth of them is what all their own tokens say, but for
    chance; so it is from more or fewer of them, as --routing-tokens says."""
    asked = ["--model", "mixtral-8x7b", "--cluster", "h200:8x256", "--expert-parallel", "8", "--scheme", "gmm", "--scheme", "gmm-deepep",
             "--scheme", "dense:capacity_factor=1.25", "--format", "json"]
    whole, routing = scratch / "all_gpus.h5", "k-hot:hot=0.25,heat=0.3"
    run("trace", "generate", "--ranks", 2048, "--layers", 2, "--experts", 8, "--top-k", 2, "--seed", 5, "--distribution", routing, whole)
    several = [json.loads(run("plan", *asked, "--routing", routing, *more)) for more in ([], ["--routing-tokens", "4M"], ["--routing-tokens", "524288"])]
    every = json.loads(run("plan", *asked, "--trace", whole))
    whole.unlink()
    said = line(run("plan", *asked[:-2], "--routing", routing), "routing")
    check("sequences of 128 GPUs, from which all GPUs' are drawn" in said, said)
    said = line(run("plan", *asked[:-2], "--routing", routing, "--routing-tokens", "524288"), "routing")
    check("sequences of 64 GPUs, from which all GPUs' are drawn" in said, said)
    check(all(len(drawn["rows"]) == len(every["rows"]) == 3 for drawn in several), "three schemes")
    for a, b in ((a, b) for drawn in several for a, b in zip(drawn["rows"], every["rows"])):
        for part, name, near in (("traffic", "rows_mean", 1e-3), ("traffic", "rows_max", 0.01), ("traffic", "dispatch_bytes_per_gpu", 1e-3),
                                 ("drops", "fraction", 0.01), ("time", "step_s", 0.005)):
            x, y = a[part][name], b[part][name]
            check(abs(x - y) <= near * max(abs(y), 1e-9), f"{a['scheme']}: {part}.{name} is {x} by draws, {y} by all")
        check(a["evidence"] == "resampled" and b["evidence"] == "folded", f"{a['evidence']}, {b['evidence']}")


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
    slowest, quickest = (64 * fastest["time"][end] for end in ("tokens_per_s_low", "tokens_per_s_high"))
    check(math.isclose(cost["gpu_hours_high"], 64e12 / slowest / 3600, rel_tol=1e-9) and
          math.isclose(cost["days_low"], 1e12 / quickest / 86400, rel_tol=1e-9) and
          math.isclose(cost["tokens_per_day_low"], slowest * 86400, rel_tol=1e-9), "the interval of what training costs")
    check(cost["money"] is None, "a cost without a price")
    work = json.loads(run("model", "scratch-moe-e64", "--sequence-length", 512, "--format", "json"))["flops_per_token"]["training"]
    peak = next(f["value"] for f in plan["sources"]["figures"] if f["what"] == "bf16 peak of a GPU")
    priced = json.loads(run("plan", "--job", job, "--trace", TRACE, "--format", "json", "--tokens", "1T", "--price", "2.5"))
    for row in priced["rows"]:
        time, cost = row["time"], row["cost"]
        for end, speed in (("", "tokens_per_s_per_gpu"), ("_low", "tokens_per_s_low"), ("_high", "tokens_per_s_high")):
            check(math.isclose(cost["mfu" + end], work * time[speed] / peak, rel_tol=1e-9) and
                  math.isclose(cost["flops_per_s_per_gpu" + end], work * time[speed], rel_tol=1e-9), f"{key(row)}: MFU {cost}")
        check(math.isclose(cost["money_high"], 2.5 * 1e12 / time["tokens_per_s_low"] / 3600, rel_tol=1e-9) and
              math.isclose(cost["money"], 2.5 * cost["gpu_hours"], rel_tol=1e-9), f"{key(row)}: money {cost}")
    check(priced["settings"]["price_per_gpu_hour"] == 2.5 and priced["settings"]["tokens"] == 1e12, "price and tokens are settings")
    replayed = json.loads(run("replay", TRACE, "--job", job, "--stack", plan["settings"]["stack"], "--tokens", "1T", "--price", "2.5",
                              "--format", "json"))
    check([row["cost"] for row in replayed["rows"]] == [row["cost"] for row in priced["rows"]], "replay costs otherwise than plan")

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
    refuses(job)
    micro_batches(job)
    begins(job)
    says(job)
    allocator(job)
    drops(job)
    changing(job)
    advice(job)
    straddling(job)
    precision(job)
    pool()
    timelines()
    oracle.finish()


def timelines():
    """A step's memory over its moments, beside that of balanced routing, belongs to its own row: of several splits as of that one alone."""
    words = ("plan", "--model", "qwen3-30b-a3b", "--cluster", "h100:8x4", "--scheme", "megatron-flex", "--format", "json")
    several = json.loads(oracle.must(*words, "--expert-parallel", "4,8,16"))
    timeline = several["memory_timeline"]
    split = several["rows"][timeline["row"]]["expert_parallel"]
    alone = json.loads(oracle.must(*words, "--expert-parallel", split))["memory_timeline"]
    check({**timeline, "row": 0} == {**alone, "row": 0} and split != 4, f"the timeline of expert {split} among several splits is not its own")


main()
