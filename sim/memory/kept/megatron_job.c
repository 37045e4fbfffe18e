#include "sim/memory/kept/megatron_job.h"

#include "sim/job/job.h"

#include <string.h>

static bool recompute_of(spw_remat remat, spw_recompute *out) {
    static const struct {
        const char *remat;
        spw_recompute recompute;
    } known[] = {{"none", SPW_RECOMPUTE_NONE},
                 {"selective", SPW_RECOMPUTE_NONE},
                 {"moe_act", SPW_RECOMPUTE_MOE_ACT},
                 {"moe", SPW_RECOMPUTE_MOE},
                 {"full", SPW_RECOMPUTE_MOE}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].remat, spw_remat_name(remat)) != 0) continue;
        *out = known[i].recompute;
        return true;
    }
    return false;
}

/* Whether there is a list of these layers. */
static bool read_shape(const spw_point *point, spw_megatron_shape *out) {
    const spw_job *job = point->job;
    const spw_scheme *scheme = point->scheme;
    const spw_layer_shape *shape = &point->shape;
    const size_t capacity = scheme->type->routing.expert_capacity != NULL
                                ? scheme->type->routing.expert_capacity(scheme, shape)
                                : SIZE_MAX;
    *out = (spw_megatron_shape){.layers = job->model.moe_layers,
                                .tokens = shape->tokens,
                                .top_k = shape->top_k,
                                .experts = shape->experts,
                                .experts_per_rank = shape->experts_per_rank,
                                .hidden = shape->hidden,
                                .ffn = shape->ffn,
                                .expert_tensor = shape->expert_tensor,
                                .capacity = capacity != SIZE_MAX ? capacity : 0,
                                .padded = spw_scheme_fills_slots(scheme)};
    return spw_scheme_is_bare_megatron(scheme) && recompute_of(job->remat, &out->recompute);
}

bool spw_megatron_job_layers(const spw_point *point, spw_megatron_shape *out) {
    const spw_job *job = point->job;
    const spw_precision *p = &job->precision;
    return read_shape(point, out) && job->part == SPW_PART_EXPERT_LAYERS && p->weights == 2 &&
           p->gradients == 4 && p->activations == 2;
}

spw_status spw_megatron_recorded_layers(const spw_point *point, spw_megatron_shape *out) {
    const bool known = read_shape(point, out);
    if (known && out->expert_tensor <= 1) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "--snapshot: no list of allocations of %s with remat %s and expert_tensor %zu; must be "
                    "megatron-alltoall with remat none, moe_act, moe, selective or full, and expert_tensor 1",
                    point->scheme->text, spw_remat_name(point->job->remat), point->shape.expert_tensor);
}
