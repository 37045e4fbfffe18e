/* NCCL EP in its high-throughput mode, as TransformerEngine's expert parallelism drives it: how many rows a rank may receive,
 * the routing table of one dispatch, and the buffers of the group (docs/schemes.md, section 5.7). */
#ifndef SPW_SIM_SCHEMES_DEEPEP_NCCL_EP_H
#define SPW_SIM_SCHEMES_DEEPEP_NCCL_EP_H

#include "sim/schemes/scheme.h"

/* P_64(T), the tokens that a rank may send. */
size_t spw_nccl_ep_tokens(const spw_layer_shape *shape);

/* Bytes of handle_mem, which lives from a dispatch to its gradient; `slots` that a rank may receive. Without the scratch of
 * the scan, 8 bytes a multiprocessor and rank of the node. nccl_ep/nccl_ep.cc HtBlockLayout, local permutation. */
uint64_t spw_nccl_ep_handle_bytes(const spw_layer_shape *shape, uint64_t slots);

/* Bytes that the group has registered or allocated, once a process: the shared buffer of the node, the one between nodes,
 * the routing map of the group and the workspace. init_ht_intranode, init_ht_internode, ncclEpCreateGroup. */
uint64_t spw_nccl_ep_group_bytes(const spw_layer_shape *shape, uint64_t slots);

/* SPW_ECONFIG: the group has one rank or is no whole number of nodes, or its experts are not as the kernels want them. */
SPW_MUST_CHECK spw_status spw_nccl_ep_check(const spw_scheme *scheme, const spw_layer_shape *shape);

#endif
