#!/usr/bin/env python3
"""A second stack of each kind, of a GPU that nobody sells, changes no answer for other GPUs. Once among the presets (spillway_second, by
tests/unit/second_stack.cmake), once as files of a user: --cluster FILE and --stack FILE, which give the numbers that presets give.

second_stack_oracle.py SPILLWAY SPILLWAY_SECOND MADE SCRATCH; MADE: the folder of the second stacks"""
import json
import pathlib
import subprocess
import sys

program, second, made, scratch = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]) / "second_stack"
checks = failures = 0
WHOLE = ("--expert-parallel", "8", "--optimizer", "distributed", "--scheme", "megatron-alltoall", "--imbalance", "1.5")
LAYERS = (*WHOLE, "--set", "model_part=expert_layers", "--fsdp", "1", "--gpus", "8")
COMPILED = ("--expert-parallel", "8", "--scheme", "gmm", "--imbalance", "1.5")
JOBS = {"whole": WHOLE, "layers": LAYERS, "compiled": COMPILED}


def check(good, what):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print("FAILED:", what)


def plan(of, cluster, job, *more):
    words = [of, "plan", "--format", "json", "--all", "--model", "olmoe-1b-7b", "--cluster", str(cluster), *JOBS[job], *more]
    run = subprocess.run(words, capture_output=True, text=True)
    check(run.returncode == 0, f"{words}: {run.stderr}")
    return run.stdout


def seconds(text):
    """Of every point: all numbers whose key ends in _s, in order."""
    found = []

    def walk(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key.endswith("_s") and isinstance(value, (int, float)):
                    found.append((key, value))
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(json.loads(text))
    return found


# Among the presets: other GPUs are answered byte by byte as before, and the x900 takes the second stacks.
answers = {}
for cluster in ("h200:8x8", "mi355x:8x8", "b200:8x8"):
    for job in JOBS:
        answers[cluster, job] = plan(program, cluster, job)
        check(len(seconds(answers[cluster, job])) > 4, f"{cluster} {job}: no times")
        check(answers[cluster, job] == plan(second, cluster, job), f"{cluster} {job}: another answer beside a second stack")
for job, name in (("layers", "megatron-x900-2027-06"), ("compiled", "xla-x900-2027-06")):
    answers["x900", job] = plan(second, "x900-8x8", job)
    check(f'"{name}"' in answers["x900", job], f"x900 {job}: not planned with {name}")

# As files of a user, which name each other from their own folder on.
scratch.mkdir(parents=True, exist_ok=True)
cluster_file = scratch / "x900.yaml"
cluster_file.write_text((made / "clusters/x900-8x8.yaml").read_text())
layers_file = scratch / "layers.yaml"
layers_file.write_text((made / "megatron_stacks/megatron-x900-2027-06.yaml").read_text().replace("cluster: x900-8x8", "cluster: x900.yaml"))
(scratch / "times.yaml").write_text((made / "time_stacks/xla-x900-2027-06.yaml").read_text())
compiled_file = scratch / "compiled.yaml"
memory = (made / "stacks/xla-x900-2027-06.yaml").read_text()
compiled_file.write_text(memory + "times: times.yaml\n")
for job, file in (("layers", layers_file), ("compiled", compiled_file)):
    wanted = seconds(answers["x900", job])
    check(len(wanted) > 4 and seconds(plan(program, cluster_file, job, "--stack", str(file))) == wanted, f"x900 {job} by files: other seconds")
by_name = seconds(plan(second, "h200:8x8", "layers", "--stack", "megatron-x900-2027-06"))
check(seconds(plan(program, "h200:8x8", "layers", "--stack", str(layers_file))) == by_name, "h200 with the x900's stack as a file: other seconds")
check(by_name != seconds(answers["h200:8x8", "layers"]), "h200 with the x900's stack: as without")
print(f"{checks} checks, {failures} failures")
sys.exit(failures > 0 or checks == 0)
