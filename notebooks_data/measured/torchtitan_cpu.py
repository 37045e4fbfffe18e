#!/usr/bin/env python3
"""Makes torchtitan_cpu.csv: torchtitan's RoutedExperts with its all-to-all dispatcher, forward and backward, in 2
and 8 processes of one CPU (gloo), and every allocation of PyTorch's CPU allocator in between, as its profiler reports
them. PYTHONPATH=<a checkout of torchtitan> python3 torchtitan_cpu.py TABLE.csv (needs torch, spmd_types, tyro).
Weights and their gradients, the layer's input, the gradient of its output, given scores and ids are not counted."""
import csv
import gc
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.autograd.graph import get_gradient_edge
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

# name, hidden, ffn, experts, top_k, tokens of a rank
SHAPES = [("olmoe-eighth", 264, 136, 64, 8, 509), ("wide-experts", 264, 696, 32, 4, 509), ("odd", 104, 72, 6, 3, 333)]
RUNS = [(2, SHAPES), (8, SHAPES[:1])]  # processes, shapes
ROUTINGS = ["balanced", "skewed", "hot1"]


def choices(routing, ranks, tokens, top_k, experts, seed):
    """[tokens, top_k]. balanced: choice j of token t is expert (t + j (E div K)) mod E. skewed: K experts are drawn
    without replacement, expert x with weight 1 / (1 + x). hot1: choice j of token t is expert (t + j) mod (E / ranks),
    all on rank 0."""
    t, j = torch.arange(tokens).view(-1, 1), torch.arange(top_k).view(1, -1)
    if routing == "balanced":
        return (t + j * (experts // top_k)) % experts
    if routing == "hot1":
        return (t + j) % (experts // ranks)
    weights = 1.0 / (1.0 + torch.arange(experts, dtype=torch.float64))
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(weights.expand(tokens, experts), top_k, generator=generator)


def all_to_all(outputs, inputs, group=None):
    """Gloo's own refuses pieces of different sizes. These are the same, one by one, with no memory of their own."""
    me = dist.get_rank(group)
    outputs[me].copy_(inputs[me])
    work = [dist.isend(t, r) for r, t in enumerate(inputs) if r != me and t.numel()]
    work += [dist.irecv(t, r) for r, t in enumerate(outputs) if r != me and t.numel()]
    for w in work:
        w.wait()


def allocations(prof, ignored):
    """Bytes allocated (positive) and freed, in order."""
    found, open_events = [], list(prof.profiler.kineto_results.experimental_event_tree())
    while open_events:
        event = open_events.pop()
        open_events += event.children
        if event.tag == torch._C._profiler._EventType.Allocation and abs(event.extra_fields.alloc_size) not in ignored:
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
    return [size for _, size in sorted(found, key=lambda f: f[0])]


def watched(call, ignored):
    """What the call returns, the most bytes that lived in it, and those that it left."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        result = call()
    now = most = 0
    for size in allocations(prof, ignored):
        now += size
        most = max(most, now)
    return result, most, now


def run(ranks, rank, shape, routing, remat, mesh):
    from torchtitan.distributed.spmd_types import set_current_spmd_mesh
    from torchtitan.models.common.moe import GroupedExperts, RoutedExperts
    from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher as Dispatcher
    name, hidden, ffn, experts, top_k, tokens = shape
    local = experts // ranks
    config = RoutedExperts.Config(inner_experts=GroupedExperts.Config(dim=hidden, hidden_dim=ffn, num_experts=local),
                                  token_dispatcher=Dispatcher.Config(num_experts=experts, top_k=top_k))
    module = RoutedExperts(config).to(torch.bfloat16)
    for p in module.parameters():
        torch.nn.init.normal_(p, 0.0, 0.02)
    module.token_dispatcher.wire_meshes(ep_mesh=mesh)
    ids = choices(routing, ranks, tokens, top_k, experts, 100 + rank)
    counts = torch.bincount(ids.reshape(-1), minlength=experts)
    scores = torch.rand(tokens, top_k, requires_grad=True)
    x = torch.randn(tokens, hidden).to(torch.bfloat16).requires_grad_()
    d_output = torch.randn(tokens, hidden).to(torch.bfloat16)
    seen = {}
    module.inner_experts.register_forward_pre_hook(lambda _, given: seen.update(rows=given[1].tolist()))

    def forward():
        given = x, scores, ids, counts
        out = checkpoint(module, *given, use_reentrant=False, preserve_rng_state=False) if remat else module(*given)
        return get_gradient_edge(out)

    ignored = {2 * local * ffn * hidden}  # gradients of the weights
    with set_current_spmd_mesh(mesh):
        for _ in range(2):  # the first has what is set up once
            gc.collect()
            for p in [x, scores, *module.parameters()]:
                p.grad = None
            edge, forward_most, kept = watched(forward, ignored)
            _, backward_most, left = watched(lambda: torch.autograd.backward((edge,), (d_output,)), ignored)
    per_expert = seen["rows"]
    return dict(shape=name, hidden=hidden, ffn=ffn, experts=experts, top_k=top_k, gpus=ranks, tokens_per_rank=tokens,
                routing=routing, remat="full" if remat else "none", rank=rank, rows_sent=tokens * top_k,
                rows_received=sum(per_expert), rows_per_expert=";".join(map(str, per_expert)), kept_bytes=kept,
                peak_forward_bytes=forward_most,
                peak_bytes=max(forward_most, kept + backward_most), left_bytes=kept + left)


def write(path, ranks, rank, rows):
    """Rows of all ranks behind those that the table has, row by row rank by rank."""
    gathered = [None] * ranks
    dist.all_gather_object(gathered, rows)
    if rank != 0:
        return
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerows(row for pair in zip(*gathered) for row in pair)


def work(rank, ranks, shapes, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29631", GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    dist.all_to_all = all_to_all
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("ep",))
    rows = [run(ranks, rank, shape, routing, remat, mesh)
            for shape in shapes for routing in ROUTINGS for remat in (False, True)]
    write(path, ranks, rank, rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    if os.path.exists(sys.argv[1]):
        sys.exit(f"{sys.argv[1]} exists already: give the name of a new file")
    for processes, run_shapes in RUNS:
        mp.spawn(work, (processes, run_shapes, sys.argv[1]), nprocs=processes)
