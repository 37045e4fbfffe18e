#!/usr/bin/env python3
"""Every key of a job by itself, in a file, as an option, in Python's dictionary and as a keyword: one line of the result's `job` changes,
in all alike. What a result has of a job, given back, is that job.

python_keys.py PACKAGE_FOLDER LIBRARY SPILLWAY SCRATCH TESTS_ORACLE"""
import json
import os
import pathlib
import re
import sys

folder, shared, program, scratch, oracle = (pathlib.Path(a).resolve() for a in sys.argv[1:6])
os.environ["SPILLWAY_LIBRARY"] = str(shared)
sys.path[:0] = [str(folder), str(oracle)]

import program as caller  # noqa: E402
import spillway_moe as spillway  # noqa: E402
from package_checks import Checks  # noqa: E402

scratch.mkdir(parents=True, exist_ok=True)
checks = Checks()
check = checks.note


MEGATRON = {"schemes": ["megatron-alltoall"], "optimizer": "distributed"}
TORCH = {"schemes": ["torchtitan"], "optimizer": "sharded"}
STAGES = {"parallel.pipeline": 2, "batch.micro_batches": 2}
ODD = {**STAGES, "model": "deepseek-v2-lite"}
ALIGNED = {"schemes": ["megatron-alltoall:align=16"]}
BARE = {"model_part": "expert_layers", "optimizer": "replicated", "parallel.expert": 64}
START = {"model": "olmoe-1b-7b", "cluster": "h200-8x8", "parallel.expert": 8, "parallel.fsdp": 0, "batch.sequences_per_gpu": [4],
         "batch.sequence_length": 256}
# key: its value, what else the job has, what else of the answer follows from it
KEYS = {
    "model": ("qwen3-30b-a3b", {}, ()),
    "cluster": ("h200-4x8", {}, ("parallel.fsdp",)),
    "gpus": (32, {}, ("parallel.fsdp",)),
    "parallel.expert": (4, {}, ("parallel.fsdp",)),
    "parallel.fsdp": (4, {"parallel.expert": 0}, ("parallel.expert",)),
    "parallel.pipeline": (2, {}, ("parallel.fsdp",)),
    "parallel.tensor": (2, {"parallel.expert_tensor": 1}, ()),
    "parallel.context": (2, {}, ()),
    "parallel.expert_tensor": (1, {"parallel.tensor": 2}, ("parallel.fsdp",)),
    "parallel.data": (32, {"parallel.tensor": 2}, ()),
    "parallel.sequence_parallel": (False, {}, ()),
    "parallel.virtual_stages": (2, STAGES, ()),
    "parallel.schedule": ("GPipe", {**STAGES, **TORCH}, ()),
    "parallel.decoder_first_pipeline_num_layers": (6, STAGES, ()),
    "parallel.decoder_last_pipeline_num_layers": (6, STAGES, ()),
    "parallel.account_for_embedding_in_pipeline_split": (True, ODD, ()),
    "parallel.account_for_loss_in_pipeline_split": (True, ODD, ()),
    "parallel.pipeline_model_parallel_layout": ("Et*8|t*8L", STAGES, ("parallel.virtual_stages",)),
    "batch.sequences_per_gpu": ([2], {}, ()),
    "batch.global_batch": (256, {}, ()),
    "batch.sequence_length": (512, {}, ()),
    "batch.micro_batches": (2, {}, ()),
    "finetune.frozen": ("experts", {}, ()),
    "finetune.lora_rank": (8, {"finetune.frozen": "experts"}, ()),
    "finetune.lora_targets": ("experts", {"finetune.frozen": "base", "finetune.lora_rank": 8}, ()),
    "precision.weights": ("fp32", {}, ()),
    "precision.gradients": ("bf16", {}, ()),
    "precision.optimizer": ("bf16", {}, ()),
    "precision.activations": ("fp32", {}, ()),
    "precision.master": ("none", {}, ()),
    "precision.recipe": ("blockwise", ALIGNED, ()),
    "precision.fp8_param_gather": (True, {"precision.recipe": "delayed", **ALIGNED}, ()),
    "fsdp2.reshard_after_forward": ("always", TORCH, ()),
    "fsdp2.prefetch": (2, TORCH, ()),
    "fsdp2.replicas": (2, TORCH, ()),
    "fsdp2.gathered": ("fp32", TORCH, ()),
    "fsdp2.state": ("host", TORCH, ()),
    "allocator.expandable_segments": (True, {}, ()),
    "allocator.max_split_size_mb": (128, {}, ()),
    "allocator.garbage_collection_threshold": (0.5, {"allocator.per_process_memory_fraction": 0.9}, ()),
    "allocator.per_process_memory_fraction": (0.5, {}, ()),
    "allocator.roundup_power2_divisions": (4, {}, ()),
    "resident.gib": (2.5, {}, ()),
    "resident.share": (0.25, {}, ()),
    "resident.name": ("vLLM", {}, ()),
    "model_part": ("expert_layers", {key: BARE[key] for key in ("optimizer", "parallel.expert")}, ()),
    "layers": (4, BARE, ()),
    "remat": ("moe_act+layernorm", {}, ()),
    "attention": ("unfused", {"model": "mixtral-8x7b"}, ()),
    "cross_entropy": ("te", {}, ()),
    "cuda_graph_impl": ("local", {"remat": "none"}, ()),
    "overlap_moe_expert_parallel_comm": (True, {"remat": "none"}, ()),
    "gradient_accumulation_fusion": ("false", {}, ()),
    "store_param_remainders": (True, {"optimizer": "distributed"}, ()),
    "delay_wgrad_compute": (True, {"remat": "none", "overlap_moe_expert_parallel_comm": True}, ()),
    "overlap_grad_reduce": (True, {}, ()),
    "overlap_param_gather": (True, {"overlap_grad_reduce": True}, ()),
    "moe_shared_expert_overlap": (True, {}, ()),
    "moe_permute_fusion": ("false", {}, ()),
    "moe_router_fusion": ("false", {}, ()),
    "apply_rope_fusion": ("false", {}, ()),
    "parallel.mtp_num_layers": (1, {"model": "deepseek-v4-flash"}, ()),
    "use_fused_mhc": ("true", {"model": "deepseek-v4-flash"}, ()),
    "mhc_recompute_layer_num": (2, {"model": "deepseek-v4-flash", "remat": "mhc"}, ()),
    "use_transformer_engine_op_fuser": (True, {}, ()),
    "megatron_core_release": ("0.17", {}, ()),
    "untuned_release": (True, {}, ()),
    "optimizer": ("replicated", {}, ()),
    "optimizer_instances": (2, {}, ()),
    "optimizer_algorithm": ("muon", {}, ()),
    "muon_layout": ("ping_pong", {"optimizer_algorithm": "muon"}, ()),
    "optimizer_on_host": (0.5, {}, ()),
    "offload_modules": (["moe_act"], {"remat": "none"}, ()),
    "library_limits": ("ignore", {}, ()),
    "memory_fraction": (0.5, {}, ()),
    "price_per_gpu_hour": (2.5, {}, ()),
    "schemes": (["megatron-allgather"], {}, ()),
}


def nested(flat):
    out = {}
    for key, value in flat.items():
        group, dot, name = key.partition(".")
        if dot:
            out.setdefault(group, {})[name] = value
        else:
            out[key] = value
    return out


def flat_of(job):
    return {f"{key}.{name}" if isinstance(value, dict) else key: inner
            for key, value in job.items() for name, inner in (value.items() if isinstance(value, dict) else [(None, value)])}


def run(*words):
    told = caller.call([program, "plan", "--routing", "uniform", "--format", "json", *words], cwd=scratch)
    check(told.returncode == 0, f"{words}: {told.stderr}")
    return flat_of(json.loads(told.stdout)["settings"]["job"]) if told.returncode == 0 else {}


# Keywords of keys that an option sets, or whose name is an option's; of the others it is the path with underscores.
KEYWORD = {"batch.sequences_per_gpu": "sequences_per_gpu", "batch.global_batch": "global_batch", "batch.sequence_length": "sequence_length",
           "batch.micro_batches": "micro_batches", "price_per_gpu_hour": "price", "schemes": "scheme", "layers": "job_layers",
           **{f"parallel.{name}": name for name in ("fsdp", "pipeline", "tensor", "context", "expert_tensor", "data", "virtual_stages")},
           "parallel.expert": "expert_parallel"}


def ask_python(flat, **keywords):
    try:
        return flat_of(spillway.plan(nested(flat), routing="uniform", **keywords).json["settings"]["job"])
    except spillway.Error as error:
        check(False, f"{flat}: {error}")
        return {}


def file_of(name, flat):
    (scratch / name).write_text(json.dumps(nested(flat)))
    return name


def option(value):
    return ",".join(map(str, value)) if isinstance(value, list) else json.dumps(value) if isinstance(value, bool) else str(value)


listed = re.findall(r"^([\w.]+): ", caller.call([program, "help", "job"]).stdout, re.M)
check(set(listed) == set(KEYS), f"keys without a row here, or rows without a key: {set(listed) ^ set(KEYS)}")
for key, (value, more, follows) in KEYS.items():
    around = {**START, **MEGATRON, **more}
    before = run("--job", file_of("before.yaml", around))
    after = {**around, key: value}
    in_file = run("--job", file_of("after.yaml", after))
    by_option = run("--job", "before.yaml", "--set", f"{key}={option(value)}")
    in_python = ask_python(after)
    as_keyword = ask_python(around, **{KEYWORD.get(key, key.replace(".", "_")): value})
    changed = {name for name in in_file.keys() | before.keys() if in_file.get(name) != before.get(name)}
    check(in_file.get(key) == value, f"{key}: {value} became {in_file.get(key)}")
    check(changed - set(follows) == {key}, f"{key}: {changed} changed")
    check(in_file == by_option, f"{key}: --set gives {[(k, v, in_file.get(k)) for k, v in by_option.items() if v != in_file.get(k)]}")
    check(in_file == in_python, f"{key}: Python gives {[(k, v, in_file.get(k)) for k, v in in_python.items() if v != in_file.get(k)]}")
    check(as_keyword == by_option, f"{key}: as a keyword it is {[(k, v, by_option.get(k)) for k, v in as_keyword.items() if v != by_option.get(k)]}")
    check(run("--job", json.dumps(nested(in_file))) == in_file, f"{key}: what the result has is another job")

checks.finish(least=300)
