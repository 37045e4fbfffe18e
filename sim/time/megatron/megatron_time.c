#include "sim/time/megatron/megatron_time.h"

#include "base/memory.h"
#include "sim/time/exchange_rate.h"
#include "sim/time/megatron/megatron_clocks.h"

#include <math.h>
#include <string.h>

#define PHASE_TEXT(name, text) text,
const char *spw_megatron_phase_name(spw_megatron_phase phase) {
    static const char *const names[] = {SPW_MEGATRON_PHASE_LIST(PHASE_TEXT)};
    return (unsigned)phase < SPW_MEGATRON_PHASES ? names[phase] : "?";
}

typedef spw_megatron_clocks step;

static double smaller(double a, double b) { return a < b ? a : b; }

static double up(double x, double tile) { return ceil(x / tile) * tile; }
static double gemm_s(const step *s, const spw_megatron_load *load, double spilled, double flops) {
    const double zeros = load->received > 0.0 ? load->zero_rows / load->received : 0.0;
    const double gain = s->shape->product_gain > 0.0 ? s->shape->product_gain : 1.0;
    return flops / (s->c->peak_flops.value * s->c->gemm_flops_share.value * gain) *
           (1.0 + s->c->spill_share.value * spilled) * (1.0 - s->c->zero_share.value * zeros);
}

/* --- Exchanges --- */

/* Measured in both directions and not understood; messages that are all of one size do not show it. */
static double long_message(const step *s, double message_bytes) {
    const double steps[] = {s->c->long_message_bytes.value, 2.0 * s->c->long_message_bytes.value};
    double factor = 1.0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (message_bytes > steps[i])
            factor = spw_clocks_larger(1.0, s->c->long_message_share.value * steps[i] / message_bytes);
    }
    return factor;
}

double spw_megatron_nic_rows(const spw_megatron_load *load, size_t ranks) {
    double most = 0.0;
    for (size_t r = 0; r < ranks; r++)
        most = spw_clocks_larger(most, spw_clocks_larger(load[r].nic_in, load[r].nic_out));
    return most;
}

/* What an exchange of a few bytes takes: within a node by the stack, between nodes as published. */
static double start_s(const step *s, double nic) {
    const double within = s->c->exchange_latency_s.value;
    return nic > 0.0 ? spw_clocks_larger(within, s->c->exchange_start_s.value) : within;
}

static double ports_s(const step *s, const spw_megatron_load *load, double nic, double element_bytes) {
    double heavier = 0.0, most = 0.0, least = INFINITY;
    for (size_t r = 0; r < s->ranks; r++) {
        const double in = load[r].link_in, out = load[r].link_out;
        heavier = spw_clocks_larger(heavier, spw_clocks_larger(in, out));
        least = smaller(least, smaller(in, out));
        most =
            spw_clocks_larger(most, spw_clocks_larger(in, out) + s->c->duplex_share.value * smaller(in, out));
    }
    const bool all_to_all = s->dispatcher == SPW_MEGATRON_ALL_TO_ALL && nic == 0.0;
    const double all = s->alike * (double)s->ranks, messages = all > 1.0 ? all - 1.0 : 1.0,
                 row_bytes = element_bytes * s->H;
    const double factor =
        all_to_all && heavier > least ? long_message(s, row_bytes * heavier / messages) : 1.0;
    const double link_s =
        s->dispatcher == SPW_MEGATRON_TOKENS
            ? row_bytes * heavier /
                  (s->shape->sorted ? s->c->sorted_bytes_per_s.value : s->c->token_bytes_per_s.value)
            : factor * row_bytes * most / s->c->exchange_bytes_per_s.value;
    if (!(nic > 0.0)) return link_s;
    const double nic_s = row_bytes * nic / (s->c->exchange_nic_share.value * s->c->nic_bytes_per_s);
    return spw_exchange_legs(link_s, nic_s, s->c->exchange_serial_share.value);
}

/* Both directions of a layer's exchanges are alike, but where the way back sums. */
static void find_exchanges(const step *s, size_t lane, double *out) {
    const spw_megatron_load *load = s->load[lane];
    const double nic = spw_megatron_nic_rows(load, s->ranks), begin_s = start_s(s, nic);
    double levels_s = 0.0;
    for (size_t r = 0; r < s->ranks; r++) levels_s = spw_clocks_larger(levels_s, load[r].latency_s);
    const double to = begin_s + levels_s + ports_s(s, load, nic, 2.0);
    out[SPW_WAY_TO * s->lanes + lane] = to;
    out[SPW_WAY_DISPATCH * s->lanes + lane] = to + begin_s;
    out[SPW_WAY_BACK * s->lanes + lane] =
        s->dispatcher == SPW_MEGATRON_ALL_GATHER ? begin_s + levels_s + ports_s(s, load, nic, 4.0) : to;
}

/* --- Kernels --- */

/* Rows between the order in which they arrive and that of the experts, by kernels of `bytes_per_s`. */
static double chunks_s(const step *s, const spw_megatron_load *load, double bytes_per_s) {
    const double bytes = 4.0 * load->received * s->H, idle = 4.0 * load->idle_rows * s->H;
    if (load->received == 0.0) return 0.0;
    if (s->dispatcher != SPW_MEGATRON_ALL_TO_ALL)
        return bytes / bytes_per_s + spw_clocks_kernels_s(s, s->c->chunk_kernels.value);
    if (s->shape->padded)
        return bytes / s->c->slots_bytes_per_s.value + spw_clocks_kernels_s(s, s->c->chunk_kernels.value);
    return spw_clocks_copy_s(s, bytes + idle) + spw_clocks_kernels_s(s, s->c->chunk_kernels.value);
}

/* Into the experts' order before their products, and out of it after their gradients: nothing where the exchange does it. */
static double order_s(const step *s, const spw_megatron_load *load) {
    return s->shape->sorted ? 0.0 : chunks_s(s, load, s->c->copy_bytes_per_s.value);
}

/* Columns of the first product over F: gate and up, or one where experts have two matrices; what the activation moves of them. */
static double first_of(const step *s) { return s->shape->plain ? 1.0 : 2.0; }
static double moved_of(const step *s) { return (first_of(s) + 1.0) / 3.0; }

static double activation_s(const step *s, const spw_megatron_load *load) {
    return spw_clocks_copy_s(s, s->c->activation_bytes.value * moved_of(s) * load->received * s->F);
}

static double experts_s(const step *s, const spw_megatron_load *load) {
    const double *spilled = load->spilled, fc1 = 2.0 * load->tiled * s->H * s->tiled_first,
                 fc2 = 2.0 * load->tiled * s->F * s->tiled_H;
    return gemm_s(s, load, spilled[SPW_MEGATRON_DEPTH_HIDDEN], fc1) +
           gemm_s(s, load, spilled[SPW_MEGATRON_DEPTH_FFN], fc2) + activation_s(s, load) +
           spw_clocks_kernels_s(s, s->c->expert_kernels.value);
}

static double backward_experts_s(const step *s, const spw_megatron_load *load) {
    const double parameters = (first_of(s) + 1.0) * s->H * s->F; /* of one expert */
    const double fc1 = 2.0 * load->tiled * first_of(s) * s->F * s->tiled_H,
                 fc2 = 2.0 * load->tiled * s->H * s->tiled_F,
                 weights = 2.0 * load->received * s->weights_flops;
    const int depth = s->shape->plain ? SPW_MEGATRON_DEPTH_FFN : SPW_MEGATRON_DEPTH_TWICE_FFN;
    double seconds =
        gemm_s(s, load, load->spilled[depth], fc1) +
        gemm_s(s, load, load->spilled[SPW_MEGATRON_DEPTH_HIDDEN], fc2) + gemm_s(s, load, 0.0, weights) +
        spw_clocks_copy_s(s, s->c->activation_gradient_bytes.value * moved_of(s) * load->received * s->F) +
        s->c->main_grad_bytes.value * s->e * parameters / s->c->main_grad_bytes_per_s.value +
        spw_clocks_copy_s(s, 2.0 * (double)load->empty_experts * parameters) +
        spw_clocks_kernels_s(s, s->c->expert_kernels.value);
    if (s->shape->recompute == SPW_RECOMPUTE_MOE_ACT) seconds += activation_s(s, load);
    return seconds;
}

/* Of one load, every `lanes`th number. */
static void find_prices(const step *s, const spw_megatron_load *load, double *out) {
    const double sent = 4.0 * load->sent * s->H,
                 back_permute_s = sent / s->c->index_add_bytes_per_s.value +
                                  spw_clocks_copy_s(s, s->c->norm_gradient_bytes.value * s->T * s->model_H) +
                                  4.0 * s->T * s->model_H * s->E / s->c->router_flops.value;
    const double seconds[SPW_PRICES] = {
        [SPW_PRICE_SENT] = spw_clocks_copy_s(s, sent),
        [SPW_PRICE_ORDER] = order_s(s, load),
        [SPW_PRICE_EXPERTS] = experts_s(s, load),
        [SPW_PRICE_UNSORT] = chunks_s(s, load, s->c->scatter_bytes_per_s.value),
        [SPW_PRICE_UNPERMUTE] = sent / s->c->scatter_bytes_per_s.value,
        [SPW_PRICE_BACK_EXPERTS] = backward_experts_s(s, load),
        [SPW_PRICE_BACK_SORT] = chunks_s(s, load, s->c->index_add_bytes_per_s.value),
        [SPW_PRICE_BACK_PERMUTE] = back_permute_s};
    for (size_t i = 0; i < SPW_PRICES; i++) out[i * s->lanes] = seconds[i];
}

/* --- A step --- */

static double last_of(const step *s, size_t lane) {
    double last = 0.0;
    for (size_t r = 0; r < s->ranks; r++) last = spw_clocks_larger(last, s->now[r * s->lanes + lane]);
    return last;
}

static double unlike_of(const step *s, size_t lane) {
    double most = 0.0;
    for (size_t r = 0; r < s->ranks; r++) most = spw_clocks_larger(most, s->load[lane][r].unlike);
    return most;
}

_Static_assert(sizeof(spw_megatron_load) == (14 + SPW_MEGATRON_DEPTH_COUNT) * sizeof(double),
               "every number is compared");
bool spw_megatron_load_is(const spw_megatron_load *a, const spw_megatron_load *b) {
    bool same = a->received == b->received && a->sent == b->sent && a->link_in == b->link_in &&
                a->link_out == b->link_out && a->nic_in == b->nic_in && a->nic_out == b->nic_out &&
                a->latency_s == b->latency_s && a->arrived == b->arrived && a->shared == b->shared &&
                a->tiled == b->tiled && a->empty_experts == b->empty_experts &&
                a->idle_rows == b->idle_rows && a->zero_rows == b->zero_rows && a->unlike == b->unlike;
    for (size_t i = 0; i < SPW_MEGATRON_DEPTH_COUNT; i++) same = same && a->spilled[i] == b->spilled[i];
    return same;
}

enum { FEW_RANKS = 64 }; /* which are worked through one by one */

/* Have all ranks of a layer the same load, in every layer? Then one stands for all. */
static bool are_alike(const spw_megatron_loads *loads, size_t layers, size_t ranks) {
    for (size_t l = 0; l < (loads->turn > 0 ? loads->turn : layers); l++) {
        const spw_megatron_load *load = loads->load + l * ranks;
        for (size_t r = 1; r < ranks; r++)
            if (!spw_megatron_load_is(&load[r], load)) return false;
    }
    return true;
}

static size_t rows_of(const spw_megatron_loads *loads, size_t layers) {
    return loads->turn > 0 && loads->turn < layers ? loads->turn : layers;
}

/* Of a layer: its loads, and before it runs forward its exchanges and the prices that no layer before it had.
 * prices: [rows][ranks][SPW_PRICES][lanes] */
static void begin_layer(step *s, const spw_megatron_loads *loads, size_t ranks, bool back, double *prices,
                        double *exchange_s) {
    const size_t rows = rows_of(loads, s->shape->layers);
    double *price = prices + s->layer % rows * s->ranks * SPW_PRICES * s->lanes,
           *here_s = exchange_s + s->layer * SPW_WAYS * s->lanes;
    for (size_t l = 0; l < s->lanes; l++) {
        const size_t turn = loads[l].turn;
        s->load[l] = loads[l].load + (turn > 0 ? (loads[l].first + s->layer) % turn : s->layer) * ranks;
        if (!back) find_exchanges(s, l, here_s);
        for (size_t r = 0; r < s->ranks && !back && s->layer < rows; r++)
            find_prices(s, &s->load[l][r], price + r * SPW_PRICES * s->lanes + l);
    }
    s->price = price;
    s->exchange_s = here_s;
}

static void give(const step *s, size_t lane, spw_megatron_time *out) {
    out->step_s = last_of(s, lane);
    out->backward_s = out->step_s - out->forward_s;
    for (size_t f = 0; f < SPW_MEGATRON_PHASES; f++) {
        out->phase_s[f] = s->spent_s[f][lane];
        out->rank_wait_s[f] = s->rank_wait_s[f][lane];
        out->host_wait_s[f] = s->host_wait_s[f][lane];
        out->again_s[f] = s->again_s[f][lane];
    }
}

/* What is to be timed, by how many ranks. */
typedef struct timed {
    const spw_megatron_coefficients *c;
    const spw_megatron_shape *shape;
    spw_megatron_dispatcher dispatcher;
    size_t ranks;
} timed;

static step step_of(const timed *t, size_t lanes, bool one) {
    const spw_megatron_shape *shape = t->shape;
    step s = {.c = t->c,
              .shape = shape,
              .dispatcher = t->dispatcher,
              .lanes = lanes,
              .ranks = one ? 1 : t->ranks,
              .alike = one ? (double)t->ranks : 1.0,
              .T = (double)shape->tokens,
              .E = (double)shape->experts,
              .e = (double)shape->experts_per_rank,
              .H = (double)shape->hidden,
              .F = (double)shape->ffn,
              .model_H = (double)(shape->model_hidden > 0 ? shape->model_hidden : shape->hidden)};
    const double rows = t->c->tile_rows.value, tile = t->c->tile_columns.value;
    s.tiled_H = up(s.H, tile);
    s.tiled_F = up(s.F, tile);
    s.tiled_first = up(first_of(&s) * s.F, tile);
    s.weights_flops = up(s.H, rows) * s.tiled_first + up(s.F, rows) * s.tiled_H;
    return s;
}

/* loads [lanes], of as many rows; out [lanes] */
static spw_status run(const timed *t, size_t lanes, bool one, const spw_megatron_loads *loads,
                      double *phase_s, spw_megatron_time *out) {
    const spw_megatron_shape *shape = t->shape;
    const size_t layers = shape->layers;
    step s = step_of(t, lanes, one);
    double *prices = NULL, *exchange_s = NULL;
    spw_status status = SPW_OK;
    memset(out, 0, lanes * sizeof *out);
    SPW_TRY(SPW_ALLOC(s.ranks * lanes, &s.now));
    SPW_TRY(SPW_ALLOC(s.ranks * lanes, &s.counted));
    SPW_TRY(SPW_RESIZE(layers * SPW_WAYS * lanes, &exchange_s));
    SPW_TRY(SPW_RESIZE(rows_of(loads, layers) * s.ranks * SPW_PRICES * lanes, &prices));
    if (phase_s != NULL) memset(phase_s, 0, layers * s.ranks * SPW_MEGATRON_PHASES * sizeof *phase_s);
    for (size_t i = 0; i < 2 * layers; i++) {
        const bool back = i >= layers;
        for (size_t l = 0; l < lanes && i == layers; l++) out[l].forward_s = last_of(&s, l);
        s.layer = back ? 2 * layers - 1 - i : i;
        s.phase_s = phase_s == NULL ? NULL : phase_s + s.layer * s.ranks * SPW_MEGATRON_PHASES;
        begin_layer(&s, loads, t->ranks, back, prices, exchange_s);
        for (size_t l = 0; l < lanes && !back; l++) out[l].unlike += unlike_of(&s, l);
        if (!back) spw_megatron_clocks_forward(&s);
        if (back && shape->recompute == SPW_RECOMPUTE_MOE) spw_megatron_clocks_again(&s);
        if (back) spw_megatron_clocks_backward(&s);
    }
    for (size_t l = 0; l < lanes; l++) give(&s, l, &out[l]);

cleanup:
    spw_free(s.now);
    spw_free(s.counted);
    spw_free(exchange_s);
    spw_free(prices);
    return status;
}

static spw_status check(const spw_megatron_shape *shape, size_t ranks) {
    if (ranks == 0 || shape->layers == 0 || shape->tokens == 0 || shape->hidden == 0 || shape->ffn == 0 ||
        shape->experts == 0)
        return spw_fail(SPW_EARG, "the time of a stack of %zu layers, %zu tokens, %zu ranks: all at least 1",
                        shape->layers, shape->tokens, ranks);
    return SPW_OK;
}

static bool is_one(const timed *t, const spw_megatron_loads *loads) {
    return t->ranks > FEW_RANKS && are_alike(loads, t->shape->layers, t->ranks);
}

spw_status spw_megatron_time_predict(const spw_megatron_coefficients *c, const spw_megatron_shape *shape,
                                     spw_megatron_dispatcher dispatcher, size_t ranks,
                                     const spw_megatron_loads *loads, double *phase_s,
                                     spw_megatron_time *out) {
    const timed t = {c, shape, dispatcher, ranks};
    const spw_status status = check(shape, ranks);
    memset(out, 0, sizeof *out);
    return status == SPW_OK ? run(&t, 1, phase_s == NULL && is_one(&t, loads), loads, phase_s, out) : status;
}

/* As many of the loads, from the first on, as run side by side. */
static size_t side_by_side(const timed *t, const spw_megatron_loads *loads, size_t count, bool one) {
    size_t n = 1;
    while (n < count && n < SPW_MEGATRON_LANES && loads[n].turn == loads->turn && is_one(t, &loads[n]) == one)
        n++;
    return n;
}

spw_status spw_megatron_times_predict(const spw_megatron_coefficients *c, const spw_megatron_shape *shape,
                                      spw_megatron_dispatcher dispatcher, size_t ranks,
                                      const spw_megatron_loads *loads, size_t count, spw_megatron_time *out) {
    const timed t = {c, shape, dispatcher, ranks};
    spw_status status = check(shape, ranks);
    for (size_t i = 0, n = 0; i < count && status == SPW_OK; i += n) {
        const bool one = is_one(&t, &loads[i]);
        spw_megatron_loads lane[SPW_MEGATRON_LANES];
        spw_megatron_time of[SPW_MEGATRON_LANES];
        n = side_by_side(&t, loads + i, count - i, one);
        for (size_t l = 0; l < SPW_MEGATRON_LANES; l++) lane[l] = loads[i + (l < n ? l : 0)];
        status = run(&t, n > 1 ? SPW_MEGATRON_LANES : 1, one, lane, NULL, of);
        memcpy(out + i, of, n * sizeof *of);
    }
    return status;
}
