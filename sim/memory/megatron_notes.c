#include "sim/memory/megatron_notes.h"

#include "sim/input/grid.h"
#include "sim/input/megatron_keys.h"
#include "sim/input/remat_modules.h"
#include "sim/input/trainer.h"
#include "sim/schemes/list.h"
#include "sim/schemes/point.h"

/* What a job says beyond the scheme. */
static const char *said_beyond(const spw_megatron_keys *keys, const spw_scheme *scheme) {
    spw_megatron_keys said = *keys;
    spw_fusion *const fusions[] = {&said.permute, &said.router, &said.rope, &said.weight_gradients};
    for (size_t i = 0; spw_scheme_trainer(scheme)->fuses && i < sizeof fusions / sizeof *fusions; i++)
        if (*fusions[i] == SPW_FUSION_ON) *fusions[i] = SPW_FUSION_AUTO;
    return spw_megatron_keys_said(&said);
}

spw_status spw_megatron_keys_go_with(const spw_job *job, const spw_scheme *scheme) {
    const char *said = said_beyond(&job->megatron, scheme);
    const bool own = spw_scheme_trainer(scheme)->wide_streams; /* classes of its own mix the streams */
    if (spw_remat_repeats(job->remat, SPW_MODULE_MHC) &&
        (own || !spw_scheme_around(scheme, job)->keeps_modules))
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': mhc in remat is a module of Megatron-Core's own layers; leave it out, or "
            "use one of its schemes, as --scheme megatron-alltoall",
            scheme->text);
    if (said == NULL) return SPW_OK;
    if (own && job->megatron.streams != SPW_FUSION_AUTO)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': use_fused_mhc is of Megatron-Core's own layers, and Primus mixes streams "
            "by a class of its own; leave it out",
            scheme->text);
    if (!spw_scheme_trainer(scheme)->takes_splits)
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': %s is a key of Megatron-Core's schemes; leave it out, or use one of "
                        "them, as --scheme megatron-alltoall",
                        scheme->text, said);
    if (job->megatron.overlap_shared && scheme->type->megatron.dispatcher == SPW_MEGATRON_ALL_GATHER)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': moe_shared_expert_overlap takes megatron-alltoall and -flex, not all-gathers, "
            "as Megatron-Core does",
            scheme->text);
    if (job->megatron.fused_experts && spw_grid_of(job).expert_tensor > 1)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': use_transformer_engine_op_fuser does not go with experts that GPUs share, as in "
            "Megatron-Core; use parallel.expert_tensor: 1, or leave it out",
            scheme->text);
    return SPW_OK;
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
