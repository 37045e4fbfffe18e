/* What the tensors of bare Megatron-Core layers are called, how large they are and where that was read. H hidden, F ffn, T
 * tokens, K top_k, E experts, e experts of this rank, L layers, M rows received, N rows sent, C capacity. */
#ifndef SPW_SIM_MEMORY_TENSORS_BARE_TENSORS_H
#define SPW_SIM_MEMORY_TENSORS_BARE_TENSORS_H

#include "sim/memory/allocator/event_list.h"

/* Kinds are numbered from 0; NULL after the last. */
const spw_tensor_kind *spw_bare_kind(size_t kind);
bool spw_bare_kind_is_weight(size_t kind);
/* The kind of a tensor that is known by its name in the layer. SPW_EARG: no kind has it. */
SPW_MUST_CHECK spw_status spw_bare_kind_of(const char *tensor, uint16_t *out);

#endif
