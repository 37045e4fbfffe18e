/* Event lists that depend on options or on the shape. One table holds all of them: a row says in which passes it stands,
 * and under which conditions of the scheme. Lists are made on demand, one for each set of conditions, and then stay. */
#ifndef SPW_SIM_SCHEMES_EVENT_TABLE_H
#define SPW_SIM_SCHEMES_EVENT_TABLE_H

#include "sim/schemes/list.h"

enum { SPW_IN_FORWARD = 1, SPW_IN_RECOMPUTE = 2, SPW_IN_BOTH = 3, SPW_IN_BACKWARD = 4 };
enum { SPW_EVENT_TABLE_CONDITIONS = 6, SPW_EVENT_TABLE_EVENTS = 176 };

typedef struct spw_event_row {
    const char *step;
    int16_t tensor;
    int8_t sign;
    uint8_t passes;       /* SPW_IN_... */
    uint8_t when, unless; /* sets of conditions: all of the first hold, none of the second */
} spw_event_row;

typedef struct spw_event_table {
    const spw_tensor *tensors;
    const spw_event_row *rows;
    size_t tensor_count, row_count;
} spw_event_table;

/* The lists made so far; static memory of the scheme, zeroed at first. */
typedef struct spw_event_lists {
    spw_layer_list list[1 << SPW_EVENT_TABLE_CONDITIONS]; /* no events: not made yet */
    spw_event event[1 << SPW_EVENT_TABLE_CONDITIONS][SPW_EVENT_TABLE_EVENTS];
} spw_event_lists;

/* The list of a set of conditions. Safe from several threads. */
const spw_layer_list *spw_event_table_list(const spw_event_table *table, spw_event_lists *lists,
                                           unsigned conditions);

#endif
