/* The features, one a line: name, words, and when a job has it. Words and conditions stand once. Of a job: j the job, m its model,
 * g its grid, p its precision, law its state law. Of a scheme beside that (sim/memory/live/footprint_check.c): s the scheme, y its type,
 * t whose it is. */
#ifndef SPW_SIM_JOB_GOES_WITH_LIST_H
#define SPW_SIM_JOB_GOES_WITH_LIST_H

/* clang-format off */
#define SPW_JOB_FEATURES(X) \
    X(ANYTHING, "anything", true) \
    X(ONE_STAGE, "one pipeline stage", j->pipeline == 1) \
    X(STAGES, "pipeline stages", j->pipeline > 1) \
    X(VIRTUAL, "virtual stages", j->virtual_stages > 1) \
    X(VIRTUAL_EVEN, "virtual stages without a layout", j->virtual_stages > 1 && !spw_stage_layout_is_said(&j->stage_layout)) \
    X(NOT_VIRTUAL, "no virtual stages", j->virtual_stages < 2) \
    X(SCHEDULE, "a schedule other than 1F1B", j->schedule != SPW_SCHEDULE_ONE_F_ONE_B) \
    X(INTERLEAVED, "schedule Interleaved1F1B", j->schedule == SPW_SCHEDULE_INTERLEAVED) \
    X(GPIPE, "schedule GPipe", j->schedule == SPW_SCHEDULE_GPIPE) \
    X(LOOPED_BFS, "schedule LoopedBFS", j->schedule == SPW_SCHEDULE_LOOPED_BFS) \
    X(INTERLEAVED_ZB, "schedule InterleavedZeroBubble", j->schedule == SPW_SCHEDULE_INTERLEAVED_ZERO_BUBBLE) \
    X(ZBV, "schedule ZBVZeroBubble", j->schedule == SPW_SCHEDULE_ZBV) \
    X(DUAL_PIPE_V, "schedule DualPipeV", j->schedule == SPW_SCHEDULE_DUAL_PIPE_V) \
    X(ZERO_BUBBLE, "schedule ZB1P", j->schedule == SPW_SCHEDULE_ZERO_BUBBLE) \
    X(DUAL_PIPE, "schedule DualPipe", j->schedule == SPW_SCHEDULE_DUAL_PIPE) \
    X(LAYOUT, "a layout of stages", spw_stage_layout_is_said(&j->stage_layout)) \
    X(MTP_NUMBER, "mtp_num_layers", j->stage_layout.behind > 0) \
    X(WHOLE, "whole models", j->part == SPW_PART_WHOLE) \
    X(BARE, "bare layers", j->part == SPW_PART_EXPERT_LAYERS) \
    X(LAYERS, "layers", j->layers > 0) \
    X(MICRO_BATCHES, "micro-batches", j->micro_batches > 1) \
    X(GLOBAL_BATCH, "global_batch", j->global_batch > 0) \
    X(FSDP, "fsdp above 1", j->fsdp > 1) \
    X(NO_EXPERT_PARALLEL, "expert 1", j->expert <= 1) \
    X(CONTEXT, "context above 1", g->context > 1) \
    X(EXPERT_TENSOR, "expert_tensor above 1", g->expert_tensor > 1) \
    X(SAID_SPLIT, "tensor or a said expert_tensor above 1", j->tensor > 1 || j->expert_tensor > 1) \
    X(NO_SEQUENCE_PARALLEL, "sequence_parallel: false", !j->sequence_parallel) \
    X(SEQUENCE_TENSOR, "Megatron-Core's tensor above 1", g->sequence_tensor > 1) \
    X(CUT, "tensor or context above 1", g->tensor * g->context > 1) \
    X(MESH_CUT, "MaxText's axes tensor or context above 1", spw_grid_mesh_gpus(g) > 1) \
    X(MESH_TENSOR, "MaxText's axis tensor above 1", spw_grid_mesh_gpus(g) > 1 && g->tensor > 1) \
    X(OTHER_EXPERT_TENSOR, "an expert_tensor other than tensor", g->expert_tensor != g->tensor) \
    X(SHARED_HEADS, "more tensor GPUs than key and value heads", spw_grid_shares_heads(j)) \
    X(UNREAD_MIXER, "a mixer whose split is not modelled", spw_grid_unread_mixer(j) != NULL) \
    X(LATENT_EXPERTS, "latent experts", m->latent > 0) \
    X(PLAIN_EXPERTS, "experts of two matrices", m->plain_experts) \
    X(EXPERT_BIAS, "biases of experts", m->expert_bias) \
    X(INDEXER, "a sparse indexer", m->indexer_heads > 0) \
    X(NORM_OF_HEADS, "norms over all heads together", m->qk_norm && !m->qk_norm_per_head) \
    X(NO_STREAMS, "a model without residual streams", m->streams < 2) \
    X(NO_LATENT_ATTENTION, "a model without multi-latent attention", !spw_attention_is_latent(m) && !spw_attention_is_compressed(m)) \
    X(LATENT_ALONE, "multi-latent attention in every layer", spw_attention_is_latent(m) && m->matrices == 0) \
    X(SEVERAL_KINDS, "layers of several kinds", m->other_layers > 0 || m->matrices > 0) \
    X(UNLISTED_CORE, "attention other than grouped or latent in every layer, with gates, shared key heads or context above 1", (!spw_attention_is_grouped(m) && !spw_attention_is_latent(m)) || m->other_layers > 0 || m->indexer_heads > 0 || m->query_gate || spw_grid_shares_heads(j) || g->context > 1) \
    X(UNREAD_CORE, "attention with norms, gates or another mixer", !spw_attention_is_grouped(m) || m->other_layers > 0 || m->indexer_heads > 0 || m->qk_norm || m->query_gate) \
    X(NO_FSDP2, "no FSDP2", j->fsdp2.reshard == SPW_RESHARD_OFF) \
    X(FSDP2, "FSDP2, said", j->fsdp2.reshard != SPW_RESHARD_OFF && j->fsdp2.reshard != SPW_RESHARD_DEFAULT) \
    X(FSDP2_UNITS, "FSDP2", law->by_units) \
    X(PREFETCH, "fsdp2.prefetch", j->fsdp2.prefetch > 1) \
    X(REPLICAS, "fsdp2.replicas", j->fsdp2.replicas > 1) \
    X(GATHERED, "fsdp2.gathered", j->fsdp2.gathered > 0) \
    X(GATHERED_OTHER, "fsdp2.gathered in another format", j->fsdp2.gathered > SPW_GATHERED_SAME) \
    X(STATE_ON_HOST, "fsdp2.state: host", j->fsdp2.on_host) \
    X(SHARDED, "sharded weights of whole models", spw_state_is_sharded(j)) \
    X(NOT_SHARDED, "weights that are not sharded, or bare layers", !spw_state_is_sharded(j)) \
    X(KEPT_WEIGHTS, "optimizer distributed or replicated", !law->shares_weights) \
    X(NOT_MEGATRON, "sharded weights, or bare layers", !spw_state_is_megatron(j)) \
    X(NOT_DISTRIBUTED, "an optimizer other than distributed", j->optimizer != SPW_OPTIMIZER_DISTRIBUTED) \
    X(OPTIMIZER_ON_HOST, "optimizer_on_host", j->optimizer_on_host > 0.0) \
    X(REMAINDERS, "store_param_remainders", j->megatron.remainders) \
    X(NO_REMAINDERS, "state that is not bf16 weights and fp32 master weights", p->weights != 2 || p->fp16 != 0 || spw_master_bytes(j) != 4) \
    X(NOT_DELAYED, "a recipe other than delayed", p->recipe != SPW_FP8_NONE && p->recipe != SPW_FP8_DELAYED) \
    X(INSTANCES, "optimizer_instances", j->optimizer_instances >= 2) \
    X(MUON, "Muon", j->muon) \
    X(NOT_MUON, "Adam", !j->muon) \
    X(PING_PONG, "muon_layout: ping_pong", j->muon_ping_pong) \
    X(MUON_PACKED, "Muon, packed", j->muon && !j->muon_ping_pong) \
    X(OLD_RELEASE, "a release before 0.18", spw_megatron_release_is_before(j, SPW_MEGATRON_PACKED_MUON)) \
    X(FINETUNE, "finetune", !spw_finetune_is_whole(&j->finetune)) \
    X(FROZEN_BASE, "a frozen base", j->finetune.frozen == SPW_FROZEN_BASE) \
    X(NO_ADAPTERS, "no adapters", j->finetune.lora_rank == 0) \
    X(RECIPE, "a recipe", p->recipe != SPW_FP8_NONE) \
    X(NO_RECIPE, "no recipe", p->recipe == SPW_FP8_NONE) \
    X(RECIPE_CAST, "a recipe with sharded weights", p->recipe != SPW_FP8_NONE && !law->megatron) \
    X(RECIPE_MEGATRON, "a recipe under Megatron-Core's optimizer", p->recipe != SPW_FP8_NONE && law->megatron) \
    X(RECIPE_OF_TE, "recipe blockwise, nvfp4 or mxfp4", p->recipe == SPW_FP8_BLOCKWISE || spw_fp8_recipe_is_fp4(p->recipe)) \
    X(DELAYED, "recipe delayed", p->recipe == SPW_FP8_DELAYED) \
    X(NOT_MXFP8, "a recipe other than mxfp8", p->recipe != SPW_FP8_MXFP8) \
    X(FP4, "an fp4 recipe", spw_fp8_recipe_is_fp4(p->recipe)) \
    X(MXFP4, "recipe mxfp4", p->recipe == SPW_FP4_MXFP4) \
    X(PARAM_GATHER, "fp8_param_gather", p->fp8_param_gather) \
    X(NOT_CAST, "formats other than activations bf16 and weights bf16 or fp32", p->activations != 2 || p->fp16 != 0 || (p->weights != 2 && p->weights != 4)) \
    X(NOT_BF16, "formats other than bf16", p->weights != 2 || p->activations != 2 || p->fp16 != 0) \
    X(WIDE_ACTIVATIONS, "activations other than two bytes", p->activations != 2) \
    X(REMAT_FULL, "remat full", spw_remat_runs_again(j->remat, 0)) \
    X(REMAT_LIST, "a list of modules in remat", j->remat > SPW_REMAT_MODULES) \
    X(REMAT_MOE, "remat moe", spw_remat_repeats(j->remat, SPW_MODULE_MOE)) \
    X(REMAT_MOE_OR_FULL, "remat full or moe", spw_remat_runs_again(j->remat, SPW_MODULE_MOE)) \
    X(REMAT_MOE_ACT, "remat moe_act", spw_remat_repeats(j->remat, SPW_MODULE_MOE_ACT)) \
    X(REMAT_LAYERNORM, "remat layernorm", spw_remat_repeats(j->remat, SPW_MODULE_LAYERNORM)) \
    X(REMAT_SHARED, "remat shared_experts", spw_remat_repeats(j->remat, SPW_MODULE_SHARED_EXPERTS)) \
    X(REMAT_MLA, "remat mla_up_proj", spw_remat_repeats(j->remat, SPW_MODULE_MLA_UP_PROJ)) \
    X(REMAT_MLP, "remat mlp", spw_remat_repeats(j->remat, SPW_MODULE_MLP)) \
    X(REMAT_MHC, "remat mhc", spw_remat_repeats(j->remat, SPW_MODULE_MHC)) \
    X(NOT_REMAT_MHC, "remat without mhc", !spw_remat_repeats(j->remat, SPW_MODULE_MHC)) \
    X(REMAT_FINE, "remat of other modules than core_attn and moe", spw_remat_exceeds(j->remat, SPW_MODULE_CORE_ATTN | SPW_MODULE_MOE)) \
    X(ATTENTION_AGAIN, "remat full, core_attn or mla_up_proj", !spw_remat_keeps_layers(j->remat) || spw_remat_repeats(j->remat, SPW_MODULE_CORE_ATTN) || spw_remat_repeats(j->remat, SPW_MODULE_MLA_UP_PROJ)) \
    X(EXPERTS_AGAIN, "experts that run again", !spw_remat_keeps_experts(j->remat)) \
    X(REMAT_OF_OTHERS, "remat that is not Megatron-Core's", !spw_remat_goes_with_megatron(j->remat)) \
    X(SELECTIVE_OP, "remat selective_op", spw_remat_keeps_operations(j->remat)) \
    X(OFFLOAD, "offload_modules", j->offload.modules != 0) \
    X(OFFLOAD_EXPERTS, "offload_modules expert_fc1 or moe_act", (j->offload.modules & SPW_OFFLOAD_EXPERTS) != 0) \
    X(OFFLOAD_ATTENTION, "offload_modules core_attn or attn_proj", (j->offload.modules & SPW_OFFLOAD_ATTENTION) != 0) \
    X(OFFLOAD_FC1, "offload_modules expert_fc1", (j->offload.modules & SPW_OFFLOAD_EXPERT_FC1) != 0) \
    X(SNAPSHOT, "a recorded snapshot", j->snapshot != NULL) \
    X(GRAPH, "cuda_graph_impl", j->cuda_graph != SPW_GRAPH_NONE) \
    X(GRAPH_PARTS, "CUDA graphs of parts", j->cuda_graph == SPW_GRAPH_LOCAL || j->cuda_graph == SPW_GRAPH_TRANSFORMER_ENGINE) \
    X(GRAPH_WHOLE, "a CUDA graph of an iteration", j->cuda_graph == SPW_GRAPH_FULL_ITERATION) \
    X(OVERLAP, "overlap_moe_expert_parallel_comm", j->overlap_exchanges) \
    X(NO_OVERLAP, "no overlap_moe_expert_parallel_comm", !j->overlap_exchanges) \
    X(OVERLAP_GRADIENTS, "overlap_grad_reduce", j->megatron.overlap_gradients) \
    X(NO_OVERLAP_GRADIENTS, "no overlap_grad_reduce", !j->megatron.overlap_gradients) \
    X(OVERLAP_GATHERS, "overlap_param_gather", j->megatron.overlap_gathers) \
    X(DELAY_WGRAD, "delay_wgrad_compute", j->megatron.delay_weight_gradients) \
    X(OVERLAP_SHARED, "moe_shared_expert_overlap", j->megatron.overlap_shared) \
    X(FUSED_EXPERTS, "use_transformer_engine_op_fuser", j->megatron.fused_experts) \
    X(FUSED_STREAMS, "use_fused_mhc", j->megatron.streams != SPW_FUSION_AUTO) \
    X(STREAMS_GROUP, "mhc_recompute_layer_num", j->megatron.streams_group != 0) \
    X(AMD, "AMD's GPUs", j->cluster.gpu_vendor == SPW_VENDOR_AMD)

#define SPW_SCHEME_FEATURES(X) \
    X(HYBRIDEP, "a scheme of HybridEP under its limits", j->library_limits && j->expert >= 2 && y->library != NULL && y->library(s) == SPW_LIBRARY_HYBRIDEP) \
    X(UNFUSED, "attention: unfused", j->attention == SPW_ATTENTION_UNFUSED && !is_listed(j, s)) \
    X(NO_LATENT, "a scheme without latent experts", !t->takes_latent && !is_listed(j, s)) \
    X(NO_PLAIN, "a scheme without experts of two matrices", !t->takes_plain && !is_listed(j, s)) \
    X(TURNS, "MaxText's pipeline without micro-batches", t->has_turns && j->pipeline > 1 && j->micro_batches <= 1) \
    X(NO_CASTS, "a scheme without the recipe's casts", !casts(j, s)) \
    X(NO_FP8, "a scheme without TransformerEngine's recipes", !y->megatron.fp8) \
    X(MESH, "MaxText's mesh of tensor or context", t->takes_mesh && spw_grid_mesh_gpus(&g) > 1) \
    X(MESH_CONTEXT, "MaxText's mesh of context", t->takes_mesh && spw_grid_mesh_gpus(&g) > 1 && g.context > 1) \
    X(MESH_BOTH, "MaxText's mesh of both axes", t->takes_mesh && g.mesh_tensor > 1 && g.mesh_context > 1) \
    X(NO_MESH, "a scheme without MaxText's mesh", !y->compiled.mesh) \
    X(TOKEN_CHUNKS, "token_chunks", g.tensor > 1 && spw_scheme_option_value(s, "token_chunks") > 1.0) \
    X(PEELED, "layout=peeled", spw_scheme_option_is(s, "layout", "peeled")) \
    X(NOT_EXCHANGED, "layout=peeled or gathered", spw_scheme_option_is(s, "layout", "peeled") || spw_scheme_option_is(s, "layout", "gathered")) \
    X(CAPACITY, "a capacity factor", !isnan(spw_scheme_option_value(s, "capacity_factor"))) \
    X(SPLIT, "tensor, context or expert_tensor of layers", is_split(&g, t)) \
    X(SPLIT_EXPERTS, "expert_tensor of layers", is_split(&g, t) && g.expert_tensor > 1) \
    X(NO_SPLITS, "a scheme that is not Megatron-Core's", !t->takes_splits) \
    X(NOT_ALL_TO_ALL, "another dispatcher than the all-to-all", y->megatron.dispatcher != SPW_MEGATRON_ALL_TO_ALL) \
    X(ALL_GATHER, "the all-gather dispatcher", y->megatron.dispatcher == SPW_MEGATRON_ALL_GATHER) \
    X(POOL, "a paged stash", has_pool(j, s)) \
    X(NO_PREDICTIONS, "a scheme without layers of multi-token prediction", !t->takes_predictions) \
    X(EVEN_STAGES, "a scheme of equal stages", !t->takes_layouts) \
    X(NO_STAGES, "a scheme without pipelines", t->stages_words != NULL) \
    X(NO_GPIPE, "a scheme without GPipe", !t->takes_gpipe) \
    X(TUNED, "finetune of layers", is_tuned(j, s)) \
    X(PEFT_TARGETS, "lora_targets linear or all", spw_finetune_adapts(&j->finetune, SPW_LORA_DENSE) || spw_finetune_adapts(&j->finetune, SPW_LORA_ROUTER)) \
    X(NOT_FREEZING, "a scheme without finetune", !y->megatron.freezes) \
    X(CUT_ADAPTERS, "adapters of attention that tensor cuts", is_tuned(j, s) && g.tensor > 1 && spw_finetune_adapts(&j->finetune, SPW_LORA_ATTENTION)) \
    X(FSDP2_UNSAID, "a scheme that has FSDP2 only if told", j->fsdp2.reshard == SPW_RESHARD_DEFAULT && !spw_fsdp2_is_default(j, s)) \
    X(OWN_GATHERS, "a scheme that gathers weights by itself", t->fsdp2 == SPW_FSDP2_NEVER) \
    X(NOT_SELECTING, "a scheme without selective_op", !y->memory.selects_operations) \
    X(UNREAD_OPERATIONS, "a model whose operations were not read", !spw_selective_ops_are_read(&j->model)) \
    X(OTHER_LOSS, "a loss of another framework", (t->losses >> j->cross_entropy & 1) == 0) \
    X(NOT_OFFLOADING, "a scheme without offload_modules", !y->megatron.offloads) \
    X(GRAPH_OPTION, "graph=full", spw_scheme_option_is(s, "graph", "full")) \
    X(GRAPH_UNSAID, "fixed buffers without graph=full", reads_rows(s) && y->megatron.unread) \
    X(READS_ROWS, "rows whose number the host reads", reads_rows(s) && !y->megatron.unread) \
    X(PLAIN_STAGES, "pipeline stages without virtual ones", has_plain_stages(j)) \
    X(NO_STREAM_MODULES, "a scheme without Megatron-Core's streams", t->wide_streams || !spw_scheme_around(s, j)->keeps_modules) \
    X(OWN_STREAMS, "streams of Primus", t->wide_streams) \
    X(MEGATRON_KEY, "a key of Megatron-Core's layers", spw_megatron_keys_beyond(j, s) != NULL) \
    X(OWN_STATE, "a scheme whose program shards its whole state", !t->takes_optimizers)
/* clang-format on */

#endif
