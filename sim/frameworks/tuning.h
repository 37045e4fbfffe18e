/* YAML of Axolotl, LLaMA-Factory, TRL and Accelerate: whose it is, what PEFT makes of its adapters, number formats and the loss. */
#ifndef SPW_SIM_FRAMEWORKS_TUNING_H
#define SPW_SIM_FRAMEWORKS_TUNING_H

#include "sim/frameworks/draft.h"

#define SPW_TUNING_LOW_BITS \
    "weights of less than 16 bits are not modelled; bf16 is planned, which needs more memory"

/* What each takes where its file is silent: axolotl-ai-cloud/axolotl 067b021c src/axolotl/utils/schemas/{config,training}.py;
 * hiyouga/LLaMA-Factory src/llamafactory/hparams/{data_args,model_args}.py; huggingface/trl f2cd5771 trl/trainer/{sft_config,
 * model_config}.py; transformers 5.17.0 training_args.py. */
typedef struct spw_tuner {
    const char *name;
    const char *const *marks; /* names that no other has; ended by NULL */
    const char *length;       /* tokens of a sequence */
    size_t sequences;         /* of a micro-batch */
    size_t rank;              /* of adapters */
    bool checkpoints;         /* recomputes unless told not to */
    bool mixes;               /* mixed_precision bf16 unless told otherwise */
    const char *loads; /* the format of weights that are loaded: "fp32"; NULL: bf16 where training is */
    bool casts;        /* what is trained becomes fp32, sharded or not */
    bool chunks_loss;  /* its own loss works on some tokens at a time */
} spw_tuner;

const spw_tuner *spw_tuner_of(const spw_draft *draft);

/* No DeepSpeed, no expert parallelism, no kernels that take the experts' place: what scheme transformers is. */
bool spw_tuning_is_plain(spw_draft *draft);
/* finetune.*, where there are adapters (*tuned): beside what PEFT puts them. */
SPW_MUST_CHECK spw_status spw_compose_adapter(spw_draft *draft, const spw_tuner *tuner, bool *tuned);
/* precision.*, of what the file says; behind the sharing and the adapters. */
SPW_MUST_CHECK spw_status spw_compose_tuning_formats(spw_draft *draft, const spw_tuner *tuner);
/* The loss, and kernels of Liger that keep less than transformers' own. own: transformers' loss, else torchtitan's pieces. */
SPW_MUST_CHECK spw_status spw_compose_tuning_loss(spw_draft *draft, const spw_tuner *tuner, bool own);

/* Batches: micro_batch and accumulation, or the global one. */
SPW_MUST_CHECK spw_status spw_tuning_compose_batch(spw_draft *draft);
/* State sharded as FSDP shards it. keeps: weights stay whole from the forward pass to the backward pass; on_host: the state waits there. */
SPW_MUST_CHECK spw_status spw_tuning_put_sharded(spw_draft *draft, const char *fact, bool keeps,
                                                 bool on_host);
/* ZeRO: 1 shares out the optimizer's state, 2 gradients as well, 3 weights too. */
SPW_MUST_CHECK spw_status spw_tuning_compose_zero(spw_draft *draft, size_t stage, const char *fact);

#endif
