#!/usr/bin/env python3
"""Runs of Megatron-Core with TransformerEngine in pipelines and micro-batches on H100, those that ran out of memory under a limit
included (notebooks_data/measured/whole_pipelines_h100.csv, and whole_validation_h100.csv, which was predicted before it was run): what
`replay` says of their routing beside what was measured. Left out:
drawn routing and onehot, whose traces take seconds each (notebooks_data/fits_scores.py asks about them too).

pipelines_measured_oracle.py SPILLWAY SCRATCH ROOT"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
sys.dont_write_bytecode = True
sys.path.insert(0, str(root / "notebooks_data/measured"))
import pipeline_jobs  # noqa: E402

oracle = Oracle(str(program), "pipelines_measured_oracle")
REQUESTED, RESERVED = (-0.3, 0.2), (-1.4, 2.6)  # per cent; the worst: ds-pp2-ep2-mtp-zipf, qw-pp2-vp2-ep2-zipf; mx-pp2-full, t-qx-tensorwise
# Called out of memory in the step before, or behind, the one that was.
OTHER_STEP = {"qw-pp2-uneven-oom93": 1, "qw-ep2-turns-oom96": 1, "gl-ep2-turns-oom97": 3}
STACK = "megatron-te-h100-few-2026-11"  # what `plan` takes for so few GPUs
# Per cent of a step: mean, and the worst, qw-pp2-uneven; and the share of steps inside. These are a process's first steps, in which cuBLAS meets
# new shapes; the host's figures are of later ones (whole_rounds_h200.csv), so these bounds came after the results.
STEP, WORST, INSIDE = 13, 38, 0.85
scratch.mkdir(parents=True, exist_ok=True)
steps, inside = {}, 0
ran = died = 0
fitted = pipeline_jobs.read()
runs = {**fitted, **pipeline_jobs.read("whole_validation_h100.csv")}
for name, ranks in runs.items():
    run = max(ranks, key=lambda r: r["device_total"])
    if "zipf" in run["routing"] or run["routing"] == "onehot":
        continue
    job, trace = scratch / "job.yaml", scratch / "trace.h5"
    if ">" not in run["routing"]:
        run["steps"] = 3
    pipeline_jobs.write_job(run, str(job))
    pipeline_jobs.write_trace(run, str(trace))
    row = json.loads(oracle.must("replay", trace, "--job", job, "--stack", STACK, "--every-rank", "--format", "json"))["rows"][0]
    memory, time = row["memory"], row["time"]
    replayed = memory["allocator"]
    if pipeline_jobs.ran(ranks):
        ran += 1
        oracle.check(memory["verdict"] == "fits", f"{name} ran, and is called {memory['verdict']}")
        for what, (least, most) in (("requested", REQUESTED), ("reserved", RESERVED)):
            truth = max(int(r[f"{what}_peak"]) for r in ranks)
            error = 100 * (replayed[what]["max_bytes"] / truth - 1)
            oracle.check(least < error < most, f"{name}, {what}: {error:+.2f} %")
        if ">" in run["routing"] or name not in fitted:  # a turn's times are of the steps after it
            continue
        truth = max(float(r["step_ms"]) for r in ranks) / 1e3
        steps[name] = 100 * (time["step_s"] / truth - 1)
        inside += time["low_s"] <= truth <= time["high_s"]
        oracle.check(abs(steps[name]) < WORST, f"{name}: a step of {time['step_s']:.3f} s, measured {truth:.3f}")
        continue
    died += 1
    where, failed = replayed["runs_out"], pipeline_jobs.failures(ranks)
    oracle.check(memory["verdict"] == "oom" and where is not None, f"{name} ran out of memory, and is called {memory['verdict']}")
    if where is not None:
        stages = {int(r["stage"]) for r in failed}
        oracle.check(where["stage"] in stages, f"{name}: stage {where['stage']}, not one of {stages}")
        oracle.check(where["rank"] in {int(r["data_rank"]) for r in failed}, f"{name}: rank {where['rank']}")
        step = OTHER_STEP.get(name, int(failed[0]["failed_step"]))
        oracle.check(where["step"] == step, f"{name}: step {where['step']}, not {step}")
        oracle.check(where["optimizer"] == (failed[0]["failed_phase"] == "optimizer" and name not in OTHER_STEP), f"{name}: {where}")
mean = sum(map(abs, steps.values())) / len(steps)
oracle.check(mean < STEP, f"steps {mean:.1f} % off on the mean")
oracle.check(inside >= INSIDE * len(steps), f"{inside} of {len(steps)} steps inside their intervals")
oracle.check(len(steps) >= 25, f"{len(steps)} steps")
oracle.check(ran >= 30 and died >= 16, f"{ran} runs that ended, {died} that did not")
oracle.finish(least=120)
