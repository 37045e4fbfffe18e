/* The table of schemes. To add one: its file beside this one, its row here, its sources in
 * sim/schemes/CMakeLists.txt, its executed counterpart in reference/schemes/, its section in docs/schemes.md. */
#ifndef SPW_SIM_SCHEMES_LIST_H
#define SPW_SIM_SCHEMES_LIST_H

#include "sim/schemes/scheme.h"

#define SPW_SCHEME_LIST(X) \
    X(spw_scheme_dense) \
    X(spw_scheme_ragged) \
    X(spw_scheme_gmm) \
    X(spw_scheme_gmm_deepep) \
    X(spw_scheme_ring) \
    X(spw_scheme_megatron_alltoall) \
    X(spw_scheme_megatron_allgather) \
    X(spw_scheme_megatron_flex) \
    X(spw_scheme_megatron_syncfree) \
    X(spw_scheme_megatron_ncclep) \
    X(spw_scheme_primus_syncfree) \
    X(spw_scheme_primus_megamoe) \
    X(spw_scheme_ragged_deepep) \
    X(spw_scheme_ragged_ring) \
    X(spw_scheme_deepep) \
    X(spw_scheme_deepep_ll) \
    X(spw_scheme_hybrid_ep) \
    X(spw_scheme_moe_dedup) \
    X(spw_scheme_megablocks) \
    X(spw_scheme_tutel) \
    X(spw_scheme_scattermoe) \
    X(spw_scheme_sonicmoe) \
    X(spw_scheme_transformers) \
    X(spw_scheme_torchtitan) \
    X(spw_scheme_torchtitan_hybridep) \
    X(spw_scheme_torchtitan_async)

#define SPW_SCHEME_DECLARE(name) extern const spw_scheme_type name;
SPW_SCHEME_LIST(SPW_SCHEME_DECLARE)
#undef SPW_SCHEME_DECLARE

/* Rows to the experts and back, of hidden activations and nothing else: 2 exchanges forward, 2 recomputed (the gradient
 * of the router weights needs the returned rows), 2 backward. */
size_t spw_row_exchanges(const spw_scheme *scheme, const spw_layer_shape *shape,
                         spw_exchange out[SPW_SCHEME_EXCHANGES]);

/* Every choice is a row of its own and nothing is dropped: wire n[s->d], rows sum over the experts x of d of P_tile(M_x). */
void spw_every_choice(const spw_routed_group *routed, size_t tile, spw_flow *out);

/* SPW_ECONFIG for remat policies that only Megatron-Core has. */
SPW_MUST_CHECK spw_status spw_check_remat(const spw_scheme *scheme, const spw_layer_shape *shape);
/* For schemes whose code knows one rank only: no exchange, and expert parallelism is refused with SPW_ECONFIG; so is what
 * spw_check_remat() refuses. */
size_t spw_no_exchanges(const spw_scheme *scheme, const spw_layer_shape *shape,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]);
SPW_MUST_CHECK spw_status spw_check_one_rank(const spw_scheme *scheme, const spw_layer_shape *shape);

#define SPW_COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

#endif
