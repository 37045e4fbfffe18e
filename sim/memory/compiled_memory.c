#include "sim/memory/compiled_memory.h"

#include "sim/input/precision.h"
#include "sim/input/remat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PART_TEXT(name, text, help) text,
const char *spw_compiled_part_name(spw_compiled_part part) {
    static const char *const names[] = {SPW_COMPILED_PART_LIST(PART_TEXT)};
    return (unsigned)part < SPW_COMPILED_PARTS ? names[part] : "?";
}

/* Weights and gradients: what does not depend on the batch. */
static void add_weights(const spw_job *job, const spw_compiled_layer *list, double *part) {
    const spw_parameters p = spw_model_parameters(&job->model);
    const double gpus = (double)spw_job_gpus(job), w = (double)job->precision.weights;
    const double routed = (double)p.routed_per_layer * w;
    part[SPW_COMPILED_GRADIENTS] = (double)p.total * (double)job->precision.gradients / gpus;
    if (job->fsdp > 1) part[SPW_COMPILED_RELAID] = routed * (double)job->model.moe_layers / gpus;
    if (job->fsdp > 1 || list->all_experts)
        part[SPW_COMPILED_GATHERED] = list->all_experts ? routed : routed / (double)job->expert;
}

static void add_activations(const spw_stack *stack, const spw_job *job, const spw_scheme *scheme,
                            const spw_compiled_layer *list, const spw_layer_shape *s, double *part) {
    const double b = (double)s->element_bytes, tokens = (double)s->tokens, hidden = (double)s->hidden;
    const double rows = (double)scheme->type->buffer_rows(scheme, s);
    const double rows_hidden = rows * hidden * b, rows_ffn = rows * (double)s->ffn * b;
    const double slots = (double)s->experts * (double)spw_scheme_capacity(scheme, s);
    const spw_remat_expert_tensors experts = spw_remat_experts(job->remat);
    part[SPW_COMPILED_CARRIES] = (double)job->model.layers * tokens * hidden * b;
    part[SPW_COMPILED_LOGITS] = tokens * (double)job->model.vocab * b;
    part[SPW_COMPILED_SAVED] = (double)spw_remat_token_elements(&job->model, job->remat) * tokens * b;
    if (stack->keeps_expert_products) {
        part[SPW_COMPILED_SAVED] +=
            (double)job->model.moe_layers * (experts.ffn * rows_ffn + experts.hidden * rows_hidden);
    }
    const double layer = (list->hidden_live + list->hidden_copies) * rows_hidden + list->ffn * rows_ffn +
                         list->masks * tokens * slots * b +
                         list->assignments * (double)s->assignments * hidden * b +
                         list->gathered * (double)s->ranks * tokens * hidden * b;
    part[SPW_COMPILED_LAYER] = stack->packing[list->packing].value * layer;
    if (list->masked_operands) {
        part[SPW_COMPILED_MASKED] =
            stack->masked_operands.value * (double)s->experts_per_rank * (rows_hidden + rows_ffn);
    }
    if (list->whole_dispatch) part[SPW_COMPILED_DISPATCH] = (double)spw_job_gpus(job) * rows_hidden;
}

static void recover(const spw_stack *stack, const spw_compiled_layer *list, spw_compiled_memory *m) {
    const bool dense = list->packing == SPW_PACKING_DENSE || list->packing == SPW_PACKING_DENSE_GATHERED;
    const double share = dense ? stack->recovered_dense.value : stack->recovered_grouped.value;
    const double most = share * m->part_bytes[SPW_COMPILED_LAYER];
    const double movable =
        m->wanted_bytes - m->part_bytes[SPW_COMPILED_MASKED] - m->part_bytes[SPW_COMPILED_DISPATCH];
    const double past = movable - m->limit_bytes;
    if (past > 0.0 && most > 0.0) m->part_bytes[SPW_COMPILED_RECOVERED] = -most * expm1(-past / most);
    m->temporary_bytes = m->wanted_bytes - m->part_bytes[SPW_COMPILED_RECOVERED];
}

static void name_outside(const spw_stack *s, const spw_job *job, const spw_compiled_layer *list,
                         size_t sequences, spw_compiled_memory *m) {
    const spw_fit_range range = {s->models,           s->clusters,      s->expert_parallel,
                                 s->sequence_lengths, s->sequences_min, s->sequences_max};
    const spw_fit_point point = {job->model.name, job->cluster.name,    job->expert,
                                 sequences,       job->sequence_length, spw_precision_is_bf16(job)};
    if (s->packing[list->packing].evidence != SPW_EVIDENCE_FITTED)
        spw_outside_add(m->outside, "%s not in the fitted tables",
                        spw_stack_rows[list->packing].key + sizeof "packing_" - 1);
    spw_outside_ranges(m->outside, &range, &point);
    if (spw_precision_any_fp8(job)) spw_outside_add(m->outside, "fp8: a recipe's own copies and scales");
}

spw_status spw_compiled_memory_predict(const spw_stack *stack, const spw_job *job, const spw_scheme *scheme,
                                       size_t sequences, double pool_bytes, spw_compiled_memory *out) {
    memset(out, 0, sizeof *out);
    if (scheme->type->compiled == NULL)
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s' has no list of tensors for programs that XLA compiles whole",
                        scheme->text);
    if (job->pipeline > 1 || job->tensor > 1)
        return spw_fail(SPW_ECONFIG,
                        "pipeline %zu x tensor %zu is not modelled for compiled programs; use 1 "
                        "and 1",
                        job->pipeline, job->tensor);
    if (job->micro_batches > 1)
        return spw_fail(SPW_ECONFIG, "micro_batches %zu are not modelled for compiled programs; use 1",
                        job->micro_batches);
    if (spw_remat_keeps_layers(job->remat))
        return spw_fail(SPW_ECONFIG,
                        "remat %s is not modelled for compiled programs; name a policy of MaxText",
                        spw_remat_name(job->remat));
    const spw_layer_shape shape = spw_layer_shape_of(job, sequences);
    const spw_compiled_layer *list = scheme->type->compiled(scheme);
    const spw_parameters parameters = spw_model_parameters(&job->model);
    out->argument_bytes = (double)parameters.total *
                          (double)(job->precision.weights + 2 * job->precision.optimizer) /
                          (double)spw_job_gpus(job);
    add_weights(job, list, out->part_bytes);
    add_activations(stack, job, scheme, list, &shape, out->part_bytes);
    for (int i = 0; i < SPW_COMPILED_RECOVERED; i++) out->wanted_bytes += out->part_bytes[i];
    out->limit_bytes = fmax(0.0, stack->limit_share.value * (pool_bytes - out->argument_bytes));
    recover(stack, list, out);
    const double half_width = stack->half_width.value + stack->half_width_recovered.value *
                                                            out->part_bytes[SPW_COMPILED_RECOVERED] /
                                                            out->temporary_bytes;
    out->low_bytes = out->temporary_bytes * exp(-half_width);
    out->high_bytes = out->temporary_bytes * exp(half_width);
    name_outside(stack, job, list, sequences, out);
    return SPW_OK;
}
