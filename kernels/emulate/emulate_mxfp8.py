"""Grouped GEMM of MXFP8 in the emulator (gfx950): codes of e4m3 with a scale of E8M0 for every 32, on ragged, empty, one-row and
one-expert groups and on edges of tiles and of words of scales."""
import struct

import numpy as np

import emulator
from emulate_gemm import is_spoiled, spoil
from emulate_gemm import CASES as BF16_CASES
from emulate_memory import Array, from_bf16, interval_bf16, problem_of, to_bf16
from emulator_gfx950 import CODES, e8m0

BLOCK, WORD, NAN_CODE, NAN_SCALE, LARGEST = 32, 128, 0x7F, 0xFF, 0xFE
# counts of rows by expert, unused rows behind them, inner, columns
CASES = {
    "one row": ([1], 0, 32, 8),
    "ragged, an empty expert": (BF16_CASES["ragged, an empty expert"][0], 0, 160, 40),
    "one expert owns all": ([0, 100, 0], 0, 96, 136),
    "unused rows behind": ([3, 20], 9, 64, 24),
    "several tiles": ([300, 9], 0, 224, 264),
    "every row of a tile": ([40], 0, 384, 136),
}


def draw(rng, exact, *shape):
    """Codes and scales [..][terms] and [..][ceil(terms / 128) * 4]; bytes behind the last block are anything but NaN."""
    terms, blocks = shape[-1], shape[-1] // BLOCK
    scale = np.full((*shape[:-1], -(-terms // WORD) * 4), LARGEST, np.uint8)
    if exact:  # integers and small powers of two: no sum is rounded
        integers = np.nonzero(np.isin(CODES, np.arange(-8, 9)) & (np.arange(256) != 0x80))[0]
        codes = rng.choice(integers, shape).astype(np.uint8)
        scale[..., :blocks] = rng.integers(126, 129, (*shape[:-1], blocks))
    else:  # every code but NaN
        codes = rng.choice(np.nonzero(~np.isnan(CODES))[0], shape).astype(np.uint8)
        scale[..., :blocks] = rng.integers(110, 131, (*shape[:-1], blocks))
    return codes, scale


def values(codes, scale):
    return CODES[codes] * np.repeat(e8m0(scale), BLOCK, axis=-1)[..., : codes.shape[-1]]


def reference(offset, a, b):
    """The answer and its yardstick in fp64."""
    want = np.zeros((len(a), b.shape[1]))
    scale = np.zeros_like(want)
    for e in range(len(b)):
        group = slice(offset[e], offset[e + 1])
        want[group], scale[group] = a[group] @ b[e].T, abs(a[group]) @ abs(b[e]).T
    return want, scale


def mxfp8_tester(cases):
    def test_gemm_mxfp8(program, judge, label):
        rng = np.random.default_rng(17)
        for name, case in cases.items() if program.code.kernels else ():  # no other target can multiply them
            for exact in (True, False):
                check(program, judge, f"{label}, {name}, {'integers' if exact else 'normal'}", case, exact, rng)

    return test_gemm_mxfp8


def without_waits(program):
    """The kernel with its waits for loads to LDS, vmcnt(16) lgkmcnt(0), as vmcnt(63) lgkmcnt(0)."""
    spoiled = emulator.Program(program.code)
    waits = struct.pack("<I", 0xBF8C4070)
    places = [at for at in range(0, len(program.code.image), 4) if program.code.image[at : at + 4] == waits]
    assert places, "no wait for loads"
    for at in places:
        spoiled.memory[at : at + 4] = struct.pack("<I", 0xBF8CC07F)
    return spoiled


def check(program, judge, label, case, exact, rng):
    counts, unused, inner, columns = case
    rows, offset = sum(counts) + unused, np.array([0, *np.cumsum(counts)], np.int32)
    a, a_scale = draw(rng, exact, rows, inner)
    b, b_scale = draw(rng, exact, len(counts), columns, inner)
    a[offset[-1] :], a_scale[offset[-1] :] = NAN_CODE, NAN_SCALE  # an unused row must not leak
    with np.errstate(invalid="ignore"):
        want, scale = reference(offset, values(a, a_scale), values(b, b_scale))
    inputs, c = [Array(x) for x in (a, b, a_scale, b_scale, offset)], Array(shape=want.shape, dtype=np.uint16)

    def launch(program=program):
        argument = struct.pack("<6i", len(counts), rows, inner, columns, 2, 0) + b"".join(x.pointer() for x in (*inputs, c))
        program.launch("gemm_mxfp8_mfma", 2, 256, [argument])

    def verdict():
        low, high = interval_bf16(want, scale, inner)
        got = from_bf16(c.view)
        return problem_of([c], inputs, [("values", c.view == to_bf16(want) if exact else (got >= low) & (got <= high))])

    launch()
    judge.count(label, verdict())
    if not exact or not is_spoiled(counts):
        return
    spoil(judge, label, c, verdict)
    for which, text in ((2, "rows'"), (3, "columns'")):  # what a kernel that takes another block's scale leaves
        inputs[which].view[...] = np.roll(inputs[which].original, 1, axis=-1)
        launch()
        inputs[which].view[...] = inputs[which].original
        judge.expect_rejection(f"{label}, {text} scales of other blocks", verdict())
    if emulator.Program.interleave is None:
        launch(without_waits(program))
        judge.expect_rejection(f"{label}, no wait for loads", verdict())


def mxfp8_tests(cases):
    return [("grouped_gemm_mxfp8_mfma", mxfp8_tester(cases))]


MXFP8_TESTS = mxfp8_tests(CASES)
