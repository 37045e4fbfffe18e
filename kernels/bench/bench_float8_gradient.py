"""The gradient of weights in fp8 beside DeepGEMM's and torch's in bf16, in one process on the same numbers, call by call in turn.

    bash kernels/build.sh gemm
    PYTHONPATH=DEEPGEMM python3 kernels/bench/bench_float8_gradient.py [--runs N] [LABEL=LIBRARY.so ...] > float8_gradient.csv

Both sides are codes of e4m3 with a scale for 128 rows of an expert and a column; ours are rounded to bf16, or added to fp32. DeepGEMM takes
part where `deep_gemm` is on the path: its products with groups along the sum, of 03d0be3 (a call a group) or of later ones (one call), which
add to fp32 and take groups of whole 128 rows; its operands are laid out outside of the time. torch's bf16 product is of what the codes
stand for. `limit` and `difference`: bench_float8.py.
"""
import importlib.util
import sys

import torch
from torch.nn.functional import grouped_mm

from bench_float8 import BLOCK, main, tell
from bench_same_run import offsets, rounds, worst


class Side:
    """Codes by columns of one operand."""

    def __init__(self, width, offset, rows):
        counts, experts = offset.diff().long(), len(offset) - 1
        first = offset[:-1].long() // BLOCK + torch.arange(experts, device="cuda")
        self.blocks = rows // BLOCK + experts
        self.code = torch.zeros(width, self.blocks * BLOCK, device="cuda", dtype=torch.float8_e4m3fn)
        self.scale = torch.empty(self.blocks, width, device="cuda", dtype=torch.float32)
        at = torch.arange(rows, device="cuda")
        self.place = at - torch.repeat_interleave(offset[:-1].long(), counts) + torch.repeat_interleave(first * BLOCK, counts)
        self.first, self.counts = first.tolist(), counts.tolist()

    def fresh(self):
        """Behind an expert's last row stays 0."""
        for some in self.place.split(8192):
            numbers = torch.randn(self.code.shape[0], len(some), device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn)
            self.code.view(torch.uint8).index_copy_(1, some, numbers.view(torch.uint8))
        self.scale.uniform_(0.5, 1.5)

    def numbers(self):
        """[width, rows] in bf16."""
        return torch.cat([(self.code.view(torch.uint8)[:, some].view(torch.float8_e4m3fn).float() * self.scale[some // BLOCK].t()).bfloat16()
                          for some in self.place.split(8192)], 1)

    def of_groups(self):
        """As DeepGEMM takes it: groups one after the other, [width, rows of the group] each; scales of their blocks."""
        spans = [slice(first * BLOCK, first * BLOCK + count) for first, count in zip(self.first, self.counts)]
        code = torch.cat([self.code.view(torch.uint8)[:, span].flatten() for span in spans]).view(torch.float8_e4m3fn)
        scale = torch.cat([self.scale[first : first + count // BLOCK] for first, count in zip(self.first, self.counts)])
        return code, scale


class DeepGemm:
    @staticmethod
    def takes(offset):
        return importlib.util.find_spec("deep_gemm") is not None and not (offset.diff() % BLOCK).any()

    def __init__(self, x, dy, result):
        self.x, self.dy, self.result = x, dy, result
        self.counts, self.counts_there = x.counts, torch.tensor(x.counts, dtype=torch.int32, device="cuda")

    def lay_out(self):
        import deep_gemm
        self.old = getattr(deep_gemm, "k_grouped_wgrad_gemm_fp8_fp8_fp32_nt", None)
        self.new = getattr(deep_gemm, "k_grouped_fp8_gemm_nt_contiguous", None)
        self.sides = self.x.of_groups(), self.dy.of_groups()
        if self.old is None:
            self.sides = tuple((code, scale.t()) for code, scale in self.sides)

    def __call__(self):
        if self.old is not None:
            self.old(*self.sides, self.result, self.counts)
        else:
            self.new(*self.sides, self.result, self.counts, self.counts_there, self.result)


def measure(shape, libraries, runs, copy_rate, dense_rate):
    """Prints a row a contender; returns how many results were wrong."""
    _, experts, rows, inner, out, routing = shape
    offset = offsets(experts, rows, routing)
    x, dy = Side(inner, offset, rows), Side(out, offset, rows)
    rounded, main = (torch.zeros(experts, inner, out, device="cuda", dtype=t) for t in (torch.bfloat16, torch.float32))

    def ours(library, result):
        return lambda: library.float8_gradient(x.code, x.scale, dy.code, dy.scale, offset, rows, result)

    results, calls, numbers = {}, {}, []
    for label, library in libraries.items():
        for text, result in ((label, rounded), (f"{label}, added", main)):
            calls[text], results[text] = ours(library, result), result
    if DeepGemm.takes(offset):
        calls["DeepGEMM, added"], results["DeepGEMM, added"] = DeepGemm(x, dy, main), main
    calls["torch, bf16"] = lambda: grouped_mm(numbers[0], numbers[1], offs=offset[1:])

    def fresh():
        x.fresh(), dy.fresh(), main.zero_()
        numbers[:] = x.numbers().t().contiguous().t(), dy.numbers().t().contiguous()  # its sums are of any length only so
        if "DeepGEMM, added" in calls:
            calls["DeepGEMM, added"].lay_out()

    ms = rounds(fresh, calls, runs)
    wanted, wrong = calls["torch, bf16"](), 0
    work, read = 2 * rows * inner * out, rows * (inner + out)
    for who, took in ms.items():
        off, limit = "", max((read + 2 * rounded.numel()) / copy_rate, work / dense_rate) * 1e3
        if who in results:
            results[who].fill_(0 if results[who] is main else float("nan"))
            calls[who]()
            difference = worst(results[who], wanted)
            off, wrong = f"{difference:.1e}", wrong + (not difference < 0.02)
            if results[who] is main:
                limit = max((read + 8 * main.numel()) / copy_rate, work / dense_rate) * 1e3
        beside = f"{ms['DeepGEMM, added'] / took:.3f}" if "DeepGEMM, added" in ms else ""
        tell(who, shape, took, beside, limit, off)
    return wrong


if __name__ == "__main__":
    sys.exit(main(__doc__, measure))
