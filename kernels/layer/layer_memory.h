/* Private to the layer: which tensors a rank has. */
#ifndef SPW_KERNELS_LAYER_LAYER_MEMORY_H
#define SPW_KERNELS_LAYER_LAYER_MEMORY_H

#include "kernels/layer/layer_gpu.h"

enum { SPW_LAYER_ROW_TENSORS = 9, SPW_LAYER_WEIGHTS = 4 };
typedef struct spw_layer_tensor {
    spw_bf16 **at;
    size_t width;
} spw_layer_tensor;

/* out [SPW_LAYER_ROW_TENSORS]: width 0 for what the arrangement has elsewhere, or does without. */
void spw_gpu_layer_row_tensors(const spw_layer_gpu *layer, spw_layer_rank *rank, spw_layer_tensor *out);
/* out [SPW_LAYER_WEIGHTS]: elements as width. */
void spw_gpu_layer_weight_tensors(const spw_layer_gpu *layer, spw_layer_rank *rank, spw_layer_tensor *out);
/* Device memory of `elements`, poisoned, on the GPU that is current; an error is SPW_EDEVICE. */
SPW_MUST_CHECK spw_status spw_gpu_layer_take(spw_bf16 **at, size_t elements);

#endif
