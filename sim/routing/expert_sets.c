#include "sim/routing/expert_sets.h"

#include "base/memory.h"
#include "traces/trace.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

/* A block is as many vectors as four words of carries hold: bits of weight 1, 2, 4 and 8. Lanes a byte wide take 16 blocks. */
enum {
    WORD_BITS = 64,
    MOST_WORDS = 4, /* 256 experts; beyond, a histogram is as fast */
    MOST_EXPERTS = WORD_BITS * MOST_WORDS,
    LANES = 8, /* tokens of a vector */
    BLOCK = 15,
    WEIGHTS = 4,
    BLOCKS = 16, /* before sums are taken out of their lanes: 16 x 15 < 256 */
    FIELDS = 8,  /* of a byte */
    LEAST_TOKENS = 512,
    LINE_BYTES = 64,
    AHEAD_BYTES = 2048
};

#define WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vbmi,avx512bitalg,gfni")))
#define INLINE static inline __attribute__((always_inline)) WIDE

/* Ranks or nodes as runs of `width` experts, a power of two. */
typedef struct fold {
    size_t width, count;              /* count: runs among the experts */
    unsigned shift;                   /* width is 1 << shift */
    uint32_t place[MOST_EXPERTS];     /* [count] which destination each is */
    uint32_t total[MOST_EXPERTS];     /* [count] tokens with an expert in it */
    __m512i lane[MOST_WORDS][FIELDS]; /* counters as wide as a run, but at least a byte and at most a word */
} fold;

struct spw_expert_sets {
    spw_placement placement;
    size_t experts, words, top_k, id_bytes;
    bool usable; /* for the group, and nothing was missing so far */
    fold rank, node;
    uint32_t total[MOST_EXPERTS];
    __m512i byte[MOST_WORDS][WEIGHTS];
    __m512i set[MOST_WORDS][BLOCK];
};

static size_t sharers_of(const spw_placement *p) { return p->expert_tensor > 0 ? p->expert_tensor : 1; }

static bool is_power_of_two(size_t value) { return value > 0 && (value & (value - 1)) == 0; }

/* Experts of a rank; a rank that has all of them is as wide as a power of two. */
static size_t rank_width(const spw_placement *p) {
    const size_t owners = p->group_ranks / sharers_of(p);
    size_t width = p->experts / owners;
    while (owners == 1 && !is_power_of_two(width)) width++;
    return width;
}

static bool has_vectors(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("gfni");
}

spw_status spw_expert_sets_create(const spw_counts *counts, const spw_trace_record *record,
                                  spw_expert_sets **out) {
    const spw_placement *p = &counts->placement;
    *out = NULL;
    if (!has_vectors() || p->experts > MOST_EXPERTS || !is_power_of_two(rank_width(p))) return SPW_OK;
    spw_expert_sets *sets = NULL;
    spw_status status = SPW_ALLOC(1, &sets);
    if (status != SPW_OK) return status;
    sets->placement = *p;
    sets->experts = p->experts;
    sets->words = (p->experts + WORD_BITS - 1) / WORD_BITS;
    sets->top_k = record->top_k;
    sets->id_bytes = record->id_bytes;
    *out = sets;
    return SPW_OK;
}

void spw_expert_sets_destroy(spw_expert_sets *sets) { spw_free(sets); }

/* --- Where the experts of a group are --- */

static size_t node_of(const spw_placement *p, size_t group, size_t expert) {
    return spw_placement_node(p, group, spw_placement_member(p, expert));
}

/* Whether nodes are runs of as many experts each; the last may have fewer. */
static bool set_nodes(spw_expert_sets *sets, size_t group) {
    const spw_placement *p = &sets->placement;
    fold *f = &sets->node;
    size_t width = 1;
    while (width < sets->experts && node_of(p, group, width) == node_of(p, group, 0)) width++;
    if (width == sets->experts) { /* one node */
        while (!is_power_of_two(width)) width++;
    }
    f->width = width;
    f->shift = (unsigned)__builtin_ctzll(width);
    f->count = (sets->experts + width - 1) / width;
    for (size_t x = 0; x < sets->experts; x++) {
        const size_t node = node_of(p, group, x);
        if (x % width == 0) f->place[x / width] = (uint32_t)(p->group_ranks + node);
        if (f->place[x / width] != p->group_ranks + node) return false;
        if (x % width == 0 && x > 0 && f->place[x / width - 1] == f->place[x / width]) return false;
    }
    return is_power_of_two(width);
}

void spw_expert_sets_set_group(spw_expert_sets *sets, size_t group) {
    const size_t sharers = sharers_of(&sets->placement);
    fold *f = &sets->rank;
    f->count = sets->placement.group_ranks / sharers;
    f->width = rank_width(&sets->placement);
    f->shift = (unsigned)__builtin_ctzll(f->width);
    for (size_t i = 0; i < f->count; i++) f->place[i] = (uint32_t)(i * sharers);
    sets->usable = set_nodes(sets, group);
}

/* --- From ids to sets --- */

typedef struct shape {
    size_t id_bytes, words, top_k; /* top_k 0: as the sets say */
} shape;

/* Eight bytes of each of 8 rows, from byte `at` of the row on. */
INLINE __m512i rows_at(const char *ids, size_t row_bytes, size_t at) {
    if (row_bytes == 16) {
        const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        const __m512i from = _mm512_add_epi64(even, _mm512_set1_epi64((long long)at / 8));
        return _mm512_permutex2var_epi64(_mm512_loadu_si512(ids), from, _mm512_loadu_si512(ids + 64));
    }
    const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i offset = _mm512_mullo_epi64(lane, _mm512_set1_epi64((long long)row_bytes));
    return _mm512_i64gather_epi64(offset, ids + at, 1);
}

/* Bit x - 64 word of every lane; none where that is below 0 or above 63. */
INLINE __m512i bit_of(__m512i id, size_t word) {
    if (word > 0) id = _mm512_sub_epi64(id, _mm512_set1_epi64((long long)word * WORD_BITS));
    return _mm512_sllv_epi64(_mm512_set1_epi64(1), id);
}

/* The sets of 8 tokens. */
INLINE void make_sets(shape s, size_t top_k, const char *ids, __m512i *set) {
    const size_t each = sizeof(uint64_t) / s.id_bytes;
    const __m512i low = _mm512_set1_epi64(s.id_bytes == 1 ? UINT8_MAX : UINT16_MAX);
    for (size_t w = 0; w < s.words; w++) set[w] = _mm512_setzero_si512();
    for (size_t k = 0; k < top_k; k += each) {
        __m512i rows = rows_at(ids, top_k * s.id_bytes, k * s.id_bytes);
        for (size_t i = 0; i < each && k + i < top_k; i += 2) {
            const __m512i one = _mm512_and_si512(rows, low);
            rows = _mm512_srli_epi64(rows, (unsigned)s.id_bytes * 8);
            const bool pair = k + i + 1 < top_k;
            const __m512i two = pair ? _mm512_and_si512(rows, low) : one;
            rows = _mm512_srli_epi64(rows, (unsigned)s.id_bytes * 8);
            for (size_t w = 0; w < s.words; w++)
                set[w] = _mm512_ternarylogic_epi64(set[w], bit_of(one, w), bit_of(two, w), 0xfe); /* or */
        }
    }
}

/* The sets of `vectors` times 8 tokens. */
INLINE void make_block(shape s, spw_expert_sets *sets, const char *ids, size_t vectors) {
    const size_t top_k = s.top_k > 0 ? s.top_k : sets->top_k, vector_bytes = LANES * top_k * s.id_bytes;
    for (size_t v = 0; v < vectors; v++, ids += vector_bytes) {
        __m512i set[MOST_WORDS];
        for (size_t at = 0; at < vector_bytes; at += LINE_BYTES)
            _mm_prefetch(ids + AHEAD_BYTES + at, _MM_HINT_T0);
        make_sets(s, top_k, ids, set);
        for (size_t w = 0; w < s.words; w++) sets->set[w][v] = set[w];
    }
}

typedef void make_function(spw_expert_sets *, const char *, size_t);
#define DEFINE(bytes, k, words) \
    WIDE static void make_##bytes##_##k##_##words(spw_expert_sets *sets, const char *ids, size_t vectors) { \
        make_block((shape){bytes, words, k}, sets, ids, vectors); \
    }
#define DEFINE_ALL(bytes, k) DEFINE(bytes, k, 1) DEFINE(bytes, k, 2) DEFINE(bytes, k, 3) DEFINE(bytes, k, 4)
DEFINE_ALL(1, 0)
DEFINE_ALL(1, 8)
DEFINE_ALL(2, 0)
DEFINE_ALL(2, 8)
#undef DEFINE_ALL
#undef DEFINE

#define ALL(bytes, k) \
    { make_##bytes##_##k##_1, make_##bytes##_##k##_2, make_##bytes##_##k##_3, make_##bytes##_##k##_4 }
static make_function *const make_functions[2][2][MOST_WORDS] = {{ALL(1, 0), ALL(1, 8)},
                                                                {ALL(2, 0), ALL(2, 8)}};
#undef ALL

/* --- From sets to counts --- */

#define SUM(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)   /* odd */
#define CARRY(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0xe8) /* two of three */

/* Full adders: `odd` vectors become one, and (odd - 1) / 2 of twice the weight. */
INLINE __m512i add_up(const __m512i *from, size_t odd, __m512i *carry) {
    __m512i sum = from[0];
    for (size_t i = 1; i < odd; i += 2) {
        carry[i / 2] = CARRY(sum, from[i], from[i + 1]);
        sum = SUM(sum, from[i], from[i + 1]);
    }
    return sum;
}

/* Byte i of the result: in how many of the 8 lanes bit i is set. */
INLINE __m512i count_bits(__m512i lanes) {
    __m512i index = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7); /* byte 8 p + l comes from byte p of lane l */
    index = _mm512_add_epi64(_mm512_mullo_epi64(index, _mm512_set1_epi64(0x0101010101010101)),
                             _mm512_set1_epi64(0x3830282018100800));
    const __m512i diagonal = _mm512_set1_epi64((long long)0x8040201008040201u);
    const __m512i turned = _mm512_gf2p8affine_epi64_epi8(diagonal, _mm512_permutexvar_epi8(index, lanes), 0);
    return _mm512_popcnt_epi8(turned);
}

WIDE static void sum_block(const __m512i *set, __m512i *byte) {
    __m512i two[BLOCK / 2], four[BLOCK / 4], eight[1];
    const __m512i ones = add_up(set, BLOCK, two), twos = add_up(two, BLOCK / 2, four),
                  fours = add_up(four, BLOCK / 4, eight);
    byte[0] = _mm512_add_epi8(byte[0], count_bits(ones));
    byte[1] = _mm512_add_epi8(byte[1], count_bits(twos));
    byte[2] = _mm512_add_epi8(byte[2], count_bits(fours));
    byte[3] = _mm512_add_epi8(byte[3], count_bits(eight[0]));
}

/* Counts lanes of `bits` that have one of the bits of `field`. */
#define DEFINE_COUNT(bits) \
    INLINE __m512i count_lanes_##bits(const __m512i *set, __m512i field, __m512i lane) { \
        for (size_t v = 0; v < BLOCK; v++) { \
            const __mmask##bits##_of there = _mm512_test_epi##bits##_mask(set[v], field); \
            lane = _mm512_mask_add_epi##bits(lane, there, lane, _mm512_set1_epi##bits(1)); \
        } \
        return lane; \
    }
typedef __mmask64 __mmask8_of;
typedef __mmask32 __mmask16_of;
typedef __mmask16 __mmask32_of;
typedef __mmask8 __mmask64_of;
DEFINE_COUNT(8)
DEFINE_COUNT(16)
DEFINE_COUNT(32)
DEFINE_COUNT(64)
#undef DEFINE_COUNT

/* Runs of one expert are counted as experts, and every token meets the only run. */
static bool is_counted(const fold *f) { return f->width > 1 && f->count > 1; }

/* A run of `words` whole words from `first` on, as far as there are any. */
INLINE __m512i count_wide_run(const spw_expert_sets *sets, size_t first, size_t words, __m512i lane) {
    __m512i any[BLOCK];
    for (size_t v = 0; v < BLOCK; v++) {
        any[v] = sets->set[first][v];
        for (size_t w = first + 1; w < sets->words && w < first + words; w++)
            any[v] = _mm512_or_si512(any[v], sets->set[w][v]);
    }
    return count_lanes_64(any, _mm512_set1_epi64(-1), lane);
}

/* The tokens that meet every run. */
WIDE static void count_runs(const spw_expert_sets *sets, fold *f) {
    const __m512i all = _mm512_set1_epi64(-1);
    for (size_t w = 0; w < sets->words && is_counted(f); w++) {
        const __m512i *set = sets->set[w];
        __m512i *lane = f->lane[w];
        if (f->width < FIELDS) {
            for (size_t at = 0; at < FIELDS / f->width; at++) {
                const unsigned field = ((1U << f->width) - 1) << at * f->width;
                lane[at] = count_lanes_8(set, _mm512_set1_epi8((char)field), lane[at]);
            }
        } else if (f->width == 8) {
            lane[0] = count_lanes_8(set, all, lane[0]);
        } else if (f->width == 16) {
            lane[0] = count_lanes_16(set, all, lane[0]);
        } else if (f->width == 32) {
            lane[0] = count_lanes_32(set, all, lane[0]);
        } else if (w * WORD_BITS % f->width == 0) {
            lane[0] = count_wide_run(sets, w, f->width / WORD_BITS, lane[0]);
        }
    }
}

/* --- Out of the lanes --- */

/* Of counters that stand `bits` apart in a word of every lane, the one that begins at bit `at`. */
static uint32_t sum_lanes(const __m512i *lanes, unsigned at, unsigned bits) {
    uint64_t word[LANES], sum = 0;
    memcpy(word, lanes, sizeof word);
    for (size_t i = 0; i < LANES; i++) sum += word[i] >> at & (UINT64_MAX >> (WORD_BITS - bits));
    return (uint32_t)sum;
}

static void take_runs(const spw_expert_sets *sets, fold *f) {
    const unsigned bits = f->width < 8 ? 8 : f->width > WORD_BITS ? WORD_BITS : (unsigned)f->width;
    const size_t fields = f->width < FIELDS ? FIELDS / f->width : 1;
    for (size_t w = 0; w < sets->words && is_counted(f); w++) {
        for (size_t i = 0; i < fields; i++) {
            for (unsigned at = 0; at < WORD_BITS; at += bits) {
                const size_t run = (w * WORD_BITS + at + i * f->width) >> f->shift;
                if (run < f->count) f->total[run] += sum_lanes(&f->lane[w][i], at, bits);
            }
        }
    }
    memset(f->lane, 0, sizeof f->lane);
}

static void take_experts(spw_expert_sets *sets) {
    for (size_t w = 0; w < sets->words; w++) {
        for (size_t weight = 0; weight < WEIGHTS; weight++) {
            const uint8_t *byte = (const uint8_t *)&sets->byte[w][weight];
            for (size_t i = 0; i < WORD_BITS; i++)
                sets->total[w * WORD_BITS + i] += (uint32_t)byte[i] << weight;
        }
    }
    memset(sets->byte, 0, sizeof sets->byte);
}

static void count_vectors(spw_expert_sets *sets, const char *ids, size_t vectors) {
    const size_t vector_bytes = LANES * sets->top_k * sets->id_bytes;
    make_function *const make = make_functions[sets->id_bytes - 1][sets->top_k == 8][sets->words - 1];
    for (size_t done = 0, blocks = 1; done < vectors; done += BLOCK, blocks++) {
        const size_t count = vectors - done < BLOCK ? vectors - done : BLOCK;
        if (count < BLOCK) memset(sets->set, 0, sizeof sets->set);
        make(sets, ids + done * vector_bytes, count);
        for (size_t w = 0; w < sets->words; w++) sum_block(sets->set[w], sets->byte[w]);
        count_runs(sets, &sets->rank);
        count_runs(sets, &sets->node);
        if (blocks % BLOCKS != 0 && done + BLOCK < vectors) continue;
        take_experts(sets);
        take_runs(sets, &sets->rank);
        take_runs(sets, &sets->node);
    }
}

/* What was counted is right if every choice is in it: none was missing, none stood twice. */
static bool is_whole(const spw_expert_sets *sets, size_t tokens) {
    uint64_t choices = 0;
    for (size_t x = 0; x < sets->experts; x++) choices += sets->total[x];
    return choices == (uint64_t)tokens * sets->top_k;
}

static void add_runs(const spw_expert_sets *sets, const fold *f, size_t tokens, uint32_t *destination) {
    const uint32_t *total = f->width > 1 ? f->total : sets->total;
    if (f->count == 1) {
        destination[f->place[0]] += (uint32_t)tokens;
        return;
    }
    for (size_t i = 0; i < f->count; i++) destination[f->place[i]] += total[i];
}

size_t spw_expert_sets_add(spw_expert_sets *sets, const void *ids, size_t tokens, uint32_t *row,
                           uint32_t *destination) {
    if (!sets->usable || tokens < LEAST_TOKENS) return 0;
    const size_t vectors = tokens / LANES - 1; /* a read of 8 bytes must not pass the last row */
    memset(sets->total, 0, sizeof sets->total);
    memset(sets->rank.total, 0, sizeof sets->rank.total);
    memset(sets->node.total, 0, sizeof sets->node.total);
    count_vectors(sets, ids, vectors);
    sets->usable = is_whole(sets, vectors * LANES);
    if (!sets->usable) return 0;
    for (size_t x = 0; x < sets->experts; x++) row[x] += sets->total[x];
    add_runs(sets, &sets->rank, vectors * LANES, destination);
    add_runs(sets, &sets->node, vectors * LANES, destination);
    return vectors * LANES;
}

#else

spw_status spw_expert_sets_create(const spw_counts *counts, const spw_trace_record *record,
                                  spw_expert_sets **out) {
    (void)counts;
    (void)record;
    *out = NULL;
    return SPW_OK;
}
void spw_expert_sets_destroy(spw_expert_sets *sets) { (void)sets; }
void spw_expert_sets_set_group(spw_expert_sets *sets, size_t group) {
    (void)sets;
    (void)group;
}
size_t spw_expert_sets_add(spw_expert_sets *sets, const void *ids, size_t tokens, uint32_t *row,
                           uint32_t *destination) {
    (void)sets;
    (void)ids;
    (void)tokens;
    (void)row;
    (void)destination;
    return 0;
}

#endif
