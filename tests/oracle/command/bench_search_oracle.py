#!/usr/bin/env python3
"""bench search: its counts are those of the same search by `plan --search`, and it plans few of the candidates wholly; what it refuses. No
seconds are compared.

bench_search_oracle.py SPILLWAY"""
import json
import subprocess
import sys

program = sys.argv[1]
checks = 0


def check(good, text):
    global checks
    checks += 1
    if not good:
        sys.exit(f"bench_search_oracle: {text}")


def run(*words):
    return subprocess.run([program, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


SPACE = ("--model olmoe-1b-7b --cluster h100:8x2 --sequence-length 4096 --scheme megatron-flex --set optimizer=distributed --global-batch 64 "
         "--over pipeline=1,2 --over micro-batches=2,4,8 --over expert-parallel=2,4,8 --over virtual-stages=0,2 "
         "--over remat=full,none,selective,moe_act").split()
done = run("bench", "search", "olmoe", "--format", "json")
check(done.returncode == 0, done.stderr)
row, = json.loads(done.stdout)
again, = json.loads(run("bench", "search", "--format", "json").stdout)
answer = json.loads(run("plan", "--search", *SPACE, "--format", "json").stdout)
fates = answer["fates"]
counts = ("points", "candidates", "sharpened", "planned")
check(all(row[key] == again[key] for key in counts), f"{row}, and as the default {again}")
check(row["space"] == "olmoe" and row["points"] == answer["points"] == sum(fates.values()), f"{row['points']} points, not {answer['points']}")
bounds = ("cannot_be", "uneven_global_batch", "batch_too_large", "unknown_alone", "state_too_large", "memory_too_large", "no_time")
check(row["candidates"] <= row["points"] - sum(fates[key] for key in bounds), f"{row['candidates']} candidates beside {fates}")
check(0 < row["sharpened"] <= row["candidates"], f"{row['sharpened']} of {row['candidates']} are sharpened")
kept = fates["replayed_good"] + fates["replayed_drops"] + fates["replayed_slow"]
check(kept <= row["planned"] <= kept + fates["replayed_oom"], f"{row['planned']} are planned, beside {fates}")
# What a search plans is the front, what was in front for a while, and what the allocator alone refuses.
check(len(answer["front"]) <= row["planned"] <= 2 * len(answer["front"]), f"{row['planned']} are planned of a front of {len(answer['front'])}")
for key in ("bounds_s", "sharpening_s", "plans_s", "seconds", "points_a_minute"):
    check(row[key] > 0, f"{key} of {row}")
check(row["bounds_s"] + row["sharpening_s"] + row["plans_s"] <= row["seconds"], f"parts and all of {row}")
for words, say in ((["nowhere"], "it is one of olmoe, deepseek-v3-part, deepseek-v3"), (["--format", "xml"], "xml")):
    done = run("bench", "search", *words)
    check(done.returncode == 2 and say in done.stderr, f"{words}: {done.returncode} {done.stderr}")
print(f"{checks} checks")
