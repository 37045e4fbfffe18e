/* The training frameworks as rows: every field of every row, written down by hand from docs/schemes.md; each scheme of the registry is of
 * exactly one; and whose model stands around a scheme's layers. .ci/check_framework.py asks that every field is named here. */
#include "sim/job/job.h"
#include "sim/job/trainer.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"

#include <string.h>

enum { F = SPW_CROSS_ENTROPY_FUSED, U = SPW_CROSS_ENTROPY_UNFUSED, C = SPW_CROSS_ENTROPY_CHUNKED };
/* Bits of the losses: auto and fused; these, chunked and unfused; fused ones and Megatron-Core's five. */
static unsigned fused(void) { return 1U << SPW_CROSS_ENTROPY_AUTO | 1U << F; }
static unsigned chunked(void) { return fused() | 1U << C | 1U << U; }
static unsigned megatrons(void) {
    return fused() | 1U << U | 1U << SPW_CROSS_ENTROPY_NATIVE | 1U << SPW_CROSS_ENTROPY_TE |
           1U << SPW_CROSS_ENTROPY_TE_IN_PLACE | 1U << SPW_CROSS_ENTROPY_TE_2_20;
}

typedef struct by_hand {
    spw_trainer_id id;
    const char *title;
    size_t schemes;
    spw_memory_model memory;
    spw_optimizer_kind optimizer;
    spw_optimizer_kind shared; /* which advice takes */
    spw_trainer_fsdp2 fsdp2;
    int loss;
    unsigned (*losses)(void);
    const char *words, *splits, *unsaid;
    bool own_loss, optimizers, policies, layouts, gpipe, mesh, plain, latent,
        predictions;                                                           /* brings and takes */
    bool turns, casts, inside, keeps, asks, fuses, wide, widens, wraps, lists; /* what it does */
    const char *stages;                                                        /* why it has no pipelines */
    bool tunes;
} by_hand;

static const by_hand rows[] = {
    {SPW_TRAINER_PYTORCH, "PyTorch", 7, SPW_MEMORY_MODEL_FREED, SPW_OPTIMIZER_SHARDED,
     SPW_OPTIMIZER_DISTRIBUTED, SPW_FSDP2_IF_SAID, F, megatrons, "te_2_20", "use one of them",
     .optimizers = true, .layouts = true, .latent = true, .inside = true},
    {SPW_TRAINER_MAXTEXT, "MaxText", 6, SPW_MEMORY_MODEL_ARENA, SPW_OPTIMIZER_SHARDED, SPW_OPTIMIZER_SHARDED,
     SPW_FSDP2_NEVER, F, fused, "fused", "use one of them", .policies = true, .mesh = true, .turns = true,
     .casts = true},
    {SPW_TRAINER_MAXTEXT_LAYERS, "MaxText, its layers alone", 2, SPW_MEMORY_MODEL_LISTED,
     SPW_OPTIMIZER_SHARDED, SPW_OPTIMIZER_SHARDED, SPW_FSDP2_NEVER, F, fused, "fused", "use one of them",
     .mesh = true, .latent = true, .casts = true},
    {SPW_TRAINER_MEGATRON, "Megatron-Core", 5, SPW_MEMORY_MODEL_FREED, SPW_OPTIMIZER_DISTRIBUTED,
     SPW_OPTIMIZER_DISTRIBUTED, SPW_FSDP2_IF_SAID, U, megatrons, "te_2_20", NULL, .optimizers = true,
     .layouts = true, .plain = true, .latent = true, .inside = true, .keeps = true, .asks = true,
     .predictions = true},
    {SPW_TRAINER_PRIMUS, "Primus", 2, SPW_MEMORY_MODEL_FREED, SPW_OPTIMIZER_SHARDED,
     SPW_OPTIMIZER_DISTRIBUTED, SPW_FSDP2_IF_SAID, F, megatrons, "te_2_20", "use one of them",
     .optimizers = true, .layouts = true, .latent = true, .inside = true, .fuses = true, .wide = true,
     .predictions = true},
    {SPW_TRAINER_TORCHTITAN, "torchtitan", 3, SPW_MEMORY_MODEL_FREED, SPW_OPTIMIZER_SHARDED,
     SPW_OPTIMIZER_SHARDED, SPW_FSDP2_UNLESS_SAID, C, chunked, "chunked", "not described for torchtitan",
     .own_loss = true, .optimizers = true, .layouts = true, .gpipe = true, .latent = true, .inside = true,
     .widens = true},
    {SPW_TRAINER_TRANSFORMERS,
     "Hugging Face transformers",
     1,
     SPW_MEMORY_MODEL_FREED,
     SPW_OPTIMIZER_SHARDED,
     SPW_OPTIMIZER_SHARDED,
     SPW_FSDP2_IF_SAID,
     F,
     megatrons,
     "te_2_20",
     "use one of them",
     "accelerate's",
     .optimizers = true,
     .layouts = true,
     .latent = true,
     .inside = true,
     .stages = "no pipeline parallelism",
     .tunes = true,
     .wraps = true,
     .lists = true}};

static void test_rows(void) {
    CHECK(sizeof rows / sizeof *rows == SPW_TRAINERS);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const by_hand *want = &rows[i];
        const spw_trainer *got = spw_trainer_row(want->id);
        size_t schemes = 0;
        while (got->schemes[schemes] != NULL) schemes++;
        CHECK(strcmp(got->title, want->title) == 0 && schemes == want->schemes);
        CHECK(got->memory == want->memory && got->bare_optimizer == want->optimizer);
        CHECK(got->shared_optimizer == want->shared && got->tunes == want->tunes);
        CHECK((got->stages_words == NULL) == (want->stages == NULL));
        CHECK(want->stages == NULL ||
              (got->stages_words != NULL && strstr(got->stages_words, want->stages) != NULL));
        CHECK(got->fsdp2 == want->fsdp2 && (int)got->loss == want->loss);
        CHECK(got->losses == want->losses() && strstr(got->loss_words, want->words) != NULL);
        CHECK((got->losses >> got->loss & 1) != 0 && got->brings_loss == want->own_loss);
        CHECK(got->takes_optimizers == want->optimizers && got->takes_policies == want->policies);
        CHECK(got->takes_layouts == want->layouts && got->takes_gpipe == want->gpipe);
        CHECK(got->takes_predictions == want->predictions);
        CHECK(got->takes_mesh == want->mesh && got->takes_plain == want->plain);
        CHECK(got->takes_latent == want->latent && got->takes_splits == (want->splits == NULL));
        CHECK((got->splits_words == NULL) == (want->splits == NULL));
        CHECK(want->splits == NULL ||
              (got->splits_words != NULL && strstr(got->splits_words, want->splits) != NULL));
        CHECK((got->unsaid_words == NULL) == (want->unsaid == NULL));
        CHECK(want->unsaid == NULL ||
              (got->unsaid_words != NULL && strstr(got->unsaid_words, want->unsaid) != NULL));
        CHECK(got->has_turns == want->turns && got->casts_gradients == want->casts);
        CHECK(got->in_megatron == want->inside && got->keeps_modules == want->keeps);
        CHECK(got->asks_layouts == want->asks && got->fuses == want->fuses);
        CHECK(got->wraps_experts == want->wraps);
        CHECK(got->lists_outside == want->lists);
        CHECK(got->wide_streams == want->wide && got->widens == want->widens);
        CHECK(got->takes_optimizers || got->bare_optimizer == SPW_OPTIMIZER_SHARDED);
    }
}

/* Every scheme is in one list, that of its own row; a list names no other; and only programs that XLA compiles have a layer of one. */
static void test_schemes(void) {
    size_t listed = 0, schemes = 0;
    for (size_t id = 0; id < SPW_TRAINERS; id++)
        for (const char *const *name = spw_trainer_row((spw_trainer_id)id)->schemes; *name != NULL; name++)
            listed++;
    for (; spw_scheme_types[schemes] != NULL; schemes++) {
        const spw_scheme_type *type = spw_scheme_types[schemes];
        size_t found = 0;
        for (size_t id = 0; id < SPW_TRAINERS; id++)
            for (const char *const *name = spw_trainer_row((spw_trainer_id)id)->schemes; *name != NULL;
                 name++)
                found += strcmp(*name, type->name) == 0;
        CHECK(found == 1 && spw_trainer_of_scheme(type->name) == type->trainer);
        const bool arena = spw_trainer_row(type->trainer)->memory == SPW_MEMORY_MODEL_ARENA;
        CHECK(arena == (type->compiled.list != NULL));
    }
    CHECK(listed == schemes && schemes > 20);
    CHECK(spw_trainer_of_scheme("gmm:buffer_factor=2") == SPW_TRAINER_MAXTEXT);
    CHECK(spw_trainer_of_scheme("gmmm") == SPW_TRAINERS && spw_trainer_of_scheme("gm") == SPW_TRAINERS);
    CHECK(spw_trainer_of_scheme("") == SPW_TRAINERS);
}

/* Under Megatron-Core's optimizers PyTorch's layers stand in its model; MaxText's program takes none. */
static void test_around(void) {
    static spw_job job;
    for (size_t i = 0; spw_scheme_types[i] != NULL; i++) {
        const spw_scheme scheme = {.type = spw_scheme_types[i]};
        const spw_trainer_id own = scheme.type->trainer;
        const bool maxtext = own == SPW_TRAINER_MAXTEXT || own == SPW_TRAINER_MAXTEXT_LAYERS;
        job.optimizer = SPW_OPTIMIZER_SHARDED;
        CHECK(spw_scheme_around(&scheme, &job) == spw_trainer_row(own));
        job.optimizer = i % 2 != 0 ? SPW_OPTIMIZER_DISTRIBUTED : SPW_OPTIMIZER_REPLICATED;
        CHECK(spw_scheme_around(&scheme, &job) == spw_trainer_row(maxtext ? own : SPW_TRAINER_MEGATRON));
    }
}

int main(void) {
    test_rows();
    test_schemes();
    test_around();
    return check_done();
}
