/* spillway bench dispatch: dispatch and combine between this machine's GPUs, and the measured links as a cluster file. */
#include "sim/command/command.h"

#include "kernels/bench/bench_exchange.h"
#include "sim/command/bench/cluster_link.h"

#include <stdlib.h>

typedef struct dispatch_options {
    spw_bench_exchange_request request;
    const char *cluster, *output;
} dispatch_options;

enum { OPTION_RANKS = 0x100, OPTION_GPUS, OPTION_QUICK, OPTION_CLUSTER, OPTION_OUTPUT };

static const struct argp_option options[] = {
    {"ranks", OPTION_RANKS, "N", 0, "ranks (default: one a GPU); more than GPUs are folded onto them", 0},
    {"gpus", OPTION_GPUS, "N", 0, "GPUs to put them on (default: as many as there are)", 0},
    {"quick", OPTION_QUICK, NULL, 0, "two shapes instead of all", 0},
    {"cluster", OPTION_CLUSTER, "NAME|FILE.yaml", 0, "the cluster to put the measured links into", 0},
    {"output", OPTION_OUTPUT, "FILE.yaml", SPW_OPTION_WRITES,
     "measure the links by message size and write that cluster with them", 0},
    {0},
};

static error_t parse_count(struct argp_state *state, const char *option, const char *text, size_t *out) {
    char *end = NULL;
    *out = (size_t)strtoul(text, &end, 10);
    if (text[0] < '1' || text[0] > '9' || *end != '\0' || *out < 2 || *out > 64)
        argp_error(state, "%s %s: write a whole number from 2 to 64", option, text);
    return 0;
}

static error_t bench_dispatch_parse(int key, char *text, struct argp_state *state) {
    dispatch_options *o = state->input;
    switch (key) {
    case OPTION_RANKS: return parse_count(state, "--ranks", text, &o->request.ranks);
    case OPTION_GPUS: return parse_count(state, "--gpus", text, &o->request.gpus);
    case OPTION_QUICK: o->request.quick = true; return 0;
    case OPTION_CLUSTER: o->cluster = text; return 0;
    case OPTION_OUTPUT: o->output = text; return 0;
    case ARGP_KEY_END:
        if ((o->cluster == NULL) != (o->output == NULL))
            argp_error(state, "--cluster and --output belong together");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = bench_dispatch_parse,
    .doc = "Times dispatch and combine between the GPUs of this machine, medians over fresh routing, beside "
           "all-pairs peer copies and NCCL "
           "(SPW_NCCL names its library) in the same run.",
};

spw_status spw_command_bench_dispatch(int argc, char **argv) {
    dispatch_options o = {.cluster = NULL};
    spw_link_curve curve;
    spw_status status = spw_command_parse(&argp, argc, argv, &o);
    if (status == SPW_OK) {
        status = spw_bench_exchange(&o.request, o.output != NULL ? &curve : NULL);
        if (status != SPW_OK) return spw_fail_within(status, "bench dispatch");
    }
    return status == SPW_OK && o.output != NULL ? spw_cluster_link_save(o.cluster, &curve, o.output) : status;
}
