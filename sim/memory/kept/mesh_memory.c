#include "sim/memory/kept/mesh_memory.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/model/attention.h"

void spw_mesh_cut_model(const spw_job *job, spw_model *out) {
    const size_t tensor = spw_grid_mesh_tensor(job);
    size_t *const width[] = {&out->hidden,   &out->vocab,     &out->heads,
                             &out->kv_heads, &out->dense_ffn, &out->shared_ffn};
    *out = job->model;
    for (size_t i = 0; i < sizeof width / sizeof *width; i++) *width[i] /= tensor;
}

double spw_mesh_held(const spw_job *job, double all, double whole) {
    const double tensor = (double)spw_grid_mesh_tensor(job);
    return tensor > 1.0 ? (all - whole) / tensor + whole : all;
}

/* A token's, on one GPU of a tensor group. */
static size_t keys_values(const spw_job *job) {
    const spw_attention_widths w = spw_attention_widths_of(&job->model);
    return (w.key + w.value) / spw_grid_of(job).tensor;
}

double spw_mesh_gathered_keys(const spw_job *job, const spw_layer_shape *s) {
    return (double)((spw_grid_of(job).mesh_context - 1) * s->tokens * keys_values(job) * s->element_bytes);
}

void spw_mesh_add(const spw_job *job, const spw_stage *stage, const spw_layer_shape *s, spw_footprint *out) {
    const spw_grid g = spw_grid_of(job);
    const bool at[SPW_MOMENT_COUNT] = {
        [SPW_MOMENT_DENSE_LAYER] = stage->moe_layers < stage->layers, [SPW_MOMENT_LOSS] = stage->head};
    if (g.mesh_tensor > 1)
        spw_component_live(SPW_COMPONENT(out, "whole_hidden_states",
                                         "input of a product that is cut by columns, and its gradient (2.8)",
                                         "2 T H b", TERM("T", s->tokens), TERM("H", s->hidden),
                                         TERM("b", s->element_bytes)),
                           at);
    if (g.mesh_context > 1)
        LIVE(SPW_COMPONENT(out, "gathered_keys_values",
                           "keys and values of the other GPUs of a context group, in the layer at work (2.8)",
                           "(CP - 1) T '(keys + values) / TP' b", TERM("CP", g.mesh_context),
                           TERM("T", s->tokens), TERM("(keys + values) / TP", keys_values(job)),
                           TERM("b", s->element_bytes)),
             AT_LAYERS);
}
