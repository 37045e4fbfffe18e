/* Any bytes are a table or are refused; the rows of a table are jobs, or reasons, or an error. */
#include "sim/read/csv.h"
#include "sim/score/published/score_cell.h"

#include "base/memory.h"
#include "tests/fuzz/fuzz_input.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static spw_score_stacks stacks;
    static spw_score_cell cell;
    spw_csv *csv = NULL;
    char *text = NULL;
    if (size > 1 << 16) return 0;
    if (stacks.stack == NULL && spw_score_stacks_open("counted", NULL, &stacks) != SPW_OK) abort();
    if (SPW_ALLOC(size + 1, &text) != SPW_OK) return 0;
    memcpy(text, data, size);
    spw_status status = spw_csv_parse("fuzz", text, size, &csv);
    spw_fuzz_refusal(status);
    for (size_t row = 0; status == SPW_OK && row < spw_csv_rows(csv) && row < 8; row++) {
        status = spw_score_cell_read(csv, row, &stacks, &cell);
        spw_fuzz_refusal(status);
        if (status == SPW_OK && strchr(cell.skipped, '\n') != NULL) abort();
    }
    spw_csv_close(csv);
    spw_free(text);
    return 0;
}
