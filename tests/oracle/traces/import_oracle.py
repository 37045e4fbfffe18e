#!/usr/bin/env python3
"""`spillway trace import` against files that Python writes as the foreign programs do, and h5py, which reads what came of them.

usage: import_oracle.py SPILLWAY SCRATCH ROOT
"""
import base64
import io
import itertools
import json
import os
import pathlib
import pickle
import shutil
import sys
import warnings
import zipfile

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

SPILLWAY, SCRATCH, ROOT = sys.argv[1], pathlib.Path(sys.argv[2]) / "import_oracle", pathlib.Path(sys.argv[3])
OUT = SCRATCH / "out.h5"
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}  # hundreds of short runs
rng = np.random.default_rng(7)
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAILED: {what}")


def run(*command):
    done = caller.call([str(c) for c in command], capture_output=True, text=True, env=ENVIRONMENT)
    check("Sanitizer" not in done.stderr, done.stderr[-3000:])
    return done.returncode, done.stdout, done.stderr


def choose(*shape, experts, top_k):
    """Ids [..., top_k], different in a row, skewed."""
    return np.argsort(rng.random((*shape, experts)) ** np.linspace(1, 3, experts), axis=-1)[..., :top_k].astype("i4")


def histogram(ids, experts):
    return np.bincount(ids[ids >= 0].ravel(), minlength=experts)


def inputs(name):
    return sorted((SCRATCH / name).iterdir(), reverse=True)  # the order of files says nothing


def fresh(name):
    shutil.rmtree(SCRATCH / name, ignore_errors=True)
    (SCRATCH / name).mkdir(parents=True)
    return SCRATCH / name


def imported(form, files, *options):
    """The trace that came of it, which must be one that can be true."""
    OUT.unlink(missing_ok=True)
    code, out, error = run(SPILLWAY, "trace", "import", form, *files, "--output", OUT, *options)
    check(code == 0, f"{form} {options}: {error}")
    last = error.splitlines()[-1] if error else ""  # warnings come before it
    check(out == "" and last.startswith(f"wrote {OUT}: ") and " MoE layer" in last, f"what it wrote: {out!r} {error!r}")
    check(sorted(p.name for p in SCRATCH.iterdir() if p.is_file() and p.name.startswith("out.h5")) == ["out.h5"], "left over")
    for part in ("verify", "info"):
        code, out, error = run(SPILLWAY, "trace", part, OUT)
        check(code == 0, f"{form} {options}: {part}: {out} {error}")
    h = h5py.File(OUT, "r")
    check(h.attrs["import_format"] == form and h.attrs["import_lost"] and h.attrs["import_files"], "provenance")
    check(all(pathlib.Path(f).name in h.attrs["import_files"] for f in files) or len(files) > 50, "names of files")
    check("/" not in h.attrs["import_files"], "folders in the provenance")
    stated = [o for i, o in enumerate(options) if not {"--phase", "--model", "--model-layers", "--license"} & set(options[max(i - 1, 0):i + 1])]
    check(h.attrs["import_facts"] == " ".join(map(str, stated)), h.attrs["import_facts"])
    return h


def refused(message, form, files, *options, code=3):
    """One clear line, the right exit status, and no output."""
    OUT.unlink(missing_ok=True)
    got, _, error = run(SPILLWAY, "trace", "import", form, *files, "--output", OUT, *options)
    check(got == code, f"{form}: wanted '{message}', exit status {got}: {error}")
    check(message in error and error.count("\n") == 1, f"{form}: wanted '{message}', got '{error}'")
    check(not [p for p in SCRATCH.iterdir() if p.name.startswith("out.h5")], f"{message}: left over")


def check_ids(h, want, layers, ranks=None, steps=None, sequence=None):
    """want: a list over steps of [ranks][tokens][layers][k]; a rank's tokens in the order of the trace."""
    flat = np.concatenate([np.concatenate(list(step)) for step in want])
    got = h["tokens/expert_id"][:].astype("i4")
    got[got == h["tokens/expert_id"].attrs["missing_value"]] = -1
    check(got.shape == flat.shape and (got == flat).all(), "ids")
    check(list(h["layer"][:]) == list(layers), f"layers {h['layer'][:]}")
    check(list(h["steps/id"][:]) == list(range(len(want)) if steps is None else steps), f"steps {h['steps/id'][:]}")
    check(list(h["steps/num_tokens"][:]) == [sum(len(r) for r in step) for step in want], "tokens of steps")
    experts = len(h["expert"])
    for s, step in enumerate(want):
        for l in range(len(layers)):
            by_rank = [histogram(np.asarray(r)[:, l], experts) for r in step]
            check((h["counts/routed"][s, l] == np.sum(by_rank, 0)).all(), "counts/routed")
            if ranks:
                check((h["counts/by_rank"][s, :, l] == by_rank).all(), "counts/by_rank")
    if ranks:
        source = np.concatenate([np.repeat(np.arange(ranks), [len(r) for r in step]) for step in want])
        check((h["tokens/source_rank"][:] == source).all(), "source ranks")
    else:
        check("source_rank" not in h["tokens"] and "by_rank" not in h["counts"], "source ranks out of nowhere")
    if sequence:
        position = h["tokens/position"][:].reshape(-1, sequence)
        check((position == np.arange(sequence)).all(), "positions")
        check((h["tokens/sequence"][:] == np.repeat(np.arange(len(position)), sequence)).all(), "sequences")
    else:
        check("sequence" not in h["tokens"], "sequences out of nowhere")


def check_counts(h, want, layers, steps=None, by_rank=None, top_k=2):
    """want [steps][layers][experts]; by_rank [steps][ranks][layers][experts]."""
    check(h.attrs["content"] == "counts" and "tokens" not in h, "counts only")
    check((h["counts/routed"][:] == want).all(), "counts/routed")
    check((h["steps/num_tokens"][:] == np.sum(want, (1, 2)) / len(layers) / top_k).all(), "tokens")
    check(list(h["layer"][:]) == list(layers) and list(h["steps/id"][:]) == list(steps), "layers and steps")
    check(("by_rank" in h["counts"]) == (by_rank is not None), "counts/by_rank")
    if by_rank is not None:
        check((h["counts/by_rank"][:] == by_rank).all(), "counts/by_rank")


def write_lines(path, records):
    path.write_text("".join(json.dumps(r) + "\n" for r in records))


# --- Megatron-LM router traces ---

ROUTER = ("--experts", 16, "--top-k", 4)


def router_record(step, layer, rank, ids, **more):
    return {"step": step, "stage": "pre_dispatch", "block": "decoder", "layer": layer, "rank": rank, "num_tokens": len(ids),
            "topk": ids.shape[1], "top_indices": ids.tolist(), **more}


def write_router(folder, records):
    """records by rank, as one run writes them."""
    for old in folder.glob("router_trace_rank*"):
        old.unlink()
    for rank, lines in records.items():
        write_lines(folder / f"router_trace_rank{rank}.jsonl", lines)


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

COUNTS = ("--experts", 8, "--top-k", 2)


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


# --- Arrays ---

def save(name, array, folder="array"):
    path = SCRATCH / folder / name
    np.save(path, array)
    return path


def test_array_ids():
    folder, options = fresh("array"), ("--experts", 300, "--top-k", 3)
    steps, ranks, sequences, tokens, layers, k = shape = (2, 3, 4, 5, 6, 3)
    names = ("steps", "ranks", "sequences", "tokens", "layers", "k")
    full = choose(*shape[:-1], experts=300, top_k=k)
    for trial in range(12):
        axes = [a for a in names if a in ("tokens", "layers", "k") or rng.random() < 0.6]
        ids = full[tuple(slice(None) if a in axes else 0 for a in names)]
        order = rng.permutation(len(axes))
        stored = np.ascontiguousarray(ids.transpose(order)) if trial % 2 else np.asfortranarray(ids.transpose(order))
        dtype = ("i2", "u2", "i4", ">i4", "i8", "u8", ">u2")[trial % 7]
        path = save("ids.npy", stored.astype(dtype))
        want = full[tuple(slice(None) if a in axes else slice(0, 1) for a in names)]
        want = want.reshape(*want.shape[:2], -1, layers, k)
        with imported("array", [path], *options, "--axes", ",".join(axes[i] for i in order), "--order", "descending_weight") as h:
            check_ids(h, want, range(layers), want.shape[1] if "ranks" in axes else None,
                      sequence=tokens if "sequences" in axes else None)
            check(h["tokens/expert_id"].attrs["order"] == "descending_weight" and list(h["steps/phase"][:]) == [4] * len(want), "order")
    # one file a step (of different length), a rank, a layer
    files = [save(f"step{s}.npy", full[s, 0, 0, :s + 2]) for s in range(2)]
    with imported("array", files, *options, "--axes", "tokens,layers,k", "--files", "steps", "--phase", "decode") as h:
        check_ids(h, [[full[s, 0, 0, :s + 2]] for s in range(2)], range(layers))
        check(list(h["steps/phase"][:]) == [3, 3], "phase")
    files = [save(f"rank{r}.npy", full[0, r, 0]) for r in range(ranks)]
    with imported("array", files, *options, "--axes", "tokens,layers,k", "--files", "ranks", "--ranks", 3) as h:
        check_ids(h, [full[0, :, 0]], range(layers), ranks)
    files = [save(f"layer{l}.npy", full[0, 0, 0, :, l]) for l in range(layers)]
    with imported("array", files, *options, "--axes", "tokens,k", "--files", "layers", "--layers", "3:9") as h:
        check_ids(h, [full[0, :1, 0]], range(3, 9))
    # source ranks cut from the tokens
    path = save("ids.npy", full[0, 0])  # [sequences][tokens][layers][k]
    with imported("array", [path], *options, "--axes", "sequences,tokens,layers,k", "--tokens-per-rank", 10, "--ranks", 2) as h:
        check_ids(h, [full[0, 0].reshape(2, 10, layers, k)], range(layers), 2, sequence=5)
    refused("does not cut 4 sequences of 5 tokens", "array", [path], *options, "--axes", "sequences,tokens,layers,k",
            "--tokens-per-rank", 4)
    refused("--ranks 5, but the array has 2", "array", [path], *options, "--axes", "sequences,tokens,layers,k", "--tokens-per-rank",
            10, "--ranks", 5)
    # one array of an .npz, top-1 without an axis
    np.savez_compressed(folder / "request.npz", request_id=np.asarray("r1"), routed_experts=full[0, 0, 0, :, :, 0])
    with imported("array", [folder / "request.npz"], "--experts", 300, "--top-k", 1, "--axes", "tokens,layers", "--array",
                  "routed_experts") as h:
        check_ids(h, [full[0, :1, 0, :, :, :1]], range(layers))
    refused("array 'other' is missing", "array", [folder / "request.npz"], *options, "--axes", "tokens,layers,k", "--array", "other")
    refused("the arrays of an .npz are its layers; --array names one", "array", [folder / "request.npz"], *options, "--axes", "tokens,layers,k", code=2)


def test_layers_of_an_npz():
    """One array a layer: ids, or the router logits that Transformers hands out; the number in the name is the layer's."""
    fresh("array")
    options = ("--experts", 16, "--top-k", 3)
    logits = rng.normal(size=(4, 20, 16))
    logits[:, :, 5] = logits[:, :, 9]  # equal ones: the lower number first
    logits[1, 3, :8] = -np.inf
    path = SCRATCH / "array" / "logits.npz"
    for save_all, dtype in ((np.savez, "f4"), (np.savez_compressed, "f2"), (np.savez, ">f8")):
        given = [x.astype(dtype) for x in logits]
        save_all(path, *given)  # arr_0, arr_1 ...
        want = np.stack([np.argsort(-x.astype("f8"), axis=1, kind="stable")[:, :3] for x in given], axis=1)
        with imported("array", [path], *options, "--axes", "tokens,experts") as h:
            check_ids(h, [[want]], range(4))
            check(h["tokens/expert_id"].attrs["order"] == "descending_weight", "the order of logits")
    with imported("array", [path], *options, "--axes", "tokens,experts", "--layers", "3,5,7,9", "--tokens-per-rank", 5) as h:
        check_ids(h, [want.reshape(4, 5, 4, 3)], (3, 5, 7, 9), 4)
    # batches of sequences, and steps of several files
    np.savez(path, *logits.reshape(4, 2, 10, 16).astype("f4"))
    other = SCRATCH / "array" / "more.npz"
    np.savez(other, *logits[:, ::-1].reshape(4, 2, 10, 16).astype("f4"))
    want = np.stack([np.argsort(-x.astype("f4"), axis=1, kind="stable")[:, :3] for x in logits], axis=1)
    with imported("array", [path, other], *options, "--axes", "sequences,tokens,experts", "--files", "steps") as h:
        check_ids(h, [[want], [want[::-1]]], range(4), sequence=10)
    # ids, in the order of the numbers and not of the names
    np.savez(path, **{f"model.layers.{l}.mlp.gate": want[:, i] for i, l in enumerate((2, 3, 10))})
    with imported("array", [path], *options, "--axes", "tokens,k") as h:
        check_ids(h, [[want[:, :3]]], (2, 3, 10))
    ids = want[:, 0]
    for arrays, message, axes in (
            ({"gate": ids}, "array 'gate' has no number in its name", "tokens,k"),
            ({"a1": ids, "b1": ids}, "arrays 'a1' and 'b1' have one number", "tokens,k"),
            ({"a1": ids[:0]}, "no tokens", "tokens,k"),
            ({"a1": logits[0]}, "(router logits have the axes tokens,experts)", "tokens,k"),
            ({"a1": ids}, "names 2 of floats, the router's logits", "tokens,experts"),
            ({"a1": np.where(np.arange(16) == 3, np.nan, logits[0])}, "the logit of expert 3 is no number", "tokens,experts"),
            ({"a1": logits[0, :, :9]}, "axis experts has 9 elements", "tokens,experts")):
        np.savez(path, **arrays)
        refused(message, "array", [path], *options, "--axes", axes)
    refused("the arrays of an .npz are its layers", "array", [path], *options, "--axes", "layers,tokens,k", code=2)
    refused("which have no k", "array", [path], *options, "--axes", "tokens,experts,k", code=2)
    np.savez(path, ids, ids), np.savez(other, ids)
    refused("every file must have one a layer", "array", [path, other], *options, "--axes", "tokens,k", "--files", "steps")


def test_array_layers():
    """Layers without experts, padding, and what must not be guessed."""
    fresh("array")
    options = ("--experts", 16, "--top-k", 2, "--axes", "tokens,layers,k")
    ids = choose(50, 5, experts=16, top_k=2)
    ids[:, [0, 3]] = 0
    path = save("ids.npy", ids)
    refused("layer 0, rank 0: all zeros: a layer without experts? name it in --dense-layers 0", "array", [path], *options)
    refused("layer 3, rank 0: all zeros", "array", [path], *options, "--dense-layers", "0")
    with imported("array", [path], *options, "--dense-layers", "0,3") as h:
        check_ids(h, [[ids[:, [1, 2, 4]]]], (1, 2, 4))
    with imported("array", [path], *options, "--layers", "10:15", "--dense-layers", "10,13") as h:
        check_ids(h, [[ids[:, [1, 2, 4]]]], (11, 12, 14))
    refused("layer 1, rank 0: is among --dense-layers, but holds", "array", [path], *options, "--dense-layers", "0,1,3")
    refused("there is no layer 9", "array", [path], *options, "--dense-layers", "0,3,9", code=2)
    refused("5 layers; --layers names 6", "array", [path], *options, "--dense-layers", "0,3", "--layers", "0:6")
    refused("--layers names 4 layers; there are more", "array", [path], *options, "--dense-layers", "0,3", "--layers", "0:4")
    refused("must rise", "array", [path], *options, "--layers", "3,2,1", code=2)
    top1 = save("top1.npy", ids[:, :, 0])
    refused("layer 0, rank 0: all zeros", "array", [top1], "--experts", 16, "--top-k", 1, "--axes", "tokens,layers")
    # top-1 that is expert 0 in one rank and not in another is no dense layer
    ids[:, 0], ids[:, 3] = [3, 5], [0, 1]
    ids[7:9] = -1
    path = save("ids.npy", ids)
    refused("element 70 of the array is -1; must be 0 to 15 (what stands for no choice is said by --missing)", "array", [path], *options)
    with imported("array", [path], *options, "--missing", "-1") as h:
        check_ids(h, [[ids]], range(5))
    for value, message in ((16, "is 16; must be 0 to 15"), (1 << 40, "must be 0 to 15"), (-(1 << 40), "must be 0 to 15")):
        bad = choose(50, 5, experts=16, top_k=2).astype("i8")
        bad[11, 2, 1] = value
        refused(f"step 0, layer 2, rank 0: element 115 of the array {message if value == 16 else ''}".strip(), "array",
                [save("bad.npy", bad)], *options)
    bad = np.full((4, 2, 2), (1 << 64) - 1, "u8")
    refused("above 2^63", "array", [save("bad.npy", bad)], *options)
    bad = choose(50, 5, experts=16, top_k=2)
    bad[11, 2] = 7
    refused("layer 2, rank 0: token 11 chooses expert 7 twice", "array", [save("bad.npy", bad)], *options)
    good = [save("ids.npy", choose(50, 5, experts=16, top_k=2))]
    rest = options[:4]
    for axes, message in (("tokens,layer,k", "'layer' is no axis"), ("tokens,tokens,k", "'tokens' is there twice"), ("", "'' is no axis"),
                          ("tokens,layers,k,", "'' is no axis"), ("layers,k", "ids need tokens and k"), ("tokens,k", "layers are missing"),
                          ("layers,k,experts", "counts of experts have no tokens"), ("tokens,layers", "ids need tokens and k")):
        refused(message, "array", good, *rest, "--axes", axes, code=2)
    refused("names 3 of floats, the router's logits", "array", good, *rest, "--axes", "tokens,layers,experts")
    refused("3 axes of whole numbers; --axes tokens,steps,layers,k names 4", "array", good, *rest, "--axes", "tokens,steps,layers,k")
    refused("axis k has 5 elements; --top-k says otherwise", "array", good, *rest, "--axes", "tokens,layers,k".replace("layers,k", "k,layers"))
    refused("--files must say", "array", good + [save("more.npy", ids)], *options, code=2)
    refused("files may be steps, ranks or layers", "array", good, *options, "--files", "k", code=2)
    refused("the first file has 5", "array", good + [save("more.npy", ids[:, :4])], *options, "--files", "steps", "--missing", "-1")
    refused("there is an axis of ranks", "array", good, *rest, "--axes", "ranks,layers,tokens,k", "--tokens-per-rank", 2, code=2)


def test_padding():
    """Rows of a batch without a choice: counted and said, or left out. The oracle is the same batch without them."""
    fresh("array")
    shape, lengths = ("--experts", 16, "--top-k", 2), (9, 4, 1)
    ids = choose(3, 9, 5, experts=16, top_k=2)
    for s, length in enumerate(lengths):
        ids[s, length:] = -1
    ids[0, 2, 1] = ids[0, 3, 4, 0] = -1  # a token without a choice in one layer stays
    options = (*shape, "--missing", "-1", "--axes", "sequences,tokens,layers,k")
    path = save("padded.npy", ids)
    lost = int((ids < 0).sum())
    with imported("array", [path], *options) as h:
        check(h["steps/num_tokens"][0] == 27, "padding counts")
    code, _, error = run(SPILLWAY, "trace", "import", "array", path, "--output", OUT, *options)
    check(code == 0 and f"{lost} of {ids.size} choices are missing" in error and "--drop-padding" in error, error)
    code, out, error = run(SPILLWAY, "trace", "info", OUT)
    check(code == 0 and f"missing    {lost} of {ids.size} choices" in out, out)
    code, out, error = run(SPILLWAY, "trace", "info", OUT, "--format", "json")
    check(json.loads(out)["trace"]["missing"] == lost and json.loads(out)["trace"]["choices"] == ids.size, out)
    whole = np.concatenate([ids[s, :length] for s, length in enumerate(lengths)])
    with imported("array", [path], *options, "--drop-padding") as h:
        check_padded(h, whole, lengths)
    many = (*shape, "--axes", "tokens,layers,k", "--missing", "-1", "--drop-padding")
    with imported("array", [save("flat.npy", whole)], *many) as h:
        check((h["counts/routed"][0] == np.stack([histogram(whole[:, l], 16) for l in range(5)])).all(), "nothing to drop")
    # ranks of a step keep what is theirs
    with imported("array", [path], *options, "--tokens-per-rank", 9, "--drop-padding") as h:
        check((h["tokens/source_rank"][:] == np.repeat(np.arange(3), lengths)).all(), "ranks")
        check_padded(h, whole, lengths)
    refused("no token of the step has a choice", "array", [save("none.npy", np.full_like(ids, -1))], *options, "--drop-padding")
    refused("--drop-padding", "count-jsonl", [path], *shape, "--drop-padding", code=2)


def check_padded(h, whole, lengths):
    got = h["tokens/expert_id"][:].astype("i4")
    got[got == h["tokens/expert_id"].attrs["missing_value"]] = -1
    check(got.shape == whole.shape and (got == whole).all(), "ids without padding")
    check((h["tokens/sequence"][:] == np.repeat(np.arange(len(lengths)), lengths)).all(), "sequences without padding")
    check((h["tokens/position"][:] == np.concatenate([np.arange(n) for n in lengths])).all(), "positions without padding")
    check((h["counts/routed"][0] == np.stack([histogram(whole[:, l], 16) for l in range(5)])).all(), "counts without padding")


def test_array_counts():
    """Loads of experts: [steps][layers][experts], with or without ranks."""
    fresh("array")
    counts = np.zeros((3, 2, 4, 8), "i4")  # [step][rank][layer][expert]
    for at in np.ndindex(counts.shape[:-1]):
        counts[at] = histogram(choose(20 + at[0] + 3 * at[1], experts=8, top_k=2), 8)
    options = (*COUNTS, "--axes")
    with imported("array", [save("counts.npy", counts.sum(1))], *options, "steps,layers,experts", "--layers", "1:5") as h:
        check_counts(h, counts.sum(1), range(1, 5), range(3))
    with imported("array", [save("counts.npy", counts.transpose(3, 1, 2, 0))], *options, "experts,ranks,layers,steps", "--ranks", 2) as h:
        check_counts(h, counts.sum(1), range(4), range(3), counts)
    with imported("array", [save("counts.npy", counts[0, 0])], *options, "layers,experts") as h:
        check_counts(h, counts[:1, 0], range(4), range(1))
    zero = counts.sum(1)
    zero[:, 2] = 0
    path = save("counts.npy", zero)
    refused("layer 2, rank 0: all zeros", "array", [path], *options, "steps,layers,experts")
    with imported("array", [path], *options, "steps,layers,experts", "--dense-layers", "2") as h:
        check_counts(h, zero[:, [0, 1, 3]], (0, 1, 3), range(3))
    zero[1, 1, 0] += 2
    refused("step 1, layer 1, rank 0: counts of", "array", [save("counts.npy", zero)], *options, "steps,layers,experts", "--dense-layers", "2")
    refused("axis experts has 7", "array", [save("counts.npy", zero[:, :, :7])], *options, "steps,layers,experts")


def test_array_damage():
    """Bytes that are no array."""
    fresh("array")
    options = ("--experts", 16, "--top-k", 2, "--axes", "tokens,layers,k")
    path = save("ids.npy", choose(40, 3, experts=16, top_k=2))
    whole = path.read_bytes()
    imported("array", [path], *options).close()

    def damaged(message, data):
        path.write_bytes(data)
        refused(message, "array", [path], *options)

    for part in (0, 5, 9, 11, 60, 127, len(whole) - 1):
        damaged("ids.npy: ", whole[:part])
    damaged("but 961 bytes follow", whole + b"x")
    damaged("is no .npy array", b"\x93NUMPX" + whole[6:])
    for saved in (pickle.dumps({"ids": [1, 2]}), b"PK\x03\x04" + whole):  # of torch.save before and since 1.6
        damaged("is no .npy array, but a pickle or a file of torch.save", saved)
    damaged("other than 1, 2 and 3", whole[:6] + b"\x04" + whole[7:])

    def header(text):
        return whole[:8] + len(text).to_bytes(2, "little") + text.encode() + whole[128:]

    good = "{'descr': '<i4', 'fortran_order': False, 'shape': (40, 3, 2), }"
    path.write_bytes(header(good))
    imported("array", [path], *options).close()
    for old, new, message in (("(40, 3, 2)", "(1099511627776, 3, 2)", "but 960 bytes follow"), ("(40, 3, 2)", "(40, 3, -2)", "whole numbers"),
                              ("(40, 3, 2)", "(4294967296, 4294967296, 4294967296)", "overflows"), ("(40, 3, 2)", "(40, 3, 2", "whole numbers"),
                              ("(40, 3, 2)", "[40, 3, 2]", "tuple"), ("(40, 3, 2)", "(" + "1, " * 9 + ")", "more than 8 axes"),
                              ("(40, 3, 2)", "(40, 6)", "2 axes"), ("(40, 3, 2)", "(99999999999999999999, 0, 2)", "whole numbers|not closed"),
                              ("<i4", "|O", "elements of type '|O'"), ("<i4", "<f4", "of floats; --axes"), ("<i4", "<c8", "elements of type '<c8'"), ("<i4", "<i3", "elements of type"),
                              ("'<i4'", "[('a', '<i4')]", "no plain number"), ("False", "0", "True or False"), ("'shape'", "'shapes'", "once each"),
                              ("'fortran_order': False, ", "", "and nothing else"), ("'descr': '<i4', ", "'descr': '<i4', 'descr': '<i4', ", "once each"),
                              (", }", ", } x", "and nothing else"), ("{", "(", "dictionary"), ("<i4", "<i4\\x00", "no plain number")):
        path.write_bytes(header(good.replace(old, new)))
        code, _, error = run(SPILLWAY, "trace", "import", "array", path, "--output", OUT, *options)
        check(code == 3 and any(m in error for m in message.split("|")) and error.count("\n") == 1, f"{new}: {code} {error}")
    damaged("no tokens", header(good.replace("(40, 3, 2)", "(0, 3, 2)"))[:10 + len(good) - 1])
    damaged("axes", header(good.replace("(40, 3, 2)", "()"))[:10 + len(good) - 8 + 4])
    refused("is no regular file", "array", ["/dev/zero"], *options)


# --- Small ones ---

def test_small():
    folder = fresh("small")
    counts = np.stack([histogram(choose(30, experts=8, top_k=2), 8) for _ in range(3)])
    counts[1, 4], counts[1, 5] = 0, counts[1, 5] + counts[1, 4]
    if counts[1].max() > 30:
        counts[1] = counts[0][::-1]
    table = [f"{layer},{x},{c}" for layer, row in zip((1, 2, 9), counts) for x, c in enumerate(row) if c]
    path = folder / "counts.csv"
    for end in ("\n", "\r\n"):
        path.write_text(end.join(["layer,expert,count", *(table[i] for i in rng.permutation(len(table)))]) + end, newline="")
        with imported("count-csv", [path], *COUNTS, "--layers", "1,2,9", "--license", "CC0-1.0", "--model", "m") as h:
            check_counts(h, counts[None], (1, 2, 9), [0])
            check(h.attrs["license"] == "CC0-1.0" and h["model"].attrs["name"] == "m", "licence and model")
    # llama.cpp: a line an assignment; the last layer routes fewer tokens and is left out when others are asked for.
    lines = [f"{layer},{e}" for layer in (0, 1, 2) for token in choose(40 if layer < 2 else 7, experts=8, top_k=2) for e in token]
    path.write_text("\n".join(["layer,expert", *lines]) + "\n")
    with imported("count-csv", [path], *COUNTS, "--layers", "0,1") as h:
        want = [[lines.count(f"{layer},{e}") for e in range(8)] for layer in (0, 1)]
        check_counts(h, np.array([want]), (0, 1), [0])
    refused("counts of 7 tokens; the layers before have 40", "count-csv", [path], *COUNTS)
    for text, message in (("", "no records"), ("layer,count\n", "csv:1: the first line"), ("layer,expert\n1,2,3\n", "csv:2: must be two"),
                          ("layer,experts\n", "csv:1: the first line"), ("layer,expert,count\n1,2\n", "csv:2: must be three"),
                          ("layer,expert,count\n1,8,3\n", "csv:2: the expert must be below"), ("layer,expert,count\n1,2,3,4\n", "csv:2: "),
                          ("layer,expert,count\n1,2,-3\n", "csv:2: "), ("layer,expert,count\n1,2,3.0\n", "csv:2: "),
                          ("layer,expert,count\n1,2, 3\n", "csv:2: "), ("layer,expert,count\n1,2,4294967295\n", "csv:2: "),
                          ("layer,expert,count\n1,2,3\n\n1,2,3\n", "csv:4: this layer and expert is there twice"),
                          ("layer,expert,count\n9999999,2,3\n", "csv:2: layers up to"), ("layer,expert,count\n1,2,3\n", "no multiple"),
                          ("layer,expert,count\n1,2,3\n1,3,1\n", "is chosen 3 times by 2 tokens"),
                          ("layer,expert,count\n1,2,1\n1,3,1\n2,1,2\n2,2,2\n", "counts of 2 tokens; the layers before have 1")):
        path.write_text(text)
        refused(message, "count-csv", [path], *COUNTS)
    path = folder / "counts.jsonl"
    write_lines(path, [{"layer": layer, "counts": row.tolist()} for layer, row in zip((9, 1, 2), counts[[2, 0, 1]])])
    with imported("count-jsonl", [path], *COUNTS) as h:
        check_counts(h, counts[None], (1, 2, 9), [0])
    for record, message in (({"layer": 1}, "key 'counts' is missing"), ({"layer": 1, "counts": [1] * 7}, "1 rows of 7 elements; 1 of 8"),
                            ({"layer": 1, "counts": 7}, "must be a list"), ({"layer": 1, "counts": [0.5] * 8}, "element 0: must be a whole"),
                            ({"layer": 1, "counts": [0] * 8, "x": 0}, "key 'x'")):
        write_lines(path, [record])
        refused(message, "count-jsonl", [path], *COUNTS)
    write_lines(path, [{"layer": 1, "counts": [1] * 8}] * 2)
    refused("counts.jsonl:2: step 0, layer 1, rank 0: is there twice", "count-jsonl", [path], *COUNTS)


def test_moe_balance():
    folder = fresh("small")
    path = folder / "trace.jsonl"
    ids = choose(3, 4, 20, experts=8, top_k=2)  # [batch][layer][token]
    rows = rng.permutation(np.repeat(np.arange(4), 5))

    def write(origin, change=lambda records: None, layers=4):
        records = [{"layer": l, "batch_id": b, "origin_rows": origin, "topk_experts": ids[b, l].tolist(),
                    "topk_weights": [[0.5, 0.5]] * 20} for b in range(3) for l in range(layers)]
        change(records)
        write_lines(path, records)

    write([])
    with imported("moe-balance", [path], *COUNTS) as h:
        check_ids(h, [[ids[b].transpose(1, 0, 2)] for b in range(3)], range(4))
        check((h["tokens/weight"][:] == 0.5).all(), "weights")
    # every half, and numbers between them: rounded as numpy rounds
    halves = np.arange(0, 31744, 66).astype("u2").view("f2").astype("f8")[:480]
    numbers = (halves * (1 + rng.normal(0, 4e-4, 480))).reshape(3, 4, 20, 2)
    numbers[0, 0, 0] = 65504, 2.0**-25
    numbers = np.clip(numbers, 0, 65519)
    write(rows.tolist(), lambda records: [r.update(topk_weights=numbers[r["batch_id"], r["layer"]].tolist()) for r in records])
    with imported("moe-balance", [path], *COUNTS, "--ranks", 4) as h:
        order = np.argsort(rows, kind="stable")
        want = np.concatenate([numbers[b].transpose(1, 0, 2)[order] for b in range(3)]).astype("f2")
        check((h["tokens/weight"][:] == want).all(), "weights by rank")
    for words, weights in (("'topk_weights' has 19 rows", [[0.5, 0.5]] * 19), ("row 3: must be 2 numbers", [[0.5, 0.5]] * 3 + [[0.5]] * 17),
                           ("row 0: must be 2 numbers from 0 to 65504", [[0.5, -1]] * 20), ("row 0: must be", [[65520, 0]] * 20),
                           ("row 0: must be", [["a", 0]] * 20), ("has no weights, unlike others", [])):
        write([], lambda records: records[5].update(topk_weights=weights))
        refused(words, "moe-balance", [path], *COUNTS)
    write(rows.tolist())
    with imported("moe-balance", [path], *COUNTS, "--ranks", 4) as h:
        check_ids(h, [[ids[b][:, rows == r].transpose(1, 0, 2) for r in range(4)] for b in range(3)], range(4), 4)
    refused("--ranks must say how many", "moe-balance", [path], *COUNTS)
    refused("element ", "moe-balance", [path], *COUNTS, "--ranks", 3)
    refused("rank 4: no record", "moe-balance", [path], *COUNTS, "--ranks", 5)
    write([], lambda records: records.append(records[0]))
    refused("trace.jsonl:13: step 0, layer 0, rank 0: is there twice", "moe-balance", [path], *COUNTS)
    write([], lambda records: records[5].update(batch_id="r5"))
    refused("trace.jsonl:6: 'batch_id' must be a whole number", "moe-balance", [path], *COUNTS)
    write([], lambda records: records[5].update(topk_experts=records[5]["topk_experts"][:19], topk_weights=[[0.5, 0.5]] * 19))
    refused("19 tokens; the layers before have 20", "moe-balance", [path], *COUNTS)
    write(rows.tolist(), lambda records: records[5].update(origin_rows=[0]))
    refused("'origin_rows' has 1 elements, 'topk_experts' 20", "moe-balance", [path], *COUNTS, "--ranks", 4)
    write([])
    refused("'origin_rows' is empty", "moe-balance", [path], *COUNTS, "--ranks", 4)


def test_vllm_eplb():
    folder = fresh("small")
    path = folder / "stats.jsonl"
    meta = {"record_type": "eplb_load_meta", "version": 1, "model": "m", "num_ranks": 2, "num_groups": 1, "num_nodes": 1,
            "num_layers": 3, "num_redundant_experts": 4}
    want = np.stack([[histogram(choose(25 + s, experts=8, top_k=2), 8) for _ in range(3)] for s in range(2)])
    maps = np.stack([[rng.permutation(np.concatenate([np.arange(8), rng.integers(0, 8, 4)])) for _ in range(3)] for _ in range(2)])
    load = np.zeros(maps.shape, "i8")
    for at in np.ndindex(want.shape):  # the load of an expert, cut among its replicas
        slots = np.flatnonzero(maps[at[:2]] == at[2])
        load[at[0], at[1], slots] = rng.multinomial(want[at], [1 / len(slots)] * len(slots))
    stats = [{"record_type": "eplb_load_stats", "version": 1, "step": 10 + s, "expert_load": load[s].tolist(),
              "p2l_map": maps[s].tolist()} for s in range(2)]
    for lines in ([meta, *stats], stats):
        write_lines(path, lines)
        with imported("vllm-eplb", [path], *COUNTS, "--layers", "3:6") as h:
            check_counts(h, want, (3, 4, 5), (10, 11))
    for lines, message in (([*stats, meta], "jsonl:3: eplb_load_meta must be the first line"), ([meta, meta], "jsonl:2: eplb_load_meta must"),
                           ([{**meta, "num_layers": 4}, *stats], "jsonl:2: 'expert_load' has 3 rows"), ([meta], "no records"),
                           ([stats[0], stats[0]], "is there twice"), ([{**stats[0], "version": 2}], "'version' must be"),
                           ([{**stats[0], "record_type": "x"}], "'record_type' must be"), ([{**stats[0], "p2l_map": [[0] * 11] * 3}], "'p2l_map' has 3 rows of 11"),
                           ([{**stats[0], "p2l_map": [[8] * 12] * 3}], "'p2l_map', element 0"), ([{**stats[0], "p2l_map": [[-1] * 12] * 3}], "'p2l_map', element 0"),
                           ([{**stats[0], "expert_load": [[4294967295] * 12] * 3, "p2l_map": [[0] * 12] * 3}], "overflow")):
        write_lines(path, lines)
        refused(message, "vllm-eplb", [path], *COUNTS)


# --- A trace of ours, there and back ---

def npy_text(ids):
    """What vLLM puts into routed_experts: the base64 of a file of numpy."""
    buffer = io.BytesIO()
    np.save(buffer, ids)
    return base64.b64encode(buffer.getvalue()).decode()


def raw_text(ids):
    return base64.b64encode(np.ascontiguousarray(ids).tobytes()).decode()


def dynamo_value(ids, start=0, **more):
    return {"data": raw_text(ids), "shape": list(ids.shape), "start": start, "dtype": str(ids.dtype), **more}


def nemo_text(ids, dtype="i1"):
    """NeMo-RL appends a row for the last token, which was never routed."""
    last = np.broadcast_to(np.arange(ids.shape[2]), (1, *ids.shape[1:]))
    whole = np.concatenate([ids, last]).astype(dtype)
    return f"nrlre1:{whole.dtype}:{'x'.join(map(str, whole.shape))}:{raw_text(whole)}"


def choices(*texts):
    return {"id": "cmpl-1", "choices": [{"index": i, "text": "", "logprobs": [[[0.5]]], "routed_experts": t} for i, t in enumerate(texts)],
            "usage": {"prompt_tokens": 3}}


def test_routed_responses():
    """Router replay as four programs return it: every way of writing gives the same trace."""
    folder, shape = fresh("routed"), ("--experts", 16, "--top-k", 3)
    first, second = ([choose(n, 4, experts=16, top_k=3) for n in lengths] for lengths in ((5, 1, 9), (7,)))
    want = [[np.concatenate(first)], [np.concatenate(second)]]
    files = [folder / "a0.jsonl", folder / "b1.jsonl"]
    for kind in ("u1", "u2", "<i2", ">i4", "i8"):
        write_lines(files[0], [choices(npy_text(first[0].astype(kind)), npy_text(first[1].astype(kind)), None),
                               {"generate_metadata": {"routed_experts": npy_text(np.asfortranarray(first[2].astype(kind)))}}])
        write_lines(files[1], [choices(npy_text(second[0].astype(kind)))])
        with imported("vllm-routed", files, *shape, "--layers", "3:7") as h:
            check_ids(h, want, range(3, 7))
    # SGLang: flat int32, every layer of the model, of which the first is dense and filled with 0
    full = [np.concatenate([np.zeros((len(x), 1, 3), "i4"), x], 1) for x in first]
    write_lines(files[0], [{"text": "", "meta_info": {"prompt_tokens": 4, "completion_tokens": 2, "routed_experts": raw_text(full[0])}},
                           {"choices": [{"sgl_ext": {"routed_experts": raw_text(full[1])}}]},
                           {"meta_info": {"prompt_tokens": 9, "completion_tokens": 4, "routed_experts_start_len": 3, "routed_experts": raw_text(full[2])}}])
    with imported("sglang-routed", files[:1], *shape, "--layers", "0:5", "--dense-layers", 0) as h:
        check_ids(h, want[:1], range(1, 5))
    with imported("sglang-routed", files[:1], *shape, "--layers", "7:12", "--dense-layers", 7) as h:  # by its name
        check_ids(h, want[:1], range(8, 12))
    refused("all zeros: a layer without experts? name it in --dense-layers 0", "sglang-routed", files[:1], *shape, "--layers", "0:5")
    refused("is among --dense-layers, but holds choices of experts", "sglang-routed", files[:1], *shape, "--layers", "0:5", "--dense-layers", "0,2")
    refused("--layers is needed", "sglang-routed", files[:1], *shape, code=2)
    refused("no multiple of 4 layers x top-3", "sglang-routed", files[:1], *shape, "--layers", "0:4")
    refused("does --layers name every layer", "sglang-routed", files[:1], *shape, "--layers", 0)
    # dynamo, every type
    for kind in ("u1", "i1", "u2", "i2", "u4", "i4", "i8"):
        write_lines(files[0], [{"engine_data": {"routed_experts": dynamo_value(x.astype(kind))}} for x in first])
        with imported("dynamo-routed", files[:1], *shape) as h:
            check_ids(h, want[:1], range(4))
    # NeMo-RL: a token without a route, the made-up last row
    holes = [x.copy() for x in first]
    holes[2][4] = -1
    for kind in ("i1", "i2", "i4"):
        write_lines(files[0], [{"choices": [{"message": {"content": "", "routed_experts": nemo_text(x, kind)}}]} for x in holes])
        with imported("nemo-rl-routed", files[:1], *shape) as h:
            check_ids(h, [[np.concatenate(holes)]], range(4))
    write_lines(files[0], [choices(npy_text(holes[2].astype("i2")))])
    refused("is -1; must be 0 to 15 (what stands for no choice is said by --missing)", "vllm-routed", files[:1], *shape)
    with imported("vllm-routed", files[:1], *shape, "--missing", -1) as h:
        check_ids(h, [[holes[2]]], range(4))


def test_routed_damage():
    folder, shape = fresh("routed"), ("--experts", 16, "--top-k", 3)
    file, ids = folder / "a.jsonl", choose(5, 4, experts=16, top_k=3)
    text = npy_text(ids.astype("u1"))
    short = np.stack([np.arange(2)] * 5)[:, None].astype("u1")

    def say(form, message, record):
        write_lines(file, record if isinstance(record, list) else [record])
        refused(message, form, [file], *shape)

    say("vllm-routed", "a.jsonl:1: there is no 'routed_experts' in it", {"choices": []})
    say("vllm-routed", "no token of any response was routed", choices(None))
    say("vllm-routed", "in two places; keep one", {"a": {"routed_experts": text}, "b": {"routed_experts": text}})
    say("vllm-routed", "must be a text, the base64 of a .npy", choices([[1]]))
    say("vllm-routed", "a.jsonl:1: routed_experts: is no .npy array", choices(raw_text(ids)))
    say("vllm-routed", "a.jsonl:2: routed_experts: character 8 of the text is not base64", [choices(text), choices(text[:8] + "-" + text[9:])])
    say("vllm-routed", "which has a multiple of 4", choices(text[:-1]))
    say("vllm-routed", "elements of 1 bytes, but 58 bytes follow", choices(text[:-4]))
    say("vllm-routed", "2 experts a token; --top-k says 3", choices(npy_text(short)))
    say("vllm-routed", "1 layers; the response before has 4", choices(text, npy_text(ids[:, :1].astype("u1"))))
    say("vllm-routed", "2 axes of whole numbers", choices(npy_text(ids[0].astype("u1"))))
    say("vllm-routed", "3 axes of no whole numbers", choices(npy_text(ids.astype("f4"))))
    say("vllm-routed", "is 16; must be 0 to 15", choices(npy_text(np.where(ids == 3, 16, ids).astype("u1"))))
    say("vllm-routed", "more than 16 levels deep", {"a": json.loads("[" * 20 + "]" * 20)})
    say("dynamo-routed", "must be an object of data", choices(text))
    say("dynamo-routed", "key 'end' is not known", choices(dynamo_value(ids, end=3)))
    say("dynamo-routed", "elements of type 'float32'", choices(dynamo_value(ids.astype("f4"))))
    say("dynamo-routed", "5 x 4 x 4 elements of int32, but 240 bytes", choices({**dynamo_value(ids), "shape": [5, 4, 4]}))
    say("dynamo-routed", "2147483647 x 2147483647 x 2147483647 elements of int32, but 240 bytes", choices({**dynamo_value(ids), "shape": [2**31 - 1] * 3}))
    say("nemo-rl-routed", "must be a text 'nrlre1:", choices(text))
    say("nemo-rl-routed", "no type of elements", choices("nrlre1:int16"))
    say("nemo-rl-routed", "the shape must be TOKENSxLAYERSxK", choices("nrlre1:int16:5x4:AAAA"))
    say("nemo-rl-routed", "the last row must be 0, 1, ...", choices(f"nrlre1:int32:5x4x3:{raw_text(ids)}"))
    # base64 has one text for every content: bits that nothing reads must be 0
    say("dynamo-routed", "character 1 of the text is not base64", choices({"data": "AB==", "shape": [1, 1, 1], "dtype": "uint8", "start": 0}))


def test_round_trip():
    folder, source = fresh("there"), ROOT / "traces/data/training_aux_e64_slice.h5"
    with h5py.File(source) as h:
        layers_of_model = int(h["model"].attrs["num_layers"])
    shape = ("--experts", 64, "--top-k", 8, "--layers", None, "--model", "scratch-moe-e64-aux", "--phase", "train", "--model-layers", layers_of_model)
    with h5py.File(source) as h:
        ids, routed, by_rank = h["tokens/expert_id"][:], h["counts/routed"][:], h["counts/by_rank"][:]
        rank, offset, layers, steps = h["tokens/source_rank"][:], h["tokens/step_offset"][:], h["layer"][:], h["steps/id"][:]
    shape = [",".join(map(str, layers)) if o is None else o for o in shape]
    check((rank.reshape(2, 64, -1) == np.arange(64)[:, None]).all() and len(steps) == 2, "the shipped trace")
    array = ids.reshape(2, 64, -1, len(layers), 8)
    whole = array.reshape(2, 64, 2, 512, len(layers), 8)
    with imported("array", [save("ids.npy", whole, "there")], *shape, "--axes", "steps,ranks,sequences,tokens,layers,k") as h:
        check((h["tokens/expert_id"][:] == ids).all() and (h["counts/by_rank"][:] == by_rank).all(), "there and back as .npy")
        check((h["tokens/source_rank"][:] == rank).all() and (h["layer"][:] == layers).all(), "there and back as .npy")
    # what the simulator says of it is the same, memory, traffic and drops
    job = ROOT / "sim/jobs/scratch-moe-e64.yaml"
    rows = []
    for trace, steps_asked in ((source, "0:2"), (OUT, "0:2")):
        code, out, error = run(SPILLWAY, "replay", trace, "--job", job, "--format", "json", "--steps", steps_asked)
        check(code == 0, error)
        rows.append(json.loads(out)["rows"])
    for row in rows[0] + rows[1]:
        for part, name in ((row["memory"].get("worst", {}), "step"), (row["drops"], "worst_step")):
            part.pop(name, None)  # an array has no numbers of steps
        for factor in (f for f in (row.get("overload") or {}).values() if isinstance(f, dict)):
            factor.pop("worst_step", None)
        row.pop("steps")
    check(rows[0] == rows[1], "a replay of what came back differs")
    # the same as router traces of 4 ranks, and as counts of all
    write_router(folder, {r: [router_record(int(steps[s]), int(layers[l]), r, array[s, r, :, l]) for s in range(2)
                              for l in range(len(layers))] for r in range(4)})
    files = sorted(folder.glob("router*"))
    with imported("megatron-router", files, *shape, "--ranks", 4) as h:
        check((h["tokens/expert_id"][:].reshape(2, 4, -1, len(layers), 8) == array[:, :4]).all(), "there and back as JSON")
        check((h["steps/id"][:] == steps).all() and (h["counts/by_rank"][:] == by_rank[:, :4]).all(), "there and back as JSON")
    with imported("array", [save("counts.npy", by_rank, "there")], *shape, "--axes", "steps,ranks,layers,experts") as h:
        check((h["counts/by_rank"][:] == by_rank).all() and (h["counts/routed"][:] == routed).all(), "there and back as counts")
    code, out, error = run(SPILLWAY, "replay", OUT, "--job", job, "--format", "json", "--scheme", "gmm")
    check(code == 0 and json.loads(out)["rows"][0]["traffic"]["rows_max"] > 0, f"a replay of imported counts: {error}")


def test_nameless():
    """A plan says that a trace names no model."""
    fresh("array")
    path = save("ids.npy", choose(4096, 2, experts=64, top_k=8))
    made = path.with_name("nameless.h5")
    run(SPILLWAY, "trace", "import", "array", path, "--output", made, "--experts", "64", "--top-k", "8", "--axes", "tokens,layers,k")
    code, out, error = run(SPILLWAY, "plan", "--trace", made, "--model", "olmoe-1b-7b", "--cluster", "h100:8x1")
    check(code == 0 and "nameless.h5: no model named, 1 step x 2 layers" in " ".join(out.split()), f"{code} {out} {error}")
    made.write_bytes(b"")
    code, out, error = run(SPILLWAY, "trace", "info", made)
    check(code == 3 and "nameless.h5: an empty file" in error, f"{code} {error}")


def test_hostile_texts():
    """What a file says of itself reaches no terminal as a command."""
    path = SCRATCH / "hostile.h5"
    shutil.copyfile(ROOT / "traces/data/training_aux_e64_slice.h5", path)
    with h5py.File(path, "r+") as h:
        h.attrs["source"] = "\x1b[31mred\x1b]0;title\x07"
        h.attrs["license"] = "two\nlines"
    code, out, error = run(SPILLWAY, "trace", "info", path)
    check(code == 0 and "?[31mred?]0;title?" in out and "two?lines" in out, f"{out} {error}")
    check(all(c.isprintable() or c == "\n" for c in out), "control characters")


shutil.rmtree(SCRATCH, ignore_errors=True)
SCRATCH.mkdir(parents=True)
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
shutil.rmtree(SCRATCH)
print(f"{checks} checks")
sys.exit(0 if checks > 0 else 1)
