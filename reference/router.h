/* The router: scores, choice of experts, weights, and the gradient of all that to the logits.
 * Source: DeepSeek-V3 (2024), section 2.1.2, and deepseek-ai/DeepSeek-V3 inference/model.py, class Gate;
 * softmax routers: Shazeer et al. 2017, Mixtral (2024). */
#ifndef SPW_REFERENCE_ROUTER_H
#define SPW_REFERENCE_ROUTER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum spw_score { SPW_SCORE_SOFTMAX, SPW_SCORE_SIGMOID } spw_score;

typedef struct spw_router {
    size_t tokens, experts, top_k;
    spw_score score;
    size_t groups, groups_kept; /* experts in equal consecutive groups; 1, 1: no limit */
    size_t group_terms; /* a group is judged by the sum of its best so many: 2 in DeepSeek-V3, else 1 */
    bool renormalize;   /* divide the chosen scores by their sum */
    float scaling;      /* then multiply by this: 2.5 in DeepSeek-V3, else 1 */
} spw_router;

/* score[t][x]  = softmax over x of logits[t], or 1 / (1 + exp(-logits[t][x])); fp64, rounded once
 * choice[t][x] = score[t][x] + bias[x] in fp32: for the selection only
 * The groups_kept groups of largest judgement (sum in fp32, best first) stay; among their experts the top_k
 * of largest choice are taken. Ties go to the lower group and the lower expert id. Chosen experts stand by
 * falling choice. weight[t][k] = scaling * s_k / (s_1 + ... + s_K) if renormalize, else scaling * s_k, with
 * s_k the score (without bias) of the k-th choice; fp64 from the fp32 scores, rounded once. If all chosen
 * scores are 0 the weights are 0.
 *   logits  [tokens][experts]
 *   bias    [experts] or NULL
 *   score   [tokens][experts]   overwritten
 *   expert  [tokens][top_k]     overwritten; ids in [0, experts)
 *   weight  [tokens][top_k]     overwritten
 * SPW_EARG: top_k does not fit the groups kept, groups do not divide experts, group_terms beyond the group's size,
 * scaling not finite, or a logit or bias that is not finite. One thread owns one token. */
SPW_MUST_CHECK spw_status spw_ref_router(const spw_router *router, const float *logits, const float *bias,
                                         float *score, int32_t *expert, float *weight);

/* The weights of choices that are given (a trace): as above from `score`, no selection.
 *   score   [tokens][experts]
 *   expert  [tokens][top_k]     an id < 0 is an unused slot: weight 0 */
SPW_MUST_CHECK spw_status spw_ref_router_weights(const spw_router *router, const float *score,
                                                 const int32_t *expert, float *weight);

/* The gradient to the logits of a loss that depends on the weights and, through the auxiliary loss, on the
 * scores; the choice itself is a constant. With s the scores and S their sum over the token's choices:
 *   g[x]      = d_score[x] + (x chosen as k) scaling * (d_weight[k] / S - sum over j of d_weight[j] s_j / S^2)
 *               (without renormalize: scaling * d_weight[k])
 *   d_logits  = s[x] * (g[x] - sum over z of g[z] s[z])      softmax
 *             = s[x] * (1 - s[x]) * g[x]                     sigmoid
 *   logits    [tokens][experts]           scores are formed again in fp64
 *   expert    [tokens][top_k]             an id < 0 is an unused slot
 *   d_weight  [tokens][top_k]
 *   d_score   [tokens][experts] or NULL
 *   d_logits  [tokens][experts]           overwritten
 *   scale     [tokens][experts] or NULL   the same sums over magnitudes; about 2 * (top_k + experts) terms
 * One thread owns one token. */
SPW_MUST_CHECK spw_status spw_ref_router_gradient(const spw_router *router, const float *logits,
                                                  const int32_t *expert, const float *d_weight,
                                                  const float *d_score, float *d_logits, float *scale);

#ifdef __cplusplus
}
#endif
#endif
