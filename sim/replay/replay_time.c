#include "sim/replay/replay_time.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/time/megatron/offload_time.h"
#include "sim/time/transformers_time.h"
#include "sim/weights/fsdp2.h"

#include <math.h>
#include <string.h>

static bool is_compiled(const spw_replay_time_request *q) {
    return q->stack != NULL && spw_compiled_time_covers(q->point.job, q->point.scheme);
}

static bool is_listed(const spw_replay_time_request *q) {
    return q->listed && spw_transformers_is_timed(&q->point, NULL);
}

bool spw_replay_time_covers(const spw_replay_time_request *q) {
    return is_listed(q) || is_compiled(q) ||
           (q->megatron != NULL && spw_megatron_job_covers(q->point.job, q->point.scheme));
}

static spw_status create_megatron(spw_replay_time *t) {
    const spw_replay_time_request *q = &t->q;
    const size_t ranks = q->point.shape.ranks;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &t->scaled));
    SPW_TRY(spw_megatron_coefficients_scale(q->megatron, &q->point.job->cluster, t->scaled));
    SPW_TRY(SPW_RESIZE(q->kinds * q->groups * q->layers * ranks, &t->rank_load)); /* a step fills it */
    SPW_TRY(SPW_ALLOC(t->positions * ranks, &t->even));
    SPW_TRY(SPW_RESIZE(spw_megatron_load_scratch(&q->point.shape), &t->scratch));
    SPW_TRY(spw_megatron_load_stated(t->scaled, &q->point, 1.0, t->positions, t->even));
    if (q->imbalance > 0.0) {
        SPW_TRY(SPW_ALLOC(t->positions * ranks, &t->busy));
        SPW_TRY(spw_megatron_load_stated(t->scaled, &q->point, q->imbalance, t->positions, t->busy));
    }

cleanup:
    return status;
}

static spw_status stated_load(const spw_replay_time *t, double imbalance, size_t groups,
                              spw_routing_layer *out) {
    return spw_routing_load_stated(&t->q.point, imbalance, groups, out);
}

spw_status spw_replay_time_create(const spw_replay_time_request *q, spw_replay_time *out) {
    spw_status status = SPW_OK;
    *out = (spw_replay_time){.q = *q, .positions = spw_stated_positions(q->point.job)};
    if (q->kinds == 0) out->q.kinds = q->micro_batches;
    out->listed = is_listed(q);
    if (out->listed) return spw_transformers_time_predict(&q->point, &out->same);
    if (!is_compiled(q)) return create_megatron(out);
    SPW_TRY(stated_load(out, 1.0, out->positions, &out->balanced));
    SPW_TRY(stated_load(out, 1.0, 1, &out->aligned));
    if (q->imbalance > 0.0) SPW_TRY(stated_load(out, q->imbalance, out->positions, &out->stated));
    status = SPW_ALLOC(q->micro_batches * q->layers, &out->load);

cleanup:
    return status;
}

void spw_replay_time_destroy(spw_replay_time *t) {
    spw_free(t->load);
    spw_free(t->scaled);
    spw_free(t->rank_load);
    spw_free(t->even);
    spw_free(t->busy);
    spw_free(t->scratch);
    *t = (spw_replay_time){.load = NULL};
}

void spw_replay_time_begin(spw_replay_time *t) {
    if (t->load != NULL) memset(t->load, 0, t->q.micro_batches * t->q.layers * sizeof *t->load);
}

size_t spw_replay_time_note_bytes(const spw_replay_time *t) {
    return t->scaled != NULL ? t->q.groups * t->q.point.shape.ranks * sizeof *t->rank_load : sizeof *t->load;
}

void spw_replay_time_note(const spw_replay_time *t, const spw_routed_group *routed, const spw_flow *flow,
                          const spw_group_rows *rows, const spw_traffic *traffic, void *note) {
    const spw_layer_shape *shape = routed->shape;
    const size_t group = routed->number;
    const spw_replay_time_request *q = &t->q;
    if (t->listed) return;
    if (t->scaled != NULL) {
        spw_megatron_load_of(t->scaled, &(spw_routed_group){q->point.scheme, shape, routed->counts, group},
                             flow, rows, t->scratch, (spw_megatron_load *)note + group * shape->ranks);
    } else if (q->imbalance > 0.0) {
        *(spw_routing_layer *)note = t->stated;
    } else {
        spw_routing_load_raise(&(spw_routed_group){q->point.scheme, shape, routed->counts, group}, flow,
                               traffic, note);
    }
}

void spw_replay_time_note_slow(const spw_replay_time *t, const spw_network *network, void *note) {
    const spw_replay_time_request *q = &t->q;
    const size_t ranks = q->point.shape.ranks;
    if (t->scaled == NULL && !t->listed && !(q->imbalance > 0.0)) spw_routing_load_slow(network, note);
    for (size_t g = 0; g < q->groups && t->scaled != NULL; g++)
        spw_megatron_load_slow(network, ranks, (spw_megatron_load *)note + g * ranks);
}

void spw_replay_time_layer(spw_replay_time *t, size_t layer, size_t micro_batch, const void *note) {
    const spw_replay_time_request *q = &t->q;
    const size_t ranks = q->point.shape.ranks;
    if (t->load != NULL) t->load[micro_batch * q->layers + layer] = *(const spw_routing_layer *)note;
    for (size_t g = 0; g < q->groups && t->scaled != NULL && micro_batch < q->kinds; g++)
        memcpy(t->rank_load + ((micro_batch * q->groups + g) * q->layers + layer) * ranks,
               (const spw_megatron_load *)note + g * ranks, ranks * sizeof *t->rank_load);
}

typedef enum routing { REPLAYED, BALANCED, ALIGNED } routing;

static spw_status predict_compiled(const spw_replay_time *t, routing of, spw_timeline *out) {
    const spw_replay_time_request *q = &t->q;
    const spw_time_request request = {.stack = q->stack,
                                      .job = q->point.job,
                                      .scheme = q->point.scheme,
                                      .sequences = q->point.sequences,
                                      .layer = of == REPLAYED   ? t->load
                                               : of == BALANCED ? &t->balanced
                                                                : &t->aligned,
                                      .layers = of == REPLAYED ? q->layers : 1,
                                      .micro_batches = of == REPLAYED ? q->micro_batches : 1};
    return spw_compiled_time_predict(&request, out);
}

static spw_megatron_job_request megatron_request(const spw_replay_time *t, routing of) {
    const spw_replay_time_request *q = &t->q;
    const spw_megatron_load *one = of != REPLAYED ? t->even : t->busy;
    return (spw_megatron_job_request){.coefficients = t->scaled,
                                      .point = &q->point,
                                      .load = one != NULL ? one : t->rank_load,
                                      .micro_batches = one != NULL ? 1 : q->kinds,
                                      .groups = one == NULL     ? q->groups
                                                : of == ALIGNED ? 1
                                                                : t->positions,
                                      .layers = one != NULL ? 1 : q->layers};
}

static spw_status predict(const spw_replay_time *t, routing of, spw_timeline *out) {
    if (t->listed) {
        *out = t->same;
        return SPW_OK;
    }
    if (t->scaled == NULL) return predict_compiled(t, of, out);
    const spw_megatron_job_request request = megatron_request(t, of);
    return spw_megatron_job_predict(&request, out);
}

static void replay_time_add(spw_timeline *sum, const spw_timeline *step) {
    for (size_t i = 0; i < sum->components; i++) {
        sum->component[i].name = step->component[i].name; /* a checkpoint has none */
        sum->component[i].help = step->component[i].help;
        sum->component[i].seconds += step->component[i].seconds;
        sum->component[i].exposed_s += step->component[i].exposed_s;
        sum->component[i].exchange_s += step->component[i].exchange_s;
        sum->component[i].dispatcher_s += step->component[i].dispatcher_s;
    }
    sum->step_s += step->step_s;
    sum->low_s += step->low_s;
    sum->high_s += step->high_s;
    for (size_t i = 0; i < SPW_TIMELINE_DOUBTS; i++) sum->doubt_s[i] += step->doubt_s[i];
    sum->pair_width = step->pair_width;
    sum->doubt_name = step->doubt_name; /* nor these */
    sum->between_nodes.nic_bytes += step->between_nodes.nic_bytes;
    sum->between_nodes.seconds += step->between_nodes.seconds;
}

static spw_step_span span_of(const spw_timeline *time) {
    return (spw_step_span){time->step_s, time->low_s, time->high_s};
}

spw_status spw_replay_time_end(spw_replay_time *t) {
    spw_timeline step;
    const spw_status status = predict(t, REPLAYED, &step);
    if (status != SPW_OK) return status;
    t->last_s = step.step_s;
    if (step.step_s > t->longest.step_s) t->longest = span_of(&step), t->worst = t->steps;
    if (t->steps++ == 0) {
        t->sum = step;
    } else {
        replay_time_add(&t->sum, &step);
    }
    return SPW_OK;
}

spw_status spw_replay_time_most(const spw_replay_time *t, double *out) {
    double least_s = 0.0;
    *out = INFINITY;
    if (t->scaled == NULL) return SPW_OK;
    const spw_megatron_job_request request = megatron_request(t, REPLAYED);
    const spw_status status = spw_megatron_job_group_s(&request, &least_s);
    const double all_s = t->sum.step_s + least_s;
    if (all_s > 0.0) *out = spw_megatron_job_tokens(&t->q.point) * (double)(t->steps + 1) / all_s;
    return status;
}

double spw_replay_time_speed(const spw_replay_time *t) {
    if (t->scaled == NULL || t->steps == 0 || !(t->sum.step_s > 0.0)) return INFINITY;
    return spw_megatron_job_tokens(&t->q.point) * (double)t->steps / t->sum.step_s;
}

/* A sum of steps that ended in another process has no names (spw_replay_row_found). */
static void name_components(const spw_timeline *from, spw_timeline *to) {
    for (size_t i = 0; i < to->components && i < from->components; i++) {
        if (to->component[i].name != NULL) continue;
        to->component[i].name = from->component[i].name;
        to->component[i].help = from->component[i].help;
    }
    if (to->doubt_name == NULL) to->doubt_name = from->doubt_name;
}

spw_status spw_replay_time_finish(spw_replay_time *t, spw_replay_times *out) {
    const double steps = (double)t->steps;
    spw_timeline balanced, aligned, *mean = &out->mean;
    spw_status status = SPW_OK;
    SPW_TRY(predict(t, BALANCED, &balanced));
    if (t->positions > 1)
        SPW_TRY(predict(t, ALIGNED, &aligned));
    else
        aligned = balanced;
    *mean = t->sum;
    name_components(&balanced, mean);
    for (size_t i = 0; i < mean->components; i++) {
        mean->component[i].seconds /= steps;
        mean->component[i].exposed_s /= steps;
        mean->component[i].exchange_s /= steps;
        mean->component[i].dispatcher_s /= steps;
    }
    mean->step_s /= steps, mean->low_s /= steps, mean->high_s /= steps;
    for (size_t i = 0; i < SPW_TIMELINE_DOUBTS; i++) mean->doubt_s[i] /= steps;
    mean->between_nodes.nic_bytes /= steps, mean->between_nodes.seconds /= steps;
    out->ratio_width = spw_timeline_ratio_width(mean, &balanced);
    mean->tokens_per_s_per_gpu = balanced.tokens_per_s_per_gpu * balanced.step_s / mean->step_s;
    out->balanced = span_of(&balanced);
    out->aligned = span_of(&aligned);
    out->worst_span = t->longest;
    out->worst = t->worst;

cleanup:
    return status;
}

spw_status spw_replay_time_balanced(const spw_replay_time *t, spw_timeline *out) {
    return predict(t, BALANCED, out);
}

spw_status spw_replay_time_stated(const spw_replay_time *t, double imbalance, spw_step_span *out) {
    const spw_replay_time_request *q = &t->q;
    const double factor = fmin(fmax(imbalance, 1.0), (double)q->point.job->expert);
    spw_replay_time one = *t;
    spw_megatron_load *load = NULL;
    spw_timeline step;
    spw_status status = SPW_OK;
    if (t->listed) {
        one.even = NULL;
    } else if (t->scaled == NULL) {
        SPW_TRY(stated_load(t, factor, t->positions, &one.balanced));
    } else {
        SPW_TRY(SPW_ALLOC(t->positions * q->point.shape.ranks, &load));
        SPW_TRY(spw_megatron_load_stated(t->scaled, &q->point, factor, t->positions, load));
        one.even = load;
    }
    SPW_TRY(predict(&one, BALANCED, &step));
    *out = span_of(&step);

cleanup:
    spw_free(load);
    return status;
}

/* What spw_megatron_job_covers asks of a job of Megatron-Core beyond what has been looked at before. */
static const char *why_no_megatron_time(const spw_job *job, const spw_scheme *scheme) {
    const bool padded = job->precision.recipe == SPW_FP8_NONE && !spw_scheme_is_timed_megatron(scheme);
    const struct {
        bool there;
        const char *why;
    } reasons[] = {
        {padded, "rows padded to an alignment, which the time model of products in bf16 does not have; leave "
                 "align out"},
        {spw_precision_gathered(job) != 2, "weights of Megatron-Core in another format than bf16"},
        {!spw_offload_is_timed(job),
         "activations on the host of GPUs other than Hopper's, whose link to the host was not measured"},
        {spw_state_law_of(job)->by_units, "FSDP2, whose gathers of weights have no time model"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (reasons[i].there) return reasons[i].why;
    }
    return "a remat policy that is no recompute module of Megatron-Core";
}

const char *spw_why_no_time(const spw_job *job, const spw_scheme *scheme, const spw_fits *fits) {
    const bool megatron = spw_scheme_asks_megatron(scheme->type),
               compiled = spw_scheme_program(scheme) != NULL;
    const char *why = NULL;
    if (scheme->type->memory.whole_steps) {
        const spw_point point = spw_point_of(job, scheme, 1);
        if (spw_transformers_is_timed(&point, &why)) return "no stack is used (--stack none)";
        if (job->fsdp2.replicas < 2) return why;
        return "transformers on replicas of FSDP2 (HSDP): memory counts them, the sum of gradients over them "
               "has no time model; for times plan one replica: its GPUs and their fsdp, and fsdp2.replicas: "
               "1";
    }
    if (!megatron && !compiled) return "schemes of PyTorch without a time model";
    if (job->cluster.gpu_generation == SPW_GPU_NONE)
        return "a cluster without GPUs: nothing of a TPU was measured";
    if (fits->stack == NULL && fits->megatron == NULL) return "no stack is used (--stack none)";
    const spw_grid grid = spw_grid_of(job);
    if (compiled && spw_grid_mesh_gpus(&grid) > 1 && job->remat != SPW_REMAT_FULL)
        return "MaxText's mesh axes tensor and context with another remat policy than full, whose "
               "collectives have no "
               "time model";
    if (job->cluster.gpus_per_node % grid.expert_tensor != 0)
        return "experts that GPUs of several nodes share, whose gathers have no time model";
    if (!spw_finetune_is_whole(&job->finetune))
        return "frozen weights or adapters, whose products and collectives have no time model";
    if (job->attention == SPW_ATTENTION_UNFUSED)
        return "attention that holds its scores, whose softmax has no time model";
    if (!spw_precision_is_timed(job))
        return job->precision.activations == 4
                   ? "products of activations in fp32"
                   : "fp8 as a format of all products, whose casts and scales are not modelled; those of a "
                     "recipe are: precision.recipe: blockwise, tensorwise or mxfp8";
    if (megatron && fits->megatron == NULL) return "--stack names none of Megatron-Core";
    if (scheme->type->megatron.by_parts)
        return "torchtitan with tensor or context parallelism, without FSDP2, or with state on the "
               "host: not "
               "counted";
    if (megatron) return why_no_megatron_time(job, scheme);
    if (fits->stack == NULL) return "--stack names none of compiled programs";
    if (fits->time_stack == NULL) return "this software's speed was not fitted";
    if (job->pipeline > 1)
        return "a pipeline that MaxText refuses: its micro-batches must be a multiple of its stages, and "
               "each "
               "stage must have a MoE layer";
    return spw_remat_keeps_layers(job->remat) ? "remat none" : "a job that XLA would not compile whole";
}
