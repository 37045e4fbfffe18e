"""What the questions of pairs_kept.py are made of: of each table its axes, and of each axis its values, the usual one first and alone without
refusal. What needs another option to stand at all has it within its value."""
import dataclasses


def nothing(_program, _folder, _root):
    """Needs no files."""


@dataclasses.dataclass
class Table:
    name: str
    part: str                  # the test that asks it
    axes: dict                 # name -> values, each the words of a command line
    makes: tuple = ()          # files that a question writes
    prepare: object = nothing  # writes what the questions read
    quick: dict = dataclasses.field(default_factory=dict)  # axis -> words of a cheaper question that is refused for the same reasons: to draw


ALL_MODELS = ["deepseek-v2-lite", "deepseek-v2", "deepseek-v3.2", "deepseek-v3", "deepseek-v4-flash", "deepseek-v4-pro", "dots.llm1",
              "ernie-4.5-300b-a47b", "flame-moe-290m", "glm-4.5-air", "glm-4.5", "glm-4.7-flash", "glm-5", "gpt-oss-120b", "gpt-oss-20b",
              "hunyuan-a13b", "jamba-1.5-large", "kimi-k2", "kimi-k3", "kimi-linear-48b-a3b", "ling-1t", "llama-4-maverick", "llama-4-scout",
              "longcat-flash", "minimax-m2", "minimax-m3", "mixtral-8x22b", "mixtral-8x7b", "nemotron-3-nano", "nemotron-3-super", "olmoe-1b-7b",
              "phi-3.5-moe", "qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-coder-480b-a35b", "qwen3-next-80b-a3b", "qwen3.5-35b-a3b",
              "qwen3.5-397b-a17b", "scratch-moe-e64"]


MIXTRAL_AND_ALL = sorted(ALL_MODELS, key=lambda name: name != "mixtral-8x7b")


def models(*names):
    return [f"--model {name}" for name in names]


def keys(key, *values):
    """Not said, or one of these."""
    return ["", *(f"--set {key}={value}" for value in values)]


def megatron(asks, names, **more):
    """Jobs of Megatron-Core. 16 micro-batches go with every pipeline here."""
    return {
        "ask": asks,
        "model": models(*names),
        "scheme": [f"--scheme {scheme}" for scheme in (
            "megatron-alltoall", "megatron-flex", "megatron-flex:backend=hybridep,capacity_factor=1.5", "megatron-allgather",
            "megatron-alltoall:capacity_factor=1.25,pad=true", "megatron-alltoall:align=128,pay=router",
            "megatron-syncfree:rank_capacity=1.5,stash=1.25,page=32", "megatron-ncclep:align=32", "primus-syncfree:level=3", "primus-megamoe",
            "megatron-flex:align=16,policy=position,capacity_factor=1")],
        "cluster": [f"--cluster {cluster}" for cluster in ("h200:8x16", "gb200:4x32", "mi355x:8x8", "h100:8x32")],
        "expert": ["--expert-parallel 8", "--expert-parallel 2", "--expert-parallel 4", "--expert-parallel 16"],
        "tensor": ["--expert-tensor 1", "--tensor 2 --expert-tensor 1", "--tensor 4 --expert-tensor 2", "--tensor 1 --expert-tensor 2", "--tensor 2"],
        "context": ["", "--context 2", "--context 4"],
        "pipeline": ["", "--pipeline 2", "--pipeline 4", "--pipeline 2 --virtual-stages 2",
                     "--pipeline 2 --set parallel.decoder_first_pipeline_num_layers=7",
                     "--pipeline 4 --set parallel.decoder_last_pipeline_num_layers=1 --set parallel.decoder_first_pipeline_num_layers=3",
                     "--pipeline 2 --set parallel.account_for_embedding_in_pipeline_split=true"
                     " --set parallel.account_for_loss_in_pipeline_split=true"],
        "mtp": keys("parallel.mtp_num_layers", 1, 2),
        "batch": ["--sequences-per-gpu 16 --micro-batches 16", "--sequences-per-gpu 24 --micro-batches 8", "--sequences-per-gpu 8 --micro-batches 8",
                  "--global-batch 2048 --micro-batches 16"],
        "length": ["--sequence-length 4096", "--sequence-length 1024", "--sequence-length 16384"],
        "optimizer": ["--optimizer distributed", "--optimizer replicated", "--optimizer distributed --set optimizer_instances=2",
                      "--optimizer distributed --set optimizer_on_host=0.25", "--optimizer distributed --set optimizer_algorithm=muon",
                      "--optimizer distributed --set optimizer_algorithm=muon --set muon_layout=ping_pong",
                      "--optimizer distributed --set store_param_remainders=true", "--optimizer replicated --set optimizer_algorithm=muon"],
        "formats": ["", "--set precision.gradients=bf16", "--set precision.optimizer=bf16", "--precision bf16"],
        "recipe": [*keys("precision.recipe", "delayed", "tensorwise", "blockwise", "mxfp8"),
                   "--set precision.recipe=blockwise --set precision.fp8_param_gather=true"],
        "remat": [f"--remat {remat}" for remat in ("none", "full", "selective", "moe_act,layernorm", "moe", "shared_experts", "mlp,mla_up_proj")],
        "offload": keys("offload_modules", "expert_fc1", "moe_act", "expert_fc1,moe_act"),
        "attention": keys("attention", "unfused", "sdpa"),
        "loss": keys("cross_entropy", "unfused", "native", "te"),
        "finetune": ["", "--set finetune.frozen=experts", "--set finetune.frozen=base --set finetune.lora_rank=8",
                     "--set finetune.frozen=base --set finetune.lora_rank=16 --set finetune.lora_targets=both"],
        "graphs": ["", "--set cuda_graph_impl=transformer_engine", "--set cuda_graph_impl=local"],
        "overlap": ["", "--set overlap_grad_reduce=true", "--set overlap_grad_reduce=true --set overlap_param_gather=true",
                    "--set overlap_moe_expert_parallel_comm=true", "--set overlap_moe_expert_parallel_comm=true --set delay_wgrad_compute=true",
                    "--set moe_shared_expert_overlap=true"],
        "fusions": ["", "--set gradient_accumulation_fusion=false", "--set gradient_accumulation_fusion=layers", "--set moe_permute_fusion=false",
                    "--set moe_router_fusion=true --set apply_rope_fusion=false"],
        "resident": ["", "--set resident.gib=3 --set resident.share=0.1 --set resident.name=other", "--memory-fraction 0.8"],
        **more}


def maxtext(asks, names, **more):
    return {
        "ask": asks,
        "model": models(*names),
        "scheme": [f"--scheme {scheme}" for scheme in (
            "gmm", "dense:capacity_factor=1.25", "ring", "ragged", "gmm-deepep:fan_in=scatter2", "ragged-deepep", "ragged-ring:buffer_factor=2",
            "gmm:buffer_factor=1.5,exchange=oneshot", "ring:token_chunks=4,ragged_sort=true", "dense:capacity_factor=1.5,layout=gathered",
            "dense:capacity_factor=2,layout=peeled")],
        "cluster": [f"--cluster {cluster}" for cluster in ("h200:8x8", "mi355x:8x8", "gb200:4x16", "tpu-v5p:4x8", "h100:8x4")],
        "expert": ["--expert-parallel 8", "--expert-parallel 2", "--expert-parallel 16"],
        "mesh": ["", "--tensor 2", "--context 2", "--tensor 4 --context 2"],
        "pipeline": ["", "--pipeline 2 --micro-batches 4", "--pipeline 2 --virtual-stages 2 --micro-batches 4", "--pipeline 4 --micro-batches 8"],
        "batch": ["--sequences-per-gpu 8", "--sequences-per-gpu 16", "--global-batch 1024"],
        "length": ["--sequence-length 4096", "--sequence-length 1024"],
        "precision": ["", "--precision bf16", "--precision mixed", "--precision fp32", "--set precision.recipe=delayed"],
        "remat": [f"--remat {remat}" for remat in ("full", "none", "minimal", "save_out_proj", "save_qkv_proj", "minimal_with_context",
                                                   "save_dot_except_mlp", "decoder_layer_input_offloaded", "qkv_proj_offloaded")],
        "stack": ["", "--stack none", "--stack xla-cuda-0.12.0", "--stack maxtext-rocm-2026-05", "--stack xla-cuda-0.10.2-april"],
        "loss": keys("cross_entropy", "fused"),
        "resident": ["", "--memory-fraction 0.8"],
        **more}


def pytorch(asks, names, **more):
    """torchtitan, transformers and layers of others, sharded by FSDP2 or not."""
    return {
        "ask": asks,
        "model": models(*names),
        "scheme": [f"--scheme {scheme}" for scheme in (
            "torchtitan", "torchtitan-hybridep:capacity=0.5,pad=16", "torchtitan-async", "transformers", "transformers:logits=kept", "megablocks:impl=sparse",
            "tutel:capacity_factor=1.5,alignment=8", "deepep:pad=128,buffers=v2", "deepep-ll", "hybrid-ep:budget=2,pad=16",
            "moe-dedup:buffer_factor=1.5,overflow_factor=1", "megablocks:impl=memory_optimized")],
        "cluster": [f"--cluster {cluster}" for cluster in ("h200:8x4", "b200:8x8", "mi300x:8x8", "h100:8x6")],
        "expert": ["--expert-parallel 8", "--expert-parallel 2", "--expert-parallel 1", "--expert-parallel 4"],
        "pipeline": ["", "--pipeline 2 --micro-batches 4", "--pipeline 2 --virtual-stages 2 --micro-batches 4", "--micro-batches 2",
                     "--pipeline 2 --micro-batches 4 --set parallel.schedule=GPipe"],
        "batch": ["--sequences-per-gpu 8", "--sequences-per-gpu 4", "--global-batch 1536"],
        "length": ["--sequence-length 4096", "--sequence-length 1024"],
        "state": ["", "--set fsdp2.reshard_after_forward=always", "--set fsdp2.reshard_after_forward=never",
                  "--set fsdp2.reshard_after_forward=always --set fsdp2.replicas=2", "--set fsdp2.reshard_after_forward=always --set fsdp2.prefetch=3",
                  "--set fsdp2.reshard_after_forward=always --set fsdp2.state=host", "--optimizer replicated",
                  "--set fsdp2.reshard_after_forward=always --set fsdp2.gathered=fp32"],
        "precision": ["", "--precision bf16", "--precision mixed", "--set precision.recipe=tensorwise", "--set precision.recipe=mxfp8"],
        "remat": [f"--remat {remat}" for remat in ("none", "full", "selective_op")],
        "finetune": ["", "--set finetune.frozen=base --set finetune.lora_rank=8", "--set finetune.frozen=experts",
                     "--set finetune.frozen=base --set finetune.lora_rank=16 --set finetune.lora_targets=linear"],
        "loss": keys("cross_entropy", "unfused", "fused", "chunked"),
        "attention": keys("attention", "sdpa"),
        "resident": ["", "--set resident.gib=3", "--memory-fraction 0.8"],
        "limits": ["--set library_limits=ignore"],
        **more}


FOUR = ("mixtral-8x7b", "olmoe-1b-7b", "flame-moe-290m", "gpt-oss-20b", "deepseek-v2-lite")
SOME = (*FOUR, "qwen3-next-80b-a3b", "glm-4.7-flash")
EXPLAIN = [f"explain{words}" for words in (" --format json", " --traffic --format json", "", " --traffic --format csv")]
PLANS = [f"plan --routing-tokens 2048 --no-allocator --drop-at-most 100 {words}" for words in (
    "--format json", "--format json --price 2.5", "--details", "--format csv --tokens 300B", "--format json --imbalance 1.5")]
REPLAYED = ["plan --routing-tokens 1024 --drop-at-most 100 --format json", "plan --routing-tokens 1024 --drop-at-most 100 --format json --every-rank", "plan --routing-tokens 1024 --drop-at-most 100 --details"]
QUICK = {"ask": "explain", "allocator": "", "routing": "", "stack": ""}
ROUTING = {"routing": ["", "--routing uniform", "--routing zipf:exponent=0.5", "--routing collapse --routing-steps 3", "--imbalance 1.4,ep=4",
                       "--seed 3 --routing lognormal:sigma=0.5"]}
ALLOCATOR = {"allocator": ["", "--allocator expandable_segments:True", "--allocator max_split_size_mb:32",
                           "--set allocator.per_process_memory_fraction=0.9 --set allocator.roundup_power2_divisions=4"]}
STACKS = {"stack": ["", "--stack none", "--stack megatron-h200-2026-11", "--stack megatron-te-gb200-2026-11"]}
SEARCH = ["plan --search --routing-tokens 2048 --no-allocator --format json",
          "plan --search --routing-tokens 2048 --no-allocator --details", "plan --search --routing-tokens 2048 --no-allocator --format csv --price 2"]
SEARCHED = {
    "ask": SEARCH,
    "model": models("flame-moe-290m", "olmoe-1b-7b", "gpt-oss-20b", "deepseek-v2-lite"),
    "cluster": ["--cluster h200:8x1", "--cluster h200:4x2", "--cluster mi355x:8x1"],
    "scheme": [f"--scheme {scheme}" for scheme in ("megatron-alltoall", "megatron-flex:backend=hybridep", "gmm", "torchtitan",
                                                    "dense:capacity_factor=1.25", "megatron-alltoall:capacity_factor=1")],
    "pipeline": ["--over pipeline=1", "--over pipeline=1,2", "--over pipeline=2 --over virtual-stages=1,2"],
    "micro": ["--over micro-batches=4", "--over micro-batches=2,4"],
    "expert": ["--over expert-parallel=4", "--over expert-parallel=2,8", "--over expert-parallel=2"],
    "tensor": ["--over tensor=1", "--over tensor=1,2", "--over context=1,2"],
    "remat": ["--over remat=full", "--over remat=none,full", "--over remat=none"],
    "batch": ["--sequences-per-gpu 4", "--global-batch 64", "--sequences-per-gpu 4,8 --global-batch-at-most 256k"],
    "gpus": ["", "--gpus-at-most 16"],
    "wish": ["", "--tokens-per-day 1B", "--drop-at-most 0", "--tokens 1T"],
}
FLAGS = [f"plan --routing-tokens 1024 --no-allocator --drop-at-most 100 --flags {name}" for name in ("megatron", "bridge", "primus")]
FILES = ["accelerate_fsdp2.yaml", "axolotl_glm_45_air_qlora.yaml", "axolotl_gpt_oss_20b_zero3.yaml", "axolotl_mixtral_qlora.yml",
         "axolotl_qwen3_30b_fsdp.yaml", "bridge_deepseek_v3_gb300.yaml", "bridge_qwen3_next.yaml", "deepspeed_zero2.json", "deepspeed_zero3_offload.json",
         "maxtext_mixtral_8x7b_dropping.sh", "maxtext_mixtral_8x7b_gpu.yml", "maxtext_mixtral_8x7b_v6e.sh", "megatron_deepseek_v3_proxy.yaml",
         "megatron_deepseek_v4_flash.yaml", "megatron_fsdp_deepseek_v3.sh", "megatron_mixtral_8x22b.yaml", "megatron_mixtral_8x7b.log",
         "megatron_mixtral_8x7b.sh", "megatron_rl_qwen3_30b.sh", "primus_deepseek_v3.yaml", "primus_maxtext_mixtral.yaml", "primus_mixtral_8x7b_fp8.yaml",
         "primus_qwen3_30b.yaml", "primus_torchtitan_deepseek_v3.yaml", "torchtitan_deepseek_v3_671b.toml", "torchtitan_llama4_scout.toml", "trl_sft.yaml",
         "zoo_deepseek_v3_gb200.sh", "zoo_qwen3_235b.yaml", "zoo_qwen3_30b.sh"]
FROM = {
    "ask": ["job --format json", "job", "plan --routing-tokens 1024 --no-allocator --drop-at-most 100 --format json", "explain --format json", "explain --traffic --format json",
            *(f"plan --routing-tokens 1024 --no-allocator --drop-at-most 100 --flags {name}" for name in ("megatron", "bridge", "primus", "maxtext", "torchtitan"))],
    "file": [f"--from root/tests/frameworks/{name}" for name in FILES],
    "cluster": [f"--cluster {cluster}" for cluster in ("h200:8x32", "gb300:4x64", "mi355x:8x16", "h100:8x64")],
    "model": ["", "--model qwen3-30b-a3b", "--model deepseek-v2-lite", "--model gpt-oss-20b"],
    "split": ["", "--expert-parallel 4", "--tensor 2", "--context 2", "--pipeline 2", "--pipeline 1"],
    "batch": ["", "--sequences-per-gpu 32 --micro-batches 16", "--sequence-length 2048"],
    "state": ["", "--optimizer distributed", "--precision bf16", "--set optimizer_on_host=0.5", "--set fsdp2.state=host"],
    "remat": ["", "--remat none", "--remat full"],
    "finetune": ["", "--set finetune.frozen=base --set finetune.lora_rank=4", "--set finetune.frozen=none --set finetune.lora_rank=0"],
}
SCORED = {
    "ask": ["score --format json", "score", "score --format csv"],
    "table": [f"root/notebooks_data/{path}.csv" for path in (
        "published/deepseek3_mi355x_2026_04", "published/deepseek3_mi355x_c4", "published/deepseek3_mi355x_inter_node_ep16",
        "published/deepseek3_mi355x_remat_fsdp", "compiled/maxtext_pipeline", "compiled/maxtext_fp32", "compiled/maxtext_2026_11_unseen",
        "judged/mixtral_8x7b_h200_2025", "judged/deepseek3_mi355x_pipeline", "megatron/megatron_bare_layers", "measured/megatron_h200_two_ranks",
        "measured/megatron_h200_tensor", "measured/megatron_h200_phases", "measured/whole_device", "figures/sonicmoe_figures_digitised",
        "kernels/h200_dispatch", "kernels/h200_layer", "profiles/mi355x_kernel_seconds")],
    "stack": ["", "--stack xla-cuda-0.12.0", "--stack maxtext-rocm-2026-04", "--time-stack maxtext-rocm-2026-04", "--time-stack xla-cuda-0.10.2"],
    "traces": ["", "--traces root/traces/data"],
    "cluster": ["", "--cluster h200:8x1", "--cluster h100:8x1"],
}
SHORT = [f"--sequence-length {length}" for length in (4096, 1024, 2048)]  # of plans, whose time is that of tokens
AS = ["explain", *(f"explain --as {peer}{form}" for peer in ("simumax", "primus", "megatron") for form in (" --format json", ""))]

TABLES = [
    Table("explain megatron", "memory", megatron(EXPLAIN, MIXTRAL_AND_ALL)),
    Table("explain maxtext", "memory", maxtext(EXPLAIN, MIXTRAL_AND_ALL)),
    Table("explain pytorch", "memory", pytorch(EXPLAIN, MIXTRAL_AND_ALL)),
    Table("peers", "frameworks", megatron(AS, SOME)),
    Table("plan megatron", "plan", megatron(PLANS, SOME, **ROUTING, **STACKS, length=SHORT), quick=QUICK),
    Table("plan maxtext", "plan_compiled", maxtext(PLANS, SOME, **ROUTING), quick=QUICK),
    Table("plan pytorch", "plan_compiled", pytorch(PLANS, FOUR, **ROUTING), quick=QUICK),
    Table("allocator pytorch", "plan_searched", pytorch(REPLAYED, ("mixtral-8x7b", "flame-moe-290m"), **ALLOCATOR, length=[SHORT[2], SHORT[1]]), quick=QUICK),
    Table("search", "plan_searched", SEARCHED),
    Table("flags megatron", "frameworks", megatron(FLAGS, SOME, length=SHORT), quick={"ask": "explain"}),
    Table("flags maxtext", "frameworks", maxtext(["plan --routing-tokens 1024 --drop-at-most 100 --flags maxtext"], SOME)),
    Table("flags torchtitan", "frameworks", pytorch(["plan --routing-tokens 1024 --no-allocator --drop-at-most 100 --flags torchtitan"], FOUR)),
    Table("from", "frameworks", FROM),
    Table("score", "replay", SCORED),
]
