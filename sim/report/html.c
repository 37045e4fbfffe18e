#include "sim/report/html.h"

#include "base/text.h"

#include <stdint.h>
#include <string.h>

void spw_html_text(FILE *out, const char *text) { spw_html_part(out, text, strlen(text)); }

void spw_html_part(FILE *out, const char *text, size_t length) {
    static const char special[] = "&<>\"'";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (const char *at = text, *const end = text + length; at < end;) {
        size_t bytes = 1;
        const uint32_t code = spw_text_character(at, &bytes);
        const char *found = code < 0x80 ? strchr(special, (int)code) : NULL;
        if (spw_text_is_unfit(code)) {
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

int spw_percent_digits(double share) {
    const double percent = 100.0 * share;
    int digits = 0;
    for (double next = 9.95; percent > 0.0 && percent < next && digits < 6; next /= 10.0) digits++;
    return digits;
}
