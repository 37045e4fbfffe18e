/* Reading a routing trace: which experts each token chose, step by step and layer by layer. The schema is
 * docs/trace_format.md (moe-routing-trace 1.x). Memory is bounded by one step of a few layers, whatever the
 * length of the file; chunks are fetched raw and inflated by several threads. */
#ifndef SPW_TRACES_TRACE_H
#define SPW_TRACES_TRACE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_trace spw_trace; /* opaque: an open file and its buffers */

/* Limits that a file must keep before anything is allocated for it. */
enum {
    SPW_TRACE_MAX_EXPERTS = 65535,
    SPW_TRACE_MAX_TOP_K = 1024,
    SPW_TRACE_MAX_LAYERS = 4096,
    SPW_TRACE_MAX_RANKS = 65536
};

/* What the file says of itself. Pointers live as long as the trace; a text that is absent is "". */
typedef struct spw_trace_info {
    size_t steps, layers;
    size_t experts, top_k;                       /* the maxima over layers */
    size_t ranks;                                /* source ranks; 0 = the trace does not know them */
    uint64_t tokens;                             /* rows of /tokens; 0 = counts only */
    bool has_tokens, has_weights, has_sequences; /* has_sequences: every token names its sequence */
    bool has_routed, has_by_rank;                /* counts/routed, counts/by_rank */
    bool has_placement;                          /* where experts lay; nothing here reads it */
    const int32_t *layer_id;                     /* [layers] index in the model */
    const int32_t *rank_id; /* [ranks] number of each source rank, rising; NULL: 0, 1, ... */
    const uint32_t *layer_experts, *layer_top_k; /* [layers] */
    const int64_t *step_id;                      /* [steps] */
    const uint64_t *step_tokens;                 /* [steps] */
    const uint64_t *step_offset; /* [steps + 1] first token row of each step; NULL = counts only */
    const uint8_t *step_phase;   /* [steps] 0 train, 1 eval, 2 prefill, 3 decode, 4 mixed */
    const char *source, *source_commit, *license, *generator, *created, *note, *content, *version;
    bool synthetic;
    /* the recorded model and machine; 0 = not said */
    const char *order;       /* of a token's slots: descending_weight, ascending_id, unspecified or "" */
    const char *weight_kind; /* gate_used, softmax_all, softmax_topk or "" */
    const char *model_name, *router_score, *balance;
    size_t model_layers, model_hidden, model_ffn, groups, groups_kept, sequence_length, gpus_per_node;
    /* storage of tokens/expert_id, for the curious and for the benchmark */
    size_t id_bytes;  /* 1 or 2 */
    uint16_t missing; /* the id that says: no choice */
    bool fast_path;   /* chunked with shuffle and deflate only: read without HDF5's own filters */
} spw_trace_info;

/* The columns of the token rows [first, first + tokens). A column that the file lacks is NULL. */
typedef struct spw_trace_columns {
    uint64_t first;
    size_t tokens;
    const uint16_t *source_rank; /* [tokens] < ranks */
    const int32_t *sequence;     /* [tokens] */
    const int32_t *position;     /* [tokens] */
    size_t flagged;              /* tokens that /tokens/flags calls padding or of a dummy run */
} spw_trace_columns;

/* The choices of those tokens in one layer. */
typedef struct spw_trace_record {
    size_t tokens, top_k, experts; /* top_k = row length of expert_id; unused trailing slots hold `missing` */
    size_t id_bytes;               /* 1: expert_id is uint8_t, 2: uint16_t */
    uint16_t missing;              /* an id that is not < experts is this one, or the read fails */
    const void *expert_id;         /* [tokens][top_k] */
    const uint16_t *weight;        /* [tokens][top_k] IEEE half bits, or NULL */
    const struct spw_piece_law *
        law; /* where expert_id is NULL: what counts of its tokens are drawn by (traces/generate/made_trace.h) */
} spw_trace_record;

/* The i-th id of [tokens][top_k]. */
static inline uint16_t spw_trace_record_id(const spw_trace_record *record, size_t i) {
    return record->id_bytes == 1 ? ((const uint8_t *)record->expert_id)[i]
                                 : ((const uint16_t *)record->expert_id)[i];
}

/* `path` is a file, or a set of shards (traces/shard_set.h). Opens for reading and checks all that can be checked without reading the tokens: format, major version,
 * shapes that agree, offsets that do not decrease, layers and steps that are told apart, sizes within the limits above. *out owns the file until
 * spw_trace_close(); NULL on failure. SPW_EIO: missing or unreadable; SPW_EFORMAT: wrong content. */
SPW_MUST_CHECK spw_status spw_trace_open(const char *path, spw_trace **out);
void spw_trace_close(spw_trace *trace); /* NULL is fine */
const spw_trace_info *spw_trace_get_info(const spw_trace *trace);

/* From now on, also what contradicts itself is read: an expert twice in a token, counts that its tokens do not give, a step
 * of nothing but padding. For spw_trace_verify(), which tells of each. */
void spw_trace_keep_contradictions(spw_trace *trace);

/* Columns of steps [step, step + steps), which are consecutive rows. Valid until the next call. SPW_EFORMAT: a rank out of
 * range, or all tokens of a step are flagged as padding or as of a dummy run. */
SPW_MUST_CHECK spw_status spw_trace_read_columns(spw_trace *trace, size_t step, size_t steps,
                                                 spw_trace_columns *out);

/* Tokens of the whole trace that /tokens/flags calls padding or of a dummy run. */
SPW_MUST_CHECK spw_status spw_trace_count_flagged(spw_trace *trace, uint64_t *out);

/* Over all steps and layers, choices that the tokens of a step could make (tokens x the layer's top-k), and those that are missing:
 * padded rows have none at all. By counts/routed, where the trace has them, else by the ids. */
SPW_MUST_CHECK spw_status spw_trace_count_missing(spw_trace *trace, uint64_t *choices, uint64_t *missing);

/* Choices of steps [step, step + steps) in layer position `layer`; weights only if asked for. Valid until the
 * next spw_trace_read_record() or close. Cheapest in the order: for each step, each layer upwards. Every id
 * is checked: SPW_EFORMAT names step, layer, token and id, also of an expert that a token chooses twice. So is every
 * weight: finite, not below 0, falling where the order says so. Where the trace has counts/routed of the same tokens, the sum of the ids must be theirs. */
SPW_MUST_CHECK spw_status spw_trace_read_record(spw_trace *trace, size_t step, size_t steps, size_t layer,
                                                bool weights, spw_trace_record *out);

/* routed [experts] of one step and layer, from counts/routed. SPW_EFORMAT: more than the step's tokens can choose. */
SPW_MUST_CHECK spw_status spw_trace_read_routed(spw_trace *trace, size_t step, size_t layer,
                                                uint32_t *routed);
/* by_rank [ranks][experts] of one step and layer, from counts/by_rank. SPW_EFORMAT: its sum over ranks is more than the
 * tokens can choose, or not counts/routed. */
SPW_MUST_CHECK spw_status spw_trace_read_by_rank(spw_trace *trace, size_t step, size_t layer,
                                                 uint32_t *by_rank);

#endif
