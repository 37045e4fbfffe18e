#include "sim/replay/safe_factor.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

enum { TIME_COLUMN = 12, COLUMNS = 19 };
static const spw_column all_columns[COLUMNS] = {
    {"scheme", "scheme with the smallest factor"},
    {"sequences_per_gpu", "seq/GPU"},
    {"steps", "steps"},
    {"rate", "may overflow"},
    {"option", NULL},
    {"factor", "factor"},
    {"overflows", "overflow"},
    {"upper", "95 % limit"},
    {"assured_factor", "assured"},
    {"steps_needed", "needs steps"},
    {"dropped", "dropped then"},
    {"worst", "at worst"},
    {"step_s", "time s"},
    {"again_s", "run again s"},
    {"peak_bytes", "GiB/GPU"},
    {"saved_bytes", "saves GiB"},
    {"worst_factor", "never at"},
    {"worst_bytes", NULL},
    {NULL, NULL},
};

static void add_real(spw_table *t, bool there, double value, double unit, const char *shown) {
    if (there) {
        spw_table_scaled(t, value, unit, shown);
    } else {
        spw_table_none(t);
    }
}

static void add_row(spw_table *t, const spw_safe_factor *a) {
    const bool there = a->factor > 0.0, timed = a->step_s > 0.0;
    spw_table_text(t, a->scheme);
    spw_table_count(t, a->sequences);
    spw_table_count(t, a->steps);
    spw_table_scaled(t, a->rate, 0.01, a->rate > 0.0 ? "%g %%" : "no step");
    spw_table_text(t, a->option);
    add_real(t, there, a->factor, 1.0, "%.3f");
    add_real(t, there, (double)a->overflows, 1.0, "%.0f");
    add_real(t, there, a->upper, 0.01, "%.3g %%");
    add_real(t, a->assured > 0.0, a->assured, 1.0, "%.3f");
    add_real(t, a->steps_needed > 0, (double)a->steps_needed, 1.0, "%.0f");
    add_real(t, there, a->dropped, 0.01, "%.3g %%");
    add_real(t, there, a->worst, 0.01, "%.3g %%");
    add_real(t, timed, a->step_s, 1.0, "%.4f");
    add_real(t, timed, a->again_s, 1.0, "%.4f");
    add_real(t, there, (double)a->peak_bytes, GIB, "%.2f");
    add_real(t, there, (double)a->worst_bytes - (double)a->peak_bytes, GIB, "%.2f");
    spw_table_real(t, a->worst_factor, "%.3f");
    spw_table_count(t, a->worst_bytes);
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
    spw_column columns[COLUMNS];
    spw_table *table = NULL;
    bool timed = false;
    for (size_t i = 0; i < result->safes; i++) timed = timed || result->safe[i].step_s > 0.0;
    for (size_t i = 0; i < COLUMNS; i++) columns[i] = all_columns[i];
    if (!timed) columns[TIME_COLUMN].heading = columns[TIME_COLUMN + 1].heading = NULL;
    spw_status status = spw_table_create(columns, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < result->safes; i++) add_row(table, &result->safe[i]);
    if (format == SPW_FORMAT_TABLE) print_meanings(out);
    status = spw_table_print(table, format, out);
    spw_table_destroy(table);
    return status;
}

static json_t *real_or_null(bool there, double value) { return there ? spw_json_real(value) : json_null(); }

json_t *spw_safe_factors_json(spw_json *json, const spw_result *result) {
    json_t *list = json_array();
    for (size_t i = 0; i < result->safes; i++) {
        const spw_safe_factor *a = &result->safe[i];
        const bool there = a->factor > 0.0, timed = a->step_s > 0.0;
        json_t *object = json_object();
        spw_json_put(json, object, "scheme", spw_json_text(a->scheme));
        spw_json_put(json, object, "sequences_per_gpu", spw_json_count(a->sequences));
        spw_json_put(json, object, "steps", spw_json_count(a->steps));
        spw_json_put(json, object, "rate", spw_json_real(a->rate));
        spw_json_put(json, object, "option", spw_json_text(a->option));
        spw_json_put(json, object, "factor", real_or_null(there, a->factor));
        spw_json_put(json, object, "overflows", there ? spw_json_count(a->overflows) : json_null());
        spw_json_put(json, object, "upper", real_or_null(there, a->upper));
        spw_json_put(json, object, "assured_factor", real_or_null(a->assured > 0.0, a->assured));
        spw_json_put(json, object, "steps_needed",
                     a->steps_needed > 0 ? spw_json_count(a->steps_needed) : json_null());
        spw_json_put(json, object, "dropped", real_or_null(there, a->dropped));
        spw_json_put(json, object, "worst", real_or_null(there, a->worst));
        spw_json_put(json, object, "step_s", real_or_null(timed, a->step_s));
        spw_json_put(json, object, "again_s", real_or_null(timed, a->again_s));
        spw_json_put(json, object, "peak_bytes", there ? spw_json_count(a->peak_bytes) : json_null());
        spw_json_put(json, object, "worst_factor", spw_json_real(a->worst_factor));
        spw_json_put(json, object, "worst_bytes", spw_json_count(a->worst_bytes));
        spw_json_add(json, list, object);
    }
    return list;
}
