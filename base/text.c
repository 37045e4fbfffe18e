#include "base/text.h"

#include <stdlib.h>
#include <string.h>

uint32_t spw_text_character(const char *at, size_t *bytes) {
    static const struct {
        size_t bytes;
        uint32_t least;
        unsigned char mask, lead;
    } forms[] = {{1, 0, 0x80, 0x00}, {2, 0x80, 0xe0, 0xc0}, {3, 0x800, 0xf0, 0xe0}, {4, 0x10000, 0xf8, 0xf0}};
    const unsigned char *byte = (const unsigned char *)at;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if ((byte[0] & forms[f].mask) != forms[f].lead) continue;
        uint32_t code = byte[0] & (unsigned char)~forms[f].mask;
        size_t i = 1;
        while (i < forms[f].bytes && (byte[i] & 0xc0) == 0x80) code = code << 6 | (byte[i++] & 0x3f);
        if (i < forms[f].bytes || code < forms[f].least || code > 0x10ffff ||
            (code >= 0xd800 && code < 0xe000))
            break;
        *bytes = i;
        return code;
    }
    *bytes = 1;
    return SPW_TEXT_BROKEN;
}

bool spw_text_is_unfit(uint32_t character) {
    static const struct {
        uint32_t first, last;
    } unfit[] = {{0x00, 0x08},     {0x0b, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},
                 {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}, {SPW_TEXT_BROKEN, UINT32_MAX}};
    for (size_t i = 0; i < sizeof unfit / sizeof unfit[0]; i++) {
        if (character >= unfit[i].first && character <= unfit[i].last) return true;
    }
    return (character & 0xfffe) == 0xfffe;
}

double spw_text_number(const char *text, char **end) {
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    const char *const first = digits + (digits[0] == '.');
    const bool decimal =
        first[0] >= '0' && first[0] <= '9' && !(digits[0] == '0' && (digits[1] | 0x20) == 'x');
    if (decimal) return strtod(text, end);
    *end = (char *)(uintptr_t)text;
    return 0.0;
}

const char *spw_text_skip_mark(const char *text, size_t *length) {
    static const char mark[] = "\xef\xbb\xbf";
    if (*length < sizeof mark - 1 || memcmp(text, mark, sizeof mark - 1) != 0) return text;
    *length -= sizeof mark - 1;
    return text + sizeof mark - 1;
}

bool spw_text_has_gap(const char *list) {
    const size_t length = strlen(list);
    return length > 0 && (list[0] == ',' || list[length - 1] == ',' || strstr(list, ",,") != NULL);
}
