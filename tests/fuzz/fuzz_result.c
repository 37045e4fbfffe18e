/* libFuzzer target of `report`: whatever a result file holds, it is refused in one line, or becomes a page without a script, a
 * control character or a text that turns its direction around. */
#include "sim/report/report_page.h"
#include "sim/report/report_rows.h"
#include "tests/fuzz/fuzz_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_page(const char *page, size_t length) {
    static const char *const active[] = {
        "<script", "onload=", "onerror=", "javascript:", "<iframe", "\xe2\x80\xae"};
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)page[i] < 0x20 && page[i] != '\n' && page[i] != '\t') abort();
    }
    for (size_t i = 0; i < sizeof active / sizeof active[0]; i++) {
        const char *found = strcasestr(page, active[i]);
        if (found != NULL && strchr(active[i], '<') != NULL)
            abort(); /* the others may stand in a text, escaped */
        if (i + 1 == sizeof active / sizeof active[0] && found != NULL) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    spw_report report = {.rows = 0};
    char *page = NULL;
    size_t length = 0;
    spw_status status = spw_report_read(spw_fuzz_file(0, "result.h5", data, size), &report);
    spw_fuzz_refusal(status);
    if (status != SPW_OK) return 0;
    FILE *out = open_memstream(&page, &length);
    if (out == NULL) abort();
    status = spw_report_write(&report, "result.h5", out);
    if (fclose(out) != 0) abort();
    spw_fuzz_refusal(status);
    if (status == SPW_OK) check_page(page, length);
    free(page);
    spw_report_clear(&report);
    return 0;
}
