"""Functions that plan a job, with a keyword for every option and every key of a job. Made by spillway-manual from the
program's tables (sim/manual/python.c): do not edit. The test python_keywords --accept writes it.
"""
# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import planner as _planner
from ._asking import documented as _documented
from ._asking import given as _given

if TYPE_CHECKING:
    from .planner import Job, Path, Plan, Search, Until


@_documented("plan")
def plan(
        job: Job = None, *, cluster: Path | None = None, from_: Path | None = None, gpus: int | str | None = None,
        model: Path | None = None, optimizer: str | None = None, precision: str | None = None,
        scheme: str | Sequence[str] | None = None, set: Mapping[str, Any] | str | Sequence[str] | None = None,
        stack: str | Sequence[str] | None = None, context: int | str | None = None, data: int | str | None = None,
        expert_parallel: int | str | Sequence[int] | None = None, expert_tensor: int | str | None = None,
        fsdp: int | str | None = None, global_batch: int | str | None = None, micro_batches: int | str | None = None,
        pipeline: int | str | None = None, sequence_length: int | str | None = None,
        sequences_per_gpu: int | str | Sequence[int] | None = None, tensor: int | str | None = None,
        virtual_stages: int | str | None = None, global_batch_at_most: int | str | None = None,
        gpus_at_most: int | str | None = None, over: Mapping[str, Any] | str | Sequence[str] | None = None,
        search: bool = False, tokens_per_day: int | str | None = None, drop_at_most: float | None = None,
        imbalance: float | str | None = None, layers: str | None = None, routing: str | Sequence[str] | None = None,
        routing_steps: int | str | None = None, routing_tokens: int | str | None = None, seed: int | str | None = None,
        steps: str | None = None, trace: Path | None = None, until: str | Sequence[str] | None = None,
        allocator: str | None = None, every_rank: bool = False, memory_fraction: float | None = None,
        no_allocator: bool = False, remat: str | None = None, price: float | None = None,
        tokens: int | str | None = None, all: bool = False, checkpoint: Path | None = None,
        chrome_trace: Path | None = None, memory: str | None = None, parallel_sequence_parallel: bool | None = None,
        parallel_schedule: Literal["1F1B", "Interleaved1F1B", "GPipe", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "ZB1P", "DualPipe"] | None = None,
        parallel_decoder_first_pipeline_num_layers: int | None = None,
        parallel_decoder_last_pipeline_num_layers: int | None = None,
        parallel_account_for_embedding_in_pipeline_split: bool | None = None,
        parallel_account_for_loss_in_pipeline_split: bool | None = None, parallel_mtp_num_layers: int | None = None,
        parallel_pipeline_model_parallel_layout: str | None = None,
        finetune_frozen: Literal["none", "experts", "base"] | None = None, finetune_lora_rank: int | None = None,
        finetune_lora_targets: Literal["attention", "experts", "both", "linear", "all"] | None = None,
        precision_weights: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_gradients: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_optimizer: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_activations: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_master: Literal["auto", "none", "bf16", "fp32"] | None = None,
        precision_recipe: Literal["none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4", "mxfp4"] | None = None,
        precision_fp8_param_gather: bool | None = None,
        fsdp2_reshard_after_forward: Literal["default", "off", "always", "never"] | None = None,
        fsdp2_prefetch: int | None = None, fsdp2_replicas: int | None = None,
        fsdp2_gathered: Literal["auto", "same", "bf16", "fp32"] | None = None,
        fsdp2_state: Literal["gpu", "host"] | None = None, allocator_expandable_segments: bool | None = None,
        allocator_max_split_size_mb: int | None = None, allocator_garbage_collection_threshold: float | None = None,
        allocator_per_process_memory_fraction: float | None = None,
        allocator_roundup_power2_divisions: int | None = None, resident_gib: float | None = None,
        resident_share: float | None = None, resident_name: str | None = None,
        model_part: Literal["whole", "expert_layers"] | None = None, job_layers: int | None = None,
        attention: Literal["flash", "unfused", "sdpa"] | None = None,
        cross_entropy: Literal["auto", "unfused", "native", "te", "te_in_place", "te_2_20", "chunked", "fused"] | None = None,
        cuda_graph_impl: Literal["none", "local", "transformer_engine", "full_iteration"] | None = None,
        overlap_moe_expert_parallel_comm: bool | None = None, delay_wgrad_compute: bool | None = None,
        overlap_grad_reduce: bool | None = None, overlap_param_gather: bool | None = None,
        moe_shared_expert_overlap: bool | None = None,
        moe_permute_fusion: Literal["auto", "true", "false", True, False] | None = None,
        moe_router_fusion: Literal["auto", "true", "false", True, False] | None = None,
        apply_rope_fusion: Literal["auto", "true", "false", True, False] | None = None,
        use_fused_mhc: Literal["auto", "true", "false", True, False] | None = None,
        mhc_recompute_layer_num: int | None = None,
        gradient_accumulation_fusion: Literal["auto", "true", "false", "layers", True, False] | None = None,
        store_param_remainders: bool | None = None, use_transformer_engine_op_fuser: bool | None = None,
        megatron_core_release: str | None = None, untuned_release: bool | None = None,
        optimizer_instances: int | None = None, optimizer_algorithm: Literal["adam", "muon"] | None = None,
        muon_layout: Literal["packed", "ping_pong"] | None = None, optimizer_on_host: float | None = None,
        offload_modules: str | Sequence[str] | None = None, library_limits: Literal["check", "ignore"] | None = None,
        **others: Any) -> Plan | Search | Until:
    """Sweeps schemes, parallel splits and batches: what fits and what is fastest.

        plan("job.yaml", trace="trace.h5", expert_parallel="all", tokens="1T")

    With search=True it is a Search, with until="oom" an Until; search() and until() say the same.
    Without trace= or routing= the routing is as uneven as that of a model late in its training; routing="balanced" is even.
    """
    return _planner.ask_plan(**_given(locals()))


@_documented("plan")
def search(
        job: Job = None, *, cluster: Path | None = None, from_: Path | None = None, gpus: int | str | None = None,
        model: Path | None = None, optimizer: str | None = None, precision: str | None = None,
        scheme: str | Sequence[str] | None = None, set: Mapping[str, Any] | str | Sequence[str] | None = None,
        stack: str | Sequence[str] | None = None, context: int | str | None = None, data: int | str | None = None,
        expert_parallel: int | str | Sequence[int] | None = None, expert_tensor: int | str | None = None,
        fsdp: int | str | None = None, global_batch: int | str | None = None, micro_batches: int | str | None = None,
        pipeline: int | str | None = None, sequence_length: int | str | None = None,
        sequences_per_gpu: int | str | Sequence[int] | None = None, tensor: int | str | None = None,
        virtual_stages: int | str | None = None, global_batch_at_most: int | str | None = None,
        gpus_at_most: int | str | None = None, over: Mapping[str, Any] | str | Sequence[str] | None = None,
        tokens_per_day: int | str | None = None, drop_at_most: float | None = None,
        imbalance: float | str | None = None, layers: str | None = None, routing: str | Sequence[str] | None = None,
        routing_steps: int | str | None = None, routing_tokens: int | str | None = None, seed: int | str | None = None,
        steps: str | None = None, trace: Path | None = None, allocator: str | None = None, every_rank: bool = False,
        memory_fraction: float | None = None, no_allocator: bool = False, remat: str | None = None,
        price: float | None = None, tokens: int | str | None = None, checkpoint: Path | None = None,
        chrome_trace: Path | None = None, memory: str | None = None, parallel_sequence_parallel: bool | None = None,
        parallel_schedule: Literal["1F1B", "Interleaved1F1B", "GPipe", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "ZB1P", "DualPipe"] | None = None,
        parallel_decoder_first_pipeline_num_layers: int | None = None,
        parallel_decoder_last_pipeline_num_layers: int | None = None,
        parallel_account_for_embedding_in_pipeline_split: bool | None = None,
        parallel_account_for_loss_in_pipeline_split: bool | None = None, parallel_mtp_num_layers: int | None = None,
        parallel_pipeline_model_parallel_layout: str | None = None,
        finetune_frozen: Literal["none", "experts", "base"] | None = None, finetune_lora_rank: int | None = None,
        finetune_lora_targets: Literal["attention", "experts", "both", "linear", "all"] | None = None,
        precision_weights: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_gradients: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_optimizer: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_activations: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_master: Literal["auto", "none", "bf16", "fp32"] | None = None,
        precision_recipe: Literal["none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4", "mxfp4"] | None = None,
        precision_fp8_param_gather: bool | None = None,
        fsdp2_reshard_after_forward: Literal["default", "off", "always", "never"] | None = None,
        fsdp2_prefetch: int | None = None, fsdp2_replicas: int | None = None,
        fsdp2_gathered: Literal["auto", "same", "bf16", "fp32"] | None = None,
        fsdp2_state: Literal["gpu", "host"] | None = None, allocator_expandable_segments: bool | None = None,
        allocator_max_split_size_mb: int | None = None, allocator_garbage_collection_threshold: float | None = None,
        allocator_per_process_memory_fraction: float | None = None,
        allocator_roundup_power2_divisions: int | None = None, resident_gib: float | None = None,
        resident_share: float | None = None, resident_name: str | None = None,
        model_part: Literal["whole", "expert_layers"] | None = None, job_layers: int | None = None,
        attention: Literal["flash", "unfused", "sdpa"] | None = None,
        cross_entropy: Literal["auto", "unfused", "native", "te", "te_in_place", "te_2_20", "chunked", "fused"] | None = None,
        cuda_graph_impl: Literal["none", "local", "transformer_engine", "full_iteration"] | None = None,
        overlap_moe_expert_parallel_comm: bool | None = None, delay_wgrad_compute: bool | None = None,
        overlap_grad_reduce: bool | None = None, overlap_param_gather: bool | None = None,
        moe_shared_expert_overlap: bool | None = None,
        moe_permute_fusion: Literal["auto", "true", "false", True, False] | None = None,
        moe_router_fusion: Literal["auto", "true", "false", True, False] | None = None,
        apply_rope_fusion: Literal["auto", "true", "false", True, False] | None = None,
        use_fused_mhc: Literal["auto", "true", "false", True, False] | None = None,
        mhc_recompute_layer_num: int | None = None,
        gradient_accumulation_fusion: Literal["auto", "true", "false", "layers", True, False] | None = None,
        store_param_remainders: bool | None = None, use_transformer_engine_op_fuser: bool | None = None,
        megatron_core_release: str | None = None, untuned_release: bool | None = None,
        optimizer_instances: int | None = None, optimizer_algorithm: Literal["adam", "muon"] | None = None,
        muon_layout: Literal["packed", "ping_pong"] | None = None, optimizer_on_host: float | None = None,
        offload_modules: str | Sequence[str] | None = None, library_limits: Literal["check", "ignore"] | None = None,
        **others: Any) -> Search:
    """The best point of a space of splits, batches, schemes and remat policies.

        search(model="glm-4.5-air", cluster="mi300x:8x4", over={"pipeline": [1, 2, 4]}, price=2)
    """
    return _planner.ask_search(**_given(locals()))


@_documented("plan")
def until(
        job: Job = None, question: str | Sequence[str] = "oom", *, cluster: Path | None = None,
        from_: Path | None = None, gpus: int | str | None = None, model: Path | None = None,
        optimizer: str | None = None, precision: str | None = None, scheme: str | Sequence[str] | None = None,
        set: Mapping[str, Any] | str | Sequence[str] | None = None, stack: str | Sequence[str] | None = None,
        context: int | str | None = None, data: int | str | None = None,
        expert_parallel: int | str | Sequence[int] | None = None, expert_tensor: int | str | None = None,
        fsdp: int | str | None = None, global_batch: int | str | None = None, micro_batches: int | str | None = None,
        pipeline: int | str | None = None, sequence_length: int | str | None = None,
        sequences_per_gpu: int | str | Sequence[int] | None = None, tensor: int | str | None = None,
        virtual_stages: int | str | None = None, drop_at_most: float | None = None,
        imbalance: float | str | None = None, layers: str | None = None, routing: str | Sequence[str] | None = None,
        routing_steps: int | str | None = None, routing_tokens: int | str | None = None, seed: int | str | None = None,
        steps: str | None = None, trace: Path | None = None, allocator: str | None = None, every_rank: bool = False,
        memory_fraction: float | None = None, no_allocator: bool = False, remat: str | None = None,
        price: float | None = None, tokens: int | str | None = None, chrome_trace: Path | None = None,
        memory: str | None = None, parallel_sequence_parallel: bool | None = None,
        parallel_schedule: Literal["1F1B", "Interleaved1F1B", "GPipe", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "ZB1P", "DualPipe"] | None = None,
        parallel_decoder_first_pipeline_num_layers: int | None = None,
        parallel_decoder_last_pipeline_num_layers: int | None = None,
        parallel_account_for_embedding_in_pipeline_split: bool | None = None,
        parallel_account_for_loss_in_pipeline_split: bool | None = None, parallel_mtp_num_layers: int | None = None,
        parallel_pipeline_model_parallel_layout: str | None = None,
        finetune_frozen: Literal["none", "experts", "base"] | None = None, finetune_lora_rank: int | None = None,
        finetune_lora_targets: Literal["attention", "experts", "both", "linear", "all"] | None = None,
        precision_weights: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_gradients: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_optimizer: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_activations: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_master: Literal["auto", "none", "bf16", "fp32"] | None = None,
        precision_recipe: Literal["none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4", "mxfp4"] | None = None,
        precision_fp8_param_gather: bool | None = None,
        fsdp2_reshard_after_forward: Literal["default", "off", "always", "never"] | None = None,
        fsdp2_prefetch: int | None = None, fsdp2_replicas: int | None = None,
        fsdp2_gathered: Literal["auto", "same", "bf16", "fp32"] | None = None,
        fsdp2_state: Literal["gpu", "host"] | None = None, allocator_expandable_segments: bool | None = None,
        allocator_max_split_size_mb: int | None = None, allocator_garbage_collection_threshold: float | None = None,
        allocator_per_process_memory_fraction: float | None = None,
        allocator_roundup_power2_divisions: int | None = None, resident_gib: float | None = None,
        resident_share: float | None = None, resident_name: str | None = None,
        model_part: Literal["whole", "expert_layers"] | None = None, job_layers: int | None = None,
        attention: Literal["flash", "unfused", "sdpa"] | None = None,
        cross_entropy: Literal["auto", "unfused", "native", "te", "te_in_place", "te_2_20", "chunked", "fused"] | None = None,
        cuda_graph_impl: Literal["none", "local", "transformer_engine", "full_iteration"] | None = None,
        overlap_moe_expert_parallel_comm: bool | None = None, delay_wgrad_compute: bool | None = None,
        overlap_grad_reduce: bool | None = None, overlap_param_gather: bool | None = None,
        moe_shared_expert_overlap: bool | None = None,
        moe_permute_fusion: Literal["auto", "true", "false", True, False] | None = None,
        moe_router_fusion: Literal["auto", "true", "false", True, False] | None = None,
        apply_rope_fusion: Literal["auto", "true", "false", True, False] | None = None,
        use_fused_mhc: Literal["auto", "true", "false", True, False] | None = None,
        mhc_recompute_layer_num: int | None = None,
        gradient_accumulation_fusion: Literal["auto", "true", "false", "layers", True, False] | None = None,
        store_param_remainders: bool | None = None, use_transformer_engine_op_fuser: bool | None = None,
        megatron_core_release: str | None = None, untuned_release: bool | None = None,
        optimizer_instances: int | None = None, optimizer_algorithm: Literal["adam", "muon"] | None = None,
        muon_layout: Literal["packed", "ping_pong"] | None = None, optimizer_on_host: float | None = None,
        offload_modules: str | Sequence[str] | None = None, library_limits: Literal["check", "ignore"] | None = None,
        **others: Any) -> Until:
    """How uneven routing may get before a point runs out of memory, or a step is too long.

        until("job.yaml", ["oom", "step=1.1"])
    """
    return _planner.ask_until(**_given(locals()))


@_documented("plan")
def flags(
        job: Job = None, framework: str = "megatron", *, cluster: Path | None = None, from_: Path | None = None,
        gpus: int | str | None = None, model: Path | None = None, optimizer: str | None = None,
        precision: str | None = None, scheme: str | Sequence[str] | None = None,
        set: Mapping[str, Any] | str | Sequence[str] | None = None, stack: str | Sequence[str] | None = None,
        context: int | str | None = None, data: int | str | None = None,
        expert_parallel: int | str | Sequence[int] | None = None, expert_tensor: int | str | None = None,
        fsdp: int | str | None = None, global_batch: int | str | None = None, micro_batches: int | str | None = None,
        pipeline: int | str | None = None, sequence_length: int | str | None = None,
        sequences_per_gpu: int | str | Sequence[int] | None = None, tensor: int | str | None = None,
        virtual_stages: int | str | None = None, global_batch_at_most: int | str | None = None,
        gpus_at_most: int | str | None = None, over: Mapping[str, Any] | str | Sequence[str] | None = None,
        search: bool = False, tokens_per_day: int | str | None = None, drop_at_most: float | None = None,
        imbalance: float | str | None = None, layers: str | None = None, routing: str | Sequence[str] | None = None,
        routing_steps: int | str | None = None, routing_tokens: int | str | None = None, seed: int | str | None = None,
        steps: str | None = None, trace: Path | None = None, allocator: str | None = None, every_rank: bool = False,
        memory_fraction: float | None = None, no_allocator: bool = False, remat: str | None = None,
        price: float | None = None, tokens: int | str | None = None, checkpoint: Path | None = None,
        chrome_trace: Path | None = None, memory: str | None = None, parallel_sequence_parallel: bool | None = None,
        parallel_schedule: Literal["1F1B", "Interleaved1F1B", "GPipe", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "ZB1P", "DualPipe"] | None = None,
        parallel_decoder_first_pipeline_num_layers: int | None = None,
        parallel_decoder_last_pipeline_num_layers: int | None = None,
        parallel_account_for_embedding_in_pipeline_split: bool | None = None,
        parallel_account_for_loss_in_pipeline_split: bool | None = None, parallel_mtp_num_layers: int | None = None,
        parallel_pipeline_model_parallel_layout: str | None = None,
        finetune_frozen: Literal["none", "experts", "base"] | None = None, finetune_lora_rank: int | None = None,
        finetune_lora_targets: Literal["attention", "experts", "both", "linear", "all"] | None = None,
        precision_weights: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_gradients: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_optimizer: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_activations: Literal["auto", "framework", "mixed", "bf16", "fp16", "fp32", "fp8"] | None = None,
        precision_master: Literal["auto", "none", "bf16", "fp32"] | None = None,
        precision_recipe: Literal["none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4", "mxfp4"] | None = None,
        precision_fp8_param_gather: bool | None = None,
        fsdp2_reshard_after_forward: Literal["default", "off", "always", "never"] | None = None,
        fsdp2_prefetch: int | None = None, fsdp2_replicas: int | None = None,
        fsdp2_gathered: Literal["auto", "same", "bf16", "fp32"] | None = None,
        fsdp2_state: Literal["gpu", "host"] | None = None, allocator_expandable_segments: bool | None = None,
        allocator_max_split_size_mb: int | None = None, allocator_garbage_collection_threshold: float | None = None,
        allocator_per_process_memory_fraction: float | None = None,
        allocator_roundup_power2_divisions: int | None = None, resident_gib: float | None = None,
        resident_share: float | None = None, resident_name: str | None = None,
        model_part: Literal["whole", "expert_layers"] | None = None, job_layers: int | None = None,
        attention: Literal["flash", "unfused", "sdpa"] | None = None,
        cross_entropy: Literal["auto", "unfused", "native", "te", "te_in_place", "te_2_20", "chunked", "fused"] | None = None,
        cuda_graph_impl: Literal["none", "local", "transformer_engine", "full_iteration"] | None = None,
        overlap_moe_expert_parallel_comm: bool | None = None, delay_wgrad_compute: bool | None = None,
        overlap_grad_reduce: bool | None = None, overlap_param_gather: bool | None = None,
        moe_shared_expert_overlap: bool | None = None,
        moe_permute_fusion: Literal["auto", "true", "false", True, False] | None = None,
        moe_router_fusion: Literal["auto", "true", "false", True, False] | None = None,
        apply_rope_fusion: Literal["auto", "true", "false", True, False] | None = None,
        use_fused_mhc: Literal["auto", "true", "false", True, False] | None = None,
        mhc_recompute_layer_num: int | None = None,
        gradient_accumulation_fusion: Literal["auto", "true", "false", "layers", True, False] | None = None,
        store_param_remainders: bool | None = None, use_transformer_engine_op_fuser: bool | None = None,
        megatron_core_release: str | None = None, untuned_release: bool | None = None,
        optimizer_instances: int | None = None, optimizer_algorithm: Literal["adam", "muon"] | None = None,
        muon_layout: Literal["packed", "ping_pong"] | None = None, optimizer_on_host: float | None = None,
        offload_modules: str | Sequence[str] | None = None, library_limits: Literal["check", "ignore"] | None = None,
        **others: Any) -> str:
    """The best point as a framework reads it: megatron, bridge, primus, maxtext or torchtitan.

        print(flags("job.yaml", "maxtext", scheme="gmm"))
    """
    return _planner.ask_flags(**_given(locals()))
