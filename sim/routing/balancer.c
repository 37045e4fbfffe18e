#include "sim/routing/balancer.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/routing/eplb.h"
#include "traces/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SLOTS = 65535 }; /* 65535 is the missing id */

struct spw_balancer {
    spw_balancer_spec spec;
    spw_balancer_shape shape;
    size_t slots;
    double *load;            /* [layers][experts] since the last placement */
    uint32_t *expert, *next; /* [layers][slots]; next [slots] */
    uint32_t *first;         /* [layers][experts + 1] into copy */
    uint32_t *copy;          /* [layers][slots] slots, expert by expert */
    uint32_t *turn;          /* [experts] */
    uint64_t *received;      /* [ranks] */
    double *rank_load;       /* [ranks] */
    uint16_t *id;
    size_t ids;
    uint64_t
        apart; /* of the placements in force: distinct experts of the ranks of every layer, less the experts */
    spw_balancer_moves moves;
};

/* --- The text --- */

static spw_status wrong(const char *text, const char *what) {
    return spw_fail(SPW_ECONFIG,
                    "balancer '%s': %s; eplb:replicas=N,every=STEPS[,hierarchical][,groups=G] or "
                    "echo:replicas=N,every=STEPS would be right",
                    text, what);
}

static bool read_count(const char *part, const char *key, size_t *out) {
    const size_t length = strlen(key);
    char *end = NULL;
    if (strncmp(part, key, length) != 0 || part[length] != '=' || part[length + 1] < '0' ||
        part[length + 1] > '9')
        return false;
    errno = 0;
    const unsigned long long value = strtoull(part + length + 1, &end, 10);
    if (errno != 0 || *end != '\0' || value > MOST_SLOTS) return false;
    *out = value;
    return true;
}

spw_status spw_balancer_parse(const char *text, spw_balancer_spec *out) {
    char copy[SPW_BALANCER_TEXT], *rest = NULL;
    bool replicas = false;
    *out = (spw_balancer_spec){.every = 0};
    if (strlen(text) >= sizeof copy) return wrong(text, "it is too long");
    (void)snprintf(out->text, sizeof out->text, "%s", text);
    (void)snprintf(copy, sizeof copy, "%s", text);
    char *options = strchr(copy, ':');
    if (options != NULL) *options++ = '\0';
    if (options != NULL && spw_text_has_gap(options))
        return wrong(text, "a place between its commas is empty");
    out->kind = strcmp(copy, "echo") == 0 ? SPW_BALANCER_ECHO : SPW_BALANCER_EPLB;
    if (out->kind == SPW_BALANCER_EPLB && strcmp(copy, "eplb") != 0) return wrong(text, "it is unknown");
    for (char *part = options != NULL ? strtok_r(options, ",", &rest) : NULL; part != NULL;
         part = strtok_r(NULL, ",", &rest)) {
        const bool eplb = out->kind == SPW_BALANCER_EPLB;
        if (read_count(part, "replicas", &out->replicas)) {
            replicas = true;
        } else if (eplb && strcmp(part, "hierarchical") == 0) {
            out->hierarchical = true;
        } else if (!read_count(part, "every", &out->every) &&
                   !(eplb && read_count(part, "groups", &out->groups))) {
            return wrong(text, "one of its options is unknown or no whole number below 65536");
        }
    }
    if (!replicas || out->every == 0) return wrong(text, "replicas, and every from 1 up, must be said");
    if (out->groups > 0 && !out->hierarchical) return wrong(text, "groups are of the hierarchical algorithm");
    return SPW_OK;
}

/* --- Life --- */

void spw_balancer_destroy(spw_balancer *b) {
    if (b == NULL) return;
    spw_free(b->load), spw_free(b->expert), spw_free(b->next), spw_free(b->first), spw_free(b->copy);
    spw_free(b->turn), spw_free(b->received), spw_free(b->rank_load), spw_free(b->id);
    spw_free(b);
}

static size_t nodes_of(const spw_balancer_shape *s) { return s->ranks / s->node_ranks; }

/* As said, else the model's where nodes divide them, else every expert is one. */
static size_t groups_of(const spw_balancer_spec *spec, const spw_balancer_shape *s) {
    if (spec->groups > 0) return spec->groups;
    return s->groups > 1 && s->groups % nodes_of(s) == 0 ? s->groups : s->experts;
}

static spw_status check(const spw_balancer_spec *spec, const spw_balancer_shape *s) {
    const size_t slots = s->experts + spec->replicas;
    if (slots % s->ranks != 0)
        return spw_fail(
            SPW_ECONFIG,
            "balancer '%s': %zu experts and %zu replicas on %zu expert-parallel ranks; replicas=%zu would be "
            "right, or another multiple of the ranks",
            spec->text, s->experts, spec->replicas, s->ranks, spec->replicas + s->ranks - slots % s->ranks);
    if (slots >= MOST_SLOTS)
        return spw_fail(SPW_ECONFIG, "balancer '%s': %zu experts and replicas; at most %d would be right",
                        spec->text, slots, MOST_SLOTS - 1);
    if (spec->kind == SPW_BALANCER_ECHO && spec->replicas / s->ranks > s->experts - s->experts / s->ranks)
        return spw_fail(SPW_ECONFIG,
                        "balancer '%s': %zu copies on a rank, which lacks %zu experts; fewer would be right",
                        spec->text, spec->replicas / s->ranks, s->experts - s->experts / s->ranks);
    if (!spec->hierarchical) return SPW_OK;
    const size_t groups = groups_of(spec, s);
    if (s->ranks % s->node_ranks != 0 || s->experts % groups != 0 || groups % nodes_of(s) != 0)
        return spw_fail(
            SPW_ECONFIG,
            "balancer '%s': %zu experts in %zu groups on %zu ranks, %zu a node; whole nodes, and groups that "
            "nodes divide and that divide the experts would be right",
            spec->text, s->experts, groups, s->ranks, s->node_ranks);
    return SPW_OK;
}

spw_status spw_balancer_create(const spw_balancer_spec *spec, const spw_balancer_shape *shape,
                               spw_balancer **out) {
    spw_balancer *b = NULL;
    spw_status status = check(spec, shape);
    *out = NULL;
    if (status != SPW_OK) return status;
    SPW_TRY(SPW_ALLOC(1, &b));
    b->spec = *spec;
    b->shape = *shape;
    b->slots = shape->experts + spec->replicas;
    SPW_TRY(SPW_ALLOC(shape->layers * shape->experts, &b->load));
    SPW_TRY(SPW_ALLOC(shape->layers * b->slots, &b->expert));
    SPW_TRY(SPW_ALLOC(b->slots, &b->next));
    SPW_TRY(SPW_ALLOC(shape->layers * (shape->experts + 1), &b->first));
    SPW_TRY(SPW_ALLOC(shape->layers * b->slots, &b->copy));
    SPW_TRY(SPW_ALLOC(shape->experts, &b->turn));
    SPW_TRY(SPW_ALLOC(shape->ranks, &b->received));
    SPW_TRY(SPW_ALLOC(shape->ranks, &b->rank_load));
    *out = b;
    b = NULL;

cleanup:
    spw_balancer_destroy(b);
    return status;
}

/* --- Placements --- */

/* Slots of a rank that are filled, its own experts first. */
static bool holds(const spw_balancer *b, size_t rank, size_t filled, uint32_t expert) {
    const uint32_t *slot = b->next + rank * (b->slots / b->shape.ranks);
    for (size_t i = 0; i < filled; i++) {
        if (slot[i] == expert) return true;
    }
    return false;
}

/* Experts at home, then copies one by one. What a copy takes is taken off the other copies. */
static void clone(spw_balancer *b, const double *load) {
    const spw_balancer_shape *s = &b->shape;
    const size_t own = s->experts / s->ranks, of_rank = b->slots / s->ranks;
    for (size_t x = 0; x < s->experts; x++)
        b->next[x / own * of_rank + x % own] = (uint32_t)x, b->turn[x] = 1;
    for (size_t r = 0; r < s->ranks; r++) b->received[r] = own; /* filled */
    for (size_t copy = 0; copy < b->spec.replicas; copy++) {
        size_t hot = s->experts, to = s->ranks;
        memset(b->rank_load, 0, s->ranks * sizeof *b->rank_load);
        for (size_t r = 0; r < s->ranks; r++) {
            for (size_t i = 0; i < b->received[r]; i++) {
                const uint32_t x = b->next[r * of_rank + i];
                b->rank_load[r] += load[x] / (double)b->turn[x];
            }
        }
        for (size_t x = 0; x < s->experts; x++) {
            bool anywhere = false;
            for (size_t r = 0; r < s->ranks && !anywhere; r++)
                anywhere = b->received[r] < of_rank && !holds(b, r, b->received[r], (uint32_t)x);
            if (anywhere &&
                (hot == s->experts || load[x] / (double)b->turn[x] > load[hot] / (double)b->turn[hot]))
                hot = x;
        }
        for (size_t r = 0; r < s->ranks; r++) {
            if (b->received[r] < of_rank && !holds(b, r, b->received[r], (uint32_t)hot) &&
                (to == s->ranks || b->rank_load[r] < b->rank_load[to]))
                to = r;
        }
        b->next[to * of_rank + b->received[to]++] = (uint32_t)hot;
        b->turn[hot]++;
    }
}

/* Experts in b->next of a rank that it does not hold in `before`. */
static uint64_t new_experts(const spw_balancer *b, const uint32_t *before, size_t rank) {
    const size_t of_rank = b->slots / b->shape.ranks, first = rank * of_rank;
    uint64_t fresh = 0;
    for (size_t i = 0; i < of_rank; i++) {
        bool known = holds(b, rank, i, b->next[first + i]);
        for (size_t j = 0; j < of_rank && !known; j++) known = before[first + j] == b->next[first + i];
        fresh += !known;
    }
    return fresh;
}

/* Of the first placement: experts come from home. */
static uint64_t new_copies(const spw_balancer *b, size_t rank) {
    const size_t of_rank = b->slots / b->shape.ranks, own = b->shape.experts / b->shape.ranks;
    uint64_t fresh = 0;
    for (size_t i = 0; i < of_rank; i++) {
        const uint32_t x = b->next[rank * of_rank + i];
        fresh += x / own != rank && !holds(b, rank, i, x);
    }
    return fresh;
}

static size_t distinct_experts(const spw_balancer *b, size_t rank) {
    const size_t of_rank = b->slots / b->shape.ranks;
    size_t distinct = 0;
    for (size_t i = 0; i < of_rank; i++) distinct += !holds(b, rank, i, b->next[rank * of_rank + i]);
    return distinct;
}

/* Takes b->next as the placement of a layer. */
static void take(spw_balancer *b, size_t layer) {
    const size_t experts = b->shape.experts;
    uint32_t *first = b->first + layer * (experts + 1), *copy = b->copy + layer * b->slots;
    memcpy(b->expert + layer * b->slots, b->next, b->slots * sizeof *b->next);
    memset(first, 0, (experts + 1) * sizeof *first);
    for (size_t slot = 0; slot < b->slots; slot++) first[b->next[slot] + 1]++;
    for (size_t x = 0; x < experts; x++) first[x + 1] += first[x], b->turn[x] = first[x];
    for (size_t slot = 0; slot < b->slots; slot++) copy[b->turn[b->next[slot]]++] = (uint32_t)slot;
}

static spw_status place(spw_balancer *b, const double *load) {
    const spw_balancer_shape *s = &b->shape;
    if (b->spec.kind == SPW_BALANCER_ECHO) {
        clone(b, load);
        return SPW_OK;
    }
    const bool by_node = b->spec.hierarchical;
    const spw_eplb_shape shape = {.experts = s->experts,
                                  .slots = b->slots,
                                  .groups = by_node ? groups_of(&b->spec, s) : 1,
                                  .nodes = by_node ? nodes_of(s) : 1,
                                  .ranks = s->ranks};
    return spw_eplb_place(&shape, load, b->next);
}

/* New placements of all layers from the loads since the last; before step 0 from equal ones. */
static spw_status place_all(spw_balancer *b, bool first) {
    const spw_balancer_shape *s = &b->shape;
    uint64_t most = 0;
    b->apart = 0;
    for (size_t i = 0; first && i < s->layers * s->experts; i++) b->load[i] = 1.0;
    uint64_t *by_rank = NULL;
    spw_status status = SPW_ALLOC(s->ranks, &by_rank);
    for (size_t l = 0; l < s->layers && status == SPW_OK; l++) {
        status = place(b, b->load + l * s->experts);
        for (size_t r = 0; r < s->ranks && status == SPW_OK; r++)
            by_rank[r] += first ? new_copies(b, r) : new_experts(b, b->expert + l * b->slots, r);
        for (size_t r = 0; r < s->ranks && status == SPW_OK; r++) b->apart += distinct_experts(b, r);
        if (status == SPW_OK) take(b, l);
    }
    b->apart -= s->layers * s->experts;
    for (size_t r = 0; r < s->ranks && status == SPW_OK; r++) {
        *(first ? &b->moves.copies_moved : &b->moves.moved) += by_rank[r];
        most = by_rank[r] > most ? by_rank[r] : most;
    }
    if (!first) b->moves.placements++;
    if (!first && most > b->moves.moved_most) b->moves.moved_most = most;
    memset(b->load, 0, s->layers * s->experts * sizeof *b->load);
    spw_free(by_rank);
    return status;
}

spw_status spw_balancer_begin(spw_balancer *b) {
    const bool first = b->moves.steps == 0, due = b->moves.steps % b->spec.every == 0;
    const spw_status status = due ? place_all(b, first) : SPW_OK;
    b->moves.steps++;
    b->moves.copy_steps += b->apart;
    return status;
}

spw_status spw_balancer_map(spw_balancer *b, size_t layer, const spw_trace_record *record, bool loads,
                            spw_trace_record *out) {
    const size_t choices = record->tokens * record->top_k, experts = b->shape.experts;
    const uint32_t *first = b->first + layer * (experts + 1), *copy = b->copy + layer * b->slots;
    const uint8_t *narrow = record->expert_id;
    const uint16_t *wide = record->expert_id;
    double *load = b->load + layer * experts;
    if (choices > b->ids) {
        spw_free(b->id);
        b->id = NULL, b->ids = 0;
        const spw_status status = SPW_ALLOC(choices, &b->id);
        if (status != SPW_OK) return status;
        b->ids = choices;
    }
    memset(b->turn, 0, experts * sizeof *b->turn);
    for (size_t i = 0; i < choices; i++) {
        const size_t x = record->id_bytes == 1 ? narrow[i] : wide[i];
        b->id[i] = UINT16_MAX;
        if (x >= experts) continue;
        const uint32_t copies = first[x + 1] - first[x];
        b->id[i] = (uint16_t)copy[first[x] + b->turn[x]++ % copies];
        if (loads) load[x] += 1.0;
    }
    *out = *record;
    out->experts = b->slots;
    out->id_bytes = sizeof *b->id;
    out->missing = UINT16_MAX;
    out->expert_id = b->id;
    return SPW_OK;
}

const uint32_t *spw_balancer_placement(const spw_balancer *b, size_t layer) {
    return b->expert + layer * b->slots;
}
spw_balancer_moves spw_balancer_moved(const spw_balancer *b) { return b->moves; }
