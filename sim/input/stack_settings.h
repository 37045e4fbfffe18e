/* Rows of a stack's YAML keys, for the tables of sim/input/settings.h: what the stacks of memory, of time and of measured runs
 * write alike. `type` is the struct of the stack. */
#ifndef SPW_SIM_INPUT_STACK_SETTINGS_H
#define SPW_SIM_INPUT_STACK_SETTINGS_H

#include "sim/input/settings.h"
#include "sim/input/stack.h"

#include <stddef.h>

/* The keys of one spw_coefficient: its value in [low, high], its standard error up to `error`. */
#define SPW_COEFFICIENT_KEYS(low, high, error, text) \
    { \
        {.key = "value", \
         .kind = SPW_SETTING_REAL, \
         .offset = offsetof(spw_coefficient, value), \
         .minimum = (low), \
         .maximum = (high), \
         .help = (text)}, \
            {.key = "uncertainty", \
             .kind = SPW_SETTING_REAL, \
             .offset = offsetof(spw_coefficient, uncertainty), \
             .minimum = 0, \
             .maximum = (error), \
             .fallback = "0", \
             .help = "its standard error"}, \
            {.key = "evidence", \
             .kind = SPW_SETTING_CHOICE, \
             .offset = offsetof(spw_coefficient, evidence), \
             .size = sizeof(spw_evidence), \
             .choices = spw_evidence_choices, \
             .help = "how we know the value"}, \
            {.key = "source", \
             .kind = SPW_SETTING_TEXT, \
             .offset = offsetof(spw_coefficient, source), \
             .size = SPW_FIGURE_SOURCE, \
             .help = "where the value was read or fitted"}, \
        { \
            .key = NULL \
        } \
    }

#define SPW_STACK_COEFFICIENT(type, name, member, keys, text) \
    { \
        .key = (name), .kind = SPW_SETTING_GROUP, .offset = offsetof(type, member), .fields = (keys), \
        .help = (text) \
    }
#define SPW_STACK_LINE(type, field, length, text) \
    { \
        .key = #field, .kind = SPW_SETTING_TEXT, .offset = offsetof(type, field), .size = (length), \
        .help = (text) \
    }
#define SPW_STACK_OPTIONAL_LINE(type, field, length, text) \
    { \
        .key = #field, .kind = SPW_SETTING_TEXT, .offset = offsetof(type, field), .size = (length), \
        .fallback = "", .help = (text) \
    }
#define SPW_STACK_COUNT(type, field, text) \
    { \
        .key = #field, .kind = SPW_SETTING_COUNT, .offset = offsetof(type, field), .minimum = 1, \
        .maximum = 1 << 20, .help = (text) \
    }

#endif
