/* The micro-batches of measured runs: who chose which expert, from the name of a routing.
 *   NAME:S     step id S of a trace of that name (measured_traces.h; aux:50 is step 50 of training_aux_e64.h5): source ranks
 *              are folded onto the GPUs in equal consecutive blocks, whole and in order until T tokens are taken; layer l
 *              reads trace layer l mod (layers of the trace)
 *   NAME:all   its steps one behind the other: rank r takes tokens [r T, (r + 1) T); layers as above
 *   balanced   choice j of token t is expert (t + j (E div K)) mod E
 *   hot1       every choice is on GPU 0, evenly over its experts
 * GPU g holds experts [g E / R, (g + 1) E / R). */
#ifndef SPW_SIM_SCORE_MEGATRON_MEASURED_BATCH_H
#define SPW_SIM_SCORE_MEGATRON_MEASURED_BATCH_H

#include "base/status.h"
#include "sim/score/megatron/measured_traces.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_measured_shape {
    size_t ranks, layers, tokens, top_k, experts, hidden, ffn; /* tokens: of one rank */
    size_t capacity; /* slots of an expert and source rank; 0 = dropless */
    bool padded;
} spw_measured_shape;

/* ceil(T K / E x factor): Megatron-Core's get_capacity; 0 for a factor of 0. */
size_t spw_measured_capacity(const spw_measured_shape *shape, double factor);

/* routed [layers][ranks][experts] assignments of rank s to expert x before drops, caller's memory. *known = false when
 * the routing is none of the above, or none of `traces` has it. */
SPW_MUST_CHECK spw_status spw_measured_batch(const spw_measured_shape *shape, const char *routing,
                                             spw_measured_traces *traces, uint64_t *routed, bool *known);

/* What one layer does on rank r. Of n assignments to an expert, capacity keeps min(n, C), whichever have the greatest
 * probability; padding fills up to C. */
typedef struct spw_measured_rows {
    uint64_t assignments_received, received, sent, kept_local, dropped, most_of_expert;
    uint64_t sent_off_rank, received_off_rank; /* rows of one exchange */
} spw_measured_rows;
spw_measured_rows spw_measured_rows_of(const spw_measured_shape *shape, const uint64_t *routed, size_t layer,
                                       size_t rank);
/* Rows of the rank's experts, of_expert [experts / ranks]; they sum to `received`. */
void spw_measured_expert_rows(const spw_measured_shape *shape, const uint64_t *routed, size_t layer,
                              size_t rank, uint64_t *of_expert);

#endif
