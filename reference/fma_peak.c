/* Compiled with -ffp-contract=fast: fusing is the point. */
#include "reference/fma_peak.h"

#include "base/progress.h"
#include "reference/matrix_product.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { CHAINS = 12, STEPS = 100000 }; /* 12 chains hide the latency of 4 to 5 cycles at two a cycle */

/* STEPS dependent x = x * a + b on each of CHAINS vectors; returns something that needs them all. */
#define DEFINE_CHAINS(name, LANES) \
    static float name(float seed) { \
        typedef float lanes __attribute__((vector_size((LANES) * sizeof(float)))); \
        lanes x[CHAINS], a = {0}, b = {0}; \
        a += 0.999f, b += seed; \
        _Pragma("GCC unroll 12") for (size_t c = 0; c < CHAINS; c++) x[c] = b * (float)c; \
        for (size_t step = 0; step < STEPS; step++) \
            _Pragma("GCC unroll 12") for (size_t c = 0; c < CHAINS; c++) x[c] = x[c] * a + b; \
        _Pragma("GCC unroll 12") for (size_t c = 1; c < CHAINS; c++) x[0] += x[c]; \
        return x[0][0] + x[0][(LANES)-1]; \
    }

typedef float chains_function(float seed);

DEFINE_CHAINS(chains_baseline, 4)
#ifdef __x86_64__
__attribute__((target("avx2,fma"))) DEFINE_CHAINS(chains_v3, 8) __attribute__((target("avx512f,fma")))
DEFINE_CHAINS(chains_v4, 16)
#else
static chains_function *const chains_v3 = chains_baseline, *const chains_v4 = chains_baseline;
#endif

    double spw_ref_fma_peak(int threads, double seconds) {
    const char *isa = spw_ref_product_isa();
    const int v4 = strcmp(isa, "x86-64-v4") == 0, v3 = strcmp(isa, "x86-64-v3") == 0;
    chains_function *chains = v4 ? chains_v4 : v3 ? chains_v3 : chains_baseline;
    const double operations = 2.0 * CHAINS * STEPS * (v4 ? 16 : v3 ? 8 : 4);
    const double end = spw_clock_s() + seconds;
    volatile float sink = 0;
    double total = 0.0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        double best_s = seconds;
        float sum = 0;
        while (spw_clock_s() < end) {
            const double start = spw_clock_s();
            sum += chains((float)start);
            best_s = fmin(best_s, spw_clock_s() - start);
        }
        total += operations / best_s;
#pragma omp critical(spw_ref_fma_peak)
        sink = sink + sum;
    }
    return total;
}
