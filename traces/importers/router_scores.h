/* Weights of Megatron-LM's router from the logits that its trace keeps beside the ids: logits_rank{N}.bin, bfloat16
 * [num_tokens][experts] a record, at logit_offset. How the router makes scores of them is stated by --scores. */
#ifndef SPW_TRACES_IMPORTERS_ROUTER_SCORES_H
#define SPW_TRACES_IMPORTERS_ROUTER_SCORES_H

#include "traces/importers/importer.h"
#include "traces/importers/json_lines.h"

#include <stdio.h>

/* As topk_routing_with_score_function of megatron/core/transformer/moe/moe_utils.py has them, without its scaling factor:
 * softmax      of the chosen experts' logits (its default)
 * pre-softmax  of all logits, before the choice
 * sigmoid      of each logit, divided by the sum over the chosen where there are several */
#define SPW_ROUTER_SCORE_LIST(X) \
    X(SOFTMAX, "softmax", "softmax_topk") \
    X(PRE_SOFTMAX, "pre-softmax", "softmax_all") X(SIGMOID, "sigmoid", "gate_used")
#define SPW_ROUTER_SCORE_ENUM(name, text, kind) SPW_ROUTER_##name,
typedef enum spw_router_score {
    SPW_ROUTER_SCORE_LIST(SPW_ROUTER_SCORE_ENUM) SPW_ROUTER_SCORES
} spw_router_score;
#undef SPW_ROUTER_SCORE_ENUM
const char *spw_router_score_kind(const char *score); /* as in the attribute weight_kind */

typedef struct spw_router_logits {
    FILE *file;
    uint64_t length;
    unsigned char *bytes; /* [capacity] of the record under way */
    size_t capacity;
    uint16_t *weight; /* [weights] */
    size_t weights;
} spw_router_logits; /* begins zeroed */

/* The file that belongs to the trace at `path`. SPW_EIO: there is none. */
SPW_MUST_CHECK spw_status spw_router_logits_open(const char *path, int64_t rank, spw_router_logits *out);
void spw_router_logits_close(spw_router_logits *logits);

/* logits->weight [tokens][top_k] of the ids [tokens][top_k] of `record`. SPW_EFORMAT: the record has no logits, or they are not its
 * tokens', reach behind the file's end or are no numbers. */
SPW_MUST_CHECK spw_status spw_router_logits_weigh(spw_router_logits *logits,
                                                  const spw_import_settings *settings,
                                                  const spw_json_lines *lines, const json_t *record,
                                                  const uint16_t *expert_id, size_t tokens);

#endif
