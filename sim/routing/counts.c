#include "sim/routing/counts.h"

#include "base/memory.h"
#include "sim/routing/expert_sets.h"
#include "traces/trace.h"

#include <string.h>

static const size_t MOST_CELLS = (size_t)1 << 30; /* 4 GiB */

enum {
    WORD_BITS = 64,
    BLOCK = 252 /* tokens; a byte-wide counter must not overflow, and 63 words of narrow sets are 21 adders */
};

spw_status spw_layout_create(size_t ranks, size_t sequences, spw_layout **out) {
    spw_status status = SPW_ALLOC(1, out);
    if (status != SPW_OK) return status;
    (*out)->ranks = ranks;
    (*out)->sequences = sequences;
    status = SPW_ALLOC(ranks + 1, &(*out)->begin);
    if (status != SPW_OK) {
        spw_layout_destroy(*out);
        *out = NULL;
    }
    return status;
}

spw_status spw_layout_put(spw_layout *layout, size_t rank, spw_segment segment) {
    for (; layout->begun < rank + 1; layout->begun++)
        layout->begin[layout->begun + 1] = layout->begin[layout->begun];
    const size_t used = layout->begin[rank + 1];
    if (used == layout->capacity) {
        const size_t capacity = used == 0 ? 256 : used * 2;
        const spw_status status = SPW_RESIZE(capacity, &layout->segment);
        if (status != SPW_OK) return status;
        layout->capacity = capacity;
    }
    layout->segment[used] = segment;
    layout->begin[rank + 1] = used + 1;
    return SPW_OK;
}

void spw_layout_close(spw_layout *layout) {
    for (size_t r = layout->begun + 1; r <= layout->ranks; r++)
        layout->begin[r] = layout->begin[layout->begun];
}

spw_status spw_layout_append(spw_layout *layout, size_t rank, spw_segment segment) {
    const spw_status status = spw_layout_put(layout, rank, segment);
    if (status == SPW_OK) spw_layout_close(layout);
    return status;
}

void spw_layout_clear(spw_layout *layout) {
    memset(layout->begin, 0, (layout->ranks + 1) * sizeof *layout->begin);
    layout->begun = 0;
}

void spw_layout_destroy(spw_layout *layout) {
    if (layout == NULL) return;
    spw_free(layout->begin);
    spw_free(layout->segment);
    spw_free(layout);
}

static size_t most_nodes(const spw_placement *p) {
    size_t most = 1;
    for (size_t g = 0; g < p->ranks / p->group_ranks; g++) {
        size_t nodes = spw_placement_node(p, g, p->group_ranks - 1) + 1;
        most = nodes > most ? nodes : most;
    }
    return most;
}

spw_status spw_counts_create(spw_placement placement, size_t sequences, spw_counts **out) {
    spw_status status = spw_counts_create_parts(placement, sequences, SPW_COUNTS_ALL, out);
    if (status == SPW_OK && *out != NULL) status = spw_counts_reserve(*out, placement.ranks);
    if (status == SPW_OK) return SPW_OK;
    spw_counts_destroy(*out);
    *out = NULL;
    return status;
}

spw_status spw_counts_create_parts(spw_placement p, size_t sequences, spw_counts_parts parts,
                                   spw_counts **out) {
    spw_status status = SPW_OK;
    spw_counts *c = NULL;
    size_t rows = 0;
    *out = NULL;
    if (p.ranks == 0 || p.group_ranks == 0 || p.gpus_per_node == 0 || p.experts == 0 || sequences == 0 ||
        p.ranks % p.group_ranks != 0 || p.group_ranks % spw_placement_sharers(&p) != 0 ||
        p.experts % (p.group_ranks / spw_placement_sharers(&p)) != 0) {
        return spw_fail(SPW_ECONFIG,
                        "%zu ranks in groups of %zu for %zu experts cannot be: the expert-parallel size must "
                        "divide both",
                        p.ranks, p.group_ranks, p.experts);
    }
    if (!spw_mul_size(p.ranks, sequences, &rows) || !spw_mul_size(rows, p.experts, &rows)) {
        return spw_fail(SPW_ENOMEM, "%zu ranks x %zu sequences x %zu experts overflow", p.ranks, sequences,
                        p.experts);
    }
    if (rows > MOST_CELLS) {
        return spw_fail(SPW_ECONFIG,
                        "%zu sequences a GPU on %zu ranks with %zu experts are %zu counts, above the %zu "
                        "allowed; use fewer "
                        "sequences",
                        sequences, p.ranks, p.experts, rows, MOST_CELLS);
    }
    SPW_TRY(SPW_ALLOC(1, &c));
    c->placement = p;
    c->sequences = sequences;
    c->group_nodes = most_nodes(&p);
    c->parts = parts;
    SPW_TRY(SPW_ALLOC(p.ranks, &c->line));
    SPW_TRY(SPW_ALLOC(p.ranks, &c->tokens));
    SPW_TRY(SPW_ALLOC(p.ranks, &c->assignments));
    *out = c;
    c = NULL;

cleanup:
    spw_counts_destroy(c);
    return status;
}

static void free_lines(spw_counts *c) {
    if (c->routed != c->per_sequence) spw_free(c->routed);
    spw_free(c->per_sequence), spw_free(c->distinct), spw_free(c->distinct_node);
    c->routed = c->per_sequence = c->distinct = c->distinct_node = NULL;
    c->room = 0;
}

spw_status spw_counts_reserve(spw_counts *c, size_t lines) {
    const spw_placement *p = &c->placement;
    spw_status status = SPW_OK;
    if (lines <= c->room) return SPW_OK;
    free_lines(c);
    if (c->sequences > 1 && (c->parts & SPW_COUNTS_SEQUENCES) != 0)
        SPW_TRY(SPW_RESIZE(lines * c->sequences * p->experts, &c->per_sequence));
    SPW_TRY(SPW_RESIZE(lines * p->experts, &c->routed));
    if (c->sequences == 1) c->per_sequence = c->routed;
    if ((c->parts & SPW_COUNTS_DISTINCT) != 0) {
        SPW_TRY(SPW_ALLOC(lines * p->group_ranks, &c->distinct));
        SPW_TRY(SPW_ALLOC(lines * c->group_nodes, &c->distinct_node));
    }
    c->room = lines;

cleanup:
    return status;
}

void spw_counts_destroy(spw_counts *c) {
    if (c == NULL) return;
    free_lines(c);
    spw_free(c->line);
    spw_free(c->tokens);
    spw_free(c->assignments);
    spw_free(c);
}

/* --- One rank
 * ------------------------------------------------------------------------------------------------ */

/* A token's set of destinations is a word: bit r = rank r of the group, and above the ranks one bit a node.
 * Sets of a block are summed bit by bit ("positional population count") in eight words of byte-wide counters.
 * Narrow sets stand several to a word, so that eight ranks cost a quarter of sixty-four. */
typedef struct bit_sums {
    uint64_t byte[8]; /* byte j of byte[i] counts bit i of every j-th byte */
} bit_sums;

static void sum_bits(const uint64_t *word, size_t words, bit_sums *sums) {
    const uint64_t ones = 0x0101010101010101u;
    size_t i = 0;
    for (; i + 3 <= words;
         i += 3) { /* a full adder: three words become one of weight 1 and one of weight 2 */
        uint64_t a = word[i], b = word[i + 1], c = word[i + 2], half = a ^ b;
        uint64_t one = half ^ c, two = (a & b) | (half & c);
        for (int bit = 0; bit < 8; bit++)
            sums->byte[bit] += ((one >> bit) & ones) + (((two >> bit) & ones) << 1);
    }
    for (; i < words; i++) {
        for (int bit = 0; bit < 8; bit++) sums->byte[bit] += (word[i] >> bit) & ones;
    }
}

static void spread_sums(const bit_sums *sums, size_t set_bytes, uint32_t *total) {
    for (size_t j = 0; j < sizeof(uint64_t); j++) {
        for (size_t bit = 0; bit < 8; bit++)
            total[j % set_bytes * 8 + bit] += (uint32_t)(sums->byte[bit] >> (j * 8)) & 0xFFu;
    }
}

/* What count_block needs to know; constants where it is inlined, so that its loops unroll. */
typedef struct block_shape {
    size_t id_bytes, top_k, set_bytes;
    bool count; /* the experts too */
} block_shape;

/* Counts the experts of `tokens` tokens into `row` and leaves each token's destination set in `set`. */
static inline __attribute__((always_inline)) void count_block(block_shape shape, const void *ids,
                                                              size_t tokens, size_t experts,
                                                              const uint64_t *bit, uint32_t *row, void *set) {
    const uint8_t *narrow = ids;
    const uint16_t *wide = ids;
    for (size_t t = 0; t < tokens; t++) {
        uint64_t destinations = 0;
        for (size_t k = 0; k < shape.top_k; k++) {
            size_t x = shape.id_bytes == 1 ? narrow[t * shape.top_k + k] : wide[t * shape.top_k + k];
            if (x >= experts) continue; /* missing */
            if (shape.count) row[x]++;
            destinations |= bit[x];
        }
        if (shape.set_bytes == 2) {
            ((uint16_t *)set)[t] = (uint16_t)destinations;
        } else {
            ((uint64_t *)set)[t] = destinations;
        }
    }
}

static void count_any(block_shape shape, const void *ids, size_t tokens, size_t experts, const uint64_t *bit,
                      uint32_t *row, void *set) {
#define CASE(width, k, bytes) \
    if (shape.id_bytes == (width) && shape.top_k == (k) && shape.set_bytes == (bytes) && shape.count) { \
        count_block((block_shape){width, k, bytes, true}, ids, tokens, experts, bit, row, set); \
        return; \
    }
#define CASES(k) \
    do { \
        CASE(1, k, 2) CASE(1, k, 8) CASE(2, k, 2) CASE(2, k, 8) \
    } while (0)
    CASES(1);
    CASES(2);
    CASES(4);
    CASES(6);
    CASES(8);
#undef CASES
#undef CASE
    if (shape.id_bytes == 1) {
        count_block((block_shape){1, shape.top_k, shape.set_bytes, shape.count}, ids, tokens, experts, bit,
                    row, set);
    } else {
        count_block((block_shape){2, shape.top_k, shape.set_bytes, shape.count}, ids, tokens, experts, bit,
                    row, set);
    }
}

/* What one thread needs. */
typedef struct count_tables {
    size_t words;          /* of a set of destinations: the ranks of the group, then its nodes */
    uint64_t *expert_bit;  /* [words][experts] the destinations of an expert */
    uint32_t *destination; /* [words * 64] tokens that reach each */
    spw_expert_sets *sets; /* NULL: no segment is counted so */
} count_tables;

static void fill_bits(const spw_placement *p, size_t group, const count_tables *t) {
    memset(t->expert_bit, 0, t->words * p->experts * sizeof *t->expert_bit);
    for (size_t x = 0; x < p->experts; x++) {
        size_t rank = spw_placement_member(p, x);
        size_t node = p->group_ranks + spw_placement_node(p, group, rank);
        t->expert_bit[rank / WORD_BITS * p->experts + x] |= (uint64_t)1 << rank % WORD_BITS;
        t->expert_bit[node / WORD_BITS * p->experts + x] |= (uint64_t)1 << node % WORD_BITS;
    }
}

static const void *row_of(const spw_trace_record *record, uint64_t token) {
    return (const char *)record->expert_id + token * record->top_k * record->id_bytes;
}

/* `word` chooses the destinations, and only word 0 counts the experts. */
static void count_tokens(spw_counts *c, const spw_trace_record *record, uint64_t first, size_t tokens,
                         size_t word, const count_tables *t, uint32_t *row) {
    const size_t experts = c->placement.experts;
    const size_t destinations = c->placement.group_ranks + c->group_nodes;
    const block_shape shape = {record->id_bytes, record->top_k, destinations <= 16 ? 2 : 8, word == 0};
    uint64_t set[BLOCK];
    for (size_t done = 0; done < tokens; done += BLOCK) {
        const size_t some = tokens - done < BLOCK ? tokens - done : BLOCK;
        const size_t words = (some * shape.set_bytes + sizeof *set - 1) / sizeof *set;
        bit_sums sums = {{0}};
        set[words - 1] = 0; /* the last word may be filled in part */
        count_any(shape, row_of(record, first + done), some, experts, t->expert_bit + word * experts, row,
                  set);
        sum_bits(set, words, &sums);
        spread_sums(&sums, shape.set_bytes, t->destination + word * WORD_BITS);
    }
}

/* The experts alone, whatever ranks have them. */
static void count_experts(const spw_counts *c, const spw_trace_record *record, const spw_segment *segment,
                          uint32_t *row) {
    const void *ids = row_of(record, segment->first);
    const uint8_t *narrow = ids;
    const uint16_t *wide = ids;
    const size_t choices = segment->tokens * record->top_k;
    for (size_t i = 0; i < choices; i++) {
        const size_t x = record->id_bytes == 1 ? narrow[i] : wide[i];
        if (x < c->placement.experts) row[x]++;
    }
}

static void count_rank(spw_counts *c, const spw_trace_record *record, const spw_layout *layout, size_t rank,
                       const count_tables *t) {
    if (t->words > 0) memset(t->destination, 0, t->words * WORD_BITS * sizeof *t->destination);
    for (size_t i = layout->begin[rank]; i < layout->begin[rank + 1]; i++) {
        const spw_segment *segment = &layout->segment[i];
        uint32_t *row =
            c->per_sequence != NULL
                ? c->per_sequence + (rank * c->sequences + segment->sequence) * c->placement.experts
                : c->routed + rank * c->placement.experts;
        size_t done = 0;
        c->tokens[rank] += segment->tokens;
        if (t->words == 0) {
            count_experts(c, record, segment, row);
            continue;
        }
        if (t->sets != NULL)
            done = spw_expert_sets_add(t->sets, row_of(record, segment->first), segment->tokens, row,
                                       t->destination);
        for (size_t word = 0; word < t->words; word++)
            count_tokens(c, record, segment->first + done, segment->tokens - done, word, t, row);
    }
}

static void finish_rank(spw_counts *c, size_t rank, const uint32_t *destination) {
    const spw_placement *p = &c->placement;
    uint32_t *routed = c->routed + rank * p->experts;
    for (size_t q = 0; q < c->sequences && c->sequences > 1 && c->per_sequence != NULL; q++) {
        const uint32_t *row = c->per_sequence + (rank * c->sequences + q) * p->experts;
        for (size_t x = 0; x < p->experts; x++) routed[x] += row[x];
    }
    for (size_t x = 0; x < p->experts; x++) c->assignments[rank] += routed[x];
    if (c->distinct == NULL || destination == NULL) return;
    memcpy(c->distinct + rank * p->group_ranks, destination, p->group_ranks * sizeof *destination);
    memcpy(c->distinct_node + rank * c->group_nodes, destination + p->group_ranks,
           c->group_nodes * sizeof *destination);
}

static void zero(spw_counts *c) {
    const spw_placement *p = &c->placement;
    if (c->per_sequence != NULL)
        memset(c->per_sequence, 0, p->ranks * c->sequences * p->experts * sizeof *c->per_sequence);
    if (c->routed != c->per_sequence) memset(c->routed, 0, p->ranks * p->experts * sizeof *c->routed);
    memset(c->tokens, 0, p->ranks * sizeof *c->tokens);
    memset(c->assignments, 0, p->ranks * sizeof *c->assignments);
}

static void free_tables(count_tables *t) {
    spw_free(t->expert_bit);
    spw_free(t->destination);
    spw_expert_sets_destroy(t->sets);
}

static spw_status make_tables(const spw_counts *c, const spw_trace_record *record, count_tables *t) {
    spw_status status = SPW_OK;
    if ((c->parts & SPW_COUNTS_DISTINCT) == 0) return SPW_OK;
    t->words = (c->placement.group_ranks + c->group_nodes + WORD_BITS - 1) / WORD_BITS;
    SPW_TRY(SPW_ALLOC(t->words * c->placement.experts, &t->expert_bit));
    SPW_TRY(SPW_ALLOC(t->words * WORD_BITS, &t->destination));
    SPW_TRY(spw_expert_sets_create(c, record, &t->sets));

cleanup:
    return status;
}

spw_status spw_counts_fill(spw_counts *c, const spw_trace_record *record, const spw_layout *layout) {
    const spw_placement *p = &c->placement;
    const size_t positions = spw_placement_positions(p);
    bool failed = false;
    const spw_status status = spw_counts_reserve(c, p->ranks);
    if (status != SPW_OK) return status;
    c->shared = false;
    zero(c);
#pragma omp parallel
    {
        count_tables tables = {.words = 0};
        const bool good = make_tables(c, record, &tables) == SPW_OK;
        if (!good) {
#pragma omp atomic write
            failed = true;
        }
        size_t filled = SIZE_MAX;
#pragma omp for schedule(dynamic, 1)
        for (size_t rank = 0; rank < p->ranks; rank++) {
            if (!good) continue;
            const size_t group = rank / p->group_ranks % positions; /* lies on its nodes as this one */
            if (group != filled && tables.words > 0) {
                fill_bits(p, group, &tables);
                if (tables.sets != NULL) spw_expert_sets_set_group(tables.sets, group);
            }
            filled = group;
            count_rank(c, record, layout, rank, &tables);
            finish_rank(c, rank, tables.destination);
        }
        free_tables(&tables);
    }
    return failed ? spw_fail(SPW_ENOMEM, "cannot allocate the tables of the routing counts") : SPW_OK;
}

/* --- Up to a capacity --- */

static size_t lines_of(const spw_counts *c) {
    size_t lines = 0;
    if (!c->shared) return c->placement.ranks;
    for (size_t r = 0; r < c->placement.ranks; r++) lines = c->line[r] >= lines ? c->line[r] + 1u : lines;
    return lines;
}

/* Returns the sum of what is left. */
static uint64_t limit_line(const uint32_t *routed, size_t experts, uint32_t most, uint32_t *out) {
    uint64_t sum = 0;
    for (size_t x = 0; x < experts; x++) {
        out[x] = routed[x] < most ? routed[x] : most;
        sum += out[x];
    }
    return sum;
}

spw_status spw_counts_limit(const spw_counts *c, size_t capacity, spw_counts *out) {
    const size_t ranks = c->placement.ranks, experts = c->placement.experts, lines = lines_of(c);
    const uint32_t most = capacity < UINT32_MAX ? (uint32_t)capacity : UINT32_MAX;
    uint64_t *sum = NULL; /* of a line */
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(lines, &sum));
    SPW_TRY(spw_counts_reserve(out, lines));
    for (size_t line = 0; line < lines; line++)
        sum[line] = limit_line(c->routed + line * experts, experts, most, out->routed + line * experts);
    out->shared = c->shared;
    memcpy(out->tokens, c->tokens, ranks * sizeof *out->tokens);
    if (c->shared) memcpy(out->line, c->line, ranks * sizeof *out->line);
    for (size_t r = 0; r < ranks; r++) out->assignments[r] = sum[spw_counts_line_of(out, r)];

cleanup:
    spw_free(sum);
    return status;
}

/* --- Tokens that lose every choice
 * ---------------------------------------------------------------------------- */

static uint64_t lost_of_rank(const spw_trace_record *record, const spw_layout *layout, size_t rank,
                             size_t experts, const uint32_t *limit, bool per_sequence, uint32_t *seen) {
    uint64_t lost = 0;
    uint32_t unit = 0;
    for (size_t i = layout->begin[rank]; i < layout->begin[rank + 1]; i++) {
        const spw_segment *segment = &layout->segment[i];
        if (i == layout->begin[rank] || (per_sequence && segment->sequence != unit))
            memset(seen, 0, experts * sizeof *seen);
        unit = segment->sequence;
        const uint32_t *bound = limit + (per_sequence ? unit * experts : 0);
        for (size_t t = 0; t < segment->tokens; t++) {
            const void *ids = row_of(record, segment->first + t);
            size_t chosen = 0, kept = 0;
            for (size_t k = 0; k < record->top_k; k++) {
                size_t x = record->id_bytes == 1 ? ((const uint8_t *)ids)[k] : ((const uint16_t *)ids)[k];
                if (x >= experts) continue;
                chosen++;
                kept += seen[x]++ < bound[x];
            }
            lost += chosen > 0 && kept == 0;
        }
    }
    return lost;
}

spw_status spw_counts_lost_tokens(const spw_counts *c, const spw_trace_record *record,
                                  const spw_layout *layout, const uint32_t *limit, bool per_sequence,
                                  uint64_t *lost) {
    const size_t experts = c->placement.experts, units = per_sequence ? c->sequences : 1;
    bool failed = false;
#pragma omp parallel
    {
        uint32_t *seen = NULL;
        bool good = SPW_ALLOC(experts, &seen) == SPW_OK;
        if (!good) {
#pragma omp atomic write
            failed = true;
        }
#pragma omp for schedule(dynamic, 1)
        for (size_t rank = 0; rank < c->placement.ranks; rank++) {
            if (good) {
                lost[rank] = lost_of_rank(record, layout, rank, experts, limit + rank * units * experts,
                                          per_sequence, seen);
            }
        }
        spw_free(seen);
    }
    return failed ? spw_fail(SPW_ENOMEM, "cannot allocate the table of kept choices") : SPW_OK;
}
