/* Exchanges of a layer as XLA compiled them, program by program, and one case with pencil and paper. */
#include "sim/collectives.h"

#include "sim/csv.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

static double number(const spw_csv *csv, size_t row, const char *column) {
    const char *text = spw_csv_field(csv, row, column);
    CHECK(text != NULL);
    return text != NULL ? strtod(text, NULL) : -1.0;
}

static void read_program(const spw_csv *memory, size_t row, spw_job *job, spw_scheme *scheme) {
    memset(job, 0, sizeof *job);
    CHECK_OK(spw_model_read(spw_csv_field(memory, row, "model"), NULL, &job->model));
    CHECK_OK(spw_scheme_parse(spw_csv_field(memory, row, "scheme"), scheme));
    job->expert = (size_t)number(memory, row, "expert_parallel");
    job->sequence_length = (size_t)number(memory, row, "sequence_length");
    job->sequences_per_gpu[0] = (size_t)number(memory, row, "sequences_per_gpu");
    job->precision.activations = 2;
}

static void compare(const spw_csv *table, size_t row, const spw_collectives *c) {
    static const struct {
        const char *name;
        spw_collective collective;
    } kinds[] = {{"all_to_all", SPW_COLLECTIVE_ALL_TO_ALL},
                 {"ragged_all_to_all", SPW_COLLECTIVE_RAGGED_ALL_TO_ALL}};
    static const char *const ways[] = {"forward", "backward"};
    for (int k = 0; k < 2; k++) {
        for (int way = 0; way < 2; way++) {
            const spw_collective_sum *sum = &c->sum[kinds[k].collective][way];
            char column[64];
            (void)snprintf(column, sizeof column, "%s_%s_count", kinds[k].name, ways[way]);
            bool same = (double)sum->count == number(table, row, column);
            (void)snprintf(column, sizeof column, "%s_%s_bytes", kinds[k].name, ways[way]);
            same = same && (double)sum->bytes == number(table, row, column);
            CHECK(same);
            if (!same)
                fprintf(stderr, "  %s %s: %zu, %llu\n", spw_csv_field(table, row, "id"), column, sum->count,
                        (unsigned long long)sum->bytes);
        }
    }
    /* The first reduce-scatter forward is that of the tokens, where there is one; small ones of the loss aside. */
    if (c->sum[SPW_COLLECTIVE_TOKEN_SCATTER][0].count > 0) {
        CHECK(number(table, row, "reduce_scatter_forward_bytes") ==
              (double)c->sum[SPW_COLLECTIVE_TOKEN_SCATTER][0].bytes);
    }
}

static void test_compiled(const char *folder) {
    char path[512];
    spw_csv *memory = NULL, *table = NULL;
    size_t matched = 0;
    (void)snprintf(path, sizeof path, "%s/notebooks_data/compiled/maxtext_memory.csv", folder);
    CHECK_OK(spw_csv_read(path, &memory));
    (void)snprintf(path, sizeof path, "%s/notebooks_data/compiled/maxtext_collectives.csv", folder);
    CHECK_OK(spw_csv_read(path, &table));
    for (size_t i = 0; memory != NULL && table != NULL && i < spw_csv_rows(table); i++) {
        for (size_t m = 0; m < spw_csv_rows(memory); m++) {
            static spw_job job;
            spw_scheme scheme;
            spw_collectives c;
            if (strcmp(spw_csv_field(memory, m, "id"), spw_csv_field(table, i, "id")) != 0) continue;
            read_program(memory, m, &job, &scheme);
            const spw_layer_shape shape = spw_layer_shape_of(&job, job.sequences_per_gpu[0]);
            CHECK_OK(spw_collectives_of(&scheme, &shape, &c));
            CHECK(number(table, i, "moe_loop_trips") == (double)job.model.moe_layers);
            compare(table, i, &c);
            matched++;
        }
    }
    CHECK(matched == 139);
    spw_csv_close(table);
    spw_csv_close(memory);
}

/* 2 ranks, 4 experts, top 2, 8 tokens, hidden 16, ffn 4, bf16. ring: 2 x 8 x 16 x 2 = 512 bytes a
 * collective. */
static void test_by_hand(void) {
    const spw_layer_shape s = {.ranks = 2,
                               .experts = 4,
                               .experts_per_rank = 2,
                               .top_k = 2,
                               .hidden = 16,
                               .ffn = 4,
                               .sequences = 1,
                               .sequence_length = 8,
                               .tokens = 8,
                               .assignments = 16,
                               .worst_rows = 32,
                               .element_bytes = 2};
    spw_scheme scheme;
    spw_collectives c;
    CHECK_OK(spw_scheme_parse("ring", &scheme));
    CHECK_OK(spw_collectives_of(&scheme, &s, &c));
    CHECK(c.sum[SPW_COLLECTIVE_TOKEN_GATHER][0].count == 1 &&
          c.sum[SPW_COLLECTIVE_TOKEN_GATHER][1].count == 2);
    CHECK(c.sum[SPW_COLLECTIVE_TOKEN_SCATTER][0].bytes == 512 &&
          c.sum[SPW_COLLECTIVE_TOKEN_SCATTER][1].bytes == 512);
    CHECK_OK(spw_scheme_parse("gmm", &scheme)); /* 16 x 16 x 2 bytes; sizes 4 x 2 x 4 */
    CHECK_OK(spw_collectives_of(&scheme, &s, &c));
    CHECK(c.sum[SPW_COLLECTIVE_RAGGED_ALL_TO_ALL][0].bytes == 2 * 512 &&
          c.sum[SPW_COLLECTIVE_ALL_TO_ALL][1].bytes == 32);
    CHECK_OK(spw_scheme_parse("gmm-deepep", &scheme));
    CHECK_STATUS(spw_collectives_of(&scheme, &s, &c), SPW_ECONFIG);
    for (int i = 0; i < SPW_COLLECTIVES; i++) CHECK(spw_collective_name((spw_collective)i)[0] != '?');
}

int main(int argc, char **argv) {
    test_by_hand();
    test_compiled(argc > 1 ? argv[1] : ".");
    return check_done();
}
