/* What a job trains (docs/schemes.md, section 7.13): all weights, or not those of the routed experts, or adapters alone. An
 * adapter of rank r beside a product of `in` by `out` numbers is two matrices, A [r, in] and B [out, r] (Hu et al. 2021,
 * LoRA); it has weights, gradients and moments as any other part of the model. */
#ifndef SPW_SIM_JOB_RECIPE_FINETUNE_H
#define SPW_SIM_JOB_RECIPE_FINETUNE_H

#include "sim/model/model.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum spw_frozen { SPW_FROZEN_NONE, SPW_FROZEN_EXPERTS, SPW_FROZEN_BASE } spw_frozen;
/* Bits. */
typedef enum spw_lora_targets {
    SPW_LORA_ATTENTION = 1,
    SPW_LORA_EXPERTS = 2,
    SPW_LORA_BOTH = 3,
    SPW_LORA_DENSE = 4, /* linears of dense FFNs and of shared experts */
    SPW_LORA_LINEAR = SPW_LORA_ATTENTION | SPW_LORA_DENSE,
    SPW_LORA_ROUTER = 8,
    SPW_LORA_ALL = SPW_LORA_BOTH | SPW_LORA_ROUTER /* PEFT's all-linear, from 0.20 on */
} spw_lora_targets;

typedef struct spw_finetune {
    spw_frozen frozen;
    size_t lora_rank; /* 0: no adapters */
    spw_lora_targets lora_targets;
    bool
        wraps_experts; /* by PEFT's ParamWrapper: gate and up are one parameter, whose adapter has twice the rank */
} spw_finetune;

const char *spw_frozen_name(spw_frozen frozen);           /* none, experts, base */
bool spw_finetune_is_whole(const spw_finetune *finetune); /* all weights are trained, and nothing else */
bool spw_finetune_adapts(const spw_finetune *finetune, spw_lora_targets target);

/* Parameters of the adapters of a layer without its routed experts, the mean of all layers; of one routed expert: fc1 (gate and up in
 * one) and fc2. */
double spw_layer_adapter(const spw_model *model, const spw_finetune *finetune);
double spw_expert_adapter(const spw_model *model, const spw_finetune *finetune);
/* Products of an attention block that have one. */
size_t spw_attention_products(const spw_model *model);

/* FLOP of a token that training takes: forward, gradients of inputs, gradients of weights (2 a parameter each, of those that
 * are trained), adapters among them. */
typedef struct spw_trained_work {
    double parameters;       /* trained ones of the whole model */
    double full, finetuning; /* of a token, with all weights trained and as the job says */
} spw_trained_work;
spw_trained_work spw_trained_work_of(const spw_model *model, const spw_finetune *finetune, size_t length);

#endif
