/* What keeps a router balanced: auxiliary loss, z-loss, bias update. */
#ifndef SPW_REFERENCE_ROUTER_LOSS_H
#define SPW_REFERENCE_ROUTER_LOSS_H

#include "reference/router.h"

#ifdef __cplusplus
extern "C" {
#endif

/* loss = coefficient * experts / (top_k * tokens) * sum over x of count[x] * mean over t of p[t][x], with
 * p = score (softmax) or score / sum over experts of score (sigmoid). 1 * coefficient when balanced.
 * Source: Fedus et al. 2022 (Switch), eq. 4 to 6, for top_k > 1 as in DeepSeek-V3 eq. 17 to 20 and
 * Megatron-LM moe_utils.py switch_load_balancing_loss_func. For the sequence-wise loss call it per sequence
 * and average.
 *   score    [tokens][experts]           fp32, from spw_ref_router()
 *   expert   [tokens][top_k]             an id < 0 is an unused slot
 *   loss     one number                  overwritten; fp64
 *   d_score  [tokens][experts] or NULL   overwritten; the counts are constants */
SPW_MUST_CHECK spw_status spw_ref_router_auxiliary_loss(const spw_router *router, double coefficient,
                                                        const float *score, const int32_t *expert,
                                                        double *loss, float *d_score);

/* loss = coefficient * mean over t of (log sum over x of exp(logits[t][x]))^2. Source: Zoph et al. 2022
 * (ST-MoE), eq. 5.
 *   d_logits [tokens][experts] or NULL    d loss is added to what stands there, in fp64, rounded once */
SPW_MUST_CHECK spw_status spw_ref_router_z_loss(const spw_router *router, double coefficient,
                                                const float *logits, double *loss, float *d_logits);

/* bias[x] += rate * sign(mean of count - count[x]); sign(0) = 0. Source: Wang et al. 2024
 * (auxiliary-loss-free), algorithm 1; Megatron-LM get_updated_expert_bias; MaxText
 * calculate_load_balance_updates.
 *   count  [experts]   assignments, summed over all ranks
 *   bias   [experts]   updated */
void spw_ref_router_bias_update(size_t experts, const size_t *count, float rate, float *bias);

#ifdef __cplusplus
}
#endif
#endif
