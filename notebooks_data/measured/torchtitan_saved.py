#!/usr/bin/env python3
"""Makes torchtitan_saved_cpu.csv: blocks of torchtitan's Qwen3, DeepSeek-V3 and gpt-oss on a CPU in bf16, without a checkpoint, under
full and under selective activation checkpointing, and what is allocated and left by a forward and a backward pass.
PYTHONPATH=<a checkout of torchtitan> python3 torchtitan_saved.py FOLDER (needs torch, spmd_types, tyro). FOLDER has a config.json a
case and gets the table beside it.

Fused attention is a stand-in that keeps what flex and varlen attention keep, queries, keys, values, an output and a log-sum-exp, and
gives zeros. It is added to the operations that are kept, as theirs are. The router's product is in fp32, as autocast makes it on a GPU. Gradients of weights exist
before. One process, so rows are not exchanged."""
import csv
import functools
import gc
import json
import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed.fsdp
import torch.nn.functional as F

for name, stand_in in (("DataParallelMeshDims", object),):  # newer than torch 2.11; nothing is sharded here
    if not hasattr(torch.distributed.fsdp, name):
        setattr(torch.distributed.fsdp, name, stand_in)
if not hasattr(torch.compiler, "_is_non_strict_tracing"):
    torch.compiler._is_non_strict_tracing = lambda: False

import torchtitan_cpu  # noqa: E402, beside this file
import torchtitan.models.deepseek_v3 as deepseek  # noqa: E402
import torchtitan.models.gpt_oss as gpt_oss  # noqa: E402
import torchtitan.models.qwen3 as qwen3  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: E402
from torchtitan.distributed.utils import set_spmd_backend  # noqa: E402
from torchtitan.models.common.moe import TokenChoiceTopKRouter  # noqa: E402
from torchtitan.models.common.rope import ComplexRoPE, CosSinRoPE  # noqa: E402
from torchtitan.protocols.module import Module, ModuleDict  # noqa: E402

TOKENS, LONGEST = 384, 512
GPT_OSS_ATTENTION = gpt_oss._make_gptoss_attn_config
CASES = ["qwen3", "qwen3_wide", "v3_plain", "v3_groups", "gpt_oss"]


@torch.library.custom_op("measured::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return q.new_zeros(q.shape[0], q.shape[1], v.shape[2]), q.new_zeros(q.shape[1], q.shape[0], dtype=torch.float32)


attention.register_autograd(lambda ctx, d_out, d_lse: tuple(torch.zeros_like(t) for t in ctx.saved_tensors[:3]),
                            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, *output))


class Attention(Module):
    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        pass

    def __init__(self, config):
        super().__init__()

    def forward(self, q, k, v, **_):
        return attention(q, k, v)[0]


class Selective(SelectiveAC):
    @dataclass(kw_only=True, slots=True)
    class Config(SelectiveAC.Config):
        pass

    def get_save_ops(self):
        return SelectiveAC.get_save_ops(self) | {torch.ops.measured.attention.default}


class Stack(torch.nn.Module):
    def __init__(self, configs):
        super().__init__()
        self.layers = ModuleDict({str(i): c.build() for i, c in enumerate(configs)})

    def forward(self, x, positions):
        for layer in self.layers.values():
            x = layer(x, None, positions)
        return x


def blocks(c):
    """torchtitan's own lists of layers, of the sizes of a config.json."""
    common = dict(attn_backend="", moe_comm_backend="standard", dim=c["hidden_size"], n_layers=c["num_hidden_layers"])
    if c["model_type"] == "qwen3_moe":
        return qwen3._build_qwen3_moe_layers(
            **common, n_heads=c["num_attention_heads"], n_kv_heads=c["num_key_value_heads"], head_dim=c["head_dim"],
            moe_hidden_dim=c["moe_intermediate_size"], num_experts=c["num_experts"], top_k=c["num_experts_per_tok"],
            rope=CosSinRoPE.Config(dim=c["head_dim"], max_context_length=LONGEST))
    if c["model_type"] == "gpt_oss":
        gpt_oss._make_gptoss_attn_config = functools.partial(
            GPT_OSS_ATTENTION, n_heads=c["num_attention_heads"], n_kv_heads=c["num_key_value_heads"], head_dim=c["head_dim"])
        return gpt_oss._build_gptoss_layers(
            **common, hidden_dim=c["intermediate_size"], num_experts=c["num_local_experts"], top_k=c["num_experts_per_tok"],
            load_balance_coeff=1e-3, rope=CosSinRoPE.Config(dim=c["head_dim"], max_context_length=LONGEST))
    groups = c["n_group"] if c["n_group"] > 1 else None
    return deepseek._build_dsv3_layers(
        **common, n_dense_layers=c["first_k_dense_replace"], n_heads=c["num_attention_heads"], q_lora_rank=c["q_lora_rank"] or 0,
        kv_lora_rank=c["kv_lora_rank"], qk_nope_head_dim=c["qk_nope_head_dim"], qk_rope_head_dim=c["qk_rope_head_dim"],
        v_head_dim=c["v_head_dim"], mscale=1.0, dense_hidden_dim=c["intermediate_size"], moe_hidden_dim=c["moe_intermediate_size"],
        num_experts=c["n_routed_experts"], num_shared_experts=c["n_shared_experts"], router_top_k=c["num_experts_per_tok"],
        router_score_func="sigmoid", router_num_expert_groups=groups, router_num_limited_groups=c["topk_group"] if groups else None,
        non_blocking_capacity_factor=None, rope=ComplexRoPE.Config(dim=c["qk_rope_head_dim"], max_context_length=LONGEST))


def in_fp32(gate):
    def forward(x):
        return F.linear(x.float(), gate.weight.float(), None if gate.bias is None else gate.bias.float())
    return forward


def stack_of(config, remat):
    stack = Stack(blocks(config)).to(torch.bfloat16)
    for p in stack.parameters():
        torch.nn.init.normal_(p, 0.0, 0.02)
        p.grad = torch.zeros_like(p)
    for module in stack.modules():
        if hasattr(module, "_init_self_buffers"):
            module._init_self_buffers()
        if isinstance(module, TokenChoiceTopKRouter):
            module.gate.forward = in_fp32(module.gate)
    if remat != "none":
        (FullAC if remat == "full" else Selective).Config(preserve_rng_state=False).build().apply(stack)
    return stack


def run(name, config, remat):
    torch.manual_seed(0)
    stack = stack_of(config, remat)
    x = torch.randn(TOKENS, config["hidden_size"]).to(torch.bfloat16).requires_grad_()
    d_output, positions = torch.randn_like(x), torch.arange(TOKENS)
    for _ in range(2):  # the first has what is set up once
        gc.collect()
        x.grad = torch.zeros_like(x)
        out, forward_most, kept = torchtitan_cpu.watched(lambda: stack(x, positions), set())
        _, backward_most, _ = torchtitan_cpu.watched(lambda: out.backward(d_output), set())
        out = None
    return dict(case=name, tokens=TOKENS, remat=remat, kept_bytes=kept, peak_forward_bytes=forward_most,
                peak_bytes=max(forward_most, kept + backward_most))


def main(folder):
    torch.set_num_threads(1)
    set_spmd_backend("partial_dtensor")
    for module in (qwen3, deepseek, gpt_oss):
        module.get_attention_config = lambda _: Attention.Config()
    rows = []
    for name in CASES:
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
            config = json.load(file)
        rows += [run(name, config, remat) for remat in ("none", "full", "selective_op")]
    with open(folder.rstrip("/") + ".csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1])
