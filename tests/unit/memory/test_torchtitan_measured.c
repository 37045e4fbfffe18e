/* torchtitan's routed experts (docs/schemes.md, section 6.5) beside torchtitan's own code in 2 and 8 processes
 * (notebooks_data/measured/torchtitan_cpu.csv): rows, bytes kept for the backward pass and the fullest moments,
 * with balanced and with skewed routing. argv: the folder of the table. */
#include "sim/read/csv.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXPERTS = 64, ROWS = 84 };

static bool has(const spw_csv *csv, size_t row, const char *column, const char *value) {
    const char *text = spw_csv_field(csv, row, column);
    return text != NULL && strcmp(text, value) == 0;
}

/* Rows of each expert where a formula says the routing, by going through the choices of all ranks, which have the same. */
static void check_rows(const spw_csv *csv, size_t row, const spw_layer_shape *s) {
    uint64_t want[MOST_EXPERTS] = {0}, sum = 0;
    const bool balanced = has(csv, row, "routing", "balanced"), hot = has(csv, row, "routing", "hot1");
    const char *text = spw_csv_field(csv, row, "rows_per_expert");
    const size_t first = number(csv, row, "rank") * s->experts_per_rank;
    char *end = NULL;
    CHECK(s->experts <= MOST_EXPERTS && text != NULL);
    for (size_t i = 0; i < s->tokens * s->top_k && s->experts <= MOST_EXPERTS; i++) {
        const size_t t = i / s->top_k, j = i % s->top_k;
        if (balanced) want[(t + j * (s->experts / s->top_k)) % s->experts] += s->ranks;
        if (hot) want[(t + j) % s->experts_per_rank] += s->ranks;
    }
    for (size_t x = 0; x < s->experts_per_rank && text != NULL; x++) {
        const uint64_t rows = strtoull(text, &end, 10);
        CHECK(end != text);
        CHECK((!balanced && !hot) || rows == want[first + x]);
        sum += rows;
        text = *end == '\0' ? NULL : end + 1;
    }
    CHECK(sum == number(csv, row, "rows_received"));
}

/* The fullest moment of a forward pass that keeps its tensors. */
static uint64_t keeping_peak(const spw_scheme *scheme, const spw_layer_shape *s, const spw_rank_rows *rows) {
    spw_layer layer = layer_of(scheme, s);
    uint64_t live = 0, most = 0;
    for (size_t i = 0; i < layer.events; i++) {
        live = spw_layer_live_after(&layer, rows, i, live);
        if (layer.event[i].phase == SPW_PHASE_RECOMPUTE && live > most) most = live;
    }
    spw_layer_destroy(&layer);
    return most;
}

/* Theirs has the offsets of the experts, 4 e bytes, and while it permutes up to 8 e bytes of their counts. A checkpoint gives
 * up recomputed scores, 4 bytes a row that was sent, before their gradient is there. The event list has none of this. */
static void compare(const spw_csv *csv, size_t row, const char *column, const spw_layer_shape *s,
                    uint64_t ours) {
    const bool again = has(csv, row, "remat", "full");
    const uint64_t theirs = number(csv, row, column), offsets = 4 * s->experts_per_rank;
    const uint64_t scores = again ? 4 * s->assignments : 0;
    CHECK(theirs <= ours + 3 * offsets && theirs + scores >= ours);
    CHECK(s->hidden < 256 || fabs((double)ours - (double)theirs) <= 0.001 * (double)theirs);
    if (theirs > ours + 3 * offsets || theirs + scores < ours)
        fprintf(stderr, "row %zu, %s: measured %.0f, predicted %.0f\n", row + 1, column, (double)theirs,
                (double)ours);
}

static void check_row(const spw_csv *csv, size_t row, const spw_scheme *scheme) {
    const size_t gpus = number(csv, row, "gpus");
    CHECK(gpus > 0);
    if (gpus == 0) return;
    const spw_layer_shape s =
        shape_of(gpus, number(csv, row, "experts"), number(csv, row, "top_k"), number(csv, row, "hidden"),
                 number(csv, row, "ffn"), 1, number(csv, row, "tokens_per_rank"));
    const uint64_t received = number(csv, row, "rows_received"), kept = number(csv, row, "kept_bytes");
    const spw_rank_rows rows = {received, received, number(csv, row, "rows_sent")};
    const spw_live_set live = live_set_of(scheme, &s, &rows);
    const bool again = has(csv, row, "remat", "full");
    CHECK(rows.sent == s.assignments);
    check_rows(csv, row, &s);
    CHECK(kept == (again ? 0 : live.saved_bytes + 4 * s.experts_per_rank));
    compare(csv, row, "peak_forward_bytes", &s, again ? live.forward_bytes : keeping_peak(scheme, &s, &rows));
    compare(csv, row, "peak_bytes", &s, live.backward_bytes);
}

int main(int argc, char **argv) {
    const spw_scheme scheme = scheme_of("torchtitan");
    char path[4096];
    spw_csv *csv = NULL;
    CHECK(argc == 2);
    (void)snprintf(path, sizeof path, "%s/torchtitan_cpu.csv", argv[1]);
    CHECK_OK(spw_csv_read(path, &csv));
    CHECK(csv != NULL && spw_csv_rows(csv) == ROWS);
    for (size_t i = 0; csv != NULL && i < spw_csv_rows(csv); i++) check_row(csv, i, &scheme);
    spw_csv_close(csv);
    return check_done();
}
