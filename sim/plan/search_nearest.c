#include "sim/plan/search_nearest.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double spw_search_day(double tokens_per_s, size_t gpus) {
    static const double DAY_S = 86400.0;
    return tokens_per_s * (double)gpus * DAY_S;
}

bool spw_search_nearest_may_be(const spw_search_nearest *nearest, size_t scheme, uint64_t least_bytes) {
    const uint64_t least = nearest->least[scheme].need.bytes;
    return least == 0 || least_bytes < least;
}

void spw_search_nearest_memory(spw_search_nearest *nearest, size_t scheme,
                               const size_t value[SPW_SEARCH_DIMENSIONS], size_t sequences,
                               spw_search_need need) {
    if (!spw_search_nearest_may_be(nearest, scheme, need.bytes)) return;
    nearest->least[scheme].need = need;
    nearest->least[scheme].sequences = sequences;
    memcpy(nearest->least[scheme].value, value, sizeof nearest->least[scheme].value);
}

void spw_search_nearest_speed(spw_search_nearest *nearest, double tokens_per_s, size_t gpus) {
    const double day = spw_search_day(tokens_per_s, gpus);
    if (!isfinite(day) || day <= nearest->slow_day_most) return;
    nearest->slow_day_most = day;
    nearest->slow_gpus = gpus;
}

void spw_search_nearest_drops(spw_search_nearest *nearest, const spw_search_point *point) {
    const spw_search_point *least = &nearest->drops;
    const double more = point->drops.fraction - least->drops.fraction;
    if (least->gpus == 0 || more < 0.0 || (!(more > 0.0) && point->order < least->order))
        nearest->drops = *point;
}

/* The first of all, but what a scheme lacks says more than sizes that do not go together. */
void spw_search_nearest_refused(spw_search_nearest *nearest) {
    static const char scheme[] = "scheme '";
    char *const out = nearest->refused;
    const bool better = strncmp(out, scheme, sizeof scheme - 1) != 0 &&
                        strncmp(spw_last_error(), scheme, sizeof scheme - 1) == 0;
    if (out[0] == '\0' || better) (void)snprintf(out, sizeof nearest->refused, "%s", spw_last_error());
}

void spw_search_nearest_no_job(spw_search_nearest *nearest, bool divides) {
    if (nearest->no_job[0] != '\0' && nearest->no_job_divides >= divides) return;
    (void)snprintf(nearest->no_job, sizeof nearest->no_job, "%s", spw_last_error());
    nearest->no_job_divides = divides;
}
