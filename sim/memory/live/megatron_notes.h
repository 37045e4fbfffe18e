/* Keys of Megatron-Core's recipes (sim/job/recipe/megatron_keys.h) under a scheme: of those that change no figure of the answer, or
 * only one of its kinds, the line that says so. Sources: NVIDIA/Megatron-LM d98e8a64, files in the lines' sections of
 * docs/schemes.md (7.20). */
#ifndef SPW_SIM_MEMORY_LIVE_MEGATRON_NOTES_H
#define SPW_SIM_MEMORY_LIVE_MEGATRON_NOTES_H

#include "base/status.h"
#include "sim/schemes/point.h"

#include <stddef.h>

/* The name of a key that is said beyond what the scheme's framework does by itself; NULL: none. Static text. */
const char *spw_megatron_keys_beyond(const spw_job *job, const spw_scheme *scheme);

/* The i-th line about keys that were said: what of the answer they leave as it is, and why. NULL: no more. Static text. */
const char *spw_megatron_note(const spw_job *job, const spw_scheme *scheme, size_t i);

#endif
