/* The training framework as a value: what a job of MaxText, Megatron-Core, Primus, torchtitan or plain PyTorch takes, keeps and refuses.
 * A row each; every scheme is of one (spw_scheme_type.trainer), and so are its words (docs/schemes.md). How each reads and
 * writes its configuration: sim/frameworks. */
#ifndef SPW_SIM_JOB_TRAINER_H
#define SPW_SIM_JOB_TRAINER_H

#include "sim/job/job_words.h"

#include <stdbool.h>
#include <stddef.h>

/* Does it wrap layers in PyTorch's FSDP2? */
typedef enum spw_trainer_fsdp2 {
    SPW_FSDP2_NEVER, /* it shards by itself, or its weights are whole */
    SPW_FSDP2_IF_SAID,
    SPW_FSDP2_UNLESS_SAID
} spw_trainer_fsdp2;

/* Whose memory a step has. */
typedef enum spw_memory_model {
    SPW_MEMORY_MODEL_FREED, /* PyTorch's allocator: what dies is free for others (sim/memory/allocator/allocator.h) */
    SPW_MEMORY_MODEL_LISTED, /* tensors as the program needs them; what XLA makes of them was never compared */
    SPW_MEMORY_MODEL_ARENA /* XLA's plan of the whole step, of a stack (sim/memory/compiled/compiled_memory.h) */
} spw_memory_model;

typedef struct spw_trainer {
    const char *title;
    const char *const *schemes; /* by name, ended by NULL */
    spw_memory_model memory;
    spw_optimizer_kind bare_optimizer;   /* of a plan without a file whose schemes are all its own */
    spw_optimizer_kind shared_optimizer; /* which its users take where a state is too large for every GPU */
    spw_trainer_fsdp2 fsdp2;
    /* The loss where the job says none; which it takes, as bits 1 << spw_cross_entropy; and these in words. */
    spw_cross_entropy loss;
    unsigned losses;
    const char *loss_words;
    const char *
        unsaid_words; /* whose state in fp32 is assumed where it is sharded and nobody says it; NULL: as most have it */
    bool brings_loss; /* its own loss, whoever's optimizer it is */
    /* What it takes. */
    bool takes_optimizers;  /* any; else its program shards its whole state */
    bool takes_policies;    /* remat by MaxText's policies alone, not by modules of a layer */
    bool takes_layouts;     /* stages of layers as the job says; else of equally many */
    bool takes_predictions; /* layers of multi-token prediction by their number */
    bool takes_gpipe;
    bool
        takes_splits; /* tensor, context and expert-tensor parallelism of Megatron-Core's layers, and its keys */
    bool takes_mesh;          /* the axes tensor and context of MaxText's mesh */
    const char *splits_words; /* what is described instead; NULL: it takes them */
    const char *stages_words; /* why it has no pipelines, and what to do instead; NULL: it has them */
    bool tunes;       /* models are fine-tuned with it, so that adapters are a way out of too large a state */
    bool takes_plain; /* experts of two matrices */
    bool takes_latent; /* experts of rows narrower than the hidden size */
    /* What it does. */
    bool
        has_turns; /* a pipeline without micro-batches: every device has sequences; 0 virtual stages: one a layer */
    bool casts_gradients; /* to the format of gathered weights, before they leave a GPU */
    bool in_megatron;     /* under Megatron-Core's optimizer its layers stand in Megatron-Core's model */
    bool
        keeps_modules; /* what Megatron-Core's modules around the experts keep (sim/memory/kept/megatron_kept.h) */
    bool asks_layouts;  /* of stages that cannot have equally many layers */
    bool lists_outside; /* what of a GPU's memory lies outside of its allocator was measured */
    bool wraps_experts; /* adapters of experts are added to their weights (PEFT's ParamWrapper) */
    bool fuses;         /* the kernels that Megatron-Core fuses if told so, by itself */
    bool widens;        /* routers and rotations in fp32 (sim/memory/kept/torchtitan_kept.h) */
    bool wide_streams;  /* residual streams, normed, are kept in fp32 for the product that mixes them */
} spw_trainer;

const spw_trainer *spw_trainer_row(spw_trainer_id id);
/* Whose scheme it is, by its text, as in gmm:buffer_factor=2; SPW_TRAINERS: nobody's. */
spw_trainer_id spw_trainer_of_scheme(const char *text);

#endif
