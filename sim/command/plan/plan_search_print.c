
#include "sim/command/plan/plan_balanced.h"
#include "sim/command/plan/plan_brief.h"
#include "sim/command/plan/plan_imbalance.h"
#include "sim/command/plan/plan_search_proof.h"
#include "sim/command/plan/plan_search_table.h"
#include "sim/job/replicas.h"
#include "sim/print/plural.h"
#include "sim/result/result_print.h"
#include "sim/result/row_cost_print.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double LEAST_PERCENT = 0.05; /* that can be printed */
enum { FRONT_LINES = 12, LABEL = 10 };

/* --- For a person --- */

static void print_drops(const spw_search_point *p, FILE *out) {
    const double percent = 100.0 * p->drops.fraction;
    if (p->drops.dropped == 0 && !p->drops.at_least) {
        fprintf(out, "drops nothing");
    } else {
        fprintf(out, "drops %s%.2f %%", p->drops.at_least ? "at least " : "", percent);
        if (100.0 * p->drops.worst_fraction > percent + 0.005)
            fprintf(out, " (%.2f %% in step %lld)", 100.0 * p->drops.worst_fraction,
                    (long long)p->drops.worst_step);
    }
}

static void print_point(const char *label, const spw_search_view *v, const spw_search_reasons *reasons,
                        const spw_search_point *p, FILE *out) {
    char text[SPW_SEARCH_POINT_TEXT], step[SPW_SPAN_TEXT], span[SPW_SPAN_TEXT], batch[SPW_SPAN_TEXT],
        outside[SPW_SEARCH_OUTSIDE_TEXT], layout[SPW_LAYOUT_TEXT];
    spw_search_point_text(v, p->value, p->sequences, p->scheme, text);
    fprintf(out, "%-*s%s, ", LABEL, label, text);
    print_drops(p, out);
    fprintf(out, "\n%*s", LABEL, "");
    if (p->timed)
        fprintf(out, "%.*f tokens/s a GPU (%s), step %s s", p->tokens_per_s_per_gpu < 10.0 ? 2 : 0,
                p->tokens_per_s_per_gpu,
                spw_span_text(p->tokens_per_s_low, p->tokens_per_s_high, " to ", span),
                spw_figure_text(p->step.step_s, step));
    if (p->timed)
        fprintf(out, " (%s)\n%*s", spw_span_text(p->step.low_s, p->step.high_s, " to ", span), LABEL, "");
    fprintf(out, "%.1f GiB%s", (double)p->peak_bytes / GIB,
            p->kind != SPW_MEMORY_LIVE ? ""
            : p->reserved_bytes > 0.0  ? " live"
                                       : " live, a lower bound,");
    if (p->reserved_bytes > 0.0) {
        fprintf(out, ", %.1f reserved (%.1f ", p->reserved_bytes / GIB, p->reserved_low_bytes / GIB);
        if (isfinite(p->reserved_high_bytes))
            fprintf(out, "to %.1f)", p->reserved_high_bytes / GIB);
        else
            fputs("or more)", out);
    }
    if (p->high_bytes > p->low_bytes)
        fprintf(out, " (%.1f to %.1f)", (double)p->low_bytes / GIB, (double)p->high_bytes / GIB);
    fprintf(out, " of %.1f: it %s", (double)p->budget_bytes / GIB,
            spw_verdict_sentence(p->verdict, p->surely_fits));
    if (p->timed)
        fprintf(out, "; %s tokens a step%s", spw_amount_text((double)p->step_tokens, batch),
                v->request->most_step_tokens > 0 || v->request->space->base->global_batch > 0
                    ? ""
                    : " (fewer: --global-batch-at-most; all alike: --global-batch)");
    fprintf(out, "\n");
    if (p->timed) {
        const spw_row_cost cost = spw_search_cost(v, p);
        spw_row_cost_lines(&cost, v->request->cost_tokens, LABEL, out);
    }
    if (!v->origin->even) spw_plan_print_balanced(&p->balanced, LABEL, out);
    if (spw_search_layout(v, p, layout))
        fprintf(out,
                "%*sthe layers do not divide over its stages: Megatron-Core needs "
                "--pipeline-model-parallel-layout '%s', which is what is counted\n",
                LABEL, "", layout);
    if (p->outside.count > 0)
        fprintf(out, "%*soutside the fit: %s\n", LABEL, "", spw_search_outside_text(reasons, p, outside));
}

static void print_options(const spw_search_view *v, const spw_search_point *p, FILE *out) {
    char text[SPW_SEARCH_OPTIONS_TEXT];
    spw_search_options_text(v, p, text);
    fprintf(out, "%*sto plan or to report the best alone, in place of --search: %s\n", LABEL, "", text);
}

/* Which schemes compete, and how to ask about another framework. */
static void print_schemes(const spw_search_view *v, FILE *out) {
    const spw_plan_request *plan = v->request->plan;
    const char *hint = spw_search_hint(v), *state = spw_search_state_note(v);
    fprintf(out, "schemes   ");
    for (size_t i = 0; i < plan->schemes; i++) fprintf(out, "%s%s", i > 0 ? ", " : "", plan->scheme[i].text);
    fprintf(out, "%s%s\n", hint != NULL ? "; " : "", hint != NULL ? hint : "");
    if (state != NULL) fprintf(out, "state     %s\n", state);
}

static void print_budgets(const spw_search_view *v, FILE *out) {
    const spw_search_request *q = v->request;
    const spw_job *job = q->plan->job;
    char text[SPW_SPAN_TEXT], room[SPW_BUDGET_TEXT];
    fprintf(out, "budgets   %s GiB a GPU; drops at most %g %%; ",
            spw_budget_span_text(job, q->plan->scheme, q->plan->schemes, room), 100.0 * q->drop_most);
    if (v->gpus_most > 0) {
        fprintf(out, "at most %zu GPUs", v->gpus_most);
    } else {
        fprintf(out, "%zu GPUs", spw_job_gpus(job));
    }
    if (q->tokens_per_day > 0.0)
        fprintf(out, "; at least %s tokens a day, the fewest GPUs first",
                spw_amount_text(q->tokens_per_day, text));
    if (q->most_step_tokens > 0)
        fprintf(out, "; at most %s tokens a step", spw_amount_text((double)q->most_step_tokens, text));
    if (job->global_batch > 0 && v->batch_of_file)
        fprintf(out,
                "; %zu sequences a step, as the file says, as another batch changes how the model learns "
                "(--global-batch N; any: --global-batch-at-most 4M)",
                job->global_batch);
    else if (job->global_batch > 0)
        fprintf(out, "; %zu sequences a step (--global-batch)", job->global_batch);
    fprintf(out, "\n");
}

static void print_space(const spw_search_view *v, FILE *out) {
    const spw_search_space *s = v->request->space;
    const spw_job *job = s->base;
    size_t at = (size_t)fprintf(out, "%-*s%zu points:", LABEL, "looked at", v->outcome->points);
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS + 1; d++) {
        const bool batches = d == SPW_SEARCH_DIMENSIONS;
        const size_t count = batches ? job->batches : s->values[d];
        char list[400] = "", value[SPW_REMAT_TEXT];
        for (size_t i = 0; i < count && strlen(list) < 300; i++) {
            const size_t used = strlen(list);
            if (batches) (void)snprintf(value, sizeof value, "%zu", job->sequences_per_gpu[i]);
            (void)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? "," : "",
                           batches ? value : spw_search_value_text(d, s->value[d][i], value));
        }
        const char *name = batches ? "sequences-per-gpu" : spw_search_dimension_name(d);
        if (at + strlen(name) + strlen(list) + 4 > 118) at = (size_t)fprintf(out, "\n%*s", LABEL, "") - 1;
        at += (size_t)fprintf(out, " %s=%s%s", name, list, batches ? "" : ";");
    }
    fprintf(out, "; %zu scheme%s\n", v->request->plan->schemes, spw_plural(v->request->plan->schemes));
}

static void print_fates(const spw_search_view *v, FILE *out) {
    const size_t *fate = v->outcome->fate;
    for (int replayed = 0; replayed < 2; replayed++) {
        const char *label = replayed ? "replayed" : "skipped";
        for (int f = 0; f < SPW_SEARCH_FATES; f++) {
            const char *text = spw_search_fate_text((spw_search_fate)f);
            if (spw_search_fate_is_replayed((spw_search_fate)f) != (replayed == 1) || fate[f] == 0) continue;
            const char *colon = replayed ? strstr(text, ": ") : NULL;
            fprintf(out, "%-*s%9zu  %s\n", LABEL, label, fate[f], colon != NULL ? colon + 2 : text);
            label = "";
        }
    }
}

/* Schemes without a point among those that keep to the budgets: first those that a point found before leaves out. */
static void print_absent(const spw_search_view *v, FILE *out) {
    static const char *const labels[] = {"not best", "no point"};
    char text[SPW_SEARCH_ABSENT_TEXT];
    for (int misfits = 0; misfits < 2; misfits++) {
        const char *label = labels[misfits];
        for (size_t i = 0; i < v->request->plan->schemes; i++) {
            bool misfit = false;
            if (!spw_search_absent_text(v, i, &misfit, text) || misfit != (misfits == 1)) continue;
            fprintf(out, "%-*s%s\n", LABEL, label, text);
            label = "";
        }
    }
}

static void print_nothing(const spw_search_view *v, FILE *out) {
    char reason[SPW_SEARCH_ABSENT_TEXT];
    fprintf(out, "%-*s%s", LABEL, "best", spw_search_nothing_text(v, reason));
    if (v->larger == NULL && v->tried_gpus > 0)
        fprintf(out, "; none keeps to the budgets with up to %zu GPUs, which were tried", v->tried_gpus);
    fprintf(out, "\n");
    if (v->larger != NULL) print_point("with more", v, &v->larger->reasons, &v->larger->front.best, out);
}

/* A larger batch that is hardly faster gave way. */
static void print_batch(const spw_search_view *v, FILE *out) {
    const spw_search_point *best = &v->outcome->front.best, *fast = &v->outcome->front.fastest;
    char tokens[SPW_SPAN_TEXT];
    const double faster = 100.0 * (fast->tokens_per_s_per_gpu / best->tokens_per_s_per_gpu - 1.0);
    if (fast->step_tokens <= best->step_tokens || !best->timed || !(faster >= LEAST_PERCENT)) return;
    fprintf(out,
            "%-*sthe smallest that is as fast to 1 %%, %s tokens a step; %.3g times it is %.1f %% faster and "
            "changes how the model learns\n",
            LABEL, "batch", spw_amount_text((double)best->step_tokens, tokens),
            (double)fast->step_tokens / (double)best->step_tokens, faster);
}

/* --- What a search begins with: what was asked, the best point and its cost, whether it fits and what uneven routing does to it --- */

static void print_best(const spw_search_view *v, const spw_search_point *p, FILE *out) {
    char text[SPW_SEARCH_POINT_TEXT], next[SPW_SEARCH_NEXT_TEXT], step[SPW_SPAN_TEXT], span[SPW_SPAN_TEXT],
        all[SPW_REPLICAS_SHORT];
    spw_search_point_text(v, p->value, p->sequences, p->scheme, text);
    fprintf(out, "%-*s%s%s", LABEL, "best", v->outcome->stopped ? "so far " : "", text);
    if (p->timed) {
        const spw_row_cost cost = spw_search_cost(v, p);
        fprintf(out, ": %.*f tokens/s a GPU (%s)", p->tokens_per_s_per_gpu < 10.0 ? 2 : 0,
                p->tokens_per_s_per_gpu,
                spw_span_text(p->tokens_per_s_low, p->tokens_per_s_high, " to ", span));
        fprintf(out, ", step %s s (%s)", spw_figure_text(p->step.step_s, step),
                spw_span_text(p->step.low_s, p->step.high_s, " to ", span));
        fprintf(out, " of %s tokens", spw_amount_text((double)p->step_tokens, text));
        if (v->request->tokens_per_day > 0.0)
            fprintf(out, ", %s tokens a day (%s to %s)", spw_amount_text(cost.tokens_per_day.value, text),
                    spw_amount_text(cost.tokens_per_day.low, step),
                    spw_amount_text(cost.tokens_per_day.high, span));
        if (v->request->cost_tokens > 0.0)
            fprintf(out, "; %s tokens%s%s: %s days (%s)", spw_amount_text(v->request->cost_tokens, text),
                    spw_job_replicas_all(v->request->plan->job, p->gpus, all),
                    v->origin->settings->tokens_unsaid ? SPW_TOKENS_UNSAID : "",
                    spw_figure_text(cost.days.value, step),
                    spw_span_text(cost.days.low, cost.days.high, " to ", span));
        if (v->request->cost_tokens > 0.0 && isfinite(cost.money.value))
            fprintf(out, ", cost %s at %g a GPU-hour", spw_amount_text(cost.money.value, text),
                    spw_job_price(v->request->plan->job));
        fputs(spw_search_next_text(v, p, next), out);
    }
    fputc('\n', out);
}

/* "it surely fits: 62.9 GiB live, 69.2 reserved, of 73.6" */
static void print_room(const spw_search_view *v, const spw_search_point *p, FILE *out) {
    char room[SPW_BUDGET_TEXT];
    fprintf(out, "it %s: ", spw_verdict_sentence(p->verdict, p->surely_fits));
    if (p->reserved_bytes > 0.0)
        fprintf(out, "%.1f GiB live, %.1f reserved,", (double)p->peak_bytes / GIB, p->reserved_bytes / GIB);
    else if (p->kind == SPW_MEMORY_LIVE)
        fprintf(out, "%.1f GiB or more", (double)p->low_bytes / GIB);
    else
        fprintf(out, "%.1f to %.1f GiB", (double)p->low_bytes / GIB, (double)p->high_bytes / GIB);
    fprintf(out, " of %.1f", (double)p->budget_bytes / GIB);
    if (p->budget.listed || p->budget.resident > 0.0)
        fprintf(out, " (%s)", spw_device_budget_text(&p->budget, v->request->plan->job, room));
    const spw_plan_unsure unsure = {p->most_bytes,
                                    p->kind,
                                    (double)p->budget_bytes,
                                    p->reserved_bytes > 0.0,
                                    v->request->plan->scheme[p->scheme].type,
                                    p->budget.listed};
    if (p->verdict != SPW_VERDICT_OOM && !p->surely_fits)
        spw_plan_print_unsure(&unsure, v->request->plan->job, out);
}

static void print_fits(const spw_search_view *v, const spw_search_point *p, FILE *out) {
    const spw_search_front *f = &v->outcome->front;
    char text[SPW_SEARCH_POINT_TEXT], next[SPW_SEARCH_NEXT_TEXT];
    fprintf(out, "%-*s", LABEL, "fits");
    print_room(v, p, out);
    if (p->timed && !v->origin->even)
        fprintf(out, "; uneven routing: %.3f times the step with balanced routing",
                p->step.step_s / p->balanced.step.step_s);
    fprintf(out, ", ");
    print_drops(p, out);
    if (!f->found_sure) {
        fprintf(out, "; no point surely fits");
    } else if (f->best_sure.order != p->order) {
        spw_search_point_text(v, f->best_sure.value, f->best_sure.sequences, f->best_sure.scheme, text);
        fprintf(out, "; the best that surely fits: %s", text);
        if (f->best_sure.timed) fprintf(out, ", %.0f tokens/s a GPU", f->best_sure.tokens_per_s_per_gpu);
        fputs(spw_search_next_text(v, &f->best_sure, next), out);
    }
    fputc('\n', out);
}

void spw_search_print_doubts(const spw_search_view *v, const spw_search_point *p, FILE *out) {
    const spw_job *job = v->request->plan->job;
    char text[SPW_SEARCH_POINT_TEXT], outside[SPW_SEARCH_OUTSIDE_TEXT];
    spw_search_point_text(v, p->value, p->sequences, p->scheme, text);
    fprintf(out, "%s: ", text);
    print_room(v, p, out);
    fputc('\n', out);
    if (job->more[0] != '\0') fprintf(out, "may need more memory: %s\n", job->more);
    if (job->less[0] != '\0') fprintf(out, "needs less memory than is planned: %s\n", job->less);
    if (p->outside.count > 0)
        fprintf(out, "outside the fit: %s\n", spw_search_outside_text(&v->outcome->reasons, p, outside));
}

static void print_proof(const spw_search_view *v, FILE *out) {
    char text[SPW_SEARCH_PROOF_TEXT];
    if (spw_search_proof_text(v->outcome, text)[0] != '\0') fprintf(out, "%-*s%s\n", LABEL, "proof", text);
}

void spw_search_print_brief(const spw_search_view *v, FILE *out) {
    const spw_job *job = v->request->plan->job;
    const spw_search_front *f = &v->outcome->front;
    char words[SPW_CLUSTER_WORDS], replicas[SPW_REPLICAS_SHORT];
    fprintf(out, "search    %s on %s (%s)%s, %zu tokens a sequence%s: ", job->model.name, job->cluster.name,
            spw_cluster_words(&job->cluster, words), spw_job_replicas_text(job, spw_job_gpus(job), replicas),
            job->sequence_length, spw_offload_note(&job->offload));
    if (v->outcome->stopped)
        fprintf(out, "stopped after %zu of %zu points; the best of all may be another\n",
                spw_search_looked_at(v->outcome), v->outcome->points);
    else
        fprintf(out, "%zu points looked at\n", v->outcome->points);
    if (v->outcome->stopped) print_proof(v, out);
    if (!f->found) {
        print_nothing(v, out);
        return;
    }
    print_best(v, &f->best, out);
    print_fits(v, &f->best, out);
    print_options(v, &f->best, out);
    spw_plan_print_others(v->others, out);
    spw_plan_print_beside(v->request->plan, out);
    print_batch(v, out);
    char layout[SPW_LAYOUT_TEXT];
    if (!v->details && spw_search_layout(v, &f->best, layout))
        fprintf(out, "%-*sneeded, as the layers do not divide: --pipeline-model-parallel-layout '%s'\n",
                LABEL, "layout", layout);
    if (v->outcome->untimed)
        fprintf(out,
                "%-*sno point has a time: most sequences at a time, then the smallest batch and the least "
                "memory, is best%s\n",
                LABEL, "", v->request->cost_tokens > 0.0 ? "; without a time there is no cost" : "");
}

static void print_software(const spw_search_view *v, FILE *out) {
    const spw_run_settings *s = v->origin->settings;
    if (s->stack != NULL) fprintf(out, "software  %s\n", s->stack);
    if (s->stack_distance[0] != '\0') fprintf(out, "%*s%s\n", LABEL, "", s->stack_distance);
}

static void print_doubts(const spw_search_view *v, FILE *out) {
    const spw_job *job = v->request->plan->job;
    char share[SPW_SHARE_TEXT];
    fprintf(out, "\n");
    spw_result_print_precision(job, out);
    if (spw_search_share_note(v, share)) fprintf(out, "%-*s%s\n", LABEL, "assumed", share);
    spw_print_model_doubts(&job->model, "model     ", out);
    fprintf(out, "routing   %s\n", v->origin->routing);
    spw_stated_print(v->request->plan->imbalance, spw_job_gpus(job), out);
    print_schemes(v, out);
    if (v->origin->settings->stack_distance[0] != '\0') print_software(v, out);
    print_budgets(v, out);
    fprintf(out, "\n");
}

/* The points, and what the answer rests on. */
static void print_details(const spw_search_view *v, FILE *out) {
    const spw_search_front *f = &v->outcome->front;
    char intervals[SPW_SEARCH_INTERVALS_TEXT];
    if (f->found && !v->outcome->untimed)
        fprintf(out, "intervals of times: %s\n", spw_search_intervals_text(v, intervals));
    fprintf(out, "\n");
    if (f->found) {
        print_point("best", v, &v->outcome->reasons, &f->best, out);
        if (f->found_sure && f->best_sure.order != f->best.order)
            print_point("surely", v, &v->outcome->reasons, &f->best_sure, out);
        fprintf(out, "\n");
    }
    if (v->origin->settings->stack_distance[0] == '\0') print_software(v, out); /* else above */
    print_absent(v, out);
    print_space(v, out);
    print_fates(v, out);
    if (!v->outcome->stopped) print_proof(v, out);
}

static spw_status print_table(const spw_search_view *v, FILE *out) {
    spw_status status = SPW_OK;
    spw_search_print_brief(v, out);
    print_doubts(v, out);
    if (v->outcome->front.found) {
        fprintf(out,
                "points that no other beats in memory, speed, drops and GPUs%s (*: live, a lower bound; ?: "
                "may not fit)\n",
                v->outcome->front.lost > 0 ? ", the first of them" : "");
        status = spw_search_print_front(v, SPW_FORMAT_TABLE, out);
        if (status != SPW_OK) return status;
    }
    if (v->details) {
        print_details(v, out);
    } else {
        if (!v->outcome->front.found) print_absent(v, out);
        fprintf(out, "\nmore: --details (the best point in full, software, intervals, the points looked at "
                     "and what became of them)\n");
    }
    return SPW_OK;
}

spw_status spw_search_print(const spw_search_view *v, spw_format format, FILE *out) {
    if (format == SPW_FORMAT_JSON) return spw_search_print_json(v, out);
    if (format == SPW_FORMAT_CSV) return spw_search_print_front(v, format, out);
    return print_table(v, out);
}
