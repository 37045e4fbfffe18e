/* The jobs that a search looks at: every combination of values of some keys of a job. Batches and schemes of each are a
 * plan's. A key that is to be searched is a row of the table in search_space.c. */
#ifndef SPW_SIM_PLAN_SEARCH_SPACE_H
#define SPW_SIM_PLAN_SEARCH_SPACE_H

#include "base/status.h"
#include "sim/job/job_words.h"

#include <stdbool.h>
#include <stddef.h>

/* The first of them changes most slowly. Those before EXPERT decide which GPUs hold which tokens, and how these are cut. */
typedef enum spw_search_dimension {
    SPW_SEARCH_GPUS,
    SPW_SEARCH_PIPELINE,
    SPW_SEARCH_TENSOR,
    SPW_SEARCH_CONTEXT,
    SPW_SEARCH_EXPERT_TENSOR, /* 0: as tensor */
    SPW_SEARCH_MICRO_BATCHES,
    SPW_SEARCH_EXPERT,
    SPW_SEARCH_VIRTUAL_STAGES,
    SPW_SEARCH_REMAT,
    SPW_SEARCH_DIMENSIONS
} spw_search_dimension;

enum { SPW_SEARCH_VALUES = 64, SPW_SEARCH_LESS_TEXT = 512 };

typedef struct spw_search_space {
    const spw_job *base; /* borrowed */
    size_t value[SPW_SEARCH_DIMENSIONS][SPW_SEARCH_VALUES], values[SPW_SEARCH_DIMENSIONS];
    bool given[SPW_SEARCH_DIMENSIONS]; /* by spw_search_space_set */
} spw_search_space;

const char *spw_search_dimension_name(size_t dimension);
/* One of its values as a person writes it: a number, or the name of a policy. Returns `out`. */
const char *spw_search_value_text(size_t dimension, size_t value, char out[SPW_REMAT_TEXT]);

/* Every dimension with its default values (docs/search.md), the job's own among them. gpus_most: clusters of the job's nodes, from
 * one on, doubled up to so many GPUs; 0: the job's own alone. megatron, compiled: kinds of schemes that are there. */
void spw_search_space_open(const spw_job *base, size_t gpus_most, bool megatron, bool compiled,
                           spw_search_space *out);
/* "pipeline=1,2,4": these values in place of the default ones. SPW_EARG. */
SPW_MUST_CHECK spw_status spw_search_space_set(spw_search_space *space, const char *text);

/* Every point has base->global_batch sequences of all GPUs: `base`, which the space borrows, gets the batches of a data-parallel rank
 * that come to it, and the micro-batches, unless they were set, become 1 and those of 1, 2, 4, ... 64 sequences. SPW_EARG where no
 * split has a whole number of sequences a rank. */
SPW_MUST_CHECK spw_status spw_search_space_reach(spw_search_space *space, spw_job *base);
/* Batches of a job: 1 where all are of one global batch, else the base's. */
size_t spw_search_space_batches(const spw_search_space *space);
/* The place of a batch among the base's; their number where it is none of them. */
size_t spw_search_space_batch(const spw_search_space *space, size_t sequences);
/* Does the global batch not divide over the data-parallel ranks and micro-batches of these values? */
bool spw_search_space_is_uneven(const spw_search_space *space, const size_t value[SPW_SEARCH_DIMENSIONS]);

size_t spw_search_space_jobs(const spw_search_space *space);
/* How a user makes a space smaller: the options, with the values that each has now, the most first. Returns `out`. */
const char *spw_search_space_less(const spw_search_space *space, char out[SPW_SEARCH_LESS_TEXT]);
/* Jobs that follow one another and differ in virtual stages and remat alone. */
size_t spw_search_space_twins(const spw_search_space *space);
/* GPUs that share the matrices of one expert, with these values. */
size_t spw_search_expert_tensor(const size_t value[SPW_SEARCH_DIMENSIONS]);
/* Do its parts divide the GPUs? */
bool spw_search_divides(const size_t value[SPW_SEARCH_DIMENSIONS]);
/* The values of job `index`, which stands where the odometer of the dimensions says. */
void spw_search_space_values(const spw_search_space *space, size_t index,
                             size_t value[SPW_SEARCH_DIMENSIONS]);
/* The job of these values, with the batches of the base that its micro-batches divide. SPW_ECONFIG, and why, when there is none;
 * then *out is not to be used. */
SPW_MUST_CHECK spw_status spw_search_space_job(const spw_search_space *space,
                                               const size_t value[SPW_SEARCH_DIMENSIONS], spw_job *out);

#endif
