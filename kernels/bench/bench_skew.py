"""What skewed routing costs single calls of PyTorch: grouped_mm with the same rows on fewer and fewer experts, on random
operands and on zeros, and torch.cat of chunks of different length. Clock and power are read halfway through each row.

    python3 kernels/bench/bench_skew.py OUTPUT.csv

Medians over the calls of a quarter of a second; needs torch and pynvml (nvidia-ml-py).
"""
import csv
import random
import sys
import time

import pynvml
import torch
from torch.nn.functional import grouped_mm

COLUMNS = ["call", "model", "rows", "experts", "kind", "operand", "longest", "ms", "value", "unit", "sm_mhz", "watt"]
SHAPES = {"ds3-e64": (7168, 2048), "dsv2lite": (2048, 1408), "olmoe": (2048, 1024), "gptoss": (2880, 2880)}
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)


def median_ms(call, seconds=0.25):
    """Median of the calls, and clock and power halfway through them."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    call()
    first.record()
    call()
    last.record()
    torch.cuda.synchronize()
    count = max(5, min(400, int(1e3 * seconds / max(first.elapsed_time(last), 0.01))))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    while not events[count // 2].query():
        time.sleep(1e-3)
    mhz = pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM)
    watt = pynvml.nvmlDeviceGetPowerUsage(device) / 1e3
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))
    return times[count // 2], mhz, round(watt)


def rows_of(kind, total, experts):
    """Rows by expert: all equal, Zipf 1 in random order, or all of them on N experts ("only N")."""
    if kind == "uniform":
        return [total // experts] * experts
    if kind == "zipf 1":
        share = [1 / (i + 1) for i in range(experts)]
        rows = [int(total * s / sum(share)) for s in share]
        rows[0] += total - sum(rows)
        random.Random(1).shuffle(rows)
        return rows
    few, rows = int(kind.split()[1]), [0] * experts
    for i in range(few):
        rows[i * experts // few] = total // few
    return rows


def products(out, model, total, experts, kind, operand):
    hidden, ffn = SHAPES[model]
    rows = rows_of(kind, total, experts)
    offsets = torch.tensor(rows).cumsum(0).to(torch.int32).cuda()

    def tensor(*shape):
        x = torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        return x.zero_() if operand == "zero" else x

    x, w, dy = tensor(total, hidden), tensor(experts, 2 * ffn, hidden) / 8, tensor(total, 2 * ffn)
    if operand == "half zero":
        x[::2], dy[::2] = 0, 0
    for name, call in (("fc1 forward", lambda: grouped_mm(x, w.transpose(-2, -1), offs=offsets)),
                       ("fc1 dgrad", lambda: grouped_mm(dy, w, offs=offsets)),
                       ("fc1 wgrad", lambda: grouped_mm(dy.transpose(-2, -1), x, offs=offsets))):
        ms, mhz, watt = median_ms(call)
        out.writerow([name, model, total, experts, kind, operand, max(rows), f"{ms:.5f}",
                      f"{4e-9 * total * hidden * ffn / ms:.1f}", "TFLOP/s", mhz, watt])


def concatenation(out, hidden, total, chunks, kind):
    sizes = rows_of(kind, total, chunks)
    x = torch.randn(sum(sizes), hidden, device="cuda", dtype=torch.bfloat16)
    parts = list(torch.split(x, sizes))
    random.Random(3).shuffle(parts)
    ms, mhz, watt = median_ms(lambda: torch.cat(parts), 0.06)
    out.writerow([f"cat, hidden {hidden}", "", total, chunks, kind, "random", max(sizes), f"{ms:.5f}",
                  f"{4e-6 * total * hidden / ms:.0f}", "GB/s", mhz, watt])


torch.manual_seed(0)
with open(sys.argv[1], "w", newline="") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    for model, total in (("ds3-e64", 65536), ("dsv2lite", 65536), ("olmoe", 32768), ("gptoss", 65536), ("ds3-e64", 16384)):
        for kind in ("uniform", "only 8", "only 4", "only 2", "only 1", "zipf 1", "uniform"):
            products(table, model, total, 16, kind, "random")
        for kind, operand in (("uniform", "zero"), ("only 4", "zero"), ("uniform", "half zero")):
            products(table, model, total, 16, kind, operand)
    for hidden in (7168, 2048):
        for chunks in (32, 64, 128, 256, 512):
            for total in (4096, 32768, 131072):
                for kind in ("uniform", f"only {chunks // 4}", "only 1", "zipf 1"):
                    concatenation(table, hidden, total, chunks, kind)
