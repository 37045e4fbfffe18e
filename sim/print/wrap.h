/* Lines that a person can read: what is longer than the line is broken at blanks. */
#ifndef SPW_SIM_PRINT_WRAP_H
#define SPW_SIM_PRINT_WRAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SPW_LINE_CHARACTERS = 120, SPW_HELP_CHARACTERS = 100 };

/* Characters of UTF-8, not bytes: all but those that go on with one. */
bool spw_begins_character(char c);
size_t spw_characters(const char *text);

/* The next part of a text that is broken at blanks: its bytes, of at most `most` characters unless its first word is longer.
 * A number and its % stay together. `*text` goes on behind it and the blanks that follow. 0 at the end. */
size_t spw_wrap_next(const char **text, size_t most);

/* A stream that writes to `below` what is written to it, line by line, with long lines broken. A line goes on below the
 * text behind its label ("routing   ...": behind the first blanks in a row), or else two columns behind its beginning.
 * A command to be copied ("again: spillway ...") stays on its line. */
typedef struct spw_wrap spw_wrap;
SPW_MUST_CHECK spw_status spw_wrap_open(FILE *below, spw_wrap **out);
FILE *spw_wrap_stream(spw_wrap *wrap);
/* Of lines that end from now on; SIZE_MAX: none is broken, as when nothing was said. */
void spw_wrap_at(spw_wrap *wrap, size_t most);
/* What was written arrives, a last line without an end as well. Returns 0, or -1 with errno set. */
int spw_wrap_flush(spw_wrap *wrap);
void spw_wrap_close(spw_wrap *wrap); /* not `below`; NULL is fine */

#endif
