#!/usr/bin/env python3
"""A bare Megatron stack through `replay`, beside what was measured on 4 H200: most requested bytes of each step of the shipped
trace, to the byte, and on which rank; the step and what real routing costs, beside the
measured milliseconds; then the properties of what is written step by step.

bare_layers.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

program, scratch, root = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
data, trace = root / "notebooks_data", root / "traces" / "data" / "training_aux_e64_slice.h5"
checks = failed = 0


def check(good, what):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print("FAIL", what)


def replay(job, *arguments):
    done = caller.call([program, "replay", trace, "--job", job, "--format", "json", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["rows"][0]


job = scratch / "bare_layers.yaml"
text = (data / "reserved" / "ds3_e64_h200.yaml").read_text().replace("sequence_length: 16384", "sequence_length: 8192")
for name in ("ds3_e64.json", "h200-4.yaml"):
    text = text.replace(name, str(data / "reserved" / name))
job.write_text(text)
measured = [row for row in csv.DictReader(open(data / "measured" / "megatron_h200_runs.csv"))
            if (row["model"], row["layers"], row["tokens_per_rank"], row["capacity_factor"], row["recompute"], row["expert_module"])
            == ("ds3-e64", "4", "8192", "", "none", "grouped")]
for position, step in ((0, 50), (1, 399)):
    row = replay(job, "--steps", str(position))
    memory = row["memory"]
    most = max((r for r in measured if r["routing"] == f"aux:{step}"), key=lambda r: int(r["requested_peak_bytes"]))
    check(row["steps"]["first"] == step, f"step {row['steps']}")
    check(memory["max_bytes"] == int(most["requested_peak_bytes"]), f"aux:{step}: {memory['max_bytes']} {most}")
    check(memory["worst"]["rank"] == int(most["rank"]), f"aux:{step}: {memory['worst']}")
    check(row["traffic"]["rows_max"] == max(int(r["rows_received_max_layer"]) for r in measured if r["routing"] == f"aux:{step}"),
          f"aux:{step}: rows")
    timed = replay(job, "--steps", str(position), "--stack", "megatron-h200-2026-11")["time"]
    slowest = lambda routing: max(float(r["step_ms"]) / 1e3 for r in measured if r["routing"] == routing and r["repeat"] == "0")
    true, ratio = slowest(f"aux:{step}"), slowest(f"aux:{step}") / slowest("balanced")
    check(abs(timed["step_s"] / true - 1) < 0.03, f"aux:{step}: {timed['step_s']} s, measured {true}")
    check(abs(timed["step_s"] / timed["balanced_step_s"] / ratio - 1) < 0.02, f"aux:{step}: {ratio} times balanced, measured")
    check(memory["verdict"] == "fits" and memory["oom_probability"] == 0 and 0 < memory["oom_high"] < 1, "verdict")
both = replay(job, "--output", scratch / "bare_layers.h5")["memory"]["allocator"]
done = caller.call([program, "explain", "--job", job, "--format", "json"], capture_output=True, text=True)
rows = json.loads(done.stdout)
check(sum(r["bytes"] for r in rows if r["at_peak"] == "yes")
      == max(int(r["requested_peak_bytes"]) for r in measured if r["routing"] == "balanced"), "explain, balanced")
check(both["requested"]["max_bytes"] <= both["allocated"]["max_bytes"] <= both["reserved"]["max_bytes"], "order")
check(both["with_expandable_segments"]["reserved"]["max_bytes"] < both["reserved"]["max_bytes"], "expandable")
job.write_text(text.replace("memory_fraction: 1", "memory_fraction: 0.21"))
less = replay(job)["memory"]
check(less["verdict"] == "oom" and less["oom_probability"] == 0.5 and abs(less["oom_low"] - 0.01258) < 1e-5, f"less memory {less}")
check(less["allocator"]["advice"].startswith("with expandable segments this job fits"), "advice")
check(less["max_bytes"] == 30714451105, "what failed steps would have needed")
try:
    import h5py
    with h5py.File(scratch / "bare_layers.h5") as result:
        allocated, reserved = result["allocated_gib"][0], result["reserved_gib"][0]
    check(len(allocated) == 2 and all(a <= r for a, r in zip(allocated, reserved)), "allocated above reserved")
    check(abs(max(reserved) * 2**30 - both["reserved"]["max_bytes"]) < 1, "reserved by step")
except ImportError:
    print("no h5py: the file is not read")
print(f"{checks} checks, {failed} failed")
sys.exit(1 if failed or not checks else 0)
