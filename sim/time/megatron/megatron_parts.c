#include "sim/time/megatron/megatron_parts.h"

#include "base/memory.h"
#include "sim/schemes/list.h"
#include "sim/time/fp8_time.h"
#include "sim/time/megatron/host_optimizer_time.h"
#include "sim/time/megatron/megatron_hidden.h"
#include "sim/time/megatron/muon_time.h"
#include "sim/time/megatron/offload_time.h"
#include "sim/weights/block.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/stage.h"

#include <math.h>

double spw_phases_sum(const double phase_s[SPW_MEGATRON_PHASES], unsigned phases) {
    double seconds = 0.0;
    for (size_t f = 0; f < SPW_MEGATRON_PHASES; f++) seconds += (phases >> f & 1u) != 0 ? phase_s[f] : 0.0;
    return seconds;
}

double spw_prediction_share(const spw_prediction *p, size_t part, const spw_block *block, size_t stage,
                            size_t chunk) {
    const bool last = stage + 1 == p->pipeline.stages && chunk + 1 == p->pipeline.chunks;
    return spw_megatron_outside_share(&p->q->point->job->model, part, block, last);
}

enum {
    EXCHANGES = SPW_FORWARD_EXCHANGES | SPW_BACKWARD_EXCHANGES,
    ROW_MOVES = SPW_PHASE_BIT(PERMUTE) | SPW_PHASE_BIT(SORT) | SPW_PHASE_BIT(UNSORT) |
                SPW_PHASE_BIT(UNPERMUTE) | SPW_PHASE_BIT(BACKWARD_PERMUTE) | SPW_PHASE_BIT(BACKWARD_SORT) |
                SPW_PHASE_BIT(BACKWARD_UNSORT) | SPW_PHASE_BIT(BACKWARD_UNPERMUTE)
};

/* Phases of the stack as components; waiting is apart. */
static const struct {
    const char *name, *help;
    spw_stream stream;
    unsigned phases;
} groups_of_phases[] = {
    {"router", "norm, casts, logits and choice", SPW_STREAM_COMPUTE, SPW_PHASE_BIT(ROUTE)},
    {"expert_products", "grouped GEMMs, activation, weight gradients", SPW_STREAM_COMPUTE,
     SPW_PHASE_BIT(EXPERTS) | SPW_PHASE_BIT(BACKWARD_EXPERTS)},
    {"row_moves", "permute, sort, unsort, unpermute", SPW_STREAM_COMPUTE, ROW_MOVES},
    {"exchanges", "rows to their experts and back", SPW_STREAM_COLLECTIVE, EXCHANGES},
    {"expert_recompute", "the MoE layer's forward pass again", SPW_STREAM_COMPUTE, SPW_PHASE_BIT(RECOMPUTE)},
    {"expert_tensor_parallel", "gathers and sums of rows among GPUs that share experts",
     SPW_STREAM_COLLECTIVE,
     SPW_PHASE_BIT(GATHER) | SPW_PHASE_BIT(SCATTER) | SPW_PHASE_BIT(BACKWARD_GATHER) |
         SPW_PHASE_BIT(BACKWARD_SCATTER)}};

spw_status spw_prediction_room(spw_prediction *p, size_t most) {
    spw_status status = SPW_RESIZE(most, &p->time); /* of which `timed` are set */
    if (status == SPW_OK) status = SPW_RESIZE(most, &p->had);
    return status == SPW_OK ? SPW_ALLOC(p->blocks, &p->of) : status;
}

static spw_status megatron_parts_add(spw_timeline *out, const char *name, const char *help, spw_stream stream,
                                     double seconds) {
    return spw_timeline_add(out, name, help, stream, seconds, seconds);
}

/* Mean over ranks, over all blocks of a stage. What the mean rank is ahead of the last one at the end is waiting. */
static spw_status add_layers(const spw_prediction *p, size_t stage, spw_timeline *out) {
    double phase_s[SPW_MEGATRON_PHASES] = {0.0}, again_s[SPW_MEGATRON_PHASES] = {0.0}, waiting = 0.0,
           host = 0.0, hidden = 0.0;
    spw_status status = SPW_OK;
    const size_t blocks = p->pipeline.micro_batches * p->pipeline.chunks;
    for (size_t i = 0; i < blocks; i++) {
        const spw_megatron_time *t = spw_prediction_time(p, stage * blocks + i);
        waiting += t->step_s;
        hidden += p->hidden_s[stage * blocks + i];
        for (size_t f = 0; f < SPW_MEGATRON_PHASES; f++) {
            phase_s[f] += t->phase_s[f] - t->rank_wait_s[f] - t->host_wait_s[f];
            again_s[f] += t->again_s[f];
            waiting -= t->phase_s[f] - t->rank_wait_s[f];
            host += t->host_wait_s[f];
        }
    }
    for (size_t g = 0; g < SPW_COUNT_OF(groups_of_phases); g++) {
        const unsigned phases = groups_of_phases[g].phases;
        const bool again = (phases & SPW_PHASE_BIT(RECOMPUTE)) != 0;
        const double seconds = spw_phases_sum(phase_s, phases),
                     behind = (phases & EXCHANGES) != 0 ? hidden : 0.0;
        if ((phases & SPW_PHASE_BIT(GATHER)) != 0 && p->shape.expert_tensor <= 1) continue;
        SPW_TRY(spw_timeline_add(out, groups_of_phases[g].name, groups_of_phases[g].help,
                                 groups_of_phases[g].stream, seconds, seconds - behind));
        spw_time_component *added = &out->component[out->components - 1];
        const double *of = again ? again_s : phase_s;
        const unsigned among = again ? ~0u : phases;
        added->exchange_s = spw_phases_sum(of, among & EXCHANGES) - behind;
        added->dispatcher_s = added->exchange_s + spw_phases_sum(of, among & ROW_MOVES);
    }
    SPW_TRY(megatron_parts_add(out, "waiting", "the mean rank waits for the slowest of its group",
                               SPW_STREAM_COLLECTIVE, fmax(waiting, 0.0)));
    SPW_TRY(megatron_parts_add(out, "host_wait", "the GPU waits for the host to read counts", SPW_STREAM_HOST,
                               host));

cleanup:
    return status;
}

static spw_status add_outside(const spw_prediction *p, size_t stage, spw_timeline *out) {
    const size_t blocks = p->pipeline.micro_batches * p->pipeline.chunks;
    for (size_t i = 0; i < SPW_OUTSIDE_PARTS; i++) {
        const spw_outside_name *name = &spw_outside_names[i];
        double seconds = 0.0, hidden = 0.0;
        if (i == SPW_OUTSIDE_CASTS && p->q->point->job->precision.recipe == SPW_FP8_NONE) continue;
        if (i >= SPW_OUTSIDE_ROUTER && p->outside.seconds[i] == 0.0) continue;
        for (size_t chunk = 0; chunk < p->pipeline.chunks; chunk++) {
            const spw_block block = spw_pipeline_block(&p->pipeline, &p->q->point->job->model, stage, chunk);
            seconds += (double)p->pipeline.micro_batches * p->outside.seconds[i] *
                       spw_prediction_share(p, i, &block, stage, chunk);
        }
        for (size_t b = 0; i == SPW_OUTSIDE_SHARED && b < blocks; b++)
            hidden += p->shared_hidden_s[stage * blocks + b];
        const spw_status status =
            spw_timeline_add(out, name->name, name->help, name->stream, seconds, seconds - hidden);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

/* What the host adds to the blocks of a stage. */
static spw_status add_gaps(const spw_prediction *p, size_t stage, double kernels_s, spw_timeline *out) {
    const size_t blocks = p->pipeline.micro_batches * p->pipeline.chunks;
    double busy = 0.0, copies = 0.0;
    for (size_t i = 0; i < blocks; i++) {
        busy += p->forward_s[stage * blocks + i] + p->backward_s[stage * blocks + i];
        copies += p->copies_wait_s[stage * blocks + i];
    }
    return megatron_parts_add(out, "launch_gaps", "the GPU waits for launches", SPW_STREAM_HOST,
                              fmax(busy - copies - kernels_s, 0.0));
}

double spw_prediction_collective_s(const spw_megatron_coefficients *c, const spw_weight_traffic *t) {
    return t->nic_bytes / c->network_bytes_per_s.value + t->link_bytes / c->exchange_bytes_per_s.value;
}

double spw_prediction_copies_s(const spw_prediction *p, const spw_block *block, size_t stage) {
    return p->copies_s[stage] * (double)(block->moe_layers + block->predictions) +
           p->attention_copies_s[stage] * (double)(block->layers + block->predictions);
}

/* Copies of both ways, and what the passes of the stage wait for them. */
static spw_status add_copies(const spw_prediction *p, size_t stage, spw_timeline *out) {
    const size_t blocks = p->pipeline.micro_batches * p->pipeline.chunks;
    double seconds = 0.0, exposed = 0.0;
    if (p->q->point->job->offload.modules == 0) return SPW_OK;
    for (size_t i = 0; i < blocks; i++) exposed += p->copies_wait_s[stage * blocks + i];
    for (size_t chunk = 0; chunk < p->pipeline.chunks; chunk++) {
        const spw_block block = spw_pipeline_block(&p->pipeline, &p->q->point->job->model, stage, chunk);
        seconds += 2.0 * (double)p->pipeline.micro_batches * spw_prediction_copies_s(p, &block, stage);
    }
    return spw_offload_add(out, seconds, exposed);
}

/* Matrices of a rank's experts: each is a tensor of its own. */
static double matrices_of(const spw_prediction *p, const spw_stage *stage) {
    return 2.0 * (double)(p->q->point->shape.experts_per_rank * (stage->moe_layers + stage->predictions));
}

/* What the optimizer of a stage does. */
typedef struct optimizer_work {
    double bytes;   /* that the GPU moves */
    double on_host; /* parameters that the host updates */
} optimizer_work;

static optimizer_work optimizer_work_of(const spw_prediction *p, const spw_stage *of) {
    const spw_job *job = p->q->point->job;
    const spw_held_parameters held =
        job->muon ? spw_adam_parameters(&job->model, of) : spw_job_parameters(job, of);
    const spw_optimizer_state state = spw_optimizer_state_of(job, &held);
    const double w = (double)job->precision.weights, g = (double)job->precision.gradients;
    const double on_host = state.updated * job->optimizer_on_host, updated = state.updated - on_host;
    return (optimizer_work){.bytes = 2.0 * (state.master + state.moments) + updated * (w + g) +
                                     spw_fp8_weight_cast_bytes(job, of),
                            .on_host = on_host};
}

static double optimizer_s(const spw_prediction *p, const spw_stage *of, double bytes) {
    const spw_megatron_coefficients *c = p->q->coefficients;
    return bytes / c->copy_bytes_per_s.value * c->optimizer_share.value +
           matrices_of(p, of) * c->matrix_host_s.value;
}

double spw_prediction_optimizer_s(const spw_prediction *p) {
    double least = INFINITY;
    for (size_t s = 0; s < p->pipeline.stages; s++) {
        const spw_stage of = spw_pipeline_stage(&p->pipeline, &p->q->point->job->model, s);
        least = fmin(least, optimizer_s(p, &of, optimizer_work_of(p, &of).bytes));
    }
    return p->q->point->job->part == SPW_PART_WHOLE ? least : 0.0;
}

/* Gradients, optimizer and weights of one stage. */
static spw_status add_end(const spw_prediction *p, size_t stage, spw_timeline *out) {
    const spw_job *job = p->q->point->job;
    const spw_megatron_coefficients *c = p->q->coefficients;
    const spw_stage of = spw_pipeline_stage(&p->pipeline, &job->model, stage);
    const optimizer_work work = optimizer_work_of(p, &of);
    spw_weight_traffic scatters, gathers;
    spw_status status = SPW_OK;
    SPW_TRY(spw_weight_step(job, &scatters, &gathers));
    const double scatters_s = spw_prediction_collective_s(c, &scatters),
                 gathers_s = spw_prediction_collective_s(c, &gathers);
    SPW_TRY(spw_timeline_add(out, "gradient_scatters",
                             spw_state_copies(job) > 1 ? "reduce-scatters of gradients and sums over replicas"
                                                       : "reduce-scatters of gradients",
                             SPW_STREAM_COLLECTIVE, scatters_s,
                             scatters_s - spw_hidden_gradients_s(p, stage, scatters_s)));
    SPW_TRY(spw_timeline_add(out, "weight_gathers", "all-gathers of sharded weights", SPW_STREAM_COLLECTIVE,
                             gathers_s, gathers_s - spw_hidden_gathers_s(p, stage, gathers_s)));
    if (p->outside.gradients_s > 0.0)
        SPW_TRY(megatron_parts_add(out, "tensor_parallel_gradients",
                                   "sums of gradients that a tensor group holds whole", SPW_STREAM_COLLECTIVE,
                                   p->outside.gradients_s));
    SPW_TRY(megatron_parts_add(out, "optimizer", "weights, gradients, moments", SPW_STREAM_COMPUTE,
                               optimizer_s(p, &of, work.bytes)));
    SPW_TRY(spw_host_optimizer_add(c, job, work.on_host, work.bytes / c->copy_bytes_per_s.value, out));
    if (job->muon) SPW_TRY(spw_muon_time_add(c, job, stage, out));

cleanup:
    return status;
}

/* The stage with the most work sets the step's pace: its components, and what the pipeline adds. */
static size_t busiest_stage(const spw_prediction *p, double *busy_s) {
    const size_t blocks = p->pipeline.micro_batches * p->pipeline.chunks;
    size_t busiest = 0;
    *busy_s = -1.0;
    for (size_t stage = 0; stage < p->pipeline.stages; stage++) {
        double busy = 0.0;
        for (size_t i = 0; i < blocks; i++)
            busy += p->forward_s[stage * blocks + i] + p->backward_s[stage * blocks + i];
        if (busy <= *busy_s) continue;
        *busy_s = busy, busiest = stage;
    }
    return busiest;
}

spw_status spw_prediction_parts(const spw_prediction *p, double passes_s, spw_timeline *out) {
    double busy = 0.0, kernels = 0.0;
    spw_status status = SPW_OK;
    const size_t stage = busiest_stage(p, &busy);
    const bool whole = p->q->point->job->part == SPW_PART_WHOLE;
    if (whole) SPW_TRY(add_outside(p, stage, out));
    SPW_TRY(add_layers(p, stage, out));
    for (size_t i = 0; i < out->components; i++) kernels += out->component[i].exposed_s;
    if (p->host.layer_s + p->host.moe_layer_s + p->host.counts_s + p->host.floor_s > 0.0)
        SPW_TRY(add_gaps(p, stage, kernels, out));
    SPW_TRY(add_copies(p, stage, out));
    if (p->pipeline.stages > 1)
        SPW_TRY(megatron_parts_add(out, "pipeline_bubble", "the busiest stage waits for the others",
                                   SPW_STREAM_COLLECTIVE, fmax(passes_s - busy, 0.0)));
    if (whole) SPW_TRY(add_end(p, stage, out));

cleanup:
    return status;
}
