/* What recipes of Megatron-Core say beside the split: what hides behind what, which kernels are fused, and the release. What goes
 * with what (sim/job/goes_with.h) is read in NVIDIA/Megatron-LM d98e8a64 megatron/core/transformer/transformer_config.py, megatron/training/arguments.py
 * (validate_args). What a scheme adds to them, and what changes no figure: sim/memory/live/megatron_notes.h; laws in time:
 * sim/time/megatron/megatron_hidden.h. */
#ifndef SPW_SIM_JOB_RECIPE_MEGATRON_KEYS_H
#define SPW_SIM_JOB_RECIPE_MEGATRON_KEYS_H

#include "base/status.h"
#include "sim/job/job.h"

#include <stdbool.h>
#include <stddef.h>

/* The name of a key that was said, for messages; NULL: none was. Static text. */
const char *spw_megatron_keys_said(const spw_megatron_keys *keys);

/* Does fc1's input stay on the GPU though offload_modules has expert_fc1? Under mxfp8 what goes are its copies; those of all experts and
 * their scales are parts of one allocation, which is not freed while one of them is too small to go (docs/schemes.md, 7.17). */
bool spw_offload_stays(const spw_job *job);

/* Are the experts one fused kernel: gated ones, under mxfp8, by use_transformer_engine_op_fuser? */
bool spw_megatron_fuses_experts(const spw_job *job);

/* "0.17", "core_r0.17.0", "core_v0.17.1": 17. false: neither of these. */
bool spw_megatron_release_parse(const char *text, size_t *minor);
/* Does the job name a release before 0.minor? */
bool spw_megatron_release_is_before(const spw_job *job, size_t minor);
/* SPW_ECONFIG: no release as it is written. */
SPW_MUST_CHECK spw_status spw_megatron_release_check(const spw_job *job, const char **key);

/* The first release whose layer-wise optimizer packs its buffers: docs/schemes.md, section 7.16. */
enum { SPW_MEGATRON_PACKED_MUON = 18 };

#endif
