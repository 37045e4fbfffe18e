/* Options of an executed scheme, read. */
#include "reference/schemes/execution.h"

#include <string.h>

static const spw_execution_option *find(const spw_execution_shape *shape, const char *name) {
    for (const spw_execution_option *o = shape->option; o != NULL && o->name != NULL; o++) {
        if (strcmp(o->name, name) == 0) return o;
    }
    return NULL;
}

double spw_execution_number(const spw_execution_shape *shape, const char *name, double missing) {
    const spw_execution_option *o = find(shape, name);
    return o != NULL ? o->number : missing;
}

const char *spw_execution_word(const spw_execution_shape *shape, const char *name, const char *missing) {
    const spw_execution_option *o = find(shape, name);
    return o != NULL && o->word != NULL ? o->word : missing;
}

bool spw_execution_is(const spw_execution_shape *shape, const char *name, const char *word) {
    return strcmp(spw_execution_word(shape, name, ""), word) == 0;
}

size_t spw_execution_sharers(const spw_execution_shape *shape) {
    return shape->expert_tensor > 0 ? shape->expert_tensor : 1;
}
