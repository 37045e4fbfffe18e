#!/usr/bin/env python3
"""`spillway trace import` against files that Python writes as servers and small programs do, and h5py, which reads what came of them:
answers with routed experts, a trace of ours there and back, files without a name, hostile ones.

usage: import_oracle.py SPILLWAY SCRATCH ROOT
"""
import base64
import io
import json
import pathlib
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from imports import (COUNTS, OUT, ROOT, SCRATCH, SPILLWAY, check, check_counts, check_ids, choose, finish, fresh,
    histogram, imported, refused, rng, router_record, run, save, write_lines, write_router)


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


test_small()
test_moe_balance()
test_vllm_eplb()
test_routed_responses()
test_routed_damage()
test_round_trip()
test_nameless()
test_hostile_texts()
finish()
