#include "sim/memory/footprint_component.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

void spw_component_live(spw_component *c, const bool live[SPW_MOMENT_COUNT]) {
    memcpy(c->live, live, sizeof c->live);
}

void spw_component_live_by_layer(spw_component *c, const bool live[SPW_MOMENT_COUNT]) {
    spw_component_live(c, live);
    c->by_layer = true;
}
