#include "sim/command/plan/plan_print.h"

#include "sim/command/plan/plan_balanced.h"
#include "sim/command/plan/plan_brief.h"
#include "sim/command/plan/plan_notes.h"
#include "sim/job/job.h"
#include "sim/plan/plan_answers.h"
#include "sim/print/table.h"
#include "sim/result/doubt_parts.h"
#include "sim/result/row_cost_print.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

enum { ANSWER = 19 };

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
    char name[SPW_PLAN_POINT], drops[64];
    fprintf(out, "%-18s %s: ", what, spw_plan_point_text(r, name));
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
static void print_room(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    fprintf(out, "%-18s ", "");
    spw_plan_print_room(v, r, out);
}

static bool any_timed_fits(const spw_result *result) {
    for (size_t i = 0; i < result->rows; i++)
        if (result->row[i].timed && spw_point_fits(&result->row[i])) return true;
    return false;
}

/* A point that is faster than the fastest that fits, and need not fit. */
static void print_tight(const spw_plan_view *v, const spw_result_row *best, double most, FILE *out) {
    const spw_result_row *r = spw_result_fastest_tight(v->result, most);
    char name[SPW_PLAN_POINT];
    if (r == NULL || r->time.tokens_per_s_per_gpu <= best->time.tokens_per_s_per_gpu) return;
    fprintf(out, "%-18s faster is %s: ", "", spw_plan_point_text(r, name));
    print_row_speed(r, out);
    fputc('\n', out);
    print_room(v, r, out);
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
        print_room(v, r, out);
        fprintf(out, "%s", r == sure ? "\n" : ";\n");
    }
    if (r == sure) print_tight(v, r, most, out);
    if (r == sure) return;
    if (sure == NULL) {
        fprintf(out, "%-18s no point surely fits\n", "");
        return;
    }
    char drops[64], name[SPW_PLAN_POINT];
    spw_plan_drops_text(sure, drops, sizeof drops);
    fprintf(out, "%-18s the fastest that surely fits is %s: ", "", spw_plan_point_text(sure, name));
    print_row_speed(sure, out);
    fprintf(out, "%s%s%s\n", drops[0] != '\0' ? ", " : "", drops,
            sure->outside_fit.count > 0 ? " (outside the fit)" : "");
}

/* A scheme that would be faster but drops more than may be dropped, and what it needs to stay within that. */
static void print_need(const spw_plan_view *v, const spw_plan_need *n, FILE *out) {
    const spw_result_row *r = &v->result->row[n->row];
    char drops[64], name[SPW_PLAN_POINT];
    spw_plan_drops_text(r, drops, sizeof drops);
    const double most = v->result->answers.drop_most;
    fprintf(out, "%-18s %s: ", "drops too much", spw_plan_point_text(r, name));
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
    char name[SPW_PLAN_POINT];
    if (!spw_plan_any_timed(v->result)) {
        fprintf(out, "%-18s no point has a time\n", "fastest");
        return;
    }
    print_choice("fastest", v, a->fastest, a->fastest_sure, a->drop_most, out);
    if (a->fastest != SPW_NO_ROW)
        spw_doubt_parts_print(&spw_result_row_at(v->result, a->fastest)->time, "the fastest", out);
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
            spw_plan_point_text(dropless, name), tries->break_even_factor);
    if (isfinite(tries->break_even_fraction))
        fprintf(out, ", which drops %s%.2f %%", v->request->imbalance != NULL ? "at least " : "",
                100.0 * tries->break_even_fraction);
    fprintf(out, "\n");
}
