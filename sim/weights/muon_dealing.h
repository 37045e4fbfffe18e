/* Which GPU updates which parameter under the older layout of Megatron-Core's layer-wise optimizer (muon_layout: ping_pong):
 * NVIDIA/Megatron-LM core_r0.16.0 (ddc0d677) and core_r0.17.0 (432585d5) megatron/core/optimizer/layer_wise_optimizer.py
 * shard_params, --optimizer dist_muon; today (d98e8a64) _shard_params_ping_pong, --no-use-layer-wise-param-layout.
 * All parameters of a stage, Adam's too, in rising order of their elements, are dealt out whole to the D GPUs of their group in
 * the order 0, 1, ..., D - 1, D - 1, ..., 1, 0 and again: experts over their replicas, all others over data x context. Weights
 * and gradients are whole on every GPU and not padded; gradients are summed by an all-reduce, and new weights gathered. */
#ifndef SPW_SIM_WEIGHTS_MUON_DEALING_H
#define SPW_SIM_WEIGHTS_MUON_DEALING_H

#include "sim/weights/muon_packing.h"

/* Is the job's optimizer that one? */
bool spw_muon_is_dealt(const spw_job *job);

/* Of one GPU: elements of matrices, which have one moment, and of Adam's parameters, which have two; what the matrices take. */
typedef struct spw_muon_hand {
    double matrices, adam;
    spw_muon_seconds spent;
} spw_muon_hand;
/* Deals one group's parameters out, matrices [kinds] and Adam's [adams]; equal sizes in the order of the lists, matrices first.
 * hands [shards] is overwritten. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_muon_deal(const spw_muon_matrices *matrices, size_t kinds,
                                        const spw_muon_matrices *adam, size_t adams, size_t shards,
                                        spw_muon_hand *hands);

/* The GPU of a stage whose masters and moments take most, of so many bytes an element each. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_muon_dealt_fullest(const spw_job *job, size_t stage, double master,
                                                 double moment, spw_muon_hand *out);
/* spw_muon_slowest of this layout. */
SPW_MUST_CHECK spw_status spw_muon_dealt_slowest(const spw_job *job, size_t stage,
                                                 spw_muon_seconds (*price)(const void *context,
                                                                           const spw_muon_matrices *one),
                                                 const void *context, spw_muon_seconds *out);

#endif
