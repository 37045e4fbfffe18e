#include "sim/routing/segment_counts.h"

#include "base/grow.h"
#include "base/memory.h"
#include "traces/generate/made_trace.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Figures for which a second thread is woken: fewer are there before it is. */
enum { FIGURES_SHARED = 1 << 15 };

/* One piece of the record. */
typedef struct piece {
    uint64_t first;
    uint32_t tokens;
} piece;

struct spw_segment_counts {
    spw_placement placement;
    size_t width; /* figures of a piece: experts, then ranks of a group, then nodes of a group */
    piece *piece; /* [pieces] */
    size_t pieces, piece_capacity;
    uint32_t *
        index; /* [index_places] 1 + a piece, at the first free place from where its number points; 0: none */
    size_t index_places; /* a power of 2 */
    uint32_t *figure;    /* [pieces][width] */
    size_t figure_capacity;
    bool keeps;
};

spw_status spw_segment_counts_create(spw_placement placement, spw_segment_counts **out) {
    const spw_status status = SPW_ALLOC(1, out);
    if (status == SPW_OK) (*out)->placement = placement;
    return status;
}

void spw_segment_counts_destroy(spw_segment_counts *c) {
    if (c == NULL) return;
    spw_free(c->piece);
    spw_free(c->index);
    spw_free(c->figure);
    spw_free(c);
}

void spw_segment_counts_keep(spw_segment_counts *c) { c->keeps = true; }

void spw_segment_counts_forget(spw_segment_counts *c) { c->pieces = 0; }

static int by_place(const void *left, const void *right) {
    const piece *a = left, *b = right;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->tokens > b->tokens) - (a->tokens < b->tokens);
}

/* Where a piece stands in the index, or would. */
static uint32_t *index_of(const spw_segment_counts *c, uint64_t first, uint32_t tokens) {
    size_t at = (size_t)((first * UINT64_C(0x9e3779b97f4a7c15) + tokens) >> 32) & (c->index_places - 1);
    for (; c->index[at] > 0; at = (at + 1) & (c->index_places - 1)) {
        const piece *p = &c->piece[c->index[at] - 1];
        if (p->first == first && p->tokens == tokens) break;
    }
    return &c->index[at];
}

/* The row of its figures; NULL: it is not counted. */
static const uint32_t *find(const spw_segment_counts *c, const spw_segment *segment) {
    const uint32_t at = c->pieces > 0 ? *index_of(c, segment->first, segment->tokens) : 0;
    return at > 0 ? c->figure + (at - 1) * c->width : NULL;
}

/* Nodes of a group are numbered from its first one: figures by node are the same in every group only if groups and nodes
 * begin together. */
static bool groups_are_alike(const spw_placement *p) {
    return p->group_ranks % p->gpus_per_node == 0 || p->gpus_per_node % p->group_ranks == 0;
}

bool spw_segment_counts_law(const spw_placement *p, spw_expert_blocks *out) {
    const size_t sharers = p->expert_tensor > 0 ? p->expert_tensor : 1, node = p->gpus_per_node;
    const bool one = node >= p->group_ranks;
    if (!groups_are_alike(p) || (!one && node % sharers != 0)) return false;
    out->rank = p->experts * sharers / p->group_ranks;
    out->node = one ? p->experts : out->rank * (node / sharers);
    return true;
}

bool spw_segment_counts_know(const spw_segment_counts *c, const spw_layout *layout) {
    const size_t segments = layout->begin[layout->ranks];
    if (c->pieces == 0 || segments == 0 || !groups_are_alike(&c->placement)) return false;
    for (size_t i = 0; i < segments; i++)
        if (find(c, &layout->segment[i]) == NULL) return false;
    return true;
}

size_t spw_segment_counts_bytes(const spw_segment_counts *c) {
    return c->piece_capacity * sizeof *c->piece + c->figure_capacity * sizeof *c->figure +
           c->index_places * sizeof *c->index;
}

/* Whether this piece was the last one seen of those that share its place; most repetitions are found, so few are sorted. */
enum { SEEN_BITS = 14 };
static bool seen_just_now(piece *seen, unsigned bits, const spw_segment *s) {
    piece *at = &seen[(s->first * 0x9e3779b97f4a7c15u + s->tokens) >> (64 - bits)];
    if (at->tokens == s->tokens && at->first == s->first) return true;
    *at = (piece){s->first, s->tokens};
    return false;
}

/* Appends the layout's pieces that are not known yet, sorted and once each; *fresh says how many. */
static spw_status collect(spw_segment_counts *c, const spw_layout *layout, size_t *fresh) {
    const size_t segments = layout->begin[layout->ranks], most = c->pieces + segments;
    size_t end = c->pieces, unique = c->pieces;
    unsigned bits = 1;
    piece *seen = NULL;
    if (most > c->piece_capacity) {
        const spw_status grown = SPW_RESIZE(most, &c->piece);
        if (grown != SPW_OK) return grown;
        c->piece_capacity = most;
    }
    while (bits < SEEN_BITS && segments >> bits > 0) bits++;
    const spw_status status = SPW_ALLOC((size_t)1 << bits, &seen);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < segments; i++) {
        const spw_segment *s = &layout->segment[i];
        if (!seen_just_now(seen, bits, s) && find(c, s) == NULL)
            c->piece[end++] = (piece){s->first, s->tokens};
    }
    spw_free(seen);
    qsort(c->piece + c->pieces, end - c->pieces, sizeof *c->piece, by_place);
    for (size_t i = c->pieces; i < end; i++) {
        if (unique > c->pieces && by_place(&c->piece[unique - 1], &c->piece[i]) == 0) continue;
        c->piece[unique++] = c->piece[i];
    }
    *fresh = unique - c->pieces;
    return SPW_OK;
}

spw_status spw_segment_counts_need(spw_segment_counts *c, const spw_layout *layout, size_t *bytes) {
    const size_t width =
        c->placement.experts + 2 * c->placement.group_ranks; /* a group has no more nodes than ranks */
    size_t fresh = 0;
    *bytes = SIZE_MAX;
    if (!groups_are_alike(&c->placement)) return SPW_OK;
    const spw_status status = collect(c, layout, &fresh);
    *bytes = fresh * 2 * width * sizeof *c->figure;
    return status;
}

/* Room for the figures of `fresh` pieces more. */
static spw_status make_room(spw_segment_counts *c, size_t fresh) {
    return SPW_GROW(c->pieces * c->width, (c->pieces + fresh) * c->width, &c->figure_capacity, &c->figure);
}

/* Figures of the `fresh` pieces at the end, as if each were a rank of its own. */
static spw_status count_tokens(spw_segment_counts *c, const spw_trace_record *record, size_t fresh) {
    const size_t group = c->placement.group_ranks, experts = c->placement.experts,
                 ranks = (fresh + group - 1) / group * group;
    spw_placement placement = c->placement;
    spw_counts *counts = NULL;
    spw_layout *layout = NULL;
    spw_status status = SPW_OK;
    placement.ranks = ranks;
    SPW_TRY(spw_counts_create(placement, 1, &counts));
    SPW_TRY(spw_layout_create(ranks, 1, &layout));
    c->width = experts + group + counts->group_nodes;
    for (size_t i = 0; i < fresh; i++) {
        const piece *p = &c->piece[c->pieces + i];
        SPW_TRY(spw_layout_put(layout, i, (spw_segment){p->first, p->tokens, 0}));
    }
    spw_layout_close(layout);
    SPW_TRY(spw_counts_fill(counts, record, layout));
    SPW_TRY(make_room(c, fresh));
    for (size_t i = 0; i < fresh; i++) {
        uint32_t *row = c->figure + (c->pieces + i) * c->width;
        memcpy(row, counts->routed + i * experts, experts * sizeof *row);
        memcpy(row + experts, counts->distinct + i * group, group * sizeof *row);
        memcpy(row + experts + group, counts->distinct_node + i * counts->group_nodes,
               counts->group_nodes * sizeof *row);
    }

cleanup:
    spw_counts_destroy(counts);
    spw_layout_destroy(layout);
    return status;
}

/* Pieces from `at` on that are drawn together: of as many tokens each. Returns how many. */
static size_t draw_alike(const spw_segment_counts *c, const spw_piece_law *law, void *scratch, size_t at,
                         size_t end) {
    const spw_placement *p = &c->placement;
    uint64_t first[SPW_PIECES_AT_ONCE];
    spw_token_counts out[SPW_PIECES_AT_ONCE];
    size_t pieces = 0;
    for (; at + pieces < end && c->piece[at + pieces].tokens == c->piece[at].tokens; pieces++) {
        uint32_t *row = c->figure + (at + pieces) * c->width;
        first[pieces] = c->piece[at + pieces].first;
        out[pieces] = (spw_token_counts){.expert = row,
                                         .rank = row + p->experts,
                                         .node = row + p->experts + p->group_ranks,
                                         .rank_stride = p->expert_tensor > 0 ? p->expert_tensor : 1};
        memset(row, 0, c->width * sizeof *row);
    }
    spw_piece_law_draw(law, scratch, first, pieces, c->piece[at].tokens, out);
    return pieces;
}

/* The same by the law of the tokens. */
static spw_status draw(spw_segment_counts *c, const spw_piece_law *law, size_t fresh) {
    const spw_placement *p = &c->placement;
    const size_t bytes = (spw_piece_law_bytes(law) + 63) / 64 * 64, all = c->pieces + fresh;
    unsigned char *scratch = NULL;
    spw_status status = SPW_OK;
    c->width = p->experts + p->group_ranks + spw_placement_node(p, 0, p->group_ranks - 1) + 1;
    SPW_TRY(make_room(c, fresh));
    SPW_TRY(SPW_RESIZE(bytes * (size_t)omp_get_max_threads(), &scratch));
#pragma omp parallel if (fresh * c->width > FIGURES_SHARED)
    {
        void *const own = scratch + (size_t)omp_get_thread_num() * bytes;
        spw_piece_law_begin(law, own);
#pragma omp for schedule(dynamic, 1)
        for (size_t at = c->pieces; at < all; at += SPW_PIECES_AT_ONCE) {
            const size_t end = all - at < SPW_PIECES_AT_ONCE ? all : at + SPW_PIECES_AT_ONCE;
            for (size_t i = at; i < end;) i += draw_alike(c, law, own, i, end);
        }
    }

cleanup:
    spw_free(scratch);
    return status;
}

/* An index with at least as many free places as pieces. */
static spw_status make_index(spw_segment_counts *c, size_t pieces) {
    size_t places = 64;
    while (places < 2 * pieces) places *= 2;
    spw_free(c->index);
    c->index = NULL;
    c->index_places = places;
    return SPW_ALLOC(places, &c->index);
}

static spw_status count(spw_segment_counts *c, const spw_trace_record *record, size_t fresh) {
    size_t first = c->pieces;
    spw_status status = record->law != NULL ? draw(c, record->law, fresh) : count_tokens(c, record, fresh);
    if (status == SPW_OK && (first == 0 || c->index_places < 2 * (first + fresh))) {
        status = make_index(c, first + fresh);
        first = 0;
    }
    if (status != SPW_OK) return status;
    c->pieces += fresh;
    for (size_t i = first; i < c->pieces; i++)
        *index_of(c, c->piece[i].first, c->piece[i].tokens) = (uint32_t)(i + 1);
    return SPW_OK;
}

/* `first`: nothing is there yet. */
static void segment_counts_add(bool first, uint32_t *sum, const uint32_t *row, size_t count_) {
    if (first) {
        memcpy(sum, row, count_ * sizeof *sum);
        return;
    }
    for (size_t i = 0; i < count_; i++) sum[i] += row[i];
}

/* The sum of `count_` figures from `at` on of the rank's segments. */
static void sum_figures(const spw_segment_counts *c, const spw_layout *layout, size_t rank, size_t at,
                        size_t count_, uint32_t *sum) {
    const size_t begin = layout->begin[rank], end = layout->begin[rank + 1];
    if (begin == end) memset(sum, 0, count_ * sizeof *sum);
    for (size_t i = begin; i < end; i++)
        segment_counts_add(i == begin, sum, find(c, &layout->segment[i]) + at, count_);
}

/* Every sequence of the rank, by its first segment and nothing before. sequence [sequences][experts] */
static void sum_sequences(const spw_segment_counts *c, const spw_layout *layout, size_t rank,
                          size_t sequences, uint32_t *sequence) {
    const size_t experts = c->placement.experts;
    size_t set = 0; /* sequences, from the first on */
    for (size_t i = layout->begin[rank]; i < layout->begin[rank + 1]; i++) {
        const size_t at = layout->segment[i].sequence;
        const uint32_t *row = find(c, &layout->segment[i]);
        const bool first = at >= set;
        if (first) memset(sequence + set * experts, 0, (at - set) * experts * sizeof *sequence);
        segment_counts_add(first, sequence + at * experts, row, experts);
        if (first) set = at + 1;
    }
    memset(sequence + set * experts, 0, (sequences - set) * experts * sizeof *sequence);
}

/* Sets all that a line has, of a rank to which it belongs. */
static void sum_line(const spw_segment_counts *c, spw_counts *counts, const spw_layout *layout, size_t line,
                     size_t rank) {
    const size_t group = c->placement.group_ranks, experts = c->placement.experts,
                 nodes = counts->group_nodes, sequences = counts->sequences;
    uint32_t *routed = counts->routed + line * experts;
    if (counts->per_sequence != NULL)
        sum_sequences(c, layout, rank, sequences, counts->per_sequence + line * sequences * experts);
    if (counts->routed != counts->per_sequence) sum_figures(c, layout, rank, 0, experts, routed);
    if (counts->distinct == NULL) return;
    sum_figures(c, layout, rank, experts, group, counts->distinct + line * group);
    sum_figures(c, layout, rank, experts + group, nodes, counts->distinct_node + line * nodes);
}

/* Choices of so many tokens, none of which has more than there are experts: few tokens' fit into 32 bits. */
static uint64_t sum_choices(const uint32_t *routed, size_t experts, uint64_t tokens) {
    uint64_t sum = 0;
    uint32_t narrow = 0;
    const bool few = tokens <= UINT32_MAX / experts;
    for (size_t x = 0; x < experts && few; x++) narrow += routed[x];
    for (size_t x = 0; x < experts && !few; x++) sum += routed[x];
    return sum + narrow;
}

/* Tokens of a rank, and choices, which are the sum of its line. */
static void sum_tokens(spw_counts *counts, const spw_layout *layout, size_t rank) {
    const uint32_t *routed = spw_counts_routed_of(counts, rank);
    uint64_t tokens = 0;
    for (size_t i = layout->begin[rank]; i < layout->begin[rank + 1]; i++)
        tokens += layout->segment[i].tokens;
    counts->tokens[rank] = tokens;
    counts->assignments[rank] = sum_choices(routed, counts->placement.experts, tokens);
}

static bool hold_alike(const spw_layout *layout, size_t a, size_t b) {
    const spw_segment *left = layout->segment + layout->begin[a], *right = layout->segment + layout->begin[b];
    const size_t segments = layout->begin[a + 1] - layout->begin[a];
    if (layout->begin[b + 1] - layout->begin[b] != segments) return false;
    for (size_t i = 0; i < segments; i++)
        if (left[i].first != right[i].first || left[i].tokens != right[i].tokens ||
            left[i].sequence != right[i].sequence)
            return false;
    return true;
}

static uint64_t hash_of(const spw_layout *layout, size_t rank) {
    uint64_t hash = 0;
    for (size_t i = layout->begin[rank]; i < layout->begin[rank + 1]; i++) {
        const spw_segment *s = &layout->segment[i];
        hash = (hash ^ (hash >> 29) ^ s->first ^ (uint64_t)s->sequence << 40 ^ s->tokens) *
               UINT64_C(0x9e3779b97f4a7c15);
    }
    return hash;
}

/* Gives a line to the ranks that hold the same pieces of the record. first [ranks]: the first rank of every line. */
static spw_status share_lines(spw_counts *counts, const spw_layout *layout, uint32_t *first, size_t *lines) {
    const size_t ranks = counts->placement.ranks;
    size_t places = 2;
    uint32_t *at = NULL; /* the line after which a place is free */
    while (places < 2 * ranks) places *= 2;
    const spw_status status = SPW_ALLOC(places, &at);
    if (status != SPW_OK) return status;
    *lines = 0;
    for (size_t rank = 0; rank < ranks; rank++) {
        size_t place = (hash_of(layout, rank) >> 20) & (places - 1);
        while (at[place] > 0 && !hold_alike(layout, first[at[place] - 1], rank))
            place = (place + 1) & (places - 1);
        if (at[place] == 0) {
            first[*lines] = (uint32_t)rank;
            at[place] = (uint32_t)++ * lines;
        }
        counts->line[rank] = at[place] - 1;
    }
    spw_free(at);
    counts->shared = true;
    return SPW_OK;
}

static spw_status fill(const spw_segment_counts *c, spw_counts *counts, const spw_layout *layout) {
    uint32_t *first = NULL;
    size_t lines = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(counts->placement.ranks, &first));
    SPW_TRY(share_lines(counts, layout, first, &lines));
    SPW_TRY(spw_counts_reserve(counts, lines));
#pragma omp parallel for schedule(static) if (layout->begin[layout->ranks] * c->width > FIGURES_SHARED)
    for (size_t line = 0; line < lines; line++) {
        sum_line(c, counts, layout, line, first[line]);
        sum_tokens(counts, layout, first[line]);
    }
    for (size_t rank = 0; rank < counts->placement.ranks; rank++) {
        counts->tokens[rank] = counts->tokens[first[counts->line[rank]]];
        counts->assignments[rank] = counts->assignments[first[counts->line[rank]]];
    }

cleanup:
    spw_free(first);
    return status;
}

spw_status spw_segment_counts_fill(spw_segment_counts *c, spw_counts *counts, const spw_trace_record *record,
                                   const spw_layout *layout) {
    const size_t segments = layout->begin[layout->ranks];
    size_t fresh = 0;
    spw_status status = SPW_OK;
    if (segments == 0 || !groups_are_alike(&c->placement)) return spw_counts_fill(counts, record, layout);
    if (!spw_segment_counts_know(c, layout)) status = collect(c, layout, &fresh);
    if (status == SPW_OK && fresh == segments && c->pieces == 0 && !c->keeps && record->law == NULL)
        return spw_counts_fill(counts, record, layout);
    if (status == SPW_OK && fresh > 0) status = count(c, record, fresh);
    if (status != SPW_OK) return spw_fail_within(status, "routing counts of a drawn batch");
    return fill(c, counts, layout);
}
