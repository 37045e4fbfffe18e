/* What of a job the coefficients behind a row's numbers were not fitted on: one feature an item. */
#ifndef SPW_SIM_REPLAY_OUTSIDE_FIT_H
#define SPW_SIM_REPLAY_OUTSIDE_FIT_H

#include <stddef.h>

enum { SPW_OUTSIDE_ITEMS = 24, SPW_OUTSIDE_FEATURE = 256 };

typedef struct spw_outside_item {
    const char *of;                    /* "memory" or "time": whose fit; static */
    char feature[SPW_OUTSIDE_FEATURE]; /* "model not in the fitted tables" */
} spw_outside_item;

typedef struct spw_outside_fit {
    spw_outside_item item[SPW_OUTSIDE_ITEMS];
    size_t count;
} spw_outside_fit;

/* Appends the features of a note that a model of memory or time left (spw_outside_add): they stand between semicolons. */
void spw_outside_fit_add(spw_outside_fit *list, const char *of, const char *note);

#endif
