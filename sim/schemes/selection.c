#include "sim/schemes/selection.h"

#include "base/memory.h"
#include "sim/schemes/flow_lines.h"
#include "traces/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct spw_selection {
    spw_placement placement;
    spw_layer_shape shape;
    size_t groups, choices; /* choices: of one group */
    spw_flow *flow;         /* [groups] */
    const uint32_t **wire;  /* of all groups, as rows and what follows */
    uint64_t *rows, *dropped, *lost;
    uint32_t *line;
    size_t lines;    /* room */
    uint32_t *limit; /* NULL until a scheme has some */
    size_t limits;
    int32_t *expert;
    float *weight;
    uint8_t *kept;    /* [groups][choices] */
    bool drops_alone; /* keep() is not asked where counts say how many it drops */
    bool marked;      /* kept is filled */
    bool kept_before; /* ... by keep(), with limits still to come */
    bool by_counts;   /* the counts of what is kept were made without keep() */
    /* The kept choices as a record of their own. */
    uint16_t *id;
    spw_layout *layout;
    spw_counts *own;
    const spw_counts *counts;
    /* Of the run. */
    spw_scheme run_scheme; /* a copy: the caller's need not outlive the run */
    const spw_scheme *scheme;
    spw_drop_rule rule; /* BY_LIMIT too where keep() would keep all */
    const spw_trace_record *record;
    const spw_layout *source;
};

void spw_selection_destroy(spw_selection *s) {
    if (s == NULL) return;
    spw_counts_destroy(s->own), spw_layout_destroy(s->layout);
    spw_free(s->flow), spw_free(s->wire), spw_free(s->line), spw_free(s->rows), spw_free(s->dropped),
        spw_free(s->lost);
    spw_free(s->limit), spw_free(s->expert), spw_free(s->weight), spw_free(s->kept), spw_free(s->id);
    spw_free(s);
}

spw_status spw_selection_create(spw_placement placement, const spw_layer_shape *shape, spw_selection **out) {
    spw_selection *s = NULL;
    spw_status status = SPW_OK;
    const size_t ranks = placement.ranks;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &s));
    s->placement = placement;
    s->shape = *shape;
    s->groups = ranks / shape->ranks;
    s->choices = shape->ranks * shape->assignments;
    SPW_TRY(SPW_ALLOC(s->groups, &s->flow));
    SPW_TRY(SPW_ALLOC(ranks, &s->wire));
    SPW_TRY(SPW_ALLOC(ranks, &s->rows));
    SPW_TRY(SPW_ALLOC(ranks, &s->dropped));
    SPW_TRY(SPW_ALLOC(ranks, &s->lost));
    for (size_t g = 0; g < s->groups; g++) {
        const size_t first = g * shape->ranks;
        s->flow[g] =
            (spw_flow){.wire = s->wire + first, .rows = s->rows + first, .dropped = s->dropped + first};
    }
    *out = s;
    s = NULL;

cleanup:
    spw_selection_destroy(s);
    return status;
}

static float half_to_float(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const float mantissa = (float)(bits & 1023), sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return mantissa > 0.0f ? NAN : sign * INFINITY;
    return sign * (exponent == 0 ? ldexpf(mantissa, -24) : ldexpf(mantissa + 1024.0f, exponent - 25));
}

void spw_group_choices(const spw_trace_record *record, const spw_layout *layout, size_t first_rank,
                       const spw_layer_shape *s, int32_t *expert, float *weight) {
    const uint8_t *narrow = record->expert_id;
    const uint16_t *wide = record->expert_id;
    for (size_t r = 0; r < s->ranks; r++) {
        size_t out = r * s->assignments;
        const size_t end = out + s->assignments;
        for (size_t i = layout->begin[first_rank + r]; i < layout->begin[first_rank + r + 1]; i++) {
            const size_t first = layout->segment[i].first * s->top_k,
                         count = layout->segment[i].tokens * s->top_k;
            for (size_t j = first; j < first + count && out < end; j++, out++) {
                const size_t x = record->id_bytes == 1 ? narrow[j] : wide[j];
                expert[out] = x < s->experts ? (int32_t)x : -1;
                if (weight != NULL) weight[out] = half_to_float(record->weight[j]);
            }
        }
        for (; out < end; out++) {
            expert[out] = -1;
            if (weight != NULL) weight[out] = 0.0f;
        }
    }
}

/* The memory that only schemes with keep(), and those who ask what is kept, need. */
static spw_status need_choices(spw_selection *s, bool weights) {
    spw_status status = SPW_OK;
    if (s->expert == NULL) SPW_TRY(SPW_ALLOC(s->choices, &s->expert));
    if (s->kept == NULL) SPW_TRY(SPW_ALLOC(s->groups * s->choices, &s->kept));
    if (weights && s->weight == NULL) SPW_TRY(SPW_ALLOC(s->choices, &s->weight));

cleanup:
    return status;
}

/* Counts of what is kept. */
static spw_status need_counts(spw_selection *s) {
    const unsigned had = s->own != NULL ? s->own->parts : 0u, parts = had | spw_counts_parts_of(s->scheme, 1);
    if (s->own != NULL && parts == had) return SPW_OK;
    spw_counts_destroy(s->own);
    s->own = NULL;
    return spw_counts_create_parts(s->placement, s->shape.sequences, (spw_counts_parts)parts, &s->own);
}

/* Room for the kept choices as a record. */
static spw_status need_record(spw_selection *s) {
    const size_t ranks = s->placement.ranks, sequences = s->shape.sequences,
                 length = s->shape.sequence_length;
    spw_status status = SPW_OK;
    if (s->layout != NULL) return SPW_OK;
    SPW_TRY(SPW_ALLOC(s->groups * s->choices, &s->id));
    SPW_TRY(spw_layout_create(ranks, sequences, &s->layout));
    for (size_t i = 0; i < ranks * sequences; i++) {
        const spw_segment whole = {i * length, (uint32_t)length, (uint32_t)(i % sequences)};
        SPW_TRY(spw_layout_put(s->layout, i / sequences, whole));
    }
    spw_layout_close(s->layout);

cleanup:
    return status;
}

static spw_status need_limits(spw_selection *s, size_t limits) {
    spw_status status = SPW_OK;
    if (limits <= s->limits) return SPW_OK;
    spw_free(s->limit);
    s->limit = NULL, s->limits = 0;
    SPW_TRY(SPW_ALLOC(limits, &s->limit));
    s->limits = limits;

cleanup:
    return status;
}

/* Room for the lines of all groups, each behind those of the group before. */
static spw_status need_lines(spw_selection *s) {
    size_t lines = 0;
    spw_status status = SPW_OK;
    for (size_t g = 0; g < s->groups; g++)
        lines += spw_flow_lines(&(spw_routed_group){s->scheme, &s->shape, s->counts, g});
    if (lines > s->lines) {
        spw_free(s->line);
        s->line = NULL, s->lines = 0;
        SPW_TRY(SPW_ALLOC(lines * s->shape.ranks, &s->line));
        s->lines = lines;
    }

cleanup:
    return status;
}

/* Of one rank. Slots without a choice are kept by nobody; id: where the kept choices go, or NULL. How many tokens lost all of theirs. */
static uint64_t note_kept(const spw_layer_shape *s, const int32_t *restrict expert, uint8_t *restrict kept,
                          uint16_t *restrict id) {
    uint64_t lost = 0;
    for (size_t first = 0; first < s->assignments; first += s->top_k) {
        bool chosen = false, any = false;
        for (size_t i = first; i < first + s->top_k; i++) {
            const bool choice = expert[i] >= 0, stays = choice && kept[i] != 0;
            kept[i] = stays;
            if (id != NULL) id[i] = stays ? (uint16_t)expert[i] : UINT16_MAX;
            chosen |= choice, any |= stays;
        }
        lost += chosen && !any;
    }
    return lost;
}

/* Asks keep(). What it keeps is a record, too, where there is room for one. */
static spw_status mark_by_keep(spw_selection *s) {
    const bool weights = s->rule == SPW_DROP_BY_WEIGHT;
    spw_status status = SPW_OK;
    SPW_TRY(need_choices(s, weights));
    memset(s->kept, 0, s->groups * s->choices);
    for (size_t g = 0; g < s->groups; g++) {
        const size_t first = g * s->choices;
        const spw_choices choices = {s->expert, weights ? s->weight : NULL};
        spw_group_choices(s->record, s->source, g * s->shape.ranks, &s->shape, s->expert,
                          weights ? s->weight : NULL);
        SPW_TRY(s->scheme->type->routing.keep(s->scheme, &s->shape, &choices, s->kept + first));
        for (size_t r = 0; r < s->shape.ranks; r++) {
            const size_t at = r * s->shape.assignments;
            s->lost[g * s->shape.ranks + r] = note_kept(&s->shape, s->expert + at, s->kept + first + at,
                                                        s->id != NULL ? s->id + first + at : NULL);
        }
    }
    s->kept_before = s->scheme->type->routing.limits;
    s->marked = !s->kept_before;

cleanup:
    return status;
}

static spw_status keep(spw_selection *s) {
    spw_status status = SPW_OK;
    SPW_TRY(need_counts(s));
    SPW_TRY(need_record(s));
    SPW_TRY(mark_by_keep(s));
    const spw_trace_record record = {.tokens = s->placement.ranks * s->shape.tokens,
                                     .top_k = s->shape.top_k,
                                     .experts = s->shape.experts,
                                     .id_bytes = 2,
                                     .missing = UINT16_MAX,
                                     .expert_id = s->id};
    SPW_TRY(spw_counts_fill(s->own, &record, s->layout));

cleanup:
    return status;
}

void spw_selection_drops_alone(spw_selection *s) { s->drops_alone = true; }

spw_status spw_selection_check(const spw_scheme *scheme, bool weights) {
    if (spw_scheme_drop_rule(scheme) != SPW_DROP_BY_WEIGHT || weights) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "scheme '%s' drops by router weight, and the trace has none; a trace with tokens/weight, "
                    "or %s, would be right",
                    scheme->text,
                    isnan(spw_scheme_option_value(scheme, "policy")) ? "a scheme that drops by position"
                                                                     : "policy=position");
}

const spw_scheme *spw_selection_scheme(const spw_scheme *scheme, bool weights, spw_scheme *own) {
    const spw_scheme_option *options = scheme->type->options;
    if (weights || spw_scheme_drop_rule(scheme) != SPW_DROP_BY_WEIGHT ||
        strstr(scheme->text, "policy=") != NULL)
        return scheme;
    for (size_t i = 0; options[i].name != NULL; i++) {
        if (strcmp(options[i].name, "policy") != 0 || options[i].choices == NULL) continue;
        for (size_t c = 0; options[i].choices[c] != NULL; c++) {
            if (strcmp(options[i].choices[c], "position") != 0) continue;
            *own = *scheme;
            own->option[i] = (double)c;
            return own;
        }
    }
    return scheme;
}

bool spw_selection_note(const spw_scheme *scheme, bool weights, char out[SPW_BY_POSITION_TEXT]) {
    spw_scheme own;
    if (spw_selection_scheme(scheme, weights, &own) == scheme) return false;
    (void)snprintf(
        out, SPW_BY_POSITION_TEXT,
        "%s: the routing has no router weights, by which the scheme drops; an expert keeps what comes "
        "first instead (policy=position)",
        scheme->text);
    return true;
}

/* The scheme's rule, unless its keep() would keep all of these counts. */
static spw_drop_rule rule_of(const spw_selection *s, const spw_scheme *scheme, const spw_counts *counts) {
    const spw_scheme_routing *routing = &scheme->type->routing;
    const spw_drop_rule rule = spw_scheme_drop_rule(scheme);
    bool drops = rule != SPW_DROP_BY_LIMIT && routing->may_drop == NULL;
    for (size_t g = 0; g < s->groups && rule != SPW_DROP_BY_LIMIT && !drops; g++)
        drops = routing->may_drop(&(spw_routed_group){scheme, &s->shape, counts, g});
    return drops ? rule : SPW_DROP_BY_LIMIT;
}

/* Do the counts of what is kept say what travels? */
static bool counts_say_flow(const spw_scheme *scheme, const spw_layer_shape *s, size_t gpus_per_node) {
    const spw_counts_parts parts = spw_counts_parts_of(scheme, 1);
    const bool one_each = spw_flow_has_one_expert(s) && gpus_per_node % s->ranks == 0;
    return parts == SPW_COUNTS_ROUTED || (parts == SPW_COUNTS_DISTINCT && one_each) ||
           scheme->type->routing.expert_capacity(scheme, s) == SIZE_MAX;
}

bool spw_selection_by_counts(const spw_scheme *scheme, const spw_layer_shape *s, size_t gpus_per_node,
                             bool drops_alone) {
    const spw_scheme_routing *routing = &scheme->type->routing;
    return spw_scheme_drop_rule(scheme) != SPW_DROP_BY_LIMIT && routing->expert_capacity != NULL &&
           !routing->limits && (drops_alone || counts_say_flow(scheme, s, gpus_per_node));
}

static bool by_counts(const spw_selection *s) {
    return spw_selection_by_counts(s->scheme, &s->shape, s->placement.gpus_per_node, s->drops_alone);
}

/* The counts of what is kept, without a look at a choice. */
static spw_status keep_counts(spw_selection *s, const spw_counts **kept) {
    const size_t capacity = s->scheme->type->routing.expert_capacity(s->scheme, &s->shape);
    spw_status status = SPW_OK;
    *kept = s->counts;
    if (capacity == SIZE_MAX) return SPW_OK;
    SPW_TRY(need_counts(s));
    SPW_TRY(spw_counts_limit(s->counts, capacity, s->own));
    *kept = s->own;

cleanup:
    return status;
}

/* By the scheme's rule: the counts that its flow is made of, and those of what is kept. */
static spw_status keep_some(spw_selection *s, const spw_counts **kept) {
    spw_status status = SPW_OK;
    s->by_counts = by_counts(s);
    SPW_TRY(s->by_counts ? keep_counts(s, kept) : keep(s));
    if (!s->by_counts) *kept = s->own;
    if (!s->drops_alone || !s->by_counts) s->counts = *kept;

cleanup:
    return status;
}

/* What the scheme sends of each group; nothing where drops alone are asked for and the counts say all of them. */
static spw_status flow_groups(spw_selection *s, const spw_counts *counts, size_t limits) {
    uint32_t *line = s->line;
    spw_status status = SPW_OK;
    if (s->drops_alone && by_counts(s)) {
        memset(s->rows, 0, s->placement.ranks * sizeof *s->rows);
        memset(s->dropped, 0, s->placement.ranks * sizeof *s->dropped);
        return SPW_OK;
    }
    for (size_t g = 0; g < s->groups && status == SPW_OK; g++) {
        const spw_routed_group group = {s->scheme, &s->shape, s->counts, g};
        s->flow[g].limit = limits > 0 ? s->limit + g * limits : NULL;
        s->flow[g].chosen = counts;
        s->flow[g].line = line;
        s->flow[g].too_many = false;
        s->scheme->type->routing.flow(&group, &s->flow[g]);
        status = spw_flow_check(s->scheme, &s->flow[g]);
        line += spw_flow_lines(&group) * s->shape.ranks;
    }
    return status;
}

spw_status spw_selection_run(spw_selection *s, const spw_scheme *scheme, const spw_counts *counts,
                             const spw_trace_record *record, const spw_layout *layout) {
    const spw_drop_rule rule = rule_of(s, scheme, counts);
    const spw_counts *kept = counts;
    const size_t limits = spw_scheme_limits(scheme, &s->shape);
    s->run_scheme = *scheme;
    s->scheme = &s->run_scheme, s->record = record, s->source = layout, s->counts = counts;
    s->marked = s->kept_before = s->by_counts = false;
    s->rule = rule;
    spw_status status = spw_selection_check(scheme, record->weight != NULL);
    if (status == SPW_OK) status = need_limits(s, s->groups * limits);
    if (status == SPW_OK && rule != SPW_DROP_BY_LIMIT) status = keep_some(s, &kept);
    if (status == SPW_OK) status = need_lines(s);
    if (status == SPW_OK) status = flow_groups(s, counts, limits);
    for (size_t r = 0; r < s->placement.ranks && status == SPW_OK; r++)
        s->dropped[r] += counts->assignments[r] - kept->assignments[r];
    return status;
}

const spw_flow *spw_selection_flow(const spw_selection *s, size_t group) { return &s->flow[group]; }
const spw_counts *spw_selection_counts(const spw_selection *s) { return s->counts; }

/* By the limits: of a unit's assignments to an expert the first in token order. */
static void mark(spw_selection *s, size_t group, uint32_t *seen) {
    const bool by_sequence = s->scheme->type->routing.limit_per_sequence;
    const size_t experts = s->shape.experts,
                 unit = (by_sequence ? s->shape.sequence_length : s->shape.tokens) * s->shape.top_k;
    const uint32_t *limit = s->flow[group].limit;
    uint8_t *kept = s->kept + group * s->choices;
    for (size_t i = 0; i < s->choices; i++) {
        if (i % unit == 0) memset(seen, 0, experts * sizeof *seen);
        const int32_t x = s->kept_before && !kept[i] ? -1 : s->expert[i];
        kept[i] = x >= 0 && (limit == NULL || seen[x]++ < limit[i / unit * experts + (size_t)x]);
    }
}

spw_status spw_selection_kept(spw_selection *s, const uint8_t **kept) {
    uint32_t *seen = NULL;
    spw_status status = SPW_OK;
    *kept = NULL;
    if (s->by_counts && !s->marked) SPW_TRY(mark_by_keep(s));
    if (!s->marked) {
        SPW_TRY(need_choices(s, false));
        SPW_TRY(SPW_ALLOC(s->shape.experts, &seen));
        for (size_t g = 0; g < s->groups; g++) {
            spw_group_choices(s->record, s->source, g * s->shape.ranks, &s->shape, s->expert, NULL);
            mark(s, g, seen);
        }
        s->marked = true;
    }
    *kept = s->kept;

cleanup:
    spw_free(seen);
    return status;
}

/* From the marks: what keep() counted lacks what the limits dropped after it. */
static spw_status lost_after_keep(spw_selection *s) {
    const uint8_t *kept = NULL;
    const spw_status status = spw_selection_kept(s, &kept);
    if (status != SPW_OK) return status;
    memset(s->lost, 0, s->placement.ranks * sizeof *s->lost);
    for (size_t g = 0; g < s->groups; g++) {
        spw_group_choices(s->record, s->source, g * s->shape.ranks, &s->shape, s->expert, NULL);
        for (size_t t = 0; t < s->choices / s->shape.top_k; t++) {
            bool chosen = false, stays = false;
            for (size_t i = t * s->shape.top_k; i < (t + 1) * s->shape.top_k; i++) {
                chosen |= s->expert[i] >= 0;
                stays |= kept[g * s->choices + i] != 0;
            }
            s->lost[g * s->shape.ranks + t / s->shape.tokens] += chosen && !stays;
        }
    }
    return SPW_OK;
}

spw_status spw_selection_lost_tokens(spw_selection *s, const uint64_t **lost) {
    *lost = s->lost;
    if (s->by_counts && !s->marked) return mark_by_keep(s);
    if (s->kept_before) return lost_after_keep(s);
    if (s->rule != SPW_DROP_BY_LIMIT) return SPW_OK;
    if (s->flow[0].limit == NULL) {
        memset(s->lost, 0, s->placement.ranks * sizeof *s->lost);
        return SPW_OK;
    }
    return spw_counts_lost_tokens(s->counts, s->record, s->source, s->limit,
                                  s->scheme->type->routing.limit_per_sequence, s->lost);
}
