/* Writing a routing trace, step by step, in the storage that docs/trace_format.md recommends. The counts are
 * made here from the ids, so that a file cannot contradict itself. Chunks are compressed by several threads. */
#ifndef SPW_TRACES_WRITE_TRACE_WRITE_H
#define SPW_TRACES_WRITE_TRACE_WRITE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_trace_info spw_trace_info;

typedef struct spw_trace_writer spw_trace_writer; /* opaque: a file under way */

enum {
    SPW_TRACE_STORED = -1
}; /* a level: nothing is compressed, which files that are read often are faster with */

typedef struct spw_trace_write_settings {
    /* Used: layers, experts, top_k, ranks, layer_id, layer_experts, layer_top_k, has_tokens, has_weights,
     * has_sequences (with /tokens/position), has_by_rank (needs ranks), synthetic, the texts (NULL is "") and
     * the recorded model and machine. content, version, id_bytes and missing are the writer's own. */
    const spw_trace_info *info;
    const char *order; /* attribute order of expert_id; NULL = "unspecified" */
    uint64_t tokens;   /* rows to come, for the size of the chunks; 0 = not known */
    /* Of libdeflate, 1 to 12, or SPW_TRACE_STORED; 0 = 6. The file is the same kind of file at any level. */
    int level;
    bool ids_rise;  /* the id of a step is above the one before; else two of one id may be micro-batches */
    bool droppable; /* spw_trace_writer_drop_step() will be called: a chunk of every layer is kept twice */
} spw_trace_write_settings;

/* One step. Columns are [tokens]; NULL where the settings do not ask for them. */
typedef struct spw_trace_write_step {
    int64_t id;
    uint8_t phase;
    uint64_t tokens;
    bool tokens_kept; /* false: counts only, although the file has tokens of other steps */
    const uint16_t *source_rank;
    const int32_t *sequence, *position;
} spw_trace_write_step;

/* Begins a temporary file beside `path`; what stands at `path` stays until spw_trace_writer_finish(). */
SPW_MUST_CHECK spw_status spw_trace_writer_create(const char *path, const spw_trace_write_settings *settings,
                                                  spw_trace_writer **out);
void spw_trace_writer_abandon(spw_trace_writer *writer); /* leaves nothing behind; NULL is fine */
/* Completes the file, renames it to its path and frees the writer, also on failure. */
SPW_MUST_CHECK spw_status spw_trace_writer_finish(spw_trace_writer *writer);

/* Attributes beside those of the settings; `object` is "/", "model", "parallel", "steps" ... */
SPW_MUST_CHECK spw_status spw_trace_writer_set_text(spw_trace_writer *writer, const char *object,
                                                    const char *name, const char *text);
SPW_MUST_CHECK spw_status spw_trace_writer_set_integer(spw_trace_writer *writer, const char *object,
                                                       const char *name, int64_t value);

/* A step: begin, every layer once in any order by put_layer() or put_counts(), end. The columns must live
 * until spw_trace_writer_end_step(). Nothing is written that a reader refuses (trace_write_rules.h): SPW_EARG, and the call has
 * done nothing. After any other failure the step is half written: it can be dropped, or the writer abandoned. */
SPW_MUST_CHECK spw_status spw_trace_writer_begin_step(spw_trace_writer *writer,
                                                      const spw_trace_write_step *step);
/* expert_id [tokens][top_k] uint16, the value SPW_TRACE_MISSING for a missing choice; weight [tokens][top_k]
 * half bits or NULL. Written if the tokens are kept, counted in any case. SPW_EARG names an id out of range. */
enum { SPW_TRACE_MISSING = 65535 };
SPW_MUST_CHECK spw_status spw_trace_writer_put_layer(spw_trace_writer *writer, size_t layer,
                                                     const uint16_t *expert_id, const uint16_t *weight);
/* routed [experts]; by_rank [ranks][experts], or NULL without ranks. For a step whose tokens are not kept. */
SPW_MUST_CHECK spw_status spw_trace_writer_put_counts(spw_trace_writer *writer, size_t layer,
                                                      const uint32_t *routed, const uint32_t *by_rank);
SPW_MUST_CHECK spw_status spw_trace_writer_end_step(spw_trace_writer *writer);
/* The step under way never was; the steps before it stay. Nothing to do outside of a step. For a droppable writer. */
SPW_MUST_CHECK spw_status spw_trace_writer_drop_step(spw_trace_writer *writer);

#endif
