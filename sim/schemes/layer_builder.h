/* How a scheme describes its layer: calls in the order of execution. The function of a scheme's row
 *
 *   void NAME_layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b)
 *
 * begins its passes and lets tensors be born and die in them. Parts that schemes share are functions that take the builder;
 * what depends on options, remat or flavour is an `if`. A tensor is known by its name: it may be born again after its death,
 * in the same size. No call fails: the first failure is kept, what follows is left out, spw_layer_build() gives it back. */
#ifndef SPW_SIM_SCHEMES_LAYER_BUILDER_H
#define SPW_SIM_SCHEMES_LAYER_BUILDER_H

#include "sim/schemes/layer.h"

typedef struct spw_layer_builder spw_layer_builder;

spw_flavour spw_layer_flavour(const spw_layer_builder *b);
spw_phase spw_layer_phase(const spw_layer_builder *b);
bool spw_layer_is_cut(const spw_layer_builder *b); /* among the GPUs of a mesh's tensor group */

/* Passes come in the order of spw_phase. When FORWARD ends all its tensors must be dead, and so when the layer ends. */
void spw_layer_pass(spw_layer_builder *b, spw_phase phase);
void spw_layer_born(spw_layer_builder *b, const char *step, spw_tensor tensor);
void spw_layer_dies(spw_layer_builder *b, const char *step, const char *tensor);
/* The same of a tensor of at least so many bytes, which goes to the host's memory and comes back; a smaller one stays.
 * moves: it is this layer's own, whose copy waits there. */
void spw_layer_returns(spw_layer_builder *b, const char *step, spw_tensor tensor, uint64_t least_bytes);
void spw_layer_leaves(spw_layer_builder *b, const char *step, const char *tensor, uint64_t least_bytes,
                      bool moves);
/* Born and dead within one step. */
void spw_layer_passes(spw_layer_builder *b, const char *step, spw_tensor tensor);

/* An attribute of the framework's module takes a living tensor, which it keeps until the next one takes its place, in
 * a later pass or step: spw_layer_dies() lets nothing go. PyTorch's allocator sees that (SPW_FLAVOUR_TORCH), under
 * other flavours nothing is kept. */
void spw_layer_keeps(spw_layer_builder *b, const char *step, const char *tensor);

/* From here on tensors belong to one expert (1 to experts_per_rank) of those that run one after the other, where
 * shape.sequential_experts; 0: to all again. */
void spw_layer_expert(spw_layer_builder *b, size_t expert);

/* Put before every name and step from here on, "" but for a second set of the same tensors. Borrowed. */
void spw_layer_prefix(spw_layer_builder *b, const char *prefix);

#endif
