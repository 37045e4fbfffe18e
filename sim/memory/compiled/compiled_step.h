/* What is around the MoE layers in a training step that XLA compiles whole: tensors by name, each with the moments of the
 * step at which it lives. Together with the layer's own list (sim/schemes/maxtext/xla_layers.h) they are what the arena holds; no
 * number in here is fitted. Formulas and where each was seen: docs/validation_memory.md, "The lists". */
#ifndef SPW_SIM_MEMORY_COMPILED_COMPILED_STEP_H
#define SPW_SIM_MEMORY_COMPILED_COMPILED_STEP_H

#include "sim/job/job_words.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/compiled/compiled_cut.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/scheme.h"

typedef struct spw_stack spw_stack;

/* Moments of a step, in order. */
typedef enum spw_step_moment {
    SPW_STEP_FORWARD,   /* a MoE layer's forward pass */
    SPW_STEP_HEAD,      /* logits and their gradient */
    SPW_STEP_RELAY,     /* before the backward loop: what a policy saved is laid out anew */
    SPW_STEP_BACKWARD,  /* a MoE layer's recomputation and backward pass */
    SPW_STEP_ATTENTION, /* the backward pass of its attention */
    SPW_STEP_UPDATE,    /* the optimizer */
    SPW_STEP_MOMENTS
} spw_step_moment;
const char *spw_step_moment_name(spw_step_moment moment);

enum { SPW_STEP_TENSORS = 56 };

typedef struct spw_step_tensor {
    const char *name, *formula;
    double bytes;
    unsigned pieces, when; /* tensors of one size that they are; bit 1 << moment */
} spw_step_tensor;

/* The logits [T, V] or the head's whole gradient [H, V] live through the backward loop. `head` is the one that is expected, `least` and
 * `most` are what may be there in its place: the same, but where the logits are small. */
typedef struct spw_step_list {
    spw_step_tensor tensor[SPW_STEP_TENSORS];
    size_t tensors;
    double head_bytes, head_least_bytes, head_most_bytes;
} spw_step_list;

/* `shape`: that of spw_compiled_cut_shape(). `flavour`: of XLA. Under its latency-hiding scheduler the logits do not give
 * their place to their gradient; under SPW_FLAVOUR_XLA_APART the ragged all-to-alls have an arena of their own. Which head
 * tensor lives is known for logits of more than the stack's logits_kept_bytes alone. */
typedef struct spw_step_program {
    const spw_job *job; /* borrowed, like the others */
    const spw_scheme *scheme;
    const spw_compiled_cut *cut;
    const spw_layer_shape *shape;
    const spw_remat_tree *tree;
    spw_flavour flavour;
    const spw_stack *stack;
} spw_step_program;
void spw_step_list_fill(const spw_step_program *program, spw_step_list *out);
double spw_step_list_sum(const spw_step_list *list, spw_step_moment moment);

#endif
