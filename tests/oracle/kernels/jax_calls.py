"""Grouped GEMM, dispatch and combine as custom calls of JAX on the CPU: kernels/jax/verify_jax.py with four devices, and what must be refused.

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


GOOD = np.arange(12).reshape(12, 1) % 8
REFUSED = [  # what, the call, words of the message
    ("a width that does not fit", lambda: gemm(w=(3, 15, 8)), "argument w is fp32 [3][15][8]; fp32 [any][16][any] would be right"),
    ("an attribute out of its range", lambda: several((2, 2), (2, 2), (1,)), "attribute transposed is 2; 0 to 1 would be right"),
    ("another type", lambda: gemm(dtype=np.int32), "argument x is int32 [10][16]; bf16 or fp32 [any][any] would be right"),
    ("group sizes for another number of experts", lambda: gemm(sizes=(4, 5)), "argument group_sizes is int32 [2]; int32 [3] would be right"),
    ("more rows than there are", lambda: gemm(sizes=(4, 5, 9)), "group_sizes[2] is 9, where 9 of 10 rows are taken"),
    ("a negative size", lambda: gemm(sizes=(4, -1, 2)), "group_sizes[1] is -1"),
    ("an expert that is not there", lambda: send(GOOD + 1), "names expert 8 of 8"),
    ("experts that do not divide", lambda: send(GOOD, experts=6), "6 experts on 4 ranks; a multiple of the ranks would be right"),
    ("a mesh of other devices", lambda: send(GOOD, axis=spillway_jax.ExpertAxis(Mesh(np.array(jax.devices())[:2], ("expert",)), "expert")),
     "which is none of the 2 devices of the mesh"),
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
