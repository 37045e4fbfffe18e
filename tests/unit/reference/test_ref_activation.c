/* Clamped SwiGLU and GeGLU in every executed scheme, beside loops over tokens, choices and columns in double. */
#include "reference/schemes/execution.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"

#include <math.h>
#include <string.h>

enum { RANKS = 2, ALL = 12, K = 2, E = 4, H = 8, F = 4 };

typedef struct layer {
    int32_t expert[ALL * K];
    float weight[ALL * K], x[ALL * H], dy[ALL * H], w[3][E * H * F];
    float y[ALL * H], dx[ALL * H], d_weight[ALL * K], dw[3][E * H * F];
    uint64_t rows[RANKS], dropped[RANKS];
} layer;

struct form {
    spw_swiglu kind;
    double (*act)(double g, double u);
    bool smooth; /* differences of it are its slope everywhere */
};

static double silu(double g, double u) { return g / (1.0 + exp(-g)) * u; }
static double clamped(double g, double u) {
    const double a = fmin(g, 0.5), b = fmax(-0.5, fmin(u, 0.5));
    return a / (1.0 + exp(-1.702 * a)) * (b + 1.0);
}
static double gelu(double g, double u) {
    return 0.5 * g * (1.0 + tanh(sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g))) * u;
}

static const struct form forms[] = {{{.limit = 0.0f}, silu, true},
                                    {{.limit = 0.5f, .alpha = 1.702f}, clamped, false},
                                    {{.gate = SPW_GATE_GELU}, gelu, true}};

static void fill(uint64_t *seed, float *out, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = random_uniform(seed);
}

/* y of one token from its row, nothing rounded. */
static void token(const layer *l, const struct form *form, size_t t, const double x[H], double y[H]) {
    memset(y, 0, H * sizeof *y);
    for (size_t k = 0; k < K; k++) {
        const size_t e = (size_t)l->expert[t * K + k] * H * F;
        for (size_t f = 0; f < F; f++) {
            double g = 0.0, u = 0.0;
            for (size_t i = 0; i < H; i++) {
                g += x[i] * (double)l->w[0][e + i * F + f];
                u += x[i] * (double)l->w[1][e + i * F + f];
            }
            const double a = form->act(g, u) * (double)l->weight[t * K + k];
            for (size_t i = 0; i < H; i++) y[i] += a * (double)l->w[2][e + f * H + i];
        }
    }
}

static void check_values(const layer *l, const struct form *form) {
    const double step = 1e-4;
    for (size_t t = 0; t < ALL; t++) {
        double x[H], y[H], more[H], less[H];
        for (size_t h = 0; h < H; h++) x[h] = (double)l->x[t * H + h];
        token(l, form, t, x, y);
        for (size_t h = 0; h < H; h++) {
            double slope = 0.0, kept = x[h];
            CHECK(fabs((double)l->y[t * H + h] - y[h]) <= 1e-5);
            x[h] = kept + step, token(l, form, t, x, more);
            x[h] = kept - step, token(l, form, t, x, less);
            x[h] = kept;
            for (size_t o = 0; o < H; o++)
                slope += (double)l->dy[t * H + o] * (more[o] - less[o]) / (2.0 * step);
            CHECK(!form->smooth || fabs((double)l->dx[t * H + h] - slope) <= 2e-4);
        }
    }
}

/* Is it compared: does the scheme take the shape as it stands, and drop nothing? */
static bool run(const spw_executor *executor, const struct form *form, size_t ranks, uint64_t seed) {
    static layer l;
    spw_arena *arena = NULL;
    spw_fabric *fabric = NULL;
    memset(&l, 0, sizeof l);
    random_routing(&seed, ALL, K, E, l.expert);
    fill(&seed, l.weight, ALL * K);
    for (size_t i = 0; i < ALL * K; i++) l.weight[i] = fabsf(l.weight[i]) + 0.1f;
    fill(&seed, l.x, ALL * H), fill(&seed, l.dy, ALL * H);
    for (size_t i = 0; i < 3; i++) fill(&seed, l.w[i], E * H * F);
    CHECK_OK(spw_arena_create(ranks, &arena));
    CHECK_OK(spw_fabric_create(ranks, &fabric));
    const spw_execution_shape shape = {.ranks = ranks,
                                       .experts = E,
                                       .top_k = K,
                                       .hidden = H,
                                       .ffn = F,
                                       .sequences = 1,
                                       .sequence_length = ALL / ranks,
                                       .element_bytes = 2,
                                       .factor = E,
                                       .activation = form->kind};
    const spw_execution_input in = {
        .expert = l.expert, .weight = l.weight, .x = l.x, .dy = l.dy, .weights = {l.w[0], l.w[1], l.w[2]}};
    const spw_execution_output out = {.y = l.y,
                                      .dx = l.dx,
                                      .d_weight = l.d_weight,
                                      .gradients = {l.dw[0], l.dw[1], l.dw[2]},
                                      .rows = l.rows,
                                      .dropped = l.dropped};
    const bool ran = spw_execute(executor, &shape, &in, &out, arena, fabric) == SPW_OK;
    const bool compared = ran && l.dropped[0] + l.dropped[1] == 0;
    if (compared) check_values(&l, form);
    spw_arena_destroy(arena);
    spw_fabric_destroy(fabric);
    return compared;
}

int main(void) {
    size_t schemes = 0;
    for (const spw_executor *e = spw_executors; e->name != NULL; e++) {
        size_t compared = 0; /* some run on one rank alone */
        for (size_t ranks = 1; ranks <= RANKS; ranks++)
            for (uint64_t seed = 1; seed <= 3; seed++)
                for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
                    compared += run(e, &forms[i], ranks, seed);
        CHECK(compared >= 6);
        schemes++;
    }
    CHECK(schemes >= 20);
    return check_done();
}
