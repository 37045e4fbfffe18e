/* An execution scheme: how one MoE layer is spread over an expert-parallel group. A scheme is a table row and
 * one file in sim/schemes/; it says what it sends, what it drops and which tensors it holds when. Everything
 * else (bytes on links, memory, time) is computed from that by code that knows no scheme. Formulas:
 * docs/schemes.md. */
#ifndef SPW_SIM_SCHEMES_SCHEME_H
#define SPW_SIM_SCHEMES_SCHEME_H

#include "base/status.h"
#include "sim/job/job_words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_compiled_layer spw_compiled_layer;
typedef struct spw_counts spw_counts;
typedef struct spw_layer_builder spw_layer_builder;
typedef struct spw_layer_shape spw_layer_shape;
typedef struct spw_scheme spw_scheme;
typedef struct spw_trainer spw_trainer;

enum { SPW_SCHEME_OPTIONS = 8, SPW_SCHEME_EXCHANGES = 12 };

/* How long a gradient of the experts' weights is there in a layer's backward pass: it counts outside of the layer's list, or is
 * added to what is there as soon as a product has made it, or waits for the end of the layer, where all are reduced. */
typedef enum spw_weight_gradients {
    SPW_WEIGHT_GRADIENTS_UNLISTED,
    SPW_WEIGHT_GRADIENTS_ADDED,
    SPW_WEIGHT_GRADIENTS_WAIT
} spw_weight_gradients;

/* Passes over a layer in training. Under remat full all three happen, otherwise RECOMPUTE does not. */
typedef enum spw_phase {
    SPW_PHASE_FORWARD,
    SPW_PHASE_RECOMPUTE,
    SPW_PHASE_BACKWARD,
    SPW_PHASE_COUNT
} spw_phase;

/* What the routing gives one rank in one layer. */
typedef struct spw_rank_rows {
    uint64_t held, received, sent;
} spw_rank_rows;

/* What the tensors of a layer add up to: peak of FORWARD, peak of RECOMPUTE + BACKWARD, what is live between the two. The events
 * are those after which the peaks are reached. */
typedef struct spw_live_set {
    uint64_t forward_bytes, backward_bytes, saved_bytes;
    uint64_t to_host_bytes;               /* of what waits in the host's memory, beside what is saved */
    size_t forward_event, backward_event; /* SIZE_MAX: nothing is ever live */
} spw_live_set;

/* One expert-parallel layer as every rank sees it. Letters are those of docs/schemes.md. */
struct spw_layer_shape {
    size_t ranks;         /* R, of the group: expert-parallel size times expert_tensor */
    size_t expert_tensor; /* t consecutive ranks that share each expert; 0 counts as 1 */
    size_t
        tensor; /* TP GPUs of MaxText's axis tensor, each with all rows of its rank; 0 counts as 1. What is said of
                      a rank is said of each */
    size_t experts;             /* E */
    size_t experts_per_rank;    /* e = E t / R */
    size_t top_k;               /* K */
    size_t groups, groups_kept; /* of experts, to which balanced routing limits a token; 0: it does not */
    size_t hidden, ffn;         /* H, F; with tensor F / TP. Of latent experts H is the width of their rows */
    bool plain_experts;         /* two matrices an expert, act(x W1) W2; else three with a gate */
    bool gelu;                  /* of these: GELU, else the square of ReLU; for execution alone */
    size_t sequences;           /* p, per rank */
    size_t sequence_length;     /* S; with tensor and context parallelism the rank's part of it */
    size_t context; /* CP consecutive groups of MaxText's mesh whose ranks share sequences; 0 counts as 1 */
    size_t tokens;  /* T = p S, per rank */
    size_t assignments;    /* N = T K */
    size_t worst_rows;     /* W = R T min(e, K) */
    size_t element_bytes;  /* b, of activations */
    size_t node_ranks;     /* ranks of the group on one node */
    size_t gpus;           /* G, that split the batch of a layer: all of the job, of a tensor group one */
    size_t waiting_layers; /* other layers of a scan's turn: their recomputed tensors wait (XLA alone) */
    bool looped;           /* in the loop of MaxText's pipeline, where XLA runs the layer in another order */
    bool
        routed_gradients; /* MaxText's tree gives the routing weights gradients under a sorted ring too (XLA alone) */
    bool
        unrolled_layer; /* the model has one layer without experts, which XLA does not loop over (XLA alone) */
    bool shared_expert;
    bool whole_weights; /* a rank holds its experts' weights whole and in place: none is gathered or copied */
    spw_weight_gradients
        weight_gradients; /* of the experts' products; by spw_point_of(), under schemes that list them */
    size_t weight_gradient_bytes; /* of an element */
    bool sequential_experts;      /* each runs by itself, one after the other (Megatron's SequentialMLP) */
    bool expert_bias;             /* of the expert GEMMs, behind which the activation is kept in two pieces */
    spw_remat remat;
    bool frozen_experts; /* their weights need no gradient */
    size_t lora_rank;    /* of the adapters of the routed experts; 0: none */
    size_t fp8_copies;   /* of an operand of an fp8 product (sim/job/recipe/fp8_recipe.h); 0: no recipe */
    bool
        fp8_scaled; /* each with a scale for every 32 bytes, or for every fp4_group elements of half a byte */
    size_t fp4_group; /* fp4: elements that share a scale of one byte; 0: copies are fp8 */
    unsigned offload; /* modules whose inputs wait in the host's memory (sim/job/recipe/offload_modules.h) */
    bool
        library_limits; /* the library that exchanges rows must take the layer (sim/schemes/library_limits.h) */
    bool delayed_weights; /* gradients of weights behind those of all inputs (delay_wgrad_compute) */
    bool offload_ahead;   /* another micro-batch's inputs are back while the layer runs forward */
};

/* t, at least 1. */
static inline size_t spw_layer_sharers(const spw_layer_shape *s) {
    return s->expert_tensor > 0 ? s->expert_tensor : 1;
}

/* Matrices of an expert; how many times F wide the first product is: gate and up, or one. */
static inline size_t spw_layer_matrices(const spw_layer_shape *s) { return s->plain_experts ? 2 : 3; }
static inline size_t spw_layer_first(const spw_layer_shape *s) { return spw_layer_matrices(s) - 1; }

/* CP, at least 1. */
static inline size_t spw_layer_context(const spw_layer_shape *s) { return s->context > 0 ? s->context : 1; }
/* Tokens of a sequence, of all who share it on MaxText's mesh. */
static inline size_t spw_whole_sequence(const spw_layer_shape *s) {
    return s->sequence_length * spw_layer_context(s);
}

spw_layer_shape spw_layer_shape_of(const spw_job *job, size_t sequences);
/* H / TP: of what the experts return, each GPU of a tensor group has that part of a row. */
size_t spw_returned_width(const spw_layer_shape *shape);

/* One all-to-all. Rank s sends flow.wire[s][d] rows of row_bytes to d; `back`: d sends them to s. */
typedef struct spw_exchange {
    const char *name;
    spw_phase phase;
    bool back;
    uint64_t row_bytes;
    size_t parts;    /* collectives that it is split into, one after the other; 0 counts as 1 */
    bool for_router; /* carries gradients of the router alone, and no hidden states */
    bool
        gathers; /* not by flow.wire: each rank sends the rows that arrived to those that share its experts, or, `back`,
                     gets theirs of them */
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

/* What one layer of one step does in one group. Caller's memory; the scheme overwrites all of it but `chosen`. */
typedef struct spw_flow {
    const uint32_t **
        wire; /* [ranks][ranks] rows that s sends to d in one dispatch, its own included. Lines stand in `line`
                              or in the counts, and ranks that send alike may have one in common */
    uint32_t *line; /* [spw_flow_lines()][ranks] room for them */
    bool too_many;  /* a line would need more than 32 bits (spw_flow_check) */
    uint64_t *rows; /* [ranks] rows that d holds for its experts, without deduplication */
    uint32_t
        *limit; /* [ranks][units][experts] assignments kept, in token order; units: see limit_per_sequence.
                   NULL where the scheme's type says that it has no limits */
    uint64_t *
        dropped; /* [ranks] assignments of source rank s that are dropped. With keep(): by flow() itself, beyond
                          what keep() dropped */
    const spw_counts *chosen; /* before keep(), for the scheme to read; NULL: the counts themselves */
} spw_flow;

/* Whose routing it is: one layer of one step in one expert-parallel group, of so many that the counts have. */
typedef struct spw_routed_group {
    const spw_scheme *scheme;
    const spw_layer_shape *shape;
    const spw_counts *counts;
    size_t number;
} spw_routed_group;

typedef struct spw_scheme_option {
    const char *name; /* NULL ends the list */
    double minimum, maximum, fallback;
    bool required;
    const char *help;
    const char *const *choices; /* ended by NULL: the value is one of these words, kept as its position; NULL:
                                   the value is a number */
} spw_scheme_option;

/* Where it is described. */
typedef struct spw_scheme_about {
    const char *summary;
    const char *section; /* as "event list (2)": section of docs/schemes.md */
    const char *source;  /* the code it was read from */
} spw_scheme_about;

/* Which choices are computed, and where. */
typedef struct spw_scheme_routing {
    const char *
        factor; /* the option that says how many rows there are before choices are dropped; NULL: none does */
    /* A factor with which no routing drops a choice, whatever it is: the smallest, but for what padding takes.
     * NULL: there is no factor. */
    double (*worst_factor)(const spw_scheme *scheme, const spw_layer_shape *shape);
    bool by_choice_rank;     /* a token's first slot is its first choice: the drop rule goes by slots */
    bool limit_per_sequence; /* flow.limit has one unit a sequence, else one a rank */
    bool limits; /* drops choices by flow.limit; with keep(): more of what that kept, after the wire */
    spw_drop_rule (*drop_rule)(const spw_scheme *scheme); /* NULL: SPW_DROP_BY_LIMIT */
    /* kept [ranks][tokens][top_k]: 1 where a choice is kept; comes zeroed. SPW_ENOMEM. */
    spw_status (*keep)(const spw_scheme *scheme, const spw_layer_shape *shape, const spw_choices *choices,
                       uint8_t *kept);
    /* May keep() drop any choice of these counts? NULL: yes. */
    bool (*may_drop)(const spw_routed_group *routed);
    /* Choices of one rank that an expert keeps, be they many or few; SIZE_MAX: all. NULL: keep() has another rule. */
    size_t (*expert_capacity)(const spw_scheme *scheme, const spw_layer_shape *shape);
    /* Lines that flow() writes into flow.line; NULL: one a rank. */
    size_t (*lines)(const spw_routed_group *routed);
    /* With keep(), `counts` are those of the kept choices. */
    void (*flow)(const spw_routed_group *routed, spw_flow *out);
    /* Corrects the rows of balanced routing (spw_balanced_rows) by what the scheme drops or pads; NULL: neither. */
    void (*balance)(const spw_scheme *scheme, const spw_layer_shape *shape, spw_rank_rows *rows);
    /* May tokens go to experts that they did not choose? Then rows are more than the kept choices. NULL: no. */
    bool (*adds_tokens)(const spw_scheme *scheme);
} spw_scheme_routing;

/* In which order it rounds, against the plain layer. */
typedef struct spw_scheme_values {
    bool
        weighted_activation; /* router weights multiply the activation, where the expert is, not the returned row */
    bool
        reorders_sums; /* gradients of weights are summed in another order than row by row: they equal the plain
                                 layer's within the bound, not bit for bit */
} spw_scheme_values;

/* What travels, and how often. */
typedef struct spw_scheme_traffic {
    bool by_node;     /* between nodes a token travels once a node and is forwarded there: Q, not U */
    bool once_a_rank; /* a token travels once to a rank, whatever the number of its experts there */
    bool (*sends_once)(const spw_scheme *scheme); /* do both hold under its options? NULL: yes */
    size_t (*exchanges)(const spw_scheme *scheme, const spw_layer_shape *shape,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]); /* how many */
} spw_scheme_traffic;

/* A pool of pages in which what the backward pass needs of the experts' rows in use waits: buffers of equal rows, filled by
 * tensors in this order. A tensor with `each` above 1 has one row for so many rows of the experts, rounded down. */
enum { SPW_POOL_TENSORS = 6 };
typedef struct spw_pool_tensor {
    uint64_t row_bytes, each;
    size_t buffer; /* tensors of one buffer have equal rows */
} spw_pool_tensor;
typedef struct spw_page_pool {
    double factor, host_factor; /* times the mean rows of the layers in flight; 0: no pages there */
    uint64_t page_rows, mean_rows,
        buffer_rows; /* rows of the experts of a layer: even routing's, and the most */
    spw_pool_tensor tensor[SPW_POOL_TENSORS];
    size_t tensors, buffers;
} spw_page_pool;

/* What it holds. */
typedef struct spw_scheme_memory {
    /* The life of its tensors. */
    void (*layer)(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *builder);
    bool
        whole_steps; /* a job of a whole model is counted tensor by tensor (sim/memory/kept/transformers_job.h) */
    bool selects_operations; /* takes remat selective_op (sim/memory/kept/selective_ops.h) */
    bool weight_gradients; /* the list has gradients of weights where shape.weight_gradients asks for them */
    bool
        any_device; /* the same tensors on a TPU, as XLA needs no library of GPUs and no lowering of its own for them */
    size_t (*buffer_rows)(const spw_scheme *scheme, const spw_layer_shape *shape); /* NULL: no fixed buffer */
    const char *buffer_formula;
    size_t (*own_rows)(const spw_scheme *scheme, const spw_layer_shape *shape, size_t i); /* NULL: none */
    const char *own_rows_formula[2];
    /* Where tensors wait that `layer` lets die in between. NULL, or false under its options: nowhere. */
    bool (*pool)(const spw_scheme *scheme, const spw_layer_shape *shape, spw_page_pool *out);
    const char *pool_factor; /* the option that is pool.factor */
    /* What the sum of its tensors does not say under its options; NULL, or a NULL text: nothing. */
    const char *(*outside)(const spw_scheme *scheme);
    /* Buffers beside the tensors; NULL: none. Source and formula NULL: DeepEP's rings. */
    uint64_t (*communication_bytes)(const spw_scheme *scheme, const spw_layer_shape *shape);
    const char *communication_source, *communication_formula;
} spw_scheme_memory;

/* As a program that XLA compiles whole. */
typedef struct spw_scheme_compiled {
    bool mesh; /* its layer is described where MaxText's mesh has the axes tensor and context */
    /* Of MaxText's schemes whose memory is an arena; NULL: of others. */
    const spw_compiled_layer *(*list)(const spw_scheme *scheme);
    /* memory.layer as XLA runs it (sim/schemes/maxtext/xla_layers.h); NULL: the same. */
    void (*layer)(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *builder);
} spw_scheme_compiled;

/* Who takes rows to their experts in a layer of Megatron-Core. */
typedef enum spw_megatron_dispatcher {
    SPW_MEGATRON_ALL_TO_ALL,
    SPW_MEGATRON_TOKENS, /* once a rank: DeepEP */
    SPW_MEGATRON_ALL_GATHER
} spw_megatron_dispatcher;

/* As a layer of Megatron-Core, for the models that are fitted to it. */
typedef struct spw_scheme_megatron {
    bool timed; /* the time of layers was measured: dispatcher says with which code */
    spw_megatron_dispatcher dispatcher;
    bool (*as_timed)(const spw_scheme *scheme);       /* does that hold under its options? NULL: yes */
    bool (*fills_slots)(const spw_scheme *scheme);    /* are experts filled to their capacity? NULL: no */
    bool (*arrives_sorted)(const spw_scheme *scheme); /* do rows arrive in the experts' order? NULL: no */
    bool unread;                                      /* the host never reads how many rows arrived */
    bool fp8;      /* the tensors of TransformerEngine's recipes are described */
    bool freezes;  /* frozen experts and their adapters are described */
    bool offloads; /* offloading of its experts' inputs to the host is described */
    bool
        by_parts; /* no layer of Megatron-Core, but timed by its parts (sim/time/megatron/torchtitan_time.h) */
    bool (*as_bare)(const spw_scheme *scheme); /* is it the layer of sim/memory/tensors/bare_layers.h under
                                                     its options? NULL: no */
} spw_scheme_megatron;

typedef struct spw_scheme_type {
    const char *name;
    spw_trainer_id trainer; /* whose it is */
    const spw_scheme_option *options;
    spw_status (*check)(const spw_scheme *scheme, const spw_layer_shape *shape); /* NULL = nothing to check */
    /* Sizes and remat that its kernels take; what is executed here has no such limits. NULL = nothing to check */
    spw_status (*check_kernels)(const spw_scheme *scheme, const spw_layer_shape *shape);
    /* Which library exchanges its rows, spw_library of sim/schemes/library_limits.h; NULL: none whose limits are known */
    int (*library)(const spw_scheme *scheme);
    spw_scheme_about about;
    spw_scheme_routing routing;
    spw_scheme_values values;
    spw_scheme_traffic traffic;
    spw_scheme_memory memory;
    spw_scheme_compiled compiled;
    spw_scheme_megatron megatron;
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
/* The same scheme, however both were written: "gmm:buffer_factor=2" and "gmm:buffer_factor=2.0". */
bool spw_scheme_is_same(const spw_scheme *a, const spw_scheme *b);
/* A number, or the position of the word among the choices; NAN when the scheme has no such option. */
double spw_scheme_option_value(const spw_scheme *scheme, const char *name);
/* Is option `name` there and set to `word`? */
bool spw_scheme_option_is(const spw_scheme *scheme, const char *name, const char *word);

/* The framework whose scheme it is. */
const spw_trainer *spw_scheme_trainer(const spw_scheme *scheme);
/* Its layer in a program that XLA compiles whole; NULL: it is in none, or was never compared with one. */
const spw_compiled_layer *spw_scheme_program(const spw_scheme *scheme);
/* Has every GPU all experts, so that there is no expert parallelism? */
bool spw_scheme_is_of_one_rank(const spw_scheme *scheme);
/* Is what it needs at most known of a stack alone, as XLA plans its memory? */
bool spw_scheme_needs_stack(const spw_scheme_type *type);
/* Does any of them have such programs? */
bool spw_schemes_have_programs(const spw_scheme *scheme, size_t schemes);

/* The value of the option routing.factor; NAN without one. */
double spw_scheme_factor(const spw_scheme *scheme);
/* Are all choices computed under its options, whatever the routing? */
bool spw_scheme_drops_nothing(const spw_scheme *scheme);
/* spw_scheme_routing.worst_factor of buffers of a rank, W / N. */
double spw_worst_rank_factor(const spw_scheme *scheme, const spw_layer_shape *shape);
/* The facts of spw_scheme_megatron under the options as set. */
bool spw_scheme_fills_slots(const spw_scheme *scheme);
bool spw_scheme_arrives_sorted(const spw_scheme *scheme);
bool spw_scheme_is_timed_megatron(const spw_scheme *scheme);
bool spw_scheme_is_bare_megatron(const spw_scheme *scheme);
/* Do times come from a stack of Megatron-Core's? */
bool spw_scheme_asks_megatron(const spw_scheme_type *type);
/* DeepEP in a group of one rank: nobody is known to have run it, and Megatron-Core (d98e8a64) refuses it at its start. */
bool spw_scheme_is_unknown_alone(const spw_scheme *scheme, const spw_layer_shape *shape);

/* Capacity slots C of one sequence and expert, for SPW_WIDTH_SLOTS; 0 where the scheme has none. */
size_t spw_scheme_capacity(const spw_scheme *scheme, const spw_layer_shape *shape);

/* Can the scheme run in this shape, under its remat policy? SPW_ECONFIG says what would be right. */
SPW_MUST_CHECK spw_status spw_scheme_check(const spw_scheme *scheme, const spw_layer_shape *shape);

/* What a compiled scheme is like to a fit: the name of its kind of program, "ragged_dot" or "dense_peeled". */
const char *spw_compiled_kind(const spw_scheme *scheme);
spw_drop_rule spw_scheme_drop_rule(const spw_scheme *scheme);
/* Cells of flow.limit in one group of so many ranks; 0: the scheme drops nothing by limits. */
size_t spw_scheme_limits(const spw_scheme *scheme, const spw_layer_shape *shape);
/* Does any of them drop by router weight? */
bool spw_schemes_need_weights(const spw_scheme *scheme, size_t schemes);
bool spw_scheme_once_a_rank(const spw_scheme *scheme);
bool spw_scheme_by_node(const spw_scheme *scheme);

/* Room that flow() of this group needs in flow.line, in lines; lines for schemes that write none. */
size_t spw_flow_lines(const spw_routed_group *routed);
size_t spw_no_lines(const spw_routed_group *routed);
size_t spw_one_line(const spw_routed_group *routed); /* one for all */
/* Behind flow(): SPW_ECONFIG where a GPU sends another more rows than 32 bits count. */
SPW_MUST_CHECK spw_status spw_flow_check(const spw_scheme *scheme, const spw_flow *flow);
/* The rows of rank d of the group; of all its ranks: spw_traffic_rows. */
spw_rank_rows spw_flow_rows(const spw_layer_shape *shape, const spw_flow *flow, size_t d);
/* The same when every expert is as likely as any other: held and sent N; received N, or what is expected of tokens that
 * travel once a rank. */
spw_rank_rows spw_balanced_rows(const spw_scheme *scheme, const spw_layer_shape *shape);

#endif
