#include "sim/print/json_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void spw_json_put(spw_json *json, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) != 0) json->failed = true;
}

void spw_json_add(spw_json *json, json_t *array, json_t *value) {
    if (json_array_append_new(array, value) != 0) json->failed = true;
}

json_t *spw_json_real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *spw_json_count(uint64_t value) {
    return json_integer(value < INT64_MAX ? (json_int_t)value : (json_int_t)INT64_MAX);
}

json_t *spw_json_text(const char *value) {
    char plain[1024];
    json_t *json = value != NULL ? json_string(value) : json_null();
    if (json != NULL) return json;
    spw_plain_text(value, plain, sizeof plain);
    return json_string(plain);
}

/* jansson escapes what is not ASCII and leaves one control character. */
static int write_ascii(const char *text, size_t bytes, void *out) {
    const char *const end = text + bytes;
    while (text < end) {
        const char *del = memchr(text, 0x7f, (size_t)(end - text));
        const size_t length = (size_t)((del != NULL ? del : end) - text);
        if (fwrite(text, 1, length, out) != length || (del != NULL && fputs("\\u007F", out) < 0)) return -1;
        text += length + (del != NULL ? 1 : 0);
    }
    return 0;
}

static bool dump(const spw_json *json, const json_t *document, size_t flags, FILE *out) {
    return document != NULL && !json->failed &&
           json_dump_callback(document, write_ascii, out, flags | JSON_ENSURE_ASCII) == 0;
}

spw_status spw_json_print(const spw_json *json, json_t *document, size_t flags, const char *what, FILE *out) {
    const bool whole = document != NULL && !json->failed;
    const bool written = dump(json, document, flags, out) && fputc('\n', out) != EOF;
    json_decref(document);
    if (written) return SPW_OK;
    if (whole && ferror(out) != 0) return spw_fail(SPW_EIO, "%s cannot be written as JSON", what);
    return spw_fail(SPW_ENOMEM, "out of memory while %s is written as JSON", what);
}

spw_status spw_json_string(const spw_json *json, json_t *document, size_t flags, const char *what,
                           char **out) {
    size_t length = 0;
    *out = NULL;
    FILE *stream = open_memstream(out, &length);
    const bool dumped = stream != NULL && dump(json, document, flags, stream);
    const bool closed = stream != NULL && fclose(stream) == 0;
    json_decref(document);
    if (dumped && closed) return SPW_OK;
    free(*out);
    *out = NULL;
    return spw_fail(SPW_ENOMEM, "out of memory while %s is written as JSON", what);
}
