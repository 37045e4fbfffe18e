/* Jobs as text, and what is said of them. */
#ifndef SPW_TESTS_JOB_TEXT_H
#define SPW_TESTS_JOB_TEXT_H

#include "sim/job/job.h"

#include "tests/unit/check.h"

#include <string.h>

#define SPLIT "parallel: {expert: 8, fsdp: 8}\n"
#define BATCH "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
#define HEAD "model: deepseek-v3\ncluster: mi355x-8x8\n"
#define JOB HEAD SPLIT BATCH

static inline spw_status parse(const char *text, spw_job *job) {
    return spw_job_parse("job.yaml", NULL, text, strlen(text), job);
}

static inline void expect(const char *text, spw_status status, const char *message) {
    spw_job job;
    CHECK_STATUS(parse(text, &job), status);
    bool same = strcmp(spw_last_error(), message) == 0;
    CHECK(same);
    if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), message);
}

static inline void refuse(const char *text, const char *message) { expect(text, SPW_ECONFIG, message); }

#endif
