/* libFuzzer target of the importers: the first byte chooses the format, the second what is stated, the rest is the file. Whatever
 * it holds, it is refused in one line, or becomes a trace that opens and whose counts and ids agree. */
#include "base/memory.h"
#include "traces/importers/importer.h"
#include "traces/trace_verify.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CERTAIN_CHECKS = 4 }; /* the others look for what is unlikely, not for what cannot be */

static char folder[64], input[96], output[96];

static void remove_files(void) {
    (void)unlink(input);
    (void)unlink(output);
    (void)rmdir(folder);
}

/* One folder a process, removed at its end; a name that says a rank. */
static void make_folder(void) {
    if (folder[0] != '\0') return;
    (void)snprintf(folder, sizeof folder, "%s/fuzz_import.XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(folder) == NULL) abort();
    (void)snprintf(input, sizeof input, "%s/rank0.jsonl", folder);
    (void)snprintf(output, sizeof output, "%s/out.h5", folder);
    (void)atexit(remove_files);
}

static void write_input(const uint8_t *data, size_t size) {
    const int descriptor = open(input, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (descriptor < 0 || write(descriptor, data, size) != (ssize_t)size) abort();
    (void)close(descriptor);
}

static void check_refusal(spw_status status) {
    const char *message = spw_last_error();
    if (status != SPW_OK && (message[0] == '\0' || strchr(message, '\n') != NULL)) abort();
}

static void check_trace(void) {
    spw_trace *trace = NULL;
    spw_verify_report report = {.findings = 0};
    if (spw_trace_open(output, &trace) != SPW_OK || spw_trace_verify(trace, 0, &report) != SPW_OK) {
        fprintf(stderr, "%s\n", spw_last_error());
        abort();
    }
    for (int i = 0; i < CERTAIN_CHECKS; i++) {
        if (report.failed[i] > 0) abort();
    }
    spw_verify_clear(&report);
    spw_trace_close(trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int32_t first[] = {0, 2}, dense[] = {0};
    size_t formats = 0;
    const spw_importer *importers = spw_importer_list(&formats);
    if (size < 2) return 0;
    const spw_importer *importer = &importers[data[0] % formats];
    const unsigned stated = data[1], facts = importer->needs | importer->takes;
    const bool optional[] = {(stated & 1) != 0, (stated & 2) != 0, (stated & 4) != 0, (stated & 8) != 0};
    const char *const inputs[] = {input};
    static const char *const axes[] = {"tokens,layers,k", "steps,ranks,layers,experts", "layers,tokens",
                                       "k,tokens,layers"};
    spw_import_settings settings = {.input = inputs,
                                    .inputs = 1,
                                    .output = output,
                                    .experts = 8,
                                    .top_k = 2,
                                    .ranks = (importer->needs & SPW_FACT_RANKS) != 0 ? 1 : 0,
                                    .expert_parallel = 1,
                                    .micro_batches = optional[0] ? 2 : 0,
                                    .recompute = optional[1],
                                    .resumed = optional[2],
                                    .axes = axes[stated >> 4 & 3],
                                    .missing = -1,
                                    .phase = -1};
    make_folder();
    write_input(data + 2, size - 2);
    settings.given = importer->needs;
    if (optional[0] && (facts & SPW_FACT_MICRO_BATCH_SIZE) != 0) settings.micro_batch_size = 2;
    if (optional[0] && (facts & SPW_FACT_MISSING) != 0) settings.given |= SPW_FACT_MISSING;
    if (optional[1] && (facts & SPW_FACT_DENSE_LAYERS) != 0)
        settings.dense_layers = (spw_index_list){dense, 1};
    if (optional[2] && (facts & SPW_FACT_TOKENS_PER_RANK) != 0) settings.tokens_per_rank = 3;
    if (optional[3] && (facts & SPW_FACT_STAGE_FIRST) != 0) settings.stage_first = (spw_index_list){first, 2};
    if (optional[3] && (facts & SPW_FACT_ARRAY) != 0) settings.array = "ids";
    if (optional[3] && importer->needs == (SPW_FACT_EXPERTS | SPW_FACT_TOP_K) &&
        (facts & SPW_FACT_RANKS) != 0)
        settings.ranks = 2;
    if (settings.axes == axes[2] && (importer->needs & SPW_FACT_AXES) != 0) settings.top_k = 1;
    const spw_status status = spw_trace_import(importer, &settings);
    check_refusal(status);
    if (status == SPW_OK) check_trace();
    (void)unlink(output);
    return 0;
}
