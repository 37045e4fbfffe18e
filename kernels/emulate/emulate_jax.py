"""The custom calls for JAX (docs/jax.md) as AMD code in the emulator: this program is what XLA would be, and calls each handler with frames of
its own making, on one GPU; its one rank waits for nobody else.

    python3 emulate_host.py --runtime FOLDER -- python3 emulate_jax.py libspillway_jax_amd.so

Numbers are small integers, so results are compared bit for bit with numpy's. Fields are those of xla/ffi/api/c_api.h.
"""
import ctypes
import sys

import numpy as np

POINTER, SIZE, WHOLE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int
TYPES = {"bf16": (16, np.uint16), "fp32": (11, np.float32), "int32": (4, np.int32)}
BUFFER, ARRAY, SCALAR, S64, EXECUTE, RUN = 1, 1, 3, 5, 3, 7
ERROR_CREATE, STREAM_GET, RUN_GET, DEVICE_GET, FUNCTIONS = 0, 4, 16, 17, 18  # places among the functions of the API


def structure(name, **fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


HEAD = {"struct_size": SIZE, "extension": POINTER}
Buffer = structure("Buffer", **HEAD, type=INT, data=POINTER, rank=WHOLE, sizes=POINTER)
Buffers = structure("Buffers", **HEAD, size=WHOLE, types=POINTER, items=POINTER)
Attributes = structure("Attributes", **HEAD, size=WHOLE, types=POINTER, names=POINTER, items=POINTER)
Name = structure("Name", text=ctypes.c_char_p, length=SIZE)
Scalar = structure("Scalar", type=INT, value=POINTER)
Array = structure("Array", type=INT, size=SIZE, data=POINTER)
Frame = structure("Frame", **HEAD, api=POINTER, context=POINTER, stage=INT, arguments=Buffers, results=Buffers, attributes=Attributes,
                  future=POINTER)
Api = structure("Api", **HEAD, version=structure("Version", **HEAD, major=INT, minor=INT), internal=POINTER, functions=POINTER * FUNCTIONS)
ErrorArguments = structure("ErrorArguments", **HEAD, message=ctypes.c_char_p, code=INT)
GetArguments = structure("GetArguments", **HEAD, context=POINTER, out=WHOLE)
DeviceArguments = structure("DeviceArguments", **HEAD, context=POINTER, out=ctypes.c_int32)

library, runtime = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libamdhip64.so")
said, failed = [], 0


def answers(kind, value):
    @ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(kind))
    def function(arguments):
        arguments[0].out = value
    return function


@ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(ErrorArguments))
def error_create(arguments):
    said.append(arguments[0].message.decode())
    return 1


functions = {ERROR_CREATE: error_create, STREAM_GET: answers(GetArguments, 0), RUN_GET: answers(GetArguments, RUN),
             DEVICE_GET: answers(DeviceArguments, 0)}
api = Api()
for at, function in functions.items():
    api.functions[at] = ctypes.cast(function, POINTER)


class Device:
    """An array in device memory, poisoned unless it has a value; the program sees that memory too."""

    def __init__(self, kind, shape, value=None):
        self.kind, self.shape, at = kind, shape, POINTER()
        self.code, element = TYPES[kind]
        size = max(1, int(np.prod(shape))) * np.dtype(element).itemsize
        if runtime.hipMalloc(ctypes.byref(at), SIZE(size)) != 0:
            sys.exit("no device memory")
        self.at, self.sizes = at.value, (WHOLE * len(shape))(*shape)
        raw = np.ctypeslib.as_array(ctypes.cast(self.at, ctypes.POINTER(ctypes.c_ubyte)), (size,))
        raw[...] = 0xff
        self.view = raw.view(element).reshape(shape)
        if value is not None:
            self.view[...] = np.asarray(value, np.float32).view(np.uint32) >> 16 if kind == "bf16" else value

    def get(self):
        return (self.view.astype(np.uint32) << 16).view(np.float32) if self.kind == "bf16" else self.view.copy()


def address(kind, items):
    return ctypes.cast((kind * len(items))(*items), POINTER)


def buffers(arrays):
    made = [Buffer(ctypes.sizeof(Buffer), None, a.code, a.at, len(a.shape), ctypes.cast(a.sizes, POINTER)) for a in arrays]
    items = address(POINTER, [ctypes.addressof(b) for b in made])
    return Buffers(ctypes.sizeof(Buffers), None, len(made), address(INT, [BUFFER] * len(made)), items), made


def call(name, arguments, results, **attributes):
    keep, types, names, items = [], [], [], []
    for key, value in sorted(attributes.items()):
        numbers = (WHOLE * len(value))(*value) if isinstance(value, list) else WHOLE(value)
        at = ctypes.cast(ctypes.pointer(numbers), POINTER)
        item = Array(S64, len(value), at) if isinstance(value, list) else Scalar(S64, at)
        keep += [numbers, item, Name(key.encode(), len(key))]
        types.append(ARRAY if isinstance(value, list) else SCALAR)
        items.append(ctypes.addressof(item))
        names.append(ctypes.addressof(keep[-1]))
    (taken, one), (given, two) = buffers(arguments), buffers(results)
    frame = Frame(ctypes.sizeof(Frame), None, ctypes.addressof(api), None, EXECUTE, taken, given,
                  Attributes(ctypes.sizeof(Attributes), None, len(types), address(INT, types), address(POINTER, names), address(POINTER, items)))
    keep += [one, two]
    handler = getattr(library, f"spw_jax_rocm_{name}")
    handler.restype = POINTER
    return said[-1] if handler(ctypes.byref(frame)) else ""


def check(what, got, want):
    global failed
    good = got == want if isinstance(got, str) else np.array_equal(got, want)
    failed += not good
    print(f"{'ok' if good else 'WRONG':6}{what}" + ("" if good else f": {got}; {want} would be right"))


def integers(rng, *shape):
    return rng.integers(-2, 3, shape).astype(np.float32)


def gemm(rng, transposed):
    experts, rows, width_in, width_out, sizes = 3, 40, 16, 24, [10, 0, 21]
    x, w, dy = integers(rng, rows, width_in), integers(rng, experts, width_in, width_out), integers(rng, rows, width_out)
    y, dx, dw, offset = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(w), np.concatenate([[0], np.cumsum(sizes)])
    for e in range(experts):
        own = slice(offset[e], offset[e + 1])
        y[own], dx[own], dw[e] = x[own] @ w[e], dy[own] @ w[e].T, x[own].T @ dy[own]
    turn = (lambda a: np.ascontiguousarray(a.swapaxes(1, 2))) if transposed else (lambda a: a)
    on_x, on_w, on_dy = (Device("bf16", a.shape, a) for a in (x, turn(w), dy))
    on_sizes = Device("int32", (experts,), sizes)
    for name, left, right, want in (("grouped_gemm", on_x, on_w, y), ("grouped_gemm_dx", on_dy, on_w, dx),
                                    ("grouped_gemm_dw", on_x, on_dy, turn(dw))):
        result, on_offset = Device("bf16", want.shape), Device("int32", (experts + 1,))
        check(f"{name} transposed {transposed}: called", call(name, [left, right, on_sizes], [result, on_offset], transposed=transposed), "")
        check(f"{name} transposed {transposed}", result.get(), want)
        check(f"{name} transposed {transposed}: offsets", on_offset.get(), offset)


def exchange(rng, top_k, rows, hidden):
    tokens, experts = 12, 5
    where = {"channel": 1, "ranks": 1, "devices": [0]}
    x, weight = integers(rng, tokens, hidden), rng.random((tokens, top_k)).astype(np.float32)
    expert = np.argsort(rng.random((tokens, experts)), 1)[:, :top_k]
    expert[[3, 7]] = -1
    goes = np.flatnonzero((expert >= 0).any(1))
    kept = goes[:rows]
    out = {"rows": Device("bf16", (rows, hidden)), "expert": Device("int32", (rows, top_k)), "weight": Device("fp32", (rows, top_k)),
           "source": Device("int32", (rows,)), "first": Device("int32", (2,)), "place": Device("int32", (tokens, 1)), "base": Device("int32", (1,))}
    inputs = [Device("bf16", x.shape, x), Device("int32", expert.shape, expert), Device("fp32", weight.shape, weight)]
    name = f"top-{top_k}, {rows} rows of {hidden}"
    check(f"dispatch {name}: called", call("dispatch", inputs, list(out.values()), experts=experts, **where), "")
    want = {"rows": np.zeros((rows, hidden)), "expert": np.full((rows, top_k), -1), "weight": np.zeros((rows, top_k), np.float32),
            "source": np.full(rows, -1), "first": np.array([0, len(goes)])}
    for key, value in (("rows", x), ("expert", expert), ("weight", weight), ("source", np.arange(tokens))):
        want[key][: len(kept)] = value[kept]
    for key, value in want.items():
        check(f"dispatch {name}: {key}", out[key].get(), value)
    handle = [out["place"], out["base"], out["first"]]
    back, side = integers(rng, rows, hidden), rng.random((rows, top_k)).astype(np.float32)
    y, d_weight = np.zeros((tokens, hidden)), np.zeros((tokens, top_k), np.float32)
    y[kept], d_weight[kept] = back[: len(kept)], side[: len(kept)]
    on_back, on_side = Device("bf16", back.shape, back), Device("fp32", side.shape, side)
    for call_name, arguments, wanted in (
            ("combine", [on_back, *handle], [("bf16", y)]),
            ("dispatch_gradient", [on_back, on_side, *handle], [("bf16", y), ("fp32", d_weight)]),
            ("combine_gradient", [inputs[0], *handle], [("bf16", want["rows"])])):
        results = [Device(kind, value.shape) for kind, value in wanted]
        check(f"{call_name} {name}: called", call(call_name, arguments, results, **where), "")
        for result, (_, value) in zip(results, wanted):
            check(f"{call_name} {name}", result.get(), value)


def plan(rng, tokens, top_k, experts):
    """Which row is whose: the one call of spillway_jax.experts that AMD GPUs need beside the grouped GEMM."""
    expert = np.where(rng.random((tokens, top_k)) < 0.2, -1, rng.integers(0, experts, (tokens, top_k))).astype(np.int32)
    flat, choices = expert.reshape(-1), tokens * top_k
    order = [a for e in range(experts) for a in np.flatnonzero(flat == e)]
    row = np.full(choices, -1)
    row[order] = np.arange(len(order))
    out = [Device("int32", shape) for shape in ((tokens, top_k), (choices,), (experts + 1,), (experts * (-(-choices // 1024) + 1),))]
    name = f"experts_plan of {tokens} tokens, top-{top_k} of {experts}"
    check(f"{name}: called", call("experts_plan", [Device("int32", expert.shape, expert)], out), "")
    check(f"{name}: rows", out[0].get(), row.reshape(tokens, top_k))
    check(f"{name}: assignments", out[1].get()[: len(order)], order)
    check(f"{name}: offsets", out[2].get(), [np.sum((flat >= 0) & (flat < e)) for e in range(experts + 1)])


generator = np.random.default_rng(1)
plan(generator, 20, 2, 5)
plan(generator, 700, 2, 12)
for layout in (0, 1):
    gemm(generator, layout)
for shape in ((2, 12, 16), (4, 20, 2064), (3, 9, 16)):
    exchange(generator, *shape)
check("fp32 is refused", call("grouped_gemm", [Device("fp32", (8, 8)), Device("fp32", (1, 8, 8)), Device("int32", (1,), [8])],
                              [Device("fp32", (8, 8)), Device("int32", (2,))], transposed=0),
      "spillway.grouped_gemm: fp32; bf16 would be right on a GPU")
library.spw_jax_gpu_check.restype = ctypes.c_char_p
check("nothing failed on the GPU", library.spw_jax_gpu_check().decode(), "")
sys.exit(1 if failed else 0)
