#!/usr/bin/env python3
"""`spillway report` of results: the page is read by Python's own HTML parser, and every number in it is held against the JSON of the
same replay and against the datasets of the result file; the command that it prints is run again; hostile names stay text.

report_oracle.py SPILLWAY TEST_REPORT SCRATCH ROOT"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import h5py

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import Case, run
from report_cases import chosen, deepseek_trace, small, small_job, small_tokens, small_trace, tokens_of
from report_checks import (
    check_bars, check_basis, check_chosen, check_experts, check_labels, check_lead, check_overload, check_rows,
    check_scales, check_steps, check_table, check_timeline)
from report_page import GIB, expect, finish, folder, program, replayed, report, root, unit


# --- Numbers ---

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
    trace = deepseek_trace()
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


case_small()
case_over()
case_timed()
case_order()
case_doubts()
case_long()
case_hostile()
finish(1000)
