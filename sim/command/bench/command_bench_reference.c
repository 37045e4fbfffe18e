/* spillway bench reference: how fast the CPU reference multiplies, beside OpenBLAS and the cores' own limit. */
#include "sim/command/command.h"

#include "base/memory.h"
#include "base/progress.h"
#include "reference/fma_peak.h"
#include "reference/grouped_gemm.h"
#include "reference/matrix_product.h"
#include "sim/print/table.h"

#include <dlfcn.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_options {
    size_t experts, rows, in, out, repeat;
    spw_format format;
    spw_status format_status;
} bench_options;

enum { OPTION_EXPERTS = 0x100, OPTION_ROWS, OPTION_IN, OPTION_OUT, OPTION_REPEAT, OPTION_FORMAT };

static const struct argp_option options[] = {
    {"experts", OPTION_EXPERTS, "N", 0, "groups (default: 8)", 0},
    {"rows", OPTION_ROWS, "N", 0, "rows of all groups together (default: 1024)", 0},
    {"in", OPTION_IN, "N", 0, "width of a row (default: 7168, DeepSeek-V3)", 0},
    {"out", OPTION_OUT, "N", 0, "width of a result (default: 2048)", 0},
    {"repeat", OPTION_REPEAT, "N", 0, "runs of each, the best counts (default: 3)", 0},
    {"format", OPTION_FORMAT, "table|json|csv", 0, "how to print (default: table)", 0},
    {0},
};

static void parse_count(struct argp_state *state, const char *text, size_t *out) {
    char *end = NULL;
    const unsigned long long value = strtoull(text, &end, 10);
    if (text[0] == '-' || *end != '\0' || end == text || value == 0 || value > 1u << 20) {
        argp_error(state, "'%s' is not a number from 1 to %u", text, 1u << 20);
    }
    *out = (size_t)value;
}

static error_t bench_reference_parse(int key, char *text, struct argp_state *state) {
    bench_options *o = state->input;
    switch (key) {
    case OPTION_EXPERTS: parse_count(state, text, &o->experts); return 0;
    case OPTION_ROWS: parse_count(state, text, &o->rows); return 0;
    case OPTION_IN: parse_count(state, text, &o->in); return 0;
    case OPTION_OUT: parse_count(state, text, &o->out); return 0;
    case OPTION_REPEAT: parse_count(state, text, &o->repeat); return 0;
    case OPTION_FORMAT: o->format_status = spw_command_format(text, &o->format); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = bench_reference_parse,
    .doc = "Times the grouped GEMM of the CPU reference (fp64 sums) beside OpenBLAS's sgemm (fp32 sums) and "
           "beside "
           "the fused multiply-adds that this machine can do at most.",
};

/* The interface of sgemm, as every CBLAS has it: row-major 101, no transposition 111. */
typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                            const float *a, int a_row, const float *b, int b_row, float beta, float *c,
                            int c_row);

typedef struct bench {
    spw_gemm_shape shape;
    float *x, *w, *y;
    size_t *offset;
    sgemm_function *sgemm;
} bench;

typedef spw_status bench_work(bench *b);

static spw_status run_forward(bench *b) {
    return spw_ref_grouped_gemm(b->shape, b->x, b->w, b->offset, b->y, NULL);
}
static spw_status run_input_gradient(bench *b) {
    return spw_ref_grouped_gemm_input_gradient(b->shape, b->y, b->w, b->offset, b->x, NULL);
}
static spw_status run_weight_gradient(bench *b) {
    return spw_ref_grouped_gemm_weight_gradient(b->shape, b->x, b->y, b->offset, b->w, NULL);
}
static spw_status run_sgemm(bench *b) {
    const spw_gemm_shape s = b->shape;
    for (size_t e = 0; e < s.experts; e++) {
        const size_t first = b->offset[e], rows = b->offset[e + 1] - first;
        b->sgemm(101, 111, 111, (int)rows, (int)s.out, (int)s.in, 1.0f, b->x + first * s.in, (int)s.in,
                 b->w + e * s.in * s.out, (int)s.out, 0.0f, b->y + first * s.out, (int)s.out);
    }
    return SPW_OK;
}

static spw_status bench_create(const bench_options *o, bench *b) {
    size_t x = 0, w = 0, y = 0;
    spw_status status = SPW_OK;
    b->shape = (spw_gemm_shape){.experts = o->experts, .rows = o->rows, .in = o->in, .out = o->out};
    if (!spw_mul_size(o->rows, o->in, &x) || !spw_mul_size(o->rows, o->out, &y) ||
        !spw_mul_size(o->in, o->out, &w) || !spw_mul_size(w, o->experts, &w)) {
        return spw_fail(SPW_EARG, "the arrays overflow size_t; smaller sizes would be right");
    }
    SPW_TRY(SPW_ALLOC(x, &b->x));
    SPW_TRY(SPW_ALLOC(w, &b->w));
    SPW_TRY(SPW_ALLOC(y, &b->y));
    SPW_TRY(SPW_ALLOC(o->experts + 1, &b->offset));
    for (size_t i = 0; i < x; i++) b->x[i] = (float)(i % 17) / 16.0f - 0.5f;
    for (size_t i = 0; i < w; i++) b->w[i] = (float)(i % 13) / 12.0f - 0.5f;
    for (size_t e = 0; e < o->experts; e++) {
        b->offset[e + 1] = b->offset[e] + o->rows / o->experts + (e < o->rows % o->experts);
    }
cleanup:
    return status;
}

static void bench_destroy(bench *b) { spw_free(b->offset), spw_free(b->y), spw_free(b->w), spw_free(b->x); }

/* One row of the table: seconds of the best run, operations per second, share of the peak. */
static spw_status measure(bench *b, const char *name, const char *sums, bench_work *work, size_t repeat,
                          double peak, spw_table *table) {
    const spw_gemm_shape s = b->shape;
    double best_s = 0.0;
    for (size_t n = 0; n <= repeat; n++) { /* the first run does not count */
        const double start = spw_clock_s();
        const spw_status status = work(b);
        const double time_s = spw_clock_s() - start;
        if (status != SPW_OK) return status;
        if (n == 1 || (n > 1 && time_s < best_s)) best_s = time_s;
    }
    const double rate = 2.0 * (double)s.rows * (double)s.in * (double)s.out / best_s;
    spw_table_text(table, name);
    spw_table_text(table, sums);
    spw_table_real(table, best_s, "%.4f");
    spw_table_scaled(table, rate, 1e9, "%.1f");
    spw_table_scaled(table, rate / peak, 0.01, "%.1f");
    return SPW_OK;
}

static spw_status print(const bench_options *o, bench *b) {
    static const spw_column columns[] = {{"what", "what"},
                                         {"sums", "sums"},
                                         {"seconds", "seconds"},
                                         {"flop_per_s", "GFLOP/s"},
                                         {"share_of_fp32_peak", "% of fp32 peak"},
                                         {NULL, NULL}};
    const int threads = omp_get_max_threads();
    const double peak = spw_ref_fma_peak(threads, 1.0);
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void *symbol = blas == NULL ? NULL : dlsym(blas, "cblas_sgemm");
    spw_table *table = NULL;
    double load = 0.0;
    spw_status status = SPW_OK;
    fprintf(stderr, "%d threads, %s; %zu experts, %zu rows, %zu -> %zu\n", threads, spw_ref_product_isa(),
            o->experts, o->rows, o->in, o->out);
    if (getloadavg(&load, 1) == 1 && load > 0.5 * threads) {
        fprintf(stderr, "the machine is busy (load %.1f): the products share its cores, the limit does not\n",
                load);
    }
    SPW_TRY(spw_table_create(columns, &table));
    spw_table_text(table, "fused multiply-adds in registers");
    spw_table_text(table, "fp32");
    spw_table_none(table);
    spw_table_scaled(table, peak, 1e9, "%.1f");
    spw_table_scaled(table, 1.0, 0.01, "%.1f");
    SPW_TRY(measure(b, "grouped GEMM", "fp64", run_forward, o->repeat, peak, table));
    SPW_TRY(measure(b, "input gradient", "fp64", run_input_gradient, o->repeat, peak, table));
    SPW_TRY(measure(b, "weight gradient", "fp64", run_weight_gradient, o->repeat, peak, table));
    if (symbol != NULL) {
        memcpy(&b->sgemm, &symbol, sizeof symbol); /* ISO C has no cast from object to function pointer */
        SPW_TRY(measure(b, "OpenBLAS sgemm, group by group", "fp32", run_sgemm, o->repeat, peak, table));
    } else {
        fprintf(stderr, "OpenBLAS skipped: %s\n", dlerror());
    }
    SPW_TRY(spw_table_print(table, o->format, stdout));
cleanup:
    spw_table_destroy(table);
    if (blas != NULL) dlclose(blas);
    return status;
}

spw_status spw_command_bench_reference(int argc, char **argv) {
    bench_options o = {.experts = 8, .rows = 1024, .in = 7168, .out = 2048, .repeat = 3};
    bench b = {0};
    spw_status status = SPW_OK;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    SPW_TRY(o.format_status);
    SPW_TRY(bench_create(&o, &b));
    SPW_TRY(print(&o, &b));
cleanup:
    bench_destroy(&b);
    return status;
}
