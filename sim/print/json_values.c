#include "sim/print/json_values.h"

#include <math.h>
#include <stdlib.h>

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

spw_status spw_json_print(const spw_json *json, json_t *document, size_t flags, const char *what, FILE *out) {
    const bool whole = document != NULL && !json->failed;
    const bool dumped = whole && json_dumpf(document, out, flags) == 0;
    const bool written = dumped && fputc('\n', out) != EOF;
    json_decref(document);
    if (written) return SPW_OK;
    if (whole && ferror(out) != 0) return spw_fail(SPW_EIO, "%s cannot be written as JSON", what);
    return spw_fail(SPW_ENOMEM, "out of memory while %s is written as JSON", what);
}

spw_status spw_json_string(const spw_json *json, json_t *document, size_t flags, const char *what,
                           char **out) {
    *out = document != NULL && !json->failed ? json_dumps(document, flags) : NULL;
    json_decref(document);
    return *out != NULL ? SPW_OK : spw_fail(SPW_ENOMEM, "out of memory while %s is written as JSON", what);
}
