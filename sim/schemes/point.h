/* A point: a job under one of its schemes with one of its batches, which is what is planned, replayed, explained and
 * timed. It is built once, where the choice is made, and passed on. */
#ifndef SPW_SIM_SCHEMES_POINT_H
#define SPW_SIM_SCHEMES_POINT_H

#include "sim/schemes/scheme.h"

/* Does the framework wrap this job in FSDP2 by itself, as the job says nothing of it (SPW_RESHARD_DEFAULT)? */
bool spw_scheme_wraps(const spw_scheme *scheme, const spw_job *job);
/* The framework whose model stands around the scheme's layers: its own, or Megatron-Core where its optimizer keeps the state. */
const spw_trainer *spw_scheme_around(const spw_scheme *scheme, const spw_job *job);

typedef struct spw_point {
    const spw_job *job;       /* borrowed, like the scheme */
    const spw_scheme *scheme; /* one of the job's */
    size_t sequences;         /* of one GPU in one step */
    spw_layer_shape shape;    /* of a MoE layer under one micro-batch, which has its share of them */
} spw_point;

/* Tokens of all GPUs in one step: the sequences are of the GPUs of one stage; but of every device where a pipeline of MaxText says no
 * micro-batches (sim/memory/compiled/compiled_cut.h). */
uint64_t spw_point_step_tokens(const spw_point *point);

/* The same job with the micro-batches that MaxText's pipeline makes where the job says none: as many as stages, each of the sequences
 * that the job said; of a global batch, parts of it. Any other job stays as it is; true: it was changed. Not checked. */
bool spw_scheme_say_micro_batches(const spw_scheme *scheme, spw_job *job);

enum { SPW_POINT_STEP_TEXT = 160 };
/* What a step of MaxText's pipeline runs, "8 micro-batches of 1 sequence, 8 sequences a data-parallel rank, 64 sequences and 262144 tokens a
 * step of all GPUs"; false, and "", where the point is no such pipeline. */
bool spw_point_step_note(const spw_point *point, char text[SPW_POINT_STEP_TEXT]);

spw_point spw_point_of(const spw_job *job, const spw_scheme *scheme, size_t sequences);

#endif
