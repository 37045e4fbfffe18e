#include "sim/score/published/score_cell.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/job/recipe/maxtext_settings.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/compiled/compiled_layout.h"
#include "sim/memory/compiled/compiled_memory.h"
#include "sim/time/compiled/compiled_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

const char *spw_outcome_name(spw_outcome outcome) {
    static const char *const names[] = {"fits", "oom", ""};
    return names[outcome];
}

#define KERNEL_TEXT(name, text) text,
static const char *const kernel_names[] = {SPW_KERNEL_LIST(KERNEL_TEXT)};
const char *spw_kernel_name(spw_kernel_family family) {
    return (unsigned)family < SPW_KERNEL_COUNT ? kernel_names[family] : "?";
}

/* --- Stacks --- */

/* The time stacks that ship, or one. */
static spw_status open_times(const char *name, spw_score_stacks *out) {
    const char *const *presets = spw_time_stack_presets();
    spw_status status = SPW_OK;
    size_t count = 0;
    while (presets[count] != NULL) count++;
    if (name != NULL) count = 1;
    SPW_TRY(SPW_ALLOC(count, &out->time));
    out->times = count;
    for (size_t i = 0; i < count; i++)
        SPW_TRY(spw_time_stack_read(name != NULL ? name : presets[i], NULL, &out->time[i]));

cleanup:
    return status;
}

spw_status spw_score_stacks_open(const char *name, const char *time_name, spw_score_stacks *out) {
    spw_status status = SPW_OK;
    const char *const *presets = spw_stack_presets();
    *out = (spw_score_stacks){.forced = name != NULL, .time_forced = time_name != NULL};
    while (presets[out->count] != NULL) out->count++;
    if (name != NULL) out->count = 1;
    SPW_TRY(SPW_ALLOC(out->count, &out->stack));
    for (size_t i = 0; i < out->count; i++)
        SPW_TRY(spw_stack_read(name != NULL ? name : presets[i], NULL, &out->stack[i]));
    SPW_TRY(open_times(time_name, out));

cleanup:
    if (status != SPW_OK) spw_score_stacks_close(out);
    return status;
}

void spw_score_stacks_close(spw_score_stacks *stacks) {
    spw_free(stacks->stack);
    spw_free(stacks->time);
    *stacks = (spw_score_stacks){NULL, 0, false, NULL, 0, false};
}

/* `name`: as the row gives it, or the name of a forced stack. */
static const spw_time_stack *find_time(const spw_score_stacks *stacks, const char *name) {
    if (stacks->time_forced) return &stacks->time[0];
    for (size_t i = 0; i < stacks->times; i++) {
        if (strcmp(stacks->time[i].name, name) == 0) return &stacks->time[i];
    }
    return NULL;
}

static const spw_stack *find_stack(const spw_score_stacks *stacks, const char *name) {
    if (stacks->forced) return &stacks->stack[0];
    for (size_t i = 0; i < stacks->count; i++) {
        if (spw_stack_covers(&stacks->stack[i], name)) return &stacks->stack[i];
    }
    return NULL;
}

/* --- Fields --- */

typedef struct fields {
    const spw_csv *csv;
    size_t row;
} fields;

static spw_status text_field(const fields *f, const char *column, const char **out) {
    *out = spw_csv_field(f->csv, f->row, column);
    if (*out == NULL)
        return spw_fail(SPW_EFORMAT, "%s: no column '%s'; a table of runs has one", spw_csv_where(f->csv),
                        column);
    return SPW_OK;
}

/* A finite number of at least 0; NAN for an empty field, or when the column is not there and not needed. */
static spw_status number_field(const fields *f, const char *column, bool needed, double *out) {
    const char *text = spw_csv_field(f->csv, f->row, column);
    char *end = NULL;
    *out = NAN;
    if (text == NULL && needed) return text_field(f, column, &text);
    if (!needed && (text == NULL || text[0] == '\0')) return SPW_OK;
    *out = spw_text_number(text, &end);
    if (end == text || *end != '\0' || !(*out >= 0.0) || isinf(*out))
        return spw_fail(SPW_EFORMAT, "%s:%zu: %s '%.40s' is no number of at least 0", spw_csv_where(f->csv),
                        spw_csv_line(f->csv, f->row), column, text);
    return SPW_OK;
}

/* GiB of `NAME_gib`, or of `NAME_bytes`, as memory_analysis() gives them; NAN when the row has neither. */
static spw_status size_field(const fields *f, const char *gib, const char *bytes, double *out) {
    spw_status status = number_field(f, gib, false, out);
    if (status != SPW_OK || !isnan(*out)) return status;
    status = number_field(f, bytes, false, out);
    *out /= GIB;
    return status;
}

static spw_status count_field(const fields *f, const char *column, size_t most, size_t *out) {
    double value = 0.0;
    spw_status status = number_field(f, column, true, &value);
    if (status != SPW_OK) return status;
    if (value < 1.0 || value > (double)most || value != floor(value))
        return spw_fail(SPW_EFORMAT, "%s:%zu: %s %g is no whole number in [1, %zu]", spw_csv_where(f->csv),
                        spw_csv_line(f->csv, f->row), column, value, most);
    *out = (size_t)value;
    return SPW_OK;
}

static spw_status copy_field(const fields *f, const char *column, char *out, size_t size) {
    const char *text = NULL;
    spw_status status = text_field(f, column, &text);
    if (status != SPW_OK) return status;
    if (strlen(text) + 5 >= size)
        return spw_fail(SPW_EFORMAT, "%s:%zu: %s has more than %zu characters", spw_csv_where(f->csv),
                        spw_csv_line(f->csv, f->row), column, size - 6);
    spw_plain_text(text, out, size);
    return SPW_OK;
}

static spw_status read_status(const fields *f, spw_score_cell *out) {
    static const char *const words[] = {"fits", "oom", "compiled"};
    const char *text = NULL;
    spw_status status = text_field(f, "status", &text);
    if (status != SPW_OK) return status;
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        out->status = (spw_outcome)i;
        return SPW_OK;
    }
    return spw_fail(SPW_EFORMAT, "%s:%zu: status '%.40s' must be fits, oom or compiled",
                    spw_csv_where(f->csv), spw_csv_line(f->csv, f->row), text);
}

/* A row of a profile: the family, and its seconds in one step. `profile_share` is the share of the kernels that the
 * profile holds. */
static spw_status read_kernel(const fields *f, spw_score_cell *out) {
    const char *family = spw_csv_field(f->csv, f->row, "kernel_family");
    double share = NAN;
    spw_status status = SPW_OK;
    if (family == NULL || family[0] == '\0') return SPW_OK;
    for (int i = 1; i < SPW_KERNEL_COUNT; i++) {
        if (strcmp(family, kernel_names[i]) == 0) out->family = (spw_kernel_family)i;
    }
    if (out->family == SPW_KERNEL_NONE)
        return spw_fail(SPW_EFORMAT,
                        "%s:%zu: kernel_family '%.40s' is none of products, attention, movements, "
                        "scatter_adds, collectives, exchanges or two of them with a '+'",
                        spw_csv_where(f->csv), spw_csv_line(f->csv, f->row), family);
    SPW_TRY(number_field(f, "kernel_s", true, &out->kernel_s));
    SPW_TRY(number_field(f, "profile_share", true, &share));
    if (!(share > 0.0) || share > 1.0 || !(out->kernel_s > 0.0))
        return spw_fail(SPW_EFORMAT, "%s:%zu: kernel_s must be above 0, profile_share in (0, 1]",
                        spw_csv_where(f->csv), spw_csv_line(f->csv, f->row));
    out->kernel_s /= share;
    out->status = SPW_OUTCOME_UNKNOWN; /* the run is in another table */

cleanup:
    return status;
}

/* Sizes between blanks, "14x5 12.6875": so many values of so many GiB. */
static spw_status read_peaks(const fields *f, spw_score_cell *out) {
    const char *text = spw_csv_field(f->csv, f->row, "peak_gib");
    for (const char *at = text; at != NULL && *at != '\0';) {
        char *end = NULL;
        const double gib = strtod(at, &end);
        unsigned long times = 1;
        bool good = end != at && gib > 0.0 && isfinite(gib) && *at != ' ';
        if (good && *end == 'x') {
            at = end + 1;
            times = strtoul(at, &end, 10);
            good = end != at && *at >= '1' && *at <= '9';
        }
        good = good && (*end == ' ' || *end == '\0') && times <= SPW_CELL_PEAKS - out->peaks;
        if (!good)
            return spw_fail(
                SPW_EFORMAT,
                "%s:%zu: peak_gib '%.40s' must be sizes above 0 between blanks, as '14x5 12.7', %d at most",
                spw_csv_where(f->csv), spw_csv_line(f->csv, f->row), text, SPW_CELL_PEAKS);
        for (unsigned long i = 0; i < times; i++) out->peak_gib[out->peaks++] = gib;
        at = *end == ' ' ? end + 1 : end;
    }
    return SPW_OK;
}

/* --- The job of a row --- */

/* How a step is cut, where a table says it; its sequences_per_gpu is MaxText's per_device_batch_size, of all GPUs and of one
 * accumulation. */
static spw_status read_parts(const fields *f, spw_job *job) {
    size_t micro_batches = 1, blocks = 0;
    const char *text = spw_csv_field(f->csv, f->row, "micro_batches");
    spw_status status = SPW_OK;
    if (text != NULL && text[0] != '\0') SPW_TRY(count_field(f, "micro_batches", 65536, &micro_batches));
    text = spw_csv_field(f->csv, f->row, "virtual_stages");
    if (text != NULL && text[0] != '\0')
        SPW_TRY(count_field(f, "virtual_stages", SPW_MODEL_MAX_LAYERS, &blocks));
    job->virtual_stages = blocks;
    if (micro_batches == 1) return SPW_OK;
    job->micro_batches = micro_batches;
    job->sequences_per_gpu[0] *= job->pipeline > 1 ? job->pipeline : micro_batches;

cleanup:
    return status;
}

/* A table without the column is of bf16 throughout, as all were before there was one. */
static spw_status read_precision(const fields *f, spw_score_cell *out) {
    const char *text = spw_csv_field(f->csv, f->row, "precision");
    const char *note = spw_csv_field(f->csv, f->row, "note");
    (void)snprintf(out->precision, sizeof out->precision, "%s",
                   text != NULL && text[0] != '\0' ? text : "bf16");
    if (text == NULL && note != NULL) spw_maxtext_precision(note, out->precision, sizeof out->precision);
    const char *word = out->precision;
    if (spw_precision_choose(&out->job, word)) return SPW_OK;
    return spw_fail(SPW_EFORMAT,
                    "%s:%zu: precision '%.40s'; write bf16, fp32, mixed or framework, and "
                    "single kinds behind it, as in 'bf16 weights=fp32'",
                    spw_csv_where(f->csv), spw_csv_line(f->csv, f->row), word);
}

/* Numbers of the job and of the outcome; what is wrong here is an error, not a row to skip. */
static spw_status read_numbers(const fields *f, spw_score_cell *out, double *fraction, double *pool_gib) {
    spw_status status = SPW_OK;
    spw_job *job = &out->job;
    SPW_TRY(count_field(f, "expert_parallel", 65536, &job->expert));
    SPW_TRY(count_field(f, "fsdp", 65536, &job->fsdp));
    SPW_TRY(count_field(f, "pipeline", SPW_MODEL_MAX_LAYERS, &job->pipeline));
    SPW_TRY(count_field(f, "sequences_per_gpu", 1 << 20, &job->sequences_per_gpu[0]));
    SPW_TRY(count_field(f, "sequence_length", 1 << 24, &job->sequence_length));
    SPW_TRY(read_parts(f, job));
    SPW_TRY(number_field(f, "memory_fraction", false, fraction));
    SPW_TRY(number_field(f, "pool_gib", false, pool_gib));
    SPW_TRY(size_field(f, "temporary_gib", "temporary_bytes", &out->temporary_gib));
    SPW_TRY(size_field(f, "argument_gib", "argument_bytes", &out->argument_gib));
    SPW_TRY(number_field(f, "total_gib", false, &out->total_gib));
    if (out->temporary_gib == 0.0 || out->total_gib == 0.0 || *fraction > 1.0 || *fraction == 0.0)
        return spw_fail(SPW_EFORMAT,
                        "%s:%zu: a GiB figure or memory_fraction is 0, or memory_fraction is over 1",
                        spw_csv_where(f->csv), spw_csv_line(f->csv, f->row));
    SPW_TRY(number_field(f, "tokens_per_s_per_gpu", false, &out->tokens_per_s_per_gpu));
    if (out->tokens_per_s_per_gpu == 0.0)
        return spw_fail(SPW_EFORMAT,
                        "%s:%zu: tokens_per_s_per_gpu is 0; leave it empty when it was not published",
                        spw_csv_where(f->csv), spw_csv_line(f->csv, f->row));
    const char *dataset = spw_csv_field(f->csv, f->row, "dataset");
    out->real_text = dataset != NULL && dataset[0] != '\0' && strcmp(dataset, "synthetic") != 0;
    SPW_TRY(read_peaks(f, out));
    SPW_TRY(read_status(f, out));
    SPW_TRY(read_kernel(f, out));
    job->batches = 1;
    job->tensor = 1;
    SPW_TRY(read_precision(f, out));

cleanup:
    return status;
}

/* Names: what is not known makes the row one to skip. */
static spw_status read_names(const fields *f, const spw_score_stacks *stacks, spw_score_cell *out) {
    spw_status status = SPW_OK;
    const char *model = NULL, *cluster = NULL, *remat = NULL, *note = spw_csv_field(f->csv, f->row, "note");
    SPW_TRY(text_field(f, "model", &model));
    SPW_TRY(text_field(f, "cluster", &cluster));
    SPW_TRY(text_field(f, "remat", &remat));
    out->stack = find_stack(stacks, out->stack_name);
    if (out->stack == NULL) {
        (void)snprintf(out->skipped, sizeof out->skipped, "stack '%.64s' has no coefficients",
                       out->stack_name);
        return SPW_OK;
    }
    status = spw_model_read(model, NULL, &out->job.model);
    if (status == SPW_OK) status = spw_cluster_read(cluster, NULL, &out->job.cluster);
    out->job.remat = SPW_REMAT_FULL;
    if (status == SPW_OK && note != NULL) status = spw_maxtext_settings_apply(note, &out->job);
    if (status == SPW_OK && (strcmp(remat, "custom") != 0 || out->job.remat == SPW_REMAT_FULL))
        status = spw_remat_parse(remat, &out->job.remat);
    if (status == SPW_OK) status = spw_scheme_parse(out->scheme_text, &out->scheme);
    if (status == SPW_OK) status = spw_compiled_layout_settle(out->stack, &out->scheme);
    if (status == SPW_ECONFIG || status == SPW_EIO) {
        (void)snprintf(out->skipped, sizeof out->skipped, "%s", spw_last_error());
        return SPW_OK;
    }

cleanup:
    return status;
}

static spw_status check_job(spw_score_cell *out) {
    const spw_layer_shape shape = spw_layer_shape_of(&out->job, out->job.sequences_per_gpu[0]);
    spw_status status = spw_job_check(&out->job);
    if (status == SPW_OK) status = spw_scheme_check(&out->scheme, &shape);
    if (status == SPW_OK) status = spw_compiled_memory_check(&out->job, &out->scheme);
    if (status == SPW_ENOMEM) return status; /* says nothing of the row */
    if (status != SPW_OK) (void)snprintf(out->skipped, sizeof out->skipped, "%s", spw_last_error());
    return SPW_OK;
}

spw_status spw_score_cell_read(const spw_csv *csv, size_t row, const spw_score_stacks *stacks,
                               spw_score_cell *out) {
    spw_status status = SPW_OK;
    const fields f = {csv, row};
    const char *where = spw_csv_where(csv), *slash = strrchr(where, '/');
    double fraction = NAN, pool_gib = NAN;
    memset(out, 0, sizeof *out);
    (void)snprintf(out->table, sizeof out->table, "%s", slash != NULL ? slash + 1 : where);
    out->line = spw_csv_line(csv, row);
    SPW_TRY(copy_field(&f, "id", out->id, sizeof out->id));
    SPW_TRY(copy_field(&f, "stack", out->stack_name, sizeof out->stack_name));
    SPW_TRY(copy_field(&f, "scheme", out->scheme_text, sizeof out->scheme_text));
    SPW_TRY(read_numbers(&f, out, &fraction, &pool_gib));
    SPW_TRY(read_names(&f, stacks, out));
    if (out->skipped[0] != '\0') goto cleanup;
    out->job.memory_fraction = isnan(fraction) ? 0.93 : fraction;
    SPW_TRY(check_job(out));
    out->budget_bytes = out->job.memory_fraction * out->job.cluster.hbm_gib.value * GIB;
    if (!isnan(pool_gib)) out->budget_bytes = pool_gib * GIB;
    out->pool_bytes = out->budget_bytes;
    out->time = find_time(stacks, stacks->forced ? out->stack->name : out->stack_name);
    if (out->skipped[0] == '\0' && !spw_compiled_time_covers(&out->job, &out->scheme)) out->time = NULL;

cleanup:
    return status;
}
