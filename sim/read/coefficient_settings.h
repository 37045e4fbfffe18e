/* The YAML keys of a coefficient, for the tables of those who have some. */
#ifndef SPW_SIM_READ_COEFFICIENT_SETTINGS_H
#define SPW_SIM_READ_COEFFICIENT_SETTINGS_H

#include "sim/read/coefficient.h"
#include "sim/read/settings.h"

extern const spw_setting spw_coefficient_settings[]; /* its YAML keys */
extern const spw_choice spw_evidence_choices[];      /* for YAML keys; ended by NULL */

/* The keys of one spw_coefficient: its value in [low, high], its standard error up to `error`. */
#define SPW_COEFFICIENT_KEYS(low, high, error, text) \
    { \
        {.key = "value", \
         .kind = SPW_SETTING_REAL, \
         SPW_SETTING_OF(spw_coefficient, value, double), \
         .minimum = (low), \
         .maximum = (high), \
         .help = (text)}, \
            {.key = "uncertainty", \
             .kind = SPW_SETTING_REAL, \
             SPW_SETTING_OF(spw_coefficient, uncertainty, double), \
             .minimum = 0, \
             .maximum = (error), \
             .fallback = "0", \
             .help = "its standard error"}, \
            {.key = "evidence", \
             .kind = SPW_SETTING_CHOICE, \
             SPW_SETTING_CHOICE_OF(spw_coefficient, evidence, spw_evidence), \
             .choices = spw_evidence_choices, \
             .help = "how we know the value"}, \
            {.key = "source", \
             .kind = SPW_SETTING_TEXT, \
             SPW_SETTING_TEXT_OF(spw_coefficient, source, SPW_FIGURE_SOURCE), \
             .help = "where the value was read or fitted"}, \
        { \
            .key = NULL \
        } \
    }

#endif
