#!/usr/bin/env python3
"""spillway_moe.capture.jax in a real JAX on a CPU: a tiny router under jit, scan over the layers, grad and checkpoint. The rows equal
those that the program returns itself.     capture_jax.py SPILLWAY SCRATCH SOURCE VENV"""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import framework_venv

framework_venv.enter(sys.argv[4])
SPILLWAY, SCRATCH, SOURCE = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
SCRATCH = SCRATCH / "capture_jax"
sys.path.insert(0, str(SOURCE / "python"))
import h5py
import jax
import jax.numpy as jnp
import numpy as np

from oracle_run import Oracle
from spillway_moe.capture import Capture
from spillway_moe.capture.jax import pass_of, tap

EXPERTS, TOP_K, LAYERS, HIDDEN = 8, 2, 3, 16
oracle = Oracle(SPILLWAY, "capture_jax")
shutil.rmtree(SCRATCH, ignore_errors=True)
weight = jax.random.normal(jax.random.key(1), (LAYERS, HIDDEN, EXPERTS))


def model(capture, weight, x, checkpoint):
    def layer(x, at):
        index, router = at
        chosen, ids = jax.lax.top_k(jax.nn.softmax(x @ router), TOP_K)
        tap(capture, index, ids, chosen)
        return x + chosen.sum(-1, keepdims=True) * jnp.tanh(x), (ids, chosen)
    return jax.lax.scan(jax.checkpoint(layer) if checkpoint else layer, x, (jnp.arange(LAYERS), weight))


for name, checkpoint in (("plain", False), ("checkpointed", True)):
    returned = []
    with Capture(SCRATCH / name, experts=EXPERTS, top_k=TOP_K, layers=range(LAYERS), weights=True, order="descending_weight") as capture:
        def loss(weight, x):
            y, routed = model(capture, weight, x, checkpoint)
            return y.sum(), routed
        step_of = jax.jit(jax.value_and_grad(loss, has_aux=True))
        for step in range(3):
            with capture.step(step):
                for micro in range(2):
                    with pass_of(capture):
                        x = jax.random.normal(jax.random.key(10 * step + micro), (2, 12, HIDDEN))
                        (_, routed), _ = step_of(weight, x)
                        returned.append(jax.device_get(routed))
    for step in range(3):
        path = SCRATCH / name / f"rank00000_step{step:09}.h5"
        oracle.must("trace", "verify", path)
        with h5py.File(path) as h:
            for micro in range(2):
                ids, weights = (np.moveaxis(v.reshape(LAYERS, -1, TOP_K), 0, 1) for v in returned[2 * step + micro])
                rows = slice(24 * micro, 24 * micro + 24)
                oracle.check((h["tokens/expert_id"][rows] == ids).all(), f"{name}: ids of step {step}, micro-batch {micro}")
                oracle.check(np.allclose(h["tokens/weight"][rows], weights, rtol=1e-3, atol=1e-6), f"{name}: weights of step {step}")
    oracle.must("trace", "info", SCRATCH / name)
shutil.rmtree(SCRATCH)
oracle.finish(20)
