/* Layers of latent experts, of two matrices and of three, as every dispatcher of Megatron-Core executes them, beside loops over tokens,
 * choices and columns in double; and their bytes on the wire beside rows that are counted choice by choice, of L columns each. */
#include "base/memory.h"
#include "reference/schemes/latent.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"

#include <math.h>
#include <string.h>

enum { RANKS = 2, TOKENS = 5, K = 2, E = 4, H = 7, L = 3, F = 4, ALL = RANKS * TOKENS };

typedef struct layer {
    int32_t expert[ALL * K];
    float weight[ALL * K], x[ALL * H], dy[ALL * H], down[H * L], up[L * H], w[3][E * L * F];
    float y[ALL * H], dx[ALL * H], d_weight[ALL * K], d_down[H * L], d_up[L * H], dw[3][E * L * F];
    uint64_t rows[RANKS], dropped[RANKS];
} layer;

static void fill(uint64_t *seed, float *out, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = random_uniform(seed);
}

static double act(spw_plain_activation kind, double g, double u) {
    if (kind == SPW_RELU2) return g > 0.0 ? g * g : 0.0;
    if (kind == SPW_GELU) return 0.5 * g * (1.0 + erf(g / sqrt(2.0)));
    return g / (1.0 + exp(-g)) * u;
}

/* y of one token from its row in double, nothing rounded. */
static void token(const layer *l, spw_plain_activation kind, size_t t, const double x[H], double y[H]) {
    double narrow[L] = {0.0}, sum[L] = {0.0};
    memset(y, 0, H * sizeof *y);
    for (size_t h = 0; h < H; h++)
        for (size_t i = 0; i < L; i++) narrow[i] += x[h] * (double)l->down[h * L + i];
    for (size_t k = 0; k < K; k++) {
        const size_t e = (size_t)l->expert[t * K + k] * L * F;
        for (size_t f = 0; f < F; f++) {
            double g = 0.0, u = 0.0;
            for (size_t i = 0; i < L; i++) {
                g += narrow[i] * (double)l->w[0][e + i * F + f];
                u += narrow[i] * (double)l->w[1][e + i * F + f];
            }
            const double a = act(kind, g, u) * (double)l->weight[t * K + k];
            for (size_t i = 0; i < L; i++) sum[i] += a * (double)l->w[2][e + f * L + i];
        }
    }
    for (size_t h = 0; h < H; h++)
        for (size_t i = 0; i < L; i++) y[h] += sum[i] * (double)l->up[i * H + h];
}

/* Outputs, and gradients of the input by differences of them. */
static void check_values(const layer *l, spw_plain_activation kind) {
    const double step = 1e-4;
    for (size_t t = 0; t < ALL; t++) {
        double x[H], y[H], more[H], less[H];
        for (size_t h = 0; h < H; h++) x[h] = (double)l->x[t * H + h];
        token(l, kind, t, x, y);
        for (size_t h = 0; h < H; h++) {
            double slope = 0.0, kept = x[h];
            CHECK(fabs((double)l->y[t * H + h] - y[h]) <= 1e-5);
            x[h] = kept + step, token(l, kind, t, x, more);
            x[h] = kept - step, token(l, kind, t, x, less);
            x[h] = kept;
            for (size_t o = 0; o < H; o++)
                slope += (double)l->dy[t * H + o] * (more[o] - less[o]) / (2.0 * step);
            CHECK(fabs((double)l->dx[t * H + h] - slope) <= 2e-4);
        }
    }
}

/* Gradients of both projections: the change of sum dy y along one of their numbers. */
static void check_projections(const layer *l, spw_plain_activation kind) {
    static layer moved;
    const double step = 1e-3;
    for (size_t i = 0; i < H * L; i++) {
        for (int up = 0; up < 2; up++) {
            double side[2] = {0.0, 0.0};
            const float at = up ? l->up[i] : l->down[i];
            double width = 0.0;
            for (int more = 0; more < 2; more++) {
                moved = *l;
                float *const number = up ? &moved.up[i] : &moved.down[i];
                *number = at + (more ? (float)step : -(float)step);
                width += more ? (double)*number : -(double)*number;
                for (size_t t = 0; t < ALL; t++) {
                    double x[H], y[H];
                    for (size_t h = 0; h < H; h++) x[h] = (double)l->x[t * H + h];
                    token(&moved, kind, t, x, y);
                    for (size_t h = 0; h < H; h++) side[more] += (double)l->dy[t * H + h] * y[h];
                }
            }
            const double got = (double)(up ? l->d_up[i] : l->d_down[i]);
            CHECK(fabs(got - (side[1] - side[0]) / width) <= 2e-3);
        }
    }
}

/* Rows of a dispatch of megatron-alltoall, choice by choice. */
static void check_bytes(const layer *l, const spw_fabric *fabric) {
    uint64_t wire[RANKS][RANKS] = {{0}};
    for (size_t i = 0; i < ALL * K; i++) wire[i / (TOKENS * K)][(size_t)l->expert[i] / (E / RANKS)]++;
    for (size_t s = 0; s < RANKS; s++) {
        for (size_t d = 0; d < RANKS; d++) {
            CHECK(spw_fabric_bytes(fabric, "dispatch", s, d) ==
                  wire[s][d] * (L * 2 + 4)); /* and its weight */
            CHECK(spw_fabric_bytes(fabric, "combine", d, s) == wire[s][d] * L * 2);
        }
    }
}

static void run(const char *name, spw_plain_activation kind, uint64_t seed) {
    static layer l;
    spw_arena *arena = NULL;
    spw_fabric *fabric = NULL;
    spw_scheme scheme;
    memset(&l, 0, sizeof l);
    random_routing(&seed, ALL, K, E, l.expert);
    fill(&seed, l.weight, ALL * K);
    for (size_t i = 0; i < ALL * K; i++) l.weight[i] = fabsf(l.weight[i]) + 0.1f;
    fill(&seed, l.x, ALL * H), fill(&seed, l.dy, ALL * H), fill(&seed, l.down, H * L),
        fill(&seed, l.up, L * H);
    for (size_t i = 0; i < 3; i++) fill(&seed, l.w[i], E * L * F);
    CHECK_OK(spw_scheme_parse(name, &scheme));
    CHECK_OK(spw_arena_create(RANKS, &arena));
    CHECK_OK(spw_fabric_create(RANKS, &fabric));
    const spw_execution_shape shape = {.ranks = RANKS,
                                       .experts = E,
                                       .top_k = K,
                                       .hidden = L,
                                       .ffn = F,
                                       .sequences = 1,
                                       .sequence_length = TOKENS,
                                       .element_bytes = 2,
                                       .activation = {.plain = kind}};
    const spw_latent latent = {H, l.down, l.up, l.d_down, l.d_up};
    const spw_execution_input in = {
        .expert = l.expert, .weight = l.weight, .x = l.x, .dy = l.dy, .weights = {l.w[0], l.w[1], l.w[2]}};
    const spw_execution_output out = {.y = l.y,
                                      .dx = l.dx,
                                      .d_weight = l.d_weight,
                                      .gradients = {l.dw[0], l.dw[1], l.dw[2]},
                                      .rows = l.rows,
                                      .dropped = l.dropped};
    CHECK_OK(
        spw_execute_latent(spw_executor_find(scheme.type->name), &shape, &latent, &in, &out, arena, fabric));
    check_values(&l, kind);
    check_projections(&l, kind);
    if (strcmp(name, "megatron-alltoall") == 0) check_bytes(&l, fabric);
    for (size_t i = 0; i < E * L * F && kind != SPW_GATED; i++)
        CHECK(!(fabsf(l.dw[1][i]) > 0.0f)); /* there is no gate */
    spw_arena_destroy(arena);
    spw_fabric_destroy(fabric);
}

int main(void) {
    static const char *const schemes[] = {"megatron-alltoall", "megatron-allgather", "megatron-flex",
                                          "megatron-ncclep"};
    for (uint64_t seed = 1; seed <= 4; seed++)
        for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
            for (int kind = SPW_GATED; kind <= SPW_GELU; kind++)
                run(schemes[i], (spw_plain_activation)kind, seed);
    return check_done();
}
