/* Writes what the reader makes of a trace, for an oracle to compare: argv[1] a trace, argv[2] the order: steps, layers, or
 * a number of steps read at once. To stdout: uint16 ids, 65535 for missing, then weight bits, record by record. */
#include "traces/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static spw_status dump(spw_trace *trace, size_t step, size_t steps, size_t layer) {
    spw_trace_record record;
    spw_status status = spw_trace_read_record(trace, step, steps, layer, true, &record);
    for (size_t i = 0; status == SPW_OK && i < record.tokens * record.top_k; i++) {
        uint16_t id = record.id_bytes == 1 ? ((const uint8_t *)record.expert_id)[i]
                                           : ((const uint16_t *)record.expert_id)[i];
        if (id == record.missing) id = UINT16_MAX;
        (void)fwrite(&id, sizeof id, 1, stdout);
    }
    if (status == SPW_OK && record.weight != NULL) {
        (void)fwrite(record.weight, sizeof *record.weight, record.tokens * record.top_k, stdout);
    }
    return status;
}

static spw_status dump_all(spw_trace *trace, const char *order) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    spw_status status = SPW_OK;
    size_t at_once = strtoul(order, NULL, 10);
    if (at_once == 0) at_once = 1;
    if (strcmp(order, "layers") == 0) {
        for (size_t layer = 0; layer < info->layers; layer++) {
            for (size_t step = 0; step < info->steps; step++) SPW_TRY(dump(trace, step, 1, layer));
        }
        goto cleanup;
    }
    for (size_t step = 0; info->has_tokens && step < info->steps; step += at_once) {
        size_t steps = info->steps - step < at_once ? info->steps - step : at_once;
        spw_trace_columns columns;
        SPW_TRY(spw_trace_read_columns(trace, step, steps, &columns));
        for (size_t layer = 0; layer < info->layers; layer++) SPW_TRY(dump(trace, step, steps, layer));
    }

cleanup:
    return status;
}

int main(int argc, char **argv) {
    spw_trace *trace = NULL;
    if (argc < 3) return 2;
    spw_status status = spw_trace_open(argv[1], &trace);
    if (status == SPW_OK) status = dump_all(trace, argv[2]);
    spw_trace_close(trace);
    if (status != SPW_OK) fprintf(stderr, "%s: %s\n", spw_status_name(status), spw_last_error());
    return spw_status_exit(status);
}
