#include "sim/plan/search_means.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/replay/replay_life.h"
#include "sim/replay/replay_ranks.h"
#include "sim/replay/stage_memory.h"
#include "sim/routing/micro_batch.h"
#include "sim/schemes/list.h"
#include "sim/schemes/point.h"
#include "sim/schemes/traffic.h"
#include "sim/time/megatron/megatron_load.h"
#include "traces/trace.h"

#include <omp.h>

static const size_t MOST_BYTES = (size_t)64 << 20;

/* One point's routing on its way through all layers and micro-batches. */
typedef struct sketch {
    const spw_replay_request *q;
    const spw_point *point;
    const spw_megatron_coefficients *scaled;
    spw_search_means *out;
    size_t batch, micro_batches, ranks, groups;
    bool law;
    spw_job *data;
    spw_composer *composer;
    spw_layout **part; /* [kinds] of a micro-batch, where there are several */
    spw_counts *counts;
    spw_segment_counts *cache;
    spw_selection *selection;
    double *scratch;         /* [threads][of a group] */
    spw_megatron_load *load; /* [ranks] */
    spw_rank_rows *rows;     /* [ranks][layers][kinds] */
    spw_trace_record record; /* of the layer under way, once it was read */
} sketch;

static void end(sketch *s) {
    for (size_t k = 0; k < s->out->kinds && s->part != NULL; k++) spw_layout_destroy(s->part[k]);
    spw_selection_destroy(s->selection), spw_segment_counts_destroy(s->cache);
    spw_counts_destroy(s->counts), spw_composer_destroy(s->composer), spw_free(s->part);
    spw_free(s->data), spw_free(s->scratch), spw_free(s->load), spw_free(s->rows);
}

/* Every layer has the same. */
static spw_status part_micro_batches(sketch *s) {
    const spw_layout *whole = spw_composer_layout(s->composer, s->batch);
    spw_status status = SPW_OK;
    if (s->micro_batches == 1) return SPW_OK;
    SPW_TRY(SPW_ALLOC(s->out->kinds, &s->part));
    for (size_t k = 0; k < s->out->kinds; k++) {
        SPW_TRY(spw_layout_create(s->ranks, s->point->shape.sequences, &s->part[k]));
        SPW_TRY(spw_micro_batch_layout(whole, k, s->micro_batches, s->part[k]));
    }

cleanup:
    return status;
}

static spw_status begin(sketch *s, bool *there) {
    const spw_layer_shape *shape = &s->point->shape;
    spw_status status = SPW_OK;
    *there = false;
    s->law = spw_replay_draws_counts(s->q);
    SPW_TRY(SPW_ALLOC(1, &s->data));
    SPW_TRY(spw_replay_compose(s->q, s->law, s->data, &s->composer));
    s->ranks = spw_grid_token_ranks(s->data);
    s->groups = s->ranks / shape->ranks;
    s->out->layers = spw_composer_layers(s->composer);
    if (spw_composer_steps(s->composer) != 1 ||
        s->ranks * s->out->layers * s->out->kinds > MOST_BYTES / sizeof *s->rows)
        goto cleanup;
    SPW_TRY(spw_composer_begin(s->composer, 0));
    if (spw_composer_draws(s->composer)) goto cleanup;
    const spw_placement placement = {s->ranks, shape->ranks, s->q->job->cluster.gpus_per_node,
                                     s->q->job->model.experts, shape->expert_tensor};
    SPW_TRY(part_micro_batches(s));
    SPW_TRY(spw_counts_create(placement, shape->sequences, &s->counts));
    SPW_TRY(spw_segment_counts_create(placement, &s->cache));
    SPW_TRY(spw_selection_create(placement, shape, &s->selection));
    SPW_TRY(SPW_ALLOC((size_t)omp_get_max_threads() * spw_megatron_load_scratch(shape), &s->scratch));
    SPW_TRY(SPW_ALLOC(s->ranks, &s->load));
    SPW_TRY(SPW_ALLOC(s->ranks * s->out->layers * s->out->kinds, &s->rows));
    SPW_TRY(spw_megatron_means_create(s->out->layers, shape->ranks, &s->out->loads));
    *there = true;

cleanup:
    return status;
}

/* Of one micro-batch of a layer. A record is read where the counts are not drawn, and not known from another point. */
static spw_status count(sketch *s, size_t layer, const spw_layout *layout) {
    spw_trace_record law = {.law = NULL};
    const spw_layout *whole = NULL;
    spw_segment_counts *cache = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_composer_store(s->composer, layer, &s->counts->placement, layout, s->law, &cache));
    if (cache == NULL) cache = s->cache;
    if (!spw_segment_counts_know(cache, layout)) {
        if (s->law) SPW_TRY(spw_composer_law(s->composer, layer, &s->counts->placement, &law));
        if (law.law == NULL && s->record.expert_id == NULL)
            SPW_TRY(spw_composer_layer(s->composer, layer, s->batch, &s->record, &whole));
    }
    SPW_TRY(spw_segment_counts_fill(cache, s->counts, law.law != NULL ? &law : &s->record, layout));
    SPW_TRY(spw_selection_run(s->selection, s->point->scheme, s->counts, &s->record, layout));

cleanup:
    return status;
}

/* How many micro-batches are as this one. */
static size_t times(const sketch *s, size_t kind) {
    return (s->micro_batches - kind + s->out->kinds - 1) / s->out->kinds;
}

static void note_group(const sketch *s, size_t layer, size_t kind, size_t group) {
    const spw_layer_shape *shape = &s->point->shape;
    const spw_flow *flow = spw_selection_flow(s->selection, group);
    const spw_routed_group routed = {s->point->scheme, shape, spw_selection_counts(s->selection), group};
    double *scratch = s->scratch + (size_t)omp_get_thread_num() * spw_megatron_load_scratch(shape);
    spw_group_rows rows;
    spw_group_rows_of(&routed, flow, &rows);
    for (size_t d = 0; d < shape->ranks; d++)
        s->rows[((group * shape->ranks + d) * s->out->layers + layer) * s->out->kinds + kind] = rows.rank[d];
    spw_megatron_load_of(s->scaled, &routed, flow, &rows, scratch, s->load + group * shape->ranks);
}

static void add_group(sketch *s, size_t layer, size_t kind, size_t group) {
    const spw_megatron_load *load = s->load + group * s->point->shape.ranks;
    const double share = 1.0 / (double)s->groups;
    spw_megatron_means *loads = &s->out->loads;
    spw_megatron_means_add(loads, SPW_MEGATRON_MEAN_OF_ALL, layer,
                           share * (double)times(s, kind) / (double)s->micro_batches, load);
    if (kind == 0) spw_megatron_means_add(loads, SPW_MEGATRON_MEAN_OF_FIRST, layer, share, load);
    if (kind == (s->micro_batches - 1) % s->out->kinds)
        spw_megatron_means_add(loads, SPW_MEGATRON_MEAN_OF_LAST, layer, share, load);
}

/* Several threads look, each at groups by itself; means are sums in their order. */
static void note_groups(sketch *s, size_t layer, size_t kind) {
#pragma omp parallel for schedule(static)
    for (size_t g = 0; g < s->groups; g++) note_group(s, layer, kind, g);
    for (size_t g = 0; g < s->groups; g++) add_group(s, layer, kind, g);
}

static spw_status note_all(sketch *s) {
    spw_status status = SPW_OK;
    for (size_t layer = 0; layer < s->out->layers; layer++) {
        spw_segment_counts_forget(s->cache);
        s->record = (spw_trace_record){.tokens = 0};
        for (size_t kind = 0; kind < s->out->kinds; kind++) {
            const spw_layout *whole = spw_composer_layout(s->composer, s->batch);
            SPW_TRY(count(s, layer, s->part != NULL ? s->part[kind] : whole));
            note_groups(s, layer, kind);
        }
    }
    spw_megatron_means_close(&s->out->loads);

cleanup:
    return status;
}

/* The ranks with the most rows at a time, and in all. */
static spw_status keep_full(sketch *s) {
    const size_t each = s->out->layers * s->out->kinds;
    size_t full[SPW_SEARCH_FULL_RANKS] = {0, 0};
    uint64_t most[SPW_SEARCH_FULL_RANKS] = {0, 0};
    spw_status status = SPW_OK;
    for (size_t r = 0; r < s->ranks; r++) {
        uint64_t at_once = 0, in_all = 0;
        for (size_t i = 0; i < each; i++) {
            const uint64_t held = s->rows[r * each + i].held;
            at_once = held > at_once ? held : at_once;
            in_all += held;
        }
        if (at_once > most[0]) most[0] = at_once, full[0] = r;
        if (in_all > most[1]) most[1] = in_all, full[1] = r;
    }
    SPW_TRY(SPW_ALLOC(SPW_SEARCH_FULL_RANKS * each, &s->out->full));
    for (size_t i = 0; i < SPW_SEARCH_FULL_RANKS * each; i++)
        s->out->full[i] = s->rows[full[i / each] * each + i % each];

cleanup:
    return status;
}

spw_status spw_search_means_create(const spw_replay_request *q, const spw_point *point, size_t batch,
                                   const spw_megatron_coefficients *scaled, spw_search_means *out) {
    sketch s = {.q = q,
                .point = point,
                .scaled = scaled,
                .out = out,
                .batch = batch,
                .micro_batches = spw_pipeline_of(q->job).micro_batches};
    bool there = false;
    spw_status status = SPW_OK;
    *out = (spw_search_means){.kinds = spw_replay_micro_batch_kinds(q)};
    if (q->imbalance != NULL || q->balancer != NULL || !spw_scheme_drops_nothing(point->scheme) ||
        spw_scheme_fills_slots(point->scheme))
        return SPW_OK;
    SPW_TRY(begin(&s, &there));
    if (!there) goto cleanup;
    SPW_TRY(note_all(&s));
    SPW_TRY(keep_full(&s));
    out->there = true;

cleanup:
    end(&s);
    return status;
}

void spw_search_means_destroy(spw_search_means *m) {
    spw_megatron_means_destroy(&m->loads);
    spw_free(m->full);
    *m = (spw_search_means){.there = false};
}

spw_status spw_search_means_bytes(const spw_search_means *m, const spw_point *point, uint64_t *out) {
    const size_t micro_batches = spw_pipeline_of(point->job).micro_batches;
    spw_stage_memory memory;
    spw_status status = SPW_OK;
    SPW_TRY(spw_stage_memory_create(point, SPW_SEARCH_FULL_RANKS, m->layers, 1, m->kinds, true, &memory));
    spw_stage_memory_begin(&memory);
    for (size_t i = 0; i < m->layers * micro_batches; i++) {
        const size_t layer = i / micro_batches, micro_batch = i % micro_batches;
        for (size_t r = 0; r < SPW_SEARCH_FULL_RANKS; r++)
            spw_stage_memory_note(&memory, layer, micro_batch, r,
                                  m->full[(r * m->layers + layer) * m->kinds + micro_batch % m->kinds]);
    }
    spw_stage_memory_end(&memory, 0);
    *out = memory.step_peak[0];

cleanup:
    spw_stage_memory_destroy(&memory);
    return status;
}
