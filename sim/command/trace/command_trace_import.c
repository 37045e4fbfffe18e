#include "sim/command/trace/command_trace.h"

#include "base/memory.h"
#include "base/nearest.h"
#include "sim/command/command.h"
#include "sim/command/job_options.h"
#include "sim/command/trace/trace_options.h"
#include "traces/importers/importer.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_OUTPUT = 0x200,
    KEY_PHASE,
    KEY_MODEL,
    KEY_MODEL_LAYERS,
    KEY_LICENSE,
    KEY_FACT,
    MOST_INDEX = 1 << 20,
    MOST_FACTS_TEXT = 4096
};

typedef struct import_options {
    spw_import_settings settings;
    const spw_importer *importer;
    const char **input; /* [inputs] */
    int32_t *list[3];   /* of layers, dense layers, stages; owned */
    char facts[MOST_FACTS_TEXT];
    spw_status status; /* of the first option that could not be read */
} import_options;

static const struct argp_option options[] = {
    {"output", KEY_OUTPUT, "OUT.h5", SPW_OPTION_WRITES, "the trace to write (needed)", 1},
    {"experts", KEY_FACT + 0, "E", 0, "experts of a layer", 2},
    {"top-k", KEY_FACT + 1, "K", 0, "experts of a token", 2},
    {"layers", KEY_FACT + 2, "LIST", 0,
     "layers by their index in the model, as in 3:61 or 1,3,5: what must be there, or the names of an "
     "array's layers",
     2},
    {"dense-layers", KEY_FACT + 3, "LIST", 0, "layers of an array that have no experts, and are left out", 2},
    {"ranks", KEY_FACT + 4, "R", 0, "ranks that record a layer: all, or those of one pipeline stage", 2},
    {"tokens-per-rank", KEY_FACT + 5, "T", 0, "cuts the tokens of an array's step into ranks of so many", 2},
    {"expert-parallel", KEY_FACT + 6, "R", 0, "ranks that share the experts of a layer", 2},
    {"stage-first", KEY_FACT + 7, "LIST", 0,
     "index of the first layer of each pipeline stage, added to a record's layer; ranks 0 to R - 1 are the "
     "first stage",
     2},
    {"micro-batches", KEY_FACT + 8, "N", 0, "micro-batches of a step, each a record of its own (default: 1)",
     3},
    {"micro-batch-size", KEY_FACT + 9, "B", 0,
     "sequences of a micro-batch, whose tokens interleave; the trace then knows sequences", 3},
    {"recompute", KEY_FACT + 10, NULL, 0, "the forward pass was run again: every record is there twice", 3},
    {"resumed", KEY_FACT + 11, NULL, 0, "a resumed run appended iterations again: the later ones count", 3},
    {"axes", KEY_FACT + 12, "LIST", 0,
     "axes of an array, from the first: steps, ranks, sequences, tokens, layers, k, experts", 4},
    {"files", KEY_FACT + 13, "steps|ranks|layers", 0, "what several arrays are", 4},
    {"array", KEY_FACT + 14, "NAME", 0, "array of an .npz file", 4},
    {"missing", KEY_FACT + 15, "N", 0, "the id that says: no choice, as in --missing=-1", 4},
    {"order", KEY_FACT + 16, "descending_weight|ascending_id|unspecified", 0,
     "of a token's ids (default: as found)", 4},
    {"scores", KEY_FACT + 17, "softmax|pre-softmax|sigmoid", 0,
     "how Megatron's router makes weights of recorded logits: softmax of the chosen, of all before the "
     "choice, "
     "or sigmoid; they are then read from logits_rank{N}.bin beside each file",
     4},
    {"drop-padding", KEY_FACT + 18, NULL, 0,
     "leave out the rows that have no choice in any layer, as the padding of a batch", 4},
    {"phase", KEY_PHASE, "train|eval|prefill|decode|mixed", 0, "when it was recorded (default: the format's)",
     5},
    {"model", KEY_MODEL, "NAME", 0, "name of the model, recorded only", 5},
    {"model-layers", KEY_MODEL_LAYERS, "N", 0,
     "layers of the model, so that a replay knows which of them the trace holds", 5},
    {"license", KEY_LICENSE, "SPDX", 0, "licence of the data, recorded only", 5},
    {0},
};

static const struct {
    size_t offset;
    uint64_t most;
} counts[SPW_IMPORT_FACTS] = {
    [0] = {offsetof(spw_import_settings, experts), SPW_TRACE_MAX_EXPERTS},
    [1] = {offsetof(spw_import_settings, top_k), SPW_TRACE_MAX_TOP_K},
    [4] = {offsetof(spw_import_settings, ranks), SPW_TRACE_MAX_RANKS},
    [5] = {offsetof(spw_import_settings, tokens_per_rank), 1 << 24},
    [6] = {offsetof(spw_import_settings, expert_parallel), SPW_TRACE_MAX_RANKS},
    [8] = {offsetof(spw_import_settings, micro_batches), 1 << 16},
    [9] = {offsetof(spw_import_settings, micro_batch_size), 1 << 16},
};
static const char *const phases[] = {"train", "eval", "prefill", "decode", "mixed"};
static const char *const scores[] = {"softmax", "pre-softmax", "sigmoid"};
static const char *const orders[] = {"descending_weight", "ascending_id", "unspecified"};

/* "A:B" (half open) or "A,B,C", rising where `rising`; the caller frees *out. */
static spw_status parse_list(const char *option, const char *text, bool rising, int32_t **out,
                             spw_index_list *list) {
    spw_status status = SPW_OK;
    size_t begin = 0, end = 0, count = 1;
    char number[16];
    *list = (spw_index_list){NULL, 0};
    for (const char *at = text; *at != '\0'; at++) count += *at == ',';
    if (strchr(text, ':') != NULL) {
        SPW_TRY(spw_parse_range(option, text, &begin, &end));
        if (begin >= end || end > MOST_INDEX)
            SPW_TRY(spw_fail(SPW_EARG, "%s %s: A:B with A < B would be right", option, text));
        count = end - begin;
    }
    if (count > SPW_TRACE_MAX_LAYERS)
        SPW_TRY(spw_fail(SPW_EARG, "%s: more than %d", option, SPW_TRACE_MAX_LAYERS));
    spw_free(*out);
    *out = NULL;
    SPW_TRY(SPW_ALLOC(count, out));
    for (size_t i = 0; i < count && end > 0; i++) (*out)[i] = (int32_t)(begin + i);
    const char *at = text;
    for (size_t i = 0; i < count && end == 0; i++) {
        const size_t length = strcspn(at, ",");
        uint64_t value = 0;
        (void)snprintf(number, sizeof number, "%.*s", (int)(length < 15 ? length : 15), at);
        SPW_TRY(spw_parse_count(option, number, MOST_INDEX, &value));
        (*out)[i] = (int32_t)value;
        if (rising && i > 0 && (*out)[i] <= (*out)[i - 1])
            SPW_TRY(spw_fail(SPW_EARG, "%s %s: must rise", option, text));
        at += length + 1;
    }
    *list = (spw_index_list){*out, count};

cleanup:
    return status;
}

static spw_status parse_word(const char *option, const char *text, const char *const *words, size_t count,
                             size_t *out) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(words[i], text) != 0) continue;
        *out = i;
        return SPW_OK;
    }
    return spw_fail(SPW_EARG, "%s: '%s' is none; %s, %s ... would be right", option, text, words[0],
                    words[1]);
}

static spw_status parse_count(int bit, const char *text, spw_import_settings *settings) {
    uint64_t value = 0;
    const spw_status status = spw_parse_count(spw_import_fact_option(bit), text, counts[bit].most, &value);
    if (status != SPW_OK) return status;
    if (value == 0) return spw_fail(SPW_EARG, "%s must be at least 1", spw_import_fact_option(bit));
    const size_t whole = (size_t)value;
    memcpy((char *)settings + counts[bit].offset, &whole, sizeof whole);
    return SPW_OK;
}

static spw_status parse_missing(const char *text, int64_t *out) {
    char *end = NULL;
    *out = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && *out > INT32_MIN && *out < INT32_MAX) return SPW_OK;
    return spw_fail(SPW_EARG, "--missing %s: a whole number would be right", text);
}

static spw_status parse_fact(int bit, const char *text, import_options *o) {
    spw_import_settings *settings = &o->settings;
    const char *option = spw_import_fact_option(bit);
    size_t ignored = 0;
    const size_t used = strlen(o->facts);
    (void)snprintf(o->facts + used, sizeof o->facts - used, "%s%s%s%s", used > 0 ? " " : "", option,
                   text != NULL ? " " : "", text != NULL ? text : "");
    settings->given |= 1u << bit;
    if (text == NULL) { /* a flag */
        bool *flag = 1 << bit == SPW_FACT_RECOMPUTE ? &settings->recompute
                     : 1 << bit == SPW_FACT_RESUMED ? &settings->resumed
                                                    : &settings->drop_padding;
        *flag = true;
        return SPW_OK;
    }
    if (counts[bit].most > 0) return parse_count(bit, text, settings);
    switch (1 << bit) {
    case SPW_FACT_LAYERS: return parse_list(option, text, true, &o->list[0], &settings->layers);
    case SPW_FACT_DENSE_LAYERS: return parse_list(option, text, true, &o->list[1], &settings->dense_layers);
    case SPW_FACT_STAGE_FIRST: return parse_list(option, text, false, &o->list[2], &settings->stage_first);
    case SPW_FACT_AXES: settings->axes = text; return SPW_OK;
    case SPW_FACT_FILES: settings->files = text; return SPW_OK;
    case SPW_FACT_ARRAY: settings->array = text; return SPW_OK;
    case SPW_FACT_MISSING: return parse_missing(text, &settings->missing);
    case SPW_FACT_SCORES: settings->scores = text; return parse_word(option, text, scores, 3, &ignored);
    default: settings->order = text; return parse_word(option, text, orders, 3, &ignored);
    }
}

/* What a format takes, as its options. */
static void print_facts(FILE *out, const char *label, unsigned facts) {
    if (facts == 0) return;
    fprintf(out, "      %s", label);
    for (int bit = 0; bit < SPW_IMPORT_FACTS; bit++) {
        if ((facts & 1u << bit) != 0) fprintf(out, " %s", spw_import_fact_option(bit));
    }
    fprintf(out, "\n");
}

static char *list_formats(int key, const char *text, void *input) {
    (void)input;
    char *list = NULL;
    size_t length = 0, count = 0;
    if (key != ARGP_KEY_HELP_POST_DOC) return (char *)(uintptr_t)text;
    FILE *out = open_memstream(&list, &length);
    if (out == NULL) return NULL;
    const spw_importer *importers = spw_importer_list(&count);
    fprintf(out, "Formats:\n");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "  %s: %s\n      reads %s\n      gives %s\n", importers[i].name, importers[i].program,
                importers[i].reads, importers[i].evidence);
        print_facts(out, "needs", importers[i].needs);
        print_facts(out, "takes", importers[i].takes);
    }
    fprintf(out, "What each means: docs/import.md.\n");
    if (fclose(out) == 0) return list;
    free(list);
    return NULL;
}

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), of_end = strlen(end);
    return length > of_end && strcmp(text + length - of_end, end) == 0;
}

/* A format comes first; a file in its place is an array of numpy where its name says so. */
static void refuse_format(const char *text, struct argp_state *state) {
    const bool array = ends_with(text, ".npy") || ends_with(text, ".npz") || ends_with(text, ".pt");
    spw_nearest nearest = {.text = text};
    size_t formats = 0;
    const spw_importer *list = spw_importer_list(&formats);
    for (size_t i = 0; i < formats; i++) spw_nearest_offer(&nearest, list[i].name);
    if (array || strpbrk(text, "./") != NULL)
        argp_error(
            state,
            "'%s' is no format; a format stands in front of the files: trace import %s %s --output OUT.h5%s",
            text, array ? "array" : "FORMAT", text, array ? "" : " (--help lists formats)");
    else if (nearest.best != NULL)
        argp_error(state, "'%s' is no format; did you mean %s? --help lists them", text, nearest.best);
    else
        argp_error(state, "'%s' is no format; --help lists them", text);
}

static void add_argument(import_options *o, const char *text, struct argp_state *state) {
    if (o->importer == NULL && o->settings.inputs == 0) {
        o->importer = spw_importer_find(text);
        if (o->importer == NULL) refuse_format(text, state);
        return;
    }
    o->input[o->settings.inputs++] = text;
}

static error_t trace_import_parse(int key, char *text, struct argp_state *state) {
    import_options *o = state->input;
    spw_status status = SPW_OK;
    size_t index = 0;
    uint64_t value = 0;
    if (key >= KEY_FACT && key < KEY_FACT + SPW_IMPORT_FACTS) {
        status = parse_fact(key - KEY_FACT, text, o);
    } else if (key == KEY_OUTPUT) {
        o->settings.output = text;
    } else if (key == KEY_PHASE) {
        status = parse_word("--phase", text, phases, 5, &index);
        o->settings.phase = (int)index;
    } else if (key == KEY_MODEL) {
        o->settings.model = text;
    } else if (key == KEY_MODEL_LAYERS) {
        status = spw_parse_count("--model-layers", text, SPW_TRACE_MAX_LAYERS, &value);
        o->settings.model_layers = (size_t)value;
    } else if (key == KEY_LICENSE) {
        o->settings.license = text;
    } else if (key == ARGP_KEY_ARG) {
        add_argument(o, text, state);
    } else if (key == ARGP_KEY_END) {
        if (o->importer == NULL || o->settings.inputs == 0 || o->settings.output == NULL)
            argp_error(state,
                       "from what to where? write: spillway trace import FORMAT INPUT... --output OUT.h5");
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    if (o->status == SPW_OK) o->status = status;
    return 0;
}

static const struct argp argp = {
    .options = options,
    .parser = trace_import_parse,
    .args_doc = "FORMAT INPUT...",
    .doc = "Makes a trace of routing that another program recorded. What its files do not say must be stated."
           "\v-",
    .help_filter = list_formats,
};

/* Experts that no layer of many choices ever names: more were stated than there are, or ids that count from 1. */
static spw_status say_unused(spw_trace *trace, FILE *out) {
    enum { PLENTY = 64 }; /* choices an expert */
    spw_status status = SPW_OK;
    uint32_t *routed = NULL;
    bool *used = NULL;
    uint64_t choices = 0;
    const spw_trace_info *info = spw_trace_get_info(trace);
    size_t first = 0, last = info->experts, unused = 0;
    SPW_TRY(SPW_ALLOC(info->experts, &routed));
    SPW_TRY(SPW_ALLOC(info->experts, &used));
    for (size_t i = 0; i < info->steps * info->layers; i++) {
        SPW_TRY(spw_trace_read_routed(trace, i / info->layers, i % info->layers, routed));
        for (size_t x = 0; x < info->experts; x++) {
            choices += routed[x];
            used[x] = used[x] || routed[x] > 0;
        }
    }
    for (size_t x = 0; x < info->experts; x++) unused += !used[x];
    while (first < info->experts && used[first]) first++;
    while (last > first && used[last - 1]) last--;
    if (unused > 0 && choices >= PLENTY * info->experts)
        (void)fprintf(
            out,
            "spillway: %zu expert%s of %zu, from %zu to %zu, %s in no layer: is --experts right, and do "
            "the ids count "
            "from 0?\n",
            unused, unused == 1 ? "" : "s", info->experts, first, last - 1, unused == 1 ? "is" : "are");

cleanup:
    spw_free(routed);
    spw_free(used);
    return status;
}

/* Rows without a choice count as tokens wherever the trace is used. */
static spw_status say_missing(spw_trace *trace, FILE *out) {
    uint64_t choices = 0, missing = 0;
    const spw_status status = spw_trace_count_missing(trace, &choices, &missing);
    if (status == SPW_OK && missing > 0)
        (void)fprintf(
            out,
            "spillway: %" PRIu64 " of %" PRIu64
            " choices are missing (%.3g %%), and their tokens count all the same: "
            "capacities, drops and times are those of all tokens; if they are the padding of a batch, import "
            "with --drop-padding\n",
            missing, choices, 100.0 * (double)missing / (double)choices);
    return status == SPW_OK ? say_unused(trace, out) : status;
}

spw_status spw_command_trace_import(int argc, char **argv) {
    spw_status status = SPW_OK;
    import_options o = {.settings = {.phase = -1}};
    SPW_TRY(SPW_ALLOC((size_t)argc, &o.input));
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.status != SPW_OK) {
        status = o.status;
        goto cleanup;
    }
    o.settings.input = o.input;
    o.settings.facts_text = o.facts;
    SPW_TRY(spw_trace_import(o.importer, &o.settings));
    spw_print_trace_written(o.settings.output, say_missing);

cleanup:
    spw_free(o.input);
    for (size_t i = 0; i < sizeof o.list / sizeof *o.list; i++) spw_free(o.list[i]);
    return status;
}
