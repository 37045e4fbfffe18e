#include "traces/importers/base64.h"

#include "base/memory.h"

#include <stdint.h>
#include <string.h>

/* The value of a character; 64 where it has none. */
static uint32_t value_of(char c) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(alphabet, c) : NULL;
    return at != NULL ? (uint32_t)(at - alphabet) : 64;
}

static spw_status refuse(size_t at) {
    return spw_fail(SPW_EFORMAT, "character %zu of the text is not base64", at);
}

spw_status spw_base64_decode(const char *text, size_t length, unsigned char **out, size_t *bytes) {
    spw_status status = SPW_OK;
    unsigned char *decoded = NULL;
    *out = NULL;
    *bytes = 0;
    if (length % 4 != 0)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%zu characters are not base64, which has a multiple of 4", length));
    SPW_TRY(SPW_ALLOC(length / 4 * 3, &decoded));
    size_t used = 0, padding = 0;
    while (padding < 2 && padding < length && text[length - 1 - padding] == '=') padding++;
    for (size_t at = 0; at < length; at += 4) {
        const size_t kept = at + 4 == length ? 4 - padding : 4;
        uint32_t bits = 0;
        for (size_t i = 0; i < 4; i++) {
            const uint32_t value = i < kept ? value_of(text[at + i]) : 0;
            if (value == 64) SPW_TRY(refuse(at + i));
            bits = bits << 6 | value;
        }
        if (kept < 4 && (bits & (((uint32_t)1 << 8 * (4 - kept)) - 1)) != 0) SPW_TRY(refuse(at + kept - 1));
        for (size_t i = 0; i + 1 < kept; i++) decoded[used++] = (unsigned char)(bits >> (16 - 8 * i));
    }
    *out = decoded;
    *bytes = used;
    decoded = NULL;

cleanup:
    spw_free(decoded);
    return status;
}
