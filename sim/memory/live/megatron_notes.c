#include "sim/memory/live/megatron_notes.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/megatron_keys.h"
#include "sim/job/trainer.h"
#include "sim/schemes/list.h"
#include "sim/schemes/point.h"

const char *spw_megatron_keys_beyond(const spw_job *job, const spw_scheme *scheme) {
    spw_megatron_keys said = job->megatron;
    spw_fusion *const fusions[] = {&said.permute, &said.router, &said.rope, &said.weight_gradients};
    if (spw_scheme_trainer(scheme)->in_megatron)
        said.remainders = false; /* of the optimizer, not of the layers */
    for (size_t i = 0; spw_scheme_trainer(scheme)->fuses && i < sizeof fusions / sizeof *fusions; i++)
        if (*fusions[i] == SPW_FUSION_ON) *fusions[i] = SPW_FUSION_AUTO;
    return spw_megatron_keys_said(&said);
}

/* Is one GPU alone in keeping each of its parameters? */
static bool is_alone(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.data * g.context <= 1 && g.expert_data <= 1;
}

const char *spw_megatron_note(const spw_job *job, const spw_scheme *scheme, size_t i) {
    const spw_megatron_keys *k = &job->megatron;
    const bool sorted = spw_scheme_arrives_sorted(scheme), alone = is_alone(job);
    const struct {
        bool said;
        const char *line;
    } notes[] = {
        {k->overlap_gradients && alone,
         "overlap_grad_reduce changes nothing: no parameter has a replica, so no gradient is summed"},
        {k->overlap_gradients && !alone,
         "overlap_grad_reduce leaves memory as it is: gradients are summed where they are; padding of its "
         "buckets is not counted"},
        {k->overlap_gathers && !alone,
         "overlap_param_gather leaves memory as it is: weights are gathered where they are used"},
        {k->overlap_shared && job->model.shared_ffn == 0,
         "moe_shared_expert_overlap changes nothing: the model has no shared expert"},
        {k->permute != SPW_FUSION_AUTO && sorted,
         "moe_permute_fusion changes nothing: HybridEP and NCCL EP bring rows in their experts' order"},
        {k->permute != SPW_FUSION_AUTO && !sorted,
         "moe_permute_fusion leaves memory as it is: its maps have less than 8 bytes a row more or less"},
        {k->router != SPW_FUSION_AUTO,
         "moe_router_fusion leaves memory as it is: logits and choices are kept either way"},
        {k->rope != SPW_FUSION_AUTO,
         "apply_rope_fusion leaves memory as it is: the rotated queries and keys are kept either way"},
        {k->fused_experts && !spw_megatron_fuses_experts(job),
         "use_transformer_engine_op_fuser changes nothing: TransformerEngine's one kernel is of gated "
         "experts "
         "under recipe mxfp8"},
        {k->fused_experts && spw_megatron_fuses_experts(job),
         "use_transformer_engine_op_fuser leaves memory as it is: what a fused kernel does not write lives "
         "within one product"},
        {k->release[0] != '\0',
         "megatron_core_release changes no time: the runs behind the stack are of several releases, and its "
         "interval holds their differences"}};
    for (size_t n = 0; n < sizeof notes / sizeof *notes; n++)
        if (notes[n].said && i-- == 0) return notes[n].line;
    return NULL;
}
