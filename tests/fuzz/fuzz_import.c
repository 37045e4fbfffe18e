/* libFuzzer target of the importers: the first byte chooses the format, the second what is stated and how many files there may be, the rest is the files. Whatever
 * it holds, it is refused in one line, or becomes a trace that opens and whose counts and ids agree. */
#include "tests/fuzz/fuzz_input.h"
#include "traces/importers/importer.h"
#include "traces/trace.h"
#include "traces/trace_verify.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CERTAIN_CHECKS = 4 /* the others look for what is unlikely, not for what cannot be */,
    MOST_FILES = 4
};

static const char *input[MOST_FILES], *output;

/* The files, cut at each mark of a record's end; their names say a rank. How many there are. */
static size_t write_inputs(const uint8_t *data, size_t size, size_t most) {
    static const char mark[] = "\x1e\n";
    size_t files = 0;
    for (const uint8_t *at = data, *end = data + size; files < most; files++) {
        const uint8_t *next = files + 1 < most ? memmem(at, (size_t)(end - at), mark, sizeof mark - 1) : NULL;
        char name[32];
        (void)snprintf(name, sizeof name, "rank%zu.jsonl", files);
        input[files] = spw_fuzz_file((int)files, name, at, (size_t)((next != NULL ? next : end) - at));
        if (next == NULL) return files + 1;
        at = next + sizeof mark - 1;
    }
    return files;
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
    static const char *const axes[] = {"tokens,layers,k", "steps,ranks,layers,experts", "layers,tokens",
                                       "k,tokens,layers"};
    output = spw_fuzz_path(MOST_FILES, "out.h5");
    spw_import_settings settings = {.input = input,
                                    .inputs = write_inputs(data + 2, size - 2, 1 + (stated >> 6)),
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
    if ((importer->needs & SPW_FACT_LAYERS) != 0) settings.layers = (spw_index_list){first, 2};
    if (settings.axes == axes[2] && (importer->needs & SPW_FACT_AXES) != 0) settings.top_k = 1;
    const spw_status status = spw_trace_import(importer, &settings);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) check_trace();
    (void)unlink(output);
    return 0;
}
