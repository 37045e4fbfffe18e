/* What Muon's step takes on the GPU of a stage that has most of it (sim/weights/muon_packing.h): matrix after matrix, as Megatron-Core's
 * TensorParallelMuon goes through them, each orthogonalized whole by five Newton-Schulz iterations on bf16 operands (--muon-tp-mode
 * duplicated, --muon-split-qkv: both are defaults). Of a matrix with longer side l and shorter side s, m elements of a GPU:
 *   products      5 (4 l s^2 + 2 s^3) flops / (muon_products_share x dense_flops_share x peak)
 *   operands      (54 l s + 40 s^2) bytes / copy_bytes_per_s: normalized in fp32, cast there and back, operands of the products
 *   update        m (gradient + 2 moment + 5 master + weight + 12) bytes / copy_bytes_per_s
 *   host          muon_matrix_host_s a matrix that is orthogonalized, muon_update_host_s an update: it takes no less than to be launched
 *   gathers       where t GPUs share it: 4 l s (t - 1) / t bytes by the rate of exchanges (or the NIC's) and one latency; each of
 *                 them then makes the products of the whole, and copies it once more (8 l s bytes)
 * muon_products_share and both figures of the host (sim/stack_defaults/megatron.yaml): one H200, torch 2.11, 24 measurements within 15 % (notebooks_data/measured/
 * h200_optimizer.csv). Query, key, value (and gate) of a GQA projection are orthogonalized each by itself.
 * NVIDIA/Megatron-LM d98e8a64 megatron/core/optimizer/emerging_optimizers.py; NVIDIA-NeMo/Emerging-Optimizers 0001f6e2
 * orthogonalized_optimizers/muon_utils.py. */
#ifndef SPW_SIM_TIME_MEGATRON_MUON_TIME_H
#define SPW_SIM_TIME_MEGATRON_MUON_TIME_H

#include "sim/time/timeline.h"
#include "sim/weights/muon_packing.h"

typedef struct spw_megatron_coefficients spw_megatron_coefficients; /* sim/machine/megatron_coefficients.h */

/* Adds the components muon and, where GPUs share matrices, muon_gathers. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_muon_time_add(const spw_megatron_coefficients *coefficients, const spw_job *job,
                                            size_t stage, spw_timeline *out);

/* Widens the interval of a finished timeline: the products in half and in twice their time, the gathers hidden and twice. */
void spw_muon_doubt(spw_timeline *timeline);

#endif
