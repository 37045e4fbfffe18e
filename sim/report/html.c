#include "sim/report/html.h"

#include "base/text.h"

#include <math.h>
#include <stdbool.h>
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

void spw_html_name(FILE *out, const char *name) {
    char plain[128];
    (void)snprintf(plain, sizeof plain, "%s", name);
    for (char *at = plain; *at != '\0'; at++) {
        if (*at == '_') *at = ' ';
    }
    spw_html_text(out, plain);
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

void spw_html_percent(FILE *out, double share) {
    (void)fprintf(out, "<data value=\"%.17g\">%.*f&nbsp;%%</data>", share, spw_percent_digits(share),
                  100.0 * share);
}

void spw_html_amount(FILE *out, double value) {
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1e12, " trillion"}, {1e9, " billion"}, {1e6, " million"}};
    (void)fprintf(out, "<data value=\"%.17g\">", value);
    size_t u = 0;
    while (u < sizeof units / sizeof units[0] && value < 0.9995 * units[u].unit) u++;
    if (u < sizeof units / sizeof units[0]) {
        const double shown = value / units[u].unit;
        const int digits = shown < 9.995 ? 2 : shown < 99.95 ? 1 : 0;
        const bool whole = fabs(shown - round(shown)) < 1e-9;
        (void)fprintf(out, "%.*f%s", whole ? 0 : digits, shown, units[u].name);
    } else if (value >= 999.5) {
        (void)fprintf(out, "%.0f,%03.0f", floor(round(value) / 1000.0), fmod(round(value), 1000.0));
    } else {
        (void)fprintf(out, "%.*f", value < 9.95 ? 1 : 0, value);
    }
    (void)fputs("</data>", out);
}

void spw_html_figure(FILE *out, double value) {
    const double size = fabs(value), power = size > 0.0 ? floor(log10(size) + 1e-12) : 0.0;
    (void)fprintf(out, "<data value=\"%.17g\">", value);
    if (power >= 6.0 || power <= -4.0) {
        (void)fprintf(out, "%.6g&nbsp;&middot;&nbsp;10<sup>%.0f</sup>", value / pow(10.0, power), power);
    } else {
        (void)fprintf(out, "%.6g", value);
    }
    (void)fputs("</data>", out);
}
