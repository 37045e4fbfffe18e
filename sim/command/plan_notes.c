#include "sim/command/plan_notes.h"

#include "sim/command/job_options.h"
#include "sim/input/remat.h"
#include "sim/replay/plan_answers.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

bool spw_plan_any_timed(const spw_result *result) {
    for (size_t i = 0; i < result->rows; i++) {
        if (result->row[i].timed) return true;
    }
    return false;
}

static bool any_reserved(const spw_result *result) {
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
    if (v->request->imbalance > 0.0) return "stated";
    return v->traced ? "real" : "made";
}

const char *spw_plan_seconds_format(double seconds) { return seconds < 9.995 ? "%#.3g" : "%.2f"; }

/* --- Reasons, each once --- */

enum { REASONS = 24, WIDTH = 130, INDENT = 10 };

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

/* The reasons of one note, which stand between semicolons. */
static void add_reasons(reasons *list, const char *note) {
    for (const char *end = strstr(note, "; "); end != NULL; note = end + 2, end = strstr(note, "; "))
        add_reason(list, note, (size_t)(end - note));
    add_reason(list, note, strlen(note));
}

static void print_reasons(const char *what, const reasons *list, FILE *out) {
    size_t at = (size_t)fprintf(out, "%-*s", INDENT, what);
    for (size_t i = 0; i < list->count; i++) {
        const size_t length = strlen(list->text[i]);
        if (i > 0 && at + length > WIDTH) {
            fprintf(out, ";\n%*s", INDENT, "");
            at = INDENT;
        } else if (i > 0) {
            at += (size_t)fprintf(out, "; ");
        }
        at += (size_t)fprintf(out, "%s", list->text[i]);
    }
    fprintf(out, "\n");
}

/* Which points cannot be, whose state is taken as sharded, what the coefficients were not fitted on, and which points have no time. */
static void print_limits(const spw_plan_view *v, FILE *out) {
    reasons outside = {.count = 0}, untimed = {.count = 0}, refused = {.count = 0}, state = {.count = 0};
    for (size_t i = 0; i < v->result->refusals; i++) {
        const spw_refusal *refusal = &v->result->refusal[i];
        char text[SPW_OUTSIDE_TEXT];
        const int length = snprintf(text, sizeof text, "EP %zu: %.200s", refusal->expert, refusal->reason);
        add_reason(&refused, text, (size_t)length);
    }
    for (size_t i = 0; i < v->result->rows; i++) {
        const spw_result_row *row = &v->result->row[i];
        const char *why = spw_plan_no_time(v->request, row);
        const char *sharded = spw_footprint_state_note(v->request->job, &row->scheme);
        if (sharded != NULL) add_reasons(&state, sharded);
        add_reasons(&outside, row->memory_outside);
        if (row->timed) add_reasons(&outside, row->time.outside);
        if (why != NULL) add_reason(&untimed, why, strlen(why));
    }
    if (refused.count > 0) print_reasons("cannot be", &refused, out);
    if (state.count > 0) print_reasons("state", &state, out);
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
    fprintf(out, "software  %s: %s%s%s by its fitted coefficients\n", v->settings->stack,
            arena ? "memory of compiled programs" : "", arena && timed ? " and " : "",
            timed ? "step times" : "");
}

void spw_plan_print_heading(const spw_plan_view *v, FILE *out) {
    const spw_job *job = v->request->job;
    size_t fit = 0, live = 0;
    for (size_t i = 0; i < v->result->rows; i++) {
        const spw_result_row *row = &v->result->row[i];
        fit += spw_point_fits(row);
        live += spw_point_fits(row) && spw_point_is_live_alone(row);
    }
    fprintf(out,
            "plan      %s on %s (%zu GPUs), %zu tokens a sequence, remat %s, %.1f GiB a GPU may be used\n",
            job->model.name, job->cluster.name, spw_job_gpus(job), job->sequence_length,
            spw_remat_name(job->remat), job->memory_fraction * job->cluster.hbm_gib.value);
    spw_print_model_doubts(&job->model, "model     ", out);
    fprintf(out, "routing   %s\n", v->routing);
    print_software(v, out);
    print_limits(v, out);
    fprintf(out, "points    %zu, %zu fit", v->result->rows, fit);
    if (live > 0) fprintf(out, " (%zu by what must be live alone)", live);
    print_evidence(v->result, out);
    fprintf(out, "\n\n");
}

void spw_plan_print_legend(const spw_plan_view *v, FILE *out) {
    if (any_of_kind(v->result, SPW_MEMORY_LIVE))
        fprintf(out,
                "*: what must be live; what PyTorch's allocator reserves (%s) or a compiler adds "
                "comes on top\n",
                v->request->allocator ? "r" : "spillway replay, or --allocator");
    if (any_reserved(v->result))
        fprintf(out, "r: what PyTorch's allocator reserves over the steps, replayed on every rank; it fits "
                     "when no step "
                     "runs out\n");
    if (v->request->allocator && !any_reserved(v->result))
        fprintf(
            out,
            "allocator: nothing to replay; it is for schemes that allocate what arrives, without stages or "
            "micro-batches\n");
}

/* --- Answers --- */

static void print_point(const char *what, const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    char step[32];
    (void)snprintf(step, sizeof step, spw_plan_seconds_format(r->time.step_s), r->time.step_s);
    fprintf(out, "%-17s %s, EP %zu, %zu sequences: %.0f tokens/s a GPU, step %s s, %.1f GiB", what,
            r->scheme.text, r->expert, r->sequences, r->time.tokens_per_s_per_gpu, step,
            (double)r->memory.max_bytes / GIB);
    if (spw_point_drops(r)) fprintf(out, ", drops %.2f %%", 100.0 * spw_point_drop_fraction(r));
    fprintf(out, "%s\n", spw_point_outside_fit(r) ? " (outside the fit)" : "");
    if (v->tokens > 0.0) {
        const spw_plan_cost cost = spw_plan_cost_of(r, (double)spw_job_gpus(v->request->job), v->tokens);
        fprintf(out, "%-17s %.3g tokens: %.3g tokens a day, %.1f days, %.3g GPU-hours\n", "", v->tokens,
                cost.tokens_per_day, cost.days, cost.gpu_hours);
    }
}

/* The fastest, how sure it is to fit, and the fastest that surely fits when that is another point. */
static void print_choice(const char *what, const spw_plan_view *v, bool dropless, FILE *out) {
    const spw_result_row *r = spw_plan_fastest(v->result, dropless, false),
                         *sure = spw_plan_fastest(v->result, dropless, true);
    if (r == NULL) {
        fprintf(out, "%-17s none of the points that fit\n", what);
        return;
    }
    print_point(what, v, r, out);
    const bool tight = spw_result_verdict(r) == SPW_VERDICT_TIGHT;
    if (!tight && r == sure) return;
    fprintf(out, "%-17s %s%.1f to %.1f GiB of %.1f%s", "", tight ? "tight: " : "",
            (double)r->footprint.low_bytes / GIB, (double)r->footprint.high_bytes / GIB,
            (double)r->footprint.budget_bytes / GIB, r == sure ? "\n" : ": may not fit; ");
    if (r == sure) return;
    if (sure == NULL) {
        fprintf(out, "no point surely does\n");
        return;
    }
    fprintf(out, "surely does: %s, EP %zu, %zu sequences, %.0f tokens/s a GPU%s\n", sure->scheme.text,
            sure->expert, sure->sequences, sure->time.tokens_per_s_per_gpu,
            spw_point_outside_fit(sure) ? " (outside the fit)" : "");
}

void spw_plan_print_answers(const spw_plan_view *v, FILE *out) {
    const spw_result_row *dropless = spw_plan_fastest(v->result, true, false);
    char label[32], step[32];
    if (!spw_plan_any_timed(v->result)) {
        fprintf(out, "%-17s no point has a time\n", "fastest");
        return;
    }
    print_choice("fastest", v, false, out);
    if (dropless != spw_plan_fastest(v->result, false, false)) print_choice("without drops", v, true, out);
    if (dropless == NULL) return;
    (void)snprintf(label, sizeof label, "%s %s", spw_plan_routing_word(v),
                   v->request->imbalance > 0.0 ? "imbalance" : "routing");
    (void)snprintf(step, sizeof step, spw_plan_seconds_format(dropless->balanced_step_s),
                   dropless->balanced_step_s);
    fprintf(out, "%-17s %s takes %.3f times its step with balanced routing (%s s)\n", label,
            dropless->scheme.text, dropless->time.step_s / dropless->balanced_step_s, step);
    const double factor = spw_plan_break_even_factor(v->request, dropless);
    if (isfinite(factor))
        fprintf(out, "%-17s dense takes as long as %s, EP %zu, %zu sequences, at capacity factor %.2f\n",
                "break-even", dropless->scheme.text, dropless->expert, dropless->sequences, factor);
}
