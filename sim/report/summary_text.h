/* A summary as text, its rows apart: each can be parsed alone, so that a file never stands in memory as one tree, which takes many
 * times the text. Nothing is checked here but where a value ends: what is cut is parsed, and refused, as it stands. */
#ifndef SPW_SIM_REPORT_SUMMARY_TEXT_H
#define SPW_SIM_REPORT_SUMMARY_TEXT_H

#include "base/status.h"

#include <jansson.h>
#include <stddef.h>

typedef struct spw_summary_text {
    json_t *root; /* all but the rows, which are null there; as it stands where there is no list of rows */
    const char *rows, *end; /* what lies between the brackets of the rows; NULL: there is no list of rows */
} spw_summary_text;

/* text [bytes] is borrowed. SPW_EFORMAT: no JSON, or a key twice; SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_summary_open(const char *text, size_t bytes, spw_summary_text *out);
/* How many rows there are, by their commas. */
size_t spw_summary_count(const spw_summary_text *summary);
/* The next row, the caller's; *at begins as summary->rows. SPW_EFORMAT, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_summary_next(const spw_summary_text *summary, const char **at, json_t **row);
void spw_summary_close(spw_summary_text *summary); /* a zeroed one is fine */

#endif
