"""Routers that are modules of PyTorch: Hugging Face transformers, torchtitan, Megatron-Core.

A forward hook reads what a router returns, by its shapes; nothing of a framework is imported:

    integers [tokens][k]              the experts; floats of the same shape beside them are their weights
    truth values [tokens][experts]    Megatron's routing map; floats of its shape beside it are the weights
    floats [tokens][experts] alone    logits of a linear layer: the top-k of them, as a router without a bias chooses
"""
import re
from typing import Callable, Iterable, Optional, Tuple

import torch

from .recorder import Capture

ROUTER = re.compile(r"(Router|Gate|Gating)$")


def routers(model: "torch.nn.Module") -> Iterable[Tuple[str, "torch.nn.Module"]]:
    """The routers of a model by name: modules whose class ends in Router or Gate, and linear layers called gate or router that
    stand beside experts."""
    modules = dict(model.named_modules())
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        beside = any(other.startswith(parent + ".experts") for other in modules)
        if ROUTER.search(type(module).__name__) or (isinstance(module, torch.nn.Linear) and last in ("gate", "router", "gate_proj_router") and beside):
            yield name, module


def layer_of(name: str) -> int:
    """The index of a layer by the name of its router: the first number in it."""
    number = re.search(r"\.(\d+)(\.|$)", "." + name)
    if number is None:
        raise ValueError(f"the name '{name}' has no number of a layer; say it by layer_of=")
    return int(number.group(1))


def _tensors(output) -> list:
    found = output if isinstance(output, (tuple, list)) else [output]
    return [t.reshape(-1, t.shape[-1]) for t in found if isinstance(t, torch.Tensor) and t.dim() >= 2]


def choices(output, experts: int, top_k: int):
    """ids [tokens][k] and weights or None of what a router returned, on its device."""
    tensors = _tensors(output)
    whole = [t for t in tensors if not t.is_floating_point() and t.dtype != torch.bool and t.shape[-1] == top_k]
    maps = [t for t in tensors if t.dtype == torch.bool and t.shape[-1] == experts]
    real = [t for t in tensors if t.is_floating_point()]
    if whole:
        ids = whole[0]
        same = [t for t in real if t.shape == ids.shape]
        scores = [t for t in real if t.shape == (len(ids), experts)]
        weight = same[0] if same else scores[-1].gather(1, ids.long()) if scores else None
        return ids, weight
    if maps:
        probs = next((t for t in real if t.shape == maps[0].shape), maps[0].float())
        value, ids = torch.where(maps[0], probs.float(), -torch.inf).topk(top_k, -1)
        chosen = torch.isfinite(value)
        return torch.where(chosen, ids, -1), torch.where(chosen, value, 0.0)
    logits = [t for t in real if t.shape[-1] == experts]
    if not logits:
        raise ValueError(f"a router returned {[(tuple(t.shape), str(t.dtype)) for t in tensors]}: neither {top_k} choices nor {experts} scores a token")
    return logits[0].topk(top_k, -1).indices, None


def _fetch(ids: torch.Tensor, weight: Optional[torch.Tensor]) -> Tuple[Callable, int]:
    """Starts the copies to the host; the function that waits for them, and their bytes."""
    parts = [ids.to(torch.int32)] + ([weight.float()] if weight is not None else [])
    if not ids.is_cuda:
        host, wait = [p.clone() for p in parts], None
    else:
        host = [torch.empty(p.shape, dtype=p.dtype, pin_memory=True).copy_(p, non_blocking=True) for p in parts]
        wait = torch.cuda.Event()
        wait.record()

    def fetch():
        if wait is not None:
            wait.synchronize()
        return host[0].numpy(), host[1].numpy() if len(host) > 1 else None

    return fetch, sum(h.numel() * h.element_size() for h in host)


def watch(model: "torch.nn.Module", capture: Capture, *, select: Optional[Callable[[str], bool]] = None,
          layer_of: Callable[[str], int] = layer_of) -> list:
    """Hooks the routers of `model`; a forward pass of `model` is a micro-batch. Returns the handles: handle.remove() ends it.

    select: which of the names `routers` finds are meant (default: all). Choices that are made again for the backward pass
    (activation checkpointing) come outside of the model's forward pass and are left out. A model under torch.compile must be
    watched before it is compiled, and breaks its graph at every router.
    """
    found = [(name, module) for name, module in routers(model) if select is None or select(name)]
    named = {layer_of(name): name for name, _ in found}
    if len(named) != len(found):
        raise ValueError(f"several routers of one layer: {[name for name, _ in found]}; choose by select=")
    if sorted(named) != sorted(capture.layers):
        raise ValueError(f"routers of layers {sorted(named)} were found, the capture was told of {sorted(capture.layers)}")

    def hook(layer):
        @torch.no_grad()
        def keep(module, inputs, output):
            if not capture.chosen():
                return
            ids, weight = choices(output, capture.experts, capture.top_k)
            if capture.weights and weight is None:
                raise ValueError(f"the router of layer {layer} returns no weights; Capture(weights=False) would be right")
            capture.record(layer, *_fetch(ids.detach(), weight.detach() if capture.weights else None))
        return keep

    handles = [module.register_forward_hook(hook(layer_of(name))) for name, module in found]
    handles.append(model.register_forward_pre_hook(lambda *_: capture.begin()))
    handles.append(model.register_forward_hook(lambda *_: capture.end()))
    return handles
