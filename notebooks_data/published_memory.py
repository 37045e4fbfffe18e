#!/usr/bin/env python3
"""Published memory of training jobs (megatron/published_memory.csv) beside what `plan` says of them, like with like: the most that is
allocated in a step and what is allocated between steps, both of the last rank, which writes the logs of Megatron-LM, and a device in use
beside what the allocator reserves. Routing is even.

published_memory.py SPILLWAY [--write DOC.md]     --write: between "<!-- published_memory: begin -->" and "<!-- published_memory: end -->" """
import argparse
import csv
import json
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- published_memory: begin -->", "<!-- published_memory: end -->"


SEEDS = {"device": (1, 2, 3)}  # a device's reading is of many steps: of three draws, the one that reserves the most


def asked(program, row):
    def one(seed):
        words = [program, *shlex.split(row["command"]), "--routing", "uniform", "--seed", str(seed), "--format", "json"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=HERE / "megatron")
        if done.returncode != 0:
            sys.exit(f"{row['row']}: {done.stderr}")
        return json.loads(done.stdout)["rows"][0]["memory"]
    return max((one(seed) for seed in SEEDS.get(row["what"], (1,))), key=lambda memory: predicted(row, memory))


def predicted(row, memory):
    if row["what"] == "device":
        return memory["allocator"]["reserved"]["max_bytes"]
    last = memory["stages"][-1] if memory.get("stages") else memory
    return last["peak_bytes" if row["what"] == "peak" else "argument_bytes"]


def scored(program):
    """Rows of the table with `verdict`, `said`, in bytes, and `error`, which is None where the run ended out of memory."""
    with open(HERE / "megatron/published_memory.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            memory = asked(program, row)
            said, true = predicted(row, memory), row["published_bytes"]
            yield {**row, "verdict": memory["verdict"], "said": said, "error": said / int(true) - 1 if true else None}


def cells(r):
    """What the table says of one row: published, said, error."""
    if r["error"] is None:
        return f"{r['outcome']} | {r['verdict']}, {r['said'] / 1e9:.2f} | "
    return f"{int(r['published_bytes']) / 1e9:.2f} | {r['said'] / 1e9:.2f} | {100 * r['error']:+.1f} %"


def table(program):
    lines = ["| row | what | published GB | said | error | looked at | missing |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {r['row']} | {r['what']} | {cells(r)} | {r['looked_at']} | {r['missing']} |" for r in scored(program)]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("spillway", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    given = parser.parse_args()
    text = table(given.spillway.resolve())
    print(text)
    if given.write:
        page = given.write.read_text()
        given.write.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page, flags=re.S))
