/* DeepSeek-V3 on 64 MI355X and predictions of its step, for the tests of compiled programs. */
#ifndef SPW_TESTS_COMPILED_SAMPLE_H
#define SPW_TESTS_COMPILED_SAMPLE_H

#include "sim/job/job.h"
#include "sim/schemes/point.h"
#include "sim/time/compiled/compiled_time.h"
#include "sim/time/routing_load.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <string.h>

static inline void read_sample(spw_job *job, spw_time_stack *stack) {
    static const char text[] =
        "model: deepseek-v3\ncluster: mi355x-8x8\nparallel: {expert: 8, fsdp: 8}\n"
        "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
        "precision: {weights: bf16, gradients: bf16, optimizer: bf16, activations: bf16}\n"
        "remat: full\nschemes: [gmm]\n";
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), job));
    CHECK_OK(spw_time_stack_read("maxtext-rocm-2026-05", NULL, stack));
}

static inline void near(double value, double want, double share, const char *what) {
    const bool good = fabs(value - want) <= share * fabs(want);
    CHECK(good);
    if (!good) fprintf(stderr, "  %s: %.9g, want %.9g\n", what, value, want);
}

static inline spw_status stated(const spw_job *j, const spw_scheme *s, size_t sequences, double imbalance,
                                spw_routing_layer *out) {
    const spw_point point = spw_point_of(j, s, sequences);
    return spw_routing_load_stated(&point, imbalance, 1, out);
}

static inline spw_routing_layer load_of(const spw_job *j, const char *text, size_t sequences,
                                        double imbalance) {
    const spw_scheme s = scheme_of(text);
    spw_routing_layer load;
    CHECK_OK(stated(j, &s, sequences, imbalance, &load));
    return load;
}

/* A prediction under one imbalance. */
static inline spw_timeline predict(const spw_job *j, const spw_time_stack *with, const char *text,
                                   size_t sequences, double imbalance) {
    const spw_scheme s = scheme_of(text);
    const spw_routing_layer load = load_of(j, text, sequences, imbalance);
    const spw_time_request request = {with, j, &s, sequences, &load, 1, 0.0};
    spw_timeline t;
    CHECK_OK(spw_compiled_time_predict(&request, &t));
    return t;
}

static inline double seconds(const spw_timeline *t, const char *name) {
    const spw_time_component *c = spw_timeline_find(t, name);
    CHECK(c != NULL);
    return c != NULL ? c->seconds : NAN;
}

/* Which components differ, as a text of their names. */
static inline const char *moved(const spw_timeline *a, const spw_timeline *b) {
    static char names[512];
    names[0] = '\0';
    CHECK(a->components == b->components);
    for (size_t i = 0; i < a->components; i++) {
        const size_t used = strlen(names);
        if (a->component[i].seconds == b->component[i].seconds) continue;
        (void)snprintf(names + used, sizeof names - used, "%s%s", used == 0 ? "" : " ", a->component[i].name);
    }
    return names;
}

static inline void expect_moved(const spw_timeline *a, const spw_timeline *b, const char *want) {
    const char *got = moved(a, b);
    CHECK(strcmp(got, want) == 0);
    if (strcmp(got, want) != 0) fprintf(stderr, "  moved: %s\n  want: %s\n", got, want);
}

#endif
