#include "base/memory.h"
#include "traces/generate/generate.h"

#include <math.h>

spw_status spw_generator_skew(const spw_generate_settings *settings, size_t ranks, double *max_over_mean,
                              double *max_violation) {
    const size_t experts = settings->experts, local = ranks > 0 ? experts / ranks : 0;
    const double mean = (double)settings->top_k / (double)experts;
    spw_generator *generator = NULL;
    double *inclusion = NULL;
    spw_status status = SPW_OK;
    *max_over_mean = *max_violation = 0.0;
    if (local == 0 || local * ranks != experts)
        return spw_fail(SPW_EARG, "%zu ranks do not divide %zu experts", ranks, experts);
    SPW_TRY(SPW_ALLOC(experts, &inclusion));
    SPW_TRY(spw_generator_create(settings, &generator));
    for (size_t step = 0; step < settings->steps; step++) {
        spw_generator_seek(generator, step);
        for (size_t layer = 0; layer < settings->layers; layer++) {
            double sum = 0.0;
            spw_generator_inclusion(generator, layer, inclusion);
            for (size_t i = 0; i < experts; i++) {
                sum = i % local == 0 ? inclusion[i] : sum + inclusion[i];
                *max_violation = fmax(*max_violation, inclusion[i] / mean - 1.0);
                *max_over_mean = fmax(*max_over_mean, sum / (mean * (double)local));
            }
        }
    }

cleanup:
    spw_generator_destroy(generator);
    spw_free(inclusion);
    return status;
}
