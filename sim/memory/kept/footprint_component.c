#include "sim/memory/kept/footprint_component.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void spw_footprint_clear(spw_footprint *f) { memset(f, 0, offsetof(spw_footprint, component)); }

uint64_t spw_component_bytes(double bytes) { return bytes < 9.2e18 ? (uint64_t)(bytes + 0.5) : INT64_MAX; }

spw_component *spw_component_add(spw_footprint *f, const char *name, double bytes, const char *source,
                                 const char *format, ...) {
    spw_component *c = &f->component[f->components++];
    *c = (spw_component){.bytes = spw_component_bytes(bytes), .source = source};
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(c->formula, sizeof c->formula, format, args);
    va_end(args);
    return c;
}

void spw_component_set(spw_component *c, const char *words, const spw_term *term, size_t terms) {
    c->expression = (spw_formula){.words = words, .terms = terms};
    memcpy(c->expression.term, term, terms * sizeof *term);
    c->bytes = spw_component_bytes(spw_formula_value(&c->expression));
}

spw_component *spw_component_of(spw_footprint *f, const char *name, const char *source, const char *words,
                                const spw_term *term, size_t terms) {
    spw_component *c = &f->component[f->components++];
    *c = (spw_component){.source = source};
    memcpy(c->name, name, strnlen(name, sizeof c->name - 1)); /* a footprint has dozens */
    spw_component_set(c, words, term, terms);
    return c;
}

void spw_component_print(const spw_component *c, char out[SPW_COMPONENT_TEXT]) {
    if (c->expression.words != NULL)
        spw_formula_print(&c->expression, out, SPW_COMPONENT_TEXT);
    else
        (void)snprintf(out, SPW_COMPONENT_TEXT, "%s", c->formula);
}

void spw_component_live(spw_component *c, const bool live[SPW_MOMENT_COUNT]) {
    memcpy(c->live, live, sizeof c->live);
}

void spw_component_live_by_layer(spw_component *c, const bool live[SPW_MOMENT_COUNT]) {
    spw_component_live(c, live);
    c->by_layer = true;
}
