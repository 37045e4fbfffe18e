#!/usr/bin/env python3
"""Step times of Megatron-Core jobs, as `spillway replay` says them, from the token ids of the shipped trace by a brute force and the
formulas of sim/time/megatron/megatron_time.h and megatron_job_time.h written again: three dispatchers, groups in a node and over nodes,
micro-batches, pipelines, another cluster, bare layers, experts that GPUs share (random grids of them, replayed and of a stated
imbalance). Then what `plan` makes of them.

megatron_job_oracle.py SPILLWAY SCRATCH SOURCE"""
import functools
import itertools
import json
import pathlib
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_megatron_time import Load, figures, step as bare_step, up
from oracle_run import Oracle

import program as caller

program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "megatron_job_oracle"
scratch.mkdir(exist_ok=True)
TRACE = source / "traces/data/training_aux_e64_slice.h5"
STACK, WHOLE = "megatron-h200-2026-11", "megatron-te-h100-2026-11"
H100 = dict(bf16_flops=9.894e14, hbm_bytes_per_s=3.35e12, link_bytes_per_s=450e9, nic_bytes_per_s=50e9)
H200 = dict(bf16_flops=9.894e14, hbm_bytes_per_s=4.8e12, link_bytes_per_s=450e9, nic_bytes_per_s=50e9)
CLUSTER = "name: x\nnodes: {nodes}\ngpus_per_node: {gpus}\n" + "".join(
    f"{k}: {{{{value: {v}, evidence: assumed, source: a test}}}}\n" for k, v in
    [("hbm_gib", 80), ("fp8_flops", 2e15), ("launch_s", 5e-6)] + [(k, "{%s}" % k) for k in H200])
JOB = """model: scratch-moe-e64
cluster: ./{name}.yaml
library_limits: ignore
parallel: {{expert: {expert}, fsdp: {fsdp}, pipeline: {stages}, expert_tensor: {sharers}}}
batch: {{sequences_per_gpu: 2, sequence_length: 512, micro_batches: {micro}}}
precision: {{weights: bf16, gradients: {gradients}, optimizer: fp32, activations: bf16}}
optimizer: {optimizer}
remat: {remat}
cuda_graph_impl: {graph}
overlap_moe_expert_parallel_comm: {overlap}
{keys}
cross_entropy: {loss}
{part}schemes: [{schemes}]
"""
# The model scratch-moe-e64: 8 layers, the first of them dense; 12 heads of 64.
T, H, F, E, K, LAYERS, MOE, HEADS, HEAD, VOCAB, DENSE, S = 1024, 768, 384, 64, 8, 8, 7, 12, 64, 16384, 3072, 512
ATTENTION, ROUTER, EXPERT = 4 * H * HEADS * HEAD, E * H, 3 * H * F
# What all stacks share of exchanges between nodes; the rest the oracle has by itself.
SHARED = {k: v for k, v in figures((source / "sim/stack_defaults/megatron.yaml").read_text()).items() if k.startswith("exchange_")}
oracle = Oracle(program, "megatron_job_oracle")
check, run = oracle.check, oracle.run


def near(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


with h5py.File(TRACE) as f:
    ids, ranks, sequences = (f["tokens/" + n][:] for n in ("expert_id", "source_rank", "sequence"))
    offsets = f["tokens/step_offset"][:]


@functools.cache
def choices(step, layer, rank, micro, parts):
    """[tokens][K] expert ids of one rank's micro-batch."""
    at = slice(offsets[step], offsets[step + 1])
    mine = ids[at][ranks[at] == rank][:, layer]
    names = sequences[at][ranks[at] == rank]
    order = list(dict.fromkeys(names))
    keep = order[micro * len(order) // parts:(micro + 1) * len(order) // parts]
    return mine[np.isin(names, keep)]


def loads_of(scheme, tokens, node, t=1):
    """One layer of one group: tokens [rank] of ids. `node`: GPUs of a node; groups begin at one. t ranks in a row share experts: each
    is sent what ranks of its number among t have for them, and hands it to the others."""
    R, e = len(tokens), E // (len(tokens) // t)
    capacity = None
    if "capacity_factor" in scheme:
        factor = float(scheme.split("capacity_factor=")[1].split(",")[0])
        capacity = int(np.ceil(len(tokens[0]) * K / E * factor))
    n = np.array([np.bincount(t.ravel(), minlength=E) for t in tokens])
    kept = np.ones((R, len(tokens[0]), K), bool)
    if capacity is not None:  # the first tokens keep their slots
        for r, x in itertools.product(range(R), range(E)):
            if n[r, x] > capacity:
                late = np.argwhere(tokens[r] == x)[capacity:]
                kept[r, late[:, 0], late[:, 1]] = False
        n = np.minimum(n, capacity)
    rows = np.where(np.full_like(n, "pad=true" in scheme), capacity or 0, n)
    wire, links, nics = np.zeros((R, R), int), np.zeros((R, 2), int), np.zeros((R, 2), int)
    for s in range(R):
        to = np.where(kept[s], tokens[s] // e, -1)
        for d in range(R):
            if scheme.startswith("megatron-alltoall"):
                wire[s, d] = rows[s, d // t * e:(d // t + 1) * e].sum() if s % t == d % t else 0
            elif scheme.startswith(("megatron-flex", "megatron-syncfree")):
                wire[s, d] = (to == d).any(axis=1).sum()
            else:
                wire[s, d] = len(tokens[s])
        for there in range(max(1, R // node)):
            mates = [d for d in range(R) if d // node == there]
            if scheme.startswith(("megatron-flex", "megatron-syncfree")) and there != s // node:  # once a node, forwarded by the GPU of the same number
                hop = there * node + s % node
                crossing = np.isin(to, mates).any(axis=1).sum()
                nics[s, 0] += crossing
                nics[hop, 1] += crossing
                for d in mates:
                    if d != hop:
                        links[hop, 0] += wire[s, d]
                        links[d, 1] += wire[s, d]
                continue
            for d in mates:
                ports = links if there == s // node else nics
                if d != s:
                    ports[s, 0] += wire[s, d]
                    ports[d, 1] += wire[s, d]
    out = []
    for d in range(R):
        mine, arrived = slice(d // t * e, (d // t + 1) * e), int(wire[:, d].sum())
        others = sum(int(wire[:, q].sum()) for q in range(d // t * t, d // t * t + t)) - arrived
        out.append(Load(int(rows[:, mine].sum()), int(wire[d].sum()) if "alltoall" in scheme else 0,
                        [[int(x) for x in source] for source in rows[:, mine]],
                        *(int(x) for x in (links[d, 1], links[d, 0], nics[d, 1], nics[d, 0])),
                        zeros=int((rows - n)[:, mine].sum()), arrived=arrived, gathered=(others, (t - 1) * arrived)))
    return out


@functools.cache
def loads_at(scheme, step, layer, ranks, micro, parts, node, sharers):
    return loads_of(scheme, [choices(step, layer, r, micro, parts) for r in ranks], node, sharers)


def stated(imbalance, R, t, sequences, node):
    """One layer of one group whose first experts are chosen `imbalance` times the mean, by every rank alike, of every sequence."""
    owners, e, n = R // t, E // (R // t), np.zeros((R, E), int)
    busy = int(np.floor(S * K * imbalance / owners + 0.5))
    for r in range(R):
        first = [busy * (x + 1) // e - busy * x // e for x in range(e)]
        left, others = S * K - busy, max(1, E - e)
        rest = [left * (x + 1) // others - left * x // others for x in range(others)]
        n[r] = first + [rest[(x + r) % others] for x in range(e, E)]
    n *= sequences
    out = []
    for d in range(R):
        mates = range(d // t * t, d // t * t + t)
        mine = slice(d // t * e, (d // t + 1) * e)
        came = {q: [int(n[s, mine].sum()) for s in range(R) if s % t == q % t] for q in mates}
        there = {s: int(n[s, mine].sum()) for s in range(R) if s % t == d % t}
        gone = {q: int(n[d, q // t * e:(q // t + 1) * e].sum()) for q in range(R) if q % t == d % t}
        ports = [sum(rows for peer, rows in where.items() if peer != d and (peer // node == d // node) == near)
                 for near in (True, False) for where in (there, gone)]
        arrived = sum(there.values())
        out.append(Load(int(n[:, mine].sum()), int(n[d].sum()), [[int(x) for x in source] for source in n[:, mine]], *ports,
                        arrived=arrived, gathered=(sum(sum(v) for v in came.values()) - arrived, (t - 1) * arrived)))
    return out


def scaled(cluster, stack=STACK):
    path = scratch / "floor.yaml" if stack == "floor" else source / f"sim/megatron_stacks/{stack}.yaml"
    c = {**SHARED, **figures(path.read_text()), "nic_bytes_per_s": cluster["nic_bytes_per_s"]}
    ratio = {k: cluster[k] / (H200 if stack == STACK else H100)[k] for k in H200}
    for key, by in [("peak_flops", "bf16_flops"), ("router_flops", "bf16_flops"), ("main_grad_bytes_per_s", "hbm_bytes_per_s"),
                    ("slots_bytes_per_s", "hbm_bytes_per_s"), ("copy_bytes_per_s", "hbm_bytes_per_s"),
                    ("scatter_bytes_per_s", "hbm_bytes_per_s"), ("index_add_bytes_per_s", "hbm_bytes_per_s"),
                    ("exchange_bytes_per_s", "link_bytes_per_s"), ("token_bytes_per_s", "link_bytes_per_s"), ("sorted_bytes_per_s", "link_bytes_per_s"),
                    ("network_bytes_per_s", "nic_bytes_per_s")]:
        c[key] *= ratio[by]
    if ratio["link_bytes_per_s"] != 1:
        c["long_message_share"] = 1
    return c


def unfused(c, job, layers, moe, tokens):
    """Forward and backward seconds of a block that PyTorch's router and rotation take more than TransformerEngine's."""
    forward = backward = 0.0
    fused = c["unfused_router_bytes"] > 0
    if job["keys"].get("moe_router_fusion") == "false":
        once = moe * c["unfused_router_bytes"] * tokens * H / c["copy_bytes_per_s"]
        forward += once
        backward += once if {"full", "moe"} & set(job["remat"].split("+")) else 0.0
    if job["keys"].get("apply_rope_fusion") == "false" and fused:
        # cos, minus, join, sin, sum, join; sin, minus, join, cos, sum: reads and writes, less the one of each that a fused kernel has
        passes = (2 + 1 + 2 + 2 + 3 + 2 - 2, 2 + 1 + 2 + 2 + 3 - 2)
        each = layers * tokens * 2 * HEADS * HEAD * 2 / c["copy_bytes_per_s"]  # as many keys as queries
        forward += passes[0] * each
        backward += (passes[1] + (passes[0] if job["remat"] == "full" else 0)) * each
    return forward, backward


def hides(job, stage, seconds, passes, parts):
    """Of a stage's collective: behind its own passes what is not of the last part, behind those of the stages before it the rest."""
    own = min(seconds * (1 - 1 / parts), passes[stage])
    return own + min(seconds - own, sum(passes[:stage]))


def outside(c, remat, first, layers, last, tokens, loss="unfused"):
    """Forward and backward seconds of a block outside its experts."""
    again, modules = 1 if remat == "full" else 0, set(remat.split("+"))
    moe = sum(l > 0 for l in range(first, first + layers))
    dense = layers - moe
    product, score = c["peak_flops"] * c["dense_flops_share"], c["peak_flops"] * c["attention_flops_share"]
    width = 3 * H + 7 * HEADS * HEAD  # norms, residual; q, k, v, context twice over
    forward = (2 * tokens * layers * ATTENTION + 6 * tokens * dense * H * DENSE) / product
    backward = (2 + again) * forward + ("mlp" in modules) * 6 * tokens * dense * H * DENSE / product
    scores = layers * tokens * S * HEADS * 2 * HEAD / score
    forward += scores
    backward += (2.5 + (again or bool(modules & {"selective", "core_attn"}))) * scores
    elements = layers * width + 3 * dense * DENSE
    passes = 3 + again
    # The element work of the whole model is spread over its layers.
    byte_s = c["elementwise_share"] / c["copy_bytes_per_s"]
    whole = passes * 2 * tokens * (LAYERS * width + 3 * DENSE) * 2 * byte_s
    share = whole * layers / LAYERS
    forward += share / passes
    backward += share * (1 - 1 / passes)
    # What modules write once more: the dense layer's FFN, and the norm before each MoE layer.
    more = ("mlp" in modules) * 3 * DENSE + ("layernorm" in modules) * MOE * H
    backward += 2 * tokens * more * 2 * byte_s * layers / LAYERS
    if last:
        head = 2 * tokens * H * VOCAB / product
        forward += head
        backward += 2 * head
        bytes_each = c["loss_%s_bytes" % {"te": "fused", "te_in_place": "fused"}.get(loss, loss)]
        forward += bytes_each * tokens * VOCAB / c["copy_bytes_per_s"] / 2
        backward += bytes_each * tokens * VOCAB / c["copy_bytes_per_s"] / 2
    return forward, backward


def host(c, job, scheme, layers, moe, kernels, wire, unlike):
    """Forward and backward of a block on the clock: exchanges that hide behind another micro-batch, gaps of launches, the host's floor."""
    graphed = job["graph"] == "full_iteration" or "graph=full" in scheme
    share = 0 if graphed else c["partial_graph_share"] if job["graph"] != "none" else 1
    passes = 4 if job["remat"] == "full" else 3
    counts = "alltoall" in scheme and "pad=true" not in scheme
    out = []
    ahead = 3 * c.get("floor_forward_share", 1 / 3)
    for seconds, exchanged, part, slow in zip(kernels, wire, (1, passes - 1), (ahead, passes - ahead)):
        micro = job["micro"]
        hidden = c["overlap_share"] * (micro - 1) / micro * max(0, min(exchanged, seconds - exchanged)) if job["overlap"] == "true" else 0
        gaps = layers * c["layer_gap_s"] + moe * c["expert_gap_s"] * E / job["expert"]
        floor = layers * c["host_floor_s"] + moe * c.get("expert_floor_s", 0) * E / job["expert"] + unlike * c.get("unlike_floor_s", 0)
        late = max(0, moe * c["counts_gap_s"] * share * part / 3 - (exchanged - hidden)) if counts else 0
        out.append(max(seconds - hidden + gaps * share * part / 3 + late, floor * share * slow / 3))
    return out


def pipeline(forward, backward, send):
    """One forward, one backward. forward[stage][micro]."""
    P, M = len(forward), len(forward[0])
    order = []
    for s in range(P):
        warm = min(P - 1 - s, M)
        passes = [("F", m) for m in range(warm)]
        for m in range(M - warm):
            passes += [("F", warm + m), ("B", m)]
        order.append(passes + [("B", m) for m in range(M - warm, M)])
    end = {}

    def ended(s, i):
        if i < 0:
            return 0.0
        kind, m = order[s][i]
        if (s, kind, m) not in end:
            begin = ended(s, i - 1)
            other = s - 1 if kind == "F" else s + 1
            if 0 <= other < P:
                begin = max(begin, ended(other, order[other].index((kind, m))) + send)
            end[s, kind, m] = begin + (forward if kind == "F" else backward)[s][m]
        return end[s, kind, m]

    return max(ended(s, 2 * M - 1) for s in range(P))


def at_the_end(c, job, stage, layers, moe, cluster, forward, backward):
    """Gradients, weights, optimizer of one stage; forward and backward passes of all stages, micro-batch by micro-batch."""
    expert, fsdp, stages, node = job["expert"], job["fsdp"], job["stages"], job["gpus"]
    routed = moe * E * EXPERT
    rest = layers * (ATTENTION + 2 * H) + moe * ROUTER + (layers - moe) * 3 * H * DENSE
    rest += (VOCAB * H if stage == 0 else 0) + (VOCAB * H + H if stage == stages - 1 else 0)
    total_routed = MOE * E * EXPERT
    total_rest = LAYERS * (ATTENTION + 2 * H) + MOE * ROUTER + 3 * H * DENSE + 2 * VOCAB * H + H
    g = {"fp32": 4, "bf16": 2}[job["gradients"]]
    scattered, gathered = {"distributed": (g, 2), "replicated": (2 * g, 0), "sharded": (g, 4)}[job["optimizer"]]
    owners = expert * job["sharers"]
    replicas = {"distributed": (fsdp, owners * fsdp), "replicated": (1, 1), "sharded": (fsdp, owners * fsdp)}[job["optimizer"]]
    sums = gathers = 0.0
    for elements, members, stride in ((total_routed / owners / stages, fsdp, owners), (total_rest / stages, owners * fsdp, 1)):
        received = elements * (members - 1) / members
        if members > 1:
            byte_s = min(1, stride / node) / c["network_bytes_per_s"] if members * stride > node else 1 / c["exchange_bytes_per_s"]
            sums += received * scattered * byte_s
            gathers += received * gathered * byte_s
    local = routed / owners + rest
    parts = 1 if stage > 0 else max(1, np.ceil(local / max(40e6, 1e6 * owners * fsdp)))
    seconds = sums + gathers
    if job["keys"].get("overlap_grad_reduce"):
        seconds -= hides(job, stage, sums, [b[-1] for b in backward], parts)
    if job["keys"].get("overlap_param_gather"):
        seconds -= hides(job, stage, gathers, [f[0] for f in forward], parts)
    updated = routed / owners / replicas[0] + rest / replicas[1]
    master = 0 if job["optimizer"] == "sharded" else 4
    matrices = 2 * moe * E / expert
    return seconds + updated * (2 * master + 16 + 2 + g) / c["copy_bytes_per_s"] * c["optimizer_share"] + matrices * c.get("matrix_host_s", 0)


def predict(scheme, job, cluster, imbalance=None):
    """Seconds: mean over the two steps of the trace, or of a stated imbalance."""
    c = scaled(cluster, job["stack"])
    if job["keys"].get("moe_permute_fusion") == "false":
        c["scatter_bytes_per_s"] *= c["unfused_unpermute_share"]
        c["index_add_bytes_per_s"] *= c["unfused_permute_share"]
    micro, stages, bare, sharers = job["micro"], job["stages"], job["part"] != "", job["sharers"]
    ranks = job["expert"] * sharers
    groups, tokens = 64 // ranks, T // micro
    recompute = "moe" if {"full", "moe"} & set(job["remat"].split("+")) else "moe_act" if "moe_act" in job["remat"].split("+") else "none"
    dispatcher = {"megatron-alltoall": "all-to-all", "megatron-flex": "tokens", "megatron-allgather": "all-gather", "megatron-syncfree": "tokens"}[scheme.split(":")[0]]
    unread = scheme.startswith("megatron-syncfree")
    layers = 4 if bare else LAYERS
    blocks, first = [], 0
    for s in range(stages):
        count = layers // stages + (s < layers % stages)
        blocks.append((first, count, [l - (0 if bare else 1) for l in range(first, first + count) if bare or l > 0]))
        first += count
    total = 0.0
    for step in range(2):
        slowest = 0.0
        for g in range(groups if imbalance is None else 1):
            same = stated(imbalance, ranks, sharers, tokens // S, job["gpus"]) if imbalance is not None else None
            layer_loads = {(l, m): same for l in range(4) for m in range(micro)} if same else {
                (l, m): loads_at(scheme, step, l, range(g * ranks, (g + 1) * ranks), m, micro, job["gpus"], sharers) for l in range(4) for m in range(micro)}
            forward, backward = [[0.0] * micro for _ in blocks], [[0.0] * micro for _ in blocks]
            for (s, (first, count, moe)), m in itertools.product(enumerate(blocks), range(micro)):
                wire = (0.0, 0.0)
                if moe:
                    half, whole, spent = bare_step(c, tokens, H, F / sharers, E, [layer_loads[l % 4, m] for l in moe], recompute,
                                               "pad=true" in scheme, "capacity_factor" in scheme, dispatcher, sharers, unread or "hybridep" in scheme, unread, job["graph"] == "full_iteration" or "graph=full" in scheme)
                    forward[s][m], backward[s][m] = half, whole - half
                    wire = spent["wire"]["forward"], spent["wire"]["backward"]
                if not bare:
                    for more in (outside(c, job["remat"], first, count, s == stages - 1, tokens, job["loss"]),
                                 unfused(c, job, count, len(moe), tokens)):
                        forward[s][m] += more[0]
                        backward[s][m] += more[1]
                forward[s][m], backward[s][m] = host(c, job, scheme, count, len(moe), (forward[s][m], backward[s][m]), wire,
                                                    sum(max(load.unlike() for load in layer_loads[l % 4, m]) for l in moe))
            send = 0.0 if stages == 1 else c["exchange_latency_s"] + 2 * tokens * H / c["network_bytes_per_s"]
            if pipeline(forward, backward, send) > slowest:
                slowest = pipeline(forward, backward, send)
                passes = forward, backward
                busiest = max(range(stages), key=lambda s: sum(forward[s]) + sum(backward[s]))
        total += slowest / 2
        if not bare:  # each step by its own busiest stage
            first, count, moe = blocks[busiest]
            total += at_the_end(c, job, busiest, count, len(moe), cluster, *passes) / 2
    return total


ALL = ["megatron-alltoall", "megatron-flex", "megatron-allgather"]
CASES = [  # what differs from the first
    dict(schemes=ALL + ["megatron-alltoall:capacity_factor=1.25,policy=position",
                        "megatron-alltoall:capacity_factor=1,policy=position,pad=true"]),
    dict(schemes=["megatron-flex:backend=hybridep", "megatron-syncfree:rank_capacity=8", "megatron-syncfree:rank_capacity=8,graph=full"]),
    dict(schemes=["megatron-flex:backend=hybridep", "megatron-syncfree:rank_capacity=8"], gpus=8, expert=16, remat="moe", micro=2, stages=2),
    dict(schemes=ALL, gpus=8, expert=16, remat="full"),
    dict(schemes=ALL[:2], gpus=4, expert=64, remat="moe", optimizer="replicated"),
    dict(schemes=ALL[:1], micro=2, remat="moe_act", gradients="bf16"),
    dict(schemes=ALL, micro=2, stages=2, remat="selective"),
    dict(schemes=ALL[:1], micro=2, stages=2, remat="core_attn+moe_act+layernorm+mlp"),
    dict(schemes=ALL[:1], remat="layernorm+moe"),
    dict(schemes=ALL[:2], cluster=dict(bf16_flops=2e15, hbm_bytes_per_s=8e12, link_bytes_per_s=537.6e9, nic_bytes_per_s=25e9)),
    dict(schemes=ALL[:1], expert=64, gpus=64, part="model_part: expert_layers\nlayers: 4\n", optimizer="sharded"),
    dict(schemes=ALL[1:2], optimizer="sharded"),
    dict(schemes=ALL[:1] + ["megatron-alltoall:capacity_factor=1.25,policy=position"], expert=4, sharers=2, gpus=4),
    dict(schemes=ALL[:1], expert=8, sharers=4, remat="full", micro=2, stages=2),
    dict(schemes=ALL + ["megatron-flex:backend=hybridep", "megatron-syncfree:rank_capacity=8,graph=full",
                        "megatron-alltoall:capacity_factor=1,policy=position,pad=true"], stack=WHOLE),
    dict(schemes=ALL[:2], stack=WHOLE, graph="transformer_engine", micro=2, stages=2, loss="native"),
    dict(schemes=ALL[:2] + ["megatron-flex:backend=hybridep"], stack=WHOLE, overlap="true", remat="moe_act", loss="te", micro=2),
    dict(schemes=ALL[:1], stack=WHOLE, remat="full", loss="te"),
    dict(schemes=ALL[:1], stack=WHOLE, overlap="true", expert=16, graph="local", remat="layernorm", micro=2),
    dict(schemes=["megatron-syncfree:rank_capacity=8,graph=full", "megatron-alltoall:capacity_factor=1,policy=position,pad=true"], stack=WHOLE,
         graph="full_iteration", overlap="true", loss="te_in_place", gradients="bf16", micro=2),
    dict(schemes=ALL[:2] + ["megatron-alltoall:capacity_factor=1,policy=position,pad=true"], stack="floor", micro=2, gradients="bf16"),
    dict(schemes=ALL[:2], stack="floor", graph="local"), dict(schemes=ALL[:2], stack="floor", remat="full", stages=2, micro=2),
    # keys of recipes: what hides, and kernels of PyTorch
    dict(schemes=ALL[:2], stack=WHOLE, keys={"overlap_grad_reduce": True}),
    dict(schemes=ALL[:1], stack=WHOLE, micro=2, stages=2, keys={"overlap_grad_reduce": True, "overlap_param_gather": True}),
    dict(schemes=ALL[:1], stack=WHOLE, micro=2, stages=4, expert=4, gpus=4, keys={"overlap_grad_reduce": True, "overlap_param_gather": True}),
    dict(schemes=ALL[:1], stack=WHOLE, optimizer="replicated", keys={"overlap_grad_reduce": True}),
    dict(schemes=ALL[:1], stack=WHOLE, cluster=dict(H200, link_bytes_per_s=1e9, nic_bytes_per_s=1e8), keys={"overlap_grad_reduce": True, "overlap_param_gather": True}),
    dict(schemes=ALL, stack=WHOLE, remat="full", keys={"moe_permute_fusion": "false", "moe_router_fusion": "false", "apply_rope_fusion": "false"}),
    dict(schemes=ALL[:1] + ["megatron-flex:backend=hybridep"], stack=WHOLE, remat="moe_act", stages=2, micro=2, keys={"moe_permute_fusion": "false", "moe_router_fusion": "false", "apply_rope_fusion": "false"}),
    dict(schemes=ALL[:1], keys={"moe_permute_fusion": "false", "moe_router_fusion": "false", "apply_rope_fusion": "false"}),
    dict(schemes=ALL[:1], stack=WHOLE, keys={"moe_permute_fusion": "true", "moe_router_fusion": "true", "apply_rope_fusion": "true", "megatron_core_release": "0.17"}),
    dict(schemes=ALL[:1], expert=1, sharers=8, gpus=8, remat="moe_act", optimizer="replicated"),
]
# A host so slow that its work is the pace.
floor = (source / f"sim/megatron_stacks/{WHOLE}.yaml").read_text().replace("host_floor_s:\n  value: 0\n", "host_floor_s:\n  value: 0.05\n")
floor += "".join(f"{key}:\n  value: {value}\n  evidence: assumed\n  source: made up\n"
                 for key, value in dict(expert_floor_s=0.002, unlike_floor_s=0.03, matrix_host_s=0.0007, floor_forward_share=0.55).items())
(scratch / "floor.yaml").write_text(floor)
# Experts that GPUs share, in random grids: a node holds whole sharers, and a group of them may span nodes.
dice = np.random.default_rng(2026)
for _ in range(24):
    t, gpus = int(dice.choice([2, 4, 8])), int(dice.choice([8, 16, 32, 64]))
    R = int(dice.choice([r for r in (1, 2, 4, 8, 16, 32) if r * t <= 64]))
    CASES.append(dict(
        schemes=ALL[:1] + list(dice.choice(["megatron-alltoall:capacity_factor=1.25,policy=position",
                                            "megatron-alltoall:capacity_factor=2,policy=position,pad=true"], int(dice.choice([0, 1])))),
        expert=R, sharers=t, gpus=gpus, micro=int(dice.choice([1, 1, 2])), stages=int(dice.choice([1, 1, 1, 2, 4])),
        remat=str(dice.choice(["none", "full", "moe", "moe_act", "selective"])), gradients=str(dice.choice(["fp32", "bf16"])),
        optimizer=str(dice.choice(["distributed", "replicated"])),
        cluster=H200 if dice.integers(2) else dict(bf16_flops=2e15, hbm_bytes_per_s=8e12, link_bytes_per_s=537.6e9, nic_bytes_per_s=25e9),
        imbalance=float(dice.choice([1.0, 1.25, 1.7, 2.0, 3.3, 6.0]))))
rows, of_stated = {}, 0
for number, case in enumerate(CASES):
    job = dict(dict(name=f"case{number}", expert=8, gpus=8, micro=1, stages=1, remat="none", optimizer="distributed", gradients="fp32",
                    part="", cluster=H200, sharers=1, stack=STACK, graph="none", overlap="false", loss="unfused", keys={}), **case)
    job["fsdp"] = 64 // job["expert"] // job["sharers"]
    (scratch / f"case{number}.yaml").write_text(CLUSTER.format(nodes=64 * job["stages"] // job["gpus"], gpus=job["gpus"], **job["cluster"]))
    path = scratch / f"job{number}.yaml"
    path.write_text(JOB.format(**dict(job, keys="\n".join(f"{k}: {json.dumps(v) if v is True else v}" for k, v in job["keys"].items()), schemes=", ".join(f'"{s}"' for s in job["schemes"]))))
    stack = scratch / "floor.yaml" if job["stack"] == "floor" else job["stack"]
    result = json.loads(run("replay", TRACE, "--job", path, "--stack", stack, "--format", "json"))
    check(job["stack"] == "floor" or result["settings"]["stack"] == job["stack"], "the stack is among the settings")
    for scheme, row in zip(job["schemes"], result["rows"]):
        time, want = row["time"], predict(scheme, job, job["cluster"])
        what = f"case {number}, {scheme}"
        rows[number, scheme] = row
        check(near(time["step_s"], want), f"{what}: {time['step_s']} s, not {want}")
        check(near(sum(part["exposed_s"] for part in time["components"].values()), time["step_s"]), f"{what}: components")
        check(min(part["seconds"] for part in time["components"].values()) >= 0, f"{what}: negative seconds")
        check(near(time["tokens_per_s_per_gpu"], T / job["stages"] / time["step_s"]), f"{what}: tokens/s")
        check("capacity_factor" in scheme or job["keys"] or time["step_s"] > time["balanced_step_s"] or near(time["step_s"], time["balanced_step_s"]) and job["stack"] == "floor", f"{what}: real over balanced")
        R, crossed = job["expert"] * job["sharers"], time["between_nodes"]
        check((crossed is not None) == (R > job["gpus"]), f"{what}: between nodes {crossed}")
        if crossed is not None:  # token copies by NICs, by the brute force
            micro = job["micro"]
            most = [max(max(load.nics for load in loads_at(scheme, step, l, range(g * R, (g + 1) * R), m, micro, job["gpus"], job["sharers"]))
                        for g in range(64 // R)) for step in range(2) for l in range(4) for m in range(micro)]
            copied = 2 * H * sum(most) / len(most)
            check(near(crossed["nic_bytes"], copied), f"{what}: {crossed['nic_bytes']} bytes by a NIC, not {copied}")
            check((crossed["nodes"], crossed["rails"]) == (R // job["gpus"], job["gpus"]), f"{what}: {crossed}")
            check(crossed["once_a_node"] == scheme.startswith(("megatron-flex", "megatron-syncfree")), f"{what}: {crossed}")
            moved, again = time["components"]["exchanges"], 0.0
            if job["remat"] in ("full", "moe"):  # half of both passes' exchanges, which have five starts a layer where a forward pass has three
                start = max(SHARED["exchange_start_s"], scaled(job["cluster"], job["stack"])["exchange_latency_s"])
                again = [moved["seconds"] / 2 + start / 2 * micro * n for n in ((MOE,) if job["stages"] == 1 else range(1, MOE + 1))]
            check(any(near(crossed["seconds"], moved["exposed_s"] + a) for a in again or [0.0]) and crossed["half_width"] == SHARED["exchange_half_width"], f"{what}: {crossed}")
        said = " ".join(a for a in row["assumptions"] if a.startswith(scheme + ":"))
        for words, there in (("sizes other than 4", job["expert"] * job["sharers"] != 4 and job["stack"] == STACK), ("counted, not fitted", not job["part"] and job["stack"] == STACK),
                             ("pipelines", job["stages"] > 1 and job["stack"] == STACK),
                             ("between nodes", job["expert"] * job["sharers"] > job["gpus"]),
                             (f"shared by {job['sharers']} GPUs counted, not measured", job["sharers"] > 1), ("scaled from", job["cluster"] is not H200 or job["stack"] != STACK),
                             ("DeepEP", ("flex" in scheme or "syncfree" in scheme) and job["stack"] == STACK),
                             ("all-gather dispatcher", "allgather" in scheme and job["stack"] == STACK)):
            check((words in said) == there, f"{what}: '{words}' said of the fit: {not there}")

    imbalance = min(job.get("imbalance", 0.0), job["expert"])
    if imbalance > 0 and job["micro"] * job["stages"] == 1:  # else it is refused
        of_stated += 1
        time = json.loads(run("plan", "--job", path, "--stack", STACK, "--scheme", ALL[0], "--imbalance", str(imbalance), "--format",
                              "json"))["rows"][0]["time"]
        want = predict(ALL[0], job, job["cluster"], imbalance)
        check(near(time["step_s"], want), f"case {number}, imbalance {imbalance}: {time['step_s']} s, not {want} s: {case}")
check(sum("imbalance" in case for case in CASES) >= 20 and of_stated >= 6, f"random grids of shared experts, {of_stated} stated")

# A layer of multi-token prediction on the stage that sets the pace: a MoE layer more beside seven, a second head and loss, and the
# product [2 H, H] in front of it.
config = json.loads((source / "sim/models/scratch-moe-e64.json").read_text())
(scratch / "mtp.json").write_text(json.dumps(dict(config, num_nextn_predict_layers=1)))
parts = []
for layout in ("Et|tttttttL", "Et|tttttttmL"):
    path = scratch / "mtp.yaml"
    path.write_text((scratch / "job0.yaml").read_text().replace("model: scratch-moe-e64", "model: ./mtp.json").replace("pipeline: 1", "pipeline: 2")
                    .replace("cluster: ./case0.yaml", "cluster: h100-16x8"))
    row = json.loads(run("replay", TRACE, "--job", path, "--stack", WHOLE, "--scheme", "megatron-flex:backend=hybridep", "--format", "json", "--set",
                         f"parallel.pipeline_model_parallel_layout={layout}"))["rows"][0]
    parts.append({name: part["seconds"] for name, part in row["time"]["components"].items()})
for name, times in (("attention_projections", 8 / 7), ("attention", 8 / 7), ("elementwise", 8 / 7), ("launch_gaps", 8 / 7), ("loss", 2),
                    ("head", 2 + 2 * H / VOCAB)):
    check(near(parts[1][name], times * parts[0][name]), f"prediction of tokens: {name} {parts[1][name]} s, not {times} x {parts[0][name]}")
check(parts[1]["expert_products"] > 1.1 * parts[0]["expert_products"], "prediction of tokens: its experts")

# The step of a replay of one step is the step of `--each-step`, and their mean that of both.
each = json.loads(run("replay", TRACE, "--job", scratch / "job0.yaml", "--stack", STACK, "--each-step", "--format", "json",
                      "--scheme", ALL[0]))["rows"]
check(len(each) == 2 and near(sum(r["time"]["step_s"] for r in each) / 2, rows[0, ALL[0]]["time"]["step_s"]), "step by step")
check(each[0]["time"]["step_s"] > each[1]["time"]["step_s"], "the collapsed step takes longer than the recovered one")

# Without a name of Megatron-Core's software there are no times, and the compiled ones are as they are alone.
plain = json.loads(run("replay", TRACE, "--job", scratch / "job0.yaml", "--format", "json"))["rows"]
check(all(row["time"]["step_s"] is None for row in plain), "no --stack, no times")

# plan: balanced over itself, an imbalance, why there is no time.
options = ("--job", scratch / "job0.yaml", "--format", "json", "--scheme", ALL[0], "--stack", STACK)
for number, part in ((0, "te"), (next(i for i, case in enumerate(CASES) if case.get("part")), "h200")):
    itself = json.loads(run("plan", "--job", scratch / f"job{number}.yaml", "--format", "json", "--trace", TRACE))["settings"]["stack"]
    check(itself.startswith("megatron-" + part), f"plan finds the software of what the job trains by itself, not {itself}")
planned = json.loads(run("plan", *options, "--trace", TRACE))
check(near(planned["rows"][0]["time"]["step_s"], rows[0, ALL[0]]["time"]["step_s"]), "plan and replay")
even, twice = (json.loads(run("plan", *options, "--imbalance", x))["rows"][0]["time"] for x in ("1", "2"))
check(near(even["step_s"], even["balanced_step_s"]) and near(even["step_s"], planned["rows"][0]["time"]["balanced_step_s"]),
      "an imbalance of 1 is balanced")
check(even["step_s"] < twice["step_s"] < 2 * even["step_s"], f"an imbalance of 2: {twice['step_s']} over {even['step_s']} s")
balanced = [Load(T * K, T * K, [[T // 8] * 8] * 8, T * 7, T * 7)] * 8
c = scaled(H200)
half, whole, _ = bare_step(c, T, H, F, E, [balanced] * MOE)
want = whole + sum(outside(c, "none", 0, LAYERS, True, T)) + at_the_end(
    c, dict(expert=8, sharers=1, fsdp=8, stages=1, gpus=8, gradients="fp32", optimizer="distributed", keys={}), 0, LAYERS, MOE, H200, [], [])
check(near(even["step_s"], want), f"balanced: {even['step_s']} s, not {want}")
both = run("plan", "--job", source / "sim/jobs/deepseek-v3-mi355x.yaml", "--scheme", "gmm", "--scheme", "megatron-flex", "--stack",
           "maxtext-rocm-2026-05,megatron-h200-2026-11", "--sequences-per-gpu", "1", "--details")
check("no times" not in both and "software  maxtext-rocm-2026-05,megatron-h200-2026-11" in both, f"two kinds of software: {both}")
for scheme, remat, why in (("megablocks", "none", "PyTorch without a time model"), ("megatron-alltoall:align=16", "none", "alignment"),
                           ("megatron-alltoall", "minimal", "no recompute module")):
    path = scratch / "untimed.yaml"
    path.write_text((scratch / "job0.yaml").read_text().replace("remat: none", f"remat: {remat}").replace("distributed", "sharded"))
    said = caller.call([program, "plan", "--job", path, "--scheme", scheme], capture_output=True, text=True).stdout
    check(any(line.startswith("no times") and why in line for line in said.splitlines()), f"{scheme}, remat {remat}: {said}")
for names, why in (("what", STACK), ("megatron-h200-2026-11,megatron-h200-2026-11", "second stack"), (",", "empty place")):
    done = caller.call([program, "replay", TRACE, "--job", scratch / "job0.yaml", "--stack", names], capture_output=True, text=True)
    check(done.returncode == 2 and why in done.stderr, f"--stack {names}: {done.returncode} {done.stderr}")
copy = scratch / "copy.yaml"
copy.write_text((source / f"sim/megatron_stacks/{STACK}.yaml").read_text())
again = json.loads(run("replay", TRACE, "--job", scratch / "job0.yaml", "--stack", copy, "--format", "json"))["rows"][0]
check(near(again["time"]["step_s"], rows[0, ALL[0]]["time"]["step_s"]), "a file is as good as a name")

oracle.finish()
