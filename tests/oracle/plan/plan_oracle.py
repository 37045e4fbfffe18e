#!/usr/bin/env python3
"""`spillway plan` against `spillway replay` of every split by itself, and its answers against a search over all points.

plan_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import json
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from planned import JOB, TRACE, check, fits, judge, judge_answers, key, line, oracle, program, root, run, scratch
import program as caller

SCHEMES = ["dense:capacity_factor=1.25", "dense:capacity_factor=2", "gmm", "gmm-deepep", "ring"]


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
    job.write_text(JOB % ("0.93", 'gmm, "megatron-flex:capacity_factor=8,policy=position", dense:capacity_factor=2'))  # one looks at tokens
    for routing, steps in (("collapse:peak=8", 15), ("collapse:peak=4,rise=3,recovery=1", 7), ("drift:drift=0.3", 16), ("zipf:exponent=1", 1)):
        made = json.loads(run("plan", "--job", job, "--routing", routing, "--sequences-per-gpu", 1, "--format", "json"))
        path = scratch / "changing.h5"
        run("trace", "generate", path, "--experts", 64, "--top-k", 8, "--ranks", 64, "--tokens-per-rank", 512, "--layers", 2,
            "--steps", steps, "--distribution", routing, "--seed", 1)
        read = json.loads(run("plan", "--job", job, "--trace", path, "--sequences-per-gpu", 1, "--format", "json"))
        for drawn, row in zip(made["rows"], read["rows"]):
            check(("expected" in drawn["traffic"]) == (steps == 1), f"{routing}: {steps} steps, expected: {drawn['traffic'].get('expected')}")
            check(drawn["steps"]["count"] == row["steps"]["count"] == steps, f"{routing}: {drawn['steps']} steps, not {steps}")
            for part in ("memory", "traffic", "drops", "time") if "position" in row["scheme"] else ():
                said = {k: v for k, v in drawn[part].items() if not k.startswith("expected")}  # a trace has no law
                check(said == row[part], f"{routing}: {key(row)}: {part} differs from that of the generated trace")
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


def timelines():
    """A step's memory over its moments, beside that of balanced routing, belongs to its own row: of several splits as of that one alone."""
    words = ("plan", "--model", "qwen3-30b-a3b", "--cluster", "h100:8x4", "--scheme", "megatron-flex", "--format", "json")
    several = json.loads(oracle.must(*words, "--expert-parallel", "4,8,16"))
    timeline = several["memory_timeline"]
    split = several["rows"][timeline["row"]]["expert_parallel"]
    alone = json.loads(oracle.must(*words, "--expert-parallel", split))["memory_timeline"]
    check({**timeline, "row": 0} == {**alone, "row": 0} and split != 4, f"the timeline of expert {split} among several splits is not its own")


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
    drops(job)
    changing(job)
    straddling(job)
    pool()
    timelines()
    oracle.finish()


main()
