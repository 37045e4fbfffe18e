/* Arrays that grow. */
#ifndef SPW_BASE_GROW_H
#define SPW_BASE_GROW_H

#include "base/status.h"

#include <stddef.h>

/* Room for `wanted` elements in an array that has *room of them, `used` of which say something: where that is too little, a new
 * one of twice as many, which says nothing behind these. SPW_ENOMEM: all stays as it is. */
SPW_MUST_CHECK spw_status spw_grow(size_t used, size_t wanted, size_t size, size_t *room, void **out);

#define SPW_GROW(used, wanted, room, out) spw_grow((used), (wanted), sizeof **(out), (room), (void **)(out))

#endif
