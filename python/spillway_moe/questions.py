"""Functions that ask about a job, with a keyword for every option and every key of a job. Made by spillway-manual from the
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
    import pandas

    from .planner import FrameworkJob, Job, Model, Path, Replay, Score, Verification


@_documented("replay")
def replay(
        trace: Path, job: Job = None, *, cluster: Path | None = None, from_: Path | None = None,
        gpus: int | str | None = None, model: Path | None = None, optimizer: str | None = None,
        precision: str | None = None, scheme: str | Sequence[str] | None = None,
        set: Mapping[str, Any] | str | Sequence[str] | None = None, stack: str | Sequence[str] | None = None,
        context: int | str | None = None, data: int | str | None = None,
        expert_parallel: int | str | Sequence[int] | None = None, expert_tensor: int | str | None = None,
        fsdp: int | str | None = None, global_batch: int | str | None = None, micro_batches: int | str | None = None,
        pipeline: int | str | None = None, sequence_length: int | str | None = None,
        sequences_per_gpu: int | str | Sequence[int] | None = None, tensor: int | str | None = None,
        virtual_stages: int | str | None = None, advise: bool = False, balancer: str | None = None,
        drop_at_most: float | None = None, layers: str | None = None, overload: bool = False,
        seed: int | str | None = None, steps: str | None = None, allocator: str | None = None, every_rank: bool = False,
        fits_at: float | None = None, memory_fraction: float | None = None, no_allocator: bool = False,
        remat: str | None = None, snapshot: Path | None = None, snapshot_stage: int | str | None = None,
        price: float | None = None, tokens: int | str | None = None, checkpoint: Path | None = None,
        chrome_trace: Path | None = None, each_step: bool = False, memory: str | None = None,
        output: Path | None = None, parallel_sequence_parallel: bool | None = None,
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
        **others: Any) -> Replay:
    """Replays a routing trace: what each GPU must hold, what crosses the links, which tokens are dropped.

        replay("trace.h5", job="job.yaml", scheme=["gmm", "dense:capacity_factor=1.25"],
               sequences_per_gpu=[1, 2], each_step=True, output="result.h5")
    """
    return _planner.ask_replay(**_given(locals()))


@_documented("explain")
def explain(
        job: Job = None, *, cluster: Path | None = None, from_: Path | None = None, gpus: int | str | None = None,
        model: Path | None = None, optimizer: str | None = None, precision: str | None = None,
        scheme: str | Sequence[str] | None = None, set: Mapping[str, Any] | str | Sequence[str] | None = None,
        stack: Path | None = None, context: int | str | None = None, data: int | str | None = None,
        expert_parallel: int | str | Sequence[int] | None = None, expert_tensor: int | str | None = None,
        fsdp: int | str | None = None, global_batch: int | str | None = None, micro_batches: int | str | None = None,
        pipeline: int | str | None = None, rank: int | str | None = None, sequence_length: int | str | None = None,
        sequences_per_gpu: int | str | Sequence[int] | None = None, tensor: int | str | None = None,
        virtual_stages: int | str | None = None, trace: Path | None = None, memory_fraction: float | None = None,
        remat: str | None = None, price: float | None = None, peer: str | None = None, traffic: bool = False,
        parallel_sequence_parallel: bool | None = None,
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
        **others: Any) -> pandas.DataFrame:
    """Where every byte of a rank's peak comes from: a row a component with formula and source.

        explain("job.yaml", scheme="gmm")

    With traffic=True a row a collective; with peer="megatron" (or simumax, primus) a row a figure of that planner.
    """
    return _planner.ask_explain(**_given(locals()))


@_documented("job")
def job(
        file: Path, *, cluster: Path | None = None, gpus: int | str | None = None, model: Path | None = None,
        optimizer: str | None = None, precision: str | None = None, scheme: str | Sequence[str] | None = None,
        set: Mapping[str, Any] | str | Sequence[str] | None = None, context: int | str | None = None,
        data: int | str | None = None, expert_parallel: int | str | Sequence[int] | None = None,
        expert_tensor: int | str | None = None, fsdp: int | str | None = None, global_batch: int | str | None = None,
        micro_batches: int | str | None = None, pipeline: int | str | None = None,
        sequence_length: int | str | None = None, sequences_per_gpu: int | str | Sequence[int] | None = None,
        tensor: int | str | None = None, virtual_stages: int | str | None = None, memory_fraction: float | None = None,
        remat: str | None = None, price: float | None = None, parallel_sequence_parallel: bool | None = None,
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
        **others: Any) -> FrameworkJob:
    """The job that a training framework's configuration is: a dictionary that every question takes.

        plan(job("run.sh", cluster="h100-8x16"))
    """
    return _planner.ask_job(**_given(locals()))


@_documented("model")
def model(
        name: Path, *, check: int | str | None = None, layers: bool = False, sequence_length: int | None = None,
        **others: Any) -> Model:
    """What a model is made of: a preset, or a config.json.

        model("glm-4.5"), model("config.json", sequence_length=32768)
    """
    return _planner.ask_model(**_given(locals()))


@_documented("score")
def score(
        tables: Path | Sequence[Path], *, cluster: Path | None = None, stack: Path | None = None,
        time_stack: Path | None = None, traces: Path | None = None, **others: Any) -> Score:
    """Predictions beside tables of published, compiled or measured runs.

        score("notebooks_data/published/deepseek3_mi355x_c4.csv").rows
    """
    return _planner.ask_score(**_given(locals()))


@_documented("verify")
def verify(
        *, all_groups: bool = False, expert_parallel: int | str | Sequence[int] | None = None,
        expert_tensor: int | None = None, layers: str | None = None, random: int | str | None = None,
        scheme: str | Sequence[str] | None = None, shrink: int | str | None = None, steps: str | None = None,
        tokens: int | None = None, trace: Path | None = None, **others: Any) -> Verification:
    """Holds the simulator against the reference that executes.

        verify(scheme="gmm", random=8).agreed
    """
    return _planner.ask_verify(**_given(locals()))
