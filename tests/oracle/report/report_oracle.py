#!/usr/bin/env python3
"""`spillway report`: the page is read by Python's own HTML parser, and every number in it is held against the JSON of the same
replay and against the datasets of the result file; the command that it prints is run again; hostile names stay text; a damaged file
is refused in one line.

report_oracle.py SPILLWAY TEST_REPORT SCRATCH ROOT"""
import html.parser
import json
import math
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import unittest.mock

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import most_bytes
from replay_case import Case, Tokens, run

OK, USAGE, FILE = 0, 2, 3
program, unit = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
folder, root = pathlib.Path(sys.argv[3]).resolve() / "report_oracle", pathlib.Path(sys.argv[4]).resolve()
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
failures, checks = [], 0
GIB, VOID = 2.0**30, {"meta", "br"}


def expect(what, good, detail=""):
    global checks
    checks += 1
    if not good:
        failures.append(f"{what}: {detail}")


# --- The page ---

class Node:
    def __init__(self, tag, attributes=(), parent=None):
        self.tag, self.attributes, self.parent, self.parts = tag, dict(attributes), parent, []

    def all(self, tag=None, mark=None):
        for part in self.parts:
            if isinstance(part, Node):
                if (tag is None or part.tag == tag) and (mark is None or mark in part.attributes.get("class", "").split()):
                    yield part
                yield from part.all(tag, mark)

    def text(self):
        return "".join(part if isinstance(part, str) else part.text() for part in self.parts)

    def values(self):
        return [float(node.attributes["value"]) for node in self.all("data")]


class Page(html.parser.HTMLParser):
    """Every element is closed, in order; whatever could fetch or run something is a failure."""
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.root = self.at = Node("")
        self.feed(text)
        self.close()
        expect("html", self.at is self.root, f"<{self.at.tag}> is left open")
        places = [node.attributes["id"] for node in self.root.all() if "id" in node.attributes]
        expect("html", len(set(places)) == len(places), f"places that stand twice: {places}")
        links = {node.attributes["href"][1:] for node in self.root.all("a")}
        expect("html", links <= set(places), f"links to nowhere: {links - set(places)}")

    def handle_starttag(self, tag, attributes):
        expect("html", tag not in ("script", "iframe", "img", "link", "object", "embed", "base", "form", "image", "use", "foreignobject"),
               f"<{tag}>")
        expect("html", len({name for name, _ in attributes}) == len(attributes), f"<{tag}> has an attribute twice")
        for name, value in attributes:
            expect("html", not name.startswith("on") and name not in ("src", "xlink:href", "srcset", "action"), f"<{tag} {name}={value!r}>")
            expect("html", name != "href" or (tag == "a" and re.fullmatch(r"#[a-z-]+", value)), f"<{tag} {name}={value!r}>")
        node = Node(tag, attributes, self.at)
        self.at.parts.append(node)
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.at = node

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        expect("html", self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>")
        self.at = self.at.parent or self.at

    def handle_data(self, data):
        self.at.parts.append(data)

    def handle_decl(self, declaration):
        expect("html", declaration == "DOCTYPE html", declaration)

    def section(self, head):
        found = [s for s in self.root.all("section") if any(h.text() == head for h in s.all("h2"))]
        expect("html", len(found) == 1, f"{len(found)} sections '{head}'")
        return found[0] if found else Node("")


def report(result, *extra, name=None):
    """The page of a result, made in silence and the same twice."""
    out = folder / (name or "report.html")
    for _ in range(2):
        before = out.read_bytes() if out.exists() else None
        done = run(program, "report", result, "--output", out, *extra)
        expect(f"report {result}", done.returncode == 0 and not done.stderr and not done.stdout, f"{done.returncode} {done.stderr}")
    text = out.read_text()
    expect(f"report {result}", before is None or before == out.read_bytes(), "the same result makes another page")
    expect(f"report {result}", "url(" not in text and "@import" not in text and "http://" not in text.replace("http-equiv", ""),
           "the page refers to something outside of it")
    expect(f"report {result}", "default-src 'none'" in text, "no content policy")
    out.unlink()
    return Page(text)


def replayed(what, trace, job, *arguments, cwd=None):
    """A replay that writes a result; its JSON."""
    result = folder / f"{what}.h5"
    done = run(program, "replay", trace, "--job", job, "--output", result, "--format", "json", *arguments, cwd=cwd)
    if done.returncode != 0:
        sys.exit(f"{what}: {done.stderr}")
    return result, json.loads(done.stdout)


# --- Numbers ---

def close(a, b, within=1e-12):
    return abs(a - b) <= within * max(abs(a), abs(b), 1e-300)


def in_doubt(row):
    memory = row["memory"]
    return memory["verdict"] != "oom" and most_bytes(row) > memory["budget_bytes"] and not memory["allocator"]


def lacks_copies(answer):
    """fp8 without a recipe, whose copies nothing counts: what fits does not surely fit."""
    precision = answer["settings"]["job"]["precision"]
    return "fp8" in [precision[kind] for kind in ("weights", "gradients", "activations")]


def check_lead(what, page, answer):
    """The first sentence says that what fits may not, where the most that it may take is over the budget, or not known."""
    fit, lead = [r for r in answer["rows"] if r["memory"]["verdict"] != "oom"], next(page.root.all("p", "lead")).text()
    rows = answer["rows"]
    surely = sum(row["memory"]["surely_fits"] if "surely_fits" in row["memory"] else not in_doubt(row) for row in fit)
    if not fit:
        return
    if len(rows) == 1:
        expect(what, lead.startswith("It fits" if surely else "It may not fit"), lead)
    elif surely == len(rows):
        expect(what, lead.startswith("Every point fits" if "plan" in answer else "Every scheme fits"), lead)
    else:
        expect(what, lead.startswith(f"{surely or len(fit)} of {len(rows)} ") and (" fit on" if surely else " may fit on") in lead, lead)
    expect(what, (f"{len(fit) - surely} more may not fit" in lead) == (0 < surely < len(fit)), f"{lead}, {surely} of {len(fit)} surely")


intervals = {"tables": 0, "fast": 0}


def check_interval(what, page, answer):
    """What the interval of the first row's step is made of: every cause is explained, and the parts add up to the high end."""
    tables = list(page.root.all("table", "interval"))
    for table in tables:
        lines = [[cell.text() for cell in list(tr.all("th")) + list(tr.all("td"))] for tr in table.all("tr")][1:]
        parts, fast = [float(line[1]) for line in lines[:-1] if line[0] != "fast_end"], [line for line in lines if line[0] == "fast_end"]
        expect(what, lines[-1][0] == "together" and all(line[2] for line in lines), f"{lines}")
        expect(what, abs(sum(parts) - float(lines[-1][1])) < 1e-3 + 5e-4 * len(parts), f"{lines}: the parts do not add up")
        expect(what, any(row["time"]["step_s"] is not None and abs(math.log(row["time"]["high_s"] / row["time"]["step_s"]) - float(lines[-1][1])) < 6e-4
                         for row in answer["rows"]), f"{lines}: of no row's interval")
        intervals["fast"] += len(fast)
    said = [row for row in answer["rows"] if row["time"].get("doubts")]
    expect(what, len(tables) <= 1 and bool(tables) <= bool(said), f"{len(tables)} tables of an interval")
    intervals["tables"] += len(tables)



def check_intervals(what, tr, time):
    """The interval below a step, over balanced and a speed holds the figure above it; that of the ratio is as wide up as down, and no
    wider than the doubts of its two steps together."""
    cells = [td for td in tr.all("td") if re.fullmatch(r"[\d.]+ to [\d.]+", "".join(small.text() for small in td.all("small")))][-3:]
    keys = (("step_s", "low_s", "high_s"), ("over_balanced", "over_balanced_low", "over_balanced_high"),
            ("tokens_per_s_per_gpu", "tokens_per_s_low", "tokens_per_s_high"))
    expect(what, len(cells) == 3, f"{len(cells)} intervals: {tr.text()}")
    for td, (value, low, high) in zip(cells, keys):
        ends = [float(end) for end in next(td.all("small")).text().split(" to ")]
        expect(what, close(ends[0], time[low], 0.006) and close(ends[1], time[high], 0.006), f"{low}: {ends} of {time}")
        expect(what, close(td.values()[0], time[value]) and ends[0] * 0.994 <= td.values()[0] <= ends[1] * 1.006,
               f"{value} {td.values()} lies beside {ends}")
    width = math.log(time["over_balanced_high"] / time["over_balanced"])
    most = sum(math.log(time[high] / time[mid]) for mid, high in (("step_s", "high_s"), ("balanced_step_s", "balanced_high_s")))
    expect(what, close(time["over_balanced"], time["step_s"] / time["balanced_step_s"]) and 0 <= width <= 1.001 * most and
           abs(width - math.log(time["over_balanced"] / time["over_balanced_low"])) < 1e-9, f"{width} of {most}: {time}")


def check_table(what, page, answer):
    rows = [tr for tr in page.section("Scheme by scheme").all("tr")
            if any(th.attributes.get("scope") == "row" for th in tr.all("th"))]
    expect(what, len(rows) == len(answer["rows"]), f"{len(rows)} rows")
    timed = any(r["time"]["step_s"] is not None for r in answer["rows"])
    replayed_any = any(r["memory"]["allocator"] for r in answer["rows"])
    for tr, row in zip(rows, answer["rows"]):
        memory, traffic, time = row["memory"], row["traffic"], row["time"]
        expect(what, next(tr.all("th")).text() == row["scheme"], tr.text())
        expect(what, next(tr.all("span", "verdict")).text() == memory["verdict"], tr.text())
        expect(what, any(small.text() == "may not fit" for small in tr.all("small")) ==
               (in_doubt(row) or (lacks_copies(answer) and memory["verdict"] != "oom")), f"{row['scheme']}: {tr.text()}")
        want = [memory["oom_probability"], memory["p50_bytes"], memory["p99_bytes"], memory["max_bytes"],
                memory["max_bytes"] / memory["budget_bytes"]]
        if replayed_any and memory["allocator"]:
            want += [memory["allocator"]["reserved"][key] for key in ("p50_bytes", "p99_bytes", "max_bytes")]
        want += [row["drops"]["fraction"], traffic["rows_max"] / traffic["rows_mean"], traffic["max_link_bytes"], traffic["step_bytes_per_gpu"]]
        if timed and time["step_s"] is not None:
            want += [time["step_s"], time["step_s"] / time["balanced_step_s"], time["tokens_per_s_per_gpu"]]
        expect(what, len(tr.values()) == len(want) and all(map(close, tr.values(), want)), f"{row['scheme']}: {tr.values()} want {want}")
        shown = tr.text()
        for text in (f"{memory['max_bytes'] / GIB:.2f}", f"{100 * row['drops']['fraction']:.2f}\xa0%",
                     f"{traffic['max_link_bytes'] / 1e6:.2f}", f"{traffic['rows_max'] / traffic['rows_mean']:.2f}"):
            expect(what, text in shown, f"{row['scheme']}: no {text} in {shown}")
        if time["step_s"] is not None:
            expect(what, f"{time['step_s']:.3f}" in shown and f"{time['step_s'] / time['balanced_step_s']:.3f}×" in shown, shown)
            check_intervals(what, tr, time)


def bars(section):
    for table in section.all("table", "bars"):
        scale = [float(span.text()) for span in table.all("span")]
        left = [float(re.search(r"[\d.]+", span.attributes["style"])[0]) for span in table.all("span")]
        end = 100.0 * scale[-1] / left[-1]
        for tr in table.all("tr"):
            if tr.all("svg") and list(tr.all("svg")):
                yield end, tr


def check_scales(what, page):
    """Numbers of a scale have room on a phone, where every second one is left out and the name stands above the bar."""
    pixels, a_digit = 360 - 2 * 16 - 84, 7
    for table in page.root.all("table", "bars"):
        spans = list(table.all("span"))[::2]
        at = [pixels * float(re.search(r"[\d.]+", span.attributes["style"])[0]) / 100 for span in spans]
        for i in range(1, len(spans)):
            room = at[i] - at[i - 1]
            expect(what, room > a_digit * (len(spans[i].text()) + len(spans[i - 1].text())) / 2, f"{spans[i].text()}: {room:.0f} pixels")


def check_labels(what, page):
    """Texts of a picture keep clear of each other and of its edges: their boxes, from its own coordinates."""
    a_letter, up, down = 6.2, 9.0, 3.0  # of 11 pixels
    for svg in page.root.all("svg", "panel"):
        wide = float(svg.attributes["viewbox"].split()[2])
        boxes = []
        for text in svg.all("text"):
            x, y, length = float(text.attributes["x"]), float(text.attributes["y"]), a_letter * len(text.text())
            left = x - length * {"start": 0, "middle": 0.5, "end": 1}[text.attributes["text-anchor"]]
            expect(what, left > -1 and left + length < wide + 1, f"'{text.text()}' leaves the picture")
            boxes.append((left, left + length, y - up, y + down, text.text()))
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                expect(what, a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2], f"'{a[4]}' lies on '{b[4]}'")


def check_bars(what, page, answer):
    """Lengths of bars, in thousandths of the scale that the page writes below them."""
    for (end, tr), row in zip(bars(page.section("Memory against the budget")), answer["rows"]):
        memory = row["memory"]
        width = {r.attributes["class"]: float(r.attributes["width"]) for r in tr.all("rect")}
        x = {l.attributes["class"]: float(l.attributes["x1"]) for l in tr.all("line")}
        held = width.get("held", width.get("over", 0.0))
        expect(what, ("over" in width) == (memory["verdict"] == "oom"), f"{row['scheme']}: {width}")
        expect(what, abs(held - min(1000.0, 1000 * memory["max_bytes"] / GIB / end)) < 0.02, f"{row['scheme']}: {held} of {end}")
        expect(what, abs(x["budget"] - 1000 * memory["budget_bytes"] / GIB / end) < 0.02, f"{x} of {end}")
        expect(what, tr.values() == [memory["max_bytes"]], tr.text())
        below = memory["max_bytes"] <= memory["budget_bytes"] and memory["allocator"] and memory["oom_probability"] > 0.0
        bound = memory["kind"] == "live" and not memory["allocator"] and memory["verdict"] == "oom"
        expect(what, ("≥" in tr.text()) == bool(below or bound), f"out of memory, although the bar ends before the budget: {tr.text()}")
        expect(what, (memory["max_bytes"] / GIB > end) <= bool(list(tr.all("path", "cut"))), "a bar is cut and does not say so")
    for head, key, unit, part in (("What fills the memory", "memory", GIB, float), ("What crosses the links", "traffic", 1e9, float),
                                  ("What a step waits for", "time", 1.0, lambda c: c["exposed_s"])):
        rows = [row for row in answer["rows"] if row[key].get("components")]
        if not rows:
            continue
        found = list(bars(page.section(head)))
        expect(what, len(found) == len(rows), f"{head}: {len(found)} bars")
        names = [li.text() for li in page.section(head).all("li")]
        for (end, tr), row in zip(found, rows):
            components = {name.replace("_", " "): part(c) for name, c in row[key]["components"].items()}
            total = sum(components.values())
            expect(what, close(tr.values()[0], total, 1e-9), f"{head}: {tr.values()} want {total}")
            if total / unit > end:
                continue
            for n, name in enumerate(names):
                rect = [r for r in tr.all("rect", f"c{n}")]
                want = 1000 * components.get(name, 0.0) / unit / end
                got = float(rect[0].attributes["width"]) if rect else 0.0
                if not name.endswith(" more"):
                    expect(what, abs(got - want) < 0.02, f"{head}, {row['scheme']}, {name}: {got} want {want}")
            if key == "traffic" and row[key]["whole_step_bytes_per_gpu"] is not None:
                expect(what, close(total, row[key]["whole_step_bytes_per_gpu"], 1e-9), f"{head}: {total}")


def check_overload(what, page, answer):
    """Parts of a bar end at the factors, its number is the factor that step time follows and what that costs."""
    found = list(bars(page.section("What uneven rows cost")))
    expect(what, len(found) == len(answer["rows"]), f"{len(found)} bars of overload factors")
    for (end, tr), row in zip(found, answer["rows"]):
        o, cost = row["overload"], row["overload"]["slowest_by_layer"]["over_balanced"]
        at = 0.0
        for name, key in (("c0", "slowest_rank"), ("c1", "slowest_by_layer"), ("c2", "max")):
            rect = list(tr.all("rect", name))
            at = max(at, float(rect[0].attributes["x"]) + float(rect[0].attributes["width"]) if rect else 0.0)
            expect(what, abs(at - 1000 * o[key]["mean"] / end) < 0.03, f"{row['scheme']}, {key}: {at} of {end}")
        mark = next(l for l in tr.all("line", "whisker"))
        expect(what, abs(float(mark.attributes["x1"]) - 1000 * o["max"]["worst"] / end) < 0.03, f"{row['scheme']}: {mark.attributes}")
        want = [o["slowest_by_layer"]["mean"]] + ([100 * (cost - 1)] if cost is not None else [])
        expect(what, len(tr.values()) == len(want) and all(abs(a - b) < 1e-9 for a, b in zip(tr.values(), want)), f"{tr.values()} want {want}")


def check_steps(what, page, result, answer):
    """Every point of every line, by the scale at its left."""
    with h5py.File(result) as f:
        gib = {"held": f["peak_gib"][...], "allocated": f["allocated_gib"][...], "reserved": f["reserved_gib"][...]}
    steps = gib["held"].shape[1]
    section = page.section("Memory against the budget")
    panels, replays = list(section.all("figure")), [bool(row["memory"]["allocator"]) for row in answer["rows"]]
    bins = min(steps, 120)
    binned = {name: np.stack([g[:, [s for s in range(steps) if s * bins // steps == b]].max(1) for b in range(bins)], 1) for name, g in gib.items()}
    moves = [r for r in range(len(gib["held"])) if any(np.ptp(g[r]) >= 0.005 for name, g in binned.items() if name == "held" or replays[r])]
    flat_rows = [answer["rows"][r]["scheme"] for r in range(len(replays)) if r not in moves and steps > 1]
    told = [p.text() for p in section.all("p", "note") if p.text().startswith("The same in every step")]
    expect(what, len(panels) == (len(moves) if steps > 1 else 0), f"{len(panels)} panels of {len(moves)} rows that change")
    expect(what, len(told) == bool(flat_rows) and all(name in told[0] for name in flat_rows), f"{told} of {flat_rows}")
    for r, panel in zip(moves, panels):
        ticks = [(float(t.attributes["y"]) - 4, float(t.text())) for t in panel.all("text") if t.attributes["text-anchor"] == "end"
                 and float(t.attributes["x"]) < 60]
        (y0, v0), (y1, v1) = ticks[0], ticks[-1]
        for line in panel.all("polyline"):
            name = line.attributes["class"].split()[1]
            points = [tuple(map(float, p.split(","))) for p in line.attributes["points"].split()]
            drawn = [v0 + (y - y0) * (v1 - v0) / (y1 - y0) for _, y in points]
            bins = len(points)
            want = [gib[name][r][[s for s in range(steps) if s * bins // steps == b]].max() for b in range(bins)]
            expect(what, bins == min(steps, 120), f"{bins} points of {steps} steps")
            expect(what, np.abs(np.array(drawn) - want).max() <= 0.11 * v1 / 120, f"{name} of {r}: {drawn[:4]} want {want[:4]}")
            expect(what, all(a[0] < b[0] for a, b in zip(points, points[1:])), "steps out of order")


def groups(rows):
    """Results with the same rows and batch, by the first of them."""
    found = []
    for r in range(len(rows)):
        for group in found:
            if np.array_equal(rows[group[0]], rows[r]):
                group.append(r)
                break
        else:
            found.append([r])
    return found


def check_rows(what, page, result, answer):
    """Every cell's level, the worst ratio, and the bars of the worst step by GPU."""
    limits = [1.1, 1.25, 1.5, 2, 3, 4, 6]
    with h5py.File(result) as f:
        rows, step, layer = f["rows_received"][...], f["step"][...], f["layer"][...]
    ratio = np.where(rows.sum(3) > 0, rows.max(3) / np.maximum(rows.mean(3), 1e-300), 0)
    panels, ranks = list(page.section("Where rows pile up").all("figure")), list(page.section("The worst step, GPU by GPU").all("figure"))
    found = groups(rows)
    bins = (min(rows.shape[1], 120), min(rows.shape[2], 80))

    def cells_of(r):
        cells = np.zeros(bins, np.float32)
        np.maximum.at(cells, np.ix_(*[np.arange(n) * b // n for n, b in zip(ratio.shape[1:], bins)]), ratio[r].astype(np.float32))
        return cells
    # A picture of one value is left out, and the value is said.
    uneven = [group for group in found if np.ptp(cells_of(group[0])) > 1e-6 * cells_of(group[0]).flat[0]]
    lopsided = [group for group in found if (at := np.argwhere(rows[group[0]] == rows[group[0]].max())[0]) is not None and
                rows[group[0], at[0], at[1]].min() < rows[group[0]].max()]
    expect(what, len(panels) == len(uneven) and len(ranks) == len(lopsided), f"{len(panels)} and {len(ranks)} panels of {len(uneven)} and {len(lopsided)}")
    for group in found:
        for i in group:
            name = answer["rows"][i]["scheme"]
            even = [p for p in page.section("Where rows pile up").all("p", "note") if p.text().startswith(name) and "in every layer and step" in p.text()]
            expect(what, bool(even) == (group not in uneven) and all(close(p.values()[0], ratio[i].max()) for p in even), f"{name}: {[p.text() for p in even]}")
            level = [p for p in page.section("The worst step, GPU by GPU").all("p", "note") if "Every GPU holds the same" in p.text() and name in p.text()]
            expect(what, bool(level) or group in lopsided, f"{name}: nobody says that its GPUs hold the same")
    panel_of, bar_of = dict(zip([g[0] for g in uneven], panels)), dict(zip([g[0] for g in lopsided], ranks))
    first_row = answer["answers"]["fastest"] if answer["answers"] else None
    check_hottest(what, page, result, rows, step, layer, first_row)
    for group in lopsided:
        bar, first = bar_of[group[0]], group[0]
        most = rows[first].max()
        s, l, r = np.argwhere(rows[first] == most)[0]
        expect(what, bar.values() == [most], f"{bar.values()} want {most}")
        expect(what, f"step {step[s]}, layer {layer[l]}: GPU {r} holds" in bar.text(), bar.text())
        heights = sorted(float(v) for path in bar.all("path") for v in re.findall(r"v-([\d.]+)h", path.attributes["d"]))
        want = sorted(rows[first, s, l])
        if len(want) <= 256:
            expect(what, len(heights) == len(want), f"{len(heights)} bars of {len(want)} GPUs")
            expect(what, np.abs(np.array(heights) * want[-1] / heights[-1] - want).max() <= 0.002 * want[-1], f"{heights[:4]} {want[:4]}")
    for group in uneven:
        first, panel = group[0], panel_of[group[0]]
        for i in group:
            expect(what, answer["rows"][i]["scheme"] in next(panel.all("b")).text(), panel.text())
        expect(what, close(panel.values()[0], ratio[first].max()), f"{panel.values()} want {ratio[first].max()}")
        cells = {}
        for path in panel.all("path"):
            for x, y, wide, high in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)", path.attributes["d"]):
                cells.setdefault(int(path.attributes["class"][1:]), 0)
                cells[int(path.attributes["class"][1:])] += float(wide) * float(high)
        binned = cells_of(first)
        total = sum(cells.values())
        for level in range(8):
            want = float((np.searchsorted(np.float32(limits), binned.ravel(), side="right") == level).mean())
            expect(what, abs(cells.get(level, 0) / total - want) < 0.01, f"level {level}: {cells.get(level, 0) / total} want {want}")


def check_hottest(what, page, result, rows, step, layer, first):
    """The hottest expert and the fullest GPU are named in the answer, and the links go to their pictures."""
    told = [p for section in page.root.all("section", "answer") for p in section.all("p") if "The fullest GPU is" in p.text()]
    if first is None:
        return
    s, l, r = np.argwhere(rows[first] == rows[first].max())[0]
    mean, most = rows[first, s, l].mean(), rows[first].max()
    expect(what, len(told) == (most > mean), f"{len(told)} sentences of the fullest GPU")
    if not told:
        return
    expect(what, f"{r} in layer {layer[l]} of step {step[s]}" in told[0].text() and told[0].values()[-1] == most and
           f"{most / mean:.2f} times the mean" in told[0].text(), told[0].text())
    with h5py.File(result) as f:
        choices = f["expert_choices"][...].astype(float)
    ratio = choices / np.maximum(choices.mean(2, keepdims=True), 1e-300)
    s, l, x = np.argwhere(ratio == ratio.max())[0]
    expect(what, f"hottest expert is {x} of layer {layer[l]} in step {step[s]}" in told[0].text() and close(told[0].values()[0], ratio.max()), told[0].text())
    expect(what, [a.attributes["href"] for a in told[0].all("a")] == ["#experts", "#gpus", "#rows"], told[0].text())


def check_experts(what, page, result):
    """Every cell of experts by layers; the matrix of GPUs, whose colours are sevenths of its largest."""
    limits = np.float32([1.1, 1.25, 1.5, 2, 3, 4, 6])
    with h5py.File(result) as f:
        choices, links, step = f["expert_choices"][...].astype(float), f["link_bytes"][...], f["step"][...]
    ratio = (choices / choices.mean(2, keepdims=True)).astype(np.float32)
    bins = (min(ratio.shape[0], 6), min(ratio.shape[1], 40), min(ratio.shape[2], 128))
    binned = np.zeros(bins, np.float32)
    index = np.ix_(*[np.arange(n) * b // n for n, b in zip(ratio.shape, bins)])
    np.maximum.at(binned, index, ratio)
    panels = list(page.section("Which experts are chosen").all("figure"))
    expect(what, len(panels) == bins[0], f"{len(panels)} panels of {bins[0]} steps")
    for s, panel in enumerate(panels):
        expect(what, f"step {step[[i for i in range(len(step)) if i * bins[0] // len(step) == s][0]]}" in panel.text(), panel.text())
        expect(what, close(panel.values()[0], float(binned[s].max()), 1e-6), f"{panel.values()} want {binned[s].max()}")
        check_cells(what, panel, np.searchsorted(limits, binned[s], side="right"))
    panels = list(page.section("Who sends to whom").all("figure"))
    results, ranks, members = links.shape
    whole = np.zeros((results, ranks, ranks))
    for rank in range(ranks):
        whole[:, rank, rank - rank % members:rank - rank % members + members] = links[:, rank]
    kinds = groups(np.concatenate([whole, np.broadcast_to(np.reshape(sequences_of(result), (-1, 1, 1)), (results, 1, ranks))], 1))
    expect(what, len(panels) == min(len(kinds), 12), f"{len(panels)} panels of {len(kinds)} kinds of links")
    for group, panel in zip(kinds, panels):
        matrix = whole[group[0]]
        expect(what, panel.values()[0] == matrix.max(), f"{panel.values()[:1]} want {matrix.max()}")
        check_cells(what, panel, np.where(matrix > 0, np.clip(np.ceil(7 * matrix / max(matrix.max(), 1e-300) - 1e-9), 1, 7), 0).astype(int))


def sequences_of(result):
    with h5py.File(result) as f:
        return f["sequences_per_gpu"][...].astype(float)


def check_cells(what, panel, want):
    """Colours of a panel's cells, down by across."""
    down, across = want.shape
    runs = [(int(path.attributes["class"][1:]), *map(float, run)) for path in panel.all("path")
            for run in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)", path.attributes["d"])]
    wide, high, got = 300 / across, min(run[4] for run in runs), np.full(want.shape, -1)
    for level, x, y, length, _ in runs:
        left, top = round((x - 52) / wide), round((y - 10) / high)
        got[top, left:left + round(length / wide)] = level
    expect(what, np.array_equal(got, want), f"{np.argwhere(got != want)[:4]} of {want.shape}")


def check_chosen(what, result, case, tokens, scheme, row_bytes):
    """What the file says of experts and links, counted from the choices one by one."""
    with h5py.File(result) as f:
        choices, links, names = f["expert_choices"][...], f["link_bytes"][...], [s.decode() for s in f["scheme"][...]]
        sent, received = f["bytes_sent"][...].mean((1, 2)), f["bytes_received"][...].mean((1, 2))
    ids = tokens.expert_id.reshape(choices.shape[0], case.ranks, case.tokens, case.model_layers, case.top_k)
    want = np.stack([[np.bincount(ids[s, :, :, l].ravel(), minlength=case.experts) for l in range(case.model_layers)] for s in range(len(ids))])
    expect(what, np.array_equal(choices, want), "choices of the experts")
    local, pairs = case.experts // case.expert, np.zeros((case.ranks, case.expert))
    for rank in range(case.ranks):
        for member in range(case.expert):
            if member != rank % case.expert:
                pairs[rank, member] = (ids[:, rank] // local == member).sum() * row_bytes / (len(ids) * case.model_layers)
    got = links[names.index(scheme)]
    expect(what, np.allclose(got, pairs, rtol=1e-12), f"links of {scheme}: {got[0]} want {pairs[0]}")
    expect(what, np.allclose(links.sum(2), sent, rtol=1e-12), "links are not what ranks send")
    into = np.stack([[links[r, g - g % case.expert:g - g % case.expert + case.expert, g % case.expert].sum() for g in range(case.ranks)]
                     for r in range(len(links))])
    expect(what, np.allclose(into, received, rtol=1e-12), "links are not what ranks receive")


def check_timeline(what, page, answer):
    """The lines of memory within the step hold the numbers of the result, reach its peak exactly, and stand where these are; what is
    written around them is not cut and keeps clear of each other on a phone, on a desk and on paper."""
    said, sections = answer.get("memory_timeline"), list(page.root.all("section", "timeline"))
    expect(what, len(sections) == (said is not None), f"{len(sections)} timelines")
    if not sections or said is None:
        return
    section, row = sections[0], answer["rows"][said["row"]]
    plot, lines = next(section.all("div", "plot")), list(section.all("polyline"))
    end = said["phases"]["optimizer"][1]
    expect(what, len(lines) == (2 if said["balanced"] else 1), f"{len(lines)} lines")
    for line, want in zip(lines, (said, said["balanced"])):
        at, heights = (list(map(float, line.attributes[f"data-{key}"].split())) for key in ("at", "bytes"))
        drawn = [tuple(map(float, point.split(","))) for point in line.attributes["points"].split()]
        expect(what, at == want["at"] and heights == want["bytes"] and len(drawn) == len(at) <= 600, f"{len(drawn)} points")
        expect(what, max(heights) == want["peak_bytes"], f"{max(heights)} reached, {want['peak_bytes']} predicted")
        scale = [(float(re.search(r"[\d.]+", span.attributes["style"])[0]), float(span.text())) for span in next(plot.all("div", "up")).all("span")]
        (y0, v0), (y1, v1) = scale[0], scale[-1]
        wrong = [abs(y - y0 - (b / GIB - v0) * (y1 - y0) / (v1 - v0)) for (_, y), b in zip(drawn, heights)]
        expect(what, max(wrong) < 0.15 and max(abs(x - 1000 * a / end) for (x, _), a in zip(drawn, at)) < 0.006, f"{max(wrong)} pixels")
        expect(what, all(0 <= y <= 240 for _, y in drawn), "the line leaves the picture")
    expect(what, said["peak_bytes"] == row["memory"]["max_bytes"] == section.values()[0], f"{said['peak_bytes']} of {row['memory']['max_bytes']}")
    largest = sorted(row["memory"]["components"].values(), reverse=True)[:6]
    named = [v for v in section.values()[1 + (said["balanced"] is not None):]]
    expect(what, named == [b for b in largest if b > 0], f"largest there: {named} want {largest}")
    at = said["at"][said["bytes"].index(said["peak_bytes"])]
    if said["phases"]["backward"][0] < at < said["phases"]["backward"][1]:
        layer = said["layers"][int(said["phases"]["backward"][1] - at)]
        expect(what, f"in the backward pass of layer {layer}" in section.text(), f"peak at {at}: {section.text()[-300:]}")
    for wide in (390 - 2 * 16 - 44, 1180 - 2 * 24 - 58, 700):
        for line in ([s for s in next(plot.all("div", "axis")).parts[0].all("span")], list(next(plot.all("div", "phases")).all("span"))):
            boxes = []
            for span in line:
                side, number = re.match(r"(left|right):([\d.]+)", span.attributes["style"]).groups()
                length, x = 7 * len(span.text()), wide * float(number) / 100
                left = wide - x - length if side == "right" else x if len(line) == 3 and not span.text().isdigit() else x - length / 2
                boxes.append((left, left + length, span.text()))
                expect(what, left > -12 and left + length < wide + 12, f"'{span.text()}' is cut at {wide} pixels")
            boxes.sort()
            for a, b in zip(boxes, boxes[1:]):
                expect(what, a[1] + 3 <= b[0], f"'{a[2]}' lies on '{b[2]}' at {wide} pixels")


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


def check_basis(what, page, answer):
    said = [li.text() for li in page.section("What this rests on").all("li")]
    for row in answer["rows"]:
        expect(what, any(s.startswith(row["evidence"] + ":") for s in said), f"{row['evidence']} is not said")
        for sentence in row["assumptions"]:
            expect(what, said.count(sentence) == 1, f"'{sentence}' is said {said.count(sentence)} times")
    figures = [tr for tr in next(page.section("Sources").all("table", "figures")).all("tr")][1:]
    sources = answer["sources"]
    expect(what, len(figures) == len(sources["figures"]) >= 7, f"{len(figures)} figures")
    for tr, figure in zip(figures, sources["figures"]):
        expect(what, figure["evidence"] in tr.text() and figure["source"] in tr.text(), tr.text())
        expect(what, tr.values() == ([figure["value"]] if figure["value"] is not None else []), tr.text())
    text = page.section("Sources").text()
    for scheme in sources["schemes"]:
        expect(what, scheme["source"] in text and scheme["section"][0].isdigit(), f"{scheme}")
    for fit in sources["fits"]:
        expect(what, fit["tables"] in text, f"{fit}")
    settings = json.loads(list(page.section("To run it again").all("pre"))[1].text())
    want = json.dumps(answer["settings"], ensure_ascii=False).replace("\u202e", "\ufffd")
    expect(what, settings == json.loads(want), "other settings")


def check_again(what, page, answer, cwd):
    """The printed command gives the same rows."""
    command = shlex.split(next(page.section("To run it again").all("pre")).text().replace("\\\n", " "))
    expect(what, command[:2] == ["spillway", "replay"], f"{command}")
    done = run(program, *command[1:], "--format", "json", cwd=cwd)
    expect(what, done.returncode == 0 and json.loads(done.stdout)["rows"] == answer["rows"], f"{command}: {done.returncode} {done.stderr}")


def label(answer, row):
    """How the page names a row: its scheme, and its batch where there are several."""
    batches = {r["sequences_per_gpu"] for r in answer["rows"]}
    return row["scheme"] + (f" {row['sequences_per_gpu']} seq" if len(batches) > 1 else "")


unsure = {"nothing": 0, "as little": 0}


def check_choices(what, section, answer, most):
    """Who is named is the first of the replay's order that may be; where the limit is the replay's, its own answer."""
    rows, order = answer["rows"], answer["answers"]["order"]
    first = lambda may: next((i for i in order if may(rows[i])), None)
    any_, whole = first(lambda r: r["drops"]["fraction"] <= most), first(lambda r: r["drops"]["dropped"] == 0)
    sure = first(lambda r: r["drops"]["dropped"] == 0 and r["memory"]["surely_fits"])
    if most == answer["answers"]["drop_at_most"] and rows[order[0] if order else 0]["time"]["step_s"] is not None:
        expect(what, (any_, whole, sure) == tuple(answer["answers"][name] for name in ("fastest", "fastest_dropless", "fastest_dropless_sure")),
               f"{any_} {whole} {sure}, answers {answer['answers']}")
    named = chosen(section)
    for i in (any_, whole):
        if i is not None and rows[i]["time"]["step_s"] is not None:
            time = rows[i]["time"]
            expect(what, any(name.startswith(label(answer, rows[i])) for name in named), f"{label(answer, rows[i])} is not chosen: {named}")
            expect(what, f"a step in {time['step_s']:.2f} s ({time['low_s']:.2f} to {time['high_s']:.2f}), {time['tokens_per_s_per_gpu']:.0f} tokens/s "
                   f"a GPU ({time['tokens_per_s_low']:.0f} to {time['tokens_per_s_high']:.0f})" in section.text(), section.text())
    if whole is not None and sure not in (None, whole):
        expect(what, f"surely fits: {rows[sure]['scheme']}" in section.text(), section.text())
    if whole is not None and sure is None:
        expect(what, "No point without drops surely fits." in section.text(), section.text())
        unsure["nothing"] += 1
    little = first(lambda r: r["drops"]["fraction"] <= most and r["memory"]["surely_fits"])
    if any_ not in (None, whole) and little is None and rows[any_]["time"]["step_s"] is not None:
        expect(what, ("No point with as few drops surely fits." if most > 0 else "No point without drops surely fits.") in section.text(), section.text())
        unsure["as little"] += 1
    if not order:
        expect(what, rows[answer["answers"]["least_memory"]]["scheme"] in next(section.all("p", "lead")).text(), section.text())


def check_answer(what, page, answer, most=0.01):
    section = next(page.root.all("section", "answer"))
    words = {row["evidence"] for row in answer["rows"]} - {"exact"}
    expect(what, ("synthetic" in section.text()) == answer["trace"]["synthetic"], section.text())
    expect(what, bool(words) == ("not of this job" in section.text()), section.text())
    expect(what, not words or any(f"it is {word} to fit" in section.text() for word in words), section.text())
    fit = [r for r in answer["rows"] if r["memory"]["verdict"] != "oom"]
    lead = next(section.all("p", "lead")).text()
    if not fit:
        expect(what, "fits" in lead or "not fit" in lead, lead)
        expect(what, "Nothing fits" in lead or "does not fit" in lead, lead)
    check_choices(what, section, answer, most)
    timed = [r for r in fit if r["time"]["step_s"] is not None]
    whole = [r for r in timed if r["drops"]["dropped"] == 0]
    named = [b.text().split(" ")[0] for b in section.all("b")]
    little = [r for r in timed if r["drops"]["fraction"] <= most]
    if little:
        fastest = max(little, key=lambda r: r["time"]["tokens_per_s_per_gpu"])
        expect(what, named[0] == fastest["scheme"] and f"{fastest['time']['step_s']:.2f} s" in section.text(), section.text())
    if whole:
        fastest = max(whole, key=lambda r: r["time"]["tokens_per_s_per_gpu"])
        expect(what, fastest["scheme"] in named and f"{fastest['time']['tokens_per_s_per_gpu']:.0f} tokens/s" in section.text(), section.text())
    elif timed:
        expect(what, "Nothing fits that drops at most" in section.text(), section.text())
    tempting = max(timed, key=lambda r: r["time"]["tokens_per_s_per_gpu"], default=None)
    if tempting is not None:
        told = [p.text() for p in section.all("p") if "too many drops" in p.text()]
        expect(what, len(told) == (tempting["drops"]["fraction"] > most), f"{told}")
        expect(what, all(f"drops {100 * tempting['drops']['fraction']:.2f} %" in text.replace("\xa0", " ") and tempting["scheme"] in text for text in told), f"{told}")
        found = [f["factor"] for f in answer.get("smallest_factors") or [] if f["scheme"] == tempting["scheme"] and f["drop_at_most"] <= most]
        expect(what, all((f"a factor of {found[0]:.3f}" in text) if found else "replay --drop-at-most" in text for text in told), f"{told} {found}")
    precision = answer["settings"]["precision"]
    expect(what, ("fp8" in precision.values()) == ("fp8 " in section.text() and "one byte an element" in section.text()), section.text())
    for row in fit:  # of the row that the answer is about
        if row["scheme"] == named[0] and row["memory"]["high_bytes"] > row["memory"]["budget_bytes"] and timed == [row]:
            expect(what, "may not fit" in section.text(), section.text())


def whole_check(what, result, answer, cwd=None, again=True):
    page = report(result)
    check_answer(what, page, answer)
    check_table(what, page, answer)
    check_bars(what, page, answer)
    check_overload(what, page, answer)
    check_scales(what, page)
    check_labels(what, page)
    check_timeline(what, page, answer)
    check_lead(what, page, answer)
    check_steps(what, page, result, answer)
    check_rows(what, page, result, answer)
    check_experts(what, page, result)
    check_basis(what, page, answer)
    if again:
        check_again(what, page, answer, cwd)
    done = subprocess.run([unit, result], capture_output=True, text=True)
    expect(what, done.returncode == 0, done.stderr)
    return page


# --- Cases ---

rng = np.random.default_rng(1)


def tokens_of(case, steps, skew=0.0):
    rows = case.ranks * case.tokens
    weight = rng.random((steps * rows, case.model_layers, case.experts)) + skew * np.linspace(1, 0, case.experts)
    ids = np.argsort(-weight, axis=2)[:, :, :case.top_k].astype(np.uint8)
    rank = np.tile(np.repeat(np.arange(case.ranks), case.tokens), steps)
    sequence = np.tile(np.repeat(np.arange(case.ranks * case.sequences), case.length), steps)
    position = np.tile(np.arange(case.length), steps * case.ranks * case.sequences)
    return Tokens(ids, [rows] * steps, case.experts, case.ranks, rank, sequence, position)


small = Case(nodes=2, gpus_per_node=4, expert=4, experts=8, top_k=2, sequences=2, length=8, model_layers=3, hidden=64, ffn=32,
             schemes=("dense:capacity_factor=1.25", "gmm", "gmm-deepep", "megatron-alltoall", "ring"))
small_job = small.write(folder)
small_tokens = tokens_of(small, 5, 1.5)
small_trace = small_tokens.write(folder / "small.h5")


def case_small():
    result, answer = replayed("case_small", small_trace, small_job)
    whole_check("small", result, answer)
    check_chosen("chosen", result, small, small_tokens, "megatron-alltoall", 2 * 64 + 4)  # and a probability
    result, answer = replayed("case_batches", small_trace, small_job, "--sequences-per-gpu", "2,1,4", "--steps", "1:4", "--layers", "0:2",
                              "--seed", "7", "--drop-at-most", "5", "--fits-at", "99", "--scheme", "dense:capacity_factor=1.25", "--scheme",
                              "gmm:buffer_factor=1.5", "--scheme", "megatron-alltoall:capacity_factor=1,policy=position")
    page = whole_check("batches", result, answer)
    whole_check("keys", *replayed("case_keys", small_trace, small_job, "--sequences-per-gpu", "2,1", "--memory-fraction", "0.5", "--set",
                                  "precision.optimizer=fp32"))
    text = next(page.root.all("section", "answer")).text()
    expect("batches", [b.text().replace("\n", "") for b in page.root.all("tr", "batch")] == ["2 sequences a GPU", "1 sequence a GPU",
           "4 sequences a GPU"], "no heads of batches")
    for answered in answer["smallest_factors"]:
        expect("batches", answered["factor"] is None or f"{answered['factor']:.3f}" in text, text)
    for answered in answer["largest_batches"]:
        expect("batches", str(answered["sequences_per_gpu"]) in text, text)


def case_over():
    """What must be live is more than there is: a lower bound, and the bar says so."""
    case = Case(nodes=1, gpus_per_node=4, expert=4, experts=8, top_k=2, sequences=1, length=128, model_layers=2, hidden=1024, ffn=512,
                schemes=("megatron-alltoall", "gmm"))
    job, cluster = case.write(folder, "over"), folder / "over_cluster.yaml"
    cluster.write_text(cluster.read_text().replace("value: 80,", "value: 1,"))
    result, answer = replayed("over", tokens_of(case, 2).write(folder / "over_trace.h5"), job, "--memory-fraction", "0.001")
    expect("over", all(row["memory"]["verdict"] == "oom" and row["memory"]["kind"] == "live" for row in answer["rows"]), "the case is none")
    whole_check("over", result, answer)


def case_timed():
    """64 GPUs, step times, intervals: some fit, some do not."""
    trace = folder / "deepseek.h5"
    run(program, "trace", "generate", trace, "--counts-only", "--experts", 256, "--top-k", 8, "--layers", 3, "--first-layer", 3, "--ranks", 64,
        "--tokens-per-rank", 4096, "--hidden", 7168, "--distribution", "lognormal:sigma=0.5")
    result, answer = replayed("timed", trace, root / "sim/jobs/deepseek-v3-mi355x.yaml", "--stack", "maxtext-rocm-2026-05", "--scheme", "ragged",
                              "--sequences-per-gpu", "1", "--scheme", "gmm", "--scheme", "dense:capacity_factor=1.25", "--scheme", "gmm-deepep")
    expect("timed", {r["memory"]["verdict"] for r in answer["rows"]} >= {"oom", "fits"}, "the case does not try both")
    whole_check("timed", result, answer)
    check_answer("60 percent", report(result, "--drop-at-most", 60), answer, 0.6)
    check_answer("nothing", report(result, "--drop-at-most", 0), answer, 0.0)
    refused = run(program, "report", result, "--output", folder / "no.html", "--drop-at-most", "much")
    expect("timed", refused.returncode == 2 and "percentage" in refused.stderr, refused.stderr)
    result, answer = replayed("searched", trace, root / "sim/jobs/deepseek-v3-mi355x.yaml", "--stack", "maxtext-rocm-2026-05", "--scheme", "gmm-deepep",
                              "--scheme", "dense:capacity_factor=1.25", "--drop-at-most", 1, "--sequences-per-gpu", 1)
    expect("searched", "a factor of" in next(report(result).root.all("section", "answer")).text(), "the factor that was searched is not said")
    fp8 = folder / "fp8.yaml"  # what is not modelled is said where the answer is
    text = (root / "sim/jobs/deepseek-v3-mi355x.yaml").read_text()
    fp8.write_text(re.sub("(?m)^precision:.*", "precision: {weights: fp8, gradients: bf16, optimizer: bf16, activations: fp8}", text))
    result, answer = replayed("fp8", trace, fp8, "--stack", "maxtext-rocm-2026-05", "--scheme", "gmm", "--sequences-per-gpu", 1)
    expect("fp8", answer["rows"][0]["time"]["step_s"] is None, "fp8 has a time")
    whole_check("fp8", result, answer)


def edited(result, change, whole=lambda answer: None):
    """The page of the same result after a change of its rows, and then of the whole."""
    copy = folder / "edited.h5"
    shutil.copy(result, copy)
    with h5py.File(copy, "r+") as f:
        answer = json.loads(f["summary_json"][()])
        change(answer["rows"])
        whole(answer)
        text = json.dumps(answer).encode()
        del f["summary_json"]
        f.create_dataset("summary_json", data=text, dtype=h5py.string_dtype("utf-8", len(text)))
    page = report(copy)
    copy.unlink()
    return next(page.root.all("section", "answer"))


def doubts(section):
    """Who is doubted, paragraph by paragraph: the first name of each, "" where it names nobody."""
    return ["".join(b.text() for b in list(p.all("b"))[:1]) for p in section.all("p", "doubt")]


def chosen(section):
    """Whom the answer names as a choice, in order: paragraphs that are neither the lead nor a doubt."""
    return [next(p.all("b")).text() for p in section.all("p") if "class" not in p.attributes and list(p.all("b"))]


def case_order():
    """The page names the first of the replay's order, whatever the numbers of the rows say: it derives nothing itself."""
    result, answer = replayed("ties", small_trace, small_job, "--sequences-per-gpu", "1,2", "--scheme", "gmm", "--scheme", "gmm-deepep",
                              "--scheme", "ring")
    names = [row["scheme"] for row in answer["rows"]]
    expect("order", len(answer["rows"]) == 6 and all(row["time"]["step_s"] is None for row in answer["rows"]), "six rows without times")
    want = sorted(range(6), key=lambda i: (-answer["rows"][i]["sequences_per_gpu"], answer["rows"][i]["memory"]["max_bytes"], i))
    expect("order", answer["answers"]["order"] == want, f"{answer['answers']['order']}, without times the larger batch, then less memory: {want}")
    expect("order", answer["answers"]["fastest"] is None, "fastest without a time")
    for order in ([5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5], [3, 0, 1, 2, 4, 5]):
        name = chosen(edited(result, lambda rows: None, lambda a: a["answers"].update(order=order)))[0]
        expect("order", name.split()[0] == names[order[0]] and (order[0] < 3) == ("1 seq" in name), f"order {order}: {name}")


def case_doubts():
    """A choice is doubted where the fit does not reach, where its interval passes the budget and where it is tight, each in its own
    paragraph that begins with its name, whatever the words are; and not where none of that holds."""
    job = root / "sim/jobs/deepseek-v3-mi355x.yaml"
    trace = folder / "deepseek_doubts.h5"
    run(program, "trace", "generate", trace, "--experts", 256, "--top-k", 8, "--layers", 1, "--first-layer", 3, "--ranks", 64,
        "--steps", 1, "--tokens-per-rank", 4096, "--hidden", 7168)

    def answered(scheme, *arguments):
        return replayed("doubts", trace, job, "--scheme", scheme, "--sequences-per-gpu", "1", "--stack", "maxtext-rocm-2026-05", *arguments)

    result, answer = answered("gmm")
    budget = answer["rows"][0]["memory"]["budget_bytes"]
    unnamed = doubts(edited(result, lambda rows: None))  # of the routing, which is generated and folded
    expect("doubts", "gmm" not in unnamed, f"a choice inside of the fit is doubted: {unnamed}")
    for change, want in ((dict(high_bytes=budget + 1, surely_fits=False), 1), (dict(high_bytes=budget), 0), (dict(verdict="tight"), 1),
                         (dict(verdict="tight", high_bytes=budget + 2**30, surely_fits=False), 1)):
        got = doubts(edited(result, lambda rows: rows[0]["memory"].update(change)))
        expect("doubts", got == ["gmm"] * want + unnamed, f"{change}: doubts of {got}")
    result, answer = answered("gmm", "--expert-parallel", "4")  # published runs have 8 and 16
    got = doubts(edited(result, lambda rows: None))
    expect("doubts", got == ["gmm"] + unnamed, f"4 ranks, which were not fitted: doubts of {got}; {answer['rows'][0]['assumptions']}")
    got = doubts(edited(result, lambda rows: rows[0].update(assumptions=["gmm: beyond what was fitted: nothing"], outside_fit=[])))
    expect("doubts", got == unnamed, f"a sentence alone is no doubt: {got}")
    got = doubts(edited(result, lambda rows: rows[0]["memory"].update(high_bytes=budget + 1, surely_fits=False)))
    expect("doubts", got == ["gmm"] * 2 + unnamed, f"4 ranks and an interval over the budget: doubts of {got}")


def case_long():
    """More steps than a picture has columns; PyTorch's allocator beside what is live; bare layers."""
    case = Case(nodes=1, gpus_per_node=4, expert=4, experts=8, top_k=2, sequences=1, length=128, model_layers=2, hidden=512, ffn=256, remat="none",
                schemes=("megatron-alltoall", "dense:capacity_factor=1"))
    job = case.write(folder, "long")
    job.write_text(job.read_text() + "model_part: expert_layers\nlayers: 2\nmemory_fraction: 0.05\n")
    cluster = folder / "long_cluster.yaml"
    cluster.write_text(cluster.read_text().replace("value: 80,", "value: 1,"))  # so that a step's change is seen
    result, answer = replayed("long", tokens_of(case, 150, 1.0).write(folder / "long_trace.h5"), job, "--allocator", "max_split_size_mb:64")
    expect("long", answer["rows"][0]["memory"]["allocator"] is not None, "no allocator was replayed")
    page = whole_check("long", result, answer)
    with h5py.File(result) as f:
        gib, bins = f["peak_gib"][0], [s * 120 // 150 for s in range(150)]
    lost = max(gib[s] - gib[s + 1] for s in range(149) if bins[s] == bins[s + 1])
    expect("long", lost > 0.01 * gib.max(), f"no bin has its largest step first: {lost}")
    expect("long", "150 steps in 120 bins" in page.root.text(), "bins are not said")
    budget = 1.002 * answer["rows"][0]["memory"]["max_bytes"] / GIB  # what is live fits, what the allocator reserves does not
    job.write_text(job.read_text().replace("memory_fraction: 0.05", f"memory_fraction: {budget}"))
    result, answer = replayed("short", folder / "long_trace.h5", job, "--allocator", "max_split_size_mb:64")
    memory = answer["rows"][0]["memory"]
    expect("short", memory["verdict"] == "oom" and memory["max_bytes"] <= memory["budget_bytes"], "the case is none")
    whole_check("short", result, answer)
    files = root / "tests/cli/files"
    shutil.copytree(files, folder / "files")
    run(program, *shlex.split((files / "trace.arguments").read_text()), cwd=folder / "files")
    result, answer = replayed("staged", "trace.h5", "staged.yaml", "--scheme", "gmm", "--scheme", "gmm-deepep", cwd=folder / "files")
    whole_check("stages", result, answer, cwd=folder / "files")


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
    trace = folder / "deepseek.h5"
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


def at(answer, *path):
    for key in path:
        answer = answer[key]
    return answer


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


def case_hostile():
    """Names of files and texts in files are text, wherever they stand."""
    place = folder / "x<script>alert(1)</script>"  # a slash cannot be in a name: the end tag makes a folder
    place.mkdir(parents=True)
    name = "a'b\"<img src=x onerror=alert(2)>&amp;\u202e.h5"
    trace = place / name
    shutil.copy(small_trace, trace)
    with h5py.File(trace, "r+") as f:
        f["model"].attrs["name"] = "<b onmouseover=alert(3)>model</b>"
        f.attrs["source"] = "</ul></section><svg onload=alert(4)>"
        f.attrs["license"] = "]]><!--"
    job = place / "job'; rm -rf $HOME; '.yaml"
    job.write_text(small_job.read_text().replace("./case", f"{folder}/case"))
    result, answer = replayed("hostile", trace, job)
    hostile = place / "r<script>.h5"
    shutil.copy(result, hostile)
    page = whole_check("hostile", hostile, answer, again=False)
    text = page.root.text()
    expect("hostile", "<script>alert(1)</script>" in text and "</ul></section><svg onload=alert(4)>" in text, "names are not there as text")
    expect("hostile", "\u202e" not in text and "\x1b" not in text, "text that turns itself around")
    command = shlex.split(next(page.section("To run it again").all("pre")).text().replace("\\\n", " "))
    expect("hostile", command[2] == str(trace).replace("\u202e", "\ufffd") and command[4] == str(job), f"{command[:5]}")
    raw = os.fsencode(folder) + b"/r\xff\xc3<.h5"
    shutil.copy(result, raw)
    done = subprocess.run([program, "report", raw, "--output", folder / "raw.html"], capture_output=True)
    expect("hostile", done.returncode == 0 and (folder / "raw.html").read_text("utf-8", "strict"), done.stderr)
    os.unlink(folder / "raw.html")


# --- Damage ---

def refused(what, status, words, *arguments, lines=1, **keywords):
    before = sorted((p.name, p.stat().st_mtime_ns) for p in folder.iterdir())
    done = run(program, *arguments, cwd=folder, **keywords)
    said = done.stderr.rstrip("\n").split("\n")
    expect(what, done.returncode == status, f"exit {done.returncode}, want {status}: {done.stderr!r}")
    expect(what, 1 <= len(said) <= lines and said[0], f"{len(said)} lines on stderr: {done.stderr!r}")
    for word in words:
        expect(what, word in done.stderr, f"no '{word}' in {done.stderr!r}")
    expect(what, done.stdout == "", f"stdout: {done.stdout[:200]!r}")
    expect(what, all(c.isprintable() or c == "\n" for c in done.stderr), f"control characters: {done.stderr!r}")
    expect(what, sorted((p.name, p.stat().st_mtime_ns) for p in folder.iterdir()) == before, "files were left behind or changed")


good, good_answer = replayed("good", small_trace, small_job)
page_path = folder / "page.html"


def bad_file(what, words, change, accepted=False):
    path = folder / "bad.h5"
    shutil.copy(good, path)
    with h5py.File(path, "r+") as f:
        change(f)
    if accepted:
        return report(path)
    refused(what, FILE, ["bad.h5", *words], "report", path, "--output", page_path)
    path.unlink()
    return None


def put(f, name, data):
    del f[name]
    f[name] = data


def summary(change):
    """Changes the JSON, in a text of fixed length as the writer's."""
    def apply(f):
        answer = json.loads(f["summary_json"][()])
        text = change(answer)
        put(f, "summary_json", np.bytes_((text if isinstance(text, str) else json.dumps(answer)).encode()))
    return apply


def set_in(*path, to):
    def change(answer):
        at = answer
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to
    return summary(change)


def damage():
    def of(path):
        return "report", path, "--output", page_path
    page_path.write_text("the page before")
    refused("missing", FILE, ["nowhere.h5"], *of("nowhere.h5"))
    refused("a folder", FILE, [], *of(folder))
    (folder / "text.h5").write_text("no HDF5\n")
    refused("not HDF5", FILE, ["text.h5", "HDF5"], *of("text.h5"))
    refused("a trace", FILE, ["small.h5", "format is 'moe-routing-trace'", "spillway-result"], *of(small_trace))
    whole = good.read_bytes()
    for part in (0, 8, 100, 1000, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        (folder / "cut.h5").write_bytes(whole[:part])
        refused(f"cut to {part}", FILE, ["cut.h5"], *of("cut.h5"))

    bad_file("other format", ["format is 'a?b'"], lambda f: f.attrs.__setitem__("format", "a\x1bb"))
    for version in ("2.0.0", "", "10.0", "x"):
        bad_file(f"version {version}", ["format_version", "1.x"], lambda f, v=version: f.attrs.__setitem__("format_version", v))
    bad_file("no version", ["format_version"], lambda f: f.attrs.__delitem__("format_version"))
    names = ("rows_received", "bytes_sent", "bytes_received", "dropped", "peak_gib", "allocated_gib", "reserved_gib", "step", "layer", "rank",
             "result", "sequences_per_gpu", "summary_json")
    for name in names:
        bad_file(f"without {name}", [f"/{name}", "missing"], lambda f, n=name: f.__delitem__(n))
    for name in names[:4]:
        bad_file(f"{name} of 3 axes", [f"/{name}", "must have 4"], lambda f, n=name: put(f, n, f[n][0]))
        bad_file(f"{name} of floats", [f"/{name}", "integers"], lambda f, n=name: put(f, n, f[n][...].astype(float)))
        bad_file(f"{name} of fewer ranks", [f"/{name}", "dimension 3"], lambda f, n=name: put(f, n, f[n][:, :, :, :-1]))
        bad_file(f"{name} of fewer steps", [f"/{name}", "dimension 1"], lambda f, n=name: put(f, n, f[n][:, :-1]))
    for value in (np.nan, np.inf, -1.0, 1e300):
        bad_file(f"peak of {value}", ["/peak_gib", "step 2"], lambda f, v=value: f["peak_gib"].__setitem__((1, 2), v))
    bad_file("no steps", ["/step", "must be 1 to"], lambda f: put(f, "step", np.zeros(0, np.int64)))
    bad_file("5000 results", ["/result"], lambda f: put(f, "result", np.zeros(5000, np.uint64)))
    bad_file("10^5 layers", ["/layer"], lambda f: put(f, "layer", np.zeros(10**5, np.int32)))
    bad_file("other sequences", ["/summary_json", "3"], lambda f: put(f, "sequences_per_gpu", np.full(5, 3, np.uint64)))

    def vast(f):  # 2^22 steps of 2^16 ranks on paper, none on the disk
        for name, extent in (("step", (2**22,)), ("rank", (2**16,))):
            del f[name]
            f.create_dataset(name, extent, np.int64, chunks=(2**16,))
        for name in names[:4]:
            del f[name]
            f.create_dataset(name, (5, 2**22, 3, 2**16), np.uint64, chunks=(1, 1, 3, 2**16))
    bad_file("2^41 cells", ["stored"], vast)

    def elsewhere(f):
        data = f["rows_received"][...]
        with h5py.File(folder / "other.h5", "w") as other:
            other["x"] = data
        del f["rows_received"]
        f["rows_received"] = h5py.ExternalLink("other.h5", "/x")
    bad_file_link = folder / "other.h5"
    bad_file_link.touch()
    path = folder / "bad.h5"
    shutil.copy(good, path)
    with h5py.File(path, "r+") as f:
        elsewhere(f)
    refused("a link to another file", FILE, ["/rows_received", "link"], "report", path, "--output", page_path)

    for name in ("expert_choices", "link_bytes"):
        bad_file(f"{name} of 2 axes", [f"/{name}", "must have 3"], lambda f, n=name: put(f, n, f[n][0]))
        bad_file(f"{name} of fewer", [f"/{name}", "dimension 1"], lambda f, n=name: put(f, n, f[n][:, :-1]))
        bad_file(f"{name} of fewer still", [f"/{name}", "dimension 0"], lambda f, n=name: put(f, n, f[n][:-1]))
        bad_file(f"{name} of none", [f"/{name}"], lambda f, n=name: put(f, n, f[n][:, :, :0]))
    bad_file("choices of floats", ["/expert_choices", "integers"], lambda f: put(f, "expert_choices", f["expert_choices"][...].astype(float)))
    for value in (np.nan, -1.0, np.inf):
        bad_file(f"links of {value}", ["/link_bytes", "result 1"], lambda f, v=value: f["link_bytes"].__setitem__((1, 0, 1), v))
    plain = bad_file("1.2", [], lambda f: [f.__delitem__(n) for n in ("expert_choices", "link_bytes")], accepted=True)
    expect("a file of version 1.2", "Who sends" not in plain.root.text() and "Which experts" not in plain.root.text(), "pictures of nothing")

    # the summary
    bad_file("a text of variable length", ["/summary_json", "fixed length"], lambda f: put(f, "summary_json", f["summary_json"][()].decode()))
    bad_file("no JSON", ["/summary_json", "JSON"], summary(lambda a: "{"))
    bad_file("a list", ["no object"], summary(lambda a: "[]"))
    bad_file("a key twice", ["/summary_json", "duplicate"], summary(lambda a: '{"format": 1, "format": 2}'))
    bad_file("10^5 deep", ["/summary_json"], summary(lambda a: "[" * 100000))
    bad_file("not UTF-8", ["/summary_json"], lambda f: put(f, "summary_json", np.bytes_(b'{"format": "\xff"}')))
    bad_file("other JSON", ["format spillway-result"], set_in("format", to="x"))
    bad_file("version 2 of the JSON", ["version 1"], set_in("version", to=2))
    for path, value, words in ((("rows",), [], "rows; must be 5"), (("rows", 0), 7, "objects"), (("rows", 0, "memory"), None, "rows.memory"),
                               (("rows", 0, "memory", "verdict"), "maybe", "verdict"), (("rows", 2, "memory", "max_bytes"), -1, "max_bytes"),
                               (("rows", 2, "memory", "max_bytes"), "many", "max_bytes"), (("rows", 2, "memory", "oom_probability"), 1.5, "oom"),
                               (("rows", 2, "memory", "components"), [], "components"),
                               (("rows", 2, "memory", "components"), {str(i): 1 for i in range(2000)}, "more than"),
                               (("rows", 1, "traffic", "components", "exchanges"), -5, "components"), (("rows", 1, "steps", "count"), 4, "steps"),
                               (("rows", 1, "sequences_per_gpu"), 9, "9 sequences"), (("rows", 1, "assumptions"), [1], "assumptions"),
                               (("rows", 1, "scheme"), None, "scheme"), (("settings", "parallel", "expert"), 8, "8 x 2 ranks"),
                               (("rows", 1, "memory", "by_newest_stack"), {"stack": 1}, "by_newest_stack.stack"),
                               (("rows", 1, "memory", "by_newest_stack"), {"stack": "x", "verdict": "?"}, "by_newest_stack.verdict"),
                               (("rows", 1, "memory", "by_newest_stack"), {"stack": "x", "verdict": "oom", "peak_bytes": 1e19}, "peak_bytes"),
                               (("answers", "order"), [0, 1, 2, 3], "5 rows"), (("answers", "order"), [0, 1, 2, 3, 3], "twice"),
                               (("answers", "order"), [0, 1, 2, 3, 5], "from 0 to 4"), (("answers", "order"), [0, 1, 2, 3, -1], "from 0 to 4"),
                               (("answers", "order"), [0, 1, 2, 3, "x"], "from 0 to 4"), (("answers", "order"), None, "5 rows"),
                               (("answers", "least_memory"), 5, "least_memory"),
                               (("memory_timeline", "row"), 5, "memory_timeline.row"), (("memory_timeline", "row"), -1, "from 0 to 4"),
                               (("memory_timeline", "at"), [1, 0], "goes back"), (("memory_timeline", "at"), [0] * 601, "1 to 600"),
                               (("memory_timeline", "at"), [0, 1e9], "numbers from 0"), (("memory_timeline", "bytes"), [0], "as in at"),
                               (("memory_timeline", "bytes"), [], "1 to 600"), (("memory_timeline", "bytes"), ["x"], "numbers from 0"),
                               (("memory_timeline", "phases"), 3, "phases"), (("memory_timeline", "phases", "loss"), [5, 1], "rise"),
                               (("memory_timeline", "phases", "forward"), [1], "rise"), (("memory_timeline", "layers"), None, "layers"),
                               (("memory_timeline", "stage"), "x", "stage"), (("memory_timeline", "balanced"), {"at": [0]}, "bytes"),
                               (("memory_timeline",), 7, "memory_timeline"),
                               (("settings",), None, "settings"), (("rows", 0, "time"), {"step_s": 1.0}, "low_s")):
        bad_file(f"{path} = {value}", ["/summary_json", words], set_in(*path, to=value))

    # what is not damage
    old = bad_file("1.0", [], summary(lambda a: a.pop("sources") and None), accepted=True)
    expect("a file of version 1.0", "version 1.0" in old.section("Sources").text(), old.section("Sources").text())
    older = bad_file("1.1", [], summary(lambda a: [a.pop("answers"), *(row["memory"].pop("surely_fits") for row in a["rows"])] and None), accepted=True)
    told = next(older.root.all("section", "answer"))
    expect("a file of version 1.1", "version before 1.2" in told.text() and not chosen(told) and "Every scheme fits" in told.text(), told.text())
    arena = {"stack": "<b>" + "x" * 500 + "\u202e", "verdict": "oom", "peak_bytes": 9e18, "low_bytes": 0, "high_bytes": 9e18}
    hostile = bad_file("a stack of any name", [], set_in("rows", 1, "memory", "by_newest_stack", to=arena), accepted=True)
    expect("a stack of any name", "by the arena of <b>xxx" in next(hostile.root.all("p", "lead")).text(), "its name is not there as text")
    bad_file("1.9", [], lambda f: f.attrs.__setitem__("format_version", "1.9.3"), accepted=True)
    bad_file("sources of another form", [], set_in("sources", to={"figures": [1, None, {"what": 3}], "schemes": {}, "fits": "x"}), accepted=True)
    bad_file("settings of another form", [], summary(lambda a: a["settings"].update(steps=["x"], schemes=[3], seed="x", allocator=[])),
             accepted=True)
    (folder / "bad.h5").unlink()
    expect("damage", page_path.read_text() == "the page before", "a refusal changed the page that was there")

    # any byte may be wrong: a page, or a refusal in one line; never a crash
    for _ in range(150):
        changed = bytearray(whole)
        for at in rng.integers(0, len(whole), int(rng.integers(1, 4))):
            changed[at] = rng.integers(256)
        (folder / "flipped.h5").write_bytes(changed)
        done = run(program, "report", folder / "flipped.h5", "--output", page_path)
        clean = done.returncode == OK and not done.stderr
        said = [line for line in done.stderr.splitlines() if "AddressSanitizer failed to allocate" not in line]  # a forged size
        refusal = done.returncode == FILE and len(said) == 1
        if any("Sanitizer" in line for line in said):  # inside HDF5, in the process that reads it
            refusal = done.returncode == FILE and "H5" in done.stderr
        expect("flipped bytes", (clean or refusal) and not done.stdout, f"exit {done.returncode}: {done.stderr!r}")
        if clean:
            Page(page_path.read_text())


def options():
    refused("no result", USAGE, ["which result"], "report", lines=3)
    refused("three results", USAGE, ["third"], "report", good, good, good, "--output", page_path, lines=3)
    refused("no output", USAGE, ["--output"], "report", good)
    refused("an empty name", USAGE, ["the output has no name"], "report", good, "--output", "")
    refused("onto the result", USAGE, ["itself"], "report", good, "--output", good)
    refused("into no folder", FILE, ["nowhere/x.html"], "report", good, "--output", "nowhere/x.html")
    refused("onto a folder", FILE, [], "report", good, "--output", folder)
    page_path.write_text("the page before")
    small_files = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    # ThreadSanitizer maps a file of 512 KB that it writes under TMPDIR; it does without where it cannot open one.
    with unittest.mock.patch.dict(os.environ, TMPDIR="/nowhere"):
        refused("a full disk", FILE, ["page.html", "written"], "report", good, "--output", page_path, preexec_fn=small_files)
    expect("a full disk", page_path.read_text() == "the page before", "the page is gone")


case_small()
case_over()
case_timed()
case_order()
case_doubts()
case_long()
case_plan()
case_plan_damage()
case_search()
case_search_damage()
case_long_plan()
case_parts()
case_hostile()
damage()
options()
for failure in failures[:40]:
    print("FAIL", failure[:1500])
print(f"{checks} checks, {len(failures)} failed")
sys.exit(1 if failures or checks < 1000 else 0)
