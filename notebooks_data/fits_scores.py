#!/usr/bin/env python3
"""What "fits", "tight" and "out of memory" were worth: every measured and published run of notebooks_data/, those that
failed included, beside what spillway says of it today, as Markdown.

fits_scores.py SPILLWAY SCRATCH [--write DOC.md]     Needs h5py.
--write: between "<!-- fits_scores: begin -->" and "<!-- fits_scores: end -->" """
import argparse
import csv
import json
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE / "measured"))
sys.path.insert(0, str(HERE))
import pipeline_jobs  # noqa: E402
import published_memory  # noqa: E402
import torchtitan_jobs  # noqa: E402
import transformers_jobs  # noqa: E402
import whole_device_jobs  # noqa: E402
import whole_rounds_jobs  # noqa: E402

BEGIN, END = "<!-- fits_scores: begin -->", "<!-- fits_scores: end -->"
DOUBT, BUDGET = 1.06, 79.18 * 2 ** 30  # docs/validation_memory.md; sim/clusters/h100-8x8.yaml


def asked(program, *arguments):
    done = subprocess.run([program, *map(str, arguments), "--format", "json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{arguments}: {done.stderr}")
    return json.loads(done.stdout)


def pipelines(program, scratch):
    for name, ranks in (*pipeline_jobs.read().items(), *pipeline_jobs.read("whole_validation_h100.csv").items()):
        run = max(ranks, key=lambda r: r["device_total"])
        job, trace = scratch / "job.yaml", scratch / "trace.h5"
        pipeline_jobs.write_job(run, str(job))
        pipeline_jobs.write_trace(run, str(trace))
        yield asked(program, "replay", trace, "--job", job, "--every-rank")["rows"][0]["memory"]["verdict"], pipeline_jobs.ran(ranks)


def fully_sharded(program, scratch):
    """torchtitan's layers under FSDP2."""
    outcomes = {}
    for table in ("torchtitan_rounds.csv", "torchtitan_device.csv", "torchtitan_later.csv"):
        with open(HERE / "measured" / table, encoding="utf-8") as file:
            for row in csv.DictReader(file):
                outcomes.setdefault(row["case"], []).append(row["outcome"])
    groups = torchtitan_jobs.CASES, torchtitan_jobs.FAILING, torchtitan_jobs.DEVICE_CASES, torchtitan_jobs.LATER_CASES
    for name, given in (case for group in groups for case in group.items()):
        memory = torchtitan_jobs.ask(program, scratch.resolve(), name, given)[1]
        yield memory["verdict"], all(o == "ran" for o in outcomes[name])
    with open(HERE / "measured/torchtitan_steps.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            given = {k: int(row[k]) if row[k].isdigit() else row[k] for k in torchtitan_jobs.COMMON if k in row}
            yield torchtitan_jobs.ask(program, scratch.resolve(), row["case"], given)[1]["verdict"], True


def devices(program, scratch):
    """Megatron-Core's runs with device memory in use."""
    with open(HERE / "measured/whole_device.csv", encoding="utf-8") as file:
        ran = {row["name"] for row in csv.DictReader(file)}
    for given in whole_device_jobs.runs():
        if given["name"] in ran:
            yield whole_device_jobs.ask(program, scratch.resolve(), given)[1]["verdict"], True


def rounds(program, scratch):
    """Cells of whole training steps; all of them ran."""
    for run in whole_rounds_jobs.cells():
        if (run["of"], run["cell"]) in whole_rounds_jobs.measured():
            memory = whole_rounds_jobs.row_of(program, scratch.resolve(), dict(run, cluster="h200-8x8"), "--every-rank")["memory"]
            yield memory["verdict"], True


def transformers(program, scratch):
    """Hugging Face transformers; all of them ran."""
    for run in transformers_jobs.read():
        yield transformers_jobs.ask(program, scratch.resolve(), run)["memory"]["verdict"], True


def whole(program, _):
    for row in asked(program, "score", HERE / "megatron/whole_models_h100.csv")["rows"]:
        most = max(row["requested_bytes"], DOUBT * row["reserved_bytes"])
        yield "fits" if most <= BUDGET else "tight" if row["reserved_bytes"] <= BUDGET else "oom", True


def compiled(program, _):
    for table in sorted([*(HERE / "published").glob("*.csv"), *(HERE / "judged").glob("*.csv")]):
        for row in asked(program, "score", table)["rows"]:
            if row["verdict"] and row["true_verdict"] in ("fits", "oom"):
                most = row["argument_gib"] + row["high_gib"]
                tight = row["verdict"] == "fits" and most > row["budget_gib"]
                yield "tight" if tight else row["verdict"], row["true_verdict"] == "fits"


def published(program, _):
    """As `plan` says of them, with even routing; those without a model of their framework, a lower bound alone, count as tight."""
    with open(HERE / "megatron/megatron_runs.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            words = [f"models/{w}" if w.endswith(".json") else w for w in shlex.split(row["command"])]
            done = subprocess.run([str(pathlib.Path(program).resolve()), *words, "--routing", "uniform", "--format", "json"], capture_output=True,
                                  text=True, cwd=HERE / "megatron")
            if done.returncode != 0:
                sys.exit(f"{row['row_id']}: {done.stderr}")
            yield json.loads(done.stdout)["rows"][0]["memory"]["verdict"], row["published_status"] == "OK"


def replayed(program, _):
    """Published jobs that are not in megatron_runs.csv, replayed with even routing."""
    for row in published_memory.scored(pathlib.Path(program).resolve()):
        if row["what"] == "peak" and (row["row"].startswith(("mixtral", "nemotron")) or row["row"].endswith("-sm")):
            yield row["verdict"], row["outcome"] == "ran"


TABLES = (("pipelines, micro-batches, limits: Megatron-Core with TransformerEngine, 1 to 4 H100, runs", pipelines),
          ("the same on 2 H200, runs with device memory in use", devices),
          ("micro-batches, limits: torchtitan's layers under FSDP2, 2 H100 or H200, runs", fully_sharded),
          ("whole steps of Megatron-Core with TransformerEngine, 1 and 2 H200, cells", rounds),
          ("transformers on one H100, or under FSDP2 on two, runs", transformers),
          ("whole models on 1 and 2 H100, ranks", whole), ("published runs of Megatron-Core and others, with even routing", published),
          ("published jobs of Megatron-Core, replayed", replayed),
          ("published runs of MaxText and compiled programs", compiled))


def table(program, scratch):
    lines = ["| runs | ran | called fits / tight / oom | failed | called fits / tight / oom | precision of fits | ran: fits or tight |",
             "|---|---|---|---|---|---|---|"]
    total = {}
    for name, rows in (*TABLES, ("all", None)):
        counts = {} if rows else total
        for verdict, ran in rows(program, scratch) if rows else ():
            key = ran, "tight" if verdict == "live fits" else verdict
            counts[key] = counts.get(key, 0) + 1
            total[key] = total.get(key, 0) + 1
        n = {(r, v): counts.get((r, v), 0) for r in (True, False) for v in ("fits", "tight", "oom")}
        good, bad = (sum(n[r, v] for v in ("fits", "tight", "oom")) for r in (True, False))
        if good + bad == 0:
            continue
        called, kept = n[True, "fits"] + n[False, "fits"], n[True, "fits"] + n[True, "tight"]
        share = [f"{100 * a / b:.1f} %" if b else "–" for a, b in ((n[True, "fits"], called), (kept, good))]
        lines.append(f"| {name} | {good} | {' / '.join(str(n[True, v]) for v in ('fits', 'tight', 'oom'))} | {bad} | "
                     f"{' / '.join(str(n[False, v]) for v in ('fits', 'tight', 'oom'))} | {share[0]} | {share[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("spillway")
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    text = table(given.spillway, given.scratch)
    print(text)
    if given.write:
        page = given.write.read_text()
        given.write.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page, flags=re.S))
