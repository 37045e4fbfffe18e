"""fp8 by columns in the emulator: the gradient of weights, of codes with a scale for 128 rows of an expert and a column, on ragged, empty,
one-row and one-expert groups and on edges of tiles and blocks. Forward: emulate_gemm.py."""
import struct

import numpy as np

from emulate_gemm import FLOAT8, is_spoiled, packed_strides, spoil
from emulate_gemm import CASES as BF16_CASES
from emulate_memory import Array, from_bf16, interval_bf16, problem_of, to_bf16

BLOCK, NAN_CODE = 128, 0x7F
# counts of rows by expert, unused rows behind them, inner, columns
CASES = {
    "one row": ([1], 0, 8, 8),
    "ragged, an empty expert": (BF16_CASES["ragged, an empty expert"][0], 0, 72, 40),
    "whole blocks and one row more": ([128, 0, 129, 256], 0, 24, 136),
    "one expert owns all": ([0, 300, 0], 0, 40, 136),
    "unused rows behind": ([3, 120, 20], 9, 32, 24),
    "several tiles": ([200, 9], 0, 264, 136),
}


def layout(counts, unused):
    """offset, first block of each expert, and how many blocks the arrays have."""
    offset = np.array([0, *np.cumsum(counts)], np.int32)
    return offset, offset[:-1] // BLOCK + np.arange(len(counts)), (sum(counts) + unused) // BLOCK + len(counts)


def by_columns(rng, counts, unused, width, exact):
    """codes [width][blocks][128] and scales [blocks][width] that stand for numbers [rows][width]; NaN where nobody may read."""
    offset, first, blocks = layout(counts, unused)
    finite = np.flatnonzero(np.isfinite(FLOAT8) & ((abs(FLOAT8) <= 8) & (FLOAT8 % 1 == 0) if exact else True)).astype(np.uint8)
    codes, scale = np.full((width, blocks, BLOCK), NAN_CODE, np.uint8), np.full((blocks, width), np.nan, np.float32)
    numbers = np.zeros((sum(counts) + unused, width))
    for e, count in enumerate(counts):
        used = -(-count // BLOCK)
        drawn = rng.choice(finite, (width, used * BLOCK))
        drawn[:, count:] = 0
        codes[:, first[e] : first[e] + used] = drawn.reshape(width, used, BLOCK)
        s = (2.0 ** rng.integers(-2, 3, (used, width)) if exact else rng.uniform(0.5, 2, (used, width))).astype(np.float32)
        scale[first[e] : first[e] + used] = s
        numbers[offset[e] : offset[e + 1]] = (FLOAT8[drawn] * np.repeat(s.T.astype(np.float64), BLOCK, 1)).T[:count]
    return codes, scale, numbers


def weights_tester(variant, tile_m, tile_n, kernels, cases):
    """kernels: name, whether it adds (None: as the argument says). Two work-groups of a persistent kernel must get through all tiles."""

    def test(program, judge, label):
        rng = np.random.default_rng(19)
        for name, case in cases.items():
            for exact in (True, False):
                for kernel, adds in kernels:
                    check(program, judge, f"{label}, {name}, {'integers' if exact else 'all codes'}{', added' * adds}", kernel, adds, case, exact, rng)

    def check(program, judge, label, kernel, adds, case, exact, rng):
        counts, unused, inner, columns = case
        offset, _, blocks = layout(counts, unused)
        (a, a_scale, left), (b, b_scale, right) = (by_columns(rng, counts, unused, width, exact) for width in (inner, columns))
        groups = [slice(offset[e], offset[e + 1]) for e in range(len(counts))]
        want, scale = (np.stack([f(left[g]).T @ f(right[g]) for g in groups]) for f in (np.asarray, abs))
        inputs = {k: Array(v) for k, v in (("a", a), ("b", b), ("offset", offset), ("a_scale", a_scale), ("b_scale", b_scale))}
        main = rng.integers(-8, 9, want.shape).astype(np.float32)
        c = Array(shape=want.shape, dtype=np.float32 if adds else np.uint16)
        limit = 2 if tile_m is None else -(-inner // tile_m) * -(-columns // tile_n) * len(counts)
        argument = struct.pack("<6i", len(counts), sum(counts) + unused, inner, columns, 0, limit)
        argument += b"".join(inputs[k].pointer() for k in ("a", "b", "offset")) + (struct.pack("<Q", 0) if adds else c.pointer())
        argument += packed_strides(inputs["a"], inputs["b"], c)
        argument += struct.pack("<2i", blocks, adds) + inputs["a_scale"].pointer() + inputs["b_scale"].pointer()
        argument += c.pointer() if adds else struct.pack("<Q", 0)
        terms = min(max(counts), BLOCK) + 3 + -(-max(counts) // BLOCK)

        def launch():
            if adds:
                c.view[...] = main
            program.launch(kernel, limit, 256, [argument])

        def verdict():
            if adds:
                right_ = abs(c.view - (want + main)) <= (0 if exact else (terms + 3) * 2.0**-24 * (scale + abs(main)))
            elif exact:
                right_ = c.view == to_bf16(want)
            else:
                low, high = interval_bf16(want, scale, terms)
                right_ = (from_bf16(c.view) >= low) & (from_bf16(c.view) <= high)
            return problem_of([c], list(inputs.values()), [("values", right_)])

        launch()
        judge.count(label, verdict())
        if not exact or not is_spoiled(counts):
            return
        if not adds:
            spoil(judge, label, c, verdict)
        for which in ("a_scale", "b_scale"):  # what a kernel that takes another block's, or column's, scale leaves
            inputs[which].view[...] = np.roll(inputs[which].original, 1, axis=1)
            launch()
            inputs[which].view[...] = inputs[which].original
            judge.expect_rejection(f"{label}, {which} of the next column", verdict())

    test.__name__ = f"test_gemm_float8_weights_{variant}"
    return test


def float8_weights_matrix_tests(cases):
    kernels = [("gemm_float8_weights_mfma", 0), ("gemm_float8_weights_added_mfma", 1)]
    return [("grouped_gemm_float8_weights_mfma", weights_tester("mfma", None, None, kernels, cases))]


FLOAT8_TESTS = [
    ("grouped_gemm_float8_naive", weights_tester("naive", 16, 16, [("gemm_float8_weights_naive", 0), ("gemm_float8_weights_naive", 1)], CASES)),
    *float8_weights_matrix_tests(CASES),
]


# ---- codes of rows, activations and weights ------------------------------------------------------------------------------------------
FINITE = FLOAT8[:127]  # codes 0 ... 126, ascending; an even code is at an even place


def to_codes(x, scale):
    """Nearest e4m3fn of x / scale, ties to even, saturating; NaN is 0x7f."""
    ratio = x.astype(np.float32) / scale.astype(np.float32)
    magnitude = np.minimum(abs(ratio.astype(np.float64)), FINITE[-1])
    above = np.minimum(np.searchsorted(FINITE, magnitude), 126)
    below = np.maximum(above - 1, 0)
    to_above, to_below = FINITE[above] - magnitude, magnitude - FINITE[below]
    nearest = np.where((to_above < to_below) | ((to_above == to_below) & (above % 2 == 0)), above, below)
    return np.where(np.isnan(ratio), NAN_CODE, nearest | np.signbit(ratio) * 0x80).astype(np.uint8)


def coded(x, axes):
    """codes and scale of an array whose blocks lie along these axes; NaN takes no part in the scale."""
    largest = np.nan_to_num(abs(x), nan=0).max(axes, keepdims=True).astype(np.float32)
    ratio = largest / np.float32(448)
    scale = np.where(ratio > 0, ratio, np.float32(1))
    return to_codes(x, scale), scale


def padded(x, *multiples):
    return np.pad(x, [(0, -x.shape[i] % m) for i, m in enumerate(multiples)])


def expected(x, counts, unused):
    """The four arrays of rows x, poison where nobody writes."""
    offset, first, blocks = layout(counts, unused)
    rows, width = sum(counts) + unused, x.shape[1]
    across = -(-width // BLOCK)
    code, scale = np.full((rows, width), 0xFF, np.uint8), np.full((rows, across), 0xFFFFFFFF, np.uint32).view(np.float32)
    column_code = np.full((width, blocks, BLOCK), 0xFF, np.uint8)
    column_scale = np.full((blocks, width), 0xFFFFFFFF, np.uint32).view(np.float32)
    for e, count in enumerate(counts):
        if count == 0:
            continue
        own = slice(offset[e], offset[e + 1])
        codes, scales = coded(padded(x[own], 1, BLOCK).reshape(count, across, BLOCK), 2)
        code[own], scale[own] = codes.reshape(count, -1)[:, :width], scales[..., 0]
        used = -(-count // BLOCK)
        codes, scales = coded(padded(x[own], BLOCK, 1).reshape(used, BLOCK, width), 1)
        column_code[:, first[e] : first[e] + used] = codes.transpose(2, 0, 1)
        column_scale[first[e] : first[e] + used] = scales[:, 0]
    return code, scale, column_code, column_scale


def same(got, want):
    """A NaN's sign is nobody's."""
    if got.dtype != np.uint8:
        return got.view(np.uint32) == want.view(np.uint32)
    return (got == want) | ((got & 127 == 127) & (want & 127 == 127))


QUANTIZE_CASES = {  # counts of rows, unused rows, width
    "one row": ([1], 0, 16),
    "ragged, an empty expert": ([33, 0, 130], 0, 144),
    "a block and one, unused rows": ([128, 0, 1], 5, 32),
}


def drawn(rng, *shape):
    """bf16 of any size, with zeros and a NaN."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 8, shape)
    bits = to_bf16((x * (rng.random(shape) > 0.1)).astype(np.float32))
    bits.reshape(-1)[7] = 0x7FC0
    return bits


def test_float8_quantize(program, judge, label):
    quantize(program, judge, label, ("rows", "gathered", "relu2"), None)


def test_float8_swiglu(program, activation, judge, label):
    """Bit by bit what the kernel of the activation alone makes, coded."""
    quantize(program, judge, label, ("swiglu",), activation)


def quantize(program, judge, label, kernels, activation):
    rng = np.random.default_rng(23)
    for name, (counts, unused, width) in QUANTIZE_CASES.items():
        rows, (offset, _, blocks) = sum(counts) + unused, layout(counts, unused)
        for kernel in kernels:
            x = drawn(rng, rows, 2 * width if kernel == "swiglu" else width)
            if kernel == "swiglu":  # below 2^-126 the emulator's division gives 0
                x[:, :width] = np.where(from_bf16(x[:, :width]) < -64, np.uint16(0xC280), x[:, :width])
            inputs = [Array(offset), Array(x)]
            rest = [inputs[1].pointer()]
            if kernel == "gathered":
                assignment = rng.integers(0, 3 * rows, rows).astype(np.int32)
                assignment[offset[-1] :] = -(10**9)
                inputs.append(Array(assignment))
                rest += [inputs[2].pointer(), struct.pack("<i", 3)]
                x = x[np.clip(assignment // 3, 0, rows - 1)]
            if kernel in ("swiglu", "relu2"):
                stride, form, up = (2 * width, 0, 2 * width) if kernel == "swiglu" else (width, 4, 0)
                at = struct.unpack("<Q", rest[0])[0]
                rest = [struct.pack("<3i2fi2Q", rows, width, stride, 0.0, 0.0, form, at, at + up)]
            if kernel == "relu2":
                positive = np.where(from_bf16(x) > 0, from_bf16(x), np.float32(0))
                x = to_bf16(positive * positive)
            if kernel == "swiglu":
                act = Array(shape=(rows, width), dtype=np.uint16)
                activation.launch("swiglu", -(-rows * width // 8 // 256) or 1, 256, [rest[0], act.pointer()])
                x = act.view
            check_quantize(program, judge, f"{label}, {kernel}, {name}", kernel, (counts, unused, width, blocks), inputs, rest, from_bf16(x))


def test_float8_backward(program, activation, gradient, judge, label):
    """act times weights of -1, 0 and 1, and the gradient of gate and up: bit by bit what the kernels of these alone make, coded; sums of rows."""
    rng = np.random.default_rng(31)
    for name, (counts, unused, ffn) in QUANTIZE_CASES.items():
        rows, (offset, _, blocks) = sum(counts) + unused, layout(counts, unused)
        used, pieces = offset[-1], -(-(sum(counts) + unused) * ffn // 8 // 256) or 1
        h, d_act = drawn(rng, rows, 2 * ffn), drawn(rng, rows, ffn)
        h[:, :ffn] = np.where(from_bf16(h[:, :ffn]) < -64, np.uint16(0xC280), h[:, :ffn])  # as above
        weight, assignment = rng.integers(-1, 2, 3 * rows).astype(np.float32), rng.integers(0, 3 * rows, rows).astype(np.int32)
        assignment[used:] = -(10**9)
        factor = np.where(np.arange(rows) < used, weight[np.maximum(assignment, 0)], 1)[:, None].astype(np.float32)
        inputs = [Array(a) for a in (offset, h, d_act, assignment, weight)]
        at = struct.unpack("<Q", inputs[1].pointer())[0]
        form = struct.pack("<3i2fi2Q", rows, ffn, 2 * ffn, 0.0, 0.0, 0, at, at + 2 * ffn)
        row_sum, act, d_h = Array(shape=(-(-ffn // BLOCK), rows), dtype=np.float32), Array(shape=(rows, ffn), dtype=np.uint16), Array(h * 0)
        scaled, d_at = Array(to_bf16(factor * from_bf16(d_act))), struct.unpack("<Q", d_h.pointer())[0]
        activation.launch("swiglu", pieces, 256, [form, act.pointer()])
        gradient.launch("swiglu_gradient", pieces, 256, [form, scaled.pointer(), *(struct.pack("<Q", d_at + side * 2 * ffn) for side in (0, 1))])
        argument = [form + b"".join(a.pointer() for a in (*inputs[2:], row_sum))]
        check_quantize(program, judge, f"{label}, slopes, {name}", "slopes_swiglu", (counts, unused, 2 * ffn, blocks), inputs, argument,
                       from_bf16(d_h.view))
        judge.count(f"{label}, slopes leave sums alone, {name}", problem_of([row_sum], [], [("sums", np.isnan(row_sum.view))]))
        check_quantize(program, judge, f"{label}, weighted, {name}", "weighted_swiglu", (counts, unused, ffn, blocks), inputs, argument,
                       factor * from_bf16(act.view))
        terms = np.pad(from_bf16(d_act).astype(np.float64) * from_bf16(act.view), ((0, 0), (0, -ffn % BLOCK))).reshape(rows, -1, BLOCK)
        want, scale = terms.sum(2).T, abs(terms).sum(2).T  # act is rounded here, and not there
        near = (abs(row_sum.view - want) <= (2.0**-8 + (BLOCK + 2) * 2.0**-24) * scale) | (np.isnan(row_sum.view) & np.isnan(want))
        near[:, used:] = np.isnan(row_sum.view[:, used:])
        judge.count(f"{label}, sums of rows, {name}", problem_of([row_sum], [], [("sums", near)]))


def check_quantize(program, judge, label, kernel, case, inputs, rest, values):
    counts, unused, width, blocks = case
    want = expected(values, counts, unused)
    got = [Array(shape=w.shape, dtype=w.dtype) for w in want]
    argument = struct.pack("<4i", len(counts), sum(counts) + unused, width, 0) + inputs[0].pointer() + b"".join(g.pointer() for g in got)
    program.launch(f"float8_{kernel}", blocks * -(-width // BLOCK), 256, [argument, *rest])

    def verdict():
        names = "codes", "scales", "column codes", "column scales"
        return problem_of(got, inputs, [(what, same(g.view, w)) for what, g, w in zip(names, got, want)])

    judge.count(label, verdict())
    if kernel not in ("gathered", "relu2") and len(counts) > 1:
        for which, array in enumerate(got):
            kept = array.view.copy()
            array.view[...] = np.roll(kept, 1)
            judge.expect_rejection(f"{label}, array {which} shifted", verdict())
            array.view[...] = kept


def test_float8_weights(program, judge, label):
    rng = np.random.default_rng(29)
    for experts, rows, columns in ((1, 8, 8), (2, 136, 200)):
        w = drawn(rng, experts, rows, columns)
        down, across = -(-rows // BLOCK), -(-columns // BLOCK)
        tiles = np.stack([padded(one, BLOCK, BLOCK) for one in from_bf16(w)]).reshape(experts, down, BLOCK, across, BLOCK)
        codes, scales = coded(tiles, (2, 4))
        code = codes.reshape(experts, down * BLOCK, across * BLOCK)[:, :rows, :columns]
        scale = scales[:, :, 0, :, 0]
        want = code, scale, code.transpose(0, 2, 1), scale.transpose(0, 2, 1)
        got = [Array(shape=x.shape, dtype=x.dtype) for x in want]
        sizes = struct.pack("<4i", experts, rows, columns, 0)
        inputs = [Array(w)]
        program.launch("float8_weights", experts * down * across, 256, [sizes + b"".join(g.pointer() for g in got), inputs[0].pointer()])
        checks = [(what, same(g.view, x)) for what, g, x in zip(("codes", "scales", "transposed codes", "transposed scales"), got, want)]
        judge.count(f"{label}, {experts} x {rows} x {columns}", problem_of(got, inputs, checks))
        inputs, turned = [Array(np.ascontiguousarray(x)) for x in want[:2]], [Array(shape=x.shape, dtype=x.dtype) for x in want[2:]]
        program.launch("float8_turn", experts * down * across, 256, [sizes + b"".join(a.pointer() for a in inputs + turned)])
        
        def verdict():
            return problem_of(turned, inputs, [("transposed", same(turned[i].view, want[2 + i])) for i in (0, 1)])

        judge.count(f"{label}, {experts} x {rows} x {columns}, transposed later", verdict())
        turned[0].view[...] = np.roll(turned[0].view, 1, axis=1)
        judge.expect_rejection(f"{label}, {experts} x {rows} x {columns}, transposed codes shifted", verdict())


QUANTIZE_TESTS = [("float8_quantize", test_float8_quantize), ("float8_weights", test_float8_weights)]
FLOAT8_TESTS += [*QUANTIZE_TESTS, (("float8_quantize", "swiglu"), test_float8_swiglu),
                 (("float8_quantize", "swiglu", "swiglu_gradient"), test_float8_backward)]
