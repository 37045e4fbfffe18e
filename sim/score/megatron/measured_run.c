#include "sim/score/megatron/measured_run.h"

#include "base/text.h"

#include "sim/memory/allocator/allocator_conf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXPERTS = 4096 };

/* --- Fields --- */

spw_status spw_measured_wrong(const spw_csv *csv, size_t row, const char *column, const char *text) {
    return spw_fail(SPW_EFORMAT, "%s:%zu: %s \"%s\" is not what a table of measured runs has there",
                    spw_csv_where(csv), spw_csv_line(csv, row), column, text);
}

spw_status spw_measured_read_list(const spw_csv *csv, size_t row, const char *column, size_t count,
                                  uint64_t *out) {
    const char *text = NULL;
    spw_status status = spw_csv_text(csv, row, column, &text);
    if (status != SPW_OK) return status;
    const char *at = text;
    for (size_t i = 0; i < count; i++) {
        char *end = NULL;
        errno = 0;
        out[i] = strtoull(at, &end, 10);
        if (errno != 0 || end == at || *at == '-' || *end != (i + 1 < count ? ';' : '\0'))
            return spw_measured_wrong(csv, row, column, text);
        at = end + 1;
    }
    return SPW_OK;
}

spw_status spw_measured_read_count(const spw_csv *csv, size_t row, const char *column, size_t most,
                                   size_t *out) {
    uint64_t value = 0;
    spw_status status = spw_measured_read_list(csv, row, column, 1, &value);
    if (status != SPW_OK) return status;
    if (value > most) return spw_measured_wrong(csv, row, column, spw_csv_field(csv, row, column));
    *out = (size_t)value;
    return SPW_OK;
}

/* --- One row of a table --- */

static spw_status read_recompute(const spw_csv *csv, size_t row, spw_recompute *out) {
    static const char *const names[] = {"none", "moe_act", "moe"};
    const char *text = NULL;
    spw_status status = spw_csv_text(csv, row, "recompute", &text);
    if (status != SPW_OK) return status;
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *out = (spw_recompute)i;
        return SPW_OK;
    }
    return spw_measured_wrong(csv, row, "recompute", text);
}

static spw_status check_experts(const spw_csv *csv, size_t row, const spw_measured_shape *s) {
    if (s->ranks > 0 && s->top_k > 0 && s->experts >= s->top_k && s->experts % s->ranks == 0) return SPW_OK;
    return spw_measured_wrong(csv, row, "experts", spw_csv_field(csv, row, "experts"));
}

spw_status spw_measured_read_run(const spw_csv *csv, size_t row, spw_measured_run *out) {
    spw_measured_shape *b = &out->batch;
    const char *factor = NULL, *module = NULL;
    size_t padded = 0;
    spw_status status = SPW_OK;
    *out = (spw_measured_run){.sequential = false};
    SPW_TRY(spw_measured_read_count(csv, row, "gpus", SPW_MEASURED_RANKS, &b->ranks));
    SPW_TRY(spw_measured_read_count(csv, row, "layers", SPW_MEASURED_LAYERS, &b->layers));
    SPW_TRY(spw_measured_read_count(csv, row, "tokens_per_rank", 1 << 24, &b->tokens));
    SPW_TRY(spw_measured_read_count(csv, row, "top_k", MOST_EXPERTS, &b->top_k));
    SPW_TRY(spw_measured_read_count(csv, row, "experts", MOST_EXPERTS, &b->experts));
    SPW_TRY(spw_measured_read_count(csv, row, "hidden", 1 << 20, &b->hidden));
    SPW_TRY(spw_measured_read_count(csv, row, "ffn", 1 << 20, &b->ffn));
    SPW_TRY(spw_measured_read_count(csv, row, "pad_to_capacity", 1, &padded));
    SPW_TRY(read_recompute(csv, row, &out->recompute));
    SPW_TRY(spw_csv_text(csv, row, "capacity_factor", &factor));
    SPW_TRY(spw_csv_text(csv, row, "expert_module", &module));
    SPW_TRY(check_experts(csv, row, b));
    if (b->layers == 0) SPW_TRY(spw_measured_wrong(csv, row, "layers", spw_csv_field(csv, row, "layers")));
    char *end = NULL;
    const double value = spw_text_number(factor, &end);
    if (*end != '\0' || !(value >= 0.0 && value < 1e6))
        SPW_TRY(spw_measured_wrong(csv, row, "capacity_factor", factor));
    b->padded = padded == 1;
    b->capacity = spw_measured_capacity(b, value);
    out->sequential = strcmp(module, "sequential") == 0;

cleanup:
    return status;
}

/* Shapes that a table names instead of giving them; all ran on 4 ranks. */
static const struct {
    const char *name;
    size_t hidden, ffn, experts;
} models[] = {{"ds3-e64", 7168, 2048, 64}, {"ds3-e256", 7168, 2048, 256}, {"dsv2lite", 2048, 1408, 64}};

static spw_status read_shape(const spw_csv *csv, size_t row, spw_measured_shape *out, char *unknown,
                             size_t size) {
    const char *model = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_csv_text(csv, row, "model", &model));
    *out = (spw_measured_shape){.ranks = 4, .top_k = 8};
    if (spw_csv_field(csv, row, "hidden") != NULL) {
        SPW_TRY(spw_measured_read_count(csv, row, "ranks", SPW_MEASURED_RANKS, &out->ranks));
        SPW_TRY(spw_measured_read_count(csv, row, "hidden", 1 << 20, &out->hidden));
        SPW_TRY(spw_measured_read_count(csv, row, "ffn", 1 << 20, &out->ffn));
        SPW_TRY(spw_measured_read_count(csv, row, "experts", MOST_EXPERTS, &out->experts));
        SPW_TRY(spw_measured_read_count(csv, row, "top_k", MOST_EXPERTS, &out->top_k));
        SPW_TRY(check_experts(csv, row, out));
    }
    for (size_t i = 0; i < sizeof models / sizeof *models && out->hidden == 0; i++) {
        if (strcmp(model, models[i].name) != 0) continue;
        out->hidden = models[i].hidden;
        out->ffn = models[i].ffn;
        out->experts = models[i].experts;
    }
    if (out->hidden == 0)
        (void)snprintf(unknown, size,
                       "model \"%.40s\" is not known; give columns ranks, hidden, ffn, experts, top_k",
                       model);
    SPW_TRY(spw_measured_read_count(csv, row, "layers", SPW_MEASURED_LAYERS, &out->layers));
    SPW_TRY(spw_measured_read_count(csv, row, "tokens_per_rank", 1 << 24, &out->tokens));

cleanup:
    return status;
}

spw_status spw_measured_read_sequence(const spw_csv *csv, size_t row, spw_measured_run *out, char *unknown,
                                      size_t size) {
    const char *conf = spw_csv_field(csv, row, "allocator");
    spw_job_allocator allocator = {.expandable_segments = false};
    uint64_t limit = 0, total = 0;
    spw_status status = SPW_OK;
    *out = (spw_measured_run){.sequential = false};
    unknown[0] = '\0';
    SPW_TRY(read_shape(csv, row, &out->batch, unknown, size));
    if (spw_csv_field(csv, row, "device_limit_bytes") != NULL)
        SPW_TRY(spw_measured_read_list(csv, row, "device_limit_bytes", 1, &limit));
    if (spw_csv_field(csv, row, "device_total_bytes") != NULL)
        SPW_TRY(spw_measured_read_list(csv, row, "device_total_bytes", 1, &total));
    if (conf != NULL && spw_allocator_conf_parse("allocator", conf, &allocator) != SPW_OK)
        (void)snprintf(unknown, size, "%.200s", spw_last_error());
    out->settings = spw_allocator_conf_settings(&allocator, limit, total);

cleanup:
    return status;
}

bool spw_measured_runs_equal(const spw_measured_run *left, const spw_measured_run *right) {
    const spw_measured_shape *a = &left->batch, *b = &right->batch;
    return a->ranks == b->ranks && a->layers == b->layers && a->tokens == b->tokens && a->top_k == b->top_k &&
           a->experts == b->experts && a->hidden == b->hidden && a->ffn == b->ffn &&
           a->capacity == b->capacity && a->padded == b->padded && left->recompute == right->recompute &&
           left->sequential == right->sequential;
}
