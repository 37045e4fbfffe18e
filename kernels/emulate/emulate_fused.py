"""Products of an expert layer with what stands around them, in the emulator: gathered rows, gate and up kept, activations with their
gradients, weights' gradients that are added to an fp32 array. Against formulas in fp64."""
import struct

import numpy as np

from emulate_gemm import CASES, NUMBERS, PADDED, ROWS, SHARED, WEIGHTS, is_spoiled, operands, pad_of, problem_argument, reference, spoil
from emulate_memory import BF16, FP16, Array, interval, problem_of

TOP_K, SUMMED = 3, 128  # SUMMED: columns of a part of a row's sum
GELU = (np.float32(2 * np.sqrt(2 / np.pi)), np.float32(0.044715))
GATED, PAIRS, ONE = 1, 2, 3  # spw_gemm_between
NOWHERE = struct.pack("<Q", 0)


class Activation:
    """gate' s(alpha gate' (1 + cubic gate'^2)) (up' + shift) of clamped gate and up, or max(gate, 0)^2; with all slopes."""

    def __init__(self, between, limit=np.inf, alpha=1.0, cubic=0.0, shift=0.0):
        self.between, self.numbers = between, (limit, alpha, cubic, shift)
        self.kernel = {GATED: "gated", PAIRS: "pairs", ONE: "relu2"}[between]

    def width(self, columns):
        return columns if self.between == ONE else 2 * columns

    def split(self, h):
        """gate and up of rows of h."""
        if self.between == ONE:
            return h, 0 * h
        if self.between == PAIRS:
            return h[:, 0::2], h[:, 1::2]
        return h[:, : h.shape[1] // 2], h[:, h.shape[1] // 2 :]

    def join(self, gate, up):
        if self.between == ONE:
            return gate
        return np.stack((gate, up), 2).reshape(len(gate), -1) if self.between == PAIRS else np.concatenate((gate, up), 1)

    def at(self, gate, up):
        """act, its slopes by gate and up, and what bounds the slopes' own evaluation."""
        if self.between == ONE:
            positive = np.maximum(gate, 0)
            return positive**2, 2 * positive, 0 * gate, 2 * positive
        limit, alpha, cubic, shift = (np.float64(np.float32(n)) for n in self.numbers)
        cut, clip = np.minimum(gate, limit), np.clip(up, -limit, limit) + shift
        inner, bend = alpha * cut * (1 + cubic * cut**2), alpha * (1 + 3 * cubic * cut**2)
        sigmoid = 1 / (1 + np.exp(np.minimum(-inner, 700)))
        rest = abs(cut) * bend * (1 - sigmoid)
        by_gate = np.where(gate > limit, 0, clip * sigmoid * (1 + np.sign(cut) * rest))
        return (cut * sigmoid * clip, by_gate, np.where(abs(up) > limit, 0, cut * sigmoid),
                np.where(gate > limit, 0, abs(clip) * sigmoid * (1 + rest)))

    def bent(self, gate):
        """How many times more an error of the logistic function's argument counts."""
        return 2 + 3 * abs(gate) if self.numbers[2] else 1.0

    def packed(self, bias):
        return struct.pack("<4f", *self.numbers) + (bias.pointer() if bias else NOWHERE) + struct.pack("<2i", self.between, 0)


# name: activation, a bias, rows gathered
ACTIVATIONS = {
    "SwiGLU, gathered": (Activation(GATED), False, True),
    "clamped": (Activation(GATED, 1.5, 1.702, 0, 1), False, False),
    "clamped in turn, bias, gathered": (Activation(PAIRS, 1.5, 1.702, 0, 1), True, True),
    "GeGLU, bias": (Activation(GATED, np.inf, *GELU, 0), True, False),
    "squared ReLU, bias, gathered": (Activation(ONE), True, True),
}


class Rows:
    """Which row of its array each row of a product is, and the rows' weights. Behind the groups assignments lead nowhere."""

    def __init__(self, rng, case, gathered, element):
        counts, unused, self.element = *case[:2], element
        self.used, self.rows = sum(counts), sum(counts) + unused
        self.tokens = -(-self.rows // TOP_K) + 2 if gathered else self.rows
        chosen = rng.integers(0, self.tokens * TOP_K, self.rows).astype(np.int32)
        self.source = chosen // TOP_K if gathered else np.arange(self.rows)
        weight = rng.standard_normal(self.tokens * TOP_K).astype(np.float32)
        self.weight = weight[chosen if gathered else np.arange(self.rows)].astype(np.float64)
        chosen[self.used :] = 0x7FFFFFFF
        self.source[self.used :] = 0
        self.assignment, self.weights = Array(chosen) if gathered else None, Array(weight)

    def array(self, rng, width, exact=False):
        """The array that is gathered from, and its rows in the order of the product."""
        numbers = rng.integers(-8, 9, (self.tokens, width)) if exact else rng.standard_normal((self.tokens, width))
        bits = self.element.to_bits(numbers.astype(np.float32))
        if self.assignment is None:
            bits[self.used :] = 0x7FC0
        return bits, bits[self.source]


def argument(case, inner_contiguous, arrays, rows, add=0, weights=None, h=None, d_h=None, row_sum=None, main=None, curve=None):
    def at(array):
        return array.pointer() if array is not None else NOWHERE

    def row_of(array):
        return array.strides()[0] if array is not None else 0

    gathers, problem = rows.assignment is not None, problem_argument(case, inner_contiguous, 2, *arrays)
    if add:
        problem = problem[:48] + NOWHERE + problem[56:]  # c, of which main has the place
    return (problem + at(rows.assignment)
            + struct.pack("<6i", TOP_K if gathers else 0, rows.tokens, 0, 0, add, 0) + b"".join(at(array) for array in (weights, h, d_h))
            + struct.pack("<2i", row_of(h), row_of(d_h)) + at(row_sum) + at(main) + (curve or bytes(32)))


def inside(element, array, want, scale, terms):
    low, high = interval(element, want, scale, terms)
    got = element.to_float(array.view)
    return (got >= low) & (got <= high)


def judged(judge, label, counts, outputs, inputs, checks):
    """checks: name, array, function that says which of its elements are right."""
    def verdict():
        return problem_of(outputs, inputs, [(name, right()) for name, right in checks])

    judge.count(label, verdict())
    if is_spoiled(counts):
        spoil(judge, label, outputs[0], verdict)


def each(kinds, cases):
    for kind, what in kinds.items():
        for suffix, inner_contiguous in (("inner", 1), ("outer", 0)):
            for name, case in cases.items():
                for padded in (False, True)[: 1 + (name in PADDED)]:
                    yield f"{kind} {suffix}, {name}{', strides' * padded}", what, suffix, inner_contiguous, case, padded


def up_tester(cases, element):
    def test_fused_up(program, judge, label):
        rng = np.random.default_rng(31)
        for name, (activation, biased, gathered), suffix, inner_contiguous, case, padded in each(ACTIVATIONS, cases):
            for keeps in (True, False)[: 2 - padded]:
                check(program, judge, f"{label} {name}{'' if keeps else ', act alone'}", activation, biased, gathered, suffix,
                      inner_contiguous, case, keeps, padded, rng)

    def check(program, judge, label, activation, biased, gathered, suffix, inner_contiguous, case, keeps, padded, rng):
        counts, unused, inner, columns = case
        wide, rows = activation.width(columns), Rows(rng, case, gathered, element)
        offset, _, b = operands(rng, (counts, unused, inner, wide), ROWS, inner_contiguous, None, element)
        bits, a = rows.array(rng, inner)
        sums, scale, terms = reference((counts, unused, inner, wide), ROWS, inner_contiguous, offset, a, b, element)
        bias = Array(element.to_bits(rng.standard_normal((len(counts), wide)).astype(np.float32))) if biased else None
        if biased:
            more = np.repeat(element.to_float(bias.view).astype(np.float64), counts, 0)
            sums[: rows.used] += more
            scale[: rows.used] += abs(more)
        (gate, up), (gate_scale, up_scale) = activation.split(sums), activation.split(scale)
        want, by_gate, by_up, own = activation.at(gate, up)
        # slopes at most 1.15 times the other factor, and of squared ReLU its second derivative
        shift = activation.numbers[3]
        allowed = (2 * abs(gate) * gate_scale + gate_scale**2 * 2.0**-10 if activation.between == ONE
                   else 1.15 * (abs(up) + shift) * gate_scale + abs(gate) * up_scale) + activation.bent(gate) * abs(want)
        inputs = [Array(bits, pad=pad_of("a", padded)), Array(b, pad=pad_of("b", padded)), Array(offset)]
        inputs += ([bias] if biased else []) + ([rows.assignment] if gathered else [])
        act = Array(shape=want.shape, dtype=np.uint16, pad=pad_of("c", padded))
        h = Array(shape=sums.shape, dtype=np.uint16, pad=pad_of("h", padded)) if keeps else None
        program.launch(f"gemm_mfma_up_{activation.kernel}_{suffix}{element.suffix}", 2, 256,
                       [argument(case, inner_contiguous, (*inputs[:3], act), rows, h=h, curve=activation.packed(bias))])
        checks = [("act", lambda: inside(element, act, want, allowed, terms + 11))]
        if keeps:
            checks.append(("gate and up", lambda: inside(element, h, sums, scale, terms + 1)))
        judged(judge, label, counts, [act, h] if keeps else [act], inputs, checks)

    test_fused_up.__name__ += element.suffix
    return test_fused_up


def down_gradient_tester(cases, element):
    def test_fused_down_gradient(program, judge, label):
        rng = np.random.default_rng(32)
        for name, (activation, _, gathered), suffix, inner_contiguous, case, padded in each(ACTIVATIONS, cases):
            check(program, judge, f"{label} {name}", activation, gathered, suffix, inner_contiguous, case, padded, rng)

    def check(program, judge, label, activation, gathered, suffix, inner_contiguous, case, padded, rng):
        counts, unused, inner, columns = case
        rows, wide = Rows(rng, case, gathered, element), activation.width(columns)
        offset, _, b = operands(rng, case, ROWS, inner_contiguous, None, element)
        bits, a = rows.array(rng, inner)
        s, scale, terms = reference(case, ROWS, inner_contiguous, offset, a, b, element)
        kept = element.to_bits(rng.standard_normal((rows.rows, wide)).astype(np.float32))
        h_values = element.to_float(kept).astype(np.float64)
        h_values[rows.used :] = 0
        kept[rows.used :] = 0x7FC0
        gate, up = activation.split(h_values)
        act, by_gate, by_up, bound = activation.at(gate, up)
        v, bent = rows.weight[:, None].copy(), activation.bent(gate)
        v[rows.used :] = 1
        want_h = activation.join(v * s * by_gate, v * s * by_up)
        allowed_h = activation.join(bent * abs(v) * bound * scale, bent * abs(v * by_up) * scale)
        dot, dot_scale = s * act, bent * scale * abs(act)
        parts = -(-columns // SUMMED)
        inputs = [Array(bits, pad=pad_of("a", padded)), Array(b, pad=pad_of("b", padded)), Array(offset),
                  Array(kept, pad=pad_of("h", padded)), rows.weights] + ([rows.assignment] if gathered else [])
        out, d_h = (Array(shape=like.shape, dtype=np.uint16, pad=pad_of(name, padded)) for name, like in (("c", s), ("d_h", kept)))
        row_sum = Array(shape=(parts, rows.rows), dtype=np.float32)
        program.launch(f"gemm_mfma_down_gradient_{activation.kernel}_{suffix}{element.suffix}", 2, 256,
                       [argument(case, inner_contiguous, (*inputs[:3], out), rows, weights=rows.weights, h=inputs[3], d_h=d_h,
                                 row_sum=row_sum, curve=activation.packed(None))])

        def sums():
            edges = range(0, columns, SUMMED)
            want = np.add.reduceat(dot, edges, 1).T
            return abs(row_sum.view - want) <= (terms + min(columns, SUMMED) + 15) * 2.0**-24 * np.add.reduceat(dot_scale, edges, 1).T

        judged(judge, label, counts, [out, d_h, row_sum], inputs,
               [("act", lambda: inside(element, out, v * act, bent * abs(v * act), 12)),
                ("gradients of gate and up", lambda: inside(element, d_h, want_h, allowed_h, terms + 26)), ("sums of rows", sums)])

    test_fused_down_gradient.__name__ += element.suffix
    return test_fused_down_gradient


def weights_tester(cases, element):
    def test_fused_weights(program, judge, label):
        """Small integers: bit by bit."""
        rng = np.random.default_rng(33)
        for suffix in ("in_order", "gathered_a", "gathered_b"):
            for add in (0, 1):
                for name, case in cases.items():
                    for padded in (False, True)[: 1 + (name in PADDED)]:
                        check(program, judge, f"{label} {suffix}{', added' if add else ''}, {name}{', strides' * padded}", suffix, add, case,
                              padded, rng)

    def check(program, judge, label, suffix, add, case, padded, rng):
        counts, unused, inner, columns = case
        rows = Rows(rng, case, suffix != "in_order", element)
        offset, a, b = operands(rng, case, WEIGHTS, 0, NUMBERS["integers"], element)
        given = {"a": a, "b": b}
        if suffix != "in_order":
            which = suffix[-1]
            given[which], in_order = rows.array(rng, inner if which == "a" else columns, True)
            a, b = (in_order, b) if which == "a" else (a, in_order)
        want = reference(case, WEIGHTS, 0, offset, a, b, element)[0]
        before = rng.integers(-99, 99, want.shape).astype(np.float32)
        inputs = [Array(given["a"], pad=pad_of("a", padded)), Array(given["b"], pad=pad_of("b", padded)), Array(offset)]
        inputs += [rows.assignment] if rows.assignment else []
        c = Array(shape=want.shape, dtype=np.float32 if add else np.uint16, pad=pad_of("c", padded))
        if add:
            c.view[...] = before
        program.launch(f"gemm_mfma_weights_{suffix}{element.suffix}", 2, 256,
                       [argument(case, 0, (*inputs[:3], c), rows, add=add, main=c if add else None)])
        judged(judge, label, [] if add else counts, [c], inputs,
               [("values", lambda: c.view == (before + want if add else element.to_bits(want.astype(np.float32))))])

    test_fused_weights.__name__ += element.suffix
    return test_fused_weights


def fused_tests(cases, element=BF16):
    return [("grouped_gemm_fused_mfma", make(cases, element)) for make in (up_tester, down_gradient_tester, weights_tester)]


FUSED_TESTS = fused_tests(CASES) + fused_tests({name: CASES[name] for name in SHARED}, FP16)
