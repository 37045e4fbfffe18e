"""fp8 by columns in the emulator: the gradient of weights, of codes with a scale for 128 rows of an expert and a column, on ragged, empty,
one-row and one-expert groups and on edges of tiles and blocks. Forward: emulate_gemm.py."""
import struct

import numpy as np

from emulate_gemm import FLOAT8, is_spoiled, spoil
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
