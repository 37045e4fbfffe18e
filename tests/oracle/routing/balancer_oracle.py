#!/usr/bin/env python3
"""`replay --balancer` against a brute force written from sim/routing/balancer.h and eplb.h: placements from past choices, every
choice of a copied expert in turn to its copies, rows of every rank, layer and step; then the same choices as a trace whose
experts are the slots, which must replay to the same figures without a balancer, and which `spillway verify` executes. The same
again on random grids of Megatron-Core: tensor and context parallelism, and experts that GPUs share.

balancer_oracle.py SPILLWAY SCRATCH"""
import csv
import dataclasses
import io
import pathlib
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import Case, Tokens, replay, run, without_formats

program = pathlib.Path(sys.argv[1]).resolve()
folder = pathlib.Path(sys.argv[2]).resolve() / "balancer_oracle"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
SCHEMES = ("gmm", "hybrid-ep", "megatron-alltoall", "ring:buffer_factor=1.5")
f32, checks = np.float32, 0


def near(what, got, want, tolerance=1e-12):
    global checks
    checks += 1
    if not abs(got - want) <= tolerance * max(1.0, abs(want)):
        sys.exit(f"FAILED {what}: got {got}, want {want}")


def same(what, got, want):
    global checks
    checks += 1
    if not np.array_equal(got, want):
        sys.exit(f"FAILED {what}: got {got}, want {want}")


# --- Placements ---

def lightest_packs(weight, packs):
    """Heaviest first to the lightest pack with room -> [(pack, place in it)] of every item."""
    room, sums, items, out = len(weight) // packs, [f32(0)] * packs, [0] * packs, [None] * len(weight)
    if room == 1:
        return [(i, 0) for i in range(packs)]
    for i in sorted(range(len(weight)), key=lambda i: -weight[i]):
        to = min((p for p in range(packs) if items[p] < room), key=lambda p: sums[p])
        out[i] = (to, items[to])
        sums[to], items[to] = f32(sums[to] + weight[i]), items[to] + 1
    return out


def eplb(load, slots, groups, nodes, ranks):
    experts = len(load)
    size, per_node, of_rank = experts // groups, groups // nodes, slots // ranks
    packed = lightest_packs([f32(sum(load[g * size:(g + 1) * size])) for g in range(groups)], nodes)
    order = [None] * experts
    for x in range(experts):
        node, place = packed[x // size]
        order[(node * per_node + place) * size + x % size] = x
    out = [None] * slots
    for node in range(nodes):
        own = order[node * experts // nodes:(node + 1) * experts // nodes]
        holds, copies = list(own), {x: 1 for x in own}
        while len(holds) < slots // nodes:
            hot = max(own, key=lambda x: f32(f32(load[x]) / f32(copies[x])))
            holds.append(hot)
            copies[hot] += 1
        places = lightest_packs([f32(f32(load[x]) / f32(copies[x])) for x in holds], ranks // nodes)
        for x, (rank, place) in zip(holds, places):
            out[node * slots // nodes + rank * of_rank + place] = x
    return out


def echo(load, slots, ranks):
    experts = len(load)
    own, of_rank = experts // ranks, slots // ranks
    held = [[x for x in range(r * own, (r + 1) * own)] for r in range(ranks)]
    copies = [1] * experts
    for _ in range(slots - experts):
        rooms = lambda x: [r for r in range(ranks) if len(held[r]) < of_rank and x not in held[r]]
        hot = max((x for x in range(experts) if rooms(x)), key=lambda x: (load[x] / copies[x], -x))
        weight = lambda r: sum(load[x] / copies[x] for x in held[r])
        held[min(rooms(hot), key=lambda r: (weight(r), r))].append(hot)
        copies[hot] += 1
    return [x for rank in held for x in rank]


def balance(ids, experts, spec, ranks, node_ranks):
    """ids [steps][tokens][layers][top_k] -> slots of the same shape, and what moved."""
    slots, steps, layers = experts + spec["replicas"], len(ids), ids.shape[2]
    of_rank, out = slots // ranks, np.empty(ids.shape, np.uint16)
    moved, most, copies, placements = 0, 0, 0, 0
    placement, load = [None] * layers, np.ones((layers, experts))
    for step in range(steps):
        if step % spec["every"] == 0:
            received = np.zeros(ranks, int)
            for l in range(layers):
                if spec["name"] == "echo":
                    fresh = echo(load[l], slots, ranks)
                elif spec["hierarchical"]:
                    fresh = eplb(load[l], slots, spec["groups"], ranks // node_ranks, ranks)
                else:
                    fresh = eplb(load[l], slots, 1, 1, ranks)
                for r in range(ranks if step else 0):
                    part = slice(r * of_rank, (r + 1) * of_rank)
                    received[r] += len(set(fresh[part]) - set(placement[l][part]))
                placement[l] = fresh
            placements += step > 0
            moved, most = moved + received.sum(), max(most, received.max())
            load = np.zeros((layers, experts))
        for l in range(layers):
            where = [[s for s in range(slots) if placement[l][s] == x] for x in range(experts)]
            turn = [0] * experts
            for t in range(ids.shape[1]):
                for k, x in enumerate(ids[step, t, l]):
                    out[step, t, l, k] = where[x][turn[x] % len(where[x])]
                    turn[x] += 1
            load[l] += turn
            copies += sum(len(set(placement[l][r * of_rank:(r + 1) * of_rank])) for r in range(ranks)) - experts
    return out, dict(moved=moved, most=most, placements=placements, copies=copies / steps / layers)


# --- Cases ---

@dataclasses.dataclass
class GridCase(Case):
    """Of Megatron-Core: `sharers` GPUs share an expert and compute all its rows; a sequence is cut for tensor x context GPUs, of
    which each has `length` tokens. The trace knows every GPU."""
    tensor: int = 1
    context: int = 1
    sharers: int = 1

    def write(self, folder, name="case"):
        job, cut = super().write(folder, name), self.tensor * self.context
        was = (f"expert: {self.expert}, fsdp: {self.ranks // self.expert}", f"sequence_length: {self.length}")
        now = (f"expert: {self.expert}, fsdp: {self.ranks // self.expert // self.sharers}, tensor: {self.tensor}, "
               f"context: {self.context}, expert_tensor: {self.sharers}", f"sequence_length: {self.length * cut}")
        text = without_formats(job)
        for a, b in zip(was, now):
            assert text.count(a) == 1
            text = text.replace(a, b)
        job.write_text(text + "optimizer: distributed\n"
                       "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n")
        return job


def router_bytes(case, experts):
    """What a GPU receives of router weights a step, which copies do not have and experts in their place would: fp32 gradients
    summed in the tensor group, scattered over data x context, and new bf16 weights gathered there."""
    owners = case.ranks // case.tensor
    return experts * 3 * case.hidden * (6 * (owners - 1) / owners + 8 * (case.tensor - 1) / case.tensor)


def on_grid(rng, case):
    t, groups = int(rng.choice([1, 2, 4])), case.nodes * case.gpus_per_node // case.expert
    tensor, context = ((1, 2), (2, 1), (2, 2), (2, 1), (1, 1))[int(rng.integers(0, 5))]
    if case.expert * t * groups % (tensor * context):
        tensor, context = 2, 1
    if t * tensor * context == 1:
        tensor = 2
    schemes = ("megatron-alltoall",) if t > 1 else ("megatron-alltoall", "megatron-flex", "megatron-allgather")
    return GridCase(**{**case.__dict__, "gpus_per_node": case.gpus_per_node * t, "schemes": schemes}, tensor=tensor, context=context,
                    sharers=t)


def case_of(seed, grid=False):
    rng = np.random.default_rng(seed)
    nodes = int(rng.choice([1, 2]))
    expert = int(rng.choice([2, 4])) * nodes
    groups, local, top_k = int(rng.integers(1, 3)), int(rng.integers(2, 4)), 2
    case = Case(nodes=nodes * groups, gpus_per_node=expert // nodes, expert=expert, experts=expert * local, top_k=top_k,
                model_layers=3, sequences=2, length=8, schemes=SCHEMES)
    spec = dict(name=("eplb", "echo")[seed % 2], replicas=expert * int(rng.integers(0, 3)), every=int(rng.integers(1, 4)),
                hierarchical=seed % 4 == 0, groups=nodes * int(rng.choice([1, 2])))
    if case.experts % spec["groups"]:
        spec["groups"] = case.experts
    text = f"{spec['name']}:replicas={spec['replicas']},every={spec['every']}"
    if spec["hierarchical"]:
        text += f",hierarchical,groups={spec['groups']}"
    return rng, on_grid(rng, case) if grid else case, spec, text


def random_case(seed, grid=False):
    rng, case, spec, text = case_of(seed, grid)
    sharers, seed = (case.sharers, f"g{seed}") if grid else (1, seed)
    steps, layers, ranks, tokens = 5, 2, case.ranks, case.ranks * case.tokens
    drift = np.cumsum(rng.normal(size=(steps, 1, layers, case.experts)), axis=0)
    ids = np.argsort(-(drift + rng.gumbel(size=(steps, tokens, layers, case.experts))), axis=3)[..., :case.top_k]
    rank, sequence = np.repeat(np.arange(ranks), case.tokens), np.repeat(np.arange(ranks * case.sequences), case.length)
    columns = (np.tile(rank, steps), np.tile(sequence, steps), np.tile(np.arange(case.length), steps * ranks * case.sequences))
    job = case.write(folder, f"b{seed}")
    trace = Tokens(ids.astype(np.uint8).reshape(-1, layers, case.top_k), [tokens] * steps, case.experts, ranks, *columns)
    path, out = trace.write(folder / f"b{seed}.h5"), folder / f"b{seed}_out.h5"
    slots, want = balance(ids, case.experts, spec, case.expert, min(case.expert, case.gpus_per_node // sharers))
    count, what = case.experts + spec["replicas"], f"case {seed} {text} {vars(case) if grid else ''}"
    got = replay(program, path, job, "--balancer", text, "--output", out)
    local = count // case.expert
    with h5py.File(out) as f:
        for r, scheme in enumerate(case.schemes[:3]):
            for s in range(steps):
                for l in range(layers):
                    rows = np.zeros(ranks, int)
                    group = case.expert * sharers
                    for j in range(sharers):
                        np.add.at(rows, rank[:, None] // group * group + slots[s, :, l] // local * sharers + j, 1)
                    same(f"{what} {scheme} rows of step {s} layer {l}", f["rows_received"][r, s, l], rows)
    balance_ = got["balance"]
    near(f"{what} slots", balance_["slots"], count)
    near(f"{what} placements", balance_["placements"], want["placements"])
    near(f"{what} moved", balance_["moved_experts"], want["moved"])
    near(f"{what} moved most", balance_["moved_experts_most"], want["most"])
    near(f"{what} copies", balance_["copies"], want["copies"])
    expert_bytes, owners = 3 * case.hidden * case.ffn * 2, case.expert * sharers
    both_bytes = expert_bytes * (3 if grid else 2)  # with gradients in fp32 or bf16
    near(f"{what} expert", balance_["expert_bytes"], expert_bytes)
    near(f"{what} step", balance_["step_bytes"], want["copies"] * 3 / owners * both_bytes)
    if want["placements"]:
        near(f"{what} placement", balance_["placement_bytes"],
             want["moved"] / want["placements"] * 3 / layers / owners * expert_bytes)
        near(f"{what} placement most", balance_["placement_most_bytes"], want["most"] * 3 / layers / sharers * expert_bytes)
    # The same without a balancer, of a model that has the slots for experts.
    physical = dataclasses.replace(case, experts=count)
    other = physical.write(folder, f"p{seed}")
    mapped = Tokens(slots.reshape(-1, layers, case.top_k), [tokens] * steps, count, ranks, *columns)
    physical_path = mapped.write(folder / f"p{seed}.h5")
    alone, plain = replay(program, physical_path, other), replay(program, path, job)
    for row, twin, before, both in zip(got["rows"], alone["rows"], plain["rows"], balance_["rows"]):
        for part in ("drops", "overload"):
            same(f"{what} {row['scheme']} {part}", row[part], twin[part])
        for key, value in twin["traffic"].items():
            router = router_bytes(case, spec["replicas"]) if grid and key == "whole_step_bytes_per_gpu" else 0.0
            if not isinstance(value, dict) and key != "whole_step_bytes":
                near(f"{what} {row['scheme']} {key}", row["traffic"][key] + router, value, 0.0 if router == 0.0 else 1e-12)
        for side, of in (("without", before), ("with", twin)):
            near(f"{what} {side} average", both[side]["average"], of["overload"]["average"]["mean"])
            near(f"{what} {side} max", both[side]["max"], of["overload"]["max"]["worst"])
            near(f"{what} {side} rows", both[side]["rows_max"], of["traffic"]["rows_max"])
        # A copy has weights, in the state of a sharded job, and nothing else of it; Megatron-Core's state has its gradients too.
        copy = both_bytes / owners if grid else expert_bytes / case.ranks
        near(f"{what} state", both["with"]["state_bytes"] - both["without"]["state_bytes"], spec["replicas"] * 3 * copy,
             2 / expert_bytes)
        near(f"{what} state of all", both["without"]["state_bytes"], before["memory"]["argument_bytes"])
    table = run(program, "replay", path, "--job", job, "--balancer", text, "--format", "csv")
    for line, both in zip(csv.DictReader(io.StringIO(table.stdout)), balance_["rows"]):
        near("csv", float(line["average_with"]), both["with"]["average"])
    executed = ("megatron-alltoall",) if grid else ("gmm", "hybrid-ep")
    done = run(program, "verify", "--trace", physical_path, "--steps", "0:2", *(a for s in executed for a in ("--scheme", s)),
               "--expert-parallel", case.expert, "--expert-tensor", sharers)
    if done.returncode:
        sys.exit(f"FAILED {what}: verify {done.returncode}\n{done.stdout}{done.stderr}")


def refusals():
    rng, case, spec, text = case_of(0)
    job = case.write(folder, "r")
    path = folder / "b0.h5"
    for arguments in (("--balancer", "eplb:replicas=1,every=1"), ("--balancer", "eplb"),
                      ("--balancer", "echo:replicas=0,every=1", "--each-step"),
                      ("--balancer", "echo:replicas=0,every=1", "--advise"),
                      ("--balancer", "echo:replicas=0,every=1", "--stack", "maxtext-rocm-2026-05")):
        near(f"{arguments}", run(program, "replay", path, "--job", job, *arguments).returncode, 2)
    # An expert on several nodes has no node; MaxText's mesh has no copies.
    shared = GridCase(nodes=4, gpus_per_node=2, expert=2, experts=4, top_k=2, length=8, schemes=("megatron-alltoall",), sharers=4)
    rank = np.repeat(np.arange(8), 8)
    ids = rng.permuted(np.tile(np.arange(4), (64, 1)), axis=1)[:, None, :2].astype(np.uint8)
    Tokens(ids, [64], 4, 8, rank, rank, np.tile(np.arange(8), 8)).write(folder / "shared.h5")
    for name, balancer, code, words, changes in (
            ("flat", "eplb:replicas=2,every=1", 0, "", ()),
            ("by node", "eplb:replicas=2,every=1,hierarchical", 2, "expert_tensor 4 on nodes of 2 GPUs", ()),
            ("mesh", "eplb:replicas=2,every=1", 2, "MaxText's mesh axes", ("--scheme", "gmm", "--optimizer", "sharded", "--set",
             "parallel.tensor=2", "--set", "parallel.expert_tensor=0", "--set", "parallel.fsdp=2"))):
        done = run(program, "replay", folder / "shared.h5", "--job", shared.write(folder, "s"), "--balancer", balancer, *changes)
        near(f"{name}: {done.stderr}", done.returncode, code)
        same(f"{name}: {done.stderr}", words in done.stderr, True)


for seed in range(24):
    random_case(seed)
for seed in range(16):
    random_case(seed, grid=True)
refusals()
print(f"{checks} checks")
sys.exit(0 if checks else 1)
