/* What Megatron-Core's fine-grained offloading takes from the attention of one layer: core_attn queries, keys, values and the
 * output, attn_proj the output once more (NVIDIA/Megatron-LM d98e8a64, megatron/core/transformer/attention.py and
 * multi_latent_attention.py, `forced_released_tensors`). docs/schemes.md, section 7.17. */
#ifndef SPW_SIM_MEMORY_KEPT_ATTENTION_OFFLOAD_H
#define SPW_SIM_MEMORY_KEPT_ATTENTION_OFFLOAD_H

#include "sim/schemes/scheme.h"
typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */
typedef struct spw_stage spw_stage;         /* sim/weights/stage.h */

/* A tensor that is copied to the host, of one layer in one micro-batch on one GPU. */
typedef struct spw_offloaded_tensor {
    const char *name, *formula;
    uint64_t elements;
    size_t bytes; /* of an element */
} spw_offloaded_tensor;

enum { SPW_ATTENTION_TENSORS = 6 };
/* Those of this job; fewer than SPW_OFFLOAD_LEAST_ELEMENTS elements stay. Gives how many. */
size_t spw_attention_offload_list(const spw_job *job, const spw_layer_shape *shape,
                                  spw_offloaded_tensor out[SPW_ATTENTION_TENSORS]);

/* Bytes of one layer. */
typedef struct spw_attention_offload {
    double gone; /* not on the GPU while the layer waits */
    double
        again; /* beside all of it once it is back: the core's output and the projection's input are two tensors then */
    double copied; /* one way */
} spw_attention_offload;
/* copied_values: they are no view of the product of queries, keys and values (section 7.4). */
spw_attention_offload spw_attention_offload_of(const spw_job *job, const spw_layer_shape *shape,
                                               bool copied_values);

/* What is on the GPU of layers that do not wait. Gives `gone`; 0 where nothing is offloaded. */
double spw_attention_offload_add(spw_footprint *footprint, const spw_job *job, const spw_stage *stage,
                                 const spw_layer_shape *shape, bool copied_values);

#endif
