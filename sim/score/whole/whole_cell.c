#include "sim/score/whole/whole_cell.h"

#include "base/even_shares.h"
#include "base/memory.h"
#include "base/text.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/score/megatron/measured_batch.h"
#include "sim/score/megatron/measured_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LENGTH = 1 << 24, MOST_SEQUENCES = 1 << 20 };

const char *spw_whole_rows_name(spw_whole_rows rows) {
    static const char *const names[] = {"as measured", "equal", "differ"};
    return names[rows];
}

/* --- The job --- */

/* Words of columns that are keys of a job; `word` NULL: the column's own word is the value. `layout` counts where the optimizer deals
 * out whole parameters (layer_wise). */
static const struct {
    const char *column, *word, *key, *value;
} words[] = {{"spec", "te", "attention", "sdpa"},
             {"spec", "local", "attention", "unfused"},
             {"experts_module", "grouped", NULL, NULL},
             {"experts_module", "sequential", NULL, NULL},
             {"remat", NULL, "remat", NULL},
             {"optimizer", NULL, "optimizer", NULL},
             {"algorithm", NULL, "optimizer_algorithm", NULL},
             {"layout", "True", "muon_layout", "packed"},
             {"layout", "False", "muon_layout", "ping_pong"}};
enum { WORDS = sizeof words / sizeof *words, SETTINGS = WORDS + 12, NUMBER = 32 };

typedef struct settings {
    spw_job_override one[SETTINGS];
    char number[SETTINGS][NUMBER];
    size_t count;
    char unknown[SPW_WHOLE_REASON]; /* the first word that no row of `words` has; "" */
} settings;

static void put(settings *s, const char *key, const char *value) {
    if (s->count < SETTINGS) s->one[s->count++] = (spw_job_override){key, value, key};
}

static void put_count(settings *s, const char *key, size_t value) {
    if (s->count == SETTINGS) return;
    (void)snprintf(s->number[s->count], NUMBER, "%zu", value);
    put(s, key, s->number[s->count]);
}

static spw_status put_words(const spw_csv *csv, size_t row, bool layer_wise, settings *s) {
    for (size_t i = 0; i < WORDS;) {
        const char *text = NULL, *column = words[i].column;
        bool known = false;
        const spw_status status = spw_csv_text(csv, row, column, &text);
        if (status != SPW_OK) return status;
        for (; i < WORDS && strcmp(words[i].column, column) == 0; i++) {
            if (known || (words[i].word != NULL && strcmp(words[i].word, text) != 0)) continue;
            known = true;
            const bool other = words[i].key == NULL || (strcmp(column, "layout") == 0 && !layer_wise);
            if (!other) put(s, words[i].key, words[i].value != NULL ? words[i].value : text);
        }
        if (!known && s->unknown[0] == '\0') {
            char shown[48];
            spw_plain_text(text, shown, sizeof shown);
            (void)snprintf(s->unknown, sizeof s->unknown, "%s '%s' is not known", column, shown);
        }
    }
    return SPW_OK;
}

static spw_status put_job(const spw_csv *csv, size_t row, const char *cluster, size_t gpus, settings *s) {
    size_t sequence = 0, micro_batch = 0;
    const char *layer_wise = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_whole_read_count(csv, row, "sequence", MOST_LENGTH, false, &sequence));
    SPW_TRY(spw_whole_read_count(csv, row, "micro_batch", MOST_SEQUENCES, false, &micro_batch));
    put(s, "model", "scratch-moe-e64"); /* the row's own comes in its place */
    put(s, "cluster", cluster);
    put_count(s, "gpus", gpus);
    put_count(s, "parallel.expert", 1);
    put_count(s, "batch.sequence_length", sequence);
    put_count(s, "batch.sequences_per_gpu", micro_batch);
    put(s, "cross_entropy", "unfused");
    put(s, "memory_fraction", "1");
    SPW_TRY(spw_csv_text(csv, row, "layer_wise", &layer_wise));
    SPW_TRY(put_words(csv, row, strcmp(layer_wise, "True") == 0, s));

cleanup:
    return status;
}

/* --- Who chose which expert --- */

/* Rows of rank d from every rank of its group, its experts alike; with `hot` expert 0 has the first choice of every token. */
static void spread(const spw_whole_cell *c, size_t layer, size_t d, uint64_t rows, bool hot) {
    const size_t ranks = c->job.expert, experts = c->job.model.experts, mine = experts / ranks,
                 group = d / ranks * ranks, member = d % ranks,
                 tokens = c->job.sequences_per_gpu[0] * c->job.sequence_length;
    uint64_t *of = c->routed + layer * c->gpus * experts;
    const bool first = hot && member == 0 && mine > 1 && rows >= ranks * tokens;
    const uint64_t rest = first ? rows - ranks * tokens : rows;
    spw_even_shares share = spw_even_shares_from(rest, ranks * (first ? mine - 1 : mine), 0);
    for (size_t s = 0; s < ranks; s++)
        for (size_t x = 0; x < mine; x++)
            of[(group + s) * experts + member * mine + x] =
                first && x == 0 ? tokens : spw_even_shares_next(&share);
}

/* What the table's rows are beside those composed. */
static bool equal_rows(const spw_whole_cell *c, size_t d, const uint64_t *table) {
    const size_t ranks = c->job.expert, experts = c->job.model.experts, mine = experts / ranks,
                 group = d / ranks * ranks;
    for (size_t l = 0; l < c->job.model.moe_layers; l++) {
        uint64_t rows = 0;
        for (size_t s = group; s < group + ranks; s++)
            for (size_t x = 0; x < mine; x++)
                rows += c->routed[(l * c->gpus + s) * experts + d % ranks * mine + x];
        if (rows != table[l]) return false;
    }
    return true;
}

/* Rules speak of one group, which all are like; traces of all GPUs. */
static spw_status compose(const spw_whole_cell *c, spw_measured_traces *traces, bool *known) {
    const spw_job *job = &c->job;
    const bool rule = strchr(c->routing, ':') == NULL;
    const size_t ranks = rule ? job->expert : c->gpus, cells = ranks * job->model.experts;
    const spw_measured_shape shape = {.ranks = ranks,
                                      .layers = job->model.moe_layers,
                                      .tokens = job->sequences_per_gpu[0] * job->sequence_length,
                                      .top_k = job->model.top_k,
                                      .experts = job->model.experts,
                                      .hidden = job->model.hidden,
                                      .ffn = job->model.expert_ffn};
    uint64_t *group = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(shape.layers * cells, &group));
    SPW_TRY(spw_measured_batch(&shape, c->routing, traces, group, known));
    for (size_t l = 0; l < shape.layers && *known; l++)
        for (size_t g = 0; g < c->gpus / ranks; g++)
            memcpy(c->routed + (l * c->gpus + g * ranks) * job->model.experts, group + l * cells,
                   cells * sizeof *group);

cleanup:
    spw_free(group);
    return status;
}

/* The rows of one GPU, out [MoE layers]; the list has these alone, or all layers. *given = false where it is empty. */
static spw_status read_rows(const spw_csv *csv, size_t row, const spw_model *model, uint64_t *out,
                            bool *given) {
    static const char column[] = "rows_received_per_layer";
    uint64_t all[SPW_MODEL_MAX_LAYERS];
    const char *text = NULL;
    size_t entries = 1, moe = 0;
    spw_status status = spw_csv_text(csv, row, column, &text);
    if (status != SPW_OK) return status;
    *given = text[0] != '\0';
    if (!*given) return SPW_OK;
    for (const char *c = text; *c != '\0'; c++) entries += *c == ';';
    if (entries != model->layers) return spw_measured_read_list(csv, row, column, model->moe_layers, out);
    status = spw_measured_read_list(csv, row, column, model->layers, all);
    for (size_t l = 0; l < model->layers && status == SPW_OK; l++)
        if (model->is_moe[l] != 0) out[moe++] = all[l];
    return status;
}

static spw_status read_routing(const spw_csv *csv, spw_measured_traces *traces, spw_whole_cell *c) {
    const size_t layers = c->job.model.moe_layers;
    uint64_t *table = NULL;
    bool known = false, equal = true, given = true;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(layers * c->gpus * c->job.model.experts, &c->routed));
    SPW_TRY(SPW_ALLOC(layers * c->gpus, &table));
    SPW_TRY(compose(c, traces, &known));
    for (size_t d = 0; d < c->gpus && given; d++) {
        SPW_TRY(read_rows(csv, c->first + d, &c->job.model, table + d * layers, &given));
        equal = equal && known && (!given || equal_rows(c, d, table + d * layers));
    }
    if (!given && !known)
        (void)snprintf(c->skipped, sizeof c->skipped,
                       "no trace of its routing, and rows_received_per_layer is empty");
    c->rows = !known ? SPW_WHOLE_ROWS_AS_MEASURED : equal ? SPW_WHOLE_ROWS_COMPOSED : SPW_WHOLE_ROWS_DIFFER;
    for (size_t i = 0; i < layers * c->gpus && !equal && given; i++)
        spread(c, i % layers, i / layers, table[i], strcmp(c->routing, "onehot") == 0);

cleanup:
    spw_free(table);
    return status;
}

/* --- Life --- */

/* Rows of one run: the same name, one rank after the other. */
static spw_status count_ranks(const spw_csv *csv, size_t row, size_t gpus, spw_whole_cell *out) {
    for (out->gpus = 1; out->gpus < gpus; out->gpus++) {
        const size_t next = row + out->gpus;
        const char *name = next < spw_csv_rows(csv) ? spw_csv_field(csv, next, "name") : NULL;
        size_t rank = 0;
        if (name == NULL || strcmp(name, out->name) != 0) break;
        const spw_status status = spw_whole_read_count(csv, next, "rank", SPW_WHOLE_GPUS, false, &rank);
        if (status != SPW_OK) return status;
        if (rank != out->gpus) break;
    }
    if (out->gpus < gpus)
        (void)snprintf(out->skipped, sizeof out->skipped,
                       "a run on %zu GPUs, of which %zu rows stand together", gpus, out->gpus);
    return SPW_OK;
}

static spw_status make_job(const settings *s, const spw_model *model, size_t expert, spw_whole_cell *c) {
    spw_job *job = &c->job;
    spw_status status = SPW_OK;
    if (expert == 0 || c->gpus % expert != 0 || model->experts % expert != 0)
        return spw_fail(SPW_ECONFIG, "expert_parallel %zu divides not both %zu GPUs and %zu experts", expert,
                        c->gpus, model->experts);
    SPW_TRY(spw_job_read_with(NULL, s->one, s->count, job));
    job->model = *model;
    job->expert = expert;
    job->fsdp = c->gpus / expert;
    SPW_TRY(spw_scheme_parse("megatron-alltoall", &c->scheme));
    SPW_TRY(spw_job_check(job));
    SPW_TRY(spw_footprint_check(job, &c->scheme));
    const spw_point point = spw_whole_cell_point(c);
    SPW_TRY(spw_scheme_check(&c->scheme, &point.shape));

cleanup:
    return status;
}

static spw_status read_point(const spw_csv *csv, const char *cluster, spw_whole_cell *c) {
    spw_model *model = NULL;
    settings *s = NULL;
    size_t expert = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &model));
    SPW_TRY(SPW_ALLOC(1, &s));
    SPW_TRY(spw_whole_read_count(csv, c->first, "expert_parallel", SPW_WHOLE_GPUS, false, &expert));
    SPW_TRY(put_job(csv, c->first, cluster, c->gpus, s));
    SPW_TRY(spw_whole_model_read(csv, c->first, expert > 0 ? expert : 1, model, c->skipped));
    if (c->skipped[0] == '\0') (void)snprintf(c->skipped, sizeof c->skipped, "%s", s->unknown);
    if (c->skipped[0] != '\0') goto cleanup;
    status = make_job(s, model, expert, c);
    if (status == SPW_ECONFIG || status == SPW_EIO) {
        (void)snprintf(c->skipped, sizeof c->skipped, "%s", spw_last_error());
        status = SPW_OK;
    }

cleanup:
    spw_free(s);
    spw_free(model);
    return status;
}

spw_status spw_whole_cell_read(const spw_csv *csv, size_t row, const char *cluster,
                               spw_measured_traces *traces, spw_whole_cell *out) {
    size_t gpus = 0;
    spw_status status = SPW_OK;
    *out = (spw_whole_cell){.first = row, .gpus = 1};
    SPW_TRY(spw_csv_text(csv, row, "name", &out->name));
    SPW_TRY(spw_csv_text(csv, row, "routing", &out->routing));
    SPW_TRY(spw_whole_read_count(csv, row, "gpus", SPW_WHOLE_GPUS, false, &gpus));
    SPW_TRY(count_ranks(csv, row, gpus, out));
    if (out->skipped[0] == '\0') SPW_TRY(read_point(csv, cluster, out));
    if (out->skipped[0] == '\0') SPW_TRY(read_routing(csv, traces, out));

cleanup:
    return status;
}

void spw_whole_cell_close(spw_whole_cell *cell) {
    spw_free(cell->routed);
    cell->routed = NULL;
}

spw_point spw_whole_cell_point(const spw_whole_cell *cell) {
    return spw_point_of(&cell->job, &cell->scheme, cell->job.sequences_per_gpu[0]);
}
