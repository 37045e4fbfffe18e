#include "sim/time/megatron/megatron_blocks.h"

#include "sim/job/job.h"
#include "sim/time/pipeline_time.h"
#include "sim/weights/block.h"

#include <math.h>
#include <string.h>

static size_t block_index(const spw_prediction *p, size_t stage, size_t micro, size_t chunk) {
    return (stage * p->pipeline.micro_batches + micro) * p->pipeline.chunks + chunk;
}

size_t spw_blocks_layers_before(const spw_prediction *p, const spw_block *block) {
    size_t before = 0;
    for (size_t i = 0; i < block->first; i++) before += p->q->point->job->model.is_moe[i];
    return before;
}

/* Notes the MoE layers of a block. Loads are taken in turn, so an earlier block of the group may have had the same. */
static void note_layers(spw_prediction *p, size_t at, const spw_block_load *load) {
    size_t i = 0;
    while (i < p->timed && (p->had[i].micro != load->micro || p->had[i].first != load->first ||
                            p->had[i].layers != load->layers))
        i++;
    p->of[at] = i;
    if (i == p->timed) p->had[p->timed++] = *load;
}

enum { MOST_AT_ONCE = 16 };

/* Times those that are noted, from one on: as many as there are in a row of as many layers. */
static spw_status time_some(spw_prediction *p, size_t group, size_t from, size_t *end) {
    const spw_megatron_job_request *q = p->q;
    const size_t ranks = q->point->shape.ranks, layers = p->had[from].layers;
    spw_megatron_loads loads[MOST_AT_ONCE];
    size_t n = 0;
    for (; from + n < p->timed && n < MOST_AT_ONCE && p->had[from + n].layers == layers; n++) {
        const spw_block_load *load = &p->had[from + n];
        loads[n] =
            (spw_megatron_loads){.load = q->load + (load->micro * q->groups + group) * q->layers * ranks,
                                 .first = load->first,
                                 .turn = q->layers};
    }
    *end = from + n;
    memset(&p->time[from], 0, n * sizeof *p->time);
    if (layers == 0) return SPW_OK;
    p->shape.layers = layers;
    return spw_megatron_times_predict(q->coefficients, &p->shape, p->dispatcher, ranks, loads, n,
                                      &p->time[from]);
}

static spw_status time_noted(spw_prediction *p, size_t group, size_t from) {
    spw_status status = SPW_OK;
    while (from < p->timed && status == SPW_OK) status = time_some(p, group, from, &from);
    return status;
}

spw_status spw_blocks_time_layers(spw_prediction *p, size_t group, size_t at, const spw_block_load *load) {
    const size_t before = p->timed;
    note_layers(p, at, load);
    return time_noted(p, group, before);
}

/* With overlap: a share of what goes on the wire, behind as much work at most. */
static double hidden_of(const spw_prediction *p, double wire_s, double pass_s) {
    const double micro = (double)p->pipeline.micro_batches; /* the last has none behind it */
    if (!p->q->point->job->overlap_exchanges) return 0.0;
    return p->q->coefficients->overlap_share.value * (micro - 1.0) / micro *
           fmax(fmin(wire_s, pass_s - wire_s), 0.0);
}

/* Of one pass of block `at`: exchanges that hide, and the host. */
static double pass_of(spw_prediction *p, size_t at, const spw_block *block, bool back, double seconds,
                      double shared_s) {
    const spw_megatron_time *t = spw_prediction_time(p, at);
    const unsigned phases = back ? SPW_BACKWARD_EXCHANGES : SPW_FORWARD_EXCHANGES;
    const double wire = spw_phases_sum(t->phase_s, phases) - spw_phases_sum(t->rank_wait_s, phases),
                 hidden = hidden_of(p, wire, seconds),
                 beside = p->q->point->job->megatron.overlap_shared ? fmin(shared_s, wire) : 0.0;
    p->hidden_s[at] = (back ? p->hidden_s[at] : 0.0) + hidden;
    p->shared_hidden_s[at] = (back ? p->shared_hidden_s[at] : 0.0) + beside;
    const spw_megatron_pass pass = {
        .seconds = seconds - hidden - beside, .wire_s = wire - hidden, .unlike = t->unlike};
    return spw_megatron_pass_s(&p->host, block, back, &pass);
}

static void time_block(spw_prediction *p, const spw_block *block, size_t stage, size_t micro, size_t chunk) {
    const size_t at = block_index(p, stage, micro, chunk);
    p->forward_s[at] = spw_prediction_time(p, at)->forward_s;
    p->backward_s[at] = spw_prediction_time(p, at)->backward_s;
    for (size_t i = 0; i < SPW_OUTSIDE_PARTS; i++) {
        const double seconds = p->outside.seconds[i] * spw_prediction_share(p, i, block, stage, chunk);
        p->forward_s[at] += seconds * p->outside.forward_share[i];
        p->backward_s[at] += seconds * (1.0 - p->outside.forward_share[i]);
    }
    const double shared_s = p->outside.seconds[SPW_OUTSIDE_SHARED] *
                            spw_prediction_share(p, SPW_OUTSIDE_SHARED, block, stage, chunk),
                 forward_share = p->outside.forward_share[SPW_OUTSIDE_SHARED];
    p->forward_s[at] = pass_of(p, at, block, false, p->forward_s[at], shared_s * forward_share);
    p->backward_s[at] = pass_of(p, at, block, true, p->backward_s[at], shared_s * (1.0 - forward_share));
    const double copies = spw_prediction_copies_s(p, block, stage);
    p->copies_wait_s[at] = fmax(copies - p->forward_s[at], 0.0) + fmax(copies - p->backward_s[at], 0.0);
    p->forward_s[at] = fmax(p->forward_s[at], copies);
    p->backward_s[at] = fmax(p->backward_s[at], copies);
}

/* A block with the loads of one before it does the same. */
static void repeat_block(spw_prediction *p, size_t before, size_t at) {
    p->of[at] = p->of[before];
    p->forward_s[at] = p->forward_s[before];
    p->backward_s[at] = p->backward_s[before];
    p->copies_wait_s[at] = p->copies_wait_s[before];
    p->hidden_s[at] = p->hidden_s[before];
    p->shared_hidden_s[at] = p->shared_hidden_s[before];
}

/* The first of the blocks of each kind, with what differs between these. */
static void note_blocks(spw_prediction *p, const spw_block *block, size_t stage, size_t chunk) {
    const spw_megatron_job_request *q = p->q;
    const size_t first = spw_blocks_layers_before(p, block) % q->layers;
    for (size_t micro = 0; micro < p->pipeline.micro_batches && micro < q->micro_batches; micro++)
        note_layers(p, block_index(p, stage, micro, chunk),
                    &(spw_block_load){micro, first, block->moe_layers + block->predictions});
}

static void time_blocks(spw_prediction *p, const spw_block *block, size_t stage, size_t chunk) {
    const size_t kinds = p->q->micro_batches;
    for (size_t micro = 0; micro < p->pipeline.micro_batches; micro++) {
        if (micro < kinds)
            time_block(p, block, stage, micro, chunk);
        else
            repeat_block(p, block_index(p, stage, micro - kinds, chunk), block_index(p, stage, micro, chunk));
    }
}

spw_status spw_blocks_time_group(spw_prediction *p, size_t group, double *out) {
    const spw_model *model = &p->q->point->job->model;
    const size_t stages = p->pipeline.stages, chunks = p->pipeline.chunks;
    p->timed = 0;
    for (size_t i = 0; i < stages * chunks; i++) {
        const spw_block block = spw_pipeline_block(&p->pipeline, model, i / chunks, i % chunks);
        note_blocks(p, &block, i / chunks, i % chunks);
    }
    const spw_status status = time_noted(p, group, 0);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < stages * chunks; i++) {
        const spw_block block = spw_pipeline_block(&p->pipeline, model, i / chunks, i % chunks);
        time_blocks(p, &block, i / chunks, i % chunks);
    }
    return spw_pipeline_time(&p->pipeline, p->forward_s, p->backward_s, p->send_s, out);
}
