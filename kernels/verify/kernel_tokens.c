/* Tokens of a record as a case has them. */
#include "kernels/verify/kernel_case.h"

enum { RECORD_TOKENS = 64 };

size_t spw_kernel_record_tokens(const spw_record *record) {
    const size_t own = record->sequences * record->sequence_length;
    return own < RECORD_TOKENS ? own : RECORD_TOKENS;
}
