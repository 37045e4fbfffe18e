#include "sim/result.h"

#include "base/memory.h"
#include "sim/result_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

spw_status spw_result_append(spw_result *result, spw_result_row **row) {
    if (result->rows == result->capacity) {
        spw_result_row *larger = NULL;
        size_t capacity = result->capacity == 0 ? 16 : result->capacity * 2;
        spw_status status = SPW_ALLOC(capacity, &larger);
        if (status != SPW_OK) return status;
        if (result->rows > 0) memcpy(larger, result->row, result->rows * sizeof *larger);
        spw_free(result->row);
        result->row = larger;
        result->capacity = capacity;
    }
    *row = &result->row[result->rows++];
    memset(*row, 0, sizeof **row);
    return SPW_OK;
}

void spw_result_clear(spw_result *result) {
    spw_free(result->row);
    *result = (spw_result){NULL, 0, 0};
}

/* Keys are those of the JSON row, flattened; a person sees the columns that have a heading. */
static const spw_column columns[] = {
    {"scheme", "scheme"},
    {"first_step", "step"},
    {"last_step", NULL},
    {"sequences_per_gpu", "seq/GPU"},
    {"verdict", "memory"},
    {"peak_bytes", "peak GiB"},
    {"budget_bytes", NULL},
    {"argument_bytes", "state"},
    {"temporary_bytes", "temp"},
    {"oom_probability", NULL},
    {"rows_max", "rows max"},
    {"rows_mean", "mean"},
    {"max_over_mean", "max/mean"},
    {"dispatch_bytes_per_gpu", "dispatch MB"},
    {"combine_bytes_per_gpu", "combine MB"},
    {"inter_node_bytes", "between nodes"},
    {"max_link_bytes", "busiest link"},
    {"step_bytes_per_gpu", "step GB"},
    {"assignments", NULL},
    {"dropped", NULL},
    {"drop_fraction", "dropped"},
    {"tokens_fully_dropped", NULL},
    {"evidence", NULL},
    {NULL, NULL},
};

static void add_steps(spw_table *t, const spw_result_row *r) {
    char text[64];
    (void)snprintf(text, sizeof text, r->steps == 1 ? "%" PRId64 : "%" PRId64 "-%" PRId64, r->first_step,
                   r->last_step);
    spw_table_shown(t, (uint64_t)r->first_step, text);
    spw_table_count(t, (uint64_t)r->last_step);
}

static void add_row(spw_table *t, const spw_result_row *r) {
    const spw_footprint *f = &r->footprint;
    const double fraction =
        r->drops.assignments > 0 ? (double)r->drops.dropped / (double)r->drops.assignments : 0.0;
    spw_table_text(t, r->scheme.text);
    add_steps(t, r);
    spw_table_count(t, r->sequences);
    spw_table_text(t, spw_verdict_name(spw_footprint_verdict(r->memory.max_bytes, f->budget_bytes)));
    spw_table_scaled(t, (double)r->memory.max_bytes, GIB, "%.2f");
    spw_table_count(t, f->budget_bytes);
    spw_table_scaled(t, (double)f->argument_bytes, GIB, "%.2f");
    spw_table_scaled(t, (double)f->temporary_bytes, GIB, "%.2f");
    spw_table_real(t, r->memory.oom_probability, NULL);
    spw_table_count(t, r->traffic.rows_max);
    spw_table_real(t, r->traffic.rows_mean, "%.0f");
    spw_table_real(t, r->traffic.rows_mean > 0.0 ? (double)r->traffic.rows_max / r->traffic.rows_mean : 0.0,
                   "%.2f");
    spw_table_scaled(t, r->traffic.dispatch_bytes_per_gpu, 1e6, "%.2f");
    spw_table_scaled(t, r->traffic.combine_bytes_per_gpu, 1e6, "%.2f");
    spw_table_scaled(t, r->traffic.inter_node_bytes, 1e6, "%.2f");
    spw_table_scaled(t, (double)r->traffic.max_link_bytes, 1e6, "%.2f");
    spw_table_scaled(t, r->traffic.step_bytes_per_gpu, 1e9, "%.3f");
    spw_table_count(t, r->drops.assignments);
    spw_table_count(t, r->drops.dropped);
    spw_table_scaled(t, fraction, 0.01, "%.2f %%");
    spw_table_count(t, r->drops.tokens_fully_dropped);
    spw_table_text(t, spw_match_name(r->match));
}

static void print_heading(const spw_result *result, const spw_run_settings *s, FILE *out) {
    const spw_job *job = s->job;
    if (s->trace != NULL) {
        fprintf(out, "trace     %s: %s, %zu steps x %zu layers, top-%zu of %zu", s->trace_path,
                s->trace->model_name[0] != '\0' ? s->trace->model_name : "no model named", s->trace->steps,
                s->trace->layers, s->trace->top_k, s->trace->experts);
        if (s->trace->ranks > 0) fprintf(out, ", %zu source ranks", s->trace->ranks);
        fprintf(out, "\n");
    }
    fprintf(out, "job       %s on %s, expert %zu x fsdp %zu, %zu tokens a sequence, remat %s\n",
            job->model.name, job->cluster.name, job->expert, job->fsdp, job->sequence_length,
            spw_remat_name(job->remat));
    fprintf(out, "memory    %.2f GiB a GPU may be used: %g of %.2f (%s)\n",
            (double)result->row[0].footprint.budget_bytes / GIB, job->memory_fraction,
            job->cluster.hbm_gib.value, spw_evidence_name(job->cluster.hbm_gib.evidence));
}

/* What holds for every row is said once. */
static void print_evidence(const spw_result *result, FILE *out) {
    bool same = true;
    for (size_t i = 1; i < result->rows; i++) same = same && result->row[i].match == result->row[0].match;
    if (same) {
        fprintf(out, "evidence  %s\n", spw_match_name(result->row[0].match));
    } else {
        for (size_t i = 0; i < result->rows; i++) {
            if (i > 0 && result->row[i].match == result->row[i - 1].match) continue;
            fprintf(out, "evidence  %s from %zu sequences per GPU\n", spw_match_name(result->row[i].match),
                    result->row[i].sequences);
        }
    }
    spw_assumptions all = {.count = 0};
    for (size_t i = 0; i < result->rows; i++) {
        for (size_t a = 0; a < result->row[i].assumptions.count; a++)
            spw_assume(&all, "%s", result->row[i].assumptions.text[a]);
    }
    for (size_t a = 0; a < all.count; a++) fprintf(out, "assumed   %s\n", all.text[a]);
}

spw_status spw_result_print(const spw_result *result, const spw_run_settings *settings, spw_format format,
                            FILE *out) {
    if (result->rows == 0) return spw_fail(SPW_EARG, "no scheme was asked for");
    if (format == SPW_FORMAT_JSON) return spw_result_print_json(result, settings, out);
    spw_table *table = NULL;
    spw_status status = spw_table_create(columns, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < result->rows; i++) add_row(table, &result->row[i]);
    if (format == SPW_FORMAT_TABLE) {
        print_heading(result, settings, out);
        print_evidence(result, out);
        fputc('\n', out);
    }
    status = spw_table_print(table, format, out);
    spw_table_destroy(table);
    return status;
}
