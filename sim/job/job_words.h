/* What others need of a job without its fields: its name as a type, how large its lists are, what is recomputed, and who keeps its
 * state and makes its loss. */
#ifndef SPW_SIM_JOB_JOB_WORDS_H
#define SPW_SIM_JOB_JOB_WORDS_H

#include "base/status.h"

typedef struct spw_job spw_job; /* sim/job/job.h */
typedef struct spw_job_override spw_job_override;
typedef struct spw_job_allocator spw_job_allocator;

enum { SPW_JOB_MAX_SCHEMES = 64, SPW_JOB_MAX_BATCHES = 64, SPW_SCHEME_TEXT = 128 };

/* MaxText's names, those of Megatron-Core's recompute_modules, torchtitan's. What each of them keeps: sim/job/recipe/remat.h. */
#define SPW_REMAT_LIST(X) \
    X(NONE, "none") \
    X(FULL, "full") \
    X(MINIMAL, "minimal") \
    X(MINIMAL_WITH_CONTEXT, "minimal_with_context") \
    X(SAVE_OUT_PROJ, "save_out_proj") \
    X(SAVE_QKV_PROJ, "save_qkv_proj") \
    X(SAVE_DOT_EXCEPT_MLP, "save_dot_except_mlp") \
    X(SAVE_DOT_EXCEPT_MLPWI, "save_dot_except_mlpwi") \
    X(SAVE_DOT_WITH_CONTEXT_EXCEPT_MLP, "save_dot_with_context_except_mlp") \
    X(QKV_PROJ_OFFLOADED, "qkv_proj_offloaded") \
    X(INPUT_OFFLOADED, "decoder_layer_input_offloaded") \
    X(SELECTIVE, "selective") \
    X(MOE_ACT, "moe_act") \
    X(MOE, "moe") \
    X(SELECTIVE_OP, "selective_op")
#define SPW_REMAT_ENUM(name, text) SPW_REMAT_##name,
/* From SPW_REMAT_MODULES on: that and the bits of several modules, or of one without a name above (sim/job/recipe/remat_modules.h). */
typedef enum spw_remat {
    SPW_REMAT_LIST(SPW_REMAT_ENUM) SPW_REMAT_COUNT,
    SPW_REMAT_MODULES = 0x100,
    SPW_REMAT_ALL_MODULES = 0x1FF
} spw_remat;
#undef SPW_REMAT_ENUM
enum { SPW_REMAT_TEXT = 72 };
/* As one would write it: "full", "moe_act+layernorm". At most SPW_REMAT_TEXT bytes with its end. */
const char *spw_remat_name(spw_remat remat);
/* A name, or modules joined by a plus sign. SPW_ECONFIG lists the names. */
SPW_MUST_CHECK spw_status spw_remat_parse(const char *text, spw_remat *out);

/* Who keeps weights, gradients and optimizer state: sim/weights/optimizer_state.h. */
typedef enum spw_optimizer_kind {
    SPW_OPTIMIZER_SHARDED,
    SPW_OPTIMIZER_DISTRIBUTED,
    SPW_OPTIMIZER_REPLICATED,
    SPW_OPTIMIZER_AUTO /* as it is read: spw_job_optimizer_fill makes it one of the others */
} spw_optimizer_kind;

/* The loss (sim/memory/kept/cross_entropy.h). AUTO: that of the scheme's framework. */
typedef enum spw_cross_entropy {
    SPW_CROSS_ENTROPY_AUTO,
    SPW_CROSS_ENTROPY_UNFUSED,
    SPW_CROSS_ENTROPY_NATIVE,
    SPW_CROSS_ENTROPY_TE,
    SPW_CROSS_ENTROPY_TE_IN_PLACE,
    SPW_CROSS_ENTROPY_TE_2_20,
    SPW_CROSS_ENTROPY_CHUNKED,
    SPW_CROSS_ENTROPY_FUSED
} spw_cross_entropy;

/* Training frameworks (sim/job/trainer.h). MaxText: schemes whose programs were compared with what XLA compiles. MaxText's layers: those of which only the layer is described. */
#define SPW_TRAINER_LIST(X) \
    X(PYTORCH, pytorch) \
    X(MAXTEXT, maxtext) \
    X(MAXTEXT_LAYERS, maxtext_layers) \
    X(MEGATRON, megatron) \
    X(PRIMUS, primus) \
    X(TORCHTITAN, torchtitan) \
    X(TRANSFORMERS, transformers)
#define SPW_TRAINER_ENUM(name, row) SPW_TRAINER_##name,
typedef enum spw_trainer_id { SPW_TRAINER_LIST(SPW_TRAINER_ENUM) SPW_TRAINERS } spw_trainer_id;
#undef SPW_TRAINER_ENUM

#endif
