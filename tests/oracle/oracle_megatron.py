"""Megatron-Core's dispatchers and Primus' sync-free levels (docs/schemes.md, sections 3.5 and 5), token by token. The lists
below are the document's; `play` carries them out."""
import math

from oracle_layer import B, Exchange, Live, Outcome, padded


# --- What is kept (5.1) and how many rows a rank makes of it (5.5) ---

def capacity(g, factor):
    return math.ceil(g.N / g.E * factor)


def kept_choices(g, o):
    factor = o.get("capacity_factor", 0)
    if factor <= 0 or capacity(g, factor) >= g.T:
        return None
    kept, by_position = set(), o.get("policy", "probs") == "position"
    for s, tokens in enumerate(g.tokens):
        for x in range(g.E):
            column = [c for token in tokens for c in token if c.expert == x]
            column.sort(key=lambda c: c.token if by_position else (-c.weight, c.token))
            kept.update(column[:capacity(g, factor)])
    return kept


def travelling(g, kept):
    return g.choices if kept is None else kept


def by_expert(g, n):
    return [sum(row[x] for row in n) for x in range(g.E)]


def local(g, column, d):
    return column[d * g.e:(d + 1) * g.e]


# --- Shapes and lists ---

def sizes(g, M, arrived, sent, direct_map=False):
    """direct_map: of the all-to-all dispatcher, whose maps are those of the sender."""
    T, E, K, H, F, R, e = g.T, g.E, g.K, g.H, g.F, g.R, g.e
    size = {}
    for name in ("sent_rows", "combined_rows"):
        size[name] = sent * H * B
    for name in ("received_rows", "unsorted_rows", "sorted_rows", "unpadded_rows", "restored_rows", "gathered_rows"):
        size[name] = arrived * H * B
    size.update(restored_fp32=arrived * H * 4, fc1_input=M * H * B, fc2_output=M * H * B, output=T * H * B, dx=T * H * B,
                reduced_fp32=T * H * 4, fc1_output=2 * M * F * B, fc2_input=M * F * B, logits=4 * T * E, probs=4 * T * E,
                chosen_probs=4 * T * K, top_probs=4 * T * K, row_probs=4 * M, gathered_probs=4 * R * T * E,
                routing_map=T * E, gathered_map=R * T * E, local_map=arrived * e, prob_mask=arrived * e,
                top_index=8 * T * K, received_index=8 * arrived * K, multihot=8 * arrived * e, sorted_ids=8 * T * E,
                source_index=4 * arrived, sort_id_map=4 * arrived, local_probs=4 * arrived * e, sorted_probs=4 * arrived)
    if direct_map:
        size.update(sent_probs=4 * sent, received_probs=4 * arrived, probs_by_expert=4 * T * E, map_by_expert=T * E,
                    argsort=8 * T * E, permutation=8 * sent, prob_index=8 * sent, row_id_map=4 * T * (2 * E + 1))
    else:
        size.update(received_probs=4 * arrived * K, probs_by_expert=4 * arrived * e, map_by_expert=arrived * e,
                    argsort=8 * arrived * e, permutation=8 * M, row_id_map=4 * arrived * (2 * e + 1))
    return size


def play(size, keeping, backward):
    live = Live()
    for part in (keeping, backward):
        for word in part.split():
            name = word[1:]
            if word[0] == "-":
                live.end(name)
            else:
                plain = name[2:] if name.startswith("d_") and name != "dx" else name
                live.make(**{name: size[plain]})
        if part is keeping:
            live.save()
    return live.finish()


def with_remat(case, keeping, backward):
    """moe_act makes fc2_input again."""
    if case.remat != "moe_act":
        return keeping, backward
    return (keeping.replace("+fc2_output", "+fc2_output -fc2_input"),
            backward.replace("+d_fc2_input", "+fc2_input +d_fc2_input"))


FC = "+fc1_output +fc2_input +fc2_output"
FC_BACKWARD = """+d_fc2_input -fc2_input -d_fc2_output +d_fc1_output +d_row_probs -fc1_output -d_fc2_input -row_probs
    +d_fc1_input -d_fc1_output -fc1_input"""
ROUTER_BACKWARD = "+d_logits -d_probs -logits -chosen_probs -d_logits"


def exchanges(case, dispatch, combine, combine_gradient, dispatch_gradient):
    passes = ("forward", "recompute") if case.repeats else ("forward",)
    return [Exchange(p, back, size) for p in passes for back, size in ((False, dispatch), (True, combine))] + [
        Exchange("backward", False, combine_gradient), Exchange("backward", True, dispatch_gradient)]


# --- 5.2 all-to-all; 3.5 level 1 ---

def alltoall(g, o, fused=False):
    kept, align = kept_choices(g, o), int(o.get("align", 1))
    router_pays = fused or o.get("pay", "experts") == "router"
    n = g.column(travelling(g, kept))
    if o.get("pad") == "true":
        n = [[min(capacity(g, o["capacity_factor"]), g.T)] * g.E for _ in range(g.R)]
    elif router_pays:
        n = [[min(g.T, padded(k, align)) for k in row] for row in n]
    wire = [[sum(local(g, row, d)) for d in range(g.R)] for row in n]
    column, tile = by_expert(g, n), 1 if router_pays else align
    rows = [sum(padded(k, tile) for k in local(g, column, d)) for d in range(g.R)]
    there, back = g.H * B + 4, g.H * B
    out = Outcome(wire, rows, kept, exchanges(g.case, there, back, back, there), None)
    copies = not router_pays and align > 1
    out.memory = lambda d: alltoall_memory(g, rows[d], out.received(d), out.sent(d), o.get("pad") == "true", copies, fused)
    return out


def alltoall_memory(g, M, arrived, sent, pad, copies, fused):
    many = g.e > 1
    if fused:
        router, permute = "+logits +probs +routing_map", "+row_id_map +sent_probs +sent_rows"
        permute_end, router_end, last = "-row_id_map", "+d_logits -d_probs -logits -d_logits", "-probs -routing_map -dx"
    else:
        router = "+logits +chosen_probs +probs +routing_map"
        permute = """+map_by_expert +argsort +permutation +probs_by_expert +sent_probs -probs_by_expert +sent_rows
            -map_by_expert"""
        permute_end, router_end = "-argsort", ROUTER_BACKWARD
        last = "-probs -routing_map -permutation -dx"
        if pad:
            permute = permute.replace("+permutation", "+permutation -argsort +prob_index")
            permute_end = "-prob_index"
    # x is what stands before the experts' copies, if any; with one expert what arrives is not sorted
    arrive, arrive_probs = ("received_rows", "received_probs") if many or copies else ("fc1_input", "row_probs")
    sort = sort_end = unsort = unsort_gradient = ""
    x, x_probs, y = arrive, arrive_probs, "fc2_output"
    pad_step = pad_gradient = unpad = unpad_gradient = held = ""
    if many:
        x, x_probs = ("sorted_rows", "sorted_probs") if copies else ("fc1_input", "row_probs")
        sort = f"+{x} +{x_probs}" + (" +sort_id_map" if fused else "")
        sort_end = f"+d_received_rows -d_{x} +d_received_probs -d_{x_probs}" + (" -sort_id_map" if fused else "")
    if copies:
        pad_step = "+fc1_input +row_probs"
        pad_gradient = f"+d_{x} -d_fc1_input +d_{x_probs} -d_row_probs"
        unpad, unpad_gradient, y = "+unpadded_rows -fc2_output", "+d_fc2_output -d_unpadded_rows", "unpadded_rows"
        held = f"-{x} -{x_probs}" if many else ""
    made = y
    if many:
        unsort, unsort_gradient = f"+unsorted_rows -{y} {held}", f"+d_{y} -d_unsorted_rows"
        y = "unsorted_rows"
    ends = "-received_rows -received_probs" if arrive == "received_rows" else ""
    keeping = f"""{router} {permute} +{arrive} +{arrive_probs} -sent_probs {sort} {pad_step} {FC} {unpad} {unsort}
        +combined_rows -{y} +output -combined_rows -sent_rows {ends} -output"""
    backward = f"""+d_combined_rows +d_{y} -d_combined_rows {unsort_gradient} {unpad_gradient} {FC_BACKWARD} {pad_gradient}
        {sort_end} +d_sent_probs -d_{arrive_probs} +d_sent_rows -d_{arrive} +dx -d_sent_rows +d_probs -d_sent_probs
        {permute_end} {router_end} {last}"""
    if many and g.R == 1:  # the all-to-alls hand on what they get: no tensors of their own
        unsort_gradient = f"+d_{made} -d_combined_rows"
        keeping = f"""{router} {permute} {sort} {pad_step} {FC} {unpad} {unsort}
            +output -unsorted_rows -sent_rows -sent_probs -output"""
        backward = f"""+d_combined_rows {unsort_gradient} {unpad_gradient} {FC_BACKWARD} {pad_gradient}
            {sort_end} +d_sent_probs -d_received_probs +dx -d_received_rows +d_probs -d_sent_probs
            {permute_end} {router_end} {last}"""
    return play(sizes(g, M, arrived, sent, direct_map=True), *with_remat(g.case, keeping, backward))


# --- 5.3 all-gather ---

def allgather(g, o):
    kept = kept_choices(g, o)
    column = by_expert(g, g.column(travelling(g, kept)))
    rows = [sum(local(g, column, d)) for d in range(g.R)]
    wire = [[g.T] * g.R for _ in range(g.R)]
    row = exchanges(g.case, g.H * B + 5 * g.E, 4 * g.H, 4 * g.H, g.H * B + 4 * g.E)
    return Outcome(wire, rows, kept, row, lambda d: allgather_memory(g, rows[d]))


def allgather_memory(g, M):
    keeping = f"""+logits +chosen_probs +probs +routing_map +gathered_map +gathered_probs +gathered_rows -probs
        +local_map +local_probs +map_by_expert +argsort +permutation +fc1_input -map_by_expert -argsort +probs_by_expert
        +prob_mask +row_probs -local_probs -gathered_map {FC} +restored_rows -fc2_output
        +restored_fp32 +reduced_fp32 -restored_fp32 +output -reduced_fp32 -restored_rows
        -gathered_rows -gathered_probs -routing_map -output"""
    backward = f"""+gathered_rows +d_reduced_fp32 +d_restored_fp32 -d_reduced_fp32 +d_restored_rows -d_restored_fp32
        +d_fc2_output -d_restored_rows {FC_BACKWARD} +d_probs_by_expert -d_row_probs -probs_by_expert -prob_mask
        +d_gathered_probs -d_probs_by_expert +d_gathered_rows -d_fc1_input +dx -d_gathered_rows +d_probs -d_gathered_probs
        {ROUTER_BACKWARD} -local_map -permutation -gathered_rows -dx"""
    return play(sizes(g, M, g.R * g.T, g.T), *with_remat(g.case, keeping, backward))


# --- 5.4 flex; 3.5 levels 2 and 3 ---

def deepep_buffers(g, processors):
    """4.3"""
    R, c = g.R, processors // 2
    m, k, z = min(R, 8), -(-R // 8), g.H * max(B, 2) + 8 + 2048
    size = padded(c * m * (2 * k + 3) * 4 + c * m * (256 if R <= 8 else 288) * z, 128)
    if R > 8:
        size += padded(144 * c * k + 2 * c * k * (140 if R <= 16 else 128) * (z + 16), 128)
    return size


def hybrid_buffers(g):
    """4.8; the buffers count whole blocks of 128 numbers."""
    near, nodes = min(g.R, g.node), -(-g.R // g.node)
    row, weights, scales = g.H * B, 4 * g.e * near, 4 * (g.H // 128)
    size = g.R * g.T * (row + weights + scales)
    if nodes > 1:
        size += g.T * (row + 4 * g.E + scales) + (nodes - 1) * g.T * (3 * (row + weights) + scales)
    return size


def deepep_rows(g):
    """Bytes there, back, of the gradient of combine and of dispatch."""
    row, K = g.H * B, g.K
    if g.R > g.node:
        return [padded(row + 8 + extra, 16) for extra in (8 * K, 0, 0, 4 * K)]
    return [row + 12 * K + 4, row + 4, row + 4, row + 4 * K + 4]


def flex(g, o):
    kept, align, hybrid = kept_choices(g, o), int(o.get("align", 1)), o.get("backend", "deepep") == "hybridep"
    travel = travelling(g, kept)
    wire, column = g.distinct(travel), by_expert(g, g.column(travel))
    rows = []
    for d in range(g.R):
        mine, arrived = local(g, column, d), sum(row[d] for row in wire)
        grown = [padded(k, align) for k in mine]
        rows.append(sum(mine if not hybrid and any(k > arrived for k in grown) else grown))
    if hybrid:
        row, weights = g.H * B, 4 * g.e * min(g.R, g.node)
        out = Outcome(wire, rows, kept, exchanges(g.case, row + weights, row, row, row + weights), None, True)
        out.communication = hybrid_buffers(g)
        out.memory = lambda d: hybrid_memory(g, rows[d])
        return out
    out = Outcome(wire, rows, kept, exchanges(g.case, *deepep_rows(g)), None, True, deepep_buffers(g, 20))
    out.memory = lambda d: flex_memory(g, rows[d], out.received(d))
    return out


def of_a_limit(g, o):
    """5.6: what has no place is dropped; all of it travels."""
    align = int(o.get("align", 1))
    limit = padded(int(g.N * o["rank_capacity"]), align)
    kept, rows = set(), []
    for d in range(g.R):
        start = 0
        for x in range(d * g.e, (d + 1) * g.e):
            column = sorted(g.of_expert[x], key=lambda c: (c.source, c.token))
            kept.update(column[:max(limit - start, 0)])
            start += padded(len(column), align)
        rows.append(min(start, limit))
    row, weights = g.H * B, 4 * g.e * min(g.R, g.node)
    out = Outcome(g.all_distinct, rows, kept, exchanges(g.case, row + weights, row, row, row + weights), None, True)
    out.travel, out.communication = g.choices, hybrid_buffers(g)
    out.memory = lambda d: hybrid_memory(g, limit)
    return out


def ncclep(g, o):
    """5.7: HybridEP's rule of places, and before it a slot on the rank for every token that is sent there."""
    align, near, sendable = int(o.get("align", 1)), min(g.R, g.node), padded(g.T, 64)
    limit = padded(int(sendable * g.K * o.get("rank_capacity", 0)), align) or None
    kept, travel, rows = set(), [], []
    for d in range(g.R):
        mine = g.of_rank[d]
        arrivals = list(dict.fromkeys((c.source, c.token) for c in mine))[:limit]
        mine_sent = set(arrivals)
        travel += [c for c in mine if (c.source, c.token) in mine_sent]
        start = 0
        for x in range(d * g.e, (d + 1) * g.e):
            column = sorted((c for c in mine if c.expert == x), key=lambda c: (c.source, c.token))
            kept.update(c for place, c in enumerate(column)
                        if limit is None or (start + place < limit and (c.source, c.token) in mine_sent))
            start += padded(len(column), align)
        rows.append(start if limit is None else min(start, limit))
    row, weights = g.H * B, 4 * g.e * near
    out = Outcome(g.distinct(travel), rows, kept, exchanges(g.case, row + weights, row, row, row + weights), None, True)
    slots = limit or g.R * sendable * g.K
    out.travel, out.communication = travel, nccl_buffers(g, slots)
    out.memory = lambda d: nccl_memory(g, limit or rows[d], nccl_handle(g, slots))
    return out


def nccl_handle(g, slots):
    near, T = min(g.R, g.node), padded(g.T, 64)
    nodes = g.R // near
    tables = [nodes * T, (nodes - 1) * T, slots * g.e, 4, 4 * nodes * T * near, 8 * -(-near // 64) * nodes * T * near,
              4 * T * g.E * (nodes == 1), 8 * T * g.K, 4 * g.e, 8 * (g.e + 1), 4 * slots * g.K, 4 * slots * g.K, 4 * T * g.R]
    return sum(padded(t, 256) for t in tables)


def nccl_buffers(g, slots):
    near, T, row = min(g.R, g.node), padded(g.T, 64), g.H * B
    nodes, weights = g.R // near, 4 * g.e * near
    size = 2 * padded(g.R * T * row, 256) + 2 * padded(slots * weights, 256) + padded(slots * row, 256)
    size += g.R * T * nodes * -(-g.e * near // 8) + 2**25
    if nodes > 1:
        others = nodes - 1
        pieces = [T * others * row] * 2 + [T * others * weights] * 2 + [8 * others * (T // 64)] * 2 + [8 * nodes] * 2
        pieces += [T * row, 4 * T * g.E] + [others * T * (row + weights)] * 2
        size += sum(padded(p, 4096) for p in pieces)
    return size


def nccl_memory(g, M, handle):
    keeping = f"""+logits +chosen_probs +probs +routing_map +top_probs +top_index -probs +handle +fc1_input +row_probs {FC}
        +output -fc2_output -routing_map -output"""
    backward = f"""+d_fc2_output {FC_BACKWARD} +dx +d_top_probs -d_fc1_input -d_row_probs -handle +d_probs -d_top_probs
        {ROUTER_BACKWARD} -top_probs -top_index -dx"""
    return play(dict(sizes(g, M, g.R * g.T, g.T), handle=handle), *with_remat(g.case, keeping, backward))


def takes_nccl_ep(case):
    """Two ranks, whole nodes, a power of two of experts, of a node a multiple of 4."""
    each, near = case.experts // case.expert, min(case.expert, case.gpus_per_node)
    return case.expert > 1 and case.expert % near == 0 and each & (each - 1) == 0 and each * near % 4 == 0


def flex_memory(g, M, arrived):
    keeping = f"""+logits +chosen_probs +probs +routing_map +top_probs +top_index -probs
        +received_rows +received_index +received_probs +source_index +multihot +local_probs +local_map -multihot
        +map_by_expert +argsort +permutation +probs_by_expert +row_probs -probs_by_expert +fc1_input -map_by_expert {FC}
        +restored_rows -fc2_output +output -restored_rows -received_index -local_probs
        -received_rows -received_probs -routing_map -output"""
    backward = f"""+d_restored_rows +d_fc2_output -d_restored_rows {FC_BACKWARD} +d_received_rows -d_fc1_input +d_local_probs
        -d_row_probs -argsort +d_received_probs -d_local_probs +dx +d_top_probs -d_received_rows -d_received_probs
        -source_index +d_probs -d_top_probs -top_index {ROUTER_BACKWARD} -top_probs -local_map -permutation -dx"""
    return play(sizes(g, M, arrived, g.T), *with_remat(g.case, keeping, backward))


def hybrid_memory(g, M):
    keeping = f"+logits +chosen_probs +probs +routing_map +fc1_input +row_probs {FC} +output -fc2_output -output"
    backward = f"""+d_fc2_output {FC_BACKWARD} +dx +d_probs -d_fc1_input -d_row_probs {ROUTER_BACKWARD} -probs -routing_map
        -dx"""
    return play(sizes(g, M, g.R * g.T, g.T), *with_remat(g.case, keeping, backward))


def syncfree(g, o):
    level, align = int(o.get("level", 2)), int(o.get("align", 1))
    if level == 1:
        return alltoall(g, o, fused=True)
    column = by_expert(g, g.n)
    rows = [sum(padded(k, align) for k in local(g, column, d)) for d in range(g.R)]
    out = Outcome(g.all_distinct, rows, None, exchanges(g.case, *deepep_rows(g)), None, True, deepep_buffers(g, 32))
    out.memory = lambda d: syncfree_memory(g, rows[d] if level == 2 else g.R * g.T * g.K)
    return out


def syncfree_memory(g, M):
    keeping = f"""+logits +probs +routing_map +sorted_ids +top_probs +top_index +received_rows +received_index +received_probs
        +source_index +row_id_map +fc1_input +row_probs {FC} +restored_rows -fc2_output +output -restored_rows -received_index
        -top_index -received_rows -received_probs -routing_map -output"""
    backward = f"""+d_restored_rows +d_fc2_output -d_restored_rows {FC_BACKWARD} +d_received_rows -d_fc1_input +d_received_probs
        -d_row_probs -row_id_map +dx +d_top_probs -d_received_rows -d_received_probs -source_index
        +d_probs -d_top_probs -sorted_ids -probs +d_logits -d_probs -logits -d_logits -top_probs -dx"""
    return play(sizes(g, M, g.R * g.T, g.T), *with_remat(g.case, keeping, backward))


# --- 3.7 MegaMoE ---

def megamoe(g, o):
    column = by_expert(g, g.n)
    rows = [sum(padded(k, 256) for k in local(g, column, d)) for d in range(g.R)]
    there, back = [("forward", False, 12), ("forward", True, 0)], [("backward", False, 0), ("backward", True, 4), ("backward", False, 0)]
    again = [("recompute", False, 12), ("recompute", True, 0)] if g.case.repeats else []
    out = Outcome(g.all_pairs, rows, None, [Exchange(p, b, g.H * B + more) for p, b, more in there + again + back], None)
    tokens, row = padded(g.T, 128), g.H * B
    P = padded(g.R * tokens * min(g.K, g.e) + 255 * g.e, 256)
    heap = [32, P * row, P * row, tokens * g.K * row, 2 * P // 256 * 8, 2 * P // 256 * 8, 2 * tokens * g.K * 8, 4 * g.R * g.E,
            4 * P, 4 * P, 4 * P, 4 * tokens * g.K]
    out.communication = sum(padded(piece, 256) for piece in heap)
    out.memory = lambda d: megamoe_memory(g, P)
    return out


def megamoe_memory(g, P):
    size = dict(sizes(g, P, 0, 0), handle=8 * P + P // 64 + 28 * g.E + 16 * g.e + 12, weighted_input=P * g.F * B)
    keeping = """+logits +chosen_probs +probs +routing_map +top_probs +top_index +handle +fc1_output +row_probs +fc2_input +output
        -fc2_input -probs -routing_map -top_probs -output"""
    backward = """+d_fc2_input +d_fc1_output +d_row_probs +weighted_input -d_fc2_input -weighted_input -fc1_output -row_probs
        +dx +d_top_probs -d_fc1_output -d_row_probs -handle +d_probs -d_top_probs -top_index +d_logits -d_probs -logits
        -chosen_probs -d_logits -dx"""
    return play(size, keeping, backward)


SCHEMES = {"megatron-alltoall": alltoall, "megatron-allgather": allgather, "megatron-flex": flex,
           "megatron-syncfree": of_a_limit, "megatron-ncclep": ncclep, "primus-syncfree": syncfree,
           "primus-megamoe": megamoe}
NEED_WEIGHTS = tuple(f"megatron-{name}:capacity_factor=1,policy=probs" for name in ("alltoall", "allgather", "flex"))


def random_schemes(rng, case):
    factor = round(float(rng.uniform(0.2, 1.5)), 3)
    align = int(rng.choice([16, 16, 32, 128]))
    schemes = ["megatron-alltoall", f"megatron-alltoall:align={align}", f"megatron-alltoall:align={align},pay=router",
               "megatron-allgather", "megatron-flex", f"megatron-flex:align={align}", "primus-syncfree:level=1",
               "primus-syncfree:level=2", "primus-syncfree:level=3"]
    for policy in ("probs", "position"):
        rule = f"capacity_factor={factor},policy={policy}"
        schemes += [f"megatron-alltoall:{rule}", f"megatron-alltoall:{rule},align={align}", f"megatron-allgather:{rule}",
                    f"megatron-alltoall:{rule},align={align},pay=router", f"megatron-flex:{rule}"]
        if math.ceil(case.tokens * case.top_k / case.experts * factor) <= case.tokens:
            schemes += [f"megatron-alltoall:{rule},pad=true", f"megatron-alltoall:{rule},pad=true,align={align}"]
    if case.expert <= case.gpus_per_node or case.expert % case.gpus_per_node == 0:
        schemes += ["megatron-flex:backend=hybridep", f"megatron-flex:backend=hybridep,align={align},capacity_factor={factor}",
                    f"megatron-syncfree:rank_capacity={factor}", f"megatron-syncfree:rank_capacity={factor},align={align}"]
    if takes_nccl_ep(case):
        least = math.ceil(1000 / case.top_k) / 1000
        schemes += ["megatron-ncclep", f"megatron-ncclep:align={align}", f"megatron-ncclep:rank_capacity={least}",
                    f"megatron-ncclep:rank_capacity={max(least, factor)},align={align}"]
    a = int(rng.choice([16, 32]))
    schemes += [f"primus-syncfree:level=1,align={a}", f"primus-syncfree:level=2,align={a}"]
    return schemes


def real_schemes(case):
    nccl = ["megatron-ncclep:align=16", "megatron-ncclep:rank_capacity=1.1,align=16"] if takes_nccl_ep(case) else []
    return nccl + ["megatron-alltoall", "megatron-alltoall:align=16,pay=router", "megatron-alltoall:align=32",
            "megatron-alltoall:capacity_factor=1,policy=position", "megatron-allgather", "megatron-flex",
            "megatron-flex:align=16", "megatron-flex:backend=hybridep,align=32", "megatron-syncfree:rank_capacity=1.1,align=16", "primus-syncfree:level=1",
            "primus-syncfree:level=2,align=16", "primus-syncfree:level=3"]
