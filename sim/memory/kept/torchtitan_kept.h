/* What a whole model holds under torchtitan beside the lists of its layers [read: pytorch/torchtitan b5bcd76c
 * torchtitan/models/common/{rope,moe,attention}.py; torch 2.11.0 aten/src/ATen/cuda/CUDABlas.cpp]. Nothing elsewhere (docs/schemes.md,
 * section 7.14).
 *   a layer   1 / rms of its norms in fp32, and its positions' angles, gathered from a table of the layer's own
 *   a router  its input in fp32, as autocast makes it for a product in fp32; nobody else keeps the FFN's normed input but a shared
 *             expert. Scores in fp32, the choices and their scores before and behind their sum
 *   for good  a table of angles a layer, a workspace of cuBLAS a thread; at the loss the last norm's input and output */
#ifndef SPW_SIM_MEMORY_KEPT_TORCHTITAN_KEPT_H
#define SPW_SIM_MEMORY_KEPT_TORCHTITAN_KEPT_H

#include "sim/schemes/scheme.h"
typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */
typedef struct spw_stage spw_stage;         /* sim/weights/stage.h */

/* Bytes of one layer with an attention of queries, keys and values, and of a router, while they wait. The latter may be below 0: it is
 * beside what a layer keeps elsewhere. */
double spw_torchtitan_layer_kept(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *shape);
double spw_torchtitan_router_kept(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *shape);

void spw_torchtitan_kept_add(spw_footprint *footprint, const spw_job *job, const spw_scheme *scheme,
                             const spw_stage *stage, const spw_layer_shape *shape);

#endif
