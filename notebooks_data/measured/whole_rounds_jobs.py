"""What the program says of the cells of whole_rounds.json.  whole_rounds_jobs.py SPILLWAY SCRATCH OUT.csv     Needs h5py."""
import csv
import json
import pathlib
import subprocess
import sys

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


def ask(spillway, scratch, run, *words):
    """The row's time of a replay."""
    job, trace = scratch / f"{run['name']}.yaml", scratch / f"{run['name']}.h5"
    pipeline_jobs.write_job(run, str(job))
    if not trace.exists():
        pipeline_jobs.write_trace(run, str(trace))
    out = subprocess.run([spillway, "replay", trace, "--job", job, *words, "--format", "json"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["rows"][0]["time"]


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with open(sys.argv[3], "w") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow("run cell step_ms low_ms high_ms".split())
        for one in cells():
            time = ask(sys.argv[1], folder, one, "--stack", STACK)
            out.writerow([one["of"], one["cell"], *(f"{1e3 * time[k]:.1f}" for k in ("step_s", "low_s", "high_s"))])
            file.flush()
            print(one["name"], time["step_s"], {k: round(1e3 * v["exposed_s"], 1) for k, v in time["components"].items()}, flush=True)
