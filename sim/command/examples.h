/* What a manual shows beside the tables: a command line that works as it stands, and what it is for. */
#ifndef SPW_SIM_COMMAND_EXAMPLES_H
#define SPW_SIM_COMMAND_EXAMPLES_H

typedef struct spw_example {
    const char *page;    /* "trace info"; NULL ends the table */
    const char *purpose; /* a sentence */
    const char *line;
} spw_example;

/* Run in this order in an empty folder, every line works: what one reads, one before it has made. */
extern const spw_example spw_examples[];

#endif
