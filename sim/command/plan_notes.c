#include "sim/command/plan_notes.h"

#include "sim/command/job_options.h"
#include "sim/command/plan_balanced.h"
#include "sim/command/plan_brief.h"
#include "sim/command/plan_imbalance.h"
#include "sim/input/grid.h"
#include "sim/input/job.h"
#include "sim/input/precision.h"
#include "sim/input/remat.h"
#include "sim/memory/advice.h"
#include "sim/memory/assumed_layout.h"
#include "sim/memory/cross_entropy.h"
#include "sim/memory/footprint_check.h"
#include "sim/memory/launches.h"
#include "sim/memory/megatron_notes.h"
#include "sim/print/plural.h"
#include "sim/print/table.h"
#include "sim/replay/plan_answers.h"
#include "sim/replay/result_print.h"
#include "sim/replay/row_cost_print.h"
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
        if (spw_selection_note(&row->scheme, v->settings->trace->has_weights, text))
            add_reason(&position, text, strlen(text));
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
    if (job->micro_batches <= 1 && most > 1 && job->optimizer != SPW_OPTIMIZER_SHARDED &&
        job->part == SPW_PART_WHOLE)
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

void spw_plan_print_doubts(const spw_plan_view *v, FILE *out) {
    const spw_job *job = v->request->job;
    char precision[SPW_PRECISION_TEXT];
    spw_result_print_precision(job, out);
    spw_result_print_split(job, out);
    if (spw_precision_note(job, precision)) fprintf(out, "%-*s%s\n", INDENT, "", precision);
    spw_print_model_doubts(&job->model, "model     ", out);
    if (!v->details) print_layout(v, out);
    print_batch(job, out);
    if (v->batch_unsaid)
        fprintf(out, "batch     1 sequence a GPU, as nobody said otherwise; more may be much faster: "
                     "--sequences-per-gpu 1,2,4,8,16,32\n");
    fprintf(out, "routing   %s\n", v->routing);
    spw_stated_print(v->request->imbalance, spw_job_gpus(job), out);
    print_trace(v, out);
    if (!v->details && v->settings->stack_distance[0] != '\0')
        fprintf(out, "software  %s\n", v->settings->stack_distance);
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

/* --- Answers --- */

enum { POINT_NAME = SPW_SCHEME_TEXT + 64, ANSWER = 19 };

static const char *point_name(const spw_result_row *r, char name[POINT_NAME]) {
    (void)snprintf(name, POINT_NAME, "%s, EP %zu, %zu sequence%s", r->scheme.text, r->expert, r->sequences,
                   spw_plural(r->sequences));
    return name;
}

/* "972 tokens/s a GPU (949 to 996)" */
static void print_speed(double speed, double low, double high, FILE *out) {
    char text[SPW_SPAN_TEXT];
    fprintf(out, "%.*f tokens/s a GPU (%s)", spw_plan_digits(speed), speed,
            spw_span_text(low, high, " to ", text));
}

static void print_row_speed(const spw_result_row *r, FILE *out) {
    print_speed(r->time.tokens_per_s_per_gpu, r->tokens_per_s_low, r->tokens_per_s_high, out);
}

static void print_seconds(const spw_step_span *span, FILE *out) {
    char step[SPW_SPAN_TEXT], interval[SPW_SPAN_TEXT];
    fprintf(out, "%s s (%s)", spw_figure_text(span->step_s, step),
            spw_span_text(span->low_s, span->high_s, " to ", interval));
}

static void print_cost(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const spw_row_cost cost = spw_row_cost_of(r, v->request->job, v->settings->tokens);
    spw_row_cost_lines(&cost, v->settings->tokens, ANSWER, out);
}

static void print_point(const char *what, const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const spw_step_span span = {r->time.step_s, r->time.low_s, r->time.high_s};
    char name[POINT_NAME], drops[64];
    fprintf(out, "%-18s %s: ", what, point_name(r, name));
    print_row_speed(r, out);
    fprintf(out, ", step ");
    print_seconds(&span, out);
    spw_plan_drops_text(r, drops, sizeof drops);
    fprintf(out, ", %.1f GiB%s%s%s%s\n", (double)r->memory.max_bytes / GIB,
            spw_point_is_live_alone(r) ? " live" : "", drops[0] != '\0' ? ", " : "", drops,
            r->outside_fit.count > 0 ? " (outside the fit)" : "");
    print_cost(v, r, out);
    if (v->even) return;
    const spw_balanced_figures balanced = spw_result_balanced(r);
    spw_plan_print_balanced(&balanced, ANSWER, out);
}

/* Live, reserved with its interval, outside and the GPU's own; a lower bound has no other end. */
static void print_room(const spw_result_row *r, FILE *out) {
    fprintf(out, "%-18s ", "");
    spw_plan_print_room(r, out);
}

static bool any_timed_fits(const spw_result *result) {
    for (size_t i = 0; i < result->rows; i++)
        if (result->row[i].timed && spw_point_fits(&result->row[i])) return true;
    return false;
}

/* A point that is faster than the fastest that fits, and need not fit. */
static void print_tight(const spw_plan_view *v, const spw_result_row *best, double most, FILE *out) {
    const spw_result_row *r = spw_result_fastest_tight(v->result, most);
    char name[POINT_NAME];
    if (r == NULL || r->time.tokens_per_s_per_gpu <= best->time.tokens_per_s_per_gpu) return;
    fprintf(out, "%-18s faster is %s: ", "", point_name(r, name));
    print_row_speed(r, out);
    fputc('\n', out);
    print_room(r, out);
    fputc('\n', out);
}

/* The fastest, how sure it is to fit, and the fastest that surely fits when that is another point. */
static void print_choice(const char *what, const spw_plan_view *v, size_t best, size_t surely, double most,
                         FILE *out) {
    const spw_result_row *r = spw_result_row_at(v->result, best),
                         *sure = spw_result_row_at(v->result, surely);
    if (r == NULL) {
        fprintf(out, "%-18s ", what);
        if (!any_timed_fits(v->result))
            fprintf(out, "no point with a time fits\n");
        else if (most > 0.0)
            fprintf(out, "none of the points that fit drops at most %g %%\n", 100.0 * most);
        else
            fprintf(out, "every point that fits drops some\n");
        return;
    }
    print_point(what, v, r, out);
    if (r->reserved.there || spw_result_verdict(r) == SPW_VERDICT_TIGHT || r != sure) {
        print_room(r, out);
        fprintf(out, "%s", r == sure ? "\n" : ";\n");
    }
    if (r == sure) print_tight(v, r, most, out);
    if (r == sure) return;
    if (sure == NULL) {
        fprintf(out, "%-18s no point surely fits\n", "");
        return;
    }
    char drops[64], name[POINT_NAME];
    spw_plan_drops_text(sure, drops, sizeof drops);
    fprintf(out, "%-18s the fastest that surely fits is %s: ", "", point_name(sure, name));
    print_row_speed(sure, out);
    fprintf(out, "%s%s%s\n", drops[0] != '\0' ? ", " : "", drops,
            sure->outside_fit.count > 0 ? " (outside the fit)" : "");
}

/* A scheme that would be faster but drops more than may be dropped, and what it needs to stay within that. */
static void print_need(const spw_plan_view *v, const spw_plan_need *n, FILE *out) {
    const spw_result_row *r = &v->result->row[n->row];
    char drops[64], name[POINT_NAME];
    spw_plan_drops_text(r, drops, sizeof drops);
    const double most = v->result->answers.drop_most;
    fprintf(out, "%-18s %s: ", "drops too much", point_name(r, name));
    print_row_speed(r, out);
    fprintf(out, ", but %s; ", drops);
    if (n->option == NULL) {
        fprintf(out, "it has no factor to raise\n");
    } else if (!(n->factor > 0.0)) {
        fprintf(out, "no %s brings it to %g %%\n", n->option, 100.0 * most);
    } else {
        fprintf(out, "within %g %% %s %s=%g, ", 100.0 * most, r->drops.at_least ? "not before" : "from",
                n->option, n->factor);
        if (!n->fits) {
            fprintf(out, "where it needs %.0f GiB and does not fit\n", (double)n->bytes / GIB);
        } else if (n->timed) {
            fprintf(out, "at ");
            print_speed(n->tokens_per_s_per_gpu, n->tokens_per_s_low, n->tokens_per_s_high, out);
            fprintf(out, "\n");
        } else {
            fprintf(out, "without a time\n");
        }
    }
}

/* The routing of the plan over balanced routing, in the mean over the steps and in the worst of them. */
static void print_ratio(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const spw_ratio ratio = spw_result_row_ratio(r);
    char label[32];
    (void)snprintf(label, sizeof label, "%s %s", spw_plan_routing_word(v),
                   v->request->imbalance != NULL ? "imbalance" : "routing");
    fprintf(out, "%-18s %s takes %.3f times (%.3f to %.3f) its step with balanced routing, ", label,
            r->scheme.text, ratio.value, ratio.low, ratio.high);
    print_seconds(&r->balanced, out);
    if (r->steps > 1 && !(v->request->imbalance != NULL))
        fprintf(out, ", in the mean of %zu steps, %.3f times in the worst, step %lld", r->steps,
                r->worst.step_s / r->balanced.step_s, (long long)r->worst_time_step);
    fprintf(out, "\n");
}

static void print_straddling(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    if (r->straddling > 0)
        fprintf(out,
                "%-18s %zu of %zu groups of %zu GPUs straddle nodes of %zu: balanced routing takes %.3f "
                "times what "
                "groups that begin with a node take\n",
                "straddling", r->straddling, r->groups, r->expert, v->request->job->cluster.gpus_per_node,
                r->balanced.step_s / r->aligned.step_s);
}

void spw_plan_print_answers(const spw_plan_view *v, FILE *out) {
    const spw_plan_tries *tries = v->tries;
    const spw_result_answers *a = &v->result->answers;
    const spw_result_row *dropless = spw_result_row_at(v->result, a->fastest_dropless);
    char name[POINT_NAME];
    if (!spw_plan_any_timed(v->result)) {
        fprintf(out, "%-18s no point has a time\n", "fastest");
        return;
    }
    print_choice("fastest", v, a->fastest, a->fastest_sure, a->drop_most, out);
    if (a->fastest_dropless != a->fastest)
        print_choice("without drops", v, a->fastest_dropless, a->fastest_dropless_sure, 0.0, out);
    for (size_t i = 0; i < tries->needs; i++) print_need(v, &tries->need[i], out);
    if (dropless == NULL) return;
    if (!v->even)
        print_ratio(v, dropless, out); /* even routing costs what balanced does, and drops next to nothing */
    print_straddling(v, dropless, out);
    if (v->even) return;
    if (!isfinite(tries->break_even_factor) || strcmp(dropless->scheme.type->name, "dense") == 0) return;
    fprintf(out, "%-18s dense takes as long as %s, at capacity factor %.2f", "break-even",
            point_name(dropless, name), tries->break_even_factor);
    if (isfinite(tries->break_even_fraction))
        fprintf(out, ", which drops %s%.2f %%", v->request->imbalance != NULL ? "at least " : "",
                100.0 * tries->break_even_fraction);
    fprintf(out, "\n");
}
