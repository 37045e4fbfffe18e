/* How far the machine on which a stack was measured is from the machine of a job, and which of two stacks is nearer. */
#ifndef SPW_SIM_MACHINE_STACK_NEAREST_H
#define SPW_SIM_MACHINE_STACK_NEAREST_H

#include "base/status.h"
#include "sim/machine/cluster.h"

#include <stdbool.h>

/* What two GPUs are compared by. */
typedef struct spw_gpu {
    char cluster[SPW_CLUSTER_NAME];
    spw_gpu_vendor vendor;
    spw_gpu_generation generation;
    double bf16_flops, hbm_bytes_per_s;
} spw_gpu;
spw_gpu spw_gpu_of(const spw_cluster *cluster);

/* From the nearest on. Clusters have the same GPU where their names say so ("h200-8x8", "h200-32x8"), or where the vendor, the
 * bf16 peak and the rate of memory are the same to 1 %. */
typedef enum spw_gpu_kinship {
    SPW_GPU_NAMED, /* the same by name, which says more than figures do */
    SPW_GPU_SAME,  /* by figures alone */
    SPW_GPU_SAME_GENERATION,
    SPW_GPU_SAME_VENDOR,
    SPW_GPU_FOREIGN
} spw_gpu_kinship;

typedef struct spw_stack_distance {
    spw_gpu_kinship kinship;
    double
        apart; /* |ln| of the ratios of the bf16 peaks and of the rates of memory, added; 0 of the same GPU */
} spw_stack_distance;

spw_stack_distance spw_stack_distance_of(const spw_gpu *job, const spw_gpu *measured);
/* The nearest of several clusters, names of presets between blanks, and which it is; a name that is no preset counts where it is
 * the job's GPU by its name. kinship FOREIGN, apart infinite: none is known; nearest->cluster is then "". */
SPW_MUST_CHECK spw_status spw_stack_distance_of_any(const spw_gpu *job, const char *clusters,
                                                    spw_stack_distance *out, spw_gpu *nearest);

/* Is one of several clusters, names between blanks, of the GPU of `cluster` by its name, in whatever number of nodes? */
bool spw_gpu_is_of(const char *cluster, const char *clusters);

/* What a stack is chosen by. `release`: of the software, "" where the file does not say; `name` ends in a date or a version. */
typedef struct spw_stack_claim {
    spw_stack_distance distance;
    bool unfitted; /* no run of the software was fitted: of the same kinship, those that were are nearer */
    char release[64], name[64];
} spw_stack_claim;
/* Is `a` to be taken rather than `b`? By kinship, fitted, apart, then the newer release, then the later date or version. */
bool spw_stack_claim_is_better(const spw_stack_claim *a, const spw_stack_claim *b);

enum { SPW_STACK_DISTANCE_TEXT = 256 };
/* "megatron-h200-2026-11 is of h200-8x8, a GPU of the same vendor: b200-8x8 has 2.3 times its bf16 peak and 1.7 times its memory
 * rate"; false, and "", where it is the same GPU. */
bool spw_stack_distance_note(const char *stack, const spw_gpu *job, const spw_gpu *measured,
                             char out[SPW_STACK_DISTANCE_TEXT]);

#endif
