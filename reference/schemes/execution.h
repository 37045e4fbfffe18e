/* An expert-parallel layer, executed: virtual ranks with their own buffers (arena.h) that reach each other
 * through the fabric (fabric.h) only. A scheme is one file beside this one and a row of the table: forward,
 * recompute and backward pass of the layer, with tensors born and dying under the names and in the order of
 * the simulator's event list. */
#ifndef SPW_REFERENCE_SCHEMES_EXECUTION_H
#define SPW_REFERENCE_SCHEMES_EXECUTION_H

#include "base/status.h"
#include "reference/arena.h"
#include "reference/expert_ffn.h"
#include "reference/fabric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SPW_EXECUTION_RANKS = 256 };

/* An option of the scheme: a number, or one of its words. */
typedef struct spw_execution_option {
    const char *name;
    double number;
    const char *word; /* NULL: a number */
} spw_execution_option;

typedef struct spw_execution_shape {
    size_t ranks; /* at most SPW_EXECUTION_RANKS; a multiple of expert_tensor */
    size_t
        expert_tensor; /* t consecutive ranks share each expert; 0 counts as 1; ranks / t divides experts */
    bool
        tensor_group; /* those ranks have the same tokens: arrays of the input and of y, dx and d_weight are by group, [ranks / t]
                          in place of [ranks] (MaxText's mesh axis tensor) */
    size_t experts, top_k; /* expert x lives on the t ranks from x / (experts t / ranks) t on */
    size_t hidden,
        ffn; /* ffn: the columns of one rank; with t > 1 the input's matrices have t times as many */
    size_t sequences, sequence_length; /* of every rank; tokens = sequences * sequence_length */
    size_t element_bytes;              /* what an activation counts as; it is computed in fp32 */
    size_t node_ranks;                 /* ranks on one node; 0: all */
    double factor;                     /* capacity_factor (dense) or buffer_factor (0: the worst case) */
    spw_swiglu
        activation; /* all 0: SwiGLU. Without a gate: experts of two matrices, w0 and wo; w1 is not read and its gradient stays 0 */
    bool recompute_activation; /* moe_act: the activation is not kept, for schemes that know it */
    const spw_execution_option
        *option; /* in any order, ended by a NULL name; what is missing, or all where this is NULL,
                                           has the scheme's default, the capacity or buffer factor `factor` */
} spw_execution_shape;

size_t spw_execution_sharers(const spw_execution_shape *shape); /* expert_tensor, at least 1 */
/* The option of that name, or `missing`. */
double spw_execution_number(const spw_execution_shape *shape, const char *name, double missing);
const char *spw_execution_word(const spw_execution_shape *shape, const char *name, const char *missing);
bool spw_execution_is(const spw_execution_shape *shape, const char *name, const char *word);

/* All borrowed. */
typedef struct spw_execution_input {
    const int32_t *expert; /* [ranks][tokens][top_k] distinct ids in a token, or < 0: unused slot */
    const float *weight;   /* [ranks][tokens][top_k] */
    const float
        *score; /* [ranks][tokens][experts] of all experts, in [0, 1]; NULL for schemes that go by choices */
    const float *x, *dy;        /* [ranks][tokens][hidden] */
    spw_expert_weights weights; /* of all experts; a rank reads its own slice */
} spw_execution_input;

/* The caller's memory, all overwritten. A dropped assignment contributes 0 everywhere. */
typedef struct spw_execution_output {
    float *y, *dx;   /* [ranks][tokens][hidden] */
    float *d_weight; /* [ranks][tokens][top_k] */
    float *
        d_score; /* [ranks][tokens][experts], with input.score only: gradient of the weight with which a token went to an
                       expert, 0 where it did not */
    spw_expert_gradients gradients; /* of all experts; a rank writes its own slice */
    uint64_t *rows;    /* [ranks] rows that the rank holds for its experts, empty slots included */
    uint64_t *dropped; /* [ranks] assignments of this source rank that found no room */
} spw_execution_output;

typedef struct spw_execution spw_execution; /* schemes/ranks.h */

typedef struct spw_executor {
    const char *name; /* of the scheme in the simulator */
    spw_status (*run)(spw_execution *run);
    bool shares; /* executes shapes with expert_tensor above 1 */
    bool groups; /* the same with tensor_group */
} spw_executor;

/* All schemes, ended by a NULL name. */
extern const spw_executor spw_executors[];
const spw_executor *spw_executor_find(const char *name); /* NULL when there is none */

/* Runs forward, recompute and backward pass once. The arena and the fabric are the caller's, made for
 * shape.ranks, and keep what was counted. Sums have the order of the plain layer: fp64 over choices, rounded
 * once, wherever the scheme brings all terms to one place; partial sums of ranks are rounded to fp32 and
 * added in order of rank. SPW_EARG: a shape or ids that cannot be. SPW_EMISMATCH: a message that nobody
 * received. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_execute(const spw_executor *executor, const spw_execution_shape *shape,
                                      const spw_execution_input *input, const spw_execution_output *output,
                                      spw_arena *arena, spw_fabric *fabric);

#ifdef __cplusplus
}
#endif
#endif
