/* What lives in XLA's arena at the peak of a MoE layer's backward pass: tensors that the mathematics needs
 * then, and copies that the compiler adds. A list belongs to a scheme (its file says which tensors they
 * are). The numbers are whole and chosen by hand, so that they agree with the scheme's event list and with
 * the slopes of compiled programs of two models; what is left is the packing coefficient of a stack. The
 * model on top of it: sim/memory/compiled_memory.h, docs/validation_memory.md. */
#ifndef SPW_SIM_INPUT_COMPILED_LAYER_H
#define SPW_SIM_INPUT_COMPILED_LAYER_H

#include <stdbool.h>

/* Kinds of programs that the compiler packs alike: each has one packing coefficient in a stack. */
#define SPW_PACKING_LIST(X) \
    X(DENSE, "dense", "dense_matmul, all-to-all layout") \
    X(DENSE_GATHERED, "dense_gathered", "dense_matmul, weights of all experts gathered") \
    X(GMM, "gmm", "grouped GEMM behind ragged all-to-alls") \
    X(DEEPEP, "gmm_deepep", "grouped GEMM behind DeepEP") \
    X(RING, "ring", "ring of experts") \
    X(RING_SORTED, "ring_sorted", "ring of experts with ragged sort")
#define SPW_PACKING_ENUM(name, text, help) SPW_PACKING_##name,
typedef enum spw_packing { SPW_PACKING_LIST(SPW_PACKING_ENUM) SPW_PACKING_COUNT } spw_packing;
#undef SPW_PACKING_ENUM

/* How the layer's exchanges are compiled. */
typedef enum spw_compiled_exchange {
    SPW_COMPILED_EXCHANGE_NONE,       /* weights come to the tokens */
    SPW_COMPILED_EXCHANGE_ALL_TO_ALL, /* of the whole buffer */
    SPW_COMPILED_EXCHANGE_PEELED,     /* all-to-alls of the buffer, two of them at the width of F */
    SPW_COMPILED_EXCHANGE_RAGGED,     /* ragged all-to-alls of the assignments */
    SPW_COMPILED_EXCHANGE_GATHER,     /* all-gather there, reduce-scatter back */
    SPW_COMPILED_EXCHANGE_LIBRARY     /* a call that XLA does not see into */
} spw_compiled_exchange;

typedef struct spw_compiled_layer {
    spw_packing packing;
    spw_compiled_exchange exchange;
    unsigned hidden_live, hidden_copies; /* [buffer rows, H]: what the backward pass needs; layout copies */
    unsigned ffn;                        /* [buffer rows, F] */
    unsigned masks;                      /* [T, E C] */
    unsigned assignments;                /* [T K, H] */
    unsigned gathered;                   /* [R T, H] */
    bool all_experts;     /* the weights of all experts are gathered, not those of the rank alone */
    bool masked_operands; /* ragged_dot: [e, rows, H] and [e, rows, F], by the stack's masked_operands */
    bool whole_dispatch;  /* one [E, C, H] for the sequences of all GPUs */
} spw_compiled_layer;

#endif
