/* What flags a job needs, said one by one. */
#include "sim/frameworks/flags.h"

#include <stdlib.h>
#include <string.h>

/* --- Names of a job --- */

spw_status spw_flags_say(spw_flag_draft *f, const char *ours, const char *value) {
    const spw_framework_row *row = spw_framework_row_for(f->framework, ours);
    if (row == NULL) return SPW_OK;
    for (const spw_word_pair *pair = row->values; pair != NULL; pair++) {
        if (pair->theirs == NULL) return SPW_OK;
        if (strcmp(pair->ours, value) != 0) continue;
        value = pair->theirs;
        break;
    }
    for (size_t i = 0; i < f->flags; i++)
        if (strcmp(f->flag[i].name, spw_framework_row_name(row)) == 0) return SPW_OK;
    if (f->flags == SPW_FLAGS || strlen(value) >= SPW_FLAG_VALUE)
        return spw_fail(SPW_ECONFIG, "more than %d settings, or one of more than %d characters", SPW_FLAGS,
                        SPW_FLAG_VALUE - 1);
    f->flag[f->flags].name = spw_framework_row_name(row);
    (void)snprintf(f->flag[f->flags].value, SPW_FLAG_VALUE, "%s", value);
    f->flags++;
    return SPW_OK;
}

spw_status spw_flags_say_option(spw_flag_draft *f, const char *option, const char *ours) {
    char text[32];
    const double value = spw_scheme_option_value(f->scheme, option);
    if (!(value > 0.0)) return SPW_OK;
    (void)snprintf(text, sizeof text, "%.15g", value); /* 1.83, which 17 digits would not say so */
    if (strtod(text, NULL) < value || strtod(text, NULL) > value)
        (void)snprintf(text, sizeof text, "%.17g", value);
    return spw_flags_say(f, ours, text);
}

spw_status spw_flags_say_count(spw_flag_draft *f, const char *ours, size_t value) {
    char text[24];
    (void)snprintf(text, sizeof text, "%zu", value);
    return spw_flags_say(f, ours, text);
}
