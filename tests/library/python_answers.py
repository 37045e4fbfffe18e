#!/usr/bin/env python3
"""What the Python package gives back: the questions that it has beside plan and replay, against the command line; what print() and a
notebook show, against the figures of the answer; and pictures, drawn on axes that keep what they are told.

python_answers.py PACKAGE_FOLDER LIBRARY SPILLWAY SCRATCH SOURCE"""
import dataclasses
import html.parser
import json
import os
import pathlib
import subprocess
import sys
import warnings

folder, shared, program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:6])
os.environ["SPILLWAY_LIBRARY"] = str(shared)
sys.path.insert(0, str(folder))
import spillway_moe as spillway  # noqa: E402
from package_checks import Checks  # noqa: E402

checks = Checks(spillway.Error)
check, fails = checks.check, checks.fails
scratch.mkdir(parents=True, exist_ok=True)
GIB = 2.0**30


def run(*words):
    return subprocess.run([program, *map(str, words)], check=True, capture_output=True, text=True, cwd=scratch).stdout


def said(*words):
    return json.loads(run(*words, "--format", "json"))


JOB = {"model": "olmoe-1b-7b", "cluster": "h100-1x8", "parallel": {"expert": 8, "fsdp": 1}, "optimizer": "distributed",
       "batch": {"sequences_per_gpu": [1, 2, 4], "sequence_length": 4096}, "schemes": ["megatron-alltoall"]}
job = scratch / "job.yaml"
job.write_text(json.dumps(JOB))

# flags(): the text of the program, and the same job when it is read again.
flags = spillway.flags(JOB, "megatron", scheme="megatron-alltoall")
check(flags == run("plan", "--job", job, "--scheme", "megatron-alltoall", "--flags", "megatron"), "flags() differ from the program's")
fails("--flags", spillway.flags, JOB, "no-such-framework")

# job(): what the program says of a framework's file; what comes back is a job.
script = scratch / "run.sh"
script.write_text(flags)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    read = spillway.job(script, cluster="h100-1x8")
want = said("job", script, "--cluster", "h100-1x8")
check(dict(read) == want["job"] and read.framework == want["framework"] == "megatron", "job() differs from the program's")
check(len(read.notes) == sum(map(len, want["notes"].values())) > 0 and set(read.notes["kind"]) <= set(want["notes"]), "its notes")
check(read["model"] == "olmoe-1b-7b" and read["parallel"]["expert"] == 8 and read["schemes"] == ["megatron-alltoall"], "the job that came back")
again = spillway.plan(read, routing="uniform")
first = spillway.plan(JOB, routing="uniform").json["answers"]["fastest"]
check(again.rows["memory.peak_bytes"][0] == spillway.plan(JOB, routing="uniform").rows["memory.peak_bytes"][first], "flags out and in: another memory")
changed = spillway.job(script, cluster="h100-1x8", overlap_grad_reduce=False)
check(read["overlap_grad_reduce"] is True or changed["overlap_grad_reduce"] is False, "a keyword of job()")

for wrong, right in (("overlap_grad_reduc", "overlap_grad_reduce"), ("sequence_per_gpu", "sequences_per_gpu"), ("parallel_shedule", "parallel_schedule")):
    fails(f"{wrong}: there is no such keyword; {right} would be right", spillway.plan, JOB, **{wrong: 1})

# score() and verify(): as the program has them.
table = source / "notebooks_data/published/deepseek3_mi355x_c4.csv"
scored = spillway.score(table)
want = said("score", table)
check(scored.json == want and len(scored.rows) == len(want["rows"]) > 5, "score() differs")
check(scored.figures["verdict_agreement"] == want["verdict_agreement"] and "rows" not in scored.figures, "the figures of a score")
check(spillway.score([table, table.with_name("deepseek3_mi355x_2026_04.csv")]).json["cells"] > want["cells"], "two tables")
fails("no-such.csv", spillway.score, "no-such.csv")
verified = spillway.verify(scheme=["gmm", "ring"], random=2)
check(list(verified.rows["agreed"]) == [row["agreed"] for row in said("verify", "--scheme", "gmm", "--scheme", "ring", "--random", 2)], "verify() differs")
check(verified.agreed and list(verified.rows["scheme"]) == ["gmm", "ring"] and "comparisons agree" in repr(verified), "what verify() says")
differing = verified.rows.copy()
differing.loc[1, "agreed"] -= 1
check(not dataclasses.replace(verified, rows=differing).agreed, "verify() has not agreed where one scheme of two differs")
for options in ({"device": "gpu"}, {"plugin": "x.so"}):
    fails("print as they go", spillway.verify, **options)

# report(): the page of the program, byte by byte but for the name of its file.
plan = spillway.plan(job, tokens="1T", price=2)
search = spillway.search(job, over={"pipeline": [1, 2], "micro-batches": [1, 2]}, price=2)
(scratch / "plan.json").write_text(json.dumps(plan.json))
page = spillway.report(plan, output=scratch / "python.html")
run("report", "plan.json", "--output", "program.html")
made, meant = ((scratch / name).read_text() for name in ("python.html", "program.html"))
check(isinstance(page, pathlib.Path) and page == scratch / "python.html", "report() gives the path")
check(made == meant and len(made) > 20_000, "report() differs from the program's")
check("<iframe srcdoc=" in page._repr_html_() and "<script" not in page._repr_html_(), "a notebook shows the page")
check(spillway.report(search, output=scratch / "search.html").stat().st_size > 20_000, "the page of a search")
check(spillway.report(scratch / "plan.json", output=scratch / "file.html").read_text() == meant, "the page of a file")
both = spillway.report(plan, search, output=scratch / "both.html").read_text()
check("<h1>A beside B</h1>" in both and "plan1.json" in both and "search2.json" in both and "spillway-" not in both.split("<details")[0], "two side by side")
fails("no-such.json", spillway.report, "no-such.json", output=scratch / "none.html")

# What is shown: the answer in short, and ten columns.
row = plan.json["rows"][plan.json["answers"]["fastest"]]
for result, rows in ((plan, plan.rows), (search, search.front)):
    check(len(result.table.columns) == 10 and len(result.table) == len(rows), f"{type(result).__name__}: {list(result.table)}")
check(list(plan.table["GiB"]) == [r["memory"]["max_bytes"] / GIB for r in plan.json["rows"]], "GiB of a plan")
check(list(plan.table["drops, %"]) == [100 * r["drops"]["fraction"] for r in plan.json["rows"]], "drops of a plan")
want = ["surely" if r["memory"]["surely_fits"] else {"fits": "fits", "tight": "may not", "oom": "no"}[r["memory"]["verdict"]] for r in plan.json["rows"]]
check(list(plan.table["fits"]) == want, f"verdicts {list(plan.table['fits'])}, {want} would be right")
check(list(search.table["cost"]) == [p["cost"]["money"] for p in search.json["front"]], "costs of a search")
first, second = plan.sentences[:2]
check(f"{row['scheme']}, EP {row['expert_parallel']}, {row['sequences_per_gpu']} sequence" in first, first)
check(f"{row['time']['tokens_per_s_per_gpu']:,.0f} tokens/s" in first and "1 T tokens" in first and "cost" in first, first)
check(f"{row['memory']['max_bytes'] / GIB:.1f} GiB live, {row['memory']['allocator']['reserved']['max_bytes'] / GIB:.1f} reserved, "
      f"of {row['memory']['budget_bytes'] / GIB:.1f} GiB" in second, second)
best = search.json["best"]
check(f"{best['peak_bytes'] / GIB:.1f} GiB live, {best['reserved_bytes'] / GIB:.1f} reserved, of {best['budget_bytes'] / GIB:.1f} GiB" in search.sentences[1],
      search.sentences[1])
check(f"{search.json['best']['gpus']} GPUs" in search.sentences[0] and len(search.sentences) <= 3, str(search.sentences))
full = spillway.plan(JOB, scheme="megatron-alltoall", sequences_per_gpu=64, routing="uniform")
check(full.fastest is None and any("does not fit" in line for line in full.sentences), f"a plan in which nothing fits: {full.sentences}")
nothing = spillway.search(job, over={"pipeline": [1], "micro-batches": [1]}, tokens_per_day=1e15)
check("No point" in repr(nothing) and "No point" in nothing._repr_html_(), "a search that finds nothing")
until = spillway.until(JOB, ["oom", "step=1.5"], sequences_per_gpu=1)
check(len(until.table.columns) == 10 and "step=1.5" in repr(until), "an --until")


class Reader(html.parser.HTMLParser):
    """Every element that begins ends; text is kept."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        check(self.open.pop() == tag, f"</{tag}>")

    def handle_data(self, data):
        self.text += data


for result in (plan, search, until, spillway.model("olmoe-1b-7b"), scored, verified):
    reader = Reader()
    reader.feed(result._repr_html_())
    check(reader.open == [] and all(line in reader.text for line in result.sentences), f"{type(result).__name__}: HTML")
    check(all(str(column) in reader.text for column in result.table), f"{type(result).__name__}: columns in HTML")
    check(all(line in repr(result) for line in result.sentences) and len(repr(result)) < 20_000, f"{type(result).__name__}: print()")
trap = spillway.plan(JOB, routing="uniform")
trap.json["rows"][0]["scheme"] = trap.json["rows"][1]["scheme"] = trap.json["rows"][2]["scheme"] = "<script>"
check("<script>" not in trap._repr_html_(), "text of a file reaches HTML as it is")


class Axes:
    """Axes that keep what they are told, in the place of matplotlib's."""

    def __init__(self):
        self.bars, self.lines, self.labels, self.across = [], {}, {}, []

    def barh(self, names, widths, left=None, xerr=None, label=None, **_):
        self.bars.append((list(names), list(widths), left, xerr, label))

    def plot(self, *what, label=None, **_):
        self.lines[label] = tuple(map(list, what))

    def axvline(self, at, **_):
        self.across.append(at)

    axhline = axvline

    def set_xlabel(self, text):
        self.labels["xlabel"] = text

    def set(self, **labels):
        self.labels.update(labels)

    def invert_yaxis(self):
        pass

    legend = text = set_ylim = lambda self, *_, **__: None


axes = spillway.figures.speed(plan, Axes())
(names, widths, _, errors, _), = axes.bars
times = [r["time"] for r in plan.json["rows"]]
check(widths == [t["tokens_per_s_per_gpu"] for t in times] and len(set(names)) == len(times), "bars of speed")
check(all(abs(w - e - t["tokens_per_s_low"]) < 1e-6 for w, e, t in zip(widths, errors[0], times)) and
      all(abs(w + e - t["tokens_per_s_high"]) < 1e-6 for w, e, t in zip(widths, errors[1], times)), "their intervals")
for result, costs in ((plan, [r["cost"] for r in plan.json["rows"]]), (search, [p["cost"] for p in search.json["front"]])):
    axes = spillway.figures.cost(result, Axes())
    check(axes.bars[0][1] == [c["money"] / 1e3 for c in costs] and axes.labels["xlabel"] == "thousands", "bars of cost")
    check(len(set(axes.bars[0][0])) == len(costs), "points of one name are one bar")
unpriced = spillway.plan(JOB, tokens="1T")
check(spillway.figures.cost(unpriced, Axes()).bars[0][1] == [r["cost"]["gpu_hours"] / 1e3 for r in unpriced.json["rows"]], "GPU hours without a price")
check(spillway.figures.routing(plan, Axes()).bars[0][1] == [t["over_balanced"] for t in times], "bars of routing")
axes, line = spillway.figures.timeline(plan, Axes()), plan.json["memory_timeline"]
check(axes.lines["this routing"] == (line["at"], [b / GIB for b in line["bytes"]]), "the line of memory")
check(max(axes.lines["this routing"][1]) * GIB == line["peak_bytes"] and ("balanced routing" in axes.lines) == (line["balanced"] is not None), "its peak")
axes = spillway.figures.memory(plan, Axes())
check(all(abs(sum(bar[1][i] for bar in axes.bars) * GIB - r["memory"]["peak_bytes"]) < 1e3 for i, r in enumerate(plan.json["rows"])), "bars of memory")
bare = spillway.plan(JOB, stack="none", routing="uniform", no_allocator=True)
check("live" not in "".join(bare.sentences) and "GiB" in "".join(bare.sentences), str(bare.sentences))
fails("stack that has times", spillway.figures.speed, bare, Axes(), kind=ValueError)
fails("price", spillway.figures.cost, spillway.plan(JOB, routing="uniform"), Axes(), kind=ValueError)
with spillway.Trace(source / "traces/data/training_aux_e64_slice.h5") as trace:
    check(len(spillway.figures.popularity(trace, Axes()).lines) == trace.layers, "a line a layer")

# A note of the program points at the line of the caller.
with warnings.catch_warnings(record=True) as notes:
    warnings.simplefilter("always")
    spillway.plan(model="olmoe-1b-7b", cluster="h100-8x1", scheme="megatron-alltoall", optimizer="distributed")
check(notes and all(note.filename == __file__ for note in notes), f"notes point at {[note.filename for note in notes]}")
print(f"{checks.count} checks")
