/* Bare Megatron-Core layers under tensor and expert tensor parallelism beside runs on two H200
 * (notebooks_data/measured/megatron_h200_tensor.csv): requested bytes after a step's forward pass and at its peak, above
 * those before it, among which are earlier models of the same process. argv: the folder of the table. */
#include "sim/input/csv.h"
#include "sim/memory/bare_layers.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 8, STEPS = 2, FIGURES = 2 };

static const char *const figures[FIGURES] = {"requested_after_forward_bytes", "requested_peak_bytes"};

static uint64_t number(const spw_csv *csv, size_t row, const char *column) {
    const char *text = NULL;
    CHECK_OK(spw_csv_text(csv, row, column, &text));
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

/* The rows of a rank are the table's; in a group whose ranks share all experts each has its own choices, and all of them. */
static void read_rows(const spw_csv *csv, size_t row, const spw_megatron_shape *shape, uint64_t *held,
                      uint64_t *received, uint64_t *sent) {
    const char *text = spw_csv_field(csv, row, "rows_received_per_layer");
    char *end = NULL;
    for (size_t l = 0; l < shape->layers; l++) {
        held[l] = strtoull(text, &end, 10);
        CHECK(end != text);
        text = end + 1;
        sent[l] = shape->tokens * shape->top_k;
        received[l] = shape->expert_tensor > 1 ? sent[l] : held[l];
    }
}

static void predict(const spw_csv *csv, size_t row, uint64_t out[FIGURES]) {
    const size_t experts = number(csv, row, "experts"), ranks = number(csv, row, "expert"),
                 sharers = number(csv, row, "expert_tensor");
    CHECK(ranks > 0 && sharers > 0);
    if (ranks == 0 || sharers == 0) return;
    const spw_megatron_shape shape = {.layers = number(csv, row, "layers"),
                                      .tokens = number(csv, row, "tokens_per_rank"),
                                      .top_k = number(csv, row, "top_k"),
                                      .experts = experts,
                                      .experts_per_rank = experts / ranks,
                                      .expert_tensor = sharers,
                                      .hidden = number(csv, row, "hidden"),
                                      .ffn = number(csv, row, "ffn") / sharers};
    uint64_t held[MOST_LAYERS], received[MOST_LAYERS], sent[MOST_LAYERS];
    spw_bare_layers *bare = NULL;
    spw_event_list list = {.events = 0};
    CHECK(shape.layers <= MOST_LAYERS);
    read_rows(csv, row, &shape, held, received, sent);
    CHECK_OK(spw_bare_layers_create(&shape, &bare));
    CHECK_OK(spw_bare_layers_begin(bare, &list));
    for (int step = 0; step < STEPS; step++) { /* the first has nothing to replace */
        const spw_megatron_rows rows = {.received = received, .sent = sent, .held = held};
        CHECK_OK(spw_bare_layers_step(bare, &rows, &list));
        const spw_list_peak peak = spw_event_list_peak(&list);
        out[0] = (uint64_t)peak.after_forward_bytes;
        out[1] = (uint64_t)peak.peak_bytes;
    }
    spw_event_list_destroy(&list);
    spw_bare_layers_destroy(bare);
}

int main(int argc, char **argv) {
    char path[4096];
    spw_csv *csv = NULL;
    double worst[FIGURES] = {0.0};
    size_t exact[FIGURES] = {0}, rows = 0;
    CHECK(argc == 2);
    (void)snprintf(path, sizeof path, "%s/megatron_h200_tensor.csv", argv[1]);
    CHECK_OK(spw_csv_read(path, &csv));
    for (size_t i = 0; csv != NULL && i < spw_csv_rows(csv); i++) {
        uint64_t predicted[FIGURES] = {0};
        predict(csv, i, predicted);
        rows++;
        for (int f = 0; f < FIGURES; f++) {
            const double measured =
                             (double)(number(csv, i, figures[f]) - number(csv, i, "requested_before_bytes")),
                         error = fabs((double)predicted[f] - measured) / measured;
            exact[f] += error == 0.0;
            worst[f] = fmax(worst[f], error);
            if (error > 0.001)
                fprintf(stderr, "%s %s rank %s %s: %s measured %.0f, predicted %llu\n",
                        spw_csv_field(csv, i, "run"), spw_csv_field(csv, i, "model"),
                        spw_csv_field(csv, i, "rank"), spw_csv_field(csv, i, "routing"), figures[f], measured,
                        (unsigned long long)predicted[f]);
        }
    }
    for (int f = 0; f < FIGURES; f++) {
        printf("%-30s %zu rows, %zu to the byte, at most %.4f %% off\n", figures[f], rows, exact[f],
               100.0 * worst[f]);
        CHECK(worst[f] < 0.001);
    }
    CHECK(rows == 400);
    spw_csv_close(csv);
    return check_done();
}
