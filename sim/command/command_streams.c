/* What commands print into, and lines that a person can read. */
#include "sim/command/command.h"
#include "sim/print/wrap.h"

#include <string.h>

static _Thread_local spw_command_streams streams;

void spw_command_redirect(spw_command_streams own) { streams = own; }
bool spw_command_is_redirected(void) { return streams.out != NULL; }
FILE *spw_command_out(void) { return streams.out != NULL ? streams.out : stdout; }
FILE *spw_command_notes(void) { return streams.notes != NULL ? streams.notes : stderr; }

/* --- Lines that a person can read --- */

static spw_wrap *wrap; /* what stdout is, once it breaks lines */

spw_status spw_command_lines_at(size_t most) {
    if (streams.out != NULL) return SPW_OK; /* of a thread's own, for machines */
    if (wrap == NULL) {
        const spw_status status = spw_wrap_open(stdout, &wrap);
        if (status != SPW_OK) return status;
        stdout = spw_wrap_stream(wrap);
    }
    spw_wrap_at(wrap, most);
    spw_table_lines_at(most);
    return SPW_OK;
}

spw_status spw_command_format(const char *text, spw_format *out) {
    const spw_status status = spw_format_parse(text, out);
    if (status == SPW_OK && *out != SPW_FORMAT_TABLE && wrap != NULL) spw_wrap_at(wrap, SIZE_MAX);
    return status;
}

spw_status spw_command_said(void) {
    FILE *out = spw_command_out();
    errno = 0;
    if (fflush(out) == 0 && !ferror(out) && (wrap == NULL || out != stdout || spw_wrap_flush(wrap) == 0))
        return SPW_OK;
    return spw_fail(SPW_EIO, "standard output cannot be written%s%s", errno != 0 ? ": " : "",
                    errno != 0 ? strerror(errno) : "");
}
