"""The part of verify_torch.py that is of models: experts modules that `use` swaps, and those that it leaves alone."""
import torch

import spillway_torch
import spillway_torch_float8
import spillway_torch_models
from case_torch import Case, activate, wanted_experts
from judge_torch import refuses, share_of
from verify_torch_float8 import Layer, in_codes


class ReLUSquaredActivation(torch.nn.Module):
    """Named as that of transformers."""


class Experts(torch.nn.Module):
    """Experts as transformers holds them."""

    def __init__(self, case):
        super().__init__()
        kind = case.activation.get("activation", "swiglu")
        self.first = "up_proj" if kind == "relu2" else "gate_up_proj"
        self.act_fn = {"swiglu": torch.nn.SiLU(), "geglu": torch.nn.GELU(approximate="tanh"), "relu2": ReLUSquaredActivation()}[kind]
        setattr(self, self.first, torch.nn.Parameter(case.w_up.detach().clone()))
        self.down_proj = torch.nn.Parameter(case.w_down.detach().clone())
        for name, where in (("b_up", self.first + "_bias"), ("b_down", "down_proj_bias")):
            setattr(self, where, torch.nn.Parameter(case.biases[name].detach().clone()) if case.biases else None)
        self.case, self.is_transposed = case, not case.transposed

    def forward(self, hidden_states, top_k_index, top_k_weights):
        return wanted_experts(hidden_states, top_k_index, top_k_weights, getattr(self, self.first), self.down_proj, self.case.transposed,
                              getattr(self, self.first + "_bias"), self.down_proj_bias, **self.case.activation)


def check_use(judge, device, dtype):
    for kind, transposed, biased in (("swiglu", True, False), ("geglu", True, False), ("relu2", True, False), ("relu2", False, True)):
        case = Case(device, dtype, (40, 64, 32, 6, 2), transposed, 0.0, {"activation": kind}, biased)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), Experts(case))
        own = model[1].forward.__func__
        judge.holds(f"use finds experts with {kind}", spillway_torch.use(model) == 1 and model[1].forward.__func__ is not own)
        judge.near(f"use of {kind}", model[1](case.x, case.expert, case.weight), case.wanted()[0], 2 * share_of(case.dtype))
    plain, biased = (Experts(Layer(device, dtype, (40, 64, 32, 6, 2), True, biased=biased)) for biased in (False, True))
    case = plain.case
    judge.holds("fp8's use", spillway_torch_float8.use(plain) == 1 and (
        not in_codes(device, dtype) or torch.equal(plain(case.x, case.expert, case.weight), case.call())))
    refuses(judge, "fp8 of experts with biases", "experts without", lambda: spillway_torch_float8.use(biased))
    model[1].act_fn = torch.nn.ReLU()
    judge.holds("use leaves another activation", spillway_torch_models.experts_of(model[1]) is None)


class SortedExperts(Experts):
    """As Llama 4's, which are called with rows by experts."""

    def forward(self, hidden_states):
        return hidden_states


def check_others(judge, device, dtype):
    """Experts that compute something beside are not swapped, as classes of transformers do that have the known matrices."""
    def experts(kind=Experts, biased=False, **beside):
        module = kind(Case(device, dtype, (8, 16, 8, 3, 2), not biased, activation={"interleaved": True} if biased else None, biased=biased))
        for name, what in beside.items():
            setattr(module, name, what)
        return module

    silu, oss = torch.nn.functional.silu, {"biased": True, "act_fn": None, "limit": 7.0, "alpha": 1.702}
    gate = lambda h: silu(h.chunk(2, 1)[0]) * h.chunk(2, 1)[1]  # noqa: E731
    limited = lambda h: silu(h.chunk(2, 1)[0].clamp(max=7)) * h.chunk(2, 1)[1].clamp(-7, 7)  # noqa: E731: as DeepSeek-V4's
    for name, module in (("a gate with a limit", experts(_apply_gate=limited)), ("a norm behind", experts(norm=torch.nn.LayerNorm(16))),
                         ("a scale", experts(scale=torch.nn.Parameter(torch.ones(3)))), ("rows by experts", experts(SortedExperts)),
                         ("gpt-oss' gate side by side", experts(_apply_gate=lambda h: activate(h, limit=7.0), **oss))):
        refuses(judge, f"experts with {name}", "computes more", lambda module=module: spillway_torch.use(module))
    for name, module in (("the usual gate", experts(_apply_gate=gate)),
                         ("gpt-oss' gate", experts(_apply_gate=lambda h: activate(h, interleaved=True, limit=7.0), **oss))):
        judge.holds(f"experts with {name} are used", spillway_torch.use(module) == 1)


def check_transformers(judge, device, dtype):
    try:
        import transformers
    except ImportError:
        print("transformers is not installed: its models are not tried")
        return
    small = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
             "num_experts_per_tok": 2}
    for name, more in (("Qwen3Moe", {"num_experts": 8, "moe_intermediate_size": 32, "intermediate_size": 64}),
                       ("GptOss", {"num_local_experts": 8, "intermediate_size": 32, "layer_types": ["full_attention"] * 2})):
        config, model = getattr(transformers, name + "Config", None), getattr(transformers, name + "ForCausalLM", None)
        if config is None:
            print(f"transformers {transformers.__version__} has no {name}: it is not tried")
            continue
        torch.manual_seed(3)
        model = model(config(**small, **more)).to(device, dtype)
        for module in model.modules():  # which begin with biases of 0
            for bias in (getattr(module, "gate_up_proj_bias", None), getattr(module, "down_proj_bias", None)):
                if bias is not None:
                    torch.nn.init.normal_(bias)
        check_model(judge, name, model, dtype, torch.randint(0, 128, (2, 24), device=device))


def check_model(judge, name, model, dtype, words):
    def step():
        model.zero_grad()
        loss = model(words, labels=words).loss
        loss.backward()
        return loss, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    loss, gradients = step()
    judge.holds(f"{name}: two layers of experts", spillway_torch.use(model) == 2)
    swapped, ours = step()
    judge.near(f"{name}: loss", swapped.reshape(1, 1), loss.reshape(1, 1), 1e-5 if dtype is torch.float32 else 1e-2)
    for parameter, want in gradients.items():  # choices of a later layer may differ in 16 bits
        judge.holds(f"{name}: gradient of {parameter}", (ours[parameter].double() - want.double()).norm() <=
                    (1e-3 if dtype is torch.float32 else 0.1) * want.double().norm() + 1e-12)
