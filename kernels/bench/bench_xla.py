#!/usr/bin/env python3
"""Rates of what XLA compiles for an MoE training step, on the GPUs of one host: CSV on stdout, what fails on stderr.

    python3 kernels/bench/bench_xla.py     # one GPU: products, attention, moves of rows, scatters; more: exchanges too

Each line: what, shape, GPUs, milliseconds (median of repeats after a warm-up), value, unit. Shapes are DeepSeek-V3's at
one sequence of 4096 tokens a GPU, expert parallel 8: 32 local experts, 32768 rows, hidden 7168, ffn 2048, 128 heads."""
import functools
import statistics
import sys
import time

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec as P

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map

BF = jnp.bfloat16
T, K, H, F, E, HEADS = 4096, 8, 7168, 2048, 32, 128
print("what,shape,gpus,ms,value,unit", flush=True)


def note(text):
    print("# " + text, file=sys.stderr, flush=True)


def seconds(f, *args, least=0.12, repeats=5):
    """Median over repeats of the mean of calls that last `least` seconds together: sustained, at the clocks of a warm GPU."""
    jax.block_until_ready(f(*args))
    start = time.perf_counter()
    jax.block_until_ready(f(*args))
    once = max(time.perf_counter() - start, 1e-6)
    calls = max(1, min(2000, int(least / once)))
    out = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            r = f(*args)
        jax.block_until_ready(r)
        out.append((time.perf_counter() - start) / calls)
    return statistics.median(out)


def line(what, shape, gpus, s, value, unit):
    print(f"{what},{shape},{gpus},{1e3 * s:.4f},{value:.2f},{unit}", flush=True)


def attempt(what, f):
    try:
        f()
    except Exception as error:  # one failure must not lose the rest
        note(f"{what}: {type(error).__name__}: {str(error)[:300]}")


def normal(seed, *shape, dtype=BF):
    return jax.random.normal(jax.random.PRNGKey(seed), shape, dtype) * 0.02


def gemm(what, f, args, flop, shape):
    def go():
        line(what, shape, 1, s := seconds(jax.jit(f), *args), flop / s / 1e12, "TFLOP/s")
    attempt(what, go)


def products():
    a, b = normal(0, 8192, 8192), normal(1, 8192, 8192)
    gemm("dense GEMM", lambda a, b: a @ b, (a, b), 2 * 8192**3, "8192^3")
    for c in (1280, 2560):
        x, w = normal(2, E, c, H), normal(3, E, H, F)
        flop = 2 * E * c * H * F
        up = lambda x, w: jnp.einsum("ech,ehf->ecf", x, w)
        gemm("expert einsum forward", up, (x, w), flop, f"{E}x{c}x{H}x{F}")
        dy = normal(4, E, c, F)
        gemm("expert einsum both gradients", lambda x, w, dy: jax.vjp(up, x, w)[1](dy), (x, w, dy), 2 * flop, f"{E}x{c}x{H}x{F}")
    x, w = normal(5, T, H), normal(6, H, 24576)
    gemm("projection forward", lambda x, w: x @ w, (x, w), 2 * T * H * 24576, f"{T}x{H}x24576")
    mask, x = normal(7, T, 40960), normal(8, T, H)
    gemm("mask einsum", lambda m, x: jnp.einsum("sd,sh->dh", m, x), (mask, x), 2 * T * 40960 * H, f"{T}x40960x{H}")
    x, w = normal(9, 32768, H), normal(10, E, H, F)
    sizes = jnp.full((E,), 32768 // E, jnp.int32)
    ragged = lambda x, w: jax.lax.ragged_dot(x, w, sizes)
    gemm("ragged_dot forward", ragged, (x, w), 2 * 32768 * H * F, f"32768x{H}x{F} in {E} groups")
    gemm("ragged_dot both gradients", lambda x, w, dy: jax.vjp(ragged, x, w)[1](dy), (x, w, normal(11, 32768, F)),
         4 * 32768 * H * F, f"32768x{H}x{F} in {E} groups")


def attention():
    q, k, v = (normal(20 + i, 1, T, HEADS, 128) for i in range(3))
    f = functools.partial(jax.nn.dot_product_attention, is_causal=True, implementation="cudnn")
    flop = 2 * 2 * T * T * HEADS * 128 / 2
    gemm("attention cudnn forward", f, (q, k, v), flop, f"1x{T}x{HEADS}x128 causal")
    gemm("attention cudnn backward with forward", lambda q, k, v, d: jax.vjp(f, q, k, v)[1](d), (q, k, v, q), 3.5 * flop, f"1x{T}x{HEADS}x128 causal")


def movement(what, f, args, size, shape):
    def go():
        line(what, shape, 1, s := seconds(jax.jit(f), *args), size / s / 1e9, "GB/s")
    attempt(what, go)


def movements():
    rows = 32768
    x = normal(30, rows, H)
    size = rows * H * 2
    movement("copy by XLA", lambda x: x + jnp.asarray(1, BF), (x,), 2 * size, f"{rows}x{H}")
    g, u = normal(31, rows, F), normal(32, rows, F)
    movement("SwiGLU", lambda g, u: jax.nn.silu(g) * u, (g, u), 3 * rows * F * 2, f"{rows}x{F}")
    scale = normal(33, H)

    def norm(x, s):
        y = x.astype(jnp.float32)
        return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(BF) * s
    movement("RMSNorm", norm, (x, scale), 2 * size, f"{rows}x{H}")
    movement("RMSNorm backward", lambda x, s, d: jax.vjp(norm, x, s)[1](d), (x, scale, x), 3 * size, f"{rows}x{H}")
    tokens = normal(34, T, H)
    index = jax.random.permutation(jax.random.PRNGKey(35), jnp.repeat(jnp.arange(T), K))
    movement("gather: tokens to rows", lambda t, i: jnp.take(t, i, axis=0), (tokens, index), 2 * size, f"{T} to {rows}x{H}")
    order = jax.random.permutation(jax.random.PRNGKey(36), rows)
    movement("gather: permutation of rows", lambda x, i: jnp.take(x, i, axis=0), (x, order), 2 * size, f"{rows}x{H}")
    expert = jax.random.randint(jax.random.PRNGKey(37), (rows,), 0, 256)
    movement("argsort and gather", lambda x, e: jnp.take(x, jnp.argsort(e, stable=True), axis=0), (x, expert), 2 * size, f"{rows}x{H}")
    movement("sum over 8 rows of a token", lambda x: x.reshape(T, K, H).sum(1), (x,), size + size // K, f"{rows}x{H}")
    for dtype in (BF, jnp.float32):
        movement(f"scatter-add colliding {jnp.dtype(dtype).name}", lambda x, i: jnp.zeros((T, H), dtype).at[i].add(x.astype(dtype)),
                 (x, index), rows * H * jnp.dtype(dtype).itemsize, f"{rows} to {T}x{H}; by the bytes added")
    params, grads, m, v = (normal(38 + i, 1 << 28) for i in range(4))

    def adam(p, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 1e-3 * m / (jnp.sqrt(v.astype(jnp.float32)) + 1e-8).astype(BF), m, v
    movement("AdamW bf16", adam, (params, grads, m, v), 7 * 2 * (1 << 28), "2^28")


def exchanges():
    n = jax.device_count()
    mesh = Mesh(jax.devices(), ("x",))
    for rows in (4096, 32768):
        per = rows // n * n
        x = jax.device_put(jnp.zeros((n * per, H), BF), jax.sharding.NamedSharding(mesh, P("x")))
        off = per * (n - 1) / n * H * 2

        def run(what, f, size, argument=x):
            def go():
                line(what, f"{per}x{H} a GPU", n, s := seconds(jax.jit(f), argument), size / s / 1e9, "GB/s off-rank a GPU")
            attempt(what, go)
        spec = dict(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        run("all-to-all", shard_map(lambda y: jax.lax.all_to_all(y.reshape(n, per // n, H), "x", 0, 0).reshape(per, H), **spec), off)
        run("all-gather", shard_map(lambda y: jax.lax.all_gather(y, "x", tiled=True)[:per] * 1, **spec), per * (n - 1) * H * 2)
        run("reduce-scatter", shard_map(lambda y: jnp.tile(jax.lax.psum_scatter(y, "x", tiled=True), (n, 1)), **spec), off)

        def ragged(y):
            me, each = jax.lax.axis_index("x"), per // n
            sizes = jnp.full((n,), each, jnp.int32)
            return jax.lax.ragged_all_to_all(y, jnp.zeros_like(y), jnp.arange(n, dtype=jnp.int32) * each, sizes,
                                             jnp.full((n,), me * each, jnp.int32), sizes, axis_name="x")
        try:
            run("ragged all-to-all", shard_map(ragged, **spec, check_vma=False), off)
        except TypeError:
            run("ragged all-to-all", shard_map(ragged, **spec), off)


note(f"jax {jax.__version__}, {jax.device_count()} x {jax.devices()[0].device_kind}")
products()
attention()
movements()
if jax.device_count() > 1:
    exchanges()
