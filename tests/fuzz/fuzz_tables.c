/* libFuzzer target of `score` and `calibrate`: the first byte chooses the command, the rest is a table. Whatever it holds, it is
 * scored or fitted, or refused in one line. */
#include "sim/calibrate/calibrate_megatron_time.h"
#include "sim/calibrate/calibrate_memory.h"
#include "sim/calibrate/calibrate_time.h"
#include "sim/score/scorer.h"
#include "tests/fuzz/fuzz_input.h"

#include <stdio.h>
#include <stdlib.h>

enum { LARGEST = 1 << 15 };

static void try_score(const char *path, spw_format format) {
    static FILE *nowhere;
    if (nowhere == NULL) nowhere = fopen("/dev/null", "w");
    if (nowhere == NULL) abort();
    spw_fuzz_refusal(spw_score_tables(
        &(spw_score_request){.table = &path, .tables = 1, .format = format, .out = nowhere}));
}

static void try_memory(const char *path) {
    static spw_calibration fit;
    const spw_calibrate_request request = {
        .tables = &path, .table_count = 1, .stack = "xla-cuda-0.10.2", .from = "counted"};
    const spw_status status = spw_calibrate_memory(&request, &fit);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) spw_calibration_close(&fit);
}

static void try_time(const char *path) {
    static spw_time_calibration fit;
    static const char *const stacks[] = {"maxtext-rocm-2026-05"};
    const spw_calibrate_time_request request = {
        .tables = &path, .table_count = 1, .stacks = stacks, .stack_count = 1};
    const spw_status status = spw_calibrate_time(&request, &fit);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) spw_time_calibration_close(&fit);
}

static void try_megatron(const char *path) {
    static spw_megatron_calibration fit;
    const spw_status status = spw_calibrate_megatron_time(&path, 1, NULL, 0, SPW_MEASURED_STACK, &fit);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) spw_megatron_calibration_close(&fit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > LARGEST) return 0;
    const char *path = spw_fuzz_file(0, "fuzz_runs.csv", data + 1, size - 1);
    switch (data[0] % 6) {
    case 0: try_score(path, SPW_FORMAT_TABLE); break;
    case 1: try_score(path, SPW_FORMAT_JSON); break;
    case 2: try_score(path, SPW_FORMAT_CSV); break;
    case 3: try_memory(path); break;
    case 4: try_time(path); break;
    default: try_megatron(path); break;
    }
    return 0;
}
