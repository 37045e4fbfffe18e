#include "sim/command/plan/plan_until_view.h"

#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/allocator/allocator_share.h"
#include "sim/print/plural.h"
#include "sim/result/result_print.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { PLACE_TEXT = 96, VALUE_TEXT = 48 };

static bool is_memory(const spw_until_line *l) { return !(l->factor > 0.0); }

static double unit(const spw_until_line *l) { return is_memory(l) ? GIB : 1.0; }

/* --- Pieces --- */

static const char *kind_name(spw_until_kind kind) {
    static const char *const names[] = {"found", "never", "always", "no time"};
    return names[kind];
}

/* Which GPU holds most; "-" of what has no place. */
static const char *place_text(const spw_until_view *v, const spw_until_line *l, char out[PLACE_TEXT]) {
    const spw_until_place *p = &l->answer.place;
    int used = 0;
    (void)snprintf(out, PLACE_TEXT, "-");
    if (!is_memory(l) || !l->answer.follows) return out;
    if (p->stages > 1) used = snprintf(out, PLACE_TEXT, "stage %zu of %zu, ", p->stage, p->stages);
    if (v->family == SPW_UNTIL_STATED)
        (void)snprintf(out + used, (size_t)(PLACE_TEXT - used), "the fullest GPU");
    else if (p->layer >= 0)
        (void)snprintf(out + used, (size_t)(PLACE_TEXT - used), "GPU %zu, layer %d", p->rank, p->layer);
    else
        (void)snprintf(out + used, (size_t)(PLACE_TEXT - used), "GPU %zu", p->rank);
    return out;
}

/* "148.1 (148.1 to 163.0)" */
static const char *value_text(const spw_until_line *l, const spw_until_value *value, char out[VALUE_TEXT]) {
    const char *format = is_memory(l) ? "%.1f (%.1f to %.1f)" : "%.3f (%.3f to %.3f)";
    const double by = unit(l);
    if (isinf(value->high)) {
        (void)snprintf(out, VALUE_TEXT, is_memory(l) ? "%.1f (%.1f or more)" : "%.3f (%.3f or more)",
                       value->value / by, value->low / by);
    } else {
        (void)snprintf(out, VALUE_TEXT, format, value->value / by, value->low / by, value->high / by);
    }
    return out;
}

static void print_skew(const spw_until_skew *skew, FILE *out) {
    fprintf(out, "the fullest GPU gets %.3g times the mean, the fullest expert %.3g times (MaxVio %.3g)",
            skew->gpu, skew->expert, skew->expert - 1.0);
}

static const char *today_word(const spw_until_view *v) {
    return v->family == SPW_UNTIL_RECORDED ? "recorded" : "given";
}

/* --- One point, in words --- */

static void print_at(const spw_until_view *v, const spw_until_line *l, double severity,
                     const spw_until_skew *skew, const spw_until_value *value, FILE *out) {
    char text[VALUE_TEXT];
    fprintf(out, "%s %.4g: ", v->key, severity);
    print_skew(skew, out);
    fprintf(out, "; %s %s\n", value_text(l, value, text), is_memory(l) ? "GiB" : "times its balanced step");
}

static void print_sure(const spw_until_view *v, const spw_until_line *l, FILE *out) {
    const spw_until_answer *a = &l->answer;
    const char *const too = is_memory(l) ? "out of memory" : "too long";
    if (isnan(a->sure))
        fprintf(out, "  surely good nowhere that was tried");
    else
        fprintf(out, "  surely good up to %s %.4g", v->key, a->sure);
    if (isnan(a->surely_bad))
        fprintf(out, "; surely %s nowhere that was tried\n", too);
    else
        fprintf(out, "; surely %s from %s %.4g\n", too, v->key, a->surely_bad);
}

/* One GPU of the expert-parallel ranks can get no more than all tokens. */
static bool is_all_there_is(const spw_until_view *v, const spw_until_line *l) {
    return strcmp(v->key, "imbalance") == 0 && l->answer.good >= (double)l->expert;
}

static void print_words(const spw_until_view *v, const spw_until_line *l, FILE *out) {
    const spw_until_answer *a = &l->answer;
    const char *const too = is_memory(l) ? "out of memory at " : "too long at ";
    char place[PLACE_TEXT], value[VALUE_TEXT];
    fprintf(out, "%s, EP %zu, %zu sequence%s\n", l->scheme, l->expert, l->sequences,
            spw_plural(l->sequences));
    switch (a->kind) {
    case SPW_UNTIL_FOUND:
        fprintf(out, "  good up to ");
        print_at(v, l, a->good, &l->good, &a->at_good, out);
        fprintf(out, "  %s", too);
        print_at(v, l, a->bad, &l->bad, &a->at_bad, out);
        break;
    case SPW_UNTIL_NEVER:
        fprintf(out, "  %s\n  tried up to ",
                a->follows ? is_all_there_is(v, l) ? "good up to all that can be: one GPU gets every token"
                                                   : "good up to the end of what was tried"
                : is_memory(l) ? "never: its memory does not follow the routing"
                               : "never: its step does not follow this routing");
        print_at(v, l, a->good, &l->good, &a->at_good, out);
        break;
    case SPW_UNTIL_ALWAYS:
        fprintf(out, "  already %s", too);
        print_at(v, l, a->bad, &l->bad, &a->at_bad, out);
        break;
    case SPW_UNTIL_UNTIMED: fprintf(out, "  it has no time, so that nothing can be said of it\n"); return;
    }
    if (a->follows || l->once) print_sure(v, l, out);
    if (!isnan(v->today))
        fprintf(out, "  %s, at %s %.4g: %s %s\n", today_word(v), v->key, v->today,
                value_text(l, &a->at_today, value), is_memory(l) ? "GiB" : "times its balanced step");
    if (strcmp(place_text(v, l, place), "-") != 0) fprintf(out, "  most is held by %s\n", place);
    if (is_memory(l) && a->place.death[0] != '\0')
        fprintf(out, "  runs out of memory first %s\n", a->place.death);
    if (a->drops_good > 0.0 && a->kind != SPW_UNTIL_ALWAYS)
        fprintf(out, "  but it drops %.3g %% of the assignments at %.4g\n", 100.0 * a->drops_good, a->good);
}

/* --- Several points, a line each --- */

/* Up to where the point is good, as a person reads it: "4.35", "8 (end)", "any", "nowhere". */
static void put_good(spw_table *t, const spw_until_answer *a) {
    char text[32];
    (void)snprintf(text, sizeof text, a->kind == SPW_UNTIL_NEVER ? "%.4g (end)" : "%.4g", a->good);
    if (a->kind == SPW_UNTIL_NEVER && !a->follows) (void)snprintf(text, sizeof text, "any");
    if (a->kind == SPW_UNTIL_ALWAYS) (void)snprintf(text, sizeof text, "nowhere");
    if (a->kind == SPW_UNTIL_UNTIMED) (void)snprintf(text, sizeof text, "no time");
    spw_table_real_shown(spw_table_in(t, "good", "good up to"), a->kind == SPW_UNTIL_UNTIMED ? NAN : a->good,
                         text);
}

/* What the lines of a table have. */
typedef struct has {
    bool memory, drops;
} has;

/* What the point holds at the ends of the answer. */
static void add_values(const spw_until_view *v, const spw_until_line *l, has any, spw_table *t) {
    const spw_until_answer *a = &l->answer;
    const bool timed = a->kind != SPW_UNTIL_UNTIMED, always = a->kind == SPW_UNTIL_ALWAYS;
    const bool good = timed && !always, bad = timed && a->kind != SPW_UNTIL_NEVER;
    const spw_until_value *at = always ? &a->at_bad : &a->at_good;
    char value[VALUE_TEXT];
    spw_table_scaled(spw_table_in(t, "today_value", isnan(v->today) ? NULL : today_word(v)),
                     timed ? a->at_today.value : NAN, unit(l), is_memory(l) ? "%.1f" : "%.3f");
    spw_table_real(spw_table_in(t, "value_low", NULL), timed ? a->at_low.value : NAN, NULL);
    spw_table_real_shown(spw_table_in(t, "value_good", any.memory ? "GiB there" : "x balanced there"),
                         good ? at->value : NAN, timed ? value_text(l, at, value) : "-");
    spw_table_real(spw_table_in(t, "value_good_low", NULL), good ? at->low : NAN, NULL);
    spw_table_real(spw_table_in(t, "value_good_high", NULL), good ? at->high : NAN, NULL);
    spw_table_real(spw_table_in(t, "value_bad", NULL), bad ? a->at_bad.value : NAN, NULL);
    spw_table_real(spw_table_in(t, "budget", NULL), at->budget, NULL);
    spw_table_scaled(spw_table_in(t, "dropped", any.drops ? "dropped" : NULL), timed ? a->drops_good : NAN,
                     0.01, "%.2f %%");
}

/* What one plan alone cannot tell. */
static void put_told(spw_table *t, const spw_until_line *l, bool value) {
    if (l->once)
        spw_table_none(t);
    else
        spw_table_text(t, value ? "yes" : "no");
}

static void add_line(const spw_until_view *v, const spw_until_line *l, has any, spw_table *t) {
    const spw_until_answer *a = &l->answer;
    const bool timed = a->kind != SPW_UNTIL_UNTIMED,
               out = is_memory(l) && timed && a->kind != SPW_UNTIL_NEVER, follows = out && a->follows;
    const double none = NAN, violation = l->good.expert - 1.0;
    char place[PLACE_TEXT];
    spw_table_text(spw_table_in(t, "scheme", "scheme"), l->scheme);
    spw_table_count(spw_table_in(t, "expert_parallel", "EP"), l->expert);
    spw_table_count(spw_table_in(t, "sequences_per_gpu", "seq"), l->sequences);
    spw_table_text(spw_table_in(t, "question", NULL), l->question);
    spw_table_text(spw_table_in(t, "answer", NULL), kind_name(a->kind));
    spw_table_text(spw_table_in(t, "severity", NULL), v->key);
    spw_table_real(spw_table_in(t, "sure", "surely up to"), timed ? a->sure : none, "%.4g");
    put_good(t, a);
    spw_table_real(spw_table_in(t, "bad", NULL), timed && a->kind != SPW_UNTIL_NEVER ? a->bad : none, NULL);
    spw_table_real(spw_table_in(t, "surely_bad", "surely not from"), timed ? a->surely_bad : none, "%.4g");
    spw_table_real(spw_table_in(t, "max_over_mean", "GPU x"), timed ? l->good.gpu : none, "%.2f");
    spw_table_real(spw_table_in(t, "expert_max_over_mean", "expert x"), timed ? l->good.expert : none,
                   "%.2f");
    spw_table_real(spw_table_in(t, "max_violation", "MaxVio"),
                   timed ? (fabs(violation) < 1e-9 ? 0.0 : violation) : none, "%.2f");
    spw_table_real(spw_table_in(t, "today", NULL), v->today, NULL);
    spw_table_real(spw_table_in(t, "today_max_over_mean", NULL), l->today.gpu, NULL);
    spw_table_real(spw_table_in(t, "today_expert_max_over_mean", NULL), l->today.expert, NULL);
    add_values(v, l, any, t);
    (void)spw_table_in(t, "first_out", any.memory ? "first out" : NULL);
    if (out)
        spw_table_text(t, place_text(v, l, place));
    else
        spw_table_none(t);
    spw_table_real(spw_table_in(t, "stage", NULL), out && a->place.stages > 1 ? (double)a->place.stage : none,
                   NULL);
    spw_table_real(spw_table_in(t, "gpu", NULL),
                   follows && v->family != SPW_UNTIL_STATED ? (double)a->place.rank : none, NULL);
    spw_table_real(spw_table_in(t, "layer", NULL),
                   follows && a->place.layer >= 0 ? (double)a->place.layer : none, NULL);
    put_told(spw_table_in(t, "follows", NULL), l, a->follows);
    put_told(spw_table_in(t, "monotone", NULL), l, a->monotone);
}

/* question NULL: all of them. */
static spw_status print_lines(const spw_until_view *v, const char *question, spw_format format, FILE *out) {
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    has any = {false, false};
    for (size_t i = 0; i < v->lines; i++) {
        if (question != NULL && strcmp(question, v->line[i].question) != 0) continue;
        any.memory = any.memory || is_memory(&v->line[i]);
        any.drops = any.drops || v->line[i].answer.drops_good > 0.0;
    }
    SPW_TRY(spw_table_create(NULL, &table));
    for (size_t i = 0; i < v->lines; i++)
        if (question == NULL || strcmp(question, v->line[i].question) == 0)
            add_line(v, &v->line[i], any, table);
    SPW_TRY(spw_table_print(table, format, out));

cleanup:
    spw_table_destroy(table);
    return status;
}

/* --- Around the answers --- */

/* What of the first point the models that answer were not fitted on. */
static void print_outside(const spw_until_view *v, FILE *out) {
    bool memory = false, time = false;
    size_t said = 0;
    for (size_t i = 0; i < v->lines; i++) {
        memory = memory || is_memory(&v->line[i]);
        time = time || !is_memory(&v->line[i]);
    }
    for (size_t i = 0; i < v->outside.count; i++) {
        const spw_outside_item *item = &v->outside.item[i];
        if (!(memory && strcmp(item->of, "memory") == 0) && !(time && strcmp(item->of, "time") == 0))
            continue;
        fprintf(out, "%s%s", said++ == 0 ? "beyond    the fit, for the first point: " : "; ", item->feature);
    }
    if (said > 0) fprintf(out, "\n");
}

/* The routing as it was given, once for every expert-parallel size. */
static void print_today(const spw_until_view *v, FILE *out) {
    size_t said = 0;
    if (isnan(v->today)) return;
    for (size_t i = 0; i < v->lines; i++) {
        bool before = false;
        for (size_t k = 0; k < i; k++) before = before || v->line[k].expert == v->line[i].expert;
        if (before) continue;
        fprintf(out, "%-10sEP %zu, %s %.4g: ", said++ > 0 ? "" : today_word(v), v->line[i].expert, v->key,
                v->today);
        print_skew(&v->line[i].today, out);
        fprintf(out, "\n");
    }
}

/* The point that lasts longest of one question; `surely`: by the end of its interval. NULL: none does. */
static const spw_until_line *longest(const spw_until_view *v, const char *question, bool surely) {
    const spw_until_line *best = NULL;
    double most = -INFINITY;
    for (size_t i = 0; i < v->lines; i++) {
        const spw_until_answer *a = &v->line[i].answer;
        const bool lasts = surely ? !isnan(a->sure) && a->kind != SPW_UNTIL_UNTIMED
                                  : a->kind == SPW_UNTIL_FOUND || a->kind == SPW_UNTIL_NEVER;
        const double at = surely ? a->sure : a->good;
        if (!lasts || strcmp(v->line[i].question, question) != 0 || !(at > most)) continue;
        best = &v->line[i];
        most = at;
    }
    return best;
}

static void print_longest(const spw_until_view *v, const spw_until_line *question, bool surely, FILE *out) {
    const spw_until_line *l = longest(v, question->question, surely);
    const char *const of = is_memory(question) ? "by memory" : "by time";
    if (l == NULL) {
        fprintf(out, "%s no point%s", of,
                surely                                       ? ""
                : question->answer.kind == SPW_UNTIL_UNTIMED ? " has a time"
                                                             : "");
        return;
    }
    fprintf(out, "%s %s, EP %zu, %zu sequence%s, up to %s %.4g", of, l->scheme, l->expert, l->sequences,
            spw_plural(l->sequences), v->key, surely ? l->answer.sure : l->answer.good);
    if (!surely && l->answer.kind == SPW_UNTIL_NEVER)
        is_all_there_is(v, l) ? fprintf(out, ", all that EP %zu can be", l->expert)
                              : fprintf(out, ", the end of what was tried");
}

static bool is_first_of_question(const spw_until_view *v, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (strcmp(v->line[k].question, v->line[i].question) == 0) return false;
    return true;
}

/* Three lines: what was asked, what lasts longest, and what surely does. */
static void print_what(const spw_until_view *v, FILE *out) {
    const spw_job *job = v->plan->job;
    char words[SPW_CLUSTER_WORDS], room[SPW_BUDGET_TEXT];
    fprintf(out, "until     %s on %s, %s, %zu tokens a sequence", job->model.name, job->cluster.name,
            spw_cluster_words(&job->cluster, words), job->sequence_length);
    for (size_t i = 0; i < v->lines; i++) {
        if (!is_first_of_question(v, i)) continue;
        if (is_memory(&v->line[i]))
            fprintf(out, "; a GPU needs more than %s GiB",
                    spw_budget_span_text(job, v->plan->scheme, v->plan->schemes, room));
        else
            fprintf(out, "; a step takes more than %g times the balanced one", v->line[i].factor);
    }
    for (int surely = 0; surely <= 1; surely++) {
        size_t said = 0;
        fprintf(out, "\n%s", surely == 1 ? "surely    " : "lasts     ");
        for (size_t i = 0; i < v->lines; i++) {
            if (!is_first_of_question(v, i)) continue;
            if (said++ > 0) fprintf(out, "; ");
            print_longest(v, &v->line[i], surely == 1, out);
        }
    }
    fprintf(out, "\n\n");
}

/* What the answer rests on. */
static void print_basis(const spw_until_view *v, FILE *out) {
    const spw_job *job = v->plan->job;
    fprintf(out, "\nremat     %s%s, optimizer %s; as said, or the defaults of plan\n",
            spw_remat_name(job->remat), spw_offload_note(&job->offload), spw_optimizer_name(job->optimizer));
    spw_result_print_precision(job, out);
    spw_result_print_split(job, out);
    print_outside(v, out);
    fprintf(out, "routing   %s, %s ", v->routing, v->key);
    if (v->once)
        fprintf(out, "%.4g alone, as every point is out there already", v->low);
    else
        fprintf(out, "from %.4g to %.4g", v->low, v->high);
    fprintf(out, ", %zu plan%s\n", v->plans, spw_plural(v->plans));
    print_today(v, out);
}

static bool same_refusal(const spw_until_refusal *a, const spw_until_refusal *b) {
    return strcmp(a->scheme, b->scheme) == 0 && strcmp(a->reason, b->reason) == 0;
}

/* Each reason of a scheme once, and how many points have it. */
static void print_refusals(const spw_until_view *v, FILE *out) {
    for (size_t i = 0; i < v->refusals; i++) {
        const spw_until_refusal *r = &v->refusal[i];
        size_t before = 0, all = 0;
        for (size_t k = 0; k < v->refusals; k++) {
            before += k < i && same_refusal(r, &v->refusal[k]);
            all += same_refusal(r, &v->refusal[k]);
        }
        if (before > 0) continue;
        fprintf(out, "%s, EP %zu", r->scheme, r->expert);
        if (r->sequences > 0) fprintf(out, ", %zu sequence%s", r->sequences, spw_plural(r->sequences));
        if (all > 1) fprintf(out, ", and %zu more", all - 1);
        fprintf(out, "\n  cannot be: %s\n", r->reason);
    }
}

/* What one answer lacks. */
static void print_doubts(const spw_until_view *v, const spw_until_line *l, bool named, FILE *out) {
    const spw_until_answer *a = &l->answer;
    const double by = unit(l);
    char name[SPW_SCHEME_TEXT + 64] = "";
    if (named)
        (void)snprintf(name, sizeof name, "%s, EP %zu, %zu sequence%s: ", l->scheme, l->expert, l->sequences,
                       spw_plural(l->sequences));
    if (a->kind == SPW_UNTIL_UNTIMED) return;
    if (a->good_again > 0.0)
        fprintf(out,
                "  %snot monotone: at %s %.4g it is good again, so that the number is the first of several\n",
                name, v->key, a->good_again);
    if (!isnan(a->fall.from))
        fprintf(out, "  %snot monotone: from %s %.4g to %.4g it falls from %.4g to %.4g %s\n", name, v->key,
                a->fall.from, a->fall.to, a->fall.value_from / by, a->fall.value_to / by,
                is_memory(l) ? "GiB" : "times its balanced step");
    if (a->kind == SPW_UNTIL_FOUND && is_memory(l) && a->at_bad.value < a->at_good.value)
        fprintf(out, "  %sat %.4g: held when a larger allocation failed, not what it needs\n", name, a->bad);
}

/* What the columns of the tables mean. */
static void print_columns(const spw_until_view *v, FILE *out) {
    fprintf(
        out,
        "\ngood up to: the largest %s at which the figure itself is good (end: nothing larger was tried); "
        "surely "
        "up to: at which all of its interval is; surely not from: the least from which on none of it is; -: "
        "nowhere that was tried\n"
        "GPU x, expert x, MaxVio, what stands 'there': at good up to; first out: what runs out of memory "
        "first\n",
        v->key);
}

static void print_legend(const spw_until_view *v, FILE *out) {
    bool live = false, measured = false, memory = false, time = false;
    for (size_t i = 0; i < v->lines; i++) {
        const spw_until_line *l = &v->line[i];
        memory = memory || is_memory(l);
        live = live || (is_memory(l) && l->live);
        measured = measured || (is_memory(l) && l->measured);
        time = time || (!is_memory(l) && l->answer.kind != SPW_UNTIL_UNTIMED);
    }
    const double share = spw_allocator_share(&v->plan->job->allocator);
    fprintf(out, "\n");
    if (live)
        fprintf(
            out,
            "memory: what must be live, a lower bound: where it is over the budget, a GPU surely runs out; "
            "what an allocator adds comes on top (--allocator replays PyTorch's)\n");
    if (measured && isfinite(share))
        fprintf(out,
                "        surely good: also where the allocator takes %.3g times the live bytes that are not "
                "state, the most that was measured on H200 (docs/until.md)\n",
                share);
    if (memory && !live)
        fprintf(out, "memory: the interval is that of what a GPU holds; surely good where all of it fits\n");
    if (time)
        fprintf(
            out,
            "time:   the interval is that of the step over the balanced one; what slows both alike is not "
            "in it (docs/until.md)\n");
    fprintf(out, "loads, over their mean, are of the routing asked for, before a scheme drops or pads "
                 "anything, in its "
                 "worst step; MaxVio: the fullest expert's less 1\n");
}

static spw_status print_text(const spw_until_view *v, FILE *out) {
    const bool several = v->lines > v->questions;
    spw_status status = SPW_OK;
    print_what(v, out);
    for (size_t i = 0; i < v->lines && status == SPW_OK; i++) {
        if (!several) {
            if (v->questions > 1) fprintf(out, "%s%s: ", i > 0 ? "\n" : "", v->line[i].question);
            print_words(v, &v->line[i], out);
            print_doubts(v, &v->line[i], false, out);
        } else if (is_first_of_question(v, i)) {
            fprintf(out, "%s%s, by %s\n", i > 0 ? "\n" : "",
                    is_memory(&v->line[i]) ? "fits" : "is no longer than asked", v->key);
            status = print_lines(v, v->line[i].question, SPW_FORMAT_TABLE, out);
        }
    }
    for (size_t i = 0; i < v->lines && several; i++) print_doubts(v, &v->line[i], true, out);
    print_basis(v, out);
    if (v->refusals > 0) fprintf(out, "\n");
    print_refusals(v, out);
    if (several) print_columns(v, out);
    print_legend(v, out);
    return status;
}

spw_status spw_plan_until_print(const spw_until_view *v, spw_format format, FILE *out) {
    return format == SPW_FORMAT_TABLE ? print_text(v, out) : print_lines(v, NULL, format, out);
}
