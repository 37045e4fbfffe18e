/* The memory coefficients of a software stack whose programs XLA compiles whole (sim/memory/compiled/compiled_memory.h), fitted
 * for it. Presets are YAML files in sim/stacks/, compiled in and written by `spillway calibrate memory`. */
#ifndef SPW_SIM_MACHINE_STACK_H
#define SPW_SIM_MACHINE_STACK_H

#include "base/status.h"
#include "sim/machine/cluster.h"
#include "sim/read/coefficient.h"

#include <stdbool.h>
#include <stddef.h>

enum { SPW_OUTSIDE_TEXT = 1024, SPW_STACK_COVERS = 12 };

/* Everything that is fitted. One list, expanded into the struct, the YAML keys and the fit.
 * X(field, lowest, highest, spread before any data, help) */
#define SPW_STACK_COEFFICIENT_LIST(X) \
    X(recovered_dense, 0.0, 1, 0.3, \
      "share of what is past XLA's limit that it computes again: dense layers") \
    X(recovered_gathered, 0.0, 1, 0.3, "the same where the weights of all experts are gathered") \
    X(recovered_grouped, 0.0, 1, 0.3, "the same of a layer behind ragged all-to-alls") \
    X(recovered_ring, 0.0, 1, 0.3, "the same of a layer that receives tokens: the ring, DeepEP")

/* What the tables of a fit spoke of, words between blanks, and a job to compare with it. */
typedef struct spw_fit_range {
    const char *models, *clusters, *expert_parallel, *sequence_lengths;
    size_t sequences_min, sequences_max;
} spw_fit_range;
typedef struct spw_fit_point {
    const char *model, *cluster;
    size_t expert, sequences, sequence_length;
    bool bf16; /* weights, gradients, optimizer and activations, as in all tables that were fitted */
} spw_fit_point;

/* Figures that many of these stacks share: sim/stack_defaults/compiled.yaml (sim/machine/stack_defaults.h). X(field, lowest, highest, help) */
#define SPW_COMPILED_DEFAULT_LIST(X) \
    X(most_recovered, 0, 1, "of a layer's rows: the most that XLA computes again") \
    X(logits_kept_bytes, 0, 1e15, "logits up to this size stay beside a uniform scan") \
    X(state_chunk_tokens, 1, 1e6, "MaxText keeps a state of a linear attention for so many tokens each") \
    X(state_stacks, 0, 100, "such stacks of states that a waiting layer keeps") \
    X(jax_memory_fraction, 0.001, 1, "of a GPU that JAX takes where its environment does not say") \
    X(gathered_again, 0, 1, \
      "of what is past the limit, where all experts' weights are gathered twice instead") \
    X(ring_sum, 1, 10, "XLA's own sum of a ring over what is live, before it runs anything again") \
    X(hiding_sum, 1, 10, "the same under latency hiding, where its scheduler counts all that it may start") \
    X(held_rows, 0, 100, "of [rows, H] past the limit that XLA leaves, where products are custom calls") \
    X(held_freed, 0, 100, "of [rows, H]: the most that it frees of so little")
#define SPW_DEFAULT_EXTERN(field, ...) extern const spw_coefficient spw_default_##field;
SPW_COMPILED_DEFAULT_LIST(SPW_DEFAULT_EXTERN)
#undef SPW_DEFAULT_EXTERN

typedef struct spw_stack {
    char name[SPW_STACK_NAME];
    char covers[SPW_STACK_COVERS]
               [SPW_STACK_NAME]; /* `stack` of a table's rows; the name itself is covered too */
    size_t covered;
    char tables[SPW_STACK_TEXT]; /* what it was fitted on */
    char models[SPW_STACK_TEXT]; /* of those tables, separated by blanks */
    char clusters[SPW_STACK_TEXT],
        expert_parallel[SPW_STACK_TEXT];   /* where and with which sizes its runs were; "": any */
    char sequence_lengths[SPW_STACK_TEXT]; /* tokens of a sequence of its runs; "": any */
    size_t sequences_min, sequences_max;
    char tree
        [SPW_STACK_NAME]; /* of MaxText: which products carry which checkpoint name, sim/job/recipe/remat.h */
    bool latency_hiding;  /* XLA's latency-hiding scheduler: exchanges in flight take memory */
    bool exchange_arena;  /* XLA of JAX 0.11 on: buffers of ragged all-to-alls lie in an arena of their own */
    /* What its tables hold, words between blanks: kinds of programs, remat policies, layers per turn of the scan. "": nothing. */
    char programs[SPW_STACK_TEXT], remats[SPW_STACK_TEXT], turns[SPW_STACK_TEXT];
    char parts
        [SPW_STACK_TEXT]; /* "pipeline", "micro_batches" and "fp32" (weights and gradients), where its tables have such programs */
    char times
        [SPW_STACK_NAME]; /* the time stack of its programs, or its file; "": the one of its own name, if there is one */
#define SPW_STACK_FIELD(field, low, high, spread, help) spw_coefficient field;
    SPW_STACK_COEFFICIENT_LIST(SPW_STACK_FIELD)
#undef SPW_STACK_FIELD
#define SPW_STACK_FIELD(field, ...) spw_coefficient field;
    SPW_COMPILED_DEFAULT_LIST(SPW_STACK_FIELD) /* where the file has no such key: spw_default_KEY */
#undef SPW_STACK_FIELD
    spw_coefficient limit_share; /* of (pool - arguments): where XLA begins to compute again */
    spw_coefficient half_width;  /* of the interval around what the scheduler may do, as a logarithm ... */
    spw_coefficient half_width_unseen; /* ... and more for each feature that no row of the tables has */
} spw_stack;

/* `name` is a preset, another name that one covers, as of a release ("xla-cuda-0.12.0.1"), or the path of a YAML file. SPW_ECONFIG names file, line and what would be right. */
SPW_MUST_CHECK spw_status spw_stack_read(const char *name, const char *folder, spw_stack *out);
SPW_MUST_CHECK spw_status spw_stack_parse(const char *where, const char *text, size_t length, spw_stack *out);
const char *const *spw_stack_presets(void); /* ended by NULL */
bool spw_stack_covers(const spw_stack *stack, const char *name);
bool spw_has_word(const char *words, const char *word); /* words stand between blanks */

/* What of a point a range leaves out. */
typedef struct spw_outside_count {
    size_t sizes;  /* expert-parallel size, sequences */
    size_t places; /* model, cluster, sequence length, precision */
    bool network;  /* the cluster or the expert-parallel size is among them */
} spw_outside_count;

/* Adds one reason why a fit does not cover a job: "; " stands between two. spw_outside_ranges adds what the
 * range leaves out, and counts it; a list that is empty says nothing. */
void spw_outside_add(char note[SPW_OUTSIDE_TEXT], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
spw_outside_count spw_outside_ranges(char note[SPW_OUTSIDE_TEXT], const spw_fit_range *range,
                                     const spw_fit_point *point);

/* Writes the stack as YAML that spw_stack_parse reads back. */
SPW_MUST_CHECK spw_status spw_stack_write(const spw_stack *stack, const char *path);

/* All fitted coefficients in the order of the YAML keys, for loops. */
typedef struct spw_stack_row {
    const char *key, *help;
    size_t offset; /* in spw_stack */
    double minimum, maximum, spread;
} spw_stack_row;
enum { SPW_STACK_FITTED = 4 };
extern const spw_stack_row spw_stack_rows[SPW_STACK_FITTED];
spw_coefficient *spw_stack_coefficient(spw_stack *stack, size_t row);

#endif
