#include "sim/command/command_trace.h"

#include "sim/command/command.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    spw_status (*run)(int argc, char **argv);
    const char *help;
} parts[] = {
    {"generate", spw_command_trace_generate, "make a trace whose routing follows a distribution"},
    {"info", spw_command_trace_info, "shape, source, licence and balance, layer by layer"},
    {"verify", spw_command_trace_verify, "check that the content can be true"},
    {"import", spw_command_trace_import, "make a trace of what another program recorded"},
    {"merge", spw_command_trace_merge, "put shards of ranks and steps together to one trace"},
    {"slice", spw_command_trace_slice, "cut steps, layers and ranks out of a trace"},
};

enum { PARTS = sizeof parts / sizeof *parts };

static void usage(FILE *out) {
    fprintf(out, "usage: spillway trace PART [OPTION]... (spillway trace PART --help tells more)\n");
    for (int i = 0; i < PARTS; i++) fprintf(out, "  %-8s %s\n", parts[i].name, parts[i].help);
}

spw_status spw_command_trace(int argc, char **argv) {
    if (argc > 1 && spw_asks_for_help(argv[1])) {
        usage(stdout);
        return SPW_OK;
    }
    for (int i = 0; argc > 1 && i < PARTS; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        char name[64];
        (void)snprintf(name, sizeof name, "%s %s", argv[0], parts[i].name);
        argv[1] = name;
        return parts[i].run(argc - 1, argv + 1);
    }
    if (argc < 2)
        return spw_fail(SPW_EARG, "trace: which part? generate, info, verify, import, merge or slice");
    return spw_fail(SPW_EARG,
                    "trace: '%s' is no part; there are generate, info, verify, import, merge and slice",
                    argv[1]);
}
