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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
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
unread, seen = {}, {"numbers": 0, "names": 0, "letters": 0, "shapes": 0, "traffic": 0, "planned": 0}


# --- Formulas ---

NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def value_of(text, letters):
    """Of sums and products, written side by side or with x; None where a word is none of the letters."""
    text = re.sub(r"([\w.+]+)\^2", r"\1 x \1", text)
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


TOKEN = rf"{NUMBER}|[A-Za-z_]\w*|[-+/()]"


def check_names(what, words, numbers, letters):
    """Where both halves have the same form, every letter that is known stands for the number in its place."""
    left = re.findall(TOKEN, words)
    right = [word for word in re.findall(TOKEN, numbers.replace("+ -", "+ ").replace("x -", "x ")) if word != "x"]
    same = len(left) == len(right) and all(not re.match(r"[-+/()]", a + b) or a == b for a, b in zip(left, right))
    for name, number in zip(left, right) if same else ():
        known = [k[name] for k in letters if name in k]
        if known and re.match(NUMBER, number):
            seen["names"] += 1
            check(any(close(v, float(number), 2e-5) for v in known), f"{what}: {name} is {known[0]}, not {number}: {words} = {numbers}")


def check_formula(what, row, letters):
    name, text, size = row["component"], row["formula"].rsplit(": ", 1)[-1], row["bytes"]
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
        check(False, f"{what}: {text} is no formula")
        return
    seen["numbers"] += 1
    most = value_of(parts[-1].replace(" - ", " + "), {})  # differences of rounded numbers
    check(abs(told - size) <= 2e-5 * max(abs(most), size) + 1.0, f"{what}: {text} is {told}, not {size}")
    if len(parts) > 1:
        check_names(what, parts[-2], parts[-1], letters)
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


# --- Models as they are published: every scheme with some of them, a split after the other ---

SPLITS = [[], ["remat=none"], ["optimizer=distributed", "parallel.tensor=2", "parallel.expert=4"],
          ["optimizer=distributed", "parallel.pipeline=2", "batch.sequences_per_gpu=4", "batch.micro_batches=4"],
          ["optimizer=distributed", "precision.recipe=delayed", "remat=none"], ["optimizer_algorithm=muon", "optimizer=distributed"],
          ["optimizer=distributed", "optimizer_on_host=0.5"], ["fsdp2.reshard_after_forward=never"],
          ["fsdp2.reshard_after_forward=always", "fsdp2.replicas=2"], ["attention=unfused", "optimizer=distributed"]]


def letters_of(root, model, chosen):
    config = json.loads((root / "sim" / "models" / f"{model}.json").read_text())
    tensor = next((int(s[-1]) for s in chosen if s.startswith("parallel.tensor=")), 1)
    names = dict(H=("hidden_size",), V=("vocab_size",), heads=("num_attention_heads",), head_dim=("head_dim",),
                 E=("num_experts", "n_routed_experts", "num_local_experts"), K=("num_experts_per_tok",), n=("hc_mult",),
                 F=("moe_intermediate_size", "intermediate_size"), q_lora=("q_lora_rank",), kv_lora=("kv_lora_rank",))
    known = {name: next(config[key] for key in keys if config.get(key)) for name, keys in names.items() if any(config.get(key) for key in keys)}
    return [{**known, "T": 4096 // tensor, "S": 4096, "TP": tensor, "b": 2}]


def check_models(root):
    done = oracle.call("explain", "--model", "mixtral-8x7b", "--cluster", "h200:8x4", "--scheme", "?")
    schemes = done.stderr.split("known schemes: ")[1].strip().split(", ")
    models, asked = ["deepseek-v3", "qwen3-30b-a3b", "deepseek-v4-flash", "mixtral-8x7b", "kimi-linear-48b-a3b"], 0
    for number, scheme in enumerate(schemes):
        for offset in range(4):
            model, chosen = models[(number + offset) % len(models)], SPLITS[(3 * number + offset) % len(SPLITS)]
            extra = [word for key in chosen for word in ("--set", key)]
            done = oracle.call("explain", "--model", model, "--cluster", "h200:8x4", "--scheme", scheme, "--stack", "none", "--format", "json", *extra)
            for row in json.loads(done.stdout) if done.returncode == 0 else ():
                check_formula(f"{scheme} {model} {' '.join(chosen)} {row['component']}", row, letters_of(root, model, chosen))
            asked += done.returncode == 0
    check(asked > 40, f"only {asked} models are looked at")


def main():
    check_models(pathlib.Path(__file__).resolve().parents[3])
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
