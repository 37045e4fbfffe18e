"""What the program says of the cells of whole_rounds.json, beside their steps.  Needs h5py.

whole_rounds_jobs.py SPILLWAY SCRATCH [--cluster h200-8x8] [--stack NAME] [--predicted OUT.csv]"""
import argparse
import collections
import csv
import json
import pathlib
import statistics

import pipeline_jobs

HERE = pathlib.Path(__file__).resolve().parent
STACK = "megatron-te-h100-few-2026-11"


def cells():
    """One run a cell, with the words of pipeline_jobs."""
    for run in json.loads((HERE / "whole_rounds.json").read_text()):
        for cell in run["cells"]:
            yield dict(name=f"{run['name']}.{cell['name']}", of=run["name"], cell=cell["name"], model=run["model"], gpus=run["gpus"], pipeline=1,
                       virtual_stages=1, expert_parallel=run["expert"], micro_batches=cell["micro_batches"], micro_batch=cell["micro_batch"],
                       sequence=4096, predictions=0, steps=2, layout="", remat="none", routing=cell["routing"], fp8="", loss="te",
                       fused_wgrad="True", limit_bytes="", device_total="")


def row_of(spillway, scratch, run, *words):
    """A replay of the cell."""
    job, trace = scratch / f"{run['name']}.yaml", scratch / f"{run['name']}.h5"
    pipeline_jobs.write_job(run, str(job))
    if not trace.exists():
        pipeline_jobs.write_trace(run, str(trace))
    return pipeline_jobs.replay(spillway, trace, job, *words)


def ask(spillway, scratch, run, *words):
    """The row's time of a replay."""
    return row_of(spillway, scratch, run, *words)["time"]


def measured():
    """{(run, cell): {(call, turn): ms}} without the two steps that warm up; a step is that of its slower rank."""
    steps = collections.defaultdict(dict)
    with open(HERE / "whole_rounds_h200.csv") as file:
        for row in csv.DictReader(file):
            if int(row["turn"]) >= 0:
                mine, at = steps[row["run"], row["cell"]], (row["call"], row["turn"])
                mine[at] = max(mine.get(at, 0.0), float(row["step_ms"]))
    return steps


def partner(cell):
    return cell.split("-")[0] + "-balanced"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spillway"), parser.add_argument("scratch", type=pathlib.Path), parser.add_argument("--cluster", default="h200-8x8")
    parser.add_argument("--stack", default=STACK), parser.add_argument("--predicted")
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    said = {}
    for one in cells():
        time = ask(given.spillway, given.scratch, dict(one, cluster=given.cluster), "--stack", given.stack)
        said[one["of"], one["cell"]] = [1e3 * time[k] for k in ("step_s", "low_s", "high_s")]
    if given.predicted:
        with open(given.predicted, "w") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow("run cell step_ms low_ms high_ms".split())
            out.writerows([*key, *(f"{ms:.1f}" for ms in times)] for key, times in said.items())
    steps, errors, ratios, inside = measured(), [], [], 0
    print("| run | cell | steps | median, fastest, slowest ms | said | error % | over balanced, said | medians | step by step | fastest |")
    print("|---|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for key, times in steps.items():
        base, sorted_ms, (step, low, high) = (key[0], partner(key[1])), sorted(times.values()), said[key]
        median = statistics.median(sorted_ms)
        errors.append(step / median - 1)
        inside += low <= median <= high
        over = ["", "", "", ""]
        if key != base:
            over = [step / said[base][0], median / statistics.median(steps[base].values()),
                    statistics.median(ms / steps[base][at] for at, ms in times.items()), sorted_ms[0] / min(steps[base].values())]
            if "hot" in key[1]:
                ratios.append(over[0] / over[2] - 1)
            over = [f"{x:.3f}" for x in over]
        print(f"| {key[0]} | {key[1]} | {len(times)} | {median:.1f}, {sorted_ms[0]:.1f}, {sorted_ms[-1]:.1f} | {step:.1f} | {100 * errors[-1]:+.1f} | "
              + " | ".join(over) + " |")
    mean = [100 * statistics.fmean(map(abs, e)) for e in (errors, ratios)]
    print(f"{len(errors)} cells: mean error {mean[0]:.1f} % ({100 * statistics.fmean(errors):+.1f}), {inside} inside; "
          f"{len(ratios)} hot over balanced: {mean[1]:.1f} %, {100 * max(map(abs, ratios)):.1f} % at most")
