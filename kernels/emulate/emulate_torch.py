"""The entry of PyTorch's operators (docs/torch.md) as AMD code in the emulator, host code included: layers of experts, forward and backward, by
the GPU's side of the entry beside its CPU's side, and what must be refused. No PyTorch is needed.

    python3 emulate_host.py --runtime FOLDER -- python3 emulate_torch.py libspillway_torch_amd.so
"""
import ctypes
import sys

import numpy as np

OPERATIONS = ("plan", "forward", "input_gradient", "weight_gradient", "up", "down_gradient", "combine", "row_sums", "float8_rows")
INTEGERS = ("operation", "device", "element", "transposed", "gathers", "activation", "pairs", "multiprocessors")
SIZES = ("experts", "rows", "in", "out", "tokens", "top_k", *("stride_" + name for name in ("left", "right", "result", "expert", "h", "d_h")))
CPU, GPU = -1, 0
library, runtime = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libamdhip64.so")
checks = failed = 0


class Call(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_int) for name in INTEGERS] + [(name, ctypes.c_float) for name in ("limit", "alpha")]
                + [(name, ctypes.c_size_t) for name in SIZES]
                + [("operand", ctypes.c_void_p * 6), ("result", ctypes.c_void_p * 5), ("stream", ctypes.c_void_p)])


library.spw_torch_run.restype, library.spw_torch_run.argtypes = ctypes.c_char_p, [ctypes.POINTER(Call)]


def judge(what, good):
    global checks, failed
    checks, failed = checks + 1, failed + (not good)
    if not good:
        print(f"failed: {what}")


def placed(array, where):
    """A copy in memory of the CPU or the GPU; this program reaches both."""
    if where == CPU:
        return array.copy()
    at = ctypes.c_void_p()
    assert runtime.hipMalloc(ctypes.byref(at), ctypes.c_size_t(array.nbytes)) == 0
    there = np.frombuffer((ctypes.c_uint8 * array.nbytes).from_address(at.value), array.dtype).reshape(array.shape)
    there[...] = array
    return there


def run(where, operation, operands, results, **sizes):
    """Arrays, addresses or None. None, or what was wrong."""
    call = Call(operation=OPERATIONS.index(operation), device=where, **sizes)
    for places, arrays in ((call.operand, operands), (call.result, results)):
        for i, array in enumerate(arrays):
            places[i] = array.ctypes.data if isinstance(array, np.ndarray) else array
    said = library.spw_torch_run(ctypes.byref(call))
    assert where == CPU or runtime.hipDeviceSynchronize() == 0
    return said and said.decode()


def to_bf16(numbers):
    bits = np.asarray(numbers, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def of_bf16(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32)


def layer(where, sizes, transposed, arrays):
    """Indices, and numbers with their names; everything that is written begins as NaN."""
    tokens, hidden, ffn, experts, top_k = sizes
    rows, parts = tokens * top_k, -(-ffn // 128)
    expert, x, weight, w_up, w_down, dy = (placed(a, where) for a in arrays)
    integers = lambda *shape: placed(np.full(shape, -7, np.int32), where)  # noqa: E731
    halves = lambda *shape: placed(np.full(shape, 0x7fc0, np.uint16), where)  # noqa: E731
    reals = lambda *shape: placed(np.full(shape, np.nan, np.float32), where)  # noqa: E731
    row, assignment, offset = integers(tokens, top_k), integers(rows), integers(experts + 1)
    scratch = integers(experts * (-(-rows // 1024) + 1))
    h, act, y_rows, y = halves(rows, 2 * ffn), halves(rows, ffn), halves(rows, hidden), halves(tokens, hidden)
    d_h, weighted, row_sum = halves(rows, 2 * ffn), halves(rows, ffn), reals(parts, rows)
    d_down, d_up, dx_rows, dx = halves(*w_down.shape), halves(*w_up.shape), halves(rows, hidden), halves(tokens, hidden)
    d_weight = reals(tokens, top_k)
    said = {"experts": experts, "rows": rows, "tokens": tokens, "top_k": top_k, "transposed": transposed}
    up, down, by_token = {**said, "in": hidden, "out": 2 * ffn}, {**said, "in": ffn, "out": hidden}, {**said, "in": hidden}
    for operation, operands, results, more in (
            ("plan", (expert,), (row, assignment, offset, scratch), said),
            ("up", (x, w_up, offset, assignment, None), (h, act), {**up, "gathers": 1}),
            ("forward", (act, w_down, offset), (y_rows,), down), ("combine", (y_rows, row, weight), (y,), by_token),
            ("down_gradient", (dy, w_down, offset, assignment, h, weight), (d_h, weighted, row_sum), {**down, "gathers": 1}),
            ("weight_gradient", (weighted, dy, offset, assignment), (d_down,), {**down, "gathers": 2}),
            ("weight_gradient", (x, d_h, offset, assignment), (d_up,), {**up, "gathers": 1}),
            ("input_gradient", (d_h, w_up, offset), (dx_rows,), up), ("combine", (dx_rows, row, None), (dx,), by_token),
            ("row_sums", (row_sum, row), (d_weight,), {**said, "out": parts})):
        refusal = run(where, operation, operands, results, **more)
        judge(f"{operation} says {refusal}", refusal is None)
    numbers = {"y": y, "dx": dx, "d_w_up": d_up, "d_w_down": d_down}
    return (row, offset), {**{name: of_bf16(codes) for name, codes in numbers.items()}, "d_weight": d_weight}


def layers(random):
    for sizes, transposed, choices in (((3, 16, 8, 4, 2), 0, None), ((1, 8, 8, 1, 1), 1, 0), ((5, 24, 136, 3, 3), 0, -1),
                                       ((40, 32, 8, 6, 2), 1, None)):
        tokens, hidden, ffn, experts, top_k = sizes
        expert = random.integers(-1, experts, (tokens, top_k)) if choices is None else np.full((tokens, top_k), choices)
        turn = (lambda a: a.transpose(0, 2, 1).copy()) if transposed else (lambda a: a)
        numbers = lambda *shape: to_bf16(random.normal(size=shape) * 0.3)  # noqa: E731
        arrays = (expert.astype(np.int32), numbers(tokens, hidden), random.random((tokens, top_k), np.float32),
                  turn(numbers(experts, hidden, 2 * ffn)), turn(numbers(experts, ffn, hidden)), numbers(tokens, hidden))
        (indices, got), (right, want) = (layer(where, sizes, transposed, arrays) for where in (GPU, CPU))
        judge(f"{sizes}: the plan", all(np.array_equal(a, b) for a, b in zip(indices, right)))
        for name in want:
            near = np.abs(got[name] - want[name]) <= 2.0 ** -6 * np.abs(want[name]).max()
            judge(f"{sizes}: {name}", bool(near.all()))
            shifted = np.roll(got[name], 1, 0)
            judge(f"{sizes}: {name} of the next row is rejected", not want[name].any() or len(shifted) == 1 or
                  bool((np.abs(shifted - want[name]) > 2.0 ** -6 * np.abs(want[name]).max()).any()))


def refused():
    a, ends = placed(np.zeros(4096, np.uint16), GPU), placed(np.array([0, 1, 2, 0], np.int32), GPU)
    off, shape = a.ctypes.data + 2, {"experts": 2, "rows": 2, "in": 16, "out": 16, "tokens": 2, "top_k": 1}
    for what, words, operation, operands, results, more in (
            ("513 experts", "16 of 512", "plan", (ends,), (ends, ends, ends, a), {"experts": 513}),
            ("top-17", "16 of 512", "plan", (a,), (a, a, a, a), {"top_k": 17, "rows": 34}),
            ("9 columns", "multiples of 8", "forward", (a, a, ends), (a,), {"in": 9}),
            ("no experts", "at least one expert", "forward", (a, a, ends), (a,), {"experts": 0}),
            ("fp32", "bf16 or fp16", "forward", (a, a, ends), (a,), {"element": 1}),
            ("a stride of 20", "a multiple of 16", "forward", (a, a, ends), (a,), {"stride_left": 20}),
            ("an operand between 16 bytes", "operand 0 lies at", "forward", (off, a, ends), (a,), {}),
            ("a result between 16 bytes", "result 0 lies at", "combine", (a, ends, None), (off,), {}),
            ("codes between 16 bytes", "result 0 lies at", "float8_rows", (a, None, ends, None), (off, a, None, None), {}),
            ("codes of 8 columns", "a positive multiple of 16", "float8_rows", (a, None, ends, None), (a, a, None, None), {"in": 8})):
        said = run(GPU, operation, operands, results, **{**shape, **more})
        judge(f"{what} is refused: {said}", said is not None and words in said)


layers(np.random.default_rng(11))
refused()
print(f"{checks} checks, {failed} failed")
sys.exit(1 if failed or not checks else 0)
