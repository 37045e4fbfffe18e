/* The inside of an assembly, shared by the files assembly*.c only. */
#ifndef SPW_TRACES_IMPORTERS_ASSEMBLY_INTERNAL_H
#define SPW_TRACES_IMPORTERS_ASSEMBLY_INTERNAL_H

#include "base/file.h"
#include "traces/importers/assembly.h"

#include <stdio.h>

typedef struct spw_part {
    spw_assembly_place place;
    uint32_t source;         /* place.rank in its stage */
    uint64_t micro, arrival; /* number in its (step, layer, rank); in all */
    uint64_t rows, hash;     /* tokens, or experts counted */
    uint64_t offset;         /* of its content in the spool */
    size_t first;            /* expert of the first count */
    bool dropped;            /* a copy */
    bool weighted;           /* weights follow the ids */
} spw_part;

struct spw_assembly {
    const spw_import_settings *settings;
    spw_assembly_shape shape;
    spw_file spool_file;
    FILE *spool;
    uint64_t spool_bytes;
    spw_part *part; /* [parts] */
    size_t parts, capacity;
    uint64_t *seen; /* [experts] token that chose it last, counted from 1 through all records */
    uint64_t tokens_seen;
    bool ascending;
    uint16_t *joined; /* [joined_capacity] ids and weights of a record */
    size_t joined_capacity;
    /* known after spw_assembly_order() */
    size_t steps, layers;      /* part [steps][layers][ranks] */
    spw_assembly_place *layer; /* [layers] the first record of each */
    int32_t *layer_id;         /* [layers] */
    uint8_t *layer_block;      /* [layers] */
};

/* Sorts the parts to [steps][layers][ranks] and checks that they are complete. */
SPW_MUST_CHECK spw_status spw_assembly_order(spw_assembly *assembly);
/* The content of a part: uint16_t [rows][top_k], twice where it is weighted, or uint32_t [rows]. */
SPW_MUST_CHECK spw_status spw_assembly_read(spw_assembly *assembly, const spw_part *part, void *out);
size_t spw_assembly_bytes(const spw_assembly *assembly, const spw_part *part);

#endif
