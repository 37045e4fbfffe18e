/* What a GPU of MaxText's mesh with the axes tensor and context holds beside its experts (docs/schemes.md, section 2.8). */
#ifndef SPW_SIM_MEMORY_KEPT_MESH_MEMORY_H
#define SPW_SIM_MEMORY_KEPT_MESH_MEMORY_H

#include "sim/job/job_words.h"
#include "sim/model/model.h"
#include "sim/schemes/scheme.h"

typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */
typedef struct spw_stage spw_stage;         /* sim/weights/stage.h */

/* The widths that one GPU of a tensor group has between products: H, V, heads, columns of FFNs over TP, and the low ranks of MLA
 * whole. */
void spw_mesh_cut_model(const spw_job *job, spw_model *out);

/* Parameters of a layer that the GPUs of a tensor group hold: `all`, of which each has `whole` for itself, and of the rest 1 / TP. */
double spw_mesh_held(const spw_job *job, double all, double whole);

/* The keys and values of the whole sequence, and the whole hidden states that a product cut by columns reads. */
void spw_mesh_add(const spw_job *job, const spw_stage *stage, const spw_layer_shape *shape,
                  spw_footprint *out);
/* Bytes that those keys and values take beside the GPU's own, in one layer; 0 of other jobs. */
double spw_mesh_gathered_keys(const spw_job *job, const spw_layer_shape *shape);

#endif
