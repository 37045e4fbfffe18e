/* Settings of MaxText (src/maxtext/configs/base.yml of 0.2.5) beyond those that a job says by keys of its own: what becomes of a compiled
 * program under them, and what of ours is nearest. Figures: programs compiled by JAX 0.12 for 64 H200, temporaries of one GPU. */
#ifndef SPW_SIM_JOB_RECIPE_MAXTEXT_SETTINGS_H
#define SPW_SIM_JOB_RECIPE_MAXTEXT_SETTINGS_H

#include "sim/job/job_words.h"

#include <stddef.h>

typedef enum spw_maxtext_effect {
    SPW_MAXTEXT_NONE,    /* compiled: the same memory, or a key or option of ours says it */
    SPW_MAXTEXT_DATA,    /* replicas that each hold all state: memory is that of the GPUs of one */
    SPW_MAXTEXT_REFUSED, /* not modelled, and may take more than what is nearest */
    SPW_MAXTEXT_LESS,    /* not modelled, and takes no more than what is nearest */
} spw_maxtext_effect;

typedef struct spw_maxtext_setting {
    const char *word;  /* as in base.yml; NULL: any tensor of remat_policy custom */
    const char *value; /* of the row; NULL: any value that no other row has */
    spw_maxtext_effect effect;
    const char *note; /* what it does, and what is nearest */
} spw_maxtext_setting;

/* The row of "word" with a value, both of the given lengths, in any case; NULL: MaxText has no such setting that we know of. */
const spw_maxtext_setting *spw_maxtext_setting_find(const char *word, size_t length, const char *value,
                                                    size_t value_length);

/* Adds to `out`, "bf16", what "weight_dtype=float32 ..." says of single formats: "bf16 weights=fp32". */
void spw_maxtext_precision(const char *text, char *out, size_t size);

/* Applies "word=value ..." of MaxText to a job: SPW_ECONFIG with the note of the first that is not modelled; words that are no setting of
 * the table, and texts without '=', are passed over. */
SPW_MUST_CHECK spw_status spw_maxtext_settings_apply(const char *text, spw_job *job);

#endif
