#include "base/status.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[SPW_MESSAGE_BYTES];

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

/* What was met, the first of its kind; kept until the program ends. One process, one run: a failure of memory or of the
 * system in any thread is one of the run. */
typedef struct cause {
    _Atomic int status; /* spw_status; SPW_OK: none */
    char text[160];
} cause;

static cause library; /* behind the next messages */
static cause doom;    /* behind everything that the run makes */

static void keep(cause *c, spw_status status, const char *text) {
    int none = SPW_OK;
    if (atomic_compare_exchange_strong(&c->status, &none, (int)status))
        (void)snprintf(c->text, sizeof c->text, "%.159s", text);
}

void spw_note_cause(spw_status status, const char *text) {
    keep(&library, status, text);
    keep(&doom, status, text);
}

void spw_forget_causes(void) { library.status = doom.status = SPW_OK; }

/* Puts the noted cause in the place of what the caller blames, whose name, before the colon, stays. */
static spw_status take_cause(spw_status status, char *message, size_t size) {
    const bool blames = status == SPW_EFORMAT || status == SPW_EIO || status == SPW_ECONFIG;
    if (status == SPW_ENOMEM) keep(&doom, status, message);
    if (library.status == SPW_OK || !blames) return status;
    const size_t length = strlen(message), text = strlen(library.text);
    if (length > text + 2 && strcmp(message + length - text, library.text) == 0)
        return (spw_status)library.status; /* said already, by a message that another one leads in */
    const char *colon = strstr(message, ": ");
    const size_t used = colon != NULL ? (size_t)(colon - message) + 2 : 0;
    (void)snprintf(message + used, size - used, "%s", library.text);
    return (spw_status)library.status;
}

spw_status spw_settle(spw_status status) {
    if (doom.status == SPW_OK || spw_status_exit(status) == spw_status_exit(SPW_ENOMEM)) return status;
    return spw_fail((spw_status)doom.status, "%s", doom.text);
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
    char prefix[SPW_MESSAGE_BYTES / 2];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    const size_t length = strlen(prefix);
    if (strncmp(last_error, prefix, length) == 0 && strncmp(last_error + length, ": ", 2) == 0)
        return status; /* what is blamed is named already */
    return spw_fail(status, "%s: %s", prefix, last_error);
}
