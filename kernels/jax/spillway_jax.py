"""Spillway's grouped GEMM, dispatch and combine for JAX, as XLA custom calls with gradients.

    import spillway_jax
    spillway_jax.register("libspillway_jax_gpu.so")      # or libspillway_jax_cpu.so: bash kernels/build.sh jax

    y = spillway_jax.grouped_gemm(x, w, group_sizes)     # jax.lax.ragged_dot
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
          "combine_gradient")
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


# ---- grouped GEMM -----------------------------------------------------------------------------------------------------
def grouped_gemm(x, w, group_sizes, *, transposed=False):
    """y[r] = x[r] @ w[e], where e is the expert of row r: jax.lax.ragged_dot, with gradients of x and w.

    x            [rows, in]            bf16; on the CPU also fp32. Rows sorted by expert.
    w            [experts, in, out]    of x's type; [experts, out, in] when transposed
    group_sizes  [experts] int32       rows of each expert, 0 or more; a sum below `rows` leaves an unused tail
    returns      [rows, out]           of x's type, each sum rounded once; 0 in the tail

    On the GPU `in` and `out` are multiples of 8, and sizes are cut where their sum exceeds `rows`; on the CPU that is an
    error. Sharded arrays belong under shard_map: XLA would gather the operands of a custom call.
    """
    x, w, group_sizes = _alike(x, w, jnp.asarray(group_sizes, jnp.int32))
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
    x, expert, weight = _alike(x, jnp.asarray(expert, jnp.int32), jnp.asarray(weight, jnp.float32))
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
