/* Rows of measured runs of whole models: whatever stands for who chose which expert has the table's rows, rank by rank and layer by layer.
 * argv[1]: whole_models_h100.csv. */
#include "sim/score/whole/whole_cell.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/read/csv.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROWS = 81920, OTHER_ROWS = 49152, TOKENS = 8192 };

/* Assignments to the experts of rank d, from all ranks of its group. */
static uint64_t rows_of(const spw_whole_cell *c, size_t layer, size_t d) {
    const size_t ranks = c->job.expert, experts = c->job.model.experts, mine = experts / ranks;
    uint64_t rows = 0;
    for (size_t s = d / ranks * ranks; s < d / ranks * ranks + ranks; s++)
        for (size_t x = 0; x < mine; x++)
            rows += c->routed[(layer * c->gpus + s) * experts + d % ranks * mine + x];
    return rows;
}

/* Every run of the table, without a trace. */
static void test_table(const spw_csv *csv, spw_measured_traces *traces) {
    size_t runs = 0, spread = 0;
    for (size_t row = 0; row < spw_csv_rows(csv);) {
        spw_whole_cell c = {.gpus = 1};
        if (strcmp(spw_csv_field(csv, row, "gpus"), "2") != 0) {
            row++;
            continue;
        }
        CHECK_OK(spw_whole_cell_read(csv, row, "h100:8x1", traces, &c));
        for (size_t d = 0; d < c.gpus && c.skipped[0] == '\0'; d++) {
            const char *at = spw_csv_field(csv, row + d, "rows_received_per_layer");
            char *end = NULL;
            for (size_t l = 0; l < c.job.model.moe_layers; l++, at = end + 1)
                CHECK(rows_of(&c, l, d) == strtoull(at, &end, 10));
        }
        runs++;
        spread += c.rows == SPW_WHOLE_ROWS_AS_MEASURED;
        row += c.gpus;
        spw_whole_cell_close(&c);
    }
    CHECK(runs > 10 && spread > 2);
}

typedef struct made_table {
    char *text;
    size_t room;
} made_table;

/* A row of a table with other rows and the routing onehot. */
static void append(made_table out, const char *line, const char *rows, const char *new_rows) {
    static const char routing[] = ",hot1,";
    const char *end = strchr(line, '\n'), *word = strstr(line, routing), *list = strstr(line, rows);
    const size_t used = strlen(out.text);
    CHECK(word != NULL && list != NULL && word < list && list < end);
    const char *behind = word + strlen(routing), *rest = list + strlen(rows);
    (void)snprintf(out.text + used, out.room - used, "%.*s,onehot,%.*s%s%.*s", (int)(word - line), line,
                   (int)(list - behind), behind, new_rows, (int)(end + 1 - rest), rest);
}

/* One expert that every token chooses, among experts of a group of two ranks: it has a row of every token of both, and the rank as many as
 * the table says. */
static void test_one_hot(const char *table, spw_measured_traces *traces) {
    static const char name[] = "\nqw-g2-hot1,",
                      of_first[] = "131072;131072;131072;131072;131072;131072;131072;131072",
                      of_other[] = "0;0;0;0;0;0;0;0",
                      first[] = "81920;81920;81920;81920;81920;81920;81920;81920",
                      other[] = "49152;49152;49152;49152;49152;49152;49152;49152";
    char *text = NULL, *made = NULL;
    size_t length = 0;
    spw_csv *csv = NULL;
    spw_whole_cell c = {.gpus = 0};
    CHECK_OK(spw_file_read(table, 1 << 24, &text, &length));
    CHECK_OK(SPW_ALLOC(length + 256, &made));
    const char *row = strstr(text, name);
    CHECK(row != NULL);
    (void)snprintf(made, length, "%.*s", (int)(strchr(text, '\n') + 1 - text), text);
    append((made_table){made, length + 256}, row + 1, of_first, first);
    append((made_table){made, length + 256}, strchr(row + 1, '\n') + 1, of_other, other);
    CHECK_OK(spw_csv_parse("made", made, strlen(made), &csv));
    CHECK_OK(spw_whole_cell_read(csv, 0, "h100:8x1", traces, &c));
    CHECK(c.gpus == 2 && c.job.expert == 2 && c.skipped[0] == '\0' && c.rows == SPW_WHOLE_ROWS_AS_MEASURED);
    for (size_t l = 0; l < c.job.model.moe_layers; l++) {
        CHECK(rows_of(&c, l, 0) == FIRST_ROWS && rows_of(&c, l, 1) == OTHER_ROWS);
        for (size_t s = 0; s < c.gpus; s++) CHECK(c.routed[(l * c.gpus + s) * c.job.model.experts] == TOKENS);
    }
    spw_whole_cell_close(&c);
    spw_csv_close(csv);
    spw_free(made);
    spw_free(text);
}

int main(int argc, char **argv) {
    spw_csv *csv = NULL;
    spw_measured_traces *traces = NULL;
    if (argc < 2) return 2;
    CHECK_OK(spw_csv_read(argv[1], &csv));
    CHECK_OK(spw_measured_traces_open(NULL, &traces));
    test_table(csv, traces);
    spw_csv_close(csv);
    test_one_hot(argv[1], traces);
    spw_measured_traces_close(traces);
    return check_done();
}
