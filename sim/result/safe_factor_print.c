#include "sim/replay/safe_factor.h"

#include <math.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* timed: any answer has a time. */
static void add_row(spw_table *t, const spw_safe_factor *a, bool timed) {
    const bool there = a->factor > 0.0, own = a->step_s > 0.0;
    spw_table_text(spw_table_in(t, "scheme", "scheme with the smallest factor"), a->scheme);
    spw_table_count(spw_table_in(t, "sequences_per_gpu", "seq/GPU"), a->sequences);
    spw_table_count(spw_table_in(t, "steps", "steps"), a->steps);
    spw_table_scaled(spw_table_in(t, "rate", "may overflow"), a->rate, 0.01,
                     a->rate > 0.0 ? "%g %%" : "no step");
    spw_table_text(spw_table_in(t, "option", NULL), a->option);
    spw_table_real(spw_table_in(t, "factor", "factor"), there ? a->factor : NAN, "%.3f");
    spw_table_count_of(spw_table_in(t, "overflows", "overflow"), there, a->overflows, 1.0, "%.0f");
    spw_table_scaled(spw_table_in(t, "upper", "95 % limit"), there ? a->upper : NAN, 0.01, "%.3g %%");
    spw_table_real(spw_table_in(t, "assured_factor", "assured"), a->assured > 0.0 ? a->assured : NAN, "%.3f");
    spw_table_count_of(spw_table_in(t, "steps_needed", "needs steps"), a->steps_needed > 0, a->steps_needed,
                       1.0, "%.0f");
    spw_table_scaled(spw_table_in(t, "dropped", "dropped then"), there ? a->dropped : NAN, 0.01, "%.3g %%");
    spw_table_scaled(spw_table_in(t, "worst", "at worst"), there ? a->worst : NAN, 0.01, "%.3g %%");
    spw_table_real(spw_table_in(t, "step_s", timed ? "time s" : NULL), own ? a->step_s : NAN, "%.4f");
    spw_table_real(spw_table_in(t, "again_s", timed ? "run again s" : NULL), own ? a->again_s : NAN, "%.4f");
    spw_table_count_of(spw_table_in(t, "peak_bytes", "GiB/GPU"), there, a->peak_bytes, GIB, "%.2f");
    spw_table_scaled(spw_table_in(t, "saved_bytes", "saves GiB"),
                     there ? (double)a->worst_bytes - (double)a->peak_bytes : NAN, GIB, "%.2f");
    spw_table_real(spw_table_in(t, "worst_factor", "never at"), a->worst_factor, "%.3f");
    spw_table_count(spw_table_in(t, "worst_bytes", NULL), a->worst_bytes);
}

static void print_meanings(FILE *out) {
    fputs("\nThe smallest factor with which no step, or so many of the steps, overflows: a step does when a "
          "choice is "
          "dropped in any\n"
          "of its layers. 95 % limit: the share of steps that may overflow, as far as these steps can say if "
          "they are "
          "independent;\n"
          "assured: the smallest factor whose limit is within the rate (-: the trace is too short, it needs "
          "so many "
          "steps);\n"
          "dropped then: of the choices of the steps that overflow, at worst: of the worst of them. A "
          "framework that "
          "runs such a\n"
          "step again instead takes that share of the steps twice (run again). saves: against the factor at "
          "which no "
          "routing\n"
          "overflows (never at).\n\n",
          out);
}

spw_status spw_safe_factors_print(const spw_result *result, spw_format format, FILE *out) {
    spw_table *table = NULL;
    bool timed = false;
    for (size_t i = 0; i < result->safes; i++) timed = timed || result->safe[i].step_s > 0.0;
    spw_status status = spw_table_create(NULL, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < result->safes; i++) add_row(table, &result->safe[i], timed);
    if (format == SPW_FORMAT_TABLE) print_meanings(out);
    status = spw_table_print(table, format, out);
    spw_table_destroy(table);
    return status;
}

json_t *spw_safe_factors_json(spw_json *json, const spw_result *result) {
    json_t *list = json_array();
    spw_table *t = NULL;
    json->failed = json->failed || spw_table_create(NULL, &t) != SPW_OK;
    for (size_t i = 0; i < result->safes && t != NULL; i++) {
        json_t *object = json_object();
        add_row(t, &result->safe[i], false);
        spw_table_put(t,
                      "scheme,sequences_per_gpu,steps,rate,option,factor,overflows,upper,assured_factor,"
                      "steps_needed,dropped,worst,step_s,again_s,peak_bytes,worst_factor,worst_bytes",
                      json, object);
        spw_json_add(json, list, object);
    }
    spw_table_destroy(t);
    return list;
}
