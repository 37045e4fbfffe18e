#!/usr/bin/env python3
"""`spillway report` of plans: every number of the page against the plan's JSON; long plans; what is wrong in a plan's file is named in
one line.

report_plan_oracle.py SPILLWAY TEST_REPORT SCRATCH ROOT"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import run
from report_cases import FILE, OK, USAGE, at, chosen, deepseek_trace, good, page_path, refused, small_job, small_trace
from report_checks import bars, check_basis, check_interval, check_labels, check_lead, check_rows, check_scales, check_timeline
from report_page import GIB, close, expect, finish, folder, program, replayed, report, root


# --- Numbers ---

PHONE = 360 - 2 * 16 - 44  # pixels of a plot there


def check_plot(what, page, answer):
    """Every point of a plan stands where its memory and its speed are, in the colour of its drops; numbers keep clear of each other."""
    section = page.section("Memory, speed and drops")
    plot, rows = next(section.all("div", "plot")), answer["rows"]
    axis, up = next(plot.all("div", "axis")), next(plot.all("div", "up"))
    number = lambda span: float(re.search(r"[\d.]+", span.attributes["style"])[0])
    end = max(100 * float(span.text()) / number(span) for span in axis.all("span") if number(span) > 0)
    ticks = sorted((number(span), float(span.text())) for span in up.all("span"))
    zero, top = ticks[-1][0], ticks[0]
    expect(what, zero == 300.0 and ticks[-1][1] == 0, f"{ticks}")
    timed = any(r["time"]["step_s"] is not None for r in rows)
    drawn = [r for r in rows if r["time"]["step_s"] is not None or not timed]
    want = []
    for row in drawn:
        held = max(row["memory"]["max_bytes"], (row["memory"]["allocator"] or {"reserved": {"max_bytes": 0}})["reserved"]["max_bytes"]) / GIB
        speed = row["time"]["tokens_per_s_per_gpu"] if timed else row["sequences_per_gpu"] * row["sequence_length"]
        fraction = row["drops"]["fraction"]
        level = 0 if not row["drops"]["dropped"] else 1 + sum(fraction > limit for limit in (0.01, 0.05, 0.2))
        want.append((min(100 * held / end, 100), zero - (zero - top[0]) * speed / top[1], level, row["memory"]["verdict"] == "oom"))
    marks = [(float(c.attributes["cx"][:-1]), float(c.attributes["cy"]), int(c.attributes["class"].split()[1][1:]),
              "no" in c.attributes["class"].split(), c.attributes["r"]) for c in plot.all("circle")]
    plain, named = [m for m in marks if m[4] == "4"], [m for m in marks if m[4] == "9"]
    expect(what, len(plain) == len(want) and len(plain) + len(named) == len(marks), f"{len(plain)} dots of {len(want)} points")
    for got, dot in zip(plain, want):
        expect(what, abs(got[0] - dot[0]) < 0.2 and abs(got[1] - dot[1]) < 0.6 and got[2:4] == dot[2:], f"{got} want {dot}")
    texts = [(float(t.attributes["x"][:-1]), float(t.attributes["y"])) for t in plot.all("text")]
    expect(what, len(texts) == len(named) == len(list(next(section.all("ol")).all("li"))) and named, f"{len(texts)} numbers")
    for i, a in enumerate(texts):
        for b in texts[:i]:
            away = np.hypot(PHONE * (a[0] - b[0]) / 100, a[1] - b[1])
            expect(what, away > 18, f"numbers are {away} pixels apart on a phone")
    at = [PHONE * number(span) / 100 for span in axis.all("span")]
    for a, b, left, right in zip(at, at[1:], axis.all("span"), list(axis.all("span"))[1:]):
        expect(what, b - a > 3.5 * (len(left.text()) + len(right.text())), f"{left.text()} and {right.text()}: {b - a} pixels")
    expect(what, all(b[0] - a[0] >= 14 for a, b in zip(ticks, ticks[1:])), f"{ticks}")


def check_waterfall(what, page, answer, row):
    """Each piece of the peak begins where the one before ends, and together they are the peak."""
    section = page.section("The peak, piece by piece")
    pieces = list(bars(section))
    components = answer["rows"][row]["memory"]["components"]
    at, total = 0.0, sum(components.values())
    for place, (end, tr) in enumerate(pieces):
        box = next(tr.all("rect"))
        left, wide = float(box.attributes["x"]) * end / 1000, float(box.attributes["width"]) * end / 1000
        if place == len(pieces) - 1:
            expect(what, left == 0 and abs(wide - total / GIB) < 0.002 * end, f"{wide} want {total / GIB}")
        else:
            expect(what, abs(left - at) < 0.002 * end, f"{tr.text()} begins at {left}, not {at}")
            at = left + wide
    expect(what, answer["rows"][row]["scheme"] in section.text(), section.text())
    expect(what, close(sum(page_value for _, tr in pieces[:-1] for page_value in tr.values()), total, 1e-9), "the pieces are not the peak")


# --- Cases ---

def planned(what, *arguments, cwd=None):
    """A plan as JSON in a file; the file and the answer."""
    path = folder / f"{what}.json"
    done = run(program, "plan", *arguments, "--format", "json", cwd=cwd)
    if done.returncode != 0:
        sys.exit(f"{what}: {done.stderr}")
    path.write_text(done.stdout)
    return path, json.loads(done.stdout)


def amount(value):
    """A large number as a person writes it."""
    for unit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= 0.9995 * unit:
            shown = value / unit
            return f"{shown:.0f} {name}" if abs(shown - round(shown)) < 1e-9 else f"{shown:.{2 if shown < 9.995 else 1 if shown < 99.95 else 0}f} {name}"
    return f"{round(value):,}"


def check_plan(what, page, answer):
    rows, plan = answer["rows"], answer["plan"]
    section, fit = next(page.root.all("section", "answer")), [r for r in rows if r["memory"]["verdict"] != "oom"]
    lead = next(section.all("p", "lead")).text()
    check_lead(what, page, answer)
    check_interval(what, page, answer)
    said = section.text().replace("\xa0", " ")
    for name in ("fastest", "fastest_dropless"):
        if plan[name] is None:
            continue
        row, cost = rows[plan[name]], plan[f"{name}_cost"]
        expect(what, any(b.startswith(row["scheme"]) and (f"{row['sequences_per_gpu']} seq" in b) for b in chosen(section)), f"{chosen(section)}")
        if cost and plan["tokens"]:
            for text in (f"trains {amount(cost['tokens_per_day'])} tokens", f"on {amount(plan['tokens'])} tokens", f"{amount(cost['gpu_hours'])} GPU-hours",
                         f"runs at {100 * cost['mfu']:.1f} % of", f"cost {amount(cost['money'])} ({amount(cost['money_low'])} to" if cost["money"] else "GPU"):
                expect(what, text in said, f"no '{text}' in {said}")
    for point in plan["does_not_fit"]:
        expect(what, point["advice"] in said, f"no '{point['advice']}'")
    table = [tr for tr in page.section("Point by point").all("tr") if any(th.attributes.get("scope") == "row" for th in tr.all("th"))]
    listed = sorted(tuple(tr.values()[1:5]) for tr in table)
    want = sorted((r["memory"]["p50_bytes"], r["memory"]["p99_bytes"], r["memory"]["max_bytes"], r["memory"]["budget_bytes"]) for r in rows)
    expect(what, [w[:3] for w in listed] == [w[:3] for w in want], f"{len(listed)} of {len(want)} points in the table")
    best = plan["fastest"] if plan["fastest"] is not None else answer["answers"]["order"][0] if answer["answers"]["order"] else answer["answers"]["least_memory"]
    check_waterfall(what, page, answer, best)
    check_plot(what, page, answer)
    check_scales(what, page)
    check_labels(what, page)
    check_timeline(what, page, answer)
    check_lead(what, page, answer)


def case_plan():
    """A plan as a page, alone and with a replay beside it; its command gives the same plan again."""
    trace = deepseek_trace()
    job = root / "sim/jobs/deepseek-v3-mi355x-plan.yaml"
    arguments = ("--job", job, "--trace", trace, "--tokens", "1T", "--price", "2.5", "--expert-parallel", "8,16", "--sequences-per-gpu", "1,4,16", "--scheme",
                 "dense:capacity_factor=1.25", "--scheme", "gmm", "--scheme", "gmm-deepep", "--scheme", "ragged")
    path, answer = planned("plan", *arguments)
    page = report(path)
    check_plan("plan", page, answer)
    expect("plan", {r["expert_parallel"] for r in answer["rows"]} == {8, 16} and "expert 16 × fsdp 4" in page.root.text(), "the split is not said")
    check_basis("plan", page, answer)
    command = shlex.split(next(page.section("To run it again").all("pre")).text().replace("\\\n", " "))
    again = run(program, *command[1:])
    expect("plan", again.returncode == 0 and json.loads(again.stdout)["rows"] == answer["rows"], f"{command}: {again.stderr}")
    check_plan("no time", report(*[planned("untimed", "--job", small_job, "--trace", small_trace, "--sequences-per-gpu", "1,2,4")[0]]),
               json.loads((folder / "untimed.json").read_text()))
    result, replay = replayed("beside", trace, job, "--sequences-per-gpu", "1", "--stack", "maxtext-rocm-2026-05", "--scheme", "gmm", "--scheme", "ring")
    both = report(path, "--replay", result)
    pairs = [tr for tr in both.section("The plan beside the replay").all("tr") if list(tr.all("td"))]
    mine = next(r for r in answer["rows"] if (r["scheme"], r["sequences_per_gpu"], r["expert_parallel"]) == ("gmm", 1, 8))
    values = [mine["memory"]["max_bytes"] / GIB, replay["rows"][0]["memory"]["max_bytes"] / GIB, mine["time"]["step_s"],
              replay["rows"][0]["time"]["step_s"], 0, 0]
    expect("beside", len(pairs) == 1 and all(close(a, b, 1e-9) for a, b in zip(pairs[0].values(), values)), f"{[p.values() for p in pairs]} {values}")
    expect("beside", len(list(both.root.all("section", "answer"))) == 2, "the replay's answer is missing")
    check_rows("beside", both, result, replay)
    none = report(path, "--replay", good)
    expect("beside", "No scheme of the replay" in none.section("The plan beside the replay").text(), "points that are not the same are compared")


def bad_plan(what, words, change):
    answer = json.loads((folder / "plan.json").read_text())
    text = change(answer)
    (folder / "bad.json").write_text(text if isinstance(text, str) else json.dumps(answer))
    refused(what, FILE, ["bad.json", *words], "report", folder / "bad.json", "--output", page_path)


def case_plan_damage():
    """A plan's file is read as strictly as a result: what is wrong is named in one line."""
    whole = (folder / "plan.json").read_text()
    for length in (1, 2, 100, len(whole) // 2, len(whole) - 3):
        bad_plan(f"a plan cut to {length}", [], lambda a, n=length: whole[:n])
    for words, path, value in ((["format spillway-result"], ("format",), "x"), (["format_version 2"], ("format",), "spillway-search"),
                               (["version 1"], ("version",), 2), (["rows: must be 1 to"], ("rows",), []),
                               (["rows: must be 1 to"], ("rows",), {}), (["rows: must be objects"], ("rows", 3), [1]),
                               (["expert_parallel"], ("rows", 3, "expert_parallel"), -1), (["fsdp"], ("rows", 3, "fsdp"), None),
                               (["max_bytes"], ("rows", 3, "memory", "max_bytes"), 1e300), (["verdict"], ("rows", 3, "memory", "verdict"), "good"),
                               (["low_s"], ("rows", 0, "time", "low_s"), "x"), (["assumptions"], ("rows", 0, "assumptions"), [1]),
                               (["front"], ("answers", "front"), [10**6]), (["rows.cost.mfu"], ("rows", 0, "cost", "mfu"), -4),
                               (["rows.cost.days_low"], ("rows", 0, "cost", "days_low"), None),
                               (["does_not_fit"], ("plan", "does_not_fit", 0, "point"), -1), (["advice"], ("plan", "does_not_fit", 0, "advice"), 3),
                               (["settings.parallel.expert"], ("settings", "parallel", "expert"), "8"), (["order"], ("answers", "order"), [0, 0])):
        bad_plan(f"{path} = {value}", words, lambda a, p=path, v=value: at(a, *p[:-1]).__setitem__(p[-1], v))
    bad_plan("a row's key twice", ["duplicate"], lambda a: whole.replace('"scheme": "gmm"', '"scheme": "gmm", "scheme": "gmm"', 1))
    bad_plan("two lists of rows", ["duplicate"], lambda a: whole.rstrip().rstrip("}") + ', "rows": []}')
    bad_plan("a comma too many", ["rows"], lambda a: whole.replace('"rows": [', '"rows": [,', 1))
    bad_plan("10^5 deep", [], lambda a: whole.replace('"rows": [', '"rows": [' + "[" * 100000, 1))
    refused("a replay beside no plan", USAGE, ["goes with a plan"], "report", good, "--replay", good, "--output", page_path)
    refused("a plan beside a plan", USAGE, ["goes with a plan"], "report", folder / "plan.json", "--replay", folder / "plan.json", "--output", page_path)
    refused("onto the replay", USAGE, ["itself"], "report", folder / "plan.json", "--replay", good, "--output", good)
    answer = json.loads(whole)
    evil = "<script>alert(1)</script>\u202e</section>"
    for row in answer["rows"]:
        row["scheme"], row["assumptions"], row["memory"]["moment"] = evil, [evil], evil
        row["memory"]["components"][evil] = 1e9
    for point in answer["plan"]["does_not_fit"]:
        point["advice"] = evil
    answer["settings"].update(model=evil, cluster=evil, remat=evil, offload_modules="moe_act", arguments=["plan", evil, 3, "'; rm -rf $HOME; '"])
    answer["plan"]["refused"] = [{"reason": evil}]
    (folder / "hostile.json").write_text(json.dumps(answer))
    text = report(folder / "hostile.json").root.text()
    expect("hostile plan", ", offload moe_act. " in text, "the heading lacks what is offloaded")
    expect("hostile plan", evil.replace("\u202e", "\ufffd") in text and "\u202e" not in text, "names are not there as text")
    rng_bytes = np.random.default_rng(5)
    for _ in range(60):
        changed = bytearray(whole.encode())
        for place in rng_bytes.integers(0, len(changed), 3):
            changed[place] = rng_bytes.integers(256)
        (folder / "flipped.json").write_bytes(changed)
        done = run(program, "report", folder / "flipped.json", "--output", page_path)
        expect("flipped plan", (done.returncode == OK and not done.stderr) or (done.returncode == FILE and done.stderr.count("\n") == 1),
               f"exit {done.returncode}: {done.stderr!r}")


def usage(path):
    """CPU seconds and the most bytes in memory of one report."""
    process = subprocess.Popen([program, "report", path, "--output", folder / "long.html"])
    _, status, used = os.wait4(process.pid, 0)
    expect("long plan", status == 0, f"status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def case_long_plan():
    """A report is linear in the rows, takes a few times the file in memory, and its page stays one that a person reads."""
    answer = json.loads((folder / "plan.json").read_text())
    few = answer["rows"]
    measured = []
    for copies in (40, 320):
        answer["rows"] = few * copies
        answer["answers"]["order"] = [i for i, row in enumerate(answer["rows"]) if row["memory"]["verdict"] != "oom"]
        path = folder / "long.json"
        path.write_text(json.dumps(answer, indent=1))
        measured.append((*usage(path), path.stat().st_size, (folder / "long.html").stat().st_size))
    (short, base, size, page), (seconds, most, bytes_, long_page) = measured
    times = 64 if "asan" in str(program) or "tsan" in str(program) else 8  # a sanitizer keeps more than the program does
    expect("long plan", most - base < times * (bytes_ - size), f"{(most - base) / (bytes_ - size):.1f} bytes of memory for one of the file")
    expect("long plan", seconds < 8 * 2 * short + 1, f"{seconds} s for 8 times the rows of {short} s")
    expect("long plan", long_page < 2 * page and long_page < 2**20, f"{long_page} bytes of page")


def case_parts():
    """Uneven stages with a layer of multi-token prediction, on a network of several levels: in the plan's JSON, by the letters of the
    layout, and on the page."""
    layout, stages, chunks = "Et*3|(tt|)*29,m|L", 8, 4
    sets = {"parallel.expert": 16, "parallel.fsdp": 8, "parallel.pipeline": stages, "parallel.virtual_stages": chunks,
            "parallel.pipeline_model_parallel_layout": layout}
    path, answer = planned("parts", "--model", "deepseek-v3", "--cluster", "h200-rail-128x8", "--sequences-per-gpu", "32", "--micro-batches", "32",
                           "--sequence-length", "512", "--scheme", "megatron-alltoall", "--routing", "zipf",
                           *[word for key, value in sets.items() for word in ("--set", f"{key}={value}")])
    blocks = ["Ettt"] + ["tt"] * 29 + ["m", "L"]
    want = [{"layers": sum(b.count("t") for b in mine), "mtp_layers": sum(b.count("m") for b in mine), "embedding": "E" in "".join(mine),
             "head": "L" in "".join(mine), "moe_layers": sum(b.count("t") for b in mine) - 3 * (s == 0)}
            for s, mine in enumerate([blocks[s::stages] for s in range(stages)])]
    row = answer["rows"][0]
    memory, traffic, timeline = row["memory"], row["traffic"], answer["memory_timeline"]
    expect("parts", [{k: stage[k] for k in w} for w, stage in zip(want, memory["stages"])] == want and len(memory["stages"]) == stages, f"{memory['stages']}")
    peaks = [stage["peak_bytes"] for stage in memory["stages"]]
    expect("parts", max(peaks) == memory["max_bytes"] == timeline["peak_bytes"] and peaks.index(max(peaks)) == timeline["stage"], f"{peaks}")
    ids = [[3 + 2 * (b - 1), 4 + 2 * (b - 1)] if b > 0 else [0, 1, 2] for b in range(timeline["stage"], 32, stages)]
    expect("parts", timeline["layers"] == sum(ids, []), f"{timeline['layers']} want {ids}")
    page = report(path)
    check_timeline("parts", page, answer)
    check_lead("parts", page, answer)
    check_labels("parts", page)
    heading = page.root.text()[:400]
    expect("parts", "expert 16 × fsdp 8 × pipeline 8 (4 blocks of layers a stage)" in page.root.text(), heading)
    for head, list_of, keys in (("Stage by stage", memory["stages"], ("layers", "argument_bytes", "peak_bytes")),
                                ("Level by level of the network", traffic["levels"], ("max_port_bytes", "seconds"))):
        section = page.section(head)
        values = [tr.values() for tr in section.all("tr") if tr.values()]
        expect("parts", values == [[part[key] for key in keys] for part in list_of], f"{head}: {values[:2]}")
    told = page.section("Stage by stage").text()
    expect("parts", told.count("embedding") == told.count("head") == told.count("multi-token") == 1, told)
    expect("parts", f"The slowest: {traffic['slowest_level']}." in page.section("Level by level of the network").text(), "the slowest level")
    basis = page.section("What this rests on").text()
    expect("parts", "routing was generated" in basis and "sequences of the trace" not in basis.split("2 layers")[0], basis[:300])
    for of in ({"levels": 7, "slowest_level": 3}, {"levels": [1, None, {"level": 3, "seconds": "x"}]}):  # what no reader needs
        answer["rows"][0]["traffic"].update(of)
        answer["rows"][0]["memory"]["stages"] = [7, {"layers": "x"}]
        path.write_text(json.dumps(answer))
        report(path)


case_plan()
case_plan_damage()
case_long_plan()
case_parts()
finish(100)
