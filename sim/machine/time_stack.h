/* The speed of a software stack whose programs XLA compiles whole: the few coefficients of sim/time/compiled/compiled_time.h.
 * Presets are YAML files in sim/time_stacks/, compiled in and written by `spillway calibrate time`; they bear the
 * names of the stacks of sim/stacks/. Shares are of the cluster's figures, so they go with the software. */
#ifndef SPW_SIM_MACHINE_TIME_STACK_H
#define SPW_SIM_MACHINE_TIME_STACK_H

#include "base/status.h"
#include "sim/machine/stack.h"

/* One list, expanded into the struct, the YAML keys and the fit. None depends on the scheme's options, the batch or
 * the cell. Fitted on all stacks of a family together. Doubt: what the start may be off by where no table speaks of the
 * coefficient, one standard deviation of the logarithm. Hold: what the fit pays for a logarithm away from its start; little
 * where the start is a guess, 0.03 (what runs scatter by) over the doubt where it is published.
 * X(field, start of the fit, lowest, highest, doubt, hold, help) */
#define SPW_TIME_FITTED_LIST(X) \
    X(dense_share, 0.55, 0.01, 1.0, 0.15, 0.02, "products of XLA's own: share of the peak") \
    X(grouped_share, 0.30, 0.01, 1.0, 0.25, 0.02, "grouped GEMM of a library: share of the peak") \
    X(memory_share, 0.55, 0.01, 1.0, 0.15, 0.02, \
      "kernels that move rows or work by element: share of HBM's rate") \
    X(scatter_share, 0.024, 1e-4, 1.0, 0.5, 0.02, "scatter-adds, by the bytes added: share of HBM's rate") \
    X(network_share, 0.85, 0.01, 1.0, 0.08, 0.02, "rings between nodes: share of the NIC's rate") \
    X(alltoall_share, 0.90, 0.01, 1.0, 0.12, 0.25, \
      "exchanges between nodes, by the bytes that leave a GPU's node: share of the NIC's rate") \
    X(link_share, 0.80, 0.01, 1.0, 0.25, 0.02, "all-to-alls inside a node: share of the link's rate") \
    X(oneshot_share, 0.030, 1e-4, 1.0, 0.3, 0.02, \
      "XLA's one-shot ragged all-to-all: share of the link's rate") \
    X(hidden_share, 0.60, 0.0, 1.0, 0.4, 0.02, "of the time of weight collectives: the most that can hide") \
    X(layer_cover, 0.60, 0.0, 1.0, 0.4, 0.02, \
      "of the time outside the experts: what weight collectives hide behind") \
    X(product_cover, 0.60, 0.0, 1.0, 0.6, 0.02, "of the time of XLA's own expert products: the same")
#define SPW_TIME_TEXT_LIST(X) \
    X(text_imbalance, 1.3, 1.0, 8.0, 0.15, 0.02, \
      "rows of the busiest rank over the mean, by layer, when real text is read") \
    X(text_input_s, 3.0, 0.0, 100.0, 0.5, 0.02, "what a step waits for real text, whatever the scheme")

enum { SPW_TIME_FITTED = 11, SPW_TIME_TEXT = 2, SPW_TIME_ROWS = SPW_TIME_FITTED + SPW_TIME_TEXT };

typedef struct spw_time_stack {
    char name[SPW_STACK_NAME];
    char tables
        [SPW_STACK_TEXT]; /* what it was fitted on; "none": no run, coefficients are of kernels or assumed */
    char models[SPW_STACK_TEXT], clusters[SPW_STACK_TEXT], schemes[SPW_STACK_TEXT]; /* of those tables */
    char expert_parallel[SPW_STACK_TEXT];  /* sizes of those tables; "": any */
    char fsdp[SPW_STACK_TEXT];             /* sizes of those tables; "": any */
    char sequence_lengths[SPW_STACK_TEXT]; /* tokens of a sequence of those tables; "": any */
    size_t sequences_min, sequences_max;
#define SPW_TIME_FIELD(field, start, low, high, doubt, hold, help) spw_coefficient field;
    SPW_TIME_FITTED_LIST(SPW_TIME_FIELD)
    SPW_TIME_TEXT_LIST(SPW_TIME_FIELD)
#undef SPW_TIME_FIELD
    spw_coefficient gather_limit_gib; /* all-gathers are combined up to this size */
    spw_coefficient attention_share;  /* flash attention: share of the peak */
    spw_coefficient library_share;    /* DeepEP: share of the cluster's measured exchange rates */
    spw_coefficient latency_s;        /* one hop of a collective */
    spw_coefficient serial_share;     /* of the shorter leg of an exchange: what the longer does not hide */
    /* The interval (sim/time/compiled/compiled_doubt.h), as logarithms: of runs like those of the tables; for each kind of scheme, size
     * or batch that they do not have; for each model, cluster, sequence length, policy or split that they do not have. */
    spw_coefficient half_width, half_width_unseen, half_width_elsewhere;
} spw_time_stack;

/* `name` is a preset or the path of a YAML file. SPW_ECONFIG names file, line and what would be right. */
SPW_MUST_CHECK spw_status spw_time_stack_read(const char *name, const char *folder, spw_time_stack *out);
SPW_MUST_CHECK spw_status spw_time_stack_parse(const char *where, const char *text, size_t length,
                                               spw_time_stack *out);
const char *const *spw_time_stack_presets(void); /* ended by NULL */
bool spw_time_stack_knows(const char *name);     /* is there a preset of that name? */
bool spw_time_stack_is_fitted(const spw_time_stack *stack);

/* Writes YAML that spw_time_stack_parse reads back. */
SPW_MUST_CHECK spw_status spw_time_stack_write(const spw_time_stack *stack, const char *path);

/* The coefficients that are fitted, in the order of the lists above. */
typedef struct spw_time_row {
    const char *key, *help;
    size_t offset; /* in spw_time_stack */
    double start, minimum, maximum, doubt, hold;
} spw_time_row;
extern const spw_time_row spw_time_rows[SPW_TIME_ROWS];
spw_coefficient *spw_time_coefficient(spw_time_stack *stack, size_t row);

#endif
