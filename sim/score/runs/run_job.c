#include "sim/score/runs/run_job.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/job/job.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/schemes/point.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MOST_GPUS = 1 << 20, MOST_BATCH = 1 << 26, MOST_LENGTH = 1 << 24 };

const char *spw_run_origin_name(spw_run_origin origin) {
    static const char *const names[SPW_RUN_ORIGINS] = {"columns", "command", "assumed"};
    return names[origin];
}

/* --- Columns --- */

typedef struct size_column {
    const char *name;
    size_t offset, most, least;
} size_column;
#define SIZE(field) offsetof(spw_run_sizes, field)
static const size_column size_columns[] = {{"gpus", SIZE(gpus), MOST_GPUS, 1},
                                           {"tp", SIZE(tensor), MOST_GPUS, 1},
                                           {"pp", SIZE(pipeline), MOST_GPUS, 1},
                                           {"cp", SIZE(context), MOST_GPUS, 1},
                                           {"vp", SIZE(virtual_stages), MOST_GPUS, 0},
                                           {"ep", SIZE(expert), MOST_GPUS, 1},
                                           {"mbs", SIZE(micro_batch), MOST_BATCH, 1},
                                           {"gbs", SIZE(global_batch), MOST_BATCH, 1},
                                           {"seq", SIZE(sequence_length), MOST_LENGTH, 1}};
enum { SIZES = sizeof size_columns / sizeof *size_columns };

/* An empty cell is 0, and the row has no job. */
static spw_status read_size(const spw_csv *csv, size_t row, const size_column *column, spw_run_sizes *out) {
    const char *text = NULL;
    char *end = NULL, shown[48];
    const spw_status status = spw_csv_text(csv, row, column->name, &text);
    if (status != SPW_OK || text[0] == '\0') return status;
    const double value = spw_text_number(text, &end);
    if (end == text || *end != '\0' || !(value >= (double)column->least) || value > (double)column->most ||
        value != floor(value)) {
        spw_plain_text(text, shown, sizeof shown);
        return spw_fail(SPW_ECONFIG, "%s:%zu: %s '%s' is no whole number in [%zu, %zu]", spw_csv_where(csv),
                        spw_csv_line(csv, row), column->name, shown, column->least, column->most);
    }
    *(size_t *)(void *)((char *)out + column->offset) = (size_t)value;
    return SPW_OK;
}

static spw_status check_sizes(const spw_run_sizes *s) {
    for (size_t i = 0; i < SIZES; i++) {
        const size_column *column = &size_columns[i];
        if (*(const size_t *)(const void *)((const char *)s + column->offset) < column->least)
            return spw_fail(SPW_ECONFIG, "%s is empty", column->name);
    }
    return SPW_OK;
}

static spw_status read_columns(const spw_csv *csv, size_t row, spw_run_question *out) {
    const struct {
        const char *name, **text;
    } words[] = {
        {"source", &out->source},       {"model", &out->model},           {"hardware", &out->hardware},
        {"precision", &out->precision}, {"dispatcher", &out->dispatcher}, {"remat", &out->remat},
        {"graph", &out->graph},         {"ep_overlap", &out->ep_overlap}, {"notes", &out->notes}};
    const char *id = NULL;
    spw_status status = spw_csv_text(csv, row, "row_id", &id);
    for (size_t i = 0; i < sizeof words / sizeof *words && status == SPW_OK; i++)
        status = spw_csv_text(csv, row, words[i].name, words[i].text);
    for (size_t i = 0; i < SIZES && status == SPW_OK; i++)
        status = read_size(csv, row, &size_columns[i], &out->size);
    if (status == SPW_OK) spw_plain_text(id, out->id, sizeof out->id);
    return status;
}

/* --- Keys --- */

static const spw_run_setting *find(const spw_run_question *q, const char *key) {
    for (size_t i = 0; i < q->settings; i++)
        if (strcmp(q->setting[i].key, key) == 0) return &q->setting[i];
    return NULL;
}

/* The first who says a key counts. There is room for all: every table of words and the most of a command. */
static void put(spw_run_question *q, const char *key, const char *value, spw_run_origin origin) {
    if (key == NULL || find(q, key) != NULL || q->settings == SPW_RUN_SETTINGS) return;
    q->setting[q->settings++] = (spw_run_setting){key, value, origin};
}

static void put_number(spw_run_question *q, const char *key, size_t value) {
    if (q->numbers == SPW_RUN_NUMBERS) return;
    (void)snprintf(q->number[q->numbers], SPW_RUN_NUMBER, "%zu", value);
    put(q, key, q->number[q->numbers++], SPW_RUN_FROM_COLUMNS);
}

/* A node is a preset's; of GPUs that are no whole nodes, the largest part of one that divides them. */
static spw_status put_cluster(spw_run_question *q) {
    spw_cluster *cluster = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &cluster));
    SPW_TRY(spw_cluster_read(q->hardware, NULL, cluster));
    size_t node = cluster->gpus_per_node;
    while (node > 1 && q->size.gpus % node != 0) node--;
    (void)snprintf(q->cluster, sizeof q->cluster, "%s:%zux%zu", q->hardware, node, q->size.gpus / node);
    put(q, "cluster", q->cluster, SPW_RUN_FROM_COLUMNS);

cleanup:
    spw_free(cluster);
    return status;
}

/* One data-parallel rank works on its part of the global batch, micro-batch by micro-batch. */
static spw_status put_sizes(spw_run_question *q) {
    const spw_run_sizes *s = &q->size;
    const size_t sharers = s->tensor * s->pipeline * s->context;
    const double share = (double)s->gpus / (double)sharers,
                 parts = (double)s->global_batch / ((double)s->micro_batch * share);
    if (s->tensor > s->gpus || s->pipeline > s->gpus || s->context > s->gpus || share != floor(share) ||
        share < 1.0)
        return spw_fail(SPW_ECONFIG, "%zu GPUs are no multiple of tp x pp x cp, %zu x %zu x %zu", s->gpus,
                        s->tensor, s->pipeline, s->context);
    if (parts < 1.0 || parts != floor(parts))
        return spw_fail(
            SPW_ECONFIG,
            "a global batch of %zu is no multiple of micro-batches of %zu on %.0f data-parallel ranks",
            s->global_batch, s->micro_batch, share);
    put_number(q, "parallel.expert", s->expert);
    put_number(q, "parallel.pipeline", s->pipeline);
    put_number(q, "parallel.tensor", s->tensor);
    put_number(q, "parallel.context", s->context);
    put_number(q, "batch.sequence_length", s->sequence_length);
    put_number(q, "batch.sequences_per_gpu", s->micro_batch * (size_t)parts);
    put_number(q, "batch.micro_batches", (size_t)parts);
    if (s->virtual_stages > 1) put_number(q, "parallel.virtual_stages", s->virtual_stages);
    put(q, "remat", q->remat, SPW_RUN_FROM_COLUMNS);
    return SPW_OK;
}

/* --- Words --- */

static bool begins(const char *text, const char *with) { return strncasecmp(text, with, strlen(with)) == 0; }

static bool holds(const char *text, const char *part) {
    const size_t length = strlen(part);
    for (; *text != '\0'; text++)
        if (strncasecmp(text, part, length) == 0) return true;
    return false;
}

static const char *column_of(const spw_run_question *q, const char *name) {
    const struct {
        const char *name, *text;
    } columns[] = {{"precision", q->precision}, {"graph", q->graph}, {"ep_overlap", q->ep_overlap},
                   {"model", q->model},         {"notes", q->notes}, {"source", q->source}};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strcmp(columns[i].name, name) == 0) return columns[i].text;
    return "";
}

static void add_option(spw_run_question *q, const char *options) {
    const size_t used = strlen(q->scheme);
    (void)snprintf(q->scheme + used, sizeof q->scheme - used, "%s%s",
                   strchr(q->scheme, ':') != NULL ? "," : ":", options);
}

/* `done`: the column of the last row that spoke of the whole of a column, whose other rows then do not count. */
static void put_words(spw_run_question *q, const spw_run_dispatcher *d) {
    const char *done = "";
    for (const spw_run_term *t = spw_run_terms; t->column != NULL; t++) {
        const char *text = column_of(q, t->column);
        const bool mine = (t->frameworks == 0 || (t->frameworks & (1U << d->framework)) != 0) &&
                          (t->scheme == NULL || begins(q->scheme, t->scheme));
        if (!mine || (!t->within && strcmp(done, t->column) == 0)) continue;
        if (t->word != NULL && (t->within ? !holds(text, t->word) : strcmp(text, t->word) != 0)) continue;
        if (!t->within) done = t->column;
        put(q, t->key, t->value != NULL ? t->value : text, SPW_RUN_FROM_COLUMNS);
        if (t->option != NULL) add_option(q, t->option);
        if (t->routing != NULL) q->routing = t->routing;
        if (t->refused != NULL && q->refused == NULL) q->refused = t->refused;
    }
}

/* What neither column nor command says. */
static void put_assumed(spw_run_question *q, const spw_run_dispatcher *d) {
    const bool fp8 = find(q, "precision.recipe") != NULL;
    put(q, "parallel.expert_tensor", "1",
        SPW_RUN_ASSUMED); /* as recipes have it; a job alone would have tp */
    for (const spw_run_default *row = spw_run_defaults; row->source != NULL; row++)
        if (d->framework == SPW_RUN_MEGATRON && begins(q->source, row->source) && (fp8 || !row->fp8))
            put(q, row->key, row->value, SPW_RUN_ASSUMED);
    for (const spw_run_always *row = spw_run_always_set; row->key != NULL; row++)
        if (row->framework == d->framework) put(q, row->key, row->value, SPW_RUN_ASSUMED);
}

/* --- The scheme --- */

/* Has a scheme this option, "align=32", with whatever value? */
static bool has_option(const char *scheme, const char *option) {
    const char *at = strchr(scheme, ':');
    const size_t length = strcspn(option, "=") + 1;
    for (; at != NULL; at = strchr(at + 1, ','))
        if (strncmp(at + 1, option, length) == 0) return true;
    return false;
}

static bool same_scheme(const char *a, const char *b) {
    const size_t length = strcspn(a, ":");
    return length == strcspn(b, ":") && strncmp(a, b, length) == 0;
}

/* Options of the command's scheme, if it is the same, that the columns do not say. */
static spw_status add_command_options(spw_run_question *q) {
    const char *theirs = q->command.scheme, *at = theirs != NULL ? strchr(theirs, ':') : NULL;
    char one[SPW_SCHEME_TEXT];
    if (theirs == NULL || !same_scheme(q->scheme, theirs)) return SPW_OK;
    for (; at != NULL; at = strchr(at + 1, ',')) {
        const size_t length = strcspn(at + 1, ",");
        if (strlen(q->scheme) + length + 2 >= sizeof one)
            return spw_fail(SPW_ECONFIG, "scheme '%.40s...' is too long", theirs);
        (void)snprintf(one, sizeof one, "%.*s", (int)length, at + 1);
        if (!has_option(q->scheme, one)) add_option(q, one);
    }
    return SPW_OK;
}

static spw_status choose_scheme(spw_run_question *q, const spw_run_dispatcher **out) {
    const spw_run_dispatcher *d = spw_run_dispatcher_find(q->source, q->dispatcher);
    const bool full = spw_run_graph_is_full(q->graph);
    if (d == NULL)
        return spw_fail(SPW_ECONFIG, "dispatcher '%.40s' is none of %s", q->dispatcher,
                        spw_run_dispatcher_words());
    if (full && d->graph_scheme == NULL)
        q->refused = "a CUDA graph of the whole step around a dispatcher whose rows the host must know";
    *out = d;
    (void)snprintf(q->scheme, sizeof q->scheme, "%s",
                   full && d->graph_scheme != NULL ? d->graph_scheme : d->scheme);
    return SPW_OK;
}

/* --- Life --- */

static spw_status translate(const spw_csv *csv, spw_run_question *q) {
    const spw_run_dispatcher *d = NULL;
    spw_status status = check_sizes(&q->size);
    if (status == SPW_OK) status = choose_scheme(q, &d);
    if (status == SPW_OK)
        status = spw_run_model_find(spw_csv_where(csv), q->command.model, q->model, q->model_path);
    if (status == SPW_OK) status = put_cluster(q);
    if (status == SPW_OK) status = put_sizes(q);
    if (status != SPW_OK) return status;
    put(q, "model", q->model_path, q->command.model != NULL ? SPW_RUN_FROM_COMMAND : SPW_RUN_FROM_COLUMNS);
    put_words(q, d);
    for (size_t i = 0; i < q->command.sets; i++)
        put(q, q->command.set[i].key, q->command.set[i].value, SPW_RUN_FROM_COMMAND);
    put_assumed(q, d);
    return add_command_options(q);
}

spw_status spw_run_question_read(const spw_csv *csv, size_t row, spw_run_question *out, char *reason) {
    char where[SPW_RUN_REASON];
    spw_status status = SPW_OK;
    *out = (spw_run_question){.settings = 0};
    reason[0] = '\0';
    SPW_TRY(read_columns(csv, row, out));
    (void)snprintf(where, sizeof where, "%s:%zu", spw_csv_where(csv), spw_csv_line(csv, row));
    SPW_TRY(spw_run_command_read(where, spw_csv_field(csv, row, "command"), &out->command));
    status = translate(csv, out);
    if (status == SPW_ECONFIG || status == SPW_EIO) {
        (void)snprintf(reason, SPW_RUN_REASON, "%s", spw_last_error());
        status = SPW_OK;
    }

cleanup:
    return status;
}

void spw_run_question_close(spw_run_question *question) { spw_run_command_close(&question->command); }

spw_status spw_run_question_job(const spw_run_question *q, spw_job *job, spw_scheme *scheme) {
    spw_job_override override[SPW_RUN_SETTINGS + 1];
    char schemes[sizeof q->scheme + 8];
    spw_status status = SPW_OK;
    for (size_t i = 0; i < q->settings; i++)
        override[i] = (spw_job_override){q->setting[i].key, q->setting[i].value, q->setting[i].key};
    (void)snprintf(schemes, sizeof schemes, "['%s']", q->scheme);
    override[q->settings] = (spw_job_override){"schemes", schemes, "scheme"};
    SPW_TRY(spw_job_read_with(NULL, override, q->settings + 1, job));
    SPW_TRY(spw_job_check(job));
    SPW_TRY(spw_scheme_parse(q->scheme, scheme));
    SPW_TRY(spw_footprint_check(job, scheme));
    const spw_point point = spw_point_of(job, scheme, job->sequences_per_gpu[0]);
    SPW_TRY(spw_scheme_check(scheme, &point.shape));

cleanup:
    return status;
}
