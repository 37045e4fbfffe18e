#include "sim/time/megatron/megatron_job_time.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/memory/kept/launches.h"
#include "sim/schemes/list.h"
#include "sim/time/fp8_time.h"
#include "sim/time/megatron/host_optimizer_time.h"
#include "sim/time/megatron/megatron_blocks.h"
#include "sim/time/megatron/megatron_hidden.h"
#include "sim/time/megatron/megatron_host.h"
#include "sim/time/megatron/megatron_job_doubt.h"
#include "sim/time/megatron/megatron_parts.h"
#include "sim/time/megatron/muon_time.h"
#include "sim/time/megatron/offload_time.h"
#include "sim/time/megatron/torchtitan_time.h"
#include "sim/traffic/weight_families.h"
#include "sim/weights/block.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/optimizer_state.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* --- What is covered --- */

/* Passes of the model outside the experts. */
static spw_model_passes passes_of(spw_remat remat) {
    return (spw_model_passes){
        .layers = spw_remat_runs_again(remat, 0) ? 4.0 : 3.0,
        .attention = spw_remat_runs_again(remat, SPW_MODULE_CORE_ATTN) ? 4.5 : 3.5,
        .shared = spw_remat_runs_again(remat, SPW_MODULE_MOE | SPW_MODULE_SHARED_EXPERTS) ? 4.0 : 3.0,
        .dense = spw_remat_runs_again(remat, SPW_MODULE_MLP) ? 4.0 : 3.0,
        .up = spw_remat_runs_again(remat, SPW_MODULE_MLA_UP_PROJ) ? 4.0 : 3.0,
        .norms = spw_remat_repeats(remat, SPW_MODULE_LAYERNORM) ? 1.0 : 0.0,
        .mixing = spw_remat_repeats(remat, SPW_MODULE_MHC) ? 1.0 : 0.0};
}

/* What a MoE layer does again. */
static spw_recompute recompute_of(spw_remat remat) {
    if (spw_remat_runs_again(remat, SPW_MODULE_MOE)) return SPW_RECOMPUTE_MOE;
    return spw_remat_runs_again(remat, SPW_MODULE_MOE_ACT) ? SPW_RECOMPUTE_MOE_ACT : SPW_RECOMPUTE_NONE;
}

bool spw_megatron_job_covers(const spw_job *job, const spw_scheme *scheme) {
    if (scheme->type->megatron.by_parts) return spw_torchtitan_is_timed(job, scheme);
    const bool recipe =
        job->precision.recipe != SPW_FP8_NONE && scheme->type->megatron.fp8 && scheme->type->megatron.timed;
    return (recipe || spw_scheme_is_timed_megatron(scheme)) && spw_remat_goes_with_megatron(job->remat) &&
           job->cluster.gpus_per_node % spw_grid_of(job).expert_tensor == 0 &&
           spw_finetune_is_whole(&job->finetune) && !spw_state_law_of(job)->by_units &&
           spw_offload_is_timed(job) && job->attention != SPW_ATTENTION_UNFUSED &&
           spw_precision_gathered(job) == 2 && spw_precision_is_timed(job);
}

/* --- The step --- */

/* Passes one behind the other, also where pairs run together: a share of exchanges hides instead. */
static spw_pipeline in_turns(const spw_job *job) {
    spw_pipeline p = spw_pipeline_of(job);
    p.pairs = false;
    return p;
}

/* A request with the kernels that the job says, and torchtitan's as one of Megatron-Core; `room` holds its coefficients and job. */
static spw_megatron_job_request with_kernels(const spw_megatron_job_request *q, spw_torchtitan_twin *room) {
    spw_megatron_job_request said = *q;
    if (q->point->scheme->type->megatron.by_parts) return spw_torchtitan_request(q, room);
    if (q->point->job->megatron.permute != SPW_FUSION_OFF) return said;
    room->coefficients = *q->coefficients;
    spw_megatron_kernels_said(q->point->job, &room->coefficients);
    said.coefficients = &room->coefficients;
    return said;
}

static spw_status set_shape(spw_prediction *p) {
    const spw_megatron_job_request *q = p->q;
    const spw_job *job = q->point->job;
    const spw_scheme *scheme = q->point->scheme;
    const spw_layer_shape *s = &q->point->shape;
    const size_t capacity = scheme->type->routing.expert_capacity != NULL
                                ? scheme->type->routing.expert_capacity(scheme, s)
                                : SIZE_MAX;
    p->shape = (spw_megatron_shape){.tokens = s->tokens,
                                    .top_k = s->top_k,
                                    .experts = s->experts,
                                    .experts_per_rank = s->experts_per_rank,
                                    .hidden = s->hidden,
                                    .ffn = s->ffn,
                                    .model_hidden = job->model.hidden,
                                    .plain = s->plain_experts,
                                    .expert_tensor = s->expert_tensor,
                                    .capacity = capacity != SIZE_MAX ? capacity : 0,
                                    .padded = spw_scheme_fills_slots(scheme),
                                    .sorted = spw_scheme_arrives_sorted(scheme),
                                    .unread = scheme->type->megatron.unread,
                                    .graphed = spw_launches_are_one_graph(job, scheme),
                                    .recompute = recompute_of(job->remat),
                                    .product_gain = spw_fp8_product_gain(job)};
    p->dispatcher = scheme->type->megatron.dispatcher;
    p->host = spw_megatron_host_of(q->coefficients, q->point);
    p->send_s = p->pipeline.stages > 1 ? q->coefficients->exchange_latency_s.value +
                                             2.0 * (double)(s->tokens * spw_model_carried(&job->model)) /
                                                 q->coefficients->network_bytes_per_s.value
                                       : 0.0;
    const spw_model_passes passes = passes_of(job->remat);
    return spw_megatron_outside_of(q->coefficients, q->point, &passes, &p->outside);
}

static spw_status begin(spw_prediction *p) {
    spw_status status = SPW_OK;
    const size_t micro_batches = p->pipeline.micro_batches,
                 kinds = p->q->micro_batches < micro_batches ? p->q->micro_batches : micro_batches;
    SPW_TRY(set_shape(p));
    p->blocks = p->pipeline.stages * p->pipeline.micro_batches * p->pipeline.chunks;
    SPW_TRY(SPW_ALLOC(p->blocks, &p->forward_s));
    SPW_TRY(SPW_ALLOC(p->blocks, &p->backward_s));
    SPW_TRY(SPW_ALLOC(p->blocks, &p->copies_wait_s));
    SPW_TRY(SPW_ALLOC(p->blocks, &p->hidden_s));
    SPW_TRY(SPW_ALLOC(p->blocks, &p->shared_hidden_s));
    SPW_TRY(SPW_ALLOC(p->pipeline.stages, &p->copies_s));
    SPW_TRY(SPW_ALLOC(p->pipeline.stages, &p->attention_copies_s));
    for (size_t s = 0; s < p->pipeline.stages; s++) {
        SPW_TRY(spw_offload_layer_s(p->q->coefficients, p->q->point, s, &p->copies_s[s]));
        p->attention_copies_s[s] = spw_offload_attention_s(p->q->coefficients, p->q->point, s);
    }
    status = spw_prediction_room(p, p->pipeline.stages * kinds * p->pipeline.chunks);

cleanup:
    return status;
}

double spw_megatron_job_tokens(const spw_point *point) {
    return (double)(point->sequences * point->job->sequence_length) /
           (double)spw_pipeline_of(point->job).stages / spw_megatron_cut(point->job);
}

static void end(spw_prediction *p) {
    spw_free(p->forward_s), spw_free(p->backward_s), spw_free(p->time), spw_free(p->had), spw_free(p->of);
    spw_free(p->copies_s), spw_free(p->attention_copies_s), spw_free(p->copies_wait_s), spw_free(p->hidden_s);
    spw_free(p->shared_hidden_s);
}

spw_status spw_megatron_job_predict(const spw_megatron_job_request *q, spw_timeline *out) {
    spw_torchtitan_twin room;
    const spw_megatron_job_request said = with_kernels(q, &room);
    spw_prediction p = {.q = &said, .pipeline = in_turns(q->point->job)};
    spw_status status = SPW_OK;
    double worst = -1.0;
    size_t slowest = 0;
    spw_timeline_clear(out);
    if (!spw_megatron_job_covers(q->point->job, q->point->scheme))
        return spw_fail(SPW_ECONFIG, "scheme '%s': no time model of such a Megatron-Core job",
                        q->point->scheme->text);
    SPW_TRY(begin(&p));
    for (size_t group = 0; group < q->groups; group++) {
        double passes_s = 0.0;
        SPW_TRY(spw_blocks_time_group(&p, group, &passes_s));
        if (passes_s > worst) worst = passes_s, slowest = group;
    }
    if (slowest + 1 < q->groups)
        SPW_TRY(spw_blocks_time_group(&p, slowest, &worst)); /* once more, to be told in detail */
    SPW_TRY(spw_prediction_parts(&p, worst, out));
    spw_timeline_finish(out, spw_megatron_job_tokens(q->point));
    const bool by_parts = q->point->scheme->type->megatron.by_parts;
    spw_megatron_job_doubt(by_parts ? &said : q, p.shape.tokens, out);
    spw_offload_doubt(out);
    spw_muon_doubt(out);
    spw_host_optimizer_doubt(out);
    spw_megatron_hidden_doubt(&p, out);
    if (by_parts) spw_torchtitan_doubt(&said, q->point->job, out);

cleanup:
    end(&p);
    return status;
}

/* --- What it takes at least --- */

/* Passes through the MoE layers of a block. One rank with the mean of a group's rows is never behind the group: every clock of
 * spw_megatron_time_predict() is a maximum of sums that grow with a rank's rows, and the fullest rank has no fewer than the
 * mean. What may be 0 for every rank is left out: rows on links, spills, empty experts. */
static spw_status least_layers_s(spw_prediction *p, double rows, size_t layers, double *out) {
    const spw_megatron_load mean = {
        .received = rows, .tiled = rows, .zero_rows = p->shape.padded ? rows : 0.0};
    spw_megatron_time time = {.step_s = 0.0};
    spw_status status = SPW_OK;
    p->shape.layers = layers;
    if (layers > 0)
        status = spw_megatron_time_predict(p->q->coefficients, &p->shape, p->dispatcher, 1,
                                           &(spw_megatron_loads){.load = &mean, .turn = 1}, NULL, &time);
    *out = time.step_s;
    if (p->q->point->job->overlap_exchanges) /* of which a share may hide */
        *out -= p->q->coefficients->overlap_share.value *
                spw_phases_sum(time.phase_s, SPW_FORWARD_EXCHANGES | SPW_BACKWARD_EXCHANGES);
    return status;
}

/* Work of one micro-batch in a block: the MoE layers and its share of what is outside. */
static spw_status least_block_s(spw_prediction *p, double rows, size_t stage, size_t chunk, double *out) {
    const spw_block block = spw_pipeline_block(&p->pipeline, &p->q->point->job->model, stage, chunk);
    const spw_status status = least_layers_s(p, rows, block.moe_layers + block.predictions, out);
    for (size_t i = 0; i < SPW_OUTSIDE_PARTS; i++) {
        if (i == SPW_OUTSIDE_SHARED && p->q->point->job->megatron.overlap_shared) continue; /* may hide */
        *out += p->outside.seconds[i] * spw_prediction_share(p, i, &block, stage, chunk);
    }
    *out = fmax(*out + spw_megatron_gaps_s(&p->host, &block), spw_megatron_floor_s(&p->host, &block));
    return status;
}

/* A stage begins when its first block's input has passed the stages before it, and its last gradient passes them once more: both
 * of the first chunk. Between them it works on every micro-batch. */
static spw_status least_passes_s(spw_prediction *p, double rows, double *out) {
    double before = 0.0;
    *out = 0.0;
    for (size_t stage = 0; stage < p->pipeline.stages; stage++) {
        double first = 0.0, all = 0.0;
        for (size_t chunk = 0; chunk < p->pipeline.chunks; chunk++) {
            double seconds = 0.0;
            const spw_status status = least_block_s(p, rows, stage, chunk, &seconds);
            if (status != SPW_OK) return status;
            if (chunk == 0) first = seconds;
            all += seconds;
        }
        *out = fmax(*out, before + all * (double)p->pipeline.micro_batches);
        before += first;
    }
    return SPW_OK;
}

/* Collectives of weights and gradients at the end of a step. */
static spw_status least_end_s(const spw_prediction *p, double *seconds) {
    const spw_job *job = p->q->point->job;
    spw_weight_traffic scatters = {0.0, 0.0, 0.0}, gathers = scatters;
    spw_status status = SPW_OK;
    if (job->part == SPW_PART_WHOLE) status = spw_weight_step(job, &scatters, &gathers);
    if (!job->megatron.overlap_gradients) /* which may hide */
        *seconds += spw_prediction_collective_s(p->q->coefficients, &scatters);
    if (!job->megatron.overlap_gathers) *seconds += spw_prediction_collective_s(p->q->coefficients, &gathers);
    *seconds += p->outside.gradients_s;
    return status;
}

spw_status spw_megatron_job_least_s(const spw_megatron_coefficients *coefficients, const spw_point *point,
                                    double rows, double *out) {
    spw_torchtitan_twin room;
    const spw_megatron_job_request asked = {.coefficients = coefficients, .point = point},
                                   q = with_kernels(&asked, &room);
    spw_prediction p = {.q = &q, .pipeline = in_turns(point->job)};
    spw_status status = SPW_OK;
    SPW_TRY(set_shape(&p));
    SPW_TRY(least_passes_s(&p, rows, out));
    SPW_TRY(least_end_s(&p, out));

cleanup:
    end(&p);
    return status;
}

/* The forward and the backward pass of a block with one of the means: what may hide is left out. */
static spw_status mean_block_s(spw_prediction *p, spw_megatron_mean of, size_t stage, size_t chunk,
                               double pass_s[2]) {
    const spw_megatron_job_request *q = p->q;
    const spw_job *job = q->point->job;
    const spw_block block = spw_pipeline_block(&p->pipeline, &job->model, stage, chunk);
    const size_t at = (stage * SPW_MEGATRON_MEANS + (size_t)of) * p->pipeline.chunks + chunk;
    const spw_block_load load = {(size_t)of, spw_blocks_layers_before(p, &block) % q->layers,
                                 block.moe_layers + block.predictions};
    const spw_status status = spw_blocks_time_layers(p, 0, at, &load);
    if (status != SPW_OK) return status;
    const spw_megatron_time *t = spw_prediction_time(p, at);
    const bool beside = job->overlap_exchanges || job->megatron.overlap_shared;
    const double hidden = job->overlap_exchanges ? q->coefficients->overlap_share.value : 0.0;
    for (int back = 0; back < 2; back++) {
        const unsigned phases = back ? SPW_BACKWARD_EXCHANGES : SPW_FORWARD_EXCHANGES;
        const double wire = spw_phases_sum(t->phase_s, phases) - spw_phases_sum(t->rank_wait_s, phases);
        double seconds = (back ? t->backward_s : t->forward_s) - hidden * wire;
        for (size_t i = 0; i < SPW_OUTSIDE_PARTS; i++) {
            const double forward = p->outside.forward_share[i];
            if (i == SPW_OUTSIDE_SHARED && job->megatron.overlap_shared) continue;
            seconds += p->outside.seconds[i] * spw_prediction_share(p, i, &block, stage, chunk) *
                       (back ? 1.0 - forward : forward);
        }
        const spw_megatron_pass pass = {.seconds = seconds, .wire_s = beside ? INFINITY : wire};
        pass_s[back] = spw_megatron_pass_s(&p->host, &block, back, &pass);
    }
    return SPW_OK;
}

static double seconds_of(const double pass_s[2]) { return pass_s[0] + pass_s[1]; }

/* As least_passes_s(). What a stage ends with passes the stages before it where it is the last micro-batch's first chunk. */
static spw_status mean_passes_s(spw_prediction *p, double *out) {
    double before = 0.0, behind = 0.0;
    spw_status status = SPW_OK;
    *out = 0.0;
    for (size_t stage = 0; stage < p->pipeline.stages; stage++) {
        const spw_pass last = spw_pipeline_pass(&p->pipeline, stage, spw_pipeline_passes(&p->pipeline) - 1);
        const bool ends =
            last.backward && last.chunk == 0 && last.micro_batch + 1 == p->pipeline.micro_batches;
        double all = 0.0, pass_s[2];
        for (size_t chunk = 0; chunk < p->pipeline.chunks; chunk++) {
            SPW_TRY(mean_block_s(p, SPW_MEGATRON_MEAN_OF_ALL, stage, chunk, pass_s));
            all += seconds_of(pass_s);
        }
        *out = fmax(*out, before + all * (double)p->pipeline.micro_batches + (ends ? behind : 0.0));
        if (stage + 1 == p->pipeline.stages) break;
        SPW_TRY(mean_block_s(p, SPW_MEGATRON_MEAN_OF_FIRST, stage, 0, pass_s));
        before += pass_s[0] + p->send_s;
        SPW_TRY(mean_block_s(p, SPW_MEGATRON_MEAN_OF_LAST, stage, 0, pass_s));
        behind += pass_s[1] + p->send_s;
    }

cleanup:
    return status;
}

spw_status spw_megatron_job_mean_s(const spw_megatron_coefficients *coefficients, const spw_point *point,
                                   const spw_megatron_means *means, double *out) {
    spw_torchtitan_twin room;
    spw_megatron_coefficients smooth;
    const spw_megatron_job_request asked = {.coefficients = coefficients,
                                            .point = point,
                                            .load = means->load,
                                            .micro_batches = SPW_MEGATRON_MEANS,
                                            .groups = 1,
                                            .layers = means->layers};
    spw_megatron_job_request q = with_kernels(&asked, &room);
    spw_prediction p = {.q = &q, .pipeline = in_turns(point->job)};
    spw_status status = SPW_OK;
    *out = 0.0;
    if (means->unlike) return SPW_OK;
    smooth = *q.coefficients; /* what is no convex function of the loads */
    smooth.host_first_s.value = smooth.host_layer_s.value = smooth.long_message_share.value = 0.0;
    q.coefficients = &smooth;
    SPW_TRY(set_shape(&p));
    p.blocks = p.pipeline.stages * SPW_MEGATRON_MEANS * p.pipeline.chunks;
    SPW_TRY(spw_prediction_room(&p, p.blocks));
    SPW_TRY(mean_passes_s(&p, out));
    SPW_TRY(least_end_s(&p, out));
    *out += spw_prediction_optimizer_s(&p);

cleanup:
    end(&p);
    return status;
}

/* Rows of the fullest rank, over all micro-batches and layers. */
static double fullest_rows(const spw_megatron_job_request *q, size_t group) {
    const size_t ranks = q->point->shape.ranks;
    double rows = 0.0;
    for (size_t i = 0; i < q->micro_batches * q->layers; i++) {
        const size_t micro = i / q->layers, layer = i % q->layers;
        const spw_megatron_load *load = q->load + ((micro * q->groups + group) * q->layers + layer) * ranks;
        double most = 0.0;
        for (size_t r = 0; r < ranks; r++) most = fmax(most, load[r].tiled);
        rows += most;
    }
    return rows;
}

spw_status spw_megatron_job_group_s(const spw_megatron_job_request *q, double *out) {
    spw_torchtitan_twin room;
    const spw_megatron_job_request said = with_kernels(q, &room);
    spw_prediction p = {.q = &said, .pipeline = in_turns(q->point->job)};
    size_t fullest = 0;
    double most = -1.0;
    spw_status status = SPW_OK;
    for (size_t group = 0; group < q->groups; group++) {
        const double rows = fullest_rows(q, group);
        if (rows > most) most = rows, fullest = group;
    }
    SPW_TRY(begin(&p));
    SPW_TRY(spw_blocks_time_group(&p, fullest, out));
    SPW_TRY(least_end_s(&p, out));
    *out += spw_prediction_optimizer_s(&p);

cleanup:
    end(&p);
    return status;
}
