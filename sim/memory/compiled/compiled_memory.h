/* The memory of a training step that XLA compiles whole, on one GPU (docs/validation_memory.md).
 *
 *   wanted    = the largest live set of the step: tensors by name, nothing fitted
 *   limit     = limit_share x (pool - arguments)
 *   temporary = wanted - min(recovered share x (wanted - limit), 0.42 x the layer's rows), past the limit
 *
 * Where all experts' weights are gathered, and are at least half of what is too much, they can be gathered a second time: then the share is
 * gathered_again and the weights count beside the rows.
 *
 * The live set is that of a MoE layer as XLA runs it (sim/schemes/maxtext/xla_layers.h) and of what is around it
 * (sim/memory/compiled/compiled_step.h). Past the limit XLA rematerialises: of what is too much a share of the scheme, which alone
 * is fitted, and never more of the layer than in any program seen.
 *
 * The interval spans what the scheduler may do: other orders (sim/memory/compiled/compiled_orders.h), the other head tensor where either was seen;
 * past the limit the least and the most of it that programs of the stack's tables recovered. Around that half_width, and
 * half_width_unseen for each feature of the job that no row of the stack's tables has, which `outside` names. */
#ifndef SPW_SIM_MEMORY_COMPILED_COMPILED_MEMORY_H
#define SPW_SIM_MEMORY_COMPILED_COMPILED_MEMORY_H

#include "sim/job/job_words.h"
#include "sim/machine/stack.h"
#include "sim/memory/compiled/compiled_step.h"
#include "sim/schemes/scheme.h"

/* A moment at which much is live. */
typedef struct spw_compiled_moment {
    spw_step_moment moment;
    size_t event; /* of the layer's list; SIZE_MAX: no layer runs */
    char step[64];
    double bytes, layer_bytes;
    double
        rows_bytes; /* of the layer: what can be computed again. Weights and what ragged_dot masks cannot */
    double weights_bytes; /* of all experts, gathered: what can be gathered again; 0 in other programs */
} spw_compiled_moment;

typedef struct spw_compiled_memory {
    spw_compiled_moment fullest, next; /* the runner-up is another step */
    double argument_bytes, wanted_bytes, limit_bytes, recovered_bytes;
    double most_recovered; /* of the rows at the fullest moment: of the stack */
    double gathered_again; /* of the stack */
    double held_bytes;     /* so much past the limit XLA leaves; 0 where it runs products again */
    double temporary_bytes, low_bytes, high_bytes; /* the interval of temporary_bytes */
    size_t unseen;                                 /* features that widen the interval */
    char outside[SPW_OUTSIDE_TEXT];                /* why this is not covered by the fit; "" when it is */
} spw_compiled_memory;

/* The step as it goes: bytes beside the arguments and the layer at every moment, and of the layer after each of its events. */
typedef struct spw_compiled_course {
    double around[SPW_STEP_MOMENTS];
    double *layer;  /* [events] */
    bool *backward; /* [events] in the backward pass, or in its recomputation */
    size_t events;
} spw_compiled_course;
/* SPW_ECONFIG as spw_compiled_memory_check(); SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_compiled_memory_course(const spw_stack *stack, const spw_job *job,
                                                     const spw_scheme *scheme, size_t sequences,
                                                     spw_compiled_course *out);
void spw_compiled_course_destroy(spw_compiled_course *course); /* a zeroed one is fine */

/* One tensor of a moment, for who wants to read the list. */
typedef struct spw_compiled_tensor {
    char name[48], formula[96];
    double bytes;
    unsigned pieces;  /* tensors of one size that they are */
    bool recoverable; /* past the limit: rows of the layer */
} spw_compiled_tensor;

/* Does the model speak of this scheme and job? (A compiled program, no pipeline, tensor split or micro-batches, a remat policy
 * of MaxText.) Else SPW_ECONFIG says what would be right. */
SPW_MUST_CHECK spw_status spw_compiled_memory_check(const spw_job *job, const spw_scheme *scheme);

/* `pool_bytes`: what the compiler plans for, arguments included. SPW_ECONFIG as spw_compiled_memory_check(); SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_compiled_memory_predict(const spw_stack *stack, const spw_job *job,
                                                      const spw_scheme *scheme, size_t sequences,
                                                      double pool_bytes, spw_compiled_memory *out);

/* How the arguments come about, in letters: P parameters, w, m and o bytes of weights, master weights and a moment. */
const char *spw_compiled_arguments_formula(const spw_job *job, size_t stages);

/* The temporary of a prediction with another recovered share. */
double spw_compiled_temporary(const spw_compiled_memory *memory, double share);

/* Every tensor that lives at `moment` of that prediction, largest first: `count` of them, freed by the caller. */
SPW_MUST_CHECK spw_status spw_compiled_memory_list(const spw_stack *stack, const spw_job *job,
                                                   const spw_scheme *scheme, size_t sequences,
                                                   const spw_compiled_moment *moment,
                                                   spw_compiled_tensor **tensor, size_t *count);

#endif
