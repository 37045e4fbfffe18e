"""What autograd keeps of one forward pass of reduced models of Hugging Face transformers on a CPU: distinct storages by layer, by the
kind of module that made them, and by size. Parameters are apart. Bytes are those of the storages that saved tensors are views of and
that are still kept when the forward pass has ended. No numbers of a device are in it: kernels on a GPU that keep something else are
named in docs/finetuning.md.
python3 transformers_saved.py transformers_saved_cpu.csv [CASE...]"""
import collections, csv, gc, itertools, json, pathlib, sys, weakref
import torch
import transformers as t
from torch.utils._python_dispatch import TorchDispatchMode

COMMON = dict(use_cache=False, tie_word_embeddings=False, vocab_size=1024, max_position_embeddings=512)
# Of the innermost module with such a name.
KINDS = {"indexer": "indexer", "compressor": "compressor", "attn_hc": "streams", "ffn_hc": "streams", "hc_head": "streams", "gate": "router",
         "router": "router", "experts": "experts", "shared_experts": "ffn", "self_attn": "attention", "mlp": "ffn", "lm_head": "logits_and_loss"}


def latent(family, **more):
    base = dict(COMMON, hidden_size=256, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=8, n_routed_experts=16,
                num_experts_per_tok=4, moe_intermediate_size=96, intermediate_size=640, n_shared_experts=1, first_k_dense_replace=1,
                q_lora_rank=128, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, n_group=4, topk_group=2)
    base.update(more)
    return family(**base)


QUIET = {"transformers_version", "id2label", "label2id", "problem_type", "return_dict", "output_hidden_states", "output_attentions", "dtype",
         "chunk_size_feed_forward", "is_encoder_decoder", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache"}
CASES = {}
PLAIN = torch.nn.functional.scaled_dot_product_attention


def case(name, sequences, length, config, attention="sdpa"):
    CASES[name] = (sequences, length, config, attention)


def grouped(family, **more):
    base = dict(COMMON, hidden_size=256, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2)
    base.update(more)
    return family(**base)


case("qwen3", 2, 128, lambda: grouped(t.Qwen3MoeConfig, head_dim=64, num_experts=16, num_experts_per_tok=4, moe_intermediate_size=96,
                                      intermediate_size=512, mlp_only_layers=[0], norm_topk_prob=True), "fused")
case("mixtral", 1, 160, lambda: grouped(t.MixtralConfig, head_dim=32, num_local_experts=8, num_experts_per_tok=2, intermediate_size=320), "fused")
case("olmoe", 2, 96, lambda: grouped(t.OlmoeConfig, num_experts=16, num_experts_per_tok=4, intermediate_size=96), "fused")
case("v3_plain", 2, 128, lambda: latent(t.DeepseekV3Config, v_head_dim=48))  # the CPU's own kernel
case("v3_fused", 2, 128, lambda: latent(t.DeepseekV3Config), "fused")
case("v3_wide", 1, 192, lambda: latent(t.DeepseekV3Config, hidden_size=320, num_attention_heads=5, num_key_value_heads=5, q_lora_rank=None,
                                       num_hidden_layers=2, first_k_dense_replace=0, n_shared_experts=2, n_group=1, topk_group=1), "fused")
case("v2_lite", 2, 128, lambda: latent(t.DeepseekV2Config, q_lora_rank=None, topk_method="greedy", n_shared_experts=2), "fused")
case("v2_groups", 1, 160, lambda: latent(t.DeepseekV2Config, topk_method="group_limited_greedy", num_hidden_layers=2), "fused")


def v4(layers, **more):
    base = dict(COMMON, hidden_size=256, num_hidden_layers=len(layers), num_attention_heads=8, num_key_value_heads=1, head_dim=64,
                q_lora_rank=96, o_groups=2, o_lora_rank=64, num_local_experts=16, num_experts_per_tok=4, moe_intermediate_size=96,
                n_shared_experts=1, index_n_heads=4, index_head_dim=32, index_topk=16, sliding_window=32, hc_mult=4, hc_sinkhorn_iters=5,
                num_hash_layers=1, layer_types=[{"s": "sliding_attention", "c": "compressed_sparse_attention",
                                                 "h": "heavily_compressed_attention"}[x] for x in layers],
                compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
                mlp_layer_types=["hash_moe"] + ["moe"] * (len(layers) - 1))
    base.update(more)
    return t.DeepseekV4Config(**base)


case("v4_found", 2, 128, lambda: v4("hcs"), "eager")
case("v4_other", 1, 192, lambda: v4("schc", hidden_size=320, num_attention_heads=4, head_dim=128, q_lora_rank=160, o_groups=4, o_lora_rank=32,
                                    index_n_heads=2, index_head_dim=64, hc_mult=3, hc_sinkhorn_iters=8, n_shared_experts=1,
                                    compress_rates={"compressed_sparse_attention": 8, "heavily_compressed_attention": 64},
                                    mlp_layer_types=["hash_moe", "hash_moe", "moe", "moe"]), "eager")
case("v4_long", 1, 330, lambda: v4("ch", num_local_experts=32, num_experts_per_tok=6, moe_intermediate_size=64, hc_mult=2, hc_sinkhorn_iters=20,
                                   mlp_layer_types=["moe", "moe"]), "eager")

case("v4_three", 3, 72, lambda: v4("cchs", hidden_size=192, num_attention_heads=6, head_dim=96, q_lora_rank=64, o_groups=3, o_lora_rank=40,
                                   index_n_heads=3, index_head_dim=48, index_topk=8, hc_mult=5, hc_sinkhorn_iters=3, num_local_experts=12,
                                   num_experts_per_tok=3, moe_intermediate_size=72, vocab_size=2048,
                                   compress_rates={"compressed_sparse_attention": 6, "heavily_compressed_attention": 24}), "eager")
case("v4_one", 1, 250, lambda: v4("shchc", hidden_size=384, num_attention_heads=12, head_dim=32, o_groups=6, o_lora_rank=48, hc_sinkhorn_iters=12,
                                  num_experts_per_tok=5, mlp_layer_types=["hash_moe"] * 2 + ["moe"] * 3), "eager")


def m3(layers, ffns, **more):
    base = dict(COMMON, hidden_size=256, num_hidden_layers=len(layers), num_attention_heads=8, num_key_value_heads=2, head_dim=64, rotary_dim=32,
                num_local_experts=16, num_experts_per_tok=4, intermediate_size=96, dense_intermediate_size=512, shared_intermediate_size=128,
                index_n_heads=2, index_head_dim=32, index_block_size=16, index_topk_blocks=3, index_local_blocks=1,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
                layer_types=[{"f": "full_attention", "s": "minimax_m3_sparse"}[x] for x in layers],
                mlp_layer_types=[{"d": "dense", "m": "sparse"}[x] for x in ffns])
    base.update(more)
    return t.MiniMaxM3VLTextConfig(**base)


case("m3_found", 2, 128, lambda: m3("fss", "dmm"), "fused")
case("m3_one", 1, 160, lambda: m3("sfs", "mmd", hidden_size=320, num_attention_heads=6, num_key_value_heads=3, head_dim=96, index_n_heads=3,
                                  rotary_dim=24, num_local_experts=12, num_experts_per_tok=3, intermediate_size=80, shared_intermediate_size=48,
                                  rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}), "fused")


def oss(**more):
    base = dict(COMMON, hidden_size=256, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, head_dim=64, num_local_experts=16,
                num_experts_per_tok=4, intermediate_size=96, sliding_window=32,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    base.update(more)
    return t.GptOssConfig(**base)


# gpt-oss: "scores" holds those of every query and key; by the stand-in of a fused kernel as the others.
case("oss_scores", 2, 128, lambda: oss(), "eager")
case("oss_scores_one", 1, 168, lambda: oss(hidden_size=320, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=6, head_dim=48,
                                           num_local_experts=12, num_experts_per_tok=3, intermediate_size=72), "eager")
case("oss_kernel", 2, 128, lambda: oss(), "with_sinks")
case("oss_kernel_wide", 1, 160, lambda: oss(hidden_size=192, num_hidden_layers=4, num_attention_heads=12, num_key_value_heads=3, head_dim=96,
                                            num_local_experts=8, num_experts_per_tok=2, intermediate_size=224), "with_sinks")


def kind_of(stack):
    for part in reversed((stack[-1] if stack else "").split(".")):
        if part in KINDS:
            return KINDS[part]
        if part.endswith("norm") and part != "input_norm":
            return "norms"
    return "hidden_states" if stack and stack[-1] else "logits_and_loss"


def layer_of(stack):
    parts = stack[-1].split(".") if stack else []
    return int(parts[parts.index("layers") + 1]) if "layers" in parts else -1


class Fused(torch.autograd.Function):
    """What fused attention keeps on a GPU, where heads of keys and values may differ in width: q, k, v, output, a logarithm a row, the mask."""

    @staticmethod
    def forward(ctx, query, key, value, scale, mask, by_tokens=False):
        with torch.no_grad():
            rows, heads = query.shape[-2], query.shape[1] // key.shape[1]
            scores = (query.float() @ key.repeat_interleave(heads, 1).float().transpose(-1, -2)) * (scale or query.shape[-1] ** -0.5)
            scores = scores.masked_fill(torch.ones(rows, rows, dtype=torch.bool).triu(1), float("-inf")) if mask is None else scores + mask
            logarithm = scores.logsumexp(-1)
            out = (scores.softmax(-1) @ value.repeat_interleave(heads, 1).float()).to(query.dtype).contiguous()
            if by_tokens or not query.is_contiguous():  # cuDNN's output has the layout of the queries; flash attention's is by tokens
                out = out.transpose(1, 2).contiguous().transpose(1, 2)
        ctx.save_for_backward(query, key, value, out, logarithm, mask)
        return out

    @staticmethod
    def backward(ctx, gradient):
        query, key, value = ctx.saved_tensors[:3]
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value), None, None, None


def fused(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    assert is_causal == (attn_mask is None)
    return Fused.apply(query, key, value, scale, attn_mask)


def with_sinks(module, query, key, value, attention_mask, scaling=None, s_aux=None, **more):
    return Fused.apply(query, key, value, scaling, None, True).transpose(1, 2), None


t.AttentionInterface.register("with_sinks", with_sinks)


class Births(TorchDispatchMode):
    def __init__(self, stack):
        super().__init__()
        self.stack, self.born = stack, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        inputs = {x.untyped_storage().data_ptr() for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        for x in torch.utils._pytree.tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in inputs:
                self.born[x.untyped_storage().data_ptr()] = (kind_of(self.stack), str(func), tuple(x.shape))
        return out


class Held:
    """As long as a node keeps it. `back` is what the node is given."""

    def __init__(self, tensor):
        self.back = tensor.detach()  # else the node and what it keeps refer to each other


def build(config, attention):
    torch.manual_seed(1)
    model = t.AutoModelForCausalLM.from_config(config(), attn_implementation=attention, dtype=torch.bfloat16)
    model.set_experts_implementation("grouped_mm")
    model.to(torch.bfloat16)
    # As from_pretrained() leaves them; what a constructor makes is in the format of the model.
    strict = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    for name, parameter in list(model.named_parameters()) + list(model.named_buffers()):
        if any(word in name for word in strict) and "lm_head" not in name:
            parameter.data = parameter.data.float()
    if hasattr(model.model, "rotary_emb"):
        for module in model.modules():
            for key, value in list(module._buffers.items()):
                if key.endswith("inv_freq"):
                    module._buffers[key] = value.float()
    model.train()
    return model


def measure(name, verbose):
    sequences, length, config, attention = CASES[name]
    torch.nn.functional.scaled_dot_product_attention = fused if attention == "fused" else PLAIN
    model = build(config, "sdpa" if attention == "fused" else attention)
    stack, live = [], weakref.WeakSet()
    names = {module: key for key, module in model.named_modules()}
    for module in model.modules():
        module.register_forward_pre_hook(lambda m, a: stack.append(names[m]))
        module.register_forward_hook(lambda m, a, o: (stack.pop(), None)[1])
    births, count = Births(stack), itertools.count()
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor):
        held = Held(tensor)
        held.made = births.born.get(tensor.untyped_storage().data_ptr(), ("hidden_states", "given"))
        held.layer, held.number = layer_of(stack), next(count)
        live.add(held)
        return held

    ids = torch.randint(0, model.config.vocab_size, (sequences, length))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.back), births:
        out = model(input_ids=ids, labels=ids)
    gc.collect()
    found = {}
    for held in sorted(live, key=lambda held: held.number):
        at = held.back.untyped_storage()
        if at.data_ptr() not in parameters | {ids.untyped_storage().data_ptr()} and at.data_ptr() not in found:
            found[at.data_ptr()] = (held.layer, held.made, at.nbytes())
    if verbose:
        for layer, made, size in sorted(found.values(), key=str):
            print(layer, made, size)
    table = collections.Counter((layer, made[0], size) for layer, made, size in found.values())
    rows = [(name, sequences, length, layer, kind, size, table[layer, kind, size]) for layer, kind, size in sorted(table)]
    out.loss.backward()
    return rows


def main():
    only = sys.argv[2:]
    rows = []
    for name in only or CASES:
        rows += measure(name, len(only) > 0)
    table = pathlib.Path(sys.argv[1])
    for name in only or CASES:
        text = {k: v for k, v in CASES[name][2]().to_dict().items() if v is not None and k not in QUIET}
        folder = table.with_suffix("")
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
    with open(table, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", "sequences", "length", "layer", "kind", "bytes", "tensors"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
