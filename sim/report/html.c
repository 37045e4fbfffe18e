#include "sim/report/html.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The character at `at`; *bytes it takes, 1 for a byte that is no UTF-8 (and then UINT32_MAX). */
static uint32_t character(const unsigned char *at, size_t *bytes) {
    static const struct {
        size_t bytes;
        uint32_t least;
        unsigned char mask, lead;
    } forms[] = {{1, 0, 0x80, 0x00}, {2, 0x80, 0xe0, 0xc0}, {3, 0x800, 0xf0, 0xe0}, {4, 0x10000, 0xf8, 0xf0}};
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if ((at[0] & forms[f].mask) != forms[f].lead) continue;
        uint32_t code = at[0] & (unsigned char)~forms[f].mask;
        size_t i = 1;
        while (i < forms[f].bytes && (at[i] & 0xc0) == 0x80) code = code << 6 | (at[i++] & 0x3f);
        if (i < forms[f].bytes || code < forms[f].least || code > 0x10ffff ||
            (code >= 0xd800 && code < 0xe000))
            break;
        *bytes = i;
        return code;
    }
    *bytes = 1;
    return UINT32_MAX;
}

static bool is_unfit(uint32_t code) {
    const bool control = (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0);
    const bool turns = code == 0x61c || code == 0x200e || code == 0x200f ||
                       (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return control || turns || code == UINT32_MAX || (code & 0xfffe) == 0xfffe;
}

void spw_html_text(FILE *out, const char *text) { spw_html_part(out, text, strlen(text)); }

void spw_html_part(FILE *out, const char *text, size_t length) {
    static const char special[] = "&<>\"'";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    const unsigned char *const end = (const unsigned char *)text + length;
    for (const unsigned char *at = (const unsigned char *)text; at < end;) {
        size_t bytes = 1;
        const uint32_t code = character(at, &bytes);
        const char *found = code < 0x80 ? strchr(special, (int)code) : NULL;
        if (is_unfit(code)) {
            (void)fputs("\xef\xbf\xbd", out);
        } else if (found != NULL) {
            (void)fputs(names[found - special], out);
        } else {
            (void)fwrite(at, 1, bytes, out);
        }
        at += bytes;
    }
}

void spw_html_number(FILE *out, double exact, const char *format, double shown) {
    (void)fprintf(out, "<data value=\"%.17g\">", exact);
    (void)fprintf(out, format, shown);
    (void)fputs("</data>", out);
}
