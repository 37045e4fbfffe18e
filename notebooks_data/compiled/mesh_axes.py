#!/usr/bin/env python3
"""Which collectives XLA makes of one layer on a mesh fsdp x context x tensor x expert of 8 GPUs that the machine does not have,
sharded as MaxText's logical_axis_rules say, under a layer scan. Attention: with heads, or MLA (a name with mla; with mla-lite its
queries have no low rank). Behind it a dense FFN, or experts: gmm, ring, or slots of a capacity, exchanged (capacity, as the tree of
April shards it) or where all experts' weights come (gathered, as that of August); beside them a shared expert (shared). Remat full
and none; small shapes, those of Mixtral 8x7B with a key head a query head, and a smaller DeepSeek's (deep). Read: AI-Hypercomputer/
maxtext e591f30 and 7e3f19ff, configs/base.yml, layers/moe.py, layers/attention_mla.py. JAX 0.10.2 with jax-cuda12-plugin:

    mesh_axes.py > mesh_axes.csv"""
import os
import re

os.environ.update(JAX_PLATFORMS="cpu", JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1", XLA_FLAGS="--xla_gpu_autotune_level=0")
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

H100 = """gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000
l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84978434048 shared_memory_per_block_optin: 232448
cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536 }
platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 } device_description_str: "NVIDIA H100 80GB HBM3" """
GPUS = topologies.get_topology_desc(platform="cuda", topology_name="h100", topology="1x1x8", target_config=H100).devices
NAMES = ("fsdp", "context", "tensor", "expert")
LAYERS, EXPERTS, TOP_K, FACTOR = 3, 8, 2, 1.25
bf16, ALL, BATCHED = jnp.bfloat16, ("fsdp", "context", "expert"), ("fsdp", "expert")
STATE, WHOLE = P(BATCHED, "context", "tensor"), P(BATCHED, "context", None)
HEADED, KEYS = P(BATCHED, "context", "tensor", None), P(BATCHED, None, "tensor", None)
UP, DOWN, COLUMNS = P("expert", ("fsdp", "context"), "tensor"), P("expert", "tensor", ("fsdp", "context")), P(ALL, "tensor")
# batch, sequence, hidden, FFN, heads, their width; of MLA the low ranks of queries and of keys, nope, rope and value widths
SMALL, MIXTRAL, DEEP = (16, 32, 128, 192, 4, 40), (8, 4096, 4096, 14336, 32, 128), (8, 4096, 2048, 1536, 16, 128)
RANKS = {SMALL: (72, 24, 16, 8, 12), DEEP: (768, 256, 128, 64, 128)}


def weights(kind):
    moe = {"router": ((HIDDEN, EXPERTS), P(ALL, None)), "w0": ((EXPERTS, HIDDEN, FFN), UP), "w1": ((EXPERTS, HIDDEN, FFN), UP),
           "wo": ((EXPERTS, FFN, HIDDEN), DOWN)}
    ffn = {"d0": ((HIDDEN, FFN), COLUMNS), "d1": ((HIDDEN, FFN), COLUMNS), "do": ((FFN, HIDDEN), P("tensor", ALL))}
    second = ffn if "dense" in kind else {**moe, **ffn} if "shared" in kind else moe
    norms = {"scale0": ((HIDDEN,), P("tensor")), "scale1": ((HIDDEN,), P("tensor"))}
    headed = lambda rows, width: ((rows, HEADS, width), P(ALL, "tensor", None))
    if "mla" not in kind:
        out = ((HEADS, WIDTH, HIDDEN), P("tensor", None, ALL))
        return {**{n: headed(HIDDEN, WIDTH) for n in "qkv"}, **second, "o": out, **norms}
    query, key, nope, rope, value = RANKS[shapes]
    low = {"kv_down": ((HIDDEN, key + rope), P(ALL, None)), "kv_scale": ((key,), P("tensor")), "kv_up": headed(key, nope + value)}
    if "lite" in kind:
        low["q_up"] = headed(HIDDEN, nope + rope)
    else:
        low |= {"q_down": ((HIDDEN, query), P(ALL, None)), "q_scale": ((query,), P("tensor")), "q_up": headed(query, nope + rope)}
    return {**low, **second, "o": ((HEADS, value, HIDDEN), P("tensor", None, ALL)), **norms}


def put(x, spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def size(axis):
    return mesh.shape[axis]


def choose(x, logits):
    """Rows sorted by expert, weights, the order, rows an expert."""
    weight, ids = jax.lax.top_k(logits.reshape(-1, EXPERTS), TOP_K)
    order = jnp.argsort(ids.ravel())
    rows = jnp.repeat(x.reshape(-1, HIDDEN), TOP_K, axis=0)[order]
    return rows, jax.nn.softmax(weight.astype(jnp.float32)).astype(bf16), order, jnp.bincount(ids.ravel(), length=EXPERTS)


def products(rows, w0, w1, wo, count):
    """Columns of a tensor group give terms of a sum, which is scattered along the hidden size."""
    dot = lambda a, b: jax.lax.ragged_dot(a, b, count, preferred_element_type=bf16)
    y = dot(jax.nn.silu(dot(rows, w0)) * dot(rows, w1), wo)
    return jax.lax.psum_scatter(y, "tensor", scatter_dimension=1, tiled=True) if size("tensor") > 1 else y


def weigh(y, order, weight, shape):
    y = y[jnp.argsort(order)].reshape(-1, TOP_K, y.shape[-1])
    return jnp.einsum("tkh,tk->th", y, weight).reshape(*shape[:2], -1)


def gmm(x, logits, w0, w1, wo):
    ranks, local, me = size("expert"), EXPERTS // size("expert"), jax.lax.axis_index("expert")
    rows, weight, order, count = choose(x, logits)
    sizes = jax.lax.all_gather(count.reshape(ranks, local).sum(1), "expert")
    by_rank, by_source = jnp.cumsum(sizes, axis=1) - sizes, jnp.cumsum(sizes, axis=0) - sizes
    room = ranks * x.shape[0] * x.shape[1] * min(local, TOP_K)
    received = jax.lax.ragged_all_to_all(rows, jnp.zeros((room, HIDDEN), bf16), by_rank[me], sizes[me], by_source[me],
                                         sizes[:, me], axis_name="expert")
    mine = jax.lax.dynamic_slice_in_dim(jax.lax.all_gather(count, "expert"), me * local, local, axis=1)
    sort = jnp.argsort(jnp.repeat(jnp.tile(jnp.arange(local), ranks), mine.ravel(), total_repeat_length=room))
    y = products(received[sort], w0, w1, wo, mine.sum(0))[jnp.argsort(sort)]
    back = jax.lax.ragged_all_to_all(y, jnp.zeros((len(order), y.shape[1]), bf16), by_source[:, me], sizes[:, me],
                                     by_rank[:, me], sizes[me], axis_name="expert")
    return weigh(back, order, weight, x.shape)


def ring(x, logits, w0, w1, wo):
    local, me = EXPERTS // size("expert"), jax.lax.axis_index("expert")
    x, logits = (jax.lax.all_gather(z, "expert", tiled=True) for z in (x, logits))
    rows, weight, order, count = choose(x, jnp.roll(logits, -local * me, axis=-1))
    y = products(rows, w0, w1, wo, count[:local])
    y = jnp.where(jnp.arange(len(y))[:, None] < count[:local].sum(), y, 0)
    return jax.lax.psum_scatter(weigh(y, order, weight, x.shape), "expert", scatter_dimension=0, tiled=True)


def experts(body, x, p):
    logits = put(jnp.einsum("bsh,he->bse", x, p["router"]), WHOLE)
    cut = P("expert", None, "tensor")
    run = jax.shard_map(body, mesh=mesh, check_vma=False, out_specs=STATE,
                        in_specs=(WHOLE, WHOLE, cut, cut, P("expert", "tensor", None)))
    return run(put(x, WHOLE), logits, p["w0"], p["w1"], p["wo"])


def masks(ids, spread, room):
    """Which slot of which expert a token has, [B, S, E, C]: with its weight, and whether."""
    shape, choice = ids.shape, jax.nn.one_hot(ids, EXPERTS, dtype=jnp.int32)
    flat = put(choice.reshape(shape[0], -1, EXPERTS), P(BATCHED, None, None))
    count = jnp.cumsum(flat, axis=1)
    kept = (choice * (put(count.reshape(choice.shape), P(BATCHED, "context", None, None)) <= room)).sum(2)
    place = (flat * count).reshape(choice.shape).sum(2) * kept
    combine = ((spread * kept)[..., None] * jax.nn.one_hot(place, room + 1, dtype=jnp.int32))[..., 1:]
    return combine.astype(bool), combine


def chosen(logits, sigmoid):
    """Weights of a softmax over the chosen, or sigmoids of their own, chosen with a bias (DeepSeek-V3)."""
    if not sigmoid:
        weight, ids = jax.lax.top_k(logits, TOP_K)
        return jax.nn.softmax(weight.astype(jnp.float32), axis=-1).astype(bf16), ids
    score = put(jax.nn.sigmoid(logits), WHOLE)
    _, ids = jax.lax.top_k(put(score + 1e-3 * jnp.arange(EXPERTS, dtype=bf16), WHOLE), TOP_K)
    weight = jnp.take_along_axis(score, ids, axis=-1)
    return weight / weight.sum(-1, keepdims=True), ids


def capacity(kind, x, logits, p, batch):
    """Slots of every sequence and expert, whose batch axes are `batch`; where those include expert, all experts' weights come."""
    weight, ids = chosen(put(logits, WHOLE), "sigmoid" in kind)
    at = (put(jnp.arange(BATCH)[:, None, None], P(batch, None, None)), put(jnp.arange(LENGTH)[:, None], P("context", None)), ids)
    spread = jnp.zeros((BATCH, LENGTH, EXPERTS), bf16).at[at].set(weight)
    room = int(-(-LENGTH * TOP_K // EXPERTS) * FACTOR)
    dispatch, combine = (put(m, P(BATCHED, "context", None, None)) for m in masks(ids, spread, room))
    owner = None if "expert" in batch else "expert"
    slots, columns = P(owner, batch, None, "tensor"), P("expert", None, "tensor")
    sent = put(jnp.einsum("bsm,bsec->ebcm", x, dispatch), slots)
    a, b = (put(jnp.einsum("ebcm,emh->ebch", sent, put(p[n], columns)), slots) for n in ("w0", "w1"))
    y = put(jnp.einsum("ebch,ehm->ebcm", jax.nn.silu(a) * b, put(p["wo"], P("expert", "tensor", None))), slots)
    return jnp.einsum("ebcm,bsec->bsm", y, combine)


def slotted(kind, x, p):
    return capacity(kind, x, jnp.einsum("bsh,he->bse", x, p["router"]), p, BATCHED if "gathered" in kind else ("fsdp",))


def dense(x, p):
    return put(jax.nn.silu(x @ p["d0"]) * (x @ p["d1"]), STATE) @ p["do"]


def attention(x, p):
    return attend(*(put(jnp.einsum("bsh,hnd->bsnd", x, p[n]), HEADED) for n in "qkv"), p["o"])


def attend(q, k, v, o):
    score = jnp.einsum("bqnd,bknd->bnqk", q, put(k, KEYS)).astype(jnp.float32)
    out = put(jnp.einsum("bnqk,bknd->bqnd", jax.nn.softmax(score).astype(bf16), put(v, KEYS)), HEADED)
    return jnp.einsum("bsnd,ndh->bsh", out, o)


def rotate(x):
    first, second = jnp.split(x, 2, axis=-1)
    angle = jnp.arange(LENGTH, dtype=jnp.float32)[None, :, None, None] / 1e4 ** (jnp.arange(first.shape[-1]) / first.shape[-1])
    return jnp.concatenate([first * jnp.cos(angle) - second * jnp.sin(angle), second * jnp.cos(angle) + first * jnp.sin(angle)],
                           axis=-1).astype(bf16)


def latent(x, p):
    """attention_mla.py: what has heads is put where heads are, the low ranks are left to XLA."""
    _, rank, nope, rope, value = RANKS[shapes]
    q = jnp.einsum("bsr,rnd->bsnd", scaled(x @ p["q_down"], p["q_scale"]) if "q_down" in p else x, p["q_up"])
    q = put(jnp.concatenate([put(q[..., :nope], HEADED), put(rotate(q[..., nope:]), HEADED)], axis=-1), HEADED)
    low = x @ p["kv_down"]
    both = jnp.einsum("bsr,rnd->bsnd", scaled(low[..., :rank], p["kv_scale"]), p["kv_up"])
    turned = jnp.broadcast_to(rotate(low[..., None, rank:]), (*both.shape[:3], rope))
    k = put(jnp.concatenate([put(both[..., :nope], HEADED), put(turned, HEADED)], axis=-1), HEADED)
    return attend(q, k, put(both[..., nope:], HEADED), p["o"])


def scaled(x, scale):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)).astype(bf16) * scale


def norm(x, scale):
    return put(scaled(x, scale), STATE)


def layer(kind, x, p):
    x = put(x, STATE)
    x = put(x + put((latent if "mla" in kind else attention)(norm(x, p["scale0"]), p), STATE), STATE)
    n = norm(x, p["scale1"])
    if "dense" in kind:
        y = dense(n, p)
    elif "capacity" in kind or "gathered" in kind:
        y = slotted(kind, n, p)
    else:
        y = experts(ring if "ring" in kind else gmm, n, p)
    if "shared" in kind:
        y = y + put(dense(n, p), STATE)
    return put(x + put(y, STATE), STATE)


def program(kind, remat):
    given = lambda shape, spec: jax.ShapeDtypeStruct(shape, bf16, sharding=NamedSharding(mesh, spec))
    params = {n: given((LAYERS, *shape), P(None, *spec)) for n, (shape, spec) in weights(kind).items()}

    def loss(params, x):
        body = lambda carry, p: (layer(kind, carry, p), None)
        if remat == "full":
            body = jax.checkpoint(body, prevent_cse=False, policy=jax.checkpoint_policies.nothing_saveable)
        return jnp.sum(jax.lax.scan(body, x, params)[0].astype(jnp.float32))

    x = given((BATCH, LENGTH, HIDDEN), STATE)
    shardings = ({n: v.sharding for n, v in params.items()}, x.sharding)
    return jax.jit(jax.grad(loss, argnums=(0, 1)), out_shardings=shardings).lower(params, x).compile().as_text()


# --- Reading the program's text ---

def iota(text):
    base, order = re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text).groups()
    base = [int(v) for v in base.split(",")]
    ids = np.arange(np.prod(base)).reshape(base)
    return ids.transpose([int(v) for v in order.split(",")]) if order else ids


def groups(line):
    named = re.search(r"replica_groups=mesh\[(.*?)\](?:, device_ids=\((.*?)\))? \{(.*?)\}", line)
    if named:
        axes = re.findall(r"'(\w+)'=(\d+)", named.group(1))
        shape = [int(n) for _, n in axes]
        ids = (iota(named.group(2)) if named.group(2) else np.arange(8)).reshape(shape)
        over = [i for i, (n, _) in enumerate(axes) if f"'{n}'" in named.group(3)]
        rest = [i for i in range(len(shape)) if i not in over]
        return ids.transpose(rest + over).reshape(-1, int(np.prod([shape[i] for i in over]))).tolist()
    listed = re.search(r"replica_groups=\{(\{.*?\})\}", line)
    if listed:
        return [[int(v) for v in g.split(",")] for g in re.findall(r"\{([\d,]+)\}", listed.group(1))]
    short = re.search(r"replica_groups=\[([\d,]+)\]<=(\S+?),? ", line)
    return iota(short.group(2)).reshape([int(v) for v in short.group(1).split(",")]).tolist() if short else None


def axes_of(line):
    """The axes of the mesh that the operation runs over; "pairs" of a permutation."""
    found = groups(line)
    if found is None:
        return "pairs"
    ids, want = np.arange(8).reshape(mesh.devices.shape), {frozenset(g) for g in found}
    for mask in range(1, 16):
        over = [i for i in range(4) if mask >> i & 1]
        rest = [i for i in range(4) if i not in over]
        if {frozenset(g.tolist()) for g in ids.transpose(rest + over).reshape(-1, int(np.prod([ids.shape[i] for i in over])))} == want:
            return "+".join(NAMES[i] for i in over if ids.shape[i] > 1)
    return "others"


def collectives(text):
    """(pass, operation, axes, bytes of the whole tensor) of every tensor in the loops over layers."""
    bytes_of = {"bf16": 2, "f32": 4, "s32": 4, "u32": 4, "s64": 8, "u8": 1, "pred": 1}
    where, found = None, []
    for line in text.splitlines() + ["ENTRY {"]:
        if not line.startswith(" ") and line.endswith("{"):
            yield from ((where, *row) for row in found if where)
            where, found = (None if line.startswith("ENTRY") else "forward"), []
        if "transpose(jvp" in line and where:
            where = "backward"
        m = re.search(r"= (.*?) (all-gather|all-reduce|reduce-scatter|ragged-all-to-all|all-to-all|collective-permute)(-start)?\(", line)
        if not m:
            continue
        tensors = [bytes_of[t] * int(np.prod([int(v) for v in d.split(",") if v]))
                   for t, d in re.findall(r"(bf16|f32|s32|u32|s64|u8|pred)\[([\d,]*)\]", re.sub(r"/\*.*?\*/", "", m.group(1)))]
        operation, half = m.group(2), len(tensors) // 2
        if operation == "ragged-all-to-all":
            tensors = [min(tensors[:2])]  # the rows that a rank sends, not the buffer for all that may come
        elif operation == "all-to-all":
            tensors = [sum(tensors[:half])]
        elif m.group(3) and operation != "all-reduce":
            tensors = tensors[half:] if operation == "all-gather" else tensors[:half]
        axes = axes_of(line)
        found += [(operation, axes, size) for size in tensors if axes]  # "" is a group of one


SIZES = {"small": SMALL, "mixtral": MIXTRAL, "deep": DEEP}
BARE, BOTH = ("gmm", "ring", "gmm-shared", "dense"), ("full", "none")
LATENT = ("gmm-mla", "gmm-shared-mla", "dense-mla", "gmm-mla-lite")
PROGRAMS = [("small", split, BARE, BOTH) for split in ((2, 1, 2, 2), (1, 1, 4, 2), (2, 2, 1, 2))]
PROGRAMS += [("mixtral", split, BARE, ("full",)) for split in ((2, 1, 2, 2), (4, 1, 2, 1))]
PROGRAMS += [("small", (2, 1, 2, 2), ("capacity", "gathered", "capacity-sigmoid"), ("full",)),
             ("small", (2, 2, 1, 2), ("capacity", "capacity-sigmoid"), ("full",)),
             ("small", (1, 2, 2, 2), BARE, BOTH), ("small", (2, 1, 2, 2), LATENT, BOTH),
             ("small", (1, 1, 4, 2), ("gmm-mla", "dense-mla", "gmm-mla-lite"), ("full",)),
             ("small", (1, 2, 2, 2), ("gmm-mla", "dense-mla"), ("full",)), ("mixtral", (1, 2, 2, 2), ("gmm", "dense"), ("full",)),
             ("mixtral", (2, 1, 2, 2), ("capacity",), ("full",)), ("mixtral", (2, 2, 1, 2), ("capacity",), ("full",)),
             ("deep", (2, 1, 2, 2), ("gmm-mla", "dense-mla", "gmm-mla-lite"), ("full",)),
             ("deep", (1, 2, 2, 2), ("gmm-mla",), ("full",)), ("small", (2, 1, 2, 2), ("capacity-shared",), ("full",)),
             ("small", (1, 4, 1, 2), ("capacity",), ("full",))]

print("program,sizes,remat,fsdp,context,tensor,expert,pass,operation,axes,bytes,count")
for sizes, split, kinds, remats in PROGRAMS:
    mesh, shapes = Mesh(np.array(GPUS).reshape(split), NAMES), SIZES[sizes]
    BATCH, LENGTH, HIDDEN, FFN, HEADS, WIDTH = shapes
    for kind in kinds:
        for remat in remats:
            seen = {}
            for row in collectives(program(kind, remat)):
                seen[row] = seen.get(row, 0) + 1
            for row in sorted(seen):
                print(kind, sizes, remat, *split, *row, seen[row], sep=",", flush=True)
