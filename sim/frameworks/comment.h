/* Comments of what is printed for a framework's files and scripts: lines no longer than a terminal is wide. */
#ifndef SPW_SIM_FRAMEWORKS_COMMENT_H
#define SPW_SIM_FRAMEWORKS_COMMENT_H

#include <stdio.h>

enum { SPW_COMMENT_LINE = 118 };

/* The text up to its end or the end of its line, broken where `between` stands (" ": between words), with `begin` before the first
 * line and `next` before the others. */
void spw_comment_print(const char *text, const char *begin, const char *next, const char *between, FILE *out);

#endif
