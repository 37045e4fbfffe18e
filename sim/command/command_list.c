/* Lists of commands: of the program, and of a command that has parts. */
#include "sim/command/command.h"

#include <string.h>

const spw_command_row *spw_command_find(const spw_command_row *rows, const char *name) {
    for (; rows->name != NULL; rows++)
        if (strcmp(rows->name, name) == 0) return rows;
    return NULL;
}

void spw_command_list(const spw_command_row *rows, FILE *out) {
    int width = 0;
    for (const spw_command_row *row = rows; row->name != NULL; row++)
        if ((int)strlen(row->name) > width) width = (int)strlen(row->name);
    for (; rows->name != NULL; rows++) fprintf(out, "  %-*s %s\n", width, rows->name, rows->help);
}

spw_status spw_command_run(const spw_command_row *row, int argc, char **argv) {
    char name[96];
    (void)snprintf(name, sizeof name, "%s %s", argv[0], row->name);
    argv[1] = name; /* what argp calls the program */
    return row->run(argc - 1, argv + 1);
}
