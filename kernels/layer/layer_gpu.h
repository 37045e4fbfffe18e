/* A whole expert layer between ranks, forward and backward: exchange, grouped GEMM, activation, grouped GEMM, exchange,
 * and the same back. bf16 between the kernels, fp32 inside them. The executed schemes are those of
 * reference/schemes/. */
#ifndef SPW_KERNELS_LAYER_LAYER_GPU_H
#define SPW_KERNELS_LAYER_LAYER_GPU_H

#include "kernels/exchange/dispatch_gpu.h"
#include "kernels/exchange/plain_exchange.h"
#include "kernels/gemm/grouped_gemm_gpu.h"
#include "kernels/layer/layer_phases.h"

/* How the same kernels are arranged; a file each, layer_*.c. */
typedef enum spw_layer_kind {
    SPW_LAYER_BY_DISPATCH, /* gmm-deepep: dispatch and combine, worst-case buffers */
    /* deepep: the same into buffers of just the rows that come; the host waits for their number */
    SPW_LAYER_BY_EXACT_DISPATCH,
    SPW_LAYER_BY_PLAIN, /* gmm, dense: an all-to-all, RAGGED or CAPACITY */
    SPW_LAYER_BY_RING, /* ring: all ranks gather all tokens, each computes its own experts, sums are scattered */
    SPW_LAYER_KINDS
} spw_layer_kind;

typedef struct spw_layer_form {
    spw_layer_kind kind;
    spw_plain_shape plain; /* its sizes hold for all; buffer_rows: RAGGED and ring */
    size_t ffn;
    spw_swiglu activation; /* gated; all 0: SwiGLU */
    bool unfused;          /* the plain products, where the GPU has fused ones, too */
} spw_layer_form;

#define SPW_LAYER_PHASE_ENUM(name, text) SPW_LAYER_##name,
typedef enum spw_layer_phase { SPW_LAYER_PHASE_LIST(SPW_LAYER_PHASE_ENUM) SPW_LAYER_PHASES } spw_layer_phase;
#undef SPW_LAYER_PHASE_ENUM
extern const char *const spw_layer_phase_names[SPW_LAYER_PHASES];

/* Called when all of a phase's kernels have been launched on a rank's stream; the rank's GPU is the current one. */
typedef struct spw_layer_watch {
    spw_status (*mark)(void *data, size_t rank, spw_layer_phase phase);
    void *data;
} spw_layer_watch;

/* Of one rank, on its GPU. What a form does not need is NULL. */
typedef struct spw_layer_rank {
    spw_bf16 *gate_up_weight,
        *down_weight; /* [local][hidden][2 ffn], [local][ffn][hidden]: the caller fills them */
    spw_bf16 *gate_up_gradient, *down_gradient;
    size_t rows, room;             /* of the tensors below: in use, and allocated */
    spw_bf16 *x, *y, *dy, *dx;     /* [rows][hidden], by expert; not by plain: the exchange has them */
    spw_bf16 *gate_up, *d_gate_up; /* [rows][2 ffn] */
    spw_bf16 *act, *d_act;         /* [rows][ffn]; fused: neither d_act nor x and dy */
    spw_bf16 *row_sum;             /* fused: fp32 [ceil(ffn / SPW_GEMM_ROW_SUM_TILE)][rows] */
    spw_bf16 *token;               /* fused, by dispatch: those that came, [token_room][hidden] at most */
    size_t token_room;
    spw_bf16 *d_local; /* by plain: [items][hidden] */
    const int *offset; /* [local + 1] where the rows of each expert begin */
    int *own_offset;   /* the same; NULL where the exchange has them */
    spw_plan_gpu plan; /* of the choices that came; not by plain */
    struct {
        int *expert;              /* [ranks * tokens][top_k] choices of own experts that came */
        float *weight, *d_weight; /* the same */
        float *words, *side;      /* [tokens][2 experts], [tokens][experts] */
        const int *choice;        /* the caller's, of the last forward pass */
    } ring;
} spw_layer_rank;

typedef struct spw_layer_gpu {
    spw_world *world;
    spw_layer_form form;
    const spw_gemm_variant *gemm;
    bool fused;             /* products gather their rows, and SwiGLU is part of them: grouped_gemm_gpu.h */
    bool own_rows;          /* x, y, dy and dx of the ranks are the layer's, not the exchange's */
    spw_dispatch *dispatch; /* of both by dispatch */
    spw_plain_exchange *plain; /* of the others */
    void *dy[SPW_WORLD_RANKS]; /* by plain: where gradients come, x being still there */
    size_t tokens, local;
    spw_layer_watch watch; /* of the caller; mark NULL: nobody watches */
    spw_layer_rank rank[SPW_WORLD_RANKS];
} spw_layer_gpu;

/* Bytes that the layer takes of a rank's GPU; exact dispatch: at most. */
SPW_MUST_CHECK spw_status spw_gpu_layer_bytes(spw_world *world, spw_layer_form form, size_t *bytes);
SPW_MUST_CHECK spw_status spw_gpu_layer_create(spw_world *world, spw_layer_form form,
                                               const spw_exchange_variant *variant, spw_layer_gpu **out);
void spw_gpu_layer_destroy(spw_layer_gpu *layer); /* NULL is fine */

/* Arrays of the ranks of this process, on their GPUs. No wait on the host, but of exact dispatch.
 *   x, y [tokens][hidden], expert, weight [tokens][top_k]; expert must stand until the backward pass is done */
SPW_MUST_CHECK spw_status spw_gpu_layer_forward(spw_layer_gpu *layer, const spw_bf16 *const *x,
                                                const int *const *expert, const float *const *weight,
                                                spw_bf16 *const *y);
/* After a forward pass, once. dy, dx [tokens][hidden], d_weight [tokens][top_k]; the weights' gradients stay in
 * `rank`. */
SPW_MUST_CHECK spw_status spw_gpu_layer_backward(spw_layer_gpu *layer, const spw_bf16 *const *dy,
                                                 const float *const *weight, spw_bf16 *const *dx,
                                                 float *const *d_weight);

#endif
