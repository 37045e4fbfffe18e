/* What recurrences keep, beside what autograd kept of Megatron-Core's modules (notebooks_data/measured/megatron_cpu_mixers.csv) and, of
 * Kimi Delta Attention, of transformers' (transformers_mixers_cpu.csv). argv: the folder of the tables. */
#include "sim/memory/kept/mixer_kept.h"

#include "base/memory.h"
#include "sim/model/model.h"
#include "sim/read/csv.h"
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

/* Megatron-Core's attention of DeepSeek-V4: every tensor but tables of angles, to the byte. */
static size_t check_compressed(const spw_csv *csv) {
    size_t cases = 0;
    for (size_t row = 0; csv != NULL && row < spw_csv_rows(csv); cases++) {
        const size_t every = number(csv, row, "every"), wide = number(csv, row, "width"),
                     heads = number(csv, row, "heads"), hidden = number(csv, row, "hidden"),
                     sequences = number(csv, row, "sequences"), length = number(csv, row, "length");
        const spw_compressed_attention a = {.heads = heads,
                                            .head_dim = wide,
                                            .rank = number(csv, row, "rank"),
                                            .wide = heads * wide,
                                            .groups = number(csv, row, "groups"),
                                            .latent = number(csv, row, "latent"),
                                            .every = every,
                                            .parts = every == 0   ? 0
                                                     : every == 4 ? 2
                                                                  : 1,
                                            .index_width = number(csv, row, "index_width"),
                                            .index_heads = number(csv, row, "index_heads"),
                                            .window = number(csv, row, "window"),
                                            .chosen = number(csv, row, "chosen")};
        double bytes = 0.0;
        for (; row < spw_csv_rows(csv) && number(csv, row, "every") == every &&
               number(csv, row, "hidden") == hidden;
             row++)
            if (number(csv, row, "angles") == 0 && number(csv, row, "bytes") > 4) /* the indexer's loss */
                bytes += (double)(number(csv, row, "bytes") * number(csv, row, "tensors"));
        const double ours = spw_compressed_kept(&a, sequences, length, 2);
        CHECK(ours == bytes);
        if (ours != bytes)
            fprintf(stderr, "every %zu, hidden %zu: %.0f for %.0f\n", every, hidden, ours, bytes);
    }
    return cases;
}

/* One sequence of 8 tokens, 2 heads of 4: queries 2 x 8 x 8 x 2 B and 2 numbers a token, keys before their norm; without joined keys, the
 * keys that the core reads. */
static void check_again(void) {
    spw_compressed_attention a = {.heads = 2, .head_dim = 4, .wide = 8};
    CHECK(spw_compressed_again(&a, 1, 8, 2) == 8 * (2 * 8 * 2 + 2 * 2 + 2 * 4 * 2 + 4));
    a.every = 4;
    CHECK(spw_compressed_again(&a, 1, 8, 2) == 8 * (2 * 8 * 2 + 2 * 2 + 4 * 2 + 4));
}

int main(int count, char **argument) {
    const char *folder = count > 1 ? argument[1] : ".";
    spw_csv *modules = table_of(folder, "megatron_cpu_mixers.csv"),
            *models = table_of(folder, "transformers_mixers_cpu.csv"),
            *compressed = table_of(folder, "megatron_cpu_v4.csv");
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
    CHECK(check_compressed(compressed) == 6);
    check_again();
    spw_csv_close(compressed);
    spw_csv_close(modules);
    spw_csv_close(models);
    return check_done();
}
