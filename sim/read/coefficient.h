/* One fitted or given number of a stack, and how it is written in YAML. */
#ifndef SPW_SIM_READ_COEFFICIENT_H
#define SPW_SIM_READ_COEFFICIENT_H

#include "sim/read/evidence.h"

#include <stdbool.h>
#include <stdio.h>

/* A figure and its standard error; 0 where nothing was fitted. */
typedef struct spw_coefficient {
    double value, uncertainty;
    spw_evidence evidence;
    char source[SPW_FIGURE_SOURCE];
} spw_coefficient;
/* The same figure from the same source. */
bool spw_coefficient_is(const spw_coefficient *coefficient, const spw_coefficient *other);
void spw_coefficient_write(FILE *file, const char *key, const spw_coefficient *coefficient);

#endif
