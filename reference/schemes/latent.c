#include "reference/schemes/latent.h"

#include "base/memory.h"
#include "reference/grouped_gemm.h"

spw_status spw_execute_latent(const spw_executor *executor, const spw_execution_shape *s,
                              const spw_latent *latent, const spw_execution_input *in,
                              const spw_execution_output *out, spw_arena *arena, spw_fabric *fabric) {
    const size_t tokens = s->ranks * s->sequences * s->sequence_length, offset[] = {0, tokens};
    const spw_gemm_shape down = {.experts = 1, .rows = tokens, .in = latent->hidden, .out = s->hidden},
                         up = {.experts = 1, .rows = tokens, .in = s->hidden, .out = latent->hidden};
    float *x = NULL, *y = NULL, *dy = NULL, *dx = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &x));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &y));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &dy));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &dx));
    SPW_TRY(spw_ref_grouped_gemm(down, in->x, latent->down, offset, x, NULL));
    SPW_TRY(spw_ref_grouped_gemm_input_gradient(up, in->dy, latent->up, offset, dy, NULL));
    spw_execution_input within = *in;
    spw_execution_output of = *out;
    within.x = x, within.dy = dy;
    of.y = y, of.dx = dx;
    SPW_TRY(spw_execute(executor, s, &within, &of, arena, fabric));
    SPW_TRY(spw_ref_grouped_gemm(up, y, latent->up, offset, out->y, NULL));
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(up, y, in->dy, offset, latent->d_up, NULL));
    SPW_TRY(spw_ref_grouped_gemm_input_gradient(down, dx, latent->down, offset, out->dx, NULL));
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(down, in->x, dx, offset, latent->d_down, NULL));

cleanup:
    spw_free(x), spw_free(y), spw_free(dy), spw_free(dx);
    return status;
}
