#include "kernels/verify/ranks/verify_made_up.h"

#include "base/memory.h"
#include "base/progress.h"
#include "kernels/record/choices.h"
#include "kernels/record/record_rules.h"
#include "kernels/verify/ranks/verify_layer.h"

#include <stdio.h>

/* Of every rank. */
static const struct shape {
    const char *name;
    size_t sequences, sequence_length, top_k, experts, hidden;
    const spw_layer_activation *activation;
} shapes[] = {
    {"edges", 2, 37, 3, 5, 136, &spw_layer_activations[0]},
    {"many choices", 1, 300, 8, 16, 64, &spw_layer_activations[0]},
    {"an expert a rank", 3, 50, 1, 1, 72, &spw_layer_activations[0]},
    {"edges", 2, 37, 3, 5, 136, &spw_layer_activations[1]},
    {"edges", 2, 37, 3, 5, 136, &spw_layer_activations[2]},
};

static const spw_record_scheme schemes[] = {
    {.text = "dense:capacity_factor=1", .rule = SPW_RECORD_CAPACITY, .factor_thousandths = 1000},
    {.text = "gmm", .rule = SPW_RECORD_SOURCE},
    {.text = "gmm:buffer_factor=0.5", .rule = SPW_RECORD_SOURCE, .factor_thousandths = 500},
    {.text = "ring", .rule = SPW_RECORD_EXPERT},
    {.text = "ring:buffer_factor=0.5", .rule = SPW_RECORD_EXPERT, .factor_thousandths = 500},
    {.text = "gmm-deepep", .rule = SPW_RECORD_TOKEN},
};

static spw_status run_record(spw_world *world, const struct shape *shape, spw_choice_kind routing,
                             const spw_record *record, const spw_exchange_variant *variant,
                             spw_judge *judge) {
    const size_t before = judge->comparisons, failed = judge->failed;
    const double start = spw_clock_s();
    spw_status status = SPW_OK;
    judge->worst = 0;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        SPW_TRY(spw_verify_layer(world, record, &schemes[i], shape->activation, variant, judge));
    printf("layers, %-18s %-14s %-12s %-8s %6zu comparisons, %zu failed, largest error %.2f of the "
           "allowance, %.1f s\n",
           shape->name, shape->activation->name, spw_choice_names[routing], variant->name,
           judge->comparisons - before, judge->failed - failed, judge->worst, spw_clock_s() - start);
    fflush(stdout);
cleanup:
    return status;
}

/* Without choices: see draw(). */
static spw_status create_record(const spw_world *world, const struct shape *s, spw_record *out) {
    *out = (spw_record){.origin = "made up",
                        .ranks = world->ranks,
                        .experts = s->experts * world->ranks,
                        .top_k = s->top_k,
                        .sequences = s->sequences,
                        .sequence_length = s->sequence_length,
                        .hidden = s->hidden};
    return SPW_ALLOC(world->ranks * spw_record_tokens(out) * s->top_k, &out->expert);
}

static void draw(spw_record *r, spw_choice_kind routing) {
    const size_t tokens = spw_record_tokens(r);
    for (size_t rank = 0; rank < r->ranks; rank++)
        spw_choices_fill(routing, tokens, r->top_k, r->experts, r->ranks, 70 + rank,
                         r->expert + rank * tokens * r->top_k);
}

spw_status spw_verify_made_up_layers(spw_world *world, const spw_exchange_variant *variant,
                                     spw_judge *judge) {
    static const spw_choice_kind routings[] = {SPW_CHOICES_UNIFORM, SPW_CHOICES_SKEWED, SPW_CHOICES_ONE,
                                               SPW_CHOICES_EMPTY};
    spw_record record = {.ranks = 0};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t experts = shapes[i].experts * world->ranks;
        if (shapes[i].top_k > experts || experts > SPW_WORLD_EXPERTS) continue;
        SPW_TRY(create_record(world, &shapes[i], &record));
        for (size_t n = 0; n < sizeof routings / sizeof *routings; n++) {
            draw(&record, routings[n]);
            SPW_TRY(run_record(world, &shapes[i], routings[n], &record, variant, judge));
        }
        spw_record_destroy(&record);
    }
cleanup:
    spw_record_destroy(&record);
    return status;
}

spw_status spw_verify_made_up_layer(spw_world *world, spw_record_rule rule,
                                    const spw_exchange_variant *variant, spw_judge *judge) {
    spw_record record = {.ranks = 0};
    size_t first = 0; /* of the rule, without a short buffer */
    spw_status status = SPW_OK;
    while (schemes[first].rule != rule) first++;
    SPW_TRY(create_record(world, &shapes[0], &record));
    draw(&record, SPW_CHOICES_UNIFORM);
    SPW_TRY(spw_verify_layer(world, &record, &schemes[first], shapes[0].activation, variant, judge));
cleanup:
    spw_record_destroy(&record);
    return status;
}
