/* The tensors of one MoE layer and their life: what a scheme's function says to a builder (sim/schemes/layer_builder.h),
 * ready to be asked. A tensor is born or dies at a named step of a pass, in the order of execution; the executed reference
 * allocates and frees in the same order under the same names. What is live when RECOMPUTE ends is what the backward pass
 * needs: without remat it is saved by the forward pass. */
#ifndef SPW_SIM_SCHEMES_LAYER_H
#define SPW_SIM_SCHEMES_LAYER_H

#include "base/saturate.h"
#include "base/status.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_formula spw_formula; /* sim/print/formula.h */

const char *spw_phase_name(spw_phase phase);

/* For whom a layer is described. A scheme whose code does nothing beyond the mathematics gives all of them the same. */
typedef enum spw_flavour {
    SPW_FLAVOUR_LIVE,  /* what must live: the tensors that the code as written keeps */
    SPW_FLAVOUR_TORCH, /* what PyTorch's allocator sees: temporaries and what attributes keep until they are
                               replaced too. Only megatron-alltoall says more here than LIVE does in all its parts */
    SPW_FLAVOUR_XLA,   /* what XLA holds: what a compiler adds or leaves out */
    SPW_FLAVOUR_XLA_HIDING, /* the same under its latency-hiding scheduler, which lets weight gradients wait */
    SPW_FLAVOUR_XLA_APART, /* XLA of JAX 0.11 on: buffers of ragged all-to-alls lie in an arena of their own */
    SPW_FLAVOUR_COUNT
} spw_flavour;

/* Rows a tensor can have. HELD, RECEIVED and SENT follow the routing, rank by rank and layer by layer (spw_rank_rows):
 * frameworks that allocate what arrives. The others follow from the shape alone. */
typedef enum spw_rows {
    SPW_ROWS_ASSIGNMENTS, /* N */
    SPW_ROWS_GATHERED,    /* R T */
    SPW_ROWS_BUFFER,      /* buffer rows of the scheme */
    SPW_ROWS_EXPANDED,    /* e x buffer rows */
    SPW_ROWS_TOKENS,      /* T */
    SPW_ROWS_HELD,        /* M: rows that the rank's experts compute, padding included */
    SPW_ROWS_RECEIVED,    /* rows that arrive, the rank's own included: U where a token travels once a rank */
    SPW_ROWS_SENT,        /* rows that leave, the rank's own included */
    SPW_ROWS_OWN_0,       /* own_rows(0) and own_rows(1) of the scheme, from the shape */
    SPW_ROWS_OWN_1,
    SPW_ROWS_EXPERT, /* rows of one expert, where experts run one after the other (spw_layer_expert) */
    SPW_ROWS_GIVEN,  /* the tensor is the product of spw_tensor.dim: weights, and what else has no rows */
    SPW_ROWS_COUNT
} spw_rows;
typedef enum spw_width {
    SPW_WIDTH_HIDDEN,        /* H */
    SPW_WIDTH_FFN,           /* F */
    SPW_WIDTH_RETURNED,      /* H, of a tensor group H / TP: what the experts return */
    SPW_WIDTH_SLOTS,         /* E C, capacity slots of a sequence */
    SPW_WIDTH_TOP_K,         /* K */
    SPW_WIDTH_EXPERTS,       /* E */
    SPW_WIDTH_LOCAL_EXPERTS, /* e */
    SPW_WIDTH_ROW_IDS,       /* 2 E + 1, columns of a fused permutation's map */
    SPW_WIDTH_LOCAL_ROW_IDS, /* 2 e + 1 */
    SPW_WIDTH_RANKS,         /* R */
    SPW_WIDTH_SCALES,        /* ceil(H / 128), one scale a block of an fp8 row */
    SPW_WIDTH_ONE,
    SPW_WIDTH_FFN_TILES, /* ceil(F / 128): partial sums over tiles of F */
    SPW_WIDTH_HIDDEN_SCALED, /* bytes: H + ceil(H / 32), fp8 elements with 1/32 byte of scale each; of fp4 ceil(H / 2) + ceil(H / 16)
                                or ceil(H / 2) + ceil(H / 32) */
    SPW_WIDTH_FFN_SCALED,
    SPW_WIDTH_LORA, /* rank of the experts' adapters */
    SPW_WIDTH_COUNT
} spw_width;

/* One factor of a size, as in {"E", 256}. */
typedef struct spw_dim {
    const char *symbol;
    uint64_t count;
} spw_dim;
enum { SPW_TENSOR_DIMS = 4 };

/* What a scheme writes: rows x width x times x element bytes, or with SPW_ROWS_GIVEN the product of dim x element bytes.
 * {"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}; {"wo_relaid", SPW_ROWS_GIVEN, .dim = {{"e", e}, {"F", F}, {"H", H}}}. */
typedef struct spw_tensor {
    const char *name;
    spw_rows rows;
    spw_width width;
    uint8_t times;                /* 0 counts as 1; 2 for [rows, 2 F] */
    uint8_t element_bytes;        /* 0: those of activations */
    spw_dim dim[SPW_TENSOR_DIMS]; /* as many as have a symbol */
    bool by_rank; /* an allocation for what each rank of the group sends or is sent, not one of all */
} spw_tensor;

/* The same in a layer: every factor has its number but the rows that follow the routing. A tensor of one expert after the
 * other stands here once. */
typedef struct spw_layer_tensor {
    const char *name;
    spw_rows rows;
    spw_width width;
    spw_dim dim[SPW_TENSOR_DIMS];
    size_t dims;
    uint64_t times, element_bytes;
    uint64_t
        bytes; /* of one row where the rows follow the routing, else of all; UINT64_MAX when 64 bits are too few */
    bool by_rank; /* an allocation a rank of the group */
    bool needed;  /* by the backward pass: live when RECOMPUTE ends */
} spw_layer_tensor;

typedef struct spw_event {
    spw_phase phase;
    const char *step;
    size_t tensor;
    int sign; /* +1 born, -1 dies, 0 kept: what was kept in its place dies, and it lives on until it is replaced */
    size_t expert;        /* from 1; 0: the tensor belongs to all of them */
    uint64_t least_bytes; /* of a smaller tensor it is left out, as if it were not there */
    bool to_host;         /* it dies as a copy of it waits in the host's memory */
} spw_event;

/* Read by everybody, changed by nobody. Texts live as long as the layer. */
typedef struct spw_layer {
    spw_layer_tensor *tensor; /* in the order of their first birth */
    spw_event *event;
    size_t tensors, events;
    char **text; /* names that were put together for it */
    size_t texts;
} spw_layer;

/* The layer of a scheme in a shape. SPW_ENOMEM; SPW_EARG for a description that cannot be executed: a tensor that dies
 * without having been born, is born twice, has two sizes, or outlives its pass. */
SPW_MUST_CHECK spw_status spw_layer_build(const spw_scheme *scheme, const spw_layer_shape *shape,
                                          spw_flavour flavour, spw_layer *out);
void spw_layer_destroy(spw_layer *layer); /* leaves an empty one, for which it is fine too */

static inline bool spw_rows_follow_routing(spw_rows rows) {
    return rows == SPW_ROWS_HELD || rows == SPW_ROWS_RECEIVED || rows == SPW_ROWS_SENT ||
           rows == SPW_ROWS_EXPERT;
}
/* rows NULL: none. Of single experts: 0. */
static inline uint64_t spw_routed_rows(spw_rows rows, const spw_rank_rows *routed) {
    if (routed == NULL || rows == SPW_ROWS_EXPERT) return 0;
    if (rows == SPW_ROWS_HELD) return routed->held;
    return rows == SPW_ROWS_RECEIVED ? routed->received : routed->sent;
}
/* Do any of its tensors? */
bool spw_layer_is_dynamic(const spw_layer *layer);

/* Bytes of a tensor with `rows` rows, whatever the routing says; of all of it where rows follow from the shape. UINT64_MAX when they do
 * not fit in 64 bits. */
static inline uint64_t spw_layer_row_bytes(const spw_layer_tensor *t, uint64_t rows) {
    return spw_rows_follow_routing(t->rows) ? spw_saturated_product(t->bytes, rows) : t->bytes;
}
/* Of one tensor. rows NULL: none where they follow the routing. Of SPW_ROWS_EXPERT: 0, as rows of single experts are not among them;
 * spw_layer_row_bytes() times those rows is right. */
static inline uint64_t spw_layer_bytes(const spw_layer_tensor *t, const spw_rank_rows *routed) {
    return spw_layer_row_bytes(t, spw_routed_rows(t->rows, routed));
}
/* The position of a tensor; SIZE_MAX: none has that name. */
size_t spw_layer_find(const spw_layer *layer, const char *name);
/* As "[D, H] x 2 B = 40960 x 7168 x 2". */
spw_formula spw_layer_formula(const spw_layer_tensor *t, const spw_rank_rows *routed);

/* Its greatest sums. Saturates at UINT64_MAX. */
spw_live_set spw_layer_live_set(const spw_layer *layer, const spw_rank_rows *rows);

/* What is live after event i, from what was before it; the forward pass leaves nothing to the others. */
uint64_t spw_layer_live_after(const spw_layer *layer, const spw_rank_rows *rows, size_t i, uint64_t before);

/* The step of an event; "" of SIZE_MAX. Lives as long as the layer. */
const char *spw_layer_step(const spw_layer *layer, size_t event);

/* Is a tensor live right after an event? The forward pass leaves nothing to the others. */
bool spw_layer_is_live(const spw_layer *layer, const spw_rank_rows *rows, size_t tensor, size_t event);

/* An event after which more is live than before and after it: the steps to look at when memory is short. */
typedef struct spw_layer_moment {
    size_t event;
    uint64_t bytes;
} spw_layer_moment;
/* The `most` fullest, fullest first, of equals the earlier; returns how many there are of these. */
size_t spw_layer_moments(const spw_layer *layer, const spw_rank_rows *rows, spw_layer_moment *out,
                         size_t most);
/* Tensors that are live after an event, largest first, of equals the earlier born: tensor[layer->tensors]. */
size_t spw_layer_live_tensors(const spw_layer *layer, const spw_rank_rows *rows, size_t event,
                              size_t *tensor);

#endif
