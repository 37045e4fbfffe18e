/* The time of our own dispatch and combine: a made-up machine is found again, the shipped runs hold their score, tables that
 * cannot be trusted are refused. */
#include "sim/score/table_kind.h"
#include "sim/time/dispatch_time.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static spw_cluster cluster_with_links(void) {
    spw_cluster c = {
        .link = {.points = 2, .message_bytes = {1024, 1 << 20}, .exchange_mb_per_s = {100, 200000}}};
    (void)snprintf(c.name, sizeof c.name, "made-up");
    return c;
}

static void test_found_again(void) {
    const spw_cluster c = cluster_with_links();
    const spw_dispatch_speed truth = {20e-6, 2e-9, 0.8, 200e9};
    spw_dispatch_run run[12];
    spw_dispatch_speed found;
    for (size_t i = 0; i < 12; i++) {
        const double rows = 100.0 * (double)(i + 1), bytes = rows * (i % 3 == 0 ? 1024.0 : 14336.0);
        run[i] = (spw_dispatch_run){.combine = i % 2 == 1, .rows = rows, .bytes = bytes};
        run[i].seconds = spw_dispatch_seconds(&truth, rows, bytes) * (i % 2 == 1 ? 3.0 : 1.0);
    }
    CHECK_OK(spw_dispatch_fit(&c, run, 12, false, 12, &found));
    CHECK(fabs(found.start_s / truth.start_s - 1.0) < 1e-6 && fabs(found.row_s / truth.row_s - 1.0) < 1e-6);
    CHECK(fabs(found.share / truth.share - 1.0) < 1e-6 && found.rate == 200e9);
    CHECK_OK(spw_dispatch_fit(&c, run, 12, true, 12, &found)); /* three times as slow */
    CHECK(fabs(found.share * 3.0 / truth.share - 1.0) < 1e-6);
    run[0].seconds *= 5.0; /* left out, it does not matter */
    CHECK_OK(spw_dispatch_fit(&c, run, 12, false, 0, &found));
    CHECK(fabs(found.start_s / truth.start_s - 1.0) < 1e-6);
    CHECK(spw_dispatch_fit(&c, run, 6, false, 0, &found) == SPW_EARG); /* two runs are left */
    const spw_cluster none = {.link = {.points = 0}};
    CHECK(spw_dispatch_fit(&none, run, 12, false, 12, &found) == SPW_EARG);
}

static void test_shipped(const char *path) {
    spw_dispatch_score score;
    spw_cluster c;
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &c));
    CHECK(spw_table_kind_of(path) == SPW_TABLE_DISPATCH);
    CHECK_OK(spw_dispatch_score_open(path, &c, &score));
    CHECK(score.runs == 18 && score.median_abs_error < 0.02 && score.max_abs_error < 0.07);
    for (int i = 0; i < 2; i++) CHECK(score.speed[i].share > 0.5 && score.speed[i].share < 1.0);
    spw_dispatch_score_close(&score);
}

static void refuse(const char *folder, const char *rows, const char *message) {
    char path[4096];
    spw_dispatch_score score;
    const spw_cluster c = cluster_with_links();
    (void)snprintf(path, sizeof path, "%s/dispatch_bad.csv", folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    if (file == NULL) return;
    fprintf(file, "operation,tokens,hidden,rows_off_rank,bytes_off_rank,milliseconds\n%s", rows);
    CHECK(fclose(file) == 0);
    CHECK(spw_dispatch_score_open(path, &c, &score) != SPW_OK);
    CHECK(strstr(spw_last_error(), message) != NULL);
    (void)remove(path);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    test_found_again();
    test_shipped(argv[1]);
    refuse(argv[2], "send,1,1,1,1,1\n", "neither dispatch nor combine");
    refuse(argv[2], "combine,1,1,1,1,0\n", ":2: column 'milliseconds' is not a number above 0");
    refuse(argv[2], "combine,1,1,nan,1,1\n", "rows_off_rank");
    refuse(argv[2], "combine,1,1,1,1,1\n", "at least 4 would be right");
    return check_done();
}
