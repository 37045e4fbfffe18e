#!/usr/bin/env python3
"""Makes rows of torchtitan_steps.csv: whole steps of torchtitan's Qwen3 blocks with its all-to-all dispatcher, under FSDP2 and its
CrossEntropyLoss, and what PyTorch's allocator and the device say of them.
PYTHONPATH=<a checkout of torchtitan> torchrun --nproc-per-node 2 torchtitan_steps.py TABLE.csv NAME key=value ...
(needs torch, spmd_types, tyro, GPUs; one launch a case, as what lies outside of the allocator adds up over process groups).

FSDP2 wraps what torchtitan's apply_fsdp_to_decoder does, with the experts a unit of their own, since torch 2.11 has no mesh by parameter.
PyTorch's flash attention stands in for flex attention, all tokens one sequence. Experts are chosen as `routing` says (whole_routing.py), anew
for every step and micro-batch. limit: bytes that the allocator may reserve; a rank that runs out says where, in the row that it writes."""
import csv
import functools
import gc
import os
import sys
import time
import types
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.attention import SDPBackend, sdpa_kernel

if not hasattr(fsdp, "DataParallelMeshDims"):  # newer than torch 2.11, and not used here
    fsdp.DataParallelMeshDims = object
if not hasattr(torch.compiler, "_is_non_strict_tracing"):
    torch.compiler._is_non_strict_tracing = lambda: False

import torchtitan.distributed.spmd_types as spmd_types  # noqa: E402
import torchtitan.models.qwen3 as qwen3  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: E402
from torchtitan.models.common.moe import GroupedExperts  # noqa: E402
from torchtitan.models.common.rope import CosSinRoPE  # noqa: E402
from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher  # noqa: E402
from torchtitan.protocols.module import Module, ModuleDict  # noqa: E402

from whole_routing import choices  # noqa: E402

DEFAULTS = dict(layers=6, hidden=2048, heads=32, kv_heads=4, head_dim=128, experts=64, top_k=8, ffn=768, vocabulary=32768, tokens=8192,
                expert=2, remat="full", steps=6, micro_batches=1, routing="even", limit=0)
NOW = dict(step=0, micro_batch=0, part="begin")
FOUND = ["requested_bytes", "reserved_bytes", "behind_forward_bytes", "outside_bytes", "in_use_bytes", "step_s", "outcome", "rank", "death_step",
         "death_micro_batch", "death_in"]


@functools.lru_cache(maxsize=8)
def chosen(routing, step, micro_batch, rank, tokens, top_k, experts, world):
    ids = choices(routing, step, micro_batch, 0, rank, tokens, top_k, experts, world)
    return torch.from_numpy(ids.astype("int64")).cuda()


def route_by(c):
    """In place of torchtitan's even choice; the same in the pass that runs again."""
    def routing(router, scores):
        ids = chosen(c["routing"], NOW["step"], NOW["micro_batch"], dist.get_rank(), scores.shape[0], c["top_k"], c["experts"], dist.get_world_size())
        return ids, scores.gather(dim=-1, index=ids)
    return routing
spmd_types._MESH_TLS = types.SimpleNamespace()  # a checkpoint runs again in a thread of autograd


class Attention(Module):
    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        pass

    def __init__(self, config):
        super().__init__()

    def forward(self, q, k, v, *, scale=None, enable_gqa=False, **_):
        q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa)
        return out.squeeze(0).transpose(0, 1)


class Decoder(torch.nn.Module):
    def __init__(self, c, mesh):
        super().__init__()
        qwen3.get_attention_config = lambda _: Attention.Config()
        layers = qwen3._build_qwen3_moe_layers(
            n_layers=c["layers"], dim=c["hidden"], n_heads=c["heads"], n_kv_heads=c["kv_heads"], head_dim=c["head_dim"],
            moe_hidden_dim=c["ffn"], num_experts=c["experts"], top_k=c["top_k"], attn_backend="", moe_comm_backend="standard",
            rope=CosSinRoPE.Config(dim=c["head_dim"], max_context_length=4096))
        self.tok_embeddings = torch.nn.Embedding(c["vocabulary"], c["hidden"])
        self.layers = ModuleDict({str(i): layer.build() for i, layer in enumerate(layers)})
        self.norm = torch.nn.RMSNorm(c["hidden"], eps=1e-6)
        self.lm_head = torch.nn.Linear(c["hidden"], c["vocabulary"], bias=False)
        for layer in self.layers.values():
            routed, layer.moe.router._debug_force_load_balance = layer.moe.routed_experts, True
            if c["routing"] != "even":
                layer.moe.router._debug_force_load_balance_routing = types.MethodType(route_by(c), layer.moe.router)
            routed.inner_experts = GroupedExperts.Config(dim=c["hidden"], hidden_dim=c["ffn"],
                                                         num_experts=c["experts"] // c["expert"]).build()
            routed.inner_experts.num_experts = c["experts"]
            routed.token_dispatcher = AllToAllTokenDispatcher.Config(num_experts=c["experts"], top_k=c["top_k"]).build()
            routed.token_dispatcher.wire_meshes(ep_mesh=mesh)

    def forward(self, ids, positions):
        x = self.tok_embeddings(ids)
        for layer in self.layers.values():
            x = layer(x, None, positions)
        return self.lm_head(self.norm(x))


def wrap(model, mesh, alone):
    """alone: a mesh of this rank, for the experts that no other has; None: without expert parallelism."""
    said = dict(mp_policy=fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False))
    fsdp.fully_shard(model.tok_embeddings, mesh=mesh, reshard_after_forward=True, **said)
    fsdp.fully_shard([model.norm, model.lm_head], mesh=mesh, reshard_after_forward=False, **said)
    units = []
    for block in model.layers.values():
        inner = [block.moe.routed_experts.inner_experts] if alone else []
        for experts in inner:
            fsdp.fully_shard(experts, mesh=alone, reshard_after_forward=True, **said)
        fsdp.fully_shard(block, mesh=mesh, reshard_after_forward=True, **said)
        units.append([block, *inner])
    fsdp.fully_shard(model, mesh=mesh, **said)
    if not alone:
        return
    model.tok_embeddings.set_modules_to_forward_prefetch(units[0])
    model.lm_head.set_modules_to_backward_prefetch(units[-1])
    for first, second in zip(units, units[1:]):
        first[0].set_modules_to_forward_prefetch(second)
        second[0].set_modules_to_backward_prefetch(first)
    units[-1][0].set_modules_to_forward_prefetch([model.lm_head])
    units[0][0].set_modules_to_backward_prefetch([model.tok_embeddings])


def built(c, groups):
    with torch.device("meta"):
        model = Decoder(c, groups["expert"])
    if c["remat"] != "none":
        (FullAC if c["remat"] == "full" else SelectiveAC).Config().build().apply(model)
    wrap(model, groups["all"], groups["alone"])
    model.to_empty(device="cuda")
    with torch.no_grad():
        for p in model.parameters():
            p.to_local().normal_(0.0, 0.02)
    for module in model.modules():
        if hasattr(module, "_init_self_buffers"):
            module._init_self_buffers(buffer_device=torch.device("cuda"))
    return model


def run(c, groups):
    model = built(c, groups)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    loss_of = CrossEntropyLoss.Config(global_vocab_size=c["vocabulary"]).build()
    ids, labels = (torch.randint(0, c["vocabulary"], (c["tokens"],), device="cuda") for _ in range(2))
    positions, valid = torch.arange(c["tokens"], device="cuda") % 4096, torch.tensor(float(c["tokens"]), device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    seconds = []
    for step in range(c["steps"]):
        torch.cuda.synchronize()
        if step == c["steps"] - 2:
            torch.cuda.reset_peak_memory_stats()
        begun = time.perf_counter()
        for micro_batch in range(c["micro_batches"]):
            NOW.update(step=step, micro_batch=micro_batch, part="forward")
            logits = model(ids, positions)
            loss, _ = loss_of(logits, labels, valid)
            del logits
            behind = torch.cuda.memory_stats()["requested_bytes.all.current"]
            NOW.update(part="backward")
            loss.backward()
        NOW.update(part="optimizer")
        norm = torch.nn.utils.get_total_norm([p.grad.to_local() for p in model.parameters()], foreach=True).float()
        for group in groups["norms"]:
            dist.all_reduce(norm, group=group)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach().clone())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    stats, (free, total) = torch.cuda.memory_stats(), torch.cuda.mem_get_info()
    reserved = stats["reserved_bytes.all.current"]
    return dict(requested_bytes=stats["requested_bytes.all.peak"], reserved_bytes=stats["reserved_bytes.all.peak"],
                behind_forward_bytes=behind, outside_bytes=total - free - reserved, in_use_bytes=total - free,
                step_s=sorted(seconds[2:])[len(seconds[2:]) // 2])


def main(path, name, said):
    while "GO" in os.environ and not os.path.exists(os.environ["GO"]):  # imports are done, and another case has the GPUs
        time.sleep(0.05)
    c = {k: type(DEFAULTS[k])(said.get(k, v)) for k, v in DEFAULTS.items()}
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    torch.manual_seed(rank)
    dist.init_process_group("nccl")
    if c["limit"]:
        torch.cuda.set_per_process_memory_fraction(c["limit"] / torch.cuda.mem_get_info()[1])
    mesh_of = lambda group, name: DeviceMesh.from_group(group, "cuda", mesh_dim_names=(name,))  # noqa: E731
    everybody = dist.new_group(list(range(world)))
    groups = dict(all=mesh_of(everybody, "fsdp"), expert=None, alone=None, norms=[everybody])
    if c["expert"] > 1:
        experts, alone = dist.new_group(list(range(world))), [dist.new_group([r]) for r in range(world)]
        groups.update(expert=mesh_of(experts, "ep"), alone=mesh_of(alone[rank], "efsdp"), norms=[everybody, experts])
    found = dict(outcome="ran", rank=rank)
    with spmd_types.set_current_spmd_mesh(groups["expert"] or groups["all"]):
        try:
            found.update(run(c, groups))
        except torch.OutOfMemoryError:
            found.update(outcome="out_of_memory", death_step=NOW["step"], death_micro_batch=NOW["micro_batch"], death_in=NOW["part"])
    row = dict(case=name, gpu=torch.cuda.get_device_name(), gpus=world, **c, **{k: found.get(k, "") for k in FOUND})
    with open(f"{path}.{rank}", "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, row.keys(), lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)
    if found["outcome"] != "ran":  # the other rank waits for this one
        time.sleep(2)
        os._exit(3)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], dict(word.split("=", 1) for word in sys.argv[3:]))
