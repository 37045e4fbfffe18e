#!/usr/bin/env python3
"""Makes transformers_mixers_cpu.csv as transformers_saved.py makes its table: reduced models with mixers (Nemotron-H, Qwen3-Next, Kimi
Linear). python3 transformers_mixers_cpu.py TABLE.csv [CASE...] (torch, transformers, triton, einops; fla-core, and checkouts of mamba
and causal-conv1d, in PYTHONPATH).
The packages' own Python code decides what is allocated and kept. Their kernels do nothing: Triton's are never started, and a stand-in
of causal_conv1d_cuda writes nothing. So numbers are wrong, and bytes are right. MIXERS=plain: without these packages, transformers' own
torch code, which no table holds; it prints the bytes of every case."""
import contextlib, importlib.machinery, os, sys, types

import torch


class Nothing:
    """A package whose kernels do nothing."""
    def __getattr__(self, name): return lambda *a, **k: None


def stand_ins():
    import triton, triton.runtime.jit as jit
    jit.KernelInterface.__getitem__ = lambda self, grid: lambda *a, **k: None
    triton.runtime.autotuner.Autotuner.run = jit.JITFunction.run = lambda self, *a, **k: None
    triton.runtime.autotuner.Autotuner.best_config = property(lambda self: self.configs[0])
    sys.modules["causal_conv1d_cuda"] = Nothing()
    for folder in sys.path:  # the package's own __init__ asks for compiled code of Mamba-1
        if os.path.isdir(os.path.join(folder, "mamba_ssm")):
            for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "mamba_ssm.utils"):
                module = types.ModuleType(name)
                module.__path__ = [os.path.join(folder, *name.split("."))]
                module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
                sys.modules[name] = module
            break
    torch.cuda.device = lambda *a, **k: contextlib.nullcontext()
    torch.cuda.get_device_properties = lambda *a: types.SimpleNamespace(multi_processor_count=132)


PLAIN = os.environ.get("MIXERS") == "plain"
if not PLAIN:
    stand_ins()
import transformers_saved as saved

# The kind of what a module makes, by its class; one within another has its own kind, or else that of the one around it.
WORDS = [("Mamba2Mixer", "mixers"), ("DeltaNet", "mixers"), ("DeltaAttention", "mixers"), ("ForgetGate", "mixers"), ("Router", "router"),
         ("RMSNormGated", "mixers"), ("RMSNorm", "norms"), ("Experts", "experts"), ("Attention", "attention"), ("MoE", "experts"),
         ("SparseMoeBlock", "ffn"), ("MLP", "ffn")]
kinds = {"": "logits_and_loss"}


def kind_of(stack): return kinds[stack[-1] if stack else ""]


def build(config, attention, plain=saved.build):
    model = plain(config, attention)
    kinds.clear()
    kinds[""] = "logits_and_loss"
    for name, module in model.named_modules():
        if name:
            around = kinds[name.rpartition(".")[0]] if name.startswith("model.") else "logits_and_loss"
            around = "hidden_states" if around == "logits_and_loss" and name.startswith("model") else around
            kinds[name] = next((kind for word, kind in WORDS if word in type(module).__name__), around)
    return model


saved.kind_of, saved.build = kind_of, build


def nemotron(s):
    from transformers import NemotronHConfig
    return NemotronHConfig(vocab_size=s["vocab"], hidden_size=s["hidden"], layers_block_type=s["kinds"], num_attention_heads=s["heads"],
        num_key_value_heads=s["kv_heads"], head_dim=s["head_dim"], intermediate_size=s["ffn"], mlp_hidden_act="relu2", use_bias=False,
        mlp_bias=False, conv_kernel=4, use_conv_bias=True, mamba_num_heads=s["mixer_heads"], mamba_head_dim=s["mixer_dim"],
        n_groups=s["groups"], ssm_state_size=s["state"], chunk_size=s["chunk"], n_routed_experts=s["experts"], n_shared_experts=1,
        moe_intermediate_size=s["expert_ffn"], moe_shared_expert_intermediate_size=s["shared_ffn"], num_experts_per_tok=s["top_k"],
        n_group=1, topk_group=1, norm_topk_prob=True, moe_latent_size=s["latent"] or None, use_cache=False)


def next80(s):
    from transformers import Qwen3NextConfig
    return Qwen3NextConfig(vocab_size=s["vocab"], hidden_size=s["hidden"], num_hidden_layers=len(s["kinds"]), layer_types=s["kinds"],
        num_attention_heads=s["heads"], num_key_value_heads=s["kv_heads"], head_dim=s["head_dim"], intermediate_size=s["ffn"],
        partial_rotary_factor=0.25, linear_conv_kernel_dim=4, linear_key_head_dim=s["mixer_dim"], linear_value_head_dim=s["value_dim"],
        linear_num_key_heads=s["mixer_heads"], linear_num_value_heads=s["value_heads"], decoder_sparse_step=1, mlp_only_layers=s["dense"],
        moe_intermediate_size=s["expert_ffn"], shared_expert_intermediate_size=s["shared_ffn"], num_experts_per_tok=s["top_k"],
        num_experts=s["experts"], norm_topk_prob=True, output_router_logits=False, tie_word_embeddings=False, use_cache=False)


def kimi(s):
    from transformers import KimiLinearConfig
    layers = range(1, len(s["kinds"]) + 1)
    return KimiLinearConfig(vocab_size=s["vocab"], hidden_size=s["hidden"], num_hidden_layers=len(s["kinds"]), num_attention_heads=s["heads"],
        num_key_value_heads=s["heads"], intermediate_size=s["ffn"], q_lora_rank=None, kv_lora_rank=s["kv_rank"],
        qk_nope_head_dim=s["head_dim"], qk_rope_head_dim=s["rope"], v_head_dim=s["value_dim"], layer_types=s["kinds"],
        mlp_layer_types=["dense" if i - 1 in s["dense"] else "sparse" for i in layers], linear_num_heads=s["mixer_heads"],
        linear_head_dim=s["mixer_dim"], linear_conv_kernel_dim=4, num_local_experts=s["experts"], n_routed_experts=s["experts"],
        num_experts_per_tok=s["top_k"], moe_intermediate_size=s["expert_ffn"], n_shared_experts=1, n_group=1, topk_group=1,
        norm_topk_prob=True, tie_word_embeddings=False, use_cache=False,
        pad_token_id=0)


BUILD = {"nemotron_h": nemotron, "qwen3_next": next80, "kimi_linear": kimi}
A, L, E, F = "full_attention", "linear_attention", "moe", "mlp"
SIZES = [
    ("nano", "nemotron_h", dict(sequences=2, length=256, vocab=512, hidden=192, kinds=[L, E, A, F], heads=4, kv_heads=2, head_dim=32,
        ffn=160, mixer_heads=8, mixer_dim=16, groups=2, state=32, chunk=64, experts=8, expert_ffn=96, shared_ffn=112, top_k=3, latent=0)),
    ("super", "nemotron_h", dict(sequences=1, length=520, vocab=768, hidden=256, kinds=[L, E, L, A, E], heads=8, kv_heads=1, head_dim=24,
        ffn=224, mixer_heads=12, mixer_dim=24, groups=4, state=48, chunk=128, experts=16, expert_ffn=72, shared_ffn=136, top_k=5, latent=80)),
    ("wide", "nemotron_h", dict(sequences=3, length=192, vocab=640, hidden=320, kinds=[A, L, F, E, L], heads=10, kv_heads=5, head_dim=48,
        ffn=416, mixer_heads=20, mixer_dim=32, groups=5, state=64, chunk=64, experts=4, expert_ffn=208, shared_ffn=304, top_k=2, latent=0)),
    ("next", "qwen3_next", dict(sequences=2, length=256, vocab=512, hidden=192, kinds=[L, A], heads=4, kv_heads=2, head_dim=32, ffn=160,
        mixer_heads=4, value_heads=8, mixer_dim=32, value_dim=32, experts=8, expert_ffn=96, shared_ffn=112, top_k=3, dense=[])),
    ("next-dense", "qwen3_next", dict(sequences=1, length=448, vocab=768, hidden=256, kinds=[L, L, A], heads=8, kv_heads=1, head_dim=64, ffn=224,
        mixer_heads=4, value_heads=12, mixer_dim=16, value_dim=48, experts=16, expert_ffn=72, shared_ffn=136, top_k=5, dense=[1])),
    ("next-even", "qwen3_next", dict(sequences=3, length=192, vocab=640, hidden=320, kinds=[A, L], heads=6, kv_heads=3, head_dim=48, ffn=416,
        mixer_heads=5, value_heads=5, mixer_dim=64, value_dim=32, experts=4, expert_ffn=208, shared_ffn=304, top_k=2, dense=[])),
    ("kimi", "kimi_linear", dict(sequences=2, length=256, vocab=512, hidden=192, kinds=[L, A], heads=4, kv_heads=4, head_dim=32, rope=16,
        kv_rank=40, value_dim=32, ffn=160, mixer_heads=6, mixer_dim=32, experts=8, expert_ffn=96, shared_ffn=96, top_k=3, dense=[0])),
    ("kimi-two", "kimi_linear", dict(sequences=1, length=448, vocab=768, hidden=256, kinds=[L, L, A], heads=8, kv_heads=8, head_dim=24, rope=8,
        kv_rank=72, value_dim=24, ffn=224, mixer_heads=4, mixer_dim=64, experts=16, expert_ffn=72, shared_ffn=72, top_k=5, dense=[0])),
    ("kimi-wide", "kimi_linear", dict(sequences=3, length=192, vocab=640, hidden=320, kinds=[A, L], heads=6, kv_heads=6, head_dim=48, rope=16,
        kv_rank=56, value_dim=48, ffn=416, mixer_heads=5, mixer_dim=16, experts=4, expert_ffn=208, shared_ffn=208, top_k=2, dense=[])),
]

saved.CASES.clear()
for name, family, s in SIZES:
    saved.case(name, s["sequences"], s["length"], lambda family=family, s=s: BUILD[family](s), "fused")


def main():
    if not PLAIN:
        saved.main()
        return
    for name in sys.argv[2:] or saved.CASES:
        rows = saved.measure(name, False)
        print(name, sum(row[5] * row[6] for row in rows))


if __name__ == "__main__":
    main()
