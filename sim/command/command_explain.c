#include "sim/command/command.h"

#include "base/memory.h"
#include "sim/command/explain_bare.h"
#include "sim/command/explain_compiled.h"
#include "sim/command/explain_peer.h"
#include "sim/command/explain_traffic.h"
#include "sim/command/job_options.h"
#include "sim/memory/footprint.h"
#include "sim/replay/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_TRACE = SPW_OPTION_OWN, OPTION_RANK, OPTION_STACK, OPTION_TRAFFIC, OPTION_AS };

static const double GIB = 1024.0 * 1024.0 * 1024.0;

typedef struct explain_options {
    spw_job_options job;
    const char *trace_path, *rank, *stack, *peer;
    bool traffic;
} explain_options;

static const struct argp_option own_options[] = {
    {"trace", OPTION_TRACE, "FILE.h5", 0, "say also what the rank receives on this trace", 0},
    {"rank", OPTION_RANK, "N", 0, "the rank to explain (default: 0)", 0},
    {"stack", OPTION_STACK, "NAME|FILE", 0,
     "the memory that XLA needs, by the coefficients of this stack, instead of what must be live", 0},
    {"as", OPTION_AS, "PLANNER", 0, "what the formulas of simumax, primus or megatron say, beside ours", 0},
    {"traffic", OPTION_TRAFFIC, NULL, 0, "every collective of a step instead of the memory", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
    explain_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->job; return 0;
    case OPTION_TRACE: o->trace_path = text; return 0;
    case OPTION_RANK: o->rank = text; return 0;
    case OPTION_STACK: o->stack = text; return 0;
    case OPTION_AS: o->peer = text; return 0;
    case OPTION_TRAFFIC: o->traffic = true; return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not expected; a trace is named with --trace", text);
        return EINVAL;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&spw_job_argp, 0, NULL, 0}, {0}};
static const struct argp argp = {
    .options = own_options,
    .parser = parse,
    .args_doc = "--job JOB.yaml --scheme S [--trace TRACE.h5 --rank N]",
    .doc = "Where every byte of a rank's peak comes from: each component with its formula and its source.",
    .children = children,
};

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
            spw_table_text(t, c->formula);
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

static void print_heading(const spw_job *job, const spw_scheme *scheme, size_t sequences,
                          const spw_footprint *f) {
    printf("%s, %s on %s, expert %zu x fsdp %zu, %zu x %zu tokens a GPU, remat %s\n", scheme->text,
           job->model.name, job->cluster.name, job->expert, job->fsdp, sequences, job->sequence_length,
           spw_remat_name(job->remat));
    printf("%s (%s)\n", scheme->type->summary, scheme->type->source);
    print_pipeline(job, &f->stage);
    printf("peak %.2f GiB = %.2f arguments + %.2f temporary, of %.2f GiB: %s\n", (double)f->peak_bytes / GIB,
           (double)f->argument_bytes / GIB, (double)f->temporary_bytes / GIB, (double)f->budget_bytes / GIB,
           spw_verdict_name(spw_footprint_verdict(f->peak_bytes, f->budget_bytes)));
    printf("at the %s", f->place[0] != '\0' ? f->place : spw_moment_name(f->moment));
    if (f->moment == SPW_MOMENT_MOE_LAYER && f->place[0] == '\0') printf(" (%s)", f->live_set.backward_step);
    const spw_layer_shape shape = spw_layer_shape_of(job, sequences);
    printf("; %s; sections are those of docs/schemes.md\n",
           spw_scheme_is_dynamic(scheme, &shape) ? "a rank holds what it receives, here of balanced routing"
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

/* *line says how full the buffers of `rank` get on the trace. */
static spw_status describe_rows(const explain_options *o, spw_trace *trace, size_t rank, size_t scheme,
                                size_t sequences, char *line, size_t size) {
    received r = {.rank = rank};
    spw_result result = {.rows = 0};
    spw_job *job = NULL;
    line[0] = '\0';
    if (trace == NULL) return SPW_OK;
    spw_status status = SPW_ALLOC(1, &job);
    if (status != SPW_OK) return status;
    *job = o->job.job;
    job->batches = 1;
    job->sequences_per_gpu[0] = sequences;
    const spw_replay_request request = {.trace = trace,
                                        .job = job,
                                        .scheme = &o->job.scheme[scheme],
                                        .schemes = 1,
                                        .seed = 1,
                                        .sink = {&r, take}};
    status = spw_replay_run(&request, &result);
    if (status == SPW_OK) {
        const spw_layer_shape shape = spw_layer_shape_of(job, sequences);
        const spw_scheme *used = &o->job.scheme[scheme];
        const size_t rows = spw_scheme_is_dynamic(used, &shape) ? 0 : used->type->buffer_rows(used, &shape);
        const int length = snprintf(line, size, "rank %zu holds %.0f rows in the mean and %llu at most", rank,
                                    r.sum / (double)r.records, (unsigned long long)r.most);
        const char *match = spw_match_name(result.row[0].match);
        if (rows == 0) {
            (void)snprintf(line + length, size - (size_t)length, " (%s)\n", match);
        } else {
            (void)snprintf(line + length, size - (size_t)length,
                           ", in buffers of %zu: %.1f %% used at most (%s)\n", rows,
                           100.0 * (double)r.most / (double)rows, match);
        }
    } else if ((status == SPW_EFORMAT || status == SPW_EIO) &&
               strstr(spw_last_error(), o->trace_path) == NULL) {
        status = spw_fail_within(status, "%s", o->trace_path);
    }
    spw_result_clear(&result);
    spw_free(job);
    return status;
}

spw_status spw_command_explain(int argc, char **argv) {
    spw_status status = SPW_OK;
    explain_options *o = NULL;
    spw_footprint *f = NULL;
    spw_table *table = NULL;
    spw_trace *trace = NULL;
    uint64_t rank = 0;
    SPW_TRY(SPW_ALLOC(1, &o));
    SPW_TRY(SPW_ALLOC(1, &f));
    SPW_TRY(spw_command_parse(&argp, argc, argv, o));
    SPW_TRY(spw_job_options_finish(&o->job));
    if (o->peer != NULL) {
        status =
            o->rank != NULL || o->stack != NULL || o->traffic
                ? spw_fail(SPW_EARG, "--as goes with --trace alone, not with --rank, --stack or --traffic")
                : spw_explain_peer(&o->job, o->peer, o->trace_path);
        goto cleanup;
    }
    if (o->traffic) {
        status =
            o->trace_path != NULL || o->rank != NULL || o->stack != NULL
                ? spw_fail(SPW_EARG, "--traffic does not go with --trace, --rank or --stack; replay counts "
                                     "the exchanges of a trace")
                : spw_explain_traffic(&o->job);
        goto cleanup;
    }
    if (o->stack != NULL) {
        status =
            o->trace_path != NULL || o->rank != NULL
                ? spw_fail(SPW_EARG, "--stack does not go with --trace or --rank; every rank needs the same")
                : spw_explain_compiled(&o->job, o->stack);
        goto cleanup;
    }
    const spw_job *job = &o->job.job;
    if (o->rank != NULL) SPW_TRY(spw_parse_count("--rank", o->rank, job->expert * job->fsdp - 1, &rank));
    if (o->rank != NULL && o->trace_path == NULL)
        SPW_TRY(spw_fail(SPW_EARG, "--rank needs --trace: without a trace every rank holds the same"));
    if (o->trace_path != NULL) SPW_TRY(spw_trace_open(o->trace_path, &trace));
    SPW_TRY(spw_table_create(columns, &table));
    for (size_t b = 0; b < job->batches; b++) {
        for (size_t s = 0; s < job->schemes; s++) {
            const spw_layer_shape shape = spw_layer_shape_of(job, job->sequences_per_gpu[b]);
            SPW_TRY(spw_scheme_check(&o->job.scheme[s], &shape));
            spw_footprint_compute(job, &o->job.scheme[s], job->sequences_per_gpu[b], NULL, f);
            SPW_TRY(spw_explain_bare(job, &o->job.scheme[s], job->sequences_per_gpu[b], f));
            add_components(table, o->job.scheme[s].text, job->sequences_per_gpu[b], f);
            char rows[256];
            SPW_TRY(describe_rows(o, trace, rank, s, job->sequences_per_gpu[b], rows, sizeof rows));
            if (o->job.format != SPW_FORMAT_TABLE) continue;
            print_heading(job, &o->job.scheme[s], job->sequences_per_gpu[b], f);
            printf("%s\n", rows);
            SPW_TRY(spw_table_print(table, SPW_FORMAT_TABLE, stdout));
            if (s + 1 < job->schemes || b + 1 < job->batches) printf("\n");
            spw_table_destroy(table);
            table = NULL;
            SPW_TRY(spw_table_create(columns, &table));
        }
    }
    if (o->job.format != SPW_FORMAT_TABLE) SPW_TRY(spw_table_print(table, o->job.format, stdout));

cleanup:
    spw_table_destroy(table);
    spw_trace_close(trace);
    spw_free(f);
    spw_free(o);
    return status;
}
