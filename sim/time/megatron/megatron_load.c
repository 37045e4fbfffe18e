#include "sim/time/megatron/megatron_load.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/point.h"
#include "sim/schemes/traffic.h"
#include "sim/time/megatron/megatron_experts.h"
#include "sim/time/routing_load.h"

#include <math.h>
#include <string.h>

const char *spw_megatron_unmeasured(spw_megatron_dispatcher dispatcher) {
    static const char *const texts[] = {[SPW_MEGATRON_ALL_TO_ALL] = NULL,
                                        [SPW_MEGATRON_TOKENS] = "DeepEP measured alone, not in a layer",
                                        [SPW_MEGATRON_ALL_GATHER] = "all-gather dispatcher not measured"};
    return texts[dispatcher];
}

enum { OWNERS_AT_ONCE = 16 }; /* along the lines of tables that may be large */

/* From an owner's chunks to the next one's, and sums of its experts behind them: a line of the cache more, so that those of all do not
 * ask for the same place in it. */
static size_t apart(const spw_layer_shape *s) { return (s->ranks + 1) * s->experts_per_rank + 8; }

size_t spw_megatron_load_scratch(const spw_layer_shape *s) { return OWNERS_AT_ONCE * apart(s); }

/* The rows of the experts of `owners` ranks from `first` on, by line of the counts and local expert: chunk [owners][apart(s)]. */
static void list_chunks(const spw_routed_group *routed, const spw_alike *alike, size_t first, size_t owners,
                        double *restrict chunk) {
    const spw_layer_shape *s = routed->shape;
    const size_t mine = s->experts_per_rank, step = apart(s);
    for (size_t line = 0; line < alike->lines; line++) {
        const uint32_t *from = spw_routed_of(routed, alike->first[line]) + first * mine;
        double *to = chunk + line * mine;
        for (size_t o = 0; o < owners && mine == 1; o++) to[o * step] = (double)from[o];
        for (size_t o = 0; o < owners && mine > 1; o++) {
            for (size_t e = 0; e < mine; e++) to[o * step + e] = (double)from[o * mine + e];
        }
    }
}

static double sum_of(const double *chunk, const spw_alike *alike, size_t mine) {
    double sum = 0.0;
    for (size_t line = 0; line < alike->lines; line++)
        for (size_t e = 0; e < mine; e++) sum += (double)alike->times[line] * chunk[line * mine + e];
    return sum;
}

/* What ranks that share experts gather of each other. */
static void load_gathers(const spw_megatron_coefficients *coefficients, const spw_routed_group *routed,
                         const spw_flow *flow, const spw_rank_rows *rows, spw_megatron_load *load) {
    const spw_layer_shape *s = routed->shape;
    const size_t t = spw_layer_sharers(s);
    spw_ports port[SPW_TRAFFIC_MAX_RANKS];
    spw_traffic_gather_ports(routed, flow, port);
    for (size_t first = 0; first < s->ranks; first += t) {
        double most = 0.0;
        for (size_t d = first; d < first + t; d++) {
            const double in = (double)port[d].link_in, out = (double)port[d].link_out;
            most = fmax(most, fmax(in, out) + coefficients->duplex_share.value * fmin(in, out));
            load[d].arrived = (double)rows[d].received;
        }
        for (size_t d = first; d < first + t; d++) load[d].shared = most;
    }
}

static bool permutes(const spw_routed_group *routed) {
    return routed->scheme->type->megatron.dispatcher == SPW_MEGATRON_ALL_TO_ALL;
}

/* A rank with these rows, but for what its experts do with them. */
static spw_megatron_load rows_of_rank(const spw_routed_group *routed, const spw_rank_rows *of,
                                      const spw_ports *port) {
    return (spw_megatron_load){.received = (double)of->held,
                               .link_in = (double)port->link_in,
                               .link_out = (double)port->link_out,
                               .nic_in = (double)port->nic_in,
                               .nic_out = (double)port->nic_out,
                               .sent = permutes(routed) ? (double)of->sent : 0.0};
}

/* chunk: the rows of the rank's experts, which become equal slots where those are computed full or empty. */
static void load_chunks(const spw_megatron_coefficients *coefficients, const spw_routed_group *routed,
                        const spw_alike *alike, double *chunk, spw_megatron_load *load) {
    const spw_layer_shape *s = routed->shape;
    const size_t mine = s->experts_per_rank;
    const spw_megatron_chunks chunks = {alike->lines, mine, chunk, alike->times, chunk + s->ranks * mine};
    for (size_t i = 0; i < alike->lines * mine && spw_scheme_fills_slots(routed->scheme); i++)
        chunk[i] = load->received / (double)(s->ranks * mine);
    spw_megatron_experts_load(coefficients, s->hidden, s->ffn, &chunks, load);
}

/* Chunk by chunk: what is copied so waits for the longest, and slots are not what was chosen. */
static void load_by_chunks(const spw_megatron_coefficients *coefficients, const spw_routed_group *routed,
                           const spw_alike *alike, double *scratch, spw_megatron_load *load) {
    const spw_layer_shape *s = routed->shape;
    const size_t t = spw_layer_sharers(s), all = s->ranks / t;
    const bool slots = spw_scheme_fills_slots(routed->scheme);
    for (size_t first = 0; first < all; first += OWNERS_AT_ONCE) {
        const size_t owners = all - first < OWNERS_AT_ONCE ? all - first : OWNERS_AT_ONCE;
        list_chunks(routed, alike, first, owners, scratch);
        for (size_t o = 0; o < owners; o++) {
            double *chunk = scratch + o * apart(s);
            const double kept = slots ? sum_of(chunk, alike, s->experts_per_rank) : 0.0;
            for (size_t d = (first + o) * t; d < (first + o + 1) * t; d++) {
                load_chunks(coefficients, routed, alike, chunk, &load[d]);
                if (slots) load[d].zero_rows = fmax(load[d].received - kept, 0.0);
            }
        }
    }
}

/* Of rows that arrive in the order of their experts only the sums count. */
static void load_by_sums(const spw_megatron_coefficients *coefficients, const spw_routed_group *routed,
                         const spw_alike *alike, double *scratch, spw_megatron_load *load) {
    const spw_layer_shape *s = routed->shape;
    const size_t t = spw_layer_sharers(s), mine = s->experts_per_rank, experts = s->ranks / t * mine;
    uint64_t *sum = (uint64_t *)(void *)scratch;
    double *own = scratch + experts;
    spw_chosen_sums(routed, alike, 0, experts, sum);
    for (size_t d = 0; d < s->ranks; d++) {
        const uint64_t *of = sum + d / t * mine;
        for (size_t e = 0; e < mine; e++) own[e] = (double)of[e];
        spw_megatron_experts_sums(coefficients, s->hidden, s->ffn, own, mine, &load[d]);
    }
}

void spw_megatron_load_of(const spw_megatron_coefficients *coefficients, const spw_routed_group *routed,
                          const spw_flow *flow, const spw_group_rows *rows, double *scratch,
                          spw_megatron_load *load) {
    const spw_layer_shape *s = routed->shape;
    spw_alike alike;
    spw_alike_of_counts(routed, &alike);
    for (size_t d = 0; d < s->ranks; d++) load[d] = rows_of_rank(routed, &rows->rank[d], &rows->port[d]);
    if (permutes(routed) || spw_scheme_fills_slots(routed->scheme))
        load_by_chunks(coefficients, routed, &alike, scratch, load);
    else
        load_by_sums(coefficients, routed, &alike, scratch, load);
    if (spw_layer_sharers(s) > 1) load_gathers(coefficients, routed, flow, rows->rank, load);
}

void spw_megatron_load_slow(const spw_network *network, size_t ranks, spw_megatron_load *load) {
    const spw_network_worst worst = spw_network_worst_of(network);
    double nic = 0.0;
    for (size_t r = 0; r < ranks; r++) nic += load[r].nic_in + load[r].nic_out;
    for (size_t r = 0; r < ranks && nic > 0.0; r++) {
        load[r].nic_in = fmax(load[r].nic_in, worst.nic_bytes);
        load[r].latency_s = worst.latency_s;
    }
}

spw_status spw_megatron_load_stated(const spw_megatron_coefficients *c, const spw_point *point,
                                    double imbalance, size_t groups, spw_megatron_load *load) {
    spw_stated_routing r = {.counts = NULL};
    double *scratch = NULL;
    spw_network *network = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_stated_routing_create(point, imbalance, groups, &r));
    SPW_TRY(SPW_ALLOC(spw_megatron_load_scratch(&r.shape), &scratch));
    for (size_t g = 0; g < groups; g++) {
        const spw_routed_group routed = {point->scheme, &r.shape, r.counts, g};
        spw_group_rows rows;
        spw_stated_routing_flow(&r, g);
        spw_group_rows_of(&routed, &r.flow, &rows);
        spw_megatron_load_of(c, &routed, &r.flow, &rows, scratch, load + g * r.shape.ranks);
    }
    SPW_TRY(spw_network_create(&point->job->cluster, &network));
    if (network != NULL) spw_stated_routing_carry(&r, point->job->fsdp, network);
    for (size_t g = 0; g < groups && network != NULL; g++)
        spw_megatron_load_slow(network, r.shape.ranks, load + g * r.shape.ranks);

cleanup:
    spw_free(scratch);
    spw_network_destroy(network);
    spw_stated_routing_destroy(&r);
    return status;
}
