"""Grouped GEMM, expert layers and exchanges as custom calls of JAX on the CPU: kernels/jax/verify_jax.py with four devices, and what
must be refused.

    jax_calls.py ROOT VENV BUILD

builds the handlers below BUILD with the headers of the jaxlib that it runs with (framework_venv.py)."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import framework_venv
from processes import HANG_S

framework_venv.enter(sys.argv[2])
ROOT, BUILD = sys.argv[1], sys.argv[3]
LIBRARY = os.path.join(BUILD, "libspillway_jax.so")
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["SPW_JAX_PATIENCE_S"] = str(HANG_S)  # ranks may be late on a busy machine
built = subprocess.run(["bash", os.path.join(ROOT, "kernels", "build.sh"), "jax"], capture_output=True, text=True,
                       env={**os.environ, "SPW_PYTHON": sys.executable, "SPW_KERNELS_BUILD": BUILD})
if built.returncode != 0:
    sys.exit(built.stdout + built.stderr)
failed = subprocess.run([sys.executable, os.path.join(ROOT, "kernels", "jax", "verify_jax.py"), LIBRARY, "--ranks", "2,4"]).returncode

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, PartitionSpec as P  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "kernels", "jax"))
import spillway_jax  # noqa: E402

spillway_jax.register(LIBRARY)
MESH = Mesh(np.array(jax.devices()), ("expert",))
AXIS = spillway_jax.ExpertAxis(MESH, "expert")


def gemm(x=(10, 16), w=(3, 16, 8), sizes=(4, 0, 5), dtype=np.float32):
    return spillway_jax.grouped_gemm(jnp.ones(x, dtype), jnp.ones(w, dtype), jnp.array(sizes))


def send(expert, experts=8, axis=AXIS, absent=-1):
    def part(x, expert):
        def call(x):
            return spillway_jax.dispatch(x, expert, jnp.ones(expert.shape), axis=axis, experts=experts)[0].rows
        if absent < 0:
            return call(x)
        return jax.lax.cond(jax.lax.axis_index("expert") == absent, lambda x: jnp.zeros((4 * len(x), x.shape[1])), call, x)
    run = jax.shard_map(part, mesh=MESH, in_specs=P("expert"), out_specs=P("expert"), check_vma=False)
    return jax.jit(run)(jnp.ones((12, 8)), jnp.asarray(expert))


def several(*widths):
    """A frame that no Python of ours would make."""
    arrays = [jnp.ones(width) for width in widths]
    return jax.ffi.ffi_call("spillway.grouped_gemm", [jax.ShapeDtypeStruct((1,), np.float32)] * 2)(*arrays, transposed=np.int64(2))


def layer(x=(6, 8), expert=(6, 2), weight=(6, 2), up=(3, 8, 10), down=(3, 5, 8), dtype=np.float32, integer=np.int32, **more):
    w_up, w_down = jnp.ones(up, dtype), jnp.ones(down, dtype)
    return spillway_jax.experts(jnp.ones(x, dtype), jnp.zeros(expert, integer), jnp.ones(weight), w_up, w_down, **more)


def raw(name, arguments, results, **attributes):
    """A call of `experts` as its Python would not make it: shapes of results, first letter i: int32, f: fp32."""
    kinds = {"i": np.int32, "f": np.float32}
    said = [jnp.asarray(a) if isinstance(a, (list, np.ndarray)) else jnp.zeros(a[1:], kinds[a[0]]) for a in arguments]
    shapes = [jax.ShapeDtypeStruct(r[1:], kinds[r[0]]) for r in results]
    numbers = {key: np.float32(value) if isinstance(value, float) else np.int64(value) for key, value in attributes.items()}
    return jax.ffi.ffi_call(f"spillway.experts_{name}", shapes)(*said, **numbers)


def up(act=("f", 12, 5), h=("f", 12, 10), rows=("i", 12), offset=("i", 4), bias=(), **more):
    said = {"transposed": 0, "activation": 0, "pairs": 0, "limit": 0.0, "alpha": 1.702, **more}
    return raw("up", [("f", 6, 8), ("f", 3, 8, 10), offset, rows, *bias], [h, act], **said)


def offsets(*values):
    return raw("forward", [("f", 12, 8), ("f", 3, 8, 4), np.array(values, np.int32)], [("f", 12, 4)], transposed=0)


GOOD = np.arange(12).reshape(12, 1) % 8
REFUSED = [  # what, the call, words of the message
    ("a width that does not fit", lambda: gemm(w=(3, 15, 8)), "argument w is fp32 [3][15][8]; fp32 [any][16][any] would be right"),
    ("an attribute out of its range", lambda: several((2, 2), (2, 2), (1,)), "attribute transposed is 2; 0 to 1 would be right"),
    ("another type", lambda: gemm(dtype=np.int32), "argument x is int32 [10][16]; bf16 or fp16 or fp32 [any][any] would be right"),
    ("group sizes for another number of experts", lambda: gemm(sizes=(4, 5)), "argument group_sizes is int32 [2]; int32 [3] would be right"),
    ("more rows than there are", lambda: gemm(sizes=(4, 5, 9)), "group_sizes[2] is 9, where 9 of 10 rows are taken"),
    ("sizes that are no integers", lambda: gemm(sizes=(4.0, 0.5, 5.0)), "group_sizes is float32; integers would be right"),
    ("choices of a dispatch that are no integers", lambda: send(GOOD + 0.5), "expert is float32; integers would be right"),
    ("a negative size", lambda: gemm(sizes=(4, -1, 2)), "group_sizes[1] is -1"),
    ("an expert that is not there", lambda: send(GOOD + 1), "names expert 8 of 8"),
    ("experts that do not divide", lambda: send(GOOD, experts=6), "6 experts on 4 ranks; a multiple of the ranks would be right"),
    ("a mesh of other devices", lambda: send(GOOD, axis=spillway_jax.ExpertAxis(Mesh(np.array(jax.devices())[:2], ("expert",)), "expert")),
     "which is none of the 2 devices of the mesh"),
    ("w_up of another width", lambda: layer(up=(3, 9, 10)),
     "w_up is [3, 9, 10] with transposed=False, x [6, 8]; 3 matrices of [8, 2 ffn] would be right"),
    ("w_up the other way around", lambda: layer(transposed=True), "3 matrices of [2 ffn, 8] would be right"),
    ("an odd number of gate and up", lambda: layer(up=(3, 8, 9)), "3 matrices of [8, 2 ffn] would be right"),
    ("one matrix where gate and up are meant", lambda: layer(activation="relu2"),
     "w_down is float32 [3, 5, 8]; float32 [3, 10, 8] would be right"),
    ("w_down that does not fit", lambda: layer(down=(3, 4, 8)), "w_down is float32 [3, 4, 8]; float32 [3, 5, 8] would be right"),
    ("weights of other choices", lambda: layer(weight=(6, 3)), "weight is float32 [6, 3]; float32 [6, 2] would be right"),
    ("choices of other tokens", lambda: layer(expert=(5, 2), weight=(5, 2)), "expert is int32 [5, 2]; int32 [6, 2] would be right"),
    ("choices that are no numbers of experts", lambda: layer(integer=np.float32), "expert is float32; integers would be right"),
    ("no tokens", lambda: layer(x=(0, 8)), "x is float32 [0, 8]; 2 dimensions of at least 1 would be right"),
    ("int8", lambda: layer(dtype=np.int8), "x is int8; bfloat16 or float16, on a CPU also float32, would be right"),
    ("a bias of another width", lambda: layer(b_up=jnp.ones((3, 5))), "b_up is float32 [3, 5]; float32 [3, 10] would be right"),
    ("a bias of other experts", lambda: layer(b_down=jnp.ones((2, 8))), "b_down is float32 [2, 8]; float32 [3, 8] would be right"),
    ("an activation of another name", lambda: layer(activation="gelu"), "activation 'gelu'; one of swiglu, geglu, relu2 would be right"),
    ("a limit of GeGLU", lambda: layer(activation="geglu", limit=7.0), "geglu with a limit of 7.0; None, or a positive one of swiglu"),
    ("one matrix in turn", lambda: layer(activation="relu2", interleaved=True), "interleaved=False would be right"),
    ("experts under vmap", lambda: jax.vmap(lambda w: spillway_jax.experts(
        jnp.ones((6, 8)), jnp.zeros((6, 2), np.int32), w, jnp.ones((3, 8, 10)), jnp.ones((3, 5, 8))))(jnp.ones((4, 6, 2))), "vmap"),
    ("an activation that is too narrow", lambda: up(act=("f", 12, 4)), "columns of act: 4; 5 would be right"),
    ("gate and up that are too narrow", lambda: up(h=("f", 12, 8)), "columns of h: 8; 10 would be right"),
    ("rows of no whole tokens", lambda: up(rows=("i", 13), h=("f", 13, 10), act=("f", 13, 5)),
     "rows of sorted choices: 13; 12 would be right"),
    ("offsets of other experts", lambda: up(offset=("i", 5)), "numbers of offset: 5; 4 would be right"),
    ("a bias of the wrong layer", lambda: up(bias=[("f", 3, 9)]), "argument bias is fp32 [3][9]; fp32 [3][10] would be right"),
    ("an argument too many", lambda: up(bias=[("f", 3, 10)] * 2), "6 arguments and 2 results; 5 and 2 would be right"),
    ("a limit without an end", lambda: up(limit=float("inf")), "attribute limit is inf; a finite number would be right"),
    ("a limit below 0", lambda: up(limit=-1.0), "activation 0 with a limit of -1"),
    ("offsets of no experts", lambda: raw("plan", [("i", 6, 2)], [("i", 6, 2), ("i", 12), ("i", 0), ("i", 6)]),
     "an array without elements"),
    ("scratch that is too small", lambda: raw("plan", [("i", 6, 2)], [("i", 6, 2), ("i", 12), ("i", 4), ("i", 5)]),
     "numbers of scratch: 5; 6 would be right"),
    ("too few parts of a row's sum", lambda: raw(
        "down_gradient", [("f", 6, 8), ("f", 3, 264, 8), ("i", 4), ("i", 12), ("f", 12, 528), ("f", 6, 2)],
        [("f", 12, 528), ("f", 12, 264), ("f", 1, 12)], transposed=0, activation=0, pairs=0, limit=0.0, alpha=1.0),
     "parts of row_sum: 1; 3 would be right"),
    ("offsets that fall", lambda: offsets(0, 5, 3, 12), "offset[2] is 3; 0, then growing, at most 12 would be right"),
    ("offsets behind the rows", lambda: offsets(0, 5, 6, 13), "offset[3] is 13"),
    ("a library of others", lambda: spillway_jax.register("libm.so.6"), "libm.so.6 holds no handlers"),
]


def said(call):
    try:
        jax.block_until_ready(call())
        return "nothing was said"
    except Exception as error:  # noqa: BLE001: its message is what is checked
        return str(error)


def judge(what, message, words):
    global failed
    failed += words not in message
    print(f"{'ok' if words in message else 'WRONG':6}refused: {what}" + ("" if words in message else f": {message}"))


for what, call, words in REFUSED:
    judge(what, said(call), words)
# A rank that does not come. On a busy machine the others may be late, too: then it is waited longer.
for patience in (1, 4, 16, 64, 256):
    os.environ["SPW_JAX_PATIENCE_S"] = str(patience)
    message, words = said(lambda: send(GOOD, absent=2)), f"waited {patience} s for rank 2, which did not come; 3 of 4 ranks are here"
    if words in message:
        break
judge("a rank that does not come", message, words)
os.environ["SPW_JAX_PATIENCE_S"] = str(HANG_S)
received = np.asarray(send(GOOD))  # and after all that, the next run is a good one
failed += not received.sum() == 12 * 8
print(f"{'WRONG' if failed else 'ok':6}{len(REFUSED) + 1} refusals")
sys.exit(1 if failed else 0)
