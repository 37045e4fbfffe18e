"""Spillway's grouped GEMM, expert layers, dispatch and combine for JAX, as XLA custom calls with gradients.

    import spillway_jax
    spillway_jax.register("libspillway_jax_cuda.so")     # bash kernels/build.sh jax-cuda, jax-amd; CPUs alone: jax

    y = spillway_jax.grouped_gemm(x, w, group_sizes)     # jax.lax.ragged_dot
    y = spillway_jax.experts(x, expert, weight, w_up, w_down)       # a layer of experts on one device
    axis = spillway_jax.ExpertAxis(mesh, "expert")
    received, handle = spillway_jax.dispatch(x, expert, weight, axis=axis, experts=256)    # under shard_map
    y = spillway_jax.combine(rows, handle, axis=axis)

docs/jax.md says how an MoE layer is made of these, what they cost and what keeps the order of exchanges.
"""
import ctypes
import dataclasses
import functools
import itertools
import typing

import jax
import jax.numpy as jnp
import numpy as np

_CALLS = ("grouped_gemm", "grouped_gemm_dx", "grouped_gemm_dw", "dispatch", "combine", "dispatch_gradient",
          "combine_gradient", *("experts_" + name for name in ("plan", "forward", "input_gradient", "weight_gradient", "up",
                                                              "down_gradient", "combine", "row_sums")))
_PLAN_CHUNK, _ROW_SUM_TILE = 1024, 128  # of experts' plan and of a row's sum: the handlers refuse others
_ACTIVATIONS = ("swiglu", "geglu", "relu2")  # by their numbers in the handlers
_channels = itertools.count()  # one a traced call: the ranks know by it that they are at the same one
_libraries = []


def register(library):
    """Makes the handlers of a library known to XLA: those for CPUs and those for GPUs, as many as it holds."""
    loaded = ctypes.CDLL(library)
    found = 0
    for prefix, platform in (("cpu", "cpu"), ("cuda", "CUDA"), ("rocm", "ROCM")):
        for call in _CALLS:
            handler = getattr(loaded, f"spw_jax_{prefix}_{call}", None)
            if handler is not None:
                jax.ffi.register_ffi_target(f"spillway.{call}", jax.ffi.pycapsule(handler), platform=platform)
                found += 1
    if found == 0:
        raise ValueError(f"{library} holds no handlers; what `kernels/build.sh jax` builds would be right")
    _libraries.append(loaded)


def check():
    """Raises when an exchange between GPUs went wrong: to be called when results are there (jax.block_until_ready).
    Without it the next exchange says so."""
    for loaded in _libraries:
        if hasattr(loaded, "spw_jax_gpu_check"):
            loaded.spw_jax_gpu_check.restype = ctypes.c_char_p
            message = loaded.spw_jax_gpu_check()
            if message:
                raise RuntimeError(message.decode())


# ---- under shard_map every array says over which axes it varies; a custom call wants all of them to agree --------------
def _manual(array):
    """What the type of an array says of manual axes, under the name that this version of JAX has for it."""
    kind = jax.typeof(array)
    return {name: getattr(kind, name) for name in ("manual_axis_type", "vma") if getattr(kind, name, None)}


def _varies(array):
    return frozenset().union(*(getattr(says, "varying", says) for says in _manual(array).values()))


def _alike(*arrays):
    """The same arrays, each varying over the axes over which any of them does."""
    axes = frozenset().union(*map(_varies, arrays))

    def cast(array):
        missing = tuple(sorted(axes - _varies(array)))
        return jax.lax.pcast(array, missing, to="varying") if missing else array

    return tuple(map(cast, arrays))


def _call(name, operands, results, **attributes):
    """results: (shape, dtype) each."""
    says = _manual(operands[0])
    if says:
        says["sharding"] = jax.sharding.NamedSharding(jax.typeof(operands[0]).sharding.mesh, jax.sharding.PartitionSpec())
    shapes = tuple(jax.ShapeDtypeStruct(shape, dtype, **says) for shape, dtype in results)
    return jax.ffi.ffi_call(f"spillway.{name}", shapes)(*operands, **attributes)


def _no_gradient(array):
    return np.zeros(array.shape, jax.dtypes.float0)


def _integers(array, what):
    """As int32."""
    array = jnp.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"{what} is {array.dtype}; integers would be right")
    return array.astype(jnp.int32)


# ---- grouped GEMM -----------------------------------------------------------------------------------------------------
def grouped_gemm(x, w, group_sizes, *, transposed=False):
    """y[r] = x[r] @ w[e], where e is the expert of row r: jax.lax.ragged_dot, with gradients of x and w.

    x            [rows, in]            bf16 or fp16; on the CPU also fp32. Rows sorted by expert.
    w            [experts, in, out]    of x's type; [experts, out, in] when transposed
    group_sizes  [experts] int32       rows of each expert, 0 or more; a sum below `rows` leaves an unused tail
    returns      [rows, out]           of x's type, each sum rounded once; 0 in the tail

    On the GPU `in` and `out` are multiples of 8, and sizes are cut where their sum exceeds `rows`; on the CPU that is an
    error. Sharded arrays belong under shard_map: XLA would gather the operands of a custom call.
    """
    x, w, group_sizes = _alike(x, w, _integers(group_sizes, "group_sizes"))
    return _grouped_gemm(x, w, group_sizes, bool(transposed))


def _gemm(name, left, right, group_sizes, shape, transposed):
    offsets = ((group_sizes.shape[0] + 1,), jnp.int32)
    return _call(name, (left, right, group_sizes), ((shape, left.dtype), offsets),
                 transposed=np.int64(transposed))[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _grouped_gemm(x, w, group_sizes, transposed):
    return _gemm("grouped_gemm", x, w, group_sizes, (x.shape[0], w.shape[1 if transposed else 2]), transposed)


def _grouped_gemm_forward(x, w, group_sizes, transposed):
    return _grouped_gemm(x, w, group_sizes, transposed), (x, w, group_sizes)


def _grouped_gemm_backward(transposed, saved, dy):
    x, w, group_sizes = saved
    dx = _gemm("grouped_gemm_dx", dy, w, group_sizes, x.shape, transposed)
    dw = _gemm("grouped_gemm_dw", x, dy, group_sizes, w.shape, transposed)
    return dx, dw, _no_gradient(group_sizes)


_grouped_gemm.defvjp(_grouped_gemm_forward, _grouped_gemm_backward)


# ---- dispatch and combine ---------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class ExpertAxis:
    """The axis of a mesh along which experts are spread. Its ranks are GPUs (or devices of the CPU) of this process."""

    mesh: jax.sharding.Mesh
    name: str

    @property
    def ranks(self):
        return self.mesh.shape[self.name]

    def devices(self):
        """The devices of all groups, rank by rank."""
        axis = self.mesh.axis_names.index(self.name)
        groups = np.moveaxis(self.mesh.devices, axis, -1).reshape(-1, self.ranks)
        foreign = [d for d in groups.flat if d.process_index != jax.process_index()]
        if foreign:
            raise ValueError(f"{len(foreign)} devices of axis {self.name} belong to other processes; one process "
                             "with all GPUs of the axis would be right")
        return np.array([d.local_hardware_id for d in groups.flat], np.int64)


class Received(typing.NamedTuple):
    """What a rank holds after a dispatch: tokens by source rank, inside a source in their order."""

    rows: jax.Array    # [C, hidden]; 0 behind the last
    expert: jax.Array  # [C, top_k] int32: counted from 0 on this rank; -1: another rank's, or none
    weight: jax.Array  # [C, top_k] fp32; 0 where the expert is -1
    source: jax.Array  # [C] int32: the token's number on its rank, -1 behind the last
    first: jax.Array   # [ranks + 1] int32: where each rank's tokens begin; the last: how many came, C or fewer fit


class Handle(typing.NamedTuple):
    """Where the tokens of this rank went: for combine, with the same arrays as the dispatch had."""

    place: jax.Array  # [tokens, ranks] int32
    base: jax.Array   # [ranks] int32
    first: jax.Array  # [ranks + 1] int32


def dispatch(x, expert, weight, *, axis, experts, rows=None):
    """Sends every token once to each rank that has one of its experts. Under shard_map; every rank calls it.

    x        [tokens, hidden]        of this rank; bf16, on the CPU also fp32; on the GPU hidden is a multiple of 8
    expert   [tokens, top_k] int32   distinct ids in a token, 0 to experts - 1; negative: none. Expert e lives on rank
                                     e // (experts // ranks)
    weight   [tokens, top_k] fp32    travels along
    rows     C, the rows of the receive buffer; ranks * tokens, the most that can come, unless given. What finds no
             room is lost: received.first[-1] > C says so.
    returns  Received, Handle; gradients reach x and weight
    """
    x, expert, weight = _alike(x, _integers(expert, "expert"), jnp.asarray(weight, jnp.float32))
    rows = axis.ranks * x.shape[0] if rows is None else int(rows)
    out = _dispatch(x, expert, weight, axis, int(experts), rows)
    return Received(*out[:5]), Handle(out[5], out[6], out[4])


def combine(rows, handle, *, axis):
    """y[t] = the sum of what the ranks hold in `rows` for token t of this rank, in fp32, rounded once; 0 where it went
    nowhere. Under shard_map; every rank calls it.

    rows     [C, hidden]   in the places in which dispatch put them
    handle   of that dispatch
    returns  [tokens, hidden]; the gradient reaches rows
    """
    rows, *handle = _alike(rows, *handle)
    return _combine(rows, *handle, axis)


def _exchange(name, axis, operands, results, **attributes):
    return _call(name, operands, results, channel=np.int64(next(_channels)), ranks=np.int64(axis.ranks),
                 devices=axis.devices(), **attributes)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _dispatch(x, expert, weight, axis, experts, rows):
    (tokens, hidden), top_k, ranks = x.shape, expert.shape[1], axis.ranks
    results = (((rows, hidden), x.dtype), ((rows, top_k), jnp.int32), ((rows, top_k), jnp.float32), ((rows,), jnp.int32),
               ((ranks + 1,), jnp.int32), ((tokens, ranks), jnp.int32), ((ranks,), jnp.int32))
    return _exchange("dispatch", axis, (x, expert, weight), results, experts=np.int64(experts))


def _dispatch_forward(x, expert, weight, axis, experts, rows):
    out = _dispatch(x, expert, weight, axis, experts, rows)
    return out, (expert, out[1], out[5], out[6], out[4])


def _dispatch_backward(axis, experts, rows, saved, gradient):
    expert, row_expert, *handle = saved
    d_rows, d_weight = gradient[0], jnp.where(row_expert < 0, 0, gradient[2])  # what is not this rank's is 0 whatever it was
    shape = (expert.shape[0], d_rows.shape[1])
    dx, d_weight = _exchange("dispatch_gradient", axis, _alike(d_rows, d_weight, *handle),
                             ((shape, d_rows.dtype), (expert.shape, jnp.float32)))
    return dx, _no_gradient(expert), d_weight


_dispatch.defvjp(_dispatch_forward, _dispatch_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _combine(rows, place, base, first, axis):
    shape = (place.shape[0], rows.shape[1])
    return _exchange("combine", axis, (rows, place, base, first), ((shape, rows.dtype),))[0]


def _combine_forward(rows, place, base, first, axis):
    return _combine(rows, place, base, first, axis), (place, base, first, jnp.zeros((rows.shape[0], 0), rows.dtype))


def _combine_backward(axis, saved, dy):
    *handle, empty = saved
    d_rows, = _exchange("combine_gradient", axis, _alike(dy, *handle), (((empty.shape[0], dy.shape[1]), dy.dtype),))
    return d_rows, *map(_no_gradient, handle)


_combine.defvjp(_combine_forward, _combine_backward)


# ---- between the two --------------------------------------------------------------------------------------------------
def by_expert(received, local_experts, choices=None):
    """The choices of this rank's experts, sorted by expert, as grouped_gemm wants its rows.

    choices  how many rows to make; the most there can be, C * min(top_k, local_experts), unless given. Later experts lose
             what finds no room.
    returns  row [choices] int32 (of received.rows), weight [choices] fp32 (0 where unused), group_sizes [local_experts]
    """
    rows, top_k = received.expert.shape
    most = rows * min(top_k, local_experts)
    choices = most if choices is None else int(choices)
    key = jnp.where(received.expert < 0, local_experts, received.expert).reshape(-1)
    order = jnp.argsort(key, stable=True)[:choices]
    count = jnp.bincount(key, length=local_experts + 1)[:local_experts]
    end = jnp.minimum(jnp.cumsum(count), choices)
    sizes = jnp.diff(end, prepend=0).astype(jnp.int32)
    used = jnp.arange(choices) < end[-1]
    weight = jnp.where(used, received.weight.reshape(-1)[order], 0)
    return (order // top_k).astype(jnp.int32), weight, sizes


def expert_ffn(received, w_in, w_out, *, choices=None, activation=jax.nn.silu, transposed=False):
    """sum over a token's experts here of weight * (activation(gate) * up) @ w_out, for every row of a receive buffer.

    w_in [experts, hidden, 2 ffn] (gate, up), w_out [experts, ffn, hidden]; of this rank. Both transposed when said."""
    row, weight, sizes = by_expert(received, w_in.shape[0], choices)
    both = grouped_gemm(received.rows[row], w_in, sizes, transposed=transposed)
    gate, up = jnp.split(both, 2, axis=1)
    y = grouped_gemm(activation(gate) * up, w_out, sizes, transposed=transposed)
    weighted = y.astype(jnp.float32) * weight[:, None]
    return jnp.zeros(received.rows.shape, jnp.float32).at[row].add(weighted).astype(received.rows.dtype)


# ---- a whole layer of experts on one device ---------------------------------------------------------------------------
class _Between(typing.NamedTuple):
    """How weights lie, and what stands between the products."""

    transposed: bool
    activation: str
    interleaved: bool
    limit: float
    alpha: float

    @property
    def columns(self):
        """Of the first product for one of the second."""
        return 1 if self.activation == "relu2" else 2

    def attributes(self):
        return {"transposed": np.int64(self.transposed), "activation": np.int64(_ACTIVATIONS.index(self.activation)),
                "pairs": np.int64(self.interleaved), "limit": np.float32(self.limit), "alpha": np.float32(self.alpha)}

    def widths(self, w):
        """in, out of weights."""
        return (w.shape[2], w.shape[1]) if self.transposed else (w.shape[1], w.shape[2])


def _between(transposed, activation, interleaved, limit, alpha):
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation {activation!r}; one of {', '.join(_ACTIVATIONS)} would be right")
    if limit is not None and (activation != "swiglu" or not limit > 0):
        raise ValueError(f"{activation} with a limit of {limit}; None, or a positive one of swiglu, would be right")
    if interleaved and activation == "relu2":
        raise ValueError("interleaved relu2, which has one matrix; interleaved=False would be right")
    return _Between(bool(transposed), activation, bool(interleaved), float(limit or 0), float(alpha))


def _expect(array, shape, what, dtype):
    if tuple(array.shape) != tuple(shape) or array.dtype != dtype:
        raise ValueError(f"{what} is {array.dtype} {list(array.shape)}; {jnp.dtype(dtype)} {list(shape)} would be right")


def _check_experts(x, expert, weight, w_up, w_down, b_up, b_down, between):
    for array, what, dimensions in ((x, "x", 2), (expert, "expert", 2), (w_up, "w_up", 3)):
        if array.ndim != dimensions or 0 in array.shape:
            raise ValueError(f"{what} is {array.dtype} {list(array.shape)}; {dimensions} dimensions of at least 1 would be right")
    if x.dtype not in (jnp.bfloat16, jnp.float16, jnp.float32):
        raise ValueError(f"x is {x.dtype}; bfloat16 or float16, on a CPU also float32, would be right")
    _integers(expert, "expert")
    experts_, (tokens, hidden), (inner, wide) = w_up.shape[0], x.shape, between.widths(w_up)
    if inner != hidden or wide % between.columns != 0:
        columns = "ffn" if between.columns == 1 else "2 ffn"
        raise ValueError(f"w_up is {list(w_up.shape)} with transposed={between.transposed}, x {list(x.shape)}; {experts_} matrices of "
                         f"{'[' + columns + ', ' + str(hidden) + ']' if between.transposed else f'[{hidden}, {columns}]'} would be right")
    ffn = wide // between.columns
    _expect(expert, (tokens, expert.shape[1]), "expert", expert.dtype)
    _expect(weight, expert.shape, "weight", weight.dtype)
    _expect(w_up, w_up.shape, "w_up", x.dtype)
    _expect(w_down, (experts_, *((hidden, ffn) if between.transposed else (ffn, hidden))), "w_down", x.dtype)
    for bias, width, what in ((b_up, wide, "b_up"), (b_down, hidden, "b_down")):
        if bias is not None:
            _expect(bias, (experts_, width), what, x.dtype)


def _experts_plan(expert, experts_):
    """row [tokens, top_k], assignment [tokens * top_k], offset [experts + 1]; int32."""
    choices = expert.size
    scratch = experts_ * (-(-choices // _PLAN_CHUNK) + 1)
    shapes = expert.shape, (choices,), (experts_ + 1,), (scratch,)
    return _call("experts_plan", (expert,), tuple((shape, jnp.int32) for shape in shapes))[:3]


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def _experts(x, expert, weight, w_up, w_down, b_up, between):
    return _experts_forward(x, expert, weight, w_up, w_down, b_up, between)[0]


def _experts_forward(x, expert, weight, w_up, w_down, b_up, between):
    row, assignment, offset = _experts_plan(expert, w_up.shape[0])
    rows, wide = expert.size, between.widths(w_up)[1]
    bias = () if b_up is None else (b_up,)
    h, act = _call("experts_up", (x, w_up, offset, assignment, *bias),
                   (((rows, wide), x.dtype), ((rows, wide // between.columns), x.dtype)), **between.attributes())
    y_rows, = _call("experts_forward", (act, w_down, offset), (((rows, x.shape[1]), x.dtype),), transposed=np.int64(between.transposed))
    y, = _call("experts_combine", (y_rows, row, weight), ((x.shape, x.dtype),))
    return y, (x, weight, w_up, w_down, b_up, row, assignment, offset, h)


def _experts_backward(between, saved, dy):
    x, weight, w_up, w_down, b_up, row, assignment, offset, h = saved
    dy, rows, ffn, dtype = _alike(dy, x)[0], h.shape[0], h.shape[1] // between.columns, x.dtype
    layout = {"transposed": np.int64(between.transposed)}
    d_h, act, row_sum = _call("experts_down_gradient", (dy, w_down, offset, assignment, h, weight),
                              ((h.shape, dtype), ((rows, ffn), dtype), ((-(-ffn // _ROW_SUM_TILE), rows), jnp.float32)),
                              **between.attributes())
    d_down, = _call("experts_weight_gradient", (act, dy, offset, assignment), ((w_down.shape, dtype),), gathers=np.int64(2), **layout)
    d_up, = _call("experts_weight_gradient", (x, d_h, offset, assignment), ((w_up.shape, dtype),), gathers=np.int64(1), **layout)
    dx_rows, = _call("experts_input_gradient", (d_h, w_up, offset), (((rows, x.shape[1]), dtype),), **layout)
    dx, = _call("experts_combine", (dx_rows, row), ((x.shape, dtype),))
    d_weight, = _call("experts_row_sums", (row_sum, row), ((weight.shape, jnp.float32),))
    d_bias = None
    if b_up is not None:  # sums of d_h by expert: the weights' gradient of eight columns of ones, the fewest that there are
        ones = _alike(jnp.ones((rows, 8), dtype), d_h)[0]
        d_bias, = _call("experts_weight_gradient", (ones, d_h, offset, assignment), (((w_up.shape[0], 8, h.shape[1]), dtype),),
                        gathers=np.int64(0), transposed=np.int64(0))
        d_bias = d_bias[:, 0]
    return dx, _no_gradient(row), d_weight, d_up, d_down, d_bias


_experts.defvjp(_experts_forward, _experts_backward)


def _with_bias(y, expert, weight, b_down):
    """y and each choice's weight times its expert's bias, a product of [tokens, experts] by JAX."""
    tokens, experts_ = y.shape[0], b_down.shape[0]
    place = jnp.where(expert < 0, experts_, expert)
    share = jnp.zeros((tokens, experts_), jnp.float32).at[jnp.arange(tokens)[:, None], place].add(weight, mode="drop")
    bias = jnp.dot(share, b_down.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)
    return (y.astype(jnp.float32) + bias).astype(y.dtype)


def experts(x, expert, weight, w_up, w_down, *, transposed=False, activation="swiglu", limit=None, alpha=1.702, interleaved=False,
            b_up=None, b_down=None):
    """y[t] = sum over k of weight[t, k] * (act(x[t] @ w_up[e] + b_up[e]) @ w_down[e] + b_down[e]), e = expert[t, k], by the operations
    behind spillway_torch.experts. On one device: under shard_map every device computes its own tokens with the experts it is given.

    x        [tokens, hidden]         bf16 or fp16; on a CPU also fp32
    expert   [tokens, top_k]          of any integer type; negative, or as many as there are experts: none
    weight   [tokens, top_k]          its gradient is that of the router
    w_up     [experts, hidden, 2 ffn] gate, then up; w_down [experts, ffn, hidden]; of x's type. With transposed=True (as transformers
             stores them) [experts, 2 ffn, hidden] and [experts, hidden, ffn]. relu2 has ffn columns for 2 ffn
    b_up     [experts, 2 ffn], b_down [experts, hidden], of x's type, or None
    activation  swiglu: silu(gate) * up; with a limit, of gate' = min(gate, limit) and up' = clamp(up, -limit, limit),
             gate' * sigmoid(alpha gate') * (up' + 1), as gpt-oss has it. geglu: gelu(gate) * up, by tanh. relu2: relu(h)^2
    interleaved  gate and up in turn: column 2 f is gate, 2 f + 1 up
    returns  [tokens, hidden] of x's type; gradients of x, weight, w_up, w_down, b_up and b_down

    Shapes are static: there are tokens * top_k rows, of which choices of no expert leave an unused tail. On a GPU widths are multiples
    of 8, at most 512 experts and top-16.
    """
    between = _between(transposed, activation, interleaved, limit, alpha)
    x, expert, weight, w_up, w_down, b_up, b_down = (
        array if array is None else jnp.asarray(array) for array in (x, expert, weight, w_up, w_down, b_up, b_down))
    _check_experts(x, expert, weight, w_up, w_down, b_up, b_down, between)
    expert = jnp.where((expert < 0) | (expert >= w_up.shape[0]), -1, expert).astype(jnp.int32)
    biases = [bias for bias in (b_up, b_down) if bias is not None]
    x, expert, weight, w_up, w_down, *biases = _alike(x, expert, weight.astype(jnp.float32), w_up, w_down, *biases)
    of_up = None if b_up is None else biases[0]
    y = _experts(x, expert, weight, w_up, w_down, of_up, between)
    return y if b_down is None else _with_bias(y, expert, weight, biases[-1])
