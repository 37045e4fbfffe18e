/* Megatron-Core's fine-grained activation offloading (--offload-modules): which modules' inputs wait for their backward pass in
 * the host's memory. NVIDIA/Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py and
 * megatron/core/pipeline_parallel/fine_grained_activation_offload.py. docs/schemes.md, section 7.17. */
#ifndef SPW_SIM_JOB_RECIPE_OFFLOAD_MODULES_H
#define SPW_SIM_JOB_RECIPE_OFFLOAD_MODULES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Bits of spw_offload.modules: of a layer's experts, and of its attention. */
typedef enum spw_offload_module {
    SPW_OFFLOAD_EXPERT_FC1 = 1,
    SPW_OFFLOAD_MOE_ACT = 2,
    SPW_OFFLOAD_EXPERTS = SPW_OFFLOAD_EXPERT_FC1 | SPW_OFFLOAD_MOE_ACT,
    SPW_OFFLOAD_CORE_ATTN = 4,
    SPW_OFFLOAD_ATTN_PROJ = 8,
    SPW_OFFLOAD_ATTENTION = SPW_OFFLOAD_CORE_ATTN | SPW_OFFLOAD_ATTN_PROJ
} spw_offload_module;

enum { SPW_OFFLOAD_MOST = 9, SPW_OFFLOAD_TEXT = 24 };

typedef struct spw_offload {
    char text[SPW_OFFLOAD_MOST][SPW_OFFLOAD_TEXT]; /* as written */
    size_t texts;
    unsigned modules; /* 0: nothing is offloaded */
} spw_offload;

/* Tensors of fewer elements stay (min_offloaded_tensor_size, its default). */
#define SPW_OFFLOAD_LEAST_ELEMENTS ((uint64_t)1 << 20)

/* From the texts to the modules. SPW_ECONFIG: no module of Megatron-Core, one whose tensors are not described, or attn_proj
 * without core_attn, which Megatron-Core refuses. */
SPW_MUST_CHECK spw_status spw_offload_parse(spw_offload *offload);
/* How many of these modules. */
size_t spw_offload_count(const spw_offload *offload, unsigned of);
const char *spw_offload_name(const spw_offload *offload); /* as "expert_fc1, moe_act" */
/* Behind a job's remat: as ", offload expert_fc1"; "" where nothing is offloaded. */
const char *spw_offload_note(const spw_offload *offload);

#endif
