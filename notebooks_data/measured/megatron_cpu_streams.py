#!/usr/bin/env python3
"""Makes megatron_cpu_streams.csv: what autograd holds of stacks of Megatron-Core's own HyperConnectionTransformerLayer (branch dev) on a CPU,
beside what attention and FFN keep themselves: after the forward pass, and when the recompute module mhc has made a group's tensors again.
python3 megatron_cpu_streams.py TABLE.csv, with torch 2.11 and a checkout of NVIDIA/Megatron-LM d48bd6be on PYTHONPATH. Stand-ins: attention
and FFN are one product each, norms keep what kernels of norms keep; `fused` is use_fused_mhc, whose kernel of the projection (cuTile) keeps
what its save_for_backward names; the storage that is made again is copied and not shared. torch.compile is off."""
import collections, contextlib, csv, os, sys, warnings, weakref
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29620", RANK="0", WORLD_SIZE="1", TORCHDYNAMO_DISABLE="1")
import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
torch.cuda.is_available = lambda: False
torch.cuda.current_device = lambda: "cpu"
torch.cuda.nvtx.range = lambda *a: contextlib.nullcontext()
dist.init_process_group("gloo")
from megatron.core import jit, parallel_state
jit.jit_fuser = lambda f: f
import megatron.core.tensor_parallel.random as again
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer import hyper_connection, transformer_layer
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlock
from megatron.core.transformer.transformer_config import TransformerConfig

parallel_state.initialize_model_parallel()
again._get_all_rng_states = lambda: ()
again._set_all_rng_states = lambda *a: None
again._fork_rng = contextlib.nullcontext


def restore(output, made):
    output.untyped_storage().resize_(made.untyped_storage().nbytes())
    output.untyped_storage().copy_(made.untyped_storage())


again._get_share_storage = lambda: restore


class Kept(torch.autograd.Function):
    """A part of one product, whose input is kept."""
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()
    @staticmethod
    def backward(ctx, grad): return grad


class Part(torch.nn.Module):
    def __init__(self, *args, **kwargs): super().__init__()
    def forward(self, x, *args, **kwargs): return Kept.apply(x), None


class Norm(torch.autograd.Function):
    """What kernels of norms keep: the input and 1 / rms."""
    @staticmethod
    def forward(ctx, x):
        rstd = torch.rsqrt(x.float().pow(2).mean(-1) + 1e-6)
        ctx.save_for_backward(x, rstd)
        return (x.float() * rstd[..., None]).to(x.dtype)
    @staticmethod
    def backward(ctx, grad): return grad


class RmsNorm(torch.nn.Module):
    def __init__(self, *args, **kwargs): super().__init__()
    def forward(self, x): return Norm.apply(x)


class Mapping(torch.autograd.Function):
    """CutileProjRmsComputeH: its output and what it saves, without its numbers."""
    @staticmethod
    def forward(ctx, x, weight, n):
        rows = x.shape[0]
        pre, post, res, r, proj = (torch.rand(rows, k) for k in (n, n, n * n, 1, n * n + 2 * n))
        ctx.save_for_backward(x, weight, pre, post, res, proj, r)
        return pre, post, res, r
    @staticmethod
    def backward(ctx, *grads):
        x, weight = ctx.saved_tensors[:2]
        return torch.zeros_like(x), torch.zeros_like(weight), None


def mapping(x, weight, pre, post, res, bias, n, eps, more): return Mapping.apply(x, weight, n)


class Saved:
    def __init__(self, tensor): self.tensor = tensor


def build(s):
    recompute = dict(recompute_granularity="selective", recompute_modules=["mhc"], mhc_recompute_layer_num=s["group"] or None) if s["mhc"] else {}
    config = TransformerConfig(num_layers=s["layers"], hidden_size=s["hidden"], num_attention_heads=4, use_cpu_initialization=True, bf16=True,
        params_dtype=torch.bfloat16, normalization="RMSNorm", enable_hyper_connections=True, num_residual_streams=s["streams"],
        mhc_sinkhorn_iterations=4, hidden_dropout=0.0, attention_dropout=0.0, add_bias_linear=False, **recompute)
    parts = transformer_layer.TransformerLayerSubmodules(input_layernorm=RmsNorm, self_attention=ModuleSpec(module=Part),
        pre_mlp_layernorm=RmsNorm, mlp=ModuleSpec(module=Part), self_attention_hyper_connection=ModuleSpec(module=hyper_connection.HyperConnectionModule),
        mlp_hyper_connection=ModuleSpec(module=hyper_connection.HyperConnectionModule))
    groups = ProcessGroupCollection.use_mpu_process_groups()
    layers = [transformer_layer.HyperConnectionTransformerLayer(config, parts, layer_number=k + 1, pg_collection=groups) for k in range(s["layers"])]
    for layer in layers:
        layer.train()
        for one in (layer.self_attention_hyper_connection, layer.mlp_hyper_connection):
            one._proj_rms_compute_h_op = mapping if s["fused"] else None
    return config, layers


def held(s):
    """What is kept after the forward pass, and behind the hook of the last group."""
    config, layers = build(s)
    alive, found = weakref.WeakSet(), {}
    plan, last = TransformerBlock._build_mhc_recompute_layer_plan(type("Block", (), dict(config=config, layers=layers))(), bool(s["mhc"]))
    own = {p.untyped_storage()._cdata for layer in layers for p in layer.parameters()}

    def pack(tensor):
        saved = Saved(tensor)
        alive.add(saved)
        return saved

    def look(when):
        tensors = {one.tensor.untyped_storage()._cdata: (str(one.tensor.dtype).removeprefix("torch."), one.tensor.untyped_storage().nbytes())
                   for one in alive}
        found[when] = collections.Counter(v for k, v in tensors.items() if k not in own and v[1] > 0)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        x = torch.randn(s["length"], s["sequences"], s["streams"] * s["hidden"], dtype=torch.bfloat16, requires_grad=True)
        out = x
        for layer, manager, end in zip(layers, plan, last):
            if manager is not None: manager.is_last_layer_in_recompute_block = end
            out, _ = layer(hidden_states=out, attention_mask=None, mhc_recompute_manager=manager)
            TransformerBlock._finalize_mhc_recompute_layer(manager, out, end)
        look("forward")
        out.register_hook(lambda grad: look("backward"))
        out.backward(torch.ones_like(out))
    return found


SIZES = [dict(sequences=1, length=64, hidden=128, streams=n, layers=layers, fused=fused, mhc=int(group is not None), group=group or 0)
         for n in (2, 4) for fused in (0, 1) for layers, group in ((1, None), (4, None), (4, 0), (4, 1), (4, 2), (5, 2), (1, 0))]
SIZES += [dict(sequences=2, length=96, hidden=192, streams=4, layers=6, fused=1, mhc=1, group=3)]

with open(sys.argv[1], "w", newline="") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow([*SIZES[0], "when", "format", "bytes", "tensors"])
    for s in SIZES:
        for when, tensors in held(s).items():
            for (kind, size), count in sorted(tensors.items()):
                table.writerow([*s.values(), when, kind, size, count])
