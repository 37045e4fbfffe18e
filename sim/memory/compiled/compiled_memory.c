#include "sim/memory/compiled/compiled_memory.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/machine/compiled_layer.h"
#include "sim/memory/compiled/compiled_layout.h"
#include "sim/memory/compiled/compiled_orders.h"
#include "sim/print/formula.h"
#include "sim/schemes/layer.h"
#include "sim/weights/optimizer_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOMENTS = 48 };

/* A step of the job, its lists filled. */
typedef struct step {
    const spw_stack *stack;
    const spw_job *job;
    spw_job alone; /* the same with a layer a turn, for a tree that scans so */
    const spw_scheme *scheme;
    spw_scheme settled; /* the same in the layout of the stack's tree */
    spw_compiled_cut cut;
    spw_layer_shape shape;
    spw_step_list around;
    spw_layer layer;
} step;

static spw_flavour flavour_of(const spw_stack *stack) {
    if (stack->exchange_arena) return SPW_FLAVOUR_XLA_APART;
    return stack->latency_hiding ? SPW_FLAVOUR_XLA_HIDING : SPW_FLAVOUR_XLA;
}

static spw_status open_step(const spw_stack *stack, const spw_job *job, const spw_scheme *scheme,
                            size_t sequences, step *out) {
    const spw_remat_tree *tree = NULL;
    *out = (step){.stack = stack, .job = job, .settled = *scheme};
    scheme = out->scheme = &out->settled;
    spw_status status = spw_remat_tree_find(stack->tree, &tree);
    if (status == SPW_OK) status = spw_compiled_layout_settle(stack, &out->settled);
    if (status == SPW_OK) status = spw_remat_tree_check(tree, job->remat);
    if (status == SPW_OK && spw_remat_scans_alone(tree, &job->model)) {
        out->alone = *job;
        out->alone.model.layers_per_turn = 1;
        out->job = job = &out->alone;
    }
    if (status == SPW_OK) status = spw_compiled_cut_of(job, sequences, &out->cut);
    if (status != SPW_OK) return status;
    out->shape = spw_compiled_cut_shape(job, &out->cut);
    out->shape.routed_gradients = tree->routed_gradients;
    out->shape.unrolled_layer = job->model.layers - job->model.moe_layers == 1;
    const spw_step_program program = {job, scheme, &out->cut, &out->shape, tree, flavour_of(stack), stack};
    spw_step_list_fill(&program, &out->around);
    return spw_layer_build(scheme, &out->shape, flavour_of(stack), &out->layer);
}

/* --- Moments --- */

static void consider(const spw_compiled_moment *moment, spw_compiled_memory *m) {
    if (moment->bytes > m->fullest.bytes) {
        m->next = m->fullest;
        m->fullest = *moment;
    } else if (moment->bytes > m->next.bytes) {
        m->next = *moment;
    }
}

static double rows_bytes(const spw_layer *layer, size_t event) {
    double sum = 0.0;
    for (size_t i = 0; i < layer->tensors && event != SIZE_MAX; i++) {
        const spw_layer_tensor *t = &layer->tensor[i];
        if (t->rows == SPW_ROWS_GIVEN || t->rows == SPW_ROWS_EXPANDED) continue;
        if (spw_layer_is_live(layer, NULL, i, event)) sum += (double)spw_layer_bytes(t, NULL);
    }
    return sum;
}

/* All experts' weights, where they come to the tokens. */
static double weights_bytes(const step *s, size_t event) {
    double sum = 0.0;
    if (spw_scheme_program(s->scheme)->exchange != SPW_COMPILED_EXCHANGE_NONE) return 0.0;
    for (size_t i = 0; i < s->layer.tensors && event != SIZE_MAX; i++) {
        const spw_layer_tensor *t = &s->layer.tensor[i];
        const bool weight = strncmp(t->name, "wi_", 3) == 0 || strcmp(t->name, "wo") == 0;
        if (weight && spw_layer_is_live(&s->layer, NULL, i, event)) sum += (double)spw_layer_bytes(t, NULL);
    }
    return sum;
}

static void find_moments(const step *s, spw_compiled_memory *m) {
    spw_layer_moment found[MOMENTS];
    const size_t count = spw_layer_moments(&s->layer, NULL, found, MOMENTS);
    for (size_t i = 0; i < count && s->layer.event != NULL; i++) {
        const spw_event *event = &s->layer.event[found[i].event];
        spw_compiled_moment moment = {.moment = event->phase == SPW_PHASE_FORWARD ? SPW_STEP_FORWARD
                                                                                  : SPW_STEP_BACKWARD,
                                      .event = found[i].event,
                                      .layer_bytes = (double)found[i].bytes};
        (void)snprintf(moment.step, sizeof moment.step, "%s", event->step);
        moment.bytes = moment.layer_bytes + spw_step_list_sum(&s->around, moment.moment);
        consider(&moment, m);
    }
    for (int i = 0; i < SPW_STEP_MOMENTS; i++) {
        spw_compiled_moment moment = {.moment = (spw_step_moment)i, .event = SIZE_MAX};
        if (i == SPW_STEP_FORWARD || i == SPW_STEP_BACKWARD) continue;
        moment.bytes = spw_step_list_sum(&s->around, moment.moment);
        consider(&moment, m);
    }
    m->fullest.rows_bytes = rows_bytes(&s->layer, m->fullest.event);
    m->fullest.weights_bytes = weights_bytes(s, m->fullest.event);
}

/* --- Past the limit --- */

/* A side of what may be recovered: the share of what is too much, that of gathered weights, and what is freed where XLA leaves the rest. */
typedef struct share_of {
    double rows, again, held;
} share_of;

static double recovered(const spw_compiled_memory *m, double wanted, share_of share) {
    const double past = fmax(0.0, wanted - m->limit_bytes), rows = m->most_recovered * m->fullest.rows_bytes;
    if (m->held_bytes > 0.0 && m->wanted_bytes - m->limit_bytes <= m->held_bytes)
        return fmin(past, share.held);
    if (past <= 2.0 * m->fullest.weights_bytes)
        return fmin(share.again * past, rows + m->fullest.weights_bytes);
    return fmin(share.rows * past, rows);
}

/* XLA runs no custom call again, and grouped products are custom calls: of the rows that live between them nothing is freed until more than
 * held_rows of them are too much. */
static double held_bytes(const step *s, const spw_compiled_program *p) {
    const spw_compiled_layer *layer = spw_scheme_program(s->scheme);
    const bool exchanges =
        layer->exchange == SPW_COMPILED_EXCHANGE_RAGGED || layer->exchange == SPW_COMPILED_EXCHANGE_GATHER;
    return exchanges && !layer->masked_operands ? s->stack->held_rows.value * spw_compiled_row_bytes(p) : 0.0;
}

double spw_compiled_temporary(const spw_compiled_memory *m, double share) {
    return m->wanted_bytes - recovered(m, m->wanted_bytes, (share_of){share, m->gathered_again, 0.0});
}

/* --- The interval --- */

static void count_unseen(const step *s, spw_compiled_memory *m) {
    const spw_stack *k = s->stack;
    const char *kind = spw_compiled_kind(s->scheme);
    char turn[24];
    (void)snprintf(turn, sizeof turn, "%zu", s->shape.waiting_layers + 1);
    if (!spw_has_word(k->programs, kind)) {
        spw_outside_add(m->outside, "%s not in the fitted tables", kind);
        m->unseen++;
    }
    if (!spw_has_word(k->remats, spw_remat_name(s->job->remat))) {
        spw_outside_add(m->outside, "remat %s not in the fitted tables", spw_remat_name(s->job->remat));
        m->unseen++;
    }
    if (!spw_has_word(k->turns, turn)) {
        spw_outside_add(m->outside, "%s layer%s per turn of the scan not in the fitted tables", turn,
                        strcmp(turn, "1") == 0 ? "" : "s");
        m->unseen++;
    }
    if (s->cut.stages > 1 && !spw_has_word(k->parts, "pipeline")) {
        spw_outside_add(m->outside, "pipelines not in the fitted tables");
        m->unseen++;
    } else if (s->cut.stages == 1 && s->cut.micro_batches > 1 && !spw_has_word(k->parts, "micro_batches")) {
        spw_outside_add(m->outside, "micro-batches not in the fitted tables");
        m->unseen++;
    }
}

/* What no table has beside the arguments: the update of the weights reads one more, and XLA fuses it. */
static void count_master(const spw_job *job, spw_compiled_memory *m) {
    if (spw_master_bytes(job) == 0) return;
    spw_outside_add(m->outside, "master weights beside the weights not in the fitted tables");
    m->unseen++;
}

/* A library of exchanges that a program calls though nobody is there to exchange with. */
static void count_alone(const step *s, spw_compiled_memory *m) {
    if (s->job->expert > 1 || spw_scheme_program(s->scheme)->exchange != SPW_COMPILED_EXCHANGE_LIBRARY)
        return;
    spw_outside_add(m->outside, "DeepEP with one rank, which exchanges nothing: no such run is known");
    m->unseen++;
}

static void name_outside(const step *s, spw_compiled_memory *m) {
    const spw_stack *k = s->stack;
    const spw_fit_range range = {k->models,           k->clusters,      k->expert_parallel,
                                 k->sequence_lengths, k->sequences_min, k->sequences_max};
    const spw_precision *p = &s->job->precision;
    const bool fp32 =
        p->weights == 4 && p->gradients == 4 && p->activations == 2 && spw_has_word(k->parts, "fp32");
    const spw_fit_point point = {s->job->model.name,      s->job->cluster.name,
                                 s->job->expert,          s->shape.sequences,
                                 s->job->sequence_length, fp32 || spw_precision_is_bf16(s->job)};
    count_unseen(s, m);
    count_master(s->job, m);
    count_alone(s, m);
    (void)spw_outside_ranges(m->outside, &range, &point);
    m->unseen += !point.bf16;
    if (s->job->precision.recipe != SPW_FP8_NONE) {
        spw_outside_add(m->outside, "recipe %s: counted as in bf16, no program of it was compiled",
                        spw_fp8_recipe_name(s->job->precision.recipe));
        m->unseen++;
    }
    if (spw_precision_any_fp8(s->job)) spw_outside_add(m->outside, "fp8: a recipe's own copies and scales");
}

static void set_interval(const step *s, const spw_compiled_program *program, spw_compiled_memory *m) {
    const spw_compiled_orders orders = spw_compiled_orders_of(program);
    const spw_recovered_range share =
        spw_stack_recovered_range(s->stack, spw_scheme_program(s->scheme)->program);
    const double width = s->stack->half_width.value + (double)m->unseen * s->stack->half_width_unseen.value;
    double low = m->wanted_bytes - (s->around.head_bytes - s->around.head_least_bytes) - orders.less;
    double high = m->wanted_bytes + (s->around.head_most_bytes - s->around.head_bytes) + orders.more;
    /* Of what is gathered again, all, or as much less than the share. */
    const double freed = s->stack->held_freed.value * spw_compiled_row_bytes(program);
    low -= recovered(m, low, (share_of){share.most, 1.0, freed});
    high -= recovered(m, high, (share_of){share.least, fmax(0.0, 2.0 * m->gathered_again - 1.0), 0.0});
    m->low_bytes = fmin(low, m->temporary_bytes) * exp(-width);
    m->high_bytes = fmax(high, m->temporary_bytes) * exp(width);
}

/* --- */

spw_status spw_compiled_memory_check(const spw_job *job, const spw_scheme *scheme) {
    spw_compiled_cut cut;
    if (spw_scheme_program(scheme) == NULL)
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s' has no list of tensors for programs that XLA compiles whole",
                        scheme->text);
    if (!spw_grid_is_plain(job))
        return spw_fail(
            SPW_ECONFIG,
            "tensor %zu and context %zu are not modelled for compiled programs; make both 1, or leave "
            "--stack out for what must live",
            spw_grid_of(job).tensor, spw_grid_of(job).context);
    if (job->model.streams > 1)
        return spw_fail(SPW_ECONFIG,
                        "%zu residual streams are not modelled for compiled programs, no program of them was "
                        "compiled; leave --stack out for what must live",
                        job->model.streams);
    if (spw_remat_keeps_layers(job->remat))
        return spw_fail(SPW_ECONFIG,
                        "remat %s is not modelled for compiled programs; name a policy of MaxText",
                        spw_remat_name(job->remat));
    return spw_compiled_cut_of(job, job->sequences_per_gpu[0], &cut);
}

/* Weights, master weights and moments: a pipeline's layers are shared by all GPUs, what runs before and after it by those of a stage. */
static double argument_bytes(const spw_job *job, const spw_compiled_cut *cut) {
    const spw_parameters p = spw_model_parameters(&job->model);
    const double layer = (double)(p.attention_per_layer + p.norms_per_layer + p.routed_per_layer +
                                  p.shared_per_layer + p.router_per_layer);
    const double piped = cut->stages > 1 ? layer * (double)cut->piped : 0.0, stages = (double)cut->stages;
    return (piped + ((double)p.total - piped) * stages) *
           (double)(job->precision.weights + spw_master_bytes(job) + spw_precision_moments(&job->precision)) /
           (double)spw_job_gpus(job);
}

const char *spw_compiled_arguments_formula(const spw_job *job, size_t stages) {
    const bool master = spw_master_bytes(job) > 0;
    if (stages == 1)
        return master ? "P (w + m + 2 o) / G: weights, master weights and optimizer"
                      : "P (w + 2 o) / G: weights and optimizer";
    return master ? "P_loop (w + m + 2 o) / G + P_rest (w + m + 2 o) stages / G: weights, master weights and "
                    "optimizer"
                  : "P_loop (w + 2 o) / G + P_rest (w + 2 o) stages / G: weights and optimizer";
}

spw_status spw_compiled_memory_predict(const spw_stack *stack, const spw_job *job, const spw_scheme *scheme,
                                       size_t sequences, double pool_bytes, spw_compiled_memory *out) {
    step s;
    memset(out, 0, sizeof *out);
    spw_status status = spw_compiled_memory_check(job, scheme);
    if (status == SPW_OK) status = open_step(stack, job, scheme, sequences, &s);
    if (status != SPW_OK) return status;
    find_moments(&s, out);
    const double share = spw_stack_recovered(stack, spw_scheme_program(s.scheme)->program);
    out->argument_bytes = argument_bytes(job, &s.cut);
    out->wanted_bytes = out->fullest.bytes;
    out->most_recovered = stack->most_recovered.value;
    out->gathered_again = stack->gathered_again.value;
    out->limit_bytes = fmax(0.0, stack->limit_share.value * (pool_bytes - out->argument_bytes));
    const spw_compiled_program program = {
        stack, s.job, s.scheme, &s.shape, &s.cut, out->wanted_bytes, out->limit_bytes};
    out->held_bytes = held_bytes(&s, &program);
    out->temporary_bytes = spw_compiled_temporary(out, share);
    out->recovered_bytes = out->wanted_bytes - out->temporary_bytes;
    name_outside(&s, out);
    set_interval(&s, &program, out);
    spw_layer_destroy(&s.layer);
    return SPW_OK;
}

/* --- The list of a moment --- */

static int larger_first(const void *a, const void *b) {
    const double x = ((const spw_compiled_tensor *)a)->bytes, y = ((const spw_compiled_tensor *)b)->bytes;
    return x < y   ? 1
           : x > y ? -1
                   : strcmp(((const spw_compiled_tensor *)a)->name, ((const spw_compiled_tensor *)b)->name);
}

static spw_status collect(const step *s, const spw_compiled_moment *moment, spw_compiled_tensor **tensor,
                          size_t *count) {
    spw_status status = SPW_OK;
    size_t *live = NULL, lives = 0;
    spw_compiled_tensor *list = NULL;
    *count = 0;
    SPW_TRY(SPW_ALLOC(s->layer.tensors, &live));
    SPW_TRY(SPW_ALLOC(s->layer.tensors + SPW_STEP_TENSORS, &list));
    if (moment->event != SIZE_MAX) lives = spw_layer_live_tensors(&s->layer, NULL, moment->event, live);
    for (size_t i = 0; i < lives && s->layer.tensor != NULL; i++) {
        const spw_layer_tensor *t = &s->layer.tensor[live[i]];
        if (t->bytes == 0) continue;
        spw_compiled_tensor *row = &list[(*count)++];
        (void)snprintf(row->name, sizeof row->name, "%s", t->name);
        const spw_formula shape = spw_layer_formula(t, NULL);
        spw_formula_print(&shape, row->formula, sizeof row->formula);
        row->bytes = (double)spw_layer_bytes(t, NULL);
        row->pieces = (unsigned)t->times;
        row->recoverable = t->rows != SPW_ROWS_GIVEN && t->rows != SPW_ROWS_EXPANDED;
    }
    for (size_t i = 0; i < s->around.tensors; i++) {
        const spw_step_tensor *t = &s->around.tensor[i];
        if ((t->when >> moment->moment & 1U) == 0) continue;
        spw_compiled_tensor *row = &list[(*count)++];
        (void)snprintf(row->name, sizeof row->name, "%s", t->name);
        (void)snprintf(row->formula, sizeof row->formula, "%s", t->formula);
        row->bytes = t->bytes;
        row->pieces = t->pieces;
    }
    qsort(list, *count, sizeof *list, larger_first);
    *tensor = list;
    list = NULL;

cleanup:
    spw_free(list);
    spw_free(live);
    return status;
}

spw_status spw_compiled_memory_list(const spw_stack *stack, const spw_job *job, const spw_scheme *scheme,
                                    size_t sequences, const spw_compiled_moment *moment,
                                    spw_compiled_tensor **tensor, size_t *count) {
    step s;
    *tensor = NULL;
    *count = 0;
    spw_status status = open_step(stack, job, scheme, sequences, &s);
    if (status != SPW_OK) return status;
    status = collect(&s, moment, tensor, count);
    spw_layer_destroy(&s.layer);
    return status;
}

/* --- The step as it goes --- */

spw_status spw_compiled_memory_course(const spw_stack *stack, const spw_job *job, const spw_scheme *scheme,
                                      size_t sequences, spw_compiled_course *out) {
    step s = {.job = NULL};
    uint64_t live = 0;
    *out = (spw_compiled_course){.events = 0};
    spw_status status = SPW_OK;
    SPW_TRY(open_step(stack, job, scheme, sequences, &s));
    SPW_TRY(SPW_ALLOC(s.layer.events > 0 ? s.layer.events : 1, &out->layer));
    SPW_TRY(SPW_ALLOC(s.layer.events > 0 ? s.layer.events : 1, &out->backward));
    for (int i = 0; i < SPW_STEP_MOMENTS; i++)
        out->around[i] = spw_step_list_sum(&s.around, (spw_step_moment)i);
    for (size_t e = 0; e < s.layer.events && s.layer.event != NULL; e++) {
        live = spw_layer_live_after(&s.layer, NULL, e, live);
        out->layer[e] = (double)live;
        out->backward[e] = s.layer.event[e].phase != SPW_PHASE_FORWARD;
    }
    out->events = s.layer.events;

cleanup:
    spw_layer_destroy(&s.layer);
    return status;
}

void spw_compiled_course_destroy(spw_compiled_course *c) {
    spw_free(c->layer);
    spw_free(c->backward);
    *c = (spw_compiled_course){.events = 0};
}
