#include "sim/weights/fsdp2.h"

#include "sim/job/recipe/precision.h"
#include "sim/job/state_law.h"
#include "sim/schemes/point.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"

#include <math.h>

enum { MOST_RESIDENT = 3 }; /* stages of a rank, as PyTorch calls blocks: schedules.py max_active_stages */

bool spw_fsdp2_is_default(const spw_job *job, const spw_scheme *scheme) {
    return spw_scheme_wraps(scheme, job);
}

bool spw_fsdp2_has_torchtitan_formats(const spw_job *job) {
    const spw_precision *p = &job->precision;
    return p->weights == 4 && p->gradients == 4 && p->optimizer == 4 && spw_fsdp2_gathered_bytes(job) == 2;
}

const spw_job *spw_fsdp2_job(const spw_job *job, const spw_scheme *scheme, spw_job *room) {
    const bool by_default = spw_fsdp2_is_default(job, scheme),
               casts = job->precision.recipe != SPW_FP8_NONE && scheme->type->megatron.by_parts;
    if (!by_default && !casts) return job;
    *room = *job;
    if (by_default) room->fsdp2.reshard = SPW_RESHARD_TORCHTITAN;
    if (casts) room->precision.recipe = SPW_FP8_NONE;
    return room;
}

bool spw_fsdp2_keeps(const spw_job *job) {
    return job->fsdp2.reshard == SPW_RESHARD_NEVER ||
           (job->fsdp2.reshard == SPW_RESHARD_TORCHTITAN && job->pipeline > 1);
}

bool spw_fsdp2_waits(const spw_job *job) { return spw_state_law_of(job)->by_units && job->pipeline > 1; }

size_t spw_fsdp2_resident(const spw_job *job) {
    const size_t chunks = spw_pipeline_of(job).chunks;
    return chunks < MOST_RESIDENT ? chunks : MOST_RESIDENT;
}

/* The chunks that work next, from pass i on: is `chunk` among the first MOST_RESIDENT of them? */
static bool is_next(const spw_pipeline *p, size_t stage, size_t i, size_t chunk) {
    size_t seen[MOST_RESIDENT], count = 0;
    for (; i < spw_pipeline_passes(p) && count < MOST_RESIDENT; i++) {
        const size_t here = spw_pipeline_pass(p, stage, i).chunk;
        bool known = false;
        if (here == chunk) return true;
        for (size_t j = 0; j < count; j++) known = known || seen[j] == here;
        if (!known) seen[count++] = here;
    }
    return false;
}

/* Of one block in a step: weights are gathered where a pass finds none, or ahead of it. Those of a forward pass go after it where
 * they are not kept; else they stay until so many other blocks work that this one is not among the next. */
static size_t block_gathers(const spw_pipeline *p, size_t stage, size_t chunk, bool keeps) {
    const bool crowded = p->chunks > MOST_RESIDENT;
    bool there = false;
    size_t gathers = 0;
    for (size_t i = 0; i < spw_pipeline_passes(p); i++) {
        const spw_pass pass = spw_pipeline_pass(p, stage, i);
        if (crowded && there && !is_next(p, stage, i, chunk)) there = false;
        if (pass.chunk != chunk) continue;
        gathers += there ? 0 : 1;
        there = pass.backward || keeps;
    }
    return gathers;
}

spw_fsdp2_gathers spw_fsdp2_gathers_of(const spw_job *job) {
    const spw_pipeline p = spw_pipeline_of(job);
    const spw_model *m = &job->model;
    const bool keeps = spw_fsdp2_keeps(job);
    if (p.stages == 1) {
        const size_t each = p.micro_batches * (keeps ? 1 : 2);
        const bool head_stays = keeps || job->fsdp2.reshard == SPW_RESHARD_TORCHTITAN;
        return (spw_fsdp2_gathers){m->moe_layers * each, (m->layers - m->moe_layers) * each, each,
                                   p.micro_batches * (head_stays ? 1 : 2)};
    }
    spw_fsdp2_gathers out = {.moe_layers = 0};
    for (size_t s = 0; s < p.stages; s++) {
        for (size_t c = 0; c < p.chunks; c++) {
            const spw_block block = spw_pipeline_block(&p, m, s, c);
            const size_t gathers = block_gathers(&p, s, c, keeps);
            out.moe_layers += block.moe_layers * gathers;
            out.dense_layers += (block.layers - block.moe_layers) * gathers;
            if (s == 0 && c == 0) out.embedding = gathers;
            if (s + 1 == p.stages && c + 1 == p.chunks) out.head = gathers;
        }
    }
    return out;
}

size_t spw_fsdp2_gathered_bytes(const spw_job *job) { return spw_precision_gathered(job); }

size_t spw_fsdp2_copies(const spw_job *job) { return job->fsdp2.replicas > 1 ? job->fsdp2.replicas : 1; }

spw_fsdp2_layer_parameters spw_fsdp2_layer(const spw_job *job, const spw_fsdp2_unit *unit, double layers,
                                           double before) {
    const bool kept = spw_fsdp2_keeps(job);
    const double ahead = fmin((double)job->fsdp2.prefetch, layers - 1.0);
    return (spw_fsdp2_layer_parameters){.units = kept ? layers : 1.0,
                                        .ahead = kept ? 0.0 : ahead * (unit->parameters - unit->alone),
                                        .reduced = fmax(unit->parameters, before)};
}

double spw_fsdp2_shard(const spw_job *job, const spw_fsdp2_unit *unit) {
    const double all = (double)(job->expert * job->fsdp), replicas = (double)spw_fsdp2_copies(job);
    return replicas * (unit->routed / (double)job->fsdp + (unit->parameters - unit->routed) / all);
}

spw_fsdp2_unit spw_fsdp2_unit_of(const spw_job *job, bool experts) {
    const spw_parameters p = spw_model_parameters(&job->model);
    const double common = (double)(spw_model_mixer_most(&job->model, experts) + p.norms_per_layer);
    const double routed = (double)p.routed_per_layer / (double)job->expert;
    if (!experts) return (spw_fsdp2_unit){.parameters = common + (double)p.dense_ffn_per_layer};
    return (spw_fsdp2_unit){.parameters = common + (double)(p.shared_per_layer + p.router_per_layer) + routed,
                            .routed = routed,
                            .alone = job->fsdp > spw_fsdp2_copies(job) ? 0.0 : routed};
}

double spw_fsdp2_head(const spw_job *job) {
    const spw_parameters p = spw_model_parameters(&job->model);
    return (double)(job->model.tied_embeddings ? p.embedding : p.head) + (double)p.final_norm;
}

double spw_fsdp2_embedding(const spw_job *job) {
    const spw_parameters p = spw_model_parameters(&job->model);
    return (double)p.embedding + (double)p.tables;
}
