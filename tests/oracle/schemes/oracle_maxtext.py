"""MaxText's own schemes: dense, gmm, ragged, gmm-deepep, ring and ragged-ring with their options (docs/schemes.md, sections 1 to
3.3), token by token. Live sets are the closed forms of the document."""
import math
import pathlib
import sys

from oracle_deepep import deepep_row, exchanges as deepep_exchanges, ragged_dot_memory
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_layer import B, Exchange, Live, Outcome, all_to_all
from oracle_megatron import by_expert, deepep_buffers, local


def closed(saved, *peaks):
    live = Live()
    live.saved, live.peak = saved * B, max(peaks) * B
    return live


# --- 1. dense ---

def dense(g, o):
    length, sequences, factor = g.case.length, g.case.sequences, o["capacity_factor"]
    C = int(max(math.ceil(length * g.K / g.E) * factor, factor))
    used, kept = {}, set()
    for c in g.choices:
        key = (c.source, c.token // length, c.expert)
        used[key] = used.get(key, 0) + 1
        if used[key] <= C:
            kept.add(c)
    D, masks = sequences * g.E * C, g.T * g.E * C
    travels = o.get("layout", "exchange") != "gathered"
    wire = [[sequences * g.e * C * travels] * g.R for _ in range(g.R)]
    live = closed(2 * D * g.H + 3 * D * g.F + 2 * masks, 3 * D * g.H + 3 * D * g.F + 3 * masks)
    row = all_to_all(g.H * B, 6 if g.case.repeats else 4) if travels else []
    return Outcome(wire, [D] * g.R, kept, row, lambda d: live)


# --- 2. gmm, ragged, ring; 3.3 gmm-deepep ---

def buffer_rows(g, o):
    return int(g.N * o["buffer_factor"]) if o.get("buffer_factor", 0) > 0 else None


def served(g, order, room):
    """Each rank serves what arrives in an order until its buffer is full."""
    kept, rows = [], []
    for d in range(g.R):
        mine = sorted(g.of_rank[d], key=order)
        kept += mine[:room]
        rows.append(len(mine[:room]))
    return kept, rows


def by_source(c):
    return c.source, c.expert, c.token


def gmm(g, o):
    kept, rows = served(g, by_source, buffer_rows(g, o))
    G = buffer_rows(g, o) or g.R * g.T * min(g.e, g.K)
    saved = G * g.H + 3 * G * g.F + g.N * g.H
    peaks = [3 * G * g.H + 3 * G * g.F + 2 * g.N * g.H]
    if o.name == "ragged":
        peaks.append(max(3 * G * g.H + G * g.F, 2 * G * g.H + 3 * G * g.F) + g.e * G * (g.H + g.F))
    live = closed(saved, *peaks)
    return Outcome(g.pairs(kept), rows, kept, all_to_all(g.H * B, 6 if g.case.repeats else 4), lambda d: live)


def gmm_deepep(g, o):
    column = by_expert(g, g.n)
    rows = [sum(local(g, column, d)) for d in range(g.R)]
    row, gathered, W = g.H * B, g.R * g.T, g.R * g.T * min(g.e, g.K)
    live = closed(gathered * g.H + 2 * W * g.H + 3 * W * g.F, 3 * W * g.H + 3 * W * g.F + 2 * gathered * g.H)
    sizes = [deepep_row(g, row, 4, True), deepep_row(g, row), deepep_row(g, row), deepep_row(g, row, 0, True)]
    return Outcome(g.all_distinct, rows, None, deepep_exchanges(g, *sizes, combine_again=False), lambda d: live, True,
                   deepep_buffers(g, 32))


def ring(g, o):
    kept, rows = served(g, lambda c: (c.expert, c.source, c.token), buffer_rows(g, o))
    gathered = g.R * g.T
    G = min(buffer_rows(g, o) or math.inf, gathered * g.K)
    live = closed(gathered * g.H + 2 * G * g.H + 3 * G * g.F, 3 * G * g.H + 3 * G * g.F + 2 * gathered * g.H)
    row, logits = g.H * B, 8 * g.E
    passes = [Exchange("forward", False, row + logits), Exchange("forward", True, row)]
    if g.case.repeats:
        passes.append(Exchange("recompute", False, row + logits))
    passes += [Exchange("backward", False, row), Exchange("backward", True, row), Exchange("backward", True, logits // 2)]
    return Outcome([[g.T] * g.R for _ in range(g.R)], rows, kept, passes, lambda d: live)


def ragged_ring(g, o):
    out, rows = ring(g, o), min(buffer_rows(g, o) or math.inf, g.R * g.T * g.K)
    out.memory = lambda d: ragged_dot_memory(g, rows)
    return out


SCHEMES = {"dense": dense, "gmm": gmm, "ragged": gmm, "gmm-deepep": gmm_deepep, "ring": ring, "ragged-ring": ragged_ring}
NEED_WEIGHTS = ()


def random_schemes(rng, case):
    factor = round(float(rng.uniform(0.2, 3)), 3)
    schemes = [f"dense:capacity_factor={factor}"] + [f"dense:capacity_factor={factor},layout={layout}"
                                                     for layout in ("exchange", "gathered", "peeled")]
    schemes += ["gmm", "gmm:exchange=rccl", "gmm:exchange=oneshot", "ragged", "ring", "ring:ragged_sort=true", "ragged-ring"]
    schemes += ["gmm-deepep"] + [f"gmm-deepep:fan_in={fan_in}" for fan_in in ("gather", "scatter1", "scatter2")]
    if case.expert > 1:
        factor = max(factor / 2, 1.001 / (case.tokens * case.top_k))
        schemes += [f"gmm:exchange=oneshot,buffer_factor={factor:.4f}", f"ragged:buffer_factor={factor:.4f}",
                    f"ring:ragged_sort=true,buffer_factor={factor:.4f}", f"ragged-ring:buffer_factor={factor:.4f}"]
    return schemes


def real_schemes(case):
    buffer = ["gmm:buffer_factor=1.25", "ring:ragged_sort=true,buffer_factor=1.5"] if case.expert > 1 else []
    return ["dense:capacity_factor=1.25", "dense:capacity_factor=1.25,layout=gathered", "gmm:exchange=oneshot", "ragged",
            "gmm-deepep:fan_in=scatter2", "ring", "ragged-ring", *buffer]
