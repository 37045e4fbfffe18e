"""Layers of experts that verify_torch.py computes, and what is right of them: PyTorch's own operators in fp64."""
import torch

import spillway_torch
from judge_torch import copies, numbers

ACTIVATIONS = [{}, {"interleaved": True}, {"interleaved": True, "limit": 1.5}, {"limit": 0.75, "alpha": 1.3}, {"activation": "geglu"},
               {"activation": "geglu", "interleaved": True}, {"activation": "relu2"}]


def activate(h, activation="swiglu", interleaved=False, limit=None, alpha=1.702):
    """By PyTorch's own operators, in h's type."""
    if activation == "relu2":
        return h.relu() ** 2
    gate, up = (h[:, ::2], h[:, 1::2]) if interleaved else h.chunk(2, 1)
    if activation == "geglu":
        return torch.nn.functional.gelu(gate, approximate="tanh") * up
    if limit is None:
        return torch.nn.functional.silu(gate) * up
    gate, up = torch.where(gate > limit, limit, gate), torch.where(up.abs() > limit, limit * up.sign(), up)
    return gate * torch.sigmoid(alpha * gate) * (up + 1)


def expert_acts(x, expert, w_up, w_down, transposed, b_up=None, stored=None, **activation):
    """Expert by expert in fp64: its number, its tokens and which of their choices it is, what stands between the products, and [ffn, hidden] of
    the second. stored: the type that gate and up are stored in, of which it follows whether a limit cuts them."""
    for e in range(w_up.shape[0]):
        up, down = (w_up[e].t(), w_down[e].t()) if transposed else (w_up[e], w_down[e])
        token, k = (expert == e).nonzero(as_tuple=True)
        h = x[token] @ up
        h = h if b_up is None else h + b_up[e]
        if stored is not None:
            h = h + (h.to(stored).to(h.dtype) - h).detach()
        yield e, token, k, activate(h, **activation), down


def wanted_experts(x, expert, weight, w_up, w_down, transposed, b_up=None, b_down=None, **how):
    y = torch.zeros_like(x)
    for e, token, k, act, down in expert_acts(x, expert, w_up, w_down, transposed, b_up, **how):
        one = act @ down
        y = y.index_add(0, token, (one if b_down is None else one + b_down[e]) * weight[token, k][:, None])
    return y


class Case:
    def __init__(self, device, dtype, shape, transposed, absent=0.0, activation=None, biased=False):
        tokens, hidden, ffn, experts, top_k = shape
        self.transposed, self.dtype, self.activation = transposed, dtype, activation or {}
        turn = (lambda a: a.transpose(1, 2).contiguous().detach().requires_grad_()) if transposed else (lambda a: a)
        wide = ffn if self.activation.get("activation") == "relu2" else 2 * ffn
        self.x = numbers(tokens, hidden, dtype=dtype, device=device)
        self.w_up = turn(numbers(experts, hidden, wide, dtype=dtype, device=device, scale=hidden ** -0.5))
        self.w_down = turn(numbers(experts, ffn, hidden, dtype=dtype, device=device, scale=ffn ** -0.5))
        self.biases = {"b_up": numbers(experts, wide, dtype=dtype, device=device),
                       "b_down": numbers(experts, hidden, dtype=dtype, device=device)} if biased else {}
        self.weight = torch.rand(tokens, top_k, device=device).requires_grad_()
        self.expert = torch.rand(tokens, experts, device=device).topk(top_k).indices
        self.expert[torch.rand(tokens, top_k, device=device) < absent] = -1
        self.dy = torch.randn(tokens, hidden, device=device).to(dtype)
        self.name = (f"{tokens} x {hidden}, {experts} experts of {ffn}, top-{top_k}, {dtype} {'[out][in]' if transposed else '[in][out]'}"
                     f"{f', {self.activation}' if self.activation else ''}{', biases' if biased else ''}")

    def leaves(self):
        return self.x, self.weight, self.w_up, self.w_down, *self.biases.values()

    def call(self, **more):
        return spillway_torch.experts(self.x, self.expert, self.weight, self.w_up, self.w_down, transposed=self.transposed, **self.biases,
                                      **self.activation, **more)

    def wanted(self):
        """y, and gradients of x, weight, w_up and w_down, and of biases."""
        leaves, dy = copies(*self.leaves()), self.dy.double().cpu()
        x, weight, w_up, w_down, *biases = leaves
        b_up, b_down = biases or (None, None)
        how = {"stored": self.dtype if self.activation.get("limit") else None, **self.activation}
        y = wanted_experts(x, self.expert.cpu(), weight, w_up, w_down, self.transposed, b_up, b_down, **how)
        y.backward(dy)
        self.weight_terms = torch.zeros_like(weight, requires_grad=False)
        for e, token, k, act, down in expert_acts(x, self.expert.cpu(), w_up, w_down, self.transposed, b_up, **how):
            terms = (act * (dy[token] @ down.t())).norm(dim=1)
            self.weight_terms[token, k] = (terms if b_down is None else terms.hypot(dy[token] @ b_down[e])).detach()
        return y, *(leaf.grad for leaf in leaves)

    def near(self, judge, what, got, want, share):
        """All that wanted() says."""
        for part, one, right in zip(PARTS, got, want):
            judge.near(f"{what}: {part}", one, right, share, self.weight_terms if part == "d_weight" else None)

    def got(self, call=None, **more):
        for leaf in self.leaves():
            leaf.grad = None
        y = (call or self.call)(**more)
        y.backward(self.dy)
        return y, *(leaf.grad for leaf in self.leaves())


PARTS = ("y", "dx", "d_weight", "d_w_up", "d_w_down", "d_b_up", "d_b_down")
