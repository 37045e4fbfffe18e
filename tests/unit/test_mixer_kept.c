/* What recurrences keep, beside what autograd kept of Megatron-Core's modules (notebooks_data/measured/megatron_cpu_mixers.csv) and, of
 * Kimi Delta Attention, of transformers' (transformers_mixers_cpu.csv). argv: the folder of the tables. */
#include "sim/memory/mixer_kept.h"

#include "base/memory.h"
#include "sim/input/csv.h"
#include "sim/input/model.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"

#include <math.h>
#include <string.h>

static spw_csv *table_of(const char *folder, const char *name) {
    char path[4096];
    spw_csv *csv = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(spw_csv_read(path, &csv));
    return csv;
}

static bool is(const spw_csv *csv, size_t row, const char *column, const char *value) {
    return strcmp(spw_csv_field(csv, row, column), value) == 0;
}

static void compare(const char *name, double ours, double theirs) {
    CHECK(theirs > 0.0 && fabs(ours / theirs - 1.0) < 0.003);
    if (theirs <= 0.0 || fabs(ours / theirs - 1.0) >= 0.003)
        fprintf(stderr, "%s: %.0f bytes for %.0f\n", name, ours, theirs);
}

/* A module, of rows [row, *end). The gate in fp32 and its silu are not kept where the fuser joins what stands around the norm. */
static void check_module(const spw_csv *csv, size_t row, size_t *end) {
    const bool delta = is(csv, row, "mixer", "gated_delta");
    const size_t tokens = number(csv, row, "sequences") * number(csv, row, "length");
    const spw_recurrence r = {.kind = delta ? SPW_RECURRENCE_GATED_DELTA : SPW_RECURRENCE_MAMBA2,
                              .key_heads = number(csv, row, "key_heads"),
                              .value_heads = number(csv, row, "value_heads"),
                              .key = number(csv, row, "key"),
                              .value = number(csv, row, "value"),
                              .chunk = number(csv, row, "chunk")};
    const double gate = 4.0 * (double)(tokens * r.value_heads * r.value),
                 hidden = (double)number(csv, row, "hidden");
    double bytes = 0.0;
    for (*end = row; *end < spw_csv_rows(csv) && is(csv, *end, "mixer", spw_csv_field(csv, row, "mixer")) &&
                     (double)number(csv, *end, "hidden") == hidden;
         (*end)++) {
        const double one = (double)number(csv, *end, "bytes");
        if (delta && one == gate && is(csv, *end, "format", "float32")) continue;
        bytes += one * (double)number(csv, *end, "tensors");
    }
    compare(spw_csv_field(csv, row, "mixer"), (double)tokens * spw_recurrence_kept(&r, 2), bytes);
}

static void check_kimi(const char *folder, const spw_csv *csv, const char *name, size_t *row) {
    char path[4096];
    spw_model *m = NULL;
    double bytes = 0.0;
    const double tokens = (double)(number(csv, *row, "sequences") * number(csv, *row, "length"));
    CHECK(SPW_ALLOC(1, &m) == SPW_OK);
    (void)snprintf(path, sizeof path, "%s/transformers_mixers_cpu/%s.json", folder, name);
    CHECK_OK(spw_model_read(path, NULL, m));
    for (; *row < spw_csv_rows(csv) && is(csv, *row, "case", name); (*row)++)
        if (is(csv, *row, "kind", "mixers"))
            bytes += (double)number(csv, *row, "bytes") * (double)number(csv, *row, "tensors");
    const spw_mixer *mixer = spw_model_other(m);
    compare(name, (double)mixer->layers * tokens * spw_recurrence_kept(&mixer->recurrence, 2), bytes);
    spw_free(m);
}

int main(int count, char **argument) {
    const char *folder = count > 1 ? argument[1] : ".";
    spw_csv *modules = table_of(folder, "megatron_cpu_mixers.csv"),
            *models = table_of(folder, "transformers_mixers_cpu.csv");
    const spw_recurrence none = {.kind = SPW_RECURRENCE_NONE};
    size_t cases = 0;
    for (size_t row = 0, end; modules != NULL && row < spw_csv_rows(modules); row = end, cases++)
        check_module(modules, row, &end);
    CHECK(cases == 6);
    for (size_t row = 0; models != NULL && row < spw_csv_rows(models);) {
        const char *name = spw_csv_field(models, row, "case");
        if (strncmp(name, "kimi", 4) != 0) {
            row++;
            continue;
        }
        check_kimi(folder, models, name, &row);
        cases++;
    }
    CHECK(cases == 9);
    CHECK(spw_recurrence_kept(&none, 2) == 0.0);
    spw_csv_close(modules);
    spw_csv_close(models);
    return check_done();
}
