/* Text of unknown origin, character by character: what may be shown to a person and what may not. */
#ifndef SPW_BASE_TEXT_H
#define SPW_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPW_TEXT_BROKEN = 0x110000 }; /* no character of Unicode */

/* The character of UTF-8 at `at`, which is not at the end of its text; *bytes it takes, 1 for a byte that is no UTF-8, and then
 * it is SPW_TEXT_BROKEN. Never reads beyond a zero byte. */
uint32_t spw_text_character(const char *at, size_t *bytes);

/* Control characters but for tab and line feed, characters that turn the direction of the text around, line and paragraph
 * separators, what Unicode calls no character, and SPW_TEXT_BROKEN. */
bool spw_text_is_unfit(uint32_t character);

/* strtod() of decimal numbers alone: what begins with a blank, or is hexadecimal, "inf" or "nan", is none, and then *end is
 * `text` and the value 0. */
double spw_text_number(const char *text, char **end);

/* The text without the mark of its byte order that some editors put in front of UTF-8; *length counts what is left. */
const char *spw_text_skip_mark(const char *text, size_t *length);

/* True when a list between commas has a place with nothing in it, as in "1,,2", ",1" or "1,"; false for "". */
bool spw_text_has_gap(const char *list);

#endif
