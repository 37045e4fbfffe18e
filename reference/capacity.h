/* Who is dropped: one function for each rule in the field. All take the choices and give a mask.
 *   expert  [tokens][top_k]   ids in [0, experts), or < 0: no choice (never kept, never counted as dropped)
 *   keep    [tokens][top_k]   overwritten: 1 kept, 0 dropped or no choice
 *   dropped one number        overwritten: choices that were not kept
 * SPW_EARG: an id of experts or more, or sizes that do not divide. Section numbers are those of
 * docs/schemes.md. */
#ifndef SPW_REFERENCE_CAPACITY_H
#define SPW_REFERENCE_CAPACITY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spw_choices {
    size_t tokens, top_k, experts;
    const int32_t *expert; /* [tokens][top_k], borrowed */
} spw_choices;

/* int(max(ceil(tokens_per_group * top_k / experts) * factor, factor)): MaxText, section 1.1. */
size_t spw_ref_capacity_maxtext(size_t tokens_per_group, size_t top_k, size_t experts, double factor);
/* ceil(tokens * top_k / experts * factor): Megatron-Core moe_utils.get_capacity, section 5.1. */
size_t spw_ref_capacity_megatron(size_t tokens, size_t top_k, size_t experts, double factor);
/* top_k * int(factor * ceil(tokens / experts)), rounded up to alignment: Tutel, section 6.2, factor > 0. */
size_t spw_ref_capacity_tutel(size_t tokens, size_t top_k, size_t experts, double factor, size_t alignment);

/* In each group of consecutive tokens an expert keeps its first `capacity` choices, in (token, slot) order.
 * MaxText dense_matmul with group = sequence (1.2); group = all tokens is Megatron's policy "position" (5.1),
 * where the real code leaves the ties open. */
SPW_MUST_CHECK spw_status spw_ref_keep_by_position(spw_choices choices, size_t tokens_per_group,
                                                   size_t capacity, uint8_t *keep, size_t *dropped);

/* An expert keeps its `capacity` choices of largest probability; ties to the lower token, then the lower
 * slot. Nothing is dropped when capacity > tokens. Megatron policy "probs" (5.1).
 *   probability  [tokens][top_k] */
SPW_MUST_CHECK spw_status spw_ref_keep_by_probability(spw_choices choices, const float *probability,
                                                      size_t capacity, uint8_t *keep, size_t *dropped);

/* An expert keeps its first `capacity` choices in the order: all first choices by token, then all second ...
 * With `priority` (the token's best score) tokens stand by falling priority, ties to the lower token. Tutel (6.2).
 *   priority  [tokens] or NULL */
SPW_MUST_CHECK spw_status spw_ref_keep_by_choice_rank(spw_choices choices, const float *priority,
                                                      size_t capacity, uint8_t *keep, size_t *dropped);

/* Destination d = expert / (experts / ranks) receives at most `rows` rows; sources (equal consecutive blocks
 * of tokens) are served in index order, inside a source by expert id, then position. MaxText ragged
 * all-to-all (2.4). */
SPW_MUST_CHECK spw_status spw_ref_keep_by_source_rank(spw_choices choices, size_t ranks, size_t rows,
                                                      uint8_t *keep, size_t *dropped);

/* Destination d holds at most `rows` rows; served by expert id, inside an expert by position over all ranks'
 * tokens. MaxText ring of experts with a truncated buffer (2.6). */
SPW_MUST_CHECK spw_status spw_ref_keep_by_expert_id(spw_choices choices, size_t ranks, size_t rows,
                                                    uint8_t *keep, size_t *dropped);

#ifdef __cplusplus
}
#endif
#endif
