#include "sim/replay/replay_time.h"

#include "base/memory.h"

#include <string.h>

spw_status spw_replay_time_create(const spw_time_stack *stack, const spw_job *job, const spw_scheme *scheme,
                                  size_t sequences, size_t layers, double imbalance, spw_replay_time *out) {
    *out = (spw_replay_time){.stack = stack,
                             .job = job,
                             .scheme = scheme,
                             .sequences = sequences,
                             .layers = layers,
                             .imbalance = imbalance};
    if (imbalance > 0.0) {
        const spw_status status = spw_routing_load_stated(job, scheme, sequences, imbalance, &out->stated);
        if (status != SPW_OK) return status;
    }
    return SPW_ALLOC(layers, &out->load);
}

void spw_replay_time_destroy(spw_replay_time *t) {
    spw_free(t->load);
    t->load = NULL;
}

void spw_replay_time_begin(spw_replay_time *t) { memset(t->load, 0, t->layers * sizeof *t->load); }

void spw_replay_time_layer(spw_replay_time *t, size_t layer, const spw_layer_shape *shape,
                           const spw_counts *counts, size_t group, const spw_flow *flow,
                           const spw_traffic *traffic) {
    if (t->imbalance > 0.0) {
        t->load[layer] = t->stated;
    } else {
        spw_routing_load_raise(t->scheme, shape, counts, group, flow, traffic, &t->load[layer]);
    }
}

static spw_time_request request_of(const spw_replay_time *t, const spw_routing_layer *load) {
    return (spw_time_request){.stack = t->stack,
                              .job = t->job,
                              .scheme = t->scheme,
                              .sequences = t->sequences,
                              .layer = load,
                              .layers = load != NULL ? t->layers : 0};
}

static void add(spw_timeline *sum, const spw_timeline *step) {
    for (size_t i = 0; i < sum->components; i++) {
        sum->component[i].seconds += step->component[i].seconds;
        sum->component[i].exposed_s += step->component[i].exposed_s;
    }
    sum->step_s += step->step_s;
    sum->low_s += step->low_s;
    sum->high_s += step->high_s;
}

spw_status spw_replay_time_end(spw_replay_time *t) {
    spw_timeline step;
    const spw_time_request request = request_of(t, t->load);
    const spw_status status = spw_compiled_time_predict(&request, &step);
    if (status != SPW_OK) return status;
    if (t->steps++ == 0) {
        t->sum = step;
    } else {
        add(&t->sum, &step);
    }
    return SPW_OK;
}

spw_status spw_replay_time_finish(spw_replay_time *t, spw_timeline *mean, double *balanced_step_s) {
    const double steps = (double)t->steps;
    const spw_time_request request = request_of(t, NULL);
    spw_timeline balanced;
    const spw_status status = spw_compiled_time_predict(&request, &balanced);
    if (status != SPW_OK) return status;
    *mean = t->sum;
    for (size_t i = 0; i < mean->components; i++) {
        mean->component[i].seconds /= steps;
        mean->component[i].exposed_s /= steps;
    }
    mean->step_s /= steps, mean->low_s /= steps, mean->high_s /= steps;
    mean->tokens_per_s_per_gpu = (double)(t->sequences * t->job->sequence_length) / mean->step_s;
    *balanced_step_s = balanced.step_s;
    return SPW_OK;
}
