#include "sim/routing/assumptions.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *spw_match_name(spw_match match) {
#define NAME(name, text) text,
    static const char *const names[] = {SPW_MATCH_LIST(NAME)};
#undef NAME
    return names[match];
}

void spw_match_worsen(spw_match *match, spw_match other) { *match = other > *match ? other : *match; }

void spw_assume(spw_assumptions *list, const char *format, ...) {
    char text[SPW_ASSUMPTION_TEXT];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->text[i], text) == 0) return;
    }
    const bool full = list->count == SPW_ASSUMPTIONS;
    if (!full) list->count++;
    (void)snprintf(list->text[list->count - 1], SPW_ASSUMPTION_TEXT, "%s",
                   full ? "more is assumed than there is room to list" : text);
}
