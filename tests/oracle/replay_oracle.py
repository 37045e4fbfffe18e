#!/usr/bin/env python3
"""`spillway replay` against a brute force over tokens, written from docs/schemes.md alone.

replay_oracle.py SPILLWAY SCRATCH [--data FOLDER] [--cases N] [--first SEED] [--trace FILE]

Every random trace is counted twice here, token by token in plain Python and once more with numpy; the real
traces with numpy. Integers must be equal, means to 1e-12."""
import argparse
import json
import math
import multiprocessing
import pathlib
import sys

import h5py
import numpy as np
import xarray

from oracle_ranks import Wrong, close, compose, guarded, random_ids, random_storage, same
from replay_case import Case, Tokens, replay

BYTES = 2  # of an element, bf16
FIELDS = ("rows_received", "bytes_sent", "bytes_received", "dropped")


# --- What a scheme sends and drops (sections 1, 2 and 3) ---

def option(scheme, name):
    for part in scheme.partition(":")[2].split(","):
        key, _, value = part.partition("=")
        if key == name:
            return float(value)
    return 0.0


def capacity(case, scheme):
    factor = option(scheme, "capacity_factor")
    return int(max(math.ceil(case.length * case.top_k / case.experts) * factor, factor))


def buffer_rows(case, scheme):
    """Rows that a destination can hold; None: as many as come."""
    factor = option(scheme, "buffer_factor")
    return int(case.tokens * case.top_k * factor) if factor > 0 else None


DEEPEP = ("gmm-deepep", "ragged-deepep")


def row_bytes(case, scheme):
    """Bytes of a row in the forward dispatch and combine, and summed over all exchanges of a layer."""
    row, name = case.hidden * BYTES, scheme.partition(":")[0]
    if name in DEEPEP:  # inside a node, or rows of whole 16 bytes for a group that spans nodes
        framed = (lambda n: n + 4) if case.expert <= case.gpus_per_node else (lambda n: -(-(n + 8) // 16) * 16)
        dispatch, combine = framed(row + 8 * case.top_k), framed(row)
        again, backward = dispatch, framed(row) + framed(row + 4 * case.top_k)
    elif name == "ring":  # the tokens and two fp32 logits an expert; their gradient, one an expert, comes back
        dispatch, combine, again, backward = row + 8 * case.experts, row, row + 8 * case.experts, 2 * row + 4 * case.experts
    else:
        dispatch, combine, again, backward = row, row, 2 * row, 2 * row
    return dispatch, combine, dispatch + combine + backward + (again if case.remat == "full" else 0)


def plain(case, scheme, ranks):
    """One layer. ranks[r] = [(sequence, [expert, ...]), ...] in token order, missing choices left out."""
    name, e, group_size = scheme.partition(":")[0], case.experts // case.expert, case.expert
    wire = [[0] * case.ranks for _ in range(case.ranks)]
    rows, dropped, kept = [0] * case.ranks, [0] * case.ranks, set()
    for first in range(0, case.ranks, group_size):
        group = range(first, first + group_size)
        if name == "dense":
            slots = capacity(case, scheme)
            for s in group:
                used = {}
                for t, (sequence, choices) in enumerate(ranks[s]):
                    for x in choices:
                        used[sequence, x] = used.get((sequence, x), 0) + 1
                        if used[sequence, x] <= slots:
                            kept.add((s, t, x))
                rows[s] = case.sequences * case.experts * slots
                for d in group:
                    wire[s][d] = case.sequences * e * slots
            continue
        for d in group:
            arrivals = [(s, x, t) for s in group for t, (_, choices) in enumerate(ranks[s]) for x in choices
                        if first + x // e == d]
            if name == "ring":  # expert by expert, of each the gathered tokens
                arrivals.sort(key=lambda a: (a[1], a[0], a[2]))
            else:               # source by source, of each sorted by expert
                arrivals.sort()
            room = buffer_rows(case, scheme)
            arrivals = arrivals if room is None else arrivals[:room]
            rows[d] = len(arrivals)
            kept.update((s, t, x) for s, x, t in arrivals)
            for s in group:
                if name == "ring":
                    wire[s][d] = len(ranks[s])
                elif name in DEEPEP:
                    wire[s][d] = len({t for source, _, t in arrivals if source == s})
                else:
                    wire[s][d] = sum(source == s for source, _, _ in arrivals)
    lost = 0
    for s, tokens in enumerate(ranks):
        for t, (_, choices) in enumerate(tokens):
            left = sum((s, t, x) in kept for x in choices)
            dropped[s] += len(choices) - left
            lost += len(choices) > 0 and left == 0
    return np.array(wire), np.array(rows), np.array(dropped), lost


def choices_of(case, rank, ids, missing):
    """token, expert, source and target of every choice; rank [tokens], ids [tokens][top_k] in token order of each rank."""
    token, slot = np.nonzero(ids != missing)
    expert = ids[token, slot].astype(np.int64)
    source = rank[token].astype(np.int64)
    return token, expert, source, source // case.expert * case.expert + expert // (case.experts // case.expert)


def distinct(numbers, end):
    """Those that occur, rising; all are below end."""
    there = np.zeros(end, bool)
    there[numbers] = True
    return np.flatnonzero(there)


def vectorized(case, scheme, rank, sequence, choices):
    """The same with numpy: rank, sequence [tokens]."""
    name, e, R = scheme.partition(":")[0], case.experts // case.expert, case.ranks
    tokens = len(rank)
    token, expert, source, target = choices
    keep = np.ones(len(token), bool)
    own = np.arange(R) // case.expert
    same_group = own[:, None] == own[None, :]
    if name == "dense":
        slots = capacity(case, scheme)
        cell = (source * case.sequences + sequence[token]) * case.experts + expert
        keep = occurrence(cell * tokens + token, tokens) < slots
        rows = np.full(R, case.sequences * case.experts * slots)
        wire = np.where(same_group, case.sequences * e * slots, 0)
    else:
        room = buffer_rows(case, scheme)
        if room is not None:
            inner = (expert * R + source) if name == "ring" else (source * case.experts + expert)
            key = (target * (R * case.experts) + inner) * tokens + token
            keep = occurrence(key, R * case.experts * tokens) < room
        rows = np.bincount(target[keep], minlength=R)
        if name == "ring":
            wire = np.where(same_group, np.bincount(rank, minlength=R)[:, None], 0)
        elif name in DEEPEP:
            pair = distinct(token * R + target, tokens * R)
            wire = np.bincount(rank[pair // R].astype(np.int64) * R + pair % R, minlength=R * R).reshape(R, R)
        else:
            wire = np.bincount(source[keep] * R + target[keep], minlength=R * R).reshape(R, R)
    dropped = np.bincount(source[~keep], minlength=R)
    chosen, left = np.bincount(token, minlength=tokens), np.bincount(token[keep], minlength=tokens)
    return wire, rows, dropped, int(np.sum((chosen > 0) & (left == 0)))


def occurrence(key, cell):
    """For each key its place among the keys of the same key // cell."""
    order = np.argsort(key)  # equal ones are alike: a token twice at one expert
    start = np.flatnonzero(np.diff(key[order] // cell, prepend=-1))
    place = np.empty(len(key), np.int64)
    place[order] = np.arange(len(key)) - np.repeat(start, np.diff(np.append(start, len(key))))
    return place


# --- What crosses links and NICs in one dispatch ---

def routed_ports(case, scheme, wire, node_rows):
    """Bytes [ranks][link out, link in, NIC out, NIC in]; None where the document leaves it open."""
    bytes_, by_node = row_bytes(case, scheme)[0], scheme.partition(":")[0] in DEEPEP
    n = case.gpus_per_node
    if by_node and case.expert % n and n % case.expert:
        return None  # a group that ends inside a node
    port = np.zeros((case.ranks, 4), np.int64)
    for s in range(case.ranks):
        for d in range(case.ranks):
            rows, far = wire[s, d], s // n != d // n
            if s == d or rows == 0:
                continue
            forwarder = d // n * n + s % n  # the GPU of the node with the sender's local index
            if not far:
                port[s, 0] += rows
                port[d, 1] += rows
            elif not by_node:
                port[s, 2] += rows
                port[d, 3] += rows
            elif d != forwarder:
                port[forwarder, 0] += rows
                port[d, 1] += rows
        for node in range(case.nodes if by_node else 0):
            if node != s // n and node_rows[s, node] > 0:
                port[s, 2] += node_rows[s, node]
                port[node * n + s % n, 3] += node_rows[s, node]
    return port * bytes_


def rows_by_node(case, rank, choices):
    """Q: tokens of s with at least one expert on a node."""
    token, _, _, target = choices
    pair = distinct(token * case.nodes + target // case.gpus_per_node, len(rank) * case.nodes)
    return np.bincount(rank[pair // case.nodes].astype(np.int64) * case.nodes + pair % case.nodes,
                       minlength=case.ranks * case.nodes).reshape(case.ranks, case.nodes)


# --- The comparison ---

def expected(case, trace, slow):
    """For every scheme the arrays of the output file [steps][layers][ranks], and the figures of its row."""
    steps, layers = len(trace.step_tokens), trace.expert_id.shape[1]
    out = {s: dict({f: np.zeros((steps, layers, case.ranks), np.int64) for f in FIELDS},
                   lost=0, assignments=0, ports=[]) for s in case.schemes}
    for step in range(steps):
        rank, sequence, row = compose(case, trace, step)
        for layer in range(layers):
            ids = trace.expert_id[row, layer]
            choices = choices_of(case, rank, ids, trace.missing)
            node_rows = rows_by_node(case, rank, choices)
            lists = [[(q, [int(x) for x in choice if x != trace.missing])
                      for q, choice in zip(sequence[rank == r], ids[rank == r])]
                     for r in range(case.ranks)] if slow else None
            for scheme in case.schemes:
                result = vectorized(case, scheme, rank, sequence, choices)
                if slow:
                    for a, b in zip(result, plain(case, scheme, lists)):
                        assert np.array_equal(a, b), "the oracle disagrees with itself"
                wire, rows, dropped, lost = result
                off = wire * (1 - np.eye(case.ranks, dtype=int)) * row_bytes(case, scheme)[0]
                o = out[scheme]
                for field, value in zip(FIELDS, (rows, off.sum(1), off.sum(0), dropped)):
                    o[field][step, layer] = value
                o["lost"] += lost
                o["assignments"] += len(choices[0])
                o["ports"].append(routed_ports(case, scheme, wire, node_rows))
    return out


def check_row(case, scheme, row, want):
    dispatch, combine, layer_bytes = row_bytes(case, scheme)
    sent = want["bytes_sent"].astype(float)
    steps, layers, ranks = sent.shape
    assert row["scheme"] == scheme
    traffic, drops = row["traffic"], row["drops"]
    close(f"{scheme} dispatch", traffic["dispatch_bytes_per_gpu"], sent.mean())
    close(f"{scheme} combine", traffic["combine_bytes_per_gpu"], sent.sum() / dispatch * combine / sent.size)
    per_layer = sent.sum((0, 2)) / dispatch * layer_bytes / (steps * ranks)
    close(f"{scheme} step", traffic["step_bytes_per_gpu"],
          sum(per_layer[j % layers] for j in range(case.model_layers)))
    same(f"{scheme} rows_max", traffic["rows_max"], want["rows_received"].max())
    close(f"{scheme} rows_mean", traffic["rows_mean"], want["rows_received"].mean())
    same(f"{scheme} assignments", drops["assignments"], want["assignments"])
    same(f"{scheme} dropped", drops["dropped"], want["dropped"].sum())
    same(f"{scheme} tokens lost", drops["tokens_fully_dropped"], want["lost"])
    close(f"{scheme} fraction", drops["fraction"], want["dropped"].sum() / max(want["assignments"], 1))
    if want["ports"][0] is not None:
        ports = np.array(want["ports"])
        close(f"{scheme} intra", traffic["intra_node_bytes"], ports[:, :, 0].mean())
        close(f"{scheme} inter", traffic["inter_node_bytes"], ports[:, :, 2].mean())
        same(f"{scheme} busiest port", traffic["max_link_bytes"], ports.max())


def check(program, folder, name, case, trace, path, job, evidence, slow=True, threads=1, arguments=()):
    out = pathlib.Path(folder) / f"{name}_out.h5"
    result = replay(program, path, job, "--output", out, *arguments, threads=threads)
    want = expected(case, trace, slow)
    assert result["format"] == "spillway-result" and len(result["rows"]) == len(case.schemes)
    with h5py.File(out) as f:
        assert json.loads(f["summary_json"][()]) == result
        same("scheme names", [s.decode() for s in f["scheme"][:]], list(case.schemes))
        same("sequences", f["sequences_per_gpu"][:], [case.sequences] * len(case.schemes))
        for i, (scheme, row) in enumerate(zip(case.schemes, result["rows"])):
            if row["evidence"] != evidence:
                raise Wrong(f"{scheme}: evidence is {row['evidence']}, want {evidence}: {row['assumptions']}")
            for field in FIELDS:
                same(f"{scheme} {field}", f[field][i], want[scheme][field])
            check_row(case, scheme, row, want[scheme])
            at = row["memory"]["worst"]  # memory follows rows, and where it does not, the GPU is named to which most rows came
            place = list(f["step"][:]).index(at["step"]), list(f["layer"][:]).index(at["layer"]), at["rank"]
            same(f"{scheme} rows of the GPU that is named", want[scheme]["rows_received"][place], want[scheme]["rows_received"].max())
            same(f"{scheme} peak", f["peak_gib"][i], [row["memory"]["peak_bytes"] / 2**30] * len(f["step"]))
    out.unlink()
    return result


# --- Random traces ---

def random_schemes(rng, expert):
    factor = lambda low, high: repr(round(float(rng.uniform(low, high)), 3))
    schemes = ["dense:capacity_factor=1.25", f"dense:capacity_factor={factor(0.2, 4)}", "ragged", "gmm",
               "gmm-deepep", "ragged-deepep", "ring"]
    if expert > 1:  # section 2.1
        schemes += [f"gmm:buffer_factor={factor(0.1, 1.5)}", f"ragged:buffer_factor={factor(0.5, 3)}",
                    f"ring:buffer_factor={factor(0.1, 2)}"]
    return tuple(schemes)


def random_case(seed, fold=1, shuffled=False, more_layers=0):
    """fold: source ranks a job rank; ragged ones, which hold more than is needed. shuffled: rows in any order,
    their positions tell which is which. more_layers: MoE layers that the model has and the trace has not."""
    rng = np.random.default_rng(seed)
    gpus_per_node = int(rng.choice([1, 2, 3, 4, 8]))
    nodes = int(rng.integers(1, 1 + max(1, 16 // gpus_per_node)))
    ranks = nodes * gpus_per_node
    expert = int(rng.choice([d for d in range(1, ranks + 1) if ranks % d == 0]))
    experts = expert * int(rng.integers(1, 8))
    if rng.random() < 0.1:
        experts = expert * -(-300 // expert)
    top_k = int(rng.choice([1, min(experts, 12), rng.integers(1, 1 + min(experts, 12))]))
    sequences, length = int(rng.integers(1, 4)), int(rng.integers(1, 10))
    if rng.random() < 0.15:
        sequences, length = 1, 1
    layers, steps = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    case = Case(nodes, gpus_per_node, expert, experts, top_k, int(rng.integers(1, 40)), int(rng.integers(1, 40)),
                layers + more_layers, sequences, length, str(rng.choice(["full", "none"])), random_schemes(rng, expert))
    rank, sequence, position = [], [], []
    for source in range(ranks * fold):
        have = [length] * sequences
        if fold > 1:
            have = [int(n) for n in rng.integers(0, 2 * length, sequences)]
            if source % fold == fold - 1:  # what the block still lacks, or more
                block = sum(r // fold == source // fold for r in rank)
                have += [max(0, case.tokens - block - sum(have)) + int(rng.integers(0, 3))]
        for q, n in enumerate(have):
            rank, sequence, position = rank + [source] * n, sequence + [q] * n, position + list(range(n))
    rank, sequence, position = np.array(rank), np.array(sequence), np.array(position)
    numbering = rng.integers(3)
    if numbering == 1:
        sequence = sequence + rank * (1 + sequence.max())
    elif numbering == 2:
        sequence = 7 * sequence + 3 * rank - 5
    order = np.arange(len(rank))
    if shuffled:
        order = rng.permutation(len(rank))
    elif rng.random() < 0.5:  # ranks take turns, each keeps its order
        order = np.lexsort((rng.integers(0, 3, len(rank)), position))
    one_step = [a[order] for a in (rank, sequence, position)]
    rank, sequence, position = [np.tile(a, steps) for a in one_step]
    ids = random_ids(rng, (len(rank), layers, top_k), experts, rng.choice(["uniform", "zipf", "one", "last"]))
    narrow = experts <= 255 and rng.random() < 0.7
    ids = ids.astype(np.uint8 if narrow else np.uint16)
    if rng.random() < 0.5:
        ids[rng.random(ids.shape) < rng.uniform(0, 0.6)] = np.iinfo(ids.dtype).max
        ids[rank == rng.integers(ranks)] = np.iinfo(ids.dtype).max  # a rank without a single choice
        if np.all(ids == np.iinfo(ids.dtype).max):  # a trace without any is refused
            ids[..., 0] = 0
    trace = Tokens(ids, [len(order)] * steps, experts, ranks * fold, rank, sequence, position)
    return case, trace, rng


def run_random(program, folder, seed, evidence="exact", fold=1, shuffled=False, more_layers=0):
    case, trace, rng = random_case(seed, fold, shuffled, more_layers)
    name = f"random_{seed}_{fold}_{shuffled}_{more_layers}"
    path = trace.write(folder / f"{name}.h5", random_storage(rng))
    check(program, folder, name, case, trace, path, case.write(folder, name), evidence)
    path.unlink()


# --- Traces without source ranks ---

def unranked(seed, exact_lengths, interleaved):
    """Sequences one after the other, or row by row in turn as a server decodes them."""
    rng = np.random.default_rng(seed)
    case = Case(2, 3, 3, 9, 2, 8, 8, 1, 2, 6, "full",
                ("dense:capacity_factor=1", "gmm", "gmm-deepep", "ring", "gmm:buffer_factor=1"))
    lengths = [6] * 12 if exact_lengths else [int(n) for n in rng.integers(1, 6, 60)]
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    position = np.concatenate([np.arange(n) for n in lengths])
    if interleaved:
        order = np.lexsort((sequence, position))
        sequence, position = sequence[order], position[order]
    ids = ((sequence * 2 + seed) % 9)[:, None] + np.arange(2)  # a sequence stays with its experts
    ids = (ids % 9)[:, None, :].astype(np.uint8)
    return case, Tokens(ids, [len(sequence)], 9, sequence=sequence, position=position)


def run_unranked(program, folder, seed, exact_lengths, interleaved):
    case, trace = unranked(seed, exact_lengths, interleaved)
    name = f"unranked_{seed}_{exact_lengths}_{interleaved}"
    path = trace.write(folder / f"{name}.h5")
    check(program, folder, name, case, trace, path, case.write(folder, name), "resampled")


def run_drawn(program, folder, seed):
    """Too few tokens: whole sequences are drawn, and a seed draws the same again."""
    case, trace = unranked(1, True, seed % 2 == 1)
    keep = trace.sequence < 5
    trace = Tokens(trace.expert_id[keep], [int(keep.sum())], 9, sequence=trace.sequence[keep],
                   position=trace.position[keep])
    name = f"drawn_{seed}"
    path, job = trace.write(folder / f"{name}.h5"), case.write(folder, name)
    results = [replay(program, path, job, "--seed", s) for s in (seed, seed, seed + 1)]
    same("the same seed", json.dumps(results[0]), json.dumps(results[1]))
    for result in results:
        dense, drops = result["rows"][0], result["rows"][0]["drops"]
        if dense["evidence"] != "resampled":
            raise Wrong(f"evidence {dense['evidence']}")
        same("assignments", drops["assignments"], case.ranks * case.tokens * case.top_k)
        # Whole sequences have all their tokens at the same two experts: C = ceil(6 * 2 / 9) = 2 of 6 stay.
        same("dropped by whole sequences", drops["dropped"], case.ranks * case.sequences * 2 * (6 - 2))


# --- Real traces ---

REAL = ("dense:capacity_factor=1.25", "dense:capacity_factor=4", "ragged", "gmm", "gmm:buffer_factor=1.5",
        "gmm-deepep", "ring", "ring:buffer_factor=1.25")


def run_real(program, folder, path, expert, steps=None):
    """A trace of 64 ranks of the scratch-moe-e64 model, on 64 GPUs of that model. steps: the first of them; None: all."""
    with h5py.File(path) as f:
        steps = steps or f["steps/id"].shape[0]
        end = int(f["tokens/step_offset"][steps])
        trace = Tokens(f["tokens/expert_id"][:end], list(f["steps/num_tokens"][:steps]), 64, 64,
                       f["tokens/source_rank"][:end], f["tokens/sequence"][:end], f["tokens/position"][:end])
    case = Case(8, 8, expert, 64, 8, 768, 384, 7, 2, 512, "full", REAL)
    job = folder / f"real_{expert}.yaml"
    job.write_text(f"model: scratch-moe-e64\ncluster: mi355x-8x8\n"
                   f"parallel: {{expert: {expert}, fsdp: {64 // expert}}}\n"
                   f"batch: {{sequences_per_gpu: 2, sequence_length: 512}}\nschemes: {json.dumps(REAL)}\n")
    result = check(program, folder, f"real_{path.stem}_{expert}", case, trace, path, job, "exact", slow=False,
                   arguments=("--steps", f"0:{steps}"))
    for row in result["rows"]:
        if "=" not in row["scheme"] and row["drops"]["dropped"] != 0:
            raise Wrong(f"{row['scheme']} is dropless and drops")


def run_xarray(program, folder):
    """The output file as a data set with named axes, units and settings."""
    case, trace, rng = random_case(3)
    path, job, out = trace.write(folder / "x.h5"), case.write(folder, "x"), folder / "x_out.h5"
    replay(program, path, job, "--output", out)
    with xarray.open_dataset(out, engine="h5netcdf") as data:
        for field in FIELDS + ("peak_gib",):
            assert data[field].dims == ("result", "step", "layer", "rank")[:data[field].ndim], field
            assert data[field].attrs["units"] and data[field].attrs["long_name"], field
        assert data["bytes_sent"].attrs["units"] == "bytes" and data["peak_gib"].attrs["units"] == "GiB"
        settings = json.loads(data.attrs["settings"])
        assert settings["schemes"] == list(case.schemes) and settings["parallel"]["expert"] == case.expert
        assert data.attrs["format"] == "spillway-result"
        assert data["scheme"].dims == ("result",)
        same("steps", data["step"].values, 10 * np.arange(len(trace.step_tokens)))


def all_jobs(o, program, folder):
    seeds = range(o.first, o.first + o.cases)
    few = seeds[:o.cases // 10]
    real = [*sorted(o.data.glob("training_aux_e64*.h5")), *o.trace]
    jobs = [(run_real, (path.resolve(), *case)) for path in real for case in ((8,), (16, 1), (32, 1), (64, 1))]
    jobs += [(run_random, (seed,)) for seed in seeds]
    jobs += [(run_random, (seed, "folded", fold)) for seed in few for fold in (2, 3)]
    jobs += [(run_random, (seed, "folded", 1, False, 1 + seed % 5)) for seed in few]  # layers in turn
    jobs += [(run_random, (seed, "folded", 2, False, 1 + seed % 5)) for seed in few[:3]]
    jobs += [(run_random, (seed, evidence, fold, True)) for seed in few
             for fold, evidence in ((1, "exact"), (2, "folded"))]
    for seed in (1, 2):
        jobs += [(run_unranked, (seed, True, False)), (run_unranked, (seed, True, True)),
                 (run_unranked, (seed, False, False)), (run_unranked, (seed, False, True))]
    jobs += [(run_drawn, (seed,)) for seed in range(4)]
    jobs += [(run_xarray, ())]
    return [(function, (program, folder, *arguments)) for function, arguments in jobs]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("no folder"))
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--trace", type=pathlib.Path, action="append", default=[])
    o = parser.parse_args()
    folder = o.scratch.resolve() / "replay_oracle"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = all_jobs(o, o.program.resolve(), folder)
    failed = 0
    with multiprocessing.Pool(2) as pool:
        for name, text in pool.imap_unordered(guarded, jobs):
            if text is not None:
                print(f"FAIL {name}: {text}")
                failed += 1
    print(f"{len(jobs)} cases, {failed} failed")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
