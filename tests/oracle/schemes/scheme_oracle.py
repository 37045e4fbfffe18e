#!/usr/bin/env python3
"""The schemes of sim/ against a brute force over tokens, written from docs/schemes.md and the sources it names.

scheme_oracle.py SPILLWAY SCRATCH [--data FOLDER] [--cases N] [--first SEED] [--family NAME]

Every scheme and option on random traces with weights (ties among them) and missing choices, and on the shipped trace:
rows, bytes, drops, lost tokens, ports, and the greatest sum of live tensors of every step. Integers must be equal."""
import argparse
import collections
import dataclasses
import multiprocessing
import pathlib
import sys

import h5py
import numpy as np

import oracle_deepep
import oracle_maxtext
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import oracle_megatron
import oracle_properties
import oracle_torch
from oracle_layer import Choice, Group, Options
from replay_case import Case, Tokens, replay, run
from oracle_ranks import Wrong, close, compose, guarded, random_ids, random_storage, same

FAMILIES = {"maxtext": oracle_maxtext, "torch": oracle_torch, "megatron": oracle_megatron, "deepep": oracle_deepep}
FIELDS = ("rows_received", "bytes_sent", "bytes_received", "dropped")
TIES = {
    "torch": ("tutel:capacity_factor=0.4,batch_prioritized=true", "tutel:capacity_factor=0.8,batch_prioritized=true",
              "sonicmoe:rounding=down,tile=7", "sonicmoe:rounding=nearest,tile=9"),
    "megatron": ("megatron-alltoall:capacity_factor=0.4", "megatron-allgather:capacity_factor=0.6",
                 "megatron-flex:capacity_factor=0.5"),
}
TILES = {"megatron": ("primus-megamoe", ("full", "none", "selective")), "torch": ("torchtitan-async", ("full",))}
JOB_SCHEMES = 64  # the most that a job compares
MEGATRON_REMAT = ("selective", "moe_act", "moe")
MOE_MOMENT = "backward of a MoE layer"
# Of the shipped trace: expert-parallel size, layer, ranks, sequences. Two groups where ranks are grouped, in a node and over two.
REAL = ((8, 2, 16, 2), (16, 0, 32, 2), (1, 1, 8, 2))


def scheme_of(text):
    o = Options(text)
    for family in FAMILIES.values():
        if o.name in family.SCHEMES:
            return family.SCHEMES[o.name], o
    raise KeyError(text)


# --- What is expected ---

def groups_of(case, trace, step, layer):
    rank, _, row = compose(case, trace, step)
    ids = trace.expert_id[row, layer]
    weights = None if trace.weight is None else trace.weight[row, layer]
    for first in range(0, case.ranks, case.expert):
        tokens = []
        for s in range(case.expert):
            mine = np.flatnonzero(rank == first + s)
            tokens.append([[Choice(s, t, k, int(x), None if weights is None else float(weights[i, k]))
                            for k, x in enumerate(ids[i]) if x != trace.missing] for t, i in enumerate(mine)])
        yield first, Group(case, tokens)


def reached(group, node, travel):
    """Tokens of each rank s that go to each node: [(s, node)]. Of all choices it is the same for every scheme of a group."""
    if travel is group.choices and hasattr(group, "all_reached"):
        return group.all_reached
    tokens = {(c.source, c.token, node[c.expert // group.e]) for c in travel}
    rows = collections.Counter((s, there) for s, _, there in tokens)
    if travel is group.choices:
        group.all_reached = rows
    return rows


def ports(case, group, first, out):
    """Bytes [ranks][link out, link in, NIC out, NIC in] of one dispatch; None where the document leaves it open."""
    n, R, size = case.gpus_per_node, group.R, out.exchanges[0].row_bytes if out.exchanges else 0
    if out.by_node and R % n and n % R:
        return None  # a group that ends inside a node
    port = [[0] * 4 for _ in range(R)]
    node = [(first + r) // n for r in range(R)]

    def link(a, b, rows):
        if a != b:
            port[a][0] += rows * size
            port[b][1] += rows * size

    def nic(a, b, rows):
        port[a][2] += rows * size
        port[b][3] += rows * size

    for s in range(R):
        for d in range(R):
            if node[s] == node[d]:
                link(s, d, out.wire[s][d])
            elif not out.by_node:
                nic(s, d, out.wire[s][d])
            else:  # forwarded by the GPU of that node with the sender's index
                link(node[d] * n + (first + s) % n - first, d, out.wire[s][d])
    if out.by_node:
        travel = out.travel or (group.choices if out.kept is None else out.kept)
        for (s, there), rows in reached(group, node, travel).items():
            if there != node[s]:
                nic(s, there * n + (first + s) % n - first, rows)
    return port


def stands_for(case, layers, layer):
    return case.model_layers // layers + (layer < case.model_layers % layers)


def expected(case, trace, steps, layers):
    wanted = {}
    for text in case.schemes:
        shape = (steps, layers, case.ranks)
        wanted[text] = dict({f: np.zeros(shape, np.int64) for f in FIELDS}, lost=0, assignments=0, ports=[],
                            dispatch=0, combine=0, step_bytes=0, peak=np.zeros(shape, np.int64),
                            saved=np.zeros(shape, np.int64), communication=0, at_peak={})
    for step in range(steps):
        for layer in range(layers):
            for first, group in groups_of(case, trace, step, layer):
                for text in case.schemes:
                    run_scheme, o = scheme_of(text)
                    count(case, group, first, run_scheme(group, o), wanted[text], step, layer,
                          stands_for(case, layers, layer))
    return wanted


def count(case, group, first, out, w, step, layer, times):
    R, size = group.R, out.exchanges[0].row_bytes if out.exchanges else 0
    off = sum(out.wire[s][d] for s in range(R) for d in range(R) if s != d)
    for x in out.exchanges:
        w["step_bytes"] += off * x.row_bytes * times
        if x.phase == "forward":
            w["combine" if x.back else "dispatch"] += off * x.row_bytes
    kept = None if out.kept is None or len(out.kept) == len(group.choices) else set(out.kept)
    lengths, left = [sum(map(len, tokens)) for tokens in group.tokens], collections.Counter(c.source for c in kept or ())
    lives = {}
    for d in range(R):
        cell = (step, layer, first + d)
        w["rows_received"][cell] = out.rows[d]
        w["bytes_sent"][cell] = sum(out.wire[d][x] for x in range(R) if x != d) * size
        w["bytes_received"][cell] = sum(out.wire[x][d] for x in range(R) if x != d) * size
        key = (out.rows[d], out.received(d), out.sent(d))
        if key not in lives:
            lives[key] = out.memory(d)
        w["at_peak"].setdefault(lives[key].peak, lives[key].at_peak)
        w["peak"][cell], w["saved"][cell] = lives[key].peak, lives[key].saved * times
        w["dropped"][cell] += 0 if kept is None else lengths[d] - left[d]
    w["lost"] += 0 if kept is None else len({(c.source, c.token) for c in group.choices}) - len({(c.source, c.token) for c in kept})
    w["assignments"] += sum(lengths)
    w["communication"] = out.communication
    w["ports"].append(ports(case, group, first, out))


# --- The comparison ---

def check_row(case, text, row, w):
    steps, layers, ranks = w["rows_received"].shape
    cells, traffic, drops = steps * layers * ranks, row["traffic"], row["drops"]
    close(f"{text} dispatch", traffic["dispatch_bytes_per_gpu"], w["dispatch"] / cells)
    close(f"{text} combine", traffic["combine_bytes_per_gpu"], w["combine"] / cells)
    close(f"{text} step", traffic["step_bytes_per_gpu"], w["step_bytes"] / (steps * ranks))
    same(f"{text} rows_max", traffic["rows_max"], w["rows_received"].max())
    close(f"{text} rows_mean", traffic["rows_mean"], w["rows_received"].mean())
    same(f"{text} assignments", drops["assignments"], w["assignments"])
    same(f"{text} dropped", drops["dropped"], w["dropped"].sum())
    same(f"{text} tokens lost", drops["tokens_fully_dropped"], w["lost"])
    if all(p is not None for p in w["ports"]):
        port = np.array(w["ports"])
        close(f"{text} intra", traffic["intra_node_bytes"], port[..., 0].sum() / cells)
        close(f"{text} inter", traffic["inter_node_bytes"], port[..., 2].sum() / cells)
        same(f"{text} busiest port", traffic["max_link_bytes"], port.max())


# Programs of MaxText keep the stack of what all layers keep; PyTorch frees it layer by layer (7.9).
STACKED = ("dense", "gmm", "ragged", "ring", "moe-dedup")


def check_freed(case, text, row, w, peak_bytes, fixed):
    """Beside layer l wait the inputs of the layers up to it, and what those before it saved."""
    memory, layers, heads = row["memory"], w["peak"].shape[1], 2
    part, one = memory["components"], case.tokens * case.hidden * 2
    there = part.get("carries", part.get("carries_at_moe_layer")) // one  # layers whose inputs are, at the peak
    one += part.get("saved_by_policy", part.get("kept_by_policy_at_moe_layer", 0)) // there
    if not case.repeats or case.remat == "moe":
        one += part["attention"] - (4 * heads * case.tokens if case.remat == "selective" else 0)
    if case.repeats and text.startswith("megatron-"):
        one -= 2 * case.tokens * case.hidden * 2  # input and output of MoE layers behind it, which ran backward (7.19)
    saved, best = np.zeros_like(w["peak"][:, 0]), []
    for l in range(case.model_layers):
        best.append(w["peak"][:, l % layers] + saved + l * one)
        saved = saved + (0 if case.repeats else w["saved_once"][:, l % layers])
    best = np.max(best, axis=0)
    place = there - 1 - case.dense_layers
    routed = memory["peak_bytes"] - fixed
    same(f"{text} live bytes of a rank at the worst", routed, best.max() - place * one)
    same(f"{text} peak of each step", peak_bytes, fixed - place * one + best.max(1))


def check_memory(case, text, row, w, peak_bytes):
    """A step holds most where fixed + live set + what other layers saved is greatest."""
    memory = row["memory"]
    part = memory["components"]
    if memory["moment"] != MOE_MOMENT:
        raise Wrong(f"{text}: the peak is at {memory['moment']}: the case is of no use")
    same(f"{text} communication buffers", part.get("communication_buffers", 0), w["communication"])
    routed = {k: v for k, v in part.items() if k.startswith("moe.") or k.startswith("saved_rows")}
    parts = sorted(v for k, v in part.items() if k.startswith("moe.") and v)
    if w["at_peak"].get(sum(parts)) not in (parts, []):  # empty: a closed form
        raise Wrong(f"{text} tensors at the peak: got {parts}, want {w['at_peak'].get(sum(parts))}")
    fixed = memory["peak_bytes"] - sum(routed.values())
    if not text.startswith(STACKED):
        return check_freed(case, text, row, w, peak_bytes, fixed)
    at = w["peak"].argmax(1)  # of the layers the first that needs most
    worst = np.take_along_axis(w["peak"], at[:, None], 1)[:, 0]
    if not case.repeats:
        here = np.take_along_axis(w["saved_once"], at[:, None], 1)[:, 0]
        worst = worst + w["saved"].sum(1) - here
    same(f"{text} live bytes of a rank at the worst", sum(routed.values()), worst.max())
    same(f"{text} peak of each step", peak_bytes, fixed + worst.max(1))


def check(program, folder, name, case, trace, path, job, steps, layers, arguments=()):
    out = pathlib.Path(folder) / f"{name}_out.h5"
    result = replay(program, path, job, "--output", out, *arguments)
    want, wrong = expected(case, trace, steps, layers), []
    with h5py.File(out) as f:
        for i, (text, row) in enumerate(zip(case.schemes, result["rows"])):
            w = want[text]
            w["saved_once"] = w["saved"] // np.array([stands_for(case, layers, l) for l in range(layers)])[:, None]
            assert row["scheme"] == text
            try:
                for field in FIELDS:
                    same(f"{text} {field}", f[field][i], w[field])
                check_row(case, text, row, w)
                check_memory(case, text, row, w, np.rint(f["peak_gib"][i] * 2**30).astype(np.int64))
            except Wrong as error:
                wrong.append((text.partition(":")[0], f"{error} ({dataclasses.replace(case, schemes=())})"))
    out.unlink()
    return collections.Counter(s.partition(":")[0] for s in case.schemes), wrong


# --- Random and real traces ---

def random_case(seed, families):
    rng = np.random.default_rng(seed)
    gpus_per_node = int(rng.choice([1, 2, 3, 4, 8]))
    nodes = int(rng.integers(1, 1 + max(1, 12 // gpus_per_node)))
    ranks = nodes * gpus_per_node
    sizes = [d for d in range(1, ranks + 1) if ranks % d == 0]
    expert = int(rng.choice(sizes)) if rng.random() < 0.8 else 1
    experts = expert * int(rng.integers(1, 7))
    top_k = int(rng.integers(1, 1 + min(experts, 9)))
    sequences, length = int(rng.integers(1, 4)), int(rng.integers(1, 12))
    layers, steps = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    hidden = int(rng.choice([rng.integers(1, 40), 128, 256]))
    case = Case(nodes, gpus_per_node, expert, experts, top_k, hidden, int(rng.integers(1, 40)), layers, sequences,
                length, str(rng.choice(["full", "none", "minimal", *MEGATRON_REMAT])), (), vocab=1)
    families = [f for f in families if f is oracle_megatron or case.remat not in MEGATRON_REMAT]
    schemes = list(dict.fromkeys(s for f in families for s in f.random_schemes(rng, case)))
    case.schemes = tuple(schemes[i] for i in sorted(rng.permutation(len(schemes))[:JOB_SCHEMES]))
    rank = np.repeat(np.arange(ranks), case.tokens)
    sequence = np.tile(np.repeat(np.arange(sequences), length), ranks)
    position = np.tile(np.arange(length), ranks * sequences)
    order = np.lexsort((rng.integers(0, 3, len(rank)), position)) if rng.random() < 0.5 else np.arange(len(rank))
    rank, sequence, position = (np.tile(a[order], steps) for a in (rank, sequence, position))
    ids = random_ids(rng, (len(rank), layers, top_k), experts, rng.choice(["uniform", "zipf", "one", "last"]))
    ids = ids.astype(np.uint8)
    grain = int(rng.choice([4, 64, 1024]))  # coarse ones tie
    weight = rng.integers(1, grain + 1, ids.shape) / grain
    if rng.random() < 0.5:
        ids[rng.random(ids.shape) < rng.uniform(0, 0.6)] = 255
        if np.all(ids == 255):  # a trace without any choice is refused
            ids[..., 0] = 0
    return case, Tokens(ids, [len(order)] * steps, experts, ranks, rank, sequence, position, weight=weight), rng


def run_random(program, folder, seed, names):
    families = [FAMILIES[n] for n in names]
    case, trace, rng = random_case(seed, families)
    if not case.schemes:
        return collections.Counter(), []
    name = f"scheme_{seed}"
    path = trace.write(folder / f"{name}.h5", random_storage(rng))
    done = check(program, folder, name, case, trace, path, case.write(folder, name), len(trace.step_tokens),
                 trace.expert_id.shape[1])
    path.unlink()
    return done


def run_ties(program, folder, seed, names):
    """Few weights and little room, so that which of two equal choices stays decides which tokens lose all of theirs."""
    rng = np.random.default_rng(seed)
    case = Case(1, 1, 1, 5, 2, 8, 8, 1, 1, 48, "full", tuple(s for n in names for s in TIES.get(n, ())), vocab=1)
    ids = random_ids(rng, (case.tokens, 1, case.top_k), case.experts, rng.choice(["uniform", "zipf"])).astype(np.uint8)
    weight = rng.integers(1, rng.integers(2, 5), ids.shape) / 4
    trace = Tokens(ids, [case.tokens], case.experts, 1, np.zeros(case.tokens, int), np.zeros(case.tokens, int),
                   np.arange(case.tokens), weight=weight)
    path = trace.write(folder / f"ties_{seed}.h5")
    done = check(program, folder, f"ties_{seed}", case, trace, path, case.write(folder, f"ties_{seed}"), 1, 1)
    path.unlink()
    return done


def run_tiles(program, folder, seed, family):
    """A scheme that takes whole tiles, a group within a node or one remat only."""
    scheme, remats = TILES[family]
    rng = np.random.default_rng(seed)
    ranks, each = int(rng.choice([2, 4])), int(rng.integers(1, 5))
    case = Case(1, ranks * int(rng.integers(1, 3)), ranks, ranks * each, int(rng.integers(1, min(ranks * each, 5))), 512, 256,
                int(rng.integers(1, 3)), 1, 128 * int(rng.integers(1, 3)), str(rng.choice(remats)),
                (scheme,), vocab=1)
    tokens = case.ranks * case.tokens
    ids = random_ids(rng, (tokens, case.model_layers, case.top_k), case.experts, rng.choice(["uniform", "zipf", "one"]))
    ids = ids.astype(np.uint8)
    ids[rng.random(ids.shape) < rng.choice([0, 0.3])] = 255
    trace = Tokens(ids, [tokens], case.experts, case.ranks, np.repeat(np.arange(case.ranks), case.tokens),
                   np.repeat(np.arange(case.ranks), case.tokens), np.tile(np.arange(case.tokens), case.ranks))
    path = trace.write(folder / f"tiles_{family}_{seed}.h5")
    done = check(program, folder, f"tiles_{family}_{seed}", case, trace, path, case.write(folder, f"tiles_{family}_{seed}"), 1,
                 case.model_layers)
    path.unlink()
    return done


def run_real(program, folder, path, expert, layer, ranks, sequences, names):
    """The shipped trace, without weights, of the scratch-moe-e64 model: ranks take the first tokens of its 64."""
    with h5py.File(path) as f:
        end = int(f["tokens/step_offset"][1])
        trace = Tokens(f["tokens/expert_id"][:end, layer:layer + 1], [end], 64, 64, f["tokens/source_rank"][:end],
                       f["tokens/sequence"][:end], f["tokens/position"][:end])
    case = Case(ranks // 8, 8, expert, 64, 8, 768, 384, 7, sequences, 512, "full")
    case.dense_layers = 1
    case.schemes = tuple(s for n in names for s in FAMILIES[n].real_schemes(case))
    job = folder / f"scheme_real_{expert}_{layer}.yaml"
    text = "".join(f"- \"{s}\"\n" for s in case.schemes)
    job.write_text(f"model: scratch-moe-e64\ncluster: mi355x-{case.nodes}x8\nremat: full\nfsdp2: {{reshard_after_forward: off}}\n"
                   f"precision: bf16\nlibrary_limits: ignore\nparallel: {{expert: {expert}, fsdp: {ranks // expert}}}\n"
                   f"batch: {{sequences_per_gpu: {sequences}, sequence_length: 512}}\nschemes:\n{text}")
    return check(program, folder, f"real_{expert}_{layer}", case, trace, path, job, 1, 1,
                 ("--steps", "0:1", "--layers", f"{layer}:{layer + 1}"))


def run_refused(program, folder, path, scheme):
    """A rule that looks at weights cannot run on a trace without them."""
    expert = 1 if scheme.startswith("sonicmoe") else 8
    job = folder / f"refused_{scheme.partition(':')[0]}.yaml"
    job.write_text(f"model: scratch-moe-e64\ncluster: mi355x-8x8\nprecision: bf16\nlibrary_limits: ignore\nparallel: {{expert: {expert}, fsdp: {64 // expert}}}\n"
                   "batch: {sequences_per_gpu: 2, sequence_length: 512}\nschemes: [gmm-deepep]\n")
    done = run(program, "replay", path, "--job", job, "--scheme", scheme, "--steps", "0:1", "--layers", "0:1")
    wrong = []
    if done.returncode != 2 or done.stdout or "weight" not in done.stderr:
        wrong = [(scheme, f"exit {done.returncode}, {done.stderr!r}: exit 2 and a word on weights were due")]
    return collections.Counter([scheme.partition(":")[0]]), wrong


def one(job):
    function, arguments = job
    result = []
    name, text = guarded((lambda *a: result.append(function(*a)), arguments))
    counts, wrong = result[0] if result else (collections.Counter(), [(function.__name__, text)])
    return f"{function.__name__}{tuple(str(a) for a in arguments[2:])}", counts, wrong


def all_jobs(o, names):
    jobs = []
    for path in sorted(o.data.glob("training_aux_e64*.h5")):
        jobs += [(run_real, (path.resolve(), *case, names)) for case in REAL]
        jobs += [(run_refused, (path.resolve(), s)) for n in names for s in FAMILIES[n].NEED_WEIGHTS]
    jobs += [(run_random, (seed, names)) for seed in range(o.first, o.first + o.cases)]
    if any(n in TIES for n in names):
        jobs += [(run_ties, (seed, names)) for seed in range(o.first, o.first + 12)]
    jobs += [(run_tiles, (seed, n)) for n in names if n in TILES for seed in range(o.first, o.first + o.cases)]
    few = range(o.first, o.first + max(1, o.cases // 8))
    jobs += [job for n in names for job in oracle_properties.jobs(n, random_case, few)]
    return jobs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("no folder"))
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), default=None)
    o = parser.parse_args()
    folder = o.scratch.resolve() / "scheme_oracle"
    folder.mkdir(parents=True, exist_ok=True)
    names = o.family or sorted(FAMILIES)
    jobs = [(f, (o.program.resolve(), folder, *a)) for f, a in all_jobs(o, names)]
    total, failed = collections.Counter(), collections.Counter()
    with multiprocessing.Pool(2) as pool:
        for name, counts, wrong in pool.imap_unordered(one, jobs):
            total.update(counts)
            for scheme, text in wrong:
                failed[scheme] += 1
                print(f"FAIL {name}: {text}")
    for scheme in sorted(total):
        print(f"{scheme:20} {total[scheme]:5} cases, {failed[scheme]} disagree")
    print(f"{len(jobs)} jobs, {sum(failed.values())} failures")
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
