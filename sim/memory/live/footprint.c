#include "sim/memory/live/footprint.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"
#include "sim/machine/compiled_layer.h"
#include "sim/memory/allocator/device_budget.h"
#include "sim/memory/kept/activation_offload.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/megatron_kept.h"
#include "sim/memory/kept/mesh_memory.h"
#include "sim/memory/kept/page_pool.h"
#include "sim/memory/kept/transformers_job.h"
#include "sim/memory/live/footprint_state.h"
#include "sim/memory/live/footprint_waiting.h"
#include "sim/schemes/layer.h"
#include "sim/weights/fp8_memory.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/pipeline.h"

#include <string.h>

enum { AFTER_SCHEME = 25 }; /* components that may follow those of the scheme */

const char *spw_moment_name(spw_moment moment) {
    static const char *const names[] = {"backward of a MoE layer", "backward of a dense layer", "loss",
                                        "backward of attention", "optimizer's step"};
    return names[moment];
}

/* The layer of stages whose shapes are alike, and what it has at its peak where its rows are those of balanced routing. */
typedef struct shared_layer {
    spw_layer layer;
    bool ahead;              /* the one thing in which shapes differ */
    const spw_footprint *of; /* NULL: nobody has had it yet */
    size_t first, end;       /* components */
} shared_layer;

static spw_status build_shared(shared_layer *shared, const spw_scheme *scheme, const spw_layer_shape *s) {
    if (shared->layer.tensors > 0 && shared->ahead == s->offload_ahead) return SPW_OK;
    spw_layer_destroy(&shared->layer);
    shared->of = NULL;
    shared->ahead = s->offload_ahead;
    return spw_layer_build(scheme, s, SPW_FLAVOUR_LIVE, &shared->layer);
}

/* The tensors that are live at the peak of the layer, one component each. */
static spw_status add_scheme(spw_footprint *f, const spw_scheme *scheme, const spw_layer *layer,
                             const spw_layer_shape *s, const spw_rank_rows *rows) {
    const spw_scheme_type *type = scheme->type;
    f->live_set = spw_layer_live_set(layer, rows);
    f->rows = *rows;
    f->follows_routing = spw_layer_is_dynamic(layer);
    (void)snprintf(f->step, sizeof f->step, "%s", spw_layer_step(layer, f->live_set.backward_event));
    for (size_t i = 0; i < layer->tensors && f->live_set.backward_event != SIZE_MAX; i++) {
        if (!spw_layer_is_live(layer, rows, i, f->live_set.backward_event)) continue;
        if (f->components + AFTER_SCHEME >= SPW_COMPONENTS)
            return spw_fail(SPW_EARG,
                            "scheme '%s': %zu tensors in a layer are too many; a footprint has room for %d "
                            "components",
                            scheme->text, layer->tensors, (int)SPW_COMPONENTS);
        char name[48];
        (void)snprintf(name, sizeof name, "moe.%s", layer->tensor[i].name);
        const spw_formula shape = spw_layer_formula(&layer->tensor[i], rows);
        spw_component *c =
            spw_component_of(f, name, type->about.section, shape.words, shape.term, shape.terms);
        c->routed = true;
        LIVE(c, AT_MOE_LAYER);
    }
    if (type->memory.communication_bytes != NULL) {
        const char *source = type->memory.communication_source, *note = type->memory.communication_formula;
        spw_component *c =
            SPW_COMPONENT(f, "communication_buffers", source != NULL ? source : "DeepEP buffer hints (4.3)",
                          "= {bytes}", TERM("bytes", type->memory.communication_bytes(scheme, s)));
        c->expression.note = note != NULL ? note : "rings of the channels, independent of T";
        LIVE(c, ALWAYS);
    }
    return SPW_OK;
}

/* The same of a stage after another one, where there is as much room for it. */
static spw_status share_scheme(spw_footprint *f, const spw_scheme *scheme, shared_layer *shared,
                               const spw_layer_shape *s, const spw_rank_rows *balanced) {
    const spw_footprint *of = shared->of;
    if (of == NULL || f->components > shared->first) {
        shared->first = f->components;
        const spw_status status = add_scheme(f, scheme, &shared->layer, s, balanced);
        shared->end = f->components;
        shared->of = status == SPW_OK ? f : NULL;
        return status;
    }
    f->live_set = of->live_set;
    f->rows = of->rows;
    f->follows_routing = of->follows_routing;
    memcpy(f->step, of->step, sizeof f->step);
    memcpy(f->component + f->components, of->component + shared->first,
           (shared->end - shared->first) * sizeof *f->component);
    f->components += shared->end - shared->first;
    return SPW_OK;
}

/* Pages for all layers in flight, and the layer whose backward pass follows its forward pass at once: it is not moved. */
static void add_pool(spw_footprint *f, const spw_point *p, const spw_stage *stage) {
    const spw_scheme_memory *memory = &p->scheme->type->memory;
    const spw_pipeline pipeline = spw_pipeline_of(p->job);
    const char *source = p->scheme->type->about.section;
    spw_page_pool pool;
    uint64_t stays = 0;
    if (memory->pool == NULL || !memory->pool(p->scheme, &p->shape, &pool)) return;
    const spw_stage_pages pages = spw_stage_pages_of(&pool, &pipeline, &p->job->model, stage->index);
    for (size_t t = 0; t < pool.tensors; t++) stays += spw_pool_tensor_bytes(&pool, t, pool.buffer_rows);
    LIVE(SPW_COMPONENT(
             f, "stash_pages", source,
             "{buffers} buffers, pages of {page} rows, {factor} x {mean} rows a layer in flight: = {bytes}",
             TERM("buffers", pool.buffers), TERM("page", pool.page_rows), TERM("factor", pool.factor),
             TERM("mean", pool.mean_rows), TERM("bytes", pages.gpu_bytes)),
         ALWAYS);
    if (stage->moe_layers + stage->predictions > 0)
        LIVE(SPW_COMPONENT(f, "unstashed_layer", source, "{rows} rows of the last MoE layer: = {bytes}",
                           TERM("rows", pool.buffer_rows), TERM("bytes", stays)),
             AT_LOSS);
}

/* Of offloading, the groups on the GPU between the passes: the last MoE layer's of the pass that runs backward next. */
static void add_staying(spw_footprint *f, const spw_job *job, const spw_layer_shape *shape,
                        const spw_stage *stage, uint64_t stays) {
    if ((job->offload.modules & SPW_OFFLOAD_EXPERTS) == 0 || stage->moe_layers + stage->predictions == 0)
        return;
    spw_component *c = SPW_COMPONENT(
        f, "staying_groups", "offloading leaves the last layer's on the GPU (7.17)",
        "{rows} rows of one layer: = {bytes}", TERM("rows", f->rows.held), TERM("bytes", stays));
    c->expression.note = spw_offload_name(&job->offload);
    c->routed = true;
    LIVE(c, {[SPW_MOMENT_LOSS] = true, [SPW_MOMENT_DENSE_LAYER] = shape->offload_ahead});
    f->stays_in_dense = shape->offload_ahead;
}

/* What the dataset gives for a token: tokens, labels and positions of 8 bytes, and a mask of the loss of 4. Of all micro-batches,
 * on the stages that read them; a graph reads them where they were when it was captured. */
static void add_graph_inputs(spw_footprint *f, const spw_point *p, const spw_stage *stage) {
    enum { TOKEN_BYTES = 3 * 8 + 4 };
    if (!spw_scheme_option_is(p->scheme, "graph", "full") || !(stage->embedding || stage->head)) return;
    LIVE(SPW_COMPONENT(f, "graph_inputs", p->scheme->type->about.section, "= token p S",
                       TERM("token", TOKEN_BYTES), TERM("p", p->sequences),
                       TERM("S", p->job->sequence_length)),
         ALWAYS);
}

/* Stays at the end of 63 bits. */
static uint64_t plus(uint64_t a, uint64_t b) {
    const uint64_t room = (uint64_t)INT64_MAX - a;
    return a + (b < room ? b : room);
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

uint64_t spw_footprint_peak(const spw_footprint *f, bool saves, const spw_live_set *live,
                            spw_saved_rows kept) {
    if (f->whole_step) return f->peak_bytes;
    const uint64_t saved = saves ? kept.all : 0, others = less(saved, live->saved_bytes),
                   stays = saves ? kept.stays : 0;
    const uint64_t at[SPW_MOMENT_COUNT] = {
        [SPW_MOMENT_MOE_LAYER] =
            plus(plus(f->fixed_bytes[SPW_MOMENT_MOE_LAYER], plus(0, live->backward_bytes)), others),
        [SPW_MOMENT_DENSE_LAYER] =
            plus(plus(f->fixed_bytes[SPW_MOMENT_DENSE_LAYER], saved), f->stays_in_dense ? stays : 0),
        [SPW_MOMENT_LOSS] = plus(plus(f->fixed_bytes[SPW_MOMENT_LOSS], saved), stays),
        [SPW_MOMENT_ATTENTION] = plus(f->fixed_bytes[SPW_MOMENT_ATTENTION], less(saved, kept.last)),
    };
    uint64_t peak = 0;
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) peak = at[m] > peak ? at[m] : peak;
    return peak;
}

uint64_t spw_footprint_walked_peak(const spw_footprint *f, const spw_stage_peaks *peaks, uint64_t stays) {
    if (f->whole_step) return f->peak_bytes;
    const uint64_t beside[SPW_MOMENT_COUNT] = {
        [SPW_MOMENT_LOSS] = stays, [SPW_MOMENT_DENSE_LAYER] = f->stays_in_dense ? stays : 0};
    uint64_t peak = 0;
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        if (!peaks->at[m].there) continue;
        const uint64_t at = plus(plus(f->beside_bytes[m], peaks->at[m].bytes), beside[m]);
        peak = at > peak ? at : peak;
    }
    return peak;
}

bool spw_footprint_frees(const spw_scheme *scheme) {
    return spw_scheme_trainer(scheme)->memory == SPW_MEMORY_MODEL_FREED;
}

/* Moments that do not come are not the peak. */
static void leave_out(spw_footprint *f, uint64_t total[SPW_MOMENT_COUNT]) {
    const size_t predictions = f->stage.predictions;
    bool never[SPW_MOMENT_COUNT] = {[SPW_MOMENT_MOE_LAYER] = f->stage.moe_layers + predictions == 0,
                                    [SPW_MOMENT_DENSE_LAYER] = f->stage.layers + predictions == 0};
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        if (f->frees) never[m] = !f->waiting.at[m].there;
        if (never[m]) total[m] = f->fixed_bytes[m] = 0;
    }
}

static void find_peak(spw_footprint *f) {
    uint64_t total[SPW_MOMENT_COUNT] = {0};
    for (size_t i = 0; i < f->components; i++) {
        const spw_component *c = &f->component[i];
        if (c->argument) f->argument_bytes += c->bytes;
        for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
            if (!c->live[m]) continue;
            total[m] = plus(total[m], c->bytes);
            if (!c->routed) f->fixed_bytes[m] = plus(f->fixed_bytes[m], c->bytes);
            if (!c->routed && !c->waits) f->beside_bytes[m] = plus(f->beside_bytes[m], c->bytes);
        }
    }
    leave_out(f, total);
    f->moment = SPW_MOMENT_MOE_LAYER;
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        if (total[m] > total[f->moment]) f->moment = (spw_moment)m;
    }
    f->peak_bytes = total[f->moment];
    if (f->argument_bytes > f->peak_bytes) f->argument_bytes = f->peak_bytes; /* both at their end */
    f->temporary_bytes = f->peak_bytes - f->argument_bytes;
    f->low_bytes = f->high_bytes = f->peak_bytes;
}

/* What waits at every moment: as it was found, or of layers that are all alike. */
static spw_status find_waiting(spw_footprint *f, const spw_job *job, const spw_routed_memory *routed) {
    const spw_pipeline pipeline = spw_pipeline_of(job);
    const uint64_t saved = routed != NULL ? routed->saved.last : f->live_set.saved_bytes;
    const spw_layer_use use = {f->live_set.backward_bytes, spw_remat_keeps_experts(job->remat) ? saved : 0};
    const spw_layer_uses uses = {&use, 1, 1, use};
    spw_stage_walk *walk = NULL;
    if (routed != NULL && routed->walked) {
        f->waiting = routed->peaks;
        return SPW_OK;
    }
    const spw_status status = spw_stage_walk_create(
        &(spw_stage_walked){&pipeline, &job->model, f->stage.index, 1, use.saved_bytes == 0}, f->keeps,
        &walk);
    if (status == SPW_OK) f->waiting = *spw_stage_walk_run(walk, &uses);
    spw_stage_walk_destroy(walk);
    return status;
}

static uint64_t budget_of(const spw_job *job, const spw_scheme *scheme) {
    const spw_device_budget budget = spw_device_budget_of(job, scheme);
    return spw_device_budget_bytes(&budget);
}

/* Of a job whose steps are known tensor by tensor; what its layer's list says stands beside. */
static spw_status listed_steps(const spw_point *p, const spw_transformers_shape *steps, spw_footprint *out) {
    const spw_rank_rows rows = spw_balanced_rows(p->scheme, &p->shape);
    const spw_pipeline pipeline = spw_pipeline_of(p->job);
    spw_layer layer;
    spw_status status = spw_layer_build(p->scheme, &p->shape, SPW_FLAVOUR_LIVE, &layer);
    if (status != SPW_OK) return status;
    spw_footprint_clear(out);
    out->stage = spw_pipeline_stage(&pipeline, &p->job->model, 0);
    out->rows = rows;
    out->live_set = spw_layer_live_set(&layer, &rows);
    out->follows_routing = spw_layer_is_dynamic(&layer);
    (void)snprintf(out->step, sizeof out->step, "%s", spw_layer_step(&layer, out->live_set.backward_event));
    spw_layer_destroy(&layer);
    out->budget_bytes = budget_of(p->job, p->scheme);
    status = spw_transformers_footprint(steps, out);
    find_peak(out);
    return status;
}

/* Weights, gradients and moments of a whole rank, and what a tensor group's GPU holds of them. carries: the component of what
 * layers carry. Gives the bytes of attention. */
static spw_status add_whole(spw_footprint *f, const spw_point *p, const spw_job *job, const spw_job *part,
                            const spw_layer_shape *shape, double *attention, size_t *carries) {
    const spw_state_law *law = spw_state_law_of(job);
    const spw_compiled_layer *program = spw_scheme_program(p->scheme);
    const spw_status held = spw_footprint_add_state(f, job, &f->stage);
    if (held != SPW_OK) return held;
    if (law->by_units)
        spw_footprint_add_fsdp2(f, job, &f->stage, shape);
    else if (law->shares_weights)
        spw_footprint_add_gathered(f, job, &f->stage, program != NULL && program->all_experts);
    *carries = f->components;
    *attention = spw_footprint_add_activations(f, part, p->scheme, &f->stage, shape);
    spw_mesh_add(job, &f->stage, shape, f);
    spw_footprint_settle_head(f);
    return SPW_OK;
}

/* What a layer of a whole rank keeps, and what stays of it behind its backward pass. */
static void find_keeps(spw_footprint *f, const spw_point *p, const spw_job *job, const spw_job *part,
                       const spw_layer_shape *shape, double attention) {
    spw_footprint_layer_keeps(part, p->scheme, &f->stage, shape,
                              attention + spw_mesh_gathered_keys(job, shape), f->keeps);
    spw_footprint_add_summed(f, job, &f->stage);
    const double left = spw_megatron_left_by_layer(job, p->scheme, shape);
    if (left > 0.0) {
        f->keeps[1].left = left;
        f->keeps[1].stays = true;
    }
}

/* What MoE layers save, of the routing or of balanced rows, where layers keep anything. */
static void add_saved(spw_footprint *f, const spw_job *job, const spw_job *part,
                      const spw_routed_memory *routed) {
    if (!spw_remat_keeps_layers(job->remat)) return;
    const uint64_t one = f->live_set.saved_bytes;
    const spw_saved_rows balanced = {f->stage.kept_moe_layers * one, one, f->live_set.to_host_bytes},
                         *saved = routed != NULL ? &routed->saved : &balanced;
    if (!f->frees) spw_footprint_add_stacked(f, part, saved);
    if (spw_remat_keeps_experts(job->remat)) f->saved = *saved;
    if (f->frees) f->saved.all = f->waiting.at[SPW_MOMENT_LOSS].rows;
}

/* The model as a GPU of a tensor group has it: `room` is where a job with its widths is made. */
static const spw_job *part_of(const spw_job *job, spw_job *room) {
    if (spw_grid_mesh_tensor(job) <= 1) return job;
    *room = *job;
    spw_mesh_cut_model(job, &room->model);
    return room;
}

static spw_status of_stage(const spw_point *p, size_t index, const spw_routed_memory *routed,
                           shared_layer *shared, spw_footprint *out) {
    spw_transformers_shape steps;
    if (spw_transformers_is_listed(p, &steps, NULL)) return listed_steps(p, &steps, out);
    spw_job room, cut;
    const spw_job *job = spw_fsdp2_job(p->job, p->scheme, &room), *part = part_of(job, &cut);
    const spw_scheme *scheme = p->scheme;
    const spw_layer_shape own = spw_offload_shape(job, &p->shape, index), *shape = &own;
    const spw_pipeline pipeline = spw_pipeline_of(job);
    spw_footprint_clear(out);
    out->stage = spw_pipeline_stage(&pipeline, &job->model, index);
    out->budget_bytes = budget_of(job, scheme);
    out->frees = spw_footprint_frees(scheme);
    const bool whole = job->part == SPW_PART_WHOLE;
    double attention = 0.0;
    size_t carries = SIZE_MAX;
    spw_status status = SPW_OK;
    if (whole) {
        status = add_whole(out, p, job, part, shape, &attention, &carries);
    } else {
        const spw_parameters parameters = spw_model_parameters(&job->model);
        spw_footprint_add_expert_layers(out, job, &parameters, shape);
    }
    const spw_rank_rows balanced = spw_balanced_rows(scheme, shape);
    if (status == SPW_OK) status = build_shared(shared, scheme, shape);
    if (status == SPW_OK)
        status = routed != NULL ? add_scheme(out, scheme, &shared->layer, shape, &routed->rows)
                                : share_scheme(out, scheme, shared, shape, &balanced);
    if (status != SPW_OK) return status;
    if (whole && scheme->type->memory.whole_steps) spw_transformers_add_wrapped(out, job, &out->stage);
    if (whole) find_keeps(out, p, job, part, shape, attention);
    if (out->frees) status = find_waiting(out, job, routed);
    if (status != SPW_OK) return status;
    add_saved(out, job, part, routed);
    if (out->frees) spw_footprint_add_waiting(out, job, carries);
    if (spw_remat_keeps_layers(job->remat)) add_staying(out, job, shape, &out->stage, out->saved.stays);
    add_pool(out, p, &out->stage);
    add_graph_inputs(out, p, &out->stage);
    if (whole && !out->frees) spw_footprint_add_policy(out, part, shape);
    find_peak(out);
    return SPW_OK;
}

spw_status spw_footprint_of_stage(const spw_point *p, size_t index, const spw_routed_memory *routed,
                                  spw_footprint *out) {
    shared_layer shared = {.layer = {.tensors = 0}};
    const spw_status status = of_stage(p, index, routed, &shared, out);
    spw_layer_destroy(&shared.layer);
    return status;
}

spw_status spw_footprint_of_stages(const spw_point *p, size_t stages, spw_footprint *out) {
    shared_layer shared = {.layer = {.tensors = 0}};
    spw_status status = SPW_OK;
    for (size_t s = 0; s < stages && status == SPW_OK; s++) status = of_stage(p, s, NULL, &shared, &out[s]);
    spw_layer_destroy(&shared.layer);
    return status;
}

spw_status spw_footprint_state_of_stage(const spw_point *p, size_t index, spw_footprint *out) {
    spw_transformers_shape steps;
    spw_job room;
    const spw_job *job = spw_fsdp2_job(p->job, p->scheme, &room);
    const spw_pipeline pipeline = spw_pipeline_of(job);
    spw_status status = SPW_OK;
    spw_footprint_clear(out);
    out->stage = spw_pipeline_stage(&pipeline, &job->model, index);
    out->budget_bytes = budget_of(job, p->scheme);
    out->frees = spw_footprint_frees(p->scheme);
    if (job->part == SPW_PART_WHOLE && !spw_transformers_is_listed(p, &steps, NULL))
        status = spw_footprint_add_state(out, job, &out->stage);
    for (size_t i = 0; i < out->components; i++)
        if (out->component[i].argument)
            out->argument_bytes = plus(out->argument_bytes, out->component[i].bytes);
    out->peak_bytes = out->argument_bytes;
    return status;
}

spw_status spw_footprint_compute(const spw_point *p, const spw_routed_memory *routed, spw_footprint *out) {
    const size_t stages = spw_pipeline_of(p->job).stages;
    for (size_t s = 0; s < stages; s++) {
        spw_footprint here;
        const spw_status status = spw_footprint_of_stage(p, s, routed, &here);
        if (status != SPW_OK) return status;
        if (s == 0 || here.peak_bytes > out->peak_bytes) *out = here;
    }
    return SPW_OK;
}
