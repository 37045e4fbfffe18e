/* How much of a list of tensors is found in a recorded step. */
#ifndef SPW_SIM_MEMORY_TENSORS_SNAPSHOT_MATCH_H
#define SPW_SIM_MEMORY_TENSORS_SNAPSHOT_MATCH_H

#include <stddef.h>
#include <stdint.h>

typedef struct spw_snapshot_match {
    size_t births, step_births;          /* of the recording, of its step */
    size_t layer_births, layer_matched;  /* of the list: births that follow the routing, and those found */
    uint64_t layer_bytes, matched_bytes; /* of these, for balanced rows */
} spw_snapshot_match;

#endif
