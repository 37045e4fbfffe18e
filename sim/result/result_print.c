#include "sim/result/result_print.h"
#include "sim/memory/kept/launches.h"
#include "sim/result/page_print.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/print/plural.h"
#include "sim/replay/result_answers.h"
#include "sim/result/result_json.h"
#include "sim/result/row_cost_print.h"
#include "traces/trace.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* Which columns a person sees: one whose cells all say the same is left out, as the heading above the table says it. */
typedef struct shown {
    bool step, sequences, nodes, reserved, steps; /* steps: of a row there are several */
    const spw_result_balance *balance;            /* NULL: no balancer */
} shown;

static shown shown_of(const spw_result *result) {
    shown s = {.balance = result->balance.rows > 0 ? &result->balance : NULL};
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *row = &result->row[i], *first = &result->row[0];
        s.step = s.step || row->first_step != first->first_step || row->last_step != first->last_step;
        s.sequences = s.sequences || row->sequences != first->sequences;
        s.nodes = s.nodes || row->traffic.inter_node_bytes > 0.0;
        s.reserved = s.reserved || row->reserved.there;
        s.steps = s.steps || row->steps > 1;
    }
    return s;
}

/* What names a row. */
static void add_head(spw_table *t, const spw_result_row *r, shown s) {
    char text[SPW_STEPS_TEXT];
    spw_table_text(spw_table_in(t, "scheme", "scheme"), r->scheme.text);
    spw_table_shown(spw_table_in(t, "first_step", s.step ? "step" : NULL), (uint64_t)r->first_step,
                    spw_result_steps_text(r, text));
    spw_table_count(spw_table_in(t, "last_step", NULL), (uint64_t)r->last_step);
    spw_table_count(spw_table_in(t, "sequences_per_gpu", s.sequences ? "seq/GPU" : NULL), r->sequences);
}

/* Of the allocator; nothing where none was replayed. What a step that ran out had reached is not all it needs. */
static void add_gib(spw_table *t, const spw_reserved_summary *s, uint64_t bytes) {
    if (s->there) {
        spw_table_scaled(t, (double)bytes, GIB, s->as_set.failed_steps > 0 ? ">=%.2f" : "%.2f");
    } else {
        spw_table_text(t, "");
    }
}

/* max/mean of the same row without the balancer. */
static double unbalanced(const spw_result_balance *b, const spw_result_row *r) {
    for (size_t i = 0; i < b->rows; i++)
        if (b->row[i].sequences == r->sequences && strcmp(b->row[i].scheme, r->scheme.text) == 0)
            return (double)b->row[i].without.rows_max / r->traffic.rows_mean;
    return NAN;
}

static void add_traffic(spw_table *t, const spw_result_row *r, shown see) {
    const spw_result_traffic *f = &r->traffic;
    spw_table_count(spw_table_in(t, "rows_max", "rows max"), f->rows_max);
    spw_table_real(spw_table_in(t, "rows_mean", NULL), f->rows_mean, "%.0f");
    spw_table_real(spw_table_in(t, "max_over_mean", "max/mean"),
                   f->rows_mean > 0.0 ? (double)f->rows_max / f->rows_mean : 0.0, "%.2f");
    if (see.balance != NULL)
        spw_table_real(spw_table_in(t, "max_over_mean_without", "without it"), unbalanced(see.balance, r),
                       "%.2f");
    spw_table_scaled(spw_table_in(t, "dispatch_bytes_per_gpu", "dispatch MB"), f->dispatch_bytes_per_gpu, 1e6,
                     "%.2f");
    spw_table_scaled(spw_table_in(t, "combine_bytes_per_gpu", "combine MB"), f->combine_bytes_per_gpu, 1e6,
                     "%.2f");
    spw_table_scaled(spw_table_in(t, "inter_node_bytes", see.nodes ? "by NIC MB" : NULL), f->inter_node_bytes,
                     1e6, "%.2f");
    spw_table_scaled(spw_table_in(t, "max_link_bytes", "busiest MB"), (double)f->max_link_bytes, 1e6, "%.2f");
    spw_table_scaled(spw_table_in(t, "step_bytes_per_gpu", "step GB"), f->step_bytes_per_gpu, 1e9, "%.3f");
}

/* CSV alone has them: print_times() shows them to a person. */
static void add_times(spw_table *t, const spw_result_row *r) {
    const struct {
        const char *key;
        double value;
    } times[] = {{"step_s", r->time.step_s},
                 {"tokens_per_s_per_gpu", r->time.tokens_per_s_per_gpu},
                 {"low_s", r->time.low_s},
                 {"high_s", r->time.high_s},
                 {"balanced_step_s", r->balanced.step_s},
                 {"balanced_low_s", r->balanced.low_s},
                 {"balanced_high_s", r->balanced.high_s},
                 {"worst_step_s", r->worst.step_s},
                 {"worst_low_s", r->worst.low_s},
                 {"worst_high_s", r->worst.high_s},
                 {"tokens_per_s_low", r->tokens_per_s_low},
                 {"tokens_per_s_high", r->tokens_per_s_high}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (i == 2) spw_table_text(spw_table_in(t, "evidence", NULL), spw_match_name(r->match));
        spw_table_real(spw_table_in(t, times[i].key, NULL), r->timed ? times[i].value : NAN, NULL);
    }
}

/* Keys are those of the JSON row, flattened. live: a person is told what is live alone. */
static void add_row(spw_table *t, const spw_result_row *r, const spw_run_settings *s, shown see, bool live) {
    const spw_footprint *f = &r->footprint;
    const spw_row_cost cost = spw_row_cost_of(r, s->job, s->tokens);
    add_head(t, r, see);
    spw_table_text(spw_table_in(t, "verdict", "memory"), spw_verdict_text(spw_result_verdict(r), live));
    spw_table_scaled(spw_table_in(t, "peak_bytes", "GiB/GPU"), (double)r->memory.max_bytes, GIB, "%.2f");
    spw_table_count(spw_table_in(t, "budget_bytes", NULL), f->budget_bytes);
    spw_table_scaled(spw_table_in(t, "argument_bytes", NULL), (double)f->argument_bytes, GIB, "%.2f");
    spw_table_scaled(spw_table_in(t, "temporary_bytes", NULL), (double)f->temporary_bytes, GIB, "%.2f");
    spw_table_real(spw_table_in(t, "oom_probability", NULL), r->memory.oom_probability, NULL);
    add_gib(spw_table_in(t, "allocated_bytes", see.reserved ? "allocated" : NULL), &r->reserved,
            r->reserved.as_set.allocated.max_bytes);
    add_gib(spw_table_in(t, "reserved_bytes", see.reserved ? "reserved" : NULL), &r->reserved,
            r->reserved.as_set.reserved.max_bytes);
    add_traffic(t, r, see);
    spw_table_count(spw_table_in(t, "assignments", NULL), r->drops.assignments);
    spw_table_count(spw_table_in(t, "dropped", NULL), r->drops.dropped);
    spw_table_scaled(spw_table_in(t, "drop_fraction", "dropped"), r->drops.fraction, 0.01, "%.2f %%");
    spw_table_count(spw_table_in(t, "tokens_fully_dropped", NULL), r->drops.tokens_fully_dropped);
    add_times(t, r);
    spw_table_flag(spw_table_in(t, "surely_fits", NULL), r->surely_fits);
    spw_row_cost_add(t, &cost);
}

/* A step time and its interval, which only a person sees. */
static void add_span(spw_table *t, const char *key, const char *heading, const spw_step_span *span) {
    spw_table_figure(spw_table_in(t, key, heading), span->step_s);
    spw_table_interval(t, (spw_column){"low_s", heading != NULL ? "low-high" : NULL}, "high_s", span->low_s,
                       span->high_s);
}

/* The step times of the rows that have one, in a table of their own; nothing where none has. */
static spw_status print_times(const spw_result *result, shown see, FILE *out) {
    spw_table *table = NULL;
    char text[SPW_SPAN_TEXT];
    size_t timed = 0;
    for (size_t i = 0; i < result->rows; i++) timed += result->row[i].timed;
    if (timed == 0) return SPW_OK;
    const spw_status status = spw_table_create(NULL, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *r = &result->row[i];
        const spw_step_span step = {r->time.step_s, r->time.low_s, r->time.high_s};
        if (!r->timed) continue;
        add_head(table, r, see);
        add_span(table, "step_s", "time s", &step);
        add_span(table, "balanced_step_s", "balanced s", &r->balanced);
        add_span(table, "worst_step_s", see.steps ? "longest s" : NULL, &r->worst);
        spw_table_real(spw_table_in(table, "tokens_per_s_per_gpu", "tok/s/GPU"), r->time.tokens_per_s_per_gpu,
                       "%.0f");
        spw_table_real_shown(spw_table_in(table, "tokens_per_s_low", "low-high"), r->tokens_per_s_low,
                             spw_span_text(r->tokens_per_s_low, r->tokens_per_s_high, "-", text));
    }
    fputs("\nstep times with their intervals\n", out);
    const spw_status printed = spw_table_print(table, SPW_FORMAT_TABLE, out);
    spw_table_destroy(table);
    return printed;
}

static void print_formats(const spw_job *job, FILE *out) {
    char text[SPW_PRECISION_TEXT];
    if (job->implied[0] != '\0') fprintf(out, "split     %s\n", job->implied);
    if (job->more[0] != '\0')
        fprintf(out, "more      memory than these figures may be needed: %s\n", job->more);
    if (job->less[0] != '\0')
        fprintf(out, "less      memory than these figures is needed by the file: %s\n", job->less);
    spw_precision_line(job, text);
    fprintf(out, "precision %s\n", text);
    if (spw_precision_hint(job) != NULL) fprintf(out, "          (%s)\n", spw_precision_hint(job));
    if (job->unsaid[0] != '\0') fprintf(out, "assumed   %s\n", job->unsaid);
}

static void print_trace(const spw_run_settings *s, FILE *out) {
    if (s->trace == NULL) return;
    char name[128], path[512];
    spw_plain_text(s->trace_path, path, sizeof path);
    spw_plain_text(s->trace->model_name, name, sizeof name);
    fprintf(out, "trace     %s: %s, %zu step%s x %zu layer%s, top-%zu of %zu", path,
            name[0] != '\0' ? name : "no model named", s->trace->steps, spw_plural(s->trace->steps),
            s->trace->layers, spw_plural(s->trace->layers), s->trace->top_k, s->trace->experts);
    if (s->trace->ranks > 0)
        fprintf(out, ", %zu source rank%s", s->trace->ranks, spw_plural(s->trace->ranks));
    fprintf(out, "\n");
}

static void print_room(const spw_result_row *r, const spw_job *job, FILE *out) {
    char text[SPW_BUDGET_TEXT];
    fprintf(out, "memory    %.2f GiB a GPU may be used: ", (double)r->footprint.budget_bytes / GIB);
    if (r->budget.listed || r->budget.resident > 0.0)
        fprintf(out, "%s", spw_device_budget_text(&r->budget, job, text));
    else
        fprintf(out, "%g of %.2f (%s)", job->memory_fraction, job->cluster.hbm_gib.value,
                spw_evidence_name(job->cluster.hbm_gib.evidence));
}

/* Three lines that answer, then what they rest on. */
static void print_heading(const spw_result *result, const spw_run_settings *s, FILE *out) {
    const spw_job *job = s->job;
    const spw_footprint *f = &result->row[0].footprint;
    bool gradients = false;
    for (size_t i = 0; i < f->components; i++)
        gradients = gradients || (f->component[i].argument && strcmp(f->component[i].name, "gradients") == 0);
    char words[SPW_CLUSTER_WORDS];
    fprintf(out, "%-9s %s on %s (%s), expert %zu x fsdp %zu", s->command, job->model.name, job->cluster.name,
            spw_cluster_words(&job->cluster, words), job->expert, job->fsdp);
    if (job->pipeline > 1) fprintf(out, " x pipeline %zu", job->pipeline);
    spw_grid_print(job, out);
    fprintf(out, ", ");
    if (job->batches == 1) fprintf(out, "%zu x ", job->sequences_per_gpu[0]);
    fprintf(out, "%zu tokens %s, remat %s%s%s\n", job->sequence_length,
            job->batches == 1 ? spw_grid_tokens_of(job) : "a sequence", spw_remat_name(job->remat),
            spw_offload_note(&job->offload), spw_launches_note(job));
    spw_result_print_brief(result, s, out);
    fputc('\n', out);
    print_trace(s, out);
    if (job->global_batch > 0)
        fprintf(out, "batch     %zu sequences of all GPUs in a step\n", job->global_batch);
    print_room(&result->row[0], job, out);
    fprintf(out, "; %.2f GiB are weights%s and optimizer\n", (double)f->argument_bytes / GIB,
            gradients ? ", gradients" : "");
    print_formats(job, out);
    if (s->stack_distance != NULL && s->stack_distance[0] != '\0')
        fprintf(out, "software  %s\n", s->stack_distance);
}

void spw_result_print_precision(const spw_job *job, FILE *out) {
    char text[SPW_PRECISION_TEXT];
    print_formats(job, out);
    if (spw_precision_assumed(job, text)) fprintf(out, "assumed   %s\n", text);
}

void spw_result_print_split(const spw_job *job, FILE *out) {
    char text[SPW_GRID_ASSUMED_TEXT];
    if (spw_grid_assumed(job, text)) fprintf(out, "assumed   %s\n", text);
}

/* Is there a row before of the same scheme and batch? Of steps there are many. */
static bool is_said(const spw_result *result, size_t row) {
    const spw_result_row *r = &result->row[row];
    for (size_t i = 0; i < row; i++) {
        const spw_result_row *other = &result->row[i];
        if (other->sequences == r->sequences && other->expert == r->expert &&
            strcmp(other->scheme.text, r->scheme.text) == 0)
            return true;
    }
    return false;
}

void spw_result_print_newest(const spw_result *result, FILE *out) {
    bool said = false;
    char text[SPW_NEWEST_TEXT];
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *r = &result->row[i];
        if (!spw_newest_arena_differs(&r->newest, spw_result_verdict(r)) || is_said(result, i)) continue;
        if (!said)
            fprintf(out,
                    "newest    what must be live is a lower bound; by the arena of %s, the newest stack, "
                    "which plan takes\n          by itself (--stack %s uses it):\n",
                    r->newest.stack, r->newest.stack);
        said = true;
        fprintf(out, "          %s, expert %zu, %zu sequence%s a GPU, %s\n", r->scheme.text, r->expert,
                r->sequences, spw_plural(r->sequences), spw_newest_arena_text(&r->newest, text));
    }
}

/* Every sentence of every row, once. */
static spw_status print_assumptions(const spw_result *result, FILE *out) {
    const char **said = NULL;
    size_t sentences = 0, count = 0;
    for (size_t i = 0; i < result->rows; i++) sentences += result->row[i].assumptions.count;
    const spw_status status = SPW_ALLOC(sentences, &said);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < result->rows; i++) {
        for (size_t a = 0; a < result->row[i].assumptions.count; a++) {
            const char *sentence = result->row[i].assumptions.text[a];
            size_t same = 0;
            while (same < count && strcmp(said[same], sentence) != 0) same++;
            if (same < count) continue;
            said[count++] = sentence;
            fprintf(out, "assumed   %s\n", sentence);
        }
    }
    spw_free((void *)said);
    return SPW_OK;
}

/* What holds for every row is said once. */
static spw_status print_evidence(const spw_result *result, FILE *out) {
    for (int match = 0; match < SPW_MATCH_COUNT; match++) {
        size_t rows = 0, last = 0;
        for (size_t i = 0; i < result->rows; i++) rows += result->row[i].match == (spw_match)match;
        if (rows == 0) continue;
        fprintf(out, "evidence  %s", spw_match_name((spw_match)match));
        for (size_t i = 0; i < result->rows && rows < result->rows; i++) {
            const spw_result_row *row = &result->row[i];
            if (row->match != (spw_match)match || row->sequences == last) continue;
            fprintf(out, "%s%zu", last == 0 ? " at sequences per GPU " : ", ", row->sequences);
            last = row->sequences;
        }
        fputc('\n', out);
    }
    return print_assumptions(result, out);
}

/* Which level of the network a dispatch waits for, where it has several. */
static void print_levels(const spw_result *result, const spw_cluster *cluster, FILE *out) {
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *r = &result->row[i];
        const spw_level_bytes *b = &r->traffic.levels;
        if (b->count == 0 || is_said(result, i)) continue;
        fprintf(out, "%s%s at %zu seq/GPU, the busiest port of a level in one dispatch:", i == 0 ? "\n" : "",
                r->scheme.text, r->sequences);
        for (size_t l = 0; l < b->count; l++)
            fprintf(out, "%s %s %.2f MB, %.3f ms", l > 0 ? ";" : "", spw_level_bytes_name(cluster, l),
                    (double)b->most[l] / 1e6, 1e3 * spw_level_bytes_seconds(b, cluster, l));
        fprintf(out, ". The slowest is %s\n",
                spw_level_bytes_name(cluster, spw_level_bytes_slowest(b, cluster)));
    }
}

/* Do the two differ in nothing but the factor that was asked? */
static bool has_one_answer(const spw_factor_answer *a, const spw_factor_answer *b) {
    return a->sequences == b->sequences && strcmp(a->without, b->without) == 0;
}

static void print_answers(const spw_result *result, FILE *out) {
    if (result->factors + result->batches > 0) fputc('\n', out);
    for (size_t i = 0; i < result->factors; i++) {
        const spw_factor_answer *a = &result->factor[i];
        size_t first = 0;
        while (!has_one_answer(&result->factor[first], a)) first++;
        if (first < i) continue;
        for (size_t o = i; o < result->factors; o++) {
            if (has_one_answer(&result->factor[o], a))
                fprintf(out, "%s%s", o > i ? ", " : "", result->factor[o].scheme);
        }
        fprintf(out, " at %zu seq/GPU: ", a->sequences);
        if (a->factor > 0.0) {
            fprintf(out, "the smallest %s that drops at most %g %% is %.3f, which drops %.4g %%\n", a->option,
                    100.0 * a->most, a->factor, 100.0 * a->fraction);
        } else {
            fprintf(out, "no %s drops as little as %g %%\n", a->option, 100.0 * a->most);
        }
    }
    for (size_t i = 0; i < result->batches; i++) {
        const spw_batch_answer *a = &result->batch[i];
        fprintf(out, "%s: ", a->scheme);
        if (a->largest == 0) {
            fprintf(out, "not even 1 sequence per GPU fits at %g %%\n", 100.0 * a->at);
            continue;
        }
        fprintf(out, "the largest number of sequences per GPU that fits at %g %% is %s%zu%s", 100.0 * a->at,
                a->at_least ? "at least " : "", a->largest, a->at_least ? " (not searched further)" : "");
        if (a->live) fprintf(out, ", by what must be live alone, a lower bound");
        if (a->routed)
            fprintf(out, "; over %zu steps it runs out with probability %.4g (95 %%: %.4g to %.4g)", a->steps,
                    a->oom.value, a->oom.low, a->oom.high);
        fputc('\n', out);
    }
}

/* Schemes that were left out. */
static void print_refusals(const spw_result *result, FILE *out) {
    for (size_t i = 0; i < result->refusals; i++)
        fprintf(out, "cannot be %s: %s\n", result->refusal[i].scheme, result->refusal[i].reason);
}

spw_status spw_result_print(const spw_result *result, const spw_run_settings *settings, spw_format format,
                            FILE *out) {
    if (result->rows == 0) return spw_fail(SPW_EARG, "no scheme was asked for");
    if (format == SPW_FORMAT_JSON) return spw_result_print_json(result, settings, out);
    const bool person = format == SPW_FORMAT_TABLE;
    const shown see = shown_of(result);
    spw_table *table = NULL;
    spw_status status = spw_table_create(NULL, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < result->rows; i++)
        add_row(table, &result->row[i], settings, see, person && spw_point_is_live_alone(&result->row[i]));
    if (person) {
        print_heading(result, settings, out);
        status = print_evidence(result, out);
        spw_result_print_newest(result, out);
        print_refusals(result, out);
        fputc('\n', out);
    }
    if (status == SPW_OK) status = spw_table_print(table, format, out);
    if (status == SPW_OK && person) status = print_times(result, see, out);
    if (status == SPW_OK && person)
        status = spw_row_costs_print(result, settings, see.step, see.sequences, out);
    if (person) {
        for (size_t i = 0; i < result->rows; i++) {
            spw_result_print_reserved(&result->row[i], out);
            spw_page_run_print(&result->row[i], out);
        }
        print_levels(result, &settings->job->cluster, out);
        print_answers(result, out);
        fputs("\nrows: assignments a GPU holds for its experts. dispatch, combine: off-GPU bytes a GPU sends "
              "in "
              "one exchange;\n"
              "busiest: most that one GPU's port carries one way in one dispatch; step: all exchanges of all "
              "MoE layers.\n",
              out);
    }
    spw_table_destroy(table);
    return status;
}
