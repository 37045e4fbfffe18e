#include "sim/command/trace/command_trace.h"

#include "sim/command/command.h"

#include <stdio.h>

const spw_command_row spw_trace_parts[] = {
    {"generate", spw_command_trace_generate, "make a trace whose routing follows a distribution", NULL},
    {"info", spw_command_trace_info, "shape, source, licence and balance, layer by layer", NULL},
    {"verify", spw_command_trace_verify, "check that the content can be true", NULL},
    {"import", spw_command_trace_import, "make a trace of what another program recorded", NULL},
    {"merge", spw_command_trace_merge, "put shards of ranks and steps together to one trace", NULL},
    {"slice", spw_command_trace_slice, "cut steps, layers and ranks out of a trace", NULL},
    {0},
};

static void usage(FILE *out) {
    fprintf(out, "usage: spillway trace PART [OPTION]... (spillway trace PART --help tells more)\n");
    spw_command_list(spw_trace_parts, out);
}

spw_status spw_command_trace(int argc, char **argv) {
    if (argc > 1 && spw_asks_for_help(argv[1])) {
        usage(stdout);
        return SPW_OK;
    }
    const spw_command_row *part = argc > 1 ? spw_command_find(spw_trace_parts, argv[1]) : NULL;
    if (part != NULL) return spw_command_run(part, argc, argv);
    if (argc < 2)
        return spw_fail(SPW_EARG, "trace: which part? generate, info, verify, import, merge or slice");
    return spw_fail(SPW_EARG,
                    "trace: '%s' is no part; there are generate, info, verify, import, merge and slice",
                    argv[1]);
}
