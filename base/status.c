#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[1024];

#define NAME(name, exit_status, text) #name,
#define TEXT(name, exit_status, text) text,
#define EXIT(name, exit_status, text) exit_status,
static const char *const names[] = {SPW_STATUS_LIST(NAME)};
static const char *const texts[] = {SPW_STATUS_LIST(TEXT)};
static const int exits[] = {SPW_STATUS_LIST(EXIT)};

const char *spw_status_name(spw_status status) {
    return (unsigned)status < SPW_STATUS_COUNT ? names[status] : "SPW_E?";
}

const char *spw_status_text(spw_status status) {
    return (unsigned)status < SPW_STATUS_COUNT ? texts[status] : "unknown status";
}

int spw_status_exit(spw_status status) { return (unsigned)status < SPW_STATUS_COUNT ? exits[status] : 3; }

const char *spw_last_error(void) { return last_error; }

spw_status spw_fail(spw_status status, const char *format, ...) {
    char message[sizeof last_error]; /* an argument may be spw_last_error() itself */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    memcpy(last_error, message, sizeof message);
    return status;
}

spw_status spw_fail_within(spw_status status, const char *format, ...) {
    char prefix[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    return spw_fail(status, "%s: %s", prefix, last_error);
}
