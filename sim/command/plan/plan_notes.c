#include "sim/command/plan/plan_notes.h"

#include "sim/command/job_options.h"
#include "sim/command/plan/plan_imbalance.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/replicas.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"
#include "sim/machine/stack.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/memory/live/assumed_layout.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/memory/live/megatron_notes.h"
#include "sim/print/plural.h"
#include "sim/print/table.h"
#include "sim/result/result_print.h"
#include "sim/schemes/point.h"
#include "sim/schemes/selection.h"
#include "traces/trace.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

bool spw_plan_any_timed(const spw_result *result) {
    for (size_t i = 0; i < result->rows; i++) {
        if (result->row[i].timed) return true;
    }
    return false;
}

bool spw_plan_any_drops(const spw_result *result) {
    for (size_t i = 0; i < result->rows; i++) {
        if (spw_point_drops(&result->row[i])) return true;
    }
    return false;
}

size_t spw_plan_steps(const spw_plan_view *v) { return v->result->row[0].steps; }

void spw_plan_drops_text(const spw_result_row *row, char *out, size_t size) {
    const double percent = 100.0 * row->drops.fraction;
    out[0] = '\0';
    if (!spw_point_drops(row)) return;
    const int used = snprintf(out, size, "drops %s%.2f %%", row->drops.at_least ? "at least " : "", percent);
    if (row->steps > 1 && 100.0 * row->drops.worst_fraction > percent + 0.005 && (size_t)used < size)
        (void)snprintf(out + used, size - (size_t)used, " (%.2f %% in step %lld)",
                       100.0 * row->drops.worst_fraction, (long long)row->drops.worst_step);
}

bool spw_plan_any_reserved(const spw_result *result) {
    for (size_t i = 0; i < result->rows; i++) {
        if (result->row[i].reserved.there) return true;
    }
    return false;
}

static bool any_of_kind(const spw_result *result, spw_memory_kind kind) {
    for (size_t i = 0; i < result->rows; i++) {
        if (result->row[i].memory_kind == kind) return true;
    }
    return false;
}

const char *spw_plan_routing_word(const spw_plan_view *v) {
    if (v->request->imbalance != NULL) return "stated";
    return v->traced ? "real" : "generated";
}

int spw_plan_digits(double speed) { return speed < 10.0 ? 2 : speed < 100.0 ? 1 : 0; }

/* --- Reasons, each once --- */

enum { REASONS = 24, INDENT = 10 };

typedef struct reasons {
    char text[REASONS][SPW_OUTSIDE_TEXT];
    size_t count;
} reasons;

static void add_reason(reasons *list, const char *text, size_t length) {
    char *last = list->text[list->count < REASONS ? list->count : REASONS - 1];
    if (list->count == REASONS || length == 0) return;
    (void)snprintf(last, SPW_OUTSIDE_TEXT, "%.*s", (int)length, text);
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->text[i], last) == 0) return;
    }
    list->count++;
}

static void print_reasons(const char *what, const reasons *list, FILE *out) {
    fprintf(out, "%-*s", INDENT, what);
    for (size_t i = 0; i < list->count; i++) fprintf(out, "%s%s", i > 0 ? "; " : "", list->text[i]);
    fprintf(out, "\n");
}

/* Which points cannot be, whose state is taken as sharded, what the coefficients were not fitted on, and which points have no time. */
static void print_limits(const spw_plan_view *v, FILE *out) {
    reasons position = {.count = 0}, keys = {.count = 0}, outside = {.count = 0}, untimed = {.count = 0},
            refused = {.count = 0}, state = {.count = 0};
    for (size_t i = 0; i < v->result->refusals; i++) {
        const spw_refusal *refusal = &v->result->refusal[i];
        char text[SPW_OUTSIDE_TEXT];
        const int length = snprintf(text, sizeof text, "EP %zu: %.200s", refusal->expert, refusal->reason);
        add_reason(&refused, text, (size_t)length);
    }
    for (size_t i = 0; i < v->result->rows; i++) {
        const spw_result_row *row = &v->result->row[i];
        const char *why = spw_plan_no_time(v->request, row);
        const char *sharded = spw_footprint_state_note(v->request->job, &row->scheme),
                   *loss = spw_cross_entropy_note(v->request->job, &row->scheme);
        char text[SPW_BY_POSITION_TEXT];
        char share[SPW_SHARE_TEXT];
        if (row->memory_kind == SPW_MEMORY_ARENA && v->request->stack != NULL &&
            spw_compiled_share_note(v->request->stack, v->request->job, share))
            add_reason(&position, share, strlen(share));
        if (spw_selection_note(&row->scheme, v->settings->trace->has_weights, text))
            add_reason(&position, text, strlen(text));
        char replicas[SPW_REPLICAS_TEXT];
        if (why != NULL && spw_replicas_note(v->request->job, replicas))
            add_reason(&position, replicas, strlen(replicas));
        if (loss != NULL && v->details) add_reason(&position, loss, strlen(loss));
        const char *note = NULL;
        for (size_t n = 0; (note = spw_megatron_note(v->request->job, &row->scheme, n)) != NULL; n++)
            add_reason(&keys, note, strlen(note));
        if (sharded != NULL) add_reason(&state, sharded, strlen(sharded));
        for (size_t j = 0; j < row->outside_fit.count; j++) {
            const char *feature = row->outside_fit.item[j].feature;
            add_reason(&outside, feature, strlen(feature));
        }
        if (why != NULL) add_reason(&untimed, why, strlen(why));
    }
    if (refused.count > 0) print_reasons("cannot be", &refused, out);
    if (state.count > 0) print_reasons("state", &state, out);
    if (position.count > 0) print_reasons("assumed", &position, out);
    if (keys.count > 0) print_reasons("keys", &keys, out);
    if (outside.count > 0) print_reasons("outside the fit: ", &outside, out);
    if (untimed.count > 0) print_reasons("no times", &untimed, out);
}

/* --- The heading --- */

/* How many points have which evidence, and how many sentences say what was assumed. */
static void print_evidence(const spw_result *result, FILE *out) {
    size_t rows[SPW_MATCH_COUNT] = {0};
    for (size_t i = 0; i < result->rows; i++) rows[result->row[i].match]++;
    fprintf(out, "; evidence:");
    for (int match = 0; match < SPW_MATCH_COUNT; match++) {
        if (rows[match] > 0) fprintf(out, " %zu %s", rows[match], spw_match_name((spw_match)match));
    }
    fprintf(out, " (what is assumed: --format json)");
}

static void print_software(const spw_plan_view *v, FILE *out) {
    const bool arena = any_of_kind(v->result, SPW_MEMORY_ARENA), timed = spw_plan_any_timed(v->result);
    if (v->settings->stack == NULL) return;
    if (!arena && !timed) {
        fprintf(out, "software  %s: it says nothing of these points\n", v->settings->stack);
        return;
    }
    fprintf(out, "software  %s: %s%s%s by its coefficients\n", v->settings->stack,
            arena ? "memory of compiled programs" : "", arena && timed ? " and " : "",
            timed ? "step times" : "");
    if (v->settings->stack_distance[0] != '\0') fprintf(out, "          %s\n", v->settings->stack_distance);
}

/* Of the point that is fastest, or else needs least. */
static void print_stages(const spw_plan_view *v, FILE *out) {
    const spw_result_answers *a = &v->result->answers;
    const size_t i = a->fastest != SPW_NO_ROW ? a->fastest : a->least_memory;
    char text[SPW_STAGES_TEXT], layout[SPW_ASSUMED_LAYOUT_TEXT];
    if (!a->there || i >= v->result->rows || v->result->row[i].stages == 0) return;
    fprintf(out, "stages    %s, %zu sequences: %s\n", v->result->row[i].scheme.text,
            v->result->row[i].sequences, spw_result_stages_text(&v->result->row[i], text));
    const spw_pipeline pipeline = spw_pipeline_of(v->request->job);
    if (spw_assumed_layout_note(&pipeline, v->request->job, &v->result->row[i].scheme, layout))
        fprintf(out, "layout    %s\n", layout);
}

/* Without a draw, of generated routing: of the point that is fastest, or else needs least. */
static void print_expected(const spw_plan_view *v, FILE *out) {
    const spw_result_answers *a = &v->result->answers;
    const size_t i = a->fastest != SPW_NO_ROW ? a->fastest : a->least_memory;
    if (!a->there || i >= v->result->rows || !v->result->row[i].expected.there) return;
    const spw_result_row *r = &v->result->row[i];
    const spw_expected_routing *e = &r->expected;
    const bool drops = isfinite(e->drop_fraction), spread = r->expert > 1;
    if (!drops && !spread) return;
    fprintf(out, "expected  %s, EP %zu, %zu sequence%s: ", r->scheme.text, r->expert, r->sequences,
            spw_plural(r->sequences));
    if (spread)
        fprintf(
            out,
            "a micro-batch chooses a GPU's experts %.0f times in a layer (+- %.0f by chance), the fullest of "
            "its group %.0f times; a token reaches %.2f other GPUs",
            e->rows_mean, e->rows_deviation, e->rows_fullest, e->other_ranks);
    if (spread && e->other_nodes > 0.0) fprintf(out, ", %.2f other nodes", e->other_nodes);
    if (drops)
        fprintf(out, "%sa step drops %.4g %% (+- %.2g)", spread ? "; " : "", 100.0 * e->drop_fraction,
                100.0 * e->drop_deviation);
    fprintf(out, "\n");
}

/* The same point in the other set of formats that people use. */
static void print_other_precision(const spw_plan_view *v, FILE *out) {
    const spw_plan_other_precision *o = &v->tries->other;
    char span[64] = "";
    if (o->name == NULL) return;
    const spw_result_row *r = &v->result->row[o->row];
    if (o->low_bytes < o->high_bytes)
        (void)snprintf(span, sizeof span, " (%.1f to %.1f)", (double)o->low_bytes / GIB,
                       (double)o->high_bytes / GIB);
    fprintf(out, "formats   %s, EP %zu, %zu sequence%s: %.1f GiB, %s; with --precision %s %.1f GiB%s, %s\n",
            r->scheme.text, r->expert, r->sequences, spw_plural(r->sequences),
            (double)r->memory.max_bytes / GIB,
            spw_verdict_text(spw_result_verdict(r), spw_point_is_live_alone(r)), o->name,
            (double)o->bytes / GIB, span, spw_verdict_text(o->verdict, o->live_alone));
}

/* The memory by the release that an install of today brings, where it is not the one that the plan assumes. */
static void print_later(const spw_plan_view *v, FILE *out) {
    const spw_plan_later *l = &v->tries->later;
    if (!l->arena.there) return;
    const spw_result_row *r = &v->result->row[l->row];
    fprintf(out,
            "software  %s is assumed, as no --stack was named. With %s, a later release, %s, EP %zu, %zu "
            "sequence%s takes %.1f GiB (%.1f to %.1f), %s; it is %.1f here. %zu of %zu points differ by more "
            "than their interval\n",
            v->request->stack->name, l->arena.stack, r->scheme.text, r->expert, r->sequences,
            spw_plural(r->sequences), (double)l->arena.peak_bytes / GIB, (double)l->arena.low_bytes / GIB,
            (double)l->arena.high_bytes / GIB, spw_verdict_text(l->arena.verdict, false),
            (double)r->memory.max_bytes / GIB, l->points, v->result->rows);
}

/* What a global batch leaves, and what nobody may have meant: one micro-batch of many sequences, an adapter beside a base that is
 * trained. */
static void print_batch(const spw_job *job, FILE *out) {
    size_t most = 0;
    for (size_t i = 0; i < job->batches; i++)
        most = job->sequences_per_gpu[i] > most ? job->sequences_per_gpu[i] : most;
    if (job->global_batch > 0)
        fprintf(out, "batch     %zu sequences of all GPUs in a step, %zu of %s\n", job->global_batch,
                job->sequences_per_gpu[0],
                job->pipeline > 1 ? "a data-parallel rank" : spw_grid_tokens_of(job));
    if (job->micro_batches <= 1 && most > 1 && spw_state_is_megatron(job))
        fprintf(out,
                "%-*sall of a step in one micro-batch; recipes of Megatron-Core take 1 or 2 sequences each: "
                "--micro-batches %zu\n",
                INDENT, job->global_batch > 0 ? "" : "batch", most);
    if (job->finetune.lora_rank > 0 && job->finetune.frozen == SPW_FROZEN_NONE)
        fprintf(out,
                "finetune  adapters of rank %zu beside a base that is trained, too; LoRA freezes it: --set "
                "finetune.frozen=base\n",
                job->finetune.lora_rank);
}

/* What MaxText's pipeline runs in a step, of the point that is fastest, or else of the first; its loop is no 1F1B. */
static bool print_step(const spw_plan_view *v, FILE *out) {
    const spw_result_answers *a = &v->result->answers;
    const bool fastest = a->there && a->fastest != SPW_NO_ROW && a->fastest < v->result->rows;
    char text[SPW_POINT_STEP_TEXT];
    if (v->result->rows == 0) return false;
    const spw_result_row *r = &v->result->row[fastest ? a->fastest : 0];
    const spw_point point = spw_point_of(v->request->job, &r->scheme, r->sequences);
    if (!spw_point_step_note(&point, text)) return false;
    fprintf(out, "pipeline  %s\n", text);
    return true;
}

/* The expert-parallel size that a plan takes by itself: the largest of a node's GPUs that divides experts and GPUs. */
static void print_split(const spw_plan_view *v, FILE *out) {
    const spw_result_row *r = &v->result->row[0];
    const spw_cluster *c = &v->request->job->cluster;
    if (!v->split_unsaid || spw_job_gpus(v->request->job) == 1) return;
    fprintf(out, "split     EP %zu, as nobody said otherwise", r->expert);
    const size_t gpus = spw_job_gpus(v->request->job), node = c->gpus_per_node,
                 part = node / r->expert * r->expert; /* GPUs of a node in whole groups */
    if (r->straddling > 0)
        fprintf(out, "; %zu of %zu groups straddle nodes of %zu GPUs, which costs time", r->straddling,
                r->groups, node);
    else
        fprintf(out, "; others: --expert-parallel all, with pipeline stages too: --search");
    if (r->straddling > 0 && part > 0)
        fprintf(out, ": --cluster %.*s:%zux%zu has whole groups", (int)strcspn(c->name, "-"), c->name, part,
                gpus % part == 0 ? gpus / part : c->nodes);
    fprintf(out, "\n");
}

/* The layout without which Megatron-Core refuses the job, of the point that is fastest, or else needs least. */
static void print_layout(const spw_plan_view *v, FILE *out) {
    const spw_result_answers *a = &v->result->answers;
    const size_t i = a->fastest != SPW_NO_ROW ? a->fastest : a->least_memory;
    const spw_pipeline pipeline = spw_pipeline_of(v->request->job);
    char layout[SPW_LAYOUT_TEXT];
    if (!a->there || i >= v->result->rows) return;
    if (spw_assumed_layout(&pipeline, v->request->job, &v->result->row[i].scheme, layout))
        fprintf(out, "layout    needed, as the layers do not divide: --pipeline-model-parallel-layout '%s'\n",
                layout);
}

/* What the trace that was named cannot say of the job. */
static void print_trace(const spw_plan_view *v, FILE *out) {
    reasons list = {.count = 0};
    for (size_t i = 0; v->given && i < v->result->rows; i++) {
        const spw_assumptions *a = &v->result->row[i].assumptions;
        for (size_t j = 0; j < a->count; j++)
            if (strstr(a->text[j], "the trace") != NULL) add_reason(&list, a->text[j], strlen(a->text[j]));
    }
    if (list.count > 0) print_reasons("trace", &list, out);
}

/* What published runs of large models do with their pipelines, and no figure has. */
static void print_schedule(const spw_job *job, FILE *out) {
    if (job->pipeline <= 1 || job->virtual_stages > 1 || job->schedule != SPW_SCHEDULE_ONE_F_ONE_B) return;
    fprintf(out,
            "schedule  1F1B; --virtual-stages shortens its bubble; DualPipe and zero-bubble schedules are "
            "not modelled\n");
}

void spw_plan_print_doubts(const spw_plan_view *v, FILE *out) {
    const spw_job *job = v->request->job;
    char precision[SPW_PRECISION_TEXT];
    spw_result_print_precision(job, out);
    spw_result_print_split(job, out);
    if (spw_precision_note(job, precision)) fprintf(out, "%-*s%s\n", INDENT, "", precision);
    spw_print_model_doubts(&job->model, "model     ", out);
    if (!v->details) print_layout(v, out);
    if (!print_step(v, out)) print_schedule(job, out);
    print_batch(job, out);
    if (v->schemes_unsaid && spw_scheme_trainer(&v->request->scheme[0])->takes_splits)
        fprintf(out, "schemes   Megatron-Core's, as nobody named one; MaxText's: --scheme gmm\n");
    else if (v->schemes_unsaid)
        fprintf(out,
                "schemes   MaxText's, as nobody named one; Megatron-Core's: --scheme megatron-alltoall\n");
    print_split(v, out);
    if (v->batch_unsaid)
        fprintf(out, "batch     1 sequence a GPU, as nobody said otherwise; more may be much faster: "
                     "--sequences-per-gpu 1,2,4,8,16,32\n");
    fprintf(out, "routing   %s\n", v->routing);
    spw_stated_print(v->request->imbalance, spw_job_gpus(job), out);
    print_trace(v, out);
    if (!v->details && v->settings->stack_distance[0] != '\0')
        fprintf(out, "software  %s\n", v->settings->stack_distance);
    print_later(v, out);
    print_limits(v, out);
}

void spw_plan_print_heading(const spw_plan_view *v, FILE *out) {
    size_t live = 0;
    char fit[SPW_FIT_COUNTS];
    for (size_t i = 0; i < v->result->rows; i++) {
        const spw_result_row *row = &v->result->row[i];
        live += spw_point_fits(row) && spw_point_is_live_alone(row);
    }
    spw_plan_print_doubts(v, out);
    print_other_precision(v, out);
    print_software(v, out);
    if (spw_plan_any_drops(v->result))
        fprintf(out,
                "drops     at most %g %% of the assignments in what is called fastest (--drop-at-most)\n",
                100.0 * v->result->answers.drop_most);
    fprintf(out, "points    %zu, %s", v->result->rows, spw_fit_counts_text(v->result, fit));
    if (live > 0) fprintf(out, " (%zu by what must be live alone)", live);
    print_evidence(v->result, out);
    fprintf(out, "\n");
    print_stages(v, out);
    print_expected(v, out);
    spw_result_print_newest(v->result, out);
    fprintf(out, "\n");
}

/* How far the speeds of a scheme may be off; "" without a time. */
static void describe_intervals(const spw_result *result, const char *scheme, char *out, size_t size) {
    double less = 0.0, more = 0.0;
    bool timed = false;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *r = &result->row[i];
        if (!r->timed || strcmp(r->scheme.text, scheme) != 0) continue;
        less = fmax(less, 1.0 - r->tokens_per_s_low / r->time.tokens_per_s_per_gpu);
        more = fmax(more, r->tokens_per_s_high / r->time.tokens_per_s_per_gpu - 1.0);
        timed = true;
    }
    out[0] = '\0';
    if (timed) (void)snprintf(out, size, "-%.1f to +%.1f %%", 100.0 * less, 100.0 * more);
}

/* The intervals of the table of speeds: schemes of the same widest interval stand together. */
static void print_intervals(const spw_plan_view *v, FILE *out) {
    const spw_plan_request *q = v->request;
    char own[48], other[48];
    for (size_t s = 0; s < q->schemes; s++) {
        bool said = false;
        describe_intervals(v->result, q->scheme[s].text, own, sizeof own);
        for (size_t o = 0; o < s && !said; o++) {
            describe_intervals(v->result, q->scheme[o].text, other, sizeof other);
            said = strcmp(own, other) == 0;
        }
        if (own[0] == '\0' || said) continue;
        fprintf(out, "intervals of tokens/s: at most %s (%s", own, q->scheme[s].text);
        for (size_t o = s + 1; o < q->schemes; o++) {
            describe_intervals(v->result, q->scheme[o].text, other, sizeof other);
            if (strcmp(own, other) == 0) fprintf(out, ", %s", q->scheme[o].text);
        }
        fprintf(out, ")\n");
    }
}

/* Is there a cell without a speed, whose GiB are marked? `reserved`: with r, otherwise with *. */
static bool any_marked(const spw_plan_view *v, bool reserved) {
    for (size_t i = 0; i < v->result->rows; i++) {
        const spw_result_row *r = &v->result->row[i];
        const bool replayed = r->reserved.there && spw_point_fits(r);
        if (r->timed && spw_point_fits(r)) continue;
        if (reserved ? replayed : !replayed && r->memory_kind == SPW_MEMORY_LIVE) return true;
    }
    return false;
}

void spw_plan_print_legend(const spw_plan_view *v, FILE *out) {
    if (v->details) print_intervals(v, out);
    if (v->details ? any_of_kind(v->result, SPW_MEMORY_LIVE) : any_marked(v, false))
        fprintf(out,
                "*: what must be live; what PyTorch's allocator reserves%s or a compiler adds comes on top\n",
                (v->details ? spw_plan_any_reserved(v->result) : any_marked(v, true)) ? " (r)" : "");
    if (v->details ? spw_plan_any_reserved(v->result) : any_marked(v, true))
        fprintf(out,
                "r: what PyTorch's allocator reserves over the steps, replayed on %s; it fits when no "
                "step runs out\n",
                v->request->every_rank ? "every rank" : "the fullest ranks");
    if (v->allocator && !spw_plan_any_reserved(v->result))
        fprintf(out, "allocator: nothing to replay; it is for schemes of PyTorch\n");
}
