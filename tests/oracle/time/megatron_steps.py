"""The time of a step of a Megatron-Core job on scratch-moe-e64: the formulas of sim/time/megatron/megatron_time.h and megatron_job_time.h
written again, on loads that are counted token by token."""
import functools
import itertools
import pathlib
import sys

import h5py
import numpy as np

from oracle_megatron_time import Load, figures, step as bare_step

program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "megatron_job_oracle"
scratch.mkdir(exist_ok=True)
TRACE = source / "traces/data/training_aux_e64_slice.h5"
STACK, WHOLE = "megatron-h200-2026-11", "megatron-te-h100-2026-11"
H100 = dict(bf16_flops=9.894e14, hbm_bytes_per_s=3.35e12, link_bytes_per_s=450e9, nic_bytes_per_s=50e9)
H200 = dict(bf16_flops=9.894e14, hbm_bytes_per_s=4.8e12, link_bytes_per_s=450e9, nic_bytes_per_s=50e9)
# The model scratch-moe-e64: 8 layers, the first of them dense; 12 heads of 64.
T, H, F, E, K, LAYERS, MOE, HEADS, HEAD, VOCAB, DENSE, S = 1024, 768, 384, 64, 8, 8, 7, 12, 64, 16384, 3072, 512
ATTENTION, ROUTER, EXPERT = 4 * H * HEADS * HEAD, E * H, 3 * H * F
# What all stacks share of exchanges between nodes; the rest the oracle has by itself.
SHARED = {k: v for k, v in figures((source / "sim/stack_defaults/megatron.yaml").read_text()).items() if k.startswith("exchange_")}

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
