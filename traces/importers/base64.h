/* Base64 (RFC 4648, section 4): the alphabet with + and /, padded with =, no blanks, no bits left over. */
#ifndef SPW_TRACES_IMPORTERS_BASE64_H
#define SPW_TRACES_IMPORTERS_BASE64_H

#include "base/status.h"

#include <stddef.h>

/* *out [*bytes] is freed by the caller. SPW_EFORMAT names the character at fault. */
SPW_MUST_CHECK spw_status spw_base64_decode(const char *text, size_t length, unsigned char **out,
                                            size_t *bytes);

#endif
