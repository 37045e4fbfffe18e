/* What kind of program XLA makes of a scheme's layer: for the models of memory, time and traffic that know no scheme. The
 * layer's tensors are in its event list (sim/schemes/maxtext/xla_layers.h). */
#ifndef SPW_SIM_MACHINE_COMPILED_LAYER_H
#define SPW_SIM_MACHINE_COMPILED_LAYER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_stack spw_stack;

/* Kinds of programs that are compiled alike. */
#define SPW_PROGRAM_LIST(X) \
    X(DENSE, "dense", "dense_matmul, all-to-all layout") \
    X(DENSE_GATHERED, "dense_gathered", "dense_matmul, weights of all experts gathered") \
    X(GMM, "gmm", "grouped GEMM behind ragged all-to-alls") \
    X(DEEPEP, "gmm_deepep", "grouped GEMM behind DeepEP") \
    X(RING, "ring", "ring of experts") \
    X(RING_SORTED, "ring_sorted", "ring of experts with ragged sort")
#define SPW_PROGRAM_ENUM(name, text, help) SPW_PROGRAM_##name,
typedef enum spw_program { SPW_PROGRAM_LIST(SPW_PROGRAM_ENUM) SPW_PROGRAM_COUNT } spw_program;
#undef SPW_PROGRAM_ENUM

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
    spw_program program;
    spw_compiled_exchange exchange;
    bool capacity_slots;  /* masks, and a scatter of the top-k weights over the whole job's batch */
    bool all_experts;     /* the weights of all experts are gathered, not those of the rank alone */
    bool masked_operands; /* ragged_dot */
    unsigned scatters;    /* of buffer rows on the receiver, beside the gathers */
    bool oneshot;         /* the ragged exchanges run in XLA's one-shot kernel, not the library's */
    bool whole_dispatch;  /* one [E, C, H] for the sequences of all GPUs */
} spw_compiled_layer;

/* Which of spw_stack_rows a kind of program takes: its share of buffers that come back, and its value. */
size_t spw_stack_recovers(spw_program program);
double spw_stack_recovered(const spw_stack *stack, spw_program program);
/* The least and the most of that share: as far from it as any program of the tables. */
typedef struct spw_recovered_range {
    double least, most;
} spw_recovered_range;
spw_recovered_range spw_stack_recovered_range(const spw_stack *stack, spw_program program);

#endif
