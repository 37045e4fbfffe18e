/* Manual pages, as troff for man(1). */
#ifndef SPW_SIM_MANUAL_MAN_H
#define SPW_SIM_MANUAL_MAN_H

#include "sim/manual/page.h"

#include <stdio.h>

/* "spillway-trace-info": what a page of section 1 is called. */
void spw_man_name(const spw_page *page, char *out, size_t size);

/* A page of section 1: a command, a part of one, or the program. */
void spw_man_command(const spw_manual *manual, const spw_page *page, FILE *out);

/* A page of section 5, the keys of a file that a user writes, or of section 7, a list of names. */
int spw_man_section(const spw_command_topic *topic);
void spw_man_topic(const spw_command_topic *topic, FILE *out);

#endif
