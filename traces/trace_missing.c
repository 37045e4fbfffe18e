/* How many choices of a trace are missing. */
#include "traces/trace.h"

#include "base/memory.h"

/* *chosen: of one step and layer, by its ids. */
static spw_status count_ids(spw_trace *trace, size_t step, size_t layer, uint64_t *chosen) {
    spw_trace_record record;
    const spw_status status = spw_trace_read_record(trace, step, 1, layer, false, &record);
    if (status != SPW_OK) return status;
    *chosen = 0;
    for (size_t i = 0; i < record.tokens * record.top_k; i++)
        *chosen += spw_trace_record_id(&record, i) != record.missing;
    return SPW_OK;
}

spw_status spw_trace_count_missing(spw_trace *trace, uint64_t *choices, uint64_t *missing) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = spw_trace_get_info(trace);
    uint32_t *routed = NULL;
    *choices = *missing = 0;
    SPW_TRY(SPW_ALLOC(info->experts, &routed));
    for (size_t i = 0; i < info->steps * info->layers; i++) {
        const size_t step = i / info->layers, layer = i % info->layers;
        const uint64_t slots = info->step_tokens[step] * info->layer_top_k[layer];
        uint64_t chosen = 0;
        if (info->has_routed) {
            SPW_TRY(spw_trace_read_routed(trace, step, layer, routed));
            for (size_t x = 0; x < info->layer_experts[layer]; x++) chosen += routed[x];
        } else {
            SPW_TRY(count_ids(trace, step, layer, &chosen));
        }
        *choices += slots;
        *missing += chosen < slots ? slots - chosen : 0;
    }

cleanup:
    spw_free(routed);
    return status;
}
