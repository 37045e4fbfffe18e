/* Seconds of an fp8 or fp4 recipe (sim/job/recipe/fp8_recipe.h): what its products win, what its casts cost. */
#ifndef SPW_SIM_TIME_FP8_TIME_H
#define SPW_SIM_TIME_FP8_TIME_H

#include "sim/job/job.h"

typedef struct spw_stage spw_stage;

/* How much faster a product of a linear layer is than in bf16: fp8_flops (fp4_flops) / bf16_flops of the cluster x products_share of the
 * recipe. 1 without a recipe. */
double spw_fp8_product_gain(const spw_job *job);

/* Bytes that casts read and write, of one token and all layers of the model, experts with top_k rows: every input of a product
 * once a forward pass, and again where the job's remat repeats the product; every gradient of an output once. 0 without a
 * recipe. */
double spw_fp8_cast_bytes(const spw_job *job);
/* Of a token of a GPU and all layers of the model: what TransformerEngine reads and writes to lay out what a tensor group gathered in
 * the backward pass (inputs of products cut by columns, gradients of products cut by rows). */
double spw_fp8_settle_bytes(const spw_job *job, size_t tokens);
/* Of the weights of a stage on one GPU, once a step. */
double spw_fp8_weight_cast_bytes(const spw_job *job, const spw_stage *stage);

#endif
