#include "sim/result/overload_print.h"

#include <inttypes.h>

static const spw_column columns[] = {
    {"scheme", "scheme"},
    {"sequences_per_gpu", "seq/GPU"},
    {"first_step", "step"},
    {"last_step", NULL},
    {"of", "of"},
    {"mean", "mean"},
    {"worst", "worst"},
    {"worst_step", "at step"},
    {"step_s", "time s"},
    {"low_s", "low-high"},
    {"high_s", NULL},
    {"over_balanced", "/balanced"},
    {"layer_cost_s", "costs ms"},
    {NULL, NULL},
};

static void add_head(spw_table *t, const spw_result_row *r, const char *of) {
    char text[64];
    (void)snprintf(text, sizeof text, r->steps == 1 ? "%" PRId64 : "%" PRId64 "-%" PRId64, r->first_step,
                   r->last_step);
    spw_table_text(t, r->scheme.text);
    spw_table_count(t, r->sequences);
    spw_table_shown(t, (uint64_t)r->first_step, text);
    spw_table_whole(t, r->last_step);
    spw_table_text(t, of);
}

/* 0 is no factor and no time. */
static void add_positive(spw_table *t, double value, const char *shown) {
    if (value > 0.0) {
        spw_table_real(t, value, shown);
    } else {
        spw_table_none(t);
    }
}

static void add_time(spw_table *t, const spw_result_row *r, const spw_step_span *step) {
    add_positive(t, step->step_s, "%.4f");
    if (step->low_s > 0.0) {
        spw_table_interval(t, step->low_s, step->high_s);
    } else {
        spw_table_none(t);
        spw_table_none(t);
    }
    add_positive(t, step->step_s > 0.0 ? step->step_s / r->balanced.step_s : 0.0, "%.3f");
}

static void add_row(spw_table *t, const spw_result_row *r) {
    const spw_result_overload *o = &r->overload;
    const spw_step_span replayed = {r->time.step_s, r->time.low_s, r->time.high_s};
    for (int i = 0; i < SPW_OVERLOADS; i++) {
        add_head(t, r, spw_overload_name(i));
        add_positive(t, o->run.mean[i], "%.3f");
        add_positive(t, o->run.worst[i], "%.3f");
        spw_table_whole(t, o->run.worst_step[i]);
        add_time(t, r, &o->stated[i]);
        spw_table_none(t);
    }
    add_head(t, r, "as replayed");
    for (int i = 0; i < 3; i++) spw_table_none(t);
    add_time(t, r, &replayed);
    spw_table_none(t);
    for (size_t l = 0; l < r->layers; l++) {
        char name[32];
        (void)snprintf(name, sizeof name, "layer %" PRId32, o->layer[l].id);
        add_head(t, r, name);
        add_positive(t, o->layer[l].average, "%.3f");
        add_positive(t, o->layer[l].max, "%.3f");
        for (int i = 0; i < 5; i++) spw_table_none(t);
        if (r->timed) {
            spw_table_scaled(t, o->layer[l].cost_s, 1e-3, "%.3f");
        } else {
            spw_table_none(t);
        }
    }
}

static void print_meanings(FILE *out) {
    fputs("\nOverload factors: rows of the fullest rank of an expert-parallel group over the mean of its "
          "ranks; mean "
          "and worst over steps.\n",
          out);
    for (int i = 0; i < SPW_OVERLOADS; i++)
        fprintf(out, "%-17s %s\n", spw_overload_name(i), spw_overload_meaning(i));
    fputs(
        "time s: the step if every layer were as uneven as the mean; /balanced: that over balanced routing. "
        "Of a layer: average and\n"
        "largest factor, and the milliseconds of a step that it costs beyond balanced routing.\n\n",
        out);
}

spw_status spw_overload_print(const spw_result *result, spw_format format, FILE *out) {
    spw_table *table = NULL;
    spw_status status = spw_table_create(columns, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < result->rows; i++) {
        if (result->row[i].overload.ranks > 0) add_row(table, &result->row[i]);
    }
    if (format == SPW_FORMAT_TABLE) print_meanings(out);
    status = spw_table_print(table, format, out);
    spw_table_destroy(table);
    return status;
}

/* --- JSON --- */

static json_t *positive(double value) { return value > 0.0 ? spw_json_real(value) : json_null(); }

json_t *spw_overload_json(spw_json *json, const spw_result_row *r) {
    const spw_result_overload *o = &r->overload;
    json_t *object = json_object(), *layers = json_array();
    spw_json_put(json, object, "ranks", spw_json_count(o->ranks));
    for (int i = 0; i < SPW_OVERLOADS; i++) {
        json_t *factor = json_object();
        spw_json_put(json, factor, "mean", positive(o->run.mean[i]));
        spw_json_put(json, factor, "worst", positive(o->run.worst[i]));
        spw_json_put(json, factor, "worst_step", json_integer(o->run.worst_step[i]));
        spw_json_put(json, factor, "step_s", positive(o->stated[i].step_s));
        spw_json_put(json, factor, "low_s", positive(o->stated[i].low_s));
        spw_json_put(json, factor, "high_s", positive(o->stated[i].high_s));
        spw_json_put(json, factor, "over_balanced",
                     positive(o->stated[i].step_s > 0.0 ? o->stated[i].step_s / r->balanced.step_s : 0.0));
        spw_json_put(json, object, spw_overload_name(i), factor);
    }
    spw_json_put(json, object, "slowest_rank_of_run", positive(o->run_rank));
    spw_json_put(json, object, "over_balanced", spw_json_real(spw_result_row_ratio(r).value));
    for (size_t l = 0; l < r->layers; l++) {
        json_t *layer = json_object();
        spw_json_put(json, layer, "layer", json_integer(o->layer[l].id));
        spw_json_put(json, layer, "average", positive(o->layer[l].average));
        spw_json_put(json, layer, "max", positive(o->layer[l].max));
        spw_json_put(json, layer, "cost_s", r->timed ? spw_json_real(o->layer[l].cost_s) : json_null());
        spw_json_add(json, layers, layer);
    }
    spw_json_put(json, object, "layers", layers);
    return object;
}
