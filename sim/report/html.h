/* Text of anybody, as HTML. A report is made of these and of numbers alone. Links go to places of the page itself. */
#ifndef SPW_SIM_REPORT_HTML_H
#define SPW_SIM_REPORT_HTML_H

#include <stdio.h>

/* Escapes what HTML gives a meaning, in text and in attributes. UTF-8 stays, but for control characters, which HTML forbids or
 * which would turn the direction of the text around: they, and bytes that are no UTF-8, become U+FFFD. */
void spw_html_text(FILE *out, const char *text);
void spw_html_part(FILE *out, const char *text, size_t length); /* so many bytes of it */

/* A name of JSON as a person writes it: "gathered_weights" without its line. */
void spw_html_name(FILE *out, const char *name);

/* <data value="exact">shown</data>: what a person sees, and the number as it is in the result. `format` is of one double. */
void spw_html_number(FILE *out, double exact, const char *format, double shown);

/* A large number as anyone writes it, "6.47 billion", "237,541"; exact as spw_html_number(). */
void spw_html_amount(FILE *out, double value);

/* A figure of any size: "5.3", "2.25 &middot; 10<sup>15</sup>"; exact as spw_html_number(). */
void spw_html_figure(FILE *out, double value);

/* A share as a percentage, as many digits as tell it apart; exact as spw_html_number(). */
void spw_html_percent(FILE *out, double share);

/* Digits behind the point that show two figures of a share as a percentage, and 100 as 100. */
int spw_percent_digits(double share);

#endif
