/* What a record's scheme says of a buffer and of who keeps a place in it, by the formulas of docs/schemes.md and the
 * reference. */
#ifndef SPW_KERNELS_RECORD_RECORD_RULES_H
#define SPW_KERNELS_RECORD_RECORD_RULES_H

#include "kernels/record/record.h"

size_t spw_record_tokens(const spw_record *record); /* of a rank */
/* Rows of a rank's buffer. */
size_t spw_record_buffer(const spw_record *record, const spw_record_scheme *scheme);
/* keep [choices of the whole group], by the reference. */
SPW_MUST_CHECK spw_status spw_record_keep(const spw_record *record, const spw_record_scheme *scheme,
                                          size_t buffer, uint8_t *keep);

#endif
