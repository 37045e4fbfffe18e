#!/usr/bin/env python3
"""`spillway report A B`: every figure of the page is held against the JSON of the two, what differs against a comparison of the two jobs
made here, and each folded page against the one that is written alone.

report_pair_oracle.py SPILLWAY SCRATCH"""
import html.parser
import json
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "report_pair_oracle"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
failures, checks = [], 0
GIB, VOID = 2.0**30, {"meta", "br"}


def expect(good, what):
    global checks
    checks += 1
    if not good:
        failures.append(what)


def run(*words):
    return caller.call([str(w) for w in (program, *words)], cwd=folder)


class Page(html.parser.HTMLParser):
    """Tables as rows of cells; a cell is its text and the exact numbers in it. Every element is closed, in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tables, self.heads, self.lead, self.doubts, self.cell, self.sink = [], {}, [], "", [], None, []
        self.feed(text)
        self.close()
        expect(self.open == [], f"left open: {self.open}")

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag in VOID:
            return
        self.open.append((tag, attributes.get("class", "")))
        if tag in ("h1", "h2", "summary"):
            self.heads.append("")
        if tag == "table":
            self.tables.setdefault(self.heads[-1], [])
        if tag == "tr":
            self.tables[self.heads[-1]].append([])
        if tag in ("td", "th") and self.tables.get(self.heads[-1]):
            self.cell = ["", []]
            self.tables[self.heads[-1]][-1].append(self.cell)
        if tag == "data" and self.cell is not None:
            self.cell[1].append(float(attributes["value"]))
        if tag == "p" and "doubt" in attributes.get("class", ""):
            self.doubts.append("")

    def handle_endtag(self, tag):
        expect(self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]}")
        self.open.pop()
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data):
        tags = [tag for tag, _ in self.open]
        if self.heads and {"h1", "h2", "summary"} & set(tags):
            self.heads[-1] += data
        if self.cell is not None:
            self.cell[0] += data
        if ("p", "lead") in self.open and len(self.heads) == 1:
            self.lead += data
        if ("p", "doubt") in self.open and len(self.heads) == 1:
            self.doubts[-1] += data


def flat(job, before=""):
    out = {}
    for key, value in job.items():
        out.update(flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: value})
    return out


def words(value):
    if isinstance(value, list):
        return ", ".join(map(words, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "\u2013", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def made(name, *options):
    model = [] if "--model" in options else ["--model", "olmoe-1b-7b"]
    told = run("plan", *model, "--cluster", "h100-1x8", "--optimizer", "distributed", "--expert-parallel", 8, *options,
               "--format", "json")
    expect(told.returncode == 0, f"{name}: {told.stderr}")
    (folder / f"{name}.json").write_text(told.stdout)
    return json.loads(told.stdout)


def point(answer):
    plan = answer["plans"][0] if "plans" in answer else answer
    at = plan["answers"]["fastest"]
    return plan, plan["rows"][plan["answers"]["least_memory"] if at is None else at]


FIGURES = {"tokens/s a GPU": ("time", "tokens_per_s_per_gpu", 1), "step, s": ("time", "step_s", 1), "step over balanced": ("time", "over_balanced", 1),
           "tokens a day": ("cost", "tokens_per_day", 1), "days": ("cost", "days", 1), "GPU-hours": ("cost", "gpu_hours", 1),
           "cost": ("cost", "money", 1), "GiB a GPU": ("memory", "max_bytes", 1), "GiB that may be used": ("memory", "budget_bytes", 1),
           "GB out of a GPU in a step": ("traffic", "whole_step_bytes_per_gpu", 1)}


def check_pair(a_name, b_name, a, b):
    told = run("report", f"{a_name}.json", f"{b_name}.json", "--output", "pair.html")
    expect(told.returncode == 0 and not told.stdout and not told.stderr, f"{a_name} {b_name}: {told.stderr}")
    if told.returncode != 0:
        sys.exit("\n".join(failures))
    text = (folder / "pair.html").read_text()
    page, pair = Page(text), f"{a_name}, {b_name}"
    (a_plan, a_row), (b_plan, b_row) = point(a), point(b)
    rows = {row[0][0]: row for row in page.tables["Side by side"]}
    for name, (part, key, unit) in FIGURES.items():
        want = [(row[part] or {}).get(key) for row in (a_row, b_row)]
        if want == [None, None]:
            expect(name not in rows, f"{pair}: a row {name} without a figure")
            continue
        row = rows.get(name)
        expect(row is not None, f"{pair}: no row {name}")
        for cell, value in zip(row[1:3], want):
            expect(cell[1][:1] == ([value] if value is not None else []), f"{pair}: {name}: {cell}, {value} would be right")
        change = row[3][1]
        expect(change == [want[1] / want[0]] if None not in want else change == [], f"{pair}: {name}: change {change} of {want}")
    expect([cell[0].split("may")[0].strip().removeprefix("live ") for cell in rows["memory"][1:3]] == [r["memory"]["verdict"] for r in (a_row, b_row)],
           f"{pair}: verdicts {rows['memory']}")
    expect([cell[1] for cell in rows["dropped"][1:3]] == [[r["drops"]["fraction"]] for r in (a_row, b_row)], f"{pair}: drops")
    for cell, row, plan in zip(rows["the best of it"][1:3], (a_row, b_row), (a_plan, b_plan)):
        expect(cell[0].startswith(row["scheme"]) and f"EP {row['expert_parallel']} " in cell[0] and
               f"{row['sequences_per_gpu']} sequence" in cell[0] and f"of {row['sequence_length']}" in cell[0], f"{pair}: {cell[0]}")

    # What differs: the keys of the two jobs, and what else was asked.
    jobs = [flat(plan["settings"]["job"]) for plan in (a_plan, b_plan)]
    want = {key: [words(job.get(key)) for job in jobs] for key in jobs[0].keys() | jobs[1].keys() if jobs[0].get(key) != jobs[1].get(key)}
    for key in ("trace_file", "stack", "seed", "tokens"):
        values = [plan["settings"][key] for plan in (a_plan, b_plan)]
        if values[0] != values[1]:
            want[key] = [words(value) for value in values]
    told = {row[0][0]: [cell[0] for cell in row[1:]] for row in page.tables.get("What differs in the question", [])[1:]}
    expect(told == want, f"{pair}: what differs: {told}, {want} would be right")
    expect(bool(want) or "Nothing: both ask" in text, f"{pair}: nothing differs, and nobody says so")

    # The first sentence, and its doubt.
    speeds = [row["time"]["tokens_per_s_per_gpu"] for row in (a_row, b_row)]
    if None in speeds:
        expect("not known" in page.lead, f"{pair}: {page.lead}")
    else:
        change = 100 * (speeds[1] / speeds[0] - 1)
        times = max(speeds) / min(speeds)
        says = ("equally fast" if abs(change) < 0.05 else f"is {times:.3g} times as fast" if times > 2 else
                f"{abs(change):.1f}\u00a0% {'faster' if change > 0 else 'slower'}")
        expect(says in page.lead and (times <= 2 or page.lead.startswith("AB"[speeds[1] > speeds[0]])), f"{pair}: {page.lead} for {change}")
        overlap = a_row["time"]["tokens_per_s_high"] > b_row["time"]["tokens_per_s_low"] and \
            b_row["time"]["tokens_per_s_high"] > a_row["time"]["tokens_per_s_low"] and abs(change) >= 0.05
        expect(any("overlap" in doubt for doubt in page.doubts) == overlap, f"{pair}: {page.doubts}")
    if a_row["cost"] and b_row["cost"] and a_row["cost"]["days"] and b_row["cost"]["days"]:
        expect(any("different numbers of tokens" in doubt for doubt in page.doubts) == (a_plan["settings"]["tokens"] != b_plan["settings"]["tokens"]),
               f"{pair}: tokens: {page.doubts}")

    expect(any("different models" in doubt for doubt in page.doubts) == (a_plan["settings"]["model"] != b_plan["settings"]["model"]),
           f"{pair}: models: {page.doubts}")

    shares = [row["drops"]["fraction"] for row in (a_row, b_row)]
    says = [f"{letter} drops " + (f"{100 * share:.2f}\u00a0%" if share > 0 else "none") for letter, share in zip("AB", shares)]
    expect([doubt for doubt in page.doubts if "drops" in doubt] == ([", ".join(says) + " of the choices of its tokens."] if any(shares) else []),
           f"{pair}: {shares} dropped: {page.doubts}")

    # Points of both, by scheme, batch and split.
    def name(row):
        return row["scheme"], row["sequences_per_gpu"], row["expert_parallel"], row["fsdp"]
    if "plans" not in a and "plans" not in b:
        common = [(x, y) for y in b["rows"] for x in a["rows"] if name(x) == name(y)]
        body = page.tables.get("Points of both", [[], []])[2:]
        expect(len(body) == len(common), f"{pair}: {len(body)} points of both, {len(common)} would be right")
        for row, (x, y) in zip(body, common):
            numbers = [number for cell in row for number in cell[1]]
            want = [x["memory"]["max_bytes"] / GIB, y["memory"]["max_bytes"] / GIB]
            want += [x["time"]["step_s"], y["time"]["step_s"]] if x["time"]["step_s"] and y["time"]["step_s"] else []
            want += [100 * x["drops"]["fraction"], 100 * y["drops"]["fraction"]]
            expect(numbers == want, f"{pair}: {row[0][0]}: {numbers}, {want} would be right")

    # Each folded page is the one that stands alone.
    for name, answer in ((a_name, a), (b_name, b)):
        if "plans" in answer:
            continue
        run("report", f"{name}.json", "--output", "alone.html")
        alone = (folder / "alone.html").read_text().split("<main>")[1].split("</main>")[0]
        expect(alone in text, f"{pair}: the page of {name} is another when it is folded")
    expect([head for head in page.heads if head.startswith("All of")] == [f"All of A: {a_name}.json", f"All of B: {b_name}.json"], f"{pair}: {page.heads}")
    return page


cheap = made("cheap", "--scheme", "megatron-alltoall", "--sequences-per-gpu", "1,2", "--price", 2)
longer = made("longer", "--scheme", "megatron-alltoall", "--scheme", "megatron-allgather", "--sequences-per-gpu", "2,4", "--price", 3, "--tokens", "2T",
              "--sequence-length", 8192, "--set", "overlap_grad_reduce=true", "--routing", "uniform")
full = made("full", "--scheme", "megatron-alltoall", "--sequences-per-gpu", 512)
live = made("live", "--scheme", "megatron-alltoall", "--stack", "none", "--no-allocator")
found = made("found", "--scheme", "megatron-alltoall", "--search", "--over", "pipeline=1,2", "--over", "micro-batches=1,2", "--sequences-per-gpu", "1,2", "--price", 2)
none = made("none", "--scheme", "megatron-alltoall", "--search", "--over", "pipeline=1", "--over", "micro-batches=1", "--tokens-per-day", "1e15")
other = made("other", "--scheme", "megatron-alltoall", "--model", "qwen3-30b-a3b")
drops = made("drops", "--scheme", "megatron-alltoall:capacity_factor=1", "--routing", "zipf:exponent=0.5", "--drop-at-most", 100)
slow = json.loads((folder / "cheap.json").read_text())
for row in slow["rows"]:  # a third of the speed: whoever of the two stands first, the faster one is named
    row["time"].update({key: row["time"][key] / 3 for key in row["time"] if key.startswith("tokens_per_s")})
    row["time"].update({key: row["time"][key] * 3 for key in ("step_s", "low_s", "high_s")})
(folder / "slow.json").write_text(json.dumps(slow))
check_pair("slow", "cheap", slow, cheap)
check_pair("cheap", "slow", cheap, slow)
check_pair("other", "cheap", other, cheap)
check_pair("cheap", "longer", cheap, longer)
check_pair("longer", "cheap", longer, cheap)
check_pair("cheap", "cheap", cheap, cheap)
check_pair("cheap", "full", cheap, full)
check_pair("live", "cheap", live, cheap)
check_pair("found", "cheap", found, cheap)
check_pair("cheap", "found", cheap, found)
check_pair("cheap", "drops", cheap, drops)
check_pair("drops", "cheap", drops, cheap)
expect(drops["rows"][0]["drops"]["fraction"] > 0, "the point that drops drops nothing")

# Text of a file stays text.
hostile = json.loads((folder / "cheap.json").read_text())
hostile["settings"]["job"]["remat"] = hostile["settings"]["model"] = hostile["rows"][0]["scheme"] = hostile["rows"][1]["scheme"] = "<script>x</script>"
hostile["settings"]["job"]["<b>key"] = ["</td>", 1, 2.5, None, True]
(folder / "hostile.json").write_text(json.dumps(hostile))
expect(run("report", "hostile.json", "cheap.json", "--output", "hostile.html").returncode == 0, "a hostile file")
text = (folder / "hostile.html").read_text()
expect("<script" not in text and "<b>key" not in text, "text of a file reaches the page as it is")
rows = {row[0][0]: row for row in Page(text).tables["What differs in the question"]}
expect([cell[0] for cell in rows["<b>key"]] == ["<b>key", "</td>, 1, 2.5, \u2013, true", "\u2013"], f"a key of A alone: {rows}")

# A file of an earlier version does not say its job.
old = json.loads((folder / "cheap.json").read_text())
del old["settings"]["job"]
(folder / "old.json").write_text(json.dumps(old))
expect(run("report", "cheap.json", "old.json", "--output", "old.html").returncode == 0 and "Not known: a file of an earlier" in (folder / "old.html").read_text(),
       "a file without a job")

# Two replays: every link goes to a place of its own side.
told = run("trace", "generate", "trace.h5", "--experts", 64, "--top-k", 8, "--layers", 2, "--steps", 3, "--ranks", 8, "--tokens-per-rank", 64,
           "--hidden", 2048, "--distribution", "lognormal:sigma=1", "--seed", 5)
expect(told.returncode == 0, told.stderr)
for name, scheme in (("first", "megatron-alltoall"), ("second", "megatron-allgather")):
    told = run("replay", "trace.h5", "--model", "olmoe-1b-7b", "--cluster", "h100-1x8", "--optimizer", "distributed", "--expert-parallel", 8,
               "--sequence-length", 64, "--scheme", scheme, "--output", f"{name}.h5")
    expect(told.returncode == 0, told.stderr)
told = run("report", "first.h5", "second.h5", "--output", "replays.html")
expect(told.returncode == 0, told.stderr)
text = (folder / "replays.html").read_text()
places, links = re.findall(r' id="([^"]*)"', text), re.findall(r' href="#([^"]*)"', text)
expect(len(places) == len(set(places)) == 6 and set(links) == set(places) and len(links) == 6, f"places {places}, links {links}")
second = text.split("All of B")[1]
expect(all(link.endswith("-b") for link in re.findall(r'href="#([^"]*)"', second)), "links of B go to A")

# --drop-at-most is of both; what cannot be set beside one another is refused.
expect(run("report", "cheap.json", "longer.json", "--drop-at-most", 0, "--output", "pair.html").returncode == 0, "--drop-at-most")
for words_, part in ((("none.json", "cheap.json"), "found no point"), (("cheap.json", "none.json"), "found no point"),
                     (("cheap.json", "longer.json", "full.json"), "third"), (("cheap.json", "longer.json", "--replay", "full.json"), "--replay"),
                     (("cheap.json", "no-such.json"), "no-such.json"), (("cheap.json", "cheap.json", "--output", "cheap.json"), "itself")):
    told = run("report", *words_, *([] if "--output" in words_ else ["--output", "refused.html"]))
    expect(told.returncode != 0 and part in told.stderr and not (folder / "refused.html").exists(), f"{words_}: {told.returncode} {told.stderr}")

print("\n".join(failures[:30]))
print(f"{checks} checks, {len(failures)} failed")
sys.exit(1 if failures or checks < 200 else 0)
