#include "sim/time/megatron/megatron_time.h"

#include "base/memory.h"
#include "sim/time/exchange_rate.h"

#include <math.h>
#include <string.h>

#define PHASE_TEXT(name, text) text,
const char *spw_megatron_phase_name(spw_megatron_phase phase) {
    static const char *const names[] = {SPW_MEGATRON_PHASE_LIST(PHASE_TEXT)};
    return (unsigned)phase < SPW_MEGATRON_PHASES ? names[phase] : "?";
}

/* What a rank's kernels take with its load, pass by pass; the kernels that move rows in the layer's order take as long in both. */
enum { SENT, ORDER, EXPERTS, UNSORT, UNPERMUTE, BACK_EXPERTS, BACK_SORT, BACK_PERMUTE, PRICES };
typedef struct price {
    bool there;
    double seconds[PRICES];
} price;

/* The clocks of a step under way. */
typedef struct step {
    const spw_megatron_coefficients *c;
    const spw_megatron_shape *shape;
    spw_megatron_dispatcher dispatcher;
    double T, E, e, H, F;
    double model_H; /* of what the norm and the router read */
    size_t ranks, layer;
    double alike;                  /* ranks for which each of these stands */
    const spw_megatron_load *load; /* [ranks] of the layer */
    const price *price;            /* of each of these */
    double *phase_s;               /* [ranks][PHASES] of the layer, or NULL */
    double *now, *counted;         /* [ranks] GPU; when the host knew the last layer's counts */
    double met;                    /* end of the last exchange */
    double *exchange_s;            /* [layers][2] without waiting: rows to their experts, and back */
    spw_megatron_time *out;
} step;

/* As fmax() of what is no NaN, which no compiler may take it for. */
static double larger(double a, double b) { return a > b ? a : b; }
static double smaller(double a, double b) { return a < b ? a : b; }

static double up(double x, double tile) { return ceil(x / tile) * tile; }
static double copy_s(const step *s, double bytes) { return bytes / s->c->copy_bytes_per_s.value; }
static double kernels_s(const step *s, double kernels) { return kernels * s->c->kernel_s.value; }
static double gemm_s(const step *s, const spw_megatron_load *load, double spilled, double flops) {
    const double zeros = load->received > 0.0 ? load->zero_rows / load->received : 0.0;
    const double gain = s->shape->product_gain > 0.0 ? s->shape->product_gain : 1.0;
    return flops / (s->c->peak_flops.value * s->c->gemm_flops_share.value * gain) *
           (1.0 + s->c->spill_share.value * spilled) * (1.0 - s->c->zero_share.value * zeros);
}

/* --- Time that is spent --- */

#define INLINE static inline __attribute__((always_inline)) /* once for each list of phases */

/* The sums of phases in which a layer's ranks spend time by turns, while they do so: apart from the step's own, so that each addition
 * need not wait for memory. All of a second forward pass is recompute, and stands once more under its own name. */
enum { TURNS = 3 };
typedef struct purse {
    bool again;
    size_t phases;
    spw_megatron_phase phase[TURNS];
    double spent[TURNS], waited[TURNS],
        own[TURNS]; /* again: of the first two the first place has what all have */
    double *wait_s; /* where waiting is told: host_wait_s or rank_wait_s */
} purse;

static size_t counts_as(const purse *p, size_t i) {
    return p->again ? (size_t)SPW_MEGATRON_RECOMPUTE : (size_t)p->phase[i];
}

INLINE purse purse_open(const step *s, bool again, double *wait_s, size_t phases,
                        const spw_megatron_phase *phase) {
    purse p = {.again = again, .phases = phases, .wait_s = wait_s};
    for (size_t i = 0; i < phases; i++) {
        p.phase[i] = phase[i];
        p.spent[i] = s->out->phase_s[counts_as(&p, i)];
        p.waited[i] = wait_s[counts_as(&p, i)];
        p.own[i] = s->out->again_s[phase[i]];
    }
    return p;
}

INLINE void purse_close(const step *s, const purse *p) {
    for (size_t i = 0; i < p->phases; i++) {
        s->out->phase_s[counts_as(p, i)] = p->spent[p->again ? 0 : i];
        p->wait_s[counts_as(p, i)] = p->waited[p->again ? 0 : i];
        if (p->again) s->out->again_s[p->phase[i]] = p->own[i];
    }
}

/* A rank spends time in phase i of the purse. */
INLINE void spend(const step *s, purse *p, size_t i, size_t rank, double seconds) {
    const double share = seconds / (double)s->ranks;
    s->now[rank] += seconds;
    p->spent[p->again ? 0 : i] += share;
    if (p->again) p->own[i] += share;
    if (s->phase_s != NULL) s->phase_s[rank * SPW_MEGATRON_PHASES + counts_as(p, i)] += seconds;
}

/* Returns its part of the mean over the ranks. */
INLINE double spend_until(const step *s, purse *p, size_t i, size_t rank, double time) {
    const double seconds = time - s->now[rank];
    if (!(seconds > 0.0)) return 0.0;
    spend(s, p, i, rank, seconds);
    return seconds / (double)s->ranks;
}

INLINE void wait_until(const step *s, purse *p, size_t i, size_t rank, double time) {
    const double seconds = spend_until(s, p, i, rank, time);
    p->waited[p->again ? 0 : i] += seconds;
    if (p->again) p->own[i] -= seconds;
}

/* Of every rank in turn the prices of the phases. */
INLINE void spend_prices(const step *s, bool again, size_t phases, const spw_megatron_phase *phase,
                         const int *which) {
    purse p = purse_open(s, again, s->out->host_wait_s, phases, phase);
    for (size_t r = 0; r < s->ranks; r++)
        for (size_t i = 0; i < phases; i++) spend(s, &p, i, r, s->price[r].seconds[which[i]]);
    purse_close(s, &p);
}

/* All ranks arrive. */
INLINE void meet(step *s, bool again, spw_megatron_phase phase) {
    double last = 0.0, sum = 0.0;
    for (size_t r = 0; r < s->ranks; r++) last = larger(last, s->now[r] - s->met);
    const double scale = s->c->jitter_share.value * last;
    for (size_t r = 0; r < s->ranks && scale > 0.0; r++)
        sum += s->alike * exp((s->now[r] - s->met - last) / scale);
    s->met += last + (scale > 0.0 ? scale * log(sum) : 0.0);
    purse p = purse_open(s, again, s->out->rank_wait_s, 1, &phase);
    for (size_t r = 0; r < s->ranks; r++) wait_until(s, &p, 0, r, s->met);
    purse_close(s, &p);
}

INLINE void exchange(step *s, bool again, spw_megatron_phase phase, double seconds) {
    meet(s, again, phase);
    s->met += seconds;
    purse p = purse_open(s, again, s->out->rank_wait_s, 1, &phase);
    for (size_t r = 0; r < s->ranks; r++) (void)spend_until(s, &p, 0, r, s->met);
    purse_close(s, &p);
}

/* Measured in both directions and not understood; messages that are all of one size do not show it. */
static double long_message(const step *s, double message_bytes) {
    const double steps[] = {s->c->long_message_bytes.value, 2.0 * s->c->long_message_bytes.value};
    double factor = 1.0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (message_bytes > steps[i])
            factor = larger(1.0, s->c->long_message_share.value * steps[i] / message_bytes);
    }
    return factor;
}

double spw_megatron_nic_rows(const spw_megatron_load *load, size_t ranks) {
    double most = 0.0;
    for (size_t r = 0; r < ranks; r++) most = larger(most, larger(load[r].nic_in, load[r].nic_out));
    return most;
}

/* What an exchange of a few bytes takes: within a node by the stack, between nodes as published. */
static double start_s(const step *s, double nic) {
    const double within = s->c->exchange_latency_s.value;
    return nic > 0.0 ? larger(within, s->c->exchange_start_s.value) : within;
}

static double ports_s(const step *s, double nic, double element_bytes) {
    double heavier = 0.0, most = 0.0, least = INFINITY;
    for (size_t r = 0; r < s->ranks; r++) {
        const double in = s->load[r].link_in, out = s->load[r].link_out;
        heavier = larger(heavier, larger(in, out));
        least = smaller(least, smaller(in, out));
        most = larger(most, larger(in, out) + s->c->duplex_share.value * smaller(in, out));
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
static double exchange_of(const step *s, bool back) {
    const bool sums = back && s->dispatcher == SPW_MEGATRON_ALL_GATHER;
    double levels_s = 0.0;
    if (back && !sums) return s->exchange_s[2 * s->layer];
    for (size_t r = 0; r < s->ranks; r++) levels_s = larger(levels_s, s->load[r].latency_s);
    const double nic = spw_megatron_nic_rows(s->load, s->ranks);
    return start_s(s, nic) + levels_s + ports_s(s, nic, sums ? 4.0 : 2.0);
}

/* Rows between the order in which they arrive and that of the experts, by kernels of `bytes_per_s`. */
static double chunks_s(const step *s, const spw_megatron_load *load, double bytes_per_s) {
    const double bytes = 4.0 * load->received * s->H, idle = 4.0 * load->idle_rows * s->H;
    if (load->received == 0.0) return 0.0;
    if (s->dispatcher != SPW_MEGATRON_ALL_TO_ALL)
        return bytes / bytes_per_s + kernels_s(s, s->c->chunk_kernels.value);
    if (s->shape->padded)
        return bytes / s->c->slots_bytes_per_s.value + kernels_s(s, s->c->chunk_kernels.value);
    return copy_s(s, bytes + idle) + kernels_s(s, s->c->chunk_kernels.value);
}

/* --- Among ranks that share experts --- */

static const double CAST_BYTES = 6.0; /* an element, between bf16 and fp32 */

static bool shares(const step *s) { return s->shape->expert_tensor > 1; }

static void gather(const step *s, bool again, spw_megatron_phase phase, int calls, double element_bytes) {
    purse p = purse_open(s, again, s->out->host_wait_s, 1, &phase);
    for (size_t r = 0; r < s->ranks; r++)
        spend(s, &p, 0, r,
              calls * s->c->exchange_latency_s.value +
                  element_bytes * s->H * s->load[r].shared / s->c->exchange_bytes_per_s.value);
    purse_close(s, &p);
}

/* Sums of fp32, with casts of both sides. */
static void scatter(const step *s, bool again, spw_megatron_phase phase) {
    gather(s, again, phase, 1, 4.0);
    purse p = purse_open(s, again, s->out->host_wait_s, 1, &phase);
    for (size_t r = 0; r < s->ranks; r++)
        spend(s, &p, 0, r,
              copy_s(s, CAST_BYTES * (s->load[r].received + s->load[r].arrived) * s->H) + kernels_s(s, 2));
    purse_close(s, &p);
}

/* Into the experts' order before their products, and out of it after their gradients: nothing where the exchange does it. */
static double order_s(const step *s, const spw_megatron_load *load) {
    return s->shape->sorted ? 0.0 : chunks_s(s, load, s->c->copy_bytes_per_s.value);
}

/* Columns of the first product over F: gate and up, or one where experts have two matrices; what the activation moves of them. */
static double first_of(const step *s) { return s->shape->plain ? 1.0 : 2.0; }
static double moved_of(const step *s) { return (first_of(s) + 1.0) / 3.0; }

static double activation_s(const step *s, const spw_megatron_load *load) {
    return copy_s(s, s->c->activation_bytes.value * moved_of(s) * load->received * s->F);
}

static double experts_s(const step *s, const spw_megatron_load *load) {
    const double tile = s->c->tile_columns.value, *spilled = load->spilled;
    const double fc1 = 2.0 * load->tiled * s->H * up(first_of(s) * s->F, tile),
                 fc2 = 2.0 * load->tiled * s->F * up(s->H, tile);
    return gemm_s(s, load, spilled[SPW_MEGATRON_DEPTH_HIDDEN], fc1) +
           gemm_s(s, load, spilled[SPW_MEGATRON_DEPTH_FFN], fc2) + activation_s(s, load) +
           kernels_s(s, s->c->expert_kernels.value);
}

static double backward_experts_s(const step *s, const spw_megatron_load *load) {
    const double rows = s->c->tile_rows.value, tile = s->c->tile_columns.value;
    const double parameters = (first_of(s) + 1.0) * s->H * s->F; /* of one expert */
    const double fc1 = 2.0 * load->tiled * first_of(s) * s->F * up(s->H, tile),
                 fc2 = 2.0 * load->tiled * s->H * up(s->F, tile);
    const double weights = 2.0 * load->received *
                           (up(s->H, rows) * up(first_of(s) * s->F, tile) + up(s->F, rows) * up(s->H, tile));
    const int depth = s->shape->plain ? SPW_MEGATRON_DEPTH_FFN : SPW_MEGATRON_DEPTH_TWICE_FFN;
    double seconds =
        gemm_s(s, load, load->spilled[depth], fc1) +
        gemm_s(s, load, load->spilled[SPW_MEGATRON_DEPTH_HIDDEN], fc2) + gemm_s(s, load, 0.0, weights) +
        copy_s(s, s->c->activation_gradient_bytes.value * moved_of(s) * load->received * s->F) +
        s->c->main_grad_bytes.value * s->e * parameters / s->c->main_grad_bytes_per_s.value +
        copy_s(s, 2.0 * (double)load->empty_experts * parameters) + kernels_s(s, s->c->expert_kernels.value);
    if (s->shape->recompute == SPW_RECOMPUTE_MOE_ACT) seconds += activation_s(s, load);
    return seconds;
}

/* --- A layer --- */

static price price_of(const step *s, const spw_megatron_load *load) {
    const double sent = 4.0 * load->sent * s->H,
                 back_permute_s = sent / s->c->index_add_bytes_per_s.value +
                                  copy_s(s, s->c->norm_gradient_bytes.value * s->T * s->model_H) +
                                  4.0 * s->T * s->model_H * s->E / s->c->router_flops.value;
    return (price){.there = true,
                   .seconds = {[SENT] = copy_s(s, sent),
                               [ORDER] = order_s(s, load),
                               [EXPERTS] = experts_s(s, load),
                               [UNSORT] = chunks_s(s, load, s->c->scatter_bytes_per_s.value),
                               [UNPERMUTE] = sent / s->c->scatter_bytes_per_s.value,
                               [BACK_EXPERTS] = backward_experts_s(s, load),
                               [BACK_SORT] = chunks_s(s, load, s->c->index_add_bytes_per_s.value),
                               [BACK_PERMUTE] = back_permute_s}};
}

static double route_s(const step *s) {
    const double columns = s->shape->capacity > 0 ? s->c->column_bytes.value * s->T * s->E : 0.0;
    return copy_s(s, s->c->norm_bytes.value * s->T * s->model_H + columns) +
           2.0 * s->T * s->model_H * s->E / s->c->router_flops.value +
           kernels_s(s, s->c->route_kernels.value);
}

enum { ROUTING, PERMUTING };

/* Padded to capacity, or where counts stay on the GPU, the host needs none: it is ahead from the first layer on. */
INLINE void permute(const step *s, purse *p, size_t rank, double sort_s) {
    const bool first = s->layer == 0 && !p->again;
    spend(s, p, PERMUTING, rank, sort_s);
    if (!s->shape->padded && !s->shape->unread) {
        const double host_s = first ? s->c->host_first_s.value : s->counted[rank] + s->c->host_layer_s.value;
        wait_until(s, p, PERMUTING, rank, host_s);
        s->counted[rank] = s->now[rank];
        if (s->shape->capacity > 0) spend(s, p, PERMUTING, rank, s->c->read_count_s.value);
    }
    spend(s, p, PERMUTING, rank, s->price[rank].seconds[SENT]);
}

INLINE void route_and_permute(const step *s, bool again) {
    const double routing_s = route_s(s), sort_s = copy_s(s, s->c->sort_bytes.value * s->T * s->E) +
                                                  kernels_s(s, s->c->permute_kernels.value);
    const bool waits = s->layer == 0 && !again && !s->shape->graphed;
    purse p = purse_open(s, again, s->out->host_wait_s, 2,
                         (const spw_megatron_phase[]){SPW_MEGATRON_ROUTE, SPW_MEGATRON_PERMUTE});
    for (size_t r = 0; r < s->ranks; r++) {
        spend(s, &p, ROUTING, r, routing_s);
        if (waits) wait_until(s, &p, ROUTING, r, s->c->routed_share.value * s->c->host_first_s.value);
        permute(s, &p, r, sort_s);
    }
    purse_close(s, &p);
}

INLINE void forward_as(step *s, bool again) {
    static const spw_megatron_phase products[] = {SPW_MEGATRON_SORT, SPW_MEGATRON_EXPERTS,
                                                  SPW_MEGATRON_UNSORT},
                                    end[] = {SPW_MEGATRON_UNPERMUTE};
    route_and_permute(s, again);
    exchange(s, again, SPW_MEGATRON_DISPATCH,
             s->exchange_s[2 * s->layer] + start_s(s, spw_megatron_nic_rows(s->load, s->ranks)));
    if (shares(s)) gather(s, again, SPW_MEGATRON_GATHER, 2, 2.0);
    spend_prices(s, again, 3, products, (const int[]){ORDER, EXPERTS, UNSORT});
    if (shares(s)) scatter(s, again, SPW_MEGATRON_SCATTER);
    exchange(s, again, SPW_MEGATRON_COMBINE, s->exchange_s[2 * s->layer + 1]);
    spend_prices(s, again, 1, end, (const int[]){UNPERMUTE});
}

static void forward(step *s) { forward_as(s, false); }

/* Everything counts as recompute. */
static void forward_again(step *s) { forward_as(s, true); }

static void backward(step *s) {
    static const spw_megatron_phase products[] = {SPW_MEGATRON_BACKWARD_UNSORT, SPW_MEGATRON_BACKWARD_EXPERTS,
                                                  SPW_MEGATRON_BACKWARD_SORT},
                                    begin[] = {SPW_MEGATRON_BACKWARD_UNPERMUTE},
                                    end[] = {SPW_MEGATRON_BACKWARD_PERMUTE};
    spend_prices(s, false, 1, begin, (const int[]){SENT});
    exchange(s, false, SPW_MEGATRON_BACKWARD_COMBINE, s->exchange_s[2 * s->layer + 1]);
    if (shares(s)) scatter(s, false, SPW_MEGATRON_BACKWARD_SCATTER);
    spend_prices(s, false, 3, products, (const int[]){ORDER, BACK_EXPERTS, BACK_SORT});
    if (shares(s)) gather(s, false, SPW_MEGATRON_BACKWARD_GATHER, 2, 2.0);
    meet(s, false, SPW_MEGATRON_BACKWARD_SORT);
    exchange(s, false, SPW_MEGATRON_BACKWARD_DISPATCH, s->exchange_s[2 * s->layer]);
    spend_prices(s, false, 1, end, (const int[]){BACK_PERMUTE});
}

static double last_of(const step *s) {
    double last = 0.0;
    for (size_t r = 0; r < s->ranks; r++) last = larger(last, s->now[r]);
    return last;
}

static double unlike_of(const step *s) {
    double most = 0.0;
    for (size_t r = 0; r < s->ranks; r++) most = larger(most, s->load[r].unlike);
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

/* The prices of the layer's loads, found at their first turn. */
static const price *priced(const step *s, price *of) {
    if (of[0].there) return of;
    for (size_t r = 0; r < s->ranks; r++) of[r] = price_of(s, &s->load[r]);
    return of;
}

spw_status spw_megatron_time_predict(const spw_megatron_coefficients *c, const spw_megatron_shape *shape,
                                     spw_megatron_dispatcher dispatcher, size_t ranks,
                                     const spw_megatron_loads *loads, double *phase_s,
                                     spw_megatron_time *out) {
    const bool one = phase_s == NULL && ranks > FEW_RANKS && are_alike(loads, shape->layers, ranks);
    step s = {.c = c,
              .shape = shape,
              .dispatcher = dispatcher,
              .ranks = one ? 1 : ranks,
              .alike = one ? (double)ranks : 1.0,
              .out = out};
    const size_t rows = loads->turn > 0 && loads->turn < shape->layers ? loads->turn : shape->layers;
    price *prices = NULL; /* [rows][ranks] */
    spw_status status = SPW_OK;
    memset(out, 0, sizeof *out);
    if (ranks == 0 || shape->layers == 0 || shape->tokens == 0 || shape->hidden == 0 || shape->ffn == 0 ||
        shape->experts == 0)
        return spw_fail(SPW_EARG, "the time of a stack of %zu layers, %zu tokens, %zu ranks: all at least 1",
                        shape->layers, shape->tokens, ranks);
    SPW_TRY(SPW_ALLOC(ranks, &s.now));
    SPW_TRY(SPW_ALLOC(ranks, &s.counted));
    SPW_TRY(SPW_ALLOC(2 * shape->layers, &s.exchange_s));
    SPW_TRY(SPW_RESIZE(rows * ranks, &prices));
    for (size_t i = 0; i < rows; i++) prices[i * ranks].there = false;
    s.T = (double)shape->tokens;
    s.E = (double)shape->experts;
    s.e = (double)shape->experts_per_rank;
    s.H = (double)shape->hidden;
    s.F = (double)shape->ffn;
    s.model_H = shape->model_hidden > 0 ? (double)shape->model_hidden : s.H;
    if (phase_s != NULL) memset(phase_s, 0, shape->layers * ranks * SPW_MEGATRON_PHASES * sizeof *phase_s);
    for (size_t i = 0; i < 2 * shape->layers; i++) {
        const bool back = i >= shape->layers;
        if (i == shape->layers) out->forward_s = last_of(&s);
        s.layer = back ? 2 * shape->layers - 1 - i : i;
        s.load = loads->load + (loads->turn > 0 ? (loads->first + s.layer) % loads->turn : s.layer) * ranks;
        s.price = priced(&s, prices + s.layer % rows * ranks);
        s.phase_s = phase_s == NULL ? NULL : phase_s + s.layer * ranks * SPW_MEGATRON_PHASES;
        for (int d = 0; d < 2 && !back; d++) s.exchange_s[2 * s.layer + (size_t)d] = exchange_of(&s, d == 1);
        out->unlike += back ? 0.0 : unlike_of(&s);
        if (!back) forward(&s);
        if (back && shape->recompute == SPW_RECOMPUTE_MOE) forward_again(&s);
        if (back) backward(&s);
    }
    out->step_s = last_of(&s);
    out->backward_s = out->step_s - out->forward_s;

cleanup:
    spw_free(s.now);
    spw_free(s.counted);
    spw_free(s.exchange_s);
    spw_free(prices);
    return status;
}
