#!/usr/bin/env python3
"""`spillway plan --search` against brute force: every single point of random spaces by plain `spillway plan`, the best by the order
that docs/search.md gives, and the points that no other beats.

search_oracle.py SPILLWAY [--cases N] [--seed S] [--few]: --few takes small spaces, of which few say that something was left out"""
import argparse
import functools
import itertools
import json
import math
import pathlib
import random
import re
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle, most_bytes
from certificate import COMPILED, DAY_S, check_certificate, is_timed, keeps, speed, step_tokens

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("--cases", type=int, default=20)
parser.add_argument("--seed", type=int, default=19)
parser.add_argument("--few", action="store_true")
options = parser.parse_args()
oracle = Oracle(options.program, "search_oracle")
check = oracle.check
LEAST_POINTS, MOST_POINTS = (40, 150) if options.few else (150, 600)
KEYS = ("gpus", "pipeline", "tensor", "context", "expert-tensor", "micro-batches", "expert-parallel",
        "virtual-stages", "remat")  # the first changes most slowly
MEGATRON = ["megatron-alltoall", "megatron-flex", "megatron-allgather", "megatron-alltoall:capacity_factor=1"]
OTHERS = ["scattermoe", "megablocks", "sonicmoe"]
MESH = ["gmm", "ragged", "ring"]  # run on MaxText's axes tensor and context
LISTS = ["full", "none", "selective", "moe_act", "moe_act+layernorm"]  # Megatron-Core's that a search tries by itself,
OWN_LISTS = {False: LISTS + ["moe", "layernorm+moe"],  # and those of models without and with multi-latent attention
             True: LISTS + ["moe_act+layernorm+mla_up_proj", "moe", "layernorm+mla_up_proj+moe"]}
MLA = "deepseek-v2-lite"
DEEPEP = ["gmm-deepep", "megatron-flex"]
TRAINED = 1e12  # tokens of a cost, where nobody says another number


def some(draw, values, least=1):
    """Of the values, in their order."""
    return sorted(draw.sample(values, draw.randint(least, min(len(values), 4))), key=values.index)


def of_rank(case, gpus, pipeline, tensor, context):
    """Sequences of a data-parallel rank that come to the global batch; None: no whole number."""
    ranks, rest = divmod(gpus, pipeline * tensor * context)
    return case["global"] // ranks if rest == 0 and case["global"] % ranks == 0 else None


def random_case(draw, timed_megatron, special):
    """A space of at most MOST_POINTS points, and budgets. Small shapes: what is compared is which points are left out. The bounds of
    Megatron-Core need cases of their own: with times, and room for them. special: "long" sequences, the axes of a "mesh", a "stated" imbalance, or
    one "global" batch."""
    while True:
        kind = "megatron" if timed_megatron else draw.choice(["compiled", "compiled", "megatron", "mixed", "untimed"])
        kind = {"mesh": "mesh", "long": draw.choice(["megatron", "compiled"]),
                "stated": draw.choice(["megatron", "mixed", "compiled"])}.get(special, kind)
        own_remats = kind == "megatron" and special != "stated" and draw.random() < 0.5
        cut = kind == "mesh" or kind == "megatron" and draw.random() < 0.5  # tensor and context parallelism
        long = special == "long"
        timed_megatron = timed_megatron or long and kind == "megatron"
        case = {
            "optimizer": "distributed" if kind == "megatron" else "sharded",
            "stack": ["--stack", "none"] if cut and not timed_megatron and (kind == "megatron" or draw.random() < 0.5) else [],
            "model": "olmoe-1b-7b" if timed_megatron else draw.choice(["scratch-moe-e64", "olmoe-1b-7b"]),
            "cluster": "h200" if kind == "megatron" else "mi355x",
            "length": draw.choice([16384, 32768]) if long else 2048 if timed_megatron else draw.choice([128, 256, 512]),
            "fraction": 0.3 if timed_megatron else draw.choice([0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3]),
            "routing": draw.choice(["uniform", "uniform", "zipf:exponent=0.5"]),
            "schemes": some(draw, {"compiled": COMPILED, "megatron": MEGATRON, "untimed": OTHERS, "mesh": MESH,
                                   "mixed": COMPILED + MEGATRON + OTHERS}[kind], 2),
            "batches": sorted(some(draw, [1, 2, 3, 4, 6, 8, 16], 2)),
            "space": {
                "gpus": [8] if long else some(draw, [8, 16, 32]) if draw.random() < 0.4 else [16],
                "pipeline": [1] + some(draw, [2, 4], 0),
                "tensor": [1] + some(draw, [2, 4]) if cut else [1],
                "context": [1] + some(draw, [2, 4], 0) if cut else [1],
                "expert-tensor": [0] if kind != "megatron" else [1] + some(draw, [2, 4], 0) if cut else [1],
                "micro-batches": [1] + some(draw, [2, 4, 8], 0),
                "expert-parallel": some(draw, [1, 2, 4, 8, 16], 2),
                "virtual-stages": [0] + some(draw, [1, 2], 0),
                "remat": some(draw, ["full", "none", "selective", "moe"] if kind == "megatron" else
                              ["full", "save_out_proj", "none"]),
            },
            "drops": draw.choice([0, 1, 1, 5, 100]),
            "per_day": draw.choice([None, None, None, 1e9, 2e10]),
            "own_remats": own_remats,
            "price": draw.choice([None, 2.5]),
            "imbalance": draw.choice([1, 1.5, 3]) if special == "stated" else None,
            "global": draw.choice([24, 32, 48, 64]) if special == "global" else None,  # sequences of all GPUs
        }
        if special == "stated":  # of one size, whatever that of a point; EP 1 is even
            case["space"] |= {"pipeline": [1, 2], "micro-batches": [1, 2], "expert-parallel": [1, 2, 8, 16]}
            case["fraction"] = max(case["fraction"], 0.05)
        if own_remats:
            if not timed_megatron and draw.random() < 0.5:
                case |= {"model": MLA, "fraction": max(case["fraction"], 0.1)}
            case["space"]["remat"] = OWN_LISTS[case["model"] == MLA]
        if case["global"]:
            case["batches"] = sorted({of_rank(case, *split) for split in itertools.product(
                *(case["space"][k] for k in ("gpus", "pipeline", "tensor", "context")))} - {None})
            if len(case["batches"]) < 2:
                continue
        # Where all schemes are MaxText's a plan says the micro-batches that a pipeline makes of one: another batch by name, other draws. A
        # search leaves it as it was said (docs/search.md), so it is asked for them where schemes are mixed alone.
        if set(case["schemes"]) <= set(COMPILED + MESH) and max(case["space"]["pipeline"]) > 1:
            case["space"]["micro-batches"] = [m for m in case["space"]["micro-batches"] if m > 1] or [4]
        # Tokens of a step: a batch of the middle on all GPUs
        middle = case["batches"][len(case["batches"]) // 2] * case["length"] * max(case["space"]["gpus"])
        case["step_tokens"] = draw.choice([None, None, middle, middle // 4])
        points = math.prod(map(len, case["space"].values())) * len(case["schemes"]) * (1 if case["global"] else len(case["batches"]))
        if LEAST_POINTS <= points <= MOST_POINTS:
            return case, points


def job_options(case):
    return ["--model", case["model"], "--set", "library_limits=ignore", "--sequence-length", case["length"], "--memory-fraction", case["fraction"],
            "--routing", case["routing"], "--sequences-per-gpu", ",".join(map(str, case["batches"])),
            "--drop-at-most", case["drops"], "--format", "json", "--optimizer", case["optimizer"], *case["stack"],
            *(["--price", case["price"]] if case["price"] else []),
            *(["--imbalance", f"{case['imbalance']},ep=8"] if case["imbalance"] else [])] + \
        [word for scheme in case["schemes"] for word in ("--scheme", scheme)]


def cluster(case, gpus):
    return ["--cluster", f"{case['cluster']}:{min(gpus, 8)}x{max(gpus // 8, 1)}"]


def brute_force(case, experts):
    """Every point as (place in the space, its values, its row)."""
    rows = []
    space = case["space"]
    within = case["optimizer"] == "sharded"  # MaxText's context groups lie within fsdp
    for gpus, pipeline, tensor, context, sharers, parts, virtual, remat in itertools.product(*(space[k] for k in KEYS if k != "expert-parallel")):
        sizes = [e for e in space["expert-parallel"]
                 if gpus % (pipeline * (sharers or tensor) * e * (context if within else 1)) == 0 and experts % e == 0]
        batches = [b for b in case["batches"] if b % parts == 0 and
                   (not case["global"] or b == of_rank(case, gpus, pipeline, tensor, context))]
        if not sizes or not batches:
            continue
        done = oracle.call(
            "plan", *job_options({**case, "batches": batches}), *cluster(case, gpus), "--set", "parallel.expert=1", "--pipeline", pipeline,
            "--tensor", tensor, "--context", context, "--expert-tensor", sharers, "--micro-batches", parts, "--virtual-stages", virtual, "--remat", remat, "--expert-parallel",
            ",".join(map(str, sizes)))
        if done.returncode != 0:  # not one point of it can be
            check(done.returncode == 2, f"plan: {done.stderr}")
            continue
        for row in json.loads(done.stdout)["rows"]:
            if row["expert_parallel"] * (1 if row["scheme"] in COMPILED else sharers or tensor) == 1 and row["scheme"] in DEEPEP:  # no run of it alone is known
                continue
            if case["global"] and row["scheme"] in COMPILED and pipeline > 1 and parts == 1:  # every device has sequences: another number of all
                continue
            value = dict(zip(KEYS, (gpus, pipeline, tensor, context, sharers, parts, row["expert_parallel"], virtual, remat)))
            place = [space[k].index(value[k]) for k in KEYS]
            place += [case["batches"].index(row["sequences_per_gpu"]), case["schemes"].index(row["scheme"])]
            rows.append((place, value, row))
    return sorted(rows, key=lambda r: r[0])


def merit(point):
    """Speed, in single precision; without a time the sequences that a GPU has before it in a turn of the pipeline."""
    _, value, row = point
    turns = max(value["micro-batches"], 1) + value["pipeline"] - 1
    return struct.unpack("f", struct.pack("f", speed(row) if is_timed(row) else row["sequences_per_gpu"] / turns))[0]


def is_sure(row):
    return most_bytes(row) <= row["memory"]["budget_bytes"]


def order(case, point):
    place, value, row = point
    return not is_timed(row), not is_sure(row), value["gpus"] if case["per_day"] else 0, -merit(point)


def place_of(case, p):
    return *order(case, p), p[1]["gpus"], step_tokens(case, p), p[2]["memory"]["max_bytes"], p[2]["drops"]["fraction"], p[0]


def better(case, a, b):
    """Below 0: a is better."""
    return -1 if place_of(case, a) < place_of(case, b) else 1


def measures(point):
    """Less is better in each. What may not fit never beats what surely fits."""
    return point[2]["memory"]["max_bytes"], point[2]["drops"]["fraction"], point[1]["gpus"], not is_sure(point[2])


def answer(point):
    """What a person is told; the split and the virtual stages by which it is reached play no part."""
    _, value, row = point
    return json.dumps([row["scheme"], value["gpus"], row["sequences_per_gpu"], row["memory"]["max_bytes"], row["memory"]["low_bytes"],
                       row["memory"]["high_bytes"], row["memory"]["verdict"], row["drops"]["dropped"], row["time"]["step_s"],
                       row["time"]["low_s"], row["time"]["high_s"], most_bytes(row), (row["memory"]["allocator"] or {}).get("reserved")])


def front(case, points):
    """Those that no other beats: as good in all and better in one. A larger batch of as many GPUs has to be 1.01 times as fast. Of
    those with one answer the first."""
    kind = lambda p: (is_timed(p[2]), p[2]["memory"]["kind"])
    tokens = {id(p): step_tokens(case, p) for p in points}

    def beats(a, b):
        alike = a[1]["gpus"] == b[1]["gpus"]
        times = 1.01 if alike and tokens[id(a)] > tokens[id(b)] else 1.0
        if kind(a) != kind(b) or merit(a) < merit(b) * times or any(x > y for x, y in zip(measures(a), measures(b))):
            return False
        return merit(a) > merit(b) or measures(a) != measures(b) or (alike and tokens[id(a)] < tokens[id(b)])

    first = {}
    for p in sorted((p for p in points if not any(beats(q, p) for q in points)), key=lambda p: p[0]):
        first.setdefault((answer(p), tokens[id(p)], merit(p)), p)
    return list(first.values())


def settled(case, best, beside):
    """The smallest batch of the front that is as fast as the best to 1 %, on as many GPUs and as sure to fit."""
    if best is None:
        return None
    alike = [p for p in beside if (is_timed(p[2]), p[1]["gpus"], is_sure(p[2])) == (is_timed(best[2]), best[1]["gpus"], is_sure(best[2]))
             and merit(p) * 1.01 >= merit(best)]
    least = min((step_tokens(case, p) for p in [*alike, best]), default=0)
    return min((p for p in [*alike, best] if step_tokens(case, p) == least), key=functools.cmp_to_key(lambda a, b: better(case, a, b)))


def cost(case, point):
    """GPU-hours and money of training on TRAINED tokens, and the same at either end of the speed."""
    time = point[2]["time"]
    if not case["price"] or not is_timed(point[2]):
        return {}
    hours = {name: TRAINED / time[of] / 3600 for name, of in (("", "tokens_per_s_per_gpu"), ("_low", "tokens_per_s_high"),
                                                             ("_high", "tokens_per_s_low"))}
    return {"gpu_hours" + name: h for name, h in hours.items()} | {"money" + name: h * case["price"] for name, h in hours.items()}


def as_found(case, point):
    """A point as the search writes it."""
    _, value, row = point
    memory, time = row["memory"], row["time"]
    return {"scheme": row["scheme"], "gpus": value["gpus"], "expert_parallel": row["expert_parallel"],
            "fsdp": row["fsdp"], "pipeline": value["pipeline"], "tensor": value["tensor"], "context": value["context"],
            "expert_tensor": value["expert-tensor"] or value["tensor"], "virtual_stages": value["virtual-stages"],
            "micro_batches": value["micro-batches"], "sequences_per_gpu": row["sequences_per_gpu"],
            "remat": value["remat"], "memory_kind": memory["kind"], "peak_bytes": memory["max_bytes"],
            "low_bytes": memory["low_bytes"], "high_bytes": memory["high_bytes"],
            "budget_bytes": memory["budget_bytes"], "drop_fraction": row["drops"]["fraction"],
            "step_s": time["step_s"], "step_s_low": time["low_s"], "step_s_high": time["high_s"],
            "tokens_per_s_per_gpu": time["tokens_per_s_per_gpu"], "step_tokens": step_tokens(case, point),
            "outside_fit": row["outside_fit"],
            "drops_at_least": row["drops"].get("at_least", False)}


def same(case, found, point):
    want = as_found(case, point) if point else None
    if found is None or want is None:
        return found is want
    costs = cost(case, point)
    if is_timed(point[2]):
        told = point[2]["time"]["tokens_per_s_per_gpu"] * point[1]["gpus"] * point[2]["time"]["step_s"]
        check(math.isclose(told, step_tokens(case, point), rel_tol=1e-9), f"{told} tokens a step, not {step_tokens(case, point)}: {point[2]['scheme']}, {point[1]}")
    return all(found[key] == value for key, value in want.items()) and \
        all(math.isclose(found["cost"][key], value, rel_tol=1e-9) for key, value in costs.items())


def check_options(name, case, found):
    """A plan by the words that the search gives for its best point has that point alone."""
    words = job_options({**case, "schemes": [], "batches": []})
    at = words.index("--sequences-per-gpu")
    done = json.loads(oracle.must("plan", *words[:at], *words[at + 2:], *cluster(case, max(case["space"]["gpus"])), *found["options"].split()))
    rows = [(row["scheme"], row["expert_parallel"], row["fsdp"], row["memory"]["max_bytes"], row["time"]["step_s"]) for row in done["rows"]]
    want = tuple(found[key] for key in ("scheme", "expert_parallel", "fsdp", "peak_bytes", "step_s"))
    check(rows == [want], f"{name}: {found['options']} gives {rows}, not {want}")


def check_next(name, found):
    """The next below a point: of the front on as many GPUs the fastest that is no faster; a chance of half at least."""
    for point in [p for p in [*found["front"], found["best"], found["best_sure"]] if p]:
        rate = point["tokens_per_s_per_gpu"]
        figures = lambda p: {k: v for k, v in p.items() if k not in ("next", "faster_than_next")}
        below = [p["tokens_per_s_per_gpu"] for p in found["front"] if rate and p["tokens_per_s_per_gpu"] and p["gpus"] == point["gpus"] and
                 p["tokens_per_s_per_gpu"] <= rate and figures(p) != figures(point)]
        check((point["next"] is None) == (not below) == (point["faster_than_next"] is None), f"{name}: next of {point}, of {below}")
        if below and point["next"] is not None:
            check(found["front"][point["next"]]["tokens_per_s_per_gpu"] == max(below), f"{name}: {point['next']} is not next")
            check(0.5 <= point["faster_than_next"] <= 1, f"{name}: faster in {point['faster_than_next']}")


def is_mesh(point):
    return point["tensor"] > 1 and point["scheme"] in COMPILED


def check_plans(name, found, rows):
    """The plans of the best points: each by its own command once more, and figures of brute force."""
    order = [p for p in (found["best"], found["best_sure"]) if p]
    order = [p for i, p in enumerate(order) if p not in order[:i]]
    order += [p for p in found["front"] if p not in order]
    check(len(found["plans"]) == min(4, len(order)), f"{name}: {len(found['plans'])} plans of {len(order)} points")
    for plan, point in zip(found["plans"], order):
        row, parallel = plan["rows"][0], plan["settings"]["parallel"]
        key = lambda r: (r["scheme"], r["sequences_per_gpu"], r["expert_parallel"], r["fsdp"], r["pipeline"], r["remat"])
        same_row = [r for _, v, r in rows if key(r) == key(row) and v["gpus"] == point["gpus"] and
                    all(v[k] == point[k.replace("-", "_")] for k in ("tensor", "context", "micro-batches", "virtual-stages")) and
                    (v["expert-tensor"] or v["tensor"]) == point["expert_tensor"]]
        check(len(plan["rows"]) == 1 == len(same_row), f"{name}: {len(plan['rows'])} rows, {len(same_row)} of brute force")
        own = is_mesh(point)  # routing: fewer GPUs have tokens in its own plan, those of the search in all
        for part in ("memory", "time", "drops", "cost", "outside_fit", *([] if own else ["traffic"])):
            check(row[part] == same_row[0][part], f"{name}: {part} of a plan is {row[part]}, not {same_row[0][part]}")
        check(row["scheme"] == point["scheme"] and row["time"]["step_s"] == point["step_s"], f"{name}: plans stand in another order")


def data_of(text):
    return [float(value) for value in re.findall(r'<data value="([^"]*)">', text)]


def check_page(name, case, found, want):
    """The report of a search: its table has brute force's figures, the best first, and the best point's plan stands in it as in a report
    of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file, page, plan = (pathlib.Path(folder) / n for n in ("search.json", "page.html", "plan.json"))
        file.write_text(json.dumps(found))
        oracle.must("report", file, "--output", page)
        text = page.read_text()
        table = text.split("Points that no other beats</h2>")[1].split("</section>")[0]
        listed = [data_of(line) for line in re.findall(r'<tr><th scope="row">.*?</tr>', table)]
        figures = []
        for at, point in enumerate(want):
            _, value, row = point
            time = row["time"]
            figures.append([value["gpus"], row["expert_parallel"], row["fsdp"], value["pipeline"], value["tensor"], value["context"],
                            value["expert-tensor"] or value["tensor"], value["virtual-stages"], value["micro-batches"], row["sequences_per_gpu"], row["memory"]["max_bytes"],
                            row["drops"]["fraction"], step_tokens(case, point)])
            if is_timed(row):
                figures[-1] += [time["step_s"], time["tokens_per_s_per_gpu"],
                                *filter(None, [found["front"][at]["faster_than_next"]]), time["tokens_per_s_per_gpu"] * value["gpus"] * DAY_S]
                hours = cost(case, point).get("gpu_hours")
                figures[-1] += [hours / 24 / value["gpus"], hours, cost(case, point)["money"]] if case["price"] else []
        check(len(listed) == min(len(want), 40), f"{name}: {len(listed)} rows in the page, not {len(want)}")
        same_in_all = {i for i in (*range(10), 11) if len(figures) > 1 and len({row[i] for row in figures[:40]}) == 1}  # said above the table
        figures = [[value for i, value in enumerate(row) if i not in same_in_all] for row in figures]
        for line, row in zip(listed, figures):
            check(len(line) == len(row) and all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(line, row)),
                  f"{name}: the page has {line}, not {row}")
        check(text.count('class="beside"') + text.count("<summary>Another point") == len(found["plans"]), f"{name}: not every plan is in the page")
        plan.write_text(oracle.must(*found["plans"][0]["settings"]["arguments"]))
        oracle.must("report", plan, "--output", page, "--drop-at-most", case["drops"])
        if is_mesh(found["best"]):
            return
        alone = re.search(r'<section class="answer">.*?</section>', page.read_text())[0]
        check(alone in text.split('class="beside"')[1], f"{name}: the best point's answer is not that of its own plan")


def check_day(name, case, best, text):
    """Who asks for tokens a day, or for a cost, is told them: of all points in the table, and where they are asked for of the best one."""
    rate = speed(best[2]) * best[1]["gpus"] * DAY_S if best else 0
    check(("tokens/day" in text) == bool(rate and (case["price"] or case["per_day"])), f"{name}: a column of tokens a day: {text}")
    told = re.search(r" tokens, ([\d.]+) ([kMBT]?) ?tokens a day \(", " ".join(text.split("\n\n")[0].split()))
    check((told is not None) == bool(rate and case["per_day"]), f"{name}: tokens a day of the best: {text}")
    check(told is None or math.isclose(float(told[1]) * {"": 1, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[told[2]], rate, rel_tol=0.01),
          f"{name}: {told and told[0]}, not {rate}")


def check_larger(name, case, command, found):
    """Where nothing fits: the best of the number of GPUs that was tried last is what a search over these alone finds."""
    larger = found["tried_gpus"]
    if not larger:
        return 0
    own = [f"gpus={larger}" if str(word).startswith("gpus=") else word for word in command]
    alone = json.loads(oracle.must(*own))
    check(max(case["space"]["gpus"]) < larger, f"{name}: {larger} GPUs are not more")
    check(found["with_more_gpus"] == alone["best"], f"{name}: with {larger} GPUs {found['with_more_gpus']}, alone {alone['best']}")
    return 1


def judge(number, case, points):
    name = f"case {number}"
    command = ["plan", "--search", *job_options(case), *cluster(case, max(case["space"]["gpus"])), "--set",
               "parallel.expert=1"]
    for key, values in case["space"].items():
        if key == "remat" and case["own_remats"]:
            continue
        command += ["--over", f"{key}={','.join(map(str, values))}"]
    if case["per_day"]:
        command += ["--tokens-per-day", case["per_day"]]
    if case["global"]:
        at = command.index("--sequences-per-gpu")
        command[at:at + 2] = ["--global-batch", case["global"]]
    if case["step_tokens"]:
        command += ["--global-batch-at-most", case["step_tokens"]]
    found = json.loads(oracle.must(*command))
    larger = 0 if found["best"] else check_larger(name, case, command, found)
    experts = 64
    rows = brute_force(case, experts)
    good = [p for p in rows if keeps(case, p)]
    if any(is_timed(p[2]) for p in good):
        good = [p for p in good if is_timed(p[2])]
    rank = functools.cmp_to_key(lambda a, b: better(case, a, b))
    want = front(case, good)
    best = settled(case, min(good, key=rank, default=None), want)
    sure = settled(case, min((p for p in good if is_sure(p[2])), key=rank, default=None), want)
    want.sort(key=lambda p: (p is not best, place_of(case, p)))
    check(best is None or want[0] is best, f"{name}: brute force's best is not in its own front")
    if case["global"]:
        alike = {p["step_tokens"] for p in found["front"]}
        check(alike <= {case["global"] * case["length"]}, f"{name}: {alike} tokens a step")
    check(found["points"] == points == sum(found["fates"].values()), f"{name}: points are not all told: {found['fates']}")
    check(same(case, found["best"], best), f"{name}: best is {found['best']}, brute force says {best and as_found(case, best)}")
    check(same(case, found["best_sure"], sure), f"{name}: best_sure is {found['best_sure']}, not {sure and as_found(case, sure)}")
    if found["best"]:
        check_options(name, case, found["best"])
    slow = [speed(row) * value["gpus"] * DAY_S for place, value, row in rows
            if is_timed(row) and keeps({**case, "per_day": None}, (place, value, row)) and not keeps(case, (place, value, row))]
    check(found["best"] or (found["too_slow_tokens_per_day_at_most"] or 0) >= max(slow, default=0) * (1 - 1e-9),
          f"{name}: too slow are {found['too_slow_tokens_per_day_at_most']} at most, one makes {max(slow, default=0)}")
    check(len(found["front"]) == len(want), f"{name}: {len(found['front'])} points in front, not {len(want)}")
    for place, point in zip(found["front"], want):
        check(same(case, place, point), f"{name}: not in front, or not there: {as_found(case, point)}")
    check(found["front"][:1] == [found["best"]] * (best is not None), f"{name}: the best is not the first of the front")
    if (found["nothing"] or "").startswith("no point drops"):
        least = min(p[2]["drops"]["fraction"] for p in rows if keeps({**case, "drops": 100, "per_day": None}, p))
        check(f"the least {100 * least:.2f} %" in found["nothing"], f"{name}: {found['nothing']}: brute force has {100 * least:.2f} %")
    check_next(name, found)
    check_certificate(check, name, case, found, rows)
    check_plans(name, found, rows)
    text = oracle.must(*[w for w in command if w not in ("--format", "json")], "--wide")
    check_day(name, case, best, text)
    for scheme in case["schemes"]:  # called too large only where none of its points fits
        fits = [p for p in good if p[2]["scheme"] == scheme]
        told = [line for line in text.split("needs least of those that do not fit")[:-1] if line.rstrip().split("\n")[-1].split(",")[0].split()[-1] == scheme]
        check(not fits or not told, f"{name}: {scheme} fits, and the search says that it does not")
    if best:
        check_page(name, case, found, want)
    replayed = sum(count for fate, count in found["fates"].items() if fate.startswith("replayed"))
    return len(rows), len(good), replayed, found["fates"]["beaten"], found["fates"]["memory_too_large"], \
        found["fates"]["batch_too_large"], larger


draw = random.Random(options.seed)
totals = [0] * 7
for number in range(options.cases):
    case, points = random_case(draw, number % 5 == 0, {1: "long", 2: "global", 3: "mesh", 4: "stated"}.get(number % 5))
    told = judge(number, case, points)
    totals = [a + b for a, b in zip(totals, told)]
    print(f"case {number}: {points} points, {told[0]} can be, {told[1]} good, {told[2]} replayed, {told[3]} beaten, "
          f"{told[4]} too large, {told[5]} of too many tokens a step")
if not options.few:
    check(totals[1] >= 10 * options.cases, f"only {totals[1]} points keep to their budgets: the cases say nothing")
    check(all(totals[3:6]), "no point was left out as beaten, as too large, or as of too many tokens: the cases say nothing")
oracle.finish()
