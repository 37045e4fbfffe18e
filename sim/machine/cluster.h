/* The machine of a job. Presets are YAML files in sim/clusters/, compiled in; every figure carries its
 * evidence. */
#ifndef SPW_SIM_MACHINE_CLUSTER_H
#define SPW_SIM_MACHINE_CLUSTER_H

#include "base/status.h"
#include "sim/read/evidence.h"

#include <stddef.h>
#include <stdio.h>

typedef struct spw_setting spw_setting;

enum {
    SPW_CLUSTER_NAME = 64,
    SPW_STACK_NAME = 64, /* texts of stacks, sim/read/coefficient.h */
    SPW_STACK_TEXT = 256,
    SPW_GEMM_POINTS = 64,
    SPW_EXCHANGE_POINTS = 16,
    SPW_LINK_POINTS = 64,
    SPW_LEVELS = 6,
    SPW_LEVEL_NAME = 24,
    SPW_CLUSTER_WORDS = 64
};

/* In YAML:  hbm_gib: {value: 287.96, evidence: published, source: "..."} */
typedef struct spw_figure {
    double value;
    spw_evidence evidence;
    char source[SPW_FIGURE_SOURCE];
} spw_figure;

/* The speed of a grouped GEMM at points: 10^12 FLOP/s of one GPU with rows_per_expert rows for each of many
 * experts. In YAML parallel lists of one length; none without measurements. Inside a shape (in, out) the rows
 * rise. */
typedef struct spw_gemm_points {
    size_t points;
    size_t rows_per_expert[SPW_GEMM_POINTS], in[SPW_GEMM_POINTS], out[SPW_GEMM_POINTS];
    size_t forward_tflops[SPW_GEMM_POINTS], input_gradient_tflops[SPW_GEMM_POINTS],
        weight_gradient_tflops[SPW_GEMM_POINTS];
    size_t lengths[6]; /* of the lists above as read; equal to `points` */
    spw_evidence evidence;
    char source[SPW_FIGURE_SOURCE];
} spw_gemm_points;

/* The rate of an expert-parallel exchange inside a node at points: 10^9 bytes/s of one GPU when each receives `bytes`
 * in one exchange, what it sends itself included. In YAML parallel lists of one length, bytes rising; none without
 * measurements. */
typedef struct spw_exchange_points {
    size_t points;
    size_t bytes[SPW_EXCHANGE_POINTS];
    size_t dispatch_gb_per_s[SPW_EXCHANGE_POINTS], combine_gb_per_s[SPW_EXCHANGE_POINTS];
    size_t lengths[3]; /* of the lists above as read; equal to `points` */
    spw_evidence evidence;
    char source[SPW_FIGURE_SOURCE];
} spw_exchange_points;

/* The links inside a node at points: what one message of message_bytes takes from a GPU to another, and what messages
 * of that size, one behind the other, reach. In YAML parallel lists of one length, message_bytes rising; none without
 * measurements.
 *   latency_ns         one message from the first store to its arrival, by a kernel: half a round trip
 *   out_mb_per_s       one GPU sends to one other, 10^6 bytes/s
 *   in_mb_per_s        one GPU fetches from one other
 *   exchange_mb_per_s  every GPU sends to every other at once: what leaves one GPU
 *   incast_mb_per_s    all others send to one GPU: what reaches it */
typedef struct spw_link_points {
    size_t points;
    size_t message_bytes[SPW_LINK_POINTS], latency_ns[SPW_LINK_POINTS];
    size_t out_mb_per_s[SPW_LINK_POINTS], in_mb_per_s[SPW_LINK_POINTS], exchange_mb_per_s[SPW_LINK_POINTS],
        incast_mb_per_s[SPW_LINK_POINTS];
    size_t lengths[6]; /* of the lists above as read; equal to `points` */
    size_t gpus;       /* that took part; 0 without points */
    spw_evidence evidence;
    char source[SPW_FIGURE_SOURCE];
} spw_link_points;

/* Our own kernels on one GPU (docs/validation_gpu.md), and dispatch and combine between GPUs (validation_exchange.md), each
 * measured alone: what the time of a whole layer is made of (sim/time/layer_time.h). 0 where nothing was. X(field, help) */
#define SPW_KERNEL_FIGURE_LIST(X) \
    X(copy_gb_per_s, "10^9 bytes/s of a device copy, read and written") \
    X(fan_out_gb_per_s, "tokens to the rows of their experts, least bytes") \
    X(slots_gb_per_s, "tokens to slots of a capacity, least bytes") \
    X(fan_in_gb_per_s, "weighted sums of rows, least bytes") \
    X(fan_in_gradient_gb_per_s, "its gradient, least bytes") \
    X(swiglu_gb_per_s, "SwiGLU, least bytes") \
    X(swiglu_gradient_gb_per_s, "its gradient, least bytes") \
    X(plan_us, "counts and permutation of the choices") \
    X(slot_ns, "places in the slots: of a choice, in order of a sequence") \
    X(notices_us, "ranks tell each other how many rows come") \
    X(send_start_us, "dispatch: what does not depend on rows or bytes, notices included") \
    X(send_row_ns, "dispatch: of a row") \
    X(send_share, "dispatch: share of the links' exchange_mb_per_s of the largest message") \
    X(return_start_us, "combine: the same") \
    X(return_row_ns, "combine: of a row") \
    X(return_share, "combine: the same")
typedef struct spw_kernel_figures {
#define SPW_KERNEL_FIELD(field, help) double field;
    SPW_KERNEL_FIGURE_LIST(SPW_KERNEL_FIELD)
#undef SPW_KERNEL_FIELD
    spw_evidence evidence;
    char source[SPW_FIGURE_SOURCE];
} spw_kernel_figures;

/* The network between the nodes as a hierarchy, from the lowest level up. In YAML parallel lists of one length; none where
 * the NICs alone count, which is one level that joins all nodes without a limit of its own.
 *   size           how many of the level below one of this level joins: nodes, then units of the first level, ...; their
 *                  product is the number of nodes
 *   switches       units that stand side by side over the same nodes: GPU i of a node is below number i mod switches of
 *                  them, its rail. Each divides the one below it, the first gpus_per_node, and the last is 1
 *   port_mb_per_s  of each member into this level, 10^6 bytes/s one way: of the first level a GPU's NIC, of the others
 *                  all uplinks of a unit of the level below together
 *   latency_ns     what a message that crosses this level's ports takes longer for it */
typedef struct spw_levels {
    size_t count;
    char name[SPW_LEVELS][SPW_LEVEL_NAME];
    size_t size[SPW_LEVELS], switches[SPW_LEVELS], port_mb_per_s[SPW_LEVELS], latency_ns[SPW_LEVELS];
    size_t lengths[5]; /* of the lists above as read; equal to `count` */
    spw_evidence evidence;
    char source[SPW_FIGURE_SOURCE];
} spw_levels;

/* Which fp8 layouts its products take (sim/job/recipe/fp8_recipe.h). */
/* None: no GPUs but TPUs, of which nothing was measured: memory, rows and traffic alone, and no times. */
typedef enum spw_gpu_generation {
    SPW_GPU_OTHER,
    SPW_GPU_HOPPER,
    SPW_GPU_BLACKWELL,
    SPW_GPU_CDNA3, /* MI300X, MI325X */
    SPW_GPU_CDNA4, /* MI355X */
    SPW_GPU_NONE
} spw_gpu_generation;

/* Whose libraries compute. */
typedef enum spw_gpu_vendor { SPW_VENDOR_OTHER, SPW_VENDOR_NVIDIA, SPW_VENDOR_AMD } spw_gpu_vendor;

typedef struct spw_cluster {
    char name[SPW_CLUSTER_NAME];
    size_t nodes, gpus_per_node;
    size_t whole_node;  /* GPUs of a node where a resize took a part of it; 0: gpus_per_node */
    size_t preset_node; /* GPUs a node of the preset that the name resizes; 0: the name gives no size */
    spw_gpu_generation gpu_generation;
    spw_gpu_vendor gpu_vendor;
    spw_figure hbm_gib;               /* visible to a program, per GPU */
    spw_figure bf16_flops, fp8_flops; /* dense peak per GPU, per second */
    spw_figure fp4_flops;             /* 0: its products take no fp4 */
    spw_figure hbm_bytes_per_s;
    spw_figure link_bytes_per_s;   /* one GPU, one direction, inside a node */
    spw_figure nic_bytes_per_s;    /* one GPU, one direction, between nodes */
    spw_figure launch_s;           /* one kernel launch */
    spw_figure gpu_watts;          /* power limit of a GPU; 0: not said */
    spw_figure price_per_gpu_hour; /* in whatever currency; 0: not said */
    spw_gemm_points gemm;
    spw_exchange_points exchange;
    spw_link_points link;
    spw_kernel_figures kernels;
    spw_levels levels;
} spw_cluster;

/* `name` is a preset or the path of a YAML file (contains '/' or ends in ".yaml" or ".yml"; relative to
 * `folder`). A preset's name with another number of nodes ("h200-32x8", or "h200:8x32", GPUs a node first) is that preset with so many;
 * "h200" is the preset itself. SPW_ECONFIG names file, line and what would be right. */
SPW_MUST_CHECK spw_status spw_cluster_read(const char *name, const char *folder, spw_cluster *out);
/* "32 nodes of 8 GPUs": notations put either first. Returns `out`. */
const char *spw_cluster_words(const spw_cluster *cluster, char out[SPW_CLUSTER_WORDS]);
/* The same of a name that ends in its size, "h200-32x8"; "" of any other. */
const char *spw_cluster_name_words(const char *name, char out[SPW_CLUSTER_WORDS]);
/* Makes it `gpus` GPUs: whole nodes, or a part of one. SPW_ECONFIG names numbers that do. */
SPW_MUST_CHECK spw_status spw_cluster_resize(spw_cluster *cluster, size_t gpus);
SPW_MUST_CHECK spw_status spw_cluster_parse(const char *where, const char *text, size_t length,
                                            spw_cluster *out);
const char *const *spw_cluster_presets(void);  /* ended by NULL */
const spw_setting *spw_cluster_settings(void); /* the keys of a cluster's file */

#endif
