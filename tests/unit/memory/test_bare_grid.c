/* Bare Megatron-Core layers under tensor and expert tensor parallelism beside runs on two H200
 * (notebooks_data/measured/megatron_h200_tensor.csv): requested bytes after a step's forward pass and at its peak, above
 * those before it, among which are earlier models of the same process; and reserved bytes, of runs that began with an emptied
 * cache and of sequences in which nothing was emptied. argv: the folder of the table. */
#include "base/memory.h"
#include "sim/memory/allocator/allocator.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/read/csv.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 8, FIGURES = 3, RANKS = 2 };

static const char *const figures[FIGURES] = {"requested_after_forward_bytes", "requested_peak_bytes",
                                             "reserved_peak_bytes"};
static const double limits[FIGURES] = {0.001, 0.001, 0.025};

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

/* What a rank receives where the routing says it without a trace. */
static void check_rows(const spw_csv *csv, size_t row, const spw_megatron_shape *shape,
                       const uint64_t *held) {
    const char *routing = spw_csv_field(csv, row, "routing");
    const uint64_t all = RANKS * shape->tokens * shape->top_k;
    uint64_t want = UINT64_MAX;
    if (strcmp(routing, "balanced") == 0) want = all / RANKS;
    if (strcmp(routing, "hot1") == 0) want = number(csv, row, "rank") == 0 ? all : 0;
    if (shape->expert_tensor == RANKS) want = all; /* both share all experts */
    for (size_t l = 0; l < shape->layers && want != UINT64_MAX; l++) CHECK(held[l] == want);
}

/* A process with its model: one a rank at a time, as the table has them. */
typedef struct process {
    spw_bare_layers *layers;
    spw_allocator *allocator;
    spw_allocation *live;
    spw_event_list list;
} process;

static void end(process *p) {
    spw_bare_layers_destroy(p->layers);
    spw_allocator_destroy(p->allocator);
    spw_free(p->live);
    spw_event_list_destroy(&p->list);
    *p = (process){.layers = NULL};
}

static spw_megatron_shape shape_of(const spw_csv *csv, size_t row) {
    const size_t experts = number(csv, row, "experts"), ranks = number(csv, row, "expert"),
                 sharers = number(csv, row, "expert_tensor");
    CHECK(ranks > 0 && sharers > 0);
    return (spw_megatron_shape){.layers = number(csv, row, "layers"),
                                .tokens = number(csv, row, "tokens_per_rank"),
                                .top_k = number(csv, row, "top_k"),
                                .experts = experts,
                                .experts_per_rank = ranks > 0 ? experts / ranks : 0,
                                .expert_tensor = sharers,
                                .hidden = number(csv, row, "hidden"),
                                .ffn = sharers > 0 ? number(csv, row, "ffn") / sharers : 0};
}

static spw_status run(process *p, const spw_megatron_rows *rows, spw_list_replay *out) {
    spw_status status = SPW_OK;
    if (rows != NULL) SPW_TRY(spw_bare_layers_step(p->layers, rows, &p->list));
    SPW_TRY(spw_event_list_replay(&p->list, p->allocator, p->live, out));

cleanup:
    return status;
}

static spw_status begin(const spw_megatron_shape *shape, process *p) {
    const spw_allocator_settings settings = {.device_bytes = 0};
    spw_list_replay replay;
    spw_status status = SPW_OK;
    end(p);
    SPW_TRY(spw_bare_layers_create(shape, &p->layers));
    SPW_TRY(spw_allocator_create(&settings, &p->allocator));
    SPW_TRY(SPW_ALLOC(spw_bare_layers_slots(p->layers), &p->live));
    for (size_t i = 0; i < spw_bare_layers_slots(p->layers); i++) p->live[i].block = SPW_ALLOCATION_EMPTY;
    SPW_TRY(spw_bare_layers_begin(p->layers, &p->list));
    SPW_TRY(run(p, NULL, &replay));

cleanup:
    return status;
}

/* Above what is there before the step: earlier models of the process are not in the list. */
static void predict(const spw_csv *csv, size_t row, process *p, double out[FIGURES]) {
    const spw_megatron_shape shape = shape_of(csv, row);
    const char *place = spw_csv_field(csv, row, "sequence_step");
    const bool emptied = place == NULL || place[0] == '\0';
    uint64_t held[MOST_LAYERS] = {0}, received[MOST_LAYERS] = {0}, sent[MOST_LAYERS] = {0};
    const spw_megatron_rows rows = {.received = received, .sent = sent, .held = held};
    spw_list_replay replay = {.refused = false};
    CHECK(shape.layers <= MOST_LAYERS);
    read_rows(csv, row, &shape, held, received, sent);
    check_rows(csv, row, &shape, held);
    if (emptied || number(csv, row, "sequence_step") == 0) {
        CHECK_OK(begin(&shape, p));
        CHECK_OK(run(p, &rows, &replay)); /* the first step has nothing to replace */
        spw_allocator_reset_peaks(p->allocator);
    }
    CHECK_OK(run(p, &rows, &replay));
    const double before = (double)replay.before.requested_bytes;
    out[0] = (double)replay.after_forward.requested_bytes - before;
    out[1] = (double)replay.after.requested_peak_bytes - before;
    out[2] = (double)replay.after.reserved_peak_bytes - before;
}

int main(int argc, char **argv) {
    char path[4096];
    spw_csv *csv = NULL;
    process of_rank[RANKS] = {{.layers = NULL}};
    double worst[FIGURES] = {0.0};
    size_t exact[FIGURES] = {0}, rows = 0;
    CHECK(argc == 2);
    (void)snprintf(path, sizeof path, "%s/megatron_h200_tensor.csv", argv[1]);
    CHECK_OK(spw_csv_read(path, &csv));
    for (size_t i = 0; csv != NULL && i < spw_csv_rows(csv); i++) {
        double predicted[FIGURES] = {0};
        predict(csv, i, &of_rank[number(csv, i, "rank") % RANKS], predicted);
        rows++;
        for (int f = 0; f < FIGURES; f++) {
            const double before = (double)number(csv, i, "requested_before_bytes"),
                         all = (double)number(csv, i, figures[f]), above = all - before,
                         error = fabs(predicted[f] - above) / (f == 2 ? all : above);
            exact[f] += error == 0.0;
            worst[f] = fmax(worst[f], error);
            if (error > limits[f])
                fprintf(stderr, "%s %s rank %s %s %s %s: measured %.0f, predicted %.0f\n",
                        spw_csv_field(csv, i, "run"), spw_csv_field(csv, i, "model"),
                        spw_csv_field(csv, i, "rank"), spw_csv_field(csv, i, "sequence_step"),
                        spw_csv_field(csv, i, "routing"), figures[f], above, predicted[f]);
        }
    }
    for (int f = 0; f < FIGURES; f++) {
        printf("%-30s %zu rows, %zu to the byte, at most %.4f %% off\n", figures[f], rows, exact[f],
               100.0 * worst[f]);
        CHECK(worst[f] < limits[f]);
    }
    for (int r = 0; r < RANKS; r++) end(&of_rank[r]);
    CHECK(rows == 400);
    spw_csv_close(csv);
    return check_done();
}
