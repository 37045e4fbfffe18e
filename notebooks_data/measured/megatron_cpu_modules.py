#!/usr/bin/env python3
"""Makes megatron_cpu_modules.csv: what autograd holds after the forward pass of one TransformerLayer of Megatron-Core on a CPU, with
lists of its recompute modules. PYTHONPATH=<a checkout of Megatron-LM> python3 megatron_cpu_modules.py TABLE.csv (needs torch,
packaging, einops). spec local: the modules as they come. spec fused: a norm and the product behind it in one module, and an attention
that keeps what flash attention keeps, as TransformerEngine's spec has them; norms keep their input and 1 / rms, as the GPU's kernels
do. Counted is every storage that autograd saved and still has, without parameters and the layer's input and output."""
import contextlib
import csv
import os
import sys
import warnings

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29617", RANK="0", WORLD_SIZE="1")
# a CPU stands in for the GPU: Megatron asks for its generator and its device
torch.cuda.get_rng_state = lambda *a, **k: torch.get_rng_state()
torch.cuda.current_device = lambda: "cpu"
class Stream:
    def __init__(self, *a, **k): pass
    def __getattr__(self, n): return lambda *a, **k: None
torch.cuda.Stream = torch.cuda.Event = Stream
torch.cuda.current_stream = lambda *a, **k: Stream()
torch.cuda.stream = lambda s: contextlib.nullcontext()
torch.cuda.is_current_stream_capturing = lambda: False
class RmsNorm(torch.autograd.Function):
    """What the kernels of TransformerEngine and PyTorch keep: the input and 1 / rms in fp32."""
    @staticmethod
    def forward(ctx, x, weight, eps):
        rstd = torch.rsqrt(x.float().pow(2).mean(-1) + eps)
        ctx.save_for_backward(x, weight, rstd)
        return (x.float() * rstd[..., None]).to(x.dtype) * weight
torch.nn.functional.rms_norm = lambda x, shape, weight=None, eps=None: RmsNorm.apply(x, weight, eps or 1e-6)
torch.cuda.is_available = lambda: False
dist.init_process_group("gloo")
from megatron.core import parallel_state
from megatron.core.tensor_parallel import random as mrandom
mrandom._get_cuda_rng_state = lambda *a, **k: torch.get_rng_state()
mrandom._set_cuda_rng_state = lambda *a, **k: None
class FP8:
    is_fp8_enabled = staticmethod(lambda: False)
    get_fp8_recipe = staticmethod(lambda: None)
mrandom.FP8GlobalStateManager = FP8
mrandom.activation_recompute_forward = lambda **k: contextlib.nullcontext()
mrandom.fp8_autocast = lambda **k: contextlib.nullcontext()
parallel_state.initialize_model_parallel()
from megatron.core.transformer.moe import token_dispatcher
token_dispatcher.MoEAlltoAllTokenDispatcher._maybe_dtoh_and_synchronize = lambda self, point, tokens=None: tokens
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_submodules
from megatron.core.transformer.transformer_config import TransformerConfig, MLATransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.process_groups_config import ProcessGroupCollection
mrandom.model_parallel_cuda_manual_seed(1)

from megatron.core.tensor_parallel.layers import ColumnParallelLinear
from megatron.core.transformer.identity_op import IdentityOp

class NormLinear(ColumnParallelLinear):
    """A norm and the product that reads it in one module, as TransformerEngine's LayerNormLinear: keeps both inputs."""
    def __init__(self, size, *args, **kwargs):
        super().__init__(size, *args, **kwargs)
        self.norm_weight = torch.nn.Parameter(torch.ones(size, dtype=torch.bfloat16))
    def forward(self, x, *args, **kwargs):
        return super().forward(RmsNorm.apply(x, self.norm_weight, 1e-6), *args, **kwargs)

class Flash(torch.autograd.Function):
    """What flash attention keeps: its three inputs, its output, and a log-sum-exp a head."""
    @staticmethod
    def forward(ctx, q, k, v):
        s = torch.einsum("sbhd,tbhd->bhst", q.float(), k.float()) / q.shape[-1] ** 0.5
        out = torch.einsum("bhst,tbhd->sbhd", s.softmax(-1), v.float()).to(q.dtype)
        out = out.reshape(*out.shape[:2], -1)
        ctx.save_for_backward(q, k, v, out, s.logsumexp(-1))
        return out

class FlashCore(torch.nn.Module):
    def __init__(self, *args, **kwargs): super().__init__()
    def forward(self, q, k, v, *args, **kwargs): return Flash.apply(q, k, v)

def fused(sub, kind, moe):
    """The local spec with the modules that TransformerEngine's spec fuses."""
    a = sub.self_attention.submodules
    a.core_attention = FlashCore
    if kind == "mla":
        a.q_layernorm = a.kv_layernorm = IdentityOp
        a.linear_q_up_proj = a.linear_kv_up_proj = NormLinear
    else:
        sub.input_layernorm = IdentityOp
        a.linear_qkv = NormLinear
    if not moe:
        sub.pre_mlp_layernorm = IdentityOp
        sub.mlp.keywords["submodules"].linear_fc1 = NormLinear

class Kept:
    """Bytes of the storages that autograd holds, parameters and the layer's own inputs aside, when the forward pass is over."""
    def __init__(self, model, *inputs):
        self.not_mine = {t.untyped_storage()._cdata for t in [*model.parameters(), *model.buffers(), *inputs]}
        self.held = {}
    def pack(self, t):
        s = t.untyped_storage()
        if s._cdata not in self.not_mine:
            self.held[s._cdata] = s
        return t
    def bytes(self): return sum(s.nbytes() for s in self.held.values())

def run(kind, moe, modules, S=64, p=2, te=True):
    H, heads, D, F, E, K, Fs = 64, 4, 16, 96, 8, 2, 48
    common = dict(num_layers=1, hidden_size=H, num_attention_heads=heads, ffn_hidden_size=F, use_cpu_initialization=True,
        bf16=True, params_dtype=torch.bfloat16, gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
        normalization="RMSNorm", hidden_dropout=0.0, attention_dropout=0.0, attention_softmax_in_fp32=True, masked_softmax_fusion=False,
        bias_activation_fusion=True, gradient_accumulation_fusion=False, apply_rope_fusion=False, bias_dropout_fusion=False,
        recompute_granularity="selective" if modules else None, recompute_modules=modules or None)
    if moe:
        common.update(num_moe_experts=E, moe_router_topk=K, moe_ffn_hidden_size=48, moe_token_dispatcher_type="alltoall",
            moe_router_dtype="fp32", moe_shared_expert_intermediate_size=Fs, moe_router_load_balancing_type="none", moe_aux_loss_coeff=0.0)
    if kind == "mla":
        config = MLATransformerConfig(**common, multi_latent_attention=True, q_lora_rank=24, kv_lora_rank=20, qk_head_dim=16,
                                      qk_pos_emb_head_dim=8, v_head_dim=12, rope_type="rope")
    else:
        config = TransformerConfig(**common, num_query_groups=heads)
    sub = get_gpt_layer_local_submodules(num_experts=E if moe else None, moe_grouped_gemm=False, multi_latent_attention=kind == "mla",
                                         qk_layernorm=kind == "mla", normalization="RMSNorm")
    if te: fused(sub, kind, moe)
    torch.manual_seed(0)
    layer = TransformerLayer(config, sub, pg_collection=ProcessGroupCollection.use_mpu_process_groups()).bfloat16()
    layer.train()
    x = torch.randn(S, p, H, dtype=torch.bfloat16, requires_grad=True)
    mask = torch.triu(torch.ones(1, 1, S, S, dtype=torch.bool), 1)
    rope = None if kind == "mla" else RotaryEmbedding(D, 1.0, use_cpu_initialization=True)(S)
    kept = Kept(layer, x, mask)
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda t: t):
        y, _ = layer(x, attention_mask=mask, rotary_pos_emb=rope)
    kept.not_mine.add(y.untyped_storage()._cdata)
    return kept.bytes()

LISTS = ["none", "core_attn", "layernorm", "mla_up_proj", "mlp", "shared_experts", "moe", "layernorm+mlp", "layernorm+moe",
         "layernorm+shared_experts", "layernorm+mla_up_proj", "core_attn+layernorm+mla_up_proj+mlp+shared_experts"]
with open(sys.argv[1], "w", newline="") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["spec", "attention", "experts", "modules", "kept_bytes"])
    for spec, kind in (("local", "gqa"), ("fused", "gqa"), ("fused", "mla")):
        for moe in (False, True):
            for modules in LISTS:
                if kind == "gqa" and "mla_up_proj" in modules:
                    continue
                kept = run(kind, moe, [] if modules == "none" else modules.split("+"), te=spec == "fused")
                table.writerow([spec, kind, "yes" if moe else "no", modules, kept])
