"""Kernels in PyTorch for docs/check_your_kernel.md and its test: right ones, and one that is wrong on purpose."""
import torch


def grouped_mm(x, w, offset):
    return torch.nn.functional.grouped_mm(x, w, offs=offset[1:])


def loop(x, w, offset):
    y = x.new_empty(x.shape[0], w.shape[2])
    for e in range(w.shape[0]):
        y[offset[e]:offset[e + 1]] = x[offset[e]:offset[e + 1]] @ w[e]
    return y


def next_expert(x, w, offset):
    """Wrong on purpose: the weights of the next expert."""
    return loop(x, w.roll(-1, 0), offset)


def input_gradient(dy, w, offset):
    return loop(dy, w.transpose(1, 2), offset)


def weight_gradient(x, dy, offset):
    groups = [slice(offset[e], offset[e + 1]) for e in range(len(offset) - 1)]
    return torch.stack([x[rows].T @ dy[rows] for rows in groups])


def permute(x, expert, out):
    """Writes to `out`."""
    chosen = expert.flatten()
    order = torch.argsort(chosen, stable=True)
    torch.index_select(x, 0, order[(chosen < 0).sum():] // expert.shape[1], out=out)


def unpermute(rows, row, weight):
    kept = torch.where(row >= 0, weight, 0.0)
    return (kept[..., None] * rows[row.clamp(min=0).long()].float()).sum(1).to(rows.dtype)


def swiglu(gate, up):
    gate32 = gate.float()
    return (gate32 / (1 + torch.exp(-gate32)) * up.float()).to(gate.dtype)


def wrong_type(gate, up):
    """Wrong on purpose: a result in fp32."""
    return swiglu(gate.float(), up.float())


def behind(x, expert, out):
    """Wrong on purpose: a row further than the output goes."""
    permute(x, expert, out)
    out.as_strided(out.shape, out.stride(), out.storage_offset() + out.shape[1]).copy_(out.clone())


def raises(gate, up):
    raise RuntimeError("no such device function")
