#include "sim/memory/kept/attention_offload.h"

#include "sim/job/job.h"
#include "sim/memory/kept/activation_offload.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/model/attention.h"

enum { QUERY, KEY, VALUE, OUTPUT, LOG_SUM, INPUT }; /* the last: of the projection */

/* All tensors that attention keeps, and which of them are copied. */
static void sizes_of(const spw_job *job, const spw_layer_shape *s,
                     spw_offloaded_tensor all[SPW_ATTENTION_TENSORS], bool goes[SPW_ATTENTION_TENSORS]) {
    const spw_attention_widths w = spw_attention_widths_of(&job->model);
    const uint64_t T = s->tokens;
    const size_t b = s->element_bytes;
    const spw_offloaded_tensor list[SPW_ATTENTION_TENSORS] = {
        [QUERY] = {"query", "T 'queries' b", T * w.query, b},
        [KEY] = {"key", "T 'keys' b", T * w.key, b},
        [VALUE] = {"value", "T 'values' b", T * w.value, b},
        [OUTPUT] = {"core_output", "T 'outputs' b", T * w.context, b},
        [LOG_SUM] = {"log_sum_exp", "4 T heads", T * job->model.heads, sizeof(float)},
        [INPUT] = {"projection_input", "T 'outputs' b", T * w.context, b}};
    for (size_t i = 0; i < SPW_ATTENTION_TENSORS; i++) {
        const unsigned module = i == INPUT ? SPW_OFFLOAD_ATTN_PROJ : SPW_OFFLOAD_CORE_ATTN;
        all[i] = list[i];
        goes[i] = (job->offload.modules & module) != 0 && list[i].elements >= SPW_OFFLOAD_LEAST_ELEMENTS;
    }
}

size_t spw_attention_offload_list(const spw_job *job, const spw_layer_shape *s,
                                  spw_offloaded_tensor out[SPW_ATTENTION_TENSORS]) {
    spw_offloaded_tensor all[SPW_ATTENTION_TENSORS];
    bool goes[SPW_ATTENTION_TENSORS];
    size_t count = 0;
    sizes_of(job, s, all, goes);
    for (size_t i = 0; i < SPW_ATTENTION_TENSORS; i++)
        if (goes[i]) out[count++] = all[i];
    return count;
}

spw_attention_offload spw_attention_offload_of(const spw_job *job, const spw_layer_shape *s,
                                               bool copied_values) {
    const spw_attention_widths w = spw_attention_widths_of(&job->model);
    spw_attention_offload out = {0.0, 0.0, 0.0};
    spw_offloaded_tensor all[SPW_ATTENTION_TENSORS];
    bool goes[SPW_ATTENTION_TENSORS];
    sizes_of(job, s, all, goes);
    for (size_t i = 0; i < SPW_ATTENTION_TENSORS; i++) {
        const double bytes = (double)all[i].elements * (double)all[i].bytes;
        if (!goes[i]) continue;
        out.copied += bytes;
        if (i != OUTPUT) out.gone += bytes; /* the projection has it, too */
    }
    /* the memory of values that are a view is that of the whole product, and is given up as one */
    if (goes[VALUE] && !copied_values)
        out.gone += (double)(w.kept - w.kept_copied) * (double)s->tokens * (double)s->element_bytes;
    if (goes[OUTPUT]) out.again = (double)all[OUTPUT].elements * (double)all[OUTPUT].bytes;
    return out;
}

double spw_attention_offload_add(spw_footprint *f, const spw_job *job, const spw_stage *stage,
                                 const spw_layer_shape *s, bool copied_values) {
    if ((job->offload.modules & SPW_OFFLOAD_ATTENTION) == 0) return 0.0;
    const spw_attention_offload o = spw_attention_offload_of(job, s, copied_values);
    const bool back = spw_offload_stage_of(job, stage->index).attention.back,
               mixed = (job->offload.modules & SPW_OFFLOAD_EXPERTS) != 0 && stage->moe_layers < stage->layers;
    const spw_term gone = TERM("gone", o.gone), again = TERM("again", o.again);
    if (o.again > 0.0)
        LIVE(SPW_COMPONENT(f, "core_output_again", "back from the host beside the projection's input (7.17)",
                           "= {again}", again),
             AT_LAYERS);
    spw_component *c =
        SPW_COMPONENT(f, "staying_attention", "offloading leaves one layer's on the GPU (7.17)",
                      "= {gone} [+ {again}]", gone, TERM("again", back ? o.again : 0.0));
    /* groups come back in the order of one stack: those of a layer's experts bring back attention a layer early */
    LIVE(c, {[SPW_MOMENT_LOSS] = true, [SPW_MOMENT_DENSE_LAYER] = mixed});
    return o.gone;
}
