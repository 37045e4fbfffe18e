/* The executed schemes. To add one: its file beside this one, its line here and its row in execution.c. */
#ifndef SPW_REFERENCE_SCHEMES_EXECUTE_LIST_H
#define SPW_REFERENCE_SCHEMES_EXECUTE_LIST_H

#include "reference/schemes/execution.h"

spw_status spw_execute_dense(spw_execution *run);      /* MaxText dense_matmul, capacity a sequence */
spw_status spw_execute_ragged(spw_execution *run);     /* MaxText sparse_matmul with jax.lax.ragged_dot */
spw_status spw_execute_gmm(spw_execution *run);        /* MaxText sparse_matmul with a grouped GEMM */
spw_status spw_execute_gmm_deepep(spw_execution *run); /* a grouped GEMM behind DeepEP in JAX */
spw_status spw_execute_ring(spw_execution *run);       /* MaxText ring of experts */
spw_status spw_execute_megatron_alltoall(spw_execution *run);
spw_status spw_execute_megatron_allgather(spw_execution *run);
spw_status spw_execute_megatron_flex(spw_execution *run);     /* behind DeepEP or HybridEP */
spw_status spw_execute_megatron_syncfree(spw_execution *run); /* HybridEP, fixed rows, paged stash */
spw_status spw_execute_megatron_ncclep(spw_execution *run);   /* NCCL EP, as many rows as arrive or fixed */
spw_status spw_execute_primus_syncfree(spw_execution *run);   /* AMD's variants of the above */
spw_status spw_execute_primus_megamoe(spw_execution *run);    /* exchanges within grouped GEMMs */
spw_status spw_execute_ragged_deepep(spw_execution *run);     /* ragged_dot behind DeepEP in JAX */
spw_status spw_execute_ragged_ring(spw_execution *run);       /* ragged_dot in MaxText's ring of experts */
spw_status spw_execute_deepep(spw_execution *run);     /* DeepEP with exact receive counts, in PyTorch */
spw_status spw_execute_deepep_ll(spw_execution *run);  /* DeepEP, low latency */
spw_status spw_execute_hybrid_ep(spw_execution *run);  /* HybridEP under Megatron-Core */
spw_status spw_execute_moe_dedup(spw_execution *run);  /* ROCm MaxText moe_dedup */
spw_status spw_execute_megablocks(spw_execution *run); /* MegaBlocks dMoE with expert parallelism */
spw_status spw_execute_tutel(spw_execution *run);      /* Tutel, places by choice rank */
spw_status spw_execute_torchtitan(spw_execution *run); /* torchtitan, all-to-all token dispatcher */
spw_status spw_execute_torchtitan_hybridep(spw_execution *run); /* ... behind HybridEP */
spw_status spw_execute_torchtitan_async(spw_execution *run);    /* ... its minimal async EP */
spw_status spw_execute_scattermoe(spw_execution *run);          /* ScatterMoE, one rank */
spw_status spw_execute_sonicmoe(spw_execution *run); /* SonicMoE with or without token rounding, one rank */
spw_status spw_execute_transformers(spw_execution *run); /* Hugging Face transformers, one rank */

#endif
