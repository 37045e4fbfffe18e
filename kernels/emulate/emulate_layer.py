"""A whole expert layer between ranks in the emulator, forward and backward, as kernels/layer/layer_*.c launch it, against the layer's
formulas in fp64: dispatch and combine with worst-case and exact buffers (gmm-deepep, deepep), ragged rows (gmm), slots (dense), ring."""
import numpy as np

from emulate_exchange import Exchange
from emulate_launch import (CHOICES, COMBINE, COMBINE_GRADIENT, DISPATCH, DISPATCH_GRADIENT, NOTICED, ROUTER_GRADIENT, SOURCE, Kernels,
                            address)
from emulate_layer_reference import layer_of, ring_kept, route, rows_good
from emulate_memory import Array, from_bf16, to_bf16
from emulate_plain import Plain
from emulate_waiting import order_problem
from emulate_world import PATIENCE, host, unsynchronised


class Layer:
    """What the arrangements have in common. exchange(...): which exchange, what of the choices is kept, rows of each rank's tensors."""

    def __init__(self, kernels, rng, ranks, tokens, top_k, experts, hidden, ffn, room, kind, wait):
        self.kernels, self.ranks, self.tokens, self.top_k, self.experts = kernels, ranks, tokens, top_k, experts
        self.hidden, self.ffn, self.local, self.room, self.worst = hidden, ffn, experts // ranks, room, 0.0
        logits = rng.standard_normal((ranks, tokens, experts)).astype(np.float32)
        logits[..., : self.local] += 3 * (kind == "skewed")
        logits[..., -self.local :] -= 30 * (kind == "empty rank")
        self.expert, self.weight = route(logits, top_k)
        draw = lambda by, *shape: to_bf16((by * rng.standard_normal(shape)).astype(np.float32))  # noqa: E731
        x, dy = draw(1, ranks, tokens, hidden), draw(1, ranks, tokens, hidden)
        gate, up, down = draw(0.2, experts, hidden, ffn), draw(0.2, experts, hidden, ffn), draw(0.2, experts, ffn, hidden)
        self.exchange, self.kept, self.rows = self.arrange(rng, wait)
        self.given, self.weights = ([from_bf16(a).astype(np.float64) for a in arrays] for arrays in ((x, dy), (gate, up, down)))
        self.want = layer_of(*self.given, self.expert, self.weight, self.kept, *self.weights)
        self.at = [self.memory(r, logits[r], x[r], dy[r], gate, up, down) for r in range(ranks)]
        self.exchange.shared = [at["dy_rows"] for at in self.at]

    def memory(self, r, logits, x, dy, gate, up, down):
        own, h, f, rows, e = slice(r * self.local, (r + 1) * self.local), self.hidden, self.ffn, self.rows[r], self.experts
        at = {"logits": Array(logits), "x": Array(x), "dy": Array(dy), "down": Array(down[own]),
              "gate_up": Array(np.concatenate([gate[own], up[own]], axis=2))}
        self.inputs = tuple(at)
        shapes = {"d_gate_up": (self.local, h, 2 * f), "d_down": (self.local, f, h), "x_rows": (rows, h), "y_rows": (rows, h),
                  "dy_rows": (rows, h), "dx_rows": (rows, h), "both": (rows, 2 * f), "d_both": (rows, 2 * f), "act": (rows, f),
                  "d_act": (rows, f), "d_local": (getattr(self.exchange, "items", 0), h), "y": (self.tokens, h), "dx": (self.tokens, h)}
        at |= {name: Array(shape=shape, dtype=np.uint16) for name, shape in shapes.items()}
        choices, every = (self.tokens, self.top_k), (self.ranks * self.tokens, self.top_k)
        shapes = {"score": (self.tokens, e), "weight": choices, "d_weight": choices, "ring_weight": every, "ring_d_weight": every,
                  "words": (self.tokens, 2 * e), "side": (self.tokens, e)}
        at |= {name: Array(shape=shape, dtype=np.float32) for name, shape in shapes.items()}
        all_choices = self.ranks * self.tokens * self.top_k
        sizes = (self.local * -(-all_choices // 1024), self.local, self.local + 1, all_choices, all_choices)
        at |= {"expert": Array(shape=choices, dtype=np.int32), "ring_expert": Array(shape=every, dtype=np.int32),
               "plan": [Array(shape=n, dtype=np.int32) for n in sizes]}
        at["offset"] = at["plan"][2]
        return at

    # What a rank does: layer_experts.c

    def run(self, work, seed):
        return self.exchange.run(work, seed, lds=False)

    def router(self, r):
        at = self.at[r]
        return self.kernels.router(self.tokens, self.experts, self.top_k, at["logits"], at["score"], at["expert"], at["weight"])

    def gemm(self, r, operation, inner, outer, left, right, result):
        return self.kernels.gemm(operation, self.local, self.rows[r], inner, outer, left, right, self.at[r]["offset"], result)

    def experts_forward(self, r, x, y):
        at, h, f = self.at[r], self.hidden, self.ffn
        return (self.gemm(r, "forward", h, 2 * f, x, at["gate_up"], at["both"])
                + self.kernels.swiglu(self.rows[r], f, at["both"], at["act"]) + self.gemm(r, "forward", f, h, at["act"], at["down"], y))

    def experts_backward(self, r, x, dy, dx):
        at, h, f = self.at[r], self.hidden, self.ffn
        return (self.gemm(r, "input_gradient", f, h, dy, at["down"], at["d_act"])
                + self.gemm(r, "weight_gradient", f, h, at["act"], dy, at["d_down"])
                + self.kernels.swiglu_gradient(self.rows[r], f, at["both"], at["d_act"], at["d_both"])
                + self.gemm(r, "input_gradient", h, 2 * f, at["d_both"], at["gate_up"], dx)
                + self.gemm(r, "weight_gradient", h, 2 * f, x, at["d_both"], at["d_gate_up"]))

    # What must have come of it

    def outputs(self, r):
        return self.at[r]["y"], self.at[r]["dx"], self.at[r]["d_weight"]

    def results(self, r):
        at, f, own = self.at[r], self.ffn, slice(r * self.local, (r + 1) * self.local)
        got = [a.view for a in self.outputs(r)] + [at["d_gate_up"].view[..., :f], at["d_gate_up"].view[..., f:], at["d_down"].view]
        want = [w[r] if n < 3 else w[own] for n, w in enumerate(self.want)]
        names = ("y", "dx", "gradients of choices", "gradient of gate", "gradient of up", "gradient of down")
        return [(name, g if g.dtype == np.float32 else from_bf16(g), w) for name, g, w in zip(names, got, want)]

    def bytes_good(self, r):
        pairs = self.exchange.pair_rows()[r]
        return [check for counter, size in self.row_bytes().items() for check in self.exchange.check_bytes(r, counter, pairs, size)]

    def problems(self, r):
        """Pairs (what, problem or None) of a rank."""
        at, c = self.at[r], self.exchange.control[r]
        touched = [a for a in at.values() if isinstance(a, Array)] + [c]
        found = [("guards", None if all(a.guards_intact() for a in touched) else "a guard band was written"),
                 ("inputs", None if all(at[name].unchanged() for name in self.inputs) else "an input was written"),
                 ("choices", None if (at["expert"].view == self.expert[r]).all() else "not those of the logits"),
                 ("late, stale", None if c.view[0]["late"] == c.view[0]["stale"] == 0 else "a mark was set")]
        found += [(name, None if good.all() else "a wrong number") for name, good in self.bytes_good(r)]
        for name, got, want in self.results(r):
            good, share = rows_good(got, want)
            self.worst = max(self.worst, share)
            found.append((name, None if good.all() else f"{np.count_nonzero(~good)} of {good.size} rows, {share:.3g} of what is allowed"))
        return found

    def problem(self, r):
        return next((f"{what}: {problem}" for what, problem in self.problems(r) if problem), None)


class Dispatch(Layer):
    """layer_dispatch.c, worst-case buffers."""

    exact, last_epoch = False, 4

    def arrange(self, rng, wait):
        e = Exchange(self.kernels, rng, self.ranks, self.tokens, self.top_k, self.experts, self.hidden, wait=wait, expert=self.expert,
                     exact=self.exact)
        worst = self.ranks * self.tokens * min(self.local, self.top_k)
        rows = [np.count_nonzero(self.expert // self.local == r) if self.exact else worst for r in range(self.ranks)]
        return e, self.expert >= 0, rows

    def work(self, r):
        """Parts that may run in phases."""
        e, at, k = self.exchange, self.at[r], self.kernels
        tokens, h, top_k = e.capacity[r], self.hidden, self.top_k
        e.inputs[r][0], e.inputs[r][2], e.inputs[r][3], e.others[r] = at["x"], at["expert"], at["weight"], at["dy"]
        rows, expert, weight = (address(e.window[r]) + e.part(r, name).ctypes.data - e.window[r].view.ctypes.data
                                for name in ("rows", "expert", "weight"))
        side, row, behind = address(e.returned[r]) + e.capacity[r] * h * 2, at["plan"][3], 1 + self.exact

        def spoil():
            e.returned[r].view[...] = 0xFF

        forward = (k.plan(tokens * top_k, self.local, expert, *at["plan"]) + k.fan_out(tokens, h, top_k, row, rows, at["x_rows"])
                   + self.experts_forward(r, at["x_rows"], at["y_rows"])
                   + k.combine(tokens, h, top_k, row, weight, at["y_rows"], e.returned[r]))
        backward = (k.combine_gradient(tokens, h, top_k, row, weight, rows, at["y_rows"], at["dy_rows"], side)
                    + self.experts_backward(r, at["x_rows"], at["dy_rows"], at["dx_rows"])
                    + k.combine(tokens, h, top_k, row, None, at["dx_rows"], e.returned[r]))
        notices = [e.send(r, 0, 1, DISPATCH, None, kernel="exchange_notices")] if self.exact else []
        send = e.send(r, CHOICES | SOURCE | (0 if self.exact else NOTICED), behind, DISPATCH, at["x"])
        return [self.router(r), e.layout(r, 1), *notices, send, forward, *e.back(r, behind + 1, False), [host(spoil, e.returned[r])],
                e.send(r, SOURCE, behind + 2, COMBINE_GRADIENT, at["dy"]), backward, *e.back(r, behind + 3, True)]

    def outputs(self, r):
        return (*self.exchange.y[r], self.exchange.sums[r])

    def row_bytes(self):
        row = 2 * self.hidden + 4
        return {DISPATCH: row + 8 * self.top_k, COMBINE: row, COMBINE_GRADIENT: row, DISPATCH_GRADIENT: row + 4 * self.top_k}


class ExactDispatch(Dispatch):
    exact, last_epoch = True, 5


class Ragged(Layer):
    """layer_plain.c."""

    form, last_epoch = "ragged", 5

    def arrange(self, rng, wait):
        e = Plain(self.kernels, rng, self.form, self.ranks, 1, self.tokens, self.top_k, self.experts, self.hidden, self.room, wait=wait,
                  expert=self.expert)
        return e, e.slots[..., 0] >= 0, [e.rows] * self.ranks

    def work(self, r):
        e, at, k = self.exchange, self.at[r], self.kernels
        e.inputs[r][:3] = at["x"], at["expert"], at["weight"]
        at["offset"] = self.offset(r)
        gradient = k.combine_gradient(self.tokens, self.hidden, self.top_k, e.choice_rows(r), at["weight"], at["dy"], e.local[r],
                                      at["d_local"], at["d_weight"])
        if self.form == "slots":
            gradient += k.fan_out_clear(e.items, self.hidden, e.slot_rows[r][1], at["d_local"])
        send_back = e.send_rows(r, 4, at["d_local"], COMBINE_GRADIENT, into=[a["dy_rows"] for a in self.at])
        return [self.router(r), *e.prepare(r, 1), e.send_rows(r, 2, e.local[r], DISPATCH),
                self.experts_forward(r, e.received[r], e.returned[r]), e.return_rows(r, 3, e.local[r], COMBINE),
                e.combine(r, at["weight"], at["y"]), gradient, send_back,
                self.experts_backward(r, e.received[r], at["dy_rows"], e.returned[r]),
                e.return_rows(r, 5, e.local[r], DISPATCH_GRADIENT), e.combine(r, None, at["dx"])]

    def offset(self, r):
        return self.exchange.offset[r]

    def row_bytes(self):
        return dict.fromkeys((DISPATCH, COMBINE, COMBINE_GRADIENT, DISPATCH_GRADIENT), 2 * self.hidden)


class Slots(Ragged):
    form = "slots"

    def offset(self, r):
        return Array((np.arange(self.local + 1) * (self.rows[r] // self.local)).astype(np.int32))


class Ring(Layer):
    """layer_ring.c. room: rows of a rank's tensors."""

    last_epoch = 5

    def arrange(self, rng, wait):
        e = Plain(self.kernels, rng, "gather", self.ranks, 1, self.tokens, self.top_k, self.experts, self.hidden, 0,
                  words=2 * self.experts, side=self.experts, wait=wait, expert=self.expert)
        return e, ring_kept(self.expert, self.experts, self.room), [self.room] * self.ranks

    def work(self, r):
        e, at, k = self.exchange, self.at[r], self.kernels
        tokens, h, top_k, experts = self.ranks * self.tokens, self.hidden, self.top_k, self.experts
        choices, first, row = tokens * top_k, r * self.local, at["plan"][3]
        words, side = (address(a[r]) + tokens * h * 2 for a in (e.received, e.returned))
        gather = k.ring_words(self.tokens, top_k, experts, at["expert"], at["weight"], at["words"])
        gather += e.send_rows(r, 1, at["x"], DISPATCH, at["words"])
        forward = k.ring_choices(tokens, top_k, experts, first, self.local, words, at["ring_expert"], at["ring_weight"])
        forward += k.plan(choices, self.local, at["ring_expert"], *at["plan"])
        if self.room < choices:
            forward += k.ring_truncate(choices, self.local, self.room, row, at["offset"])
        forward += (k.fan_out(tokens, h, top_k, row, e.received[r], at["x_rows"])
                    + self.experts_forward(r, at["x_rows"], at["y_rows"])
                    + k.combine(tokens, h, top_k, row, at["ring_weight"], at["y_rows"], e.returned[r]))
        gradient = (k.combine_gradient(tokens, h, top_k, row, at["ring_weight"], e.received[r], at["y_rows"], at["dy_rows"],
                                       at["ring_d_weight"])
                    + k.ring_side(tokens, top_k, experts, first, at["ring_expert"], at["ring_d_weight"], side))
        pick = k.ring_pick(self.tokens, top_k, experts, at["expert"], at["side"], at["d_weight"])
        backward = (self.experts_backward(r, at["x_rows"], at["dy_rows"], at["dx_rows"])
                    + k.combine(tokens, h, top_k, row, None, at["dx_rows"], e.returned[r]))
        return [self.router(r), gather, forward, e.return_rows(r, 2, at["y"], COMBINE), e.send_rows(r, 3, at["dy"], COMBINE_GRADIENT),
                gradient, e.return_side(r, 4, at["side"], ROUTER_GRADIENT), pick, backward,
                e.return_rows(r, 5, at["dx"], DISPATCH_GRADIENT)]

    def row_bytes(self):
        row = 2 * self.hidden
        return {DISPATCH: row + 8 * self.experts, COMBINE: row, COMBINE_GRADIENT: row, ROUTER_GRADIENT: 4 * self.experts,
                DISPATCH_GRADIENT: row}


FILES = ("router", "exchange_layout", "exchange_send", "exchange_reduce", "exchange_ragged", "routing_plan", "capacity", "fan_out",
         "combine", "combine_gradient", "swiglu", "swiglu_gradient", "grouped_gemm_mfma", "ring")
# arrangement, ranks, tokens, top_k, experts, hidden, ffn, room, routing
SHAPES = ((Dispatch, 2, 6, 2, 4, 64, 32, 0, "even"), (Dispatch, 3, 7, 3, 6, 64, 48, 0, "skewed"),
          (Dispatch, 4, 5, 2, 8, 64, 64, 0, "empty rank"), (ExactDispatch, 3, 7, 2, 6, 64, 40, 0, "skewed"),
          (ExactDispatch, 4, 5, 2, 8, 64, 32, 0, "empty rank"), (Ragged, 2, 6, 2, 4, 64, 32, 24, "even"),
          (Ragged, 3, 7, 2, 6, 64, 40, 24, "skewed"), (Ragged, 4, 5, 2, 8, 64, 64, 20, "empty rank"),
          (Slots, 2, 6, 2, 4, 64, 32, 3, "even"), (Slots, 3, 7, 2, 6, 64, 40, 2, "skewed"), (Slots, 4, 5, 2, 8, 64, 64, 2, "empty rank"),
          (Ring, 2, 6, 2, 4, 64, 32, 24, "even"), (Ring, 3, 7, 2, 6, 64, 40, 20, "skewed"), (Ring, 4, 5, 2, 8, 64, 64, 40, "empty rank"))


def test_layer(*programs_judge_label):
    *programs, judge, label = programs_judge_label
    rng, kernels, worst = np.random.default_rng(17), Kernels(programs), 0.0
    for n, (arrangement, *shape) in enumerate(SHAPES):
        name = f"{label} {arrangement.__name__} {shape}"
        for seed in (None, n):
            layer = arrangement(kernels, rng, *shape, wait=0 if seed is None else PATIENCE)
            if shape[-1] == "skewed" and layer.kept.all() != issubclass(arrangement, Dispatch):
                raise ValueError(f"{name}: the case is for drops")
            watch = layer.run([layer.work(r) for r in range(layer.ranks)], seed)
            if watch is not None:
                judge.count(f"{name}, order", order_problem(watch))
            for r in range(layer.ranks):
                for what, problem in layer.problems(r):
                    judge.count(f"{name}, {'phases' if seed is None else 'waiting'}, rank {r}, {what}", problem)
            worst = max(worst, layer.worst)
        spoil(judge, name, layer)
        last = arrangement.last_epoch
        problem = unsynchronised(lambda: arrangement(kernels, rng, *shape, wait=PATIENCE), (last,))  # noqa: B023
        judge.expect_rejection(f"{name}, no wait in {last}", problem)
    print(f"{label}: largest error {worst:.2f} of what is allowed")


def spoil(judge, label, layer):
    """What a wrong layer could leave: a choice forgotten, rows of other tokens, a gradient without one of its rows, a row that was
    not counted."""
    y, _, _, _, _, d_down = (got for _, got, _ in layer.results(0))
    only, lacking, zeroed = np.zeros_like(layer.kept), y.copy(), d_down.copy()
    token, k = np.argwhere(layer.kept[0])[0]
    only[0, token, k] = True
    lacking[token] -= layer_of(*layer.given, layer.expert, layer.weight, only, *layer.weights)[0][0, token]
    zeroed[np.argmax(abs(zeroed).sum((1, 2))), 0] = 0
    for what, got, want in (("a choice forgotten", lacking, layer.want[0][0]), ("rows shifted", np.roll(y, 1, 0), layer.want[0][0]),
                            ("a row of a gradient", zeroed, layer.want[5][: layer.local])):
        judge.expect_rejection(f"{label}, {what}", None if rows_good(got, want)[0].all() else what)
    layer.exchange.control[0].view[0]["bytes"][COMBINE, 0] += 2
    judge.expect_rejection(f"{label}, bytes", layer.problem(0))


LAYER_TESTS = [(FILES, test_layer)]
