"""A whole expert layer between ranks in the emulator, forward and backward, as kernels/layer_gpu.c launches it, against the layer's
formulas in fp64: dispatch and combine (gmm-deepep), ragged rows (gmm), slots (dense)."""
import numpy as np

from emulate_exchange import Exchange
from emulate_launch import (CHOICES, COMBINE, COMBINE_GRADIENT, DISPATCH, DISPATCH_GRADIENT, NOTICED, SOURCE, Kernels, address)
from emulate_memory import Array, from_bf16, to_bf16
from emulate_plain import Plain
from emulate_waiting import order_problem
from emulate_world import host, unsynchronised

ROUNDINGS = 8  # to bf16 between an input and an output, at most: verify_layer.c


def route(logits, top_k):
    """Softmax in fp64; the largest, renormalised to 1."""
    score = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    score /= score.sum(-1, keepdims=True)
    expert = np.argsort(-score, axis=-1, kind="stable")[..., :top_k]
    weight = np.take_along_axis(score, expert, -1)
    return expert.astype(np.int32), weight / weight.sum(-1, keepdims=True)


def layer_of(x, dy, expert, weight, kept, gate, up, down):
    """y, dx, d_weight and the gradients of the three weights, in fp64. x, dy [rank][token][hidden]; kept [rank][token][k]: not dropped."""
    y, dx, d_weight = np.zeros(x.shape), np.zeros(x.shape), np.zeros(weight.shape)
    gradients = [np.zeros(w.shape) for w in (gate, up, down)]
    for e in range(len(gate)):
        r, t, k = np.nonzero((expert == e) & kept)
        rows, d, w = x[r, t], dy[r, t], weight[r, t, k][:, None]
        h, u = rows @ gate[e], rows @ up[e]
        sigmoid = 1 / (1 + np.exp(-h))
        act = h * sigmoid * u
        out = act @ down[e]
        np.add.at(y, (r, t), w * out)
        d_weight[r, t, k] = (d * out).sum(1)
        d_act = w * d @ down[e].T
        d_up, d_gate = d_act * h * sigmoid, d_act * u * sigmoid * (1 + h * (1 - sigmoid))
        np.add.at(dx, (r, t), d_gate @ gate[e].T + d_up @ up[e].T)
        for gradient, value in zip(gradients, (rows.T @ d_gate, rows.T @ d_up, act.T @ (w * d))):
            gradient[e] = value
    return y, dx, d_weight, *gradients


def rows_good(got, want):
    """Every row as a whole: the norm of its error beside its own, or beside the mean of all where it is smaller: its terms have
    cancelled, their errors have not. A row of zeros must be one. Returns which are good, and the largest share of what is allowed."""
    got, want = (np.asarray(a, np.float64).reshape(-1, want.shape[-1]) for a in (got, want))
    norm, error = np.sqrt((want**2).sum(1)), np.sqrt(((got - want) ** 2).sum(1))
    usual = np.sqrt((norm**2).sum() / max(np.count_nonzero(norm), 1))
    allowed = np.where(norm > 0, ROUNDINGS * 2.0**-8 * np.maximum(norm, usual), 0)
    return error <= allowed, (error / np.where(allowed > 0, allowed, np.inf)).max()


class Layer:
    def __init__(self, kernels, rng, form, ranks, tokens, top_k, experts, hidden, ffn, room, kind, wait):
        self.kernels, self.form, self.ranks, self.tokens, self.top_k, self.experts = kernels, form, ranks, tokens, top_k, experts
        self.hidden, self.ffn, self.local, self.worst = hidden, ffn, experts // ranks, 0.0
        logits = rng.standard_normal((ranks, tokens, experts)).astype(np.float32)
        logits[..., : self.local] += 3 * (kind == "skewed")
        logits[..., -self.local :] -= 30 * (kind == "empty rank")
        expert, weight = route(logits, top_k)
        draw = lambda by, *shape: to_bf16((by * rng.standard_normal(shape)).astype(np.float32))  # noqa: E731
        x, dy = draw(1, ranks, tokens, hidden), draw(1, ranks, tokens, hidden)
        gate, up, down = draw(0.2, experts, hidden, ffn), draw(0.2, experts, hidden, ffn), draw(0.2, experts, ffn, hidden)
        if form == "dispatch":
            e = Exchange(kernels, rng, ranks, tokens, top_k, experts, hidden, wait=wait, expert=expert)
            kept, self.rows = expert >= 0, ranks * tokens * min(self.local, top_k)
        else:
            e = Plain(kernels, rng, form, ranks, 1, tokens, top_k, experts, hidden, room, wait=wait, expert=expert)
            kept, self.rows = e.slots[..., 0] >= 0, e.rows
        self.exchange, self.expert, self.weight, self.kept = e, expert, weight, kept
        self.given, self.weights = ([from_bf16(a).astype(np.float64) for a in arrays] for arrays in ((x, dy), (gate, up, down)))
        self.want = layer_of(*self.given, expert, weight, kept, *self.weights)
        self.at = [self.memory(r, logits[r], x[r], dy[r], gate, up, down) for r in range(ranks)]

    def memory(self, r, logits, x, dy, gate, up, down):
        own, h, f, rows = slice(r * self.local, (r + 1) * self.local), self.hidden, self.ffn, self.rows
        at = {"logits": Array(logits), "x": Array(x), "dy": Array(dy), "down": Array(down[own]),
              "gate_up": Array(np.concatenate([gate[own], up[own]], axis=2))}
        self.inputs = tuple(at)
        shapes = {"d_gate_up": (self.local, h, 2 * f), "d_down": (self.local, f, h), "x_rows": (rows, h), "y_rows": (rows, h),
                  "dy_rows": (rows, h), "dx_rows": (rows, h), "both": (rows, 2 * f), "d_both": (rows, 2 * f), "act": (rows, f),
                  "d_act": (rows, f), "d_local": (getattr(self.exchange, "items", 0), h), "y": (self.tokens, h), "dx": (self.tokens, h)}
        at |= {name: Array(shape=shape, dtype=np.uint16) for name, shape in shapes.items()}
        choices, all_choices = (self.tokens, self.top_k), self.ranks * self.tokens * self.top_k
        at |= {"score": Array(shape=(self.tokens, self.experts), dtype=np.float32), "expert": Array(shape=choices, dtype=np.int32),
               "weight": Array(shape=choices, dtype=np.float32), "d_weight": Array(shape=choices, dtype=np.float32)}
        sizes = (self.local * -(-all_choices // 1024), self.local, self.local + 1, all_choices, all_choices)
        at["plan"] = [Array(shape=n, dtype=np.int32) for n in sizes]
        at["offset"] = at["plan"][2]
        if self.form == "ragged":
            at["offset"] = self.exchange.offset[r]
        elif self.form == "slots":
            at["offset"].view[...] = np.arange(self.local + 1) * (rows // self.local)
        return at

    # What a rank does: layer_gpu.c

    def run(self, work, seed):
        return self.exchange.run(work, seed)

    def router(self, r):
        at = self.at[r]
        return self.kernels.router(self.tokens, self.experts, self.top_k, at["logits"], at["score"], at["expert"], at["weight"])

    def gemm(self, r, operation, inner, outer, left, right, result):
        return self.kernels.gemm(operation, self.local, self.rows, inner, outer, left, right, self.at[r]["offset"], result)

    def experts_forward(self, r, y):
        at, h, f = self.at[r], self.hidden, self.ffn
        return (self.gemm(r, "forward", h, 2 * f, at["x_rows"], at["gate_up"], at["both"])
                + self.kernels.swiglu(self.rows, f, at["both"], at["act"]) + self.gemm(r, "forward", f, h, at["act"], at["down"], y))

    def experts_backward(self, r, dy, dx):
        at, h, f = self.at[r], self.hidden, self.ffn
        return (self.gemm(r, "input_gradient", f, h, dy, at["down"], at["d_act"])
                + self.gemm(r, "weight_gradient", f, h, at["act"], dy, at["d_down"])
                + self.kernels.swiglu_gradient(self.rows, f, at["both"], at["d_act"], at["d_both"])
                + self.gemm(r, "input_gradient", h, 2 * f, at["d_both"], at["gate_up"], dx)
                + self.gemm(r, "weight_gradient", h, 2 * f, at["x_rows"], at["d_both"], at["d_gate_up"]))

    def work(self, r):
        """Parts that may run in phases."""
        return self.work_dispatch(r) if self.form == "dispatch" else self.work_plain(r)

    def work_dispatch(self, r):
        e, at, k = self.exchange, self.at[r], self.kernels
        every, h, top_k = self.ranks * self.tokens, self.hidden, self.top_k
        e.inputs[r][0], e.inputs[r][2], e.inputs[r][3], e.others[r] = at["x"], at["expert"], at["weight"], at["dy"]
        rows, expert, weight = (address(e.window[r]) + e.part(r, name).ctypes.data - e.window[r].view.ctypes.data
                                for name in ("rows", "expert", "weight"))
        side = address(e.returned[r]) + e.capacity[r] * h * 2

        def spoil():
            e.returned[r].view[...] = 0xFF

        forward = (k.plan(every * top_k, self.local, expert, *at["plan"]) + k.fan_out(every, h, top_k, at["plan"][3], rows, at["x_rows"])
                   + self.experts_forward(r, at["y_rows"]) + k.combine(every, h, top_k, at["plan"][3], weight, at["y_rows"], e.returned[r]))
        backward = (k.combine_gradient(every, h, top_k, at["plan"][3], weight, rows, at["y_rows"], at["dy_rows"], side)
                    + self.experts_backward(r, at["dy_rows"], at["dx_rows"])
                    + k.combine(every, h, top_k, at["plan"][3], None, at["dx_rows"], e.returned[r]))
        return [self.router(r), e.layout(r, 1), e.send(r, NOTICED | CHOICES | SOURCE, 1, DISPATCH, at["x"]), forward, e.reduce(r, 2, False),
                [host(spoil, e.returned[r])], e.send(r, SOURCE, 3, COMBINE_GRADIENT, at["dy"]), backward, e.reduce(r, 4, True)]

    def work_plain(self, r):
        e, at, k = self.exchange, self.at[r], self.kernels
        e.inputs[r][:3] = at["x"], at["expert"], at["weight"]

        def keep_x():  # the gradients come into the same buffer
            at["x_rows"].view[...] = e.received[r].view.view(np.uint16).reshape(at["x_rows"].view.shape)

        gradient = k.combine_gradient(self.tokens, self.hidden, self.top_k, e.choice_rows(r), at["weight"], at["dy"], e.local[r],
                                      at["d_local"], at["d_weight"])
        if self.form == "slots":
            gradient += k.fan_out_clear(e.items, self.hidden, e.slot_rows[r][1], at["d_local"])
        return [self.router(r), *e.prepare(r, 1), e.send_rows(r, 2, e.local[r], DISPATCH), [host(keep_x)],
                self.experts_forward(r, e.returned[r]), e.return_rows(r, 3, e.local[r], COMBINE), e.combine(r, at["weight"], at["y"]),
                gradient, e.send_rows(r, 4, at["d_local"], COMBINE_GRADIENT), self.experts_backward(r, e.received[r], e.returned[r]),
                e.return_rows(r, 5, e.local[r], DISPATCH_GRADIENT), e.combine(r, None, at["dx"])]

    # What must have come of it

    def results(self, r):
        at, e, f = self.at[r], self.exchange, self.ffn
        own = slice(r * self.local, (r + 1) * self.local)
        dispatch = self.form == "dispatch"
        y, dx, d_weight = (e.y[r][0], e.y[r][1], e.sums[r]) if dispatch else (at["y"], at["dx"], at["d_weight"])
        got = (y.view, dx.view, d_weight.view, at["d_gate_up"].view[..., :f], at["d_gate_up"].view[..., f:], at["d_down"].view)
        want = [w[r] if n < 3 else w[own] for n, w in enumerate(self.want)]
        names = ("y", "dx", "gradients of choices", "gradient of gate", "gradient of up", "gradient of down")
        return [(name, g if g.dtype == np.float32 else from_bf16(g), w) for name, g, w in zip(names, got, want)]

    def bytes_good(self, r):
        e = self.exchange
        if self.form == "dispatch":
            pairs, row = (self.expert[..., None] // self.local == np.arange(self.ranks)).any(2).sum(1), 2 * self.hidden + 4
            sizes = (row + 8 * self.top_k, row, row, row + 4 * self.top_k)
        else:
            pairs, sizes = e.pair_rows(), [2 * self.hidden] * 4
        return [check for counter, size in enumerate(sizes) for check in e.check_bytes(r, counter, pairs[r], size)]

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


FILES = ("router", "exchange_layout", "exchange_send", "exchange_reduce", "exchange_ragged", "routing_plan", "capacity", "fan_out",
         "combine", "combine_gradient", "swiglu", "swiglu_gradient", "grouped_gemm_mfma")
# form, ranks, tokens, top_k, experts, hidden, ffn, room, routing
SHAPES = (("dispatch", 2, 6, 2, 4, 64, 32, 0, "even"), ("dispatch", 3, 7, 3, 6, 64, 48, 0, "skewed"),
          ("dispatch", 4, 5, 2, 8, 64, 64, 0, "empty rank"), ("ragged", 2, 6, 2, 4, 64, 32, 24, "even"),
          ("ragged", 3, 7, 2, 6, 64, 40, 24, "skewed"), ("ragged", 4, 5, 2, 8, 64, 64, 20, "empty rank"),
          ("slots", 2, 6, 2, 4, 64, 32, 3, "even"), ("slots", 3, 7, 2, 6, 64, 40, 2, "skewed"),
          ("slots", 4, 5, 2, 8, 64, 64, 2, "empty rank"))


def test_layer(*programs_judge_label):
    *programs, judge, label = programs_judge_label
    rng, kernels = np.random.default_rng(17), Kernels(programs)
    worst = 0.0
    for n, shape in enumerate(SHAPES):
        for seed in (None, n):
            layer = Layer(kernels, rng, *shape, wait=seed is not None)
            if shape[-1] == "skewed" and layer.kept.all() != (shape[0] == "dispatch"):
                raise ValueError(f"{shape}: the case is for drops")
            watch = layer.run([layer.work(r) for r in range(layer.ranks)], seed)
            name = f"{label} {shape}, {'phases' if seed is None else 'waiting'}"
            if watch is not None:
                judge.count(f"{name}, order", order_problem(watch))
            for r in range(layer.ranks):
                for what, problem in layer.problems(r):
                    judge.count(f"{name}, rank {r}, {what}", problem)
            worst = max(worst, layer.worst)
        spoil(judge, f"{label} {shape}", layer)
        last = 4 if shape[0] == "dispatch" else 5
        problem = unsynchronised(lambda: Layer(kernels, rng, *shape, wait=True), (last,))  # noqa: B023
        judge.expect_rejection(f"{label} {shape}, no wait in {last}", problem)
    print(f"{label}: largest error {worst:.2f} of what is allowed")


def spoil(judge, label, layer):
    """What a wrong layer could leave: a choice forgotten, a row of another token, a gradient without one of its rows, a row that was
    not counted."""
    y, _, _, _, _, d_down = (got for _, got, _ in layer.results(0))
    token, k = np.argwhere(layer.kept[0])[0]
    lacking = y.copy()
    want = layer_of_one(layer, token, k)
    lacking[token] -= want
    judge.expect_rejection(f"{label}, a choice forgotten", None if rows_good(lacking, layer.want[0][0])[0].all() else "found")
    judge.expect_rejection(f"{label}, rows shifted", None if rows_good(np.roll(y, 1, 0), layer.want[0][0])[0].all() else "found")
    zeroed = d_down.copy()
    zeroed[np.argmax(abs(zeroed).sum((1, 2))), 0] = 0
    judge.expect_rejection(f"{label}, a row of a gradient", None if rows_good(zeroed, layer.want[5][: layer.local])[0].all() else "found")
    layer.exchange.control[0].view[0]["bytes"][COMBINE, 0] += 2
    judge.expect_rejection(f"{label}, bytes", layer.problem(0))


def layer_of_one(layer, token, k):
    """What choice k adds to a token of rank 0."""
    kept = np.zeros_like(layer.kept)
    kept[0, token, k] = True
    return layer_of(*layer.given, layer.expert, layer.weight, kept, *layer.weights)[0][0, token]


LAYER_TESTS = [(FILES, test_layer)]
