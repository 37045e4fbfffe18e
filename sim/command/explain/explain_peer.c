#include "sim/command/explain/explain_parts.h"

#include "base/memory.h"
#include "sim/command/explain/explain_points.h"
#include "sim/job/grid.h"
#include "sim/job/state_law.h"
#include "sim/memory/live/footprint.h"
#include "sim/peers/peer.h"
#include "sim/replay/replay.h"
#include "sim/schemes/point.h"
#include "traces/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const spw_column columns[] = {
    {"scheme", NULL},
    {"sequences_per_gpu", NULL},
    {"planner", NULL},
    {"part", "part"},
    {"peer_bytes", "theirs GiB"},
    {"our_bytes", "ours GiB"},
    {"difference_bytes", "ours more"},
    {"peer_rows", NULL},
    {"our_rows_mean", NULL},
    {"our_rows_max", NULL},
    {"why", "why"},
    {NULL, NULL},
};

/* Ours for one scheme and batch. */
typedef struct our_side {
    spw_footprint footprint;
    double rows_mean, rows_max; /* of one rank in a MoE layer, of one micro-batch */
    double peak_bytes;
    const char *match; /* how the trace was used; NULL without one */
} our_side;

static spw_peer_part part_of(const char *name) {
    static const struct {
        const char *begins;
        spw_peer_part part;
    } parts[] = {{"weights", SPW_PEER_WEIGHTS},     {"gathered_", SPW_PEER_WEIGHTS},
                 {"gradients", SPW_PEER_GRADIENTS}, {"expert_weight_gradients", SPW_PEER_GRADIENTS},
                 {"optimizer", SPW_PEER_OPTIMIZER}, {"master_weights", SPW_PEER_OPTIMIZER}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strncmp(name, parts[i].begins, strlen(parts[i].begins)) == 0) return parts[i].part;
    return SPW_PEER_ACTIVATIONS;
}

static void split(const spw_footprint *f, double bytes[SPW_PEER_PARTS]) {
    for (int i = 0; i < SPW_PEER_PARTS; i++) bytes[i] = 0.0;
    for (size_t i = 0; i < f->components; i++) {
        const spw_component *c = &f->component[i];
        if (c->live[f->moment]) bytes[part_of(c->name)] += (double)c->bytes;
    }
}

static spw_status from_trace(const spw_job_options *o, spw_trace *trace, size_t batch, size_t scheme,
                             our_side *out) {
    spw_status status = SPW_OK;
    spw_result result = {.row = NULL};
    spw_job *job = NULL;
    SPW_TRY(SPW_ALLOC(1, &job));
    *job = o->job;
    job->batches = 1;
    job->sequences_per_gpu[0] = o->job.sequences_per_gpu[batch];
    const spw_replay_request request = {
        .trace = trace, .job = job, .scheme = &o->scheme[scheme], .schemes = 1, .seed = 1};
    SPW_TRY(spw_replay_run(&request, &result));
    const spw_result_row *row = &result.row[0];
    *out = (our_side){.footprint = row->footprint,
                      .rows_mean = row->traffic.rows_mean,
                      .rows_max = (double)row->traffic.rows_max,
                      .peak_bytes = (double)row->memory.max_bytes,
                      .match = spw_match_name(row->match)};

cleanup:
    spw_result_clear(&result);
    spw_free(job);
    return status;
}

static spw_status balanced(const spw_job_options *o, size_t batch, size_t scheme, our_side *out) {
    const spw_point point = spw_point_of(&o->job, &o->scheme[scheme], o->job.sequences_per_gpu[batch]);
    spw_status status = spw_scheme_check(point.scheme, &point.shape);
    if (status != SPW_OK) return status;
    const spw_rank_rows rows = spw_balanced_rows(point.scheme, &point.shape);
    *out = (our_side){.rows_mean = (double)rows.held, .rows_max = (double)rows.held};
    status = spw_footprint_compute(&point, NULL, &out->footprint);
    out->peak_bytes = (double)out->footprint.peak_bytes;
    return status;
}

typedef struct explained {
    const spw_job_options *options;
    const spw_peer *peer;
    spw_trace *trace;       /* NULL without one */
    spw_peer_memory theirs; /* of the point added last */
    our_side ours;
} explained;

typedef struct peer_line {
    const char *part, *why;
    double theirs, ours; /* bytes */
} peer_line;

static void add_row(spw_table *t, const explained *e, const spw_explain_point *p, const peer_line *line) {
    spw_table_text(t, p->scheme->text);
    spw_table_count(t, p->sequences);
    spw_table_text(t, e->peer->name);
    spw_table_text(t, line->part);
    spw_table_scaled(t, line->theirs, GIB, "%.2f");
    spw_table_scaled(t, line->ours, GIB, "%.2f");
    spw_table_scaled(t, line->ours - line->theirs, GIB, "%+.2f");
    spw_table_real(t, e->theirs.layer_rows, NULL);
    spw_table_real(t, e->ours.rows_mean, NULL);
    spw_table_real(t, e->ours.rows_max, NULL);
    spw_table_text(t, line->why);
}

static void add_rows(spw_table *t, const explained *e, const spw_explain_point *p) {
    const spw_job *job = &e->options->job;
    const spw_peer *peer = e->peer;
    const spw_peer_memory *m = &e->theirs;
    double bytes[SPW_PEER_PARTS], sum = 0.0;
    split(&e->ours.footprint, bytes);
    const bool sharded = spw_state_law_of(job)->shares_weights;
    for (int i = 0; i < SPW_PEER_PARTS; i++) {
        const bool split_job = !spw_grid_is_plain(job);
        char why[512];
        const bool whole = sharded && (i == SPW_PEER_WEIGHTS || i == SPW_PEER_GRADIENTS);
        (void)snprintf(why, sizeof why, "%s%s%s%s", peer->why[i], split_job ? "; " : "",
                       split_job ? peer->why_split[i] : "",
                       whole ? "; whole on every replica there, over all GPUs here" : "");
        sum += bytes[i];
        const peer_line line = {spw_peer_part_name((spw_peer_part)i), why, m->bytes[i], bytes[i]};
        add_row(t, e, p, &line);
    }
    const peer_line together = {"together", "", spw_peer_sum(m), sum},
                    reserved = {"reserved", "theirs over 0.94, for the allocator; ours reserves nothing here",
                                spw_peer_sum(m) * m->reserved, sum};
    add_row(t, e, p, &together);
    if (m->reserved > 1.0) add_row(t, e, p, &reserved);
}

static void print_heading(const spw_job_options *o, size_t batch, size_t scheme, const spw_peer *peer,
                          const spw_peer_memory *m, const our_side *ours) {
    const spw_job *job = &o->job;
    char words[SPW_CLUSTER_WORDS];
    printf("%s, %s on %s (%s), expert %zu x fsdp %zu x pipeline %zu", o->scheme[scheme].text, job->model.name,
           job->cluster.name, spw_cluster_words(&job->cluster, words), job->expert, job->fsdp, job->pipeline);
    spw_grid_print(job, stdout);
    printf(", %zu x %zu tokens %s, remat %s, optimizer %s\n", job->sequences_per_gpu[batch],
           job->sequence_length, spw_grid_tokens_of(job), spw_remat_name(job->remat),
           spw_optimizer_name(job->optimizer));
    printf("theirs: %s, restated from %s\n", peer->title, peer->source);
    printf("ours: %s", ours->match != NULL ? "on the trace, " : "balanced routing");
    if (ours->match != NULL) printf("%s", ours->match);
    if (job->pipeline > 1)
        printf("; stage %zu needs most there, stage %zu here", m->stage, ours->footprint.stage.index);
    printf("\n");
    if (m->layer_rows > 0.0) {
        printf("rows of a rank in a MoE layer: theirs %.0f; ours %.0f in the mean, %.0f at most (%.2f of "
               "theirs)\n",
               m->layer_rows, ours->rows_mean, ours->rows_max, ours->rows_max / m->layer_rows);
    } else {
        printf("rows of a rank in a MoE layer: theirs none; ours %.0f in the mean, %.0f at most\n",
               ours->rows_mean, ours->rows_max);
    }
    double scheme_bytes = 0.0;
    for (size_t i = 0; i < ours->footprint.components; i++) {
        const spw_component *c = &ours->footprint.component[i];
        if (c->live[ours->footprint.moment] && strncmp(c->name, "moe.", 4) == 0)
            scheme_bytes += (double)c->bytes;
    }
    printf("of our activations %.2f GiB are the scheme's tensors; our peak is at the %s\n",
           scheme_bytes / GIB, spw_moment_name(ours->footprint.moment));
    if (job->precision.weights != 2 || job->precision.gradients != 4 || job->precision.optimizer != 4)
        printf("theirs knows bf16 weights and fp32 moments alone; the job's precision is in ours alone\n");
    if (spw_state_law_of(job)->shares_weights)
        printf("theirs has no fully sharded state; the distributed optimizer stands for it\n");
    printf("\n");
}

static spw_status explain_peer_add(void *state, const spw_explain_point *p, spw_table *table) {
    explained *e = state;
    spw_status status = e->peer->predict(p->job, p->sequences, &e->theirs);
    if (status != SPW_OK) return spw_fail_within(status, "%s", e->peer->title);
    SPW_TRY(balanced(e->options, p->batch, p->number, &e->ours));
    if (e->trace != NULL) SPW_TRY(from_trace(e->options, e->trace, p->batch, p->number, &e->ours));
    add_rows(table, e, p);

cleanup:
    return status;
}

static void head(void *state, const spw_explain_point *p) {
    const explained *e = state;
    print_heading(e->options, p->batch, p->number, e->peer, &e->theirs, &e->ours);
}

spw_status spw_explain_peer(const spw_job_options *o, const char *name, const char *trace_path) {
    spw_status status = SPW_OK;
    explained *e = NULL;
    SPW_TRY(SPW_ALLOC(1, &e));
    e->options = o;
    SPW_TRY(spw_peer_find(name, &e->peer));
    SPW_TRY(spw_job_is_whole(&o->job, "--as"));
    if (!spw_grid_is_plain(&o->job) && e->peer->why_split[0] == NULL)
        SPW_TRY(spw_fail(SPW_ECONFIG,
                         "--as: %s's formulas with tensor and context parallelism are not restated yet; make "
                         "tensor, context and expert_tensor 1",
                         e->peer->title));
    if (trace_path != NULL) SPW_TRY(spw_trace_open(trace_path, &e->trace));
    const spw_explanation what = {columns, e, explain_peer_add, head};
    SPW_TRY(spw_explain_points(o, &what));

cleanup:
    if (e != NULL) spw_trace_close(e->trace);
    spw_free(e);
    return status;
}
