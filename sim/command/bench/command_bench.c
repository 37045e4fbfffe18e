#include "sim/command/command.h"

#include "kernels/bench/bench_device.h"

#include <stdio.h>

static error_t take_kernels(int key, char *text, struct argp_state *state) {
    if (key != ARGP_KEY_ARG || state->arg_num > 0) return ARGP_ERR_UNKNOWN;
    *(const char **)state->input = text;
    return 0;
}

static spw_status bench_kernels(int argc, char **argv) {
    static const struct argp argp = {
        .parser = take_kernels,
        .args_doc = "[gemm|local]",
        .doc = "The GPU's kernels beside its ceilings; needs a build with SPW_CUDA.",
    };
    const char *which = "";
    spw_status status = spw_command_parse(&argp, argc, argv, &which);
    if (status != SPW_OK) return status;
    status = spw_bench_device(which);
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "bench kernels");
}

const spw_command_row spw_bench_parts[] = {
    {"replay", spw_command_bench_replay, "routing counts per second, from memory and from a compressed file",
     NULL},
    {"reference", spw_command_bench_reference,
     "the CPU reference's grouped GEMM beside sgemm and the machine's peak", NULL},
    {"allocator", spw_command_bench_allocator,
     "PyTorch's allocator replayed over 1000 steps x 60 layers, on one core", NULL},
    {"plan", spw_command_bench_plan,
     "processor time of a plan of six public jobs, beside another planner's program", NULL},
    {"search", spw_command_bench_search,
     "points a minute of a search over a named space, and how many of them it plans wholly", NULL},
    {"growth", spw_command_bench_growth,
     "how time and memory of plan, replay and search grow, by GPUs, experts, layers and more", NULL},
    {"kernels", bench_kernels,
     "the GPU's kernels beside its ceilings: [gemm | local]; needs a build with SPW_CUDA", NULL},
    {"dispatch", spw_command_bench_dispatch,
     "dispatch and combine between GPUs beside their links and NCCL; needs a build with SPW_CUDA", NULL},
    {"layer", spw_command_bench_layer,
     "whole expert layers between GPUs, by phase; needs a build with SPW_CUDA", NULL},
    {0},
};

spw_status spw_command_bench(int argc, char **argv) {
    const spw_command_row *part = argc > 1 ? spw_command_find(spw_bench_parts, argv[1]) : NULL;
    if (part != NULL) return spw_command_run(part, argc, argv);
    FILE *out = argc > 1 && spw_asks_for_help(argv[1]) ? stdout : stderr;
    fprintf(out, "usage: spillway bench WHAT [OPTION]...\n");
    spw_command_list(spw_bench_parts, out);
    if (out == stdout) return SPW_OK;
    return argc > 1 ? spw_fail(SPW_EARG, "bench '%s' is unknown", argv[1])
                    : spw_fail(SPW_EARG, "bench what? see the list above");
}
