/* Bytes of a footprint's part by its name. */
#ifndef SPW_TESTS_COMPONENT_OF_H
#define SPW_TESTS_COMPONENT_OF_H

#include "sim/memory/live/footprint.h"

#include <string.h>

/* -1: there is none. */
static inline double component(const spw_footprint *f, const char *name) {
    for (size_t i = 0; i < f->components; i++)
        if (strcmp(f->component[i].name, name) == 0) return (double)f->component[i].bytes;
    return -1.0;
}

#endif
