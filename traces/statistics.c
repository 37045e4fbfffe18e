#include "traces/statistics.h"

#include "base/memory.h"
#include "base/walk.h"
#include "traces/trace.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <string.h>

const size_t spw_statistics_size[SPW_STATISTICS_SIZES] = {4, 8, 16, 32, 64};

enum { VALUES = sizeof(spw_statistics) / sizeof(double) };

static double rank_imbalance(const uint32_t *routed, size_t experts, size_t ranks) {
    double load[64] = {0.0};
    if (experts % ranks != 0) return NAN;
    for (size_t i = 0; i < experts; i++) load[i / (experts / ranks)] += routed[i];
    return gsl_stats_max(load, 1, ranks) / gsl_stats_mean(load, 1, ranks);
}

static void statistics_of(const uint32_t *routed, size_t experts, double *sorted, spw_statistics *out) {
    double weighted = 0.0, entropy = 0.0, total = 0.0;
    for (size_t i = 0; i < experts; i++) total += sorted[i] = routed[i];
    gsl_sort(sorted, 1, experts);
    double mean = gsl_stats_mean(sorted, 1, experts);
    for (size_t i = 0; i < experts; i++) {
        double share = sorted[i] / total;
        weighted += (2.0 * (double)i + 1.0 - (double)experts) * sorted[i];
        if (share > 0.0) entropy -= share * log2(share);
    }
    out->max_over_mean = sorted[experts - 1] / mean;
    out->variation = gsl_stats_sd_with_fixed_mean(sorted, 1, experts, mean) / mean;
    out->gini = weighted / ((double)experts * total);
    out->entropy_bits = entropy;
    out->dead_experts = 0.0;
    for (size_t i = 0; i < experts && sorted[i] == 0.0; i++) out->dead_experts += 1.0;
    for (size_t i = 0; i < SPW_STATISTICS_SIZES; i++) {
        out->rank_max_over_mean[i] = rank_imbalance(routed, experts, spw_statistics_size[i]);
        out->ranks_touched[i] = out->nodes_touched[i] = NAN;
    }
}

void spw_statistics_of(const uint32_t *routed, size_t experts, spw_statistics *out) {
    double *sorted = NULL;
    double *values = (double *)out;
    for (size_t i = 0; i < VALUES; i++) values[i] = NAN;
    if (SPW_ALLOC(experts, &sorted) == SPW_OK) statistics_of(routed, experts, sorted, out);
    spw_free(sorted);
}

static unsigned nodes_of(uint64_t ranks) {
    unsigned nodes = 0;
    for (; ranks != 0; ranks >>= SPW_STATISTICS_NODE_RANKS) nodes += (ranks & 0xff) != 0;
    return nodes;
}

/* Mean number of distinct ranks and nodes that the choices of a token are on, at `size` ranks. Sums are of
 * whole numbers, so threads may add in any order. */
static void touch(const spw_trace_record *record, size_t size, double *ranks_touched, double *nodes_touched) {
    uint64_t ranks = 0, nodes = 0, tokens = 0;
    size_t local = record->experts / size, top_k = record->top_k;
    const uint8_t *narrow = record->expert_id;
    const uint16_t *wide = record->expert_id;
#pragma omp parallel for schedule(static) reduction(+ : ranks, nodes, tokens) if (record->tokens > 4096)
    for (size_t token = 0; token < record->tokens; token++) {
        uint64_t mask = 0;
        for (size_t k = 0; k < top_k; k++) {
            unsigned id = record->id_bytes == 1 ? narrow[token * top_k + k] : wide[token * top_k + k];
            if (id < record->experts) mask |= (uint64_t)1 << (id / local);
        }
        ranks += (unsigned)__builtin_popcountll(mask);
        nodes += nodes_of(mask);
        tokens += mask != 0;
    }
    *ranks_touched = tokens > 0 ? (double)ranks / (double)tokens : NAN;
    *nodes_touched = tokens > 0 ? (double)nodes / (double)tokens : NAN;
}

static void touch_all(const spw_trace_record *record, spw_statistics *out) {
    for (size_t i = 0; i < SPW_STATISTICS_SIZES; i++) {
        if (record->experts % spw_statistics_size[i] != 0) continue;
        touch(record, spw_statistics_size[i], &out->ranks_touched[i], &out->nodes_touched[i]);
    }
}

static void count_record(const spw_trace_record *record, uint32_t *routed) {
    const uint8_t *narrow = record->expert_id;
    const uint16_t *wide = record->expert_id;
    memset(routed, 0, record->experts * sizeof *routed);
    for (size_t i = 0; i < record->tokens * record->top_k; i++) {
        unsigned id = record->id_bytes == 1 ? narrow[i] : wide[i];
        if (id < record->experts) routed[id]++;
    }
}

static void statistics_add(spw_layer_statistics *layer, const spw_statistics *one, size_t step) {
    double *sum = (double *)&layer->mean;
    const double *value = (const double *)one;
    if (layer->steps == 0) memset(sum, 0, sizeof layer->mean);
    for (size_t i = 0; i < VALUES; i++) sum[i] += value[i];
    if (layer->steps == 0 || one->max_over_mean > layer->worst.max_over_mean) {
        layer->worst = *one;
        layer->worst_step = step;
    }
    layer->steps++;
}

typedef struct reading {
    spw_trace *trace;
    uint32_t *routed; /* [experts] */
    double *sorted;   /* [experts] */
    spw_layer_statistics *out;
    const spw_walk *beside; /* NULL: none */
} reading;

/* A unit is a layer of a step; where nothing is routed, max_over_mean is no number. */
static spw_status note_layer(void *context, size_t unit, spw_note *out) {
    const reading *r = context;
    const spw_trace_info *info = spw_trace_get_info(r->trace);
    const size_t step = unit / info->layers, layer = unit % info->layers,
                 experts = info->layer_experts[layer];
    const bool tokens = info->has_tokens && info->step_offset[step + 1] > info->step_offset[step];
    spw_status status = SPW_OK;
    spw_trace_record record = {.tokens = 0};
    spw_statistics one = {.max_over_mean = NAN};
    void *at = NULL;
    memset(r->routed, 0, experts * sizeof *r->routed);
    if (tokens) {
        SPW_TRY(spw_trace_read_record(r->trace, step, 1, layer, false, &record));
        count_record(&record, r->routed);
    } else if (info->has_routed) {
        SPW_TRY(spw_trace_read_routed(r->trace, step, layer, r->routed));
    }
    uint64_t total = 0;
    for (size_t i = 0; i < experts; i++) total += r->routed[i];
    if (total > 0) statistics_of(r->routed, experts, r->sorted, &one);
    if (total > 0 && tokens) touch_all(&record, &one);
    SPW_TRY(spw_note_add(out, sizeof one, &at));
    memcpy(at, &one, sizeof one);
    if (r->beside != NULL) SPW_TRY(r->beside->compute(r->beside->context, unit, out));

cleanup:
    return status;
}

static spw_status take_layer(void *context, size_t unit, spw_note_reader *record) {
    const reading *r = context;
    const size_t layers = spw_trace_get_info(r->trace)->layers;
    const void *one = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_note_next(record, sizeof(spw_statistics), &one));
    if (!isnan(((const spw_statistics *)one)->max_over_mean))
        statistics_add(&r->out[unit % layers], one, unit / layers);
    if (r->beside != NULL) SPW_TRY(r->beside->take(r->beside->context, unit, record));

cleanup:
    return status;
}

static spw_status found(void *context, const spw_state *state) {
    const reading *r = context;
    const size_t layers = spw_trace_get_info(r->trace)->layers;
    const spw_status status = spw_state_part(state, r->out, layers * sizeof *r->out);
    return status == SPW_OK && r->beside != NULL ? r->beside->found(r->beside->context, state) : status;
}

spw_status spw_trace_statistics(spw_trace *trace, const spw_walk *beside, spw_layer_statistics *out) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = spw_trace_get_info(trace);
    reading r = {.trace = trace, .out = out, .beside = beside};
    const spw_walk walk = {.what = "read",
                           .unit = "layers",
                           .units = info->steps * info->layers,
                           .context = &r,
                           .compute = note_layer,
                           .take = take_layer,
                           .group = info->layers,
                           .found = found};
    SPW_TRY(SPW_ALLOC(info->experts, &r.routed));
    SPW_TRY(SPW_ALLOC(info->experts, &r.sorted));
    for (size_t layer = 0; layer < info->layers; layer++) {
        double *values = (double *)&out[layer].mean;
        out[layer] = (spw_layer_statistics){.steps = 0};
        for (size_t i = 0; i < VALUES; i++) values[i] = NAN;
        out[layer].worst = out[layer].mean;
    }
    SPW_TRY(spw_walk_run(&walk, NULL));
    for (size_t layer = 0; layer < info->layers; layer++) {
        double *values = (double *)&out[layer].mean;
        for (size_t i = 0; i < VALUES && out[layer].steps > 0; i++) values[i] /= (double)out[layer].steps;
    }

cleanup:
    spw_free(r.routed);
    spw_free(r.sorted);
    return status;
}
