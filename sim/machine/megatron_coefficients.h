/* What a step of bare Megatron-Core layers takes on one machine, in a few physical figures (sim/time/megatron/megatron_time.h).
 * Presets are YAML files in sim/megatron_stacks/, compiled in and written by `spillway calibrate time`. */
#ifndef SPW_SIM_MACHINE_MEGATRON_COEFFICIENTS_H
#define SPW_SIM_MACHINE_MEGATRON_COEFFICIENTS_H

#include "base/status.h"
#include "sim/machine/cluster.h"
#include "sim/machine/stack_defaults.h"
#include "sim/machine/stack_nearest.h"

/* Fitted by `spillway calibrate time`. X(field, before the fit, lowest, highest, spread, help): `spread` is how far the value
 * may lie from where the fit begins, as a logarithm; a fit without data leaves it. */
#define SPW_MEGATRON_FITTED_LIST(X) \
    X(gemm_flops_share, 0.81, 0.05, 1, 0.1, "grouped GEMM: share of the dense bf16 peak") \
    X(activation_bytes, 22, 1, 1e3, 0.1, \
      "SwiGLU x probability, forward: bytes moved per row and ffn; unfused by count 22") \
    X(activation_gradient_bytes, 78, 1, 1e3, 0.2, "the same, backward") \
    X(main_grad_bytes_per_s, 2.5e12, 1e9, 1e14, 0.3, "bf16 weight gradients added to fp32 main_grad") \
    X(router_flops, 45e12, 1e9, 1e16, 0.3, "fp32 GEMM of the router") \
    X(norm_gradient_bytes, 60, 1, 1e4, 0.3, "norm and casts, backward: bytes moved per token and hidden") \
    X(exchange_bytes_per_s, 370e9, 1e6, 1e14, 0.1, "all-to-all: a rank's heavier direction, off-rank bytes") \
    X(duplex_share, 0.12, 1e-4, 1, 0.7, "of the lighter direction's bytes: what they add") \
    X(long_message_share, 1.4, 1, 3, 0.1, \
      "all-to-all of unequal messages just above 2^27 or 2^28 bytes: as slow as of messages this much " \
      "longer") \
    X(slots_bytes_per_s, 1.65e12, 1e9, 1e14, 0.2, "chunks padded to capacity: a strided copy") \
    X(host_first_s, 1.25e-3, 1e-6, 1, 0.2, "host work before the first layer's counts are known") \
    X(host_layer_s, 2.6e-3, 1e-6, 1, 0.3, "host work from one layer's counts to the next layer's") \
    X(spill_share, 0.12, 1e-3, 1, 0.3, \
      "grouped GEMM: how much longer where an expert's rows are read again from memory, tile column by " \
      "tile " \
      "column") \
    X(zero_share, 0.15, 1e-3, 1, 0.3, "grouped GEMM: how much faster rows of zeros are (less power)") \
    X(jitter_share, 0.013, 1e-5, 0.5, 0.5, "spread of the ranks' times between two exchanges")

/* Measured one by one, or assumed. X(field, value, lowest, highest, help) */
#define SPW_MEGATRON_GIVEN_LIST(X) \
    X(peak_flops, 1e6, 1e20, "dense bf16 peak") \
    X(copy_bytes_per_s, 1e6, 1e16, "copies and elementwise kernels, read + written") \
    X(scatter_bytes_per_s, 1e6, 1e16, "scatter_add_ of rows to tokens, read + written") \
    X(index_add_bytes_per_s, 1e6, 1e16, "index_add_ of rows to tokens, read + written") \
    X(exchange_latency_s, 0, 1, "an all-to-all of a few bytes") \
    X(kernel_s, 0, 1, "start and end of a kernel that does next to nothing") \
    X(block_s, 0, 1, "a block of torch.cat without work") \
    X(multiprocessors, 1, 1e4, "of the GPU: torch.cat starts at most 32 blocks on each, for every chunk") \
    X(cache_bytes, 1, 1e12, "second-level cache of the GPU") \
    X(half_width, 0, 1, \
      "half width of the interval, as a logarithm: routings left out of the fit, and other GPUs") \
    X(ranks_half_width, 0, 1, \
      "the same on top: other numbers of ranks, or of tokens, than those of the tables")

/* For rows of a job, beyond the bare layers that were measured (sim/time/megatron/megatron_job_time.h); as above. */
#define SPW_MEGATRON_JOB_LIST(X) \
    X(dense_flops_share, 0.01, 1, "products outside the experts: share of the dense bf16 peak") \
    X(attention_flops_share, 0.01, 1, "scores of attention: share of the dense bf16 peak") \
    X(token_bytes_per_s, 1e6, 1e16, "DeepEP: a rank's heavier direction, off-rank bytes, inside a node") \
    X(network_bytes_per_s, 1e6, 1e16, "collectives between nodes, bytes of one GPU's NIC") \
    X(counted_half_width, 0, 2, "half width of what is counted and not fitted: attention, head, optimizer") \
    X(scaled_half_width, 0, 2, "of everything, where rates are scaled to another cluster") \
    X(dispatcher_half_width, 0, 2, \
      "of exchanges and row moves of a dispatcher that was not measured in a layer") \
    X(network_half_width, 0, 2, "of everything, on a network of several levels") \
    X(model_half_width, 0, 2, "of expert layers, on top of half_width: models left out of the fit") \
    X(foreign_half_width, 0, 2, \
      "of everything, where that cluster's GPU is of another generation or vendor") \
    X(pair_half_width, 0, 2, \
      "of the ratio of two jobs of one model on equal GPUs, beside what their shares of the doubts differ " \
      "by") \
    X(sorted_bytes_per_s, 1e6, 1e16, "HybridEP: a rank's heavier direction, off-rank bytes, inside a node") \
    X(recipe_doubt_share, 0, 1, "of the doubt about an fp8 recipe's products: what the fit does not have") \
    X(power_share, 0, 2, \
      "products of another GPU of the generation: over the ratio of the peaks that of the power limits to " \
      "this") \
    X(cast_share, 0, 20, "fp8 casts: time over that of their counted bytes at the rate of copies") \
    X(loss_fused_bytes, 0, 1e3, "TransformerEngine's loss: bytes moved per logit, forward and backward") \
    X(loss_native_bytes, 0, 1e3, "Megatron-Core's own fusion, the same") \
    X(loss_unfused_bytes, 0, 1e3, "Megatron-Core's loss without fusion, the same") \
    X(elementwise_share, 1, 20, \
      "norms, rotations and residuals: time over that of their bytes at the rate of copies") \
    X(optimizer_share, 1, 20, \
      "optimizer's phase over Adam's bytes: copies of masters, norm, clipping and zeroing") \
    X(layer_gap_s, 0, 1, \
      "what the GPU waits for launches in a layer's passes of a micro-batch, without CUDA graphs") \
    X(expert_gap_s, 0, 1, "the same, for each expert of a rank in a MoE layer") \
    X(recipe_gap_s, 0, 1, "the same, with an fp8 recipe: casts, and their scales") \
    X(counts_gap_s, 0, 1, \
      "the same, where the host reads the counts of an all-to-all: what its wire does not cover") \
    X(partial_graph_share, 0, 1, "what CUDA graphs of parts of a layer leave of these gaps") \
    X(tensor_gap_share, 1, 20, "these gaps with tensor parallelism, over those without") \
    X(host_floor_s, 0, 1, "the host's work for a layer's passes of a micro-batch: they take no less") \
    X(sequential_floor_s, 0, 1, \
      "the same, for each expert of a rank where Muon has them run one behind the other") \
    X(unfused_unpermute_share, 0.01, 1, \
      "of scatter_bytes_per_s: what PyTorch's unpermutation reaches (moe_permute_fusion: false); 1: it is " \
      "PyTorch's") \
    X(unfused_permute_share, 0.01, 1, "of index_add_bytes_per_s, the same: its gradient") \
    X(unfused_router_bytes, 0, 1e3, \
      "router by PyTorch (moe_router_fusion: false): bytes a token and hidden more; 0: it is PyTorch's") \
    X(overlap_share, 0, 1, \
      "of exchanges: what hides behind another micro-batch (overlap_moe_expert_parallel_comm)")

/* What scaling needs beside the coefficients: figures of the machine on which they were measured, and what dense products reach on AMD's
 * GPUs. Found once (spw_megatron_coefficients_locate), as it is read from presets. */
enum { SPW_MEGATRON_AMD_STACKS = 8 };
typedef struct spw_megatron_origin {
    bool known;
    double bf16_flops, hbm_bytes_per_s, link_bytes_per_s, nic_bytes_per_s, watts;
    spw_gpu_vendor vendor;
    spw_gpu_generation generation;
    size_t amd_stacks;
    struct {
        char name[SPW_STACK_NAME];
        spw_gpu gpu;
        spw_coefficient dense_share;
    } amd[SPW_MEGATRON_AMD_STACKS];
} spw_megatron_origin;

/* What runs of a stack trained: bare expert layers, whole models with TransformerEngine, the same on a part of a node's GPUs, or whole
 * models of PyTorch's own kernels, which a job has by the stack's name alone. */
typedef enum spw_megatron_part {
    SPW_MEGATRON_EXPERT_LAYERS,
    SPW_MEGATRON_WHOLE,
    SPW_MEGATRON_FEW,
    SPW_MEGATRON_PLAIN
} spw_megatron_part;

typedef struct spw_megatron_coefficients {
    char name[SPW_STACK_NAME];
    char tables[SPW_STACK_TEXT];  /* what it was fitted on */
    char cluster[SPW_STACK_TEXT]; /* whose figures the measured machine has: a preset, or a path */
    char gpus[SPW_STACK_TEXT];    /* presets of other GPUs of whose runs it was fitted; "": none */
    char release[SPW_STACK_NAME]; /* of Megatron-Core, as in "0.16.0"; "": not said */
    spw_megatron_part part;       /* the jobs that it is taken for by itself */
    char expert_parallel[SPW_STACK_TEXT];
    size_t tokens_min, tokens_max;   /* of a rank */
    double nic_bytes_per_s;          /* of a GPU of that machine; set where it is located or scaled */
    bool scaled;                     /* to a machine with other figures */
    bool seen;                       /* runs of that machine's GPU are in the fit, too: `gpus` */
    bool foreign;                    /* whose GPU is of another generation or vendor */
    char dense_from[SPW_STACK_NAME]; /* the stack whose dense_flops_share this is; "": its own */
    spw_megatron_origin origin;
#define SPW_MEGATRON_FIELD(field, ...) spw_coefficient field;
    SPW_MEGATRON_FITTED_LIST(SPW_MEGATRON_FIELD)
    SPW_MEGATRON_GIVEN_LIST(SPW_MEGATRON_FIELD)
    SPW_MEGATRON_JOB_LIST(SPW_MEGATRON_FIELD)
    SPW_MEGATRON_DEFAULT_LIST(SPW_MEGATRON_FIELD) /* where the file has no such key: spw_default_KEY */
#undef SPW_MEGATRON_FIELD
} spw_megatron_coefficients;

/* `name` is a preset or the path of a YAML file, whose `cluster` may be another file: a path without a '/' before it begins in the folder of
 * the stack's file. SPW_ECONFIG names file, line and what would be right. */
SPW_MUST_CHECK spw_status spw_megatron_coefficients_read(const char *name, const char *folder,
                                                         spw_megatron_coefficients *out);
SPW_MUST_CHECK spw_status spw_megatron_coefficients_parse(const char *where, const char *text, size_t length,
                                                          spw_megatron_coefficients *out);
const char *const *spw_megatron_coefficients_presets(void); /* ended by NULL */

/* Fills c->origin, so that scaling reads nothing. SPW_ECONFIG when c->cluster is not known. */
SPW_MUST_CHECK spw_status spw_megatron_coefficients_locate(spw_megatron_coefficients *c);

/* On another machine: what computes by its peak, what moves bytes by its memory's rate, exchanges by its link's or its
 * NIC's, each over that of c->cluster. Latencies and the host's work stay, and long_message_share, seen with one
 * link alone, is 1 where links differ. Products of a GPU of the same generation also by the ratio of the power limits to power_share,
 * where both clusters say them, but for one with less power and no less of it for each FLOP of its peak. On AMD's GPUs
 * dense_flops_share is that of the nearest stack of compiled programs that was fitted on AMD's GPUs (sim/machine/time_stack.h, stack_nearest.h); the shares of expert products and of attention stay. What was not
 * located is read here, each time. SPW_ECONFIG when c->cluster is not known. */
SPW_MUST_CHECK spw_status spw_megatron_coefficients_scale(const spw_megatron_coefficients *c,
                                                          const spw_cluster *cluster,
                                                          spw_megatron_coefficients *out);

/* YAML that spw_megatron_coefficients_parse reads back. */
SPW_MUST_CHECK spw_status spw_megatron_coefficients_write(const spw_megatron_coefficients *c,
                                                          const char *path);

/* All of them in the order of the lists, the fitted ones first: for loops. */
typedef struct spw_megatron_coefficient_row {
    const char *key, *help;
    size_t offset;                          /* in spw_megatron_coefficients */
    double start, minimum, maximum, spread; /* start, spread: 0 where nothing is fitted */
} spw_megatron_coefficient_row;
#define SPW_MEGATRON_INDEX(field, ...) SPW_MEGATRON_ROW_##field,
enum { SPW_MEGATRON_FITTED_LIST(SPW_MEGATRON_INDEX) SPW_MEGATRON_FITTED };
enum {
    SPW_MEGATRON_LAST_FITTED = SPW_MEGATRON_FITTED - 1,
    SPW_MEGATRON_GIVEN_LIST(SPW_MEGATRON_INDEX) SPW_MEGATRON_JOB_LIST(SPW_MEGATRON_INDEX)
        SPW_MEGATRON_COEFFICIENTS
};
#undef SPW_MEGATRON_INDEX
extern const spw_megatron_coefficient_row spw_megatron_coefficient_rows[SPW_MEGATRON_COEFFICIENTS];
spw_coefficient *spw_megatron_coefficient(spw_megatron_coefficients *c, size_t row);
const spw_coefficient *spw_megatron_coefficient_of(const spw_megatron_coefficients *c, size_t row);

#endif
