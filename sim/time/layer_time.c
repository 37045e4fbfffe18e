#include "sim/time/layer_time.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

#define TEXT(name, text) [SPW_OWN_##name] = (text),
const char *const spw_own_phase_names[SPW_OWN_PHASES] = {SPW_OWN_PHASE_LIST(TEXT)};
const char *const spw_own_scheme_names[SPW_OWN_SCHEMES] = {[SPW_OWN_GMM_DEEPEP] = "gmm-deepep",
                                                           [SPW_OWN_DEEPEP] = "deepep",
                                                           [SPW_OWN_GMM] = "gmm",
                                                           [SPW_OWN_DENSE] = "dense",
                                                           [SPW_OWN_RING] = "ring"};

/* A token's number travels with a row, and is looked at when the row is fetched. */
static const double SOURCE_BYTES = 4.0;

/* What one rank has to do with the routing. */
typedef struct own_rank {
    double arrived;      /* U: distinct tokens that want one of its experts */
    double rows, room;   /* M, W */
    double fan_tokens;   /* A */
    double fan_rows;     /* N of its fans; dense: kept choices of its tokens */
    double with_rows;    /* tokens of its fans that have a row */
    double out, in;      /* rows of one send, off-rank */
    uint64_t *of_expert; /* [local] */
} own_rank;

typedef struct walk {
    const spw_own_layer *layer;
    const spw_kernel_figures *k;
    const spw_gemm_curves *curves;
    double rate; /* bytes/s out of a GPU while all send to all */
    size_t local;
    own_rank *rank;   /* [ranks] */
    uint64_t *routed; /* [ranks][experts] */
    double clock[SPW_OWN_RANKS], phase_s[SPW_OWN_PHASES][SPW_OWN_RANKS];
    spw_own_times *out;
    int pass;
} walk;

/* --- The routing --- */

static void count_rank(walk *w, size_t source, const int32_t *expert) {
    const spw_own_layer *l = w->layer;
    uint64_t *routed = w->routed + source * l->experts;
    for (size_t t = 0; t < l->tokens; t++) {
        uint64_t seen = 0; /* ranks of this token, one bit each */
        for (size_t k = 0; k < l->top_k; k++) {
            const int32_t x = expert[t * l->top_k + k];
            if (x < 0) continue;
            const size_t to = (size_t)x / w->local;
            const bool first = (seen >> to & 1u) == 0;
            const bool travels = l->scheme == SPW_OWN_GMM || (l->scheme != SPW_OWN_DENSE && first);
            seen |= (uint64_t)1 << to;
            routed[x]++;
            w->rank[to].arrived += first;
            w->rank[source].out += travels && to != source;
            w->rank[to].in += travels && to != source;
        }
        w->rank[source].with_rows += seen != 0;
    }
}

static double fewer(size_t a, size_t b) { return (double)(a < b ? a : b); }

/* Slots instead of choices. */
static void count_slots(walk *w, size_t r) {
    const spw_own_layer *l = w->layer;
    own_rank *k = &w->rank[r];
    const double off = (double)((l->ranks - 1) * w->local * l->capacity);
    k->fan_rows = 0.0;
    for (size_t x = 0; x < l->experts; x++)
        k->fan_rows += fewer((size_t)w->routed[r * l->experts + x], l->capacity);
    k->rows = k->room = (double)(l->experts * l->capacity);
    k->out = k->in = off;
    for (size_t x = 0; x < w->local; x++) k->of_expert[x] = l->ranks * l->capacity;
}

static void count(walk *w, const int32_t *const *expert) {
    const spw_own_layer *l = w->layer;
    const double all = (double)(l->ranks * l->tokens), choices = (double)(l->tokens * l->top_k);
    for (size_t r = 0; r < l->ranks; r++) count_rank(w, r, expert[r]);
    for (size_t r = 0; r < l->ranks; r++) {
        own_rank *k = &w->rank[r];
        const bool sends_choices = l->scheme == SPW_OWN_GMM || l->scheme == SPW_OWN_DENSE;
        for (size_t s = 0; s < l->ranks; s++) {
            for (size_t x = 0; x < w->local; x++)
                k->of_expert[x] += w->routed[s * l->experts + r * w->local + x];
        }
        for (size_t x = 0; x < w->local; x++) k->rows += (double)k->of_expert[x];
        k->room = l->scheme == SPW_OWN_DEEPEP ? k->rows
                  : l->scheme == SPW_OWN_RING ? all * (double)l->top_k
                                              : all * fewer(w->local, l->top_k);
        k->fan_tokens = sends_choices ? (double)l->tokens : l->scheme == SPW_OWN_DEEPEP ? k->arrived : all;
        k->fan_rows = sends_choices ? choices : k->rows;
        if (!sends_choices) k->with_rows = k->arrived;
        if (l->scheme == SPW_OWN_RING) k->out = k->in = all - (double)l->tokens;
        if (l->scheme == SPW_OWN_DENSE) count_slots(w, r);
    }
}

/* --- Clocks --- */

static void spend(walk *w, spw_own_phase phase, size_t rank, double seconds) {
    w->clock[rank] += seconds;
    w->phase_s[phase][rank] += seconds;
}

static void all_spend(walk *w, spw_own_phase phase, double seconds) {
    for (size_t r = 0; r < w->layer->ranks; r++) spend(w, phase, r, seconds);
}

static void meet(walk *w, spw_own_phase phase, double seconds) {
    double last = 0.0;
    for (size_t r = 0; r < w->layer->ranks; r++) last = fmax(last, w->clock[r]);
    for (size_t r = 0; r < w->layer->ranks; r++) spend(w, phase, r, last + seconds - w->clock[r]);
}

/* row_bytes: what the links see as payload; beside: words that travel with a row and are counted. */
static void exchange(walk *w, spw_own_phase phase, bool back, bool notices, double row_bytes, double beside) {
    const spw_kernel_figures *k = w->k;
    double most = 0.0, sum = 0.0;
    for (size_t r = 0; r < w->layer->ranks; r++) {
        most = fmax(most, fmax(w->rank[r].out, w->rank[r].in));
        sum += w->rank[r].out;
    }
    const double start = back ? k->return_start_us : k->send_start_us - (notices ? 0.0 : k->notices_us);
    const double row = back ? k->return_row_ns : k->send_row_ns,
                 share = back ? k->return_share : k->send_share;
    meet(w, phase, 1e-6 * start + most * (1e-9 * row + row_bytes / (share * w->rate)));
    w->out->bytes[w->pass][phase] = sum / (double)w->layer->ranks * (row_bytes + beside);
}

/* --- Local kernels --- */

static double gb_s(double bytes, double gb_per_s) { return bytes / (1e9 * gb_per_s); }

static void fan(walk *w, spw_own_phase phase, bool out) {
    const bool slots = out && w->layer->scheme == SPW_OWN_DENSE;
    const double rate = slots ? w->k->slots_gb_per_s : out ? w->k->fan_out_gb_per_s : w->k->fan_in_gb_per_s;
    for (size_t r = 0; r < w->layer->ranks; r++) {
        const own_rank *k = &w->rank[r];
        const double rows = slots ? k->room : k->fan_rows;
        spend(w, phase, r, gb_s(2.0 * (double)w->layer->hidden * (k->fan_tokens + rows), rate));
    }
}

static void fan_in_gradient(walk *w) {
    const double row = 2.0 * (double)w->layer->hidden;
    for (size_t r = 0; r < w->layer->ranks; r++) {
        const own_rank *k = &w->rank[r];
        const double cleared = w->layer->scheme == SPW_OWN_DENSE ? k->room - k->fan_rows : 0.0;
        spend(w, SPW_OWN_FAN_IN_GRADIENT, r,
              gb_s(row * (k->with_rows + 2.0 * k->fan_rows), w->k->fan_in_gradient_gb_per_s) +
                  gb_s(row * cleared, w->k->slots_gb_per_s));
    }
}

static void gemm(walk *w, spw_own_phase phase, size_t in, size_t out, spw_gemm_pass pass) {
    for (size_t r = 0; r < w->layer->ranks; r++) {
        const own_rank *k = &w->rank[r];
        const double width = pass == SPW_GEMM_FORWARD          ? (double)out
                             : pass == SPW_GEMM_INPUT_GRADIENT ? (double)in
                                                               : 0.0;
        spend(w, phase, r,
              spw_gemm_seconds(w->curves, k->of_expert, w->local, in, out, pass) +
                  gb_s(2.0 * (k->room - k->rows) * width, w->k->copy_gb_per_s));
    }
}

static void swiglu(walk *w, spw_own_phase phase, double bytes, double gb_per_s) {
    for (size_t r = 0; r < w->layer->ranks; r++)
        spend(w, phase, r, gb_s(bytes * w->rank[r].room * (double)w->layer->ffn, gb_per_s));
}

/* --- Passes --- */

static void experts_forward(walk *w) {
    const size_t h = w->layer->hidden, f = w->layer->ffn;
    gemm(w, SPW_OWN_GEMM1, h, 2 * f, SPW_GEMM_FORWARD);
    swiglu(w, SPW_OWN_SWIGLU, 6.0, w->k->swiglu_gb_per_s);
    gemm(w, SPW_OWN_GEMM2, f, h, SPW_GEMM_FORWARD);
}

static void experts_backward(walk *w) {
    const size_t h = w->layer->hidden, f = w->layer->ffn;
    gemm(w, SPW_OWN_GEMM2_INPUT_GRADIENT, f, h, SPW_GEMM_INPUT_GRADIENT);
    gemm(w, SPW_OWN_GEMM2_WEIGHT_GRADIENT, f, h, SPW_GEMM_WEIGHT_GRADIENT);
    swiglu(w, SPW_OWN_SWIGLU_GRADIENT, 10.0, w->k->swiglu_gradient_gb_per_s);
    gemm(w, SPW_OWN_GEMM1_INPUT_GRADIENT, h, 2 * f, SPW_GEMM_INPUT_GRADIENT);
    gemm(w, SPW_OWN_GEMM1_WEIGHT_GRADIENT, h, 2 * f, SPW_GEMM_WEIGHT_GRADIENT);
}

static void plan(walk *w) {
    const spw_own_layer *l = w->layer;
    const double words = 8.0 * (double)(l->tokens * l->experts) * (double)(l->ranks + 1);
    const double seconds =
        l->scheme == SPW_OWN_DENSE
            ? 1e-9 * w->k->slot_ns * (double)(l->tokens * l->top_k)
            : 1e-6 * (w->k->plan_us + (l->scheme == SPW_OWN_GMM ? w->k->notices_us : 0.0)) +
                  (l->scheme == SPW_OWN_RING ? gb_s(words, w->k->copy_gb_per_s) : 0.0);
    all_spend(w, SPW_OWN_PLAN, seconds);
}

static void forward(walk *w) {
    const spw_own_layer *l = w->layer;
    const double row = 2.0 * (double)l->hidden, choice_words = 8.0 * (double)l->top_k + SOURCE_BYTES;
    const bool ring = l->scheme == SPW_OWN_RING,
               by_choice = l->scheme == SPW_OWN_GMM || l->scheme == SPW_OWN_DENSE;
    if (by_choice) {
        plan(w);
        fan(w, SPW_OWN_FAN_OUT, true);
        exchange(w, SPW_OWN_DISPATCH, false, false, row, 0.0);
        experts_forward(w);
        exchange(w, SPW_OWN_COMBINE, true, false, row, 0.0);
        fan(w, SPW_OWN_FAN_IN, false);
        return;
    }
    exchange(w, SPW_OWN_DISPATCH, false, !ring, ring ? row + 8.0 * (double)l->experts : row,
             ring ? 0.0 : choice_words);
    plan(w);
    fan(w, SPW_OWN_FAN_OUT, true);
    experts_forward(w);
    fan(w, SPW_OWN_FAN_IN, false);
    exchange(w, SPW_OWN_COMBINE, true, false, row, ring ? 0.0 : SOURCE_BYTES);
}

static void backward(walk *w) {
    const spw_own_layer *l = w->layer;
    const double row = 2.0 * (double)l->hidden;
    const bool ring = l->scheme == SPW_OWN_RING,
               by_choice = l->scheme == SPW_OWN_GMM || l->scheme == SPW_OWN_DENSE;
    if (by_choice) {
        fan_in_gradient(w);
        exchange(w, SPW_OWN_COMBINE_GRADIENT, false, false, row, 0.0);
        experts_backward(w);
        exchange(w, SPW_OWN_DISPATCH_GRADIENT, true, false, row, 0.0);
        fan(w, SPW_OWN_FAN_OUT_GRADIENT, false);
        return;
    }
    exchange(w, SPW_OWN_COMBINE_GRADIENT, false, false, row, ring ? 0.0 : SOURCE_BYTES);
    fan_in_gradient(w);
    if (ring) {
        const double side = 4.0 * (double)l->experts, written = side * (double)(l->ranks * l->tokens);
        all_spend(w, SPW_OWN_FAN_IN_GRADIENT, gb_s(written, w->k->copy_gb_per_s));
        exchange(w, SPW_OWN_ROUTER_GRADIENT, true, false, side, 0.0);
    }
    experts_backward(w);
    fan(w, SPW_OWN_FAN_OUT_GRADIENT, false);
    exchange(w, SPW_OWN_DISPATCH_GRADIENT, true, false, row,
             ring ? 0.0 : SOURCE_BYTES + 4.0 * (double)l->top_k);
}

static void run_pass(walk *w, int pass) {
    double *seconds = w->out->seconds[pass], *bytes = w->out->bytes[pass];
    memset(w->clock, 0, sizeof w->clock);
    memset(w->phase_s, 0, sizeof w->phase_s);
    w->pass = pass;
    pass == 0 ? forward(w) : backward(w);
    for (size_t r = 0; r < w->layer->ranks; r++) {
        seconds[SPW_OWN_TOTAL] = fmax(seconds[SPW_OWN_TOTAL], w->clock[r]);
        for (int p = 0; p < SPW_OWN_TOTAL; p++) seconds[p] = fmax(seconds[p], w->phase_s[p][r]);
    }
    for (int p = 0; p < SPW_OWN_TOTAL; p++) bytes[SPW_OWN_TOTAL] += bytes[p];
}

static spw_status check(const spw_cluster *cluster, const spw_own_layer *l) {
    if (l->ranks == 0 || l->tokens == 0 || l->hidden == 0 || l->ffn == 0 || l->top_k == 0 ||
        l->experts < l->ranks || l->experts % l->ranks != 0 || l->ranks > SPW_OWN_RANKS ||
        (l->scheme == SPW_OWN_DENSE && l->capacity == 0))
        return spw_fail(
            SPW_EARG,
            "a layer of %zu experts on %zu ranks, %zu tokens, top-%zu, %zu x %zu: all at least 1, at "
            "most %d ranks, and they divide the experts",
            l->experts, l->ranks, l->tokens, l->top_k, l->hidden, l->ffn, (int)SPW_OWN_RANKS);
    if (!(cluster->kernels.copy_gb_per_s > 0.0) || cluster->link.points == 0)
        return spw_fail(SPW_ECONFIG,
                        "cluster %s: neither a layer's kernels nor links were measured there; its file "
                        "needs the keys kernels and link",
                        cluster->name);
    return SPW_OK;
}

spw_status spw_own_layer_times(const spw_cluster *cluster, const spw_gemm_curves *curves,
                               const spw_own_layer *layer, const int32_t *const *expert, spw_own_times *out) {
    walk *w = NULL;
    uint64_t *of_expert = NULL;
    spw_status status = SPW_OK;
    *out = (spw_own_times){.rows_max = 0.0};
    SPW_TRY(check(cluster, layer));
    SPW_TRY(SPW_ALLOC(1, &w));
    w->layer = layer, w->k = &cluster->kernels, w->curves = curves, w->out = out;
    w->rate = 1e6 * (double)cluster->link.exchange_mb_per_s[cluster->link.points - 1];
    w->local = layer->experts / layer->ranks;
    SPW_TRY(SPW_ALLOC(layer->ranks, &w->rank));
    SPW_TRY(SPW_ALLOC(layer->ranks * layer->experts, &w->routed));
    SPW_TRY(SPW_ALLOC(layer->experts, &of_expert));
    for (size_t r = 0; r < layer->ranks; r++) w->rank[r].of_expert = of_expert + r * w->local;
    count(w, expert);
    for (size_t r = 0; r < layer->ranks; r++) {
        out->rows_max = fmax(out->rows_max, w->rank[r].rows);
        out->rows_mean += w->rank[r].rows / (double)layer->ranks;
    }
    for (int pass = 0; pass < 2; pass++) run_pass(w, pass);

cleanup:
    if (w != NULL) {
        spw_free(w->rank);
        spw_free(w->routed);
    }
    spw_free(of_expert);
    spw_free(w);
    return status;
}
