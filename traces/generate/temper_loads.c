#include "traces/generate/temper_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MOST_EXPONENT = 64.0, MOST_SHARE = 0.9;

spw_status spw_temper_part(const spw_trace_info *info, const spw_temper_settings *s, spw_trace_part *out) {
    const size_t step_end = s->step_end > 0 ? s->step_end : info->steps,
                 layer_end = s->layer_end > 0 ? s->layer_end : info->layers;
    if (s->step_begin >= step_end || step_end > info->steps)
        return spw_fail(SPW_EARG, "steps %zu:%zu; the trace has %zu", s->step_begin, step_end, info->steps);
    if (s->layer_begin >= layer_end || layer_end > info->layers)
        return spw_fail(SPW_EARG, "layers %zu:%zu; the trace has %zu", s->layer_begin, layer_end,
                        info->layers);
    *out = (spw_trace_part){.first = s->step_begin,
                            .steps = step_end - s->step_begin,
                            .layer_begin = s->layer_begin,
                            .layer_end = layer_end,
                            .rank_end = info->ranks};
    return SPW_OK;
}

/* Histogram of a step and layer; out [experts]. */
static spw_status read_loads(spw_trace *trace, size_t step, size_t layer, uint32_t *out) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    spw_trace_record record;
    if (info->has_routed) return spw_trace_read_routed(trace, step, layer, out);
    const spw_status status = spw_trace_read_record(trace, step, 1, layer, false, &record);
    if (status != SPW_OK) return status;
    memset(out, 0, info->experts * sizeof *out);
    for (size_t i = 0; i < record.tokens * record.top_k; i++) {
        const uint16_t id = spw_trace_record_id(&record, i);
        if (id != record.missing) out[id]++;
    }
    return SPW_OK;
}

static int largest_first(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

/* The share of the choices that the top_k hottest experts have at this exponent, summed over steps and layers that have any. */
static spw_status hottest_share(spw_trace *trace, const spw_trace_part *part, double exponent, double *sum,
                                size_t *records) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    spw_status status = SPW_OK;
    uint32_t *own = NULL, *target = NULL;
    uint64_t *all = NULL;
    *sum = 0.0, *records = 0;
    SPW_TRY(SPW_ALLOC(info->experts, &own));
    SPW_TRY(SPW_ALLOC(info->experts, &target));
    SPW_TRY(SPW_ALLOC(info->experts, &all));
    for (size_t step = part->first; step < part->first + part->steps; step++) {
        for (size_t layer = part->layer_begin; layer < part->layer_end; layer++) {
            const size_t top_k = info->layer_top_k[layer];
            uint64_t total = 0, hot = 0;
            SPW_TRY(read_loads(trace, step, layer, own));
            for (size_t x = 0; x < info->experts; x++) all[x] = own[x], total += own[x];
            if (total == 0) continue;
            SPW_TRY(spw_temper_target(own, all, info->experts,
                                      spw_temper_fewest_tokens(own, info->experts, top_k), exponent, target));
            qsort(target, info->experts, sizeof *target, largest_first);
            for (size_t x = 0; x < top_k && x < info->experts; x++) hot += target[x];
            *sum += (double)hot / (double)total;
            ++*records;
        }
    }

cleanup:
    spw_free(own);
    spw_free(target);
    spw_free(all);
    return status;
}

spw_status spw_temper_most(const char *path, const spw_temper_settings *settings, double *out) {
    spw_trace *trace = NULL;
    spw_trace_part part = {.first = 0};
    spw_status status = SPW_OK;
    double sum = 0.0;
    size_t records = 0;
    SPW_TRY(spw_trace_open(path, &trace));
    SPW_TRY(spw_temper_part(spw_trace_get_info(trace), settings, &part));
    for (*out = 2.0; *out < MOST_EXPONENT; *out *= 2.0) {
        SPW_TRY(hottest_share(trace, &part, *out, &sum, &records));
        if (sum >= MOST_SHARE * (double)records) break;
    }

cleanup:
    spw_trace_close(trace);
    return status;
}

spw_status spw_trace_skew(spw_trace *trace, size_t ranks, double *part, double *expert) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    uint32_t *loads = NULL;
    bool divides = true;
    spw_status status = SPW_OK;
    *part = *expert = 0.0;
    SPW_TRY(SPW_ALLOC(info->experts, &loads));
    for (size_t step = 0; step < info->steps; step++) {
        for (size_t layer = 0; layer < info->layers; layer++) {
            const size_t experts = info->layer_experts[layer], local = ranks > 0 ? experts / ranks : 0;
            double total = 0.0, held = 0.0;
            SPW_TRY(read_loads(trace, step, layer, loads));
            for (size_t x = 0; x < experts; x++) total += loads[x];
            if (!(total > 0.0)) continue;
            for (size_t x = 0; x < experts; x++) {
                held = local > 0 && x % local == 0 ? loads[x] : held + loads[x];
                *expert = fmax(*expert, loads[x] * (double)experts / total);
                if (local > 0) *part = fmax(*part, held * (double)ranks / total);
            }
            divides = divides && local > 0 && local * ranks == experts;
        }
    }

    if (!divides) *part = NAN;

cleanup:
    spw_free(loads);
    return status;
}
