/* A job's MaxText program, compiled by XLA in a Python process: python/spillway_moe/ask_xla.py, which comes inside the program. */
#ifndef SPW_SIM_COMMAND_ASK_XLA_H
#define SPW_SIM_COMMAND_ASK_XLA_H

#include "sim/job/job.h"
#include "sim/schemes/scheme.h"

enum { SPW_ASKED_WORD = 64, SPW_ASKED_PEAKS = 2048, SPW_ASKED_LIST = 512 };

typedef struct spw_ask_request {
    const spw_job *job; /* of one batch */
    const spw_scheme *scheme;
    const char *python;  /* a path, or looked for in PATH */
    const char *maxtext; /* a checkout, or NULL: the package that this Python has */
} spw_ask_request;

/* What XLA says of one GPU. */
typedef struct spw_asked {
    double argument_bytes, temporary_bytes;
    char peak_gib
        [SPW_ASKED_PEAKS]; /* the temporaries of the fullest moment, as in a table of runs; "": not known */
    char jax[SPW_ASKED_WORD], maxtext[SPW_ASKED_WORD], attention[SPW_ASKED_WORD];
    char left_out[SPW_ASKED_LIST]; /* packages that were not there and are not called, between blanks */
    char unsaid
        [SPW_ASKED_LIST]; /* what of the job MaxText has no setting for, as options of ours; "": nothing */
    double seconds;
} spw_asked;

/* Compiles it, which takes minutes. SPW_ECONFIG for GPUs that are not NVIDIA's, and what of the job a row of a table cannot say; SPW_EIO
 * where Python does not start, or ends without an answer: what it said stands on standard error. */
SPW_MUST_CHECK spw_status spw_ask_xla(const spw_ask_request *request, spw_asked *out);

#endif
