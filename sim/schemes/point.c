#include "sim/schemes/point.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"
#include "sim/print/plural.h"

#include <stdio.h>

bool spw_scheme_wraps(const spw_scheme *scheme, const spw_job *job) {
    return job->fsdp2.reshard == SPW_RESHARD_DEFAULT &&
           spw_scheme_trainer(scheme)->fsdp2 == SPW_FSDP2_UNLESS_SAID && spw_state_is_sharded(job) &&
           spw_finetune_is_whole(&job->finetune);
}

const spw_trainer *spw_scheme_around(const spw_scheme *scheme, const spw_job *job) {
    const spw_trainer *own = spw_scheme_trainer(scheme);
    return own->in_megatron && spw_state_law_of(job)->megatron ? spw_trainer_row(SPW_TRAINER_MEGATRON) : own;
}

/* Gradients wait in a bare layer for nothing, under FSDP2 for the end of the layer, and with pipeline stages they are added to
 * those of the micro-batches before. Megatron-Core adds them to main_grad, product by product or (gradient_accumulation_fusion: false)
 * behind each. */
static void list_weight_gradients(const spw_job *job, const spw_scheme *scheme, spw_layer_shape *shape) {
    const bool whole = job->part == SPW_PART_WHOLE, apart = job->megatron.weight_gradients == SPW_FUSION_OFF;
    const bool bare = job->part == SPW_PART_EXPERT_LAYERS,
               wrapped = spw_scheme_wraps(scheme, job) || spw_state_law_of(job)->by_units;
    if (whole && apart && spw_scheme_trainer(scheme)->takes_splits)
        shape->weight_gradients = SPW_WEIGHT_GRADIENTS_ADDED;
    if (!scheme->type->memory.weight_gradients || !(bare || wrapped)) return;
    shape->weight_gradients =
        bare || job->pipeline > 1 ? SPW_WEIGHT_GRADIENTS_ADDED : SPW_WEIGHT_GRADIENTS_WAIT;
    shape->weight_gradient_bytes = bare ? job->precision.weights : spw_precision_gathered(job);
}

bool spw_scheme_say_micro_batches(const spw_scheme *scheme, spw_job *job) {
    if (!spw_scheme_trainer(scheme)->has_turns || job->pipeline <= 1 || job->micro_batches > 1) return false;
    for (size_t i = 0; i < job->batches && job->global_batch == 0; i++)
        job->sequences_per_gpu[i] *= job->pipeline;
    job->micro_batches = job->pipeline;
    return true;
}

bool spw_point_step_note(const spw_point *p, char text[SPW_POINT_STEP_TEXT]) {
    const spw_job *job = p->job;
    const bool made = job->micro_batches <= 1; /* the sequences are then of one of them */
    const size_t parts = made ? job->pipeline : job->micro_batches,
                 each = made ? p->sequences : p->sequences / parts;
    const uint64_t tokens = spw_point_step_tokens(p);
    text[0] = '\0';
    if (!spw_scheme_trainer(p->scheme)->has_turns || job->pipeline <= 1) return false;
    (void)snprintf(
        text, SPW_POINT_STEP_TEXT,
        "%zu micro-batches of %zu sequence%s, %zu sequence%s a data-parallel rank, %llu sequences and "
        "%llu tokens a step of all GPUs",
        parts, each, spw_plural(each), each * parts, spw_plural(each * parts),
        (unsigned long long)(tokens / job->sequence_length), (unsigned long long)tokens);
    return true;
}

spw_point spw_point_of(const spw_job *job, const spw_scheme *scheme, size_t sequences) {
    const size_t parts = spw_job_micro_batches(job);
    spw_point point = {job, scheme, sequences, spw_layer_shape_of(job, sequences / parts)};
    list_weight_gradients(job, scheme, &point.shape);
    return point;
}

uint64_t spw_point_step_tokens(const spw_point *p) {
    const spw_grid grid = spw_grid_of(p->job);
    const bool whole = spw_scheme_trainer(p->scheme)->has_turns && p->job->micro_batches <= 1;
    const size_t sharers = grid.tensor * grid.context * (whole ? 1 : grid.pipeline);
    return (uint64_t)p->sequences * p->job->sequence_length * (spw_job_gpus(p->job) / sharers);
}
