/* FLOP of one token in a model: products of weights, 2 a parameter that is at work on a token, and the scores of causal
 * attention over a sequence. `spillway model` prints them; MFU is measured in them (sim/result/row_cost.h). */
#ifndef SPW_SIM_MODEL_TOKEN_WORK_H
#define SPW_SIM_MODEL_TOKEN_WORK_H

#include "sim/model/model.h"

typedef struct spw_token_work {
    double weights, scores; /* of a forward pass */
    double training;        /* of both, forward and backward: three times as many */
} spw_token_work;
spw_token_work spw_token_work_of(const spw_model *model, size_t length);

/* Layers whose scores are those of the model's attention over all tokens before. */
double spw_model_like_attention(const spw_model *model);
/* Layers of a kind that a token runs through: looped ones as often as they run. */
size_t spw_model_runs(const spw_model *model, size_t kind);
/* FLOP of scores a token, forward, of layers that say themselves which keys they see, and of the indexers that choose them. */
double spw_model_own_scores(const spw_model *model, size_t length);

#endif
