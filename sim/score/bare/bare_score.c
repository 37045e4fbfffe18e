#include "sim/score/bare/bare_score.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/replay/replay_time.h"
#include "sim/schemes/scheme.h"
#include "sim/score/score_tables.h"
#include "sim/statistics/quantiles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SIZE = 1 << 24, TEXT = 1024, NUMBER = 32, GATED = 3, PLAIN = 2 };
static const double MS = 1e-3, GIB = 1024.0 * 1024.0 * 1024.0;

/* --- Fields --- */

typedef struct sizes {
    size_t expert, hidden, ffn, experts, top_k, groups, groups_kept, matrices, shared, sequence, micro_batch;
} sizes;

static spw_status read_number(const spw_csv *csv, size_t row, const char *column, double least, double most,
                              double *out) {
    const char *text = NULL;
    char *end = NULL, shown[48];
    const spw_status status = spw_csv_text(csv, row, column, &text);
    if (status != SPW_OK) return status;
    *out = spw_text_number(text, &end);
    if (end != text && *end == '\0' && *out >= least && *out <= most) return SPW_OK;
    spw_plain_text(text, shown, sizeof shown);
    return spw_fail(SPW_ECONFIG, "%s:%zu: %s '%s' is no number in [%g, %g]", spw_csv_where(csv),
                    spw_csv_line(csv, row), column, shown, least, most);
}

static spw_status read_sizes(const spw_csv *csv, size_t row, sizes *out) {
    const struct {
        const char *column;
        double least;
        size_t *value;
    } columns[] = {{"expert_parallel", 1.0, &out->expert},
                   {"hidden", 1.0, &out->hidden},
                   {"ffn", 1.0, &out->ffn},
                   {"experts", 1.0, &out->experts},
                   {"top_k", 1.0, &out->top_k},
                   {"groups", 1.0, &out->groups},
                   {"groups_kept", 1.0, &out->groups_kept},
                   {"matrices_per_expert", 1.0, &out->matrices},
                   {"shared_experts", 0.0, &out->shared},
                   {"sequence_length", 1.0, &out->sequence},
                   {"micro_batch", 1.0, &out->micro_batch}};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        double value = 0.0;
        const spw_status status =
            read_number(csv, row, columns[i].column, columns[i].least, MOST_SIZE, &value);
        if (status != SPW_OK) return status;
        if (value != floor(value))
            return spw_fail(SPW_ECONFIG, "%s:%zu: %s %g is no whole number", spw_csv_where(csv),
                            spw_csv_line(csv, row), columns[i].column, value);
        *columns[i].value = (size_t)value;
    }
    return SPW_OK;
}

/* --- The job --- */

/* What a dispatcher and a recipe are: a scheme, and the rows to which its products are padded. */
static const struct {
    const char *word, *scheme;
} dispatchers[] = {{"alltoall", "megatron-alltoall"},
                   {"allgather", "megatron-allgather"},
                   {"deepep", "megatron-flex"},
                   {"hybridep", "megatron-flex:backend=hybridep"}};
static const struct {
    const char *word, *align;
    spw_fp8_recipe recipe;
} recipes[] = {{"none", NULL, SPW_FP8_NONE},
               {"mxfp8", "align=32", SPW_FP8_MXFP8},
               {"blockwise", "align=16", SPW_FP8_BLOCKWISE},
               {"tensorwise", "align=16", SPW_FP8_TENSORWISE},
               {"delayed", "align=16", SPW_FP8_DELAYED}};

static spw_status choose_scheme(spw_bare_row *row, spw_fp8_recipe *recipe) {
    const char *scheme = NULL, *align = NULL;
    bool known = false;
    for (size_t i = 0; i < sizeof dispatchers / sizeof *dispatchers; i++)
        if (strcmp(dispatchers[i].word, row->dispatcher) == 0) scheme = dispatchers[i].scheme;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        if (strcmp(recipes[i].word, row->recipe) != 0) continue;
        known = true;
        align = recipes[i].align;
        *recipe = recipes[i].recipe;
    }
    if (scheme == NULL)
        return spw_fail(SPW_ECONFIG, "dispatcher '%.40s' is none of alltoall, allgather, deepep, hybridep",
                        row->dispatcher);
    if (!known)
        return spw_fail(SPW_ECONFIG, "recipe '%.40s' is none of none, mxfp8, blockwise, tensorwise, delayed",
                        row->recipe);
    (void)snprintf(row->scheme, sizeof row->scheme, "%s%s%s", scheme,
                   align == NULL                 ? ""
                   : strchr(scheme, ':') != NULL ? ","
                                                 : ":",
                   align != NULL ? align : "");
    return SPW_OK;
}

/* Sizes of attention, which a bare layer has not, are any. */
static spw_status make_model(const sizes *s, const spw_bare_row *row, spw_model *out) {
    char text[TEXT];
    (void)snprintf(
        text, sizeof text,
        "{\"model_type\": \"generic\", \"num_hidden_layers\": 1, \"hidden_size\": %zu, \"vocab_size\": 1024, "
        "\"num_attention_heads\": 1, \"head_dim\": 128, \"num_experts\": %zu, \"num_experts_per_tok\": %zu, "
        "\"moe_intermediate_size\": %zu, \"n_group\": %zu, \"topk_group\": %zu, "
        "\"tie_word_embeddings\": false}",
        s->hidden, s->experts, s->top_k, row->asked_ffn, s->groups, s->groups_kept);
    return spw_model_parse(row->table, text, strlen(text), out);
}

static spw_status make_job(const char *cluster, const sizes *s, spw_bare_row *row, spw_model *model,
                           spw_job *job, spw_scheme *scheme) {
    char sequence[NUMBER], sequences[NUMBER];
    spw_fp8_recipe recipe = SPW_FP8_NONE;
    spw_status status = SPW_OK;
    (void)snprintf(sequence, sizeof sequence, "%zu", s->sequence);
    (void)snprintf(sequences, sizeof sequences, "%zu", s->micro_batch);
    const spw_job_override keys[] = {
        {"model", "scratch-moe-e64", "model"}, /* the row's own comes in its place */
        {"cluster", cluster, "cluster"},
        {"parallel.expert", "1", "expert_parallel"},
        {"batch.sequence_length", sequence, "sequence_length"},
        {"batch.sequences_per_gpu", sequences, "micro_batch"},
        {"optimizer", "distributed", "optimizer"},
        {"precision.gradients", "bf16", "gradients"},
        {"remat", "none", "remat"}};
    if (s->matrices != GATED && s->matrices != PLAIN)
        return spw_fail(SPW_ECONFIG, "experts of %zu matrices; known are 3 (gated) and 2", s->matrices);
    if (s->shared != 0)
        return spw_fail(SPW_ECONFIG, "%zu shared experts, which bare layers have not", s->shared);
    row->asked_ffn = (s->ffn * s->matrices + GATED / 2) / GATED;
    SPW_TRY(choose_scheme(row, &recipe));
    SPW_TRY(make_model(s, row, model));
    SPW_TRY(spw_job_read_with(NULL, keys, sizeof keys / sizeof *keys, job));
    const size_t gpus = job->cluster.nodes * job->cluster.gpus_per_node;
    if (gpus % s->expert != 0 || s->experts % s->expert != 0)
        return spw_fail(SPW_ECONFIG, "expert_parallel %zu divides not both %zu GPUs and %zu experts",
                        s->expert, gpus, s->experts);
    job->model = *model; /* and what reading would have refused of the other one */
    job->part = SPW_PART_EXPERT_LAYERS;
    job->layers = 1;
    job->expert = s->expert;
    job->fsdp = gpus / s->expert;
    SPW_TRY(spw_job_check(job));
    SPW_TRY(spw_scheme_parse(row->scheme, scheme));
    SPW_TRY(spw_footprint_check(job, scheme));
    job->precision.recipe =
        recipe; /* checked without it: the memory of bare layers in fp8 is not described, their time is */

cleanup:
    return status;
}

/* --- A row --- */

typedef struct workplace {
    const char *stack;
    spw_model model;
    spw_job job;
    spw_scheme scheme;
    spw_software software;
    spw_footprint footprint;
} workplace;

static spw_status choose_software(workplace *w) {
    if (w->stack != NULL) return spw_software_read(w->stack, &w->software);
    w->job.part = SPW_PART_WHOLE; /* the same kernels */
    const spw_status status = spw_software_newest(&w->job, false, true, &w->software);
    w->job.part = SPW_PART_EXPERT_LAYERS;
    return status;
}

static spw_status predict(workplace *w, const sizes *s, spw_bare_row *row) {
    spw_point point = spw_point_of(&w->job, &w->scheme, w->job.sequences_per_gpu[0]);
    spw_replay_time time = {.steps = 0};
    spw_status status = SPW_OK;
    if (s->groups > 1) point.shape.groups = s->groups, point.shape.groups_kept = s->groups_kept;
    SPW_TRY(spw_scheme_check(&w->scheme, &point.shape));
    SPW_TRY(choose_software(w));
    (void)snprintf(row->stack, sizeof row->stack, "%s", w->software.names);
    if (w->job.precision.recipe == SPW_FP8_NONE) {
        SPW_TRY(spw_footprint_compute(&point, NULL, &w->footprint));
        row->peak_gib = (double)w->footprint.peak_bytes / GIB;
    }
    const spw_fits fits = {.megatron = w->software.megatron ? &w->software.megatron_coefficients : NULL};
    const spw_replay_time_request request = {
        .megatron = fits.megatron, .point = point, .layers = 1, .groups = 1, .micro_batches = 1};
    if (!spw_replay_time_covers(&request))
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s", spw_why_no_time(&w->job, &w->scheme, &fits)));
    SPW_TRY(spw_replay_time_create(&request, &time));
    SPW_TRY(spw_replay_time_balanced(&time, &row->time));

cleanup:
    spw_replay_time_destroy(&time);
    return status;
}

static spw_status read_row(const spw_csv *csv, size_t at, workplace *w, spw_bare_row *row) {
    const char *cluster = NULL;
    double forward_ms = 0.0, backward_ms = 0.0;
    sizes s = {.expert = 0};
    spw_status status = SPW_OK;
    *row = (spw_bare_row){.table = spw_csv_where(csv), .line = spw_csv_line(csv, at), .peak_gib = NAN};
    SPW_TRY(spw_csv_text(csv, at, "id", &row->id));
    SPW_TRY(spw_csv_text(csv, at, "cluster", &cluster));
    SPW_TRY(spw_csv_text(csv, at, "dispatcher", &row->dispatcher));
    SPW_TRY(spw_csv_text(csv, at, "recipe", &row->recipe));
    SPW_TRY(read_sizes(csv, at, &s));
    SPW_TRY(read_number(csv, at, "forward_ms", 1e-6, 1e9, &forward_ms));
    SPW_TRY(read_number(csv, at, "backward_ms", 1e-6, 1e9, &backward_ms));
    SPW_TRY(read_number(csv, at, "peak_allocated_gib", 1e-6, 1e9, &row->true_peak_gib));
    row->true_step_s = (forward_ms + backward_ms) * MS;
    row->ffn = row->asked_ffn = s.ffn;
    status = make_job(cluster, &s, row, &w->model, &w->job, &w->scheme);
    if (status == SPW_OK) status = predict(w, &s, row);
    if (status != SPW_ECONFIG && status != SPW_EARG && status != SPW_EIO) goto cleanup;
    (void)snprintf(row->skipped, sizeof row->skipped, "%s", spw_last_error());
    status = SPW_OK;

cleanup:
    return status;
}

/* --- All rows --- */

spw_status spw_bare_score_open(const char *const *tables, size_t count, const char *stack,
                               spw_bare_score *out) {
    workplace *w = NULL;
    size_t rows = 0;
    spw_status status = SPW_OK;
    *out = (spw_bare_score){.rows = 0};
    SPW_TRY(SPW_ALLOC(1, &w));
    SPW_TRY(SPW_ALLOC(count, &out->csv));
    w->stack = stack;
    SPW_TRY(spw_score_read_tables(tables, count, out->csv, &out->tables, &rows));
    SPW_TRY(SPW_ALLOC(rows, &out->row));
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < spw_csv_rows(out->csv[t]); i++)
            SPW_TRY(read_row(out->csv[t], i, w, &out->row[out->rows++]));

cleanup:
    spw_free(w);
    if (status != SPW_OK) spw_bare_score_close(out);
    return status;
}

void spw_bare_score_close(spw_bare_score *score) {
    for (size_t t = 0; t < score->tables; t++) spw_csv_close(score->csv[t]);
    spw_free(score->csv);
    spw_free(score->row);
    *score = (spw_bare_score){.rows = 0};
}

double spw_bare_step_error(const spw_bare_row *row) {
    return row->time.components > 0 ? row->time.step_s / row->true_step_s - 1.0 : NAN;
}
double spw_bare_peak_error(const spw_bare_row *row) { return row->peak_gib / row->true_peak_gib - 1.0; }

bool spw_bare_is_inside(const spw_bare_row *row) {
    return row->time.components > 0 && row->true_step_s >= row->time.low_s &&
           row->true_step_s <= row->time.high_s;
}

spw_status spw_bare_summarise(const spw_bare_score *score, spw_bare_summary *out) {
    double *width = NULL;
    const spw_status status = SPW_ALLOC(score->rows, &width);
    *out = (spw_bare_summary){.skipped = 0};
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < score->rows; i++) {
        const spw_bare_row *row = &score->row[i];
        const double error = spw_bare_step_error(row);
        out->skipped += row->skipped[0] != '\0';
        if (isnan(error)) continue;
        width[out->steps++] = row->time.high_s / row->time.low_s;
        out->inside += spw_bare_is_inside(row);
        out->step_mape += fabs(error);
        out->step_bias += error;
        out->step_max = fmax(out->step_max, fabs(error));
    }
    const double steps = out->steps > 0 ? (double)out->steps : NAN;
    out->step_mape /= steps;
    out->step_bias /= steps;
    out->step_max = out->steps > 0 ? out->step_max : NAN;
    out->width_median = spw_quantile(width, out->steps, 0.5);
    spw_free(width);
    return SPW_OK;
}
