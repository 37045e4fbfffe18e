/* The exchanges without deduplication on a record's routing, against the reference and the record's predictions. */
#ifndef SPW_KERNELS_VERIFY_RANKS_VERIFY_PLAIN_H
#define SPW_KERNELS_VERIFY_RANKS_VERIFY_PLAIN_H

#include "kernels/exchange/plain_exchange.h"
#include "kernels/record/record.h"
#include "kernels/verify/judge.h"

/* The world has the record's ranks; not for rule token. Values both ways, rows, drops, bytes of every pair, bytes
 * allocated. */
SPW_MUST_CHECK spw_status spw_verify_plain(spw_world *world, const spw_record *record,
                                           const spw_record_scheme *scheme,
                                           const spw_exchange_variant *variant, spw_judge *judge);

#endif
