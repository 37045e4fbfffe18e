/* Records in any order, one a (step, layer, rank, micro-batch), put together to the steps of a trace. Their content waits in a
 * temporary file beside the output, so that memory is bounded by one step. */
#ifndef SPW_TRACES_IMPORTERS_ASSEMBLY_H
#define SPW_TRACES_IMPORTERS_ASSEMBLY_H

#include "traces/importers/importer.h"

typedef struct spw_assembly spw_assembly;

typedef struct spw_assembly_shape {
    bool counts;  /* records hold counts, not ids */
    bool sources; /* their ranks are those that the tokens come from, and are written */
    size_t experts, top_k;
    size_t ranks; /* of one pipeline stage: rank r is source r % ranks of stage r / ranks; at least 1 */
    /* Records of one (step, layer, rank): micro_batches of them in order of arrival, each with a copy where the forward pass
     * was run again. */
    size_t micro_batches;
    bool recompute, repeats; /* repeats: the format may have several; for messages */
    bool number_steps;       /* the files know no steps: every micro_batches records make one */
    /* Sequences of a rank and micro-batch; 0 = not known. interleaved: row t is token t / sequences of sequence
     * t % sequences; else sequences follow each other. */
    size_t sequences;
    bool interleaved;
    bool names_layers;       /* --layers says which layers the records have, not which must be there */
    const char *weight_kind; /* attribute of the weights; NULL: not known */
    const char *order;       /* of a token's ids, where the format knows it; NULL: as found */
} spw_assembly_shape;

/* Where a record belongs. */
typedef struct spw_assembly_place {
    int64_t step;
    int block;      /* as in /model/block: 0 decoder, 1 mtp, 2 encoder */
    uint32_t depth; /* of several mtp heads */
    int32_t layer;  /* index in the model, or in its pipeline stage where stages are stated */
    uint32_t rank;
    size_t file, line; /* input and line in it; line 0: the file has no lines */
} spw_assembly_place;

enum { SPW_ASSEMBLY_MAX_LAYER = 1 << 20, SPW_ASSEMBLY_MAX_DEPTH = 255, SPW_ASSEMBLY_MAX_RANK = 1 << 24 };

/* What most formats say; the caller changes the rest. */
spw_assembly_shape spw_assembly_shape_of(const spw_import_settings *settings);

/* Borrows `settings`. SPW_EARG: the stated sizes cannot be. */
SPW_MUST_CHECK spw_status spw_assembly_create(const spw_import_settings *settings,
                                              const spw_assembly_shape *shape, spw_assembly **out);
void spw_assembly_destroy(spw_assembly *assembly); /* NULL is fine */

/* expert_id [tokens][top_k], SPW_TRACE_MISSING for no choice. SPW_EFORMAT: an id out of range or twice in a token. */
SPW_MUST_CHECK spw_status spw_assembly_add_ids(spw_assembly *assembly, const spw_assembly_place *place,
                                               uint64_t tokens, const uint16_t *expert_id);
/* The same with the router's weights [tokens][top_k], half bits; every record has them, or none. */
SPW_MUST_CHECK spw_status spw_assembly_add_weighted_ids(spw_assembly *assembly,
                                                        const spw_assembly_place *place, uint64_t tokens,
                                                        const uint16_t *expert_id, const uint16_t *weight);
/* count [experts] of the experts first, first + 1 ... */
SPW_MUST_CHECK spw_status spw_assembly_add_counts(spw_assembly *assembly, const spw_assembly_place *place,
                                                  size_t first, size_t experts, const uint32_t *count);
/* Forgets the last records, as far as they are of this file and of `step` or a later one. */
void spw_assembly_forget(spw_assembly *assembly, size_t file, int64_t step);

/* Checks that nothing is missing and nothing is there twice, and writes the trace. */
SPW_MUST_CHECK spw_status spw_assembly_write(spw_assembly *assembly, const spw_importer *importer);

/* Fails with "FILE:LINE: step S, layer L, rank R: ..." before the text. */
spw_status spw_assembly_fail(const spw_import_settings *settings, const spw_assembly_place *place,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
