#!/usr/bin/env python3
"""The page pool of megatron-syncfree against pages that are handed out one by one, written from docs/schemes.md, section 5.6:
random routings under pipelines, virtual stages and micro-batches. Pages, overflow, what goes to host memory, memory, and the
smallest factor of the pool.

stash_oracle.py SPILLWAY SCRATCH ROOT"""
import json
import math
import pathlib
import shutil
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import Case, Tokens, replay, run, without_formats

program = pathlib.Path(sys.argv[1]).resolve()
folder = pathlib.Path(sys.argv[2]).resolve() / "stash_oracle"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
ALIGN, BLOCK = 32, 32
checks = 0


def same(what, got, want, tolerance=0.0):
    global checks
    checks += 1
    if not abs(got - want) <= tolerance * max(1.0, abs(want)):
        sys.exit(f"FAILED {what}: got {got}, want {want}")


def up(rows, multiple):
    return -(-rows // multiple) * multiple


# --- The schedule of a stage ---

def passes(stage, stages, chunks, micro):
    """(backward, micro-batch, chunk) in order: 1F1B, interleaved where there are several chunks."""
    if chunks == 1:
        units = [(m, 0) for m in range(micro)]
        warm = min(stages - 1 - stage, micro)
    else:
        units = [(m, c) for first in range(0, micro, stages) for c in range(chunks) for m in range(first, first + stages)]
        warm = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, micro * chunks)
    forward = [(False, m, c) for m, c in units]
    backward = [(True, m, chunks - 1 - c) for m, c in units]
    order = forward[:warm]
    for i in range(warm, len(units)):
        order += [forward[i], backward[i - warm]]
    return order + backward[len(units) - warm:]


def moe_layers(stage, stages, chunks, layers):
    """{chunk: layers of it}; every layer is a MoE layer."""
    blocks, first, out = stages * chunks, 0, {}
    for index in range(blocks):
        count = layers // blocks + (index < layers % blocks)
        if index % stages == stage:
            out[index // stages] = list(range(first, first + count))
        first += count
    return out


def schedule(stage, stages, chunks, micro, layers):
    """(backward, layer, micro-batch) of the MoE layers alone."""
    mine, out = moe_layers(stage, stages, chunks, layers), []
    for backward, m, c in passes(stage, stages, chunks, micro):
        out += [(backward, l, m) for l in (reversed(mine[c]) if backward else mine[c])]
    return out


# --- The pool ---

def tensors(case):
    """(buffer, bytes of a row, rows of the experts for one of its own), in the order in which they are saved."""
    H, F = case.hidden, case.ffn
    return (("u8 H", H, 1), ("u8 H", H, BLOCK), ("bf16 2F", 4 * F, 1), ("fp32", 4, 1), ("e4m3 F", F, 1), ("e8m0 F", F, BLOCK))


def pool_pages(case, options, mean, order):
    """{buffer: (pages on the GPU, in host memory, bytes of a row)}."""
    waiting = most = 0
    for backward, _, _ in order:
        waiting += -1 if backward else 1
        most = max(most, waiting)
    out = {}
    for buffer in dict.fromkeys(name for name, _, _ in tensors(case)):
        rows = most * sum(mean // each for name, _, each in tensors(case) if name == buffer)
        size = next(size for name, size, _ in tensors(case) if name == buffer)
        out[buffer] = tuple(-(-int(rows * options[f]) // options["page"]) for f in ("stash", "host")) + (size,)
    return out


class Overflow(Exception):
    pass


def play(case, options, pages, order, rows):
    """rows[layer, micro-batch] in use -> (overflow, bytes to the host, {buffer: most pages wanted})."""
    free = {b: (list(range(g)), list(range(h))) for b, (g, h, _) in pages.items()}
    held, sent, overflow = {}, 0, False
    wanted, most = {b: 0 for b in pages}, {b: 0 for b in pages}
    for i, (backward, layer, m) in enumerate(order):
        if backward:
            for t, (b, _, each) in enumerate(tensors(case)):
                if (layer, m, t) in held:
                    place, ids, count = held.pop((layer, m, t))
                    wanted[b] -= count
                    if place is not None:
                        free[b][place].extend(ids)
            continue
        if order[i + 1] == (True, layer, m):
            continue
        for t, (b, size, each) in enumerate(tensors(case)):
            count = -(-(int(rows[layer, m]) // each) // options["page"])
            wanted[b] += count
            most[b] = max(most[b], wanted[b])
            place = next((p for p in (0, 1) if len(free[b][p]) >= count), None)
            if overflow or place is None:
                overflow = True
                held[layer, m, t] = (None, [], count)
                continue
            ids = [free[b][place].pop(0) for _ in range(count)]
            held[layer, m, t] = (place, ids, count)
            sent += place * (int(rows[layer, m]) // each) * size
    assert not held
    return overflow, sent, most


# --- Cases ---

def rows_of(case, ids, ranks, cap):
    """ids [ranks][tokens][top_k] of one layer and micro-batch -> rows in use, and whether a choice found no place."""
    out, dropped = [], False
    local = case.experts // case.expert
    for first in range(0, ranks, case.expert):
        chosen = np.bincount(ids[first:first + case.expert].ravel(), minlength=case.experts)
        for d in range(case.expert):
            start = 0
            for n in chosen[d * local:(d + 1) * local]:
                dropped |= int(n) > max(cap - start, 0)
                start += up(int(n), ALIGN)
            out.append(min(start, cap))
    return out, dropped


def judge_row(what, case, options, row, rows, dropped, stages, chunks, micro):
    """rows [steps][layers of the job][micro-batches][ranks]."""
    steps, ranks = rows.shape[0], rows.shape[3]
    mean = int(options["cap"] // options["rank_capacity"])
    got, over, total, most_sent, spills, fullest, biggest, hosts = row["page_pool"], 0, 0, 0, 0, 0.0, 0, 0
    again = 0
    for s in range(steps):
        step_over, step_sent = False, 0
        for stage in range(stages):
            order = schedule(stage, stages, chunks, micro, case.model_layers)
            pages = pool_pages(case, options, mean, order)
            biggest = max(biggest, sum(g * options["page"] * size for g, _, size in pages.values()))
            hosts = max(hosts, sum(h * options["page"] * size for _, h, size in pages.values()))
            for r in range(ranks):
                overflow, sent, most = play(case, options, pages, order, rows[s, :, :, r])
                step_over |= overflow
                total += sent
                step_sent = max(step_sent, sent)
                fullest = max([fullest] + [most[b] / g for b, (g, _, _) in pages.items() if g])
        over += step_over
        again += step_over or dropped[s]
        spills += step_sent > 0
        most_sent = max(most_sent, step_sent)
    for name, want in (("overflow_steps", over), ("rerun_steps", again), ("spill_steps", spills),
                       ("spilled_bytes_most", most_sent), ("pool_bytes", biggest), ("host_bytes", hosts)):
        same(f"{what} {name}", got[name], want)
    same(f"{what} fullest", got["fullest"], fullest, 1e-12)
    same(f"{what} spilled", got["spilled_bytes_per_gpu"], total / (steps * stages * ranks), 1e-12)
    stash = row["memory"]["components"].get("stash_pages")
    if stages == 1:
        same(f"{what} component", stash, biggest)
    return over


def needed_factor(case, options, rows, stages, chunks, micro):
    """The smallest thousandth with which one step does not overflow: rows [layers][micro-batches][ranks]."""
    mean, most = int(options["cap"] // options["rank_capacity"]), 1
    orders = [schedule(s, stages, chunks, micro, case.model_layers) for s in range(stages)]

    def overflows(thousandths):
        o = dict(options, stash=thousandths / 1000)
        return any(play(case, o, pool_pages(case, o, mean, order), order, rows[:, :, r])[0]
                   for order in orders for r in range(rows.shape[2]))
    while overflows(most):
        most *= 2
    low = most // 2
    while most - low > 1:
        middle = (low + most) // 2
        low, most = (middle, most) if overflows(middle) else (low, middle)
    return most


def random_case(seed):
    rng = np.random.default_rng(seed)
    expert, groups = int(rng.choice([1, 2, 4])), int(rng.integers(1, 3))
    stages, micro, chunks = int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 2, 4])), 1
    if stages > 1 and seed % 2:
        micro, chunks = stages * int(rng.integers(1, 3)), 2
    layers = stages * chunks * int(rng.integers(1, 4)) if chunks > 1 else int(rng.integers(stages, stages + 5))
    traced = layers if seed % 3 else int(rng.integers(1, layers + 1))
    experts, top_k, per, length = expert * int(rng.integers(2, 4)), 2, micro, int(rng.choice([24, 64, 100]))
    capacity, stash = round(float(rng.uniform(1.0, 3.0)), 3), round(float(rng.uniform(0.5, 2.0)), 3)
    host = round(float(rng.uniform(0.0, 1.0)), 3) if seed % 2 else 0.0
    page = int(rng.choice([1, 7, 16, 64]))
    scheme = f"megatron-syncfree:rank_capacity={capacity},stash={stash},host={host},page={page},align={ALIGN}"
    ranks = expert * groups
    case = Case(nodes=stages, gpus_per_node=ranks, expert=expert, experts=experts, top_k=top_k, hidden=64, ffn=32,
                model_layers=layers, sequences=per, length=length, remat="none", schemes=(scheme,))
    job = case.write(folder, f"s{seed}")
    parallel = f"fsdp: {groups}, pipeline: {stages}" + (f", virtual_stages: {chunks}" if chunks > 1 else "")
    job.write_text(without_formats(job).replace(f"fsdp: {case.ranks // expert}", parallel)
                   .replace("batch: {", f"batch: {{micro_batches: {micro}, ")
                   + "precision: {recipe: mxfp8, gradients: fp32, optimizer: fp32}\noptimizer: distributed\n")
    cluster = folder / f"s{seed}_cluster.yaml"
    cluster.write_text(cluster.read_text() + "gpu_generation: blackwell\n")
    steps, tokens = 4, ranks * per * length
    skew = rng.random((steps, 1, traced, experts)) ** rng.exponential(1.0, (steps, 1, 1, 1))
    ids = np.argsort(-rng.random((steps, tokens, traced, experts)) * skew, axis=3)[..., :top_k].astype(np.uint8)
    trace = Tokens(ids.reshape(steps * tokens, traced, top_k), [tokens] * steps, experts, ranks,
                   np.tile(np.repeat(np.arange(ranks), per * length), steps),
                   np.tile(np.repeat(np.arange(ranks * per), length), steps), np.tile(np.arange(length), steps * ranks * per))
    path = trace.write(folder / f"s{seed}.h5")
    made = per // micro * length * top_k
    options = dict(rank_capacity=capacity, stash=stash, host=host, page=page, cap=up(int(made * capacity), ALIGN))
    rows, dropped = np.zeros((steps, layers, micro, ranks), np.int64), [False] * steps
    shaped = ids.reshape(steps, ranks, micro, made // top_k, traced, top_k)
    for s in range(steps):
        for l in range(layers):
            for m in range(micro):
                rows[s, l, m], lost = rows_of(case, shaped[s, :, m, :, l % traced], ranks, options["cap"])
                dropped[s] |= lost
    result = replay(program, path, job, *(("--advise",) if seed % 4 == 0 else ()))
    row = result["rows"][0]
    over = judge_row(f"case {seed}", case, options, row, rows, dropped, stages, chunks, micro)
    if seed % 4 == 0:
        answers = [a for a in result["safe_factors"] if a["option"] == "stash"]
        same(f"case {seed} answers", len(answers), 3)
        need = sorted(needed_factor(case, options, step, stages, chunks, micro) for step in rows)
        same(f"case {seed} factor", answers[0]["factor"], need[-1] / 1000, 1e-9)
        same(f"case {seed} overflows", answers[0]["overflows"], 0)
    if stages == 1:
        memory(seed, case, job, scheme, options, micro)
    return over > 0


def memory(seed, case, job, scheme, options, micro):
    """What waits in the pages is not saved beside them."""
    def components(text):
        done = run(program, "explain", "--job", job, "--scheme", text, "--format", "json")
        if done.returncode != 0:
            sys.exit(f"FAILED explain {seed}: {done.stderr}")
        return {c["component"]: c["bytes"] for c in json.loads(done.stdout)}
    graph = components(scheme + ",graph=full")
    same(f"case {seed} graph", graph["graph_inputs"], 28 * case.sequences * case.length)
    with_pages, without = components(scheme), components(scheme.split(",")[0] + f",align={ALIGN}")
    each = sum(options["cap"] // every * size for _, size, every in tensors(case))
    if "saved_rows" in with_pages and "saved_rows" in without and micro == 1:
        same(f"case {seed} saved", without["saved_rows"] - with_pages["saved_rows"], case.model_layers * each)
    if "unstashed_layer" in with_pages:
        same(f"case {seed} unstashed", with_pages["unstashed_layer"], each)


def graph_is_outside():
    case = Case(hidden=64, ffn=32, length=32,
                schemes=("megatron-syncfree:rank_capacity=2,graph=full", "megatron-syncfree:rank_capacity=2"))
    ids = np.zeros((64, 1, 2), np.uint8)
    ids[:, :, 1] = 1
    ranks, position = np.repeat([0, 1], 32), np.tile(np.arange(32), 2)
    path = Tokens(ids, [64], 4, 2, ranks, ranks, position).write(folder / "graph.h5")
    for row, times in zip(replay(program, path, case.write(folder, "graph"))["rows"], (1, 0)):
        same(f"outside {row['scheme']}", sum("CUDA graph" in o["feature"] for o in row["outside_fit"]), times)


def refusals():
    case = Case(hidden=64, ffn=32, remat="none", schemes=("megatron-syncfree:rank_capacity=1,stash=1.1",))
    job = case.write(folder, "refused")
    text = without_formats(job)
    for change, words in (("", "fused MXFP8"), ("recipe", "remat full"), ("host", "add stash=1.1"), ("none", "must be above 0")):
        if change == "recipe":
            job.write_text(text.replace("remat: none", "remat: full").replace("stash=1.1", "stash=1.1,align=32")
                           + "precision: {recipe: mxfp8, gradients: fp32, optimizer: fp32}\noptimizer: distributed\n")
            cluster = folder / "refused_cluster.yaml"
            cluster.write_text(cluster.read_text() + "gpu_generation: blackwell\n")
        elif change == "host":
            job.write_text(text.replace("stash=1.1", "host=1"))
        elif change == "none":
            job.write_text(text.replace("rank_capacity=1,stash=1.1", "rank_capacity=0"))
        done = run(program, "explain", "--job", job)
        same(f"refused {change}", done.returncode, 2)
        if words not in done.stderr:
            sys.exit(f"FAILED refused {change}: {done.stderr}")


overflowing = sum(random_case(seed) for seed in range(50))
if not 5 < overflowing < 45:
    sys.exit(f"FAILED {overflowing} of 50 cases overflow: the cases say little")
graph_is_outside()
refusals()
print(f"{checks} checks, {overflowing} of 50 cases overflow")
sys.exit(0 if checks else 1)
