/* What lies outside of PyTorch's allocator by pencil, and beside all runs of transformers on one and two H100
 * (notebooks_data/measured/transformers_h100.csv: device_bytes - reserved_bytes). argv: the folder of the table. */
#include "sim/memory/allocator/device_budget.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/job/job_json.h"
#include "sim/read/csv.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0, MIB = 1024.0 * 1024.0;

static bool near(double a, double b) { return fabs(a - b) < 1.0; }

/* Of OLMoE on so many GPUs, with more lines of the job. */
static spw_device_budget budget_of(const char *cluster, size_t gpus, const char *scheme, const char *more,
                                   spw_job *job) {
    char text[512];
    spw_scheme parsed;
    (void)snprintf(text, sizeof text,
                   "model: olmoe-1b-7b\ncluster: %s\nparallel: {expert: 1, fsdp: %zu}\nbatch: "
                   "{sequences_per_gpu: 1, sequence_length: 4096}\nschemes: [%s]\n%s",
                   cluster, gpus, scheme, more);
    CHECK_OK(spw_job_parse("test", "", text, strlen(text), job));
    CHECK_OK(spw_scheme_parse(scheme, &parsed));
    return spw_device_budget_of(job, &parsed);
}

static void check_pencil(spw_job *job) {
    const double process = 804061184.0, pair = 891355136.0, doubt = 16.0 * MIB;
    spw_device_budget b = budget_of("h100-1x1", 1, "transformers", "", job);
    CHECK(b.listed && near(b.outside, process) && near(b.outside_low, process - doubt) &&
          near(b.outside_high, process + doubt));
    CHECK(spw_device_budget_bytes(&b) == (uint64_t)(79.18 * GIB - process + 0.5));
    CHECK(spw_device_budget_doubt(&b) == (uint64_t)doubt);
    b = budget_of("h100-1x2", 2, "transformers", "", job);
    CHECK(near(b.outside, process + pair) && near(b.outside_high, process + pair + doubt));
    b = budget_of("h100-1x8", 8, "transformers", "",
                  job); /* groups of more than two, and the most reported */
    CHECK(near(b.outside, process + 1.265 * pair) && near(b.outside_low, process + pair - doubt) &&
          near(b.outside_high, process + 1.6e9 + doubt));
    b = budget_of("h100-2x8", 16, "transformers", "", job); /* a buffer for the network */
    CHECK(near(b.outside, process + 1.265 * pair) &&
          near(b.outside_high, process + 1.6e9 + 512.0 * MIB + doubt));
    b = budget_of("h100-1x8", 8, "transformers", "fsdp2: {replicas: 2, reshard_after_forward: always}\n",
                  job);
    CHECK(near(b.outside, process + 1.265 * (pair + 486.0 * MIB)) &&
          near(b.outside_high, process + 3.2e9 + doubt));
    b = budget_of("h100-2x8", 16, "transformers", "fsdp2: {replicas: 2, reshard_after_forward: always}\n",
                  job); /* of each group */
    CHECK(near(b.outside_high, process + 3.2e9 + 2.0 * 512.0 * MIB + doubt));
    b = budget_of("h200-1x2", 2, "transformers", "", job); /* another card */
    CHECK(near(b.outside, process + pair) && near(b.outside_low, process + pair - doubt - 512.0 * MIB) &&
          near(b.outside_high, process + pair + doubt + 512.0 * MIB));
}

/* A share where it is said, and where nothing was measured. */
static void check_share(spw_job *job) {
    static const struct {
        const char *cluster, *scheme, *more;
        double share;
    } cases[] = {{"h100-1x1", "transformers", "memory_fraction: 0.9\n", 0.1},
                 {"h100-1x1", "transformers", "memory_fraction: 0.93\n", 0.07},
                 {"mi300x-1x1", "transformers", "", 0.07},
                 {"h100-1x1", "torchtitan", "", 0.07}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const spw_device_budget b = budget_of(cases[i].cluster, 1, cases[i].scheme, cases[i].more, job);
        CHECK(!b.listed && near(b.outside, cases[i].share * b.device) &&
              near(b.outside_low, b.outside_high) && spw_device_budget_doubt(&b) == 0);
    }
}

/* A block that the job carries is taken off whatever says the rest; never more than there is. */
static void check_resident(spw_job *job) {
    char text[SPW_BUDGET_TEXT];
    spw_device_budget b =
        budget_of("h100-1x1", 1, "transformers", "resident: {gib: 20, name: vLLM awake}\n", job);
    CHECK(spw_device_budget_bytes(&b) == (uint64_t)(59.18 * GIB - 804061184.0 + 0.5));
    CHECK(strcmp(spw_device_budget_text(&b, job, text),
                 "the GPU's 79.18 less 0.75 outside, 0.73 to 0.76, and 20.00 of vLLM awake") == 0);
    b = budget_of("h100-1x1", 1, "torchtitan", "resident: {gib: 20}\n", job);
    CHECK(near((double)spw_device_budget_bytes(&b), 0.93 * 79.18 * GIB - 20.0 * GIB));
    CHECK(strcmp(spw_device_budget_text(&b, job, text),
                 "the GPU's 79.18 less 5.54 outside, and 20.00 of what is resident") == 0);
    b = budget_of("h100-1x1", 1, "transformers", "resident: {gib: 1, share: 0.3}\n", job);
    CHECK(near(b.resident, GIB + 0.3 * 79.18 * GIB));
    b = budget_of("h100-1x1", 1, "torchtitan", "resident: {gib: 99}\n", job);
    CHECK(spw_device_budget_bytes(&b) == 0);
}

static void check_span(spw_job *job) {
    char text[SPW_BUDGET_TEXT];
    spw_scheme scheme[2];
    (void)budget_of("h100-1x1", 1, "transformers", "", job);
    CHECK(spw_job_lists_outside(job));
    CHECK_OK(spw_scheme_parse("transformers", &scheme[0]));
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme[1]));
    const spw_budget_span span = spw_device_budget_span(job, scheme, 2);
    CHECK(span.least == (uint64_t)(0.93 * 79.18 * GIB + 0.5) && span.most > span.least);
    CHECK(strcmp(spw_budget_span_text(job, scheme, 2, text), "73.6 to 78.4 (by scheme)") == 0);
    CHECK(strcmp(spw_budget_span_text(job, scheme, 1, text), "78.4") == 0);
    (void)budget_of("h100-1x1", 1, "transformers", "memory_fraction: 0.93\n", job);
    CHECK(!spw_job_lists_outside(job));
    (void)budget_of("h100-1x1", 1, "torchtitan", "", job);
    CHECK(!spw_job_lists_outside(job));
}

/* Device in use less reserved of every run lies in the interval; of plain ones it is the figure. */
static void check_runs(const char *folder, spw_job *job) {
    char path[512];
    spw_csv *csv = NULL;
    size_t alike = 0;
    const spw_device_budget of[] = {budget_of("h100-1x1", 1, "transformers", "", job),
                                    budget_of("h100-1x2", 2, "transformers", "", job)};
    (void)snprintf(path, sizeof path, "%s/transformers_h100.csv", folder);
    CHECK_OK(spw_csv_read(path, &csv));
    const size_t rows = spw_csv_rows(csv);
    CHECK(rows == 37);
    for (size_t r = 0; r < rows; r++) {
        const spw_device_budget *b = &of[number(csv, r, "ranks") - 1];
        const double outside =
            (double)number(csv, r, "device_bytes") - (double)number(csv, r, "reserved_bytes");
        CHECK(b->outside_low <= outside && outside <= b->outside_high);
        alike += near(outside, b->outside);
    }
    CHECK(alike == 32);
    spw_csv_close(csv);
}

int main(int argc, char **argv) {
    spw_job *job = NULL;
    if (argc != 2) return 2;
    if (SPW_ALLOC(1, &job) != SPW_OK) return 2;
    check_pencil(job);
    check_share(job);
    check_resident(job);
    check_span(job);
    check_runs(argv[1], job);
    spw_free(job);
    return check_done();
}
