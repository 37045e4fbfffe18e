/* The memory of a training step that XLA compiles whole, on one GPU (docs/validation_memory.md).
 *
 *   wanted    = gradients + relaid expert weights + gathered expert weights + carries + logits + saved by the remat
 *               policy + packing x layer + masked operands + whole dispatch
 *   limit     = limit_share x (pool - arguments)
 *   part      = recovered share x packing x layer
 *   temporary = wanted - part x (1 - exp(-max(0, wanted - masked - dispatch - limit) / part))
 *
 * `layer` is the list of tensors in the scheme's file (sim/input/compiled_layer.h). Below the limit nothing is
 * recovered; past it XLA rematerialises as long as a layer holds something that can be computed again, with
 * diminishing returns: it never gets more than `part`. Only packing, the recovered shares and masked
 * operands are fitted; none depends on the model or the batch. The interval is temporary x exp(+-h), h =
 * half_width + half_width_recovered x recovered / temporary: the scheduler's bumps are not modelled, so
 * they are its width. */
#ifndef SPW_SIM_MEMORY_COMPILED_MEMORY_H
#define SPW_SIM_MEMORY_COMPILED_MEMORY_H

#include "sim/input/job.h"
#include "sim/input/stack.h"
#include "sim/schemes/scheme.h"

/* The parts, in bytes; all but the last add up to what XLA wants. */
#define SPW_COMPILED_PART_LIST(X) \
    X(GRADIENTS, "gradients", "P g / G: stacked gradients of the layer scan") \
    X(RELAID, "relaid_expert_weights", \
      "3 E H F L w / G: a copy of the sharded stack in the layout of the all-gather") \
    X(GATHERED, "gathered_expert_weights", \
      "3 e H F w of one layer (3 E H F w where all experts are gathered)") \
    X(CARRIES, "carries", "L T H b: inputs of the layers") \
    X(LOGITS, "logits", "T V b") \
    X(SAVED, "saved_by_policy", "what the remat policy keeps of all layers") \
    X(LAYER, "layer", "packing x the list of tensors of one layer's backward pass") \
    X(MASKED, "masked_operands", "masked copies of ragged_dot's operands") \
    X(DISPATCH, "whole_dispatch", "[E, G p, C, H] of the peeled layout") \
    X(RECOVERED, "recovered", "computed again past the limit, subtracted")
#define SPW_COMPILED_PART_ENUM(name, text, help) SPW_COMPILED_##name,
typedef enum spw_compiled_part {
    SPW_COMPILED_PART_LIST(SPW_COMPILED_PART_ENUM) SPW_COMPILED_PARTS
} spw_compiled_part;
#undef SPW_COMPILED_PART_ENUM
const char *spw_compiled_part_name(spw_compiled_part part);

typedef struct spw_compiled_memory {
    double part_bytes[SPW_COMPILED_PARTS];
    double argument_bytes, wanted_bytes, limit_bytes;
    double temporary_bytes, low_bytes, high_bytes; /* the interval of temporary_bytes */
    char outside
        [SPW_OUTSIDE_TEXT]; /* why this is not covered by the fit: "no fitted packing", ...; "" when it is covered */
} spw_compiled_memory;

/* `pool_bytes`: what the compiler plans for, arguments included. SPW_ECONFIG for a scheme that is no compiled
 * program, or a pipeline or tensor split, which is not modelled. */
SPW_MUST_CHECK spw_status spw_compiled_memory_predict(const spw_stack *stack, const spw_job *job,
                                                      const spw_scheme *scheme, size_t sequences,
                                                      double pool_bytes, spw_compiled_memory *out);

#endif
