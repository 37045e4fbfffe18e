#include "base/status.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 8192 }; /* the longest path of Linux, twice */
static _Thread_local char last_error[MESSAGE_BYTES];

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

void spw_plain_text(const char *text, char *out, size_t size) {
    size_t used = 0, bytes = 1;
    for (const char *at = text; *at != '\0' && used + 5 < size; at += bytes) {
        const uint32_t character = spw_text_character(at, &bytes);
        if (spw_text_is_unfit(character) || character == '\n' || character == '\t') {
            out[used++] = '?';
        } else {
            memcpy(out + used, at, bytes);
            used += bytes;
        }
    }
    out[used] = '\0';
}

static _Thread_local spw_status noted;
static _Thread_local char noted_text[128];

void spw_note_cause(spw_status cause, const char *text) {
    if (noted != SPW_OK) return; /* the first is the reason of what follows */
    noted = cause;
    (void)snprintf(noted_text, sizeof noted_text, "%s", text);
}

/* Puts the noted cause in the place of what the caller blames, whose name, before the colon, stays. */
static spw_status take_cause(spw_status status, char *message, size_t size) {
    const bool blames =
        status == SPW_EFORMAT || status == SPW_EIO || status == SPW_ECONFIG || status == SPW_ENOMEM;
    const char *colon = strstr(message, ": ");
    if (noted == SPW_OK || !blames) return status;
    const size_t used = colon != NULL ? (size_t)(colon - message) + 2 : 0;
    (void)snprintf(message + used, size - used, "%s", noted_text);
    status = noted;
    noted = SPW_OK;
    return status;
}

spw_status spw_settle(spw_status status) {
    return noted == SPW_OK ? status : spw_fail(noted, "%s", noted_text);
}

spw_status spw_fail(spw_status status, const char *format, ...) {
    char message[sizeof last_error]; /* an argument may be spw_last_error() itself */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    status = take_cause(status, message, sizeof message);
    spw_plain_text(message, last_error, sizeof last_error); /* what it quotes may come from a hostile file */
    return status;
}

spw_status spw_fail_within(spw_status status, const char *format, ...) {
    char prefix[MESSAGE_BYTES / 2];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    return spw_fail(status, "%s: %s", prefix, last_error);
}
