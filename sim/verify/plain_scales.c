#include "sim/verify/plain_scales.h"

#include "base/memory.h"

#include <math.h>

static spw_status allocate(const spw_layer_shape *s, size_t slots, spw_plain_scales *out) {
    const size_t tokens = s->ranks * s->tokens, matrix = s->experts * s->hidden * s->ffn;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &out->y));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &out->dx));
    SPW_TRY(SPW_ALLOC(tokens * slots, &out->d_weight));
    SPW_TRY(SPW_ALLOC(matrix, &out->w0));
    SPW_TRY(SPW_ALLOC(matrix, &out->w1));
    SPW_TRY(SPW_ALLOC(matrix, &out->wo));

cleanup:
    return status;
}

/* At least the slope of an activation without a gate. */
static double plain_slope(const spw_layer_shape *s, double g) {
    return s->gelu ? 1.0 + fabs(g) : 2.0 * fabs(g);
}

static void plain_scales_add(float *to, double value) { *to = (float)((double)*to + value); }

/* One row: choice `i`, of the expert whose matrices begin at `matrix`. */
static void add_row(const spw_layer_shape *s, const spw_plain_inputs *in, size_t row, size_t i, size_t matrix,
                    spw_plain_scales *out) {
    const size_t hidden = s->hidden, ffn = s->ffn, t = i / in->slots * hidden;
    const float *w0 = in->weights.w0 + matrix, *w1 = in->weights.w1 + matrix, *wo = in->weights.wo + matrix;
    const double p = fabs((double)in->weight[i]);
    for (size_t f = 0; f < ffn; f++) {
        const double g = (double)in->state.gate[row * ffn + f], u = (double)in->state.up[row * ffn + f],
                     a = fabs((double)in->state.act[row * ffn + f]), sigmoid = 1.0 / (1.0 + exp(-g));
        double d = 0.0;
        for (size_t h = 0; h < hidden; h++) {
            const double dy = fabs((double)in->dy[t + h]), w = fabs((double)wo[f * hidden + h]);
            d += dy * w;
            plain_scales_add(&out->y[t + h], p * a * w);
            plain_scales_add(&out->wo[matrix + f * hidden + h], p * a * dy);
        }
        plain_scales_add(&out->d_weight[i], d * a);
        const double gated = fabs(u) * sigmoid * (1.0 + fabs(g) * (1.0 - sigmoid)),
                     d_gate = p * d * (s->plain_experts ? plain_slope(s, g) : gated),
                     d_up = s->plain_experts ? 0.0 : p * d * fabs(g) * sigmoid;
        for (size_t h = 0; h < hidden; h++) {
            const double x = fabs((double)in->x[t + h]);
            plain_scales_add(&out->dx[t + h],
                             d_gate * fabs((double)w0[h * ffn + f]) + d_up * fabs((double)w1[h * ffn + f]));
            plain_scales_add(&out->w0[matrix + h * ffn + f], x * d_gate);
            plain_scales_add(&out->w1[matrix + h * ffn + f], x * d_up);
        }
    }
}

spw_status spw_plain_scales_create(const spw_layer_shape *s, const spw_plan *plan, const spw_plain_inputs *in,
                                   spw_plain_scales *out) {
    *out = (spw_plain_scales){.y = NULL};
    const spw_status status = allocate(s, in->slots, out);
    for (size_t x = 0; x < s->experts && status == SPW_OK; x++) {
        for (size_t row = plan->offset[x]; row < plan->offset[x + 1]; row++)
            add_row(s, in, row, (size_t)plan->assignment[row], x * s->hidden * s->ffn, out);
    }
    return status;
}

void spw_plain_scales_destroy(spw_plain_scales *s) {
    float *const owned[] = {s->y, s->dx, s->d_weight, s->w0, s->w1, s->wo};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
    *s = (spw_plain_scales){.y = NULL};
}
