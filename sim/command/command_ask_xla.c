#include "sim/command/command.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/command/ask_xla.h"
#include "sim/command/job_options.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/software.h"
#include "sim/memory/allocator/device_budget.h"
#include "sim/score/published/score.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

enum {
    OPTION_PYTHON = SPW_OPTION_OWN,
    OPTION_MAXTEXT,
    OPTION_OUTPUT,
    OPTION_ID,
    OPTION_STACK,
    STACK_NAME = 4 * SPW_ASKED_WORD,
    TABLE_BYTES = 16 << 20
};

typedef struct ask_options {
    spw_job_options job;
    const char *python, *maxtext, *output, *id, *stack;
    spw_asked asked;
    char own_id[SPW_CELL_TEXT], compiler[STACK_NAME]; /* of the row */
    char predicted_by[STACK_NAME];
} ask_options;

static const struct argp_option own_options[] = {
    {"python", OPTION_PYTHON, "PATH", 0, "a Python that has JAX for CUDA, and MaxText (default: python3)", 0},
    {"maxtext", OPTION_MAXTEXT, "DIR", 0, "a checkout of MaxText (default: the package that this Python has)",
     0},
    {"output", OPTION_OUTPUT, "TABLE.csv", SPW_OPTION_WRITES,
     "the table that the row is added to, for score and calibrate (default: asked_xla.csv)", 0},
    {"id", OPTION_ID, "NAME", 0, "of the row (default: model, scheme, sizes)", 0},
    {"stack", OPTION_STACK, "NAME|FILE", 0,
     "predict with this stack (default: that of the compiler and of MaxText's tree, or the nearest)", 0},
    {0},
};

static error_t ask_xla_parse(int key, char *text, struct argp_state *state) {
    ask_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->job; return 0;
    case OPTION_PYTHON: o->python = text; return 0;
    case OPTION_MAXTEXT: o->maxtext = text; return 0;
    case OPTION_OUTPUT: o->output = text; return 0;
    case OPTION_ID: o->id = text; return 0;
    case OPTION_STACK: o->stack = text; return 0;
    case ARGP_KEY_ARG:
        if (o->job.job_path != NULL) argp_error(state, "'%s' is a second job", text);
        o->job.job_path = text;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&spw_job_argp, 0, NULL, 0}, {0}};
static const struct argp argp = {
    .options = own_options,
    .parser = ask_xla_parse,
    .args_doc = "[JOB.yaml] --scheme S",
    .doc = "Compiles the job's MaxText program with XLA for GPUs that need not be there, and prints what XLA "
           "says of its memory beside our prediction; the row goes into a table. Nothing is executed; a CPU "
           "and some minutes are enough. Of MaxText's settings the program gets those that plan --flags "
           "maxtext writes. How to install what it needs: docs/ask_xla.md.",
    .children = children,
};

/* --- The row --- */

static const spw_column row_columns[] = {
    {"id", "id"},
    {"model", "model"},
    {"cluster", "cluster"},
    {"stack", "stack"},
    {"scheme", "scheme"},
    {"expert_parallel", "EP"},
    {"fsdp", "fsdp"},
    {"pipeline", "pipeline"},
    {"micro_batches", "micro-batches"},
    {"virtual_stages", "rounds"},
    {"sequences_per_gpu", "sequences"},
    {"sequence_length", "length"},
    {"remat", "remat"},
    {"precision", "precision"},
    {"pool_gib", "pool"},
    {"status", "status"},
    {"argument_bytes", "arguments"},
    {"temporary_bytes", "temporaries"},
    {"attention", "attention"},
    {"peak_gib", "peak"},
    {NULL, NULL},
};

/* The word of a table's column for the formats of the job; NULL: none. */
static const char *precision_word(const spw_job *job) {
    static const char *const words[] = {"bf16",
                                        "framework",
                                        "fp32",
                                        "bf16 weights=fp32",
                                        "bf16 optimizer=fp32",
                                        "bf16 gradients=fp32",
                                        "bf16 gradients=fp32 optimizer=fp32"};
    const char *found = NULL;
    spw_job *copy = NULL;
    if (SPW_ALLOC(1, &copy) != SPW_OK) return NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words && found == NULL; i++) {
        const spw_precision *a = &job->precision, *b = &copy->precision;
        *copy = *job;
        if (spw_precision_choose(copy, words[i]) && a->weights == b->weights &&
            a->gradients == b->gradients && a->optimizer == b->optimizer && a->activations == b->activations)
            found = words[i];
    }
    spw_free(copy);
    return found;
}

/* A table counts MaxText's per_device_batch_size, of all GPUs and of one accumulation (score_cell.c, read_parts). */
static size_t row_sequences(const spw_job *job) {
    if (job->micro_batches <= 1) return job->sequences_per_gpu[0];
    return job->sequences_per_gpu[0] / (job->pipeline > 1 ? job->pipeline : job->micro_batches);
}

static spw_status print_row(const ask_options *o, const char *precision, FILE *out) {
    const spw_job *job = &o->job.job;
    const size_t micro_batches = spw_job_micro_batches(job);
    const spw_device_budget budget = spw_device_budget_of(job, &o->job.scheme[0]);
    spw_table *t = NULL;
    spw_status status = spw_table_create(row_columns, &t);
    if (status != SPW_OK) return status;
    spw_table_text(t, o->own_id);
    spw_table_text(t, job->model_text);
    spw_table_text(t, job->cluster_text);
    spw_table_text(t, o->compiler);
    spw_table_text(t, o->job.scheme[0].text);
    spw_table_count(t, job->expert);
    spw_table_count(t, job->fsdp);
    spw_table_count(t, job->pipeline);
    spw_table_count(t, micro_batches);
    spw_table_count(t, job->virtual_stages > 0 ? job->virtual_stages : 1);
    spw_table_count(t, row_sequences(job));
    spw_table_count(t, job->sequence_length);
    spw_table_text(t, spw_remat_name(job->remat));
    spw_table_text(t, precision);
    spw_table_real(t, (double)spw_device_budget_bytes(&budget) / GIB, NULL);
    spw_table_text(t, "compiled");
    spw_table_real(t, o->asked.argument_bytes, NULL);
    spw_table_real(t, o->asked.temporary_bytes, NULL);
    spw_table_text(t, o->asked.attention);
    spw_table_text(t, o->asked.peak_gib);
    status = spw_table_print(t, SPW_FORMAT_CSV, out);
    spw_table_destroy(t);
    return status;
}

/* The table as it is, "" where there is none yet. Not as an input of the run: the row is added to it. */
static spw_status read_table(const char *path, char **out) {
    FILE *file = fopen(path, "rbe");
    spw_status status = SPW_OK;
    if (file == NULL && errno != ENOENT) return spw_fail(SPW_EIO, "%s: %s", path, strerror(errno));
    SPW_TRY(SPW_ALLOC(TABLE_BYTES, out));
    if (file == NULL) return SPW_OK; /* an empty table */
    (*out)[fread(*out, 1, TABLE_BYTES - 1, file)] = '\0';
    if (ferror(file) || !feof(file))
        SPW_TRY(spw_fail(SPW_EIO, "%s: no table of less than %d MiB", path, TABLE_BYTES >> 20));

cleanup:
    if (file != NULL) (void)fclose(file);
    return status;
}

static spw_status check_header(const char *path, const char *table) {
    const char *at = table;
    if (at == NULL || *at == '\0') return SPW_OK;
    for (size_t i = 0; row_columns[i].key != NULL; i++) {
        const size_t length = strcspn(at, ",\r\n");
        if (strlen(row_columns[i].key) != length || strncmp(at, row_columns[i].key, length) != 0)
            return spw_fail(SPW_EARG,
                            "%s: column %zu is '%.*s', and '%s' in a table of ask-xla; name another file "
                            "with --output, score and calibrate take several",
                            path, i + 1, (int)(length < 40 ? length : 40), at, row_columns[i].key);
        at += length + (at[length] == ',' ? 1 : 0);
    }
    return SPW_OK;
}

typedef struct written {
    const char *table; /* before */
    const char *row;   /* with a header */
} written;

static spw_status write_table(FILE *out, const void *what) {
    const written *w = what;
    const size_t used = strlen(w->table);
    const char *line = strchr(w->row, '\n');
    fprintf(out, "%s%s%s", w->table, used > 0 && w->table[used - 1] != '\n' ? "\n" : "",
            used > 0 && line != NULL ? line + 1 : w->row);
    return SPW_OK;
}

static spw_status add_row(const ask_options *o, const char *precision, const char *table) {
    char *row = NULL;
    size_t bytes = 0;
    spw_status status = SPW_OK;
    FILE *out = open_memstream(&row, &bytes);
    if (out == NULL) return spw_fail(SPW_ENOMEM, "out of memory for a row");
    status = print_row(o, precision, out);
    if (fclose(out) != 0 && status == SPW_OK) status = spw_fail(SPW_ENOMEM, "out of memory for a row");
    const written w = {table, row};
    if (status == SPW_OK) status = spw_file_print(o->output, write_table, &w);
    free(row);
    return status;
}

/* --- Which stack predicts --- */

static bool is_stack(const char *name, char out[STACK_NAME]) {
    spw_stack stack;
    if (spw_stack_read(name, NULL, &stack) != SPW_OK) return false;
    (void)snprintf(out, STACK_NAME, "%s", stack.name);
    return true;
}

/* The stack of this tree and compiler; of this version of MaxText; of this compiler, or of one whose version has less numbers. */
static spw_status choose_stack(ask_options *o) {
    char name[STACK_NAME];
    spw_software *software = NULL;
    if (o->stack != NULL) {
        (void)snprintf(o->predicted_by, sizeof o->predicted_by, "%s", o->stack);
        return SPW_OK;
    }
    if (is_stack(o->compiler, o->predicted_by)) return SPW_OK;
    (void)snprintf(name, sizeof name, "maxtext-%s", o->asked.maxtext);
    if (is_stack(name, o->predicted_by)) return SPW_OK;
    (void)snprintf(name, sizeof name, "xla-cuda-%s", o->asked.jax);
    for (char *dot = strchr(name, '\0'); dot != NULL; dot = strrchr(name, '.')) {
        *dot = '\0';
        if (is_stack(name, o->predicted_by)) return SPW_OK;
    }
    spw_status status = SPW_ALLOC(1, &software);
    if (status == SPW_OK) status = spw_software_newest(&o->job.job, true, false, software);
    if (status == SPW_OK) (void)snprintf(o->predicted_by, sizeof o->predicted_by, "%s", software->stack.name);
    spw_free(software);
    return status;
}

/* --- What is printed --- */

/* Bytes of XLA beside ours. low NAN: no interval. */
typedef struct compared {
    const char *what;
    double xla, ours, low, high;
} compared;

static void put_answer(spw_table *t, const spw_score_row *row, const char *stack, const compared *c) {
    const bool skipped = row->cell.skipped[0] != '\0';
    spw_table_text(spw_table_in(t, "what", "of one GPU"), c->what);
    spw_table_scaled(spw_table_in(t, "xla_bytes", "XLA GiB"), c->xla, GIB, "%.2f");
    spw_table_scaled(spw_table_in(t, "predicted_bytes", "predicted"), skipped ? NAN : c->ours, GIB, "%.2f");
    spw_table_scaled(spw_table_in(t, "low_bytes", "from"), skipped ? NAN : c->low, GIB, "%.2f");
    spw_table_scaled(spw_table_in(t, "high_bytes", "to"), skipped ? NAN : c->high, GIB, "%.2f");
    spw_table_scaled(spw_table_in(t, "error", "error %"), skipped ? NAN : c->ours / c->xla - 1.0, 0.01,
                     "%+.1f");
    spw_table_text(spw_table_in(t, "stack", NULL), stack);
    spw_table_text(spw_table_in(t, "outside_fit", NULL), row->memory.outside);
    spw_table_text(spw_table_in(t, "reason", NULL), row->cell.skipped);
}

static void print_peak(const spw_score_row *row, FILE *out) {
    const spw_peak_match *p = &row->peak;
    if (row->cell.peaks == 0 || row->cell.skipped[0] != '\0') return;
    fprintf(
        out,
        "\nvalues of the fullest moment of 2 %% of the temporaries or more: %zu of XLA's in our list, %zu "
        "not; %zu of ours not in XLA's\n",
        p->matched, p->missing, p->extra);
    for (size_t i = 0; i < p->missing && i < SPW_PEAK_LISTED; i++)
        fprintf(out, "XLA's alone: %.3f GiB\n", p->missing_gib[i]);
    for (size_t i = 0; i < p->extra && i < SPW_PEAK_LISTED; i++)
        fprintf(out, "ours alone: %.3f GiB, %s\n", p->extra_gib[i], p->extra_name[i]);
}

static void print_heading(const ask_options *o, FILE *out) {
    const spw_asked *a = &o->asked;
    fprintf(out, "%s: MaxText %s, JAX %s, compiled in %.0f s; predicted by %s\n", o->own_id, a->maxtext,
            a->jax, a->seconds, o->predicted_by);
    if (a->unsaid[0] != '\0') fprintf(out, "MaxText has no setting for:%s\n", a->unsaid);
    if (a->left_out[0] != '\0')
        fprintf(out, "not installed, and empty here, as the step does not call them: %s\n", a->left_out);
    fprintf(out, "\n");
}

static spw_status print_answer(const ask_options *o, FILE *out) {
    const char *tables[] = {o->output};
    const spw_asked *a = &o->asked;
    spw_score score = {.row = NULL};
    spw_table *t = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_score_open(tables, 1, o->predicted_by, NULL, &score));
    const spw_score_row *row = &score.row[score.rows - 1];
    const spw_compiled_memory *m = &row->memory;
    SPW_TRY(spw_table_create(NULL, &t));
    const double held = m->argument_bytes;
    const compared answers[] = {
        {"arguments", a->argument_bytes, held, NAN, NAN},
        {"temporaries", a->temporary_bytes, m->temporary_bytes, m->low_bytes, m->high_bytes},
        {"total", a->argument_bytes + a->temporary_bytes, held + m->temporary_bytes, held + m->low_bytes,
         held + m->high_bytes}};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        put_answer(t, row, o->predicted_by, &answers[i]);
    if (o->job.format == SPW_FORMAT_TABLE) print_heading(o, out);
    SPW_TRY(spw_table_print(t, o->job.format, out));
    if (o->job.format == SPW_FORMAT_TABLE) {
        if (row->cell.skipped[0] != '\0') fprintf(out, "\nnot predicted: %s\n", row->cell.skipped);
        if (m->outside[0] != '\0') fprintf(out, "\nbeyond what was seen: %s\n", m->outside);
        print_peak(row, out);
        fprintf(out, "\n%s has the row: spillway score %s --stack %s\n", o->output, o->output,
                o->predicted_by);
    }

cleanup:
    spw_table_destroy(t);
    spw_score_close(&score);
    return status;
}

/* --- All of it --- */

static void name_row(ask_options *o) {
    const spw_job *job = &o->job.job;
    if (o->id != NULL)
        (void)snprintf(o->own_id, sizeof o->own_id, "%s", o->id);
    else
        (void)snprintf(o->own_id, sizeof o->own_id, "%.40s_%.40s_ep%zu_fsdp%zu_p%zu", job->model.name,
                       o->job.scheme[0].text, job->expert, job->fsdp, row_sequences(job));
    (void)snprintf(o->compiler, sizeof o->compiler, "maxtext@%s+xla-cuda-%s-default", o->asked.maxtext,
                   o->asked.jax);
}

static spw_status ask(ask_options *o) {
    spw_job *job = &o->job.job;
    char *table = NULL;
    spw_status status = SPW_OK;
    if (job->schemes != 1 || job->batches != 1)
        return spw_fail(SPW_EARG,
                        "ask-xla compiles one program: name one scheme and one batch, as in --scheme gmm "
                        "--sequences-per-gpu 4");
    const char *precision = precision_word(job);
    if (precision == NULL || job->model_text[0] == '{')
        return spw_fail(SPW_ECONFIG, "ask-xla: a table of compiled programs cannot say this %s; write %s",
                        precision == NULL ? "precision" : "model",
                        precision == NULL ? "--precision bf16 or framework" : "a preset or a file");
    SPW_TRY(spw_job_is_whole(job, "ask-xla"));
    SPW_TRY(read_table(o->output, &table));
    SPW_TRY(check_header(o->output, table));
    const spw_ask_request request = {job, &o->job.scheme[0], o->python, o->maxtext};
    SPW_TRY(spw_ask_xla(&request, &o->asked));
    name_row(o);
    SPW_TRY(choose_stack(o));
    SPW_TRY(add_row(o, precision, table));
    SPW_TRY(print_answer(o, spw_command_out()));

cleanup:
    spw_free(table);
    return status;
}

spw_status spw_command_ask_xla(int argc, char **argv) {
    spw_status status = SPW_OK;
    ask_options *o = NULL;
    SPW_TRY(SPW_ALLOC(1, &o));
    o->python = "python3";
    o->output = "asked_xla.csv";
    SPW_TRY(spw_command_parse(&argp, argc, argv, o));
    SPW_TRY(spw_job_options_finish(&o->job));
    SPW_TRY(ask(o));

cleanup:
    if (o != NULL) spw_job_options_close(&o->job);
    spw_free(o);
    return status;
}
