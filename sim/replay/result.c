#include "sim/replay/result.h"

#include "base/memory.h"
#include "sim/memory/step/advice.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

spw_status spw_result_reserve(spw_result *result, size_t rows) {
    spw_result_row *larger = NULL;
    if (rows <= result->capacity) return SPW_OK;
    const spw_status status = SPW_ALLOC(rows, &larger);
    if (status != SPW_OK) return status;
    if (result->rows > 0) memcpy(larger, result->row, result->rows * sizeof *larger);
    spw_free(result->row);
    result->row = larger;
    result->capacity = rows;
    return SPW_OK;
}

spw_status spw_result_append(spw_result *result, spw_result_row **row) {
    if (result->rows == result->capacity) {
        const spw_status status =
            spw_result_reserve(result, result->capacity == 0 ? 2 : result->capacity * 2);
        if (status != SPW_OK) return status;
    }
    *row = &result->row[result->rows++];
    memset(*row, 0, sizeof **row);
    return SPW_OK;
}

const char *spw_memory_kind_name(spw_memory_kind kind) { return kind == SPW_MEMORY_ARENA ? "arena" : "live"; }

spw_verdict spw_result_verdict(const spw_result_row *r) {
    if (r->reserved.there) return spw_reserved_verdict(&r->reserved);
    if (r->memory_kind == SPW_MEMORY_ARENA)
        return spw_interval_verdict((double)r->memory.max_bytes, (double)r->footprint.high_bytes,
                                    (double)r->footprint.budget_bytes);
    return spw_footprint_verdict(r->memory.max_bytes, r->footprint.budget_bytes);
}

spw_balanced_figures spw_result_balanced(const spw_result_row *r) {
    spw_balanced_figures out = {.peak_bytes = r->balanced_bytes, .drop_fraction = r->balanced_drops};
    if (!r->timed) return out;
    out.step = r->balanced;
    out.tokens_per_s_per_gpu = r->time.tokens_per_s_per_gpu * r->time.step_s / r->balanced.step_s;
    return out;
}

spw_ratio spw_result_row_ratio(const spw_result_row *r) {
    if (!r->timed || !(r->balanced.step_s > 0.0)) return (spw_ratio){NAN, NAN, NAN};
    const double value = r->time.step_s / r->balanced.step_s;
    return (spw_ratio){value, value * exp(-r->ratio_width), value * exp(r->ratio_width)};
}

/* Answers and refusals are few: every one makes the array longer by one. */
#define APPEND_ANSWER(list, count, answer) \
    void *longer = NULL; \
    spw_status status = spw_alloc((count) + 1, sizeof *(list), &longer); \
    if (status != SPW_OK) return status; \
    if ((count) > 0) memcpy(longer, list, (count) * sizeof *(list)); \
    spw_free(list); \
    (list) = longer; \
    *(answer) = &(list)[(count)++]; \
    return SPW_OK

spw_status spw_result_append_factor(spw_result *result, spw_factor_answer **answer) {
    APPEND_ANSWER(result->factor, result->factors, answer);
}

spw_status spw_result_append_batch(spw_result *result, spw_batch_answer **answer) {
    APPEND_ANSWER(result->batch, result->batches, answer);
}

spw_status spw_result_append_safe(spw_result *result, spw_safe_factor **answer) {
    APPEND_ANSWER(result->safe, result->safes, answer);
}

spw_status spw_result_append_refusal(spw_result *result, spw_refusal **refusal) {
    APPEND_ANSWER(result->refusal, result->refusals, refusal);
}

void spw_result_clear(spw_result *result) {
    for (size_t i = 0; i < result->rows; i++) {
        spw_free(result->row[i].overload.layer);
        spw_free(result->row[i].stage);
        spw_free(result->row[i].worst_rows);
    }
    spw_free(result->row);
    spw_free(result->factor);
    spw_free(result->batch);
    spw_free(result->safe);
    spw_free(result->balance.row);
    spw_free(result->refusal);
    spw_free(result->answers.order);
    spw_free(result->answers.front);
    *result = (spw_result){.rows = 0};
}

void spw_run_settings_bind(spw_run_settings *s, const spw_job *job, const spw_trace_info *trace) {
    s->job = job;
    s->trace = trace;
    if (s->step_end == 0) s->step_end = trace->steps;
    if (s->layer_end == 0) s->layer_end = trace->layers;
}

const char *spw_result_stages_text(const spw_result_row *row, char out[SPW_STAGES_TEXT]) {
    static const double GIB = 1024.0 * 1024.0 * 1024.0;
    size_t used = 0;
    out[0] = '\0';
    for (size_t s = 0; s < row->stages && used + 1 < SPW_STAGES_TEXT; s++) {
        const int length = snprintf(out + used, SPW_STAGES_TEXT - used, "%s%zu (%.2f)",
                                    s == 0 ? "layers (GiB) of each stage: " : ", ", row->stage[s].layers,
                                    (double)row->stage[s].peak_bytes / GIB);
        used += length > 0 ? (size_t)length : 0;
    }
    return out;
}

const char *spw_result_place_text(const spw_result_row *row, size_t rank, size_t stage,
                                  char out[SPW_PLACE_TEXT]) {
    if (row->footprint.stage.stages > 1)
        (void)snprintf(out, SPW_PLACE_TEXT, "rank %zu of stage %zu", rank, stage);
    else
        (void)snprintf(out, SPW_PLACE_TEXT, "rank %zu", rank);
    return out;
}

const char *spw_result_steps_text(const spw_result_row *row, char out[SPW_STEPS_TEXT]) {
    (void)snprintf(out, SPW_STEPS_TEXT, row->steps == 1 ? "%" PRId64 : "%" PRId64 "-%" PRId64,
                   row->first_step, row->last_step);
    return out;
}

const char *spw_result_death_text(const spw_result_row *row, char out[SPW_DEATH_TEXT]) {
    const spw_reserved_death *d = &row->reserved.as_set.death;
    char place[SPW_PLACE_TEXT], layer[32] = "";
    out[0] = '\0';
    if (!row->reserved.there || !d->there) return out;
    (void)spw_result_place_text(row, d->rank, d->stage, place);
    if (row->death_layer >= 0) (void)snprintf(layer, sizeof layer, " at layer %" PRId32, row->death_layer);
    if (d->at_start)
        (void)snprintf(out, SPW_DEATH_TEXT, "at step %" PRId64 " on %s, before its first layer",
                       row->death_step, place);
    else if (d->optimizer)
        (void)snprintf(out, SPW_DEATH_TEXT,
                       "at step %" PRId64 " on %s, as the optimizer allocates its moments", row->death_step,
                       place);
    else
        (void)snprintf(out, SPW_DEATH_TEXT, "at step %" PRId64 " on %s, micro-batch %zu, %s%s",
                       row->death_step, place, d->micro_batch, d->backward ? "backward" : "forward", layer);
    return out;
}
