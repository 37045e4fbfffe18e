#include "sim/result/overload_print.h"

#include <inttypes.h>
#include <math.h>

static double positive(double value) { return value > 0.0 ? value : NAN; } /* 0 is no factor and no time */

/* What is said of one kind of factor, of the replayed step, or of a layer. */
typedef struct line {
    const char *of;
    double mean, worst;
    const int64_t *worst_step; /* NULL: none */
    spw_step_span step;        /* 0: it has none */
    double cost_s;             /* NAN: nothing is said */
} line;

static void add_line(spw_table *t, const spw_result_row *r, line l) {
    char text[SPW_STEPS_TEXT];
    spw_table_text(spw_table_in(t, "scheme", "scheme"), r->scheme.text);
    spw_table_count(spw_table_in(t, "sequences_per_gpu", "seq/GPU"), r->sequences);
    spw_table_shown(spw_table_in(t, "first_step", "step"), (uint64_t)r->first_step,
                    spw_result_steps_text(r, text));
    spw_table_whole(spw_table_in(t, "last_step", NULL), r->last_step);
    spw_table_text(spw_table_in(t, "of", "of"), l.of);
    spw_table_real(spw_table_in(t, "mean", "mean"), positive(l.mean), "%.3f");
    spw_table_real(spw_table_in(t, "worst", "worst"), positive(l.worst), "%.3f");
    spw_table_in(t, "worst_step", "at step");
    if (l.worst_step != NULL)
        spw_table_whole(t, *l.worst_step);
    else
        spw_table_none(t);
    spw_table_real(spw_table_in(t, "step_s", "time s"), positive(l.step.step_s), "%.4f");
    spw_table_interval(t, (spw_column){"low_s", "low-high"}, "high_s", positive(l.step.low_s),
                       l.step.low_s > 0.0 ? l.step.high_s : NAN);
    spw_table_real(spw_table_in(t, "over_balanced", "/balanced"),
                   positive(l.step.step_s > 0.0 ? l.step.step_s / r->balanced.step_s : 0.0), "%.3f");
    spw_table_scaled(spw_table_in(t, "layer_cost_s", "costs ms"), l.cost_s, 1e-3, "%.3f");
}

static void add_row(spw_table *t, const spw_result_row *r) {
    const spw_result_overload *o = &r->overload;
    for (int i = 0; i < SPW_OVERLOADS; i++)
        add_line(t, r,
                 (line){spw_overload_name(i), o->run.mean[i], o->run.worst[i], &o->run.worst_step[i],
                        o->stated[i], NAN});
    add_line(t, r,
             (line){"as replayed", .step = {r->time.step_s, r->time.low_s, r->time.high_s}, .cost_s = NAN});
    for (size_t l = 0; l < r->layers; l++) {
        char name[32];
        (void)snprintf(name, sizeof name, "layer %" PRId32, o->layer[l].id);
        add_line(t, r,
                 (line){name, o->layer[l].average, o->layer[l].max,
                        .cost_s = r->timed ? o->layer[l].cost_s : NAN});
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
    spw_status status = spw_table_create(NULL, &table);
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

static json_t *or_null(double value) { return spw_json_real(positive(value)); }

json_t *spw_overload_json(spw_json *json, const spw_result_row *r) {
    const spw_result_overload *o = &r->overload;
    json_t *object = json_object(), *layers = json_array();
    spw_json_put(json, object, "ranks", spw_json_count(o->ranks));
    for (int i = 0; i < SPW_OVERLOADS; i++) {
        json_t *factor = json_object();
        spw_json_put(json, factor, "mean", or_null(o->run.mean[i]));
        spw_json_put(json, factor, "worst", or_null(o->run.worst[i]));
        spw_json_put(json, factor, "worst_step", json_integer(o->run.worst_step[i]));
        spw_json_put(json, factor, "step_s", or_null(o->stated[i].step_s));
        spw_json_put(json, factor, "low_s", or_null(o->stated[i].low_s));
        spw_json_put(json, factor, "high_s", or_null(o->stated[i].high_s));
        spw_json_put(json, factor, "over_balanced",
                     or_null(o->stated[i].step_s > 0.0 ? o->stated[i].step_s / r->balanced.step_s : 0.0));
        spw_json_put(json, object, spw_overload_name(i), factor);
    }
    spw_json_put(json, object, "slowest_rank_of_run", or_null(o->run_rank));
    spw_json_put(json, object, "over_balanced", spw_json_real(spw_result_row_ratio(r).value));
    for (size_t l = 0; l < r->layers; l++) {
        json_t *layer = json_object();
        spw_json_put(json, layer, "layer", json_integer(o->layer[l].id));
        spw_json_put(json, layer, "average", or_null(o->layer[l].average));
        spw_json_put(json, layer, "max", or_null(o->layer[l].max));
        spw_json_put(json, layer, "cost_s", r->timed ? spw_json_real(o->layer[l].cost_s) : json_null());
        spw_json_add(json, layers, layer);
    }
    spw_json_put(json, object, "layers", layers);
    return object;
}
