"""Grouped GEMM kernels in the emulator: every variant on ragged, empty, one-row and one-expert groups and on edges of tiles."""
import struct

import numpy as np

from emulate_memory import BF16, FP16, Array, from_bf16, interval, interval_bf16, problem_of, to_bf16

ROWS, WEIGHTS = 0, 1
# counts of rows by expert, unused rows behind them, inner, columns
CASES = {
    "one row": ([1], 0, 8, 8),
    "ragged, an empty expert": ([33, 0, 70, 5], 0, 72, 40),
    "one expert owns all": ([0, 100, 0], 0, 40, 136),
    "unused rows behind": ([3, 20], 9, 32, 24),
    "several tiles": ([300, 9], 0, 104, 264),
    "every row of a tile": ([40], 0, 296, 136),
}
SHARED = ("one row", "ragged, an empty expert", "unused rows behind")  # of fp16: what lies around the products is that of bf16
# By what integers of a and of b are multiplied: sums then leave fp16, or all of a is subnormal in it. None: normal numbers.
NUMBERS = {"integers": (1, 1), "normal": None}
NUMBERS_FP16 = {**NUMBERS, "sums beyond fp16": (16, 16), "subnormal numbers": (2.0**-20, 16)}


def operands(rng, case, form, inner_contiguous, factors, element=BF16):
    counts, unused, inner, columns = case
    experts, rows = len(counts), sum(counts) + unused
    offset = np.array([0, *np.cumsum(counts)], np.int32)

    def draw(*shape, factor=1):
        numbers = rng.integers(-8, 9, shape) * factors[factor] if factors else rng.standard_normal(shape)
        return element.to_bits(numbers.astype(np.float32))

    a = draw(rows, inner, factor=0)
    a[offset[-1] :] = 0x7FC0  # NaN in both types: a neighbour's or an unused row must not leak
    if form == WEIGHTS:
        b = draw(rows, columns)
        b[offset[-1] :] = 0x7FC0
    else:
        b = draw(experts, columns, inner) if inner_contiguous else draw(experts, inner, columns)
    return offset, a, b


def reference(case, form, inner_contiguous, offset, a, b, element=BF16):
    """The answer and its yardstick in fp64, and the number of terms."""
    counts, unused, inner, columns = case
    experts, rows = len(counts), sum(counts) + unused
    a, b = element.to_float(a).astype(np.float64), element.to_float(b).astype(np.float64)
    want = np.zeros((experts, inner, columns) if form == WEIGHTS else (rows, columns))
    scale = np.zeros_like(want)
    for e in range(experts):
        group = slice(offset[e], offset[e + 1])
        if form == WEIGHTS:
            want[e], scale[e] = a[group].T @ b[group], abs(a[group]).T @ abs(b[group])
        else:
            w = b[e].T if inner_contiguous else b[e]
            want[group], scale[group] = a[group] @ w, abs(a[group]) @ abs(w)
    return want, scale, max(counts) if form == WEIGHTS else inner


def packed_strides(a, b, c, ignored=()):
    """Of rows of a, b and c, and of experts of the one that has them. ignored: places where a kernel that knows no strides has its own."""
    strides = [a.strides()[0], b.strides()[0], c.strides()[0], max(b.strides()[1], c.strides()[1])]
    packed = [array.width() for array in (a, b, c)]
    matrix = b if b.view.ndim > 2 else c
    packed.append(matrix.width() * matrix.view.shape[-2])
    return struct.pack("<3i4xq", *(packed[i] if i in ignored else stride for i, stride in enumerate(strides)))


def problem_argument(case, inner_contiguous, blocks, a, b, offset, c, ignored=()):
    counts, unused, inner, columns = case
    return struct.pack("<6i", len(counts), sum(counts) + unused, inner, columns, inner_contiguous, blocks) + b"".join(
        array.pointer() for array in (a, b, offset, c)) + packed_strides(a, b, c, ignored)


# Rows of views; of fp8's codes they are twice as many bytes of numbers apart. Wider gaps than a piece of 16 bytes, and none alike.
PADS = {"a": (24, 0), "b": (8, 3), "c": (40, 5), "h": (16, 0), "d_h": (48, 0)}
PADDED = ("ragged, an empty expert", "unused rows behind", "several tiles", "every row of a tile")


def pad_of(name, padded):
    return PADS[name] if padded else (0, 0)


def tester(variant, tile_m, tile_n, threads, persistent, kernels, cases, element=BF16):
    """kernels: name suffix, form, inner_contiguous."""

    def test(program, judge, label):
        rng = np.random.default_rng(7)
        for suffix, form, inner_contiguous in kernels:
            for name, case in cases.items():
                kinds = [(n, f, False) for n, f in (NUMBERS if element is BF16 else NUMBERS_FP16).items()]
                for numbers, factors, padded in kinds + [("integers", NUMBERS["integers"], True)] * (name in PADDED):
                    check(program, judge, f"{label} {suffix}, {name}, {numbers}{', strides' * padded}",
                          f"gemm_{variant}_{suffix}{element.suffix}", form, inner_contiguous, case, factors, padded, rng)

    def check(program, judge, label, kernel, form, inner_contiguous, case, factors, padded, rng):
        counts, unused, inner, columns = case
        exact = factors is not None
        offset, a, b = operands(rng, case, form, inner_contiguous, factors, element)
        want, scale, terms = reference(case, form, inner_contiguous, offset, a, b, element)
        inputs = [Array(a, pad=pad_of("a", padded)), Array(b, pad=pad_of("b", padded)), Array(offset)]
        c = Array(shape=want.shape, dtype=np.uint16, pad=pad_of("c", padded))
        across = -(-columns // tile_n)
        limit = (-(-inner // tile_m) * len(counts) if form == WEIGHTS
                 else (sum(counts) + unused) // tile_m + len(counts) + 1) * across
        blocks = 2 if persistent else limit  # a persistent kernel must get through any number of tiles

        def launch(*ignored):
            c.whole.view(np.uint8)[...] = 0xFF
            program.launch(kernel, blocks, threads, [problem_argument(case, inner_contiguous, blocks, *inputs, c, ignored)])

        launch()

        def verdict():
            low, high = (want, want) if exact else interval(element, want, scale, terms)
            got = element.to_float(c.view)
            good = c.view == element.to_bits(want) if exact else (got >= low) & (got <= high)
            return problem_of([c], inputs, [("values", good)])

        judge.count(label, verdict())
        if exact and is_spoiled(case[0]):
            spoil(judge, label, c, verdict)
        if padded and is_spoiled(case[0]) and program.interleave is None:  # such kernels race: they write where others do
            for place, array in enumerate(("a", "b", "c", "experts")):
                launch(place)
                judge.expect_rejection(f"{label}, ignores the stride of {array}", verdict())

    test.__name__ = "test_gemm_" + variant + element.suffix
    return test


def is_spoiled(counts):
    return any(counts is cases["ragged, an empty expert"][0] for cases in (CASES, FLOAT8_CASES))


def spoil(judge, label, c, verdict):
    """What a wrong kernel could have left: an unwritten element, a neighbour's value, a write outside."""
    kept = c.view.copy()
    c.view.flat[-1] = 0xFFFF
    judge.expect_rejection(label + ", element not written", verdict())
    c.view[...] = np.roll(kept.reshape(-1), 1).reshape(kept.shape)
    judge.expect_rejection(label + ", elements shifted", verdict())
    c.view[...] = kept
    outside = c.band[c.start + c.size : c.start + c.size + 2]
    outside[...] = 0
    judge.expect_rejection(label + ", write behind the array", verdict())
    outside[...] = 0xA5


PLAIN = [("rows", ROWS, 0), ("rows", ROWS, 1), ("weights", WEIGHTS, 0)]
MATRIX = [("rows_inner", ROWS, 1), ("rows_outer", ROWS, 0), ("weights", WEIGHTS, 0)]


def judge_act(judge, label, counts, inputs, c, element, allowed):
    def verdict():
        got = element.to_float(c.view)
        return problem_of([c], inputs, [("values", (got >= allowed[0]) & (got <= allowed[1]))])

    judge.count(label, verdict())
    if is_spoiled(counts):
        spoil(judge, label, c, verdict)


def fused_swiglu_tester(cases, element=BF16):
    def test_fused_swiglu(program, judge, label):
        """Gate and up side by side in the weights; act is what the products' sums make, rounded once."""
        rng = np.random.default_rng(11)
        for suffix, inner_contiguous in (("inner", 1), ("outer", 0)):
            for name, (counts, unused, inner, columns) in cases.items():
                sums = (counts, unused, inner, 2 * columns)
                offset, a, b = operands(rng, sums, ROWS, inner_contiguous, None, element)
                both, scale, terms = reference(sums, ROWS, inner_contiguous, offset, a, b, element)
                gate, up = both[:, :columns], both[:, columns:]
                want = gate / (1 + np.exp(-gate)) * up  # 1.1 bounds the slope of silu, 10 terms evaluate it
                allowed = 1.1 * abs(up) * scale[:, :columns] + abs(gate) * scale[:, columns:] + abs(want)
                case = (counts, unused, inner, columns)
                for padded in (False, True)[: 1 + (name in PADDED)]:
                    inputs = [Array(a, pad=pad_of("a", padded)), Array(b, pad=pad_of("b", padded)), Array(offset)]
                    c = Array(shape=want.shape, dtype=np.uint16, pad=pad_of("c", padded))
                    program.launch(f"gemm_mfma_swiglu_{suffix}{element.suffix}", 2, 256,
                                   [problem_argument(case, inner_contiguous, 2, *inputs, c)])
                    judge_act(judge, f"{label} {suffix}, {name}{', strides' * padded}", counts, inputs, c, element,
                              interval(element, want, allowed, terms + 10))

    test_fused_swiglu.__name__ += element.suffix
    return test_fused_swiglu


BLOCK = 128
FLOAT8 = np.array([(-1) ** (c >> 7) * (np.nan if c & 127 == 127 else 2.0 ** (max(c >> 3 & 15, 1) - 10) * ((c & 7) + 8 * (c >> 3 & 15 > 0)))
                   for c in range(256)])  # OCP e4m3fn
FLOAT8_CASES = {
    "one row": ([1], 0, 16, 8),
    "ragged, an empty expert": ([33, 0, 70, 5], 0, 144, 40),
    "one expert owns all": ([0, 100, 0], 0, 128, 136),
    "unused rows behind": ([3, 20], 9, 80, 24),
    "several tiles": ([300, 9], 0, 208, 264),
    "every row of a tile": ([40], 0, 592, 136),
}


def float8_operands(rng, case, exact):
    """Codes and scales; `exact`: small integers and powers of two, whose sums are exact."""
    counts, unused, inner, columns = case
    rows, blocks, across = sum(counts) + unused, -(-inner // BLOCK), -(-columns // BLOCK)
    finite = np.flatnonzero(np.isfinite(FLOAT8) & ((abs(FLOAT8) <= 8) & (FLOAT8 % 1 == 0) if exact else True)).astype(np.uint8)

    def draw(*shape):
        return rng.choice(finite, shape)

    def scale(*shape):
        return (2.0 ** rng.integers(-2, 3, shape) if exact else rng.uniform(0.5, 2, shape)).astype(np.float32)

    offset = np.array([0, *np.cumsum(counts)], np.int32)
    a, a_scale = draw(rows, inner), scale(rows, blocks)
    a[offset[-1] :], a_scale[offset[-1] :] = 0x7F, np.nan  # an unused row must not leak
    return offset, a, a_scale, draw(len(counts), columns, inner), scale(len(counts), across, blocks)


def float8_reference(case, offset, a, a_scale, b, b_scale):
    counts, unused, inner, columns = case
    left = FLOAT8[a] * np.repeat(a_scale.astype(np.float64), BLOCK, 1)[:, :inner]
    want = np.zeros((len(left), columns))
    scale = np.zeros_like(want)
    for e in range(len(counts)):
        group = slice(offset[e], offset[e + 1])
        right = FLOAT8[b[e]] * np.repeat(np.repeat(b_scale[e].astype(np.float64), BLOCK, 0), BLOCK, 1)[:columns, :inner]
        want[group], scale[group] = left[group] @ right.T, abs(left[group]) @ abs(right).T
    return want, scale


def float8_tester(variant, tile_m, tile_n, persistent, cases):
    def test(program, judge, label):
        rng = np.random.default_rng(13)
        for name, case in cases.items():
            for exact, padded in ((True, False), (False, False), (True, True)):
                check(program, judge, f"{label}, {name}, {'integers' if exact else 'all codes'}{', strides' * padded}", case, exact, padded, rng)

    def check(program, judge, label, case, exact, padded, rng):
        counts, unused, inner, columns = case
        rows, blocks, across = sum(counts) + unused, -(-inner // BLOCK), -(-columns // BLOCK)
        offset, a, a_scale, b, b_scale = operands_here = float8_operands(rng, case, exact)
        want, scale = float8_reference(case, *operands_here)
        spoiled = np.arange(0 if exact or len(counts) > 1 else min(rows, 16))  # rows with a NaN, which must stay in them; so must a column's
        a[spoiled, spoiled * 37 % inner] = np.where(spoiled % 2, 0x7F, 0xFF)
        if len(spoiled):
            b[0, -1, -1] = 0x7F
        inputs = {k: Array(v) for k, v in (("offset", offset), ("a_scale", a_scale), ("b_scale", b_scale))}
        for k, v in (("a", a), ("b", b)):
            columns_beside, rows_beside = pad_of(k, padded)
            inputs[k] = Array(v, pad=(2 * columns_beside, rows_beside))
        c = Array(shape=want.shape, dtype=np.uint16, pad=pad_of("c", padded))
        limit = (rows // tile_m + len(counts) + 1) * -(-columns // tile_n)
        groups = 2 if persistent else limit
        pairs = problem_argument((counts, unused, inner // 2, columns), 1, groups, inputs["a"], inputs["b"], inputs["offset"], c)
        argument = pairs + struct.pack("<2i", blocks, across) + inputs["a_scale"].pointer() + inputs["b_scale"].pointer()
        program.launch(f"gemm_float8_{variant}", groups, 256, [argument])

        def verdict():
            # BLOCK terms, three products by scales, and the sum over blocks
            low, high = (want, want) if exact else interval_bf16(want, scale, min(inner, BLOCK) + 3 + blocks)
            got = from_bf16(c.view)
            good = c.view == to_bf16(want) if exact else (got >= low) & (got <= high)
            if len(spoiled):
                good[spoiled], good[:, -1] = np.isnan(got[spoiled]), np.isnan(got[:, -1])
            return problem_of([c], list(inputs.values()), [("values", good)])

        judge.count(label, verdict())
        if exact and is_spoiled(counts):
            spoil(judge, label, c, verdict)

    test.__name__ = "test_gemm_float8_" + variant
    return test


def gemm_tests(cases, element=BF16):
    return [
        ("grouped_gemm_naive", tester("naive", 16, 16, 256, False, PLAIN, cases, element)),
        ("grouped_gemm_tiled", tester("tiled", 64, 64, 256, False, PLAIN, cases, element)),
        ("grouped_gemm_mfma", tester("mfma", 256, 128, 256, True, MATRIX, cases, element)),
        ("grouped_gemm_mfma", fused_swiglu_tester(cases, element)),
    ]


def float8_matrix_tests(cases):
    return [("grouped_gemm_float8_mfma", float8_tester("mfma", 256, 128, True, cases))]


GEMM_TESTS = [
    *gemm_tests(CASES),
    *gemm_tests({name: CASES[name] for name in SHARED}, FP16),
    ("grouped_gemm_float8_naive", float8_tester("naive", 16, 16, False, FLOAT8_CASES)),
    *float8_matrix_tests(FLOAT8_CASES),
]
