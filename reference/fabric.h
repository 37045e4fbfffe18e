/* Virtual ranks in one process. Their only way to each other is a send that copies and counts. */
#ifndef SPW_REFERENCE_FABRIC_H
#define SPW_REFERENCE_FABRIC_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spw_fabric spw_fabric; /* opaque */

enum { SPW_FABRIC_EXCHANGES = 16 };

SPW_MUST_CHECK spw_status spw_fabric_create(size_t ranks, spw_fabric **out);
void spw_fabric_destroy(spw_fabric *fabric); /* NULL is fine */

/* What is sent from now on belongs to this exchange; a name used before goes on counting there. `exchange`
 * must outlive the fabric. SPW_EMISMATCH when a message of an earlier exchange was never received. */
SPW_MUST_CHECK spw_status spw_fabric_begin(spw_fabric *fabric, const char *exchange);

/* Rank `from` sends `count` things of `size` bytes, each of which counts as `wire_bytes` on the wire (an
 * element of another type is emulated in fp32). To itself, too: counted on the diagonal. The data is copied. */
SPW_MUST_CHECK spw_status spw_fabric_send(spw_fabric *fabric, size_t from, size_t to, const void *data,
                                          size_t count, size_t size, uint64_t wire_bytes);

/* Rank `to` takes the next count * size bytes that `from` sent it, in the order of sending. SPW_EMISMATCH
 * when there are fewer. */
SPW_MUST_CHECK spw_status spw_fabric_receive(spw_fabric *fabric, size_t to, size_t from, void *data,
                                             size_t count, size_t size);

/* Bytes that `to` has not yet received from `from`: a receiver that does not know how much comes asks this. */
size_t spw_fabric_waiting(const spw_fabric *fabric, size_t to, size_t from);

/* Bytes that were sent in an exchange, 0 for a name that never was. */
uint64_t spw_fabric_bytes(const spw_fabric *fabric, const char *exchange, size_t from, size_t to);
size_t spw_fabric_exchanges(const spw_fabric *fabric);
const char *spw_fabric_exchange(const spw_fabric *fabric, size_t i); /* in order of first use */

#ifdef __cplusplus
}
#endif
#endif
