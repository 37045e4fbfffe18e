/* The time of bare Megatron-Core layers beside measured runs: tables, errors, the fit. argv: tables, scratch. */
#include "sim/calibrate/calibrate_megatron_time.h"
#include "sim/score/megatron/measured_time_score.h"
#include "sim/score/table_kind.h"
#include "sim/time/megatron/megatron_doubt.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/time/megatron_preset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every allocation of a reading fails once. */
static void test_memory(const char *runs, const char *phases) {
    const char *const run_paths[] = {runs}, *const phase_paths[] = {phases};
    spw_measured_time time;
    spw_status status = SPW_ENOMEM;
    int n = 0;
    for (; status == SPW_ENOMEM && n < 10000; n++) {
        spw_alloc_fail_after(n);
        status = spw_measured_time_open(run_paths, 1, phase_paths, 1, &time);
        CHECK(status == SPW_OK || (status == SPW_ENOMEM && time.run == NULL));
    }
    spw_alloc_fail_after(-1);
    CHECK(status == SPW_OK && n > 95);
    spw_measured_time_close(&time);
}

static void test_kinds(const char *folder) {
    static const struct {
        const char *name;
        spw_table_kind kind;
    } files[] = {{"megatron_h200_runs.csv", SPW_TABLE_RUNS},
                 {"megatron_h200_reserved.csv", SPW_TABLE_RUNS},
                 {"megatron_h200_phases.csv", SPW_TABLE_PHASES},
                 {"h200_ceilings.csv", SPW_TABLE_CEILINGS},
                 {"README.md", SPW_TABLE_OTHER}};
    enum { FILES = sizeof files / sizeof files[0] };
    char path[FILES][PATH];
    const char *paths[FILES];
    spw_measured_tables tables;
    for (size_t i = 0; i < FILES; i++) {
        (void)snprintf(path[i], PATH, "%s/%s", folder, files[i].name);
        paths[i] = path[i];
        CHECK(spw_table_kind_of(path[i]) == files[i].kind);
    }
    CHECK_OK(spw_measured_tables_sort(paths, FILES - 1, &tables));
    CHECK(tables.runs == 2 && tables.phases == 1);
    spw_measured_tables_free(&tables);
    CHECK_STATUS(spw_measured_tables_sort(paths, FILES, &tables), SPW_EARG);
    CHECK_STATUS(spw_measured_tables_sort(paths + 3, 1, &tables), SPW_EARG);
}

/* --- Measured runs --- */

static void print_and_check(const spw_measured_time *time) {
    spw_measured_time_errors e;
    CHECK_OK(spw_measured_time_score(time, SPW_MEASURED_MODEL, NULL, &e));
    printf("step: mean %.2f %%, most %.2f %% of %zu; real / balanced: median %.2f %%, most %.2f %% of %zu\n",
           100.0 * e.step_mean, 100.0 * e.step_max, e.steps, 100.0 * e.ratio_median, 100.0 * e.ratio_max,
           e.ratios);
    CHECK(e.steps == 95 && e.ratios == 79);
    CHECK(e.step_mean < 0.0175 && e.step_max < 0.06);       /* the bar is 3 % */
    CHECK(e.ratio_median < 0.0095 && e.ratio_max < 0.0525); /* 3 % and 8 % */
    for (spw_megatron_phase p = 0; p < SPW_MEGATRON_RECOMPUTE; p++) {
        const spw_measured_phase_errors of = spw_measured_phase_score(time, p);
        printf("%-24s mean %.1f %%, sum %+.1f %%\n", spw_megatron_phase_name(p), 100.0 * of.mean,
               100.0 * of.pooled);
        CHECK(of.runs == 87 && of.mean < 0.12 && fabs(of.pooled) < 0.05); /* 15 % */
    }
}

static void test_runs(const spw_measured_time *time) {
    size_t partners = 0, capacity = 0;
    for (size_t i = 0; i < time->runs; i++) {
        const spw_measured_time_run *run = &time->run[i];
        if (run->partner < 0) {
            CHECK(strcmp(run->routing, "balanced") == 0 && run->shape.capacity == 0);
            CHECK(isnan(spw_measured_ratio(time, run)));
            continue;
        }
        const spw_measured_time_run *other = &time->run[run->partner];
        CHECK(strcmp(other->routing, "balanced") == 0 && other->shape.capacity == 0);
        CHECK(strcmp(other->model, run->model) == 0 && other->shape.tokens == run->shape.tokens);
        CHECK(other->shape.recompute == run->shape.recompute && other->sequential == run->sequential);
        partners++;
        capacity += run->shape.capacity > 0 ? 1 : 0;
        if (strcmp(run->run, "a015") == 0) { /* README of the tables: x 3.26 */
            CHECK(strcmp(other->run, "a000") == 0);
            CHECK(fabs(spw_measured_true_ratio(time, run) - 3.26) < 0.02);
        }
    }
    CHECK(partners == 79 && capacity == 18);
}

static int compare_doubles(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* What the preset calls measured is the median of the table that it names. */
static void test_ceilings(const char *folder) {
    static const char *const copies[] = {"index_select to [N,H]", "gather (backward of scatter_add_)",
                                         "cat of 64 chunks", NULL},
                             *const scatters[] = {"scatter_add_ of [N,H] to [T,H]", NULL},
                             *const index_adds[] = {"index_add_ (backward of index_select)", NULL},
                             *const exchanges[] = {"all_to_all_single, equal", NULL};
    const spw_megatron_coefficients c = preset();
    const struct {
        const char *const *what, *column;
        double unit, value;
        size_t count;
    } rows[] = {{copies, "value", 1e9, c.copy_bytes_per_s.value, 12},
                {scatters, "value", 1e9, c.scatter_bytes_per_s.value, 4},
                {index_adds, "value", 1e9, c.index_add_bytes_per_s.value, 4},
                {exchanges, "ms", 1e-3, c.exchange_latency_s.value, 6}};
    char path[PATH];
    spw_csv *csv = NULL;
    (void)snprintf(path, sizeof path, "%s/h200_ceilings.csv", folder);
    CHECK_OK(spw_csv_read(path, &csv));
    for (size_t i = 0; csv != NULL && i < sizeof rows / sizeof rows[0]; i++) {
        double value[64];
        size_t count = 0;
        for (size_t row = 0; row < spw_csv_rows(csv) && count < 64; row++) {
            for (const char *const *what = rows[i].what; *what != NULL; what++) {
                if (strcmp(spw_csv_field(csv, row, "what"), *what) != 0) continue;
                if (rows[i].what == exchanges && atof(spw_csv_field(csv, row, "bytes_per_pair")) > 65536.0)
                    continue;
                value[count++] = rows[i].unit * atof(spw_csv_field(csv, row, rows[i].column));
            }
        }
        CHECK(count == rows[i].count);
        qsort(value, count, sizeof *value, compare_doubles);
        CHECK(fabs(0.5 * (value[(count - 1) / 2] + value[count / 2]) / rows[i].value - 1.0) < 0.002);
    }
    spw_csv_close(csv);
}

/* The fit gives the preset again; without a shape it says what that shape takes. */
static void test_fit(const char *runs, const char *phases, const char *scratch) {
    const char *const run_paths[] = {runs}, *const phase_paths[] = {phases};
    const spw_megatron_coefficients before = preset();
    spw_megatron_coefficients back;
    spw_megatron_calibration c;
    char path[PATH];
    CHECK_OK(spw_calibrate_megatron_time(run_paths, 1, phase_paths, 1, SPW_MEASURED_STACK, &c));
    CHECK(c.steps == 95 && c.phases == (size_t)87 * 15 && c.left_outs == 3 + 10);
    (void)snprintf(path, sizeof path, "%s/fitted_megatron.yaml", scratch);
    CHECK_OK(spw_megatron_coefficients_write(&c.fitted, path));
    CHECK_OK(spw_megatron_coefficients_read(path, NULL, &back));
    CHECK(strcmp(back.name, before.name) == 0 && strcmp(back.tables, before.tables) == 0);
    for (size_t i = 0; i < SPW_MEGATRON_COEFFICIENTS; i++) {
        const spw_coefficient *was = spw_megatron_coefficient_of(&before, i),
                              *is = spw_megatron_coefficient_of(&back, i);
        CHECK(fabs(is->value - was->value) <= 1e-3 * fabs(was->value));
        CHECK(is->evidence == was->evidence);
        CHECK((is->evidence == SPW_EVIDENCE_FITTED) ==
              (i < SPW_MEGATRON_FITTED || i == SPW_MEGATRON_ROW_half_width));
    }
    size_t steps = 0;
    for (size_t i = 0; i < c.left_outs; i++) {
        const spw_measured_time_errors *e = &c.left_out[i].errors;
        printf("without %s: mean %.2f %%, most %.2f %% of %zu\n", c.left_out[i].name, 100.0 * e->step_mean,
               100.0 * e->step_max, e->steps);
        CHECK(e->step_mean < 0.026 && e->step_max < 0.07);
        if (e->ratios > 0) CHECK(e->ratio_median < 0.02);
        if (c.left_out[i].label == SPW_MEASURED_ROUTING) steps += e->steps;
    }
    CHECK(steps == 95 && c.left_out_steps == 95 && c.left_out_inside >= 86);
    CHECK(c.fitted.half_width.value > 0.03 && c.fitted.half_width.value < 0.06);
    CHECK(remove(path) == 0);
    spw_megatron_calibration_close(&c);
    CHECK_STATUS(spw_calibrate_megatron_time(run_paths, 0, phase_paths, 0, SPW_MEASURED_STACK, &c),
                 SPW_ECONFIG);
}

int main(int argc, char **argv) {
    char runs[PATH], phases[PATH];
    const char *const run_paths[] = {runs}, *const phase_paths[] = {phases};
    spw_measured_time time;
    if (argc < 3) {
        fprintf(stderr, "usage: %s TABLES SCRATCH\n", argv[0]);
        return 2;
    }
    (void)snprintf(runs, sizeof runs, "%s/megatron_h200_runs.csv", argv[1]);
    (void)snprintf(phases, sizeof phases, "%s/megatron_h200_phases.csv", argv[1]);
    test_memory(runs, phases);
    test_ceilings(argv[1]);
    test_kinds(argv[1]);
    const spw_megatron_coefficients c = preset();
    CHECK_OK(spw_measured_time_open(run_paths, 1, phase_paths, 1, &time));
    CHECK_OK(spw_measured_time_predict(&c, &time));
    print_and_check(&time);
    test_runs(&time);
    spw_measured_time_close(&time);
    test_fit(runs, phases, argv[2]);
    return check_done();
}
