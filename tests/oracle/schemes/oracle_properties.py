"""What must hold of the schemes whatever the trace, seen through `spillway replay` alone: no formula of a scheme is used."""
import collections
import dataclasses
import json

import h5py
import pathlib
import sys
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import Case, Tokens, replay, run
from oracle_ranks import Wrong

# Schemes without padding: every choice is a row or dropped.
CONSERVED = {
    "maxtext": ("gmm", "ragged", "ring", "gmm-deepep", "gmm:buffer_factor=0.7", "ring:buffer_factor=0.7",
                "ragged-ring:buffer_factor=0.7"),
    "torch": ("megablocks", "megablocks:impl=memory_optimized", "torchtitan"),
    "megatron": ("megatron-alltoall", "megatron-alltoall:capacity_factor=0.7", "megatron-allgather",
                 "megatron-allgather:capacity_factor=0.7,policy=position", "megatron-flex", "primus-syncfree:level=1",
                 "primus-syncfree:level=2", "primus-syncfree:level=3"),
    "deepep": ("ragged-deepep", "moe-dedup:buffer_factor=1", "moe-dedup:buffer_factor=1,max_shards=1", "deepep",
               "deepep:dtype=fp8", "deepep-ll", "hybrid-ep", "hybrid-ep:budget=1"),
}
# From little room to much; the last one must do what the scheme without a limit does.
ROOM = ("0.4", "0.7", "1", "1.5", "1000")
LADDERS = {
    "maxtext": (("dense:capacity_factor={}", None), ("gmm:buffer_factor={}", "gmm"), ("ring:buffer_factor={}", "ring"),
                ("ragged-ring:buffer_factor={}", "ragged-ring")),
    "torch": (("tutel:capacity_factor={}", None), ("tutel:capacity_factor={},batch_prioritized=true", None)),
    "megatron": (("megatron-alltoall:capacity_factor={}", "megatron-alltoall"),
                 ("megatron-alltoall:capacity_factor={},policy=position", "megatron-alltoall"),
                 ("megatron-allgather:capacity_factor={}", "megatron-allgather"),
                 ("megatron-flex:capacity_factor={},align=16", "megatron-flex:align=16")),
    "deepep": (("moe-dedup:buffer_factor={}", "ragged-deepep"), ("moe-dedup:buffer_factor=0.4,overflow_factor={}", "ragged-deepep"),
               ("hybrid-ep:budget={}", "hybrid-ep"), ("hybrid-ep:budget={},pad=16", "hybrid-ep:pad=16")),
}
# Once a rank, and every choice by itself, with what else travels in bytes beside a row: (deduplicated, plain).
DEDUPLICATED = {
    "maxtext": (("gmm-deepep", "gmm"),),
    "torch": (),
    "megatron": (("megatron-flex", "megatron-alltoall"), ("primus-syncfree:level=2", "primus-syncfree:level=1")),
    "deepep": (("deepep", "deepep-ll:dtype=bf16"), ("deepep:dtype=fp8", "deepep-ll"), ("hybrid-ep", "deepep-ll:dtype=bf16"),
               ("moe-dedup:buffer_factor=1", "deepep-ll:dtype=bf16")),
}


def fields(program, folder, name, case, trace, schemes):
    """{scheme: {field: [steps][layers][ranks]}}"""
    case = dataclasses.replace(case, schemes=tuple(schemes))
    path, job, out = trace.write(folder / f"{name}.h5"), case.write(folder, name), folder / f"{name}_out.h5"
    replay(program, path, job, "--output", out)
    with h5py.File(out) as f:
        result = {s: {k: f[k][i].astype(np.int64) for k in ("rows_received", "bytes_sent", "dropped")}
                  for i, s in enumerate(schemes)}
    path.unlink()
    out.unlink()
    return result


def hold(truth, text):
    if not truth:
        raise Wrong(text)


def conserved(got, schemes, made):
    for scheme in schemes:
        left = got[scheme]["rows_received"].sum(2) + got[scheme]["dropped"].sum(2)
        hold(np.array_equal(left, made), f"{scheme}: rows and drops are {left.ravel()}, choices {made.ravel()}")


def ladder(got, form, dropless):
    steps = [got[form.format(f)] for f in ROOM]
    for less, more in zip(steps, steps[1:]):
        hold((more["dropped"].sum(2) <= less["dropped"].sum(2)).all(), f"{form}: drops rise with the room")
    hold(steps[-1]["dropped"].sum() == 0, f"{form}: drops with room for all")
    if dropless:
        same = np.array_equal(steps[-1]["rows_received"], got[dropless]["rows_received"])
        hold(same, f"{form}: with room for all the rows are not those of {dropless}")


def run_rules(program, folder, seed, random_case, family):
    """Rows and drops add up; drops fall with room; a token that travels once a rank travels less."""
    case, trace, _ = random_case(seed, ())
    while case.expert == 1 or case.tokens * case.top_k < 3:  # buffers need company, and a factor of 0.4 must leave a row
        seed += 1000
        case, trace, _ = random_case(seed, ())
    if case.expert > case.gpus_per_node:  # a group on one node: every scheme takes it
        case = dataclasses.replace(case, nodes=1, gpus_per_node=case.ranks)
    case = dataclasses.replace(case, hidden=4096, remat="full")  # what a row brings along is small beside it
    forms = [(form, dropless) for form, dropless in LADDERS[family]]
    texts = list(CONSERVED[family]) + [form.format(f) for form, _ in forms for f in ROOM]
    texts += [d for _, d in forms if d] + [s for pair in DEDUPLICATED[family] for s in pair]
    texts = list(dict.fromkeys(texts))
    got, wrong = fields(program, folder, f"rules_{family}_{seed}", case, trace, texts), []
    step = np.repeat(np.arange(len(trace.step_tokens)), trace.step_tokens)
    made = np.array([(trace.expert_id[step == s] != trace.missing).sum((0, 2)) for s in range(len(trace.step_tokens))])
    checks = [(conserved, (got, CONSERVED[family], made))] + [(ladder, (got, form, d)) for form, d in forms]
    checks += [(less_bytes, (got, few, many)) for few, many in DEDUPLICATED[family]]
    for function, arguments in checks:
        try:
            function(*arguments)
        except Wrong as error:
            wrong.append((family, str(error)))
    return collections.Counter({f"{family}, rules": len(checks)}), wrong


def less_bytes(got, few, many):
    """Per rank; 8 % for indices and weights, which a choice that travels by itself does not bring."""
    hold((got[few]["bytes_sent"] <= 1.08 * got[many]["bytes_sent"]).all(), f"{few} sends more than {many}")


def run_rounding(program, folder, seed, random_case, family):
    """One expert, so that a rank's rows are the expert's count: rounding moves it by less than a tile."""
    case, trace, rng = random_case(seed, ())
    ids = np.where(rng.random(trace.expert_id[:, :, :1].shape) < 0.3, trace.missing, 0).astype(np.uint8)
    trace = dataclasses.replace(trace, expert_id=ids, experts=1, weight=trace.weight[:, :, :1])
    case = dataclasses.replace(case, expert=1, experts=1, top_k=1, remat="full")
    tiles, wrong = (2, 3, 4, 7), []
    texts = [f"sonicmoe:rounding={r},tile={t}" for r in ("up", "down", "nearest") for t in tiles]
    got = fields(program, folder, f"rounding_{seed}", case, trace, ["sonicmoe", *texts])
    count = got["sonicmoe"]["rows_received"]
    for text in texts:
        tile, rows = int(text.rpartition("=")[2]), got[text]["rows_received"]
        whole = (rows % tile == 0) | (rows == case.tokens)
        near = abs(rows - count) <= (tile / 2 if "nearest" in text else tile - 1)
        side = {"up": rows >= count, "down": rows <= count}.get(text.split("=")[1].split(",")[0], True)
        if not (whole & near & side).all():
            wrong.append(("sonicmoe", f"{text}: {rows.ravel()} of {count.ravel()}, {case.tokens} tokens"))
    return collections.Counter({"torch, rounding": len(texts)}), wrong


# What explain says without a trace is what replay says of a trace where every rank chooses every expert as often.
BALANCED = {
    "maxtext": ("dense:capacity_factor=1", "gmm", "ragged", "gmm-deepep", "ring"),
    "torch": ("megablocks", "torchtitan", "megablocks:impl=sparse", "megablocks:impl=memory_optimized", "tutel:capacity_factor=1.25",
              "tutel:capacity_factor=0"),
    "megatron": ("megatron-alltoall", "megatron-alltoall:align=16", "megatron-alltoall:align=32,pay=router",
                 "megatron-alltoall:capacity_factor=1,pad=true", "megatron-allgather", "megatron-flex:backend=hybridep",
                 "megatron-flex:backend=hybridep,align=16", "primus-syncfree:level=1", "primus-syncfree:level=2,align=16",
                 "primus-syncfree:level=3"),
    "deepep": ("ragged-deepep", "moe-dedup:buffer_factor=1,overflow_factor=1", "deepep-ll", "hybrid-ep", "hybrid-ep:pad=16",
               "hybrid-ep:budget=1.5"),
}
TOGETHER = ("megatron-ncclep", "megatron-ncclep:rank_capacity=1.5,align=16")  # two ranks or more
ALONE = ("scattermoe", "scattermoe:activation=compiled", "sonicmoe", "sonicmoe:rounding=up,tile=16",
         "sonicmoe:rounding=nearest,tile=16")


def run_explained(program, folder, remat, ranks, family):
    experts, top_k, length = 4 * ranks, 2, 12 * ranks
    case = Case(1, ranks, ranks, experts, top_k, 24, 40, 1, 1, length, remat, vocab=1)
    chosen = (np.arange(length)[:, None] * top_k + np.arange(top_k)) % experts
    ids = np.tile(chosen, (ranks, 1))[:, None, :].astype(np.uint8)
    weight = (1 + np.arange(ids.size) % 7).reshape(ids.shape) / 8
    trace = Tokens(ids, [len(ids)], experts, ranks, np.repeat(np.arange(ranks), length), np.zeros(len(ids), int),
                   np.tile(np.arange(length), ranks), weight=weight)
    texts = BALANCED[family] + (ALONE if family == "torch" and ranks == 1 else ())
    texts += TOGETHER if family == "megatron" and ranks > 1 else ()
    case = dataclasses.replace(case, schemes=texts)
    name = f"explained_{family}_{remat}_{ranks}"
    path, job, wrong = trace.write(folder / f"{name}.h5"), case.write(folder, name), []
    rows = replay(program, path, job)["rows"]
    for text, row in zip(texts, rows):
        done = run(program, "explain", "--job", job, "--scheme", text, "--format", "json")
        said = {c["component"]: c["bytes"] for c in json.loads(done.stdout) if c["at_peak"] == "yes"}
        if said != row["memory"]["components"]:
            differ = {k: (said.get(k), row["memory"]["components"].get(k)) for k in {*said, *row["memory"]["components"]}}
            wrong.append((text.partition(":")[0], f"{text}: explain and replay {({k: v for k, v in differ.items() if v[0] != v[1]})}"))
    path.unlink()
    return collections.Counter({f"{family}, explained": len(texts)}), wrong


def jobs(family, random_case, seeds):
    work = [(run_rules, (seed, random_case, family)) for seed in seeds]
    work += [(run_explained, (remat, ranks, family)) for remat in ("full", "none") for ranks in (1, 4)]
    return work + ([(run_rounding, (seed, random_case, family)) for seed in seeds] if family == "torch" else [])
