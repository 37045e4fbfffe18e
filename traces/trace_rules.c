/* What a trace may not say, although it says it in good form: a reader that let it pass would give figures that look exact. */
#include "traces/record_check.h"
#include "traces/trace_internal.h"

#include "base/memory.h"

#include <inttypes.h>
#include <string.h>

enum { PHASES = 5, PADDING = 1, DUMMY = 2 /* bits of /tokens/flags */ };

/* --- The header --- */

spw_status spw_trace_check_links(const spw_trace *trace) {
    static const char *const parts[] = {"layer",
                                        "expert",
                                        "k",
                                        "rank",
                                        "model",
                                        "model/num_experts",
                                        "model/top_k",
                                        "parallel",
                                        "steps/id",
                                        "steps/phase",
                                        "steps/microbatch",
                                        "steps/num_tokens",
                                        "tokens/expert_id",
                                        "tokens/weight",
                                        "tokens/step_offset",
                                        "tokens/sequence",
                                        "tokens/position",
                                        "tokens/source_rank",
                                        "tokens/flags",
                                        "counts/routed",
                                        "counts/by_rank",
                                        "counts/share"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!spw_hdf5_is_linked(trace->file, parts[i])) continue;
        return spw_fail(SPW_EFORMAT,
                        "/%s: a soft or external link; the dataset or group itself must stand there",
                        parts[i]);
    }
    return SPW_OK;
}

static spw_status check_axes(const spw_trace *trace) {
    static const struct {
        size_t text;
        const char *path;
    } axes[] = {{SPW_TRACE_AXIS, "tokens/expert_id"},
                {SPW_TRACE_ROUTED_AXIS, "counts/routed"},
                {SPW_TRACE_BY_RANK_AXIS, "counts/by_rank"}};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        const char *said = trace->text[axes[i].text];
        if (said[0] == '\0' || strcmp(said, "logical") == 0) continue;
        return spw_fail(SPW_EFORMAT, "/%s: expert_axis is '%.40s'; this program reads 'logical' experts",
                        axes[i].path, said);
    }
    return SPW_OK;
}

bool spw_trace_layers_differ(const spw_trace_info *info, size_t *at) {
    bool seen[SPW_TRACE_MAX_LAYERS] = {false}; /* of those that small models have */
    for (*at = 0; *at < info->layers; ++*at) {
        const int32_t id = info->layer_id[*at];
        bool twice = id >= 0 && id < SPW_TRACE_MAX_LAYERS && seen[id];
        for (size_t j = 0; j < *at && id >= SPW_TRACE_MAX_LAYERS && !twice; j++)
            twice = info->layer_id[j] == id;
        if (id < 0 || twice) return false;
        if (id < SPW_TRACE_MAX_LAYERS) seen[id] = true;
    }
    return true;
}

static spw_status check_layers(const spw_trace_info *info) {
    size_t at = 0;
    if (spw_trace_layers_differ(info, &at)) return SPW_OK;
    const int32_t id = info->layer_id[at];
    return spw_fail(SPW_EFORMAT, "/layer: %" PRId32 " at position %zu%s", id, at,
                    id >= 0 ? " stands there twice; a layer must be there once"
                            : "; must be an index in the model, 0 or above");
}

/* Steps follow each other: ids rise, or a step is told from the one before by its micro-batch or its phase. */
static spw_status check_steps(const spw_trace *trace) {
    const spw_trace_info *info = &trace->info;
    int32_t *micro = NULL;
    spw_status status = SPW_OK;
    if (spw_hdf5_exists(trace->file, "steps/microbatch")) {
        SPW_TRY(SPW_ALLOC(info->steps, &micro));
        SPW_TRY(spw_read_array(trace->file, "steps/microbatch", H5T_NATIVE_INT32, info->steps, micro));
    }
    for (size_t i = 0; i < info->steps; i++) {
        const int64_t id = info->step_id[i], before = i > 0 ? info->step_id[i - 1] : INT64_MIN;
        if (info->step_phase[i] >= PHASES)
            SPW_TRY(spw_fail(SPW_EFORMAT,
                             "/steps/phase: %u at step position %zu; must be 0 train, 1 eval, 2 prefill, 3 "
                             "decode or 4 mixed",
                             info->step_phase[i], i));
        if (id > before || i == 0) continue;
        if (id < before)
            SPW_TRY(spw_fail(SPW_EFORMAT,
                             "/steps/id: falls from %" PRId64 " to %" PRId64 " at step position %zu; "
                             "steps must follow each other",
                             before, id, i));
        if (info->step_phase[i] != info->step_phase[i - 1] || (micro != NULL && micro[i] > micro[i - 1]))
            continue;
        SPW_TRY(spw_fail(SPW_EFORMAT,
                         "/steps/id: %" PRId64
                         " at step positions %zu and %zu; must rise, or /steps/microbatch "
                         "must tell the two apart, rising",
                         id, i - 1, i));
    }

cleanup:
    spw_free(micro);
    return status;
}

/* /rank names each rank once; its tokens name it by its place. */
static spw_status check_ranks(const spw_trace *trace) {
    const int32_t *id = trace->rank_id;
    for (size_t i = 0; i < trace->info.ranks; i++) {
        if (id[i] >= 0 && (i == 0 || id[i] > id[i - 1])) continue;
        return spw_fail(SPW_EFORMAT, "/rank: %" PRId32 " at position %zu; must rise from 0 or above", id[i],
                        i);
    }
    return SPW_OK;
}

spw_status spw_trace_check_header(const spw_trace *trace) {
    spw_status status = SPW_OK;
    SPW_TRY(check_ranks(trace));
    SPW_TRY(check_axes(trace));
    SPW_TRY(check_layers(&trace->info));
    SPW_TRY(check_steps(trace));

cleanup:
    return status;
}

/* --- Tokens and counts --- */

size_t spw_trace_step_of_row(const spw_trace_info *info, uint64_t row) {
    size_t low = 0, high = info->steps;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (info->step_offset[middle] <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

spw_status spw_trace_check_flags(const spw_trace *trace, size_t step, size_t steps, const uint8_t *flags,
                                 size_t *flagged) {
    const spw_trace_info *info = &trace->info;
    const uint64_t first = info->step_offset[step];
    *flagged = 0;
    for (size_t s = step; s < step + steps && flags != NULL; s++) {
        const uint64_t begin = info->step_offset[s] - first, end = info->step_offset[s + 1] - first;
        uint64_t here = 0;
        for (uint64_t i = begin; i < end; i++) here += (flags[i] & (PADDING | DUMMY)) != 0;
        *flagged += (size_t)here;
        if (begin == end || here < end - begin || trace->keep_contradictions) continue;
        return spw_fail(
            SPW_EFORMAT,
            "%s: /tokens/flags: all %" PRIu64 " tokens of step %" PRId64
            " are flagged as padding or as of a dummy run; a step must have tokens that count: leave "
            "it out with --steps",
            trace->path, here, info->step_id[s]);
    }
    return SPW_OK;
}

spw_status spw_trace_check_twice(const spw_trace *trace, uint64_t first, size_t layer,
                                 const spw_trace_record *record) {
    const spw_trace_info *info = &trace->info;
    const size_t top_k = record->top_k;
    if (!spw_any_twice(record->expert_id, record->id_bytes, record->tokens, top_k, record->missing))
        return SPW_OK;
    for (size_t i = 0; i < record->tokens * top_k; i++) {
        const unsigned id = spw_trace_record_id(record, i);
        size_t j = i - i % top_k;
        while (j < i && spw_trace_record_id(record, j) != id) j++;
        if (j == i || id == record->missing) continue;
        const uint64_t row = first + i / top_k;
        const size_t step = spw_trace_step_of_row(info, row);
        return spw_fail(SPW_EFORMAT,
                        "%s: /tokens/expert_id: step %" PRId64 ", layer %" PRId32 ": token %" PRIu64
                        " chooses expert %u twice; the experts of a token must differ",
                        trace->path, info->step_id[step], info->layer_id[layer],
                        row - info->step_offset[step], id);
    }
    return SPW_OK;
}

spw_status spw_trace_check_sum(const spw_trace *trace, size_t step, size_t layer,
                               const spw_trace_record *record, const uint32_t *routed) {
    const uint64_t slots = (uint64_t)record->tokens * record->top_k;
    uint64_t chosen = 0, want = 0;
    for (size_t x = 0; x < trace->info.experts; x++) {
        chosen += routed[x];
        want += routed[x] * (uint64_t)x;
    }
    if (chosen <= slots) want += (slots - chosen) * record->missing;
    if (chosen <= slots && spw_id_sum(record->expert_id, record->id_bytes, (size_t)slots) == want)
        return SPW_OK;
    return spw_fail(SPW_EFORMAT,
                    "%s: step %" PRId64 ", layer %" PRId32
                    ": /counts/routed is not what /tokens/expert_id gives; "
                    "counts must be those of the tokens ('spillway trace verify' lists the differences)",
                    trace->path, trace->info.step_id[step], trace->info.layer_id[layer]);
}

spw_status spw_trace_check_counts(const spw_trace *trace, const char *what, size_t step, size_t layer,
                                  const uint32_t *counts) {
    const spw_trace_info *info = &trace->info;
    const uint64_t tokens = info->step_tokens[step], top_k = info->layer_top_k[layer];
    uint64_t sum = 0;
    for (size_t x = 0; x < info->experts; x++) {
        sum += counts[x];
        if (counts[x] <= tokens) continue;
        return spw_fail(SPW_EFORMAT,
                        "%s: /%s: expert %zu is chosen %u times at step %" PRId64 ", layer %" PRId32
                        "; the step has %" PRIu64 " tokens, and a token chooses an expert once",
                        trace->path, what, x, counts[x], info->step_id[step], info->layer_id[layer], tokens);
    }
    if (sum <= tokens * top_k) return SPW_OK;
    return spw_fail(SPW_EFORMAT,
                    "%s: /%s: %" PRIu64 " choices at step %" PRId64 ", layer %" PRId32
                    "; must be at most %" PRIu64 ", the tokens x top-%" PRIu64,
                    trace->path, what, sum, info->step_id[step], info->layer_id[layer], tokens * top_k,
                    top_k);
}
