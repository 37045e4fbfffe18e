#include "sim/routing/assumptions.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *spw_match_name(spw_match match) {
#define NAME(name, text) text,
    static const char *const names[] = {SPW_MATCH_LIST(NAME)};
#undef NAME
    return names[match];
}

void spw_assume(spw_assumptions *list, const char *format, ...) {
    if (list->count == SPW_ASSUMPTIONS) return;
    char *text = list->text[list->count];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, SPW_ASSUMPTION_TEXT, format, args);
    va_end(args);
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->text[i], text) == 0) return;
    }
    list->count++;
}
