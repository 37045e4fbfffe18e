"""Whole layers of experts by spillway_jax.experts against a dense layer in fp64: a part of verify_jax.py.

A row of a result or gradient must lie within `limit` of the norm of that row as it should be, and a tenth of the largest one's; the column
`share` is the worst of them over that. What nothing reaches is 0. Layers that are wrong on purpose must be rejected.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

import spillway_jax

NAMES = {jnp.dtype(jnp.bfloat16): "bf16", jnp.dtype(jnp.float16): "fp16", jnp.dtype(jnp.float32): "fp32"}
PARTS = ("y", "dx", "d weight", "d w_up", "d w_down", "d b_up", "d b_down")
GPT_OSS = {"interleaved": True, "limit": 1.5}  # a limit that many numbers reach
CASES = [  # keywords, both biases, transposed, routing, (tokens, hidden, ffn, experts, top_k)
    ({}, False, False, "uniform", (33, 64, 24, 5, 3)),
    ({}, False, True, "skewed", (70, 72, 264, 8, 2)),
    ({}, True, False, "holes", (600, 16, 8, 6, 2)),
    (GPT_OSS, True, True, "holes", (40, 64, 32, 6, 2)),
    (GPT_OSS, True, False, "skewed", (33, 24, 40, 5, 3)),
    ({"limit": 0.75, "alpha": 1.3}, False, True, "uniform", (40, 64, 32, 6, 2)),
    ({"activation": "geglu"}, False, False, "holes", (33, 64, 24, 5, 3)),
    ({"activation": "geglu", "interleaved": True}, True, True, "empty", (40, 32, 272, 6, 2)),
    ({"activation": "relu2"}, False, True, "empty", (33, 64, 24, 8, 3)),
    ({"activation": "relu2"}, True, False, "uniform", (5, 40, 8, 4, 1)),
    ({"interleaved": True}, False, False, "none", (9, 16, 8, 4, 2)),
]


def in_fp64():
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


def activate(h, activation="swiglu", interleaved=False, limit=None, alpha=1.702):
    """The formulas of docs/torch.md in h's type."""
    if activation == "relu2":
        return jnp.where(h > 0, h * h, 0)
    half = h.shape[-1] // 2
    gate, up = (h[..., ::2], h[..., 1::2]) if interleaved else (h[..., :half], h[..., half:])
    if activation == "geglu":
        return gate / 2 * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3))) * up
    if limit is None:
        return gate / (1 + jnp.exp(-gate)) * up
    gate, up = jnp.where(gate > limit, limit, gate), jnp.where(abs(up) > limit, jnp.sign(up) * limit, up)
    return gate / (1 + jnp.exp(-alpha * gate)) * (up + 1)


def dense(arrays, expert, transposed, stored, keywords):
    """Every expert on every token. stored: the type of gate and up, of which it follows whether a limit cuts them."""
    x, weight, w_up, w_down, *biases = arrays
    if transposed:
        w_up, w_down = w_up.swapaxes(1, 2), w_down.swapaxes(1, 2)
    h = jnp.einsum("th,ehw->etw", x, w_up)
    if biases:
        h = h + biases[0][:, None]
    if stored is not None:
        h = h + jax.lax.stop_gradient(h.astype(stored).astype(h.dtype) - h)
    y = jnp.einsum("etf,efh->eth", activate(h, **keywords), w_down)
    if biases:
        y = y + biases[1][:, None]
    share = jnp.where(expert[None] == jnp.arange(w_up.shape[0])[:, None, None], weight[None], 0).sum(2)
    return jnp.einsum("et,eth->th", share, y)


def all_parts(layer, arrays, dy):
    y, pull = jax.vjp(layer, *arrays)
    return (y, *pull(dy))


def choices(rng, tokens, experts, top_k, kind):
    chance = np.ones(experts) if kind != "skewed" else np.arange(1, experts + 1) ** -2.0
    if kind == "empty":
        chance[: experts // 2] = 1e-9
    key = np.log(chance) + rng.gumbel(size=(tokens, experts))
    expert = np.argsort(-key, axis=1)[:, :top_k]
    absent = {"holes": 0.3, "none": 1.1}.get(kind, 0)
    nowhere = rng.choice([-1, -7, experts, experts + 3], expert.shape)
    expert = np.where(rng.random(expert.shape) < absent, nowhere, expert)
    if kind == "holes":
        expert[1] = -1  # a token without any
    return expert.astype(np.int32)


class Layer:
    """Arrays of one case. Numbers are those of the type, so that fp64 begins with the same."""

    def __init__(self, rng, dtype, keywords, biased, transposed, kind, shape):
        tokens, hidden, ffn, experts, top_k = shape
        wide = ffn if keywords.get("activation") == "relu2" else 2 * ffn
        turn = (lambda a: a.swapaxes(1, 2)) if transposed else (lambda a: a)

        def normal(*shape, scale=1.0):
            return jnp.asarray(rng.standard_normal(shape) * scale, jnp.float32).astype(dtype)

        self.dtype, self.keywords, self.transposed, self.kind = dtype, keywords, transposed, kind
        self.expert = jnp.asarray(choices(rng, tokens, experts, top_k, kind))
        self.dy = normal(tokens, hidden)
        self.arrays = [normal(tokens, hidden), jnp.asarray(rng.random((tokens, top_k)), jnp.float32),
                       turn(normal(experts, hidden, wide, scale=hidden ** -0.5)), turn(normal(experts, ffn, hidden, scale=ffn ** -0.5))]
        if biased:
            self.arrays += [normal(experts, wide), normal(experts, hidden)]
        self.name = (f"{tokens} x {hidden}, {experts} experts of {ffn}, top-{top_k}, {kind}, {NAMES[jnp.dtype(dtype)]}"
                     f"{' [out][in]' if transposed else ''}{', biases' if biased else ''} {' '.join(str(v) for v in keywords.values())}")

    def call(self, x, weight, w_up, w_down, b_up=None, b_down=None, expert=None):
        return spillway_jax.experts(x, self.expert if expert is None else expert, weight, w_up, w_down, transposed=self.transposed,
                                    b_up=b_up, b_down=b_down, **self.keywords)

    def got(self):
        return [np.asarray(a.astype(jnp.float32)) for a in jax.jit(lambda *arrays: all_parts(self.call, arrays, self.dy))(*self.arrays)]

    def wanted(self):
        stored = self.dtype if self.keywords.get("limit") and self.dtype != jnp.float32 else None
        numbers = [np.asarray(a.astype(jnp.float32)).astype(np.float64) for a in (*self.arrays, self.dy)]
        expert = np.asarray(self.expert)
        with in_fp64():
            *arrays, dy = (jnp.asarray(a) for a in numbers)
            run = jax.jit(lambda *arrays: all_parts(lambda *a: dense(a, expert, self.transposed, stored, self.keywords), arrays, dy))
            out = [np.asarray(a) for a in run(*arrays)]
        assert all(a.dtype == np.float64 for a in out)
        return out

    def unreached(self, part, array):
        """Rows that are 0 whatever the numbers: of tokens without choices, choices of no expert, experts without tokens."""
        expert, experts = np.asarray(self.expert), self.arrays[2].shape[0]
        absent = (expert < 0) | (expert >= experts)
        if part in ("y", "dx"):
            return array[absent.all(1)]
        return array[absent] if part == "d weight" else array[[e not in expert for e in range(experts)]]


def share_of(got, want, limit):
    """The worst row over what is allowed: above 1 is wrong."""
    if got.shape != want.shape or not np.isfinite(got).all():
        return np.inf
    got, want = (a.reshape(-1, a.shape[-1]).astype(np.float64) for a in (got, want))
    norm = np.linalg.norm(want, axis=1)
    return float(np.max(np.linalg.norm(got - want, axis=1) / (limit * (norm + 0.1 * norm.max()) + 1e-30)))


def limit_of(dtype):
    return {jnp.bfloat16: 8 * 2.0 ** -8, jnp.float16: 8 * 2.0 ** -11}.get(dtype, 4e-6)


def compare(judge, layer):
    for part, got, want in zip(PARTS, layer.got(), layer.wanted()):
        share = share_of(got, want, limit_of(layer.dtype))
        judge(f"experts {part}: {layer.name}", share <= 1, got.size, f"{share:.3f}")
        unreached = layer.unreached(part, got)
        if unreached.size:
            judge(f"experts {part} is 0 where nothing comes: {layer.name}", not unreached.any(), unreached.size)


def rejected(judge, layer):
    """A layer whose arrays are shifted by one is another layer."""
    want = layer.wanted()[0]
    names = ("x", "weight", "w_up", "w_down", "b_up", "b_down")
    for place, name in enumerate(names):
        arrays = [jnp.roll(a, 1, 0) if i == place else a for i, a in enumerate(layer.arrays)]
        share = share_of(np.asarray(layer.call(*arrays).astype(jnp.float32)), want, limit_of(layer.dtype))
        judge(f"noticed: {name} shifted by one, {layer.name}", share > 1, want.size, f"{share:.3f}")
    y = layer.call(*layer.arrays, expert=(layer.expert + 1) % layer.arrays[2].shape[0])
    share = share_of(np.asarray(y.astype(jnp.float32)), want, limit_of(layer.dtype))
    judge(f"noticed: choices shifted by one, {layer.name}", share > 1, want.size, f"{share:.3f}")


def loop(judge, rng, dtype):
    """Three layers of experts in a scan, recomputed in the backward pass, under jit, with other weights and choices each."""
    layers = [Layer(rng, dtype, GPT_OSS, True, False, kind, (24, 16, 8, 4, 2)) for kind in ("uniform", "holes", "empty")]
    x, dy = layers[0].arrays[0], layers[0].dy
    stacked = [jnp.stack(arrays) for arrays in zip(*(layer.arrays[1:] for layer in layers))]
    expert = jnp.stack([layer.expert for layer in layers])

    def through(call, x, *stacked):
        @jax.checkpoint
        def step(x, one):
            expert, *arrays = one
            return x + call(expert, x, *arrays), None
        return jax.lax.scan(step, x, (expert, *stacked))[0]

    def ours(expert, x, *arrays):
        return layers[0].call(x, *arrays, expert=expert)

    got = jax.jit(lambda *arrays: all_parts(lambda *a: through(ours, *a), arrays, dy))(x, *stacked)
    numbers = [np.asarray(a.astype(jnp.float32)).astype(np.float64) for a in (x, *stacked, dy)]
    with in_fp64():
        *arrays, dy = (jnp.asarray(a) for a in numbers)
        plain = lambda expert, *a: dense(a, expert, False, None, GPT_OSS)  # noqa: E731
        want = [np.asarray(a) for a in jax.jit(lambda *a: all_parts(lambda *b: through(plain, *b), a, dy))(*arrays)]
    for part, a, b in zip(PARTS, got, want):
        share = share_of(np.asarray(a.astype(jnp.float32)), b, 10 * limit_of(dtype))
        judge(f"three layers of experts in a scan, recomputed: {part}", share <= 1, a.size, f"{share:.3f}")


def sharded(judge, rng, dtype):
    """Tokens spread over devices, weights the same on all: every device its own layer; gradients of weights are sums over devices."""
    devices = jax.devices()[: 2 if len(jax.devices()) > 1 else 1]
    mesh, spec, same = Mesh(np.array(devices), ("data",)), PartitionSpec("data"), PartitionSpec()
    layer = Layer(rng, dtype, GPT_OSS, True, True, "holes", (32, 16, 8, 4, 2))
    specs = (spec, spec, spec, *[same] * 4)
    spread = jax.shard_map(lambda expert, *arrays: layer.call(*arrays, expert=expert), mesh=mesh, in_specs=specs, out_specs=spec)
    parts = jax.jit(lambda *arrays: all_parts(lambda *a: spread(layer.expert, *a), arrays, layer.dy))(*layer.arrays)
    for part, got, want in zip(PARTS, parts, layer.wanted()):
        share = share_of(np.asarray(got.astype(jnp.float32)), want, limit_of(dtype))
        judge(f"experts under shard_map on {len(devices)} devices: {part}", share <= 1, got.size, f"{share:.3f}")


def exchanged(judge, rng, dtype):
    """Experts spread over devices: what a dispatch brings goes through `experts`, and back by combine."""
    devices = jax.devices()[: 2 if len(jax.devices()) > 1 else 1]
    mesh, spec = Mesh(np.array(devices), ("expert",)), PartitionSpec("expert")
    axis, layer = spillway_jax.ExpertAxis(mesh, "expert"), Layer(rng, dtype, GPT_OSS, True, False, "holes", (32, 16, 8, 4, 2))
    expert = jnp.where((layer.expert < 0) | (layer.expert >= 4), -1, layer.expert)

    def part(expert, x, weight, *arrays):
        received, handle = spillway_jax.dispatch(x, expert, weight, axis=axis, experts=4)
        return spillway_jax.combine(layer.call(received.rows, received.weight, *arrays, expert=received.expert), handle, axis=axis)

    spread = jax.shard_map(part, mesh=mesh, in_specs=(spec,) * 7, out_specs=spec)
    parts = jax.jit(lambda *arrays: all_parts(lambda *a: spread(expert, *a), arrays, layer.dy))(*layer.arrays)
    for name, got, want in zip(PARTS, parts, layer.wanted()):
        share = share_of(np.asarray(got.astype(jnp.float32)), want, 2 * limit_of(dtype))
        judge(f"experts between dispatch and combine on {len(devices)} devices: {name}", share <= 1, got.size, f"{share:.3f}")


def experts_checks(judge, types):
    """All cases in the first type, one of each activation in another, weights the other way around."""
    rng = np.random.default_rng(15)
    for dtype in types:
        first = dtype == types[0]
        for number, (keywords, biased, transposed, kind, shape) in enumerate(CASES):
            if not first and number not in (2, 3, 7, 8):
                continue
            layer = Layer(rng, dtype, keywords, biased, transposed == first, kind, shape)
            compare(judge, layer)
    sharded(judge, rng, types[0]), exchanged(judge, rng, types[0])
    rejected(judge, Layer(rng, types[0], GPT_OSS, True, True, "uniform", (40, 64, 32, 6, 2)))
    loop(judge, rng, types[0])
