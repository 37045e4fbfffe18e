#!/usr/bin/env python3
"""bench plan: what it prints, also beside another program, and what it refuses; and that a plan replays its routing once, and once more
only where the other set of formats is shown: walk_cost counts the layers that a command goes through.

bench_plan_oracle.py SPILLWAY WALK_COST SCRATCH"""
import json
import pathlib
import re
import subprocess
import sys

program, walk_cost, scratch = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
checks = 0


def check(good, text):
    global checks
    checks += 1
    if not good:
        sys.exit(f"bench_plan_oracle: {text}")


def other_bench(*words):
    return subprocess.run([program, "bench", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def bench(*words):
    once = [] if "--repeats" in words else ["--repeats", "1"]
    return other_bench("plan", *once, *words)


def rows(*words):
    run = bench("--format", "json", *words)
    check(run.returncode == 0, f"{words}: {run.stderr}")
    return json.loads(run.stdout)


# The other planner: of two jobs it says nothing, and writes down what it was asked.
asked = scratch / "bench_plan_asked"
asked.unlink(missing_ok=True)
other = scratch / "bench_plan_other.sh"
other.write_text(f"#!/bin/sh\necho \"$@\" >> {asked}\ncase $1 in deepseek-v3) echo 0.25 ;; mixtral-8x7b) echo no number ;; *) exit 3 ;; esac\n")
other.chmod(0o755)
GPUS = {"deepseek-v3": 1024, "kimi-k2": 1024, "qwen3-235b-a22b": 128, "mixtral-8x7b": 64, "glm-4.5-air": 64, "gpt-oss-120b": 64}
found = rows("--beside", str(other))
check({row["model"]: int(row["gpus"]) for row in found} == GPUS, f"jobs {found}")
for row in found:
    # One run of each, on a machine that others use: which of the two is shorter may turn, a wrong unit is a factor of a thousand.
    check(1e-3 < row["in_one_process_s"] < 10.0 * row["process_s"] < 1e3, f"seconds of processor time: {row}")
    check(8 << 20 < row["process_bytes"] < 1 << 30 and isinstance(row["process_bytes"], int), f"memory: {row}")
    there = row["model"] in ("deepseek-v3", "mixtral-8x7b")
    said = 0.25 if row["model"] == "deepseek-v3" else None
    check((row["other_process_s"] is not None) == there and row["other_in_one_process_s"] == said, f"beside: {row}")
    check(not there or abs(row["process_ratio"] - row["other_process_s"] / row["process_s"]) < 1e-9, f"the ratio of {row}")
    check(said is None or abs(row["in_one_process_ratio"] - said / row["in_one_process_s"]) < 1e-9, f"the ratio of {row}")
lines = asked.read_text().split("\n")
check(lines[0] == "deepseek-v3 1024 16 64 64" and "mixtral-8x7b 64 1 8 1" in lines, f"asked {lines}")

for words, say in ((["--repeats", "0"], "--repeats 0 measures nothing"), (["--repeats", "100"], "--repeats 100: write a whole number of at most 99"), (["--routing", "nonsense"], "is not planned with --routing nonsense"),
                   (["--format", "xml"], "xml")):
    run = bench(*words)
    check(run.returncode == 2 and say in run.stderr, f"{words}: {run.returncode} {run.stderr}")

# Benches of one process print as they are asked to, and say what they refuse.
allocator = other_bench("allocator", "-n", "2", "-f", "json")
layers = json.loads(allocator.stdout)
check([row["allocated_bytes"] is None for row in layers] == [True, False, False] and isinstance(layers[1]["reserved_bytes"], int), f"{allocator}")
search = other_bench("search", "-f", "csv").stdout.splitlines()
check(len(search) == 2 and search[0].startswith("space,points,") and search[1].startswith("olmoe,144,"), f"{search}")
for words, say in ((["allocator", "--steps", "0"], "--steps 0 measures nothing"), (["allocator", "-f", "xml"], "xml"), (["search", "-f", "xml"], "xml"),
                   (["allocator", "--repeats", "2"], "repeats")):
    run = other_bench(*words)
    check(run.returncode == 2 and say in run.stderr and run.stdout == "", f"{words}: {run}")

JOB = ("plan --model mixtral-8x7b --cluster h100:8x8 --expert-parallel 8 --scheme megatron-flex --optimizer distributed --remat full "
       "--routing uniform").split()
for words, layers in (([], 2), (["--format", "csv"], 2), (["--flags", "megatron"], 2), (["--details"], 4), (["--all"], 4),
                      (["--format", "json"], 4)):
    run = subprocess.run([walk_cost, *JOB, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    units = re.findall(r'"units": (\d+)', run.stderr)
    check(run.returncode == 0 and units == [str(layers)], f"{words} goes through {units} layers, not {layers}")
print(f"{checks} checks")
