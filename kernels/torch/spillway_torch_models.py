"""Which modules hold experts as transformers does, and what they compute as keywords of spillway_torch.experts."""
import inspect

import torch

from spillway_torch_call import widths

_GATES = {"SiLU": "swiglu", "SiLUActivation": "swiglu", "GELUTanh": "geglu", "ReLUSquaredActivation": "relu2"}


def _activation_of(module):
    """Of an experts module, keywords of `experts`; None: another one."""
    act = getattr(module, "act_fn", None)
    if act is None and all(hasattr(module, name) for name in ("alpha", "limit", "gate_up_proj_bias", "down_proj_bias")):
        return {"interleaved": True, "limit": float(module.limit), "alpha": float(module.alpha)}  # gpt-oss
    if act is torch.nn.functional.silu:
        return {}
    name = _GATES.get(type(act).__name__)
    if isinstance(act, torch.nn.GELU) and act.approximate == "tanh":
        name = "geglu"
    return None if name is None else {"activation": name}


def experts_of(module):
    """The first matrix' name, and the keywords with which `experts` computes what `module` does; None where it is no experts module that it
    knows."""
    keywords = _activation_of(module)
    single = keywords is not None and keywords.get("activation") == "relu2"
    first = "up_proj" if single else "gate_up_proj"
    up, down = getattr(module, first, None), getattr(module, "down_proj", None)
    if keywords is None or not all(isinstance(w, torch.Tensor) and w.dim() == 3 for w in (up, down)):
        return None
    columns = 1 if single else 2
    # Shapes say which way gate and up lie, but not where there is one matrix: there transformers' mark does, which is the opposite of ours.
    for transposed in (not getattr(module, "is_transposed", False),) if single else (True, False):
        (hidden, wide), (ffn, back) = widths(up, transposed), widths(down, transposed)
        if wide == columns * ffn and back == hidden and up.shape[0] == down.shape[0]:
            return first, {**keywords, "transposed": transposed}
    return None


# ---- what a module computes beside that ------------------------------------------------------------------------------
def _act(h, activation="swiglu", interleaved=False, limit=None, alpha=1.702, **_):
    """What `experts` computes between the products."""
    gate, up = (h[:, ::2], h[:, 1::2]) if interleaved else h.chunk(2, 1)
    if limit is not None:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)
    act = torch.nn.functional.silu(gate) if activation == "swiglu" else torch.nn.functional.gelu(gate, approximate="tanh")
    return act * up


def _gate_agrees(module, keywords):
    """Whether the module's own gate, which transformers calls _apply_gate, is that of the keywords: of numbers beyond every limit, too."""
    gate = getattr(module, "_apply_gate", None)
    if gate is None or keywords.get("activation") == "relu2":
        return True
    numbers = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
    h = torch.cat([numbers, 10 * numbers, 1000 * numbers])
    with torch.no_grad():
        return torch.allclose(gate(h), _act(h, **keywords), rtol=1e-4, atol=1e-4)


def computes_as_known(module, keywords):
    """Whether a module of experts_of computes nothing beside: no parameters and modules but the known ones (a norm of each expert's result, an
    expert that passes tokens on), another gate, or other arguments than tokens, choices and weights."""
    known = {"gate_up_proj", "up_proj", "down_proj"}
    parameters = {name for name, _ in module.named_parameters(recurse=False)}
    children = {name for name, _ in module.named_children()}
    arguments = inspect.signature(type(module).forward).parameters  # self, too
    return (parameters <= known | {name + "_bias" for name in known} and children <= {"act_fn", "parametrizations"} and len(arguments) == 4
            and _gate_agrees(module, keywords))
