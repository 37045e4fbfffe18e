#include "sim/schemes/traffic.h"

#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"

#include <string.h>

static uint64_t greater(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Where the bytes of a group are counted: on its GPUs' ports, or on those of the network, where its rank 0 is GPU `first`. */
typedef struct wires {
    spw_ports *port;
    spw_network *network;
    size_t first;
} wires;

static void by_link(const wires *w, size_t from, size_t to, uint64_t bytes) {
    if (w->port == NULL) return;
    w->port[from].link_out += from == to ? 0 : bytes;
    w->port[to].link_in += from == to ? 0 : bytes;
}

static void by_nic(const wires *w, size_t from, size_t to, uint64_t bytes) {
    if (w->network != NULL) spw_network_carry(w->network, w->first + from, w->first + to, bytes);
    if (w->port == NULL) return;
    w->port[from].nic_out += bytes;
    w->port[to].nic_in += bytes;
}

/* node [ranks]: that of every member of the group. */
static void find_nodes(const spw_layer_shape *s, const spw_placement *p, size_t group, uint32_t *node) {
    for (size_t d = 0; d < s->ranks; d++) node[d] = (uint32_t)spw_placement_node(p, group, d);
}

/* in, out [ranks]: rows that reach a rank and leave it, its own included. Ranks that send alike are added up once. */
static void sum_rows(const spw_layer_shape *s, const spw_flow *flow, uint64_t *in, uint64_t *out) {
    spw_alike alike;
    uint64_t line[SPW_TRAFFIC_MAX_RANKS];
    spw_alike_of_flow(flow, s->ranks, &alike);
    memset(in, 0, s->ranks * sizeof *in);
    for (size_t i = 0; i < alike.lines; i++)
        line[i] = spw_line_add(flow->wire[alike.first[i]], s->ranks, alike.times[i], in);
    for (size_t source = 0; source < s->ranks; source++) out[source] = line[alike.of[source]];
}

/* Every pair has its own way: inside a node the link, between nodes the NICs, which have what is left. */
static void route_pairs(const spw_layer_shape *s, const spw_placement *p, size_t group, const spw_flow *flow,
                        const wires *w) {
    uint32_t node[SPW_TRAFFIC_MAX_RANKS];
    uint64_t in[SPW_TRAFFIC_MAX_RANKS], out[SPW_TRAFFIC_MAX_RANKS];
    find_nodes(s, p, group, node);
    sum_rows(s, flow, in, out);
    for (size_t source = 0; source < s->ranks; source++) {
        const uint32_t *wire = flow->wire[source];
        size_t begin = source, end = source + 1; /* members of its node */
        while (begin > 0 && node[begin - 1] == node[source]) begin--;
        while (end < s->ranks && node[end] == node[source]) end++;
        for (size_t d = begin; d < end; d++) {
            by_link(w, source, d, wire[d]);
            out[source] -= wire[d];
            in[d] -= wire[d];
        }
        for (size_t d = 0; d < s->ranks && w->network != NULL; d++) {
            if (d < begin || d >= end)
                spw_network_carry(w->network, w->first + source, w->first + d, wire[d]);
        }
    }
    for (size_t d = 0; d < s->ranks && w->port != NULL; d++) {
        w->port[d].nic_out += out[d];
        w->port[d].nic_in += in[d];
    }
}

/* What arrived goes on to the other ranks that share the experts, each pair its own way. */
static void route_gather(const spw_layer_shape *s, const spw_placement *p, size_t group, const spw_flow *flow,
                         uint64_t row_bytes, const wires *w) {
    const size_t t = spw_layer_sharers(s);
    uint64_t arrived[SPW_TRAFFIC_MAX_RANKS], out[SPW_TRAFFIC_MAX_RANKS];
    if (t == 1) return;
    sum_rows(s, flow, arrived, out); /* from the ranks of a number among those that share experts */
    for (size_t source = 0; source < s->ranks; source++) {
        const uint64_t bytes = arrived[source] * row_bytes;
        for (size_t d = source / t * t; d < source / t * t + t; d++) {
            if (d == source) continue;
            if (spw_placement_node(p, group, source) == spw_placement_node(p, group, d)) {
                by_link(w, source, d, bytes);
            } else {
                by_nic(w, source, d, bytes);
            }
        }
    }
}

/* The nodes of a group, and rows to their members. */
typedef struct group_nodes {
    size_t nodes;
    uint32_t of[SPW_TRAFFIC_MAX_RANKS];        /* [ranks] */
    uint32_t begin[SPW_TRAFFIC_MAX_RANKS + 1]; /* [nodes + 1] their first members */
    uint64_t sum[SPW_TRAFFIC_MAX_RANKS];       /* [nodes] of the line that is routed */
    uint64_t in[SPW_TRAFFIC_MAX_RANKS]; /* [ranks] by links, as soon as all lines are routed; else more */
} group_nodes;

static void list_nodes(const spw_layer_shape *s, const spw_placement *p, size_t group, group_nodes *out) {
    memset(out->in, 0, s->ranks * sizeof *out->in);
    out->nodes = 0;
    find_nodes(s, p, group, out->of);
    for (size_t d = 0; d < s->ranks; d++)
        if (d == 0 || out->of[d] != out->of[d - 1]) out->begin[out->nodes++] = (uint32_t)d;
    out->begin[out->nodes] = (uint32_t)s->ranks;
}

/* DeepEP between nodes: a token crosses once a node, to the GPU with the sender's local index, which forwards it inside
 * the node to the ranks that want it (docs/schemes.md, section 4.1). A node on which the group lacks that GPU is reached
 * pair by pair. Rows of such pairs and a rank's own come by no link. */
static void route_from(const spw_routed_group *routed, const spw_flow *flow, group_nodes *at, size_t source,
                       const wires *w) {
    const spw_placement *p = &routed->counts->placement;
    const size_t first = routed->number * p->group_ranks, rank = first + source, ranks = routed->shape->ranks,
                 local = spw_placement_first_node(p, routed->number) * p->gpus_per_node +
                         rank % p->gpus_per_node; /* the GPU of the first node with the sender's index */
    const uint32_t *wire = flow->wire[source], *of_node = spw_counts_nodes_of(routed->counts, rank);
    for (size_t n = 0; n < at->nodes; n++) {
        const size_t node = at->of[at->begin[n]], there = local + node * p->gpus_per_node;
        const bool home = node == at->of[source], has = there >= first && there < first + ranks;
        if (!home && has) by_nic(w, source, there - first, of_node[node]);
        if (home || has) {
            const size_t from = home ? source : there - first;
            at->in[from] -= wire[from];
            if (w->port != NULL) w->port[from].link_out += (at->sum[n] - wire[from]);
            continue;
        }
        for (size_t d = at->begin[n]; d < at->begin[n + 1]; d++) {
            at->in[d] -= wire[d];
            by_nic(w, source, d, wire[d]);
        }
    }
}

/* Ranks that send alike have the same sums. */
static void route_by_node(const spw_routed_group *routed, const spw_flow *flow, const wires *w) {
    const spw_layer_shape *s = routed->shape;
    group_nodes at;
    spw_alike alike;
    list_nodes(s, &routed->counts->placement, routed->number, &at);
    spw_alike_of_flow(flow, s->ranks, &alike);
    for (size_t line = 0; line < alike.lines; line++) {
        const uint32_t *wire = flow->wire[alike.first[line]];
        memset(at.sum, 0, at.nodes * sizeof *at.sum);
        for (size_t n = 0; n < at.nodes; n++)
            for (size_t d = at.begin[n]; d < at.begin[n + 1]; d++) at.sum[n] += wire[d];
        (void)spw_line_add(wire, s->ranks, alike.times[line], at.in);
        for (size_t source = alike.first[line], left = alike.times[line]; left > 0; source++) {
            if (alike.of[source] != line) continue;
            route_from(routed, flow, &at, source, w);
            left--;
        }
    }
    for (size_t d = 0; d < s->ranks && w->port != NULL; d++) w->port[d].link_in += at.in[d];
}

static void exchange_rows(const spw_routed_group *routed, const spw_flow *flow, const wires *w) {
    if (spw_scheme_by_node(routed->scheme)) {
        route_by_node(routed, flow, w);
    } else {
        route_pairs(routed->shape, &routed->counts->placement, routed->number, flow, w);
    }
}

void spw_traffic_gather_ports(const spw_routed_group *routed, const spw_flow *flow, spw_ports *port) {
    const spw_layer_shape *s = routed->shape;
    const wires w = {.port = port};
    memset(port, 0, s->ranks * sizeof *port);
    route_gather(s, &routed->counts->placement, routed->number, flow, 1, &w);
}

void spw_traffic_carry(const spw_routed_group *routed, const spw_flow *flow, size_t first,
                       spw_network *network) {
    const wires w = {.network = network, .first = first};
    exchange_rows(routed, flow, &w);
    route_gather(routed->shape, &routed->counts->placement, routed->number, flow, 1, &w);
}

void spw_traffic_rows(const spw_layer_shape *s, const spw_flow *flow, spw_rank_rows *out) {
    uint64_t in[SPW_TRAFFIC_MAX_RANKS], out_of[SPW_TRAFFIC_MAX_RANKS];
    sum_rows(s, flow, in, out_of);
    for (size_t d = 0; d < s->ranks; d++)
        out[d] = (spw_rank_rows){.held = flow->rows[d], .received = in[d], .sent = out_of[d]};
}

void spw_group_rows_of(const spw_routed_group *routed, const spw_flow *flow, spw_group_rows *out) {
    const wires w = {.port = out->port};
    memset(out->port, 0, routed->shape->ranks * sizeof *out->port);
    exchange_rows(routed, flow, &w);
    spw_traffic_rows(routed->shape, flow, out->rank);
}

/* Bytes of one dispatch, and of what sharers gather behind it. */
static void fill_ports(const spw_routed_group *routed, const spw_flow *flow, const spw_group_rows *rows,
                       uint64_t row_bytes, spw_ports *port) {
    const spw_layer_shape *s = routed->shape;
    const wires w = {.port = port};
    for (size_t r = 0; r < s->ranks; r++) {
        const spw_ports *of = &rows->port[r];
        port[r] = (spw_ports){of->link_out * row_bytes, of->link_in * row_bytes, of->nic_out * row_bytes,
                              of->nic_in * row_bytes};
    }
    route_gather(s, &routed->counts->placement, routed->number, flow, row_bytes, &w);
}

uint64_t spw_traffic_row_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    return scheme->type->traffic.exchanges(scheme, s, exchange) > 0 ? exchange[0].row_bytes : 0;
}

void spw_traffic_compute(const spw_routed_group *routed, const spw_flow *flow, const spw_group_rows *rows,
                         bool recompute, spw_traffic *out, uint64_t *sent, uint64_t *received) {
    const spw_layer_shape *s = routed->shape;
    spw_exchange exchange[SPW_SCHEME_EXCHANGES] = {
        {.row_bytes = 0}}; /* schemes of one rank exchange nothing */
    const size_t exchanges = routed->scheme->type->traffic.exchanges(routed->scheme, s, exchange);
    const size_t t = spw_layer_sharers(s);
    const spw_rank_rows *of = rows->rank;
    uint64_t off_rank = 0, gathered = 0;
    spw_ports port[SPW_TRAFFIC_MAX_RANKS];
    for (size_t r = 0; r < s->ranks; r++) {
        off_rank += of[r].sent - flow->wire[r][r];
        gathered += (t - 1) * of[r].received;
    }
    *out = (spw_traffic){.dispatch_bytes = 0};
    for (size_t i = 0; i < exchanges; i++) {
        const uint64_t bytes = (exchange[i].gathers ? gathered : off_rank) * exchange[i].row_bytes;
        if (exchange[i].phase != SPW_PHASE_RECOMPUTE || recompute) out->layer_bytes += bytes;
        if (exchange[i].phase == SPW_PHASE_FORWARD)
            *(exchange[i].back ? &out->combine_bytes : &out->dispatch_bytes) += bytes;
    }
    fill_ports(routed, flow, rows, exchange[0].row_bytes, port);
    for (size_t r = 0; r < s->ranks; r++) {
        out->intra_node_bytes += port[r].link_out;
        out->inter_node_bytes += port[r].nic_out;
        out->max_intra_bytes = greater(out->max_intra_bytes, greater(port[r].link_out, port[r].link_in));
        out->max_inter_bytes = greater(out->max_inter_bytes, greater(port[r].nic_out, port[r].nic_in));
        out->max_link_bytes = greater(out->max_intra_bytes, out->max_inter_bytes);
        const uint64_t own = flow->wire[r][r];
        uint64_t out_rows = (t - 1) * of[r].received + of[r].sent - own, in_rows = of[r].received - own;
        for (size_t d = r / t * t; d < r / t * t + t; d++) in_rows += d == r ? 0 : of[d].received;
        if (sent != NULL) sent[r] = out_rows * exchange[0].row_bytes;
        if (received != NULL) received[r] = in_rows * exchange[0].row_bytes;
    }
}
