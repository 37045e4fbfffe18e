"""What verify_torch.py judges by: limits of rows, numbers to begin with, and the product that grouped GEMM should be."""
import itertools

import torch


class Judge:
    """A row of a result must lie within `share` of the norm of that row as it should be, and of the largest row; a sum whose terms cancel,
    within `share` of the norm of its terms."""

    def __init__(self):
        self.comparisons = self.failed = 0

    def near(self, what, got, want, share, terms=None):
        """terms: of every element, the norm of what it is the sum of."""
        got, want = got.detach().double().cpu().reshape(-1, got.shape[-1]), want.detach().double().cpu().reshape(-1, want.shape[-1])
        largest = want.norm(dim=1).max()
        if terms is None:
            near = (got - want).norm(dim=1) <= share * (want.norm(dim=1) + 0.1 * largest) + 1e-30
        else:
            near = (got - want).abs() <= share * terms.reshape(want.shape) + 1e-30
        good = bool(near.all()) and bool(torch.isfinite(got).all())
        self.holds(what, good)
        return good

    def holds(self, what, good):
        self.comparisons += 1
        self.failed += not good
        if not good:
            print(f"failed: {what}")


def refuses(judge, name, words, call):
    """`words` are in what the call is refused with."""
    try:
        call()
        said = "nothing"
    except (RuntimeError, ValueError) as error:
        said = str(error)
    judge.holds(f"{name} is refused: {said}", words in said)


def numbers(*shape, dtype, device, scale=1.0, grad=True):
    return (torch.randn(*shape, dtype=torch.float32, device=device) * scale).to(dtype).requires_grad_(grad)


def share_of(dtype):
    return {torch.bfloat16: 4 * 2.0 ** -8, torch.float16: 4 * 2.0 ** -11}.get(dtype, 1e-5)


def copies(*arrays):
    return [a.detach().double().cpu().requires_grad_() for a in arrays]


def wanted_gemm(x, w, offset, transposed):
    parts = [x[a:b] @ (w[e].t() if transposed else w[e]) for e, (a, b) in enumerate(itertools.pairwise(offset))]
    return torch.cat([*parts, (x[offset[-1]:] * 0) @ (w[0].t() if transposed else w[0])])
