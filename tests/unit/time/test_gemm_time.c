/* The time of grouped GEMMs: measured points, shapes that were left out, ragged rows, clusters without points. */
#include "sim/time/gemm_time.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>

enum { EXPERTS = 32 };

static double equal_s(const spw_gemm_curves *c, size_t experts, size_t rows, size_t in, size_t out,
                      spw_gemm_pass pass) {
    uint64_t list[128];
    for (size_t e = 0; e < experts; e++) list[e] = rows;
    return spw_gemm_seconds(c, list, experts, in, out, pass);
}

static double tflops(double seconds, size_t rows, size_t in, size_t out) {
    return 2.0 * (double)rows * (double)in * (double)out / seconds / 1e12;
}

static size_t point_tflops(const spw_gemm_points *g, size_t point, spw_gemm_pass pass) {
    return pass == SPW_GEMM_FORWARD          ? g->forward_tflops[point]
           : pass == SPW_GEMM_INPUT_GRADIENT ? g->input_gradient_tflops[point]
                                             : g->weight_gradient_tflops[point];
}

static double error_at(const spw_gemm_curves *c, const spw_gemm_points *g, size_t point, spw_gemm_pass pass) {
    const double s = equal_s(c, EXPERTS, g->rows_per_expert[point], g->in[point], g->out[point], pass);
    return (double)point_tflops(g, point, pass) /
               tflops(s, EXPERTS * g->rows_per_expert[point], g->in[point], g->out[point]) -
           1.0;
}

static void test_points(const spw_cluster *cluster) {
    spw_gemm_curves *c = NULL;
    double most = 0.0;
    CHECK_OK(spw_gemm_curves_create(cluster, &c));
    CHECK(cluster->gemm.points == 28);
    for (size_t i = 0; i < cluster->gemm.points; i++) {
        for (spw_gemm_pass p = 0; p < SPW_GEMM_PASSES; p++)
            most = fmax(most, fabs(error_at(c, &cluster->gemm, i, p)));
    }
    CHECK(most < 1e-6);
    spw_gemm_curves_destroy(c);
}

/* The points of all shapes but one. */
static void leave_out(const spw_cluster *all, size_t in, size_t out, spw_cluster *less) {
    const spw_gemm_points *from = &all->gemm;
    spw_gemm_points *to = &less->gemm;
    *less = *all;
    to->points = 0;
    for (size_t i = 0; i < from->points; i++) {
        if (from->in[i] == in && from->out[i] == out) continue;
        const size_t at = to->points++;
        to->rows_per_expert[at] = from->rows_per_expert[i];
        to->in[at] = from->in[i];
        to->out[at] = from->out[i];
        to->forward_tflops[at] = from->forward_tflops[i];
        to->input_gradient_tflops[at] = from->input_gradient_tflops[i];
        to->weight_gradient_tflops[at] = from->weight_gradient_tflops[i];
    }
}

static int compare_doubles(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void test_left_out_shapes(const spw_cluster *cluster) {
    static spw_cluster less;
    double error[3 * SPW_GEMM_POINTS];
    size_t count = 0;
    const spw_gemm_points *g = &cluster->gemm;
    for (size_t i = 0; i < g->points; i++) {
        spw_gemm_curves *c = NULL;
        leave_out(cluster, g->in[i], g->out[i], &less);
        CHECK(less.gemm.points == 21);
        CHECK_OK(spw_gemm_curves_create(&less, &c));
        for (spw_gemm_pass p = 0; p < SPW_GEMM_PASSES; p++) error[count++] = fabs(error_at(c, g, i, p));
        spw_gemm_curves_destroy(c);
    }
    qsort(error, count, sizeof *error, compare_doubles);
    printf("shapes left out: median %.1f %%, most %.1f %% of %zu\n", 100.0 * error[count / 2],
           100.0 * error[count - 1], count);
    CHECK(error[count / 2] < 0.04);
    CHECK(error[count - 1] < 0.18);
}

/* Cells of docs/validation_gpu.md whose shapes are no points, weights [out][in]. */
static void test_other_shapes(const spw_cluster *cluster) {
    static const struct {
        size_t experts, rows, in, out, tflops[SPW_GEMM_PASSES];
    } cells[] = {{32, 1024, 2880, 5760, {713, 688, 652}}, {128, 512, 2048, 1536, {637, 625, 540}}};
    spw_gemm_curves *c = NULL;
    CHECK_OK(spw_gemm_curves_create(cluster, &c));
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        for (spw_gemm_pass p = 0; p < SPW_GEMM_PASSES; p++) {
            const double s = equal_s(c, cells[i].experts, cells[i].rows, cells[i].in, cells[i].out, p);
            const double error = (double)cells[i].tflops[p] /
                                     tflops(s, cells[i].experts * cells[i].rows, cells[i].in, cells[i].out) -
                                 1.0;
            printf("%zu experts, %zu rows, %zu x %zu, pass %d: %+.1f %%\n", cells[i].experts, cells[i].rows,
                   cells[i].in, cells[i].out, (int)p, 100.0 * error);
            CHECK(fabs(error) < 0.11);
        }
    }
    spw_gemm_curves_destroy(c);
}

static void test_rows(const spw_cluster *cluster) {
    const uint64_t none[4] = {0}, some[4] = {0, 300, 0, 5000}, swapped[4] = {5000, 0, 0, 300},
                   more[4] = {0, 300, 0, 5121}, tile[4] = {0, 300, 0, 5120}, begun[4] = {0, 300, 0, 5057};
    spw_gemm_curves *c = NULL;
    CHECK_OK(spw_gemm_curves_create(cluster, &c));
    CHECK(spw_gemm_seconds(c, none, 4, 2048, 4096, SPW_GEMM_FORWARD) == 0.0);
    CHECK(spw_gemm_seconds(c, some, 0, 2048, 4096, SPW_GEMM_FORWARD) == 0.0);
    CHECK(spw_gemm_seconds(c, none, 4, 2048, 4096, SPW_GEMM_INPUT_GRADIENT) == 0.0);
    /* Zeros are written at no more than the memory's speed. */
    CHECK(spw_gemm_seconds(c, none, 4, 2048, 4096, SPW_GEMM_WEIGHT_GRADIENT) >
          4 * 2.0 * 2048 * 4096 / cluster->hbm_bytes_per_s.value);
    for (spw_gemm_pass p = 0; p < SPW_GEMM_PASSES; p++) {
        const double s = spw_gemm_seconds(c, some, 4, 3000, 5000, p);
        CHECK(fabs(s - spw_gemm_seconds(c, swapped, 4, 3000, 5000, p)) < 1e-15);
        CHECK(s < spw_gemm_seconds(c, more, 4, 3000, 5000, p));
        /* A tile that is begun is paid for: 128 rows, or 64 of a sum. */
        const double begun_s = spw_gemm_seconds(c, begun, 4, 3000, 5000, p);
        CHECK(begun_s == spw_gemm_seconds(c, tile, 4, 3000, 5000, p));
        CHECK(p == SPW_GEMM_WEIGHT_GRADIENT ? s < begun_s : s == begun_s);
        /* Few rows each cost more than the same rows together: the weights are read for each. */
        CHECK(equal_s(c, 64, 16, 3000, 5000, p) > 2.0 * equal_s(c, 1, 1024, 3000, 5000, p));
        for (size_t rows = 1; rows < 10000; rows += 97) {
            const double t = equal_s(c, EXPERTS, rows, 3000, 5000, p);
            CHECK(t > equal_s(c, EXPERTS, rows == 1 ? 0 : rows - 1, 3000, 5000, p) * 0.999);
            CHECK(tflops(t, EXPERTS * rows, 3000, 5000) * 1e12 < cluster->bf16_flops.value);
        }
    }
    spw_gemm_curves_destroy(c);
}

static void test_without_points(void) {
    spw_cluster cluster;
    spw_gemm_curves *c = NULL;
    CHECK_OK(spw_cluster_read("b200-8x8", NULL, &cluster));
    CHECK(cluster.gemm.points == 0);
    CHECK_OK(spw_gemm_curves_create(&cluster, &c));
    const double peak = cluster.bf16_flops.value, flops = 2.0 * 8 * 8192 * 4096.0 * 4096;
    const double s = equal_s(c, 8, 8192, 4096, 4096, SPW_GEMM_FORWARD);
    CHECK(fabs(s - (flops / (0.75 * peak) + 8 * 0.6e-6)) < 1e-12);
    CHECK(equal_s(c, 8, 8193, 4096, 4096, SPW_GEMM_FORWARD) ==
          equal_s(c, 8, 8320, 4096, 4096, SPW_GEMM_FORWARD)); /* 65 tiles of 128 */
    CHECK(equal_s(c, 8, 1, 4096, 4096, SPW_GEMM_FORWARD) >=
          8 * 2.0 * 4096 * 4096 / cluster.hbm_bytes_per_s.value);
    spw_gemm_curves_destroy(c);
}

static void test_damage(spw_cluster *cluster) {
    spw_gemm_curves *c = NULL;
    for (int n = 0; n < 2; n++) {
        spw_alloc_fail_after(n);
        CHECK_STATUS(spw_gemm_curves_create(cluster, &c), SPW_ENOMEM);
        CHECK(c == NULL);
    }
    spw_alloc_fail_after(-1);
    cluster->gemm.rows_per_expert[9] = cluster->gemm.rows_per_expert[7];
    CHECK_STATUS(spw_gemm_curves_create(cluster, &c), SPW_ECONFIG);
    CHECK(c == NULL);
    spw_gemm_curves_destroy(NULL);
}

int main(void) {
    static spw_cluster cluster;
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &cluster));
    test_points(&cluster);
    test_left_out_shapes(&cluster);
    test_other_shapes(&cluster);
    test_rows(&cluster);
    test_without_points();
    test_damage(&cluster);
    return check_done();
}
