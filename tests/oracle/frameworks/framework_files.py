#!/usr/bin/env python3
"""Public configurations of training frameworks as jobs: what a person reads in each file stands beside it here, key by key.

usage: framework_files.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import pathlib
import re
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from framework_checks import FILES, PROGRAM, ROOT, SCRATCH, at, check, check_settings, job_of, oracle
import program as asked

# The proxy's own sizes, with a vocabulary that its file leaves to a tokenizer.
PROXY = json.dumps({"model_type": "generic", "num_hidden_layers": 14, "hidden_size": 7168, "vocab_size": 131072, "num_attention_heads": 128,
                    "intermediate_size": 18432, "n_routed_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
                    "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                    "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": False, "num_nextn_predict_layers": 1})

# file: (options that the file lacks, what the job has, names that have no counterpart)
WANT = {
    "megatron_mixtral_8x7b.sh": (["--cluster", "h100:8x4"], {
        "model": "mixtral-8x7b", "parallel.tensor": 1, "parallel.pipeline": 4, "parallel.expert": 8, "batch.global_batch": 256,
        "batch.micro_batches": 32, "batch.sequences_per_gpu": [32], "batch.sequence_length": 4096, "optimizer": "distributed",
        "precision.weights": "bf16", "precision.gradients": "fp32", "precision.optimizer": "fp32", "remat": "none",
        "cross_entropy": "unfused", "schemes": ["megatron-alltoall"]}, ["tokenizer_model"]),
    "megatron_mixtral_8x7b.log": (["--cluster", "h100:8x2"], {
        "model": "mixtral-8x7b", "parallel.expert": 8, "batch.global_batch": 128, "batch.micro_batches": 8, "batch.sequences_per_gpu": [8],
        "optimizer": "distributed", "schemes": ["megatron-alltoall"], "remat": "none"}, ["img_h", "query_in_block_prob"]),
    "megatron_fsdp_deepseek_v3.sh": (["--cluster", "gb200:8x32"], {
        "model": "deepseek-v3", "parallel.expert": 8, "parallel.expert_tensor": 1, "batch.global_batch": 2048, "batch.micro_batches": 2,
        "batch.sequences_per_gpu": [8], "optimizer": "sharded", "fsdp2.reshard_after_forward": "always",
        "remat": "layernorm+mla_up_proj+mlp+moe", "schemes": ["megatron-flex:backend=hybridep"]}, ["moe_router_force_load_balancing"]),
    "megatron_deepseek_v3_proxy.yaml": (["--cluster", "h100:8x8", "--model", PROXY], {
        "parallel.tensor": 2, "parallel.pipeline": 4, "parallel.expert": 16, "parallel.expert_tensor": 1, "batch.global_batch": 512,
        "batch.micro_batches": 64, "cross_entropy": "native", "allocator.expandable_segments": True, "remat": "none",
        "schemes": ["megatron-flex:backend=hybridep"]}, ["model", "tokenizer_model"]),
    "megatron_mixtral_8x22b.yaml": (["--cluster", "h100:8x16"], {
        "model": "mixtral-8x22b", "parallel.tensor": 2, "parallel.pipeline": 8, "parallel.expert": 8, "batch.global_batch": 256,
        "batch.micro_batches": 32, "overlap_grad_reduce": True, "overlap_param_gather": True, "apply_rope_fusion": "false",
        "moe_permute_fusion": "auto", "schemes": ["megatron-alltoall"]}, []),
    "megatron_rl_qwen3_30b.sh": (["--cluster", "h100:8x1", "--set", "parallel.sequence_parallel=true"], {
        "model": "qwen3-30b-a3b", "parallel.tensor": 4, "parallel.expert": 2, "parallel.sequence_parallel": True,
        "batch.sequence_length": 8192, "batch.global_batch": 256, "batch.micro_batches": 128, "optimizer": "replicated",
        "schemes": ["megatron-alltoall"]}, ["grpo_iterations"]),
    "zoo_qwen3_235b.yaml": (["--cluster", "h100:8x4", "--global-batch", "64", "--pipeline", "4", "--expert-parallel", "8"], {
        "model": "qwen3-235b-a22b", "parallel.account_for_embedding_in_pipeline_split": True, "parallel.expert_tensor": 1,
        "overlap_grad_reduce": True, "moe_permute_fusion": "true", "moe_router_fusion": "true",
        "cross_entropy": "te_in_place", "optimizer": "distributed"}, ["tensor_model_parallel_size", "expert_model_parallel_size"]),
    "zoo_qwen3_30b.sh": (["--cluster", "b200:8x1", "--sequences-per-gpu", "8"], {
        "model": "qwen3-30b-a3b", "parallel.expert": 8, "batch.micro_batches": 2, "batch.sequence_length": 4096,
        "remat": "moe_act+layernorm"}, ["moe_router_force_load_balancing"]),
    "zoo_deepseek_v3_gb200.sh": (["--cluster", "gb200:4x64"], {
        "model": "deepseek-v3", "parallel.pipeline": 4, "parallel.expert": 64, "parallel.virtual_stages": 4, "batch.global_batch": 8192,
        "batch.micro_batches": 128, "remat": "mlp", "precision.recipe": "mxfp8", "cuda_graph_impl": "transformer_engine",
        "parallel.pipeline_model_parallel_layout": "Et*4|(tttt|)*14tmL", "schemes": ["megatron-flex:backend=hybridep,align=32"]},
        ["offload_optimizer_states"]),
    "megatron_deepseek_v4_flash.yaml": (["--cluster", "gb200:64x2", "--model", str(ROOT / "sim/models/deepseek-v4-flash.json")], {
        "parallel.expert": 64, "batch.global_batch": 2048, "batch.micro_batches": 16, "remat": "mla_up_proj", "precision.recipe": "mxfp8",
        "precision.optimizer": "bf16", "schemes": ["megatron-syncfree:rank_capacity=1.5,stash=1.2,host=0.0,page=64,graph=full,align=32"]},
        ["o_groups", "csa_compress_ratios", "moe_router_force_load_balancing"]),
    "bridge_deepseek_v3_gb300.yaml": (["--cluster", "gb300:64x4"], {
        "model": "deepseek-v3", "parallel.pipeline": 2, "parallel.expert": 32, "parallel.virtual_stages": 8, "batch.global_batch": 4096,
        "batch.micro_batches": 32, "precision.gradients": "bf16", "precision.optimizer": "bf16", "precision.master": "fp32",
        "precision.recipe": "mxfp8", "precision.fp8_param_gather": True, "cross_entropy": "te_in_place",
        "schemes": ["megatron-syncfree:rank_capacity=1.5,graph=full,align=32"]}, ["moe_router_force_load_balancing"]),
    "bridge_qwen3_next.yaml": (["--cluster", "h100:8x1", "--model", "qwen3-next-80b-a3b", "--expert-parallel", "8"], {
        "batch.sequence_length": 2048, "batch.global_batch": 64, "batch.micro_batches": 8, "parallel.expert": 8}, []),
    "primus_deepseek_v3.yaml": (["--cluster", "mi355x:8x32"], {
        "model": "deepseek-v3", "parallel.pipeline": 16, "parallel.expert": 8, "parallel.virtual_stages": 2, "batch.global_batch": 4096,
        "batch.micro_batches": 128, "precision.gradients": "bf16", "precision.optimizer": "bf16", "remat": "full",
        "cross_entropy": "te_in_place", "schemes": ["primus-syncfree:level=1"]}, ["recompute_layer_ids", "moe_router_force_load_balancing"]),
    "primus_mixtral_8x7b_fp8.yaml": (["--cluster", "mi300x:8x1"], {
        "model": "mixtral-8x7b", "parallel.expert": 8, "batch.micro_batches": 2, "precision.recipe": "delayed", "optimizer": "distributed",
        "schemes": ["megatron-alltoall:align=16"]}, []),
    "primus_qwen3_30b.yaml": (["--cluster", "mi300x:8x1"], {
        "model": "qwen3-30b-a3b", "parallel.expert": 8, "schemes": ["primus-syncfree:level=2"]}, []),
    "primus_maxtext_mixtral.yaml": (["--cluster", "mi355x:8x1"], {
        "model": "mixtral-8x7b", "parallel.expert": 8, "parallel.fsdp": 1, "batch.sequences_per_gpu": [11], "memory_fraction": 0.96,
        "precision.weights": "bf16", "remat": "minimal", "optimizer": "sharded", "schemes": ["dense:capacity_factor=1"]},
        ["moe_dispatch_no_expert_sharding"]),
    "primus_torchtitan_deepseek_v3.yaml": (["--cluster", "mi300x:8x64"], {
        "model": "deepseek-v3", "parallel.expert": 8, "batch.sequences_per_gpu": [16], "batch.micro_batches": 1, "remat": "full",
        "optimizer": "sharded", "schemes": ["torchtitan"]}, []),
    "maxtext_mixtral_8x7b_v6e.sh": (["--cluster", "h100:8x8", "--set", "parallel.fsdp=64"], {
        "model": "mixtral-8x7b", "batch.sequences_per_gpu": [32], "batch.sequence_length": 1024, "parallel.expert": 1, "parallel.fsdp": 64,
        "precision.weights": "fp32", "remat": "full", "schemes": ["gmm"]}, []),
    "maxtext_mixtral_8x7b_gpu.yml": (["--cluster", "h100:8x1"], {
        "model": "mixtral-8x7b", "batch.sequences_per_gpu": [12], "remat": "minimal_with_context", "schemes": ["ragged"]}, ["scan_layers"]),
    "maxtext_mixtral_8x7b_dropping.sh": (["--cluster", "a100:8x1"], {
        "model": "mixtral-8x7b", "batch.sequences_per_gpu": [1], "batch.sequence_length": 1024, "parallel.expert": 8, "parallel.fsdp": 1,
        "precision.weights": "bf16", "remat": "full", "schemes": ["dense:capacity_factor=1.25"]}, []),
    "torchtitan_deepseek_v3_671b.toml": (["--cluster", "b200:8x32"], {
        "model": "deepseek-v3", "batch.sequences_per_gpu": [4], "batch.micro_batches": 1, "parallel.expert": 1, "remat": "selective_op",
        "precision.weights": "fp32", "optimizer": "sharded", "schemes": ["torchtitan"]},
        ["activation_checkpoint.mode", "quantize.grouped_mm.float8.fqns"]),
    "torchtitan_llama4_scout.toml": (["--cluster", "h100:8x16"], {
        "model": "llama-4-scout", "batch.sequence_length": 8192, "batch.sequences_per_gpu": [8], "parallel.tensor": 8,
        "parallel.expert_tensor": 8, "parallel.expert": 1, "remat": "full"}, []),
    "axolotl_qwen3_30b_fsdp.yaml": (["--cluster", "h100:4x1"], {
        "model": "qwen3-30b-a3b", "parallel.expert": 2, "batch.sequences_per_gpu": [1], "batch.sequence_length": 2048,
        "optimizer": "sharded", "fsdp2.reshard_after_forward": "always", "remat": "full"}, ["optimizer"]),
    "axolotl_mixtral_qlora.yml": (["--cluster", "h100:8x1"], {
        "model": "mixtral-8x7b", "finetune.frozen": "base", "finetune.lora_rank": 32, "finetune.lora_targets": "both",
        "batch.sequences_per_gpu": [2], "batch.micro_batches": 2, "remat": "full", "schemes": ["megatron-alltoall"]}, ["load_in_4bit", "adapter"]),
    "axolotl_gpt_oss_20b_zero3.yaml": (["--cluster", "h100:8x1"], {
        "model": "gpt-oss-20b", "optimizer": "sharded", "batch.sequences_per_gpu": [2], "batch.micro_batches": 2,
        "batch.sequence_length": 4096, "remat": "full"}, ["deepspeed", "activation_offloading", "optimizer"]),
    "axolotl_glm_45_air_qlora.yaml": (["--cluster", "h100:8x1"], {
        "model": "glm-4.5-air", "finetune.lora_rank": 16, "finetune.frozen": "base", "batch.sequence_length": 2048,
        "batch.sequences_per_gpu": [4]}, ["load_in_4bit"]),
    "deepspeed_zero3_offload.json": (["--cluster", "h100:8x1", "--model", "olmoe-1b-7b"], {
        "optimizer": "sharded", "fsdp2.state": "host", "fsdp2.reshard_after_forward": "always", "remat": "none"}, ["remat", "cross_entropy"]),
    "deepspeed_zero2.json": (["--cluster", "h100:8x1", "--model", "olmoe-1b-7b"], {
        "optimizer": "distributed", "optimizer_on_host": 1.0, "remat": "none"}, ["zero_optimization.stage", "remat"]),
    "accelerate_fsdp2.yaml": (["--cluster", "h100:8x1", "--model", "olmoe-1b-7b"], {
        "optimizer": "sharded", "fsdp2.reshard_after_forward": "always"}, []),
    "trl_sft.yaml": (["--cluster", "h100:8x1", "--model", "olmoe-1b-7b"], {
        "batch.sequence_length": 1024, "batch.sequences_per_gpu": [8], "optimizer": "replicated"}, ["model_name_or_path"]),
}


def listed(text, name):
    """The comment lines of `spillway job` that give reasons or name what is not said."""
    return any(line.startswith((f"#   {name} ", f"#   {name}:")) for line in text.splitlines())


# What a person would take for a line with a setting, by the file's ending; names of arguments in a script, whose lines go on.
LINES = {".yaml": r"\s*[A-Za-z_][\w.]*:[ ]+['\"\w.\[-]", ".yml": r"\s*[A-Za-z_][\w.]*:[ ]+['\"\w.\[-]", ".toml": r"\s*\w+ = ", ".log": r".*  \w+ \.\.\.+ \w"}
PROFILER = {"capture_range", "capture_range_end", "cuda_graph_trace", "cuda_memory_usage"}  # of the command in front


def flat(tree, name=""):
    return {k for key, value in tree.items() for k in flat(value, f"{name}{key}.")} if isinstance(tree, dict) else {name[:-1]}


def check_lines(name, answer):
    """No setting is dropped in silence."""
    path, text = FILES / name, (FILES / name).read_text()
    all_listed = answer["counts"] + [n for notes in answer["notes"].values() for n in notes]
    lines, names = {s["line"] for s in all_listed}, {s["name"] for s in all_listed}
    if path.suffix == ".sh":
        wanted = {word.replace("-", "_") for word in re.findall(r"^[^#\n]*?\s--([a-z][\w-]+)", text, re.M)} - PROFILER
        dropped = wanted - names - {"xla_flags"}
    elif path.suffix == ".json":
        wanted = flat(json.loads(text))
        dropped = wanted - names
    else:
        wanted = [i for i, line in enumerate(text.splitlines(), 1) if re.match(LINES[path.suffix], line)]
        dropped = set(wanted) - lines
    check((len(wanted) > 3 or path.suffix == ".sh") and not dropped, f"{name}: of {len(wanted)} settings these are nowhere: {dropped}")


def check_file(name, options, want, lacks):
    said = asked.run(PROGRAM, "job", name, cwd=FILES)
    check(said.returncode == 0, f"job {name}: {said.stderr}")
    for lack in lacks:
        check(listed(said.stdout, lack), f"{name}: {lack} is not listed as without a counterpart")
    got = job_of(name, *options)
    check(got.returncode == 0, f"job {name} {options}: {got.stderr}")
    if got.returncode != 0:
        return
    answer = json.loads(got.stdout)
    check_settings(name, answer)
    check_lines(name, answer)
    job = answer["job"]
    for path, value in want.items():
        check(at(job, path) == value, f"{name}: {path} is {at(job, path)}, should be {value}")
    # every setting of the file is in the listing: nothing is dropped in silence
    check(sum(1 for line in said.stdout.splitlines() if line.strip()) > 3, f"{name}: an empty listing")


def check_printed(name, options):
    """The job that is printed, read by --job, is the job of --from: to --explain, which names every byte."""
    said = asked.run(PROGRAM, "job", name, *options, cwd=FILES)
    path = SCRATCH / f"framework_{name}.yaml"
    path.write_text(said.stdout)
    words = ("explain", "--stack", "none", "--format", "json")
    a, b = asked.run(PROGRAM, *words, "--from", name, *options, cwd=FILES), asked.run(PROGRAM, *words, "--job", path, cwd=FILES)
    check(said.returncode == 0 and a.returncode == b.returncode and a.stdout == b.stdout,
          f"{name}: the printed job is another: {said.stderr} {a.stderr[-300:]} {b.stderr[-300:]}")


def check_recipe():
    """Bridge's configuration is the row of its recipe in the table of published runs."""
    with open(ROOT / "notebooks_data/megatron/megatron_runs.csv", encoding="utf-8") as file:
        row = next(r for r in csv.DictReader(file) if r["row_id"] == "mb000")
    words = ("explain", "--stack", "none", "--format", "json")
    a = asked.run(PROGRAM, *words, "--from", "bridge_deepseek_v3_gb300.yaml", "--cluster", "gb300:64x4", cwd=FILES)
    b = asked.run(PROGRAM, *words, *shlex.split(row["command"])[1:], cwd=FILES)
    check(a.returncode == b.returncode == 0, f"recipe: {a.stderr} {b.stderr}")
    first, second = (json.loads(x.stdout) for x in (a, b))
    for one in first + second if isinstance(first, list) else (first, second):
        one.pop("scheme", None)  # the same options in another order
    check(first == second, "recipe mb000: --from and the table's command are different jobs")


names = sorted(p.name for p in FILES.iterdir() if p.suffix != ".md")
check(names == sorted(WANT), f"files without an answer here: {set(names) ^ set(WANT)}")
for file_name, (options, want, lacks) in WANT.items():
    check_file(file_name, options, want, lacks)
    check_printed(file_name, options)
check_recipe()
oracle.finish()
