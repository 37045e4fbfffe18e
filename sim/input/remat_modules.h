/* Megatron-Core's recompute_modules: what a layer computes again in its backward pass, one module or several
 * (NVIDIA/Megatron-LM d98e8a64 megatron/core/transformer/transformer_config.py; docs/schemes.md, section 7.3). */
#ifndef SPW_SIM_INPUT_REMAT_MODULES_H
#define SPW_SIM_INPUT_REMAT_MODULES_H

#include "sim/input/job_words.h"
#include "sim/input/settings.h"

#include <stdbool.h>

/* In the order in which they are written: sums, norms and mixing of residual streams; core attention; the activation of the routed
 * experts; norms that are a module of their own; MLA's up projections and rotation; FFNs of layers without experts; MoE layers whole;
 * shared experts. */
#define SPW_MODULE_LIST(X) \
    X(MHC, "mhc", 128) \
    X(CORE_ATTN, "core_attn", 64) \
    X(MOE_ACT, "moe_act", 32) \
    X(LAYERNORM, "layernorm", 16) \
    X(MLA_UP_PROJ, "mla_up_proj", 8) \
    X(MLP, "mlp", 4) \
    X(MOE, "moe", 2) \
    X(SHARED_EXPERTS, "shared_experts", 1)
#define SPW_MODULE_ENUM(name, text, bit) SPW_MODULE_##name = (bit),
typedef enum spw_module { SPW_MODULE_LIST(SPW_MODULE_ENUM) } spw_module;
#undef SPW_MODULE_ENUM

/* Their bits; 0 of none, full and MaxText's policies. selective is core_attn alone. */
unsigned spw_remat_modules(spw_remat remat);
bool spw_remat_repeats(spw_remat remat, spw_module module);
/* Does the backward pass run any of these modules again, by itself or as full has the whole layer? */
bool spw_remat_runs_again(spw_remat remat, unsigned modules);
/* Modules beyond those in `read`: of which something is not described. */
bool spw_remat_exceeds(spw_remat remat, unsigned read);

/* Of a job's table: all names, the modules, and the remat of some of these (not 0). */
extern const spw_choice spw_remat_choices[], spw_remat_modules_list[];
size_t spw_remat_join(size_t modules);

#endif
