#include "sim/command/plan/plan_search_proof.h"

#include "sim/print/plural.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static size_t memory_points(const spw_search_outcome *o) {
    return o->fate[SPW_SEARCH_STATE] + o->fate[SPW_SEARCH_MEMORY];
}

static size_t unseen_points(const spw_search_outcome *o) { return o->points - spw_search_looked_at(o); }

/* The fastest that was found, whether it surely fits or not; 0: there is none with a time. */
static double best_speed(const spw_search_outcome *o) {
    double most = o->front.found && o->front.fastest.timed ? o->front.fastest.tokens_per_s_per_gpu : 0.0;
    for (size_t i = 0; i < o->front.points; i++) most = fmax(most, o->front.point[i].tokens_per_s_per_gpu);
    return most;
}

/* What no point that keeps to the budgets exceeds; NAN: not known, or there is no time. */
static double most_speed(const spw_search_outcome *o) {
    const spw_search_proof *p = &o->proof;
    const double most = fmax(fmax(best_speed(o), p->beaten_most), p->unseen_most);
    if (o->untimed || (unseen_points(o) > 0 && !p->bounded)) return NAN;
    return most > 0.0 && isfinite(most) ? most : NAN;
}

static double gap(const spw_search_outcome *o) {
    return best_speed(o) > 0.0 ? most_speed(o) / best_speed(o) - 1.0 : NAN;
}

__attribute__((format(printf, 2, 3))) static void add(char out[SPW_SEARCH_PROOF_TEXT], const char *format,
                                                      ...) {
    const size_t used = strlen(out);
    va_list values;
    va_start(values, format);
    (void)vsnprintf(out + used, SPW_SEARCH_PROOF_TEXT - used, format, values);
    va_end(values);
}

static void add_unseen(char out[SPW_SEARCH_PROOF_TEXT], const spw_search_outcome *o) {
    const size_t unseen = unseen_points(o);
    if (unseen == 0) return;
    add(out, "%s%zu point%s not looked at", out[0] != '\0' ? "; " : "", unseen,
        unseen == 1 ? " was" : "s were");
    if (!o->proof.bounded) {
        add(out, ", and not all have a bound yet: nothing is known of the best of all");
    } else if (!o->untimed && isfinite(o->proof.unseen_most)) {
        add(out, " and make%s at most %.0f tokens/s a GPU", unseen == 1 ? "s" : "", o->proof.unseen_most);
        if (isfinite(gap(o)))
            add(out, ": the best of all makes at most %.3g times the fastest so far", 1.0 + gap(o));
    }
}

const char *spw_search_proof_text(const spw_search_outcome *o, char out[SPW_SEARCH_PROOF_TEXT]) {
    const size_t memory = memory_points(o), beaten = o->fate[SPW_SEARCH_BEATEN],
                 slow = o->fate[SPW_SEARCH_SLOW];
    const spw_search_proof *p = &o->proof;
    out[0] = '\0';
    if (memory > 0)
        add(out, "%zu point%s left out for memory need%s %.1f GiB or more of %.1f", memory,
            spw_plural(memory), memory == 1 ? "s" : "", (double)p->memory_least.bytes / GIB,
            (double)p->memory_least.budget_bytes / GIB);
    if (beaten > 0 && !o->untimed && p->beaten_most > 0.0 && isfinite(p->beaten_most))
        add(out, "%s%zu left out as beaten make%s at most %.0f tokens/s a GPU", memory > 0 ? "; " : "",
            beaten, beaten == 1 ? "s" : "", p->beaten_most);
    if (slow > 0 && isfinite(p->slow_most))
        add(out, "%s%zu left out as too slow make%s at most %.0f tokens/s a GPU", out[0] != '\0' ? "; " : "",
            slow, slow == 1 ? "s" : "", p->slow_most);
    add_unseen(out, o);
    return out;
}

static json_t *real_or_null(double value, bool there) {
    return there && isfinite(value) && value > 0.0 ? spw_json_real(value) : json_null();
}

static json_t *bounded_json(spw_json *json, size_t points, double most, bool timed) {
    json_t *o = json_object();
    spw_json_put(json, o, "points", spw_json_count(points));
    spw_json_put(json, o, "tokens_per_s_per_gpu_at_most", real_or_null(most, timed && points > 0));
    return o;
}

json_t *spw_search_proof_json(spw_json *json, const spw_search_outcome *of) {
    const spw_search_proof *p = &of->proof;
    const spw_search_need *least = &p->memory_least;
    json_t *o = json_object(), *memory = json_object();
    spw_json_put(json, memory, "points", spw_json_count(memory_points(of)));
    spw_json_put(json, memory, "least_bytes", least->bytes > 0 ? spw_json_count(least->bytes) : json_null());
    spw_json_put(json, memory, "budget_bytes",
                 least->bytes > 0 ? spw_json_count(least->budget_bytes) : json_null());
    spw_json_put(json, o, "complete", json_boolean(unseen_points(of) == 0));
    spw_json_put(json, o, "left_out_for_memory", memory);
    spw_json_put(json, o, "beaten",
                 bounded_json(json, of->fate[SPW_SEARCH_BEATEN], p->beaten_most, !of->untimed));
    spw_json_put(json, o, "too_slow",
                 bounded_json(json, of->fate[SPW_SEARCH_SLOW], p->slow_most, !of->untimed));
    spw_json_put(json, o, "not_looked_at",
                 bounded_json(json, unseen_points(of), p->unseen_most, !of->untimed && p->bounded));
    spw_json_put(json, o, "tokens_per_s_per_gpu_at_most", real_or_null(most_speed(of), true));
    spw_json_put(json, o, "gap", isfinite(gap(of)) ? spw_json_real(gap(of)) : json_null());
    return o;
}
