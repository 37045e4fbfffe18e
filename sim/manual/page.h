/* What a manual says of every command and part of one, read from the tables that the program itself parses by. */
#ifndef SPW_SIM_MANUAL_PAGE_H
#define SPW_SIM_MANUAL_PAGE_H

#include "base/status.h"
#include "sim/command/command.h"

#include <stddef.h>

enum { SPW_PAGE_OPTIONS = 96, SPW_MANUAL_PAGES = 64 };

typedef struct spw_page_option {
    const char *name, *argument, *text; /* argument NULL: it takes none */
    char letter;                        /* 0: it has no short name */
    int group;
    const char *heading; /* what it is about, of a group of options; NULL: of the command itself */
} spw_page_option;

typedef struct spw_page {
    char name[48];       /* "trace info"; "" is the program */
    const char *summary; /* one line */
    const char *usage;   /* what follows the options, a line for each way to call it; NULL: nothing does */
    char *text, *more;   /* paragraphs before and after the options; NULL: none; owned */
    const spw_command_row *parts; /* NULL: it has options */
    spw_page_option option[SPW_PAGE_OPTIONS];
    size_t options;
    spw_status status; /* of its making */
} spw_page;

typedef struct spw_manual {
    spw_page page[SPW_MANUAL_PAGES]; /* the program, then each command, followed by its parts */
    size_t pages;
} spw_manual;

/* SPW_EARG where a table has outgrown the limits above. Closed by spw_manual_close. */
SPW_MUST_CHECK spw_status spw_manual_open(spw_manual **out);
void spw_manual_close(spw_manual *manual); /* NULL is fine */

#endif
