/* A model of the text of its config.json. */
#include "sim/model/config/model_json.h"
#include "sim/model/config/model_kin.h"
#include "sim/model/config/model_synonyms.h"
#include "sim/model/config/model_wrapper.h"

#include <string.h>

spw_status spw_model_parse(const char *where, const char *text, size_t length, spw_model *out) {
    json_t *root = NULL;
    spw_reading_used used = {.count = 0};
    memset(out, 0, sizeof *out);
    spw_status status = spw_model_json(where, text, length, &root);
    if (status != SPW_OK) return status;
    spw_reading in = {.where = where,
                      .whole = root,
                      .root = root,
                      .outer = root,
                      .used = &used,
                      .meant = spw_reading_meant};
    SPW_TRY(spw_wrapper_enter(&in));
    SPW_TRY(in.family != NULL ? spw_reading_model(&in, out) : spw_kin_read(&in, out));
    const char *source = json_string_value(json_object_get(root, "_source"));
    (void)snprintf(out->source, sizeof out->source, "%s", source != NULL ? source : where);
    (void)snprintf(out->name, sizeof out->name, "%s", where);

cleanup:
    json_decref(root);
    return status;
}
