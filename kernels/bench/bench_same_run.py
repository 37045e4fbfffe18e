"""Our grouped GEMMs and torch's grouped_mm in one process, on the same arrays and offsets, call by call in turn: clocks and power are the same
for both, which they are not from one process to the next.

    bash kernels/build.sh gemm
    python3 kernels/bench/bench_same_run.py [--only shapes,skew,few,fused] [LABEL=LIBRARY.so ...] > same_run.csv

A row is the median of --runs calls over fresh random numbers, by CUDA events; the order of the contenders rotates. `limit` is what the
machine could do at most: bytes that must move over the device copy of this run, or operations over cuBLAS 8192^3 of this run.
"""
import argparse
import statistics
import sys

import torch
from torch.nn.functional import grouped_mm, silu

from bench_torch import SHAPES
from gemm_library import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, GemmLibrary

OPERATIONS = ("forward", "input gradient", "weight gradient")
LAYOUTS = ("[in][out]", "[out][in]")
SKEW = [("deepseek-v3 gate and up", 32, 65536, 7168, 4096, r)
        for r in ("uniform", "zipf0.4", "zipf0.8", "zipf1.2", "hot10%", "hot30%", "hot50%")]
FEW = [(f"{rows} rows an expert", 32, 32 * rows, inner, out, "equal")
       for inner, out in ((7168, 4096), (2048, 7168), (2048, 2048)) for rows in (16, 64, 128, 256)]


def offsets(experts, rows, routing):
    """Row offsets of a routing: zipfS popularity, or one hot expert with a share of all rows; drawn but for `equal`."""
    if routing == "equal":
        return torch.arange(experts + 1, dtype=torch.int32, device="cuda") * (rows // experts)
    chance = torch.ones(experts, dtype=torch.float64)
    if routing.startswith("zipf"):
        chance = torch.arange(1, experts + 1, dtype=torch.float64) ** -float(routing[4:])
    elif routing.startswith("hot"):
        share = float(routing[3:-1]) / 100
        chance[experts // 2] = share / (1 - share) * (experts - 1)
    drawn = torch.multinomial(chance, rows, replacement=True, generator=torch.Generator().manual_seed(5))
    counts = torch.bincount(drawn, minlength=experts)
    return torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).to(torch.int32).cuda()


def rounds(fresh, calls, runs):
    """Median milliseconds of every call; a round calls each once, each on fresh numbers, the order rotating."""
    times = {name: [] for name in calls}
    names = list(calls)
    for run in range(runs + 1):
        for name in names[run % len(names):] + names[:run % len(names)]:
            fresh()
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            calls[name]()
            stop.record()
            stop.synchronize()
            if run:
                times[name].append(start.elapsed_time(stop))
    return {name: statistics.median(t) for name, t in times.items()}


def worst(ours, theirs):
    """Largest difference of two results over the largest number, to notice a wrong kernel; the judge is spillway-verify."""
    return ((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max()).item()


class Table:
    def __init__(self, runs, copy_rate, dense_rate):
        self.runs, self.copy_rate, self.dense_rate, self.wrong = runs, copy_rate, dense_rate, 0
        print("part,who,what,shape,routing,experts,rows,in,out,ms,TFLOP/s,of torch,of the limit,difference")

    def measure(self, part, shape, what, fresh, calls, results, moved):
        name, experts, rows, inner, out, routing = shape
        ms = rounds(fresh, calls, self.runs)
        fresh()
        for call in calls.values():
            call()
        work = 2 * rows * inner * out
        limit = max(moved / self.copy_rate, work / self.dense_rate) * 1e3
        for who, took in ms.items():
            off = worst(results[who](), results["torch"]()) if who != "torch" else 0.0
            self.wrong += not off < 0.02
            print(f"{part},{who},{what},{name},{routing},{experts},{rows},{inner},{out},{took:.4f},{1e-9 * work / took:.1f},"
                  f"{ms['torch'] / took:.3f},{limit / took:.3f},{off:.1e}", flush=True)


def products(table, part, shape, libraries, layouts):
    _, experts, rows, inner, out, routing = shape
    device = {"device": "cuda", "dtype": torch.bfloat16}
    offset = offsets(experts, rows, routing)
    x, dy = torch.empty(rows, inner, **device), torch.empty(rows, out, **device)
    weights = {False: torch.empty(experts, inner, out, **device)}
    weights[True] = weights[False].view(experts, out, inner)
    for transposed in layouts:
        w = weights[transposed]
        wide, tall = (w.transpose(1, 2), w) if transposed else (w, w.transpose(1, 2))
        for operation, what in enumerate(OPERATIONS):
            left, right = (x if operation != INPUT_GRADIENT else dy), (dy if operation == WEIGHT_GRADIENT else w)
            result = torch.empty(*((rows, out), (rows, inner), w.shape)[operation], **device)
            theirs = {
                FORWARD: lambda: grouped_mm(x, wide, offs=offset[1:]),
                INPUT_GRADIENT: lambda: grouped_mm(dy, tall, offs=offset[1:]),
                WEIGHT_GRADIENT: lambda: grouped_mm(dy.t(), x, offs=offset[1:]) if transposed else grouped_mm(x.t(), dy, offs=offset[1:]),
            }[operation]
            kept = {}

            def run_torch():
                kept["torch"] = theirs()

            calls, results = {"torch": run_torch}, {"torch": lambda: kept["torch"]}
            for label, library in libraries.items():
                calls[label] = lambda library=library: library.product(operation, left, right, offset, result, experts, inner, out, transposed)

                def mine(call=calls[label]):
                    result.fill_(float("nan"))
                    call()
                    return result
                results[label] = mine
            moved = 2 * (left.numel() + right.numel() + result.numel())
            table.measure(part, shape, f"{what} {LAYOUTS[transposed]}", lambda: (left.normal_(), right.normal_()), calls, results, moved)


def fused(table, shape, libraries):
    """Gate, up and their activation: fused, and as torch's product and activation one after the other."""
    _, experts, rows, inner, out, routing = shape
    device = {"device": "cuda", "dtype": torch.bfloat16}
    offset, half = offsets(experts, rows, routing), out // 2
    x, weights = torch.empty(rows, inner, **device), torch.empty(experts, inner, out, **device)
    act = torch.empty(rows, half, **device)
    for transposed in (False, True):
        w = weights.view(experts, out, inner) if transposed else weights
        wide = w.transpose(1, 2) if transposed else w
        kept = {}

        def run_torch():
            both = grouped_mm(x, wide, offs=offset[1:])
            kept["torch"] = silu(both[:, :half]).mul_(both[:, half:])

        calls, results = {"torch": run_torch}, {"torch": lambda: kept["torch"]}
        for label, library in libraries.items():
            calls[label] = lambda library=library: library.swiglu(x, w, offset, act, transposed)

            def mine(call=calls[label]):
                act.fill_(float("nan"))
                call()
                return act
            results[label] = mine
        moved = 2 * (x.numel() + w.numel() + act.numel())
        table.measure("fused", shape, f"forward and swiglu {LAYOUTS[transposed]}",
                      lambda: (x.normal_(), w.normal_(std=inner ** -0.5)), calls, results, moved)


def ceilings():
    """Bytes a second of a device copy, operations a second of cuBLAS."""
    side = 8192
    a, b, big, copy = [torch.empty(n, side, device="cuda", dtype=torch.bfloat16) for n in (side, side, 8 * side, 8 * side)]
    big.normal_()
    ms = rounds(lambda: (a.normal_(), b.normal_()), {"dense": lambda: a @ b.t(), "copy": lambda: copy.copy_(big)}, 9)
    rates = 2 * big.numel() * 2 / ms["copy"] * 1e3, 2 * side ** 3 / ms["dense"] * 1e3
    print(f"device copy {rates[0] * 1e-9:.0f} GB/s, cuBLAS 8192^3 bf16 {rates[1] * 1e-12:.1f} TFLOP/s", file=sys.stderr)
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="*", default=["ours=build/kernels/libspillway_gemm.so"], metavar="LABEL=LIBRARY.so")
    parser.add_argument("--only", default="shapes,skew,few,fused")
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    libraries = {label: GemmLibrary(path) for label, path in (text.split("=", 1) for text in arguments.library)}
    parts = arguments.only.split(",")
    table = Table(arguments.runs, *ceilings())
    for part, shapes, layouts in (("shapes", SHAPES, (False, True)), ("skew", SKEW, (True,)), ("few", FEW, (True,))):
        for shape in shapes if part in parts else ():
            products(table, part, shape, libraries, layouts)
    for shape in [s for s in SHAPES if "gate" in s[0]] if "fused" in parts else ():
        fused(table, shape, libraries)
    ceilings()
    return 1 if table.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
