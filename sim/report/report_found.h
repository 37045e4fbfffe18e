/* Parts of the answer of a search, and one that a plan has, too. `root` is the JSON of the search, a point one of its points; both were checked. */
#ifndef SPW_SIM_REPORT_REPORT_FOUND_H
#define SPW_SIM_REPORT_REPORT_FOUND_H

#include <jansson.h>
#include <stdio.h>

/* "gmm, EP 8 x FSDP 4, pipeline 2, ... on 64 GPUs" */
void spw_report_write_point_name(const json_t *point, FILE *out);
/* What the best point costs and needs, a row each; the one that surely fits; what would change the answer. */
void spw_report_write_box(const json_t *root, const json_t *best, FILE *out);
/* What a file of a framework could name in place of its scheme: items of a list. `answer`: that of a search or a plan. */
void spw_report_write_other_schemes(const json_t *answer, FILE *out);

#endif
