#!/usr/bin/env python3
"""What print(), a notebook and pictures show of answers, made anew here from their JSON: answers that stand in tests/oracle/pages_kept, each with
verdicts, prices, times, pipelines, reserved memory and doubts as they may meet.

python_shown.py PACKAGE_FOLDER LIBRARY SOURCE"""
import copy
import gzip
import html
import itertools
import json
import math
import os
import pathlib
import sys
import types

import numpy

folder, shared, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
os.environ["SPILLWAY_LIBRARY"] = str(shared)
sys.path.insert(0, str(folder))
import spillway_moe as spillway  # noqa: E402
from package_checks import Checks  # noqa: E402
from spillway_moe import results  # noqa: E402

checks = Checks(spillway.Error)
check = checks.check
GIB = 2.0**30
STORED = {name: json.loads(gzip.decompress((source / f"tests/oracle/pages_kept/{name}.json.gz").read_bytes())) for name in ("plan", "megatron", "search")}


def figure(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def amount(value):
    power = next((p for p in (12, 9, 6, 3) if abs(value) >= 10**p), 0)
    return f"{value / 10**power:.3g}" + {12: " T", 9: " B", 6: " M", 3: " k", 0: ""}[power]


def named(row):
    return (f"{row['scheme']}, EP {row['expert_parallel']}" + (f", PP {row['pipeline']}" if row["pipeline"] > 1 else "") +
            f", {row['sequences_per_gpu']} sequence" + ("s" if row["sequences_per_gpu"] != 1 else "") + " a GPU")


def priced(cost, tokens):
    if not cost or cost["days"] is None or not tokens:
        return ""
    money = "" if cost["money"] is None else f" and cost {amount(cost['money'])}"
    return f"; {amount(tokens)} tokens take {cost['days']:.3g} days ({cost['days_low']:.3g} to {cost['days_high']:.3g}){money}"


def fits(row):
    memory, time = row["memory"], row["time"]
    words = "surely fits" if memory["surely_fits"] else {"fits": "fits", "tight": "may not fit", "oom": "does not fit"}[memory["verdict"]]
    live = f"{memory['max_bytes'] / GIB:.1f}"
    if memory["allocator"]:
        live += f" GiB live, {memory['allocator']['reserved']['max_bytes'] / GIB:.1f} reserved,"
    uneven = f"; uneven routing makes the step {time['over_balanced']:.3f} times as long" if time["over_balanced"] else ""
    return f"It {words}: {live} of {memory['budget_bytes'] / GIB:.1f} GiB{uneven}; it drops {100 * row['drops']['fraction']:.2f} %."


def said_of_plan(answer):
    answers, rows = answer["answers"], answer["rows"]
    fastest, sure, least = (answers[name] for name in ("fastest", "fastest_sure", "least_memory"))
    if fastest is None:
        lines = ["No point is fastest: none that fits has a time, or all drop too much."]
        return lines + ([] if least is None else [f"{named(rows[least])} needs least. {fits(rows[least])}"])
    row, time = rows[fastest], rows[fastest]["time"]
    lines = [f"Fastest: {named(row)}: {figure(time['tokens_per_s_per_gpu'])} tokens/s a GPU ({figure(time['tokens_per_s_low'])} to "
             f"{figure(time['tokens_per_s_high'])}){priced(row['cost'], answer['settings']['tokens'])}.", fits(row)]
    if sure is None:
        return lines + ["No point surely fits."]
    speed = figure(rows[sure]["time"]["tokens_per_s_per_gpu"])
    return lines + ([] if sure == fastest else [f"The fastest that surely fits: {named(rows[sure])}, {speed} tokens/s a GPU."])


def verdict(shown, sure):
    return "surely" if sure else {"fits": "fits", "tight": "may not", "oom": "no"}[shown]


def column(value, unit=1.0):
    return math.nan if value is None else value / unit


def table_of_plan(rows, steps):
    for r in rows:
        time = r["time"]
        yield [r["scheme"], r["expert_parallel"], r["sequences_per_gpu"], *([r["steps"]["first"]] if steps else []),
               verdict(r["memory"]["verdict"], r["memory"]["surely_fits"]), column(r["memory"]["max_bytes"], GIB),
               *(column(time[name]) for name in ("tokens_per_s_per_gpu", "tokens_per_s_low", "tokens_per_s_high", "over_balanced")),
               column(r["drops"]["fraction"], 0.01)][:10]


def same(a, b):
    return a == b or isinstance(a, float) and (math.isnan(a) and math.isnan(b) or abs(a - b) <= 1e-12 * abs(b))


def same_table(what, table, want):
    want = list(want)
    got = [list(row) for row in table.itertuples(index=False)]
    check(len(got) == len(want) and all(len(a) == len(b) and all(map(same, a, b)) for a, b in zip(got, want)), f"{what}: table {got[:2]}, {want[:2]} would be right")


def same_shown(what, result, lines):
    check(result.sentences == lines, f"{what}: {result.sentences}, {lines} would be right")
    text, page = repr(result), result._repr_html_()
    check(text.split("\n")[:len(lines)] == lines and text.count("\n") == len(lines) - (not len(result.table)) + len(result.table), f"{what}: print()")
    check("".join(f"<div>{html.escape(line)}</div>" for line in lines) in page and page.count("<tr") == (len(result.table) + 1 if len(result.table) else 0), f"{what}: HTML")


class Axes:
    """Axes that keep what they are told, in the place of matplotlib's."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *words, **more: self.told.append((name, [list(w) if hasattr(w, "__iter__") and not isinstance(w, str) else w for w in words], more))

    def all(self, name):
        return [(words, more) for told, words, more in self.told if told == name]


# --- Plans and replays ---

def plans():
    """Answers in which these meet, each two of them once at least."""
    kinds = (("fits", True), ("fits", False), ("tight", False), ("oom", False))
    for number, (name, kind, best) in enumerate(itertools.product(("plan", "megatron"), kinds, ("first", "other", "none", "nothing"))):
        answer = copy.deepcopy(STORED[name])
        rows, answers = answer["rows"], answer["answers"]
        for place, row in enumerate(rows):
            row["memory"].update(verdict=kinds[(number + place) % 4][0], surely_fits=kinds[(number + place) % 4][1])
            row["pipeline"] = 1 + (number + place) % 3
            row["drops"]["fraction"] = 0.0123 * ((number + 2 * place) % 3)
            row["sequences_per_gpu"] = 1 + (number + place) % 2
            if (number + place) % 3 == 0:
                row["memory"]["allocator"] = None
            if (number + place) % 5 == 1:
                row["cost"] = {**row["cost"], "money": None} if number % 2 else None
            if (number + place) % 5 == 2:
                row["time"]["over_balanced"] = None
            row["memory"]["budget_bytes"] += place * 1e9
            row["steps"]["first"] = place if number % 4 == 3 else 0
        rows[0]["memory"].update(verdict=kind[0], surely_fits=kind[1])
        sure = {"first": 0, "other": len(rows) - 1, "none": None, "nothing": None}[best]
        answers.update(fastest=None if best == "nothing" else 0, fastest_sure=sure, least_memory=None if number % 5 == 4 else 1)
        answer["plan"].update(fastest=answers["fastest"], front=[0, 2] if number % 3 else None)
        if number % 6 == 5:
            answer["settings"]["tokens"] = None
        yield f"{name} {number}", answer


def check_plan(what, answer):
    rows, plan = answer["rows"], results.Plan(answer, results.table_of(answer["rows"]))
    same_shown(what, plan, said_of_plan(answer))
    steps = len({r["steps"]["first"] for r in rows}) > 1
    same_table(what, plan.table, table_of_plan(rows, steps))
    check(list(plan.table)[:3] == ["scheme", "EP", "sequences a GPU"] and ("step" in plan.table) == steps, f"{what}: columns {list(plan.table)}")
    check(list(plan.front.index) == (answer["plan"]["front"] or []) and (plan.fastest is None) == (answer["plan"]["fastest"] is None), f"{what}: front")
    parts, seconds = plan.components(), plan.seconds()
    for place, row in enumerate(rows):
        for table, part, value in ((parts, row["memory"]["components"], lambda v: v), (seconds, row["time"]["components"], lambda v: v["exposed_s"])):
            got = {name: held for name, held in table.iloc[place].items() if not math.isnan(held) and (table is parts or held or name in part)}
            check(got == {name: value(v) for name, v in part.items()} and table.index[place] == (row["scheme"], row["sequences_per_gpu"]), f"{what}: parts")
    check_pictures(what, plan, rows)


def names_of(rows):
    seen = {}
    for r in rows:
        name = f"{r['scheme']}, EP {r['expert_parallel']}, {r['sequences_per_gpu']} a GPU" + (f", PP {r['pipeline']}" if r["pipeline"] > 1 else "")
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"


def check_bars(what, draw, result, labelled, label):
    """labelled: name, value, low and high of each bar; None: no bar."""
    want = [row for row in labelled if row[1] is not None]
    axes = draw(result, Axes())
    (words, more), = axes.all("barh")
    check(words[0] == [row[0] for row in want] and all(map(same, words[1], [row[1] for row in want])), f"{what}: bars of {label}: {words[0]}")
    check(all(abs(e - (r[1] - r[2])) < 1e-9 * abs(r[1]) for e, r in zip(more["xerr"][0], want)) and
          all(abs(e - (r[3] - r[1])) < 1e-9 * abs(r[1]) for e, r in zip(more["xerr"][1], want)), f"{what}: intervals of {label}")
    check(axes.all("set_xlabel")[0][0] == [label] and len(axes.all("invert_yaxis")) == 1, f"{what}: label {axes.all('set_xlabel')}")
    return axes


def figures_of(rows, part, name, ends, unit=1.0):
    for called, row in zip(names_of(rows), rows):
        at = row if part is None else row[part]
        yield (called, *((None,) * 3 if not at or at[name] is None else (at[name] / unit, at[ends[0]] / unit, at[ends[1]] / unit)))


def check_pictures(what, plan, rows):
    figures = spillway.figures
    check_bars(what, figures.speed, plan, figures_of(rows, "time", "tokens_per_s_per_gpu", ("tokens_per_s_low", "tokens_per_s_high")), "tokens/s a GPU")
    axes = check_bars(what, figures.routing, plan, figures_of(rows, "time", "over_balanced", ("over_balanced_low", "over_balanced_high")),
                      "step with this routing / step with balanced routing")
    check(axes.all("axvline")[0][0] == [1.0], f"{what}: the line of balanced routing")
    name = "money" if any(r["cost"] and r["cost"]["money"] is not None for r in rows) else "gpu_hours"
    check_bars(what, figures.cost, plan, figures_of(rows, "cost", name, (f"{name}_low", f"{name}_high"), 1e3),
               "thousands" if name == "money" else "thousands of GPU hours")
    axes, sums = figures.memory(plan, Axes(), components=3), {}
    for row in rows:
        for part, held in row["memory"]["components"].items():
            sums[part] = sums.get(part, 0) + held
    bars = axes.all("barh")
    labels = [more["label"] for _, more in bars]
    check([sums.get(label) for label in labels] == [*sorted(sums.values(), reverse=True)[:3], None] and labels[3] == "the rest", f"{what}: {labels}, {sums}")
    held = [0.0] * len(rows)
    for (words, more) in bars:
        check(all(abs(a - b) < 1e-9 for a, b in zip(more["left"], held)), f"{what}: a bar begins where the one before ends")
        held = [a + b for a, b in zip(held, words[1])]
    check(all(abs(h * GIB - sum(r["memory"]["components"].values())) < 1e3 for h, r in zip(held, rows)), f"{what}: memory")
    check(not any(more["label"] == "the rest" for _, more in figures.memory(plan, Axes(), components=len(sums)).all("barh")), f"{what}: a rest of nothing")
    check(axes.all("axvline")[0][0] == [rows[0]["memory"]["budget_bytes"] / GIB], f"{what}: what may be used")


def check_timeline():
    for name in ("plan", "megatron"):
        answer = copy.deepcopy(STORED[name])
        line = answer["memory_timeline"]
        for balanced in (None, {"at": [0, 2, 5], "bytes": [GIB, 3 * GIB, 2 * GIB], "peak_bytes": 3 * GIB}):
            line["balanced"] = balanced
            line["row"] = len(answer["rows"]) - 1
            row = answer["rows"][-1]
            row["memory"]["budget_bytes"] = 7 * GIB
            axes = spillway.figures.timeline(results.Plan(answer, results.table_of(answer["rows"])), Axes())
            want = [([line["at"], [b / GIB for b in line["bytes"]]], {"label": "this routing"})]
            want += [([[0, 2, 5], [1.0, 3.0, 2.0]], {"label": "balanced routing"})] if balanced else []
            check(axes.all("plot") == want and axes.all("axhline")[0][0] == [7.0], f"{name}: the line of memory")
            check([words[0] for words, _ in axes.all("axvline")] == [end for _, end in line["phases"].values()], f"{name}: ends of phases")
            check(all(words[1] == 0.0 for words, _ in axes.all("text")) and axes.all("set_ylim") == [([], {"bottom": 0.0})], f"{name}: from 0 on")
            texts = [(words[0], words[2]) for words, _ in axes.all("text")]
            check(texts == [(sum(line["phases"][phase]) / 2, phase) for phase in line["phases"] if phase in ("forward", "backward")], f"{name}: {texts}")
            check(axes.all("set")[0][1]["title"] == f"{row['scheme']}, stage {line['stage']}", f"{name}: title")


def check_popularity():
    """Of a trace of two steps, with as many layers as a legend names, and one more."""
    for layers in (12, 13):
        counts = numpy.arange(2 * layers * 4).reshape(2, layers, 4)
        trace = types.SimpleNamespace(steps=2, layers=layers, layer_ids=range(3, 3 + layers), step_ids=[50, 399], counts=lambda step, counts=counts: counts[step])
        for step, at in ((-1, 1), (0, 0)):
            axes = spillway.figures.popularity(trace, Axes(), step)
            want = [([sorted((row / row.mean()).tolist(), reverse=True)], {"label": f"layer {layer}"}) for layer, row in zip(range(3, 3 + layers), counts[at])]
            check(axes.all("plot") == want and axes.all("axhline")[0][0] == [1.0], f"{layers} layers: lines of experts")
            check(axes.all("set")[0][1] == {"xlabel": "experts, the most chosen first", "ylabel": "assignments over the mean", "title": f"step {[50, 399][at]}"}, "labels")
            check(len(axes.all("legend")) == (layers == 12), f"{layers} layers: a legend")


# --- Searches and the others ---

def check_search(number):
    answer = copy.deepcopy(STORED["search"])
    best, front = answer["best"], answer["front"]
    best.update(surely_fits=number % 2 == 0, verdict=("fits", "tight", "oom")[number % 3], pipeline=1 + number % 2, sequences_per_gpu=1 + number % 3 % 2)
    best["reserved_bytes"] = None if number % 4 == 1 else best["reserved_bytes"]
    best["cost"] = None if number % 5 == 2 else best["cost"]
    answer["tokens"] = None if number % 7 == 3 else 3e11
    sure = answer["best_sure"] = None if number % 3 == 2 else {**answer["best_sure"], "scheme": "other", "tokens_per_s_per_gpu": 987.654 if number % 2 else None}
    for place, point in enumerate(front):
        point.update(verdict=("fits", "tight", "oom")[(place + number) % 3], surely_fits=(place + number) % 4 == 0)
        point["cost"] = point["cost"] if (place + number) % 3 else {**point["cost"], "money": None}
    search = results.Search(answer, results.table_of(front), [])
    held = f"{best['peak_bytes'] / GIB:.1f}" + (f" GiB live, {best['reserved_bytes'] / GIB:.1f} reserved," if best["reserved_bytes"] is not None else "")
    words = "surely fits" if best["surely_fits"] else {"fits": "fits", "tight": "may not fit", "oom": "does not fit"}[best["verdict"]]
    lines = [f"Best: {named(best)} on {best['gpus']} GPUs: {figure(best['tokens_per_s_per_gpu'])} tokens/s a GPU{priced(best['cost'], answer['tokens'])}.",
             f"It {words}: {held} of {best['budget_bytes'] / GIB:.1f} GiB."]
    if sure is None:
        lines.append("No point surely fits.")
    elif not best["surely_fits"]:
        speed = "-" if sure["tokens_per_s_per_gpu"] is None else figure(sure["tokens_per_s_per_gpu"])
        lines.append(f"The best that surely fits: {named(sure)}, {speed} tokens/s a GPU{priced(sure['cost'], answer['tokens'])}.")
    same_shown(f"search {number}", search, lines)
    same_table(f"search {number}", search.table, ([p["scheme"], p["expert_parallel"], p["pipeline"], p["tensor"], p["micro_batches"], p["sequences_per_gpu"],
                                                    verdict(p["verdict"], p["surely_fits"]), p["peak_bytes"] / GIB, column(p["tokens_per_s_per_gpu"]),
                                                    column(p["cost"]["money"])] for p in front))
    check_bars("search", spillway.figures.speed, search, figures_of(front, None, "tokens_per_s_per_gpu", ("tokens_per_s_low", "tokens_per_s_high")), "tokens/s a GPU")
    check_bars("search", spillway.figures.cost, search, figures_of(front, "cost", "money", ("money_low", "money_high"), 1e3), "thousands")
    check(search.best["scheme"] == best["scheme"] and search.best["peak_bytes"] == best["peak_bytes"] and (search.best_sure is None) == (sure is None), "best")
    check(sure is None or search.best_sure["scheme"] == "other", "best_sure")


def check_others():
    model = results.Model({"model": "one", "parameters_total": 12_345_678_901, "parameters_active": 2_050_000_000}, results.table_of([{"part": "a", "parameters": 1}]))
    same_shown("model", model, ["one: 12.3 B parameters, 2.0 B at work on a token."])
    check((model.total, model.active) == (12_345_678_901, 2_050_000_000), "a model's parameters")
    rows = [{"scheme": name, "cases": 2, "comparisons": 1234, "agreed": agreed, **{f"{what}_{side}": 7 for what in ("rows", "bytes", "dropped")
             for side in ("predicted", "executed")}, "values": "exact"} for name, agreed in (("gmm", 1234), ("ring", 1230))]
    for count, agreed in ((2, False), (1, True)):
        verified = results.Verification(results.table_of(rows[:count]))
        same_shown("verify", verified, [f"{sum(r['agreed'] for r in rows[:count]):,} of {1234 * count:,} comparisons agree."])
        check(verified.agreed is agreed and len(verified.table.columns) == 10, "whether verify agreed")
    asked = [{"question": "oom", "scheme": "gmm", "expert_parallel": 4, "sequences_per_gpu": 2, "answer": "never", "severity": "x", "sure": 1.5, "good": 2.5,
              "today": None, "dropped": 0.25}]
    same_table("until", results.Until(asked, results.table_of(asked)).table, [["oom", "gmm", 4, 2, "never", "x", 1.5, 2.5, math.nan, 0.25]])
    score = results.Score({"cells": 3, "share": 0.5, "rows": [], "by": {}}, results.table_of([{str(i): i for i in range(12)}]))
    check(score.figures.to_dict() == {"cells": 3, "share": 0.5} and list(score.table) == [str(i) for i in range(10)], "a score")
    job = results.FrameworkJob({"job": {"model": "m"}, "framework": "bridge", "notes": {"assumed": [{"name": "a", "line": 3, "why": "w"}], "unread": [{"name": "b", "line": 4, "why": "v"}]}})
    check(dict(job) == {"model": "m"} and job.framework == "bridge" and job.notes.values.tolist() == [["assumed", "a", 3, "w"], ["unread", "b", 4, "v"]], "a framework's job")
    for value, want in ((1e12, "1 T"), (999e9, "999 B"), (1e9, "1 B"), (1e6, "1 M"), (999.0, "999"), (1000.0, "1 k"), (0.123456, "0.123"), (-2500.0, "-2.5 k")):
        check(results._amount(value) == want, f"amount {value}: {results._amount(value)}")
    for value, want in ((1000.0, "1,000"), (999.96, "1000"), (12.345, "12.35"), (-1234.5, "-1,234"), (math.nan, "-"), (0.00012345, "0.0001234")):
        check(results._figure(value) == want, f"figure {value}: {results._figure(value)}")


for what, answer in plans():
    check_plan(what, answer)
check_timeline()
check_popularity()
for number in range(24):
    check_search(number)
check_others()
print(f"{checks.count} checks")
