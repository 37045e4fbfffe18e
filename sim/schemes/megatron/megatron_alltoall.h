/* The all-to-all dispatcher, for schemes that change something about it. */
#ifndef SPW_SIM_SCHEMES_MEGATRON_MEGATRON_ALLTOALL_H
#define SPW_SIM_SCHEMES_MEGATRON_MEGATRON_ALLTOALL_H

#include "sim/schemes/megatron/megatron_layer.h"

/* `fused`: router and permutations are one kernel each, which keep a row_id_map instead of an argsort. */
void spw_megatron_alltoall_layer(const spw_scheme *scheme, const spw_layer_shape *shape,
                                 spw_layer_builder *builder, bool fused);
size_t spw_megatron_alltoall_exchanges(const spw_scheme *scheme, const spw_layer_shape *shape,
                                       spw_exchange out[SPW_SCHEME_EXCHANGES]);
void spw_megatron_alltoall_flow(const spw_routed_group *routed, spw_flow *out);
size_t spw_megatron_alltoall_lines(const spw_routed_group *routed);
void spw_megatron_alltoall_balance(const spw_scheme *scheme, const spw_layer_shape *shape,
                                   spw_rank_rows *rows);

/* Whether experts' rows are padded in the permutation. */
bool spw_megatron_alltoall_pads(const spw_scheme *scheme);
/* Whether every expert's capacity is filled. */
bool spw_megatron_alltoall_fills(const spw_scheme *scheme);

#endif
