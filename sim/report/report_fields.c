#include "sim/report/report_fields.h"

bool spw_field_in_range(double value, double most) { return value >= 0.0 && value <= most; }

spw_status spw_field_numbers(json_t *object, const char *where, const spw_field_number *numbers,
                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, numbers[i].key);
        *numbers[i].value = json_number_value(value);
        if (!json_is_number(value) || !spw_field_in_range(*numbers[i].value, numbers[i].most))
            return spw_fail(SPW_EFORMAT, "%s.%s: must be a number from 0 to %g", where, numbers[i].key,
                            numbers[i].most);
    }
    return SPW_OK;
}

spw_status spw_field_text(json_t *object, const char *where, const char *key, const char **out) {
    *out = json_string_value(json_object_get(object, key));
    return *out != NULL ? SPW_OK : spw_fail(SPW_EFORMAT, "%s.%s: must be a text", where, key);
}

spw_status spw_field_object(json_t *object, const char *where, const char *key, json_t **out) {
    *out = json_object_get(object, key);
    return json_is_object(*out) ? SPW_OK : spw_fail(SPW_EFORMAT, "%s.%s: must be an object", where, key);
}
