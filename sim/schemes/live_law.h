/* The greatest sums of a layer (spw_layer_live_set) for many rows, fast: what lives behind an event is a sum over rows that are held,
 * received and sent, times the bytes of each, so few events can be the fullest for any rows. */
#ifndef SPW_SIM_SCHEMES_LIVE_LAW_H
#define SPW_SIM_SCHEMES_LIVE_LAW_H

#include "sim/schemes/layer.h"

/* Bytes: of no row, of each row that is held, received, sent. */
typedef struct spw_live_sum {
    uint64_t fixed, held, received, sent;
} spw_live_sum;

typedef struct spw_live_law {
    const spw_layer *layer; /* borrowed */
    spw_live_sum *fullest;  /* [sums] behind the forward pass: no other event holds more, whatever the rows */
    size_t sums; /* 0: tensors are left out by their size or go to the host, so every event is looked at */
    spw_live_sum saved, most;
} spw_live_law;

/* SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_live_law_create(const spw_layer *layer, spw_live_law *out);
void spw_live_law_destroy(spw_live_law *law); /* a zeroed one is fine */

/* backward_bytes, saved_bytes and to_host_bytes of spw_layer_live_set(); nothing else is set. */
spw_live_set spw_live_law_at(const spw_live_law *law, const spw_rank_rows *rows);

#endif
