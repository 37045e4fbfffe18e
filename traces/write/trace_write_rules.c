#include "traces/write/trace_write_rules.h"

#include "base/memory.h"
#include "traces/record_check.h"
#include "traces/trace_internal.h"

#include <inttypes.h>

static const double LARGEST_FACT = 1e15; /* of the model: a larger one is read as not said */

/* --- Settings --- */

static spw_status check_sizes(const spw_trace_info *info) {
    size_t by_rank = 0;
    if (info->layers < 1 || info->layers > SPW_TRACE_MAX_LAYERS || info->experts < 1 ||
        info->experts > SPW_TRACE_MAX_EXPERTS || info->top_k < 1 || info->top_k > SPW_TRACE_MAX_TOP_K ||
        info->top_k > info->experts || info->ranks > SPW_TRACE_MAX_RANKS) {
        return spw_fail(SPW_EARG,
                        "a trace of %zu layers, %zu experts, top_k %zu, %zu ranks is outside the limits",
                        info->layers, info->experts, info->top_k, info->ranks);
    }
    if (!spw_mul_size(info->ranks, info->experts, &by_rank) || by_rank > SPW_TRACE_MAX_BY_RANK)
        return spw_fail(SPW_EARG, "%zu ranks x %zu experts; their product must be at most %zu", info->ranks,
                        info->experts, (size_t)SPW_TRACE_MAX_BY_RANK);
    if (info->has_by_rank && info->ranks == 0) return spw_fail(SPW_EARG, "counts by rank need source ranks");
    return SPW_OK;
}

static spw_status check_layers(const spw_trace_info *info) {
    size_t at = 0;
    if (!spw_trace_layers_differ(info, &at))
        return spw_fail(SPW_EARG,
                        "layer %" PRId32 " at position %zu: a layer is an index of 0 or above, and "
                        "stands there once",
                        info->layer_id[at], at);
    for (size_t i = 0; i < info->layers; i++) {
        const size_t experts = info->layer_experts[i], top_k = info->layer_top_k[i];
        if (experts >= 1 && experts <= info->experts && top_k >= 1 && top_k <= info->top_k &&
            top_k <= experts)
            continue;
        return spw_fail(SPW_EARG, "layer %" PRId32 ": top-%zu of %zu experts; the trace has top-%zu of %zu",
                        info->layer_id[i], top_k, experts, info->top_k, info->experts);
    }
    return SPW_OK;
}

spw_status spw_trace_write_check_settings(const spw_trace_info *info) {
    const struct {
        const char *name;
        size_t value;
    } facts[] = {{"layers of the model", info->model_layers}, {"hidden size", info->model_hidden},
                 {"expert width", info->model_ffn},           {"groups", info->groups},
                 {"groups kept", info->groups_kept},          {"sequence length", info->sequence_length},
                 {"GPUs a node", info->gpus_per_node}};
    spw_status status = check_sizes(info);
    if (status == SPW_OK) status = check_layers(info);
    for (size_t i = 0; i < sizeof facts / sizeof *facts && status == SPW_OK; i++)
        if ((double)facts[i].value >= LARGEST_FACT)
            status = spw_fail(SPW_EARG, "%s: %zu; a number below %g would be right", facts[i].name,
                              facts[i].value, LARGEST_FACT);
    return status;
}

/* --- A step --- */

/* Ids rise; two of one id differ by their phase, or by a micro-batch that is written later. */
static spw_status check_id(const spw_trace_writer *writer, const spw_trace_write_step *step) {
    if (writer->steps == SPW_TRACE_MAX_STEPS)
        return spw_fail(SPW_EARG, "more than %d steps", SPW_TRACE_MAX_STEPS);
    if (writer->steps == 0) return SPW_OK;
    const int64_t before = writer->step_id[writer->steps - 1];
    const bool same = step->id == before && step->phase == writer->step_phase[writer->steps - 1];
    if (step->id >= before && !(same && writer->ids_rise)) return SPW_OK;
    return spw_fail(SPW_EARG, "step %" PRId64 " after step %" PRId64 "; the ids of steps must rise", step->id,
                    before);
}

spw_status spw_trace_write_check_step(const spw_trace_writer *writer, const spw_trace_write_step *step) {
    const bool kept = writer->has_tokens && step->tokens_kept;
    const spw_status status = check_id(writer, step);
    if (status != SPW_OK) return status;
    if (step->tokens > (kept ? UINT32_MAX : SPW_TRACE_MAX_TOKENS))
        return spw_fail(SPW_EARG, "step %" PRId64 ": %" PRIu64 " tokens; at most %" PRIu64 " would be right",
                        step->id, step->tokens, kept ? (uint64_t)UINT32_MAX : SPW_TRACE_MAX_TOKENS);
    if (kept && ((writer->source_rank >= 0 && step->source_rank == NULL && step->tokens > 0) ||
                 (writer->has_sequences && (step->sequence == NULL || step->position == NULL))))
        return spw_fail(SPW_EARG, "step %" PRId64 " lacks a column", step->id);
    if (step->source_rank != NULL && writer->ranks == 0)
        return spw_fail(SPW_EARG, "step %" PRId64 ": source ranks, but the trace has no ranks", step->id);
    for (uint64_t i = 0; step->source_rank != NULL && i < step->tokens; i++) {
        if (step->source_rank[i] < writer->ranks) continue;
        return spw_fail(SPW_EARG, "step %" PRId64 ": source rank %u of %zu", step->id, step->source_rank[i],
                        writer->ranks);
    }
    return SPW_OK;
}

/* --- A layer --- */

/* A place in the step for a message: "step 3, layer position 0, token 12". */
static spw_status fail_at(const spw_trace_writer *writer, size_t layer, uint64_t token, const char *what) {
    return spw_fail(SPW_EARG, "step %" PRId64 ", layer position %zu, token %" PRIu64 ": %s", writer->step.id,
                    layer, token, what);
}

static spw_status check_twice(const spw_trace_writer *writer, size_t layer, const uint16_t *expert_id) {
    const size_t top_k = writer->top_k, tokens = (size_t)writer->step.tokens;
    if (!spw_any_twice(expert_id, sizeof *expert_id, tokens, top_k, SPW_TRACE_MISSING)) return SPW_OK;
    for (size_t i = 0; i < tokens * top_k; i++) {
        size_t j = i - i % top_k;
        while (j < i && expert_id[j] != expert_id[i]) j++;
        if (j < i && expert_id[i] != SPW_TRACE_MISSING)
            return fail_at(writer, layer, i / top_k, "an expert twice; the experts of a token must differ");
    }
    return SPW_OK;
}

static spw_status check_weights(const spw_trace_writer *writer, size_t layer, const uint16_t *expert_id,
                                const uint16_t *weight) {
    const size_t top_k = writer->top_k;
    for (size_t i = 0; i < writer->step.tokens * top_k; i++) {
        const bool infinite = (weight[i] & 0x7c00) == 0x7c00, below = weight[i] > 0x8000;
        if (expert_id[i] == SPW_TRACE_MISSING) continue;
        if (infinite || below)
            return fail_at(writer, layer, i / top_k,
                           infinite ? "a weight that is infinite or no number; finite numbers of at least 0 "
                                      "would be right"
                                    : "a weight below 0; finite numbers of at least 0 would be right");
        if (writer->falls && i % top_k > 0 && expert_id[i - 1] != SPW_TRACE_MISSING &&
            weight[i] > weight[i - 1])
            return fail_at(writer, layer, i / top_k,
                           "a weight above the one before it; the trace says that they fall");
    }
    return SPW_OK;
}

spw_status spw_trace_write_check_layer(const spw_trace_writer *writer, size_t layer,
                                       const uint16_t *expert_id, const uint16_t *weight) {
    const spw_status status = check_twice(writer, layer, expert_id);
    if (status != SPW_OK || weight == NULL) return status;
    return check_weights(writer, layer, expert_id, weight);
}

spw_status spw_trace_write_check_counts(const spw_trace_writer *writer, size_t layer,
                                        const uint32_t *counts) {
    const uint64_t tokens = writer->step.tokens, most = tokens * writer->layer_top_k[layer];
    uint64_t sum = 0;
    for (size_t x = 0; x < writer->experts; x++) {
        sum += counts[x];
        if (counts[x] > tokens || sum > most)
            return spw_fail(SPW_EARG,
                            "step %" PRId64 ", layer position %zu, expert %zu: %" PRIu32 " choices; %" PRIu64
                            " tokens choose an expert once, top-%" PRIu32,
                            writer->step.id, layer, x, counts[x], tokens, writer->layer_top_k[layer]);
    }
    return SPW_OK;
}
