"""The local kernels in the emulator against the formulas of reference/*.h written once more in numpy, on small edges."""
import struct

import numpy as np

from emulate_memory import BF16, FP16, Array, from_bf16, integer, interval, interval_bf16, problem_of, to_bf16

CHUNK, WAVE = 1024, 64


def bf16(rng, *shape):
    return to_bf16(rng.standard_normal(shape).astype(np.float32))


def pointers(*arrays):
    return b"".join(struct.pack("<Q", 0) if a is None else a.pointer() for a in arrays)


def plan_of(expert, experts):
    """Rows by expert, inside an expert by assignment: reference/plan.h."""
    flat = expert.reshape(-1)
    order = np.argsort(np.where(flat < 0, experts, flat), kind="stable")
    used = int(np.count_nonzero(flat >= 0))
    row = np.full(flat.size, -1, np.int32)
    row[order[:used]] = np.arange(used)
    count = np.bincount(flat[flat >= 0], minlength=experts).astype(np.int32)
    return count, np.concatenate(([0], np.cumsum(count))).astype(np.int32), row, order[:used].astype(np.int32)


def choices(rng, tokens, top_k, experts):
    expert = np.argsort(rng.random((tokens, experts)), axis=1)[:, :top_k].astype(np.int32)
    expert[rng.random((tokens, top_k)) < 0.1] = -1  # unused
    return expert


def test_router(program, judge, label):
    rng = np.random.default_rng(1)
    for tokens, experts, top_k, sigmoid, groups, kept, terms, kernel in (
        (5, 10, 3, 0, 1, 1, 1, "router_64"), (9, 96, 6, 1, 8, 3, 2, "router_256"), (3, 300, 16, 0, 5, 2, 1, "router_512")):
        logits = (2 * rng.standard_normal((tokens, experts))).astype(np.float32)
        logits[0] = 0.5  # ties go to the lower expert
        bias = (0.1 * rng.standard_normal(experts)).astype(np.float32) if sigmoid else None
        z = logits.astype(np.float64)
        exact = 1 / (1 + np.exp(-z)) if sigmoid else np.exp(z - z.max(1, keepdims=True))
        score = (exact if sigmoid else exact / exact.sum(1, keepdims=True)).astype(np.float32)
        choice = score + bias if sigmoid else score
        best = -np.sort(-choice.reshape(tokens, groups, -1), axis=2)[:, :, :terms]
        judgement = np.cumsum(best, axis=2, dtype=np.float32)[:, :, -1]
        stay = np.argsort(-judgement, axis=1, kind="stable")[:, :kept]
        open_ = np.zeros((tokens, groups), bool)
        np.put_along_axis(open_, stay, True, axis=1)
        masked = np.where(np.repeat(open_, experts // groups, axis=1), choice, -np.inf)
        want = np.argsort(-masked, axis=1, kind="stable")[:, :top_k].astype(np.int32)
        chosen = np.take_along_axis(score, want, 1).astype(np.float64)
        weight = (2.5 * chosen / chosen.sum(1, keepdims=True)).astype(np.float32)
        inputs = [Array(logits)] + ([Array(bias)] if sigmoid else [])
        outputs = [Array(shape=score.shape, dtype=np.float32), Array(shape=want.shape, dtype=np.int32),
                   Array(shape=want.shape, dtype=np.float32)]
        argument = struct.pack("<8ifi", tokens, experts, top_k, sigmoid, groups, kept, terms, 1, 2.5, 0)
        argument += pointers(inputs[0], inputs[1] if sigmoid else None, *outputs)
        program.launch(kernel, -(-tokens // 4), 256, [argument])
        judge.count(f"{label} {kernel}", problem_of(outputs, inputs, [
            ("scores", abs(outputs[0].view - score) <= 2 * 2.0**-24 * score), ("choices", outputs[1].view == want),
            ("weights", abs(outputs[2].view - weight) <= (top_k + 2) * 2.0**-24 * weight)]))


def test_plan(program, judge, label):
    rng = np.random.default_rng(2)
    for tokens, top_k, experts in ((1, 1, 1), (350, 3, 9), (130, 8, 70)):
        expert = choices(rng, tokens, top_k, experts)
        n, chunks = expert.size, -(-expert.size // CHUNK)
        count, offset, row, assignment = plan_of(expert, experts)
        inputs = [Array(expert)]
        outputs = [Array(shape=s, dtype=np.int32) for s in ((experts, chunks), experts, experts + 1, n, n)]
        argument = struct.pack("<4i", n, experts, chunks, 0) + pointers(*inputs, *outputs)
        for kernel, blocks in (("plan_count", chunks), ("plan_scan", experts), ("plan_place", chunks)):
            program.launch(kernel, blocks, 256, [argument])
        want = np.concatenate([assignment, np.full(n - assignment.size, -1, np.int32)])
        judge.count(f"{label} {tokens} x {top_k} of {experts}", problem_of(outputs, inputs, [
            ("count", outputs[1].view == count), ("offset", outputs[2].view == offset), ("row", outputs[3].view == row),
            ("assignment", outputs[4].view == want)]))


def test_capacity(program, judge, label):
    rng = np.random.default_rng(3)
    groups, tokens, top_k, experts, capacity = 2, 60, 3, 7, 20
    expert = choices(rng, groups * tokens, top_k, experts)
    n, flat = expert.size, expert.reshape(-1)
    row, assignment = np.full(n, -1, np.int32), np.full(experts * groups * capacity, -1, np.int32)
    seen = np.zeros((groups, experts), int)
    for i, e in enumerate(flat):
        g = i // (tokens * top_k)
        if e >= 0:
            if seen[g, e] < capacity:
                row[i] = (e * groups + g) * capacity + seen[g, e]
                assignment[row[i]] = i
            seen[g, e] += 1
    inputs, outputs = [Array(expert)], [Array(shape=a.shape, dtype=np.int32) for a in (row, assignment)]
    program.launch("capacity_place", groups, 1024, [struct.pack("<4i", groups, tokens * top_k, experts, capacity) +
                                                    pointers(*inputs, *outputs)])
    judge.count(label, problem_of(outputs, inputs, [("row", outputs[0].view == row), ("slots", outputs[1].view == assignment)]))


def movement(rng):
    tokens, top_k, experts, width = 11, 3, 5, 2064  # more than one round of every kernel
    expert = choices(rng, tokens, top_k, experts)
    _, _, row, assignment = plan_of(expert, experts)
    return tokens, top_k, width, row.reshape(tokens, top_k), assignment


def test_fan_out(program, judge, label):
    rng = np.random.default_rng(4)
    tokens, top_k, width, row, assignment = movement(rng)
    x = bf16(rng, tokens, width)
    inputs, out = [Array(row), Array(x)], Array(shape=(row.size, width), dtype=np.uint16)
    program.launch("fan_out", tokens, 128, [integer(width), integer(top_k), *(a.pointer() for a in inputs), out.pointer()])
    want = np.full(out.view.shape, 0xFFFF, np.uint16)
    want[: assignment.size] = x[assignment // top_k]
    judge.count(label, problem_of([out], inputs, [("rows", out.view == want)]))
    slots = Array(np.concatenate([assignment, np.full(row.size - assignment.size, -1, np.int32)]))
    program.launch("fan_out_clear", row.size, 128, [integer(width), slots.pointer(), out.pointer()])
    want[assignment.size :] = 0
    judge.count(label + " clear", problem_of([out], [slots], [("rows", out.view == want)]))
    out.view[0, 0] ^= 1
    judge.expect_rejection(label, problem_of([out], inputs, [("rows", out.view == want)]))


def test_combine(program, judge, label):
    for element in (BF16, FP16):
        rng = np.random.default_rng(5)
        tokens, top_k, width, row, assignment = movement(rng)
        rows = element.to_bits(rng.standard_normal((row.size, width)))
        rows[assignment.size :] = 0x7FC0  # NaN in both types
        for weight in (rng.random((tokens, top_k)).astype(np.float32), None):
            w = np.where(row >= 0, 1.0 if weight is None else weight.astype(np.float64), 0)
            terms = w[:, :, None] * np.where(row[:, :, None] >= 0, element.to_float(rows).astype(np.float64)[row], 0)
            low, high = interval(element, terms.sum(1), abs(terms).sum(1), top_k)
            inputs = [Array(row), Array(rows)] + ([Array(weight)] if weight is not None else [])
            y = Array(shape=(tokens, width), dtype=np.uint16)
            program.launch("combine" + element.suffix, tokens, 128, [
                integer(width), integer(top_k), inputs[0].pointer(), pointers(inputs[2] if weight is not None else None), inputs[1].pointer(),
                y.pointer()])
            got = element.to_float(y.view)
            judge.count(f"{label} {element.name}", problem_of([y], inputs, [("sums", (got >= low) & (got <= high))]))


def test_combine_gradient(program, judge, label):
    rng = np.random.default_rng(6)
    tokens, top_k, width, row, assignment = movement(rng)
    rows, dy, weight = bf16(rng, row.size, width), bf16(rng, tokens, width), rng.random((tokens, top_k)).astype(np.float32)
    inputs = [Array(row), Array(weight), Array(dy), Array(rows)]
    d_rows, d_weight = Array(shape=rows.shape, dtype=np.uint16), Array(shape=weight.shape, dtype=np.float32)
    n = row.size
    program.launch("combine_gradient", -(-n // 4), 256, [integer(n), integer(width), integer(top_k),
                                                         *(a.pointer() for a in (*inputs, d_rows, d_weight))])
    d, r = from_bf16(dy).astype(np.float64), from_bf16(rows).astype(np.float64)
    want = weight.reshape(-1)[assignment, None] * d[assignment // top_k]
    low, high = interval_bf16(want, abs(want), 1)
    got = from_bf16(d_rows.view[: assignment.size])
    dots = np.where(row[:, :, None] >= 0, d[:, None, :] * r[row], 0)
    allowed = (width + 2) * 2.0**-24 * abs(dots).sum(2)
    judge.count(label, problem_of([d_rows, d_weight], inputs, [
        ("rows", (got >= low) & (got <= high)), ("rows behind", d_rows.view[assignment.size :] == 0xFFFF),
        ("weights", abs(d_weight.view - dots.sum(2)) <= allowed)]))


def swiglu_of(limit, alpha, gate, up):
    gate, up = gate.astype(np.float64), up.astype(np.float64)
    cut = (gate > limit, abs(up) > limit) if limit else (np.zeros_like(gate, bool),) * 2
    if limit:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit) + 1
    alpha = np.float64(np.float32(alpha)) if limit else 1.0
    return gate, up, alpha, 1 / (1 + np.exp(-alpha * gate)), cut


def swiglu_case(rng, limit, alpha):
    rows, ffn = 5, 136
    both, d = bf16(rng, rows, 2 * ffn), bf16(rng, rows, ffn)
    both[0, :8] = to_bf16(np.float32([300, -300, 80, -80, 20, -20, 0, 1e30]))
    point = swiglu_of(limit, alpha, from_bf16(both[:, :ffn]), from_bf16(both[:, ffn:]))
    argument = struct.pack("<3iffi", rows, ffn, 2 * ffn, limit, alpha, 0)
    return rows, ffn, both, d, point, argument


def test_swiglu(program, judge, label):
    rng = np.random.default_rng(7)
    for limit, alpha in ((0.0, 0.0), (2.0, 1.702)):
        rows, ffn, both, _, (gate, up, _, sigmoid, _), argument = swiglu_case(rng, limit, alpha)
        source, act = Array(both), Array(shape=(rows, ffn), dtype=np.uint16)
        argument += source.pointer() + struct.pack("<Q", struct.unpack("<Q", source.pointer())[0] + 2 * ffn)
        program.launch("swiglu", -(-rows * ffn // 2048), 256, [argument, act.pointer()])
        want = gate * sigmoid * up
        up_scale = abs(up - 1) + 1 if limit else abs(up)
        low, high = interval_bf16(want, abs(gate) * sigmoid * up_scale, 10)
        got = from_bf16(act.view)
        judge.count(f"{label} limit {limit}", problem_of([act], [source], [("act", (got >= low) & (got <= high))]))


def test_swiglu_gradient(program, judge, label):
    rng = np.random.default_rng(8)
    for limit, alpha in ((0.0, 0.0), (2.0, 1.702)):
        rows, ffn, both, d, (gate, up, factor, sigmoid, cut), argument = swiglu_case(rng, limit, alpha)
        both_array, d_array, out = Array(both), Array(d), Array(shape=both.shape, dtype=np.uint16)
        at = [struct.unpack("<Q", a.pointer())[0] for a in (both_array, out)]
        program.launch("swiglu_gradient", -(-rows * ffn // 2048), 256, [
            argument + struct.pack("<2Q", at[0], at[0] + 2 * ffn), d_array.pointer(), struct.pack("<Q", at[1]),
            struct.pack("<Q", at[1] + 2 * ffn)])
        dv = from_bf16(d).astype(np.float64)
        rest = factor * (1 - sigmoid)
        want_gate = np.where(cut[0], 0, dv * up * sigmoid * (1 + gate * rest))
        want_up = np.where(cut[1], 0, dv * gate * sigmoid)
        up_scale = abs(up - 1) + 1 if limit else abs(up)
        want = np.concatenate([want_gate, want_up], axis=1)
        scale = np.concatenate([abs(dv) * up_scale * sigmoid * (1 + abs(gate) * rest), abs(want_up)], axis=1)
        low, high = interval_bf16(want, scale, 23)
        got = from_bf16(out.view)
        judge.count(f"{label} limit {limit}", problem_of([out], [both_array, d_array], [("values", (got >= low) & (got <= high))]))


FORMS = ("swiglu", "swiglu in turn", "geglu", "geglu in turn", "relu squared")  # spw_activation_form


def activation_of(form, limit, gate, up):
    """What gate and up become, their slopes, and the yardsticks of the three."""
    if form == 4:
        gate = gate.astype(np.float64)
        return np.where(gate > 0, gate * gate, 0), 2 * np.maximum(gate, 0), 0 * gate, gate * gate, 2 * abs(gate), abs(gate)
    gate, up, factor, sigmoid, cut = swiglu_of(limit, 1.702, gate, up)
    bent = 1.0
    if form in (2, 3):
        c = 2 * np.sqrt(2 / np.pi)
        sigmoid = 1 / (1 + np.exp(np.minimum(-c * (gate + 0.044715 * gate**3), 700)))
        factor, bent = c * (1 + 3 * 0.044715 * gate**2), 2 + 3 * abs(gate)
    rest, up_scale = factor * (1 - sigmoid), abs(up - 1) + 1 if limit else abs(up)
    to_gate, to_up = np.where(cut[0], 0, up * sigmoid * (1 + gate * rest)), np.where(cut[1], 0, gate * sigmoid)
    return (gate * sigmoid * up, to_gate, to_up, bent * abs(gate) * sigmoid * up_scale, bent * up_scale * sigmoid * (1 + abs(gate) * rest),
            bent * abs(to_up))


def test_activation(program, judge, label):
    rng = np.random.default_rng(17)
    for form, limit in ((1, 0.0), (1, 2.0), (2, 0.0), (3, 0.0), (4, 0.0), (0, 2.0)):
        rows, ffn = 5, 136
        wide, pairs = ffn if form == 4 else 2 * ffn, form in (1, 3)
        both, d = bf16(rng, rows, wide), bf16(rng, rows, ffn)
        both[0, :8] = to_bf16(np.float32([30, -30, 8, -8, 2, -2, 0, -1]))
        numbers = from_bf16(both)
        gate, up = (numbers[:, ::2], numbers[:, 1::2]) if pairs else (numbers[:, :ffn], numbers[:, -ffn:])
        act, to_gate, to_up, act_scale, gate_scale, up_scale = activation_of(form, limit, gate, up)
        both_array, d_array = Array(both), Array(d)
        out, slopes = Array(shape=(rows, ffn), dtype=np.uint16), Array(shape=both.shape, dtype=np.uint16)
        at = [struct.unpack("<Q", a.pointer())[0] for a in (both_array, slopes)]
        argument = struct.pack("<3iffi2Q", rows, ffn, wide, limit, 1.702, form, at[0], at[0] + 2 * ffn)
        grid = -(-rows * ffn // 2048)
        program.launch("activation", grid, 256, [argument, out.pointer()])
        program.launch("activation_gradient", grid, 256,
                       [argument, d_array.pointer(), struct.pack("<Q", at[1]), struct.pack("<Q", at[1] + 2 * ffn)])
        low, high = interval_bf16(act, act_scale, 10)
        got = from_bf16(out.view)
        judge.count(f"{label} {FORMS[form]} {limit}", problem_of([out], [both_array], [("act", (got >= low) & (got <= high))]))
        dv, both_slopes = from_bf16(d).astype(np.float64), from_bf16(slopes.view)
        parts = [(both_slopes[:, ::2], to_gate, gate_scale), (both_slopes[:, 1::2], to_up, up_scale)] if pairs else \
            [(both_slopes[:, :ffn], to_gate, gate_scale), (both_slopes[:, -ffn:], to_up, up_scale)][:1 if form == 4 else 2]
        good = []
        for got, want, scale in parts:
            low, high = interval_bf16(dv * want, abs(dv) * scale, 23)
            good.append(("slopes", (got >= low) & (got <= high)))
        judge.count(f"{label} gradient {FORMS[form]} {limit}", problem_of([slopes], [both_array, d_array], good))
    slopes.view[0, 0] ^= 0x40
    judge.expect_rejection(label, problem_of([slopes], [], [("slopes", (from_bf16(slopes.view[:, :ffn]) >= low) &
                                                             (from_bf16(slopes.view[:, :ffn]) <= high))]))


def test_token_rounding(program, judge, label):
    rng = np.random.default_rng(9)
    tokens, top_k, experts, tile = 90, 2, 19, 8
    for rounding in range(3):
        score = rng.random((tokens, experts)).astype(np.float32)
        score[10:20] = score[10]  # ties go to the lower token
        expert = np.argsort(-score, axis=1, kind="stable")[:, :top_k].astype(np.int32)
        weight = np.take_along_axis(score, expert, 1)
        taken, member, count = np.zeros_like(score), np.zeros(score.shape, np.uint8), np.zeros(experts, np.int32)
        for x in range(experts):
            chose = (expert == x).any(1)
            value = np.where(chose, (weight * (expert == x)).sum(1), score[:, x])
            f = int(chose.sum())
            target = (tile * round(f / tile), tile * -(-f // tile), tile * (f // tile))[rounding]
            count[x] = min(target, tokens)
            first = np.lexsort((np.arange(tokens), -value, ~chose))[: count[x]]
            taken[first, x], member[first, x] = value[first], 1
        inputs = [Array(score), Array(expert), Array(weight)]
        outputs = [Array(shape=(experts, tokens), dtype=np.uint32), Array(shape=(experts, 2), dtype=np.int32),
                   Array(shape=score.shape, dtype=np.float32), Array(shape=score.shape, dtype=np.uint8),
                   Array(shape=experts, dtype=np.int32)]
        argument = struct.pack("<6i", tokens, top_k, experts, tile, rounding, 0) + pointers(*inputs, *outputs)
        for kernel, blocks in (("rounding_keys", -(-tokens // 8)), ("rounding_select", experts), ("rounding_apply", -(-tokens // 8))):
            program.launch(kernel, blocks, 256, [argument])
        judge.count(f"{label} {rounding}", problem_of(outputs, inputs, [
            ("count", outputs[4].view == count), ("member", outputs[3].view == member), ("taken", outputs[2].view == taken)]))


def test_row_sums(program, judge, label):
    rng = np.random.default_rng(12)
    for assignments, rows, parts in ((1, 1, 1), (300, 77, 3)):
        row = rng.integers(-1, rows, assignments).astype(np.int32)
        part = rng.standard_normal((parts, rows)).astype(np.float32)
        inputs, out = [Array(row), Array(part)], Array(shape=assignments, dtype=np.float32)
        program.launch("row_sums", -(-assignments // 256), 256,
                       [integer(assignments), integer(rows), integer(parts), *(a.pointer() for a in inputs), out.pointer()])
        want = np.where(row < 0, np.float32(0), np.cumsum(part, axis=0, dtype=np.float32)[-1][row])  # in order: the same roundings
        judge.count(f"{label} {assignments}", problem_of([out], inputs, [("sums", out.view == want)]))
    out.view[0] += 1
    judge.expect_rejection(label, problem_of([out], inputs, [("sums", out.view == want)]))


LOCAL_TESTS = [
    ("router", test_router), ("routing_plan", test_plan), ("capacity", test_capacity), ("fan_out", test_fan_out),
    ("combine", test_combine), ("combine_gradient", test_combine_gradient), ("swiglu", test_swiglu),
    ("swiglu_gradient", test_swiglu_gradient), ("activation", test_activation), ("token_rounding", test_token_rounding), ("row_sums", test_row_sums),
]
