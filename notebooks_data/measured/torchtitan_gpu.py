#!/usr/bin/env python3
"""Makes torchtitan_h200.csv: stacks of `x + RoutedExperts(RMSNorm(x))` of torchtitan with its all-to-all dispatcher,
forward and backward, in two processes that share one GPU, and what PyTorch's caching allocator says of each step.
PYTHONPATH=<a checkout of torchtitan> python3 torchtitan_gpu.py TABLE.csv IDS.npz (needs torch, spmd_types, tyro, a GPU).

NCCL has no two ranks on one GPU: rows cross through the host's memory and gloo, which takes none of the GPU's. So
bytes are real, and no time is taken. IDS.npz holds `aux50` and `aux399` [layers, source ranks, tokens, top_k], the
choices of traces/data/training_aux_e64_slice.h5; rank r takes source ranks in order until it has its tokens.

Weights and their gradients are in bf16 and stay; scores are given. Nothing is emptied within a sequence."""
import gc
import os
import sys

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh

import torchtitan_cpu  # beside this file

if not hasattr(torch.compiler, "_is_non_strict_tracing"):  # newer than torch 2.11; nothing is traced here
    torch.compiler._is_non_strict_tracing = lambda: False

RANKS, LAYERS = 2, 4
# name, hidden, ffn, experts, top_k, tokens of a rank
SHAPES = [("olmoe", 2048, 1024, 64, 8, 4096), ("ds3-e64", 7168, 2048, 64, 8, 2048)]
SEQUENCE = ["balanced", "balanced", "aux50", "balanced", "aux399", "skewed", "hot1", "balanced", "aux50", "aux399"]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def choices_of(routing, layer, rank, shape, given):
    """[tokens, top_k]: recorded, or as torchtitan_cpu.py draws them, anew for every layer."""
    _, _, _, experts, top_k, tokens = shape
    if routing not in given:
        return torchtitan_cpu.choices(routing, RANKS, tokens, top_k, experts, 100 * layer + rank)
    ids = given[routing][layer % given[routing].shape[0]]
    sources = tokens // ids.shape[1]
    return torch.from_numpy(ids[rank * sources:(rank + 1) * sources].reshape(tokens, top_k).astype(numpy.int64))


def all_to_all(outputs, inputs, group=None):
    """Piece by piece through the host's memory: none of the GPU's is taken."""
    me = dist.get_rank(group)
    outputs[me].copy_(inputs[me])
    there = {r: torch.empty(t.shape, dtype=t.dtype) for r, t in enumerate(outputs) if r != me and t.numel()}
    work = [dist.isend(t.cpu(), r) for r, t in enumerate(inputs) if r != me and t.numel()]
    work += [dist.irecv(t, r) for r, t in there.items()]
    for w in work:
        w.wait()
    for r, t in there.items():
        outputs[r].copy_(t)


class Stack(torch.nn.Module):
    def __init__(self, shape, mesh):
        super().__init__()
        from torchtitan.models.common.moe import GroupedExperts, RoutedExperts
        from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher as Dispatcher
        _, hidden, ffn, experts, top_k, _ = shape
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(hidden) for _ in range(LAYERS))
        self.experts = torch.nn.ModuleList()
        for _ in range(LAYERS):
            inner = GroupedExperts.Config(dim=hidden, hidden_dim=ffn, num_experts=experts // RANKS)
            module = RoutedExperts(RoutedExperts.Config(
                inner_experts=inner, token_dispatcher=Dispatcher.Config(num_experts=experts, top_k=top_k)))
            module.token_dispatcher.wire_meshes(ep_mesh=mesh)
            self.experts.append(module.to(torch.bfloat16))
        self.to(device=DEVICE, dtype=torch.bfloat16)
        for p in self.parameters():
            torch.nn.init.normal_(p, 0.0, 0.02)
            p.grad = torch.zeros_like(p)

    def forward(self, x, scores, ids, counts):
        for norm, experts, s, i, c in zip(self.norms, self.experts, scores, ids, counts):
            x = x + experts(norm(x), s, i, c)
        return x


def figures():
    if DEVICE == "cpu":
        return dict.fromkeys(("requested", "requested_peak", "allocated", "allocated_peak", "reserved_peak"), 0)
    stats = torch.cuda.memory_stats()
    return dict(requested=stats["requested_bytes.all.current"], requested_peak=stats["requested_bytes.all.peak"],
                allocated=stats["allocated_bytes.all.current"], allocated_peak=stats["allocated_bytes.all.peak"],
                reserved_peak=stats["reserved_bytes.all.peak"])


def step(stack, shape, routing, rank, x, d_output, scores, given):
    name, hidden, ffn, experts, top_k, tokens = shape
    ids = [choices_of(routing, layer, rank, shape, given) for layer in range(LAYERS)]
    counts = [torch.bincount(i.reshape(-1), minlength=experts).to(DEVICE) for i in ids]
    ids = [i.to(DEVICE) for i in ids]
    rows = []
    hooks = [e.inner_experts.register_forward_pre_hook(lambda _, g: rows.append(int(g[1].sum()))) for e in stack.experts]
    x.grad = None
    for s in scores:
        s.grad = None
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = figures()
    out = stack(x, scores, ids, counts)
    after = figures()
    out.backward(d_output)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    peak = figures()
    for hook in hooks:
        hook.remove()
    return dict(model=name, hidden=hidden, ffn=ffn, experts=experts, top_k=top_k, layers=LAYERS, gpus=RANKS,
                tokens_per_rank=tokens, routing=routing, rank=rank, rows_received_per_layer=";".join(map(str, rows)),
                requested_before_bytes=before["requested"], requested_after_forward_bytes=after["requested"],
                requested_peak_bytes=peak["requested_peak"], allocated_before_bytes=before["allocated"],
                allocated_peak_bytes=peak["allocated_peak"], reserved_peak_bytes=peak["reserved_peak"])


def work(rank, shape, settings, path, ids_path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29633", GLOO_SOCKET_IFNAME="lo")
    from torchtitan.distributed.spmd_types import set_current_spmd_mesh
    given = numpy.load(ids_path)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    dist.all_to_all = all_to_all
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("ep",))
    torch.manual_seed(rank)
    stack = Stack(shape, mesh)
    tokens, hidden, top_k = shape[5], shape[1], shape[4]
    x = torch.randn(tokens, hidden, device=DEVICE).to(torch.bfloat16).requires_grad_()
    d_output = torch.randn(tokens, hidden, device=DEVICE).to(torch.bfloat16)
    scores = [torch.rand(tokens, top_k, device=DEVICE, requires_grad=True) for _ in range(LAYERS)]
    with set_current_spmd_mesh(mesh):
        rows = [dict(allocator=settings, sequence_step=number,
                     **step(stack, shape, routing, rank, x, d_output, scores, given))
                for number, routing in enumerate(SEQUENCE)]
    torchtitan_cpu.write(path, RANKS, rank, rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    if os.path.exists(sys.argv[1]):
        sys.exit(f"{sys.argv[1]} exists already: give the name of a new file")
    for one in SHAPES:
        for conf in ("", "expandable_segments:True"):
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = conf  # read by a process when it begins
            mp.spawn(work, (one, conf, sys.argv[1], sys.argv[2]), nprocs=RANKS)
