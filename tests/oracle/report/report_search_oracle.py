#!/usr/bin/env python3
"""`spillway report` of searches: every word, figure and reason of a search stands on its page; its file is read as strictly.

report_search_oracle.py SPILLWAY TEST_REPORT SCRATCH ROOT"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import run
from report_cases import FILE, USAGE, at, good, page_path, refused, small_job, small_trace
from report_page import GIB, close, expect, finish, folder, program, report


# --- Cases ---

MEGATRON = ["--model", "olmoe-1b-7b", "--cluster", "h200:8x1", "--scheme", "megatron-alltoall", "--optimizer", "distributed",
            "--memory-fraction", "0.26", "--over", "expert-parallel=4,8", "--sequences-per-gpu", "1,8,16"]
SEARCHES = (["--job", "small"], MEGATRON)
SAID_OTHERWISE = {"surely", "looked", "dropped", "low-high", "skipped", "search", "software", "precision", "routing", "schemes", "budgets", "best", "uneven"}


def boxes(page):
    return next(page.root.all("section", "answer"))


def case_search():
    """Whatever a search prints stands on its page: every word of the text, every figure of its best points, every reason of each row."""
    for words in SEARCHES:
        own = ["--job", small_job, "--trace", small_trace] if words[1] == "small" else words
        command = ["plan", "--search", *own, "--over", "pipeline=1,2", "--over", "micro-batches=1,8", "--price", "2"]
        made, told = run(program, *command, "--format", "json", cwd=folder), run(program, *command, "--wide", cwd=folder)
        answer, what = json.loads(made.stdout), f"search {words[1]}"
        (folder / "found.json").write_text(made.stdout)
        page = report(folder / "found.json")
        text = page.root.text().replace("\xa0", " ")
        lacking = {w for w in re.findall(r"[A-Za-z][A-Za-z_+-]{3,}", told.stdout) if w not in text} - SAID_OTHERWISE
        expect(what, not lacking, f"the page lacks {sorted(lacking)}")
        box, values = boxes(page), boxes(page).values()
        for point in filter(None, (answer["best"], answer["best_sure"])):
            for key in ("peak_bytes", "step_s", "tokens_per_s_per_gpu", "step_tokens", "balanced_tokens_per_s_per_gpu", "balanced_peak_bytes"):
                expect(what, point[key] in values, f"{key} {point[key]} of {values}")
            for key in ("mfu", "tokens_per_day", "days", "gpu_hours", "money", "money_low", "money_high", "tokens_per_day_low", "gpu_hours_high"):
                expect(what, any(close(point["cost"][key], value) for value in values), f"{key} {point['cost'][key]} of {values}")
            expect(what, point["options"] in box.text(), f"no {point['options']}")
        unsure = answer["best_sure"] and answer["best_sure"] != answer["best"]
        expect(what, ("The best that surely fits" in box.text()) == bool(unsure), box.text())
        expect(what, ("No point surely fits" in box.text()) == (answer["best_sure"] is None), box.text())
        check_box(what, box, answer)
        check_front(what, page.section("Points that no other beats"), answer["front"])
    expect(what, answer["best_sure"], "no point surely fits: the test sees nothing")
    doubted = json.loads((folder / "found.json").read_text())  # its best point may not fit, and the next does
    doubted["best"].update(surely_fits=False, verdict="tight")
    for sure in (doubted["front"][1], None):
        doubted["best_sure"] = sure
        (folder / "doubted.json").write_text(json.dumps(doubted))
        check_box("doubted", boxes(report(folder / "doubted.json")), doubted)
    expect(what, {"A run.", "Routing.", "Memory.", "Drops.", "certain", "sure"} <= seen_in_boxes, f"boxes had {seen_in_boxes}")


def point_words(p):
    """How a point is called: what is 1 is not said, but EP, FSDP and GPUs."""
    words = [f", EP {p['expert_parallel']} \xd7 FSDP {p['fsdp']}"]
    words += [f" \xd7 pipeline {p['pipeline']}"] * (p["pipeline"] > 1) + [f" (virtual stages {p['virtual_stages']})"] * (p["virtual_stages"] >= 1)
    words += [f", {name} {p[key]}" for key, name in (("tensor", "tensor"), ("context", "context"), ("expert_tensor", "expert tensor")) if p[key] > 1]
    words += [f" on {p['gpus']} GPUs, {p['sequences_per_gpu']} sequences"] + [f" in {p['micro_batches']} micro-batches"] * (p["micro_batches"] > 1)
    return p["scheme"] + "".join(words) + f", remat {p['remat']}"


def check_box(what, box, answer):
    """Speed, days, cost, memory and the point that surely fits, a row each; and what would change the answer, found anew in the front."""
    best, sure, cost = answer["best"], answer["best_sure"], answer["best"]["cost"]
    rows = {next(tr.all("th")).text(): tr for tr in next(box.all("table", "facts")).all("tr")}
    held = max(best["peak_bytes"], best["reserved_bytes"] or 0)
    want = {"speed": [best["tokens_per_s_per_gpu"]], "time": [cost["days"], cost["days_low"], cost["days_high"], answer["tokens"]],
            "cost": [cost["money"], cost["money_low"], cost["money_high"]], "memory": [held]}
    for name, values in want.items():
        expect(what, all(close(a, b) for a, b in zip(rows[name].values(), values)) and len(rows[name].values()) == len(values), f"{name}: {rows[name].text()}")
    expect(what, rows["memory"].text().endswith("it surely fits" if best["surely_fits"] else "may not fit"), rows["memory"].text())
    text = rows["surely fits"].text()
    if sure is None:
        expect(what, "none of the points" in text, text)
    elif best["surely_fits"]:
        expect(what, "this point" in text, text)
    else:
        more = sure["cost"]["money"] - cost["money"]
        slower = 100 * (1 - sure["tokens_per_s_per_gpu"] / best["tokens_per_s_per_gpu"])
        expect(what, point_words(sure) in text and f"{abs(slower):.1f}\xa0% {'slower' if slower > 0 else 'faster'}" in text, text)
        values = rows["surely fits"].values()
        expect(what, close(values[0], sure["cost"]["days"]) and close(values[-1], abs(more)) and any(close(v, sure["cost"]["money"]) for v in values), text)
    items = {next(li.all("b")).text(): li.text() for li in box.all("li") if list(li.all("b"))}
    others = [p for p in answer["front"] if p["options"] != best["options"]]
    fitting, speed = [p for p in others if p["verdict"] == "fits"], lambda p: p["tokens_per_s_per_gpu"]
    expect(what, ("A run." in items) == bool(fitting), f"{items}")
    if fitting:
        second = max(map(speed, fitting))
        overlap = [p for p in fitting if speed(p) == second]
        ends = {p["tokens_per_s_high"] > best["tokens_per_s_low"] and best["tokens_per_s_high"] > p["tokens_per_s_low"] for p in overlap}
        expect(what, any(point_words(p) in items["A run."] for p in overlap), f"{items['A run.']}")
        expect(what, ("do not overlap" not in items["A run."]) in ends, items["A run."])
        expect(what, f"{abs(100 * (second / speed(best) - 1)):.1f}\xa0%" in items["A run."], items["A run."])
    tight = [p for p in others if p["verdict"] != "fits" and speed(p) > 1.005 * speed(best)]
    expect(what, ("Memory." in items) == bool(tight), f"{items}")
    if tight:
        expect(what, any(point_words(p) in items["Memory."] for p in tight if speed(p) == max(map(speed, tight))), items["Memory."])
    even = lambda p: p["balanced_tokens_per_s_per_gpu"]
    wins = [p for p in fitting if even(p) > 1.005 * even(best) and even(p) == max(map(even, fitting))]
    told = items.get("Routing.", "")
    expect(what, bool(told) == (bool(wins) or even(best) / speed(best) - 1 > 0.005), f"{told}: {even(best)} of {speed(best)}")
    expect(what, any(point_words(p) in told for p in wins) if wins else "still the fastest" in told or not told, told)
    expect(what, ("Drops." in items) == (answer["fates"]["replayed_drops"] > 0) and ("More memory a GPU." in items) == (answer["fates"]["replayed_oom"] > 0),
           f"{items} {answer['fates']}")
    seen_in_boxes.update(items, ["sure" if sure and not best["surely_fits"] else "certain"])


seen_in_boxes = set()


def check_front(what, section, front):
    """Letters and what every point has are the reasons of each row; a column has figures that differ, and others are said once."""
    notes = [p.text() for p in section.all("p", "note")]
    every = [n.removeprefix("Outside the fit, every point: ").rstrip(".").split("; ") for n in notes if n.startswith("Outside the fit, every")]
    letters = {next(li.all("b")).text(): li.text()[len(next(li.all("b")).text()) + 1:] for li in section.all("li")}
    rows = [tr for tr in section.all("tr") if list(tr.all("td"))]
    expect(what, len(rows) == min(len(front), 40), f"{len(rows)} rows of {len(front)}")
    for tr, point in zip(rows, front):
        want = {item["feature"] for item in point["outside_fit"]}
        cell = list(tr.all("td"))[-1].text().split() if letters else []
        got = set(every[0] if every else []) | {letters[letter] for letter in cell if letter != "–"}
        expect(what, got == want, f"reasons {got}, not {want}")
        expect(what, point["tokens_per_s_per_gpu"] in tr.values() and any(close(point["cost"]["money"], v) for v in tr.values()), tr.text())
        mark = "*" * (point["memory_kind"] == "live") + "?" * (not point["surely_fits"])
        expect(what, f"{point['peak_bytes'] / GIB:.1f}{mark}" in [td.text() for td in tr.all("td")], f"no mark '{mark}': {tr.text()}")
    heads = [th.text() for th in next(section.all("thead")).all("th")]
    for key, head in (("pipeline", "PP"), ("tensor", "TP"), ("fsdp", "FSDP"), ("virtual_stages", "VPP")):
        differ = len({point[key] for point in front[:40]}) > 1
        expect(what, (head in heads) == differ and (differ or any(f"{head} {front[0][key]}" in n for n in notes)), f"{head}: {heads} {notes}")


def case_search_damage():
    """The answer of a search is read as strictly; what anybody wrote into it is text."""
    file, bad = folder / "search.json", folder / "bad.json"
    done = run(program, "plan", "--search", "--job", small_job, "--trace", small_trace, "--over", "pipeline=1", "--over", "micro-batches=1",
               "--format", "json", cwd=folder)
    expect("a search", done.returncode == 0, done.stderr)
    file.write_text(done.stdout)
    answer = json.loads(done.stdout)
    expect("a search", len(answer["front"]) > 1 and len(answer["plans"]) > 1, "the search says little")
    for words, path, value in ((["format_version 2"], ("format_version",), 1), (["model"], ("model",), 3), (["search.points"], ("points",), -1),
                               (["fates"], ("fates",), []), (["front"], ("front",), {}), (["front"], ("front", 1), 5),
                               (["front.scheme"], ("front", 1, "scheme"), None), (["front.peak_bytes"], ("front", 1, "peak_bytes"), "x"),
                               (["best.gpus"], ("best", "gpus"), 1e300), (["best"], ("best",), 3), (["plans"], ("plans",), None),
                               (["plans"], ("plans",), [answer["plans"][0]] * 17), (["plans"], ("plans", 0), []),
                               (["plans", "spillway-result"], ("plans", 0), {"format": "spillway-search"}),
                               (["plans", "rows: must be 1 to"], ("plans", 0, "rows"), []), (["plans", "replay"], ("plans", 0, "plan"), None)):
        other = json.loads(done.stdout)
        at(other, *path[:-1])[path[-1]] = value
        bad.write_text(json.dumps(other))
        refused(f"search: {path} = {value}"[:90], FILE, ["bad.json", *words], "report", bad, "--output", page_path)
    refused("a replay beside a search", USAGE, ["goes with a plan"], "report", file, "--replay", good, "--output", page_path)
    evil = "<script>alert(1)</script>\u202e</section>"
    for point in (answer["best"], *answer["front"]):
        point["scheme"] = point["remat"] = evil
        point["outside_fit"] = [{"of": "time", "feature": evil}, 3, {"feature": 5}]
        point["cost"] = 3
    answer.update(model=evil, cluster=evil, routing=evil, intervals=evil)
    answer["fates"][evil] = evil
    bad.write_text(json.dumps(answer))
    text = report(bad).root.text()
    expect("a hostile search", "alert(1)" in text and "\u202e" not in text, "what anybody wrote is not text")
    none = json.loads(file.read_text())
    none.update(best=None, best_sure=None, front=[], plans=[], nothing=None)
    bad.write_text(json.dumps(none))
    expect("nothing found", "No point keeps to the budgets" in report(bad).root.text(), "a search that found nothing says so")


case_search()
case_search_damage()
finish(100)
