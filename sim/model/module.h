/* The modules of a layer that Megatron-Core's recompute_modules name (sim/job/recipe/remat_modules.h). */
#ifndef SPW_SIM_MODEL_MODULE_H
#define SPW_SIM_MODEL_MODULE_H

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

#endif
