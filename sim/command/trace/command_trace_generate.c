#include "sim/command/trace/command_trace.h"

#include "base/memory.h"
#include "sim/command/command.h"
#include "sim/command/job_options.h"
#include "sim/command/trace/id_counts.h"
#include "sim/command/trace/trace_options.h"
#include "traces/generate/generate.h"
#include "traces/trace.h"

#include <stdint.h>
#include <string.h>

enum {
    KEY_EXPERTS = 0x200,
    KEY_TOP_K,
    KEY_LAYERS,
    KEY_STEPS,
    KEY_RANKS,
    KEY_TOKENS,
    KEY_DISTRIBUTION,
    KEY_SEED,
    KEY_SEQUENCE,
    KEY_HIDDEN,
    KEY_FFN,
    KEY_FIRST,
    KEY_COUNTS,
    KEY_IDS
};

typedef struct generate_options {
    spw_generate_settings settings;
    const char *path, *ids;
    spw_status status; /* of the first option that could not be read */
} generate_options;

static const struct argp_option options[] = {
    {"experts", KEY_EXPERTS, "E", 0, "experts of a layer (default: 256)", 0},
    {"top-k", KEY_TOP_K, "K", 0, "experts of a token (default: 8)", 0},
    {"layers", KEY_LAYERS, "L", 0, "MoE layers (default: 4)", 0},
    {"first-layer", KEY_FIRST, "N", 0, "index of the first of them in the model (default: 0)", 0},
    {"steps", KEY_STEPS, "S", 0, "training steps (default: 1)", 0},
    {"ranks", KEY_RANKS, "R", 0, "source ranks (default: 64)", 0},
    {"tokens-per-rank", KEY_TOKENS, "T", 0, "tokens of a source rank in a step (default: 4096)", 0},
    {"sequence-length", KEY_SEQUENCE, "S", 0, "tokens of a sequence (default: the tokens per rank)", 0},
    {"distribution", KEY_DISTRIBUTION, "NAME[:KEY=VALUE,...]", 0,
     "balanced or uniform, reference:exponent=1, zipf:exponent=1, lognormal:sigma=0.5, dirichlet:alpha=4, "
     "hot-rank:share=0.25,rank=0,ranks=8, "
     "group-limited:groups=8,kept=4, drift:drift=0.1, collapse:peak=3,rise=2,recovery=4, "
     "k-hot:hot=1,heat=0.5, max-violation:violation=1,hot=1, hash:hash=3,words=1,vocabulary=129280, "
     "megatron-w0 to w7; popularity=NAME and the keys of the others combine (default: uniform); "
     "`spillway help routing` says what each is",
     0},
    {"ids", KEY_IDS, "FILE.csv", 0,
     "how often each token id occurs, for hash layers: columns id and count (default: Zipf's law, by words)",
     0},
    {"seed", KEY_SEED, "N", 0, "same seed, same trace (default: 1)", 0},
    {"hidden", KEY_HIDDEN, "H", 0, "hidden size, recorded only", 0},
    {"ffn", KEY_FFN, "F", 0, "FFN width of an expert, recorded only", 0},
    {"counts-only", KEY_COUNTS, NULL, 0, "write the counts, not the tokens", 0},
    {0},
};

/* The whole-number options: where they go and what they may be at most. */
static const struct {
    int key;
    const char *name;
    size_t offset;
    uint64_t most;
} counts[] = {
    {KEY_EXPERTS, "--experts", offsetof(spw_generate_settings, experts), SPW_TRACE_MAX_EXPERTS},
    {KEY_TOP_K, "--top-k", offsetof(spw_generate_settings, top_k), SPW_TRACE_MAX_TOP_K},
    {KEY_LAYERS, "--layers", offsetof(spw_generate_settings, layers), SPW_TRACE_MAX_LAYERS},
    {KEY_STEPS, "--steps", offsetof(spw_generate_settings, steps), 1 << 22},
    {KEY_RANKS, "--ranks", offsetof(spw_generate_settings, ranks), SPW_TRACE_MAX_RANKS},
    {KEY_TOKENS, "--tokens-per-rank", offsetof(spw_generate_settings, tokens_per_rank), 1 << 24},
    {KEY_SEQUENCE, "--sequence-length", offsetof(spw_generate_settings, sequence_length), 1 << 24},
    {KEY_HIDDEN, "--hidden", offsetof(spw_generate_settings, hidden), 1 << 24},
    {KEY_FFN, "--ffn", offsetof(spw_generate_settings, ffn), 1 << 24},
};

static spw_status parse_option(int key, const char *text, spw_generate_settings *settings) {
    uint64_t value = 0;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i].key != key) continue;
        status = spw_parse_count(counts[i].name, text, counts[i].most, &value);
        size_t whole = (size_t)value;
        memcpy((char *)settings + counts[i].offset, &whole, sizeof whole);
        return status;
    }
    if (key == KEY_SEED) return spw_parse_count("--seed", text, INT64_MAX, &settings->seed);
    if (key == KEY_FIRST) {
        status = spw_parse_count("--first-layer", text, 1 << 20, &value);
        settings->first_layer = (int32_t)value;
        return status;
    }
    settings->distribution_text = text;
    return spw_distribution_parse(text, &settings->distribution);
}

static error_t trace_generate_parse(int key, char *text, struct argp_state *state) {
    generate_options *o = state->input;
    if (key == KEY_IDS) {
        o->ids = text;
    } else if (key == KEY_COUNTS) {
        o->settings.counts_only = true;
    } else if (key >= KEY_EXPERTS && key <= KEY_FIRST) {
        if (o->status == SPW_OK) o->status = parse_option(key, text, &o->settings);
    } else if (key == ARGP_KEY_ARG) {
        if (state->arg_num > 0) argp_error(state, "one trace at a time, '%s' is a second", text);
        o->path = text;
    } else if (key == ARGP_KEY_END) {
        if (o->path == NULL) argp_error(state, "where to? write: spillway trace generate OUT.h5");
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp argp = {
    .options = options,
    .parser = trace_generate_parse,
    .args_doc = "OUT.h5",
    .doc = "Makes a routing trace whose expert histogram follows a distribution.",
};

/* Frequencies of the ids of hash layers from a table. */
static spw_status read_ids(generate_options *o, double **weight) {
    size_t ids = 0;
    if (o->ids == NULL) return SPW_OK;
    if (!(o->settings.distribution.hash > 0.0))
        return spw_fail(
            SPW_EARG,
            "--ids: the distribution has no hash layers; write --distribution hash, or hash=N beside others");
    const spw_status status = spw_id_counts_read(o->ids, weight, &ids);
    if (status != SPW_OK) return status;
    o->settings.id_weight = *weight;
    o->settings.distribution.vocabulary = (double)ids;
    return SPW_OK;
}

spw_status spw_command_trace_generate(int argc, char **argv) {
    spw_status status = SPW_OK;
    double *weight = NULL;
    generate_options o = {.settings = {.experts = 256,
                                       .top_k = 8,
                                       .layers = 4,
                                       .steps = 1,
                                       .ranks = 64,
                                       .tokens_per_rank = 4096,
                                       .seed = 1,
                                       .distribution_text = "uniform",
                                       .generator = "spillway trace generate"}};
    SPW_TRY(spw_distribution_parse(o.settings.distribution_text, &o.settings.distribution));
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.status != SPW_OK) return o.status;
    SPW_TRY(read_ids(&o, &weight));
    SPW_TRY(spw_generate_trace(&o.settings, o.path));
    spw_print_trace_written(o.path, NULL);

cleanup:
    spw_free(weight);
    return status;
}
