#include "sim/command/trace/command_trace.h"

#include "base/memory.h"
#include "sim/command/command.h"
#include "sim/command/job_options.h"
#include "sim/command/trace/trace_options.h"
#include "sim/command/trace/trace_overload.h"
#include "sim/print/json_values.h"
#include "sim/print/table.h"
#include "traces/statistics.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_EXPERT = SPW_TRACE_OPTION_OWN, OPTION_MEMORY };

typedef struct info_options {
    spw_trace_options trace;
    const char *expert, *memory;
} info_options;

static const struct argp_option own_options[] = {
    {"expert-parallel", OPTION_EXPERT, "N", 0,
     "overload factors of N expert-parallel ranks (default: the trace's source ranks)", 0},
    {"memory", OPTION_MEMORY, "BYTES", 0,
     "most memory that the process may take, as 4GB: what is needed is said beforehand, and what cannot be "
     "held is refused",
     0},
    {0},
};

static error_t trace_info_parse(int key, char *text, struct argp_state *state) {
    info_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->trace; return 0;
    case OPTION_EXPERT: o->expert = text; return 0;
    case OPTION_MEMORY: o->memory = text; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&spw_trace_argp, 0, NULL, 0}, {0}};
static const struct argp argp = {
    .options = own_options,
    .parser = trace_info_parse,
    .args_doc = "TRACE.h5",
    .doc = "Says what a trace holds and how balanced its routing is.",
    .children = children,
};

/* Every column of JSON and CSV; a person sees two tables of some of them. */
static const spw_column all_columns[] = {
    {"layer", NULL},
    {"experts", NULL},
    {"top_k", NULL},
    {"steps", NULL},
    {"max_over_mean", NULL},
    {"worst_max_over_mean", NULL},
    {"worst_step", NULL},
    {"variation", NULL},
    {"gini", NULL},
    {"entropy_bits", NULL},
    {"dead_experts", NULL},
    {"worst_variation", NULL},
    {"worst_gini", NULL},
    {"worst_entropy_bits", NULL},
    {"worst_dead_experts", NULL},
    {"rank4_max_over_mean", NULL},
    {"rank8_max_over_mean", NULL},
    {"rank16_max_over_mean", NULL},
    {"rank32_max_over_mean", NULL},
    {"rank64_max_over_mean", NULL},
    {"worst_rank4_max_over_mean", NULL},
    {"worst_rank8_max_over_mean", NULL},
    {"worst_rank16_max_over_mean", NULL},
    {"worst_rank32_max_over_mean", NULL},
    {"worst_rank64_max_over_mean", NULL},
    {"ranks4_touched", NULL},
    {"ranks8_touched", NULL},
    {"ranks16_touched", NULL},
    {"ranks32_touched", NULL},
    {"ranks64_touched", NULL},
    {"nodes16_touched", NULL},
    {"nodes32_touched", NULL},
    {"nodes64_touched", NULL},
    {NULL, NULL},
};
static const spw_column balance_columns[] = {
    {"layer", "layer"}, {"mean", "max/mean"}, {"worst", "worst"}, {"step", "at step"},   {"cv", "cv"},
    {"gini", "gini"},   {"entropy", "bits"},  {"dead", "dead"},   {"r4", "EP4"},         {"r8", "EP8"},
    {"r16", "EP16"},    {"r32", "EP32"},      {"r64", "EP64"},    {"w64", "worst EP64"}, {NULL, NULL},
};
static const spw_column touch_columns[] = {
    {"layer", "layer"}, {"r4", "EP4"},         {"r8", "EP8"},         {"r16", "EP16"},       {"r32", "EP32"},
    {"r64", "EP64"},    {"n16", "nodes EP16"}, {"n32", "nodes EP32"}, {"n64", "nodes EP64"}, {NULL, NULL},
};

static void worst_step(spw_table *table, const spw_trace_info *info, const spw_layer_statistics *layer) {
    if (layer->steps > 0) {
        spw_table_whole(table, info->step_id[layer->worst_step]);
    } else {
        spw_table_none(table);
    }
}

static void reals(spw_table *table, const double *value, int count, const char *shown) {
    for (int i = 0; i < count; i++) spw_table_real(table, value[i], shown);
}

static void add_all(spw_table *table, const spw_trace_info *info, const spw_layer_statistics *layers) {
    for (size_t i = 0; i < info->layers; i++) {
        const spw_statistics *mean = &layers[i].mean, *worst = &layers[i].worst;
        spw_table_whole(table, info->layer_id[i]);
        spw_table_count(table, info->layer_experts[i]);
        spw_table_count(table, info->layer_top_k[i]);
        spw_table_count(table, layers[i].steps);
        spw_table_real(table, mean->max_over_mean, NULL);
        spw_table_real(table, worst->max_over_mean, NULL);
        worst_step(table, info, &layers[i]);
        spw_table_real(table, mean->variation, NULL);
        spw_table_real(table, mean->gini, NULL);
        spw_table_real(table, mean->entropy_bits, NULL);
        spw_table_real(table, mean->dead_experts, NULL);
        spw_table_real(table, worst->variation, NULL);
        spw_table_real(table, worst->gini, NULL);
        spw_table_real(table, worst->entropy_bits, NULL);
        spw_table_real(table, worst->dead_experts, NULL);
        reals(table, mean->rank_max_over_mean, SPW_STATISTICS_SIZES, NULL);
        reals(table, worst->rank_max_over_mean, SPW_STATISTICS_SIZES, NULL);
        reals(table, mean->ranks_touched, SPW_STATISTICS_SIZES, NULL);
        reals(table, mean->nodes_touched + 2, SPW_STATISTICS_SIZES - 2, NULL);
    }
}

static void add_balance(spw_table *table, const spw_trace_info *info, const spw_layer_statistics *layers) {
    for (size_t i = 0; i < info->layers; i++) {
        const spw_statistics *mean = &layers[i].mean, *worst = &layers[i].worst;
        spw_table_whole(table, info->layer_id[i]);
        spw_table_real(table, mean->max_over_mean, "%.2f");
        spw_table_real(table, worst->max_over_mean, "%.2f");
        worst_step(table, info, &layers[i]);
        spw_table_real(table, mean->variation, "%.2f");
        spw_table_real(table, mean->gini, "%.2f");
        spw_table_real(table, mean->entropy_bits, "%.2f");
        spw_table_real(table, mean->dead_experts, "%.1f");
        reals(table, mean->rank_max_over_mean, SPW_STATISTICS_SIZES, "%.2f");
        spw_table_real(table, worst->rank_max_over_mean[SPW_STATISTICS_SIZES - 1], "%.2f");
    }
}

static void add_touch(spw_table *table, const spw_trace_info *info, const spw_layer_statistics *layers) {
    for (size_t i = 0; i < info->layers; i++) {
        spw_table_whole(table, info->layer_id[i]);
        reals(table, layers[i].mean.ranks_touched, SPW_STATISTICS_SIZES, "%.2f");
        reals(table, layers[i].mean.nodes_touched + 2, SPW_STATISTICS_SIZES - 2, "%.2f");
    }
}

static spw_status print_table(const spw_column *columns,
                              void (*add)(spw_table *, const spw_trace_info *, const spw_layer_statistics *),
                              const spw_trace_info *info, const spw_layer_statistics *layers,
                              spw_format format, FILE *out) {
    spw_table *table = NULL;
    spw_status status = spw_table_create(columns, &table);
    if (status == SPW_OK) {
        add(table, info, layers);
        status = spw_table_print(table, format, out);
    }
    spw_table_destroy(table);
    return status;
}

/* Texts of the file may hold anything, such as a terminal's commands. */
static void print_line(const char *name, const char *text) {
    char plain[4096];
    if (text == NULL || text[0] == '\0') return;
    spw_plain_text(text, plain, sizeof plain);
    printf("  %-10s %s\n", name, plain);
}

/* Tokens that are none of the data, and choices that nobody made. */
typedef struct lost_tokens {
    uint64_t flagged, choices, missing;
} lost_tokens;

/* Steps of each phase, where any is not of training; and what is flagged as no token of the data. */
static void print_kinds(const spw_trace_info *info, const lost_tokens *lost) {
    static const char *const phases[] = {"train", "eval", "prefill", "decode", "mixed"};
    size_t count[sizeof phases / sizeof *phases] = {0};
    char text[128] = "", flags[128];
    for (size_t s = 0; s < info->steps; s++) count[info->step_phase[s]]++;
    for (size_t p = 0; p < sizeof phases / sizeof *phases; p++) {
        const size_t used = strlen(text);
        if (count[p] > 0)
            (void)snprintf(text + used, sizeof text - used, "%s%zu %s", used > 0 ? ", " : "", count[p],
                           phases[p]);
    }
    if (count[0] < info->steps) print_line("phases", text);
    (void)snprintf(flags, sizeof flags,
                   "%" PRIu64 " of the tokens are padding or of a dummy run, and count here", lost->flagged);
    if (lost->flagged > 0) print_line("flags", flags);
    (void)snprintf(flags, sizeof flags,
                   "%" PRIu64 " of %" PRIu64 " choices (%.3g %%); their tokens count all the same",
                   lost->missing, lost->choices, 100.0 * (double)lost->missing / (double)lost->choices);
    if (lost->missing > 0) print_line("missing", flags);
}

static spw_status print_person(const char *path, const spw_trace_info *info, const lost_tokens *lost,
                               const spw_layer_statistics *layers, const spw_trace_overload *overload) {
    spw_status status = SPW_OK;
    spw_print_trace_line(path, info, stdout);
    print_line("model", info->model_name);
    print_line("source", info->source);
    print_line("commit", info->source_commit);
    print_line("licence", info->license[0] != '\0' ? info->license : "not stated");
    print_line("generator", info->generator);
    print_line("created", info->created);
    print_line("note", info->note);
    print_kinds(info, lost);
    printf("\nBalance: the most loaded expert over the mean, coefficient of variation, Gini, entropy (even: "
           "%.2f bits), "
           "dead experts;\nthen the most loaded expert-parallel rank over the mean. Means over steps, and "
           "the worst "
           "step.\n",
           log2((double)info->experts));
    SPW_TRY(print_table(balance_columns, add_balance, info, layers, SPW_FORMAT_TABLE, stdout));
    if (info->has_tokens) {
        printf("\nDistinct ranks, and nodes of %d ranks, that a token's experts are on:\n",
               SPW_STATISTICS_NODE_RANKS);
        SPW_TRY(print_table(touch_columns, add_touch, info, layers, SPW_FORMAT_TABLE, stdout));
    }
    SPW_TRY(spw_trace_overload_print(overload, info, stdout));

cleanup:
    return status;
}

/* The layers as the table writes them, so that JSON and CSV cannot differ. */
static spw_status layers_json(const spw_trace_info *info, const spw_layer_statistics *layers, json_t **out) {
    spw_status status = SPW_OK;
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (memory == NULL) return spw_fail(SPW_ENOMEM, "no memory for the report");
    status = print_table(all_columns, add_all, info, layers, SPW_FORMAT_JSON, memory);
    const bool whole = fclose(memory) == 0;
    if (status == SPW_OK) {
        *out = whole ? json_loads(text, 0, NULL) : NULL;
        if (*out == NULL) status = spw_fail(SPW_ENOMEM, "no memory for the report");
    }
    free(text);
    return status;
}

static spw_status print_json(const char *path, const spw_trace_info *info, const lost_tokens *lost,
                             const spw_layer_statistics *layers, const spw_trace_overload *overload) {
    spw_status status = SPW_OK;
    spw_json json = {.failed = false};
    json_t *list = NULL, *root = json_object(), *trace = json_object();
    const struct {
        const char *key, *value;
    } texts[] = {{"path", path},
                 {"version", info->version},
                 {"content", info->content},
                 {"source", info->source},
                 {"source_commit", info->source_commit},
                 {"license", info->license},
                 {"created", info->created},
                 {"note", info->note},
                 {"model", info->model_name}};
    const struct {
        const char *key;
        bool value;
    } flags[] = {{"synthetic", info->synthetic},     {"has_tokens", info->has_tokens},
                 {"has_weights", info->has_weights}, {"has_sequences", info->has_sequences},
                 {"has_by_rank", info->has_by_rank}, {"has_placement", info->has_placement},
                 {"fast_path", info->fast_path}};
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"steps", info->steps},     {"layers", info->layers},   {"experts", info->experts},
                  {"top_k", info->top_k},     {"ranks", info->ranks},     {"tokens", info->tokens},
                  {"flagged", lost->flagged}, {"choices", lost->choices}, {"missing", lost->missing}};
    SPW_TRY(layers_json(info, layers, &list));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        spw_json_put(&json, trace, texts[i].key, spw_json_text(texts[i].value));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        spw_json_put(&json, trace, flags[i].key, json_boolean(flags[i].value));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        spw_json_put(&json, trace, counts[i].key, spw_json_count(counts[i].value));
    spw_json_put(&json, root, "format", spw_json_text("spillway-trace-info"));
    spw_json_put(&json, root, "version", spw_json_count(1));
    spw_json_put(&json, root, "trace", json_incref(trace));
    spw_json_put(&json, root, "layers", json_incref(list));
    spw_json_put(&json, root, "overload", spw_trace_overload_json(&json, overload, info));
    status = spw_json_print(&json, root, JSON_INDENT(2), "the report", spw_command_out());
    root = NULL;

cleanup:
    json_decref(trace);
    json_decref(list);
    json_decref(root);
    return status;
}

/* One step is read at a time. */
static spw_status fit_memory(const char *text, spw_trace *trace, uint64_t expert) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    const size_t ranks = info->ranks > expert ? info->ranks : (size_t)expert;
    spw_memory_bound bound, *memory = NULL;
    spw_memory_work work = {.tables = 256 * (ranks + info->layers) + 8 * (ranks + 4) * info->experts,
                            .records = 8 * ranks + sizeof(spw_statistics),
                            .shared = !spw_walk_is_plain(NULL)};
    const spw_status status = spw_parse_memory(text, &bound, &memory);
    if (status != SPW_OK || memory == NULL) return status;
    for (size_t s = 0; info->step_offset != NULL && s < info->steps; s++) {
        const uint64_t tokens = info->step_offset[s + 1] - info->step_offset[s];
        work.tokens = tokens > work.tokens ? tokens : work.tokens;
    }
    return spw_trace_fit_memory(trace, &work, memory);
}

spw_status spw_command_trace_info(int argc, char **argv) {
    spw_status status = SPW_OK;
    info_options o = {.expert = NULL};
    spw_format format = SPW_FORMAT_TABLE;
    spw_trace *trace = NULL;
    spw_layer_statistics *layers = NULL;
    spw_trace_overload overload = {.layer = NULL};
    lost_tokens lost = {.flagged = 0};
    uint64_t expert = 0;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    SPW_TRY(spw_trace_options_format(&o.trace, &format));
    if (o.expert != NULL) SPW_TRY(spw_parse_count("--expert-parallel", o.expert, 1 << 16, &expert));
    SPW_TRY(spw_trace_open(o.trace.path, &trace));
    const spw_trace_info *info = spw_trace_get_info(trace);
    SPW_TRY(fit_memory(o.memory, trace, expert));
    SPW_TRY(SPW_ALLOC(info->layers, &layers));
    if (format == SPW_FORMAT_CSV) SPW_TRY(spw_trace_statistics(trace, NULL, layers));
    if (format != SPW_FORMAT_CSV) SPW_TRY(spw_trace_overload_read(trace, expert, layers, &overload));
    SPW_TRY(spw_trace_count_flagged(trace, &lost.flagged));
    SPW_TRY(spw_trace_count_missing(trace, &lost.choices, &lost.missing));
    if (format == SPW_FORMAT_TABLE) SPW_TRY(print_person(o.trace.path, info, &lost, layers, &overload));
    if (format == SPW_FORMAT_JSON) SPW_TRY(print_json(o.trace.path, info, &lost, layers, &overload));
    if (format == SPW_FORMAT_CSV)
        SPW_TRY(print_table(all_columns, add_all, info, layers, format, spw_command_out()));

cleanup:
    spw_trace_overload_clear(&overload);
    spw_free(layers);
    spw_trace_close(trace);
    return status;
}
