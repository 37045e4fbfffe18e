#include "sim/verify/verify_cases.h"

#include "base/memory.h"
#include "base/progress.h"
#include "reference/schemes/execution.h"
#include "sim/job/job.h"
#include "sim/job/trainer.h"
#include "sim/routing/compose.h"
#include "sim/schemes/selection.h"

bool spw_verify_shares(const spw_scheme *scheme) {
    const spw_executor *executor = spw_executor_find(scheme->type->name);
    return executor != NULL && executor->shares;
}

static void finish_shape(spw_layer_shape *s) {
    s->experts_per_rank = s->experts / (s->ranks / (s->expert_tensor > 0 ? s->expert_tensor : 1));
    s->tokens = s->sequences * s->sequence_length;
    s->assignments = s->tokens * s->top_k;
    s->worst_rows = s->ranks * s->tokens * (s->experts_per_rank < s->top_k ? s->experts_per_rank : s->top_k);
}

static bool can_run(const spw_scheme *scheme, const spw_layer_shape *shape) {
    if (shape->expert_tensor > 1 && !spw_verify_shares(scheme)) return false;
    return scheme->type->check == NULL || scheme->type->check(scheme, shape) == SPW_OK;
}

static spw_layer_shape not_shared(const spw_layer_shape *group) {
    spw_layer_shape s = *group;
    s.expert_tensor = 1;
    finish_shape(&s);
    return s;
}

/* For schemes that are executed so, every third case: 2 or 3 GPUs of a tensor group, which the hidden size is made to fit. */
static void cut_hidden(const spw_scheme *scheme, uint64_t seed, spw_layer_shape *s) {
    const spw_executor *executor = spw_executor_find(scheme->type->name);
    if (executor == NULL || !executor->groups || seed % 3 != 1 || s->expert_tensor > 1) return;
    s->tensor = 2 + seed / 3 % 2;
    s->hidden *= s->tensor;
}

static spw_layer_shape one_rank(const spw_layer_shape *group) {
    spw_layer_shape s = *group;
    s.sequences *= s.ranks;
    s.ranks = s.node_ranks = s.expert_tensor = 1;
    finish_shape(&s);
    return s;
}

/* `progress` counts schemes from `done`; NULL: nothing is shown. */
static spw_status run_case(spw_verification *v, const spw_verify_case *c, spw_progress *progress,
                           size_t done) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < v->schemes && status == SPW_OK; i++) {
        const spw_scheme *scheme = &v->scheme[i];
        spw_verify_case own = *c;
        if (!can_run(scheme, &own.shape) && own.shape.experts % own.shape.ranks == 0)
            own.shape = not_shared(&c->shape);
        if (!can_run(scheme, &own.shape)) /* without expert parallelism: the group's tokens on one rank */
            own.shape = one_rank(&c->shape);
        if (progress != NULL) spw_progress_update(progress, done + i);
        if (!can_run(scheme, &own.shape)) continue;
        if (!spw_scheme_trainer(scheme)->takes_policies &&
            c->seed % 2 == 1) /* every other case repeats the activation */
            own.shape.remat = SPW_REMAT_MOE_ACT;
        if (c->cuts) cut_hidden(scheme, c->seed, &own.shape);
        if (c->cuts && spw_scheme_trainer(scheme)->takes_plain) { /* every third case */
            own.shape.plain_experts = c->seed % 3 == 2;
            own.shape.gelu = c->seed % 2 == 1;
        }
        status = spw_verify_run(scheme, &own, &v->tally[i]);
    }
    return status;
}

/* --- Routing from a trace --- */

/* A layer of a step, and how many cases came before it. */
typedef struct verified_layer {
    const spw_job *job;
    spw_composer *composer;
    bool all_groups;
    size_t step, layer, done;
} verified_layer;

static spw_status verify_layer(spw_verification *v, const verified_layer *at, spw_progress *progress) {
    const spw_job *job = at->job;
    const size_t step = at->step, layer = at->layer;
    size_t done = at->done;
    spw_layer_shape shape = spw_layer_shape_of(job, job->sequences_per_gpu[0]);
    spw_trace_record record;
    const spw_layout *layout = NULL;
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < v->schemes && shape.expert_tensor > 1; i++) /* asked for: no other shape instead */
        SPW_TRY(spw_scheme_check(&v->scheme[i], &shape));
    SPW_TRY(spw_composer_layer(at->composer, layer, 0, &record, &layout));
    SPW_TRY(SPW_ALLOC(shape.ranks * shape.assignments, &expert));
    for (size_t group = 0; group < job->fsdp; group++) {
        if (!at->all_groups && group != (step + layer) % job->fsdp) continue;
        spw_group_choices(&record, layout, group * shape.ranks, &shape, expert, NULL);
        const spw_verify_case c = {shape, expert, step * 1000 + layer};
        SPW_TRY(run_case(v, &c, progress, done));
        done += v->schemes;
    }

cleanup:
    spw_free(expert);
    return status;
}

spw_status spw_verify_trace(spw_verification *v, spw_trace *trace, const spw_verify_trace_settings *q) {
    spw_composer *composer = NULL;
    spw_job *job = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &job));
    SPW_TRY(spw_trace_group_job(spw_trace_get_info(trace), &q->group, job));
    const spw_composer_request request = {.trace = trace,
                                          .job = job,
                                          .sequences = job->sequences_per_gpu,
                                          .batches = 1,
                                          .step_begin = q->step_begin,
                                          .step_end = q->step_end,
                                          .layer_begin = q->layer_begin,
                                          .layer_end = q->layer_end,
                                          .seed = 1};
    SPW_TRY(spw_composer_create(&request, &composer));
    const size_t steps = spw_composer_steps(composer), layers = spw_composer_layers(composer);
    const size_t schemes = (q->all_groups ? job->fsdp : 1) * v->schemes; /* of a layer */
    spw_progress progress = spw_progress_begin("verify", "cases", steps * layers * schemes);
    for (size_t step = 0; step < steps && status == SPW_OK; step++) {
        status = spw_composer_begin(composer, step);
        for (size_t layer = 0; layer < layers && status == SPW_OK; layer++) {
            const size_t done = (step * layers + layer) * schemes;
            const verified_layer at = {job, composer, q->all_groups, step, layer, done};
            status = verify_layer(v, &at, &progress);
        }
    }
    spw_progress_end(&progress);

cleanup:
    spw_composer_destroy(composer);
    spw_free(job);
    return status;
}

/* --- Random routing --- */

static size_t below(uint64_t *state, size_t limit) { /* splitmix64 */
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (size_t)((z ^ (z >> 31)) % limit);
}

spw_status spw_verify_random(spw_verification *v, uint64_t seed) {
    uint64_t state = seed * 77777;
    const size_t kind = below(&state, 4);
    spw_layer_shape s = {.ranks = 1 + below(&state, 6), .sequences = 1 + below(&state, 3)};
    s.experts = s.ranks * (1 + below(&state, 4));
    s.top_k = 1 + below(&state, s.experts < 6 ? s.experts : 6);
    s.sequence_length = kind == 3 ? 1 : 1 + below(&state, 24);
    s.hidden = 1 + below(&state, 12);
    s.ffn = 1 + below(&state, 12);
    s.element_bytes = 2;
    s.expert_tensor = 1 + seed % s.ranks;
    while (s.ranks % s.expert_tensor != 0) s.expert_tensor--;
    finish_shape(&s);
    s.node_ranks = seed % 3 == 0 ? 1 + seed / 3 % s.ranks : s.ranks; /* every third case spans nodes */
    int32_t *expert = NULL;
    spw_status status = SPW_ALLOC(s.ranks * s.assignments, &expert);
    for (size_t t = 0; t < s.ranks * s.tokens && status == SPW_OK; t++) {
        const size_t first = kind == 1 ? 0 : below(&state, s.experts),
                     stride = 1 + below(&state, 2) * (s.experts % 2);
        for (size_t k = 0; k < s.top_k; k++) {
            const size_t x = (first + k * (kind == 1 ? 1 : stride)) % s.experts;
            expert[t * s.top_k + k] = kind == 2 && below(&state, 5) == 0 ? -1 : (int32_t)x;
        }
    }
    const spw_verify_case c = {s, expert, seed, .cuts = true};
    if (status == SPW_OK) status = run_case(v, &c, NULL, 0);
    spw_free(expert);
    return status;
}
