/* torchtitan's routed experts (docs/schemes.md, section 6.5) on a GPU: stacks of x + RoutedExperts(RMSNorm(x)) in two
 * processes of one H200 (notebooks_data/measured/torchtitan_h200.csv), whose routing changes from step to step. The
 * scheme's events and the program's own tensors around them go through the allocator: what is requested before a step,
 * after its forward pass and at its peak, and what is reserved. argv: the folder of the table. */
#include "base/memory.h"
#include "sim/memory/allocator/event_list.h"
#include "sim/read/csv.h"
#include "sim/schemes/layer.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, RANKS = 2, FIGURES = 3, ROWS = 80, PRODUCTS = 3 };
/* Slots of what stands around the layers. */
enum { TEMPORARY, INPUT, D_OUTPUT, NORM, OUTPUT, D_NORM, LOCAL_COUNTS, SCORES };
enum { IDS = SCORES + LAYERS, COUNTS = IDS + LAYERS, SUM = COUNTS + LAYERS, RSTD = SUM + LAYERS };
enum { OFFSETS = RSTD + LAYERS, D_SCORES = OFFSETS + LAYERS, D_INPUT = D_SCORES + LAYERS, D_SUM };
enum { WEIGHT = D_SUM + 1, GRADIENT = WEIGHT + LAYERS * (1 + PRODUCTS) };
enum { PIECE = GRADIENT + LAYERS * (1 + PRODUCTS), FIRST = PIECE + RANKS };

/* At most that far off: of what the step adds, and of all that is reserved. */
static const struct {
    const char *column;
    double limit;
} figures[FIGURES] = {{"requested_after_forward_bytes", 0.001},
                      {"requested_peak_bytes", 0.001},
                      {"reserved_peak_bytes", 0.011}};

typedef struct process {
    spw_layer_shape shape;
    spw_layer layer;
    spw_event_list list;
    spw_allocator *allocator;
    spw_allocation *live;
    bool *alive;
    bool backward;
    uint64_t rank;
} process;

static void change(process *p, size_t slot, uint64_t bytes, bool born) {
    if (p->alive[slot] == born) return;
    p->alive[slot] = born;
    CHECK_OK(spw_event_list_append(
        &p->list,
        (spw_memory_event){.bytes = bytes, .slot = (uint32_t)slot, .born = born, .backward = p->backward}));
}
static void born(process *p, size_t slot, uint64_t bytes) { change(p, slot, bytes, true); }
static void dies(process *p, size_t slot) { change(p, slot, 0, false); }

/* Written and read once. */
static void passes(process *p, uint64_t bytes) {
    born(p, TEMPORARY, bytes);
    dies(p, TEMPORARY);
}

static uint64_t tokens_bytes(const process *p) { return (uint64_t)p->shape.tokens * p->shape.hidden * 2; }
static uint64_t product_bytes(const process *p) {
    return (uint64_t)p->shape.experts_per_rank * p->shape.hidden * p->shape.ffn * 2;
}

static spw_list_replay replay(process *p) {
    spw_list_replay out = {.refused = true};
    CHECK_OK(spw_event_list_replay(&p->list, p->allocator, p->live, &out));
    CHECK(!out.refused);
    spw_event_list_clear(&p->list);
    return out;
}

/* Weights (the norms' first), their gradients, input, gradient of the output, scores: torchtitan_gpu.py, work(). */
static void begin(process *p) {
    for (size_t i = 0; i < LAYERS * (1 + PRODUCTS); i++)
        born(p, WEIGHT + i, i < LAYERS ? p->shape.hidden * 2 : product_bytes(p));
    for (size_t i = 0; i < LAYERS * (1 + PRODUCTS); i++)
        born(p, GRADIENT + i, i < LAYERS ? p->shape.hidden * 2 : product_bytes(p));
    for (size_t i = INPUT; i <= D_OUTPUT; i++) { /* drawn in fp32 */
        born(p, TEMPORARY, 2 * tokens_bytes(p));
        born(p, i, tokens_bytes(p));
        dies(p, TEMPORARY);
    }
    for (size_t l = 0; l < LAYERS; l++) born(p, SCORES + l, p->shape.assignments * 4);
    (void)replay(p);
}

/* A gradient of weights is added to what is there as soon as its product has made it. */
static bool makes_weight_gradient(const process *p, const spw_event *event) {
    static const char *const with[PRODUCTS] = {"d_act", "dx_w1", "dx_w0"};
    for (size_t i = 0; i < PRODUCTS; i++) {
        if (event->sign > 0 && strcmp(p->layer.tensor[event->tensor].name, with[i]) == 0) return true;
    }
    return false;
}

static bool named(const process *p, const spw_event *event, const char *name) {
    return strcmp(p->layer.tensor[event->tensor].name, name) == 0;
}

/* What an exchange gives is an allocation a source, where rows come back one a destination, not one of all, which the blocks that
 * the allocator finds or cuts depend on. How many rows each has the table does not say: both ranks are taken to send the same. */
static bool in_pieces(process *p, const spw_event *event, const spw_rank_rows *rows) {
    const spw_layer_tensor *tensor = &p->layer.tensor[event->tensor];
    const size_t length = strlen(tensor->name), tail = strlen("_pieces");
    if (length < tail || strcmp(tensor->name + length - tail, "_pieces") != 0) return false;
    const bool sent = tensor->rows == SPW_ROWS_SENT;
    const uint64_t to_me = rows->held / RANKS;
    for (size_t i = 0; i < RANKS; i++) {
        const uint64_t away = sent ? rows->sent - to_me : rows->held - to_me,
                       some = i == p->rank ? to_me : away;
        if (event->sign > 0 && some > 0)
            born(p, PIECE + i, spw_layer_row_bytes(tensor, some));
        else if (event->sign < 0)
            dies(p, PIECE + i);
    }
    return true;
}

/* What the layer gives, `output` or `dx`, goes on under another name: `slot`. */
static void run(process *p, size_t l, spw_phase phase, const spw_rank_rows *rows, size_t slot) {
    const bool forward = phase == SPW_PHASE_FORWARD;
    const char *const given = forward ? "output" : "dx";
    for (size_t i = 0; i < p->layer.events; i++) {
        const spw_event *event = &p->layer.event[i];
        const spw_layer_tensor *tensor = &p->layer.tensor[event->tensor];
        if (event->phase != phase || (forward && event->sign < 0 && tensor->needed)) continue;
        if (in_pieces(p, event, rows)) continue;
        const bool gift = named(p, event, given);
        if (gift && event->sign < 0) continue;
        if (named(p, event, "d_top_scores")) { /* stays as the gradient of the scores */
            if (event->sign > 0) born(p, D_SCORES + l, p->shape.assignments * 4);
            continue;
        }
        change(p, gift ? slot : FIRST + l * p->layer.tensors + event->tensor, spw_layer_bytes(tensor, rows),
               event->sign > 0);
        if (!forward && makes_weight_gradient(p, event)) passes(p, product_bytes(p));
    }
    for (size_t t = 0; t < p->layer.tensors; t++) {
        if (!forward || !p->layer.tensor[t].needed) dies(p, FIRST + l * p->layer.tensors + t);
    }
}

/* What a call of step() in torchtitan_gpu.py makes before it looks at the allocator. */
static void prepare(process *p) {
    for (size_t l = 0; l < LAYERS; l++) dies(p, COUNTS + l), dies(p, IDS + l);
    dies(p, SUM + LAYERS - 1);
    for (size_t l = 0; l < LAYERS; l++) born(p, COUNTS + l, p->shape.experts * 8);
    for (size_t l = 0; l < LAYERS; l++) born(p, IDS + l, p->shape.assignments * 8);
    for (size_t l = 0; l < LAYERS; l++) dies(p, D_SCORES + l);
    dies(p, D_SUM);
}

static void step(process *p, const spw_rank_rows rows[LAYERS]) {
    const uint64_t T = tokens_bytes(p);
    p->backward = false;
    for (size_t l = 0; l < LAYERS; l++) {
        born(p, NORM, T);
        born(p, RSTD + l, p->shape.tokens * 4);
        born(p, OFFSETS + l, p->shape.experts_per_rank * 4);
        born(p, LOCAL_COUNTS, p->shape.experts_per_rank * 8); /* named until RoutedExperts.forward returns */
        run(p, l, SPW_PHASE_FORWARD, &rows[l], OUTPUT);
        dies(p, LOCAL_COUNTS);
        dies(p, NORM);
        born(p, SUM + l, T);
        dies(p, OUTPUT);
    }
    p->backward = true;
    for (size_t l = LAYERS; l-- > 0;) {
        run(p, l, SPW_PHASE_BACKWARD, &rows[l], D_NORM);
        dies(p, OFFSETS + l);
        born(p, D_INPUT, T); /* of the norm; the residual's are added in place, but for the given one */
        passes(p, p->shape.hidden * 2);
        dies(p, D_NORM);
        dies(p, RSTD + l);
        if (l + 1 == LAYERS) born(p, D_SUM, T);
        dies(p, D_INPUT);
        if (l > 0) dies(p, SUM + l - 1);
    }
}

static void end(process *p) {
    spw_allocator_destroy(p->allocator);
    spw_layer_destroy(&p->layer);
    spw_event_list_destroy(&p->list);
    spw_free(p->live);
    spw_free(p->alive);
    *p = (process){.backward = false};
}

static void start(process *p, const spw_csv *csv, size_t row, const spw_scheme *scheme) {
    const char *conf = spw_csv_field(csv, row, "allocator");
    const spw_allocator_settings settings = {.expandable_segments = conf != NULL && conf[0] != '\0'};
    end(p);
    p->shape =
        shape_of(RANKS, number(csv, row, "experts"), number(csv, row, "top_k"), number(csv, row, "hidden"),
                 number(csv, row, "ffn"), 1, number(csv, row, "tokens_per_rank"));
    p->layer = layer_of(scheme, &p->shape);
    p->rank = number(csv, row, "rank");
    const size_t slots = FIRST + LAYERS * p->layer.tensors;
    CHECK_OK(SPW_ALLOC(slots, &p->live));
    CHECK_OK(SPW_ALLOC(slots, &p->alive));
    for (size_t i = 0; i < slots; i++) p->live[i].block = SPW_ALLOCATION_EMPTY;
    CHECK_OK(spw_allocator_create(&settings, &p->allocator));
    begin(p);
}

static void read_rows(const spw_csv *csv, size_t row, const spw_layer_shape *s, spw_rank_rows rows[LAYERS]) {
    const char *text = spw_csv_field(csv, row, "rows_received_per_layer"),
               *routing = spw_csv_field(csv, row, "routing");
    const uint64_t all = RANKS * s->assignments, rank = number(csv, row, "rank");
    char *after = NULL;
    for (size_t l = 0; l < LAYERS; l++) {
        const uint64_t held = strtoull(text, &after, 10);
        CHECK(after != text);
        CHECK(strcmp(routing, "balanced") != 0 || held == all / RANKS);
        CHECK(strcmp(routing, "hot1") != 0 || held == (rank == 0 ? all : 0));
        rows[l] = (spw_rank_rows){.held = held, .received = held, .sent = s->assignments};
        text = *after == ';' ? after + 1 : after;
    }
}

/* Worst errors so far. */
static void compare(const spw_csv *csv, size_t row, process *p, double worst[FIGURES]) {
    spw_rank_rows rows[LAYERS];
    read_rows(csv, row, &p->shape, rows);
    prepare(p);
    (void)replay(p);
    spw_allocator_reset_peaks(p->allocator);
    step(p, rows);
    const spw_list_replay r = replay(p);
    const uint64_t before = r.before.requested_bytes,
                   ours[FIGURES] = {r.after_forward.requested_bytes, r.after.requested_peak_bytes,
                                    r.after.reserved_peak_bytes};
    CHECK(before == number(csv, row, "requested_before_bytes"));
    for (int f = 0; f < FIGURES; f++) {
        const double theirs = (double)number(csv, row, figures[f].column),
                     error = ((double)ours[f] - theirs) / (f < 2 ? theirs - (double)before : theirs);
        worst[f] = fmax(worst[f], fabs(error));
        if (f < 2) CHECK((double)ours[f] == theirs);
        if (fabs(error) > figures[f].limit)
            fprintf(stderr, "row %zu, %s: measured %.0f, predicted %.0f\n", row + 2, figures[f].column,
                    theirs, (double)ours[f]);
    }
}

int main(int argc, char **argv) {
    const spw_scheme scheme = scheme_of("torchtitan");
    char path[4096];
    spw_csv *csv = NULL;
    process of_rank[RANKS] = {{.backward = false}};
    double worst[FIGURES] = {0.0};
    CHECK(argc == 2);
    (void)snprintf(path, sizeof path, "%s/torchtitan_h200.csv", argv[1]);
    CHECK_OK(spw_csv_read(path, &csv));
    CHECK(csv != NULL && spw_csv_rows(csv) == ROWS);
    for (size_t i = 0; csv != NULL && i < spw_csv_rows(csv); i++) {
        process *p = &of_rank[number(csv, i, "rank") % RANKS];
        CHECK(number(csv, i, "layers") == LAYERS);
        if (number(csv, i, "sequence_step") == 0) start(p, csv, i, &scheme);
        if (p->allocator != NULL) compare(csv, i, p, worst);
    }
    for (int f = 0; f < FIGURES; f++) {
        printf("%-30s at most %.4f %% off\n", figures[f].column, 100.0 * worst[f]);
        CHECK(worst[f] < figures[f].limit);
    }
    for (int r = 0; r < RANKS; r++) end(&of_rank[r]);
    spw_csv_close(csv);
    return check_done();
}
