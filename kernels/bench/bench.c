/* spillway-bench-kernels: medians over fresh inputs by device events, beside the machine's ceilings measured
 * in the same run. */
#include "kernels/bench/bench.h"

#include "kernels/bench/bench_device.h"
#include "kernels/bench/bench_exchange.h"
#include "kernels/bench/bench_layer.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: spillway-bench-kernels [gemm | local]           the kernels of one GPU\n"
    "       spillway-bench-kernels dispatch [OPTION]...     dispatch and combine between GPUs\n"
    "  --ranks N     ranks (default: one a GPU); more than GPUs are folded onto them\n"
    "  --gpus N      GPUs to put them on (default: as many as there are)\n"
    "  --quick       two shapes\n"
    "  --link        measure the links by message size too: a cluster file's key `link`, last\n"
    "       spillway-bench-kernels layer [OPTION]...        whole layers, forward and backward\n"
    "  --ranks N     GPUs (default: all)\n"
    "  --tokens N    of a rank (default: 4096)\n"
    "  --model NAME, --scheme NAME, --routing NAME         one alone\n"
    "  --csv FILE    the numbers, a line for each phase\n"
    "  --unfused     without the fused products that layers have\n"
    "  --help        this\n";

enum { RANKS = 1, GPUS, QUICK, LINK, TOKENS, MODEL, SCHEME, ROUTING, CSV, UNFUSED, HELP };
enum {
    DISPATCH = 1 << RANKS | 1 << GPUS | 1 << QUICK | 1 << LINK,
    LAYER = 1 << RANKS | 0x3f << TOKENS
}; /* their options */

static const struct option options[] = {
    {"ranks", required_argument, NULL, RANKS},   {"gpus", required_argument, NULL, GPUS},
    {"quick", no_argument, NULL, QUICK},         {"link", no_argument, NULL, LINK},
    {"tokens", required_argument, NULL, TOKENS}, {"model", required_argument, NULL, MODEL},
    {"scheme", required_argument, NULL, SCHEME}, {"routing", required_argument, NULL, ROUTING},
    {"csv", required_argument, NULL, CSV},       {"unfused", no_argument, NULL, UNFUSED},
    {"help", no_argument, NULL, HELP},           {NULL, 0, NULL, 0}};

/* Digits alone, 1 to 10^6. */
static bool parse_count(const char *text, size_t *out) {
    char *end = NULL;
    const unsigned long value = strtoul(text, &end, 10);
    *out = (size_t)value;
    return text[0] >= '1' && text[0] <= '9' && *end == '\0' && value <= 1000000;
}

static spw_status bench_dispatch(const spw_bench_exchange_request *request, bool link) {
    spw_link_curve curve;
    spw_status status = spw_bench_exchange(request, link ? &curve : NULL);
    if (status == SPW_OK && link) status = spw_link_curve_write(&curve, stdout);
    return status;
}

int main(int argc, char **argv) {
    spw_bench_exchange_request q = {.ranks = 0};
    spw_bench_layer_request layer = {.ranks = 0};
    bool link = false, good = true;
    unsigned given = 0;
    for (int key = 0; good && (key = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        given |= 1u << (key & 31);
        switch (key) {
        case RANKS: good = parse_count(optarg, &q.ranks); break;
        case GPUS: good = parse_count(optarg, &q.gpus) && q.gpus >= 2; break;
        case QUICK: q.quick = true; break;
        case LINK: link = true; break;
        case TOKENS: good = parse_count(optarg, &layer.tokens); break;
        case MODEL: layer.model = optarg; break;
        case SCHEME: layer.scheme = optarg; break;
        case ROUTING: layer.routing = optarg; break;
        case CSV: layer.csv = optarg; break;
        case UNFUSED: layer.unfused = true; break;
        case HELP: fputs(usage, stdout); return 0;
        default: good = false;
        }
    }
    const char *what = optind < argc ? argv[optind] : "";
    const bool dispatch = strcmp(what, "dispatch") == 0, layers = strcmp(what, "layer") == 0;
    const unsigned allowed = dispatch ? DISPATCH : layers ? LAYER : 0;
    if (!good || argc - optind > 1 || (given & ~allowed) != 0 || (dispatch && q.ranks == 1)) {
        fputs(usage, stderr);
        return 2;
    }
    layer.ranks = q.ranks;
    const spw_status status = dispatch ? bench_dispatch(&q, link)
                              : layers ? spw_bench_layer(&layer)
                                       : spw_bench_device(what);
    if (status != SPW_OK) fprintf(stderr, "spillway-bench-kernels: %s\n", spw_last_error());
    return spw_status_exit(status);
}
