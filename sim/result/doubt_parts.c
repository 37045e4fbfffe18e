#include "sim/result/doubt_parts.h"

#include <math.h>
#include <string.h>

/* The order is that of sim/time/megatron/megatron_doubt.c. */
static const struct {
    const char *name, *text;
    bool linear;    /* its share is added to the step or taken from it, not multiplied */
    bool slow_only; /* low_s is without it */
} causes[] = {
    {"routing", "routings that were left out of the fit", false, false},
    {"models", "models, and numbers of ranks and tokens, that were left out of the fit", false, false},
    {"counted_work", "work outside of the experts, which is counted and not fitted", false, false},
    {"host", "launches by the host", false, false},
    {"dispatcher", "a dispatcher that was not measured", false, false},
    {"between_nodes", "exchanges between nodes, by published rates", false, false},
    {"network", "a network of several levels, which was not measured", false, false},
    {"gpu", "another GPU or other software than was measured", false, false},
    {"recipe", "products of fp8 or fp4, and their casts", false, false},
    {"untuned_release", "a release that was not tuned; the slow end alone has it", false, true},
    {"tensor_collectives", "collectives of tensor and context parallelism: hidden, or twice as long", true,
     false},
    {"hidden_or_whole",
     "work that may take more: collectives that do not hide, Muon's and the host's Adam at twice", true,
     true}};
enum { CAUSES = sizeof causes / sizeof *causes };
static const double SAID = 5e-4; /* less is the mean of several steps, or rounding */

static size_t cause_of(const char *name) {
    size_t i = 0;
    while (i < CAUSES && strcmp(causes[i].name, name) != 0) i++;
    return i;
}

const char *spw_doubt_text(const char *name) {
    const size_t i = cause_of(name);
    return i < CAUSES ? causes[i].text : "";
}

void spw_doubt_parts_begin(double step_s, double low_s, double high_s, spw_doubt_parts *out) {
    *out = (spw_doubt_parts){.slow = log(high_s / step_s), .fast = log(step_s / low_s)};
}

void spw_doubt_parts_add(spw_doubt_parts *parts, const char *name, double share) {
    const size_t i = cause_of(name);
    if (parts->count == SPW_TIMELINE_DOUBTS || !(share > 0.0)) return;
    parts->part[parts->count++] = (spw_doubt_part){
        name, spw_doubt_text(name), i < CAUSES && causes[i].linear ? log1p(share) : share, false};
}

void spw_doubt_parts_end(spw_doubt_parts *parts) {
    double rest = parts->fast, over = parts->slow;
    for (size_t p = 0; p < parts->count; p++) over -= parts->part[p].width;
    for (size_t p = 0; p < parts->count; p++) {
        const size_t i = cause_of(parts->part[p].name);
        const double width = parts->part[p].width;
        if (i < CAUSES && causes[i].slow_only) continue;
        rest -= i < CAUSES && causes[i].linear ? -log1p(-fmin(expm1(width), 1.0)) : width;
    }
    if (over > SAID && parts->count > 0)
        parts->part[parts->count++] = (spw_doubt_part){
            "slow_end", "the slow end alone: copies to the host that do not hide", over, false};
    if (rest > SAID && parts->count > 0)
        parts->part[parts->count++] = (spw_doubt_part){
            "fast_end", "the fast end alone: work that may hide, be fused or take half its time", rest, true};
}

void spw_doubt_parts_print(const spw_timeline *time, const char *of, FILE *out) {
    spw_doubt_parts parts;
    if (time->doubt_name == NULL || !(time->step_s > 0.0)) return;
    spw_doubt_parts_begin(time->step_s, time->low_s, time->high_s, &parts);
    for (size_t i = 0; i < SPW_TIMELINE_DOUBTS; i++)
        spw_doubt_parts_add(&parts, time->doubt_name[i], time->doubt_s[i] / time->step_s);
    spw_doubt_parts_end(&parts);
    fprintf(out, "interval of %s: the step may take %.3f times as long; causes, as logarithms\n", of,
            exp(parts.slow));
    for (size_t i = 0; i < parts.count; i++)
        fprintf(out, "  %-18s %5.3f  %s\n", parts.part[i].name, parts.part[i].width, parts.part[i].text);
    fprintf(out, "  %-18s %5.3f  their sum, exp(%.3f) = %.3f\n", "together", parts.slow, parts.slow,
            exp(parts.slow));
}
