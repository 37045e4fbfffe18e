/* What XLA's scheduler may do otherwise than the list of tensors says: bytes of other orders of a step, by rules of structure.
 *
 * XLA schedules the whole program and takes the best of several orders, so that an order depends on all of the program. Where the layers
 * are one uniform scan every compiled program runs them in the order of the list. The exceptions are rows of a table in the source, each
 * with the programs that it was seen in (docs/validation_memory.md, "The interval"). */
#ifndef SPW_SIM_MEMORY_COMPILED_COMPILED_ORDERS_H
#define SPW_SIM_MEMORY_COMPILED_COMPILED_ORDERS_H

#include "sim/job/job_words.h"
#include "sim/machine/compiled_layer.h"
#include "sim/memory/compiled/compiled_cut.h"
#include "sim/model/model.h"
#include "sim/schemes/scheme.h"

typedef struct spw_stack spw_stack;

/* A step whose orders are asked for. */
typedef struct spw_compiled_program {
    const spw_stack *stack;
    const spw_job *job;
    const spw_scheme *scheme;
    const spw_layer_shape *shape;
    const spw_compiled_cut *cut;
    double wanted_bytes, limit_bytes; /* the list, and what the compiler plans for */
} spw_compiled_program;

/* Bytes that another order of the step holds less and more than the list; each 0 where none was seen. */
typedef struct spw_compiled_orders {
    double less, more;
} spw_compiled_orders;

spw_compiled_orders spw_compiled_orders_of(const spw_compiled_program *program);

/* [rows, H] of the scheme's buffer. */
double spw_compiled_row_bytes(const spw_compiled_program *program);

/* Are the layers one scan of like layers? Not where a single dense layer is unrolled, a turn has several layers, or scans lie in turns. */
bool spw_compiled_is_uniform(const spw_model *model);

#endif
