/* libFuzzer target of the trace reader: whatever the bytes, a trace is read to its end or refused in one line. HDF5 1.10 itself is not proof against every forged file; what it does with such bytes is found here
 * too, and docs/trace_format.md says what is known. */
#include "base/memory.h"
#include "tests/fuzz/fuzz_input.h"
#include "traces/trace.h"

#include <stdint.h>
#include <stdlib.h>

enum { MOST_CHOICES = 1 << 22, MOST_COUNTS = 1 << 20, MOST_RECORDS = 256 };

static void check_record(const spw_trace_record *record) {
    for (size_t i = 0; i < record->tokens * record->top_k; i++) {
        unsigned id = record->id_bytes == 1 ? ((const uint8_t *)record->expert_id)[i]
                                            : ((const uint16_t *)record->expert_id)[i];
        if (id >= record->experts && id != record->missing) abort();
    }
}

/* Reads everything, within reason: a file of some kilobytes may say that it holds gigabytes of one value. */
static void read_all(spw_trace *trace) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    size_t records = 0;
    uint32_t *counts = NULL;
    if (info->ranks * info->experts <= MOST_COUNTS) {
        size_t rows = info->ranks > 0 ? info->ranks : 1;
        if (SPW_ALLOC(rows * info->experts, &counts) != SPW_OK) return;
    }
    for (size_t step = 0; step < info->steps && records < MOST_RECORDS; step++) {
        bool small = info->step_tokens[step] * info->top_k <= MOST_CHOICES;
        spw_trace_columns columns;
        if (info->has_tokens && small) spw_fuzz_refusal(spw_trace_read_columns(trace, step, 1, &columns));
        for (size_t layer = 0; layer < info->layers && records < MOST_RECORDS; layer++, records++) {
            spw_trace_record record;
            if (info->has_tokens && small) {
                spw_status status = spw_trace_read_record(trace, step, 1, layer, true, &record);
                spw_fuzz_refusal(status);
                if (status == SPW_OK) check_record(&record);
            }
            if (info->has_routed && counts != NULL)
                spw_fuzz_refusal(spw_trace_read_routed(trace, step, layer, counts));
            if (info->has_by_rank && counts != NULL)
                spw_fuzz_refusal(spw_trace_read_by_rank(trace, step, layer, counts));
        }
    }
    spw_free(counts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    spw_trace *trace = NULL;
    /* HDF5 resolves links, so a file without a name (memfd) will not do. */
    const spw_status status = spw_trace_open(spw_fuzz_file(0, "trace.h5", data, size), &trace);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) read_all(trace);
    spw_trace_close(trace);
    return 0;
}
