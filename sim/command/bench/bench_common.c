#include "sim/command/bench/bench_common.h"

#include "sim/command/bench/process_use.h"
#include "sim/command/command.h"
#include "sim/command/job_options.h"

#include <stddef.h>

#define FORMAT \
    { "format", 'f', "table|json|csv", 0, "how to print (default: table)", 0 }
static const struct argp_option format_options[] = {FORMAT, {0}};
static const struct argp_option repeats_options[] = {
    {"repeats", 'n', "N", 0, "how often each is measured, as said above", 0}, FORMAT, {0}};
#undef FORMAT

static spw_status parse(spw_bench_common *o, int key, const char *text) {
    if (key == 'f') return spw_command_format(text, &o->format);
    const spw_status status = spw_parse_count("--repeats", text, SPW_PROCESS_REPEATS, &o->repeats);
    return status == SPW_OK && o->repeats == 0
               ? spw_fail(SPW_EARG, "--repeats 0 measures nothing: write 1 or more")
               : status;
}

static error_t parse_bench_common(int key, char *text, struct argp_state *state) {
    spw_bench_common *o = state->input;
    if (key != 'n' && key != 'f') return ARGP_ERR_UNKNOWN;
    if (o->status == SPW_OK) o->status = parse(o, key, text);
    return 0;
}

const struct argp spw_bench_format_argp = {.options = format_options, .parser = parse_bench_common};
const struct argp spw_bench_repeats_argp = {.options = repeats_options, .parser = parse_bench_common};
