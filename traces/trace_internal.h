/* The inside of an open trace, shared by the files trace*.c only. */
#ifndef SPW_TRACES_TRACE_INTERNAL_H
#define SPW_TRACES_TRACE_INTERNAL_H

#include "traces/disk/block_reader.h"
#include "traces/disk/chunk_store.h"
#include "traces/disk/hdf5_read.h"
#include "traces/trace.h"

/* Texts of the file: those of the info, in its order, and some that only this folder asks for. */
enum {
    SPW_TRACE_ORDER = 11,
    SPW_TRACE_WEIGHT_KIND,
    SPW_TRACE_FORMAT,
    SPW_TRACE_AXIS,
    SPW_TRACE_ROUTED_AXIS,
    SPW_TRACE_BY_RANK_AXIS,
    SPW_TRACE_TOKEN_FILTER,
    SPW_TRACE_TEXTS
};
enum { SPW_TRACE_MAX_STEPS = 1 << 22, SPW_TRACE_MAX_BY_RANK = 1 << 25 /* ranks x experts */ };
#define SPW_TRACE_MAX_TOKENS ((uint64_t)1 << 40) /* of a step */

/* A buffer that only grows. */
typedef struct spw_trace_buffer {
    void *data;
    size_t bytes;
} spw_trace_buffer;

typedef struct spw_trace_shards spw_trace_shards; /* traces/trace_shards.c */
typedef struct spw_made_trace spw_made_trace;     /* traces/generate/made_trace.c */

/* A dataset of the trace; `id` is invalid when the file lacks it. */
typedef struct spw_trace_dataset {
    const char *path;
    hid_t id, memory_type; /* memory_type: of what is read from it; borrowed */
    spw_hdf5_shape shape;
    bool fast;                /* read by `chunks`, else by `blocks` */
    spw_chunk_store *chunks;  /* NULL until used */
    spw_block_reader *blocks; /* NULL until used */
    spw_trace_buffer buffer;
} spw_trace_dataset;

/* The calls of trace.h for a trace that is no file of its own, each as the call with the like name; steps and layers are checked.
 * NULL: the file answers, or what is not there is missing. */
typedef struct spw_trace_source {
    void (*close)(spw_trace *trace); /* all of it */
    void (*keep_contradictions)(spw_trace *trace);
    void (*set_window)(spw_trace *trace, size_t bytes);
    spw_status (*count_flagged)(spw_trace *trace, uint64_t *out);
    spw_status (*read_columns)(spw_trace *trace, size_t step, size_t steps, spw_trace_columns *out);
    spw_status (*read_record)(spw_trace *trace, size_t step, size_t steps, size_t layer, bool weights,
                              spw_trace_record *out);
    /* [ranks][experts] if `by_rank`, else [experts]; sums that a uint32_t does not hold are UINT32_MAX. */
    spw_status (*read_counts)(spw_trace *trace, size_t step, size_t layer, bool by_rank, uint32_t *out);
} spw_trace_source;

struct spw_trace {
    const spw_trace_source *source;
    char *path;
    hid_t file, half_type;
    spw_trace_info info;
    spw_worker_pool *pool; /* NULL until used */
    spw_trace_dataset expert_id, weight, source_rank, sequence, position, flags, routed, by_rank;
    char *text[SPW_TRACE_TEXTS]; /* what the texts of `info` point to */
    int32_t *layer_id, *rank_id;
    uint32_t *layer_experts, *layer_top_k;
    int64_t *step_id;
    uint64_t *step_tokens, *step_offset;
    uint8_t *step_phase;
    bool keep_contradictions;
    size_t window;            /* bytes of decoded chunks that a dataset keeps */
    spw_trace_shards *shards; /* NULL: one file, and then `file` and the datasets are its own */
    spw_made_trace *made;     /* NULL: there is a file, or shards */
    uint32_t *histogram;      /* [experts] of counts/routed, or the sum of counts/by_rank; NULL until used */
};

/* A trace of this name without anything open. */
SPW_MUST_CHECK spw_status spw_trace_create_blank(const char *path, spw_trace **out);
/* Of one file. like: NULL, or one with the same texts: the file is known to be sound, and no child tries it. */
SPW_MUST_CHECK spw_status spw_trace_open_file(const char *path, const spw_trace *like, spw_trace **out);

/* Between two reads: how many bytes of decoded chunks each dataset keeps from now on. Of shards: all that are open together. */
void spw_trace_set_window(spw_trace *trace, size_t bytes);

/* Fills trace->text by a child process, which also tries the rest of the header. */
SPW_MUST_CHECK spw_status spw_trace_probe(spw_trace *trace);
/* Fills trace->text from the file: for the child. */
SPW_MUST_CHECK spw_status spw_trace_read_texts(spw_trace *trace);
/* Fills trace->info and opens the datasets; path, file, half_type and text are set. */
SPW_MUST_CHECK spw_status spw_trace_read_header(spw_trace *trace);

/* What is well-formed and yet cannot be (docs/trace_format.md, "What is refused"). Before the header is read: no part of a
 * trace may be a link. After it: layers, steps, phases and the axis of experts. SPW_EFORMAT. */
SPW_MUST_CHECK spw_status spw_trace_check_links(const spw_trace *trace);
SPW_MUST_CHECK spw_status spw_trace_check_header(const spw_trace *trace);
/* Layers have numbers of their own, 0 or above; else *at is the position of one that has not. */
bool spw_trace_layers_differ(const spw_trace_info *info, size_t *at);
/* Of steps [step, step + steps): not every token is flagged as padding or as of a dummy run; *flagged are. */
SPW_MUST_CHECK spw_status spw_trace_check_flags(const spw_trace *trace, size_t step, size_t steps,
                                                const uint8_t *flags, size_t *flagged);
/* A record of those steps: no expert twice in a token; and the choices of a step that counts/routed [experts] has counted. */
SPW_MUST_CHECK spw_status spw_trace_check_twice(const spw_trace *trace, uint64_t first, size_t layer,
                                                const spw_trace_record *record);
SPW_MUST_CHECK spw_status spw_trace_check_sum(const spw_trace *trace, size_t step, size_t layer,
                                              const spw_trace_record *record, const uint32_t *routed);
/* Counts [experts] of a step and layer: no more than its tokens can choose. `what` names the dataset. */
SPW_MUST_CHECK spw_status spw_trace_check_counts(const spw_trace *trace, const char *what, size_t step,
                                                 size_t layer, const uint32_t *counts);
/* Position of the step that holds a row. */
size_t spw_trace_step_of_row(const spw_trace_info *info, uint64_t row);

#endif
