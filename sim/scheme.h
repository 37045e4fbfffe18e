/* An execution scheme: how one MoE layer is spread over an expert-parallel group. A scheme is a table row and
 * one file in sim/schemes/; it says what it sends, what it drops and which tensors it holds when. Everything
 * else (bytes on links, memory, time) is computed from that by code that knows no scheme. Formulas:
 * docs/schemes.md. */
#ifndef SPW_SIM_SCHEME_H
#define SPW_SIM_SCHEME_H

#include "base/status.h"
#include "sim/compiled_layer.h"
#include "sim/counts.h"
#include "sim/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPW_SCHEME_OPTIONS = 4, SPW_SCHEME_EXCHANGES = 8, SPW_SCHEME_TENSORS = 32 };

/* One expert-parallel layer as every rank sees it. Letters are those of docs/schemes.md. */
typedef struct spw_layer_shape {
    size_t ranks;            /* R */
    size_t experts;          /* E */
    size_t experts_per_rank; /* e = E / R */
    size_t top_k;            /* K */
    size_t hidden, ffn;      /* H, F */
    size_t sequences;        /* p, per rank */
    size_t sequence_length;  /* S */
    size_t tokens;           /* T = p S, per rank */
    size_t assignments;      /* N = T K */
    size_t worst_rows;       /* W = R T min(e, K) */
    size_t element_bytes;    /* b, of activations */
} spw_layer_shape;

spw_layer_shape spw_layer_shape_of(const spw_job *job, size_t sequences);

/* Passes over a layer in training. Under remat full all three happen, otherwise RECOMPUTE does not. */
typedef enum spw_phase {
    SPW_PHASE_FORWARD,
    SPW_PHASE_RECOMPUTE,
    SPW_PHASE_BACKWARD,
    SPW_PHASE_COUNT
} spw_phase;
const char *spw_phase_name(spw_phase phase);

/* One all-to-all. Rank s sends flow.wire[s][d] rows of row_bytes to d; `back`: d sends them to s. */
typedef struct spw_exchange {
    const char *name;
    spw_phase phase;
    bool back;
    uint64_t row_bytes;
} spw_exchange;

/* Sizes a tensor can have: rows x width x element_bytes. */
typedef enum spw_rows {
    SPW_ROWS_ASSIGNMENTS,
    SPW_ROWS_GATHERED,
    SPW_ROWS_BUFFER,
    SPW_ROWS_EXPANDED,
    SPW_ROWS_TOKENS
} spw_rows;
typedef enum spw_width { SPW_WIDTH_HIDDEN, SPW_WIDTH_FFN, SPW_WIDTH_SLOTS } spw_width;

typedef struct spw_tensor {
    const char *name;
    spw_rows rows;   /* N, R T, buffer rows of the scheme, e x buffer rows, or T */
    spw_width width; /* H, F, or E C (capacity slots of a sequence) */
} spw_tensor;

/* A tensor is born (+1) or dies (-1) at a named step of a pass. The order of the list is the order of
 * execution; the executed reference allocates and frees in the same order under the same names. Tensors that
 * are live when RECOMPUTE ends are what the backward pass needs: without remat they are saved by the forward
 * pass. */
typedef struct spw_event {
    spw_phase phase;
    const char *step;
    int tensor; /* index into the scheme's tensors */
    int sign;
} spw_event;

/* What one layer of one step does in one group. Caller's memory; the scheme overwrites all of it. */
typedef struct spw_flow {
    uint64_t *wire; /* [ranks][ranks] rows that s sends to d in one dispatch, its own included */
    uint64_t *rows; /* [ranks] rows that d holds for its experts, without deduplication */
    uint32_t
        *limit; /* [ranks][units][experts] assignments kept, in token order; units: see limit_per_sequence */
    uint64_t *dropped; /* [ranks] assignments of source rank s that are dropped */
} spw_flow;

typedef struct spw_scheme spw_scheme;

typedef struct spw_scheme_option {
    const char *name; /* NULL ends the list */
    double minimum, maximum, fallback;
    bool required;
    const char *help;
    const char *const *choices; /* ended by NULL: the value is one of these words, kept as its position; NULL:
                                   the value is a number */
} spw_scheme_option;

typedef struct spw_scheme_type {
    const char *name, *summary;
    const char *section_source; /* as "event list (2)": section of docs/schemes.md */
    const char *source;         /* the code it was read from */
    const spw_scheme_option *options;
    const spw_tensor *tensors;
    const spw_event *events;
    size_t tensor_count, event_count;
    bool limit_per_sequence; /* flow.limit has one unit a sequence, else one a rank */
    bool by_node;            /* between nodes a token travels once a node and is forwarded there: Q, not U */
    size_t (*buffer_rows)(const spw_scheme *scheme, const spw_layer_shape *shape);
    const char *buffer_formula;
    size_t (*exchanges)(const spw_layer_shape *shape, spw_exchange out[SPW_SCHEME_EXCHANGES]); /* how many */
    void (*flow)(const spw_scheme *scheme, const spw_layer_shape *shape, const spw_counts *counts,
                 size_t group, spw_flow *out);
    uint64_t (*communication_bytes)(
        const spw_layer_shape *shape); /* buffers beside the tensors; NULL = none */
    spw_status (*check)(const spw_scheme *scheme, const spw_layer_shape *shape); /* NULL = nothing to check */
    const spw_compiled_layer *(*compiled)(
        const spw_scheme *scheme); /* NULL = not a program that XLA compiles whole */
} spw_scheme_type;

/* A scheme with its options set. */
struct spw_scheme {
    const spw_scheme_type *type;
    char text[SPW_SCHEME_TEXT]; /* as written: name[:key=value[,key=value]] */
    double option[SPW_SCHEME_OPTIONS];
};

/* All schemes, ended by NULL. */
extern const spw_scheme_type *const spw_scheme_types[];

/* Reads "name[:key=value,...]". SPW_ECONFIG lists the known schemes or options. */
SPW_MUST_CHECK spw_status spw_scheme_parse(const char *text, spw_scheme *out);
/* A number, or the position of the word among the choices; NAN when the scheme has no such option. */
double spw_scheme_option_value(const spw_scheme *scheme, const char *name);
/* Is option `name` there and set to `word`? */
bool spw_scheme_option_is(const spw_scheme *scheme, const char *name, const char *word);

/* Capacity slots C of one sequence and expert, for SPW_WIDTH_SLOTS; 0 where the scheme has none. */
size_t spw_scheme_capacity(const spw_scheme *scheme, const spw_layer_shape *shape);

/* Bytes of one tensor; UINT64_MAX when it does not fit in 64 bits. `formula` may be NULL. */
uint64_t spw_tensor_bytes(const spw_scheme *scheme, const spw_layer_shape *shape, const spw_tensor *tensor,
                          char *formula, size_t formula_size);

/* Runs the event list. live_forward: peak of FORWARD; live_backward: peak of RECOMPUTE + BACKWARD; saved:
 * live between the two. peak_step and peak_live (one flag a tensor) describe live_backward. Saturates at
 * UINT64_MAX. */
typedef struct spw_live_set {
    uint64_t forward_bytes, backward_bytes, saved_bytes;
    const char *forward_step, *backward_step;
    bool peak_live[SPW_SCHEME_TENSORS];
} spw_live_set;
spw_live_set spw_scheme_live_set(const spw_scheme *scheme, const spw_layer_shape *shape);

#endif
