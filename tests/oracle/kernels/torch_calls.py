"""The entry of PyTorch's operators on a CPU, without PyTorch: a layer of experts with its gradients against sums in Python, and what must be refused.

    torch_calls.py LIBRARY

kernels/torch/verify_torch.py asks the same through PyTorch, where that is installed."""
import ctypes
import math
import random
import struct

from torch_entry import (ACTIVATIONS, BF16, COMBINE, DOWN_GRADIENT, FORWARD, FP16, INPUT_GRADIENT, PLAN, ROW_SUMS, UP, WEIGHT_GRADIENT, check,
                         empty, end, floats, integers, near, refuses, run, slopes)


def layer(transposed, gathers, seed, ffn, activation="swiglu"):
    """Whole: plan, up, down, sum; and backward. Every array against plain loops."""
    draw = random.Random(seed)
    tokens, top_k, experts, hidden = 9, 2, 4, 6
    said, act_of, biased = ACTIVATIONS[activation]
    wide = ffn if said.get("activation") == 2 else 2 * ffn
    gate_at = [2 * f if said.get("pairs") else f for f in range(ffn)]
    up_at = [a if wide == ffn else a + 1 if said.get("pairs") else a + ffn for a in gate_at]
    choices = tokens * top_k
    number = lambda n: [draw.gauss(0, 1) for _ in range(n)]  # noqa: E731
    x, dy, weight = number(tokens * hidden), number(tokens * hidden), number(choices)
    up, down = number(experts * hidden * wide), number(experts * ffn * hidden)
    bias = number(experts * wide) if biased else [0.0] * (experts * wide)
    expert = [e if draw.random() < 0.8 else -1 for t in range(tokens) for e in draw.sample([0, 1, 3], top_k)]  # expert 2 has none
    sizes = {"experts": experts, "rows": choices, "tokens": tokens, "top_k": top_k, "transposed": int(transposed)}

    def at(w, e, i, o, inner, out):
        return w[(e * out + o) * inner + i] if transposed else w[(e * inner + i) * out + o]

    row, assignment, offset = integers([0] * choices), integers([-7] * choices), integers([0] * (experts + 1))
    check("plan", run(PLAN, [integers(expert)], [row, assignment, offset, integers([0] * (2 * experts))], **sizes) is None)
    order = [a for e in range(experts) for a in range(choices) if expert[a] == e]
    check("plan: assignments", list(assignment)[:len(order)] == order)
    check("plan: rows", list(row) == [order.index(a) if a in order else -1 for a in range(choices)])
    check("plan: offsets", list(offset) == [sum(0 <= e < last for e in expert) for last in range(experts + 1)])

    # what must come out, by row
    owner = [expert[a] for a in order]
    xr = [x[a // top_k * hidden:][:hidden] for a in order]
    dyr = [dy[a // top_k * hidden:][:hidden] for a in order]
    h = [[sum(r[i] * at(up, e, i, o, hidden, wide) for i in range(hidden)) + bias[e * wide + o] for o in range(wide)]
         for r, e in zip(xr, owner)]
    act = [[act_of(r[g], r[u]) for g, u in zip(gate_at, up_at)] for r in h]
    y_row = [[sum(r[f] * at(down, e, f, o, ffn, hidden) for f in range(ffn)) for o in range(hidden)] for r, e in zip(act, owner)]
    s = [[sum(r[o] * at(down, e, f, o, ffn, hidden) for o in range(hidden)) for f in range(ffn)] for r, e in zip(dyr, owner)]
    d_h = [[0.0] * wide for _ in order]
    for a, t, r, d in zip(order, s, h, d_h):
        for f, (g, u) in enumerate(zip(gate_at, up_at)):
            of_gate, of_up = slopes(act_of, r[g], r[u])
            d[u] = weight[a] * t[f] * of_up
            d[g] = weight[a] * t[f] * of_gate  # the same place where there is one matrix
    weighted = [[weight[a] * v for v in r] for a, r in zip(order, act)]
    dx_row = [[sum(r[o] * at(up, e, i, o, hidden, wide) for o in range(wide)) for i in range(hidden)] for r, e in zip(d_h, owner)]

    def by_token(rows, factor):
        return [sum(factor[a] * rows[order.index(a)][i] for a in range(t * top_k, (t + 1) * top_k) if a in order)
                for t in range(tokens) for i in range(hidden)]

    def by_expert(left, right, inner, out):
        dw = [0.0] * (experts * inner * out)
        for r, (a, b) in enumerate(zip(left, right)):
            for i in range(inner):
                for o in range(out):
                    dw[(owner[r] * out + o) * inner + i if transposed else (owner[r] * inner + i) * out + o] += a[i] * b[o]
        return dw

    def flat(rows, width):
        return [v for r in rows for v in r] + [0.0] * (width * (choices - len(rows)))

    name = f"{'[out][in]' if transposed else '[in][out]'}, {'gathered' if gathers else 'copied'}, {ffn} columns, {activation}"
    rows_of = lambda array, copy: floats(array) if gathers else floats(flat(copy, hidden))  # noqa: E731
    got_h, got_act, y_rows, y = empty(choices * wide), empty(choices * ffn), empty(choices * hidden), empty(tokens * hidden)
    wide_shape, down_shape = {**sizes, "in": hidden, "out": wide}, {**sizes, "in": ffn, "out": hidden}
    run(UP, [rows_of(x, xr), floats(up), offset, assignment, floats(bias) if biased else None], [got_h, got_act], gathers=gathers, **said,
        **wide_shape)
    run(FORWARD, [got_act, floats(down), offset], [y_rows], **down_shape)
    run(COMBINE, [y_rows, row, floats(weight)], [y], **{**sizes, "in": hidden})
    near(f"{name}: h", got_h, flat(h, wide)), near(f"{name}: act", got_act, flat(act, ffn))
    near(f"{name}: y of rows", y_rows, flat(y_row, hidden)), near(f"{name}: y", y, by_token(y_row, weight))

    parts = -(-ffn // 128)
    got_d, got_weighted, sums, dx_rows = empty(choices * wide), empty(choices * ffn), empty(parts * choices), empty(choices * hidden)
    dx, d_weight, d_down, d_up = empty(tokens * hidden), empty(choices), empty(len(down)), empty(len(up))
    main = floats([1.0] * len(up))
    run(DOWN_GRADIENT, [rows_of(dy, dyr), floats(down), offset, assignment, got_h, floats(weight)], [got_d, got_weighted, sums],
        gathers=gathers, **said, **down_shape)
    run(WEIGHT_GRADIENT, [got_weighted, rows_of(dy, dyr), offset, assignment], [d_down], gathers=2 * gathers, **down_shape)
    run(WEIGHT_GRADIENT, [rows_of(x, xr), got_d, offset, assignment], [d_up], gathers=gathers, **wide_shape)
    run(WEIGHT_GRADIENT, [rows_of(x, xr), got_d, offset, assignment], [None, main], gathers=gathers, **wide_shape)
    run(INPUT_GRADIENT, [got_d, floats(up), offset], [dx_rows], **wide_shape)
    run(COMBINE, [dx_rows, row, None], [dx], **{**sizes, "in": hidden})
    run(ROW_SUMS, [sums, row], [d_weight], **{**sizes, "out": parts})
    near(f"{name}: d_h", got_d, flat(d_h, wide)), near(f"{name}: act times weights", got_weighted, flat(weighted, ffn))
    near(f"{name}: dx", dx, by_token(dx_row, [1.0] * choices))
    want = by_expert(xr, d_h, hidden, wide)
    near(f"{name}: d_up", d_up, want), near(f"{name}: main grows", main, [v + 1 for v in want])
    near(f"{name}: d_down", d_down, by_expert(weighted, dyr, ffn, hidden))
    near(f"{name}: d_weight", d_weight, [sum(a * b for a, b in zip(s[order.index(a)], act[order.index(a)])) if a in order else 0.0
                                         for a in range(choices)])


def to_bits(element, number):
    """Of 16 bits, nearest, ties to even; Python's own conversion, which refuses what becomes infinity."""
    if element == FP16:
        try:
            return struct.unpack("<H", struct.pack("<e", float(number)))[0]
        except OverflowError:
            return 0x7C00 if number > 0 else 0xFC00
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def halves(element, numbers):
    return (ctypes.c_uint16 * len(numbers))(*(to_bits(element, n) for n in numbers))


def sixteen_bits(element, scale_left, scale_right, seed):
    """Products of integers times powers of two, exact in fp32: the bits that Python's own conversion gives of each sum."""
    rng, rows, inner, out, offset = random.Random(seed), 9, 8, 16, [0, 4, 4, 7]
    x, dy, w = ([rng.randint(-8, 8) * by for _ in range(n)] for n, by in ((rows * inner, scale_left), (rows * out, scale_left),
                                                                          (3 * inner * out, scale_right)))
    right = [n * scale_right / scale_left for n in dy]  # of the weight gradient
    expert = [next((e for e in range(3) if offset[e] <= r < offset[e + 1]), None) for r in range(rows)]
    said = {"element": element, "experts": 3, "rows": rows, "in": inner, "out": out}
    y, dx, dw = (halves(element, [0.0] * n) for n in (rows * out, rows * inner, 3 * inner * out))
    ends = integers(offset)
    refusals = (run(FORWARD, [halves(element, x), halves(element, w), ends], [y], **said),
                run(INPUT_GRADIENT, [halves(element, dy), halves(element, w), ends], [dx], **said),
                run(WEIGHT_GRADIENT, [halves(element, x), halves(element, right), ends], [dw], **said))

    def of(e, i, o):
        return w[(e * inner + i) * out + o]

    want_y = [0 if expert[r] is None else sum(x[r * inner + i] * of(expert[r], i, o) for i in range(inner)) for r in range(rows)
              for o in range(out)]
    want_dx = [0 if expert[r] is None else sum(dy[r * out + o] * of(expert[r], i, o) for o in range(out)) for r in range(rows)
               for i in range(inner)]
    want_dw = [sum(x[r * inner + i] * right[r * out + o] for r in range(rows) if expert[r] == e) for e in range(3) for i in range(inner)
               for o in range(out)]
    name = f"element {element}, {scale_left} and {scale_right}"
    check(f"{name}: {refusals}", refusals == (None, None, None))
    for part, got, want in (("y", y, want_y), ("dx", dx, want_dx), ("dw", dw, want_dw)):
        check(f"{name}: {part}", list(got) == [to_bits(element, n) for n in want])
    return list(y)


def all_sixteen_bits():
    for element in (BF16, FP16):
        sixteen_bits(element, 1, 1, 1)
    check("sums beyond fp16's end", {0x7C00, 0xFC00} < set(sixteen_bits(FP16, 32, 128, 2)))
    check("not beyond bf16's", 0x7F80 not in sixteen_bits(BF16, 32, 128, 2))
    check("subnormal numbers of fp16", any(0 < n & 0x7FFF < 0x400 for n in sixteen_bits(FP16, 2.0**-24, 0.5, 3)))
    row = integers([1, 0])  # each token's own row, weighted
    got = halves(FP16, [0.0] * 16)
    said = run(COMBINE, [halves(FP16, [float(i) for i in range(16)]), row, floats([0.5, 3.0])], [got], element=FP16, experts=1, rows=2,
               tokens=2, top_k=1, **{"in": 8})
    check(f"combine of fp16: {said}", list(got) == list(halves(FP16, [0.5 * i for i in range(8, 16)] + [3.0 * i for i in range(8)])))


class View:
    """Rows of an array, wider than they are, and matrices of them; what is between is `beside`."""

    def __init__(self, rows, width, row, values=None, height=None, expert=0, beside=math.nan):
        self.places = [(r // height * expert + r % height * row if height else r * row) + i for r in range(rows) for i in range(width)]
        self.beside, numbers = beside, [beside] * (self.places[-1] + 3)
        for place, value in zip(self.places, values or [math.nan] * len(self.places)):
            numbers[place] = value
        self.array = floats(numbers)

    def numbers(self):
        return [self.array[place] for place in self.places]

    def intact(self):
        inside = set(self.places)
        return all(v == self.beside or (math.isnan(v) and math.isnan(self.beside)) for i, v in enumerate(self.array) if i not in inside)


def strides(transposed, beside):
    """Products of views give what they give of packed arrays, and nothing between rows is read or written. beside: expert by expert, or
    rows of experts side by side."""
    rng = random.Random(91 + transposed)
    experts, rows, inner, out, top_k, offset = 3, 9, 5, 8, 2, integers([0, 4, 4, 7])
    height, width = (out, inner) if transposed else (inner, out)
    row_of_w, expert_of_w = (experts * (width + 2), width + 2) if beside else (width + 3, height * (width + 3) + 4)
    wide = lambda n: [rng.gauss(0, 1) for _ in range(n)]  # noqa: E731
    x, dy, w, tokens, weight = wide(rows * inner), wide(rows * out), wide(experts * inner * out), -(-rows // top_k), wide(rows)
    assignment = integers([rng.randrange(rows) for _ in range(rows)])
    said = {"experts": experts, "rows": rows, "in": inner, "out": out, "transposed": int(transposed), "tokens": rows, "top_k": 1}
    matrices = lambda values=None: View(experts * height, width, row_of_w, values, height, expert_of_w)  # noqa: E731
    of_w = {"right": row_of_w, "expert": expert_of_w}
    h = wide(rows * 2 * inner)
    cases = (  # operation, operands, widths of results; strides; more
        (FORWARD, (("left", x, rows, inner), ("right", w), offset), (("result", rows, out),), {}),
        (INPUT_GRADIENT, (("left", dy, rows, out), ("right", w), offset), (("result", rows, inner),), {}),
        (WEIGHT_GRADIENT, (("left", x, rows, inner), ("right", dy, rows, out), offset), ((),), {}),
        (UP, (("left", x, rows, inner), ("right", w), offset, assignment), (("h", rows, out), ("result", rows, out // 2)), {"gathers": 1}),
        (DOWN_GRADIENT, (("left", dy, rows, out), ("right", w), offset, assignment, ("h", h, rows, 2 * inner), floats(weight)),
         (("d_h", rows, 2 * inner), ("result", rows, inner), None), {"gathers": 1}))
    for operation, operands, results, more in cases:
        packed = [floats(o[1]) if isinstance(o, tuple) else o for o in operands]
        sizes = [experts * inner * out if r == () else rows if r is None else r[1] * r[2] for r in results]
        want = [empty(n) for n in sizes]
        answers = [run(operation, packed, want, **said, **more)]
        stride = {o[0]: o[3] + 2 + k for k, o in enumerate(operands) if isinstance(o, tuple) and len(o) == 4}
        views = [matrices(o[1]) if isinstance(o, tuple) and len(o) == 2 else View(o[2], o[3], stride[o[0]], o[1]) if isinstance(o, tuple) else o
                 for o in operands]
        if any(isinstance(o, tuple) and len(o) == 2 for o in operands):
            stride.update(of_w)
        got = []
        for r in results:
            if r == ():
                stride.update(result=row_of_w, expert=expert_of_w)
                got.append(matrices())
            elif r is None:
                got.append(empty(rows))
            else:
                stride[r[0]] = r[2] + 4
                got.append(View(r[1], r[2], r[2] + 4))
        said_strides = {f"stride_{name}": value for name, value in stride.items()}
        arrays = lambda of: [a.array if isinstance(a, View) else a for a in of]  # noqa: E731
        answers.append(run(operation, arrays(views), arrays(got), **said, **more, **said_strides))
        name = f"strides, {operation}, {'[out][in]' if transposed else '[in][out]'}{', side by side' * beside}"
        check(f"{name}: {answers}", answers == [None, None])
        for part, (a, b) in enumerate(zip(got, want)):
            check(f"{name}: result {part}", (a.numbers() if isinstance(a, View) else list(a)) == list(b))
            check(f"{name}: between rows of result {part}", not isinstance(a, View) or a.intact())
        if operation == WEIGHT_GRADIENT:
            main = matrices([1.0] * len(w))
            run(operation, arrays(views), [None, main.array], **said, **more, **said_strides)
            near(f"{name}: main", main.numbers(), [v + 1 for v in want[0]])
            check(f"{name}: between rows of main", main.intact())


def refused():
    a, rising, falling = floats([0.0] * 64), integers([0, 1, 2]), integers([0, 2, 1])
    shape = {"experts": 2, "rows": 2, "in": 4, "out": 4, "tokens": 2, "top_k": 1}
    for what, words, operation, operands, results, more in (
            ("no such operation", "operation 14", 14, [], [], {}),
            ("an operand that is missing", "forward: operand 1", FORWARD, [a, None, rising], [a], {}),
            ("a result that is missing", "up: result 1", UP, [a, a, rising], [a], {}),
            ("neither dw nor main", "either dw or main", WEIGHT_GRADIENT, [a, a, rising], [], {}),
            ("both dw and main", "either dw or main", WEIGHT_GRADIENT, [a, a, rising], [a, a], {}),
            ("offsets that fall", "offset[2] is 1", FORWARD, [a, a, falling], [a], {}),
            ("an expert that is not there", "expert 2 of choice 1", PLAN, [integers([0, 2])], [a, a, a, a], {}),
            ("a row that is not there", "row 5 of choice 0", COMBINE, [a, integers([5, 0])], [a], {}),
            ("an assignment that is not there", "assignment[0] is 7", UP, [a, a, rising, integers([7, 0])], [a, a], {"gathers": 1}),
            ("gathered without assignments", "gathered by assignments", UP, [a, a, rising], [a, a], {"gathers": 1}),
            ("no such activation", "activation 3", UP, [a, a, rising], [a, a], {"activation": 3}),
            ("a limit of GeGLU", "limit of 7", UP, [a, a, rising], [a, a], {"activation": 1, "limit": 7.0}),
            ("a limit below 0", "limit of -1", UP, [a, a, rising], [a, a], {"limit": -1.0}),
            ("one matrix in turn", "one matrix would be right", UP, [a, a, rising], [a, a], {"activation": 2, "pairs": 1}),
            ("an odd number of gate and up", "5 columns of gate and up", UP, [a, a, rising], [a, a], {"out": 5}),
            ("no such element", "element 3", FORWARD, [a, a, rising], [a], {"element": 3}),
            ("fewer than no multiprocessors", "0 for all", FORWARD, [a, a, rising], [a], {"multiprocessors": -1}),
            ("a GPU", "GPU 0", FORWARD, [a, a, rising], [a], {"device": 0}),
            ("sizes whose product wraps", "2 experts of 4611686018427387904 x 4", FORWARD, [a, a, rising], [a], {"in": 2 ** 62}),
            ("so many weights", "each below 2^31", FORWARD, [a, a, rising], [a], {"experts": 2, "in": 2 ** 31 - 1, "out": 2 ** 31 - 1}),
            ("experts that wrap", "each below 2^31", FORWARD, [a, a, rising], [a], {"experts": 2 ** 64 - 1}),
            ("choices that wrap", "so many choices", PLAN, [integers([0, 1])], [a, a, a, a], {"tokens": 2 ** 30, "top_k": 2}),
            ("a plan of other rows", "plan: 3 rows of 2 tokens, top-1; 2", PLAN, [integers([0, 1])], [a, a, a, a], {"rows": 3}),
            ("a part of a row that is not there", "row 5 of choice 0", ROW_SUMS, [a, integers([5, 0])], [a], {}),
            ("a stride that wraps", "below 2^40", FORWARD, [a, a, rising], [a], {"stride_expert": 2 ** 40}),
            ("rows that overlap", "the left operand: rows of 4 elements are 3 apart", FORWARD, [a, a, rising], [a], {"stride_left": 3}),
            ("rows of weights that overlap", "the right operand: rows of 4", INPUT_GRADIENT, [a, a, rising], [a], {"stride_right": 2}),
            ("rows of a result that overlap", "the result: rows of 4", WEIGHT_GRADIENT, [a, a, rising], [a], {"stride_result": 1}),
            ("experts that overlap", "matrices of experts, 12 elements apart, overlap", FORWARD, [a, a, rising], [a], {"stride_expert": 12}),
            ("rows of h that overlap", "h: rows of 4", UP, [a, a, rising], [a, a], {"stride_h": 3}),
            ("a stride where there is none", "row sums of an array with a stride", ROW_SUMS, [a, rising], [a], {"stride_left": 8})):
        refuses(what, words, run(operation, operands, results, **{**shape, **more}))


for transposed in (False, True):
    for gathers in (0, 1):
        layer(transposed, gathers, 7 * transposed + gathers, 5)
for number, activation in enumerate(ACTIVATIONS):
    layer(number % 2 == 0, number % 3 == 0, 40 + number, 5, activation)
layer(True, 1, 5, 260)  # three parts of a row's sum
for transposed in (False, True):
    for beside in (False, True):
        strides(transposed, beside)
all_sixteen_bits()
refused()
end()
