#!/usr/bin/env python3
"""`spillway trace import` against files that Python writes as Megatron-LM and Megatron-Core do, and h5py, which reads what came of them:
router traces, logits, tokens per expert, dumps of loads.

usage: import_megatron_oracle.py SPILLWAY SCRATCH ROOT
"""
import itertools
import json
import pathlib
import shutil
import sys
import warnings
import zipfile

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from imports import (COUNTS, OUT, SCRATCH, SPILLWAY, check, check_counts, check_ids, choose, finish, fresh, histogram,
    imported, refused, rng, router_record, run, write_lines, write_router)


def inputs(name):
    return sorted((SCRATCH / name).iterdir(), reverse=True)  # the order of files says nothing


# --- Megatron-LM router traces ---

ROUTER = ("--experts", 16, "--top-k", 4)


def test_router():
    layers, ranks, sizes = (0, 2, 5), 3, (40, 25, 33)
    want = [[np.sort(choose(n + r, len(layers), experts=16, top_k=4)) for r in range(ranks)] for n in sizes]
    lines = {r: [router_record(s, layer, r, want[s][r][:, l]) for s in range(len(sizes))
                 for l, layer in reversed(list(enumerate(layers)))] for r in range(ranks)}
    folder = fresh("router")
    write_router(folder, lines)
    with imported("megatron-router", inputs("router"), *ROUTER, "--ranks", 3, "--layers", "0,2,5") as h:
        check_ids(h, want, layers, ranks)
        check(h["tokens/expert_id"].attrs["order"] == "ascending_id" and list(h["steps/phase"][:]) == [0] * 3, "order, phase")
        check("microbatch" not in h["steps"] and list(h["model/block"][:]) == [0] * 3, "micro-batches, blocks")
    # as a router that hands out ids in order of preference, with sidecars, and rows of two sequences of a micro-batch
    want = [[choose(2 * n, len(layers), experts=16, top_k=4) for r in range(ranks)] for n in sizes]
    side = dict(hs_offset=0, hs_bytes=8, hs_shape=[1, 4], logit_offset=0, logit_bytes=8, logit_shape=[1, 4])
    write_router(folder, {r: [router_record(7 * s, layer, r, want[s][r][:, l], **side) for s in range(len(sizes))
                              for l, layer in enumerate(layers)] for r in range(ranks)})
    apart = [[np.concatenate([r[0::2], r[1::2]]) for r in step] for step in want]
    with imported("megatron-router", inputs("router"), *ROUTER, "--ranks", 3, "--micro-batch-size", 2) as h:
        got = h["tokens/expert_id"][:]
        check((got == np.concatenate([np.concatenate(s) for s in apart])).all(), "interleaved sequences")
        check(list(h["steps/id"][:]) == [0, 7, 14] and h["tokens/expert_id"].attrs["order"] == "unspecified", "steps, order")
        lengths = np.repeat(sizes, 6)
        check((h["tokens/sequence"][:] == np.repeat(np.arange(18), lengths)).all(), "sequences")
        check((h["tokens/position"][:] == np.concatenate([np.arange(n) for n in lengths])).all(), "positions")
    refused("80 tokens are not 3 sequences", "megatron-router", inputs("router"), *ROUTER, "--ranks", 3, "--micro-batch-size", 3)


def test_router_repeats():
    """Gradient accumulation and recomputation in the orders in which schedules run them."""
    layers, ranks, micro = (1, 2), 2, 4
    ids = choose(2, micro, ranks, 12, len(layers), experts=16, top_k=4)  # [step][micro][rank][token][layer]
    ids[:, 3] = ids[:, 2]  # two micro-batches may be the same
    want = [list(ids[s, m]) for s in range(2) for m in range(micro)]
    forward = [("f", m) for m in range(micro)]
    schedules = {
        "accumulation": (forward, ()),
        "recomputation of each": ([x for m in range(micro) for x in (("f", m), ("r", m))], ("--recompute",)),
        "1F1B": ([("f", 0), ("f", 1), ("r", 0), ("f", 2), ("r", 1), ("f", 3), ("r", 2), ("r", 3)], ("--recompute",)),
    }
    folder = fresh("router")
    for name, (schedule, options) in schedules.items():
        write_router(folder, {r: [router_record(s, layer, r, ids[s, m, r][:, l]) for s in range(2) for kind, m in schedule
                                  for l, layer in (reversed if kind == "r" else list)(list(enumerate(layers)))]
                              for r in range(ranks)})
        with imported("megatron-router", inputs("router"), *ROUTER, "--ranks", 2, "--micro-batches", micro, *options) as h:
            check_ids(h, want, layers, ranks, steps=[0] * micro + [1] * micro)
            check(list(h["steps/microbatch"][:]) == list(range(micro)) * 2, name)
        code, _, error = run(SPILLWAY, "trace", "slice", OUT, SCRATCH / "slice.h5", "--steps", "1:6")
        check(code == 0, error)
        with h5py.File(SCRATCH / "slice.h5") as h:
            check(list(h["steps/microbatch"][:]) == [1, 2, 3, 0, 1] and h.attrs["import_format"] == "megatron-router", "a slice")
        # never silently doubled
        told = 8 if options else 4
        refused(f"{told} records where --micro-batches 1 would leave 1", "megatron-router", inputs("router"), *ROUTER, "--ranks", 2)
        refused(f"{told} records where --micro-batches 3", "megatron-router", inputs("router"), *ROUTER, "--ranks", 2,
                "--micro-batches", 3)
        if options:
            refused("8 records where --micro-batches 4 would leave 4", "megatron-router", inputs("router"), *ROUTER, "--ranks",
                    2, "--micro-batches", 4)
    # what is said to be recomputed must be the same
    write_router(folder, {r: [router_record(0, 1, r, ids[0, m, r][:, 0]) for m in (0, 0, 1, 2)] for r in range(ranks)})
    refused("no second record with the same routing", "megatron-router", inputs("router"), *ROUTER, "--ranks", 2,
            "--micro-batches", 2, "--recompute")


def test_router_without_stage():
    """Older recorders do not write `stage`; what they write is from the same place."""
    ids = choose(2, 3, 10, experts=16, top_k=4)  # [rank][layer][token]
    folder = fresh("router")
    for r in range(2):
        write_lines(folder / f"router_trace_rank{r}.jsonl",
                    ({k: v for k, v in router_record(0, layer, r, ids[r, layer]).items() if k != "stage"} for layer in range(3)))
    with imported("megatron-router", inputs("router"), *ROUTER, "--ranks", 2) as h:
        check_ids(h, [ids.transpose(0, 2, 1, 3)], range(3), 2)


def bf16(x):
    """The nearest bfloat16 of x, as bits and as numbers."""
    bits = np.asarray(x, "f4").view("u4")
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return bits.astype("<u2"), (bits.astype("u4") << 16).view("f4").astype("f8")


def test_router_logits():
    """Weights from Megatron's sidecar of logits, by the three ways in which its router scores."""
    folder, options = fresh("logits"), ("--experts", 16, "--top-k", 3, "--ranks", 2)
    tokens, layers = 10, (1, 2)
    bits, logits = bf16(rng.normal(0, 3, (2, len(layers), tokens, 16)))
    ids = np.sort(np.argsort(-logits, -1)[..., :3], -1)
    files = [folder / f"router_trace_rank{r}.jsonl" for r in range(2)]
    exponent, chosen = np.exp(logits), np.take_along_axis(logits, ids, -1)
    sigmoid = 1 / (1 + np.exp(-chosen))
    wants = {"softmax": ("softmax_topk", np.exp(chosen) / np.exp(chosen).sum(-1, keepdims=True)),
             "pre-softmax": ("softmax_all", np.exp(chosen) / exponent.sum(-1, keepdims=True)),
             "sigmoid": ("gate_used", sigmoid / sigmoid.sum(-1, keepdims=True))}

    def write(change=lambda records: None, cut=0):
        for r in range(2):
            whole = bits[r].tobytes()
            (folder / f"logits_rank{r}.bin").write_bytes(whole[:len(whole) - cut])
            records = [router_record(0, layer, r, ids[r, l], logit_offset=l * tokens * 32, logit_bytes=tokens * 32, logit_shape=[tokens, 16])
                       for l, layer in enumerate(layers)]
            change(records)
            write_lines(files[r], records)

    write()
    for name, (kind, want) in wants.items():
        with imported("megatron-router", files, *options, "--scores", name) as h:
            check_ids(h, [[ids[r].transpose(1, 0, 2) for r in range(2)]], layers, 2)
            got, whole = h["tokens/weight"][:].astype("f8"), np.concatenate([want[r].transpose(1, 0, 2) for r in range(2)])
            check(np.abs(got - whole).max() < 2.0**-11 and h["tokens/weight"].attrs["weight_kind"] == kind, f"weights by {name}")
    with imported("megatron-router", files, *options) as h:
        check("weight" not in h["tokens"], "weights that nobody asked for")
    all_ids, ids = ids, np.argmax(logits, -1)[..., None]  # one choice a token: a sigmoid is not normalized, its sum would make it 1
    write()
    alone = 1 / (1 + np.exp(-np.take_along_axis(logits, ids, -1)))
    with imported("megatron-router", files, "--experts", 16, "--top-k", 1, "--ranks", 2, "--scores", "sigmoid") as h:
        got, whole = h["tokens/weight"][:].astype("f8"), np.concatenate([alone[r].transpose(1, 0, 2) for r in range(2)])
        check(np.abs(got - whole).max() < 2.0**-11 and whole.min() < 0.99, "the weight of one choice by sigmoid")
    ids = all_ids
    scored = (*options, "--scores", "softmax")
    refused("--scores: 'tanh' is none; softmax, pre-softmax", "megatron-router", files, *options, "--scores", "tanh", code=2)
    write(cut=1)
    refused("its logits end at byte 640; logits_rank{N}.bin has 639", "megatron-router", files, *scored)
    write(lambda records: records[1].pop("logit_offset"))
    refused("no logits are recorded; without --scores", "megatron-router", files, *scored)
    write(lambda records: records[1].update(logit_shape=[tokens, 15]))
    refused("logits of 10 tokens and 15 experts in 320 bytes; 10, 16", "megatron-router", files, *scored)
    write(lambda records: records[1].update(logit_offset=2**62))
    refused("logits_rank{N}.bin has 640", "megatron-router", files, *scored)
    bits[1, 0, 4, 2] = 0x7FC0
    write()
    refused("token 4: a logit is no number", "megatron-router", files, *scored)
    (folder / "logits_rank1.bin").unlink()
    refused("logits_rank1.bin", "megatron-router", files, *scored)


def test_router_stages():
    """Layers of a pipeline stage count from 0; multi-token prediction stands on the last stage."""
    ids = choose(2, 2, 5, 10, experts=16, top_k=4)  # [stage][rank][layer][token]
    lines = {2 * stage + r: [router_record(0, layer, 2 * stage + r, ids[stage, r, layer]) for layer in range(2)]
             for stage in range(2) for r in range(2)}
    for r in range(2):
        for depth in (1, 0, 2):  # in any order
            lines[2 + r].append({**router_record(0, 0, 2 + r, ids[1, r, 2 + depth]), "block": "mtp", "mtp_idx": depth})
    write_router(fresh("router"), lines)
    with imported("megatron-router", inputs("router"), *ROUTER, "--ranks", 2, "--stage-first", "3,10") as h:
        want = [[np.stack([ids[0, r, 0], ids[0, r, 1], *ids[1, r]], 1) for r in range(2)]]
        check_ids(h, want, (3, 4, 10, 11, 12, 13, 14), 2)
        check(list(h["model/block"][:]) == [0, 0, 0, 0, 1, 1, 1], "blocks")
    write_lines(SCRATCH / "router" / "router_trace_rank3.jsonl", lines[3][:1])
    refused("layer 11, rank 3: no record", "megatron-router", inputs("router"), *ROUTER, "--ranks", 2, "--stage-first", "3,10")
    write_router(SCRATCH / "router", lines)
    refused("there is 1 pipeline stage", "megatron-router", inputs("router"), *ROUTER, "--ranks", 2)
    refused("of another pipeline stage has this layer too", "megatron-router", inputs("router"), *ROUTER, "--ranks", 2,
            "--stage-first", "3,3")
    refused("layer 10 is recorded, but not among --layers", "megatron-router", inputs("router"), *ROUTER, "--ranks", 2,
            "--stage-first", "3,10", "--layers", "3,4")


def test_router_damage():
    ids = np.sort(choose(2, 2, 3, 10, experts=16, top_k=4))  # [rank][layer][step][token]
    folder, options = fresh("router"), (*ROUTER, "--ranks", 2)
    good = {r: [router_record(s, layer, r, ids[r, layer, s]) for s in range(3) for layer in range(2)] for r in range(2)}

    def damaged(message, change, *more, **kinds):
        records = json.loads(json.dumps({str(r): lines for r, lines in good.items()}))
        change(records)
        write_router(folder, records)
        refused(message, "megatron-router", inputs("router"), *(more or options), **kinds)

    def put(key, value, line=2, rank="1"):
        return lambda records: records[rank][line].__setitem__(key, value)

    where = "router_trace_rank1.jsonl:3: "
    for key in ("step", "block", "layer", "rank", "num_tokens", "topk", "top_indices"):
        damaged(f"{where}key '{key}' is missing", lambda records, key=key: records["1"][2].pop(key))
    for key, value in itertools.product(("step", "layer", "rank", "num_tokens", "topk"), ("1", 1.0, None, True, [1], -1, 1 << 62)):
        if (key, value) != ("step", 1 << 62):
            damaged(f"{where}'{key}' must be a whole number", put(key, value))
    damaged(f"{where}key 'extra' is not known", put("extra", 1))
    damaged(f"{where}'stage' must be pre_dispatch", put("stage", "post"))
    damaged(f"{where}'block' must be", put("block", "vision"))
    damaged(f"{where}key 'mtp_idx' is missing", put("block", "mtp"))
    damaged(f"{where}topk 3; --top-k says 4", put("topk", 3))
    damaged(f"{where}'top_indices' has 10 rows of 4 elements; 11 of 4", put("num_tokens", 11))
    damaged(f"{where}'top_indices' must be a list of lists", put("top_indices", 5))
    damaged(f"{where}'top_indices', row 0: must be a list", put("top_indices", [5] * 10))
    damaged(f"{where}'top_indices', row 1: has 3 elements, the first row 4", put("top_indices", [[0, 1, 2, 3], [0, 1, 2]] * 5))
    damaged(f"{where}'top_indices', element 3: must be a whole number from 0 to 15", put("top_indices", [[0, 1, 2, 16]] * 10))
    damaged(f"{where}'top_indices', element 0: must be a whole number from 0 to 15", put("top_indices", [[-1, 1, 2, 3]] * 10))
    damaged(f"{where}'top_indices', element 2: must be a whole number", put("top_indices", [[0, 1, 2.5, 3]] * 10))
    damaged(f"{where[:-1]} step 1, layer 0, rank 1: token 0 chooses expert 2 twice", put("top_indices", [[0, 2, 2, 3]] * 10))
    damaged("rank 0; the lines before are of rank 1", put("rank", 0))
    damaged("step 1 after step 2", lambda records: records["1"].reverse())
    damaged("rank 1: 2 records where --micro-batches 1", lambda records: records["1"].append({**records["1"][5]}))
    damaged("step 1, layer 1, rank 1: no record", lambda records: records["1"].pop(3))
    damaged("step 2, layer 1, rank 1: no record", lambda records: records["1"].pop())
    damaged("step 0, layer 0, rank 1: no record", lambda records: records.pop("1"))
    folder = fresh("router")
    damaged("step 0, layer 0, rank 2: no record", lambda records: None, *ROUTER, "--ranks", 3)
    damaged("--ranks says that 1 ranks", lambda records: None, *ROUTER, "--ranks", 1)
    damaged("layer 1 is recorded, but not among", lambda records: None, *options, "--layers", "0")
    damaged("layer 7 is among --layers, but nothing", lambda records: None, *options, "--layers", "0,1,7")
    damaged("9 tokens; the layers before have 10", lambda records: records["1"][3].update(
        num_tokens=9, top_indices=records["1"][3]["top_indices"][:9]))
    damaged("no records", lambda records: [lines.clear() for lines in records.values()])
    # facts: exit status 2
    damaged("--ranks is needed", lambda records: None, *ROUTER, code=2)
    damaged("--experts is needed", lambda records: None, "--top-k", 4, "--ranks", 2, code=2)
    damaged("--axes says nothing of this format", lambda records: None, *options, "--axes", "k", code=2)
    damaged("top-17 of 16", lambda records: None, "--experts", 16, "--top-k", 17, "--ranks", 2, code=2)
    damaged("--experts must be at least 1", lambda records: None, "--experts", 0, "--top-k", 4, "--ranks", 2, code=2)
    damaged("their product must be at most", lambda records: None, "--experts", 60000, "--top-k", 4, "--ranks", 60000, code=2)
    # text
    path = folder / "router_trace_rank1.jsonl"
    whole = path.read_bytes()
    for text, message in ((whole[:-30], "column"), (whole.replace(b'"step": 1', b'"step": 1, "step": 1', 1), "duplicate"),
                          (b"[1]\n" + whole, "rank1.jsonl:1: must be a JSON object"), (b"\0" + whole, "rank1.jsonl:1: "),
                          (b"\xff\xfe" + whole, "rank1.jsonl:1: "), (b"[" * 5000 + b"\n", "rank1.jsonl:1: "),
                          (b"\n\n" + whole.replace(b"decoder", b"x", 1), "rank1.jsonl:3: 'block'"),
                          (b'{"a": "' + b"x" * (1 << 26) + b'"}\n', "a line of more than"),
                          (whole.replace(b'"step"', b'"st\x1b[31mep"', 1), "rank1.jsonl:1: ")):
        path.write_bytes(text)
        refused(message, "megatron-router", inputs("router"), *options)
    path.write_bytes(b"\r\n" + whole.replace(b"\n", b"\r\n") + b"\n  \n")
    imported("megatron-router", inputs("router"), *options).close()
    refused("is given twice", "megatron-router", [path, path], *options, code=2)
    refused("No such file", "megatron-router", [SCRATCH / "none.jsonl"], *options)
    refused("Is a directory", "megatron-router", [folder], *options)
    before = path.read_bytes()
    code, _, error = run(SPILLWAY, "trace", "import", "megatron-router", path, "--output", path, *options)
    check(code == 2 and "is the input" in error and path.read_bytes() == before, f"an input as output: {error}")


# --- Megatron-LM tokens per expert ---

def test_megatron_counts():
    """Two replicas of four expert-parallel ranks, two micro-batches, a layer of multi-token prediction."""
    tokens, layers, iterations = 30, (0, 3), (100, 200)
    routed = np.zeros((2, 2, 3, 2, 8), "i8")  # [iteration][micro][layer][replica][expert]
    for at in np.ndindex(routed.shape[:-1]):
        routed[at] = histogram(choose(tokens, experts=8, top_k=2), 8)
    folder = fresh("tokens_per_expert")

    def lines(rank, iterations=iterations, shift=0):
        local = slice(rank % 4 * 2, rank % 4 * 2 + 2)
        for i, iteration in enumerate(iterations):
            for l, place in enumerate(({"block": "decoder", "layer": 0}, {"block": "decoder", "layer": 3},
                                       {"block": "mtp", "mtp_idx": 0, "layer": 0})):
                yield {"iter": iteration, **place, "tpe": routed[(i + shift) % 2, :, l, rank // 4, local].tolist()}

    for rank in range(8):
        write_lines(folder / f"rank{rank}.jsonl", lines(rank))
    want = routed.sum(3).reshape(4, 3, 8)
    options = (*COUNTS, "--ranks", 8, "--expert-parallel", 4, "--micro-batches", 2)
    with imported("megatron-counts", inputs("tokens_per_expert"), *options) as h:
        check_counts(h, want, (0, 3, 4), (100, 100, 200, 200))
        check(list(h["steps/microbatch"][:]) == [0, 1, 0, 1] and "source ranks" in h.attrs["import_lost"], "what was lost")
        check("rank" not in h, "ranks that received are no sources")
    # a run that was resumed at iteration 100, with other routing, and got further
    for rank in range(8):
        write_lines(folder / f"rank{rank}.jsonl", [*lines(rank, (50, 100, 150)), *lines(rank, (100, 300), 1)])
    refused("iteration 100, layer 0 after iteration 150, layer 0: a resumed run", "megatron-counts",
            inputs("tokens_per_expert"), *options)
    with imported("megatron-counts", inputs("tokens_per_expert"), *options, "--resumed") as h:
        flat = want.reshape(2, 2, 3, 8)
        check_counts(h, np.concatenate([flat[0], flat[1], flat[0]]), (0, 3, 4), (50, 50, 100, 100, 300, 300))
    # recomputation: every micro-batch twice
    for rank in range(8):
        write_lines(folder / f"rank{rank}.jsonl", [{**r, "tpe": [x for row in r["tpe"] for x in (row, row)]} for r in lines(rank)])
    refused("4 records where --micro-batches 2 would leave 2", "megatron-counts", inputs("tokens_per_expert"), *options)
    with imported("megatron-counts", inputs("tokens_per_expert"), *options, "--recompute") as h:
        check_counts(h, want, (0, 3, 4), (100, 100, 200, 200))

    def damaged(message, change, *more, **kinds):
        for rank in range(8):
            records = list(lines(rank))
            if rank == 5:
                change(records)
            write_lines(folder / f"rank{rank}.jsonl", records)
        refused(message, "megatron-counts", inputs("tokens_per_expert"), *(more or options), **kinds)

    def put(key, value):
        return lambda records: records[1].__setitem__(key, value)

    damaged("rank5.jsonl:2: key 'iter' is missing", lambda records: records[1].pop("iter"))
    damaged("rank5.jsonl:2: key 'rank' is not known", put("rank", 5))
    damaged("rank5.jsonl:2: 'tpe' has 2 rows of 3 elements; 2 of 2", put("tpe", [[1, 2, 3]] * 2))
    damaged("rank5.jsonl:2: 'tpe', element 0: must be a whole number from 0 to 4294967295", put("tpe", [[1 << 32, 0]] * 2))
    damaged("rank5.jsonl:2: 'tpe', element 0: must be", put("tpe", [[-1, 0]] * 2))
    damaged("1 record where --micro-batches 2", put("tpe", [[1, 2]]))
    damaged("padding", put("tpe", [[64, 64]] * 2))
    damaged("padding", put("tpe", [[7, 8]] * 2), *options)
    damaged("no record", lambda records: records.pop())
    damaged("a resumed run", lambda records: records.insert(2, records[0]))
    damaged("layer 3 after iteration 100, layer 3", lambda records: records.insert(2, records[1]))
    damaged("--expert-parallel 3 must divide", lambda records: None, *COUNTS, "--ranks", 8, "--expert-parallel", 3, code=2)
    damaged("times by", lambda records: records[1]["tpe"][0].__setitem__(0, records[1]["tpe"][0][0] + 2000))
    damaged("no record", lambda records: None, *COUNTS, "--ranks", 12, "--expert-parallel", 4, "--micro-batches", 2)
    (folder / "rank5.jsonl").rename(folder / "other.jsonl")
    refused("its rank is in a file's name alone", "megatron-counts", inputs("tokens_per_expert"), *options)
    for name in ("rank5.jsonl.bak", "rank.jsonl", "rank99999999999999999999.jsonl", "rank-1.jsonl"):
        (folder / "other.jsonl").rename(folder / name)
        refused("its rank is in a file's name alone", "megatron-counts", inputs("tokens_per_expert"), *options)
        (folder / name).rename(folder / "other.jsonl")


# --- Dumps of loads ---

def test_mcore_load():
    forwards, layers, ranks = 4, (2, 3, 7), 4
    loads = np.zeros((ranks, len(layers), forwards, 8), "i4")
    for at in np.ndindex(loads.shape[:-1]):
        loads[at] = histogram(choose(20 + at[0] + at[2], experts=8, top_k=2), 8)
    folder, options = fresh("loads"), (*COUNTS, "--ranks", 4)

    def write(change=lambda rank, arrays: None, save=np.savez, loads=loads):
        shutil.rmtree(folder)
        folder.mkdir()
        for rank in range(ranks):
            arrays = dict(dump_version=np.asarray("mcore_ep_load_dump_v1"), capture_id=np.asarray("20260101_000000_pid1"),
                          loads=loads[rank], layer_numbers=np.asarray(layers, "i4"),
                          forward_counts=np.full(len(layers), loads.shape[2], "i4"),
                          ep_group_ranks=np.asarray([0, 1] if rank < 2 else [2, 3], "i4"), ep_rank=np.int32(rank % 2),
                          ep_size=np.int32(2), global_rank=np.int32(rank), num_global_physical_experts=np.int32(8),
                          num_local_physical_experts=np.int32(4))
            change(rank, arrays)
            save(folder / f"mcore_ep_loads_rank{rank}_x.npz", **arrays)

    by_rank = loads.transpose(2, 0, 1, 3)  # [forward][rank][layer][expert]
    for save in (np.savez, np.savez_compressed):
        write(save=save)
        with imported("mcore-load", inputs("loads"), *options) as h:
            check_counts(h, by_rank.sum(1), layers, range(forwards), by_rank)
    with imported("mcore-load", inputs("loads"), *options, "--micro-batches", 2) as h:
        check_counts(h, by_rank.sum(1), layers, (0, 0, 1, 1), by_rank)
        check(list(h["steps/microbatch"][:]) == [0, 1, 0, 1], "micro-batches")
    write(loads=np.repeat(loads, 2, axis=2))
    with imported("mcore-load", inputs("loads"), *options, "--recompute") as h:
        check_counts(h, by_rank.sum(1), layers, range(forwards), by_rank)
    refused("8 records where --micro-batches 3 would leave a multiple of 3", "mcore-load", inputs("loads"), *options,
            "--micro-batches", 3)

    def damaged(message, change, *more):
        write(lambda rank, arrays: change(arrays) if rank == 1 else None)
        refused(message, "mcore-load", inputs("loads"), *(more or options))

    def put(key, value):
        return lambda arrays: arrays.__setitem__(key, value)

    for key in ("dump_version", "loads", "layer_numbers", "forward_counts", "ep_group_ranks", "ep_rank", "ep_size", "global_rank",
                "num_global_physical_experts", "num_local_physical_experts"):
        damaged(f"array '{key}' is missing", lambda arrays, key=key: arrays.pop(key))
    damaged("holds 'weights.npy', which is not known", put("weights", np.zeros(3)))
    damaged("is 'mcore_ep_load_dump_v2'", put("dump_version", np.asarray("mcore_ep_load_dump_v2")))
    damaged("must be a text", put("dump_version", np.int32(1)))
    damaged("layer 7 ran 3 times", put("forward_counts", np.asarray([4, 4, 3], "i4")))
    damaged("element 2 is 5; must be 0 to 4", put("forward_counts", np.asarray([4, 4, 5], "i4")))
    damaged("layer 2 after layer 3", put("layer_numbers", np.asarray([3, 2, 7], "i4")))
    damaged("must be 0 to", put("layer_numbers", np.asarray([-3, 2, 7], "i4")))
    damaged("[layer_numbers][forwards][experts]", put("layer_numbers", np.asarray([2, 7], "i4")))
    damaged("[layer_numbers][forwards][experts]", put("loads", np.zeros((3, 4, 9), "i4")))
    damaged("with 3 axes", put("loads", np.zeros((3, 8), "i4")))
    damaged("must be whole numbers with 3 axes", put("loads", loads[1].astype("f4")))
    damaged("no plain number", put("loads", np.zeros(3, [("a", "i4")])))
    damaged("count -1", put("loads", -np.ones((3, 4, 8), "i4")))
    damaged("but ep_group_ranks names", put("global_rank", np.int32(0)))
    damaged("do not fit", put("ep_rank", np.int32(2)))
    damaged("do not fit", put("num_local_physical_experts", np.int32(5)))
    damaged("counts of 10 physical experts", put("num_global_physical_experts", np.int32(10)))
    damaged("tokens; the layers before", put("loads", np.concatenate([loads[1][:2], loads[0][2:]])))
    damaged("which is no multiple of --top-k", put("loads", loads[1] + (np.arange(8) == 3)))
    damaged("rank 4: no record", lambda arrays: None, *COUNTS, "--ranks", 5)
    write()
    path = folder / "mcore_ep_loads_rank1_x.npz"
    shutil.copy(path, folder / "mcore_ep_loads_rank1_y.npz")
    refused("no record", "mcore-load", inputs("loads"), *options)  # two captures of one rank are no further forwards of all
    (folder / "mcore_ep_loads_rank1_y.npz").unlink()
    whole = path.read_bytes()
    for change, message in ((lambda b: b[:200], "ip archive"), (lambda b: b[:-5], ""), (lambda b: b"", ""),
                            (lambda b: b.replace(b"NUMPY\x01", b"NUMPY\x07"), "damaged"),
                            (lambda b: b.replace(b"'shape': (3, 4, 8)", b"'shape': (3, 5, 8)"), "damaged")):
        path.write_bytes(change(whole))
        refused(message, "mcore-load", inputs("loads"), *options)
    path.write_bytes(whole)
    with zipfile.ZipFile(path, "a") as z, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two arrays of one name
        z.writestr("loads.npy", b"x")
    refused("rank1_x.npz: ", "mcore-load", inputs("loads"), *options)
    path.write_bytes(whole)
    with zipfile.ZipFile(path) as z:  # sizes in the central directory that cannot be
        entry = z.getinfo("loads.npy")
    size = entry.file_size.to_bytes(4, "little")
    at = whole.rindex(size + size)
    path.write_bytes(whole[:at] + b"\xf0\xff\xff\x7f" * 2 + whole[at + 8:])
    refused("rank1_x.npz", "mcore-load", inputs("loads"), *options)


test_router()
test_router_repeats()
test_router_without_stage()
test_router_logits()
test_router_stages()
test_router_damage()
test_megatron_counts()
test_mcore_load()
finish()
