"""The entry of PyTorch's operators on a CPU, without PyTorch: a layer of experts with its gradients against sums in Python, and what must be refused.

    torch_calls.py LIBRARY

kernels/torch/verify_torch.py asks the same through PyTorch, where that is installed."""
import ctypes
import math
import random
import sys

PLAN, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, UP, DOWN_GRADIENT, COMBINE, ROW_SUMS, ABOUT = range(9)
INTEGERS, SIZES = ("operation", "device", "fp32", "transposed", "gathers", "pad"), ("experts", "rows", "in", "out", "tokens", "top_k")
library = ctypes.CDLL(sys.argv[1])
failed = checks = 0


class Call(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_int) for name in INTEGERS] + [(name, ctypes.c_size_t) for name in SIZES]
                + [("operand", ctypes.c_void_p * 6), ("result", ctypes.c_void_p * 4), ("stream", ctypes.c_void_p)])


library.spw_torch_run.restype, library.spw_torch_run.argtypes = ctypes.c_char_p, [ctypes.POINTER(Call)]


def floats(values):
    return (ctypes.c_float * len(values))(*values)


def integers(values):
    return (ctypes.c_int32 * len(values))(*values)


def empty(count):
    return floats([math.nan] * count)


def run(operation, operands, results, **said):
    call = Call(operation=operation, **{"device": -1, "fp32": 1, **said})
    for place, array in enumerate(operands):
        call.operand[place] = None if array is None else ctypes.addressof(array)
    for place, array in enumerate(results):
        call.result[place] = None if array is None else ctypes.addressof(array)
    message = library.spw_torch_run(ctypes.byref(call))
    return None if message is None else message.decode()


def check(what, good):
    global checks, failed
    checks += 1
    failed += not good
    if not good:
        print(f"failed: {what}")


def near(what, got, want):
    worst = max((abs(a - b) for a, b in zip(got, want)), default=0)
    check(f"{what}: off by {worst}", len(got) == len(want) and all(math.isfinite(a) for a in got) and worst <= 1e-4)


def silu(x):
    return x / (1 + math.exp(-x))


def slope(x):
    s = 1 / (1 + math.exp(-x))
    return s * (1 + x * (1 - s))


def layer(transposed, gathers, seed, wide):
    """Whole: plan, up, down, sum; and backward. Every array against plain loops."""
    draw = random.Random(seed)
    tokens, top_k, experts, hidden, ffn = 9, 2, 4, 6, wide
    choices = tokens * top_k
    number = lambda n: [draw.gauss(0, 1) for _ in range(n)]  # noqa: E731
    x, dy, weight = number(tokens * hidden), number(tokens * hidden), number(choices)
    up, down = number(experts * hidden * 2 * ffn), number(experts * ffn * hidden)
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
    h = [[sum(r[i] * at(up, e, i, o, hidden, 2 * ffn) for i in range(hidden)) for o in range(2 * ffn)] for r, e in zip(xr, owner)]
    act = [[silu(g) * u for g, u in zip(r[:ffn], r[ffn:])] for r in h]
    y_row = [[sum(r[f] * at(down, e, f, o, ffn, hidden) for f in range(ffn)) for o in range(hidden)] for r, e in zip(act, owner)]
    s = [[sum(r[o] * at(down, e, f, o, ffn, hidden) for o in range(hidden)) for f in range(ffn)] for r, e in zip(dyr, owner)]
    d_h = [[weight[a] * d * u * slope(g) for d, g, u in zip(t, r[:ffn], r[ffn:])] + [weight[a] * d * silu(g) for d, g in zip(t, r[:ffn])]
           for a, t, r in zip(order, s, h)]
    weighted = [[weight[a] * v for v in r] for a, r in zip(order, act)]
    dx_row = [[sum(r[o] * at(up, e, i, o, hidden, 2 * ffn) for o in range(2 * ffn)) for i in range(hidden)] for r, e in zip(d_h, owner)]

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

    name = f"{'[out][in]' if transposed else '[in][out]'}, {'gathered' if gathers else 'copied'}, {ffn} columns"
    rows_of = lambda array, copy: floats(array) if gathers else floats(flat(copy, hidden))  # noqa: E731
    got_h, got_act, y_rows, y = empty(choices * 2 * ffn), empty(choices * ffn), empty(choices * hidden), empty(tokens * hidden)
    wide_shape, down_shape = {**sizes, "in": hidden, "out": 2 * ffn}, {**sizes, "in": ffn, "out": hidden}
    run(UP, [rows_of(x, xr), floats(up), offset, assignment], [got_h, got_act], gathers=gathers, **wide_shape)
    run(FORWARD, [got_act, floats(down), offset], [y_rows], **down_shape)
    run(COMBINE, [y_rows, row, floats(weight)], [y], **{**sizes, "in": hidden})
    near(f"{name}: h", got_h, flat(h, 2 * ffn)), near(f"{name}: act", got_act, flat(act, ffn))
    near(f"{name}: y of rows", y_rows, flat(y_row, hidden)), near(f"{name}: y", y, by_token(y_row, weight))

    parts = -(-ffn // 256)
    got_d, got_weighted, sums, dx_rows = empty(choices * 2 * ffn), empty(choices * ffn), empty(parts * choices), empty(choices * hidden)
    dx, d_weight, d_down, d_up = empty(tokens * hidden), empty(choices), empty(len(down)), empty(len(up))
    main = floats([1.0] * len(up))
    run(DOWN_GRADIENT, [rows_of(dy, dyr), floats(down), offset, assignment, got_h, floats(weight)], [got_d, got_weighted, sums],
        gathers=gathers, **down_shape)
    run(WEIGHT_GRADIENT, [got_weighted, rows_of(dy, dyr), offset, assignment], [d_down], gathers=2 * gathers, **down_shape)
    run(WEIGHT_GRADIENT, [rows_of(x, xr), got_d, offset, assignment], [d_up], gathers=gathers, **wide_shape)
    run(WEIGHT_GRADIENT, [rows_of(x, xr), got_d, offset, assignment], [None, main], gathers=gathers, **wide_shape)
    run(INPUT_GRADIENT, [got_d, floats(up), offset], [dx_rows], **wide_shape)
    run(COMBINE, [dx_rows, row, None], [dx], **{**sizes, "in": hidden})
    run(ROW_SUMS, [sums, row], [d_weight], **{**sizes, "out": parts})
    near(f"{name}: d_h", got_d, flat(d_h, 2 * ffn)), near(f"{name}: act times weights", got_weighted, flat(weighted, ffn))
    near(f"{name}: dx", dx, by_token(dx_row, [1.0] * choices))
    want = by_expert(xr, d_h, hidden, 2 * ffn)
    near(f"{name}: d_up", d_up, want), near(f"{name}: main grows", main, [v + 1 for v in want])
    near(f"{name}: d_down", d_down, by_expert(weighted, dyr, ffn, hidden))
    near(f"{name}: d_weight", d_weight, [sum(a * b for a, b in zip(s[order.index(a)], act[order.index(a)])) if a in order else 0.0
                                         for a in range(choices)])


def refused():
    a, rising, falling = floats([0.0] * 64), integers([0, 1, 2]), integers([0, 2, 1])
    shape = {"experts": 2, "rows": 2, "in": 4, "out": 4, "tokens": 2, "top_k": 1}
    for what, words, operation, operands, results, more in (
            ("no such operation", "operation 9", 9, [], [], {}),
            ("an operand that is missing", "forward: operand 1", FORWARD, [a, None, rising], [a], {}),
            ("a result that is missing", "up: result 1", UP, [a, a, rising], [a], {}),
            ("neither dw nor main", "either dw or main", WEIGHT_GRADIENT, [a, a, rising], [], {}),
            ("both dw and main", "either dw or main", WEIGHT_GRADIENT, [a, a, rising], [a, a], {}),
            ("offsets that fall", "offset[2] is 1", FORWARD, [a, a, falling], [a], {}),
            ("an expert that is not there", "expert 2 of choice 1", PLAN, [integers([0, 2])], [a, a, a, a], {}),
            ("a row that is not there", "row 5 of choice 0", COMBINE, [a, integers([5, 0])], [a], {}),
            ("an assignment that is not there", "assignment[0] is 7", UP, [a, a, rising, integers([7, 0])], [a, a], {"gathers": 1}),
            ("gathered without assignments", "gathered by assignments", UP, [a, a, rising], [a, a], {"gathers": 1}),
            ("a GPU", "GPU 0", FORWARD, [a, a, rising], [a], {"device": 0}),
            ("sizes beyond memory", "fewer would be right", FORWARD, [a, a, rising], [a], {"in": 2 ** 62})):
        said = run(operation, operands, results, **{**shape, **more})
        check(f"{what} is refused: {said}", said is not None and words in said)
    about = integers([0])
    check("a CPU has the fused products", run(ABOUT, [], [about]) is None and about[0] == 1)


for transposed in (False, True):
    for gathers in (0, 1):
        layer(transposed, gathers, 7 * transposed + gathers, 5)
layer(True, 1, 5, 260)  # two parts of a row's sum
refused()
print(f"{checks} checks, {failed} failed")
sys.exit(1 if failed or not checks else 0)
