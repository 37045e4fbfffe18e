/* SonicMoE on one rank (docs/schemes.md, section 6.4): only the input, the pre-activation, scores and indices are kept.
 * With token rounding every expert's count becomes a multiple of the tile. */
#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/layer_builder.h"
#include "sim/schemes/list.h"

#include "base/memory.h"

#include <stdlib.h>

static const char *const roundings[] = {"none", "nearest", "up", "down", NULL};
typedef enum rounding { ROUNDING_NONE, ROUNDING_NEAREST, ROUNDING_UP, ROUNDING_DOWN } rounding;

static const spw_scheme_option options[] = {
    {"rounding", 0.0, 0.0, 0.0, false,
     "an expert's count becomes the nearest multiple of the tile (half to even), the next above or below",
     roundings},
    {"tile", 1.0, 65536.0, 128.0, false, "rows of a tile of the grouped GEMM", NULL},
    {.name = NULL},
};

static spw_tensor column(const char *name) {
    return (spw_tensor){name, SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 4};
}

static void to_output(spw_layer_builder *b) {
    spw_layer_born(b, "router", (spw_tensor){"input", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "router", column("scores"));
    spw_layer_born(b, "indices", column("scatter_index"));
    spw_layer_born(b, "indices", column("reverse_index"));
    spw_layer_born(b, "indices", column("gather_index"));
    spw_layer_born(b, "up projection", (spw_tensor){"w0_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2});
    spw_layer_born(b, "up projection", (spw_tensor){"act", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_born(b, "down projection", (spw_tensor){"y", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "sum over experts", "y");
    spw_layer_dies(b, "return", "act");
}

static void indices_die(spw_layer_builder *b, const char *step) {
    spw_layer_dies(b, step, "gather_index");
    spw_layer_dies(b, step, "reverse_index");
    spw_layer_dies(b, step, "scatter_index");
}

static void down_gradient(spw_layer_builder *b, const char *step) {
    spw_layer_born(b, step, (spw_tensor){"d_w0_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2});
    spw_layer_born(b, step, column("d_scores"));
    spw_layer_born(b, step, (spw_tensor){"act_scored", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_passes(
        b, step, (spw_tensor){"d_scores_partial", SPW_ROWS_HELD, SPW_WIDTH_FFN_TILES, .element_bytes = 4});
    spw_layer_dies(b, step, "act_scored");
    spw_layer_dies(b, step, "w0_w1_out");
}

static void sonicmoe_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme, (void)s;
    to_output(b);
    spw_layer_dies(b, "return", "w0_w1_out");
    indices_die(b, "return");
    spw_layer_dies(b, "return", "scores");
    spw_layer_dies(b, "return", "input");

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    to_output(b);

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    down_gradient(b, "down projection gradient");
    spw_layer_passes(b, "up projection gradient",
                     (spw_tensor){"dx_expanded", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "up projection gradient", "d_w0_w1_out");
    indices_die(b, "up projection gradient");
    spw_layer_dies(b, "router gradient", "d_scores");
    spw_layer_dies(b, "router gradient", "scores");
    spw_layer_dies(b, "router gradient", "input");
}

static rounding rounding_of(const spw_scheme *scheme) {
    return (rounding)spw_scheme_option_value(scheme, "rounding");
}
static size_t tile_of(const spw_scheme *scheme) { return (size_t)spw_scheme_option_value(scheme, "tile"); }

static bool adds_tokens(const spw_scheme *scheme) { return rounding_of(scheme) != ROUNDING_NONE; }

static spw_drop_rule drop_rule(const spw_scheme *scheme) {
    const rounding way = rounding_of(scheme);
    return way == ROUNDING_NEAREST || way == ROUNDING_DOWN ? SPW_DROP_BY_WEIGHT : SPW_DROP_BY_LIMIT;
}

/* How many of an expert's `count` choices stay. */
static size_t kept_of(const spw_scheme *scheme, size_t count) {
    const size_t tile = tile_of(scheme), rest = count % tile, below = count - rest;
    const bool odd = count / tile % 2 == 1;
    const bool up = rest > tile - rest || (rest == tile - rest && odd);
    return rounding_of(scheme) == ROUNDING_NEAREST && up ? count : below;
}

typedef struct candidate {
    float weight;
    size_t place; /* token by token, so earlier tokens first */
} candidate;

static int by_weight(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static spw_status keep(const spw_scheme *scheme, const spw_layer_shape *s, const spw_choices *choices,
                       uint8_t *kept) {
    size_t *begin = NULL;
    candidate *all = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->experts + 2, &begin));
    SPW_TRY(SPW_ALLOC(s->assignments, &all));
    for (size_t i = 0; i < s->assignments; i++) {
        if (choices->expert[i] >= 0) begin[choices->expert[i] + 2]++;
    }
    for (size_t x = 2; x < s->experts + 2; x++) begin[x] += begin[x - 1];
    for (size_t i = 0; i < s->assignments;
         i++) { /* begin[x + 1] moves from the expert's first place to its last */
        if (choices->expert[i] >= 0)
            all[begin[choices->expert[i] + 1]++] = (candidate){choices->weight[i], i};
    }
    for (size_t x = 0; x < s->experts; x++) {
        const size_t count = begin[x + 1] - begin[x], stay = kept_of(scheme, count);
        if (count > 0) qsort(all + begin[x], count, sizeof *all, by_weight);
        for (size_t i = 0; i < stay; i++) kept[all[begin[x] + i].place] = 1;
    }

cleanup:
    spw_free(all);
    spw_free(begin);
    return status;
}

static size_t filled(const spw_layer_shape *s, size_t kept, size_t tile) {
    const size_t full = (kept + tile - 1) / tile * tile;
    return full < s->tokens ? full : s->tokens;
}

/* What is kept of an expert's choices is a multiple of the tile, or all of them, which are then filled up to one with
 * other tokens, as far as there are tokens. */
static void sonicmoe_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_scheme *scheme = routed->scheme;
    const spw_layer_shape *s = routed->shape;
    const size_t tile = adds_tokens(scheme) ? tile_of(scheme) : 1;
    out->rows[0] = out->dropped[0] = 0;
    for (size_t x = 0; x < s->experts; x++) {
        const size_t n = spw_routed_of(routed, 0)[x];
        out->rows[0] += filled(s, n, tile);
    }
    spw_flow_one_line(out, 1, out->rows[0]);
}

/* Every expert is rounded as the mean is. */
static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t even = (s->assignments + s->experts - 1) / s->experts,
                 kept = rounding_of(scheme) == ROUNDING_UP ? even : kept_of(scheme, even);
    if (adds_tokens(scheme)) rows->held = s->experts * filled(s, kept, tile_of(scheme));
}

const spw_scheme_type spw_scheme_sonicmoe = {
    .name = "sonicmoe",
    .trainer = SPW_TRAINER_PYTORCH,
    .about.summary = "SonicMoE on one rank: keeps the pre-activation only; token rounding fills whole tiles",
    .about.section = "event list of the scheme (6.4)",
    .about.source = "Dao-AILab/sonic-moe sonicmoe/functional, benchmarks/moe-token-rounding.py",
    .options = options,
    .memory.layer = sonicmoe_layer,
    .values.reorders_sums = true,
    .traffic.exchanges = spw_no_exchanges,
    .routing.drop_rule = drop_rule,
    .routing.keep = keep,
    .routing.flow = sonicmoe_flow,
    .routing.lines = spw_one_line,
    .routing.balance = balance,
    .routing.adds_tokens = adds_tokens,
    .check = spw_check_one_rank,
};
