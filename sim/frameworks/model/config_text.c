#include "sim/frameworks/model/config_text.h"

#include <stdio.h>
#include <string.h>

void spw_config_add(char text[SPW_JOB_NAME], const char *key, size_t value) {
    const size_t used = strlen(text);
    if (value > 0) (void)snprintf(text + used, SPW_JOB_NAME - used, ", \"%s\": %zu", key, value);
}

spw_status spw_config_end(const spw_draft *d, char text[SPW_JOB_NAME], bool untied) {
    const size_t used = strlen(text);
    (void)snprintf(text + used, SPW_JOB_NAME - used, ", \"tie_word_embeddings\": %s}",
                   untied ? "false" : "true");
    return text[strlen(text) - 1] == '}'
               ? SPW_OK
               : spw_fail(SPW_ECONFIG,
                          "%s: the model's sizes have more than %d letters; give --model config.json",
                          d->where, SPW_JOB_NAME - 1);
}
