"""Numbers, tables and charts of a page against the JSON of its replay and the datasets of its file."""
import json
import math
import re

import h5py
import numpy as np

from oracle_run import most_bytes
from report_page import GIB, close, expect


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
