/* A model's config.json as it is written from a file's sizes: what does not fit is cut, and the end says so. */
#ifndef SPW_SIM_FRAMEWORKS_MODEL_CONFIG_TEXT_H
#define SPW_SIM_FRAMEWORKS_MODEL_CONFIG_TEXT_H

#include "sim/frameworks/draft.h"
#include "sim/job/job.h"

/* `, "key": value`; nothing of 0. */
void spw_config_add(char text[SPW_JOB_NAME], const char *key, size_t value);

/* The last key and the bracket. SPW_ECONFIG: the text is longer than a job's. */
SPW_MUST_CHECK spw_status spw_config_end(const spw_draft *draft, char text[SPW_JOB_NAME], bool untied);

#endif
