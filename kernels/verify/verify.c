/* spillway-verify: every kernel against the reference, on a machine with GPUs and nothing else. Exit status 0 all agree, 1 a
 * comparison failed, 2 usage, 3 no GPU or a file that cannot be used. */
#include "kernels/verify/plugin_device.h"
#include "kernels/verify/plugin_report.h"
#include "kernels/verify/ranks/verify_exchange.h"
#include "kernels/verify/verify_device.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: spillway-verify [small | reduced | full | races | all] [--only KIND]    the kernels of one GPU\n"
    "       spillway-verify --record FILE                       a routing record on one GPU\n"
    "       spillway-verify --ranks N [OPTION]...               dispatch, combine and exchanges between N "
    "ranks\n"
    "       spillway-verify --plugin FILE.so [--kernel NAME] [--case N] [--record FILE] [--case-seconds S]  "
    "kernels of your own that take device memory\n"
    "  races              few and small cases in which each ring comes round, for compute-sanitizer's "
    "racecheck\n"
    "  --only KIND        one kind of them, as 'products', 'fused', 'local'; another word lists all\n"
    "  --gpus N           GPUs to put them on (default: as many as there are)\n"
    "  --phases           no kernel waits for another rank's; so it is where too many ranks share a GPU\n"
    "  --processes        a process a rank, one GPU each\n"
    "  --repetitions N    again and again with fresh routing\n"
    "  --full             DeepSeek-V3's shape too\n"
    "  --record FILE      the routing and the predictions of a record\n"
    "  --help             this\n";

enum {
    RANKS = 1,
    GPUS,
    PHASES,
    PROCESSES,
    REPETITIONS,
    FULL,
    RECORD,
    PLUGIN,
    KERNEL,
    CASE,
    SECONDS,
    ONLY,
    HELP
};

static const struct option options[] = {
    {"ranks", required_argument, NULL, RANKS},
    {"gpus", required_argument, NULL, GPUS},
    {"phases", no_argument, NULL, PHASES},
    {"processes", no_argument, NULL, PROCESSES},
    {"repetitions", required_argument, NULL, REPETITIONS},
    {"full", no_argument, NULL, FULL},
    {"record", required_argument, NULL, RECORD},
    {"plugin", required_argument, NULL, PLUGIN},
    {"kernel", required_argument, NULL, KERNEL},
    {"case", required_argument, NULL, CASE},
    {"case-seconds", required_argument, NULL, SECONDS},
    {"only", required_argument, NULL, ONLY},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

/* Digits alone, 1 to 10^9. */
static bool parse_count(const char *text, size_t *out) {
    char *end = NULL;
    const unsigned long value = strtoul(text, &end, 10);
    *out = (size_t)value;
    return text[0] >= '1' && text[0] <= '9' && *end == '\0' && value <= 1000000000;
}

static bool parse_case(const char *text, long *out) {
    char *end = NULL;
    *out = strtol(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && *out <= 1000000;
}

static spw_status verify_ranks(spw_exchange_request *q, const char *record_path) {
    spw_record record = {.ranks = 0};
    spw_status status = record_path == NULL ? SPW_OK : spw_record_read(record_path, &record);
    if (record_path != NULL) q->record = &record;
    if (status == SPW_OK) status = spw_verify_exchange(q);
    spw_record_destroy(&record);
    q->record = NULL;
    return status;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that a run that is stopped leaves what it found in a file, too */
    spw_exchange_request q = {.ranks = 0};
    const char *record_path = NULL, *kind = NULL;
    spw_plugin_request plugin = {
        .run = spw_plugin_run_on_device, .number = -1, .case_seconds = SPW_PLUGIN_CASE_SECONDS};
    size_t seconds = SPW_PLUGIN_CASE_SECONDS;
    bool good = true, exchange = false;
    for (int key = 0; good && (key = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (key) {
        case RANKS: good = parse_count(optarg, &q.ranks); break;
        case GPUS: good = exchange = parse_count(optarg, &q.gpus); break;
        case REPETITIONS: good = exchange = parse_count(optarg, &q.repetitions); break;
        case PHASES: q.phases = exchange = true; break;
        case PROCESSES: q.processes = exchange = true; break;
        case FULL: q.full = exchange = true; break;
        case RECORD: record_path = optarg; break;
        case PLUGIN: plugin.path = optarg; break;
        case KERNEL: plugin.kernel = optarg; break;
        case CASE: good = parse_case(optarg, &plugin.number); break;
        case SECONDS: good = parse_count(optarg, &seconds); break;
        case ONLY: kind = optarg; break;
        case HELP: fputs(usage, stdout); return 0;
        default: good = false;
        }
    }
    const int levels = argc - optind;
    plugin.record = record_path;
    plugin.case_seconds = (unsigned)seconds;
    if (!good || levels > 1 || (levels == 1 && (q.ranks > 0 || record_path != NULL)) ||
        (exchange && q.ranks == 0) ||
        (plugin.path == NULL && (plugin.kernel != NULL || plugin.number >= 0)) ||
        (kind != NULL && (q.ranks > 0 || record_path != NULL || plugin.path != NULL)) ||
        (q.processes && (q.phases || q.gpus > 0))) {
        fputs(usage, stderr);
        return 2;
    }
    const char *level = levels == 1 ? argv[optind] : "small";
    const spw_status status = plugin.path != NULL ? spw_plugin_report(&plugin, "spillway-verify", stdout)
                              : q.ranks > 0
                                  ? verify_ranks(&q, record_path)
                                  : spw_verify_device(record_path != NULL ? NULL : level, kind, record_path);
    if (status != SPW_OK) fprintf(stderr, "spillway-verify: %s\n", spw_last_error());
    return spw_status_exit(status);
}
