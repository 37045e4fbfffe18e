"""Kernels in JAX for docs/check_your_kernel.md and its test: right ones, and one that is wrong on purpose."""
import jax
import jax.numpy as jnp


@jax.jit
def ragged_dot(x, w, offset):
    return jax.lax.ragged_dot(x, w, jnp.diff(offset), precision=jax.lax.Precision.HIGHEST)


@jax.jit
def forgets_group_sizes(x, w, offset):
    """Wrong on purpose: as if every expert had the same number of rows."""
    return ragged_dot(x, w, jnp.linspace(0, offset[-1], len(offset)).astype(jnp.int32))


@jax.jit
def input_gradient(dy, w, offset):
    return ragged_dot(dy, w.swapaxes(1, 2), offset)


@jax.jit
def weight_gradient(x, dy, offset):
    used = jnp.arange(len(x))[:, None] < offset[-1]  # the tail is NaN, which 0 times does not take away
    x, dy = jnp.where(used, x, 0), jnp.where(used, dy, 0)
    like = jnp.zeros((len(offset) - 1, x.shape[1], dy.shape[1]), x.dtype)
    return jax.vjp(lambda w: ragged_dot(x, w, offset), like)[1](dy)[0]


def permute(x, expert, rows):
    """Gets `rows`, the number of them, by name: it decides the result's shape."""
    chosen = expert.reshape(-1)
    order = jnp.argsort(jnp.where(chosen < 0, jnp.iinfo(jnp.int32).max, chosen), stable=True)[:rows]
    return x[order // expert.shape[1]]


@jax.jit
def unpermute(rows, row, weight):
    kept = jnp.where(row >= 0, weight, 0)
    return (kept[..., None] * rows[jnp.maximum(row, 0)].astype(jnp.float32)).sum(1).astype(rows.dtype)


@jax.jit
def swiglu(gate, up):
    gate32 = gate.astype(jnp.float32)
    return (jax.nn.silu(gate32) * up.astype(jnp.float32)).astype(gate.dtype)
