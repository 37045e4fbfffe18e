"""DeepEP and what is built on it: ragged-deepep, moe-dedup, deepep, deepep-ll, hybrid-ep (docs/schemes.md, sections 3.4, 3.6
and 4), token by token."""
import pathlib
import sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_layer import B, Exchange, Live, Outcome, padded
from oracle_megatron import by_expert, deepep_buffers, hybrid_buffers, local


def exchanges(g, dispatch, combine, combine_gradient, dispatch_gradient, combine_again=True):
    passes = [Exchange("forward", False, dispatch), Exchange("forward", True, combine)]
    if g.case.repeats:
        passes += [Exchange("recompute", False, dispatch)] + [Exchange("recompute", True, combine)] * combine_again
    return passes + [Exchange("backward", False, combine_gradient), Exchange("backward", True, dispatch_gradient)]


def scales(H):
    return 4 * -(-H // 128)


def deepep_row(g, numbers, index_bytes=0, weights=False):
    """numbers: bytes of the numbers themselves. Across nodes indices have 4 bytes, and a row whole 16 bytes."""
    across = g.R > g.node
    size = numbers + g.K * (min(index_bytes, 4) if across else index_bytes) + 4 * g.K * weights
    return padded(size + 8, 16) if across else size + 4


# --- 3.4 ragged-deepep ---

def ragged_deepep(g, o):
    column = by_expert(g, g.n)
    rows = [sum(local(g, column, d)) for d in range(g.R)]
    row = g.H * B
    sizes = [deepep_row(g, row, 4, True), deepep_row(g, row), deepep_row(g, row), deepep_row(g, row, 0, True)]
    out = Outcome(g.all_distinct, rows, None, exchanges(g, *sizes, combine_again=False), None, True, deepep_buffers(g, 32))
    out.memory = lambda d: ragged_dot_memory(g, g.R * g.T * min(g.e, g.K))
    return out


def ragged_dot_memory(g, W):
    """2.5: a product has a masked operand of its own, its gradient two. Between R T tokens that a rank has of all and W rows."""
    H, F, gathered, live = g.H, g.F, g.R * g.T, Live()
    wide, narrow = dict(wide=g.e * W * H * B), dict(narrow=g.e * W * F * B)
    live.make(received=gathered * H * B).make(x=W * H * B)
    live.turn(dict(w0_out=W * F * B, **wide), "wide").turn(dict(w1_out=W * F * B, **wide), "wide").make(act=W * F * B)
    live.turn(dict(y=W * H * B, **narrow), "narrow").turn(dict(y_unsorted=W * H * B), "y").save()
    live.make(d_fanned_in=gathered * H * B).turn(dict(dy_unsorted=W * H * B), "d_fanned_in", "y_unsorted")
    live.turn(dict(dy=W * H * B), "dy_unsorted")
    live.turn({**wide, **narrow}, "wide", "narrow", "dy")  # d_act in the place of act
    live.end("w0_out")                                     # d_w0_out and d_w1_out in the places of act and w1_out
    live.turn(dict(dx_w1=W * H * B, **wide, **narrow), "wide", "narrow", "w1_out")
    live.turn(dict(dx_w0=W * H * B, **wide, **narrow), "wide", "narrow", "act", "x", "dx_w1")
    live.turn(dict(d_received=gathered * H * B), "dx_w0")
    return live.end("d_received", "received").finish()


# --- 3.6 moe-dedup ---

def moe_dedup(g, o):
    shards = int(o.get("max_shards", 0))
    shards = min(g.R, g.K) if shards == 0 else min(shards, g.R)
    everything = g.R * g.T * g.K
    first = min(int(g.N * o["buffer_factor"]), everything)
    second = min(int(g.N * o.get("overflow_factor", 0)), everything - first)
    sent = []
    for tokens in g.tokens:
        for token in tokens:
            to = sorted({g.owner(c.expert) for c in token})[:shards]
            sent += [c for c in token if g.owner(c.expert) in to]
    kept, rows = set(), []
    for mine in g.by_rank(sent):
        mine.sort(key=lambda c: (c.expert, c.source, c.token, c.slot))
        mine = mine[:first + second]
        rows.append(len(mine))
        kept.update(mine)
    row, meta = g.H * B, 8 * g.K
    passes = exchanges(g, row + meta, row, row, row + meta, combine_again=False)
    return Outcome(g.distinct(sent), rows, kept, passes, lambda d: moe_dedup_memory(g, g.T * shards, (first, second)))


def moe_dedup_memory(g, send, tiers):
    H, F, K, gathered, live = g.H, g.F, g.K, g.R * g.T, Live()
    tiers = [C for C in tiers if C > 0]
    live.make(send_meta=send * 2 * K * 4).make(send=send * H * B)
    live.turn(dict(received=gathered * H * B), "send").turn(dict(received_meta=gathered * 2 * K * 4), "send_meta")
    for i, C in enumerate(tiers):
        live.make(**{f"x{i}": C * H * B}).make(**{f"row_weight{i}": 4 * C})
        if i == len(tiers) - 1:
            live.end("received", "received_meta")
        live.make(**{f"fc1_out{i}": 2 * C * F * B}).make(**{f"act{i}": C * F * B})
    live.save()
    live.make(d_returned=send * H * B).turn(dict(d_summed=gathered * H * B), "d_returned")
    for i, C in enumerate(tiers):
        live.make(**{f"dy{i}": C * H * B})
    live.end("d_summed")
    for i, C in reversed(list(enumerate(tiers))):
        live.turn({f"d_act{i}": C * F * B}, f"act{i}", f"dy{i}")
        live.turn({f"d_fc1_out{i}": 2 * C * F * B, f"d_row_weight{i}": 4 * C}, f"d_act{i}", f"fc1_out{i}", f"row_weight{i}")
        live.turn({f"dx{i}": C * H * B}, f"x{i}", f"d_fc1_out{i}")
        live.make(**{f"d_received{i}": gathered * H * B, f"d_received_meta{i}": gathered * 2 * K * 4})
        live.end(f"dx{i}", f"d_row_weight{i}")
    if len(tiers) == 2:
        live.end("d_received1", "d_received_meta1")
    live.turn(dict(dx_returned=send * H * B), "d_received0").turn(dict(d_meta_returned=send * 2 * K * 4), "d_received_meta0")
    return live.end("dx_returned", "d_meta_returned").finish()


# --- 4.4 deepep ---

def elastic_buffer(g, fp8):
    """4.3, version 2."""
    T, K, near = g.T, g.K, min(g.R, g.node)
    there = padded(g.H * (1 if fp8 else 2), 32) + (padded(4 * -(-g.H // 32), 32) if fp8 else 0) + padded(12 * K + 4, 32)
    back, nodes = padded(2 * g.H, 32) + padded(8 * K, 32), g.R // near
    slots = T + 8 * 160
    if nodes == 1:
        return padded(max(g.R * T * there, min(g.R, K) * T * back), 2**21)
    return padded(max((g.R * T + T + nodes * slots) * there,
                      (min(near, K) * nodes * T + min(nodes, K) * T + nodes * slots) * back), 2**21)


def deepep(g, o):
    fp8, pad = o.get("dtype", "bf16") == "fp8", int(o.get("pad", 1))
    column = by_expert(g, g.n)
    rows = [sum(padded(k, pad) for k in local(g, column, d)) for d in range(g.R)]
    row = g.H * B
    narrow = g.H + scales(g.H) if fp8 else row
    sizes = [deepep_row(g, narrow, 8, True), deepep_row(g, row), deepep_row(g, narrow), deepep_row(g, row, 0, True)]
    out = Outcome(g.all_distinct, rows, None, exchanges(g, *sizes), None, True,
                  elastic_buffer(g, fp8) if o.get("buffers") == "v2" else deepep_buffers(g, 20))
    out.memory = lambda d: deepep_memory(g, rows[d], out.received(d), fp8)
    return out


def deepep_memory(g, M, U, fp8):
    H, F, K, T, R, live = g.H, g.F, g.K, g.T, g.R, Live()
    tokens = lambda name, rows: {name: rows * H, name + "_scales": rows * scales(H)} if fp8 else {name: rows * H * B}
    names = lambda name: [name, name + "_scales"] if fp8 else [name]
    live.make(is_token_in_rank=T * R)
    live.make(**tokens("received", U), source=4 * U, send_head=4 * T * R, index=8 * U * K, weight=4 * U * K)
    live.turn(dict(row_slot=8 * M, row_weight=4 * M, **tokens("x", M)), *names("received"))
    live.make(fc1_out=2 * M * F * B).make(act=M * F * B).make(y=M * H * B)
    live.turn(dict(summed=U * H * B), "summed", "index", "weight").save()
    live.make(**tokens("d_summed", U))
    live.turn(dict(**tokens("dy", M), d_row_weight=4 * M), *names("d_summed"), "y", "row_weight")
    live.turn(dict(d_act=M * F * B), "act", *names("dy")).turn(dict(d_fc1_out=2 * M * F * B), "d_act", "fc1_out")
    live.turn(dict(dx=M * H * B), *names("x"), "d_fc1_out")
    live.turn(dict(d_received=U * H * B, d_weight=4 * U * K), "dx", "d_row_weight", "row_slot")
    return live.end("d_received", "d_weight", "is_token_in_rank", "source", "send_head").finish()


# --- 4.5 deepep-ll ---

def deepep_ll(g, o):
    fp8, slots = o.get("dtype", "fp8") == "fp8", int(o.get("max_tokens", 0)) or g.T
    column = by_expert(g, g.n)
    rows = [sum(local(g, column, d)) for d in range(g.R)]
    message = 16 + (g.H + scales(g.H) if fp8 else g.H * B)
    out = Outcome(g.all_pairs, rows, None, exchanges(g, message, g.H * B, message, g.H * B), None)
    whole = 4 * (g.H // 128)  # the hint counts whole scales
    back, there = whole + 2 * g.H, 16 + max(2 * g.H, g.H + whole)
    total = 2 * max(slots * there, g.E * slots * back) + 2 * g.E * slots * max(back, there) + 2 * padded(4 * g.E, 128)
    out.communication = (total // 128 + 1) * 128
    out.memory = lambda d: deepep_ll_memory(g, g.e * g.R * slots, fp8)
    return out


def deepep_ll_memory(g, M, fp8):
    H, F, N, live = g.H, g.F, g.N, Live()
    tokens = lambda name: {name: M * H, name + "_scales": M * scales(H)} if fp8 else {name: M * H * B}
    names = lambda name: [name, name + "_scales"] if fp8 else [name]
    live.make(**tokens("x"), source=4 * M).make(fc1_out=2 * M * F * B).make(act=M * F * B).make(y=M * H * B)
    live.turn(dict(returned=N * H * B), "y").save()
    live.turn(dict(d_returned=N * H * B), "returned").turn(tokens("dy"), "d_returned")
    live.turn(dict(d_act=M * F * B), "act", *names("dy")).turn(dict(d_fc1_out=2 * M * F * B), "d_act", "fc1_out")
    live.turn(dict(dx=M * H * B), *names("x"), "d_fc1_out").turn(dict(dx_returned=N * H * B), "dx")
    return live.end("dx_returned", "source").finish()


# --- 4.8 hybrid-ep ---

def hybrid_ep(g, o):
    pad = int(o.get("pad", 1))
    budget = padded(int(g.N * o["budget"]), pad) if o.get("budget", 0) > 0 else None
    kept, rows = set(), []
    for d in range(g.R):
        start = 0
        for x in range(d * g.e, (d + 1) * g.e):
            column = sorted(g.of_expert[x], key=lambda c: (c.source, c.token))
            kept.update(c for place, c in enumerate(column, start) if budget is None or place < budget)
            start += padded(len(column), pad)
        rows.append(start if budget is None else min(start, budget))
    row, weights = g.H * B, 4 * g.e * min(g.R, g.node)
    out = Outcome(g.all_distinct, rows, kept, exchanges(g, row + weights, row, row, row + weights), None, True)
    out.travel = g.choices
    out.communication = hybrid_buffers(g)
    out.memory = lambda d: hybrid_ep_memory(g, rows[d] if budget is None else budget)
    return out


def hybrid_ep_memory(g, M):
    H, F, gathered, live = g.H, g.F, g.R * g.T, Live()
    live.make(global_map=gathered * g.E, sparse=g.T * g.R * 4, local_map=gathered * g.e, dense=gathered * g.e * 4)
    live.end("global_map").make(x=M * H * B, row_weight=4 * M).make(fc1_out=2 * M * F * B).make(act=M * F * B)
    live.turn(dict(y=M * H * B), "y").save()
    live.make(dy=M * H * B).turn(dict(d_act=M * F * B), "act", "dy")
    live.turn(dict(d_fc1_out=2 * M * F * B, d_row_weight=4 * M), "d_act", "fc1_out", "row_weight")
    live.turn(dict(dx=M * H * B), "x", "d_fc1_out")
    return live.end("dx", "d_row_weight", "sparse", "local_map", "dense").finish()


# --- 6.7 torchtitan behind HybridEP ---

def titan_hybrid(g, o):
    """4.8's rows and wire within a part of the most that can come, torchtitan's experts, scores behind them."""
    pad, most = int(o.get("pad", 1)), g.R * g.T * min(g.K, g.e)
    budget = padded(int(most * o["capacity"]), pad) if o.get("capacity", 0) > 0 else None
    out = hybrid_ep(g, dict(pad=pad, budget=0) if budget is None else dict(pad=1, budget=0))
    if budget is not None:
        out.kept, out.rows = set(), []
        for d in range(g.R):
            start = 0
            for x in range(d * g.e, (d + 1) * g.e):
                column = sorted(g.of_expert[x], key=lambda c: (c.source, c.token))
                out.kept.update(c for place, c in enumerate(column, start) if place < budget)
                start += padded(len(column), pad)
            out.rows.append(min(start, budget))
    out.memory = lambda d: titan_hybrid_memory(g, out.rows[d] if budget is None else budget)
    return out


def titan_hybrid_memory(g, M):
    H, F, gathered, token, live = g.H, g.F, g.R * g.T, g.T * g.H * B, Live()
    wide, narrow = M * H * B, M * F * B
    live.make(routing_map=g.T * g.E, dense=4 * g.T * g.E)
    live.make(global_map=gathered * g.E, sparse=g.T * g.R * 4, local_map=gathered * g.e, dense_map=gathered * g.e * 4)
    live.end("global_map").make(x=wide, row_scores=4 * M).end("routing_map", "dense").turn(dict(scores=2 * M), "row_scores")
    live.make(w0_out=narrow).make(silu=narrow).make(w1_out=narrow).make(act=narrow).make(y=wide)
    live.make(weighted=wide).turn(dict(output=token), "weighted").end("output").save()
    live.make(d_weighted=wide).make(dy=wide).make(products=wide).make(d_scores=2 * M)
    live.end("products", "y", "scores", "d_weighted")
    live.turn(dict(d_act=narrow), "act", "dy").turn(dict(d_silu=narrow, d_w1_out=narrow), "silu", "w1_out", "d_act")
    live.turn(dict(dx_w1=wide), "d_w1_out").turn(dict(d_w0_out=narrow), "w0_out", "d_silu")
    live.turn(dict(dx_w0=wide), "x", "d_w0_out").end("dx_w0").turn(dict(d_row_scores=4 * M), "d_scores")
    live.make(dx=token, d_dense=4 * g.T * g.E).make(d_top=4 * g.T * g.K)
    return live.end("d_dense", "dx_w1", "d_row_scores", "sparse", "local_map", "dense_map", "dx", "d_top").finish()


SCHEMES = {"torchtitan-hybridep": titan_hybrid, "ragged-deepep": ragged_deepep, "moe-dedup": moe_dedup, "deepep": deepep, "deepep-ll": deepep_ll,
           "hybrid-ep": hybrid_ep}
NEED_WEIGHTS = ()


def random_schemes(rng, case):
    least = 1.001 / (case.tokens * case.top_k)  # a factor must leave a row
    factor, more = (round(max(least, float(rng.uniform(*x))) + 0.0005, 3) for x in ((0.1, 1.5), (0.1, 1)))
    pad = int(rng.choice([2, 3, 16, 64]))
    schemes = ["ragged-deepep", f"moe-dedup:buffer_factor={factor}",
               f"moe-dedup:buffer_factor={factor},overflow_factor={more}",
               f"moe-dedup:buffer_factor={factor},max_shards={rng.integers(1, 6)}",
               f"moe-dedup:buffer_factor={factor},overflow_factor={more},max_shards={rng.integers(1, 6)}",
               "deepep", f"deepep:pad={pad}", "deepep:dtype=fp8", f"deepep:dtype=fp8,pad={pad}", "deepep-ll",
               "deepep-ll:dtype=bf16", f"deepep-ll:max_tokens={case.tokens + int(rng.integers(0, 9))}"]
    if case.expert <= case.gpus_per_node or case.expert % case.gpus_per_node == 0:
        schemes += ["deepep:buffers=v2", f"deepep:dtype=fp8,pad={pad},buffers=v2", "hybrid-ep", f"hybrid-ep:pad={pad}", f"hybrid-ep:budget={factor}",
                    f"hybrid-ep:budget={factor},pad={pad}"]
        part = round(float(rng.uniform(0.05, 1)) + 1.001 / (case.tokens * min(case.top_k, case.experts // case.expert)), 3)
        if case.expert > 1:
            schemes += ["torchtitan-hybridep", f"torchtitan-hybridep:pad={pad}", f"torchtitan-hybridep:capacity={part}",
                        f"torchtitan-hybridep:capacity={part},pad={pad}"]
    return schemes


def real_schemes(case):
    return ["ragged-deepep", "moe-dedup:buffer_factor=1,overflow_factor=0.5", "moe-dedup:buffer_factor=2,max_shards=2",
            *(["torchtitan-hybridep:capacity=0.3,pad=16"] if case.expert > 1 else []), "deepep", "deepep:dtype=fp8,pad=128", "deepep-ll", "hybrid-ep", "hybrid-ep:budget=1.25,pad=16"]
