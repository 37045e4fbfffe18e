#include "sim/job/trainer.h"

#include <string.h>

#define BIT(loss) (1U << SPW_CROSS_ENTROPY_##loss)
enum {
    LOSS_FUSED = BIT(AUTO) | BIT(FUSED),
    LOSS_TORCHTITAN = LOSS_FUSED | BIT(CHUNKED) | BIT(UNFUSED),
    LOSS_MEGATRON = LOSS_FUSED | BIT(UNFUSED) | BIT(NATIVE) | BIT(TE) | BIT(TE_IN_PLACE) | BIT(TE_2_20)
};
#undef BIT
#define MEGATRON_LOSSES \
    .losses = LOSS_MEGATRON, .loss_words = "unfused, native, te, te_in_place, te_2_20 or fused"
#define SPLITS \
    "described for Megatron-Core's dispatchers megatron-alltoall, megatron-allgather, megatron-flex, " \
    "megatron-syncfree and megatron-ncclep, and for MaxText's dense, gmm, ragged, ring and ragged-ring " \
    "with " \
    "optimizer: sharded; use one of them, or make all three 1"
#define SCHEMES(...) \
    .schemes = (const char *const[]) { __VA_ARGS__, NULL }

static const spw_trainer
    pytorch = {.title = "PyTorch",
               SCHEMES("deepep", "deepep-ll", "hybrid-ep", "megablocks", "tutel", "scattermoe", "sonicmoe"),
               .memory = SPW_MEMORY_MODEL_FREED,
               .bare_optimizer = SPW_OPTIMIZER_SHARDED,
               .shared_optimizer = SPW_OPTIMIZER_DISTRIBUTED,
               .fsdp2 = SPW_FSDP2_IF_SAID,
               .loss = SPW_CROSS_ENTROPY_FUSED,
               MEGATRON_LOSSES,
               .takes_optimizers = true,
               .takes_layouts = true,
               .splits_words = SPLITS,
               .takes_latent = true,
               .in_megatron = true},
    maxtext = {.title = "MaxText",
               SCHEMES("dense", "ragged", "gmm", "gmm-deepep", "ring", "ragged-deepep"),
               .memory = SPW_MEMORY_MODEL_ARENA,
               .bare_optimizer = SPW_OPTIMIZER_SHARDED,
               .shared_optimizer = SPW_OPTIMIZER_SHARDED,
               .fsdp2 = SPW_FSDP2_NEVER,
               .loss = SPW_CROSS_ENTROPY_FUSED,
               .losses = LOSS_FUSED,
               .loss_words = "fused",
               .takes_policies = true,
               .takes_mesh = true,
               .splits_words = SPLITS,
               .has_turns = true,
               .casts_gradients = true},
    maxtext_layers = {.title = "MaxText, its layers alone",
                      SCHEMES("ragged-ring", "moe-dedup"),
                      .memory = SPW_MEMORY_MODEL_LISTED,
                      .bare_optimizer = SPW_OPTIMIZER_SHARDED,
                      .shared_optimizer = SPW_OPTIMIZER_SHARDED,
                      .fsdp2 = SPW_FSDP2_NEVER,
                      .loss = SPW_CROSS_ENTROPY_FUSED,
                      .losses = LOSS_FUSED,
                      .loss_words = "fused",
                      .takes_mesh = true,
                      .splits_words = SPLITS,
                      .takes_latent = true,
                      .casts_gradients = true},
    megatron = {.title = "Megatron-Core",
                SCHEMES("megatron-alltoall", "megatron-allgather", "megatron-flex", "megatron-syncfree",
                        "megatron-ncclep"),
                .memory = SPW_MEMORY_MODEL_FREED,
                .bare_optimizer = SPW_OPTIMIZER_DISTRIBUTED,
                .shared_optimizer = SPW_OPTIMIZER_DISTRIBUTED,
                .fsdp2 = SPW_FSDP2_IF_SAID,
                .loss = SPW_CROSS_ENTROPY_UNFUSED,
                MEGATRON_LOSSES,
                .takes_optimizers = true,
                .takes_layouts = true,
                .takes_predictions = true,
                .takes_splits = true,
                .takes_plain = true,
                .takes_latent = true,
                .in_megatron = true,
                .keeps_modules = true,
                .asks_layouts = true},
    primus = {.title = "Primus",
              SCHEMES("primus-syncfree", "primus-megamoe"),
              .memory = SPW_MEMORY_MODEL_FREED,
              .bare_optimizer = SPW_OPTIMIZER_SHARDED,
              .shared_optimizer = SPW_OPTIMIZER_DISTRIBUTED,
              .fsdp2 = SPW_FSDP2_IF_SAID,
              .loss = SPW_CROSS_ENTROPY_FUSED,
              MEGATRON_LOSSES,
              .takes_optimizers = true,
              .takes_layouts = true,
              .takes_predictions = true,
              .splits_words = SPLITS,
              .takes_latent = true,
              .in_megatron = true,
              .fuses = true,
              .wide_streams = true},
    torchtitan =
        {.title = "torchtitan",
         SCHEMES("torchtitan", "torchtitan-hybridep", "torchtitan-async"),
         .memory = SPW_MEMORY_MODEL_FREED,
         .bare_optimizer = SPW_OPTIMIZER_SHARDED,
         .shared_optimizer = SPW_OPTIMIZER_SHARDED,
         .fsdp2 = SPW_FSDP2_UNLESS_SAID,
         .loss = SPW_CROSS_ENTROPY_CHUNKED,
         .losses = LOSS_TORCHTITAN,
         .loss_words = "chunked, unfused or fused",
         .brings_loss = true,
         .widens = true,
         .takes_optimizers = true,
         .takes_layouts = true,
         .takes_gpipe = true,
         .splits_words =
             "not described for torchtitan, whose own MoE configurations have FSDP and expert "
             "parallelism alone, and whose experts are never cut by tensor; make all three 1 with as "
             "many tokens a GPU (--tensor 1 --context 1 --expert-tensor 1 --micro-batches 1 "
             "--sequences-per-gpu N), which needs more memory, or see a layer of megatron-alltoall "
             "with expert_tensor: 1 and optimizer: distributed",
         .takes_latent = true,
         .in_megatron = true},
    transformers = {.title = "Hugging Face transformers",
                    SCHEMES("transformers"),
                    .memory = SPW_MEMORY_MODEL_FREED,
                    .bare_optimizer = SPW_OPTIMIZER_SHARDED,
                    .shared_optimizer = SPW_OPTIMIZER_SHARDED,
                    .fsdp2 = SPW_FSDP2_IF_SAID,
                    .loss = SPW_CROSS_ENTROPY_FUSED,
                    MEGATRON_LOSSES,
                    .unsaid_words = "as accelerate's FSDP2 keeps what it trains under mixed_precision: bf16",
                    .lists_outside = true,
                    .wraps_experts = true,
                    .takes_optimizers = true,
                    .takes_layouts = true,
                    .stages_words = "Hugging Face's Trainer, TRL and Axolotl have no pipeline parallelism; "
                                    "leave pipeline 1 and share the state: --optimizer sharded (FSDP2)",
                    .tunes = true,
                    .splits_words = SPLITS,
                    .takes_latent = true,
                    .in_megatron = true};

const spw_trainer *spw_trainer_row(spw_trainer_id id) {
#define ROW(name, row) &(row),
    static const spw_trainer *const rows[] = {SPW_TRAINER_LIST(ROW)};
#undef ROW
    return rows[id];
}

spw_trainer_id spw_trainer_of_scheme(const char *text) {
    const size_t length = strcspn(text, ":");
    for (size_t id = 0; id < SPW_TRAINERS; id++) {
        const char *const *name = spw_trainer_row((spw_trainer_id)id)->schemes;
        for (; *name != NULL; name++)
            if (strlen(*name) == length && strncmp(*name, text, length) == 0) return (spw_trainer_id)id;
    }
    return SPW_TRAINERS;
}
