"""Routers of JAX, such as MaxText's: a callback on what the router chose.

    from spillway_moe.capture.jax import tap, pass_of

    def router(logits, layer):
        weights, ids = jax.lax.top_k(jax.nn.softmax(logits), k)
        tap(capture, layer, ids, weights)          # inside of jit and of scan over the layers; layer may be traced
        ...

    with capture.step(step), pass_of(capture):     # one forward pass, or one training step with its gradient
        state = train_step(state, batch)
"""
import contextlib
from typing import Iterator

import jax
import numpy as np

from .recorder import Capture


def tap(capture: Capture, layer, ids, weights=None) -> None:
    """Hands ids [..., k] and weights to the host. Under jax.checkpoint the router runs twice: the second time must choose the same, and
    is left out."""
    if capture.weights and weights is None:
        raise ValueError("the capture keeps weights, and tap() was given none")
    values = (layer, ids) + ((weights,) if capture.weights else ())
    jax.debug.callback(lambda *host: _receive(capture, *host), *values)


def _receive(capture: Capture, layer, ids, weights=None) -> None:
    ids = np.array(ids).reshape(-1, ids.shape[-1])
    weights = None if weights is None else np.array(weights, "f4").reshape(ids.shape)
    before = capture.chosen(int(layer))
    if before is not None:
        if not np.array_equal(before[0]()[0], ids):
            raise RuntimeError(f"layer {int(layer)} chose twice in one pass, and not the same")
        return
    capture.record(int(layer), lambda: (ids, weights), ids.nbytes + (0 if weights is None else weights.nbytes))


@contextlib.contextmanager
def pass_of(capture: Capture) -> Iterator[None]:
    """The callbacks of what runs inside are one forward pass; waits for them."""
    capture.begin(shared=True)
    failed = True
    try:
        yield
        jax.effects_barrier()
        failed = False
    finally:
        capture.end(failed)
