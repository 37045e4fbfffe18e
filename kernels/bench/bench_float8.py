"""Our grouped GEMM of fp8 beside DeepGEMM's and torch's, in one process on the same codes, call by call in turn.

    bash kernels/build.sh gemm
    PYTHONPATH=DEEPGEMM python3 kernels/bench/bench_float8.py [--runs N] [LABEL=LIBRARY.so ...] > float8.csv

DeepGEMM (commit 03d0be3, which compiles its kernels when they are called) takes part where `deep_gemm` is on the path; its scales are
ours: 128 numbers of a row, 128 x 128 of the weights. torch's _scaled_grouped_mm has one scale a row and one a column, which is less work.
`limit` is what the machine could do at most: bytes that must move over the device copy of this run, or operations over cuBLAS's fp8
product 8192^3 of this run. `difference` is from torch's bf16 product of the numbers that the codes stand for.
"""
import argparse
import importlib.util
import sys

import torch
from torch.nn.functional import grouped_mm

from bench_same_run import offsets, rounds, worst
from gemm_library import GemmLibrary

BLOCK = 128
SHAPES = [  # name, experts, rows, in, out, routing
    ("deepseek-v3 gate and up", 4, 32768, 7168, 4096, "equal"),
    ("deepseek-v3 down", 4, 32768, 2048, 7168, "equal"),
    ("deepseek-v3 gate and up", 32, 65536, 7168, 4096, "equal"),
    ("deepseek-v3 down", 32, 65536, 2048, 7168, "equal"),
    ("deepseek-v3 gate and up", 32, 65536, 7168, 4096, "zipf0.8"),
    ("deepseek-v3 gate and up", 32, 65536, 7168, 4096, "hot30%"),
    ("deepseek-v3 gate and up", 32, 8192, 7168, 4096, "equal"),
    ("deepseek-v3 down", 32, 8192, 2048, 7168, "equal"),
    ("mixtral gate and up", 8, 32768, 4096, 28672, "equal"),
    ("olmoe gate and up", 64, 65536, 2048, 2048, "equal"),
]


class Operands:
    """Codes and scales of one shape; `fresh` draws them anew."""

    def __init__(self, experts, rows, inner, out):
        code, scale = {"device": "cuda", "dtype": torch.float8_e4m3fn}, {"device": "cuda", "dtype": torch.float32}
        self.x, self.w = torch.empty(rows, inner, **code), torch.empty(experts, out, inner, **code)
        self.x_scale = torch.empty(rows, inner // BLOCK, **scale)
        self.w_scale = torch.empty(experts, out // BLOCK, inner // BLOCK, **scale)

    def fresh(self):
        self.x.copy_(torch.randn(self.x.shape, device="cuda", dtype=torch.bfloat16))
        for one in self.w:
            one.copy_(torch.randn(one.shape, device="cuda", dtype=torch.bfloat16))
        self.x_scale.uniform_(0.5, 1.5), self.w_scale.uniform_(0.5, 1.5)

    def product(self, offset):
        """In bf16, of codes times scales."""
        x = (self.x.float().view(*self.x_scale.shape, BLOCK) * self.x_scale[..., None]).view(self.x.shape).bfloat16()
        w = torch.stack([(one.float() * scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)).bfloat16()
                         for one, scale in zip(self.w, self.w_scale)])
        return grouped_mm(x, w.transpose(1, 2), offs=offset[1:])


class DeepGemm:
    """DeepGEMM's call. It needs groups of whole 128 rows, and the scales of x column by column: they are turned outside of the time."""

    @staticmethod
    def takes(offset):
        return importlib.util.find_spec("deep_gemm") is not None and not (offset.diff() % BLOCK).any()

    def __init__(self, operands, offset, result):
        counts = offset.diff()
        self.operands, self.result = operands, result
        self.expert = torch.repeat_interleave(torch.arange(len(counts), dtype=torch.int32, device="cuda"), counts)

    def turn_scales(self):
        import deep_gemm
        self.call = deep_gemm.m_grouped_gemm_fp8_fp8_bf16_nt_contiguous
        self.x_scale = deep_gemm.get_col_major_tma_aligned_tensor(self.operands.x_scale)

    def __call__(self):
        self.call((self.operands.x, self.x_scale), (self.operands.w, self.operands.w_scale), self.result, self.expert)


def tell(who, shape, took, beside, limit, off):
    """A row of the table. took, limit: milliseconds."""
    name, experts, rows, inner, out, routing = shape
    print(f"\"{who}\",{name},{routing},{experts},{rows},{inner},{out},{took:.4f},{1e-9 * 2 * rows * inner * out / took:.1f},{beside},"
          f"{limit / took:.3f},{off}", flush=True)


def measure(shape, libraries, runs, copy_rate, dense_rate):
    """Prints a row a contender; returns how many results were wrong."""
    _, experts, rows, inner, out, routing = shape
    operands, offset = Operands(experts, rows, inner, out), offsets(experts, rows, routing)
    result = torch.empty(rows, out, device="cuda", dtype=torch.bfloat16)
    row, column = torch.rand(rows, device="cuda") + 0.5, torch.rand(experts, out, device="cuda") + 0.5
    calls = {label: lambda library=library: library.float8(operands.x, operands.x_scale, operands.w, operands.w_scale, offset, result)
             for label, library in libraries.items()}
    if DeepGemm.takes(offset):
        calls["DeepGEMM"] = DeepGemm(operands, offset, result)
    calls["torch, a scale a row"] = lambda: torch._scaled_grouped_mm(
        operands.x, operands.w.transpose(1, 2), row, column, offs=offset[1:], out_dtype=torch.bfloat16, use_fast_accum=True)

    def fresh():
        operands.fresh()
        if "DeepGEMM" in calls:
            calls["DeepGEMM"].turn_scales()

    ms = rounds(fresh, calls, runs)
    wanted, wrong = operands.product(offset), 0
    work, moved = 2 * rows * inner * out, operands.x.numel() + operands.w.numel() + 2 * result.numel()
    limit = max(moved / copy_rate, work / dense_rate) * 1e3
    for who, took in ms.items():
        off = ""
        if not who.startswith("torch"):  # whose scales are others
            result.fill_(float("nan"))
            calls[who]()
            difference = worst(result, wanted)
            off, wrong = f"{difference:.1e}", wrong + (not difference < 0.02)
        beside = f"{ms['DeepGEMM'] / took:.3f}" if "DeepGEMM" in ms else ""
        tell(who, shape, took, beside, limit, off)
    return wrong


def ceilings():
    """Bytes a second of a device copy, operations a second of cuBLAS in fp8."""
    side = 8192
    a, b = [torch.empty(side, side, device="cuda", dtype=torch.float8_e4m3fn) for _ in range(2)]
    big, copy = [torch.empty(8 * side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    one = torch.ones((), device="cuda")

    def fresh():
        for codes in (a, b):
            codes.copy_(torch.randn(side, side, device="cuda", dtype=torch.bfloat16))

    big.normal_()
    ms = rounds(fresh, {"dense": lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True),
                        "copy": lambda: copy.copy_(big)}, 9)
    rates = 2 * big.numel() * 2 / ms["copy"] * 1e3, 2 * side ** 3 / ms["dense"] * 1e3
    print(f"device copy {rates[0] * 1e-9:.0f} GB/s, cuBLAS 8192^3 fp8 {rates[1] * 1e-12:.1f} TFLOP/s", file=sys.stderr)
    return rates


def main(description=__doc__, measure_one=measure):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="*", default=["ours=build/kernels/libspillway_gemm.so"], metavar="LABEL=LIBRARY.so")
    parser.add_argument("--runs", type=int, default=12)
    arguments = parser.parse_args()
    libraries = {label: GemmLibrary(path) for label, path in (text.split("=", 1) for text in arguments.library)}
    rates = ceilings()
    print("who,shape,routing,experts,rows,in,out,ms,TFLOP/s,of DeepGEMM,of the limit,difference")
    wrong = sum(measure_one(shape, libraries, arguments.runs, *rates) for shape in SHAPES)
    ceilings()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
