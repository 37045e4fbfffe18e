/* Rows of a stack's YAML keys, for the tables of sim/read/settings.h: what the stacks of memory, of time and of measured runs
 * write alike. `type` is the struct of the stack. */
#ifndef SPW_SIM_MACHINE_STACK_SETTINGS_H
#define SPW_SIM_MACHINE_STACK_SETTINGS_H

#include "sim/read/coefficient_settings.h"
#include "sim/read/settings.h"

#include <stddef.h>

#define SPW_STACK_COEFFICIENT(type, name, member, keys, text) \
    { \
        .key = (name), .kind = SPW_SETTING_GROUP, SPW_SETTING_GROUP_OF(type, member), .fields = (keys), \
        .help = (text) \
    }
/* A key that a file may leave out: the caller has filled the field with what all stacks share (sim/machine/stack_defaults.h). */
#define SPW_STACK_DEFAULT_COEFFICIENT(type, name, member, keys, text) \
    { \
        .key = (name), .kind = SPW_SETTING_GROUP, SPW_SETTING_GROUP_OF(type, member), .fields = (keys), \
        .fallback = "default", .help = (text) \
    }
#define SPW_STACK_LINE(type, field, length, text) \
    { .key = #field, .kind = SPW_SETTING_TEXT, SPW_SETTING_TEXT_OF(type, field, length), .help = (text) }
#define SPW_STACK_OPTIONAL_LINE(type, field, length, text) \
    { \
        .key = #field, .kind = SPW_SETTING_TEXT, SPW_SETTING_TEXT_OF(type, field, length), .fallback = "", \
        .help = (text) \
    }
#define SPW_STACK_COUNT(type, field, text) \
    { \
        .key = #field, .kind = SPW_SETTING_COUNT, SPW_SETTING_OF(type, field, size_t), .minimum = 1, \
        .maximum = 1 << 20, .help = (text) \
    }

#endif
