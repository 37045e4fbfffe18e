"""torch's grouped_mm on the shapes of spillway-bench-kernels, printed as it prints: medians over fresh inputs by CUDA events.

    python3 kernels/bench/bench_torch.py [--compare BENCH.csv]     BENCH.csv: output of spillway-bench-kernels in the same run

With --compare a last table gives, for each shape and operation, our better and worse weight layout over torch's.
"""
import argparse
import csv
import statistics

import torch
from torch.nn.functional import grouped_mm

RUNS = 7
SHAPES = [  # name, experts, rows, in, out, routing: as in bench_gemm.c
    ("deepseek-v3 gate and up", 32, 65536, 7168, 4096, "uniform"),
    ("deepseek-v3 gate and up", 32, 65536, 7168, 4096, "zipf0.8"),
    ("deepseek-v3 down", 32, 65536, 2048, 7168, "uniform"),
    ("deepseek-v3 down", 32, 65536, 2048, 7168, "zipf0.8"),
    ("mixtral gate and up", 8, 32768, 4096, 28672, "uniform"),
    ("olmoe gate and up", 64, 65536, 2048, 2048, "uniform"),
    ("gpt-oss gate and up", 32, 32768, 2880, 5760, "uniform"),
    ("fine-grained 7B gate and up", 128, 65536, 2048, 1536, "zipf0.8"),
]


def offsets(experts, rows, routing):
    chance = torch.ones(experts) if routing == "uniform" else torch.arange(1, experts + 1).float() ** -0.8
    draw = torch.multinomial(chance, rows, replacement=True, generator=torch.Generator().manual_seed(5))
    return torch.bincount(draw, minlength=experts).cumsum(0).to(torch.int32).cuda()


def median_ms(fresh, work):
    times = []
    for run in range(RUNS + 1):
        fresh()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        stop.record()
        stop.synchronize()
        if run:
            times.append(start.elapsed_time(stop))
    return statistics.median(times)


def measure():
    device = {"device": "cuda", "dtype": torch.bfloat16}
    for name, experts, rows, inner, out, routing in SHAPES:
        offs = offsets(experts, rows, routing)
        x, dy = torch.empty(rows, inner, **device), torch.empty(rows, out, **device)
        linear = torch.empty(experts, out, inner, **device)  # [out][in]
        plain = torch.empty(experts, inner, out, **device)  # [in][out]

        def both(*arrays):
            return lambda: [a.normal_() for a in arrays]

        work = {
            ("forward", "[out][in]"): (both(x, linear), lambda: grouped_mm(x, linear.transpose(1, 2), offs=offs)),
            ("forward", "[in][out]"): (both(x, plain), lambda: grouped_mm(x, plain, offs=offs)),
            ("input gradient", "[out][in]"): (both(dy, linear), lambda: grouped_mm(dy, linear, offs=offs)),
            ("input gradient", "[in][out]"): (both(dy, plain), lambda: grouped_mm(dy, plain.transpose(1, 2), offs=offs)),
            ("weight gradient", "[out][in]"): (both(x, dy), lambda: grouped_mm(dy.t(), x, offs=offs)),
            ("weight gradient", "[in][out]"): (both(x, dy), lambda: grouped_mm(x.t(), dy, offs=offs)),
        }
        for (operation, layout), (fresh, call) in work.items():
            ms = median_ms(fresh, call)
            yield {"who": "torch", "what": f"{operation} {layout}", "shape": name, "routing": routing, "experts": experts,
                   "rows": rows, "in": inner, "out": out, "ms": f"{ms:.4f}",
                   "rate": f"{2e-9 * rows * inner * out / ms:.1f}", "unit": "TFLOP/s"}
        del x, dy, linear, plain


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", metavar="BENCH.csv")
    arguments = parser.parse_args()
    ours = {}
    if arguments.compare:
        with open(arguments.compare, encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if row["unit"] == "TFLOP/s" and row["who"] not in ("cublas", "naive", "tiled"):
                    ours.setdefault((row["shape"], row["routing"]), {})[row["what"]] = float(row["rate"])
    theirs = {}
    print("who,what,shape,routing,experts,rows,in,out,ms,rate,unit")
    for row in measure():
        print(",".join(str(v) for v in row.values()), flush=True)
        theirs.setdefault((row["shape"], row["routing"]), {})[row["what"]] = float(row["rate"])
    for key, rates in theirs.items() if ours else ():
        for operation in ("forward", "input gradient", "weight gradient"):
            mine = [ours[key][f"{operation} {layout}"] for layout in ("[out][in]", "[in][out]")]
            torch_rates = [rates[f"{operation} {layout}"] for layout in ("[out][in]", "[in][out]")]
            print(f"{key[0]:28} {key[1]:8} {operation:16} ours {mine[0]:6.1f} {mine[1]:6.1f}  torch {torch_rates[0]:6.1f} "
                  f"{torch_rates[1]:6.1f}  ratio {mine[0] / torch_rates[0]:.3f} {mine[1] / torch_rates[1]:.3f}")


if __name__ == "__main__":
    main()
