#include "sim/time/megatron/megatron_clocks.h"

#include <math.h>

enum { LANES = SPW_MEGATRON_LANES };
typedef double lane_numbers[LANES];

#define INLINE \
    static inline __attribute__((always_inline)) /* once for each list of phases, and each number of lanes */
#define EACH_LANE _Pragma("omp simd") for (size_t l = 0; l < lanes; l++)

/* --- Time that is spent --- */

/* The sums of phases in which a layer's ranks spend time by turns, while they do so: apart from the step's own, so that each addition
 * need not wait for memory. All of a second forward pass is recompute, and stands once more under its own name. */
enum { TURNS = 3 };
typedef struct purse {
    bool again;
    size_t phases;
    spw_megatron_phase phase[TURNS];
    /* again: of the first two the first place has what all have */
    lane_numbers spent[TURNS], waited[TURNS], own[TURNS];
    lane_numbers *wait_s; /* where waiting is told: host_wait_s or rank_wait_s */
} purse;

INLINE size_t counts_as(const purse *p, size_t i) {
    return p->again ? (size_t)SPW_MEGATRON_RECOMPUTE : (size_t)p->phase[i];
}

INLINE purse purse_open(const spw_megatron_clocks *s, size_t lanes, bool again, lane_numbers *wait_s,
                        size_t phases, const spw_megatron_phase *phase) {
    purse p = {.again = again, .phases = phases, .wait_s = wait_s};
    for (size_t i = 0; i < phases; i++) {
        p.phase[i] = phase[i];
        EACH_LANE {
            p.spent[i][l] = s->spent_s[counts_as(&p, i)][l];
            p.waited[i][l] = wait_s[counts_as(&p, i)][l];
            p.own[i][l] = s->again_s[phase[i]][l];
        }
    }
    return p;
}

INLINE void purse_close(spw_megatron_clocks *s, size_t lanes, const purse *p) {
    for (size_t i = 0; i < p->phases; i++) EACH_LANE {
            s->spent_s[counts_as(p, i)][l] = p->spent[p->again ? 0 : i][l];
            p->wait_s[counts_as(p, i)][l] = p->waited[p->again ? 0 : i][l];
            if (p->again) s->again_s[p->phase[i]][l] = p->own[i][l];
        }
}

/* A rank spends time in phase i of the purse. share: its part of the mean over the ranks. */
INLINE void spend_shares(const spw_megatron_clocks *s, size_t lanes, purse *p, size_t i, size_t rank,
                         const double *seconds, double *share) {
    double *now = s->now + rank * lanes;
    const double ranks = (double)s->ranks;
    EACH_LANE {
        share[l] = seconds[l] / ranks;
        now[l] += seconds[l];
        p->spent[p->again ? 0 : i][l] += share[l];
        if (p->again) p->own[i][l] += share[l];
    }
    if (lanes == 1 && s->phase_s != NULL)
        s->phase_s[rank * SPW_MEGATRON_PHASES + counts_as(p, i)] += seconds[0];
}

INLINE void spend(const spw_megatron_clocks *s, size_t lanes, purse *p, size_t i, size_t rank,
                  const double *seconds) {
    lane_numbers share;
    spend_shares(s, lanes, p, i, rank, seconds, share);
}

INLINE void spend_alike(const spw_megatron_clocks *s, size_t lanes, purse *p, size_t i, size_t rank,
                        double seconds) {
    lane_numbers each;
    EACH_LANE each[l] = seconds;
    spend(s, lanes, p, i, rank, each);
}

/* Nothing where that time is over, which is as much as a nought in each sum. */
INLINE void spend_until(const spw_megatron_clocks *s, size_t lanes, purse *p, size_t i, size_t rank,
                        const double *time, double *share) {
    lane_numbers seconds;
    EACH_LANE seconds[l] = spw_clocks_larger(time[l] - s->now[rank * lanes + l], 0.0);
    spend_shares(s, lanes, p, i, rank, seconds, share);
}

INLINE void wait_until(const spw_megatron_clocks *s, size_t lanes, purse *p, size_t i, size_t rank,
                       const double *time) {
    lane_numbers share;
    spend_until(s, lanes, p, i, rank, time, share);
    EACH_LANE {
        p->waited[p->again ? 0 : i][l] += share[l];
        if (p->again) p->own[i][l] -= share[l];
    }
}

/* Of every rank in turn the prices of the phases. */
INLINE void spend_prices(spw_megatron_clocks *s, size_t lanes, bool again, size_t phases,
                         const spw_megatron_phase *phase, const spw_megatron_price *which) {
    purse p = purse_open(s, lanes, again, s->host_wait_s, phases, phase);
    for (size_t r = 0; r < s->ranks; r++)
        for (size_t i = 0; i < phases; i++)
            spend(s, lanes, &p, i, r, s->price + (r * SPW_PRICES + which[i]) * lanes);
    purse_close(s, lanes, &p);
}

/* When all ranks have arrived. */
INLINE void find_met(spw_megatron_clocks *s, size_t lanes) {
    lane_numbers last = {0.0}, scale = {0.0}, sum = {0.0};
    for (size_t r = 0; r < s->ranks; r++)
        EACH_LANE last[l] = spw_clocks_larger(last[l], s->now[r * lanes + l] - s->met[l]);
    EACH_LANE scale[l] = s->c->jitter_share.value * last[l];
    for (size_t r = 0; r < s->ranks; r++) {
        lane_numbers behind;
        EACH_LANE behind[l] = (s->now[r * lanes + l] - s->met[l] - last[l]) / scale[l];
        for (size_t l = 0; l < lanes; l++)
            if (scale[l] > 0.0) sum[l] += s->alike * exp(behind[l]);
    }
    for (size_t l = 0; l < lanes; l++) s->met[l] += last[l] + (scale[l] > 0.0 ? scale[l] * log(sum[l]) : 0.0);
}

/* All ranks arrive. */
INLINE void meet(spw_megatron_clocks *s, size_t lanes, bool again, spw_megatron_phase phase) {
    find_met(s, lanes);
    purse p = purse_open(s, lanes, again, s->rank_wait_s, 1, &phase);
    for (size_t r = 0; r < s->ranks; r++) wait_until(s, lanes, &p, 0, r, s->met);
    purse_close(s, lanes, &p);
}

INLINE void exchange(spw_megatron_clocks *s, size_t lanes, bool again, spw_megatron_phase phase,
                     spw_megatron_way way) {
    lane_numbers share;
    meet(s, lanes, again, phase);
    EACH_LANE s->met[l] += s->exchange_s[way * lanes + l];
    purse p = purse_open(s, lanes, again, s->rank_wait_s, 1, &phase);
    for (size_t r = 0; r < s->ranks; r++) spend_until(s, lanes, &p, 0, r, s->met, share);
    purse_close(s, lanes, &p);
}

/* --- Among ranks that share experts --- */

static const double CAST_BYTES = 6.0; /* an element, between bf16 and fp32 */

INLINE bool shares(const spw_megatron_clocks *s) { return s->shape->expert_tensor > 1; }

INLINE void gather(spw_megatron_clocks *s, size_t lanes, bool again, spw_megatron_phase phase, int calls,
                   double element_bytes) {
    purse p = purse_open(s, lanes, again, s->host_wait_s, 1, &phase);
    for (size_t r = 0; r < s->ranks; r++) {
        lane_numbers seconds;
        for (size_t l = 0; l < lanes; l++)
            seconds[l] = calls * s->c->exchange_latency_s.value +
                         element_bytes * s->H * s->load[l][r].shared / s->c->exchange_bytes_per_s.value;
        spend(s, lanes, &p, 0, r, seconds);
    }
    purse_close(s, lanes, &p);
}

/* Sums of fp32, with casts of both sides. */
INLINE void scatter(spw_megatron_clocks *s, size_t lanes, bool again, spw_megatron_phase phase) {
    gather(s, lanes, again, phase, 1, 4.0);
    purse p = purse_open(s, lanes, again, s->host_wait_s, 1, &phase);
    for (size_t r = 0; r < s->ranks; r++) {
        lane_numbers seconds;
        for (size_t l = 0; l < lanes; l++)
            seconds[l] =
                spw_clocks_copy_s(s, CAST_BYTES * (s->load[l][r].received + s->load[l][r].arrived) * s->H) +
                spw_clocks_kernels_s(s, 2);
        spend(s, lanes, &p, 0, r, seconds);
    }
    purse_close(s, lanes, &p);
}

/* --- A layer --- */

static double route_s(const spw_megatron_clocks *s) {
    const double columns = s->shape->capacity > 0 ? s->c->column_bytes.value * s->T * s->E : 0.0;
    return spw_clocks_copy_s(s, s->c->norm_bytes.value * s->T * s->model_H + columns) +
           2.0 * s->T * s->model_H * s->E / s->c->router_flops.value +
           spw_clocks_kernels_s(s, s->c->route_kernels.value);
}

enum { ROUTING, PERMUTING };

/* Padded to capacity, or where counts stay on the GPU, the host needs none: it is ahead from the first layer on. */
INLINE void permute(const spw_megatron_clocks *s, size_t lanes, purse *p, size_t rank, double sort_s) {
    const bool first = s->layer == 0 && !p->again;
    spend_alike(s, lanes, p, PERMUTING, rank, sort_s);
    if (!s->shape->padded && !s->shape->unread) {
        double *counted = s->counted + rank * lanes;
        lane_numbers host_s;
        EACH_LANE host_s[l] = first ? s->c->host_first_s.value : counted[l] + s->c->host_layer_s.value;
        wait_until(s, lanes, p, PERMUTING, rank, host_s);
        EACH_LANE counted[l] = s->now[rank * lanes + l];
        if (s->shape->capacity > 0) spend_alike(s, lanes, p, PERMUTING, rank, s->c->read_count_s.value);
    }
    spend(s, lanes, p, PERMUTING, rank, s->price + (rank * SPW_PRICES + SPW_PRICE_SENT) * lanes);
}

INLINE void route_and_permute(spw_megatron_clocks *s, size_t lanes, bool again) {
    const double routing_s = route_s(s), sort_s = spw_clocks_copy_s(s, s->c->sort_bytes.value * s->T * s->E) +
                                                  spw_clocks_kernels_s(s, s->c->permute_kernels.value);
    const bool waits = s->layer == 0 && !again && !s->shape->graphed;
    lane_numbers host_s;
    EACH_LANE host_s[l] = s->c->routed_share.value * s->c->host_first_s.value;
    purse p = purse_open(s, lanes, again, s->host_wait_s, 2,
                         (const spw_megatron_phase[]){SPW_MEGATRON_ROUTE, SPW_MEGATRON_PERMUTE});
    for (size_t r = 0; r < s->ranks; r++) {
        spend_alike(s, lanes, &p, ROUTING, r, routing_s);
        if (waits) wait_until(s, lanes, &p, ROUTING, r, host_s);
        permute(s, lanes, &p, r, sort_s);
    }
    purse_close(s, lanes, &p);
}

INLINE void forward_as(spw_megatron_clocks *s, size_t lanes, bool again) {
    static const spw_megatron_phase products[] = {SPW_MEGATRON_SORT, SPW_MEGATRON_EXPERTS,
                                                  SPW_MEGATRON_UNSORT},
                                    end[] = {SPW_MEGATRON_UNPERMUTE};
    static const spw_megatron_price of[] = {SPW_PRICE_ORDER, SPW_PRICE_EXPERTS, SPW_PRICE_UNSORT},
                                    of_end[] = {SPW_PRICE_UNPERMUTE};
    route_and_permute(s, lanes, again);
    exchange(s, lanes, again, SPW_MEGATRON_DISPATCH, SPW_WAY_DISPATCH);
    if (shares(s)) gather(s, lanes, again, SPW_MEGATRON_GATHER, 2, 2.0);
    spend_prices(s, lanes, again, 3, products, of);
    if (shares(s)) scatter(s, lanes, again, SPW_MEGATRON_SCATTER);
    exchange(s, lanes, again, SPW_MEGATRON_COMBINE, SPW_WAY_BACK);
    spend_prices(s, lanes, again, 1, end, of_end);
}

INLINE void backward_as(spw_megatron_clocks *s, size_t lanes) {
    static const spw_megatron_phase products[] = {SPW_MEGATRON_BACKWARD_UNSORT, SPW_MEGATRON_BACKWARD_EXPERTS,
                                                  SPW_MEGATRON_BACKWARD_SORT},
                                    begin[] = {SPW_MEGATRON_BACKWARD_UNPERMUTE},
                                    end[] = {SPW_MEGATRON_BACKWARD_PERMUTE};
    static const spw_megatron_price of[] = {SPW_PRICE_ORDER, SPW_PRICE_BACK_EXPERTS, SPW_PRICE_BACK_SORT},
                                    of_begin[] = {SPW_PRICE_SENT}, of_end[] = {SPW_PRICE_BACK_PERMUTE};
    spend_prices(s, lanes, false, 1, begin, of_begin);
    exchange(s, lanes, false, SPW_MEGATRON_BACKWARD_COMBINE, SPW_WAY_BACK);
    if (shares(s)) scatter(s, lanes, false, SPW_MEGATRON_BACKWARD_SCATTER);
    spend_prices(s, lanes, false, 3, products, of);
    if (shares(s)) gather(s, lanes, false, SPW_MEGATRON_BACKWARD_GATHER, 2, 2.0);
    meet(s, lanes, false, SPW_MEGATRON_BACKWARD_SORT);
    exchange(s, lanes, false, SPW_MEGATRON_BACKWARD_DISPATCH, SPW_WAY_TO);
    spend_prices(s, lanes, false, 1, end, of_end);
}

/* --- For the processor that is there --- */

typedef void pass(spw_megatron_clocks *s);
typedef struct passes {
    pass *forward, *again, *backward;
} passes;

#define DEFINE_PASS(target, name, work) \
    target static void name(spw_megatron_clocks *s) { (work); }
#define DEFINE_PASSES(target, name, lanes) \
    DEFINE_PASS(target, forward_##name, forward_as(s, lanes, false)) \
    DEFINE_PASS(target, again_##name, forward_as(s, lanes, true)) \
    DEFINE_PASS(target, backward_##name, backward_as(s, lanes)) \
    static const passes passes_##name = {forward_##name, again_##name, backward_##name};
#define BASELINE /* of the processor that this is compiled for */

DEFINE_PASSES(BASELINE, one, 1)
DEFINE_PASSES(BASELINE, lanes, LANES)
#ifdef __x86_64__
DEFINE_PASSES(__attribute__((target("avx2"))), v3, LANES)

static const passes *passes_here(void) { return __builtin_cpu_supports("avx2") ? &passes_v3 : &passes_lanes; }
#else
static const passes *passes_here(void) { return &passes_lanes; }
#endif

static const passes *passes_of(const spw_megatron_clocks *s) {
    return s->lanes == 1 ? &passes_one : passes_here();
}

void spw_megatron_clocks_forward(spw_megatron_clocks *s) { passes_of(s)->forward(s); }
void spw_megatron_clocks_again(spw_megatron_clocks *s) { passes_of(s)->again(s); }
void spw_megatron_clocks_backward(spw_megatron_clocks *s) { passes_of(s)->backward(s); }
