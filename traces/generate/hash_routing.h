/* Hash layers: the token's id chooses the experts, by a table that training does not change (Roller et al. 2021, "Hash Layers For
 * Large Sparse Models"; DeepSeek-V4, `tid2eid`). How uneven the experts are follows from how often each id occurs, as no loss
 * evens it out. Ids are independent; all hash layers of a step see the same ids. The table of a layer gives every id top_k distinct
 * experts at random, from the seed. */
#ifndef SPW_TRACES_GENERATE_HASH_ROUTING_H
#define SPW_TRACES_GENERATE_HASH_ROUTING_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { SPW_HASH_VOCABULARY = 1 << 20 }; /* ids at most */

typedef struct spw_hash_settings {
    size_t experts, top_k, layers, vocabulary;
    double exponent; /* id i has a frequency proportional to (i + 1)^-exponent (Zipf) */
    const double *
        weight; /* [vocabulary] or NULL: frequencies instead, at least 0, one above; borrowed until create returns */
    uint64_t seed;
} spw_hash_settings;

typedef struct spw_hash_routing spw_hash_routing;

/* SPW_EARG: no ids, too many, or weights that are no frequencies. experts and top_k are checked by the caller. */
SPW_MUST_CHECK spw_status spw_hash_routing_create(const spw_hash_settings *settings, spw_hash_routing **out);
void spw_hash_routing_destroy(spw_hash_routing *hash); /* NULL is fine */

/* expert_id [top_k]: the table's row of an id. */
void spw_hash_routing_row(const spw_hash_routing *hash, size_t layer, size_t id, uint16_t *expert_id);
/* inclusion [experts] of a layer: the sum of the frequencies of the ids that choose an expert. Owned by `hash`. */
const double *spw_hash_routing_inclusion(const spw_hash_routing *hash, size_t layer);
/* The id of each of `tokens` tokens of a rank at a step. */
void spw_hash_routing_ids(const spw_hash_routing *hash, size_t step, size_t rank, size_t tokens,
                          uint32_t *id);
/* expert_id [ranks * tokens_per_rank][top_k], rank-major. */
SPW_MUST_CHECK spw_status spw_hash_routing_record(const spw_hash_routing *hash, size_t layer, size_t step,
                                                  size_t ranks, size_t tokens_per_rank, uint16_t *expert_id);

#endif
