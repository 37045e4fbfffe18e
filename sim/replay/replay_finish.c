#include "sim/replay/replay_finish.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/replicas.h"
#include "sim/memory/compiled/compiled_cut.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/memory/kept/launches.h"
#include "sim/memory/kept/transformers_job.h"
#include "sim/memory/live/assumed_layout.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/memory/live/megatron_notes.h"
#include "sim/print/plural.h"
#include "sim/replay/result_answers.h"
#include "sim/statistics/quantiles.h"
#include "sim/time/routing_load.h"
#include "sim/traffic/step_traffic.h"
#include "traces/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void set_peak(const spw_byte_quantiles *peak, spw_result_memory *out) {
    out->p50_bytes = peak->p50_bytes;
    out->p99_bytes = peak->p99_bytes;
    out->max_bytes = peak->max_bytes;
}

/* By positions in the replay; a stage without MoE layers has no worst one. */
static void name_worst(const spw_replay_row *row, size_t step, size_t layer, size_t rank,
                       spw_result_memory *out) {
    const spw_composer *composer = row->frame->composer;
    out->worst_step = spw_composer_step_id(composer, step);
    out->worst_layer = layer == SIZE_MAX ? -1 : spw_composer_layer_id(composer, layer);
    out->worst_rank = rank;
}

/* The allocator's word on memory. Of bare layers, and of a recorded job, it is followed tensor by tensor, and says what is live too. */
static spw_status finish_allocator(spw_replay_row *row, spw_result_row *out) {
    const spw_status status = spw_reserved_memory_finish(row->reserved, &out->reserved);
    const spw_reserved_outcome *as_set = &out->reserved.as_set;
    const bool whole = row->point.job->part != SPW_PART_EXPERT_LAYERS && !out->reserved.recorded;
    if (status != SPW_OK) return status;
    if (as_set->death.there) {
        out->death_step = spw_composer_step_id(row->frame->composer, as_set->death.step);
        out->death_layer =
            as_set->death.layer == SIZE_MAX
                ? -1
                : spw_composer_layer_id(row->frame->composer, as_set->death.layer % row->frame->layers);
    }
    if (whole) return SPW_OK;
    set_peak(&as_set->requested, &out->memory);
    name_worst(row, as_set->live_step, as_set->live_layer % row->frame->layers, as_set->live_rank,
               &out->memory);
    return SPW_OK;
}

/* Of a job that says which stage has which layers, or has to: each of them, at its greatest. */
static spw_status finish_stages(const spw_stage_memory *m, spw_result_row *out) {
    char layout[SPW_LAYOUT_TEXT];
    if (m->pipeline.layout == NULL &&
        !spw_assumed_layout(&m->pipeline, m->point.job, m->point.scheme, layout))
        return SPW_OK;
    const spw_status status = SPW_ALLOC(m->pipeline.stages, &out->stage);
    if (status != SPW_OK) return status;
    out->stages = m->pipeline.stages;
    for (size_t s = 0; s < out->stages; s++) {
        const spw_stage *stage = &m->footprint[s].stage;
        out->stage[s] = (spw_result_stage){.layers = stage->layers,
                                           .moe_layers = stage->moe_layers,
                                           .predictions = stage->predictions,
                                           .embedding = stage->embedding,
                                           .head = stage->head,
                                           .argument_bytes = m->footprint[s].argument_bytes,
                                           .peak_bytes = m->stage_peak[s]};
    }
    return SPW_OK;
}

/* Over the steps, of the rank that holds most: sorts them. */
static spw_status finish_memory(spw_replay_row *row, spw_result_row *out) {
    const size_t steps = row->frame->steps;
    spw_stage_memory *m = &row->memory;
    size_t refused = 0;
    spw_status status = spw_stage_memory_footprint(m, &out->footprint);
    out->balanced_bytes = m->footprint[0].peak_bytes; /* of a compiled program all stages keep the same */
    for (size_t s = 1; s < m->pipeline.stages && !row->compiled; s++)
        if (m->footprint[s].peak_bytes > out->balanced_bytes)
            out->balanced_bytes = m->footprint[s].peak_bytes;
    if (status == SPW_OK) status = finish_stages(m, out);
    if (status != SPW_OK) return status;
    if (m->routed) {
        out->worst_rows = m->worst_rows;
        m->worst_rows = NULL;
        name_worst(row, m->worst_step, m->worst_layer, m->worst_rank, &out->memory);
    } else {
        name_worst(row, row->most_step, row->most_layer, row->most_rank, &out->memory);
    }
    for (size_t i = 0; i < steps; i++) refused += m->step_peak[i] > out->footprint.budget_bytes;
    const spw_byte_quantiles peak = spw_byte_quantiles_of(m->step_peak, steps);
    set_peak(&peak, &out->memory);
    spw_probability oom = spw_oom_probability(refused, steps);
    if (row->reserved != NULL) {
        status = finish_allocator(row, out);
        if (status != SPW_OK) return status;
        oom = out->reserved.oom;
        spw_advice(&out->reserved, out->footprint.argument_bytes, out->advice);
    }
    out->memory.oom_probability = oom.value;
    out->memory.oom_low = m->routed ? oom.low : oom.value;
    out->memory.oom_high = m->routed ? oom.high : oom.value;
    return SPW_OK;
}

/* What a drop rule takes for granted of the trace's slots and weights. */
static void assume_choices(const spw_replay_row *row, spw_assumptions *list) {
    const spw_trace_info *info = spw_trace_get_info(row->frame->request->trace);
    char text[SPW_BY_POSITION_TEXT];
    const bool ranked = strcmp(info->order, "descending_weight") == 0;
    if (row->point.scheme->type->routing.by_choice_rank && !ranked)
        spw_assume(list,
                   "%s: a token's first slot is its first choice, which the trace does not say (order: %s)",
                   row->point.scheme->text, info->order[0] != '\0' ? info->order : "not said");
    if (spw_selection_note(row->point.scheme, info->has_weights, text)) {
        spw_assume(list, "%s", text);
    } else if (spw_scheme_drop_rule(row->point.scheme) == SPW_DROP_BY_WEIGHT &&
               strcmp(info->weight_kind, "gate_used") != 0)
        spw_assume(list, "%s: the gate uses the weights as the trace has them (weight_kind: %s)",
                   row->point.scheme->text, info->weight_kind[0] != '\0' ? info->weight_kind : "not said");
}

static void assume_no_time(const spw_replay_row *row, spw_result_row *out) {
    const spw_replay_request *q = row->frame->request;
    const spw_fits fits = {q->stack, q->time_stack, q->megatron};
    char replicas[SPW_REPLICAS_TEXT];
    if (spw_replicas_note(row->point.job, replicas)) spw_assume(&out->assumptions, "%s", replicas);
    out->no_time = spw_why_no_time(row->point.job, row->point.scheme, &fits);
    if (q->stack != NULL || q->megatron != NULL || q->listed)
        spw_assume(&out->assumptions, "%s: no times: %s", row->point.scheme->text, out->no_time);
}

static void assume_time(const spw_replay_row *row, spw_result_row *out) {
    const spw_megatron_coefficients *stack = row->time.scaled;
    if (!row->timed) {
        assume_no_time(row, out);
        return;
    }
    const bool layers = stack != NULL && stack->part == SPW_MEGATRON_EXPERT_LAYERS;
    if (layers)
        spw_assume(
            &out->assumptions,
            "%s: time of the expert layers by stack %s, fitted to bare layers on %s ranks of one machine",
            row->point.scheme->text, stack->name, stack->expert_parallel);
    if (stack != NULL && !layers)
        spw_assume(&out->assumptions,
                   "%s: time by stack %s, fitted to training runs of whole models with experts over %s GPUs",
                   row->point.scheme->text, stack->name, stack->expert_parallel);
    if (stack != NULL && row->point.job->part == SPW_PART_WHOLE)
        spw_assume(&out->assumptions,
                   "%s: %scollectives of weights and gradients are counted and hide behind %s",
                   row->point.scheme->text, layers ? "all else of the step is counted work; " : "",
                   !row->point.job->megatron.overlap_gradients ? "nothing"
                   : !row->point.job->megatron.overlap_gathers ? "passes (gradients) and nothing (weights)"
                                                               : "passes");
    if (row->time.listed)
        spw_assume(&out->assumptions,
                   "%s: time by its list of kernels, bytes and products at rates of an H100, the same for "
                   "every routing (docs/finetuning.md)",
                   row->point.scheme->text);
    if (out->time.outside[0] != '\0')
        spw_assume(&out->assumptions, "%s: times beyond what was fitted: %s", row->point.scheme->text,
                   out->time.outside);
}

static void assume_memory(const spw_replay_row *row, const spw_result_row *out, spw_assumptions *list) {
    const char *state = spw_footprint_state_note(row->point.job, row->point.scheme),
               *loss = spw_cross_entropy_note(row->point.job, row->point.scheme);
    char precision[SPW_PRECISION_TEXT], sharers[SPW_GRID_ASSUMED_TEXT], share[SPW_SHARE_TEXT];
    if (state != NULL) spw_assume(list, "%s", state);
    if (spw_precision_assumed(row->point.job, precision)) spw_assume(list, "%s", precision);
    if (spw_grid_assumed(row->point.job, sharers)) spw_assume(list, "%s", sharers);
    if (spw_precision_note(row->point.job, precision)) spw_assume(list, "%s", precision);
    if (loss != NULL && !row->compiled) spw_assume(list, "%s", loss);
    if (row->compiled) {
        spw_assume(list, "memory is what XLA's arena holds, by the coefficients of stack %s",
                   row->frame->request->stack->name);
        if (spw_compiled_share_note(row->frame->request->stack, row->point.job, share))
            spw_assume(list, "%s", share);
        if (row->outside[0] != '\0')
            spw_assume(list, "%s: beyond what was fitted: %s", row->point.scheme->text, row->outside);
        return;
    }
    spw_assume(
        list, "%s",
        row->reserved != NULL
            ? "memory is what must be live (GiB/GPU); allocated and reserved are PyTorch's allocator with "
              "it; copies and packing that a compiler adds are in none of them"
            : "memory is what must be live; the copies and packing that a compiler adds are not in it");
    if (row->memory.routed && row->reserved == NULL)
        spw_assume(list, "what PyTorch's allocator reserves beyond that is not replayed here");
    if (row->reserved != NULL && out->reserved.followed < out->reserved.processes)
        spw_assume(list,
                   "allocator: of %zu GPUs the %zu that hold most are replayed; another can reserve more "
                   "because of what earlier steps left in its cache (--every-rank replays all)",
                   out->reserved.processes, out->reserved.followed);
    if (row->reserved != NULL && row->point.job->allocator.garbage_collection_threshold > 0.0 &&
        row->point.job->allocator.per_process_memory_fraction == 0.0)
        spw_assume(list,
                   "allocator: garbage_collection_threshold does nothing: PyTorch collects only where a "
                   "fraction of the device was set (per_process_memory_fraction)");
    if (row->reserved != NULL && !row->exact)
        spw_assume(
            list, "%s",
            "allocator: what does not follow the routing is one tensor a component, of the same size in "
            "every "
            "step; the optimizer's state is tensors of every parameter, its moments come at the end of the "
            "first step");
}

/* Of a scheme that lists its whole steps, one that no list describes. */
static void finish_listing(const spw_replay_row *row, spw_result_row *out) {
    const char *why = NULL;
    if (!row->point.scheme->type->memory.whole_steps || spw_transformers_is_listed(&row->point, NULL, &why))
        return;
    out->unlisted = why;
    spw_assume(&out->assumptions,
               "%s: summed by components, as no list of tensors describes %s: what gathers and reductions "
               "reserve on streams "
               "of their own is bounded, not replayed",
               row->point.scheme->text, why);
}

static void assume_parts(const spw_replay_row *row, const spw_result_row *out, spw_assumptions *list) {
    const spw_replay_frame *f = row->frame;
    char text[SPW_COMPILED_CUT_TEXT], stages[SPW_STAGES_TEXT], layout[SPW_ASSUMED_LAYOUT_TEXT];
    spw_compiled_cut cut;
    if (row->compiled && f->stages > 1) {
        if (spw_compiled_cut_of(row->point.job, row->point.sequences, &cut) == SPW_OK &&
            spw_compiled_cut_note(&cut, text))
            spw_assume(list, "%s: %s", row->point.scheme->text, text);
        return;
    }
    if (f->micro_batches > 1)
        spw_assume(list, "%zu micro-batches of %zu sequence%s; rows, dispatch and combine are of one of them",
                   f->micro_batches, row->point.shape.sequences, spw_plural(row->point.shape.sequences));
    if (f->stages > 1)
        spw_assume(list, "%zu stages; memory is that of stage %zu, which needs most", f->stages,
                   out->footprint.stage.index);
    const spw_pipeline pipeline = spw_pipeline_of(row->point.job);
    if (spw_assumed_layout_note(&pipeline, row->point.job, row->point.scheme, layout))
        spw_assume(list, "%s: %s", row->point.scheme->text, layout);
    if (out->stages > 0)
        spw_assume(list, "%s: %s", row->point.scheme->text, spw_result_stages_text(out, stages));
}

/* Rows and drops of the stated imbalance in the place of the replayed ones. */
static void state_rows(const spw_replay_row *row, spw_result_row *out) {
    out->traffic.rows_max = row->stated.busy.held;
    out->traffic.rows_mean = row->stated.mean;
    out->drops.at_least = row->stated.dropped > 0.0 || row->drops.dropped > 0;
    out->drops.dropped = (uint64_t)llround(row->stated.dropped * (double)row->drops.assignments);
    out->drops.worst_fraction = row->stated.dropped;
}

/* A scheme that drops nothing of this routing drops nothing of a balanced one. */
static spw_status finish_balanced_drops(const spw_replay_row *row, spw_result_row *out) {
    spw_stated_rows rows = {.dropped = 0.0};
    spw_status status = SPW_OK;
    if (out->drops.dropped > 0 || out->drops.at_least)
        status = spw_stated_rows_of(&row->point, 1.0, NULL, &rows);
    out->balanced_drops = rows.dropped;
    return status;
}

/* Of generated routing as it is, of one step. */
static spw_status finish_expected(const spw_replay_row *row, spw_result_row *out) {
    const spw_replay_request *q = row->frame->request;
    if (!q->expects || q->imbalance != NULL || q->balancer != NULL || row->frame->steps != 1) return SPW_OK;
    const spw_expected_request request = {.trace = q->trace,
                                          .step = q->step_begin,
                                          .layer_begin = q->layer_begin,
                                          .layers = row->frame->layers,
                                          .point = &row->point,
                                          .sources = spw_grid_token_ranks(row->point.job) /
                                                     row->frame->stages * row->frame->micro_batches};
    return spw_expected_routing_of(&request, &out->expected);
}

/* What one GPU sends in the whole step. How XLA combines collectives differs between stacks; what crosses the wire does
 * not (tests/unit/traffic/test_compiled_traffic.c). */
static void finish_purposes(const spw_replay_row *row, spw_result_traffic *out) {
    const double exchanges = out->step_bytes_per_gpu;
    spw_step_traffic step;
    out->purpose_bytes[SPW_PURPOSE_EXCHANGE] = out->whole_step_bytes = exchanges;
    out->purpose_said[SPW_PURPOSE_EXCHANGE] = true;
    if (row->point.job->part == SPW_PART_EXPERT_LAYERS)
        return; /* its weights stay, and it has no optimizer */
    if (spw_step_traffic_of(&row->point, &spw_step_stacks[SPW_STEP_STACK_CUDA_OLD], &step) != SPW_OK) {
        out->purpose_said[SPW_PURPOSE_EXCHANGE] = false;
        out->whole_step_bytes = NAN;
        return;
    }
    for (int p = 0; p < SPW_PURPOSES; p++) {
        if (p == SPW_PURPOSE_EXCHANGE) continue;
        const bool of_grids = p == SPW_PURPOSE_TENSOR || p == SPW_PURPOSE_CONTEXT;
        out->purpose_bytes[p] = spw_step_purpose_wire_bytes(&step, (spw_purpose)p);
        out->purpose_said[p] = p == SPW_PURPOSE_HOST ? out->purpose_bytes[p] > 0.0
                                                     : !of_grids || !spw_grid_is_plain(row->point.job);
        if (p != SPW_PURPOSE_HOST) out->whole_step_bytes += out->purpose_bytes[p];
    }
}

static spw_status finish_time(spw_replay_row *row, spw_result_row *out) {
    spw_replay_times times;
    const spw_status status = spw_replay_time_finish(&row->time, &times);
    if (status != SPW_OK) return status;
    out->time = times.mean;
    out->tokens_per_s_low = out->time.tokens_per_s_per_gpu * out->time.step_s / out->time.high_s;
    out->tokens_per_s_high = out->time.tokens_per_s_per_gpu * out->time.step_s / out->time.low_s;
    out->balanced = times.balanced;
    out->aligned = times.aligned;
    out->ratio_width = times.ratio_width;
    out->worst = times.worst_span;
    spw_outside_fit_add(&out->outside_fit, "time", out->time.outside);
    out->worst_time_step = spw_composer_step_id(row->frame->composer, times.worst);
    return SPW_OK;
}

/* What the step takes if every layer is as uneven as `factor`; 0 where there is no time of it. */
static spw_status time_at(const spw_replay_row *row, double factor, spw_step_span *out) {
    *out = (spw_step_span){.step_s = 0.0};
    return row->timed && factor > 0.0 ? spw_replay_time_stated(&row->time, factor, out) : SPW_OK;
}

/* After finish_time(). */
static spw_status finish_overload(const spw_replay_row *row, spw_result_row *out) {
    const spw_replay_frame *f = row->frame;
    spw_result_overload *o = &out->overload;
    spw_status status = SPW_OK;
    if (!f->request->overload) return SPW_OK;
    o->ranks = row->point.shape.ranks;
    o->run = row->overload_run;
    o->run_rank = spw_overload_run_rank(&row->overload);
    spw_overload_run_finish(&o->run);
    for (int i = 0; i < SPW_OVERLOADS; i++) SPW_TRY(time_at(row, o->run.mean[i], &o->stated[i]));
    SPW_TRY(SPW_ALLOC(f->layers, &o->layer));
    for (size_t l = 0; l < f->layers; l++) {
        const spw_layer_overload layer = spw_overload_run_layer(&row->overload, l);
        spw_step_span step;
        SPW_TRY(time_at(row, layer.average, &step));
        o->layer[l] =
            (spw_result_layer){spw_composer_layer_id(f->composer, l), layer.average, layer.max, 0.0};
        if (step.step_s > 0.0)
            o->layer[l].cost_s =
                (step.step_s - out->balanced.step_s) / (double)row->point.job->model.moe_layers;
    }

cleanup:
    return status;
}

/* Where expert-parallel groups lie on more nodes than they need. */
static void finish_placement(const spw_replay_row *row, spw_result_row *out) {
    const size_t ranks = spw_grid_token_ranks(row->point.job) / row->frame->stages;
    const spw_placement p = {ranks, row->point.shape.ranks, row->point.job->cluster.gpus_per_node,
                             row->point.job->model.experts, row->point.shape.expert_tensor};
    out->groups = p.ranks / p.group_ranks;
    out->straddling = spw_placement_straddling(&p);
    if (out->straddling == 0) return;
    spw_assume(&out->assumptions,
               "expert-parallel groups of %zu on nodes of %zu GPUs: %zu of %zu straddle nodes, and their "
               "exchanges cross NICs there",
               p.group_ranks, p.gpus_per_node, out->straddling, out->groups);
}

static void add_launches(const spw_job *job, spw_outside_fit *out) {
    const char *const doubts[] = {spw_launches_graph_doubt(job), spw_launches_overlap_doubt(job)};
    for (size_t i = 0; i < sizeof doubts / sizeof *doubts; i++)
        if (doubts[i] != NULL) spw_outside_fit_add(out, "memory", doubts[i]);
}

/* Drops of all groups of the job, where some stood for the others. */
static void finish_groups(const spw_replay_row *row, spw_result_row *out) {
    const size_t there = row->frame->ranks, ranks = spw_grid_token_ranks(row->point.job) / row->frame->stages;
    const double times = (double)ranks / (double)there;
    if (there == ranks) return;
    out->drops.assignments = (uint64_t)llround(times * (double)out->drops.assignments);
    out->drops.dropped = (uint64_t)llround(times * (double)out->drops.dropped);
    out->drops.dropping_assignments = (uint64_t)llround(times * (double)out->drops.dropping_assignments);
    spw_assume(
        &out->assumptions,
        "%zu of a stage's %zu GPUs are replayed: its other expert-parallel groups differ by chance alone",
        there, ranks);
}

/* Keys that were said and leave a figure as it is. */
static void assume_keys(const spw_replay_row *row, spw_assumptions *out) {
    const char *note = NULL;
    for (size_t i = 0; (note = spw_megatron_note(row->point.job, row->point.scheme, i)) != NULL; i++)
        spw_assume(out, "%s", note);
}

spw_status spw_replay_row_finish(spw_replay_row *row, const spw_choice_tally *choices, spw_result_row *out) {
    const spw_replay_frame *f = row->frame;
    const double records = (double)f->steps * (double)f->layers * (double)f->micro_batches;
    const double gpus = (double)f->steps * (double)f->ranks * (double)f->stages;
    spw_status status = SPW_OK;
    out->scheme = *row->point.scheme;
    out->sequences = row->point.sequences;
    out->expert = row->point.job->expert;
    out->fsdp = row->point.job->fsdp;
    out->first_step = spw_composer_step_id(f->composer, 0);
    out->last_step = spw_composer_step_id(f->composer, f->steps - 1);
    out->steps = f->steps;
    out->layers = f->layers;
    SPW_TRY(finish_memory(row, out));
    out->budget = spw_device_budget_of(row->point.job, row->point.scheme);
    out->memory_kind = row->compiled ? SPW_MEMORY_ARENA : SPW_MEMORY_LIVE;
    spw_outside_fit_add(&out->outside_fit, "memory", row->outside);
    add_launches(row->point.job, &out->outside_fit);
    out->timed = row->timed;
    if (row->timed) SPW_TRY(finish_time(row, out));
    SPW_TRY(finish_overload(row, out));
    out->pages = spw_page_use_run(&row->pages);
    out->traffic = spw_row_sums_traffic(&row->sums, records * (double)f->ranks, gpus);
    out->traffic.levels = row->levels;
    out->drops = row->drops;
    finish_purposes(row, &out->traffic);
    if (f->request->imbalance != NULL) state_rows(row, out);
    SPW_TRY(finish_balanced_drops(row, out));
    SPW_TRY(finish_expected(row, out));
    out->drops.lost_unknown =
        out->drops.at_least || (f->request->skips_lost_tokens && row->drops.dropped > 0);
    out->match = spw_composer_match(f->composer, row->batch);
    out->assumptions = *spw_composer_assumptions(f->composer, row->batch);
    SPW_TRY(spw_choice_tally_assume(choices, &out->assumptions));
    for (size_t i = 0; i < SPW_MODEL_DOUBTS; i++)
        if (row->point.job->model.doubt[i][0] != '\0')
            spw_assume(&out->assumptions, "%s", row->point.job->model.doubt[i]);
    finish_placement(row, out);
    finish_groups(row, out);
    assume_keys(row, &out->assumptions);
    assume_choices(row, &out->assumptions);
    assume_time(row, out);
    assume_memory(row, out, &out->assumptions);
    assume_parts(row, out, &out->assumptions);
    if (spw_point_is_live_alone(out))
        SPW_TRY(spw_newest_arena_of(f->request->newest, row->point.job, row->point.scheme, out->sequences,
                                    &out->newest));
    finish_listing(row, out);
    spw_result_row_judge(out, &row->point.job->allocator);
    /* the file has what is not counted, and so has fp8 without a recipe */
    if (row->point.job->more[0] != '\0' || spw_precision_lacks_copies(row->point.job))
        out->surely_fits = false;

cleanup:
    return status;
}

void spw_replay_row_refusal(const spw_replay_row *row, spw_refusal *out) {
    *out = (spw_refusal){.sequences = row->point.sequences, .expert = row->point.job->expert};
    memcpy(out->scheme, row->point.scheme->text, sizeof out->scheme);
    memcpy(out->reason, row->refusal, sizeof out->reason);
}
