/* Figures of machines and releases that many stacks share. They are data: sim/stack_defaults/NAME.yaml, each value with evidence and
 * source, compiled in as spw_default_KEY by sim/stack_defaults.cmake. A key in one of these lists and in no file does not link;
 * a key in a file and in no list fails test_stack_defaults.
 * Those of compiled programs, compiled.yaml, are in sim/machine/stack.h. X(field, lowest, highest, help) */
#ifndef SPW_SIM_MACHINE_STACK_DEFAULTS_H
#define SPW_SIM_MACHINE_STACK_DEFAULTS_H

#include "sim/read/coefficient.h"

/* megatron.yaml: a stack of Megatron-Core has these too, its own where its file has the key (sim/machine/megatron_coefficients.h). */
#define SPW_MEGATRON_DEFAULT_LIST(X) \
    X(norm_bytes, 0, 1e4, "norm, casts and the router's input: bytes moved per token and hidden") \
    X(sort_bytes, 0, 1e4, "stable sort of the routing map: bytes moved per token and expert") \
    X(column_bytes, 0, 1e5, "top of the routing map's columns, with a capacity: the same") \
    X(read_count_s, 0, 1, "the host reads the number of rows, with a capacity and without padding") \
    X(main_grad_bytes, 0, 1e3, "weight gradients added to main_grad: bytes moved per parameter") \
    X(routed_share, 0, 1, "of host_first_s: where the host has launched the router") \
    X(route_kernels, 0, 1e4, "kernels of the router") \
    X(permute_kernels, 0, 1e4, "kernels of the permutation") \
    X(expert_kernels, 0, 1e4, "kernels of grouped experts") \
    X(chunk_kernels, 0, 1e4, "kernels of sorting chunks") \
    X(tile_rows, 1, 1e4, "rows of a tile of the grouped GEMM") \
    X(tile_columns, 1, 1e4, "columns of a tile of the grouped GEMM") \
    X(long_message_bytes, 1, 1e15, \
      "unequal messages above it, and above twice it, are slow: long_message_share") \
    X(cat_block_bytes, 1, 1e6, "bytes that a block of torch.cat copies") \
    X(cat_blocks, 1, 1e4, "blocks of torch.cat on a multiprocessor, at most") \
    X(muon_products_share, 0.01, 1, "Newton-Schulz products over large products: share of their speed") \
    X(muon_matrix_host_s, 0, 1, "the host launches the products of a matrix") \
    X(muon_update_host_s, 0, 1, "the host launches the update of a matrix") \
    X(expert_floor_s, 0, 1, \
      "host_floor_s, for each expert of a rank in a MoE layer: its products' launches") \
    X(recipe_floor_s, 0, 1, "host_floor_s, with an fp8 recipe: casts") \
    X(floor_forward_share, 0.01, 0.99, \
      "of host_floor_s and what is more, where no layer runs again: forward") \
    X(unlike_floor_s, 0, 1, \
      "host_floor_s, of a MoE layer all of whose experts have numbers of rows of their own") \
    X(matrix_host_s, 0, 1, "optimizer: the host's work for a matrix of an expert") \
    X(host_half_width, 0, 2, "of what the GPU waits for the host: hosts differ; 0: as what is counted") \
    X(untuned_half_width, 0, 2, \
      "of everything, to the slow side alone, where the release is not tuned (untuned_release)") \
    X(exchange_nic_share, 0.01, 1, "exchanges between nodes: share of a NIC's rate") \
    X(exchange_serial_share, 0, 1, \
      "exchanges between nodes: of the shorter of their legs, by links and by NICs, what the longer does " \
      "not cover") \
    X(exchange_start_s, 0, 1, "exchanges between nodes: what a few bytes take") \
    X(exchange_nodes, 1, 1e6, "nodes of the largest published exchanges of training's size") \
    X(exchange_half_width, 0, 2, \
      "of exchanges between nodes: systems that the law of published rates was not fitted to") \
    X(host_link_bytes_per_s, 1e6, 1e16, "between a GPU and pinned memory of its host, one way") \
    X(host_memory_bytes_per_s, 1e6, 1e16, "Adam in the host's memory, read + written")

/* pytorch.yaml: PyTorch, and TransformerEngine's fp8 recipes. */
#define SPW_PYTORCH_DEFAULT_LIST(X) \
    X(workspace_hopper_bytes, 0, 1e12, "a workspace of cuBLAS") \
    X(workspace_blackwell_bytes, 0, 1e12, "the same") \
    X(te_workspace_bytes, 0, 1e12, "a workspace of TransformerEngine, Hopper and later") \
    X(workspace_cdna3_bytes, 0, 1e12, "a workspace of hipBLAS") \
    X(workspace_cdna4_bytes, 0, 1e12, "the same") \
    X(allocator_share, 1, 100, "most reserved bytes less state over the largest requested less state") \
    X(allocator_share_expandable, 1, 100, "the same with expandable segments") \
    X(reserved_doubt, 0, 1, "how far from what is replayed a process may be") \
    X(fp8_delayed_share, 0.01, 2, "of fp8_flops over bf16_flops: what products win") \
    X(fp8_delayed_width, 0, 2, "half width of that, as a logarithm") \
    X(fp8_tensorwise_share, 0.01, 2, "as of delayed") \
    X(fp8_tensorwise_width, 0, 2, "as of delayed") \
    X(fp8_blockwise_share, 0.01, 2, "as of delayed") \
    X(fp8_blockwise_width, 0, 2, "as of delayed") \
    X(fp8_mxfp8_share, 0.01, 2, "as of delayed") \
    X(fp8_mxfp8_width, 0, 2, "as of delayed") \
    X(fp8_amd_width, 0, 2, "the half width of every fp8 recipe on AMD's GPUs") \
    X(fp4_nvfp4_share, 0.01, 2, "of fp4_flops over bf16_flops: what products win") \
    X(fp4_nvfp4_width, 0, 2, "half width of that, as a logarithm") \
    X(fp4_mxfp4_share, 0.01, 2, "as of nvfp4") \
    X(fp4_mxfp4_width, 0, 2, "as of nvfp4")

/* kernels.yaml: kernels/ of this project. */
#define SPW_KERNEL_DEFAULT_LIST(X) \
    X(gemm_start_s, 0, 1, "grouped GEMM: first loads and last tiles of an expert, spread over the GPU") \
    X(gemm_efficiency, 0.01, 1, "grouped GEMM: share of the peak, where a cluster has no points")

/* outside.yaml: memory that PyTorch's allocator does not have (sim/memory/allocator/device_budget.h). */
#define SPW_OUTSIDE_DEFAULT_LIST(X) \
    X(outside_fraction, 0.1, 1, "memory_fraction where nobody says it") \
    X(outside_process_bytes, 0, 1e12, "one process without NCCL") \
    X(outside_group_bytes, 0, 1e12, "NCCL and a first process group of two") \
    X(outside_more_group_bytes, 0, 1e12, "a further process group of two") \
    X(outside_ranks_share, 1, 10, "groups of more GPUs over groups of two") \
    X(outside_group_most_bytes, 0, 1e12, "a group of more GPUs, at most") \
    X(outside_net_bytes, 0, 1e12, "a group over several nodes: more, at most") \
    X(outside_doubt_bytes, 0, 1e12, "how far from that a process may be") \
    X(outside_card_bytes, 0, 1e12, "the same on another GPU")

/* transformers.yaml: steps of Hugging Face transformers (sim/time/transformers_time.h). */
#define SPW_TRANSFORMERS_DEFAULT_LIST(X) \
    X(hf_measured_flops, 1, 1e18, "bf16 peak of the GPU that was measured") \
    X(hf_measured_hbm, 1, 1e16, "its memory rate") \
    X(hf_measured_link, 1, 1e16, "its link inside a node, one direction") \
    X(hf_kernel_s, 0, 1, "of each kernel: its start, and the gap before it") \
    X(hf_copy_bytes_per_s, 1, 1e16, "kernels that are no products, read + written") \
    X(hf_dense_flops, 1, 1e18, "dense products") \
    X(hf_grouped_flops, 1, 1e18, "products of experts") \
    X(hf_attention_flops, 1, 1e18, "attention") \
    X(hf_scan_flops, 1, 1e18, "products within a recurrence's kernels") \
    X(hf_fp32_flops, 1, 1e18, "products of an indexer in fp32") \
    X(hf_adam_tensors, 1, 100, "elements that AdamW reads and writes, a parameter") \
    X(hf_adam_bytes_per_s, 1, 1e16, "read + written") \
    X(hf_exchange_bytes_per_s, 1, 1e16, "FSDP2's gathers and reductions: bytes that arrive at a GPU") \
    X(hf_half_width, 0, 2, "what steps are off, as a logarithm") \
    X(hf_allocator_share, 1, 10, "what the allocator takes at most of live bytes that are not state") \
    X(hf_gpu_width, 0, 2, "more, on another GPU") \
    X(hf_module_width, 0, 2, "more, of modules that ran on a CPU alone") \
    X(hf_scan_factor, 1, 10, "how many times as long or as short a scan may take") \
    X(hf_size_width, 0, 2, "more, for sizes beyond those that were measured") \
    X(hf_micro_width, 0, 2, "more, with several micro-batches") \
    X(hf_tokens_min, 1, 1e9, "of a micro-batch, measured") \
    X(hf_tokens_max, 1, 1e9, "the same") \
    X(hf_hidden_min, 1, 1e9, "hidden size, measured") \
    X(hf_hidden_max, 1, 1e9, "the same") \
    X(hf_layers_max, 1, 1e9, "layers, measured") \
    X(hf_ranks_max, 1, 1e9, "GPUs of FSDP2, measured")

#define SPW_DEFAULT_EXTERN(field, ...) extern const spw_coefficient spw_default_##field;
SPW_MEGATRON_DEFAULT_LIST(SPW_DEFAULT_EXTERN)
SPW_PYTORCH_DEFAULT_LIST(SPW_DEFAULT_EXTERN)
SPW_KERNEL_DEFAULT_LIST(SPW_DEFAULT_EXTERN)
SPW_OUTSIDE_DEFAULT_LIST(SPW_DEFAULT_EXTERN)
SPW_TRANSFORMERS_DEFAULT_LIST(SPW_DEFAULT_EXTERN)
#undef SPW_DEFAULT_EXTERN

#endif
