#include "sim/report/summary_text.h"

#include "base/memory.h"

#include <stdbool.h>
#include <string.h>

enum { MOST_VALUES = 1 << 20 /* of what is parsed at once */ };

/* The end of the value that begins at `at`: the comma or bracket behind it, or `end`. */
static const char *value_end(const char *at, const char *end) {
    size_t depth = 0;
    bool quoted = false;
    for (; at < end; at++) {
        if (quoted && *at == '\\') {
            at++;
        } else if (*at == '"') {
            quoted = !quoted;
        } else if (!quoted && (*at == '[' || *at == '{')) {
            depth++;
        } else if (!quoted && (*at == ']' || *at == '}')) {
            if (depth == 0) return at;
            depth--;
        } else if (!quoted && *at == ',' && depth == 0) {
            return at;
        }
    }
    return end;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static const char *skip_blanks(const char *at, const char *end) {
    while (at < end && is_blank(*at)) at++;
    return at;
}

/* The list of the key "rows" of the outermost object; false: there is none. */
static bool find_rows(spw_summary_text *out, const char *text, const char *end) {
    static const char key[] = "\"rows\"";
    const size_t length = sizeof key - 1;
    const char *at = skip_blanks(text, end);
    if (at == end || *at != '{') return false;
    for (at++; at < end; at++) {
        at = skip_blanks(at, end);
        const char *next = value_end(at, end);
        const bool named = (size_t)(next - at) > length && memcmp(at, key, length) == 0;
        const char *value = named ? skip_blanks(at + length, next) : next;
        if (value < next && *value == ':') value = skip_blanks(value + 1, next);
        if (value < next && *value == '[') {
            while (next > value && is_blank(next[-1])) next--;
            if (next[-1] != ']' || next - value < 2) return false;
            out->rows = value + 1;
            out->end = next - 1;
            return true;
        }
        at = next;
    }
    return false;
}

/* A value is 40 to 100 bytes in memory and may be 2 in the file. Every value but the first of a list or object stands behind a
 * comma. */
static spw_status check_values(const char *text, size_t bytes) {
    size_t values = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') quoted = !quoted;
        if (quoted && text[i] == '\\') i++;
        values += !quoted && (text[i] == ',' || text[i] == '[' || text[i] == '{');
    }
    return values > MOST_VALUES ? spw_fail(SPW_EFORMAT, "more than %d values", MOST_VALUES) : SPW_OK;
}

static spw_status parse(const char *text, size_t bytes, json_t **out) {
    json_error_t error;
    char plain[160];
    const spw_status status = check_values(text, bytes);
    if (status != SPW_OK) return status;
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (*out != NULL) return SPW_OK;
    spw_plain_text(error.text, plain, sizeof plain);
    return spw_fail(SPW_EFORMAT, "no JSON object: %s", plain);
}

spw_status spw_summary_open(const char *text, size_t bytes, spw_summary_text *out) {
    static const char nothing[] = "null";
    spw_status status = SPW_OK;
    char *rest = NULL;
    *out = (spw_summary_text){.root = NULL};
    if (!find_rows(out, text, text + bytes)) {
        SPW_TRY(parse(text, bytes, &out->root));
        goto cleanup;
    }
    const size_t before = (size_t)(out->rows - 1 - text), after = (size_t)(text + bytes - out->end - 1);
    SPW_TRY(SPW_ALLOC(before + sizeof nothing + after, &rest));
    memcpy(rest, text, before);
    memcpy(rest + before, nothing, sizeof nothing - 1);
    memcpy(rest + before + sizeof nothing - 1, out->end + 1, after);
    SPW_TRY(parse(rest, before + sizeof nothing - 1 + after, &out->root));

cleanup:
    spw_free(rest);
    if (status == SPW_OK && !json_is_object(out->root)) {
        spw_summary_close(out);
        status = spw_fail(SPW_EFORMAT, "no JSON object: no object");
    }
    return status;
}

size_t spw_summary_count(const spw_summary_text *summary) {
    size_t count = 0;
    if (summary->rows == NULL || skip_blanks(summary->rows, summary->end) == summary->end) return 0;
    for (const char *at = summary->rows; at <= summary->end; at++) {
        at = value_end(at, summary->end);
        count++;
    }
    return count;
}

spw_status spw_summary_next(const spw_summary_text *summary, const char **at, json_t **row) {
    const char *const end = value_end(*at, summary->end);
    const spw_status status = parse(*at, (size_t)(end - *at), row);
    *at = end < summary->end ? end + 1 : end;
    return status == SPW_EFORMAT ? spw_fail_within(status, "rows") : status;
}

void spw_summary_close(spw_summary_text *summary) {
    json_decref(summary->root);
    *summary = (spw_summary_text){.root = NULL};
}
