/* Reading a result file that may be anybody's: shapes that agree, sizes that can be, before anything is allocated for
 * them. Meant for a child process (sim/report/result_pictures.h). */
#ifndef SPW_SIM_REPORT_RESULT_OPEN_H
#define SPW_SIM_REPORT_RESULT_OPEN_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "traces/disk/block_reader.h"

enum {
    SPW_RESULT_MEMORIES = 3,
    SPW_RESULT_VALUES = 4,
    SPW_RESULT_MOST = SPW_JOB_MAX_SCHEMES * SPW_JOB_MAX_BATCHES,
    SPW_RESULT_MOST_STEPS = 1 << 22,
    SPW_RESULT_MOST_LAYERS = 1 << 12,
    SPW_RESULT_MOST_RANKS = 1 << 16,
    SPW_RESULT_MOST_EXPERTS = 1 << 16,
    SPW_RESULT_MOST_LINKS = 1 << 18, /* of one result */
    SPW_RESULT_SUMMARY_BYTES = 256 << 20
};

typedef struct spw_result_input {
    hid_t file, value, memory[SPW_RESULT_MEMORIES]; /* value: rows_received */
    spw_block_reader *rows, *gib[SPW_RESULT_MEMORIES];
    hid_t choice, link;
    spw_block_reader *choices,
        *links; /* NULL: a file before 1.3 has none; links: nor one of very many ranks */
    size_t results, steps, layers, ranks, experts, members;
    uint64_t *sequences; /* [results] per GPU */
    char *summary;       /* JSON, [summary_bytes] and a zero byte */
    size_t summary_bytes;
} spw_result_input;

/* Messages name the dataset or attribute and what it must be. Nothing is freed: the process ends. */
SPW_MUST_CHECK spw_status spw_result_input_open(const char *path, spw_result_input *out);
/* step [steps], layer [layers]: ids. */
SPW_MUST_CHECK spw_status spw_result_input_axes(const spw_result_input *in, int64_t *step, int32_t *layer);
/* rows [layers][ranks] and gib [3] (peak, allocated, reserved) of one step; gib is finite and not below 0. */
SPW_MUST_CHECK spw_status spw_result_input_step(const spw_result_input *in, size_t result, size_t step,
                                                uint64_t *rows, double gib[SPW_RESULT_MEMORIES]);
/* Where they are there: choices [layers][experts] of one step; links [ranks][members] of one result, finite and not below
 * 0. */
SPW_MUST_CHECK spw_status spw_result_input_choices(const spw_result_input *in, size_t step,
                                                   uint64_t *choices);
SPW_MUST_CHECK spw_status spw_result_input_links(const spw_result_input *in, size_t result, double *links);

#endif
