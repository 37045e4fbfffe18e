/* What other planners' published formulas say of a job, to be put beside ours: docs/peers.md has the formulas in
 * our own words and the commit each was read at. They balance the routing, assume bf16 and fp32 states, and know
 * no execution scheme. */
#ifndef SPW_SIM_PEERS_PEER_H
#define SPW_SIM_PEERS_PEER_H

#include "sim/job/job_words.h"
#include "sim/model/model.h"

/* Parts of one GPU's memory that every planner tells apart. */
#define SPW_PEER_PART_LIST(X) \
    X(WEIGHTS, "weights") \
    X(GRADIENTS, "gradients") \
    X(OPTIMIZER, "optimizer") \
    X(ACTIVATIONS, "activations")
#define SPW_PEER_PART_ENUM(name, text) SPW_PEER_##name,
typedef enum spw_peer_part { SPW_PEER_PART_LIST(SPW_PEER_PART_ENUM) SPW_PEER_PARTS } spw_peer_part;
#undef SPW_PEER_PART_ENUM
const char *spw_peer_part_name(spw_peer_part part);

typedef struct spw_peer_memory {
    double bytes[SPW_PEER_PARTS];
    size_t stage;      /* of the pipeline, the one that needs most */
    double reserved;   /* what the planner adds for the allocator, as a factor on the sum; 1 = nothing */
    double layer_rows; /* assignments of one GPU in one MoE layer that it counts with; 0 = none */
} spw_peer_memory;

typedef struct spw_peer {
    const char *name, *title, *source;
    /* sequences: of one GPU in one step. SPW_ECONFIG: what the planner refuses, or has no word for. */
    spw_status (*predict)(const spw_job *job, size_t sequences, spw_peer_memory *out);
    const char *why[SPW_PEER_PARTS]; /* where its part differs from ours, in words */
    /* The same of jobs with tensor, context or expert-tensor parallelism; all NULL: its formulas of these are not restated. */
    const char *why_split[SPW_PEER_PARTS];
} spw_peer;

extern const spw_peer spw_peers[]; /* ended by name NULL */
/* SPW_EARG lists the names. */
SPW_MUST_CHECK spw_status spw_peer_find(const char *name, const spw_peer **out);

double spw_peer_sum(const spw_peer_memory *memory);

/* --- What their formulas share --- */

/* Projections of one attention block; with MLA the norms of the two low ranks too. */
double spw_peer_attention_parameters(const spw_model *model);
double spw_peer_vocab(const spw_model *model); /* padded to a multiple of 128 */
/* SPW_ECONFIG for a remat policy other than none and full. */
SPW_MUST_CHECK spw_status spw_peer_remat(const spw_job *job, bool *full);

SPW_MUST_CHECK spw_status spw_peer_megatron(const spw_job *job, size_t sequences, spw_peer_memory *out);
SPW_MUST_CHECK spw_status spw_peer_primus(const spw_job *job, size_t sequences, spw_peer_memory *out);
SPW_MUST_CHECK spw_status spw_peer_simumax(const spw_job *job, size_t sequences, spw_peer_memory *out);

#endif
