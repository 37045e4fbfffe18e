"""The entry of PyTorch's operators on a CPU, without PyTorch: codes of fp8 and their products against Python, and what must be refused.

    torch_float8_calls.py LIBRARY"""
import ctypes
import random
import struct

from torch_entry import (ACTIVATIONS, F8_ACT, F8_GRADIENT, F8_PRODUCT, F8_ROWS, F8_SLOPES, F8_WEIGHTS, check, empty, end, floats, integers, near,
                         refuses, run, slopes)


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def code_value(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    return (-1.0 if code & 128 else 1.0) * ((8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0 ** -9)


CODES = [code_value(c) for c in range(127)]


def block_of(values):
    """The numbers that codes of a block stand for, and the codes: the nearest, the even one of two, of values over largest / 448."""
    scale = single(max(abs(v) for v in values) / 448) or 1.0
    codes = []
    for v in values:
        ratio = single(v / scale)
        best = min(range(127), key=lambda c: (abs(CODES[c] - abs(ratio)), c % 2))
        codes.append(best | (128 if ratio < 0 else 0))
    return scale, codes, [single(code_value(c) * scale) for c in codes]


def blocks_of(values):
    """The same of a row or a column: scales, codes, numbers."""
    parts = [block_of(values[at : at + 128]) for at in range(0, len(values), 128)]
    return [p[0] for p in parts], [c for p in parts for c in p[1]], [v for p in parts for v in p[2]]


def signless(codes):
    return [0 if c == 128 else c for c in codes]


def float8(transposed, counts, tail, inner, out, top_k, seed):
    """Codes of gathered rows both ways, of weights both ways, the product, its input gradient and the gradient of weights."""
    rng = random.Random(seed)
    experts, rows = len(counts), sum(counts) + tail
    draw = lambda n: [single(rng.gauss(0, 1) * 2.0 ** rng.randrange(-4, 4)) for _ in range(n)]  # noqa: E731
    offset = [sum(counts[:e]) for e in range(experts + 1)]
    tokens, x, w, dy = rows, draw(rows * inner), draw(experts * inner * out), draw(rows * out)
    assignment = [rng.randrange(tokens * top_k) for _ in range(rows)]
    row_of = [x[a // top_k * inner : (a // top_k + 1) * inner] for a in assignment]
    sizes = {"experts": experts, "rows": rows, "in": inner, "out": out, "tokens": tokens, "top_k": top_k, "transposed": transposed}
    name, blocks, across, wide = f"fp8 {counts} {inner} x {out}", rows // 128 + experts, -(-inner // 128), -(-out // 128)
    new = lambda n: (ctypes.c_uint8 * n)(*[0x55] * n)  # noqa: E731

    code, scale, columns, column_scale = new(rows * inner), empty(rows * across), new(inner * blocks * 128), empty(blocks * inner)
    said = run(F8_ROWS, [floats(x), None, integers(offset), integers(assignment)], [code, scale, columns, column_scale], gathers=1, **sizes)
    check(f"{name}: rows: {said}", said is None)
    coded = [blocks_of(r) for r in row_of]
    for r in range(offset[-1]):
        check(f"{name}: row {r}", signless(code[r * inner : (r + 1) * inner]) == signless(coded[r][1])
              and list(scale[r * across : (r + 1) * across]) == coded[r][0])
    by_column = [[None] * inner for _ in counts]
    for e, i in ((e, i) for e in range(experts) for i in range(inner)):
        scales, codes, by_column[e][i] = blocks_of([row_of[r][i] for r in range(offset[e], offset[e + 1])])
        first = offset[e] // 128 + e
        codes += [0] * (-len(codes) % 128)
        at = (i * blocks + first) * 128
        check(f"{name}: column {i} of expert {e}", signless(columns[at : at + len(codes)]) == signless(codes)
              and [column_scale[(first + b) * inner + i] for b in range(len(scales))] == scales)

    weight, weight_scale, turned, turned_scale = (new(len(w)), empty(experts * wide * across), new(len(w)), empty(experts * wide * across))
    said = run(F8_WEIGHTS, [floats(w)], [weight, weight_scale, turned, turned_scale], **sizes)
    of_w = lambda e, i, o: e * inner * out + (o * inner + i if transposed else i * out + o)  # noqa: E731
    numbers = [0.0] * len(w)
    for e, b, c in ((e, b, c) for e in range(experts) for b in range(wide) for c in range(across)):
        tile = [(i, o) for o in range(b * 128, min(out, b * 128 + 128)) for i in range(c * 128, min(inner, c * 128 + 128))]
        s, codes, values = block_of([w[of_w(e, i, o)] for i, o in tile])
        for (i, o), v in zip(tile, values):
            numbers[of_w(e, i, o)] = v
        good = [weight[(e * out + o) * inner + i] for i, o in tile] == codes == [turned[(e * inner + i) * out + o] for i, o in tile]
        check(f"{name}: tile of weights: {said}", good and weight_scale[(e * wide + b) * across + c] == s == turned_scale[(e * across + c) * wide + b])

    y, dx = empty(rows * out), empty(rows * inner)
    run(F8_PRODUCT, [code, weight, integers(offset), scale, weight_scale], [y], **sizes)
    expert = [e for e in range(experts) for _ in range(counts[e])]
    relative(f"{name}: y", y, [sum(coded[r][2][i] * numbers[of_w(expert[r], i, o)] for i in range(inner)) if r < offset[-1] else 0.0
                               for r in range(rows) for o in range(out)])
    dcode, dscale, dcolumns, dcolumn_scale = new(rows * out), empty(rows * wide), new(out * blocks * 128), empty(blocks * out)
    run(F8_ROWS, [floats(dy), None, integers(offset)], [dcode, dscale, dcolumns, dcolumn_scale], **{**sizes, "in": out})
    dcoded = [blocks_of(dy[r * out : (r + 1) * out])[2] for r in range(rows)]
    run(F8_PRODUCT, [dcode, turned, integers(offset), dscale, turned_scale], [dx], **{**sizes, "in": out, "out": inner})
    relative(f"{name}: dx", dx, [sum(dcoded[r][o] * numbers[of_w(expert[r], i, o)] for o in range(out)) if r < offset[-1] else 0.0
                                 for r in range(rows) for i in range(inner)])
    dw, main = empty(len(w)), floats([1.0] * len(w))
    for results in ([dw], [None, main]):
        run(F8_GRADIENT, [columns, dcolumns, integers(offset), column_scale, dcolumn_scale], results, **sizes)
    want = [0.0] * len(w)
    for e, o in ((e, o) for e in range(experts) for o in range(out)):
        d = blocks_of([dy[r * out + o] for r in range(offset[e], offset[e + 1])])[2]
        for i in range(inner):
            want[of_w(e, i, o)] = sum(a * b for a, b in zip(by_column[e][i], d))
    relative(f"{name}: dw", dw, want), relative(f"{name}: main grows", main, [v + 1 for v in want])


def stand_for(what, codes, scales, blocks):
    """Codes and scales of blocks stand for their numbers: within half a step, of which 2^-4 of a number is the largest, and 2^-10 scales the least."""
    for b, block in enumerate(blocks):
        scale = max(map(abs, block)) / 448 or 1.0
        good = abs(scales[b] - scale) <= 1e-4 * scale and all(
            abs(code_value(c) * scales[b] - v) <= 2.0 ** -4 * 1.01 * abs(v) + 2.0 ** -10 * 1.01 * scale for c, v in zip(codes[b], block))
        check(f"{what}, block {b}", good and len(codes[b]) >= len(block) and all(c & 127 == 0 for c in codes[b][len(block):]))


def float8_between(activation, counts, tail, ffn, seed):
    """Codes of act, of act times weights with the weights' gradients, and of the gradient of gate and up; by rows and by columns."""
    rng, (said, act_of, _) = random.Random(seed), ACTIVATIONS[activation]
    wide = ffn if said.get("activation") == 2 else 2 * ffn
    experts, rows, offset = len(counts), sum(counts) + tail, [sum(counts[:e]) for e in range(len(counts) + 1)]
    gate_at = [2 * f if said.get("pairs") else f for f in range(ffn)]
    up_at = [a if wide == ffn else a + 1 if said.get("pairs") else a + ffn for a in gate_at]
    h, d_act, weight = ([rng.gauss(0, 1) for _ in range(n)] for n in (rows * wide, rows * ffn, 2 * rows))
    assignment = [rng.randrange(2 * rows) if r < offset[-1] else -9 for r in range(rows)]
    act, weighted, d_h, sums = [], [], [], [[0.0] * rows for _ in range(-(-ffn // 128))]
    for r in range(offset[-1]):
        points = [(h[r * wide + g], h[r * wide + u]) for g, u in zip(gate_at, up_at)]
        act.append([act_of(*p) for p in points])
        weighted.append([weight[assignment[r]] * a for a in act[r]])
        d_h.append([0.0] * wide)
        for f, p in enumerate(points):
            d = d_act[r * ffn + f]
            sums[f // 128][r] += d * act[r][f]
            for at, slope in zip((up_at[f], gate_at[f]), slopes(act_of, *p)[::-1]):  # the same place where there is one matrix
                d_h[r][at] = weight[assignment[r]] * d * slope
    operands = [floats(h), floats(d_act), integers(offset), integers(assignment), floats(weight)]
    sizes = {"experts": experts, "rows": rows, "in": ffn, "tokens": rows, "top_k": 2, **said}
    for what, operation, given, width, want in (("act", F8_ACT, [operands[0], None, operands[2]], ffn, act), ("weighted act", F8_ACT, operands, ffn, weighted),
                                                ("gradient of h", F8_SLOPES, operands, wide, d_h)):
        name, across, blocks = f"fp8 of {activation}, {what}", -(-width // 128), rows // 128 + experts
        code, columns, sum_ = (ctypes.c_uint8 * (rows * width))(), (ctypes.c_uint8 * (width * blocks * 128))(), empty(len(sums) * rows)
        scale, column_scale = empty(rows * across), empty(blocks * width)
        said_ = run(operation, given, [code, scale, columns, column_scale, sum_ if what == "weighted act" else None], **sizes)
        check(f"{name}: {said_}", said_ is None)
        for r, row in enumerate(want):
            cut = range(0, width, 128)
            stand_for(f"{name}, row {r}", [code[r * width + a : r * width + min(width, a + 128)] for a in cut], scale[r * across :],
                      [row[a : a + 128] for a in cut])
        for e, i in ((e, i) for e in range(experts) for i in range(width)):
            first, column = offset[e] // 128 + e, [want[r][i] for r in range(offset[e], offset[e + 1])]
            used = range(-(-len(column) // 128))
            stand_for(f"{name}, column {i} of expert {e}", [columns[(i * blocks + first + b) * 128 :][:128] for b in used],
                      [column_scale[(first + b) * width + i] for b in used], [column[b * 128 : b * 128 + 128] for b in used])
        if what == "weighted act":
            near(f"{name}: sums of rows", [sum_[p * rows + r] for p in range(len(sums)) for r in range(offset[-1])],
                 [v for part in sums for v in part[: offset[-1]]])


def relative(what, got, want):
    largest = max(map(abs, want)) or 1.0
    near(what, [v / largest for v in got], [v / largest for v in want])


def refused():
    a, rising, falling = floats([0.0] * 64), integers([0, 1, 2]), integers([0, 2, 1])
    shape = {"experts": 2, "rows": 2, "in": 4, "out": 4, "tokens": 2, "top_k": 1}
    for what, words, operation, operands, results, more in (
            ("codes without scales", "both would be right", F8_ROWS, [a, None, rising], [a, None], {}),
            ("fp8 of rows that are gathered", "rows in order", F8_PRODUCT, [a, a, rising, a, a], [a], {"gathers": 1}),
            ("fp8 with neither dw nor main", "either dw or main", F8_GRADIENT, [a, a, rising, a, a], [], {}),
            ("a backward pass without weights", "all or none", F8_ACT, [a, a, rising, rising], [a, a, None, None, a], {}),
            ("a backward pass without assignments", "all or none", F8_ACT, [a, a, rising, None, a], [a, a, None, None, a], {}),
            ("a backward pass without row sums", "all or none", F8_ACT, [a, a, rising, rising, a], [a, a], {}),
            ("row sums of a forward pass", "all or none", F8_ACT, [a, None, rising], [a, a, None, None, a], {}),
            ("slopes without weights", "operand 4", F8_SLOPES, [a, a, rising, rising], [a, a], {}),
            ("slopes of a choice that is not there", "assignment[0] is 7", F8_SLOPES, [a, a, rising, integers([7, 0]), a], [a, a], {}),
            ("slopes of no such activation", "activation 3", F8_SLOPES, [a, a, rising, rising, a], [a, a], {"activation": 3}),
            ("offsets of fp8 that fall", "offset[2] is 1", F8_ROWS, [a, None, falling], [a, a], {}),
            ("an assignment of fp8 that is not there", "assignment[0] is 7", F8_ROWS, [a, None, rising, integers([7, 0])], [a, a], {"gathers": 1}),
            ("fp8 beyond memory", "each below 2^31", F8_PRODUCT, [a, a, rising, a, a], [a], {"in": 2 ** 62}),
            ("a stride of fp8", "fp8 product of an array with a stride", F8_PRODUCT, [a, a, rising, a, a], [a], {"stride_left": 8})):
        refuses(what, words, run(operation, operands, results, **{**shape, **more}))


float8(False, [3, 0, 130], 2, 16, 24, 2, 71), float8(True, [5, 1], 0, 136, 8, 1, 72)
for number, activation in enumerate(("swiglu", "clamped in turn, bias", "geglu, bias", "relu2")):
    float8_between(activation, [[3, 0, 130], [2], [129, 1], [0, 5]][number], number % 3, [16, 136, 8, 260][number], 80 + number)
refused()
end()
