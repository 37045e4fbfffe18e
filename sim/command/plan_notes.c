#include "sim/command/plan_notes.h"

#include "sim/command/job_options.h"
#include "sim/input/precision.h"
#include "sim/input/remat.h"
#include "sim/print/plural.h"
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

bool spw_plan_any_drops(const spw_result *result) {
    for (size_t i = 0; i < result->rows; i++) {
        if (spw_point_drops(&result->row[i])) return true;
    }
    return false;
}

size_t spw_plan_steps(const spw_plan_view *v) { return v->result->row[0].steps; }

void spw_plan_drops_text(const spw_result_row *row, char *out, size_t size) {
    const double percent = 100.0 * spw_point_drop_fraction(row);
    out[0] = '\0';
    if (!spw_point_drops(row)) return;
    const int used = snprintf(out, size, "drops %s%.2f %%", row->drops.at_least ? "at least " : "", percent);
    if (row->steps > 1 && 100.0 * row->drops.worst_fraction > percent + 0.005 && (size_t)used < size)
        (void)snprintf(out + used, size - (size_t)used, " (%.2f %% in step %lld)",
                       100.0 * row->drops.worst_fraction, (long long)row->drops.worst_step);
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

int spw_plan_digits(double speed) { return speed < 10.0 ? 2 : speed < 100.0 ? 1 : 0; }

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
    char precision[SPW_PRECISION_TEXT];
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
    if (spw_precision_note(v->request->job, precision))
        fprintf(out, "%-*s%s\n", INDENT, "precision", precision);
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
    if (spw_plan_any_drops(v->result))
        fprintf(out,
                "drops     at most %g %% of the assignments in what is called fastest (--drop-at-most)\n",
                100.0 * v->drop_most);
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

enum { POINT_NAME = SPW_SCHEME_TEXT + 64 };

static const char *point_name(const spw_result_row *r, char name[POINT_NAME]) {
    (void)snprintf(name, POINT_NAME, "%s, EP %zu, %zu sequence%s", r->scheme.text, r->expert, r->sequences,
                   spw_plural(r->sequences));
    return name;
}

static void print_point(const char *what, const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    char step[32], name[POINT_NAME];
    (void)snprintf(step, sizeof step, spw_plan_seconds_format(r->time.step_s), r->time.step_s);
    fprintf(out, "%-17s %s: %.*f tokens/s a GPU, step %s s, %.1f GiB", what, point_name(r, name),
            spw_plan_digits(r->time.tokens_per_s_per_gpu), r->time.tokens_per_s_per_gpu, step,
            (double)r->memory.max_bytes / GIB);
    char drops[64];
    spw_plan_drops_text(r, drops, sizeof drops);
    fprintf(out, "%s%s%s\n", drops[0] != '\0' ? ", " : "", drops,
            spw_point_outside_fit(r) ? " (outside the fit)" : "");
    if (v->tokens > 0.0) {
        const spw_plan_cost cost = spw_plan_cost_of(r, (double)spw_job_gpus(v->request->job), v->tokens);
        fprintf(out, "%-17s %.3g tokens: %.3g tokens a day, %.1f days, %.3g GPU-hours\n", "", v->tokens,
                cost.tokens_per_day, cost.days, cost.gpu_hours);
    }
}

/* The fastest, how sure it is to fit, and the fastest that surely fits when that is another point. */
static void print_choice(const char *what, const spw_plan_view *v, double most, FILE *out) {
    const spw_result_row *r = spw_plan_fastest(v->result, most, false),
                         *sure = spw_plan_fastest(v->result, most, true);
    if (r == NULL) {
        fprintf(out, "%-17s none of the points that fit", what);
        if (spw_plan_any_drops(v->result))
            fprintf(out, most > 0.0 ? " drops at most %g %%" : " drops nothing", 100.0 * most);
        fprintf(out, "\n");
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
    char drops[64], name[POINT_NAME];
    spw_plan_drops_text(sure, drops, sizeof drops);
    fprintf(out, "surely does: %s, %.*f tokens/s a GPU%s%s%s\n", point_name(sure, name),
            spw_plan_digits(sure->time.tokens_per_s_per_gpu), sure->time.tokens_per_s_per_gpu,
            drops[0] != '\0' ? ", " : "", drops, spw_point_outside_fit(sure) ? " (outside the fit)" : "");
}

/* A scheme that would be faster but drops more than may be dropped, and what it needs to stay within that. */
static void print_need(const spw_plan_view *v, const spw_plan_need *n, FILE *out) {
    const spw_result_row *r = &v->result->row[n->row];
    char drops[64], name[POINT_NAME];
    spw_plan_drops_text(r, drops, sizeof drops);
    fprintf(out, "%-17s %s: %.*f tokens/s a GPU, but %s; ", "drops too much", point_name(r, name),
            spw_plan_digits(r->time.tokens_per_s_per_gpu), r->time.tokens_per_s_per_gpu, drops);
    if (n->option == NULL) {
        fprintf(out, "it has no factor to raise\n");
    } else if (!(n->factor > 0.0)) {
        fprintf(out, "no %s brings it to %g %%\n", n->option, 100.0 * v->drop_most);
    } else {
        fprintf(out, "within %g %% %s %s=%g, ", 100.0 * v->drop_most,
                r->drops.at_least ? "not before" : "from", n->option, n->factor);
        if (!n->fits) {
            fprintf(out, "where it needs %.0f GiB and does not fit\n", (double)n->bytes / GIB);
        } else if (n->timed) {
            fprintf(out, "at %.*f tokens/s a GPU\n", spw_plan_digits(n->tokens_per_s_per_gpu),
                    n->tokens_per_s_per_gpu);
        } else {
            fprintf(out, "without a time\n");
        }
    }
}

/* Real or made over balanced routing, in the mean over the steps and in the worst of them. */
static void print_ratio(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    char label[32], step[32];
    (void)snprintf(label, sizeof label, "%s %s", spw_plan_routing_word(v),
                   v->request->imbalance > 0.0 ? "imbalance" : "routing");
    (void)snprintf(step, sizeof step, spw_plan_seconds_format(r->balanced_step_s), r->balanced_step_s);
    fprintf(out, "%-17s %s takes %.3f times its step with balanced routing (%s s)", label, r->scheme.text,
            r->time.step_s / r->balanced_step_s, step);
    if (r->steps > 1 && !(v->request->imbalance > 0.0))
        fprintf(out, " in the mean of %zu steps, %.3f times in the worst, step %lld", r->steps,
                r->worst_step_s / r->balanced_step_s, (long long)r->worst_time_step);
    fprintf(out, "\n");
    if (r->straddling > 0)
        fprintf(out,
                "%-17s %zu of %zu groups of %zu GPUs straddle nodes of %zu: balanced routing takes %.3f "
                "times what "
                "groups that begin with a node take\n",
                "straddling", r->straddling, r->groups, r->expert, v->request->job->cluster.gpus_per_node,
                r->balanced_step_s / r->aligned_step_s);
}

void spw_plan_print_answers(const spw_plan_view *v, FILE *out) {
    const spw_plan_tries *tries = v->tries;
    char name[POINT_NAME];
    const spw_result_row *fastest = spw_plan_fastest(v->result, v->drop_most, false),
                         *dropless = spw_plan_fastest(v->result, 0.0, false);
    if (!spw_plan_any_timed(v->result)) {
        fprintf(out, "%-17s no point has a time\n", "fastest");
        return;
    }
    print_choice("fastest", v, v->drop_most, out);
    if (dropless != fastest) print_choice("without drops", v, 0.0, out);
    for (size_t i = 0; i < tries->needs; i++) print_need(v, &tries->need[i], out);
    if (dropless == NULL) return;
    print_ratio(v, dropless, out);
    if (!isfinite(tries->break_even_factor)) return;
    fprintf(out, "%-17s dense takes as long as %s, at capacity factor %.2f", "break-even",
            point_name(dropless, name), tries->break_even_factor);
    if (isfinite(tries->break_even_fraction))
        fprintf(out, ", which drops %s%.2f %%", v->request->imbalance > 0.0 ? "at least " : "",
                100.0 * tries->break_even_fraction);
    fprintf(out, "\n");
}
