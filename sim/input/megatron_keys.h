/* What recipes of Megatron-Core say beside the split: what hides behind what, which kernels are fused, and the release. Rules of what
 * goes with what: NVIDIA/Megatron-LM d98e8a64 megatron/core/transformer/transformer_config.py, megatron/training/arguments.py
 * (validate_args). What a scheme adds to them, and what changes no figure: sim/memory/megatron_notes.h; laws in time:
 * sim/time/megatron_hidden.h. */
#ifndef SPW_SIM_INPUT_MEGATRON_KEYS_H
#define SPW_SIM_INPUT_MEGATRON_KEYS_H

#include "base/status.h"
#include "sim/input/job.h"

#include <stdbool.h>
#include <stddef.h>

/* SPW_ECONFIG: keys that do not go with others of the job, whatever the scheme. *key: whose line is to be changed. */
SPW_MUST_CHECK spw_status spw_megatron_keys_check(const spw_job *job, const char **key);

/* The name of a key that was said, for messages; NULL: none was. Static text. */
const char *spw_megatron_keys_said(const spw_megatron_keys *keys);

/* Are the experts one fused kernel: gated ones, under mxfp8, by use_transformer_engine_op_fuser? */
bool spw_megatron_fuses_experts(const spw_job *job);

/* "0.17", "core_r0.17.0", "core_v0.17.1": 17. false: neither of these. */
bool spw_megatron_release_parse(const char *text, size_t *minor);

#endif
