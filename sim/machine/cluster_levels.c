#include "sim/machine/cluster_levels.h"

#include "sim/read/coefficient_settings.h"

#include <math.h>
#include <string.h>

enum { NAME, SIZE, SWITCHES, PORT, LATENCY, LISTS };

#define LIST_ROW(list, number, low, high, text) \
    [number] = {.key = #list, \
                .kind = SPW_SETTING_COUNTS, \
                SPW_SETTING_COUNTS_OF(spw_levels, list, SPW_LEVELS, lengths[number]), \
                .minimum = (low), \
                .maximum = (high), \
                .fallback = "", \
                .help = (text)}

const spw_setting spw_level_rows[] = {
    [NAME] = {.key = "name",
              .kind = SPW_SETTING_TEXTS,
              SPW_SETTING_TEXTS_OF(spw_levels, name, SPW_LEVEL_NAME, SPW_LEVELS, lengths[NAME]),
              .fallback = "",
              .help = "names of the network's levels, from the NICs up"},
    LIST_ROW(size, SIZE, 1, 65536, "how many of the level below a unit joins, nodes first"),
    LIST_ROW(switches, SWITCHES, 1, 1024, "units side by side over the same nodes: rails"),
    LIST_ROW(port_mb_per_s, PORT, 1, 1e9,
             "10^6 bytes/s one way of a member: of a NIC, then of all uplinks of a unit of the level below"),
    LIST_ROW(latency_ns, LATENCY, 0, 1e9, "nanoseconds that crossing the level adds"),
    [LISTS] = {.key = "evidence",
               .kind = SPW_SETTING_CHOICE,
               SPW_SETTING_CHOICE_OF(spw_levels, evidence, spw_evidence),
               .choices = spw_evidence_choices,
               .fallback = "assumed",
               .help = "how we know the levels"},
    {.key = "source",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_levels, source, SPW_FIGURE_SOURCE),
     .fallback = "",
     .help = "where the levels were read or measured"},
    {.key = NULL}};

/* --- Checks --- */

static spw_status check_lists(const char *where, size_t line, const spw_levels *l) {
    for (size_t i = 1; i < LISTS; i++) {
        if (l->lengths[i] != l->lengths[0])
            return spw_fail(SPW_ECONFIG,
                            "%s:%zu: 'levels.%s' has %zu elements, 'levels.name' %zu; the lists are one "
                            "length, an element a level",
                            where, line, spw_level_rows[i].key, l->lengths[i], l->lengths[0]);
    }
    if (l->lengths[0] > 0 && l->source[0] == '\0')
        return spw_fail(SPW_ECONFIG, "%s:%zu: 'levels.source' is missing; say where the levels were read",
                        where, line);
    return SPW_OK;
}

static spw_status check_switches(const char *where, size_t line, const spw_cluster *c, const spw_levels *l) {
    for (size_t i = 0; i < l->count; i++) {
        const size_t below = i == 0 ? c->gpus_per_node : l->switches[i - 1];
        if (below % l->switches[i] != 0)
            return spw_fail(
                SPW_ECONFIG,
                "%s:%zu: 'levels.switches' has %zu at level '%s', which does not divide the %zu %s", where,
                line, l->switches[i], l->name[i], below, i == 0 ? "GPUs of a node" : "of the level below");
    }
    if (l->switches[l->count - 1] != 1)
        return spw_fail(SPW_ECONFIG,
                        "%s:%zu: 'levels.switches' ends with %zu; the last level joins all rails, so it is 1",
                        where, line, l->switches[l->count - 1]);
    return SPW_OK;
}

spw_status spw_levels_check(const char *where, size_t line, const spw_cluster *c, spw_levels *l) {
    size_t nodes = 1;
    const spw_status status = check_lists(where, line, l);
    if (status != SPW_OK) return status;
    l->count = l->lengths[0];
    if (l->count == 0) return SPW_OK;
    for (size_t i = 0; i < l->count; i++) nodes = nodes <= c->nodes ? nodes * l->size[i] : nodes;
    if (nodes != c->nodes)
        return spw_fail(SPW_ECONFIG,
                        "%s:%zu: the product of 'levels.size' is %s%zu, and the cluster has %zu nodes of %zu "
                        "GPUs; it must be %zu",
                        where, line, nodes > c->nodes ? "at least " : "", nodes, c->nodes, c->gpus_per_node,
                        c->nodes);
    if (fabs(1e6 * (double)l->port_mb_per_s[0] - c->nic_bytes_per_s.value) > 1e6)
        return spw_fail(
            SPW_ECONFIG,
            "%s:%zu: 'levels.port_mb_per_s' begins with %zu; the ports of the first level are the "
            "NICs, %.0f by 'nic_bytes_per_s'",
            where, line, l->port_mb_per_s[0], c->nic_bytes_per_s.value / 1e6);
    return check_switches(where, line, c, l);
}

spw_status spw_levels_fit(spw_cluster *c) {
    spw_levels *l = &c->levels;
    size_t rest = c->nodes;
    if (l->count > 0 && c->nodes == 1) l->count = 0;
    for (size_t i = 0; i < l->count; i++) {
        const size_t joins = l->size[i] > 0 ? l->size[i] : 1;
        const bool all = i + 1 == l->count || rest <= joins;
        if (!all && rest % joins != 0)
            return spw_fail(
                SPW_ECONFIG,
                "%zu nodes are no whole units of level '%s' of cluster '%s', which joins %zu of the "
                "level below; take a multiple",
                c->nodes, l->name[i], c->name, joins);
        if (all) l->size[i] = rest;
        rest = all ? 1 : rest / joins;
        if (rest == 1 && l->switches[i] == 1) l->count = i + 1; /* rails meet no lower */
    }
    if (l->count > 0 && c->gpus_per_node % l->switches[0] != 0)
        return spw_fail(SPW_ECONFIG, "%zu GPUs a node do not share the %zu rails of cluster '%s' alike",
                        c->gpus_per_node, l->switches[0], c->name);
    return SPW_OK;
}

/* --- Where a GPU stands --- */

bool spw_levels_are_several(const spw_cluster *c) { return c->levels.count > 1; }

/* Nodes that one unit of the levels below `level` stands over. */
static size_t nodes_below(const spw_levels *l, size_t level) {
    size_t nodes = 1;
    for (size_t i = 0; i < level; i++) nodes *= l->size[i];
    return nodes;
}

size_t spw_levels_member(const spw_cluster *c, size_t level, size_t gpu) {
    const spw_levels *l = &c->levels;
    if (level == 0) return gpu;
    const size_t rails = l->switches[level - 1];
    return gpu / c->gpus_per_node / nodes_below(l, level) * rails + gpu % c->gpus_per_node % rails;
}

size_t spw_levels_members(const spw_cluster *c, size_t level) {
    const size_t gpus = c->nodes * c->gpus_per_node;
    return level == 0 ? gpus : c->nodes / nodes_below(&c->levels, level) * c->levels.switches[level - 1];
}

double spw_levels_rate(const spw_cluster *c, size_t level) {
    return level == 0 ? c->nic_bytes_per_s.value : 1e6 * (double)c->levels.port_mb_per_s[level];
}

double spw_levels_latency(const spw_cluster *c, size_t level) {
    double seconds = 0.0;
    for (size_t i = 0; i <= level && i < c->levels.count; i++)
        seconds += 1e-9 * (double)c->levels.latency_ns[i];
    return seconds;
}
