/* Which GPU updates which matrix under Megatron-Core's layer-wise distributed optimizer (Muon with --use-distributed-optimizer, formerly
 * dist_muon): NVIDIA/Megatron-LM d98e8a64 megatron/core/optimizer/layer_wise_optimizer.py _compute_per_buffer_param_layout, with one
 * bucket a buffer, as there is without --overlap-grad-reduce. Newton-Schulz wants whole matrices, so each goes whole to one shard:
 * in falling order of its work, the longer side times the square of the shorter, to the shard with the least work so far among
 * those that would not exceed 1.3 times the mean in elements, else to the one with the fewest elements; each begins at a multiple
 * of 64. All shards of a buffer are padded to the largest, a multiple of lcm(64, lcm(shards, 128) / shards): weights and gradients
 * have the padded size on every GPU, and so have their collectives. Experts are one buffer, over their replicas, all other matrices
 * of layers another, over data x context; each chunk of a stage has its own. What is no matrix of a layer (embedding, head, norms,
 * biases) is Adam's, whose buffers are cut by bytes. */
#ifndef SPW_SIM_WEIGHTS_MUON_PACKING_H
#define SPW_SIM_WEIGHTS_MUON_PACKING_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_block spw_block;

/* What the step on a matrix takes, and its gathers. */
typedef struct spw_muon_seconds {
    double products, gathers;
} spw_muon_seconds;

enum { SPW_MUON_PARTS = 4 };

/* So many matrices of one shape, in the order of a model; of one that GPUs share, the part of one of them. */
typedef struct spw_muon_matrices {
    uint64_t rows, columns, count;
    size_t sharers;                /* that hold a part each; 0: none, it is whole */
    bool by_columns;               /* a part has all rows and some columns; else the other way round */
    uint64_t part[SPW_MUON_PARTS]; /* rows that are orthogonalized by themselves; all 0: all rows together */
    spw_muon_seconds each;         /* of one matrix */
} spw_muon_matrices;

/* Adds to load [shards] the elements of the matrices that each has, and to spent [shards] or NULL what they take; *shard: elements of one
 * shard, padding included. */
SPW_MUST_CHECK spw_status spw_muon_pack(const spw_muon_matrices *matrices, size_t kinds, size_t shards,
                                        uint64_t *load, spw_muon_seconds *spent, uint64_t *shard);

/* Elements on one GPU of a stage. Index 0: experts, 1: all else. */
typedef struct spw_muon_packing {
    double matrices[2]; /* of layers, on a GPU that holds them whole */
    double buffers[2];  /* the same, with padding */
    double fullest;     /* that the fullest GPU of the stage updates, both kinds together */
} spw_muon_packing;
SPW_MUST_CHECK spw_status spw_muon_packing_of(const spw_job *job, size_t stage, spw_muon_packing *out);

/* What the GPU of a stage takes that takes longest, products and gathers together, where `price` says what one matrix takes. Without the
 * layer-wise optimizer every GPU updates all that it holds. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_muon_slowest(const spw_job *job, size_t stage,
                                           spw_muon_seconds (*price)(const void *context,
                                                                     const spw_muon_matrices *one),
                                           const void *context, spw_muon_seconds *out);

/* Is the job's optimizer that one, in either layout? */
bool spw_muon_is_layer_wise(const spw_job *job);
/* The same with padded buffers. */
bool spw_muon_packs(const spw_job *job);

enum { SPW_MUON_KINDS = 16 + SPW_MODEL_MATRICES };
typedef struct spw_muon_list {
    spw_muon_matrices kind[SPW_MUON_KINDS];
    size_t kinds;
} spw_muon_list;
/* The matrices of a block's layers on one GPU. Index 0: experts, 1: all else. */
void spw_muon_block_matrices(const spw_job *job, const spw_block *block, spw_muon_list out[2]);

#endif
