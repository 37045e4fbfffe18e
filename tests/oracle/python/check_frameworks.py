#!/usr/bin/env python3
"""spillway_moe.check with the arrays of a framework on a CPU: its own operations pass, mistakes are found. jax comes from PyPI, and so do
torch and Triton, which runs in its interpreter: some GB, a test for long runs.
check_frameworks.py jax|torch SOURCE LIBRARY VENV RECORD"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import framework_venv

framework, source, shared, venv, record = sys.argv[1], *sys.argv[2:6]
if framework == "jax":
    framework_venv.enter(venv)
else:
    framework_venv.enter(venv, "torch", framework_venv.TORCH, "it is run by .ci/run long alone")
source, record = pathlib.Path(source).resolve(), pathlib.Path(record).resolve()
os.environ.update(SPILLWAY_LIBRARY=str(pathlib.Path(shared).resolve()), TRITON_INTERPRET="1", PYTHONPATH=str(source / "python"))
sys.path[:0] = [str(source / "python"), str(source / "tests" / "library")]
from spillway_moe import check

checks, ALL = 0, range(30)  # and the large case behind these


def ensure(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAIL {what}")


def passes(kernel, fn, dtype, **options):
    report = getattr(check, kernel)(fn, dtype=dtype, **options)
    ensure(report and not report.of("left out"), f"{fn}: {report}")
    print(f"{fn.__name__}: {report}")


def fails(kernel, fn, dtype, cases, says, **options):
    report = getattr(check, kernel)(fn, dtype=dtype, **options)
    failed = report.of("failed")
    ensure(({v["case"] for v in failed} == set(cases) if cases != ALL else not report.of("passed")) and all(says in v["message"] for v in failed), f"{fn}: {report}")
    words = failed[0]["again"].split()
    done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True)
    ensure(done.returncode == 1 and (says in done.stdout or says in done.stderr), f"{words}: {done.stdout}{done.stderr}")


if framework == "jax":
    import jax
    import jax.numpy as jnp
    import kernels_in_jax as k

    passes("grouped_gemm", k.ragged_dot, jnp.bfloat16)
    passes("grouped_gemm", k.ragged_dot, jnp.float32, record=record, device=jax.devices("cpu")[0])
    passes("input_gradient", k.input_gradient, "bf16")
    passes("weight_gradient", k.weight_gradient, "bf16", device="cpu")
    passes("permute", k.permute, "bf16", record=record)
    passes("unpermute", k.unpermute, "bf16")
    passes("swiglu", k.swiglu, "bf16")
    fails("grouped_gemm", k.forgets_group_sizes, jnp.bfloat16, range(8), "elements are wrong", record=record)
    said = [v["message"] for v in check.swiglu(lambda gate, up, out: None, arrays="jax").of("failed")]
    ensure(len(said) == 31 and all("cannot be written to" in message for message in said), str(said[:1]))
else:
    import kernels_in_torch as k
    import kernels_in_triton as t
    import torch

    for dtype in (torch.bfloat16, torch.float32):
        for kernel, fn in (("grouped_gemm", k.grouped_mm), ("grouped_gemm", k.loop), ("input_gradient", k.input_gradient),
                           ("weight_gradient", k.weight_gradient), ("permute", k.permute), ("unpermute", k.unpermute),
                           ("swiglu", k.swiglu)):
            passes(kernel, fn, dtype)
            passes(kernel, fn, dtype, record=record, device=torch.device("cpu"))
    passes("grouped_gemm", t.grouped_gemm, "float")
    passes("grouped_gemm", t.grouped_gemm_returned, "float", device="cpu")
    fails("grouped_gemm", k.next_expert, "bf16", ALL, "elements are wrong")
    fails("grouped_gemm", t.whole_tiles_alone, "float", range(1, 30, 3), "elements are wrong")  # 72 terms are no whole tiles
    fails("permute", k.behind, "bf16", ALL, "outside of its output, behind")
    fails("swiglu", k.wrong_type, "bf16", ALL, "returned float32")
    fails("swiglu", k.raises, "bf16", ALL, "no such device function")
print(f"{checks} checks")
