#!/usr/bin/env python3
"""Makes megatron_cpu_mixers.csv: what autograd holds after the forward pass of Megatron-Core's MambaMixer and GatedDeltaNet on a CPU,
tensor by tensor. python3 megatron_cpu_mixers.py TABLE.csv, with a checkout of Megatron-LM beside what transformers_mixers_cpu.py needs,
whose stand-ins of kernels it uses. The projection reads the input; what a norm of the layer keeps is not in it. jit_fuser is off."""
import collections, contextlib, csv, os, sys, types, warnings, weakref

import transformers_mixers_cpu  # the stand-ins
import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29618", RANK="0", WORLD_SIZE="1")
torch.cuda.is_available = lambda: False
torch.cuda.current_device = lambda: "cpu"
torch.cuda.is_current_stream_capturing = lambda: False
torch.cuda.get_rng_state = lambda *a, **k: torch.get_rng_state()


class Tracker:
    def fork(self, *a, **k): return contextlib.nullcontext()


dist.init_process_group("gloo")
from megatron.core import jit, parallel_state
jit.jit_fuser = lambda f: f
from megatron.core.process_groups_config import ProcessGroupCollection
parallel_state.initialize_model_parallel()
import megatron.core.ssm.mamba_mixer as mamba
import megatron.core.ssm.gated_delta_net.common as common
import megatron.core.ssm.gated_delta_net.gdn as gdn
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig
mamba.get_cuda_rng_tracker = common.get_cuda_rng_tracker = lambda *a: Tracker()


class Linear(torch.nn.Linear):
    """A product, as the layers that Megatron-Core puts there."""
    def __init__(self, size, out, *args, **kwargs): super().__init__(size, out, bias=False, dtype=torch.bfloat16)
    def forward(self, x): return super().forward(x), None


class Norm(torch.autograd.Function):
    """What kernels of norms keep: the input and 1 / rms."""
    @staticmethod
    def forward(ctx, x, weight):
        rstd = torch.rsqrt(x.float().pow(2).mean(-1) + 1e-6)
        ctx.save_for_backward(x, weight, rstd)
        return (x.float() * rstd[..., None]).to(x.dtype) * weight


class RmsNorm(torch.nn.Module):
    def __init__(self, *args, hidden_size=None, **kwargs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=torch.bfloat16))
    def forward(self, x): return Norm.apply(x, self.weight)


class Saved:
    def __init__(self, tensor): self.tensor = tensor


def held(module, x):
    alive = weakref.WeakSet()

    def pack(tensor):
        saved = Saved(tensor)
        alive.add(saved)
        return saved
    mine = {t.untyped_storage()._cdata for t in [*module.parameters(), *module.buffers(), x]}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        out, _ = module(x, None) if isinstance(module, gdn.GatedDeltaNet) else module(x)
    found = {s.tensor.untyped_storage()._cdata: (str(s.tensor.dtype).removeprefix("torch."), s.tensor.untyped_storage().nbytes()) for s in alive}
    return collections.Counter(value for key, value in found.items() if key not in mine)


def build(s):
    groups = ProcessGroupCollection.use_mpu_process_groups()
    config = TransformerConfig(num_layers=1, hidden_size=s["hidden"], num_attention_heads=4, use_cpu_initialization=True, bf16=True,
        params_dtype=torch.bfloat16, mamba_state_dim=s["key"], mamba_head_dim=s["value"], mamba_num_groups=s["key_heads"],
        mamba_num_heads=s["value_heads"], linear_key_head_dim=s["key"], linear_value_head_dim=s["value"],
        linear_num_key_heads=s["key_heads"], linear_num_value_heads=s["value_heads"], linear_conv_kernel_dim=4,
        activation_func=torch.nn.functional.silu)
    torch.manual_seed(0)
    if s["mixer"] == "mamba2":
        return mamba.MambaMixer(config, mamba.MambaMixerSubmodules(in_proj=Linear, out_proj=Linear), s["hidden"], chunk_size=s["chunk"],
                                pg_collection=groups)
    spec = common.GatedDeltaNetSubmodules(in_proj=Linear, out_norm=RmsNorm, out_proj=Linear)
    return gdn.GatedDeltaNet(config, spec, layer_number=1, pg_collection=groups)


SIZES = [dict(mixer="mamba2", sequences=2, length=256, hidden=192, key_heads=2, value_heads=8, key=32, value=16, chunk=64),
         dict(mixer="mamba2", sequences=1, length=520, hidden=256, key_heads=4, value_heads=12, key=48, value=24, chunk=128),
         dict(mixer="mamba2", sequences=3, length=192, hidden=320, key_heads=5, value_heads=20, key=64, value=32, chunk=64),
         dict(mixer="gated_delta", sequences=2, length=256, hidden=192, key_heads=4, value_heads=8, key=32, value=32, chunk=64),
         dict(mixer="gated_delta", sequences=1, length=448, hidden=256, key_heads=4, value_heads=12, key=16, value=48, chunk=64),
         dict(mixer="gated_delta", sequences=3, length=192, hidden=320, key_heads=5, value_heads=5, key=64, value=32, chunk=64)]

with open(sys.argv[1], "w", newline="") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow([*SIZES[0], "format", "bytes", "tensors"])
    for s in SIZES:
        module = build(s).bfloat16()
        module.train()
        x = torch.randn(s["length"], s["sequences"], s["hidden"], dtype=torch.bfloat16, requires_grad=True)
        for (kind, size), count in sorted(held(module, x).items()):
            table.writerow([*s.values(), kind, size, count])
