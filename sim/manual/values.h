/* Which values of an option, or of an argument, a shell can offer. */
#ifndef SPW_SIM_MANUAL_VALUES_H
#define SPW_SIM_MANUAL_VALUES_H

#include "base/status.h"

enum { SPW_VALUES_TEXT = 4096, SPW_VALUES_ENDINGS = 64 };

typedef struct spw_values {
    char words[SPW_VALUES_TEXT];      /* between spaces; "" none */
    char endings[SPW_VALUES_ENDINGS]; /* of files, "h5 json"; "*" any file, "/" folders; "" no file */
} spw_values;

/* `argument` as the tables have it, as in "table|json|csv", "NAME|FILE" or "FILE.h5"; `option` is NULL for what is no
 * option. SPW_EARG where there are more words than fit. */
SPW_MUST_CHECK spw_status spw_values_of(const char *option, const char *argument, spw_values *out);

/* What stands outside of options: `usage` as the tables have it, "IN.h5 OUT.h5" or "PRESET|CONFIG.json"; NULL: nothing. */
SPW_MUST_CHECK spw_status spw_values_of_usage(const char *usage, spw_values *out);

#endif
