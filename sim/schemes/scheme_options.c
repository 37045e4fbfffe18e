/* Options of a scheme, read, and sizes that follow from them. */
#include "sim/schemes/scheme.h"

#include <math.h>
#include <string.h>

size_t spw_returned_width(const spw_layer_shape *s) {
    return s->tensor > 1 ? s->hidden / s->tensor : s->hidden;
}

double spw_scheme_option_value(const spw_scheme *scheme, const char *name) {
    for (size_t i = 0; scheme->type->options[i].name != NULL; i++) {
        if (strcmp(scheme->type->options[i].name, name) == 0) return scheme->option[i];
    }
    return NAN;
}

bool spw_scheme_option_is(const spw_scheme *scheme, const char *name, const char *word) {
    for (size_t i = 0; scheme->type->options[i].name != NULL; i++) {
        const spw_scheme_option *option = &scheme->type->options[i];
        if (strcmp(option->name, name) == 0 && option->choices != NULL)
            return strcmp(option->choices[(size_t)scheme->option[i]], word) == 0;
    }
    return false;
}

size_t spw_scheme_capacity(const spw_scheme *scheme, const spw_layer_shape *s) {
    double factor = spw_scheme_option_value(scheme, "capacity_factor");
    if (isnan(factor)) return 0;
    size_t even = (spw_whole_sequence(s) * s->top_k + s->experts - 1) / s->experts;
    return (size_t)fmax(fmax((double)even * factor, factor), 0.0);
}

double spw_worst_rank_factor(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    return (double)s->worst_rows / (double)s->assignments;
}
