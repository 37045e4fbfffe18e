/* spillway-bench-kernels: medians over fresh inputs by device events, beside the machine's ceilings measured
 * in the same run. */
#include "kernels/bench.h"

#include "kernels/bench_device.h"
#include "kernels/bench_exchange.h"

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
    "  --link        measure the links by message size too: a cluster file's key `link`, last\n";

static const struct option options[] = {{"ranks", required_argument, NULL, 'r'},
                                        {"gpus", required_argument, NULL, 'g'},
                                        {"quick", no_argument, NULL, 'q'},
                                        {"link", no_argument, NULL, 'l'},
                                        {NULL, 0, NULL, 0}};

static spw_status bench_dispatch(const spw_bench_exchange_request *request, bool link) {
    spw_link_curve curve;
    spw_status status = spw_bench_exchange(request, link ? &curve : NULL);
    if (status == SPW_OK && link) status = spw_link_curve_write(&curve, stdout);
    return status;
}

int main(int argc, char **argv) {
    spw_bench_exchange_request q = {.ranks = 0};
    bool link = false, good = true, given = false;
    for (int key = 0; good && (key = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        given = true;
        switch (key) {
        case 'r':
            q.ranks = (size_t)strtoul(optarg, NULL, 10);
            good = q.ranks >= 2;
            break;
        case 'g':
            q.gpus = (size_t)strtoul(optarg, NULL, 10);
            good = q.gpus >= 2;
            break;
        case 'q': q.quick = true; break;
        case 'l': link = true; break;
        default: good = false;
        }
    }
    const char *what = optind < argc ? argv[optind] : "";
    const bool dispatch = strcmp(what, "dispatch") == 0;
    if (!good || argc - optind > 1 || (given && !dispatch)) {
        fputs(usage, stderr);
        return 2;
    }
    const spw_status status = dispatch ? bench_dispatch(&q, link) : spw_bench_device(what);
    if (status != SPW_OK) fprintf(stderr, "spillway-bench-kernels: %s\n", spw_last_error());
    return spw_status_exit(status);
}
