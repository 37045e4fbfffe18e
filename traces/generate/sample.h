/* Drawing the choices of tokens with given inclusion probabilities: systematic sampling over a permuted list.
 * The probabilities are held as whole multiples of 2^-32, so that no expert can be drawn twice for a token. */
#ifndef SPW_TRACES_GENERATE_SAMPLE_H
#define SPW_TRACES_GENERATE_SAMPLE_H

#include "base/status.h"
#include "traces/generate/random_stream.h"

#include <stddef.h>

typedef struct spw_sampler spw_sampler;

/* Without groups (0): inclusion [experts], each at most 1, sum top_k. With groups: group_inclusion [groups],
 * sum kept; inclusion is inside a chosen group, sum top_k / kept in each group. */
SPW_MUST_CHECK spw_status spw_sampler_create(const double *inclusion, size_t experts, size_t top_k,
                                             const double *group_inclusion, size_t groups, size_t kept,
                                             spw_sampler **out);
void spw_sampler_destroy(spw_sampler *sampler); /* NULL is fine */

/* Bytes of scratch memory that spw_sampler_draw() needs; one a thread. */
size_t spw_sampler_scratch_bytes(const spw_sampler *sampler);
/* expert_id [tokens][top_k]; memory: the scratch memory of this thread. */
void spw_sampler_draw(const spw_sampler *sampler, spw_random_stream *stream, void *memory, size_t tokens,
                      uint16_t *expert_id);

#endif
