/* spillway bench layer: whole expert layers between this machine's GPUs, by phase. */
#include "sim/command/command.h"

#include "kernels/bench/bench_layer.h"

#include <stdlib.h>

enum { OPTION_RANKS = 0x100, OPTION_TOKENS, OPTION_MODEL, OPTION_SCHEME, OPTION_ROUTING, OPTION_CSV };

static const struct argp_option options[] = {
    {"ranks", OPTION_RANKS, "N", 0, "GPUs, a rank each (default: all)", 0},
    {"tokens", OPTION_TOKENS, "N", 0, "of a rank (default: 4096)", 0},
    {"model", OPTION_MODEL, "deepseek-v3|mixtral-8x7b|qwen3-30b-a3b", 0, "one model alone (default: all)", 0},
    {"scheme", OPTION_SCHEME, "NAME", 0, "one scheme alone", 0},
    {"routing", OPTION_ROUTING, "uniform|skewed", 0, "one routing alone (default: both)", 0},
    {"csv", OPTION_CSV, "FILE", SPW_OPTION_WRITES, "write the numbers, a line for each phase", 0},
    {0},
};

static size_t count_of(struct argp_state *state, const char *name, const char *text, size_t most) {
    char *end = NULL;
    const unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '1' || text[0] > '9' || *end != '\0' || value > most)
        argp_error(state, "--%s %s: write a whole number from 1 to %zu", name, text, most);
    return (size_t)value;
}

static error_t bench_layer_parse(int key, char *text, struct argp_state *state) {
    spw_bench_layer_request *q = state->input;
    switch (key) {
    case OPTION_RANKS: q->ranks = count_of(state, "ranks", text, 64); return 0;
    case OPTION_TOKENS: q->tokens = count_of(state, "tokens", text, 1000000); return 0;
    case OPTION_MODEL: q->model = text; return 0;
    case OPTION_SCHEME: q->scheme = text; return 0;
    case OPTION_ROUTING: q->routing = text; return 0;
    case OPTION_CSV: q->csv = text; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = bench_layer_parse,
    .doc = "Times the forward and the backward pass of whole expert layers at full width, as a whole and by "
           "phase: "
           "medians over fresh routing of the slowest rank.",
};

spw_status spw_command_bench_layer(int argc, char **argv) {
    spw_bench_layer_request q = {.ranks = 0};
    spw_status status = spw_command_parse(&argp, argc, argv, &q);
    if (status != SPW_OK) return status;
    status = spw_bench_layer(&q);
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "bench layer");
}
