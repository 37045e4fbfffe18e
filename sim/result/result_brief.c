#include "sim/result/result_print.h"

#include "sim/print/plural.h"
#include "sim/print/table.h"
#include "sim/replay/result_answers.h"
#include "sim/result/row_cost.h"

#include <math.h>
#include <stdbool.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static void print_fastest(const spw_result_row *r, const spw_run_settings *s, FILE *out) {
    char text[SPW_SPAN_TEXT], step[SPW_SPAN_TEXT];
    const spw_ratio ratio = spw_result_row_ratio(r);
    fprintf(out, "fastest   %s, %zu sequence%s: %.0f tokens/s a GPU (%s)", r->scheme.text, r->sequences,
            spw_plural(r->sequences), r->time.tokens_per_s_per_gpu,
            spw_span_text(r->tokens_per_s_low, r->tokens_per_s_high, " to ", text));
    fprintf(out, ", step %s s (%s)", spw_figure_text(r->time.step_s, step),
            spw_span_text(r->time.low_s, r->time.high_s, " to ", text));
    fprintf(out, ", %.3f times (%.3f to %.3f) that of balanced routing", ratio.value, ratio.low, ratio.high);
    const spw_row_cost cost = spw_row_cost_of(r, s->job, s->tokens);
    if (s->tokens > 0.0 && isfinite(cost.money.value))
        fprintf(out, "; %s tokens cost %s", spw_amount_text(s->tokens, step),
                spw_amount_text(cost.money.value, text));
    fputc('\n', out);
}

/* Are rows steps of one scheme and batch? Then none of them is an answer. */
static bool are_steps(const spw_result *result) {
    return result->rows > 1 && result->row[0].scheme.type == result->row[1].scheme.type &&
           result->row[0].sequences == result->row[1].sequences &&
           result->row[0].first_step != result->row[1].first_step;
}

const char *spw_fit_counts_text(const spw_result *result, char out[SPW_FIT_COUNTS]) {
    size_t fit = 0, surely = 0;
    for (size_t i = 0; i < result->rows; i++) {
        fit += spw_point_fits(&result->row[i]);
        surely += spw_point_fits(&result->row[i]) && result->row[i].surely_fits;
    }
    const int used = snprintf(out, SPW_FIT_COUNTS, "%zu fit%s", surely, surely == 1 ? "s" : "");
    if (fit > surely)
        (void)snprintf(out + used, (size_t)(SPW_FIT_COUNTS - used), ", %zu may not fit", fit - surely);
    return out;
}

enum { WHY_TEXT = 512 };
static const char *why_no_fastest(const spw_result *result, const spw_run_settings *s, char text[WHY_TEXT]) {
    bool timed = false;
    for (size_t i = 0; i < result->rows; i++) timed = timed || result->row[i].timed;
    if (!timed && s->stack == NULL) {
        const bool known = s->newest != NULL && s->newest[0] != '\0';
        (void)snprintf(text, WHY_TEXT, "no times without a software stack: --stack %s%s",
                       known ? s->newest : "NAME", known ? ", as a plan takes by itself" : "");
        return text;
    }
    if (are_steps(result)) return "a row is a step here (--each-step)";
    if (!timed) return "no row has a time";
    return "no row with a time fits and drops at most 1 %";
}

void spw_result_print_brief(const spw_result *result, const spw_run_settings *s, FILE *out) {
    const spw_result_row *fastest =
                             are_steps(result) ? NULL : spw_result_fastest(result, SPW_DROP_MOST, false),
                         *most = NULL, *least = &result->row[0];
    size_t fit = 0;
    char counts[SPW_FIT_COUNTS], why[WHY_TEXT];
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *r = &result->row[i];
        fit += spw_point_fits(r);
        if (spw_point_drops(r) && (most == NULL || r->drops.fraction > most->drops.fraction)) most = r;
        if (r->memory.max_bytes < least->memory.max_bytes) least = r;
    }
    if (fastest != NULL)
        print_fastest(fastest, s, out);
    else
        fprintf(out, "fastest   %s\n", why_no_fastest(result, s, why));
    fprintf(out, "fits      %zu row%s: %s", result->rows, spw_plural(result->rows),
            spw_fit_counts_text(result, counts));
    if (fit == 0)
        fprintf(out, "; %s needs least, %.1f of %.1f GiB", least->scheme.text,
                (double)least->memory.max_bytes / GIB, (double)least->footprint.budget_bytes / GIB);
    if (most != NULL)
        fprintf(out, "; the most is dropped by %s: %s%.2f %%", most->scheme.text,
                most->drops.at_least ? "at least " : "", 100.0 * most->drops.fraction);
    else
        fprintf(out, "; nothing is dropped");
    fputc('\n', out);
}
