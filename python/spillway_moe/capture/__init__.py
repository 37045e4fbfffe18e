"""Routing traces from inside of a framework, written as it runs.

    from spillway_moe.capture import Capture
    from spillway_moe.capture.torch import watch

    with Capture("routing", experts=64, top_k=8, layers=range(1, 16)) as capture:
        watch(model, capture)                # transformers, torchtitan, Megatron-Core: any router that is a module
        for step, batch in enumerate(loader):
            with capture.step(step):
                train(model, batch)          # every forward pass inside is a micro-batch

Each rank and step becomes a file of its own, routing/rank00003_step000000017.h5, in the format moe-routing-trace 1.0: `spillway
trace verify` and `spillway replay` read it as it is. Nothing is written on the thread that trains: ids go through a queue of
bounded size to a thread of their own, which waits for the copies from the device. A full disk costs steps, which a CaptureWarning
tells, not the run: docs/capture.md.

`spillway_moe.capture.jax` does the same for JAX (MaxText); `Capture.add_sequences` takes what vLLM and SGLang return with a
response. Needs numpy and h5py.
"""
from .recorder import Capture, CaptureWarning
from .shard import Shard, write_shard

__all__ = ["Capture", "CaptureWarning", "Shard", "write_shard"]
