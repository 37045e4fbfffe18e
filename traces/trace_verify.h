/* The seven checks of a trace's content (docs/trace_format.md): data that is well-formed and yet cannot be
 * true. */
#ifndef SPW_TRACES_TRACE_VERIFY_H
#define SPW_TRACES_TRACE_VERIFY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct spw_trace spw_trace;

enum { SPW_VERIFY_CHECKS = 7, SPW_VERIFY_MAX_FINDINGS = 1000, SPW_VERIFY_TEXT = 240 };
extern const char *const spw_verify_check_name[SPW_VERIFY_CHECKS];

typedef struct spw_verify_finding {
    int check;       /* 1 to 7 */
    int64_t step;    /* id; INT64_MIN: not of one step */
    int32_t layer;   /* index in the model; INT32_MIN: not of one layer */
    uint64_t number; /* the number that is wrong */
    char text[SPW_VERIFY_TEXT];
} spw_verify_finding;

typedef struct spw_verify_report {
    uint64_t checked[SPW_VERIFY_CHECKS], failed[SPW_VERIFY_CHECKS]; /* what is counted: see the names */
    spw_verify_finding *finding; /* the first SPW_VERIFY_MAX_FINDINGS; freed by spw_verify_clear() */
    size_t findings;
    uint64_t longest_run; /* tokens in a row with one expert set */
} spw_verify_report;

/* `longest_run`: from so many tokens in a row with the same experts on, check 6 fails; 0 = 256. SPW_OK also
 * when checks failed: look at failed[]. */
SPW_MUST_CHECK spw_status spw_trace_verify(spw_trace *trace, size_t longest_run, spw_verify_report *out);
void spw_verify_clear(spw_verify_report *report);

#endif
