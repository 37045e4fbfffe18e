/* An execution scheme: how one MoE layer is spread over an expert-parallel group. A scheme is a table row and
 * one file in sim/schemes/; it says what it sends, what it drops and which tensors it holds when. Everything
 * else (bytes on links, memory, time) is computed from that by code that knows no scheme. Formulas:
 * docs/schemes.md. */
#ifndef SPW_SIM_SCHEMES_SCHEME_H
#define SPW_SIM_SCHEMES_SCHEME_H

#include "base/status.h"
#include "sim/input/compiled_layer.h"
#include "sim/input/job.h"
#include "sim/routing/counts.h"
#include "sim/schemes/layer_builder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPW_SCHEME_OPTIONS = 8, SPW_SCHEME_EXCHANGES = 12 };

/* One expert-parallel layer as every rank sees it. Letters are those of docs/schemes.md. */
struct spw_layer_shape {
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
    size_t node_ranks;       /* ranks of the group on one node */
    size_t gpus;             /* G, of the whole job */
    size_t waiting_layers;   /* other layers of a scan's turn: their recomputed tensors wait (XLA alone) */
    bool expert_bias;        /* of the expert GEMMs, behind which the activation is kept in two pieces */
    spw_remat remat;
};

spw_layer_shape spw_layer_shape_of(const spw_job *job, size_t sequences);

/* One all-to-all. Rank s sends flow.wire[s][d] rows of row_bytes to d; `back`: d sends them to s. */
typedef struct spw_exchange {
    const char *name;
    spw_phase phase;
    bool back;
    uint64_t row_bytes;
} spw_exchange;

/* The tokens of one group, for schemes whose drop rule looks at more than counts. */
typedef struct spw_choices {
    const int32_t *expert; /* [ranks][tokens][top_k], < 0 = no choice; token order of the rank */
    const float *weight;   /* the same shape; NULL unless the rule is SPW_DROP_BY_WEIGHT */
} spw_choices;

/* How a scheme says which choices it drops. */
typedef enum spw_drop_rule {
    SPW_DROP_BY_LIMIT,  /* by flow.limit, in token order */
    SPW_DROP_BY_TOKEN,  /* by keep(), from the ids */
    SPW_DROP_BY_WEIGHT, /* by keep(), from ids and weights: a trace without weights is refused */
} spw_drop_rule;

/* What one layer of one step does in one group. Caller's memory; the scheme overwrites all of it. */
typedef struct spw_flow {
    uint64_t *wire; /* [ranks][ranks] rows that s sends to d in one dispatch, its own included */
    uint64_t *rows; /* [ranks] rows that d holds for its experts, without deduplication */
    uint32_t
        *limit; /* [ranks][units][experts] assignments kept, in token order; units: see limit_per_sequence.
                   Left alone by schemes with keep(), unless they limit after it */
    uint64_t *
        dropped; /* [ranks] assignments of source rank s that are dropped. With keep(): by flow() itself, beyond
                          what keep() dropped */
} spw_flow;

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
    /* The life of its tensors. */
    void (*layer)(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *builder);
    /* The same as XLA runs it (sim/schemes/xla_layers.h); NULL: as above. */
    void (*xla_layer)(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *builder);
    bool shards_state;       /* MaxText's: the program keeps its whole state sharded; false: PyTorch's */
    bool by_choice_rank;     /* a token's first slot is its first choice: the drop rule goes by slots */
    bool limit_per_sequence; /* flow.limit has one unit a sequence, else one a rank */
    bool by_node;            /* between nodes a token travels once a node and is forwarded there: Q, not U */
    bool
        weighted_activation; /* router weights multiply the activation, where the expert is, not the returned row */
    bool once_a_rank;        /* a token travels once to a rank, whatever the number of its experts there */
    bool (*sends_once)(
        const spw_scheme *scheme); /* do by_node and once_a_rank hold under its options? NULL: yes */
    bool
        reorders_sums; /* gradients of weights are summed in another order than row by row: they equal the plain
                           layer's within the bound, not bit for bit */
    size_t (*buffer_rows)(const spw_scheme *scheme, const spw_layer_shape *shape); /* NULL: no fixed buffer */
    const char *buffer_formula;
    size_t (*own_rows)(const spw_scheme *scheme, const spw_layer_shape *shape, size_t i); /* NULL: none */
    const char *own_rows_formula[2];
    size_t (*exchanges)(const spw_scheme *scheme, const spw_layer_shape *shape,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]); /* how many */
    spw_drop_rule (*drop_rule)(const spw_scheme *scheme);        /* NULL: SPW_DROP_BY_LIMIT */
    /* kept [ranks][tokens][top_k]: 1 where a choice is kept; comes zeroed. SPW_ENOMEM. */
    spw_status (*keep)(const spw_scheme *scheme, const spw_layer_shape *shape, const spw_choices *choices,
                       uint8_t *kept);
    size_t (*expert_capacity)(
        const spw_scheme *scheme,
        const spw_layer_shape
            *shape);       /* with keep(): choices of one rank that an expert keeps at most; SIZE_MAX
                                          or NULL: not limited so */
    bool limit_after_keep; /* with keep(): flow.limit drops more of what it kept, after the wire */
    /* With keep(), `counts` are those of the kept choices. */
    void (*flow)(const spw_scheme *scheme, const spw_layer_shape *shape, const spw_counts *counts,
                 size_t group, spw_flow *out);
    /* Corrects the rows of balanced routing (spw_balanced_rows) by what the scheme drops or pads; NULL: neither. */
    void (*balance)(const spw_scheme *scheme, const spw_layer_shape *shape, spw_rank_rows *rows);
    bool (*adds_tokens)(
        const spw_scheme *scheme); /* may tokens go to experts that they did not choose? Then rows are
                                                      more than the kept choices. NULL: no */
    uint64_t (*communication_bytes)(
        const spw_scheme *scheme, const spw_layer_shape *shape); /* buffers beside the tensors; NULL = none */
    const char *communication_source, *communication_formula;    /* NULL: DeepEP's rings */
    spw_status (*check)(const spw_scheme *scheme, const spw_layer_shape *shape); /* NULL = nothing to check */
    const spw_compiled_layer *(*compiled)(
        const spw_scheme
            *scheme); /* NULL = not compiled whole by XLA, or never compared with such a program */
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

/* Can the scheme run in this shape, under its remat policy? SPW_ECONFIG says what would be right. */
SPW_MUST_CHECK spw_status spw_scheme_check(const spw_scheme *scheme, const spw_layer_shape *shape);

/* What a compiled scheme is like to a fit: the name of its kind of program, "ragged_dot" or "dense_peeled". */
const char *spw_compiled_kind(const spw_scheme *scheme);
spw_drop_rule spw_scheme_drop_rule(const spw_scheme *scheme);
/* Does any of them drop by router weight? */
bool spw_schemes_need_weights(const spw_scheme *scheme, size_t schemes);
bool spw_scheme_once_a_rank(const spw_scheme *scheme);
bool spw_scheme_by_node(const spw_scheme *scheme);

/* The rows of rank d of the group. */
spw_rank_rows spw_flow_rows(const spw_layer_shape *shape, const spw_flow *flow, size_t d);
/* The same when every expert is as likely as any other: held and sent N; received N, or what is expected of tokens that
 * travel once a rank. */
spw_rank_rows spw_balanced_rows(const spw_scheme *scheme, const spw_layer_shape *shape);

#endif
