#include "sim/replay/balance.h"

#include "sim/print/plural.h"

#include <math.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* timed: of any row. Both sides of a figure beside each other. */
static void add_row(spw_table *t, const spw_balance_row *r, bool timed) {
    const spw_balance_side *a = &r->without, *b = &r->with;
    const bool own = b->step_s > 0.0;
    const char *const with = timed ? "with it" : NULL;
    spw_table_text(spw_table_in(t, "scheme", "scheme"), r->scheme);
    spw_table_count(spw_table_in(t, "sequences_per_gpu", "seq/GPU"), r->sequences);
    spw_table_real(spw_table_in(t, "average_without", "max/mean"), a->average, "%.3f");
    spw_table_real(spw_table_in(t, "average_with", "with it"), b->average, "%.3f");
    spw_table_real(spw_table_in(t, "max_without", "at most"), a->max, "%.3f");
    spw_table_real(spw_table_in(t, "max_with", "with it"), b->max, "%.3f");
    spw_table_count(spw_table_in(t, "rows_max_without", "rows max"), a->rows_max);
    spw_table_count(spw_table_in(t, "rows_max_with", "with it"), b->rows_max);
    spw_table_scaled(spw_table_in(t, "dispatch_bytes_without", "dispatch MB"), a->dispatch_bytes, 1e6,
                     "%.2f");
    spw_table_scaled(spw_table_in(t, "dispatch_bytes_with", "with it"), b->dispatch_bytes, 1e6, "%.2f");
    spw_table_scaled(spw_table_in(t, "dropped_without", "dropped"), a->dropped, 0.01, "%.2f %%");
    spw_table_scaled(spw_table_in(t, "dropped_with", "with it"), b->dropped, 0.01, "%.2f %%");
    spw_table_scaled(spw_table_in(t, "peak_bytes_without", "GiB/GPU"), (double)a->peak_bytes, GIB, "%.2f");
    spw_table_scaled(spw_table_in(t, "peak_bytes_with", "with it"), (double)b->peak_bytes, GIB, "%.2f");
    spw_table_scaled(spw_table_in(t, "state_bytes_more", "state GiB more"),
                     (double)b->state_bytes - (double)a->state_bytes, GIB, "%.2f");
    spw_table_real(spw_table_in(t, "step_s_without", timed ? "time s" : NULL), own ? a->step_s : NAN, "%.4f");
    spw_table_real(spw_table_in(t, "step_s_with", with), own ? b->step_s : NAN, "%.4f");
    spw_table_interval(t, (spw_column){"low_s_with", timed ? "low-high" : NULL}, "high_s_with",
                       own ? b->low_s : NAN, own ? b->high_s : NAN);
}

static void print_costs(const spw_result_balance *b, FILE *out) {
    const spw_balancer_moves *m = &b->moves;
    fprintf(out,
            "\nBalancer %s: %zu slots, %zu a rank; %.2f copies a layer on ranks that lack their expert "
            "otherwise.\n",
            b->spec.text, b->slots, b->slots / b->ranks, b->copies);
    fprintf(out,
            "Each step a GPU sends %.2f MB for them in the mean, gradients there and weights back; they hold "
            "no optimizer "
            "state.\n",
            b->step_bytes / 1e6);
    if (m->placements > 0) {
        fprintf(out,
                "%zu placement%s from loads, one every %zu step%s: a GPU receives %.2f MB of weights in the "
                "mean, "
                "at most %.2f MB.\n",
                m->placements, spw_plural(m->placements), b->spec.every, spw_plural(b->spec.every),
                b->placement_bytes / 1e6, b->placement_most_bytes / 1e6);
    } else {
        fprintf(out, "No placement was made from loads: the replay has no more than %zu step%s.\n",
                b->spec.every, spw_plural(b->spec.every));
    }
    size_t worse = 0;
    for (size_t i = 0; i < b->rows; i++) worse += b->row[i].with.rows_max > b->row[i].without.rows_max;
    if (worse > 0)
        fprintf(out, "With it the fullest GPU has more rows than without it in %zu of %zu row%s.\n", worse,
                b->rows, spw_plural(b->rows));
    fputs("None of this traffic is in a step time. The first table is with the balancer. max/mean: rows of "
          "the fullest "
          "rank of a\n"
          "group over the mean of its ranks, in the mean of layers and steps; at most: the largest; with it: "
          "the "
          "same with\nthe balancer.\n\n",
          out);
}

spw_status spw_balance_print(const spw_result *result, spw_format format, FILE *out) {
    const spw_result_balance *b = &result->balance;
    spw_table *table = NULL;
    bool timed = false;
    for (size_t i = 0; i < b->rows; i++) timed = timed || b->row[i].with.step_s > 0.0;
    spw_status status = spw_table_create(NULL, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < b->rows; i++) add_row(table, &b->row[i], timed);
    if (format == SPW_FORMAT_TABLE) print_costs(b, out);
    status = spw_table_print(table, format, out);
    spw_table_destroy(table);
    return status;
}

static json_t *side_json(spw_json *json, const spw_balance_side *s) {
    const bool timed = s->step_s > 0.0;
    json_t *object = json_object();
    spw_json_put(json, object, "average", spw_json_real(s->average));
    spw_json_put(json, object, "max", spw_json_real(s->max));
    spw_json_put(json, object, "rows_max", spw_json_count(s->rows_max));
    spw_json_put(json, object, "dispatch_bytes_per_gpu", spw_json_real(s->dispatch_bytes));
    spw_json_put(json, object, "dropped", spw_json_real(s->dropped));
    spw_json_put(json, object, "state_bytes", spw_json_count(s->state_bytes));
    spw_json_put(json, object, "peak_bytes", spw_json_count(s->peak_bytes));
    spw_json_put(json, object, "step_s", timed ? spw_json_real(s->step_s) : json_null());
    spw_json_put(json, object, "low_s", timed ? spw_json_real(s->low_s) : json_null());
    spw_json_put(json, object, "high_s", timed ? spw_json_real(s->high_s) : json_null());
    return object;
}

json_t *spw_balance_json(spw_json *json, const spw_result *result) {
    const spw_result_balance *b = &result->balance;
    json_t *object = json_object(), *rows = json_array();
    spw_json_put(json, object, "balancer", spw_json_text(b->spec.text));
    spw_json_put(json, object, "slots", spw_json_count(b->slots));
    spw_json_put(json, object, "ranks", spw_json_count(b->ranks));
    spw_json_put(json, object, "copies", spw_json_real(b->copies));
    spw_json_put(json, object, "expert_bytes", spw_json_real(b->expert_bytes));
    spw_json_put(json, object, "step_bytes", spw_json_real(b->step_bytes));
    spw_json_put(json, object, "placements", spw_json_count(b->moves.placements));
    spw_json_put(json, object, "moved_experts", spw_json_count(b->moves.moved));
    spw_json_put(json, object, "moved_experts_most", spw_json_count(b->moves.moved_most));
    spw_json_put(json, object, "placement_bytes", spw_json_real(b->placement_bytes));
    spw_json_put(json, object, "placement_most_bytes", spw_json_real(b->placement_most_bytes));
    for (size_t i = 0; i < b->rows; i++) {
        const spw_balance_row *r = &b->row[i];
        json_t *row = json_object();
        spw_json_put(json, row, "scheme", spw_json_text(r->scheme));
        spw_json_put(json, row, "sequences_per_gpu", spw_json_count(r->sequences));
        spw_json_put(json, row, "without", side_json(json, &r->without));
        spw_json_put(json, row, "with", side_json(json, &r->with));
        spw_json_add(json, rows, row);
    }
    spw_json_put(json, object, "rows", rows);
    return object;
}
