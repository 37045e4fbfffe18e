/* The tensors of a training step under PyTorch's autograd, in the order in which they are allocated and freed. A module of a
 * framework is written down as its operations (sim/memory/tensors/transformers_modules.h); what is kept for the backward pass, and when it
 * goes, follows from PyTorch's own rules:
 *   - a tensor lives as long as a name, or a node of the graph, refers to its storage; views share one;
 *   - an operation with an input that needs a gradient leaves a node, which keeps what the gradients of these inputs need;
 *   - nodes run backward in the order of their sequence numbers, latest first [read: torch 2.11 torch/csrc/autograd/engine.cpp,
 *     evaluate_function]: gradients are made, the incoming gradient goes, then what was kept, then gradients are sent on;
 *   - a second gradient of the same tensor is added in place where nothing else refers to the first
 *     [input_buffer.cpp, accumulate]; a parameter's first gradient is taken as it is [accumulate_grad.h];
 *   - a region under checkpoint (use_reentrant=False) keeps nothing; before the first of its nodes runs backward it runs forward
 *     again, until it has made the last tensor that is kept [torch/utils/checkpoint.py, early_stop]. */
#ifndef SPW_SIM_MEMORY_TENSORS_AUTOGRAD_TAPE_H
#define SPW_SIM_MEMORY_TENSORS_AUTOGRAD_TAPE_H

#include "base/status.h"
#include "sim/memory/allocator/event_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_tape spw_tape;

/* A tensor by name. The zero value is none, of which nothing happens. */
typedef struct spw_value {
    uint32_t storage; /* 0: it has none here */
    uint32_t node;    /* what made it, or 0 */
    uint32_t leaf;    /* a parameter, or 0 */
    uint8_t output;   /* of that node */
    bool grad;        /* needs a gradient */
} spw_value;

enum { SPW_OP_INPUTS = 8, SPW_OP_KEPT = 12, SPW_OP_STEPS = 28 };

/* What a gradient's computation allocates, one after the other. */
typedef enum spw_gradient_role {
    SPW_GRADIENT_END,
    SPW_GRADIENT_TO,   /* the gradient of the input */
    SPW_GRADIENT_VIEW, /* the same, as a view of what the operation makes: nothing is added to it in place */
    SPW_GRADIENT_TEMP, /* there until the operation ends */
    SPW_GRADIENT_WORK, /* gone before the next */
    SPW_GRADIENT_DONE, /* the operation is; what comes next is the engine's, such as a sum to the input's shape */
    SPW_GRADIENT_ONCE, /* the first time alone, and it stays */
    SPW_GRADIENT_PASS, /* the incoming gradient, or a view of it, is the input's */
    SPW_GRADIENT_KEPT /* tensor number `bytes` of those that are kept is the input's gradient, made in the forward pass */
} spw_gradient_role;

typedef struct spw_gradient_step {
    spw_gradient_role role;
    uint8_t input; /* whose gradient it is for: nothing happens where it needs none */
    uint64_t bytes;
    double read_bytes, flop;
    bool inner; /* its products run at the operation's inner rate */
} spw_gradient_step;

typedef struct spw_kept {
    spw_value value;
    uint8_t input; /* for whose gradient it is kept */
} spw_kept;

/* An operation with one output (or several views of one). */
typedef struct spw_op {
    uint64_t bytes;      /* of the output; 0: it is a view of input 0 */
    uint64_t kept_bytes; /* a second output, which is kept for the gradient of input 0 */
    spw_value *second;   /* NULL, or gets its name */
    spw_value input[SPW_OP_INPUTS];
    spw_kept keep[SPW_OP_KEPT];
    bool keeps_output; /* for the gradient of input 0 */
    spw_gradient_step back[SPW_OP_STEPS];
    double read_bytes, flop; /* of the operation; its output is written */
    uint8_t rate;            /* how fast its products run: a word of who reads the times (sim/time) */
    double inner_flop;       /* of products of another rate in the same operation */
    uint8_t inner_rate;
} spw_op;

/* Work of a kind: kernels that were started, bytes that they read and write, FLOP of their products by `rate`. */
enum { SPW_TAPE_RATES = 6 };
typedef struct spw_tape_work {
    double kernels, bytes, flop[SPW_TAPE_RATES], products[SPW_TAPE_RATES];
} spw_tape_work;

typedef void (*spw_tape_region)(spw_tape *tape, void *of, size_t index);

/* leaf_kind: of gradients of parameters. */
SPW_MUST_CHECK spw_status spw_tape_create(uint16_t leaf_kind, spw_tape **out);
void spw_tape_destroy(spw_tape *tape); /* NULL is fine */

/* Where events go from here on, and of which kind they are. Errors are kept until spw_tape_status(). */
void spw_tape_write(spw_tape *tape, spw_event_list *list);
uint16_t spw_tape_kind(spw_tape *tape, uint16_t kind); /* gives back the kind that was */
void spw_tape_stream(spw_tape *tape, uint8_t stream);
SPW_MUST_CHECK spw_status spw_tape_status(const spw_tape *tape);
size_t spw_tape_slots(const spw_tape *tape);

/* A parameter: its weights are no matter of the tape. */
spw_value spw_tape_parameter(spw_tape *tape, bool trained);
/* A tensor that no operation of autograd makes. */
spw_value spw_tape_tensor(spw_tape *tape, uint64_t bytes);
void spw_tape_drop(spw_tape *tape, spw_value value);      /* a name goes */
spw_value spw_tape_hold(spw_tape *tape, spw_value value); /* another name of it */
/* The same, by a kernel of which autograd knows nothing: it is work. */
spw_value spw_tape_make(spw_tape *tape, uint64_t bytes, double read_bytes, double flop, uint8_t rate);
spw_value spw_tape_needs(spw_tape *tape, spw_value value); /* requires_grad_() of what no operation made */
spw_value spw_tape_apply(spw_tape *tape, const spw_op *op);
spw_value spw_tape_output(spw_value value, uint8_t output); /* another output of the same node */

/* Runs `run` forward without keeping anything; it runs again when its nodes run backward. */
void spw_tape_checkpoint(spw_tape *tape, spw_tape_region run, void *of, size_t index);
/* Marks, in the order of the forward pass, where the backward pass has something to do before it goes on to earlier nodes, and
 * before it comes to the nodes from here on: `run` with `index`. */
void spw_tape_hook(spw_tape *tape, spw_tape_region run, void *of, size_t index);

/* From the node of `loss` on. Nodes are gone afterwards, gradients of parameters are there. */
void spw_tape_backward(spw_tape *tape, spw_value loss);
/* Gradients of parameters [first, end) go. */
void spw_tape_forget(spw_tape *tape, uint32_t first, uint32_t end);
uint32_t spw_tape_leaves(const spw_tape *tape); /* the next parameter's number */

/* Calls `visit` for every tensor that a node keeps now, once a node; `storage` is its number, the same for views of one. */
typedef void (*spw_tape_visit)(void *of, uint32_t storage, uint64_t bytes, uint16_t kind);
void spw_tape_each_kept(const spw_tape *tape, spw_tape_visit visit, void *of);

spw_tape_work spw_tape_work_of(const spw_tape *tape); /* since it was created, or reset */
void spw_tape_reset_work(spw_tape *tape);

#endif
