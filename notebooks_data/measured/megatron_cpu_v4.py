#!/usr/bin/env python3
"""Makes megatron_cpu_v4.csv: what autograd holds after the forward pass of Megatron-Core's own DeepSeek-V4 attention (DSv4HybridSelfAttention
with CompressedSparseAttention, Compressor and CSAIndexer) on a CPU, tensor by tensor. python3 megatron_cpu_v4.py TABLE.csv, with torch 2.11
and a checkout of NVIDIA/Megatron-LM d48bd6be (branch dev) on PYTHONPATH. Stand-ins: products and norms as TransformerEngine keeps them; the
kernels of FlashMLA and cuDNN give tensors of the right sizes and no numbers; rotations are not fused, which keep the same beside their tables.
The column `angles` marks their tables, of places and not of sequences or heads."""
import collections, contextlib, csv, os, sys, warnings, weakref
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29619", RANK="0", WORLD_SIZE="1", TORCHDYNAMO_DISABLE="1")
import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
torch.cuda.is_available = lambda: False
torch.cuda.current_device = lambda: "cpu"
torch.cuda.nvtx.range = lambda *a: contextlib.nullcontext()
torch.cuda.get_device_capability = lambda *a: (10, 0)
dist.init_process_group("gloo")
from megatron.core import jit, parallel_state
jit.jit_fuser = lambda f: f
from megatron.core.process_groups_config import ProcessGroupCollection
parallel_state.initialize_model_parallel()
import megatron.core.transformer.experimental_attention_variant.csa as csa
import megatron.core.transformer.experimental_attention_variant.csa_utils.fused_sparse_attention as fused
import megatron.core.transformer.experimental_attention_variant.deepseek_v4_hybrid_attention as v4
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import MLATransformerConfig


TURNED = 16  # elements of a head


class Linear(torch.nn.Linear):
    """A product, as TransformerEngine's layers keep it: its input."""
    def __init__(self, size, out, *args, **kwargs): super().__init__(size, out, bias=False, dtype=torch.bfloat16)
    def forward(self, x): return super().forward(x), None


class Norm(torch.autograd.Function):
    """What kernels of norms keep: the input and 1 / rms."""
    @staticmethod
    def forward(ctx, x, weight):
        rstd = torch.rsqrt(x.float().pow(2).mean(-1) + 1e-6)
        ctx.save_for_backward(x, weight, rstd)
        return (x.float() * rstd[..., None]).to(x.dtype) * weight
    @staticmethod
    def backward(ctx, grad): return grad, None


class RmsNorm(torch.nn.Module):
    def __init__(self, *args, hidden_size=None, **kwargs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=torch.bfloat16))
    def forward(self, x): return Norm.apply(x, self.weight)


def flash_mla(q, kv, idxs, scale, **kwargs):
    return torch.empty_like(q), torch.empty(q.shape[:2]), None


def topk_core(q, k, w, topk, ratio=4, **kwargs):
    b, length = q.shape[:2]
    return torch.zeros(b, length, topk, dtype=torch.int32), None, torch.zeros(b, length, k.shape[1])


class Dsa:
    @staticmethod
    def indexer_backward_wrapper(q, w, k, *args, **kwargs):
        return {"d_index_q": torch.empty_like(q), "d_index_k": torch.empty_like(k), "d_weights": torch.empty_like(w)}


fused._csa_fwd_flash_mla, fused._indexer_topk_core, fused._DSA = flash_mla, topk_core, Dsa
fused._ensure_dsa_namespace = lambda: None
fused._compute_attn_target = lambda q, k, lse, idxs, *a, **kw: torch.zeros(idxs.shape)
csa.use_fused_dsa_kernels = lambda config: True
v4.TELinear = Linear
csa.rotate_activation = lambda x: Rotate.apply(x)
csa.DSAIndexerLossLoggingHelper.save_loss_to_tracker = staticmethod(lambda *a, **kw: None)


class Rotate(torch.autograd.Function):
    """The Hadamard transform keeps nothing: it is linear."""
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, grad): return grad


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
        out, _ = module(x, None)
    found = {s.tensor.untyped_storage()._cdata: (str(s.tensor.dtype).removeprefix("torch."), s.tensor.untyped_storage().nbytes(), int(is_angles(s.tensor)))
             for s in alive}
    return collections.Counter(value for key, value in found.items() if key not in mine)


def is_angles(tensor):
    """Cosine and sine of places, the same for every sequence and head."""
    return tensor.dim() > 1 and tensor.shape[-1] == TURNED and tensor.numel() == tensor.shape[0] * TURNED


def build(s):
    config = MLATransformerConfig(num_layers=1, hidden_size=s["hidden"], num_attention_heads=s["heads"], use_cpu_initialization=True, bf16=True,
        params_dtype=torch.bfloat16, multi_latent_attention=True, q_lora_rank=s["rank"], kv_lora_rank=s["width"] - TURNED, qk_pos_emb_head_dim=TURNED,
        qk_head_dim=s["width"] - TURNED, v_head_dim=s["width"], o_groups=s["groups"], o_lora_rank=s["latent"], normalization="RMSNorm",
        experimental_attention_variant="dsv4_hybrid", csa_window_size=s["window"], csa_compress_ratios=[s["every"]],
        dsa_indexer_n_heads=s["index_heads"], dsa_indexer_head_dim=s["index_width"], dsa_indexer_topk=s["chosen"], rope_type="rope",
        dsa_indexer_loss_coeff=0.01, dsa_indexer_use_sparse_loss=True, add_bias_linear=False, apply_rope_fusion=False,
        original_max_position_embeddings=4096)
    compressor = ModuleSpec(module=csa.Compressor, submodules=csa.CompressorSubmodules(linear_wkv=Linear, linear_wgate=Linear, norm=RmsNorm))
    indexer = ModuleSpec(module=csa.CSAIndexer, submodules=csa.CSAIndexerSubmodules(linear_wq_b=Linear, linear_weights_proj=Linear, compressor=compressor))
    core = ModuleSpec(module=csa.CompressedSparseAttention, submodules=csa.CompressedSparseAttentionSubmodules(compressor=compressor, indexer=indexer))
    parts = v4.DSv4HybridSelfAttentionSubmodules(q_layernorm=RmsNorm, kv_layernorm=RmsNorm, linear_q_down_proj=Linear, linear_q_up_proj=Linear,
                                                 linear_kv_proj=Linear, core_attention=core, linear_proj=Linear)
    return v4.DSv4HybridSelfAttention(config, parts, layer_number=1, attn_mask_type=AttnMaskType.causal,
                                      pg_collection=ProcessGroupCollection.use_mpu_process_groups())


ONE = dict(sequences=1, length=256, hidden=192, heads=4, width=64, rank=48, groups=2, latent=40, window=64, every=0, index_heads=0, index_width=0, chosen=0)
TWO = dict(sequences=2, length=384, hidden=320, heads=8, width=96, rank=80, groups=4, latent=56, window=128, every=0, index_heads=0, index_width=0, chosen=0)
INDEX = dict(every=4, index_heads=8, index_width=32, chosen=48)
SIZES = [ONE, {**ONE, **INDEX}, {**ONE, "every": 128}, TWO, {**TWO, **INDEX, "index_heads": 6, "chosen": 32}, {**TWO, "every": 128}]

with open(sys.argv[1], "w", newline="") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow([*ONE, "format", "bytes", "tensors", "angles"])
    for s in SIZES:
        module = build({**s, "index_heads": s["index_heads"] or 1, "index_width": s["index_width"] or 32, "chosen": s["chosen"] or 1})
        module.train()
        x = torch.randn(s["length"], s["sequences"], s["hidden"], dtype=torch.bfloat16, requires_grad=True)
        for (kind, size, angles), count in sorted(held(module, x).items()):
            table.writerow([*s.values(), kind, size, count, angles])
