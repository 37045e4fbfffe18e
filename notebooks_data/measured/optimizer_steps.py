#!/usr/bin/env python3
"""What an optimizer's step takes on one GPU and its host: orthogonalising a momentum as Muon does (five quintic Newton-Schulz
iterations on bf16 operands, PyTorch's own operations, one matrix after the other), and Adam in fp32 in the host's memory
between a copy of gradients to it and one of weights back.

optimizer_steps.py OUT.csv"""
import os
import statistics
import sys
import time

import torch

QUINTIC = ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
           (2.8366, -3.0525, 1.2012))
rows = []


def orthogonal(momentum):
    tall = momentum.size(0) > momentum.size(1)
    x = torch.nn.functional.normalize(momentum.mT if tall else momentum, dim=(-2, -1), eps=1e-7).bfloat16()
    for a, b, c in QUINTIC:
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.float()
    return x.mT if tall else x


def seconds(work, repeats=7):
    work()
    torch.cuda.synchronize()
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def note(what, m, n, count, threads, value):
    rows.append((what, m, n, count, threads, f"{value:.6g}"))
    print(*rows[-1], flush=True)


def muon():
    for m, n, count in ((36864, 7168, 1), (16384, 7168, 2), (4096, 7168, 16), (7168, 2048, 16), (24576, 1536, 4), (2048, 2048, 64),
                        (2048, 1024, 64), (4096, 2048, 32), (1536, 2048, 64), (256, 7168, 16), (768, 768, 64), (768, 384, 64)):
        gradients, momenta, masters = ([torch.randn(m, n, device="cuda") for _ in range(count)] for _ in range(3))
        weights = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(count)]

        def products():
            for momentum in momenta:
                orthogonal(momentum)

        def step():
            for g, v, p in zip(gradients, momenta, masters):
                v.lerp_(g, 0.05)
                p.mul_(1 - 1e-6)
                p.add_(orthogonal(v) * 0.2, alpha=-1e-4)
            for w, p in zip(weights, masters):
                w.copy_(p)

        with torch.no_grad():
            note("newton_schulz", m, n, count, 0, seconds(products))
            note("muon_step", m, n, count, 0, seconds(step))
        del gradients, momenta, masters, weights


def host():
    for threads in sorted({os.cpu_count(), max(1, os.cpu_count() // 2), max(1, os.cpu_count() // 4)}):
        torch.set_num_threads(threads)
        for m, n, count in ((4096, 7168, 8), (2048, 1024, 64), (1, 1 << 28, 1)):
            masters = [torch.randn(m, n).pin_memory() for _ in range(count)]
            for p in masters:
                p.grad = torch.randn(m, n).pin_memory()
            optimizer = torch.optim.AdamW(masters, fused=True)
            note("host_adam", m, n, count, threads, seconds(optimizer.step, 5))
            on_gpu = [torch.zeros(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
            gradients = [torch.zeros(m, n, device="cuda") for _ in range(count)]

            def back():
                for w, p in zip(on_gpu, masters):
                    w.data.copy_(p.data, non_blocking=True)

            def there():
                for g, p in zip(gradients, masters):
                    p.grad.copy_(g, non_blocking=True)

            note("weights_back", m, n, count, threads, seconds(back, 5))
            note("gradients_there", m, n, count, threads, seconds(there, 5))
            del masters, on_gpu, gradients, optimizer


muon()
host()
with open(sys.argv[1], "w") as out:
    print("measurement,rows,columns,count,threads,seconds", file=out)
    for row in rows:
        print(*row, sep=",", file=out)
print(torch.cuda.get_device_name(), torch.__version__, os.cpu_count(), "cores")
