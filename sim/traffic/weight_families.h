/* Weights that the same GPUs share: who gathers what, and whose gradients are scattered or summed over whom. One list for the
 * collectives of a step (sim/traffic/step_traffic.h, matrix by matrix where the state is sharded) and for their time. */
#ifndef SPW_SIM_TRAFFIC_WEIGHT_FAMILIES_H
#define SPW_SIM_TRAFFIC_WEIGHT_FAMILIES_H

#include "sim/job/job_words.h"
#include "sim/traffic/step_items.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPW_WEIGHT_FAMILIES = 3 };

typedef struct spw_weight_family {
    spw_purpose purpose;
    spw_step_group group;
    size_t members, stride; /* GPUs of the group; consecutive members are so many GPUs apart */
    uint64_t elements;      /* of all layers and stages, whole, as one GPU of the group sees them */
    uint64_t linear;        /* of these, weights of linear layers, which an fp8 recipe casts */
    size_t tensors; /* that travel one by one: three matrices a MoE layer, or all of a layer together */
} spw_weight_family;

/* A rank's experts over fsdp, the rest over all GPUs (the ends of the model included); with all_experts, those of all ranks
 * over an expert-parallel group. Returns how many. */
size_t spw_weight_families(const spw_job *job, bool all_experts, spw_weight_family out[SPW_WEIGHT_FAMILIES]);

/* GPUs of the longest ring in any run that a fit has seen: 8 nodes of 8 (notebooks_data/published). */
enum { SPW_RING_SEEN = 64 };

/* Collectives of weights: bytes that one GPU receives through its NIC and its link, and how many hops they make. Hops grow with the
 * ring; seen_hops are those of rings that are no longer than SPW_RING_SEEN. */
typedef struct spw_weight_traffic {
    double nic_bytes, link_bytes, hops, seen_hops;
} spw_weight_traffic;

/* Bytes of one weight as it is gathered, on average: with fp8_param_gather linear ones are one byte, but for mxfp8, whose new
 * weights travel in bf16. */
double spw_weight_gathered_bytes(const spw_job *job, const spw_weight_family *family);

/* Adds `passes` times a family's tensors, of so many bytes an element, to be received by each member: a ring enters a node
 * once a group, so a NIC carries the share of the groups of its node. */
void spw_weight_traffic_add(const spw_job *job, const spw_weight_family *family, double passes, double size,
                            spw_weight_traffic *out);

/* How often a step gathers weights and reduces gradients: under FSDP2 without stages once a micro-batch, else once. */
double spw_weight_repeats(const spw_job *job);
/* What travels of weights and gradients in one step of a Megatron-Core job; the same on every stage. */
SPW_MUST_CHECK spw_status spw_weight_step(const spw_job *job, spw_weight_traffic *scatters,
                                          spw_weight_traffic *gathers);

/* What the layer-wise optimizer's buffers of all stages have beside their matrices (sim/weights/muon_packing.h): experts, all else. */
SPW_MUST_CHECK spw_status spw_weight_padding(const spw_job *job, uint64_t out[2]);

#endif
