#include "sim/time/compiled/compiled_doubt.h"

#include <math.h>
#include <stddef.h>

static const double DEVIATIONS = 2.0; /* the interval holds some 95 % */

/* What moves, beside the coefficients that are fitted. A share ends at 1. */
static const struct {
    size_t offset;
    double maximum;
    bool network; /* moves where the fit did not see the network's part in the exchange */
} fixed[] = {{offsetof(spw_time_stack, attention_share), 1.0, false},
             {offsetof(spw_time_stack, library_share), 1.0, false},
             {offsetof(spw_time_stack, latency_s), INFINITY, false},
             {offsetof(spw_time_stack, serial_share), 1.0, true}};
enum { FIXED = sizeof fixed / sizeof *fixed };

static double log_ratio(double step, double base) {
    const double ratio = log(step / base);
    return isfinite(ratio) ? ratio : 0.0;
}

/* Adds the squares of what one coefficient does to the step on either side. */
typedef struct moved_step {
    const spw_time_stack *stack;
    spw_compiled_step step;
    const void *problem;
    double base; /* the step with nothing moved */
} moved_step;

static void move(const moved_step *m, size_t offset, double log_deviation, double maximum,
                 double squares[2]) {
    for (int sign = -1; sign <= 1; sign += 2) {
        spw_time_stack moved = *m->stack;
        spw_coefficient *k = (spw_coefficient *)(void *)((char *)&moved + offset);
        k->value = fmin(k->value * exp(sign * DEVIATIONS * log_deviation), maximum);
        const double ratio = log_ratio(m->step(m->problem, &moved), m->base);
        squares[ratio > 0.0] += ratio * ratio;
    }
}

static double relative(const spw_coefficient *k) {
    return k->value > 0.0 && k->uncertainty > 0.0 ? k->uncertainty / k->value : 0.0;
}

void spw_compiled_doubt(const spw_time_stack *stack, const spw_compiled_far *far, spw_compiled_step step,
                        const void *problem, spw_timeline *out) {
    const double seen = stack->half_width.value, unseen = stack->half_width_unseen.value,
                 elsewhere = stack->half_width_elsewhere.value;
    const double width =
        seen * seen + (double)far->unseen * unseen * unseen + (double)far->elsewhere * elsewhere * elsewhere;
    const moved_step m = {stack, step, problem, out->step_s};
    double squares[2] = {width, width};
    for (size_t i = 0; i < SPW_TIME_FITTED; i++) {
        const spw_time_row *row = &spw_time_rows[i];
        const spw_coefficient *k = (const spw_coefficient *)(const void *)((const char *)stack + row->offset);
        double deviation = k->evidence == SPW_EVIDENCE_FITTED ? 0.0 : relative(k);
        if (far->network && row->offset == offsetof(spw_time_stack, alltoall_share))
            deviation = fmax(relative(k), row->doubt);
        if (deviation > 0.0) move(&m, row->offset, deviation, row->maximum, squares);
    }
    for (size_t i = 0; i < FIXED; i++) {
        const spw_coefficient *k =
            (const spw_coefficient *)(const void *)((const char *)stack + fixed[i].offset);
        if (relative(k) > 0.0 && (far->network || !fixed[i].network))
            move(&m, fixed[i].offset, relative(k), fixed[i].maximum, squares);
    }
    if (far->seen_ring_s > 0.0) {
        const double ratio = log_ratio(far->seen_ring_s, out->step_s);
        squares[0] += ratio * ratio;
    }
    out->low_s = out->step_s * exp(-sqrt(squares[0]));
    out->high_s = out->step_s * exp(sqrt(squares[1]));
    out->doubt_s[0] = seen * out->step_s;
    out->doubt_s[1] = (sqrt(fmax(squares[0], squares[1])) - seen) * out->step_s;
}
