#include "sim/command/plan/plan_brief.h"

#include "sim/command/plan/plan_notes.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/offload_modules.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/replicas.h"
#include "sim/job/trainer.h"
#include "sim/memory/kept/launches.h"
#include "sim/print/json_values.h"
#include "sim/print/plural.h"
#include "sim/print/table.h"
#include "sim/replay/result_answers.h"
#include "sim/result/row_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const double LEAST_OUTSIDE = 0.05; /* GiB that can be printed */

const char *spw_plan_point_text(const spw_result_row *r, char out[SPW_PLAN_POINT]) {
    (void)snprintf(out, SPW_PLAN_POINT, "%s, EP %zu, %zu sequence%s", r->scheme.text, r->expert, r->sequences,
                   spw_plural(r->sequences));
    return out;
}

static void print_what(const spw_plan_view *v, FILE *out) {
    const spw_job *job = v->request->job;
    char words[SPW_CLUSTER_WORDS], fit[SPW_FIT_COUNTS], replicas[SPW_REPLICAS_SHORT];
    fprintf(out, "plan      %s on %s (%s", job->model.name, job->cluster.name,
            spw_cluster_words(&job->cluster, words));
    if (v->request->splits <= 1) {
        fprintf(out, ", expert %zu x fsdp %zu", v->result->row[0].expert, v->result->row[0].fsdp);
        spw_grid_print(job, out);
    }
    if (job->pipeline > 1) fprintf(out, ", pipeline %zu", job->pipeline);
    if (job->micro_batches > 1) fprintf(out, ", %zu micro-batches", job->micro_batches);
    fprintf(out, ")%s, %zu tokens a sequence, remat %s%s%s: %zu point%s, %s\n",
            spw_job_replicas_text(job, spw_job_gpus(job), replicas), job->sequence_length,
            spw_remat_name(job->remat), spw_offload_note(&job->offload), spw_launches_note(job),
            v->result->rows, spw_plural(v->result->rows), spw_fit_counts_text(v->result, fit));
}

static void print_speed(const spw_result_row *r, FILE *out) {
    char text[SPW_SPAN_TEXT];
    fprintf(out, "%.*f tokens/s a GPU (%s)", spw_plan_digits(r->time.tokens_per_s_per_gpu),
            r->time.tokens_per_s_per_gpu,
            spw_span_text(r->tokens_per_s_low, r->tokens_per_s_high, " to ", text));
}

static void print_cost(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const spw_row_cost cost = spw_row_cost_of(r, v->request->job, v->settings->tokens);
    char days[SPW_SPAN_TEXT], span[SPW_SPAN_TEXT], amount[SPW_SPAN_TEXT], all[SPW_REPLICAS_SHORT];
    if (!(v->settings->tokens > 0.0)) return;
    fprintf(out, "; %s tokens%s%s: %s days (%s)", spw_amount_text(v->settings->tokens, amount),
            spw_job_replicas_all(v->request->job, spw_job_gpus(v->request->job), all),
            v->settings->tokens_unsaid ? SPW_TOKENS_UNSAID : "", spw_figure_text(cost.days.value, days),
            spw_span_text(cost.days.low, cost.days.high, " to ", span));
    if (isfinite(cost.money.value)) /* in the currency of the price, which nobody says */
        fprintf(out, ", cost %s at %g a GPU-hour", spw_amount_text(cost.money.value, amount),
                spw_job_price(v->request->job));
}

void spw_plan_print_unsure(const spw_plan_unsure *u, const spw_job *job, FILE *out) {
    const bool known = isfinite(u->most_bytes);
    fprintf(out, "; unsure, as ");
    if (job->more[0] != '\0' && u->most_bytes <= u->budget_bytes)
        fprintf(out, "the file has what may need more memory");
    else if (spw_precision_lacks_copies(job) && u->most_bytes <= u->budget_bytes)
        fprintf(out, "what fp8 keeps beside one byte an element is not counted without a recipe (--set "
                     "precision.recipe=mxfp8, blockwise, tensorwise)");
    else if (u->reserved && !known)
        fprintf(out, "steps gave memory back to go on, so that what they need without that is not known");
    else if (u->reserved)
        fprintf(out, "the larger end of what is reserved%s, %.1f, is over that",
                u->listed ? " and of what lies outside" : "", u->most_bytes / GIB);
    else if (u->kind == SPW_MEMORY_ARENA)
        fprintf(out, "the larger end is over that");
    else if (!known)
        fprintf(out, "what the compiler or PyTorch's allocator adds is not known%s",
                spw_scheme_needs_stack(u->type) ? " without a stack (--stack)" : "");
    else
        fprintf(out, "with what the compiler or PyTorch's allocator adds it may be %.1f",
                u->most_bytes / GIB);
}

/* Of a point that fits and does not surely fit: why. */
static void print_doubt(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const spw_plan_unsure unsure = {r->most_bytes,     r->memory_kind, (double)r->footprint.budget_bytes,
                                    r->reserved.there, r->scheme.type, r->budget.listed};
    if (spw_point_fits(r) && !r->surely_fits) spw_plan_print_unsure(&unsure, v->request->job, out);
}

void spw_plan_print_room(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const spw_footprint *f = &r->footprint;
    const double low = (double)f->low_bytes / GIB, high = (double)f->high_bytes / GIB,
                 budget = (double)f->budget_bytes / GIB;
    fprintf(out, "it %s: ", spw_verdict_sentence(spw_result_verdict(r), r->surely_fits));
    if (r->reserved.there) {
        const double most = spw_reserved_high(&r->reserved) / GIB,
                     reserved = (double)r->reserved.as_set.reserved.max_bytes / GIB;
        fprintf(out, "%.1f GiB live, %.1f reserved (%.1f ", (double)r->memory.max_bytes / GIB, reserved,
                spw_reserved_low(&r->reserved) / GIB);
        if (isfinite(most))
            fprintf(out, "to %.1f)", most);
        else
            fputs("or more)", out);
        char text[SPW_BUDGET_TEXT];
        fprintf(out, ", of %.1f", budget);
        if (r->budget.device / GIB - budget >= LEAST_OUTSIDE)
            fprintf(out, " (%s)", spw_device_budget_text(&r->budget, v->request->job, text));
    } else {
        if (spw_point_is_live_alone(r))
            fprintf(out, "%.1f GiB or more", low);
        else
            fprintf(out, "%.1f to %.1f GiB", low, high);
        fprintf(out, " of %.1f", budget);
    }
    print_doubt(v, r, out);
}

static void print_routing(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const spw_ratio ratio = spw_result_row_ratio(r);
    char drops[64];
    spw_plan_drops_text(r, drops, sizeof drops);
    if (v->even)
        fprintf(out, "; routing is even");
    else
        fprintf(out, "; uneven routing: %.3f times (%.3f to %.3f) the step with balanced routing",
                ratio.value, ratio.low, ratio.high);
    fprintf(out, ", %s", drops[0] != '\0' ? drops : "drops nothing");
}

static void print_sure(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const spw_result_row *sure = spw_result_row_at(v->result, v->result->answers.fastest_sure);
    char name[SPW_PLAN_POINT];
    if (sure == r) return;
    if (sure == NULL) {
        fprintf(out, "; no point surely fits");
        return;
    }
    fprintf(out, "; the fastest that surely fits: %s, ", spw_plan_point_text(sure, name));
    print_speed(sure, out);
}

/* How sure it is that no other point is faster. */
static void print_next(const spw_plan_view *v, FILE *out) {
    const spw_result_row *next = spw_result_row_at(v->result, v->result->answers.next);
    char name[SPW_PLAN_POINT];
    if (next == NULL) return;
    fprintf(out, "; faster than the next, %s, in %.0f of 100", spw_plan_point_text(next, name),
            fmin(round(100.0 * v->result->answers.next_chance), 99.0)); /* nothing is certain */
}

/* What is faster than the fastest in the table below and drops more than may be dropped; the fastest of these. */
static void print_faster(const spw_plan_view *v, const spw_result_row *fastest, FILE *out) {
    const spw_result_row *best = NULL;
    char name[SPW_PLAN_POINT], drops[64];
    for (size_t i = 0; i < v->result->rows; i++) {
        const spw_result_row *r = &v->result->row[i];
        if (!r->timed || !spw_point_fits(r) || !spw_point_drops(r)) continue;
        if (r->drops.fraction <= v->result->answers.drop_most) continue;
        if (r->time.tokens_per_s_per_gpu <= fastest->time.tokens_per_s_per_gpu) continue;
        if (best == NULL || r->time.tokens_per_s_per_gpu > best->time.tokens_per_s_per_gpu) best = r;
    }
    if (best == NULL) return;
    spw_plan_drops_text(best, drops, sizeof drops);
    fprintf(out, "; not counted, as more than %g %% is dropped (--drop-at-most): %s, %.*f tokens/s a GPU, %s",
            100.0 * v->result->answers.drop_most, spw_plan_point_text(best, name),
            spw_plan_digits(best->time.tokens_per_s_per_gpu), best->time.tokens_per_s_per_gpu, drops);
}

/* Whether it is the routing alone that keeps a point from fitting. */
static void print_even(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const uint64_t even = spw_result_balanced(r).peak_bytes, budget = r->footprint.budget_bytes;
    if (v->even || even > budget || r->memory.max_bytes <= budget) return;
    fprintf(out,
            "; with balanced routing it needs %.1f GiB: the routing alone decides (--routing, --imbalance)",
            (double)even / GIB);
}

/* The advice that needs the fewest GPUs, the first of several. */
static const spw_plan_misfit_advice *cheapest_advice(const spw_plan_tries *tries) {
    const spw_plan_misfit_advice *best = tries->misfits > 0 ? &tries->misfit[0] : NULL;
    for (size_t i = 1; i < tries->misfits; i++) {
        const spw_plan_misfit_advice *m = &tries->misfit[i];
        if (m->gpus > 0 && (best->gpus == 0 || m->gpus < best->gpus)) best = m;
    }
    return best;
}

/* Tokens were asked for, and there is no point whose cost could be told. */
static void print_no_cost(const spw_plan_view *v, FILE *out) {
    const char *why = v->result->rows > 0 ? spw_plan_no_time(v->request, &v->result->row[0]) : NULL;
    if (!(v->settings->tokens > 0.0)) return;
    fprintf(out, "; --tokens and --price need one: no days and no cost");
    if (!spw_plan_any_timed(v->result) && why != NULL) fprintf(out, " (no time: %s)", why);
}

/* What brings the drops of a point within what may be dropped: of the factors that do, the fastest. */
static void print_factor(const spw_plan_view *v, FILE *out) {
    const spw_plan_need *best = NULL;
    char name[SPW_PLAN_POINT];
    for (size_t i = 0; i < v->tries->needs; i++) {
        const spw_plan_need *n = &v->tries->need[i];
        if (!(n->factor > 0.0) || !n->fits || !n->timed) continue;
        if (best == NULL || n->tokens_per_s_per_gpu > best->tokens_per_s_per_gpu) best = n;
    }
    if (best == NULL) return;
    const spw_result_row *row = &v->result->row[best->row];
    fprintf(out, "; %s keeps within %g %% %s %s=%g, at %.0f tokens/s a GPU", spw_plan_point_text(row, name),
            100.0 * v->result->answers.drop_most, row->drops.at_least ? "not before" : "from", best->option,
            best->factor, best->tokens_per_s_per_gpu);
}

/* Without a time, or without a point that fits. */
static void print_none(const spw_plan_view *v, FILE *out) {
    const spw_result_answers *a = &v->result->answers;
    const spw_result_row *least = spw_result_row_at(v->result, a->least_memory);
    char name[SPW_PLAN_POINT], reserved[64] = "", death[SPW_DEATH_TEXT];
    const bool timed = spw_plan_any_timed(v->result);
    bool some = false;
    for (size_t i = 0; i < v->result->rows; i++)
        some = some || (v->result->row[i].timed && spw_point_fits(&v->result->row[i]));
    fprintf(out, "fastest   %s",
            !timed  ? "no point has a time"
            : !some ? "no point with a time fits"
                    : "every point that fits drops more than may be dropped (--drop-at-most)");
    if (timed && some) print_factor(v, out);
    print_no_cost(v, out);
    fputc('\n', out);
    if (least == NULL) return;
    if (least->reserved.there && least->reserved.as_set.failed_steps == 0)
        (void)snprintf(reserved, sizeof reserved, " live, %.1f reserved,",
                       (double)least->reserved.as_set.reserved.max_bytes / GIB);
    else if (least->reserved.there && least->memory.max_bytes <= least->footprint.budget_bytes)
        (void)snprintf(reserved, sizeof reserved, " live, more as the allocator holds it,");
    fprintf(out, "fits      %s needs least: %.1f%s%s of %.1f GiB, it %s", spw_plan_point_text(least, name),
            (double)least->memory.max_bytes / GIB, reserved, spw_point_is_live_alone(least) ? " or more" : "",
            (double)least->footprint.budget_bytes / GIB,
            spw_verdict_sentence(spw_result_verdict(least), least->surely_fits));
    print_doubt(v, least, out);
    if (spw_result_death_text(least, death)[0] != '\0') fprintf(out, "; runs out of memory first %s", death);
    print_even(v, least, out);
    const spw_plan_misfit_advice *advice = cheapest_advice(v->tries);
    if (advice != NULL && !spw_point_fits(least))
        fprintf(out, "; for %s: %s", spw_plan_point_text(&v->result->row[advice->row], name), advice->advice);
    fputc('\n', out);
}

/* Returns whether it wrote anything. */
static bool write_beside(const spw_plan_request *q, const char *label, FILE *out) {
    const spw_optimizer_kind kind = q->job->optimizer;
    const spw_scheme *whose = NULL;
    size_t others = 0;
    if (!q->job->optimizer_unsaid) return false;
    for (size_t i = 0; i < q->schemes && whose == NULL; i++)
        if (spw_scheme_trainer(&q->scheme[i])->bare_optimizer == kind) whose = &q->scheme[i];
    for (size_t i = 0; i < q->schemes && whose != NULL; i++)
        if (spw_scheme_trainer(&q->scheme[i])->bare_optimizer != kind)
            fprintf(out, "%s%s", others++ > 0 ? ", " : label, q->scheme[i].text);
    if (others == 0) return false;
    fprintf(out,
            " %s planned with the state of %s, as a plan has one for all its schemes (optimizer: %s, and "
            "its formats); planned alone, memory and speed differ",
            others > 1 ? "are" : "is", whose->text, spw_optimizer_name(kind));
    return true;
}

void spw_plan_print_beside(const spw_plan_request *q, FILE *out) {
    if (write_beside(q, "beside    ", out)) fputc('\n', out);
}

json_t *spw_plan_beside_json(const spw_plan_request *q) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return NULL;
    const bool any = write_beside(q, "", out), written = fclose(out) == 0;
    json_t *json = !written ? NULL : any ? spw_json_text(text) : json_null();
    free(text);
    return json;
}

void spw_plan_print_brief(const spw_plan_view *v, FILE *out) {
    const spw_result_row *r = spw_result_row_at(v->result, v->result->answers.fastest);
    char name[SPW_PLAN_POINT], step[SPW_SPAN_TEXT], span[SPW_SPAN_TEXT];
    print_what(v, out);
    if (r == NULL) {
        print_none(v, out);
        return;
    }
    fprintf(out, "fastest   %s: ", spw_plan_point_text(r, name));
    print_speed(r, out);
    fprintf(out, ", step %s s (%s)", spw_figure_text(r->time.step_s, step),
            spw_span_text(r->time.low_s, r->time.high_s, " to ", span));
    print_cost(v, r, out);
    print_next(v, out);
    print_faster(v, r, out);
    fputc('\n', out);
    fprintf(out, "fits      ");
    spw_plan_print_room(v, r, out);
    print_routing(v, r, out);
    print_sure(v, r, out);
    fputc('\n', out);
    spw_plan_print_beside(v->request, out);
    spw_plan_print_others(v->others, out);
}
