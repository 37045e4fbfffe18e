"""MegaBlocks, Tutel, ScatterMoE and SonicMoE (docs/schemes.md, section 6), token by token."""
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_layer import B, Live, Outcome, all_to_all, padded


def exchanges(g):
    return all_to_all(g.H * B, 6 if g.case.repeats else 4)


def experts_backward(live, M, F, H):
    """Product by product, from dy to the gradient of x under the name dx_w1."""
    live.turn(dict(d_act=M * F * B), "act", "dy")
    live.turn(dict(d_silu=M * F * B, d_w1_out=M * F * B), "silu", "w1_out", "d_act")
    live.turn(dict(d_w0_out=M * F * B), "w0_out", "d_silu")
    live.turn(dict(dx_w1=M * H * B), "d_w1_out")
    live.turn(dict(dx_w0=M * H * B), "x", "d_w0_out")
    live.end("dx_w0")


# --- 6.1 MegaBlocks ---

def megablocks(g, o):
    impl = o.get("impl", "grouped")
    column = [sum(n[x] for n in g.n) for x in range(g.E)]
    tile = 128 if impl == "sparse" else 1
    rows = [sum(padded(column[x], tile) for x in range(d * g.e, (d + 1) * g.e)) for d in range(g.R)]
    out = Outcome(g.all_pairs, rows, None, exchanges(g), None)
    out.memory = lambda d: megablocks_memory(g, impl, rows[d], out.sent(d), out.received(d))
    return out


def megablocks_memory(g, impl, M, sent, received):
    H, F, live = g.H, g.F, Live()
    live.make(sent=sent * H * B).make(received=received * H * B).make(x=M * H * B)
    for name in ("w0_out", "w1_out", "silu", "act"):
        live.make(**{name: M * F * B})
    if impl == "memory_optimized":  # a node of its own keeps x and the two products
        live.end("silu").turn(dict(y=M * H * B), "act")
    else:
        live.make(y=M * H * B)
    live.turn(dict(y_received_order=received * H * B), "y", "received")
    live.make(returned=sent * H * B)
    live.turn(dict(expanded=g.N * H * B), "expanded", "sent", "y_received_order")
    live.save()
    live.turn(dict(d_returned=sent * H * B), "returned")
    live.turn(dict(dy_received=received * H * B), "d_returned")
    live.turn(dict(dy=M * H * B), "dy_received")
    if impl == "memory_optimized":
        live.make(silu=M * F * B).make(act=M * F * B)  # d_act in the place of act
        live.turn(dict(d_silu=M * F * B, d_w1_out=M * F * B), "silu")
        live.turn(dict(d_w0_out=M * F * B), "d_silu")
        live.turn(dict(dx_w1=M * H * B), "dx_w1")      # dx of w0 in the place of dy
        live.end("act", "d_w0_out", "d_w1_out", "w0_out", "w1_out", "x")
        last = "dy"
    else:
        experts_backward(live, M, F, H)
        last = "dx_w1"
    live.turn(dict(dx_received_order=received * H * B), last)
    live.turn(dict(dx_returned=sent * H * B), "dx_received_order")
    live.turn(dict(dx_expanded=g.N * H * B), "dx_returned", "dx_expanded")
    return live.finish()


# --- 6.2 Tutel ---

def tutel_capacity(g, o):
    f = o["capacity_factor"]
    balanced = g.K * int(abs(f) * math.ceil(g.T / g.E))
    fullest = max(max(row) for row in g.n)
    C = balanced if f > 0 else fullest if f == 0 else min(fullest, balanced)
    return padded(C, int(o.get("alignment", 1)))


def tutel(g, o):
    C, kept = tutel_capacity(g, o), set()
    for s, tokens in enumerate(g.tokens):
        order = list(range(len(tokens)))
        if o.get("batch_prioritized") == "true":
            order.sort(key=lambda t: -max((c.weight for c in tokens[t]), default=0.0))
        used = [0] * g.E
        for slot in range(g.K):
            for t in order:
                for c in tokens[t]:
                    if c.slot == slot:
                        if used[c.expert] < C:
                            kept.add(c)
                        used[c.expert] += 1
    rows = [g.E * C] * g.R
    wire = [[g.e * C] * g.R for _ in range(g.R)]
    return Outcome(wire, rows, kept, exchanges(g), lambda d: tutel_memory(g, C))


def tutel_memory(g, C):
    M, H, F, live = g.E * C, g.H, g.F, Live()
    wide, token = M * H * 4, g.T * H * 4

    def over_choices():
        live.make(sum=token)
        if g.K > 1:
            live.make(choice=token).turn(dict(new_sum=token), "choice", "new_sum")
        live.end("sum")

    live.make(input=token).make(wide_dispatched=wide)
    live.turn(dict(dispatched=M * H * B), "wide_dispatched")
    live.make(received=M * H * B).turn(dict(x=M * H * B), "received", "dispatched")
    for name in ("w0_out", "w1_out", "silu", "act"):
        live.make(**{name: M * F * B})
    live.make(y=M * H * B).make(y_sent=M * H * B).turn(dict(returned=M * H * B), "y_sent", "y")
    live.make(wide_returned=wide)
    over_choices()
    live.end("returned").save()
    live.make(d_output=token).turn(dict(wide_d_returned=wide), "d_output", "wide_returned")
    live.turn(dict(d_returned=M * H * B), "wide_d_returned")
    live.turn(dict(dy_received=M * H * B), "d_returned").turn(dict(dy=M * H * B), "dy_received")
    experts_backward(live, M, F, H)
    live.make(dx_sent=M * H * B).turn(dict(d_dispatched=M * H * B), "dx_sent", "dx_w1")
    live.turn(dict(wide_d_dispatched=wide), "d_dispatched")
    over_choices()
    return live.end("wide_d_dispatched", "input").finish()


# --- 6.5 torchtitan ---

def torchtitan(g, o):
    rows = [sum(n[x] for n in g.n for x in range(d * g.e, (d + 1) * g.e)) for d in range(g.R)]
    out = Outcome(g.all_pairs, rows, None, exchanges(g), None)
    out.memory = lambda d: torchtitan_memory(g, rows[d], out.sent(d), out.received(d))
    return out


def torchtitan_memory(g, M, sent, received):
    H, F, live = g.H, g.F, Live()
    row, wide, arrived, held, token = sent * H * B, sent * H * 4, received * H * B, M * H * B, g.T * H * B
    live.make(choice_order=8 * sent, scores_sorted=4 * sent, token_index=8 * sent)
    live.make(sent=row).make(pieces=arrived).turn(dict(received=arrived), "pieces")
    live.make(segment_ids=8 * received, row_index=8 * received)
    live.turn(dict(x=held), "segment_ids", "received").end("sent")
    for name in ("w0_out", "silu", "w1_out", "act"):
        live.make(**{name: M * F * B})
    live.make(y=held).make(y_received_order=arrived).make(pieces=row).turn(dict(returned=row), "pieces", "y_received_order")
    live.make(zeros=token).make(returned_fp32=wide, weighted_fp32=wide)
    live.turn(dict(weighted=row), "weighted_fp32", "returned")
    live.turn(dict(output=token), "zeros").end("weighted", "y", "output").save()
    live.make(d_weighted=row).turn(dict(d_weighted_fp32=wide), "d_weighted")
    live.make(d_returned_fp32=wide)  # every fp32 copy of the rows at once
    live.make(score_products=wide).make(d_scores=4 * sent)
    live.end("score_products", "returned_fp32", "scores_sorted", "d_weighted_fp32")
    live.turn(dict(d_returned=row), "d_returned_fp32")
    live.make(pieces=arrived).turn(dict(dy_received=arrived), "pieces", "d_returned").turn(dict(dy=held), "dy_received")
    live.turn(dict(d_act=M * F * B), "act", "dy")
    live.turn(dict(d_silu=M * F * B, d_w1_out=M * F * B), "silu", "w1_out", "d_act")
    live.turn(dict(dx_w1=held), "d_w1_out")             # the product of up was made last
    live.turn(dict(d_w0_out=M * F * B), "w0_out", "d_silu")
    live.turn(dict(dx_w0=held), "x", "d_w0_out").end("dx_w0")
    live.turn(dict(dx_received_order=arrived), "dx_w1", "row_index")
    live.make(pieces=row).turn(dict(dx_returned=row), "pieces", "dx_received_order")
    live.turn(dict(dx=token), "dx_returned", "token_index")
    return live.turn(dict(d_top_scores=4 * g.T * g.K), "d_scores", "choice_order").end("dx", "d_top_scores").finish()


# --- 6.6 torchtitan, minimal async EP ---

def minimal_async(g, o):
    rows = [sum(n[x] for n in g.n for x in range(d * g.e, (d + 1) * g.e)) for d in range(g.R)]
    worst = g.R * g.T * min(g.K, g.e)
    out = Outcome(g.all_pairs, rows, None, exchanges(g), None)
    out.communication = 2 * worst * g.H * B + 8 * g.R * g.E
    out.memory = lambda d: minimal_async_memory(g, worst, out.sent(d))
    return out


def minimal_async_memory(g, W, sent):
    """What arrives, what returns and the gradient of the experts' output lie in the symmetric buffers."""
    H, F, live, token = g.H, g.F, Live(), g.T * g.H * B
    live.make(row_slot=8 * sent, row_token=8 * sent, dispatch_ranks=8 * sent, dispatch_rows=8 * sent)
    live.make(combine_ranks=8 * W, combine_rows=8 * W, slot_row=8 * sent).end("row_token")
    for name in ("w0_out", "silu", "w1_out", "act"):
        live.make(**{name: W * F * B})
    live.make(y=W * H * B).make(output=token).end("y", "output").save()
    live.make(d_returned=sent * H * B).make(d_scores=4 * sent)
    live.end("d_returned", "dispatch_ranks", "dispatch_rows", "row_slot")
    live.turn(dict(d_act=W * F * B), "act")
    live.turn(dict(d_silu=W * F * B, d_w1_out=W * F * B), "silu", "w1_out", "d_act")
    live.turn(dict(dx_w1=W * H * B), "d_w1_out").turn(dict(d_w0_out=W * F * B), "w0_out", "d_silu")
    live.turn(dict(dx_w0=W * H * B), "d_w0_out").end("dx_w0")
    return live.turn(dict(dx=token), "dx_w1", "combine_ranks", "combine_rows", "slot_row").end("dx", "d_scores").finish()


# --- 6.3 ScatterMoE, 6.4 SonicMoE: one rank ---

def scattermoe(g, o):
    rows = len(g.choices)
    return Outcome([[rows]], [rows], None, [], lambda d: scattermoe_memory(g, rows, o.get("activation") == "compiled"))


def scattermoe_memory(g, N, compiled):
    H, F, live = g.H, g.F, Live()
    live.make(input=g.T * H * B).make(w0_w1_out=N * 2 * F * B)
    if not compiled:
        live.make(silu=N * F * B)
    live.make(act=N * F * B).make(y_expanded=N * H * B).save()
    live.turn(dict(d_act=N * F * B), "act", "y_expanded")
    if compiled:
        live.turn(dict(d_w0_w1_out=N * 2 * F * B), "w0_w1_out", "d_act")
    else:
        live.turn(dict(d_silu=N * F * B, d_w1_out=N * F * B), "silu", "d_act")
        live.turn(dict(d_w0_out=N * F * B), "w0_w1_out", "d_silu")
        live.turn(dict(d_w0_w1_out=N * 2 * F * B), "d_w0_out", "d_w1_out")
    return live.make(grouped_x=N * H * B).end("grouped_x", "d_w0_w1_out", "input").finish()


def rounded_count(f, tile, rounding, tokens):
    tiles = {"down": f // tile, "up": -(-f // tile), "nearest": round(f / tile)}[rounding]  # round: half to even
    return min(tiles * tile, tokens)


def sonicmoe(g, o):
    """Rounded up, an expert also takes tokens that did not choose it: rows, but no choices."""
    rounding, tile = o.get("rounding", "none"), int(o.get("tile", 128))
    if rounding == "none":
        rows, kept = len(g.choices), None
    else:
        rows, kept = 0, set()
        for x in range(g.E):
            column = list(g.of_expert[x])
            target = rounded_count(len(column), tile, rounding, g.T)
            if target < len(column):
                column.sort(key=lambda c: (-c.weight, c.token))
            kept.update(column[:target])
            rows += target
    return Outcome([[rows]], [rows], kept, [], lambda d: sonicmoe_memory(g, rows))


def sonicmoe_memory(g, G):
    H, F, live = g.H, g.F, Live()
    live.make(input=g.T * H * B).make(scores=4 * G, index_1=4 * G, index_2=4 * G, index_3=4 * G)
    live.make(w0_w1_out=G * 2 * F * B).make(act=G * F * B).turn(dict(y=G * H * B), "y").end("act").save()
    assert live.saved == 2 * g.T * H + 4 * G * F + 16 * G
    live.make(d_w0_w1_out=G * 2 * F * B, d_scores=4 * G, act_scored=G * F * B, partial=4 * G * -(-F // 128))
    live.end("act_scored", "partial", "w0_w1_out")
    live.make(dx_expanded=G * H * B).end("dx_expanded", "d_w0_w1_out", "index_1", "index_2", "index_3")
    return live.end("d_scores", "scores", "input").finish()


# --- 6.8 transformers: one rank ---

def transformers(g, o):
    rows = len(g.choices)
    return Outcome([[rows]], [rows], None, [], lambda d: transformers_memory(g, rows))


def transformers_memory(g, N):
    H, F, live = N * g.H * B, N * g.F * B, Live()
    live.make(x=H).make(w0_w1_raw=2 * F).turn(dict(w0_w1_out=2 * F), "w0_w1_raw").make(silu=F).make(act=F)
    live.make(y_raw=H).turn(dict(y=H), "y_raw").make(weighted=H).turn(dict(ordered=H), "weighted").end("ordered").save()
    live.make(d_each=H).turn(dict(d_weighted=H), "d_each").make(score_products=H)
    live.turn(dict(d_y=H), "score_products", "d_weighted", "y").turn(dict(d_y_raw=H), "d_y")
    live.turn(dict(d_act=F), "d_y_raw", "act").make(d_w1_out=F).turn(dict(d_silu=F), "d_act", "silu")
    live.turn(dict(d_w0_out=F), "d_silu", "w0_w1_out").turn(dict(d_w0_w1_out=2 * F), "d_w0_out", "d_w1_out")
    live.turn(dict(d_w0_w1_raw=2 * F), "d_w0_w1_out").turn(dict(dx_raw=H), "d_w0_w1_raw", "x")
    return live.turn(dict(dx_rows=H), "dx_raw").turn(dict(dx=g.T * g.H * B), "dx_rows").end("dx").finish()


SCHEMES = {"transformers": transformers, "megablocks": megablocks, "torchtitan": torchtitan, "torchtitan-async": minimal_async,
           "tutel": tutel, "scattermoe": scattermoe, "sonicmoe": sonicmoe}

NEED_WEIGHTS = ("sonicmoe:rounding=nearest", "sonicmoe:rounding=down,tile=8",
                "tutel:capacity_factor=1,batch_prioritized=true")


def random_schemes(rng, case):
    factor = round(float(rng.uniform(0.2, 3)), 3)
    schemes = ["megablocks", "torchtitan", "megablocks:impl=sparse", "megablocks:impl=memory_optimized", f"tutel:capacity_factor={factor}",
               "tutel:capacity_factor=0", f"tutel:capacity_factor={-factor},alignment={rng.integers(1, 9)}",
               f"tutel:capacity_factor={factor},alignment={rng.integers(1, 9)},batch_prioritized=true"]
    if 1 < case.expert <= case.gpus_per_node and case.remat == "full":
        schemes += ["torchtitan-async"]
    if case.expert == 1:
        schemes += ["scattermoe", "scattermoe:activation=compiled", "sonicmoe", "transformers"]
        schemes += [f"sonicmoe:rounding={r},tile={rng.choice([1, 2, 3, 4, 8, 128])}" for r in ("nearest", "up", "down")]
    return schemes


def real_schemes(case):
    schemes = ["megablocks", "torchtitan", "megablocks:impl=sparse", "megablocks:impl=memory_optimized", "tutel:capacity_factor=1.25",
               "tutel:capacity_factor=0,alignment=16"]
    if case.expert == 8:
        schemes.append("torchtitan-async")
    return schemes + (["scattermoe", "sonicmoe", "sonicmoe:rounding=up"] if case.expert == 1 else [])
