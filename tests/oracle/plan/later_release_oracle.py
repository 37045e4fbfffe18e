#!/usr/bin/env python3
"""A plan that names no stack says what a later release takes, where that differs by more than the interval:
later_release_oracle.py SPILLWAY. The later release is asked by name, in a plan of its own."""
import json
import subprocess
import sys

program = sys.argv[1]
LATER = "xla-cuda-0.12.0-maxtext-0.2.5"
failures = []


def check(good, what):
    if not good:
        failures.append(what)


def ask(model, cluster, *more):
    words = [program, "plan", "--model", model, "--cluster", cluster, "--expert-parallel", "8", "--fsdp", "8",
             "--sequences-per-gpu", "1,4", "--sequence-length", "4096", "--precision", "bf16", "--remat", "full",
             "--routing", "uniform", "--scheme", "gmm", "--scheme", "ring", *more]
    return subprocess.run([*words, "--format", "json"], capture_output=True, check=True, text=True).stdout, words


def point(row):
    return row["scheme"], row["expert_parallel"], row["sequences_per_gpu"]


def compare(model):
    text, words = ask(model, "h200-8x8")
    plan = json.loads(text)
    later = {point(r): r["memory"] for r in json.loads(ask(model, "h200-8x8", "--stack", LATER)[0])["rows"]}
    differ = [i for i, r in enumerate(plan["rows"])
              if not r["memory"]["low_bytes"] <= later[point(r)]["peak_bytes"] <= r["memory"]["high_bytes"]]
    said = plan["plan"]["later_release"]
    check((said is not None) == bool(differ), f"{model}: {differ} differ, {said} said")
    printed = subprocess.run(words, capture_output=True, check=True, text=True).stdout
    check((LATER in printed) == bool(differ), f"{model}: in text")
    if said is None or not differ:
        return 0
    answer = plan["plan"]["fastest"]
    want = later[point(plan["rows"][said["point"]])]
    check(said["point"] == (answer if answer in differ else differ[0]), f"{model}: point {said['point']} of {differ}")
    check(said["points"] == len(differ) and said["stack"] == LATER, f"{model}: {said}")
    check([said["bytes"], said["low_bytes"], said["high_bytes"], said["verdict"]] ==
          [want["peak_bytes"], want["low_bytes"], want["high_bytes"], want["verdict"]], f"{model}: {said}, {want}")
    return len(differ)


found = [compare(m) for m in ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v3")]
check(sum(found) >= 3 and 0 in found, f"points that differ: {found}")
for more in (("--stack", "xla-cuda-0.10.2"), ("--stack", "none")):
    check(json.loads(ask("mixtral-8x7b", "h200-8x8", *more)[0])["plan"]["later_release"] is None, f"{more}: named")
check(json.loads(ask("mixtral-8x7b", "mi355x-8x8")[0])["plan"]["later_release"] is None, "no later release for AMD's")
print(f"points that differ: {found}", *failures, sep="\n")
sys.exit(1 if failures else 0)
