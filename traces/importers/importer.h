/* Routing that other programs recorded, as a trace of ours. A format is a file import_*.c and a row of the table in
 * importer.c. Nothing is guessed: what a file does not say is stated by an option or refused, and the trace says what the
 * format cannot tell. */
#ifndef SPW_TRACES_IMPORTERS_IMPORTER_H
#define SPW_TRACES_IMPORTERS_IMPORTER_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Facts that an option states. */
typedef enum spw_import_fact {
    SPW_FACT_EXPERTS = 1 << 0,
    SPW_FACT_TOP_K = 1 << 1,
    SPW_FACT_LAYERS = 1 << 2,
    SPW_FACT_DENSE_LAYERS = 1 << 3,
    SPW_FACT_RANKS = 1 << 4,
    SPW_FACT_TOKENS_PER_RANK = 1 << 5,
    SPW_FACT_EXPERT_PARALLEL = 1 << 6,
    SPW_FACT_STAGE_FIRST = 1 << 7,
    SPW_FACT_MICRO_BATCHES = 1 << 8,
    SPW_FACT_MICRO_BATCH_SIZE = 1 << 9,
    SPW_FACT_RECOMPUTE = 1 << 10,
    SPW_FACT_RESUMED = 1 << 11,
    SPW_FACT_AXES = 1 << 12,
    SPW_FACT_FILES = 1 << 13,
    SPW_FACT_ARRAY = 1 << 14,
    SPW_FACT_MISSING = 1 << 15,
    SPW_FACT_ORDER = 1 << 16,
    SPW_FACT_SCORES = 1 << 17,
    SPW_FACT_DROP_PADDING = 1 << 18
} spw_import_fact;
enum { SPW_IMPORT_FACTS = 19 };
const char *spw_import_fact_option(int bit); /* "--experts" for bit 0 ... */

typedef struct spw_index_list {
    const int32_t *value;
    size_t count;
} spw_index_list;

typedef struct spw_import_settings {
    const char *const *input; /* [inputs] paths */
    size_t inputs;
    const char *output;
    unsigned given; /* facts that were stated; numbers of the others are 0 */
    size_t experts, top_k;
    size_t ranks; /* that recorded a layer: of one pipeline stage */
    size_t tokens_per_rank, expert_parallel, micro_batches, micro_batch_size;
    spw_index_list layers;       /* indices in the model */
    spw_index_list dense_layers; /* of them, those without experts */
    spw_index_list stage_first;  /* first layer of each pipeline stage */
    bool recompute, resumed;
    bool drop_padding; /* rows without a choice in any layer are left out */
    const char *axes, *files, *array, *order, *scores;
    int64_t missing;
    int phase;                                /* as in /steps/phase; below 0: the format's own */
    size_t model_layers;                      /* recorded; 0: not said */
    const char *model, *license, *facts_text; /* recorded; NULL is "" */
} spw_import_settings;

struct spw_assembly;

typedef struct spw_importer {
    const char *name, *program;
    const char *reads;    /* files and what is in them */
    const char *evidence; /* what the trace then holds */
    const char *lost;     /* what the format cannot tell */
    uint8_t phase;
    unsigned needs, takes; /* facts */
    spw_status (*read)(const spw_import_settings *settings, struct spw_assembly **out);
} spw_importer;

const spw_importer *spw_importer_list(size_t *count);
const spw_importer *spw_importer_find(const char *name); /* NULL: there is none */

/* Reads the inputs and writes settings->output. SPW_EARG: a fact is missing or not of this format; SPW_EFORMAT: an input is
 * not what it must be, with file and line. */
SPW_MUST_CHECK spw_status spw_trace_import(const spw_importer *importer, const spw_import_settings *settings);

/* The formats. *out collects the records and is destroyed by the caller, also on failure. */
#define SPW_IMPORT_READER(name) \
    spw_status name(const spw_import_settings *settings, struct spw_assembly **out)
SPW_IMPORT_READER(spw_import_array);
SPW_IMPORT_READER(spw_import_count_table);
SPW_IMPORT_READER(spw_import_dynamo_routed);
SPW_IMPORT_READER(spw_import_layer_counts);
SPW_IMPORT_READER(spw_import_mcore_load);
SPW_IMPORT_READER(spw_import_megatron_counts);
SPW_IMPORT_READER(spw_import_megatron_router);
SPW_IMPORT_READER(spw_import_moe_balance);
SPW_IMPORT_READER(spw_import_nemo_rl_routed);
SPW_IMPORT_READER(spw_import_sglang_routed);
SPW_IMPORT_READER(spw_import_vllm_eplb);
SPW_IMPORT_READER(spw_import_vllm_routed);

#endif
