#!/usr/bin/env python3
"""What `spillway explain` prints of random jobs adds up: a formula's numbers come to the bytes of its row, its letters, told from the job's
files alone, to those numbers; shapes likewise. Rows come to what is needed up to them, and those at the peak to what `plan` says of the
same job; so do tensors of the traffic.

formulas_oracle.py SPILLWAY SCRATCH ROOT [--cases N] [--seed N]"""
import json
import math
import os
import pathlib
import random
import re
import sys

from oracle_run import Oracle
from random_jobs import Job


def argument(name, default):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


program, scratch = sys.argv[1], pathlib.Path(sys.argv[2]) / "formulas_oracle"
cases = argument("--cases", 60)
scratch.mkdir(parents=True, exist_ok=True)
os.environ["OMP_NUM_THREADS"] = "1"  # short questions, whose threads would wait for each other
oracle = Oracle(program, "formulas_oracle")
check = oracle.check
unread, seen = {}, {"numbers": 0, "letters": 0, "shapes": 0, "traffic": 0, "planned": 0}


# --- Formulas ---

NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def value_of(text, letters):
    """Of sums and products, written side by side or with x; None where a word is none of the letters."""
    words = re.findall(rf"{NUMBER}|[A-Za-z_]\w*|[-+/(),]", text)
    if "".join(words) != text.replace(" ", ""):
        return None
    out = []
    for word in words:
        if word == "x":
            out.append("*")
            continue
        if re.fullmatch(r"[A-Za-z_]\w*", word) and word not in letters and word not in ("min", "max", "ceil"):
            return None
        if out and re.match(r"[\w(.]", word) and re.match(r"[\w).]", out[-1][-1]) and out[-1] not in ("min", "max", "ceil", "*"):
            out.append("*")
        out.append(f"float({word})" if re.match(NUMBER, word) else repr(float(letters[word])) if word in letters else word)
        if word in letters or re.match(NUMBER, word):
            out[-1] = f"({out[-1]})"
    try:
        return float(eval("".join(out), {"__builtins__": {}}, {"min": min, "max": max, "ceil": math.ceil, "float": float}))
    except (SyntaxError, TypeError, ZeroDivisionError):
        return None


def close(a, b, within=2e-5):
    return abs(a - b) <= within * max(abs(a), abs(b)) + 1.0


def check_formula(what, row, letters):
    name, text, size = row["component"], row["formula"], row["bytes"]
    if "in fp8" in text or text.startswith("of units of"):  # more bytes, and what is kept of them, which are not said
        return
    for more, sign in ((rf" \+ ({NUMBER}) of norms", -1), (rf" - ({NUMBER}) of modules that run again", 1)):
        found = re.search(more, text)
        size += sign * float(found[1]) if found else 0.0
        text = re.sub(more, "", text)
    found = re.search(r" x (\d+)(?: / \d+)?, but (\d+) B of each second moment", text)
    if found:
        size *= 2 / (1 + int(found[2]) / int(found[1]))
        text = re.sub(", but.*", "", text)
    parts = text.split(" = ")
    shape = re.fullmatch(rf"\[(?:\w+ = )?(.*?), (.*)\] x (\d+) B = ({NUMBER}) x ({NUMBER}) x (\d+)", text)
    if shape:
        a, b, c = map(float, shape.groups()[3:])
        check(close(a * b * c, size), f"{what}: {text}, {size}")
        for said, number in ((shape[1], a), (shape[2], b)):
            told = value_of(said, letters[0])
            if told is not None:
                seen["shapes"] += 1
                check(close(told, number), f"{what}: {said} is {told}: {text}")
        return
    told = value_of(parts[-1], {})
    if told is None:
        unread.setdefault(name, text)
        return
    seen["numbers"] += 1
    check(close(told, size), f"{what}: {text} is {told}, not {size}")
    if len(parts) > 1 and size > 0:
        told = next((v for v in (value_of(parts[-2], k) for k in letters) if v is None or close(v, size)), math.nan)
        if told is not None:
            seen["letters"] += 1
            check(close(told, size), f"{what}: {text}: its letters are {told}, not {size}")
        else:
            unread.setdefault(name, text)


def check_memory(what, job, peak):
    done = oracle.call("explain", "--job", job.path, *job.set, "--stack", "none", "--format", "json")
    if done.returncode:
        check(False, f"{what}: {done.stderr}")
        return
    rows, upto = json.loads(done.stdout), 0.0
    for row in rows:
        check(row["bytes"] >= 0 and row["kind"] in ("argument", "temporary"), f"{what}: {row}")
        if row["at_peak"] == "yes":
            upto += row["bytes"]
            check(row["upto_bytes"] == upto, f"{what}: {row['component']} {row['upto_bytes']}, up to it {upto}")
        check_formula(f"{what} {row['component']}", row, job.letters())
    if peak is not None:
        check(upto == peak["max_bytes"], f"{what}: {upto} explained, {peak['max_bytes']} planned")
        state = sum(row["bytes"] for row in rows if row["at_peak"] == "yes" and row["kind"] == "argument")
        check(state == peak["argument_bytes"], f"{what}: {state} of state explained, {peak['argument_bytes']} planned")
        named = {}
        for row in rows:
            if row["at_peak"] == "yes":
                named[row["component"]] = named.get(row["component"], 0) + row["bytes"]
        planned = {k: v for k, v in peak["components"].items() if v}
        check({k: v for k, v in named.items() if v} == planned, f"{what}: {named.items() ^ planned.items()}")


def moved(operation, gpus):
    """Shares of a buffer that leave a GPU."""
    if operation == "send":
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (gpus - 1) / gpus


def check_traffic(what, job, planned):
    done, letters, together = oracle.call("explain", "--job", job.path, *job.set, "--traffic", "--format", "json"), job.letters(), {}
    check(done.returncode == 0, f"{what}: {done.stderr}")
    for row in json.loads(done.stdout) if done.returncode == 0 else ():
        size, name = row["bytes"], f"{what}: {row['purpose']} {row['tensor']} {row['operation']}"
        told = next((v for v in (value_of(row["formula"], k) for k in letters) if v is None or close(v, size) or close(v, size * row["count"])),
                    math.nan)
        if told is None:
            unread.setdefault("traffic " + row["tensor"], row["formula"])
        else:
            seen["traffic"] += 1
            check(told == told, f"{name}: {row['formula']}, {size} of {row['count']}")
        want = row["times"] * row["count"] * size * moved(row["operation"], row["gpus"]) / job.PP
        check(close(want, row["step_bytes"]), f"{name}: {row['step_bytes']} a step, not {want}")
        together[row["purpose"]] = together.get(row["purpose"], 0.0) + row["step_bytes"]
    parts = planned["components"] if planned else {}
    for purpose, sent in together.items():
        if purpose in parts and purpose != "exchanges":  # of which a plan counts what depends on routing
            check(close(sent, parts[purpose]), f"{what}: {sent} explained of {purpose}, {parts[purpose]} planned")
            seen["planned"] += 1


def main():
    rng, accepted = random.Random(argument("--seed", 33)), 0
    for number in range(cases):
        job = Job(rng, number, scratch)
        what = f"{number} {job.scheme} {job.remat} EP {job.EP} TP {job.TP} CP {job.CP} PP {job.PP} {' '.join(job.set)}"
        done = oracle.call("plan", "--job", job.path, *job.set, "--imbalance", 1, "--stack", "none", "--format", "json")
        if done.returncode > 1:
            if "--show" in sys.argv:
                print(what, done.stderr.strip()[:200])
            continue
        accepted += 1
        row = json.loads(done.stdout)["rows"][0]
        check_memory(what, job, row["memory"])
        check_traffic(what, job, row.get("traffic"))
    if "--show" in sys.argv:
        print(accepted, seen, *(f"{name} | {formula}" for name, formula in unread.items()), sep="\n")
    check(accepted > cases / 3 and all(count > cases for count in seen.values()), f"too few are looked at: {accepted} jobs, {seen}")
    oracle.finish(20 * cases)


main()
