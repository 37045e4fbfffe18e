/* Values for the JSON of scores and plans. Nothing fails: what is no number is null, what is not UTF-8 is written as
 * spw_plain_text() writes it. */
#ifndef SPW_SIM_PRINT_JSON_VALUES_H
#define SPW_SIM_PRINT_JSON_VALUES_H

#include <jansson.h>
#include <stdint.h>

/* Takes the value. */
void spw_json_put(json_t *object, const char *key, json_t *value);
json_t *spw_json_real(double value);
json_t *spw_json_count(uint64_t value);
json_t *spw_json_text(const char *value); /* NULL: null */

#endif
