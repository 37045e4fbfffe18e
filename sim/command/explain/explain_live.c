#include "sim/command/explain/explain_parts.h"

#include "base/memory.h"
#include "sim/command/explain/explain_points.h"
#include "sim/command/job_options.h"
#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/software.h"
#include "sim/memory/allocator/device_budget.h"
#include "sim/memory/compiled/newest_arena.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/memory/live/assumed_layout.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/replay/replay.h"
#include "sim/schemes/point.h"
#include "traces/trace.h"

#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const spw_column columns[] = {
    {"scheme", NULL},       {"sequences_per_gpu", NULL}, {"component", "component"},
    {"bytes", "GiB"},       {"upto_bytes", "sum"},       {"kind", "kind"},
    {"at_peak", "at peak"}, {"formula", "formula"},      {"source", "source"},
    {NULL, NULL},
};

/* The components of the peak from the largest group to the last, then those that live at another moment. */
static void add_components(spw_table *t, const char *scheme, size_t sequences, const spw_footprint *f) {
    uint64_t sum = 0;
    for (int at_peak = 1; at_peak >= 0; at_peak--) {
        for (size_t i = 0; i < f->components; i++) {
            const spw_component *c = &f->component[i];
            char formula[SPW_COMPONENT_TEXT];
            if (c->live[f->moment] != (at_peak == 1)) continue;
            sum += at_peak == 1 ? c->bytes : 0;
            spw_table_text(t, scheme);
            spw_table_count(t, sequences);
            spw_table_text(t, c->name);
            spw_table_scaled(t, (double)c->bytes, GIB, "%.3f");
            if (at_peak == 1) {
                spw_table_scaled(t, (double)sum, GIB, "%.3f");
            } else {
                spw_table_none(t);
            }
            spw_table_text(t, c->argument ? "argument" : "temporary");
            spw_table_text(t, at_peak == 1 ? "yes" : "no");
            spw_component_print(c, formula);
            spw_table_text(t, formula);
            spw_table_text(t, c->source);
        }
    }
}

static void print_pipeline(const spw_job *job, const spw_stage *stage) {
    const spw_pipeline p = spw_pipeline_of(job);
    if (p.micro_batches == 1 && p.stages == 1) return;
    printf("%zu micro-batches", p.micro_batches);
    if (p.stages > 1)
        printf(
            "; stage %zu of %zu needs most: %zu layers in %zu, %zu forward passes in flight keep %zu layers",
            stage->index, p.stages, stage->layers, p.chunks, spw_pipeline_in_flight(&p, stage->index),
            stage->kept_layers);
    printf("\n");
}

/* Every stage of a job that says which has which layers. What could fail has been computed before, for the one that needs
 * most. */
static void print_stages(const spw_point *point) {
    const spw_pipeline p = spw_pipeline_of(point->job);
    char layout[SPW_ASSUMED_LAYOUT_TEXT];
    const bool assumed = spw_assumed_layout_note(&p, point->job, point->scheme, layout);
    spw_footprint f;
    for (size_t s = 0; s < p.stages && (p.layout != NULL || assumed); s++) {
        if (spw_footprint_of_stage(point, s, NULL, &f) != SPW_OK) return;
        printf("stage %zu: %s%zu layers, %zu with experts", s, f.stage.embedding ? "embedding, " : "",
               f.stage.layers, f.stage.moe_layers);
        if (f.stage.predictions > 0) printf(", %zu of multi-token prediction", f.stage.predictions);
        printf("%s; %.2f GiB = %.2f arguments + %.2f temporary\n", f.stage.head ? ", head" : "",
               (double)f.peak_bytes / GIB, (double)f.argument_bytes / GIB, (double)f.temporary_bytes / GIB);
    }
    if (assumed) printf("assumed: %s\n", layout);
}

static void print_finetune(const spw_job *job) {
    const spw_finetune *f = &job->finetune;
    const spw_trained_work work = spw_trained_work_of(&job->model, f, job->sequence_length);
    if (spw_finetune_is_whole(f)) return;
    printf(
        "frozen %s, lora_rank %zu: %.6g of %.6g parameters are trained; a token takes %.4g GFLOP forward and "
        "backward, %.4g with all of them trained (7.13)\n",
        spw_frozen_name(f->frozen), f->lora_rank, work.parameters,
        (double)spw_model_parameters(&job->model).total, work.finetuning / 1e9, work.full / 1e9);
}

static void print_heading(const spw_job *job, const spw_scheme *scheme, size_t sequences,
                          const spw_footprint *f) {
    char words[SPW_CLUSTER_WORDS], text[SPW_BUDGET_TEXT], room[SPW_BUDGET_TEXT + 4] = "";
    printf("%s, %s on %s (%s), expert %zu x fsdp %zu", scheme->text, job->model.name, job->cluster.name,
           spw_cluster_words(&job->cluster, words), job->expert, job->fsdp);
    spw_grid_print(job, stdout);
    printf(", %zu x %zu tokens %s, remat %s%s%s\n", sequences, job->sequence_length, spw_grid_tokens_of(job),
           spw_remat_name(job->remat), spw_offload_note(&job->offload),
           job->attention == SPW_ATTENTION_UNFUSED ? ", attention unfused" : "");
    printf("%s (%s)\n", scheme->type->about.summary, scheme->type->about.source);
    if (job->implied[0] != '\0') printf("split: %s\n", job->implied);
    spw_print_model_doubts(&job->model, "not here: ", stdout);
    print_finetune(job);
    print_pipeline(job, &f->stage);
    const spw_device_budget budget = spw_device_budget_of(job, scheme);
    if (budget.listed || budget.resident > 0.0)
        (void)snprintf(room, sizeof room, " (%s)", spw_device_budget_text(&budget, job, text));
    printf("peak %.2f GiB = %.2f arguments + %.2f temporary, of %.2f GiB%s: %s\n",
           (double)f->peak_bytes / GIB, (double)f->argument_bytes / GIB, (double)f->temporary_bytes / GIB,
           (double)f->budget_bytes / GIB, room,
           spw_verdict_text(spw_footprint_verdict(f->peak_bytes, f->budget_bytes), true));
    printf("at the %s", f->place[0] != '\0' ? f->place : spw_moment_name(f->moment));
    if (f->moment == SPW_MOMENT_MOE_LAYER && f->place[0] == '\0') printf(" (%s)", f->step);
    printf("; %s; sections are those of docs/schemes.md\n",
           f->follows_routing ? "a rank holds what it receives, here of balanced routing"
                              : "every rank allocates the same, whatever it receives");
}

/* What the rank receives on the trace, beside the buffer that is kept for it. */
typedef struct received {
    size_t rank;
    uint64_t most, records;
    double sum;
} received;

static spw_status take(void *state, const spw_replay_step *step) {
    received *r = state;
    for (size_t l = 0; l < step->layers && step->row == 0; l++) {
        const uint64_t rows = step->rows_received[l * step->ranks + r->rank];
        r->most = rows > r->most ? rows : r->most;
        r->sum += (double)rows;
        r->records++;
    }
    return SPW_OK;
}

typedef struct explained {
    const char *trace_path;
    spw_trace *trace; /* NULL without one */
    size_t rank;
    spw_software software;
    const spw_stack *newest; /* NULL: none */
    spw_footprint footprint; /* of the point added last */
    spw_newest_arena arena;  /* the same */
    char rows[256];          /* how full the rank's buffers get there on the trace */
} explained;

static spw_status describe_rows(const explained *e, const spw_explain_point *p, char *line, size_t size) {
    received r = {.rank = e->rank};
    spw_result result = {.rows = 0};
    spw_job *job = NULL;
    line[0] = '\0';
    if (e->trace == NULL) return SPW_OK;
    spw_status status = SPW_ALLOC(1, &job);
    if (status != SPW_OK) return status;
    *job = *p->job;
    job->batches = 1;
    job->sequences_per_gpu[0] = p->sequences;
    const spw_replay_request request = {
        .trace = e->trace, .job = job, .scheme = p->scheme, .schemes = 1, .seed = 1, .sink = {&r, take}};
    status = spw_replay_run(&request, &result);
    if (status == SPW_OK) {
        const spw_point point = spw_point_of(job, p->scheme, p->sequences);
        const size_t rows =
            e->footprint.follows_routing ? 0 : p->scheme->type->memory.buffer_rows(p->scheme, &point.shape);
        const int length = snprintf(line, size, "rank %zu holds %.0f rows in the mean and %llu at most",
                                    e->rank, r.sum / (double)r.records, (unsigned long long)r.most);
        const char *match = spw_match_name(result.row[0].match);
        if (rows == 0) {
            (void)snprintf(line + length, size - (size_t)length, " (%s)\n", match);
        } else {
            (void)snprintf(line + length, size - (size_t)length,
                           ", in buffers of %zu: %.1f %% used at most (%s)\n", rows,
                           100.0 * (double)r.most / (double)rows, match);
        }
    } else if ((status == SPW_EFORMAT || status == SPW_EIO) &&
               strstr(spw_last_error(), e->trace_path) == NULL) {
        status = spw_fail_within(status, "%s", e->trace_path);
    }
    spw_result_clear(&result);
    spw_free(job);
    return status;
}

static spw_status explain_live_add(void *state, const spw_explain_point *p, spw_table *table) {
    explained *e = state;
    const spw_point point = spw_point_of(p->job, p->scheme, p->sequences);
    spw_status status = SPW_OK;
    SPW_TRY(spw_scheme_check(p->scheme, &point.shape));
    SPW_TRY(spw_footprint_compute(&point, NULL, &e->footprint));
    SPW_TRY(spw_explain_bare(&point, &e->footprint));
    add_components(table, p->scheme->text, p->sequences, &e->footprint);
    SPW_TRY(spw_newest_arena_of(e->newest, p->job, p->scheme, p->sequences, &e->arena));
    SPW_TRY(describe_rows(e, p, e->rows, sizeof e->rows));

cleanup:
    return status;
}

static void print_newest(const explained *e) {
    const spw_verdict live = spw_footprint_verdict(e->footprint.peak_bytes, e->footprint.budget_bytes);
    char text[SPW_NEWEST_TEXT];
    if (!spw_newest_arena_differs(&e->arena, live)) return;
    const char *why = e->arena.peak_bytes < e->footprint.peak_bytes
                          ? "XLA computes tensors of this list again where memory is short, and may hold less"
                          : "what must be live is a lower bound";
    printf("%s; by the arena of %s, the newest stack, which plan takes by itself,\n"
           "it %s (--stack %s explains it)\n",
           why, e->arena.stack, spw_newest_arena_text(&e->arena, text), e->arena.stack);
}

static void head(void *state, const spw_explain_point *p) {
    const explained *e = state;
    const spw_point point = spw_point_of(p->job, p->scheme, p->sequences);
    print_heading(p->job, p->scheme, p->sequences, &e->footprint);
    char step[SPW_POINT_STEP_TEXT];
    if (spw_point_step_note(&point, step)) printf("pipeline: %s\n", step);
    print_stages(&point);
    print_newest(e);
    const char *sharded = spw_footprint_state_note(p->job, p->scheme),
               *loss = spw_cross_entropy_note(p->job, p->scheme);
    char precision[SPW_PRECISION_TEXT], sharers[SPW_GRID_ASSUMED_TEXT];
    if (sharded != NULL) printf("assumed: %s\n", sharded);
    if (spw_precision_assumed(p->job, precision)) printf("assumed: %s\n", precision);
    if (spw_precision_note(p->job, precision)) printf("assumed: %s\n", precision);
    if (spw_grid_assumed(p->job, sharers)) printf("assumed: %s\n", sharers);
    if (loss != NULL) printf("assumed: %s\n", loss);
    printf("%s\n", e->rows);
}

spw_status spw_explain_live(const spw_job_options *o, const char *trace_path, size_t rank) {
    spw_status status = SPW_OK;
    explained *e = NULL;
    SPW_TRY(SPW_ALLOC(1, &e));
    e->trace_path = trace_path;
    e->rank = rank;
    if (trace_path != NULL) SPW_TRY(spw_trace_open(trace_path, &e->trace));
    SPW_TRY(spw_newest_stack_read(&o->job, o->scheme, o->job.schemes, &e->software, &e->newest));
    const spw_explanation what = {columns, e, explain_live_add, head};
    SPW_TRY(spw_explain_points(o, &what));

cleanup:
    if (e != NULL) spw_trace_close(e->trace);
    spw_free(e);
    return status;
}
