#include "sim/replay/overload.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name, *meaning;
} factors[SPW_OVERLOADS] = {
    {"max", "largest of any layer, micro-batch and group"},
    {"average", "mean over layers, micro-batches and groups"},
    {"cumulative", "rows kept for the backward pass, on the rank that keeps most"},
    {"slowest_by_layer", "every layer waits for its own slowest rank"},
    {"slowest_rank", "rows of all layers together, on the rank that has most"},
};

const char *spw_overload_name(int factor) { return factors[factor].name; }
const char *spw_overload_meaning(int factor) { return factors[factor].meaning; }

static size_t groups_of(const spw_overload *o) { return o->shape.ranks / o->shape.group_ranks; }
static size_t parts_of(const spw_overload *o) {
    return o->shape.pipeline.micro_batches * o->shape.pipeline.chunks;
}

spw_status spw_overload_create(const spw_overload_shape *shape, spw_overload *o) {
    spw_status status = SPW_OK;
    *o = (spw_overload){.shape = *shape,
                        .job_layers = shape->model != NULL ? shape->model->moe_layers : shape->layers};
    const size_t stages = shape->pipeline.stages, groups = groups_of(o),
                 layers = shape->layers > o->job_layers ? shape->layers : o->job_layers;
    SPW_TRY(SPW_ALLOC(layers, &o->stage));
    SPW_TRY(SPW_ALLOC(layers, &o->chunk));
    if (shape->model != NULL)
        spw_pipeline_place_layers(&shape->pipeline, shape->model, layers, o->stage, o->chunk);
    SPW_TRY(SPW_ALLOC(groups, &o->waited));
    SPW_TRY(SPW_ALLOC(groups, &o->mean));
    SPW_TRY(SPW_ALLOC(groups, &o->run_mean));
    SPW_TRY(SPW_ALLOC(shape->ranks, &o->by_rank));
    SPW_TRY(SPW_ALLOC(shape->ranks, &o->run_by_rank));
    SPW_TRY(SPW_ALLOC(stages * shape->ranks * parts_of(o), &o->kept));
    SPW_TRY(SPW_ALLOC(stages * groups * parts_of(o), &o->kept_all));
    SPW_TRY(SPW_ALLOC(shape->layers, &o->layer));
    SPW_TRY(SPW_ALLOC(shape->layers, &o->run_layer));

cleanup:
    return status;
}

void spw_overload_destroy(spw_overload *o) {
    spw_free(o->stage);
    spw_free(o->chunk);
    spw_free(o->waited);
    spw_free(o->mean);
    spw_free(o->run_mean);
    spw_free(o->by_rank);
    spw_free(o->run_by_rank);
    spw_free(o->kept);
    spw_free(o->kept_all);
    spw_free(o->layer);
    spw_free(o->run_layer);
    *o = (spw_overload){.stage = NULL};
}

void spw_overload_begin(spw_overload *o) {
    const size_t stages = o->shape.pipeline.stages, parts = parts_of(o);
    memset(o->waited, 0, groups_of(o) * sizeof *o->waited);
    memset(o->mean, 0, groups_of(o) * sizeof *o->mean);
    memset(o->by_rank, 0, o->shape.ranks * sizeof *o->by_rank);
    memset(o->kept, 0, stages * o->shape.ranks * parts * sizeof *o->kept);
    memset(o->kept_all, 0, stages * groups_of(o) * parts * sizeof *o->kept_all);
    memset(o->layer, 0, o->shape.layers * sizeof *o->layer);
    o->step = (spw_overload_sum){.count = 0};
}

static void note(spw_overload_sum *sum, double factor) {
    sum->average += factor;
    sum->max = fmax(sum->max, factor);
    sum->count++;
}

/* The rows as those of one layer of the job. */
static void add_layer(spw_overload *o, size_t job_layer, size_t micro_batch, size_t first,
                      const uint64_t *rows, uint64_t all, uint64_t most) {
    const size_t parts = parts_of(o), size = o->shape.group_ranks, group = first / size,
                 stage = o->stage[job_layer],
                 part = micro_batch * o->shape.pipeline.chunks + o->chunk[job_layer];
    note(&o->step, (double)most * (double)size / (double)all);
    o->waited[group] += (double)most;
    o->mean[group] += (double)all / (double)size;
    o->kept_all[(stage * groups_of(o) + group) * parts + part] += all;
    for (size_t d = 0; d < size; d++) {
        o->by_rank[first + d] += rows[d];
        o->kept[(stage * o->shape.ranks + first + d) * parts + part] += rows[d];
    }
}

void spw_overload_add(spw_overload *o, size_t layer, size_t micro_batch, size_t first, const uint64_t *rows) {
    uint64_t all = 0, most = 0;
    for (size_t d = 0; d < o->shape.group_ranks; d++) {
        all += rows[d];
        most = rows[d] > most ? rows[d] : most;
    }
    if (all == 0) return;
    const double factor = (double)most * (double)o->shape.group_ranks / (double)all;
    note(&o->layer[layer], factor);
    note(&o->run_layer[layer], factor);
    for (size_t l = layer; l < o->job_layers; l += o->shape.layers)
        add_layer(o, l, micro_batch, first, rows, all, most);
}

static double cumulative(const spw_overload *o) {
    const size_t parts = parts_of(o), ranks = o->shape.ranks, size = o->shape.group_ranks;
    double most = 0.0;
    for (size_t s = 0; s < o->shape.pipeline.stages; s++) {
        for (size_t g = 0; g < groups_of(o); g++) {
            const uint64_t all =
                spw_pipeline_peak(&o->shape.pipeline, s, o->kept_all + (s * groups_of(o) + g) * parts);
            for (size_t r = g * size; r < (g + 1) * size && all > 0; r++) {
                const uint64_t kept =
                    spw_pipeline_peak(&o->shape.pipeline, s, o->kept + (s * ranks + r) * parts);
                most = fmax(most, (double)kept * (double)size / (double)all);
            }
        }
    }
    return most;
}

static double slowest(const spw_overload *o, const uint64_t *by_rank, const double *mean) {
    double most = 0.0;
    for (size_t r = 0; r < o->shape.ranks; r++) {
        const double balanced = mean[r / o->shape.group_ranks];
        if (balanced > 0.0) most = fmax(most, (double)by_rank[r] / balanced);
    }
    return most;
}

void spw_overload_end(spw_overload *o, double factor[SPW_OVERLOADS]) {
    double waited = 0.0;
    for (size_t g = 0; g < groups_of(o); g++) {
        if (o->mean[g] > 0.0) waited = fmax(waited, o->waited[g] / o->mean[g]);
        o->run_mean[g] += o->mean[g];
    }
    factor[SPW_OVERLOAD_MAX] = o->step.max;
    factor[SPW_OVERLOAD_AVERAGE] = o->step.count > 0 ? o->step.average / (double)o->step.count : 0.0;
    factor[SPW_OVERLOAD_CUMULATIVE] = cumulative(o);
    factor[SPW_OVERLOAD_BY_LAYER] = waited;
    factor[SPW_OVERLOAD_RANK] = slowest(o, o->by_rank, o->mean);
    for (size_t r = 0; r < o->shape.ranks; r++) o->run_by_rank[r] += o->by_rank[r];
}

static spw_layer_overload layer_of(const spw_overload_sum *sum) {
    return (spw_layer_overload){sum->count > 0 ? sum->average / (double)sum->count : 0.0, sum->max};
}

spw_layer_overload spw_overload_step_layer(const spw_overload *o, size_t layer) {
    return layer_of(&o->layer[layer]);
}

spw_layer_overload spw_overload_run_layer(const spw_overload *o, size_t layer) {
    return layer_of(&o->run_layer[layer]);
}

spw_status spw_overload_state(const spw_overload *o, const spw_state *state) {
    const spw_overload_shape *shape = &o->shape;
    spw_status status = SPW_OK;
    SPW_TRY(spw_state_part(state, o->run_mean, shape->ranks / shape->group_ranks * sizeof *o->run_mean));
    SPW_TRY(spw_state_part(state, o->run_by_rank, shape->ranks * sizeof *o->run_by_rank));
    SPW_TRY(spw_state_part(state, o->run_layer, shape->layers * sizeof *o->run_layer));

cleanup:
    return status;
}

double spw_overload_run_rank(const spw_overload *o) { return slowest(o, o->run_by_rank, o->run_mean); }

void spw_overload_run_add(spw_overload_run *run, const double factor[SPW_OVERLOADS], int64_t step_id) {
    if (!(factor[SPW_OVERLOAD_MAX] > 0.0)) return;
    for (int i = 0; i < SPW_OVERLOADS; i++) {
        run->mean[i] += factor[i];
        if (run->steps > 0 && !(factor[i] > run->worst[i])) continue;
        run->worst[i] = factor[i];
        run->worst_step[i] = step_id;
    }
    run->steps++;
}

void spw_overload_run_finish(spw_overload_run *run) {
    for (int i = 0; i < SPW_OVERLOADS && run->steps > 0; i++) run->mean[i] /= (double)run->steps;
}
