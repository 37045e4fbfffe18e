#include "sim/time/timeline.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define STREAM_TEXT(name, text, help) text,
const char *spw_stream_name(spw_stream stream) {
    static const char *const names[] = {SPW_STREAM_LIST(STREAM_TEXT)};
    return (unsigned)stream < SPW_STREAM_COUNT ? names[stream] : "?";
}

void spw_timeline_clear(spw_timeline *timeline) { memset(timeline, 0, sizeof *timeline); }

spw_status spw_timeline_add(spw_timeline *t, const char *name, const char *help, spw_stream stream,
                            double seconds, double exposed_s) {
    if (t->components == SPW_TIMELINE_COMPONENTS)
        return spw_fail(SPW_EARG, "component '%s': a timeline has at most %d", name, SPW_TIMELINE_COMPONENTS);
    t->component[t->components++] = (spw_time_component){
        .name = name, .help = help, .stream = stream, .seconds = seconds, .exposed_s = exposed_s};
    return SPW_OK;
}

void spw_timeline_finish(spw_timeline *t, double tokens_per_gpu) {
    t->step_s = 0.0;
    for (size_t i = 0; i < t->components; i++) t->step_s += t->component[i].exposed_s;
    t->tokens_per_s_per_gpu = t->step_s > 0.0 ? tokens_per_gpu / t->step_s : 0.0;
    t->low_s = t->high_s = t->step_s;
}

void spw_timeline_widen(spw_timeline *t, double less_s, double more_s) {
    if (!(t->step_s > 0.0)) return;
    t->low_s *= fmax(t->step_s - less_s, 0.0) / t->step_s;
    t->high_s *= (t->step_s + more_s) / t->step_s;
    t->doubt_s[SPW_TIMELINE_DOUBTS - 1] += more_s;
}

double spw_timeline_exchanges_s(const spw_timeline *t) {
    double seconds = 0.0;
    for (size_t i = 0; i < t->components; i++) seconds += t->component[i].exchange_s;
    return seconds;
}

const spw_time_component *spw_timeline_find(const spw_timeline *t, const char *name) {
    for (size_t i = 0; i < t->components; i++) {
        if (strcmp(t->component[i].name, name) == 0) return &t->component[i];
    }
    return NULL;
}

/* Of the causes that two have in common: the shares by which they differ. */
static double unlike(const spw_pace *of, const spw_pace *over) {
    double width = 0.0;
    for (size_t i = 1; i < SPW_TIMELINE_DOUBTS; i++)
        width += fabs(of->doubt_s[i] / of->step_s - over->doubt_s[i] / over->step_s);
    return width;
}

double spw_timeline_ratio_width(const spw_timeline *of, const spw_timeline *over) {
    const spw_pace a = spw_timeline_pace(of), b = spw_timeline_pace(over);
    if (!(of->step_s > 0.0 && over->step_s > 0.0)) return 0.0;
    return of->doubt_s[0] / of->step_s + unlike(&a, &b);
}

spw_pace spw_timeline_pace(const spw_timeline *t) {
    spw_pace pace = {
        .step_s = t->step_s, .tokens_per_s_per_gpu = t->tokens_per_s_per_gpu, .pair_width = t->pair_width};
    memcpy(pace.doubt_s, t->doubt_s, sizeof pace.doubt_s);
    return pace;
}

double spw_timeline_faster(const spw_timeline *of, const spw_timeline *than) {
    const spw_pace a = spw_timeline_pace(of), b = spw_timeline_pace(than);
    return spw_pace_faster(&a, &b);
}

double spw_pace_ratio_width(const spw_pace *of, const spw_pace *than) {
    const bool measured = of->pair_width > 0.0 && than->pair_width > 0.0;
    const double own = measured ? fmax(of->pair_width, than->pair_width)
                                : hypot(of->doubt_s[0] / of->step_s, than->doubt_s[0] / than->step_s);
    return own + unlike(of, than);
}

double spw_pace_faster(const spw_pace *of, const spw_pace *than) {
    if (!(of->step_s > 0.0 && than->step_s > 0.0)) return NAN;
    const double inside = 1.6448536269514722; /* of a normal law's deviations: 90 of 100 */
    const double width = spw_pace_ratio_width(of, than);
    const double margin = log(of->tokens_per_s_per_gpu / than->tokens_per_s_per_gpu);
    if (!(width > 0.0)) return margin > 0.0 ? 1.0 : margin < 0.0 ? 0.0 : 0.5;
    return 0.5 * erfc(-margin * inside / width / sqrt(2.0));
}
