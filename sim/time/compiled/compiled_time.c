#include "sim/time/compiled/compiled_time.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/machine/cluster_levels.h"
#include "sim/machine/compiled_layer.h"
#include "sim/machine/stack_nearest.h"
#include "sim/memory/compiled/compiled_cut.h"
#include "sim/routing/compose.h"
#include "sim/time/compiled/compiled_doubt.h"
#include "sim/time/compiled/compiled_loop.h"
#include "sim/time/compiled/compiled_work.h"
#include "sim/time/compiled/mesh_time.h"
#include "sim/time/exchange_rate.h"
#include "sim/time/fp8_time.h"
#include "sim/time/routing_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* What one prediction is made of, in one place. */
typedef struct prediction {
    const spw_time_request *request;
    const spw_time_stack *stack;
    const spw_cluster *cluster;
    const spw_compiled_layer *list;
    spw_compiled_cut cut;
    spw_layer_shape shape; /* of a layer under one micro-batch */
    spw_point point;
    spw_compiled_load load;
    spw_compiled_work work;
    spw_timeline *out;
} prediction;

bool spw_compiled_time_covers(const spw_job *job, const spw_scheme *scheme) {
    const spw_compiled_layer *program = spw_scheme_program(scheme);
    const bool timed = program != NULL && /* no program of ragged_dot behind DeepEP ever ran */
                       !(program->masked_operands && program->exchange == SPW_COMPILED_EXCHANGE_LIBRARY);
    spw_compiled_cut cut;
    return timed && spw_compiled_cut_of(job, job->sequences_per_gpu[0], &cut) == SPW_OK &&
           (spw_grid_is_plain(job) || spw_mesh_time_covers(job)) && !spw_remat_keeps_layers(job->remat) &&
           spw_precision_is_timed(job);
}

/* --- Exchanges --- */

/* Bytes/s of the link when `bytes` leave or enter a GPU in one exchange. */
static double link_rate(const prediction *p, bool combine, double bytes) {
    const double link = p->cluster->link_bytes_per_s.value;
    const double fill = spw_exchange_fill(p->cluster, combine, bytes);
    const double measured = spw_exchange_rate(p->cluster, combine, bytes);
    if (p->list->exchange == SPW_COMPILED_EXCHANGE_LIBRARY)
        return p->stack->library_share.value * (isnan(measured) ? link : measured);
    if (p->list->oneshot) return p->stack->oneshot_share.value * link * fill;
    return p->stack->link_share.value * link * fill;
}

/* Exchanges of one MoE layer and micro-batch, forward to backward. */
static double layer_exchange_seconds(const prediction *p, const spw_routing_layer *layer) {
    const double nic = p->stack->alltoall_share.value * p->cluster->nic_bytes_per_s.value;
    spw_exchange list[SPW_SCHEME_EXCHANGES];
    const size_t exchanges = p->request->scheme->type->traffic.exchanges(p->request->scheme, &p->shape, list);
    double seconds = 0.0;
    for (size_t i = 0; i < exchanges; i++) {
        const double link_bytes = layer->link_rows * (double)list[i].row_bytes;
        const double nic_bytes = layer->nic_rows * (double)list[i].row_bytes;
        if (link_bytes + nic_bytes <= 0.0) continue;
        const double by_link = link_bytes / link_rate(p, list[i].back, link_bytes);
        seconds += p->stack->latency_s.value + layer->latency_s +
                   spw_exchange_legs(by_link, nic_bytes / nic, p->stack->serial_share.value);
    }
    return seconds;
}

/* All exchanges of the step's MoE layers. */
static double exchange_seconds(const prediction *p) {
    const size_t rounds = p->cut.micro_batches / p->cut.stages;
    const double times = (double)rounds / (double)p->load.micro_batches;
    double seconds = 0.0;
    for (size_t i = 0; i < p->load.micro_batches * p->load.layers; i++) {
        const size_t stands =
            spw_layers_stood_for(p->request->job->model.moe_layers, p->load.layers, i % p->load.layers);
        seconds += times * (double)stands * layer_exchange_seconds(p, &p->load.layer[i]);
    }
    return seconds;
}

/* --- Weights --- */

static double collective_seconds(const prediction *p, const spw_weight_traffic *t) {
    return t->hops * p->stack->latency_s.value +
           t->nic_bytes / (p->stack->network_share.value * p->cluster->nic_bytes_per_s.value) +
           t->link_bytes / (p->stack->link_share.value * p->cluster->link_bytes_per_s.value);
}

/* What the GPUs of a tensor or context group of a mesh exchange: nothing is hidden, since what follows needs it. */
static spw_status add_mesh(prediction *p) {
    static const struct {
        spw_purpose purpose;
        const char *name, *help;
    } rows[] = {{SPW_PURPOSE_TENSOR, "tensor_collectives", "gathers, scatters and sums of a tensor group"},
                {SPW_PURPOSE_CONTEXT, "context_collectives", "keys, values and slots of a context group"}};
    spw_weight_traffic traffic;
    spw_status status = SPW_OK;
    if (!spw_mesh_time_covers(p->request->job)) return SPW_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SPW_TRY(spw_mesh_time_traffic(&p->point, rows[i].purpose, &traffic));
        const double seconds = collective_seconds(p, &traffic);
        SPW_TRY(
            spw_timeline_add(p->out, rows[i].name, rows[i].help, SPW_STREAM_COLLECTIVE, seconds, seconds));
    }

cleanup:
    return status;
}

/* --- Components --- */

static spw_status compiled_time_add(prediction *p, const char *name, const char *help, double seconds) {
    return spw_timeline_add(p->out, name, help, SPW_STREAM_COMPUTE, seconds, seconds);
}

/* FLOP/s of the products that XLA makes itself, under a recipe of those that it casts. */
static double cast_flops(const prediction *p) {
    return p->stack->dense_share.value * p->cluster->bf16_flops.value * spw_fp8_product_gain(p->request->job);
}

static double expert_flops(const prediction *p) {
    return p->work.library_products ? p->stack->grouped_share.value * p->cluster->bf16_flops.value
                                    : cast_flops(p);
}

/* Sets *outside and *products: time outside the experts, and of their products. */
static spw_status add_compute(prediction *p, double *outside, double *products) {
    const spw_time_stack *s = p->stack;
    const spw_compiled_work *w = &p->work;
    const double peak = p->cluster->bf16_flops.value, hbm = p->cluster->hbm_bytes_per_s.value;
    const double dense = s->dense_share.value * peak, memory = s->memory_share.value * hbm,
                 cast = cast_flops(p);
    const double experts = w->experts / expert_flops(p);
    spw_status status = SPW_OK;
    SPW_TRY(
        compiled_time_add(p, "attention_projections", "products of attention", w->model.projections / cast));
    SPW_TRY(compiled_time_add(p, "attention", "scores and context",
                              w->model.attention / (s->attention_share.value * peak)));
    SPW_TRY(compiled_time_add(p, "dense_ffn", "FFN of layers without experts", w->model.dense_ffn / cast));
    SPW_TRY(compiled_time_add(p, "shared_expert", "shared experts", w->model.shared_expert / cast));
    SPW_TRY(compiled_time_add(p, "router", "logits of the experts", w->model.router / dense));
    SPW_TRY(compiled_time_add(p, "head", "logits of the vocabulary", w->model.head / dense));
    SPW_TRY(compiled_time_add(p, "elementwise", "norms, rotations, activations, residuals",
                              (w->model.layer_bytes + w->model.logit_bytes) / memory));
    *outside = 0.0;
    for (size_t i = 0; i < p->out->components; i++) *outside += p->out->component[i].seconds;
    SPW_TRY(compiled_time_add(p, "expert_products", "grouped or batched GEMMs, whole tiles", experts));
    SPW_TRY(compiled_time_add(p, "mask_products", "dispatch and combine einsums", w->masks / cast));
    *products = experts + w->masks / cast;
    SPW_TRY(compiled_time_add(p, "row_moves",
                              "sorts, fan-out and fan-in, copies, activations of the experts' rows",
                              w->row_bytes / memory));
    SPW_TRY(compiled_time_add(p, "masks", "making the capacity masks", w->mask_bytes / memory));
    SPW_TRY(compiled_time_add(p, "scatter_adds", "sums by colliding scatters",
                              w->scatter_bytes / (s->scatter_share.value * hbm)));
    SPW_TRY(
        compiled_time_add(p, "optimizer", "weights, gradients, moments", w->model.optimizer_bytes / memory));

cleanup:
    return status;
}

static spw_status add_collectives(prediction *p, double outside, double products) {
    const spw_time_stack *s = p->stack;
    const double exchanges = exchange_seconds(p);
    const double gathers = collective_seconds(p, &p->work.gathers);
    const double scatters = collective_seconds(p, &p->work.scatters), all = gathers + scatters;
    const bool apart = s->gather_limit_gib.value * GIB < p->work.layer_gather_bytes;
    const double cover = s->layer_cover.value * outside +
                         (apart && !p->work.library_products ? s->product_cover.value * products : 0.0);
    const double left = all > 0.0 ? 1.0 - fmin(s->hidden_share.value * all, cover) / all : 1.0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_timeline_add(p->out, "exchanges", "rows to their experts and back", SPW_STREAM_COLLECTIVE,
                             exchanges, exchanges));
    SPW_TRY(spw_timeline_add(p->out, "weight_gathers", "all-gathers of sharded weights",
                             SPW_STREAM_COLLECTIVE, gathers, gathers * left));
    SPW_TRY(spw_timeline_add(p->out, "gradient_scatters", "reduce-scatters of gradients",
                             SPW_STREAM_COLLECTIVE, scatters, scatters * left));

cleanup:
    return status;
}

/* --- What the fit covers --- */

/* Names what the tables do not have, and counts it. */
static spw_compiled_far name_ranges(const prediction *p) {
    const spw_time_stack *s = p->stack;
    const spw_job *job = p->request->job;
    const spw_fit_range range = {s->models,           s->clusters,      s->expert_parallel,
                                 s->sequence_lengths, s->sequences_min, s->sequences_max};
    const spw_fit_point point = {job->model.name,  job->cluster.name,    job->expert,
                                 p->cut.sequences, job->sequence_length, spw_precision_is_bf16(job)};
    const char *kind = spw_compiled_kind(p->request->scheme);
    char *note = p->out->outside, fsdp[24];
    (void)snprintf(fsdp, sizeof fsdp, "%zu", job->fsdp);
    const bool seen = spw_has_word(s->schemes, kind),
               sharded = s->fsdp[0] == '\0' || spw_has_word(s->fsdp, fsdp);
    if (!seen) spw_outside_add(note, "%s not in the fitted tables", kind);
    if (!sharded) spw_outside_add(note, "fsdp sizes other than %s", s->fsdp);
    const spw_outside_count count = spw_outside_ranges(note, &range, &point);
    return (spw_compiled_far){
        .unseen = count.sizes + !seen + !sharded, .elsewhere = count.places, .network = count.network};
}

/* Nodes that the largest published exchanges of training's size span (notebooks_data/profiles/ep_bandwidth.csv). */
enum { PUBLISHED_NODES = 8 };

/* A stack that no run was fitted for has no ranges: it is outside as a whole, and its widths say so. */
static spw_compiled_far name_outside(const prediction *p) {
    const spw_job *job = p->request->job;
    char *note = p->out->outside;
    const bool full = job->remat == SPW_REMAT_FULL, staged = p->cut.stages > 1,
               parts = !staged && p->cut.micro_batches > 1;
    spw_compiled_far far = {.network = true};
    if (spw_time_stack_is_fitted(p->stack)) {
        far = name_ranges(p);
    } else {
        const bool known = spw_gpu_is_of(job->cluster.name, p->stack->clusters);
        spw_outside_add(note, "no run of %s was fitted: rates of single kernels and assumed shares",
                        p->stack->name);
        if (!known)
            spw_outside_add(note, "the GPU of cluster %s is none of %s", job->cluster.name,
                            p->stack->clusters);
        if (!spw_precision_is_bf16(job)) spw_outside_add(note, "precision other than bf16 throughout");
        far.elsewhere = (size_t)!known + !spw_precision_is_bf16(job);
    }
    const size_t per_node = job->cluster.gpus_per_node, nodes = (job->expert + per_node - 1) / per_node;
    const size_t ring = job->expert * job->fsdp;
    const bool wide = nodes > PUBLISHED_NODES, long_ring = ring > SPW_RING_SEEN;
    if (wide)
        spw_outside_add(note, "groups over %zu nodes, exchanges are published of %d at most", nodes,
                        PUBLISHED_NODES);
    if (long_ring)
        spw_outside_add(note, "rings of %zu GPUs, runs are known of %d at most", ring, SPW_RING_SEEN);
    const bool levels = spw_levels_are_several(&job->cluster);
    if (levels)
        spw_outside_add(note, "a network of %zu levels, of which none was measured",
                        job->cluster.levels.count);
    far.network = far.network || levels;
    if (!full)
        spw_outside_add(note, "remat %s: timed as full%s", spw_remat_name(job->remat),
                        spw_remat_is_offloaded(job->remat) ? ", without its copies to the host" : "");
    const spw_grid g = spw_grid_of(job);
    const size_t axes = spw_mesh_time_covers(job) ? (size_t)(g.tensor > 1) + (g.context > 1) : 0;
    if (axes > 0)
        spw_outside_add(note, "MaxText's mesh with tensor %zu and context %zu, of which no run is known",
                        g.tensor, g.context);
    if (staged) spw_outside_add(note, "pipelines not in the fitted tables");
    if (parts) spw_outside_add(note, "micro-batches not in the fitted tables");
    const bool casts = job->precision.recipe != SPW_FP8_NONE;
    if (casts)
        spw_outside_add(
            note,
            "recipe %s of a compiled program: its products as fast beside bf16's as TransformerEngine's",
            spw_fp8_recipe_name(job->precision.recipe));
    far.elsewhere += axes + (size_t)!full + staged + parts + wide + long_ring + levels + casts;
    return far;
}

/* Seconds of the experts of one layer and micro-batch that follow the routing. */
static double routed_seconds(const void *state, const spw_routing_layer *layer) {
    const prediction *p = state;
    return spw_compiled_expert_flop(p->request->scheme, p->list, &p->shape, layer) / expert_flops(p) +
           layer_exchange_seconds(p, layer);
}

/* The same in a turn without work, which runs on rows of zeros: every token has the same router logits, and so the same K experts,
 * the first ones. A capacity cuts them off. */
static double idle_seconds(const prediction *p) {
    const spw_layer_shape *s = &p->shape;
    const double most = (double)s->worst_rows, here = fmin((double)s->node_ranks, (double)s->ranks);
    spw_routing_layer idle = p->load.layer[0];
    if (p->list->capacity_slots) return routed_seconds(p, &idle);
    idle.rows = idle.tiled_rows = most;
    if (p->list->exchange == SPW_COMPILED_EXCHANGE_RAGGED) {
        idle.link_rows = most * (here - 1.0) / (double)s->ranks;
        idle.nic_rows = most * ((double)s->ranks - here) / (double)s->ranks;
    } else if (p->list->exchange == SPW_COMPILED_EXCHANGE_LIBRARY) { /* a token goes once to a rank */
        idle.link_rows = (double)s->tokens * (here - 1.0);
        idle.nic_rows = (double)s->tokens * ((double)s->ranks - here);
    }
    return fmax(routed_seconds(p, &p->load.layer[0]), routed_seconds(p, &idle));
}

/* One micro-batch's [T, H] to the next stage, which is on other nodes where a stage fills its own. */
static double send_seconds(const prediction *p) {
    const spw_job *job = p->request->job;
    const double bytes =
        (double)p->shape.tokens * (double)job->model.hidden * (double)job->precision.activations;
    const bool near = spw_job_gpus(job) <= job->cluster.gpus_per_node;
    return p->stack->latency_s.value +
           bytes / (near ? p->stack->link_share.value * p->cluster->link_bytes_per_s.value
                         : p->stack->network_share.value * p->cluster->nic_bytes_per_s.value);
}

static spw_status predict(prediction *p) {
    double outside = 0.0, products = 0.0;
    spw_status status = SPW_OK;
    spw_timeline_clear(p->out);
    SPW_TRY(add_compute(p, &outside, &products));
    SPW_TRY(add_collectives(p, outside, products));
    SPW_TRY(add_mesh(p));
    if (p->cut.stages > 1) {
        const spw_loop_request loop = {p->request->job, &p->cut,        &p->load, p,
                                       routed_seconds,  idle_seconds(p)};
        SPW_TRY(spw_loop_add(&loop, send_seconds(p), p->out));
    }
    SPW_TRY(spw_timeline_add(p->out, "input_wait", "the GPU waits for its input", SPW_STREAM_HOST,
                             p->request->input_s, p->request->input_s));
    spw_timeline_finish(p->out, p->work.model.tokens);

cleanup:
    return status;
}

static double step_with(const void *problem, const spw_time_stack *stack) {
    prediction p = *(const prediction *)problem;
    spw_timeline time;
    p.stack = stack;
    p.out = &time;
    return predict(&p) == SPW_OK ? time.step_s : NAN;
}

/* The step if no ring were longer than those that were seen. */
static double seen_ring_seconds(const prediction *problem) {
    prediction p = *problem;
    p.work.gathers.hops = p.work.gathers.seen_hops;
    p.work.scatters.hops = p.work.scatters.seen_hops;
    return step_with(&p, p.stack);
}

spw_status spw_compiled_time_predict(const spw_time_request *q, spw_timeline *out) {
    spw_routing_layer balanced;
    prediction p = {.request = q,
                    .stack = q->stack,
                    .cluster = &q->job->cluster,
                    .load = {q->layer, q->layers, q->micro_batches > 0 ? q->micro_batches : 1},
                    .out = out};
    spw_status status = SPW_OK;
    spw_timeline_clear(out);
    if (!spw_compiled_time_covers(q->job, q->scheme))
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s', tensor %zu, remat %s: times are modelled of programs that XLA compiles whole "
            "with a remat policy, with tensor and context of remat full and optimizer sharded alone",
            q->scheme->text, q->job->tensor, spw_remat_name(q->job->remat));
    p.list = spw_scheme_program(q->scheme);
    const spw_point point = spw_point_of(q->job, q->scheme, q->sequences);
    p.shape = point.shape;
    p.point = point;
    SPW_TRY(spw_compiled_cut_of(q->job, q->sequences, &p.cut));
    if (q->layer == NULL || q->layers == 0) {
        SPW_TRY(spw_routing_load_stated(&point, 1.0, spw_stated_positions(q->job), &balanced));
        p.load = (spw_compiled_load){&balanced, 1, 1};
    }
    spw_compiled_work_count(q->job, q->scheme, p.list, &p.cut, &p.load, &p.work);
    SPW_TRY(predict(&p));
    spw_compiled_far far = name_outside(&p);
    if (q->job->expert * q->job->fsdp > SPW_RING_SEEN) far.seen_ring_s = seen_ring_seconds(&p);
    spw_compiled_doubt(q->stack, &far, step_with, &p, out);

cleanup:
    return status;
}
