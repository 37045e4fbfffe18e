#include "sim/print/json_values.h"

#include "base/status.h"

#include <math.h>

void spw_json_put(json_t *object, const char *key, json_t *value) {
    (void)json_object_set_new(object, key, value);
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
