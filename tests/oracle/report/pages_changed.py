#!/usr/bin/env python3
"""Pages of answers in which a few things are otherwise: those that stand in pages_kept/, of which each page changes some numbers, flags, words,
lists and datasets that are drawn by its number, so that branches of a page meet that no one answer has. One sum a page, against
pages_changed.tsv: it proves nothing right; it shows what a change of what makes pages reaches.

pages_changed.py SPILLWAY SCRATCH ROOT [--few]    --few: each eighth page
pages_changed.py SPILLWAY SCRATCH ROOT --accept"""
import copy
import functools
import gzip
import json
import pathlib
import random
import re
import shlex
import sys
import zlib

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from kept_sums import WITHIN, WORD, word_value
from oracle_run import Oracle

PAGES, MOST = 360, 8
program, folder, root = sys.argv[1], pathlib.Path(sys.argv[2]) / "pages_changed", pathlib.Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(program, "pages_changed")
table = pathlib.Path(__file__).with_suffix(".tsv")
WEIGHTS = [1 + zlib.crc32(str(place).encode()) / 2**32 for place in range(1 << 18)]
PLANS, RESULTS = ("plan", "megatron", "search"), ("replay", "allocator", "stages")
WORDS = {"verdict": ("fits", "tight", "oom"), "kind": ("arena", "live"), "memory_kind": ("arena", "live"),
         "evidence": ("exact", "measured", "published", "assumed", "scaled", "fitted"), "remat": ("full", "none", "selective")}
NEWEST = {"stack": "xla-next", "verdict": "oom", "peak_bytes": 9e10, "low_bytes": 8e10, "high_bytes": 1e11}
KEPT = ("format", "version", "format_version", "memory_timeline", "order", "phases", "steps")
FILLED = {"by_newest_stack": NEWEST, "price_per_gpu_hour": 3, "tokens": 2e12, "precision_note": "fp8 products, one byte an element", "why_no_time": "no stack",
          "slowest_level": "rack", "outside_fit": [{"of": "time", "feature": "rates"}, {"of": "memory", "feature": "a layer"}, {"of": "memory", "feature": "rates"}],
          "stack": "maxtext-rocm-2026-05", "distance": "the stack is of another GPU", "global_batch": 256, "nothing": "no point fits", "hint": "try more GPUs",
          "precision_hint": "use bf16", "imbalance": 1.5, "gpus_at_most": 64, "tokens_per_day": 1e9, "global_batch_at_most": 1 << 20, "fastest": 1,
          "fastest_dropless": 1, "fastest_dropless_sure": 1, "assumed_layout": "2 stages", "balancer": "eplb:replicas=4,every=1"}
BESIDE = {  # parts that no stored answer has
    "smallest_factors": [{"scheme": "dense:capacity_factor=1.25", "option": "capacity_factor", "factor": factor, "sequences_per_gpu": batch, "drop_at_most": 0.05}
                         for factor, batch in ((1.75, 2), (None, 1), (2.5, 1))],
    "largest_batches": [{"scheme": "gmm", "sequences_per_gpu": 7, "fits_at": 0.99, "at_least": False},
                        {"scheme": "ragged", "sequences_per_gpu": 12, "fits_at": 0.9, "at_least": True}]}


@functools.lru_cache(None)
def value_of(word):
    """Of how many digits a short number is counts too: 1 is not 1.0."""
    return word_value(word, 0) / WEIGHTS[0] + (0.1 * len(word) if len(word) < 9 else 0.0)


def place(draw, value):
    """The path of something in it: down by keys, each as likely as its neighbours. What is below a timeline of memory has an order: not that."""
    path = ()
    while isinstance(value, (dict, list)) and value and (len(path) < 2 or draw.random() < 0.8):
        path += (draw.choice([key for key in (value if isinstance(value, dict) else range(len(value))) if key not in KEPT] or [None]),)
        value = value[path[-1]] if not isinstance(value, dict) or path[-1] in value else None
    return path


def asked_for(value, path=()):
    """Of what branches ask for, the paths."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key in WORDS or key in FILLED or "fit" in str(key) or "drop" in str(key) or part == []:
            yield (*path, key)
        yield from asked_for(part, (*path, key))


def in_order(answer):
    """Who fits is listed, as its answers need it."""
    plans = answer.get("plans")
    for plan in (answer, *(part for part in (plans if isinstance(plans, list) else ()) if isinstance(part, dict))):
        answers, rows = plan.get("answers"), plan.get("rows")
        if isinstance(answers, dict) and isinstance(rows, list) and isinstance(answers.get("order"), list):
            fit = [i for i, row in enumerate(rows) if isinstance(row, dict) and isinstance(row.get("memory"), dict) and row["memory"].get("verdict") != "oom"]
            answers["order"] = [i for i in answers["order"] if i in fit] + [i for i in fit if i not in answers["order"]]
            for name, value in answers.items():
                if isinstance(value, int) and not isinstance(value, bool) and name.startswith("fastest") and value not in answers["order"]:
                    answers[name] = answers["order"][0] if answers["order"] else None


def other(draw, key, value):
    """Another value in its place."""
    if isinstance(value, bool):
        return not value
    if key in WORDS and isinstance(value, str):
        return draw.choice(WORDS[key])
    if isinstance(value, int):
        return draw.choice((0, 1, 2, value + 1, 3 * value, max(value - 1, 0)))
    if isinstance(value, float):
        if 0.0 < value <= 1.0:
            return draw.choice((0.0, 1.0, value / 2, 0.003))
        return value * draw.choice((0.0, 0.5, 0.99, 1.01, 1.3, 3.0))
    if isinstance(value, str):
        return draw.choice((f"{value} & <b>", value[:3], "other"))
    if isinstance(value, list):
        return draw.choice((value[:1], value[:2], value[::-1], value + value[:1])) if value else ["one thing", "another <of> them"]
    return FILLED.get(key, "words" if draw.random() < 0.3 else 3)


def changed(draw, answer):
    """The answer with a few changes: most of what stands in rows, the plan's answers and a search's points."""
    answer = copy.deepcopy(answer)
    rows = answer.get("rows") or answer.get("front") or []
    for _ in range(draw.randrange(1, MOST)):
        within = draw.choice((answer, answer, draw.choice(rows), draw.choice(rows), *(part for part in answer.values() if isinstance(part, dict) and part)))
        path = place(draw, within)
        if draw.random() < 0.35:
            path = draw.choice(list(asked_for(within)) or [path])
        if None in (path or (None,)):
            continue
        at = within
        for key in path[:-1]:
            at = at[key]
        if draw.random() < 0.02 and isinstance(at, dict):
            del at[path[-1]]  # a file of before it was written
        elif draw.random() < 0.03:
            at[path[-1]] = None
        else:
            at[path[-1]] = other(draw, path[-1], at[path[-1]])
    if draw.random() < 0.3 and "rows" in answer:
        row = draw.choice(rows)
        part, news = draw.choice((("memory", {"verdict": "oom", "surely_fits": False}), ("drops", {"dropped": 1000, "fraction": 0.02})))
        if isinstance(row, dict) and isinstance(row.get(part), dict):
            row[part].update(news)
    for name, value in BESIDE.items():
        if "rows" in answer and draw.random() < 0.15:
            answer[name] = copy.deepcopy(value)
    in_order(answer)
    return answer


def change_sets(draw, file):
    """A dataset or two with a place of other size, or turned along an axis."""
    names = [name for name, held in file.items() if held.dtype.kind in "uif" and held.ndim > 1]
    for name in draw.sample(names, 2):
        held = file[name][()]
        if draw.random() < 0.5:
            held = np.roll(held, 1, axis=draw.randrange(held.ndim))
        held[tuple(draw.randrange(size) for size in held.shape)] *= 3
        file[name][...] = held


def write(draw, name, path):
    if name in PLANS:
        path.write_text(json.dumps(changed(draw, stored[name])))
        return
    path.write_bytes(stored[name])
    with h5py.File(path, "r+") as file:
        answer = changed(draw, json.loads(file["summary_json"][()]))
        del file["summary_json"]
        file["summary_json"] = np.bytes_(json.dumps(answer))
        if draw.random() < 0.6:
            change_sets(draw, file)


def ask(number):
    """How it ends, the sum of the page, and the command."""
    draw = random.Random(f"page {number}")
    names = [draw.choice((*PLANS, "search", *RESULTS))]
    if draw.random() < 0.35:
        names.append(draw.choice(PLANS if names[0] in PLANS else RESULTS))
    beside = names[0] in PLANS and len(names) == 1 and draw.random() < 0.2
    paths = []
    for place, name in enumerate((*names, *(["stages"] if beside else []))):
        paths.append(folder / f"{number}_{place}{'.json' if name in PLANS else '.h5'}")
        write(draw, name, paths[-1])
    words = ["report", *paths[:len(names)], *(["--replay", paths[-1]] if beside else []), *draw.choice((["--wide"], [], [], [])),
             *draw.choice(([], [], ["--drop-at-most", "5"], ["--drop-at-most", "0"], ["--drop-at-most", "100"])), "--output", folder / "page.html"]
    (folder / "page.html").unlink(missing_ok=True)
    done = oracle.call(*words)
    text = done.stdout + done.stderr + ((folder / "page.html").read_text() if done.returncode == 0 else "")
    text = re.sub(r"(?s)<style>.*?</style>|spillway \d+\.\d+\.\d+", "", text.replace(str(folder) + "/", ""))
    value = sum(weight * value_of(word) for weight, word in zip(WEIGHTS, WORD.findall(text)))
    for path in paths if done.returncode == 0 and "--keep" not in sys.argv else ():
        path.unlink()
    return done.returncode, value, shlex.join(map(str, (program, *words)))


def main():
    step = 8 if "--few" in sys.argv else 1
    now = [ask(number) for number in range(0, PAGES, step)]
    if "--accept" in sys.argv:
        table.write_text("# page, how it ends, sum: pages_changed.py --accept\n" + "".join(f"{n}\t{end}\t{value:.12g}\n" for n, (end, value, _) in enumerate(now)))
        print(sum(end == 0 for end, *_ in now), "pages,", sum(end != 0 for end, *_ in now), "refusals")
        return
    kept = [line.split("\t") for line in table.read_text().splitlines()[1:]]
    oracle.check(len(kept) == PAGES, f"{len(kept)} pages are kept")
    for (number, end, value), (ends, is_now, command) in zip(kept[::step], now):
        oracle.check(int(end) == ends and abs(float(value) - is_now) <= WITHIN * max(abs(float(value)), 1.0),
                     f"page {number}: {ends}, {is_now}, was {end}, {value} (the files stay with --keep): {command}")
    oracle.finish(PAGES // step)


stored = {path.name.split(".")[0]: gzip.decompress(path.read_bytes()) for path in (root / "tests/oracle/pages_kept").glob("*.gz")}
stored.update((name, json.loads(stored[name])) for name in PLANS)
main()
