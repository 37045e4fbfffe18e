#!/usr/bin/env python3
"""Spillway's custom calls in JAX against jax.lax.ragged_dot, jax.lax.all_to_all and dense layers, forward and backward, on the devices that
JAX has.

    python3 kernels/jax/verify_jax.py LIBRARY [--ranks 1,2,4] [--time]

Grouped GEMM on normal numbers: each side's sums err by at most (terms + 2) 2^-24 times the sum of magnitudes (Higham 2002, section 3.1),
and one that is stored in bf16 by 2^-8 of its value more; the column `share` is the largest error over that bound. Exchanges, and whole
layers of small integers, are the same bit for bit: every sum is exact, and roundings stand in the same places. Results that are wrong on
purpose must be noticed. Layers by `experts`: verify_jax_experts.py. --time measures instead. Exit status 1: a check failed.
"""
import argparse
import os
import statistics
import sys
import time

# A rounding that is written down is made: XLA would drop one between two operations that it fuses.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_allow_excess_precision=false"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import spillway_jax  # noqa: E402
from verify_jax_experts import NAMES, experts_checks  # noqa: E402

U, HIGHEST, REAL = 2.0 ** -24, jax.lax.Precision.HIGHEST, jnp.float32
checked = failed = 0


def judge(what, good, elements, share=""):
    global checked, failed
    checked += elements
    failed += not good
    print(f"{'ok' if good else 'WRONG':6}{what:96}{elements:>12}{share:>8}", flush=True)


def same(what, got, want):
    """Bit for bit, but for the sign of zero."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)]
    good = all(a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b) for a, b in pairs)
    judge(what, good, sum(a.size for a, _ in pairs))
    if not good:
        for i, (a, b) in enumerate(pairs):
            at = np.argwhere(a != b) if a.shape == b.shape else []
            print(f"      part {i}: {a.dtype} {a.shape} against {b.dtype} {b.shape}, {len(at)} differ",
                  f"first at {tuple(at[0])}: {a[tuple(at[0])]} for {b[tuple(at[0])]}" if len(at) else "")


def noticed(what, got, want):
    """A wrong result that `same` would pass proves nothing of the right ones."""
    judge(f"noticed: {what}", not np.array_equal(np.asarray(got), np.asarray(want)), np.asarray(got).size)


# ---- grouped GEMM -----------------------------------------------------------------------------------------------------
def group_sizes(rng, experts, rows, kind):
    chance = np.ones(experts) if kind == "uniform" else np.arange(1, experts + 1) ** -1.2
    if kind == "one":
        chance = np.eye(experts)[experts // 2]
    used = rows if kind != "tail" else rows * 3 // 4
    return rng.multinomial(used, chance / chance.sum()).astype(np.int32)


def exact_parts(x, w, dy, sizes):
    """y, dx, dw of ragged_dot in fp32."""
    y, pull = jax.vjp(lambda x, w: jax.lax.ragged_dot(x, w, sizes, precision=HIGHEST), x.astype(REAL), w.astype(REAL))
    return (y, *pull(dy.astype(REAL)))


# What storing a number of this magnitude adds to its error; fp16 keeps multiples of 2^-24.
ROUNDING = {jnp.bfloat16: lambda b: 2.0 ** -8 * b, jnp.float16: lambda b: np.maximum(2.0 ** -11 * b, 2.0 ** -25), jnp.float32: lambda b: U * b}


def gemm_case(rng, dtype, experts, rows, width_in, width_out, kind, transposed):
    sizes = jnp.asarray(group_sizes(rng, experts, rows, kind))
    x, w, dy = (jnp.asarray(rng.standard_normal(shape, np.float32)).astype(dtype)
                for shape in ((rows, width_in), (experts, width_in, width_out), (rows, width_out)))
    turn = (lambda a: a.swapaxes(1, 2)) if transposed else (lambda a: a)

    @jax.jit
    def ours(x, w, dy, sizes):
        y, pull = jax.vjp(lambda x, w: spillway_jax.grouped_gemm(x, w, sizes, transposed=transposed), x, turn(w))
        dx, dw = pull(dy)
        return y, dx, turn(dw)

    got = ours(x, w, dy, sizes)
    used = (jnp.arange(rows) < sizes.sum())[:, None]
    want = [jnp.where(used, a, 0) if a.ndim == 2 else a for a in jax.jit(exact_parts)(x, w, jnp.where(used, dy, 0), sizes)]
    scale = jax.jit(exact_parts)(abs(x), abs(w), abs(jnp.where(used, dy, 0)), sizes)
    name = f"{experts} x {rows} x {width_in} x {width_out} {kind}{' [out][in]' if transposed else ''} {NAMES[x.dtype]}"
    terms = (width_in, width_out, int(sizes.max()))
    for part, a, b, s, n in zip(("y", "dx", "dw"), got, want, scale, terms):
        a, b, s = (np.asarray(v, np.float64) for v in (a, b, s))
        bound = 2 * (n + 2) * U * s + ROUNDING[dtype](abs(b))
        share = np.max(abs(a - b) / np.maximum(bound, 1e-300), initial=0.0)
        judge(f"grouped GEMM {part}: {name}", bool((abs(a - b) <= bound).all()), a.size, f"{share:.3f}")
    if kind == "uniform":
        moved = jnp.asarray(np.roll(np.asarray(sizes), 1))
        noticed(f"groups in another order, {name}", ours(x, w, dy, moved)[0], got[0])


def gemm_checks(types, big):
    rng = np.random.default_rng(11)
    for dtype in types:
        for kind, transposed in (("uniform", False), ("skewed", True), ("one", False), ("tail", True)):
            experts, rows = int(rng.integers(2, 12)), int(rng.integers(1, 40)) * (13 if big else 3)
            width_in, width_out = (8 * int(rng.integers(1, 60 if big else 8)) for _ in range(2))
            gemm_case(rng, dtype, experts, rows, width_in, width_out, kind, transposed)
        if big:
            gemm_case(rng, dtype, 16, 8192, 2048, 1024, "skewed", False)


# ---- exchanges: the same by jax.lax.all_to_all of slots for every token ---------------------------------------------------
def plain_dispatch(x, expert, weight, axis, experts, rows):
    """spillway_jax.Received, and the row of every token on every rank (rows where there is none), rank by rank of sources."""
    (tokens, hidden), ranks, local = x.shape, axis.ranks, experts // axis.ranks
    to = jnp.arange(ranks)[:, None, None]
    mine = (expert >= 0) & (expert // local == to)  # [ranks][tokens][top_k]
    goes = mine.any(2)

    def exchange(a):
        return jax.lax.all_to_all(a, axis.name, 0, 0).reshape((ranks * tokens,) + a.shape[2:])

    came = exchange(goes)
    row = jnp.cumsum(came) - 1
    row = jnp.where(came & (row < rows), row, rows)

    def place(a, fill):
        return jnp.full((rows + 1,) + a.shape[1:], fill, a.dtype).at[row].set(a)[:rows]

    sent = jnp.where(goes[..., None], x.astype(REAL), 0)
    token = jnp.broadcast_to(jnp.arange(tokens, dtype=jnp.int32), (ranks, tokens))
    counts = jnp.cumsum(came.reshape(ranks, tokens).sum(1))
    return spillway_jax.Received(
        place(exchange(sent).astype(x.dtype), 0), place(exchange(jnp.where(mine, expert - to * local, -1)), -1),
        place(exchange(jnp.where(mine, weight, 0)), 0), place(exchange(token), -1),
        jnp.concatenate([jnp.zeros(1, jnp.int32), counts.astype(jnp.int32)])), row.reshape(ranks, tokens)


def plain_combine(rows, row, axis):
    padded = jnp.concatenate([rows.astype(REAL), jnp.zeros((1, rows.shape[1]), REAL)])
    return jax.lax.all_to_all(padded[row], axis.name, 0, 0).sum(0).astype(rows.dtype)


def plain_ffn(received, w_in, w_out):
    """spillway_jax.expert_ffn with relu, every expert on every row, rounded in the same places."""
    total = jnp.zeros(received.rows.shape, REAL)
    for e in range(w_in.shape[0]):
        both = jnp.dot(received.rows.astype(REAL), w_in[e].astype(REAL), precision=HIGHEST).astype(received.rows.dtype)
        gate, up = jnp.split(both, 2, axis=1)
        y = jnp.dot((jax.nn.relu(gate) * up).astype(REAL), w_out[e].astype(REAL), precision=HIGHEST).astype(both.dtype)
        weight = jnp.where(received.expert == e, received.weight, 0).sum(1, keepdims=True)
        total = total + jnp.where((received.expert == e).any(1, keepdims=True), y.astype(REAL) * weight, 0)
    return total.astype(received.rows.dtype)


def routing(rng, tokens, top_k, experts, kind):
    chance = np.ones(experts) if kind != "skewed" else np.arange(1, experts + 1) ** -1.5
    if kind == "empty":
        chance[: experts // 2] = 1e-9
    key = np.log(chance / chance.sum()) + rng.gumbel(size=(tokens, experts))
    expert = np.argsort(-key, axis=1)[:, :top_k].astype(np.int32)
    return np.where(rng.random(expert.shape) < 0.1, -1, expert) if kind == "holes" else expert


def integers(rng, dtype, *shape):
    return jnp.asarray(rng.integers(-1, 2, shape)).astype(dtype)


def exchange_case(rng, dtype, mesh, tokens, hidden, top_k, experts, kind, rows):
    axis, ranks = spillway_jax.ExpertAxis(mesh, "expert"), mesh.shape["expert"]
    spec = PartitionSpec(mesh.axis_names)
    count = mesh.size
    rows = ranks * tokens if rows is None else rows
    x = jnp.asarray(rng.standard_normal((count * tokens, hidden), np.float32)).astype(dtype)
    expert = jnp.asarray(routing(rng, count * tokens, top_k, experts, kind))
    weight = jnp.asarray(rng.random((count * tokens, top_k), np.float32))
    c = integers(rng, dtype, count * rows, hidden), jnp.asarray(rng.integers(-1, 2, (count * rows, top_k)).astype(np.float32))

    def shard(function, inputs, check_vma=False):
        return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(spec,) * inputs, out_specs=spec, check_vma=check_vma))

    def ours(x, expert, weight, rows_c, weight_c):
        def sent(x, weight):
            received, handle = spillway_jax.dispatch(x, expert, weight, axis=axis, experts=experts, rows=rows)
            return (received.rows, received.weight), (received, handle)
        _, pull, (received, handle) = jax.vjp(sent, x, weight, has_aux=True)
        y, back = jax.vjp(lambda r: spillway_jax.combine(r, handle, axis=axis), rows_c)
        return received, pull((rows_c, weight_c)), y, back(x)[0], handle

    def plain(x, expert, weight, rows_c, weight_c):
        def sent(x, weight):
            received, row = plain_dispatch(x, expert, weight, axis, experts, rows)
            return (received.rows, received.weight), (received, row)
        _, pull, (received, row) = jax.vjp(sent, x, weight, has_aux=True)
        y, back = jax.vjp(lambda r: plain_combine(r, row, axis), rows_c)
        return received, pull((rows_c, weight_c)), y, back(x)[0]

    got = shard(ours, 5, check_vma=True)(x, expert, weight, *c)
    want = shard(plain, 5)(x, expert, weight, *c)
    shape = "x".join(str(n) for n in mesh.shape.values())
    name = f"{shape} ranks, {tokens} x {hidden}, top-{top_k} of {experts} {kind}, {rows} rows {NAMES[x.dtype]}"
    for part, a, b in zip(("dispatch", "gradients of dispatch", "combine", "gradient of combine"), got, want):
        same(f"{part}: {name}", a, b)
    if kind == "uniform" and rows >= ranks * tokens:
        wrong = got[4]._replace(base=got[4].base + 1)
        again = shard(lambda rows_c, *handle: spillway_jax.combine(rows_c, spillway_jax.Handle(*handle), axis=axis), 4)
        noticed(f"rows one place behind, {name}", again(c[0], *wrong), got[2])


def layer_case(rng, dtype, mesh, tokens, hidden, ffn, experts, kind):
    """A whole MoE layer and all of its gradients, of small integers; two choices a token, so that no sum depends on its order."""
    axis = spillway_jax.ExpertAxis(mesh, "expert")
    count, groups = mesh.size, mesh.size // axis.ranks
    spec, of_experts = PartitionSpec(mesh.axis_names), PartitionSpec("expert")
    expert = jnp.asarray(routing(rng, count * tokens, 2, experts, kind))
    arrays = (integers(rng, dtype, count * tokens, hidden), jnp.asarray(rng.integers(1, 3, expert.shape).astype(np.float32)),
              integers(rng, dtype, experts, hidden, 2 * ffn), integers(rng, dtype, experts, ffn, hidden))
    c = integers(rng, dtype, count * tokens, hidden)

    def ours(x, weight, w_in, w_out, expert):
        received, handle = spillway_jax.dispatch(x, expert, weight, axis=axis, experts=experts)
        return spillway_jax.combine(spillway_jax.expert_ffn(received, w_in, w_out, activation=jax.nn.relu), handle, axis=axis)

    def plain(x, weight, w_in, w_out, expert):
        received, row = plain_dispatch(x, expert, weight, axis, experts, axis.ranks * x.shape[0])
        return plain_combine(plain_ffn(received, w_in, w_out), row, axis)

    def all_parts(function):
        # Weights of other groups are summed by shard_map in their type: one group, or fp32, or there would be another rounding.
        inner = jax.shard_map(function, mesh=mesh, in_specs=(spec, spec, of_experts, of_experts, spec), out_specs=spec,
                              check_vma=function is ours)
        y, pull = jax.vjp(lambda *a: inner(*a, expert), *arrays)
        return (y, *pull(c))

    got, want = jax.jit(lambda: all_parts(ours))(), jax.jit(lambda: all_parts(plain))()
    name = f"{groups} x {axis.ranks} ranks, {tokens} x {hidden}, ffn {ffn}, {experts} experts {kind} {NAMES[c.dtype]}"
    for part, a, b in zip(("y", "dx", "d weight", "d w_in", "d w_out"), got, want):
        same(f"layer {part}: {name}", a, b)


def loop_case(rng, dtype, mesh):
    """Layers in a scan, recomputed in the backward pass: the same exchange again and again."""
    axis, spec = spillway_jax.ExpertAxis(mesh, "expert"), PartitionSpec("expert")
    tokens, experts = 16, 4 * axis.ranks
    x = integers(rng, dtype, axis.ranks * tokens, 16)
    expert = jnp.asarray(np.stack([routing(rng, axis.ranks * tokens, 2, experts, "uniform") for _ in range(3)]))

    def layers(x, expert):
        @jax.checkpoint
        def layer(x, expert):
            received, handle = spillway_jax.dispatch(x, expert, jnp.ones(expert.shape, REAL), axis=axis, experts=experts)
            return spillway_jax.combine(received.rows, handle, axis=axis), None
        return jax.lax.scan(layer, x, expert)[0]

    run = jax.shard_map(layers, mesh=mesh, in_specs=(spec, PartitionSpec(None, "expert")), out_specs=spec, check_vma=False)
    y, pull = jax.vjp(jax.jit(lambda x: run(x, expert)), x)
    local = experts // axis.ranks
    copies = np.prod([[len(set(e // local)) for e in np.asarray(layer)] for layer in expert], axis=0)[:, None]
    want = (np.asarray(x, np.float32) * copies).astype(np.float32)
    same(f"three layers in a scan, recomputed: {axis.ranks} ranks", (y.astype(REAL), pull(x)[0].astype(REAL)), (want, want))


def exchange_checks(types, ranks, big):
    """big: every kind of routing on every mesh; else they take turns."""
    rng = np.random.default_rng(12)
    devices = np.array(jax.devices())
    ranks = [n for n in ranks if n <= len(devices)]
    meshes = [Mesh(devices[:n].reshape(1, n), ("data", "expert")) for n in ranks]
    if len(devices) >= 4:
        meshes.append(Mesh(devices[:4].reshape(2, 2), ("expert", "data")))  # groups {0, 2} and {1, 3}
    for dtype in types:
        for i, mesh in enumerate(meshes if dtype == types[0] else meshes[:1]):
            n = mesh.shape["expert"]
            tokens, hidden = (int(rng.integers(5, 300)), 8 * int(rng.integers(1, 200))) if big else (int(rng.integers(3, 20)), 24)
            kinds = (2, 4 * n, "uniform", None), (4, 8 * n, "skewed", n * tokens // 2 + 1), (3, 4 * n, "holes", None)
            for kind in kinds if big else (kinds[i % 3],):
                exchange_case(rng, dtype, mesh, tokens, hidden, *kind)
            layer_case(rng, dtype, mesh, tokens, 32, 16, 4 * n, "empty")
        loop_case(rng, dtype, Mesh(devices[: max(ranks)], ("expert",)))


# ---- time ---------------------------------------------------------------------------------------------------------------
def median_ms(function, *arguments, runs=5, calls=4):
    """Of a call, when several are in flight."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        out = [function(*arguments) for _ in range(calls)]
        jax.block_until_ready(out)
        times.append(1e3 * (time.perf_counter() - start) / calls)
        del out
    return statistics.median(times)


GEMM_SHAPES = [  # name, experts, rows, in, out, routing
    ("deepseek-v3 gate and up", 32, 65536, 7168, 4096, "uniform"),
    ("mixtral gate and up", 8, 32768, 4096, 28672, "uniform"),
    ("deepseek-v3 gate and up", 32, 65536, 7168, 4096, "skewed"),
    ("small", 8, 16384, 4096, 4096, "uniform"),
]


def gemm_times(until):
    print(f"\n{'grouped GEMM, bf16':44}{'operation':12}{'spillway ms':>12}{'TFLOP/s':>9}{'ragged_dot ms':>15}{'TFLOP/s':>9}{'ratio':>8}")
    for name, experts, rows, width_in, width_out, kind in GEMM_SHAPES:
        if time.perf_counter() > until:
            print(f"{name} {experts} x {rows}, {kind}: no time left")
            continue
        rng = np.random.default_rng(13)
        sizes = jnp.asarray(group_sizes(rng, experts, rows, kind))
        key = iter(jax.random.split(jax.random.key(1), 3))
        x, w, dy = (jax.random.normal(next(key), shape, jnp.bfloat16)
                    for shape in ((rows, width_in), (experts, width_in, width_out), (rows, width_out)))
        flops = 2e-9 * rows * width_in * width_out
        for operation, of in (("forward", lambda f: lambda x, w, dy: f(x, w, sizes)),
                              ("dgrad", lambda f: lambda x, w, dy: jax.vjp(lambda x: f(x, w, sizes), x)[1](dy)),
                              ("wgrad", lambda f: lambda x, w, dy: jax.vjp(lambda w: f(x, w, sizes), w)[1](dy))):
            ms = []
            for function in (spillway_jax.grouped_gemm, jax.lax.ragged_dot):
                try:
                    ms.append(median_ms(jax.jit(of(function)), x, w, dy))
                except Exception as error:  # noqa: BLE001: whatever the compiler or its memory does not do is said
                    print(f"      {function.__name__}: {str(error).splitlines()[0][:120]}")
                    ms.append(float("nan"))
            print(f"{name + f' {experts} x {rows}, {kind}':44}{operation:12}{ms[0]:12.3f}{flops / ms[0]:9.1f}{ms[1]:15.3f}"
                  f"{flops / ms[1]:9.1f}{ms[1] / ms[0]:8.2f}", flush=True)


def exchange_times(ranks):
    tokens, hidden, top_k, experts = 4096, 7168, 8, 256
    mesh = Mesh(np.array(jax.devices())[:ranks], ("expert",))
    axis, spec = spillway_jax.ExpertAxis(mesh, "expert"), PartitionSpec("expert")
    rng = np.random.default_rng(14)
    x = jax.device_put(jnp.zeros((ranks * tokens, hidden), jnp.bfloat16), jax.sharding.NamedSharding(mesh, spec))
    expert = jax.device_put(routing(rng, ranks * tokens, top_k, experts, "uniform"), jax.sharding.NamedSharding(mesh, spec))
    weight = jnp.ones(expert.shape, REAL)

    def shard(function, inputs):
        return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(spec,) * inputs, out_specs=spec, check_vma=False))

    send = shard(lambda x, e, w: spillway_jax.dispatch(x, e, w, axis=axis, experts=experts), 3)
    received, handle = send(x, expert, weight)
    back = shard(lambda r, *h: spillway_jax.combine(r, spillway_jax.Handle(*h), axis=axis), 4)
    dense = shard(lambda r: jax.lax.all_to_all(r.reshape(ranks, -1, hidden), "expert", 0, 0), 1)
    print(f"\n{ranks} ranks, {tokens} tokens x {hidden} bf16, top-{top_k} of {experts}: ms")
    print(f"dispatch {median_ms(send, x, expert, weight, calls=8):.3f}   combine {median_ms(back, received.rows, *handle, calls=8):.3f}"
          f"   jax.lax.all_to_all of a slot for every token and rank {median_ms(dense, received.rows, calls=8):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--ranks", default="1,2,4", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--seconds", type=float, default=180, help="no shape is timed that would begin later than this")
    arguments = parser.parse_args()
    start = time.perf_counter()
    spillway_jax.register(arguments.library)
    print(f"jax {jax.__version__}, {len(jax.devices())} x {jax.devices()[0].device_kind}")
    if arguments.time:
        for ranks in arguments.ranks:
            if 1 < ranks <= len(jax.devices()):
                exchange_times(ranks)
        gemm_times(start + arguments.seconds)
    else:
        gpu = jax.default_backend() != "cpu"
        types = [jnp.bfloat16] if gpu else [jnp.float32, jnp.bfloat16]
        print(f"{'':6}{'':96}{'elements':>12}{'share':>8}")
        gemm_checks([*types, jnp.float16], gpu)
        experts_checks(judge, [*types, jnp.float16])
        exchange_checks(types, arguments.ranks, gpu)
        print(f"{checked} elements, {failed} checks failed")
    spillway_jax.check()
    print(f"{time.perf_counter() - start:.0f} s")
    sys.exit(1 if failed or not (checked or arguments.time) else 0)


if __name__ == "__main__":
    main()
