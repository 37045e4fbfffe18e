"""The entry of PyTorch's operators as torch_calls.py and torch_float8_calls.py call it, on a CPU and without PyTorch; and activations in Python."""
import ctypes
import math
import sys

PLAN, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, UP, DOWN_GRADIENT, COMBINE, ROW_SUMS = range(8)
F8_ROWS, F8_WEIGHTS, F8_PRODUCT, F8_GRADIENT, F8_ACT, F8_SLOPES = range(8, 14)
INTEGERS = ("operation", "device", "element", "transposed", "gathers", "activation", "pairs", "multiprocessors")
BF16, FP32, FP16 = range(3)
SIZES = ("experts", "rows", "in", "out", "tokens", "top_k")
STRIDES = ("stride_left", "stride_right", "stride_result", "stride_expert", "stride_h", "stride_d_h")
library = ctypes.CDLL(sys.argv[1])
failed = checks = 0


class Call(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_int) for name in INTEGERS] + [(name, ctypes.c_float) for name in ("limit", "alpha")]
                + [(name, ctypes.c_size_t) for name in SIZES + STRIDES]
                + [("operand", ctypes.c_void_p * 6), ("result", ctypes.c_void_p * 5), ("stream", ctypes.c_void_p)])


library.spw_torch_run.restype, library.spw_torch_run.argtypes = ctypes.c_char_p, [ctypes.POINTER(Call)]


def floats(values):
    return (ctypes.c_float * len(values))(*values)


def integers(values):
    return (ctypes.c_int32 * len(values))(*values)


def empty(count):
    return floats([math.nan] * count)


def run(operation, operands, results, **said):
    call = Call(operation=operation, **{"device": -1, "element": FP32, **said})
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
    worst = max((abs(a - b) / max(1, abs(b) / 100) for a, b in zip(got, want)), default=0)
    check(f"{what}: off by {worst}", len(got) == len(want) and all(math.isfinite(a) for a in got) and worst <= 1e-4)


def refuses(what, words, said):
    check(f"{what} is refused: {said}", said is not None and words in said)


def logistic(x):
    return 1 / (1 + math.exp(-x))


def silu(gate, up):
    return gate * logistic(gate) * up


def clamped(gate, up):
    gate, up = min(gate, 1.5), max(-1.5, min(up, 1.5))
    return gate * logistic(1.702 * gate) * (up + 1)


def geglu(gate, up):
    return gate / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3))) * up


def relu2(x, _):
    return max(x, 0) ** 2


# By name: how a call says it, what it is, and whether the first product has a bias.
ACTIVATIONS = {"swiglu": ({}, silu, False), "swiglu in turn, bias": ({"pairs": 1}, silu, True),
               "clamped in turn, bias": ({"pairs": 1, "limit": 1.5, "alpha": 1.702}, clamped, True),
               "clamped": ({"limit": 1.5, "alpha": 1.702}, clamped, False), "geglu, bias": ({"activation": 1}, geglu, True),
               "relu2, bias": ({"activation": 2}, relu2, True), "relu2": ({"activation": 2}, relu2, False)}


def slopes(act, gate, up):
    """By differences: of gate, of up."""
    step = 1e-5
    return ((act(gate + step, up) - act(gate - step, up)) / (2 * step), (act(gate, up + step) - act(gate, up - step)) / (2 * step))


def end():
    print(f"{checks} checks, {failed} failed")
    sys.exit(1 if failed or not checks else 0)
