#!/usr/bin/env python3
"""Runs of whole_device.json, whole training steps under Megatron-Core with TransformerEngine on two H200, as jobs of spillway (on
a cluster of H100), and what it says of the device in use: python3 whole_device_jobs.py SPILLWAY SCRATCH PREDICTED.csv (needs h5py). What lies
outside of the allocator is what two H200 and two H100 had in runs before (docs/validation_memory.md): by kind of parallelism, and
128 MiB more on a pipeline's last stage."""
import csv
import json
import pathlib
import sys

import pipeline_jobs

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
OUTSIDE = {"expert": 4106 * MIB, "pipeline": 3006 * MIB}
LAST_STAGE = 128 * MIB
STACK = "megatron-te-h100-few-2026-11"
STEPS = 4


def run_of(given):
    """As pipeline_jobs has it."""
    return dict(name=given["name"], model=given["model"], gpus=2, pipeline=given.get("pipeline", 1), virtual_stages=0,
                expert_parallel=given.get("expert", 1), micro_batches=given["micro_batches"], micro_batch=given["micro_batch"], sequence=4096,
                layout="", predictions=0, remat=given.get("remat", "none"), routing="balanced", steps=STEPS, limit_bytes="",
                permute_fusion=True, fused_wgrad=True, loss="te", fp8="", device_total="")


def ask(program, folder, given):
    run, job, trace = run_of(given), folder / f"{given['name']}.yaml", folder / f"{given['name']}.h5"
    pipeline_jobs.write_job(run, str(job))
    pipeline_jobs.write_trace(run, str(trace))
    return run, pipeline_jobs.replay(program, trace, job, "--stack", STACK, "--every-rank")["memory"]


def outside_of(run):
    return OUTSIDE["pipeline" if run["pipeline"] > 1 else "expert"]


def runs():
    return json.loads((HERE / "whole_device.json").read_text())


def main(program, scratch, table):
    folder = pathlib.Path(scratch)
    folder.mkdir(parents=True, exist_ok=True)
    with open(table, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["name", "verdict", "requested_bytes", "reserved_bytes", "outside_bytes", "in_use_bytes"], lineterminator="\n")
        writer.writeheader()
        for given in runs():
            run, memory = ask(program, folder, given)
            a, outside = memory["allocator"], outside_of(run)
            row = dict(name=run["name"], verdict=memory["verdict"], requested_bytes=a["requested"]["max_bytes"],
                       reserved_bytes=a["reserved"]["max_bytes"], outside_bytes=outside, in_use_bytes=outside + a["reserved"]["max_bytes"])
            writer.writerow(row)
            print(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
