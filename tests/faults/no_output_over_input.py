#!/usr/bin/env python3
"""No command writes over what it reads: whatever the option and whatever name or link the file goes by.

no_output_over_input.py SPILLWAY SCRATCH"""
import os
import pathlib
import shutil
import subprocess
import sys

import cases

program, scratch = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "no_output_over_input"
shutil.rmtree(scratch, ignore_errors=True)
cases.make_inputs(program, scratch)
shutil.copy(cases.ROOT / "sim" / "stacks" / "maxtext-rocm-2026-05.yaml", scratch / "stack.yaml")
replay = ["replay", "trace.h5", "--job", "job.yaml", "--stack", "./stack.yaml", "--output"]
imported = ["trace", "import", "megatron-router", "router.jsonl", "--experts", "8", "--top-k", "2", "--ranks", "1",
            "--output"]
calibrate = ["calibrate", "memory", "table.csv", "--stack", "maxtext-rocm-2026-05", "--output"]
commands = [  # how the output is given last, and what is read
    (["trace", "slice", "trace.h5"], ["trace.h5"]),
    (["trace", "slice", "trace.h5", "--record"], ["trace.h5"]),
    (replay, ["trace.h5", "job.yaml", "cluster.yaml", "model.json", "stack.yaml"]),
    (["report", "result.h5", "--output"], ["result.h5"]),
    (imported, ["router.jsonl"]),
    (["trace", "import", "array", "ids.npz", "--array", "ids", "--experts", "8", "--top-k", "2", "--axes",
      "tokens,layers,k", "--output"], ["ids.npz"]),
    (calibrate, ["table.csv"]),
]
bad = count = 0
for command, inputs in commands:
    for name in inputs:
        path = scratch / name
        before = path.read_bytes()
        hard, soft = scratch / "hard_link", scratch / "soft_link"
        for link in (hard, soft):
            link.unlink(missing_ok=True)
        os.link(path, hard)
        soft.symlink_to(path)
        for output in (name, f"./{name}", str(path), hard.name, soft.name):
            done = subprocess.run([program, *command, output], cwd=scratch, capture_output=True, text=True)
            count += 1
            whole = path.read_bytes() == before and soft.is_symlink() and hard.stat().st_ino == path.stat().st_ino
            if done.returncode != 2 or "is the input" not in done.stderr or not whole:
                bad += 1
                print(f"FAIL {' '.join(command)} {output}: exit {done.returncode}, {'kept' if whole else 'LOST'}: {done.stderr}")
        hard.unlink()
        soft.unlink()
print(f"{count} outputs over inputs, {bad} not refused")
sys.exit(1 if bad or not count else 0)
