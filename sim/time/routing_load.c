#include "sim/time/routing_load.h"

#include "base/even_shares.h"
#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/point.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_randist.h>
#include <math.h>
#include <string.h>

static double tiles(double rows) { return ceil(rows / SPW_TILE_ROWS) * SPW_TILE_ROWS; }

/* Rows of an expert that is chosen `rows` times in the mean, in whole tiles: the last tile is half empty, and where there is
 * not even one tile's worth, as full as chance (Poisson) makes it. */
static double mean_tiled_rows(double rows, double tile) {
    double sum = 0.0, more = 1.0;
    if (!(rows > 0.0)) return 0.0;
    if (rows >= tile) return rows + 0.5 * tile;
    for (double j = 0.0; more > 1e-9;
         j++) { /* the mean of ceil(x / tile) is the sum over j of P(x > j tile) */
        more = gsl_cdf_poisson_Q((unsigned)(j * tile), rows);
        sum += more;
    }
    return sum * tile;
}

/* Rows of one expert: the choices kept of it, or its slots where they are computed full or empty. */
static double expert_rows(const spw_routed_group *routed, const spw_flow *flow, const spw_alike *alike,
                          size_t expert) {
    const spw_layer_shape *s = routed->shape;
    double rows = 0.0;
    const size_t rank = expert / s->experts_per_rank;
    const uint32_t *limits = routed->scheme->type->routing.keep == NULL ? flow->limit : NULL;
    if (routed->scheme->type->routing.limit_per_sequence)
        return (double)flow->rows[rank] / (double)s->experts_per_rank;
    for (size_t line = 0; line < alike->lines && limits == NULL; line++)
        rows += (double)alike->times[line] * spw_routed_of(routed, alike->first[line])[expert];
    for (size_t source = 0; source < s->ranks && limits != NULL; source++) {
        const uint32_t n = spw_routed_of(routed, source)[expert],
                       limit = limits[source * s->experts + expert];
        rows += limit < n ? limit : n;
    }
    return rows;
}

void spw_routing_load_raise(const spw_routed_group *routed, const spw_flow *flow, const spw_traffic *traffic,
                            spw_routing_layer *load) {
    const spw_layer_shape *s = routed->shape;
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    const size_t exchanges = routed->scheme->type->traffic.exchanges(routed->scheme, s, exchange);
    const double row_bytes = exchanges > 0 ? (double)exchange[0].row_bytes : 1.0;
    spw_alike alike;
    spw_alike_of_counts(routed, &alike);
    for (size_t d = 0; d < s->ranks; d++) {
        double tiled = 0.0;
        for (size_t x = d * s->experts_per_rank; x < (d + 1) * s->experts_per_rank; x++)
            tiled += tiles(expert_rows(routed, flow, &alike, x));
        load->rows = fmax(load->rows, (double)flow->rows[d]);
        load->tiled_rows = fmax(load->tiled_rows, tiled);
    }
    load->link_rows = fmax(load->link_rows, (double)traffic->max_intra_bytes / row_bytes);
    load->nic_rows = fmax(load->nic_rows, (double)traffic->max_inter_bytes / row_bytes);
}

void spw_routing_load_slow(const spw_network *network, spw_routing_layer *load) {
    const spw_network_worst worst = spw_network_worst_of(network);
    load->nic_rows = fmax(load->nic_rows, worst.nic_bytes);
    load->latency_s = fmax(load->latency_s, worst.latency_s);
}

/* --- Without a trace --- */

/* The share of the tokens that want none of `wanted` (a real number) of `experts` that are alike. */
static double missed_of(double wanted, size_t experts, size_t top_k) {
    double missed = 1.0;
    for (size_t j = 0; j < top_k; j++)
        missed *= experts > j ? fmax(0.0, 1.0 - wanted / (double)(experts - j)) : 0.0;
    return missed;
}

/* The same where a token picks M of G groups of z experts first, each alike, then among their experts. The wanted ones are r whole
 * groups and a part of one more: of the whole ones the token has h with the hypergeometric probability of r, G and M. */
static double missed_of_groups(const spw_layer_shape *s, double wanted) {
    const size_t size = s->experts / s->groups, among = s->groups_kept * size;
    const size_t whole = (size_t)fmin(floor(wanted / (double)size), (double)s->groups),
                 other = s->groups - whole;
    const double rest = wanted - (double)(whole * size);
    double missed = 0.0;
    for (size_t h = 0; h <= whole && h <= s->groups_kept; h++) {
        if (s->groups_kept - h > other) continue;
        const double has = gsl_ran_hypergeometric_pdf((unsigned)h, (unsigned)whole, (unsigned)other,
                                                      (unsigned)s->groups_kept),
                     part = other > 0 ? (double)(s->groups_kept - h) / (double)other : 0.0;
        missed += has * (part * missed_of((double)(h * size) + rest, among, s->top_k) +
                         (1.0 - part) * missed_of((double)(h * size), among, s->top_k));
    }
    return missed;
}

/* Of T tokens, those that want at least one of `wanted` experts (a real number) out of E. */
static uint32_t reached(const spw_layer_shape *s, double wanted) {
    const double missed =
        s->groups > 1 ? missed_of_groups(s, wanted) : missed_of(wanted, s->experts, s->top_k);
    return (uint32_t)lround((double)s->tokens * (1.0 - missed));
}

/* Every rank of a group has the tokens that reach each other rank and node as the group's first one has them. */
static void copy_reached(spw_counts *c, const spw_layer_shape *s, size_t from, size_t rank) {
    if (c->distinct == NULL) return;
    memcpy(c->distinct + rank * s->ranks, c->distinct + from * s->ranks, s->ranks * sizeof *c->distinct);
    memcpy(c->distinct_node + rank * c->group_nodes, c->distinct_node + from * c->group_nodes,
           c->group_nodes * sizeof *c->distinct_node);
}

typedef struct cell {
    size_t expert;
    uint32_t choices; /* of a sequence */
} cell;

static void put_choices(spw_counts *c, const spw_layer_shape *s, size_t limit, size_t line, cell at) {
    const size_t routed = at.choices * s->sequences;
    const bool apart = c->per_sequence != NULL && c->per_sequence != c->routed;
    for (size_t q = 0; q < s->sequences && apart; q++)
        c->per_sequence[(line * s->sequences + q) * s->experts + at.expert] = at.choices;
    c->routed[line * s->experts + at.expert] = (uint32_t)(routed < limit ? routed : limit);
}

/* What one rank of a group chooses, whose rank 0, or those that share its experts, is the busy one. */
static void fill_rank(spw_counts *c, const spw_layer_shape *s, double imbalance, size_t limit, size_t group,
                      size_t member) {
    const size_t e = s->experts_per_rank, choices = s->sequence_length * s->top_k,
                 rank = group * s->ranks + member, t = spw_layer_sharers(s), owners = s->ranks / t;
    const size_t busy = (size_t)lround((double)choices * imbalance / (double)owners);
    const double rest = owners > 1 ? ((double)owners - imbalance) / (double)(owners - 1) : 1.0;
    spw_even_shares here = spw_even_shares_from(busy, e, 0),
                    elsewhere = spw_even_shares_from(choices - busy, s->experts - e, e + member);
    c->tokens[rank] = s->tokens;
    c->assignments[rank] = s->assignments;
    if (c->shared && member > 0) return;
    for (size_t x = 0; x < s->experts; x++)
        put_choices(c, s, limit, spw_counts_line_of(c, rank),
                    (cell){x, (uint32_t)spw_even_shares_next(x < e ? &here : &elsewhere)});
    if (member > 0) {
        copy_reached(c, s, rank - member, rank);
        return;
    }
    if (c->distinct == NULL) return;
    const size_t line = spw_counts_line_of(c, rank);
    for (size_t d = 0; d < s->ranks; d++)
        c->distinct[line * s->ranks + d] = reached(s, (double)e * (d / t == 0 ? imbalance : rest));
    for (size_t node = 0; node < c->group_nodes; node++) {
        double wanted = 0.0;
        for (size_t d = 0; d < s->ranks; d++) {
            if (d % t == 0 && spw_placement_node(&c->placement, group, d) == node)
                wanted += (double)e * (d == 0 ? imbalance : rest);
        }
        c->distinct_node[line * c->group_nodes + node] = reached(s, wanted);
    }
}

/* What every rank chooses of experts that a token includes so often each, in whole choices: all have line 0. What goes to nodes is
 * not looked at. */
static void fill_popular(spw_counts *c, const spw_layer_shape *s, const double *inclusion, size_t limit,
                         size_t rank) {
    const size_t e = s->experts_per_rank, t = spw_layer_sharers(s);
    double before = 0.0;
    c->tokens[rank] = s->tokens;
    c->assignments[rank] = s->assignments;
    if (rank > 0) return;
    for (size_t x = 0; x < s->experts; x++) {
        const double after = before + inclusion[x] * (double)s->sequence_length;
        const uint32_t n = (uint32_t)(floor(after + 0.5) - floor(before + 0.5));
        before = after;
        put_choices(c, s, limit, 0, (cell){x, n});
    }
    for (size_t d = 0; d < s->ranks && c->distinct != NULL; d++) {
        double wanted = 0.0;
        for (size_t x = d / t * e; x < (d / t + 1) * e; x++) wanted += inclusion[x];
        c->distinct[d] = reached(s, wanted * (double)s->experts / (double)s->top_k);
    }
}

/* Have all ranks of a group equal counts? Not where the choices of other experts are no whole number each: the odd ones begin
 * at another expert in every rank. */
static bool choose_alike(const spw_layer_shape *s, double imbalance) {
    const size_t choices = s->sequence_length * s->top_k, owners = s->ranks / spw_layer_sharers(s),
                 busy = (size_t)lround((double)choices * imbalance / (double)owners),
                 others = s->experts - s->experts_per_rank;
    return others == 0 || (choices - busy) % others == 0;
}

/* A line a group, one for all where experts are popular, or one a rank. */
static spw_status place_lines(spw_counts *c, const spw_layer_shape *s, double imbalance, bool popular) {
    c->shared = popular || choose_alike(s, imbalance);
    for (size_t rank = 0; rank < c->placement.ranks; rank++)
        c->line[rank] = popular ? 0 : (uint32_t)(rank / s->ranks);
    return spw_counts_reserve(c, !c->shared ? c->placement.ranks
                                 : popular  ? 1
                                            : c->placement.ranks / s->ranks);
}

/* Room for the lines of any of the groups. */
static spw_status make_lines(spw_stated_routing *r, size_t groups) {
    size_t most = 0;
    for (size_t g = 0; g < groups; g++) {
        const size_t lines = spw_flow_lines(&(spw_routed_group){r->scheme, &r->shape, r->counts, g});
        most = lines > most ? lines : most;
    }
    return most > 0 ? SPW_ALLOC(most * r->shape.ranks, &r->flow.line) : SPW_OK;
}

/* GPUs of a mesh's tensor group count as one. */
static spw_placement placement_of(const spw_job *job) {
    const size_t sharers = spw_grid_of(job).expert_sharers, group = job->expert * sharers;
    return (spw_placement){group * job->fsdp, group, job->cluster.gpus_per_node, job->model.experts, sharers};
}

size_t spw_stated_positions(const spw_job *job) {
    const spw_placement placement = placement_of(job);
    return spw_placement_positions(&placement);
}

/* inclusion: NULL, or as in spw_stated_rows_of. */
static spw_status create(const spw_point *point, double imbalance, const double *inclusion, size_t groups,
                         spw_stated_routing *out) {
    const spw_scheme *scheme = point->scheme;
    const spw_layer_shape s = point->shape;
    const size_t owners = s.ranks / spw_layer_sharers(&s), limits = spw_scheme_limits(scheme, &s);
    const size_t limit = scheme->type->routing.expert_capacity != NULL
                             ? scheme->type->routing.expert_capacity(scheme, &s)
                             : SIZE_MAX;
    spw_placement placement = placement_of(point->job);
    spw_status status = SPW_OK;
    *out = (spw_stated_routing){.shape = s, .scheme = scheme, .group = SIZE_MAX};
    placement.ranks = groups * s.ranks;
    if (!(imbalance >= 1.0) || imbalance > (double)owners)
        return spw_fail(SPW_ECONFIG, "imbalance %g: the busiest rank's rows over the mean are in [1, %zu]",
                        imbalance, owners);
    if (s.ranks > SPW_TRAFFIC_MAX_RANKS)
        return spw_fail(SPW_ECONFIG, "expert-parallel size %zu is above the %d that are supported", s.ranks,
                        SPW_TRAFFIC_MAX_RANKS);
    SPW_TRY(spw_counts_create_parts(placement, s.sequences, spw_counts_parts_of(scheme, 1), &out->counts));
    SPW_TRY(place_lines(out->counts, &s, imbalance, inclusion != NULL));
    SPW_TRY(SPW_ALLOC(s.ranks, &out->flow.wire));
    SPW_TRY(SPW_ALLOC(s.ranks, &out->flow.rows));
    SPW_TRY(SPW_ALLOC(s.ranks, &out->flow.dropped));
    if (limits > 0) SPW_TRY(SPW_ALLOC(limits, &out->flow.limit));
    for (size_t rank = 0; rank < placement.ranks; rank++) {
        if (inclusion != NULL)
            fill_popular(out->counts, &s, inclusion, limit, rank);
        else
            fill_rank(out->counts, &s, imbalance, limit, rank / s.ranks, rank % s.ranks);
    }
    SPW_TRY(make_lines(out, groups));
    spw_stated_routing_flow(out, 0);
    SPW_TRY(spw_flow_check(scheme, &out->flow)); /* other groups send as many */

cleanup:
    if (status != SPW_OK) spw_stated_routing_destroy(out);
    return status;
}

spw_status spw_stated_routing_create(const spw_point *point, double imbalance, size_t groups,
                                     spw_stated_routing *out) {
    return create(point, imbalance, NULL, groups, out);
}

void spw_stated_routing_flow(spw_stated_routing *r, size_t group) {
    if (group == r->group) return;
    r->group = group;
    r->scheme->type->routing.flow(&(spw_routed_group){r->scheme, &r->shape, r->counts, group}, &r->flow);
}

void spw_stated_routing_carry(spw_stated_routing *r, size_t groups, spw_network *network) {
    const size_t ranks = r->shape.ranks, known = r->counts != NULL ? r->counts->placement.ranks / ranks : 0;
    for (size_t like = 0; like < known; like++) {
        spw_stated_routing_flow(r, like);
        for (size_t g = like; g < groups; g += known)
            spw_traffic_carry(&(spw_routed_group){r->scheme, &r->shape, r->counts, like}, &r->flow, g * ranks,
                              network);
    }
}

void spw_stated_routing_destroy(spw_stated_routing *r) {
    spw_free(r->flow.limit);
    spw_free(r->flow.dropped);
    spw_free(r->flow.rows);
    spw_free(r->flow.line);
    spw_free(r->flow.wire);
    spw_counts_destroy(r->counts);
    *r = (spw_stated_routing){.counts = NULL};
}

static uint64_t sum_of(const uint32_t *line, size_t experts) {
    uint64_t sum = 0;
    for (size_t x = 0; x < experts; x++) sum += line[x];
    return sum;
}

static spw_status rows_of(const spw_point *point, double imbalance, const double *inclusion,
                          spw_stated_rows *out) {
    spw_stated_routing r;
    uint64_t lost = 0;
    *out = (spw_stated_rows){.mean = 0.0};
    const spw_status status = create(point, imbalance, inclusion, 1, &r);
    if (status != SPW_OK || r.counts == NULL) return status;
    const size_t ranks = r.shape.ranks;
    spw_rank_rows rows[SPW_TRAFFIC_MAX_RANKS];
    spw_traffic_rows(&r.shape, &r.flow, rows);
    const uint32_t *before = NULL;
    uint64_t routed = 0; /* of a rank; equal ranks share a line */
    for (size_t d = 0; d < ranks; d++) {
        const uint32_t *line = spw_counts_routed_of(r.counts, d);
        if (line != before) routed = sum_of(line, r.shape.experts);
        before = line;
        if (d == 0 || (inclusion != NULL && rows[d].held > out->busy.held)) out->busy = rows[d];
        out->mean += (double)r.flow.rows[d] / (double)ranks;
        lost += r.shape.assignments + r.flow.dropped[d] - routed;
    }
    out->dropped = (double)lost / ((double)ranks * (double)r.shape.assignments);
    spw_stated_routing_destroy(&r);
    return SPW_OK;
}

spw_status spw_stated_rows_of(const spw_point *point, double imbalance, const double *inclusion,
                              spw_stated_rows *out) {
    spw_stated_rows popular = {.mean = 0.0};
    spw_status status = rows_of(point, imbalance, NULL, out);
    if (status != SPW_OK || inclusion == NULL) return status;
    status = rows_of(point, imbalance, inclusion, &popular);
    if (status != SPW_OK || popular.dropped <= out->dropped) return status;
    popular.busy.held = popular.busy.held < out->busy.held ? popular.busy.held : out->busy.held;
    popular.busy.received =
        popular.busy.received < out->busy.received ? popular.busy.received : out->busy.received;
    *out = popular;
    return SPW_OK;
}

spw_status spw_routing_load_stated(const spw_point *point, double imbalance, size_t groups,
                                   spw_routing_layer *out) {
    const spw_scheme *scheme = point->scheme;
    spw_stated_routing r;
    spw_network *network = NULL;
    spw_traffic traffic;
    spw_group_rows rows;
    *out = (spw_routing_layer){.rows = 0.0};
    spw_status status = spw_stated_routing_create(point, imbalance, groups, &r);
    if (status != SPW_OK || r.counts == NULL) return status;
    if (groups == spw_stated_positions(point->job))
        SPW_TRY(spw_network_create(&point->job->cluster, &network));
    for (size_t g = 0; g < groups; g++) {
        spw_stated_routing_flow(&r, g);
        const spw_routed_group routed = {scheme, &r.shape, r.counts, g};
        spw_group_rows_of(&routed, &r.flow, &rows);
        spw_traffic_compute(&routed, &r.flow, &rows, true, &traffic, NULL, NULL);
        spw_routing_load_raise(&routed, &r.flow, &traffic, out);
    }
    if (!scheme->type->routing.limit_per_sequence)
        out->tiled_rows = (double)r.shape.experts_per_rank *
                          mean_tiled_rows(out->rows / (double)r.shape.experts_per_rank, SPW_TILE_ROWS);
    if (network != NULL) {
        spw_stated_routing_carry(&r, point->job->fsdp, network);
        spw_routing_load_slow(network, out);
    }

cleanup:
    spw_network_destroy(network);
    spw_stated_routing_destroy(&r);
    return status;
}

spw_status spw_stated_routing_levels(const spw_point *point, spw_level_bytes *out) {
    const size_t positions = spw_stated_positions(point->job);
    spw_stated_routing r = {.counts = NULL};
    spw_network *network = NULL;
    spw_traffic traffic;
    spw_group_rows rows;
    uint64_t link = 0;
    spw_status status = SPW_OK;
    *out = (spw_level_bytes){.count = 0};
    SPW_TRY(spw_network_create(&point->job->cluster, &network));
    if (network == NULL) return SPW_OK;
    SPW_TRY(spw_stated_routing_create(point, 1.0, positions, &r));
    for (size_t g = 0; g < positions; g++) {
        spw_stated_routing_flow(&r, g);
        const spw_routed_group routed = {point->scheme, &r.shape, r.counts, g};
        spw_group_rows_of(&routed, &r.flow, &rows);
        spw_traffic_compute(&routed, &r.flow, &rows, true, &traffic, NULL, NULL);
        link = traffic.max_intra_bytes > link ? traffic.max_intra_bytes : link;
    }
    spw_stated_routing_carry(&r, point->job->fsdp, network);
    spw_level_bytes_raise(out, link, network, spw_traffic_row_bytes(point->scheme, &r.shape));

cleanup:
    spw_network_destroy(network);
    spw_stated_routing_destroy(&r);
    return status;
}
