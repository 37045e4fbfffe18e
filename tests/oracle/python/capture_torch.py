#!/usr/bin/env python3
"""spillway_moe.capture inside of real frameworks, on tiny random models and a CPU: transformers, torchtitan, Megatron-Core. What the
trace holds equals what the experts were called with, and `trace verify` and `replay` accept it. PyTorch and the frameworks come from
PyPI into a virtual environment once, some GB of it: a test for long runs.
capture_torch.py SPILLWAY SCRATCH SOURCE VENV"""
import json
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import framework_venv

framework_venv.enter(sys.argv[4], "torch", framework_venv.TORCH, "it is run by .ci/run long alone")
SPILLWAY, SCRATCH, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "capture_torch", pathlib.Path(sys.argv[3]).resolve()
sys.path.insert(0, str(SOURCE / "python"))
import h5py
import numpy as np
import torch
import transformers

from spillway_moe.capture import Capture
from processes import HANG_S
from spillway_moe.capture.torch import routers, watch

checks, seen = 0, []
EXPERTS, TOP_K, LAYERS = 8, 2, 3
COMMON = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=64, num_experts_per_tok=TOP_K, pad_token_id=0)
GROUPED = dict(n_routed_experts=EXPERTS, n_group=2, topk_group=1, n_shared_experts=1, moe_intermediate_size=16, first_k_dense_replace=1)
LATENT = dict(q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, num_key_value_heads=4)
MODELS = {  # the options of its configuration, the layers with experts
    "Mixtral": (dict(num_local_experts=EXPERTS), range(LAYERS)),
    "Qwen2Moe": (dict(num_experts=EXPERTS, moe_intermediate_size=16, shared_expert_intermediate_size=16, decoder_sparse_step=1), range(LAYERS)),
    "Qwen3Moe": (dict(num_experts=EXPERTS, moe_intermediate_size=16, head_dim=8, mlp_only_layers=[1]), (0, 2)),
    "Olmoe": (dict(num_experts=EXPERTS), range(LAYERS)),
    "GptOss": (dict(num_local_experts=EXPERTS, head_dim=8, layer_types=["full_attention"] * LAYERS), range(LAYERS)),
    "DeepseekV3": (dict(GROUPED, **LATENT), (1, 2)),
    "DeepseekV2": (dict(GROUPED, **LATENT), (1, 2)),
    "Glm4Moe": (dict(GROUPED, head_dim=8), (1, 2)),
    "Ernie4_5_Moe": (dict(moe_num_experts=EXPERTS, moe_k=TOP_K, moe_intermediate_size=16, moe_num_shared_experts=1, moe_layer_start_index=1), (1, 2)),
    "Phimoe": (dict(num_local_experts=EXPERTS), range(LAYERS)),
}


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAILED: {what}")


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=HANG_S)
    check(done.returncode == 0, f"{command}: {done.stdout} {done.stderr}")
    return done.stdout


def read(path):
    with h5py.File(path) as h:
        ids = h["tokens/expert_id"][:].astype("i4")
        ids[ids == h["tokens/expert_id"].attrs["missing_value"]] = -1
        return ids, h["tokens/weight"][:] if "tokens/weight" in h else None, h["tokens/step_offset"][:], list(h["layer"][:]), list(h["steps/id"][:]), list(h["steps/microbatch"][:])


def accepted(path):
    run(SPILLWAY, "trace", "verify", path)
    check(f"top-{TOP_K} of {EXPERTS} experts" in run(SPILLWAY, "trace", "info", path), "info")


def called_experts(model):
    """What the experts of each layer were called with, by forward pass, taken from their arguments: a count of the framework itself."""
    passes = []
    def keep(layer):
        def hook(module, args, kwargs):
            values = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
            ids = [v for v in values if not v.is_floating_point() and v.shape[-1] == TOP_K]
            if ids and passes:
                weights = [v for v in values if v.is_floating_point() and v.shape == ids[0].shape]
                passes[-1].setdefault(layer, (ids[0].numpy().copy(), weights[0].detach().float().numpy().copy() if weights else None))
        return hook
    for name, module in model.named_modules():
        if name.endswith(".experts"):
            module.register_forward_pre_hook(keep(int(name.split(".layers.")[1].split(".")[0])), with_kwargs=True)
    model.register_forward_pre_hook(lambda *_: passes.append({}))
    return passes


def test_transformers():
    for name, (options, layers) in MODELS.items():
        config = getattr(transformers, name + "Config")(**{**COMMON, **options})
        torch.manual_seed(3)
        model = getattr(transformers, name + "ForCausalLM")(config).train()
        folder, passes = SCRATCH / name, called_experts(model)
        found = [n for n, _ in routers(model)]
        with Capture(folder, experts=EXPERTS, top_k=TOP_K, layers=layers, rank=1, ranks=2, weights=True, every=2, model={"name": name, "hidden_size": 32}) as capture:
            handles = watch(model, capture)
            for step in range(4):
                with capture.step(step):
                    for micro in range(2):
                        model(input_ids=torch.randint(1, 64, (2, 7 + step)))
        for handle in handles:
            handle.remove()
        check(sorted(p.name for p in folder.iterdir()) == [f"rank00001_step{s:09}.h5" for s in (0, 2)], f"{name}: files")
        check(len(found) == len(layers) and len(passes) == 8, f"{name}: routers {found}")
        for step in (0, 2):
            ids, weights, offset, in_layers, in_steps, micros = read(capture.path(step))
            check(in_layers == list(layers) and in_steps == [step] * 2 and micros == [0, 1], f"{name}: layers {in_layers}, steps {in_steps}")
            for micro in range(2):
                rows = slice(offset[micro], offset[micro + 1])
                check(offset[micro + 1] - offset[micro] == 2 * (7 + step), f"{name}: tokens")
                for place, layer in enumerate(layers):
                    called, with_weights = passes[2 * step + micro][layer]
                    check((ids[rows, place] == called.reshape(-1, TOP_K)).all(), f"{name}: ids of layer {layer}")
                    check(with_weights is None or np.allclose(weights[rows, place], with_weights.reshape(-1, TOP_K), rtol=2e-3, atol=1e-6), f"{name}: weights")
            accepted(capture.path(step))
        seen.append(name)


def test_checkpointing():
    """What is computed again for the backward pass is not counted again."""
    config = transformers.MixtralConfig(**COMMON, num_local_experts=EXPERTS, use_cache=False)
    model = transformers.MixtralForCausalLM(config).train()
    model.gradient_checkpointing_enable()
    calls = []
    dict(model.named_modules())["model.layers.0.mlp.experts"].register_forward_pre_hook(lambda *_: calls.append(1))
    with Capture(SCRATCH / "checkpointing", experts=EXPERTS, top_k=TOP_K, layers=range(LAYERS)) as capture:
        watch(model, capture)
        with capture.step(5):
            tokens = torch.randint(1, 64, (1, 16))
            model(input_ids=tokens, labels=tokens).loss.backward()
    check(len(calls) == 2, f"the layer ran {len(calls)} times")
    ids, *_, micros = read(capture.path(5))
    check(ids.shape == (16, LAYERS, TOP_K) and micros == [0], f"{ids.shape}")
    accepted(capture.path(5))


class Layers(torch.nn.Module):
    """Routers of a framework, one a layer, and what they returned."""

    def __init__(self, routers_of_layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(routers_of_layers)
        self.returned = []

    def forward(self, x):
        self.returned.append([layer(x) for layer in self.layers])
        return x


def keep_routers(name, layers, x, rows_of):
    model = Layers(layers)
    with Capture(SCRATCH / name, experts=EXPERTS, top_k=TOP_K, layers=range(len(layers)), weights=True) as capture:
        watch(model, capture)
        with capture.step(0):
            model(x)
    ids, weights, *_ = read(capture.path(0))
    for layer, output in enumerate(model.returned[0]):
        probs = np.zeros((len(ids), EXPERTS), "f4")
        np.put_along_axis(probs, ids[:, layer], weights[:, layer].astype("f4"), 1)
        check(np.allclose(probs, rows_of(output), rtol=2e-3, atol=1e-6), f"{name}: rows of layer {layer}")
    accepted(capture.path(0))
    seen.append(name)


def test_torchtitan():
    from torchtitan.models.common import Linear
    from torchtitan.models.common.moe import TokenChoiceTopKRouter as Router
    layers = [Router(Router.Config(num_experts=EXPERTS, gate=Linear.Config(in_features=32, out_features=EXPERTS, bias=False), top_k=TOP_K)) for _ in range(2)]
    for layer in layers:
        torch.nn.init.normal_(layer.gate.weight)

    def rows_of(output):
        scores, ids, _ = output
        return torch.zeros(10, EXPERTS).scatter(1, ids.reshape(-1, TOP_K), scores.detach().reshape(-1, TOP_K)).numpy()
    keep_routers("torchtitan", layers, torch.randn(2, 5, 32), rows_of)


def test_megatron():
    torch.cuda.current_device = lambda: torch.device("cpu")  # its router asks for the device even where it is not used
    from megatron.core import parallel_state
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.moe.router import TopKRouter
    from megatron.core.transformer.transformer_config import TransformerConfig
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None  # 0.16.1 does not define it without TransformerEngine
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    config = TransformerConfig(num_layers=2, hidden_size=32, num_attention_heads=4, num_moe_experts=EXPERTS, moe_router_topk=TOP_K,
                               use_cpu_initialization=True, moe_router_load_balancing_type="none")
    layers = [TopKRouter(config, pg_collection=moe_utils.get_default_pg_collection()) for _ in range(2)]
    for layer in layers:
        torch.nn.init.normal_(layer.weight)
    keep_routers("megatron-core", layers, torch.randn(5, 2, 32), lambda output: (output[0] * output[1]).detach().numpy())
    torch.distributed.destroy_process_group()


def test_replay():
    """The folder of two ranks is one trace, and a replay of it has the framework's rows."""
    config = transformers.MixtralConfig(**COMMON, num_local_experts=EXPERTS)
    model, folder = transformers.MixtralForCausalLM(config), SCRATCH / "replay"
    config.to_json_file(SCRATCH / "config.json")
    passes = called_experts(model)
    for rank in range(2):
        with Capture(folder, experts=EXPERTS, top_k=TOP_K, layers=range(LAYERS), rank=rank, ranks=2, sequence_length=16) as capture:
            handles = watch(model, capture)
            with capture.step(0):
                model(input_ids=torch.randint(1, 64, (1, 16)))
        for handle in handles:
            handle.remove()
    accepted(folder)
    rows = json.loads(run(SPILLWAY, "replay", folder, "--model", SCRATCH / "config.json", "--cluster", "h200:1x2", "--expert-parallel", 2,
                          "--sequences-per-gpu", 1, "--sequence-length", 16, "--scheme", "megatron-alltoall", "--format", "json"))["rows"]
    both = [np.concatenate([p[layer][0].reshape(-1) for p in passes]) for layer in range(LAYERS)]
    most = max(np.bincount(ids // (EXPERTS // 2), minlength=2).max() for ids in both)
    check(rows[0]["traffic"]["rows_max"] == most, f"rows {rows[0]['traffic']}, the experts were called with {most}")
    check(rows[0]["evidence"] != "resampled", f"evidence {rows[0]['evidence']}")


shutil.rmtree(SCRATCH, ignore_errors=True)
SCRATCH.mkdir(parents=True)
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
shutil.rmtree(SCRATCH)
print(f"{checks} checks: {', '.join(seen)}")
sys.exit(0 if checks > 0 else 1)
