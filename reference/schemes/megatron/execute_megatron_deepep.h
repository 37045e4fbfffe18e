/* Megatron-Core behind dispatchers that send a token once a rank (docs/schemes.md, sections 3.5 and 5.4). */
#ifndef SPW_REFERENCE_SCHEMES_MEGATRON_EXECUTE_MEGATRON_DEEPEP_H
#define SPW_REFERENCE_SCHEMES_MEGATRON_EXECUTE_MEGATRON_DEEPEP_H

#include "reference/schemes/megatron/megatron_ranks.h"

typedef struct spw_megatron_deepep {
    spw_megatron_settings settings; /* capacity, expert_align, fused */
    bool hybrid;  /* the kernel permutes; padding rows are empty, as with `fused`; else they are tokens */
    bool worst;   /* receive buffer for all tokens of the group */
    size_t fixed; /* experts' rows, whatever arrives; 0: as many as there are */
    bool drops;   /* what has no place in `fixed` is dropped: by expert, then by source and position */
    size_t
        handle_bytes; /* NCCL EP: HybridEP's rows with DeepEP's choices, and a routing table of a dispatch; 0: not */
    size_t page; /* rows of a page in which the saved tensors wait for the backward pass; 0: they stay */
} spw_megatron_deepep;

SPW_MUST_CHECK spw_status spw_execute_megatron_deepep(spw_execution *run, const spw_megatron_deepep *how);

#endif
