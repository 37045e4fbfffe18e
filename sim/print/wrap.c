#include "sim/print/wrap.h"

#include "base/memory.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

struct spw_wrap {
    FILE *below, *stream;
    size_t most;
    char *line; /* the one that has not ended */
    size_t used, capacity;
};

bool spw_begins_character(char c) { return ((unsigned char)c & 0xC0) != 0x80; }

size_t spw_characters(const char *text) {
    size_t count = 0;
    for (; *text != '\0'; text++) count += spw_begins_character(*text);
    return count;
}

size_t spw_wrap_next(const char **text, size_t most) {
    const char *const begin = *text;
    size_t kept = 0, count = 0;
    for (const char *c = begin; *c != '\0';) {
        const size_t blanks = strspn(c, " ");
        size_t bytes = blanks + strcspn(c + blanks, " ");
        if (bytes > blanks && isdigit((unsigned char)c[bytes - 1]) && strncmp(c + bytes, " %", 2) == 0)
            bytes += 1 + strcspn(c + bytes + 1, " ");
        for (size_t i = 0; i < bytes; i++) count += spw_begins_character(c[i]);
        if (kept > 0 && count > most) break;
        c += bytes;
        kept = (size_t)(c - begin);
    }
    *text += kept + strspn(begin + kept, " ");
    return kept;
}

/* Where a line goes on. */
static size_t indent_of(const char *line) {
    enum { WIDEST_LABEL = 24 };
    const size_t leading = strspn(line, " ");
    for (size_t at = leading; line[at] != '\0' && at < WIDEST_LABEL; at++) {
        if (line[at] != ' ' || line[at + 1] != ' ') continue;
        const size_t label = at + strspn(line + at, " ");
        return label <= WIDEST_LABEL ? label : leading + 2;
    }
    return leading >= 10 ? leading : leading + 2; /* what already goes on keeps its place */
}

static bool is_command(const char *line) { return strstr(line, ": spillway ") != NULL; } /* to be copied */

static int emit(spw_wrap *w, bool ended) {
    w->line[w->used] = '\0';
    const char *rest = w->line;
    if (strlen(rest) < w->used || w->most == SIZE_MAX || spw_characters(rest) <= w->most ||
        is_command(rest)) {
        (void)fwrite(w->line, 1, w->used, w->below);
    } else {
        const size_t indent = indent_of(rest);
        size_t begin = strspn(rest, " ");
        rest += begin;
        for (size_t room = w->most - begin; *rest != '\0'; room = w->most - indent, begin = indent) {
            const char *const part = rest;
            const size_t bytes = spw_wrap_next(&rest, room);
            (void)fprintf(w->below, "%*s%.*s%s", (int)begin, "", (int)bytes, part, *rest != '\0' ? "\n" : "");
        }
    }
    if (ended) (void)fputc('\n', w->below);
    w->used = 0;
    return ferror(w->below) ? -1 : 0;
}

static int append(spw_wrap *w, const char *text, size_t bytes) {
    if (w->used + bytes + 1 > w->capacity) {
        const size_t capacity = 2 * (w->used + bytes + 1);
        char *larger = NULL;
        if (SPW_ALLOC(capacity, &larger) != SPW_OK) {
            errno = ENOMEM;
            return -1;
        }
        if (w->used > 0) memcpy(larger, w->line, w->used);
        spw_free(w->line);
        w->line = larger, w->capacity = capacity;
    }
    memcpy(w->line + w->used, text, bytes);
    w->used += bytes;
    return 0;
}

static ssize_t write_lines(void *cookie, const char *text, size_t bytes) {
    spw_wrap *w = cookie;
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        if (append(w, text + at, length) != 0 || (end != NULL && emit(w, true) != 0)) return 0;
        at += length + (end != NULL);
    }
    return (ssize_t)bytes;
}

spw_status spw_wrap_open(FILE *below, spw_wrap **out) {
    const spw_status status = SPW_ALLOC(1, out);
    if (status != SPW_OK) return status;
    **out = (spw_wrap){.below = below, .most = SIZE_MAX};
    (*out)->stream = fopencookie(*out, "w", (cookie_io_functions_t){.write = write_lines});
    if ((*out)->stream == NULL) {
        spw_free(*out);
        *out = NULL;
        return spw_fail(SPW_ENOMEM, "cannot allocate a stream");
    }
    return SPW_OK;
}

FILE *spw_wrap_stream(spw_wrap *wrap) { return wrap->stream; }

void spw_wrap_at(spw_wrap *wrap, size_t most) { wrap->most = most; }

int spw_wrap_flush(spw_wrap *wrap) {
    if (fflush(wrap->stream) != 0 || ferror(wrap->stream)) return -1;
    if (wrap->used > 0 && emit(wrap, false) != 0) return -1;
    return fflush(wrap->below);
}

void spw_wrap_close(spw_wrap *wrap) {
    if (wrap == NULL) return;
    (void)fclose(wrap->stream);
    if (wrap->used > 0) (void)emit(wrap, false);
    spw_free(wrap->line);
    spw_free(wrap);
}
