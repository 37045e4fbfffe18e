#include "sim/command/command.h"

#include "kernels/bench/bench_device.h"

#include <stdio.h>
#include <string.h>

static spw_status bench_kernels(int argc, char **argv) {
    if (argc > 1 && spw_asks_for_help(argv[1])) {
        printf("usage: spillway bench kernels [gemm | local]\n"
               "The GPU's kernels beside its ceilings; needs a build with SPW_CUDA.\n");
        return SPW_OK;
    }
    const spw_status status = spw_bench_device(argc > 1 ? argv[1] : "");
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "bench kernels");
}

static const struct {
    const char *name;
    spw_status (*run)(int argc, char **argv);
    const char *help;
} benches[] = {
    {"replay", spw_command_bench_replay, "routing counts per second, from memory and from a compressed file"},
    {"reference", spw_command_bench_reference,
     "the CPU reference's grouped GEMM beside sgemm and the machine's peak"},
    {"allocator", spw_command_bench_allocator,
     "PyTorch's allocator replayed over 1000 steps x 60 layers, on one core"},
    {"kernels", bench_kernels,
     "the GPU's kernels beside its ceilings: [gemm | local]; needs a build with SPW_CUDA"},
    {"dispatch", spw_command_bench_dispatch,
     "dispatch and combine between GPUs beside their links and NCCL; needs a build with SPW_CUDA"},
    {"layer", spw_command_bench_layer,
     "whole expert layers between GPUs, by phase; needs a build with SPW_CUDA"},
};

enum { BENCHES = sizeof benches / sizeof benches[0] };

spw_status spw_command_bench(int argc, char **argv) {
    for (int i = 0; argc > 1 && i < BENCHES; i++) {
        if (strcmp(argv[1], benches[i].name) == 0) return benches[i].run(argc - 1, argv + 1);
    }
    FILE *out = argc > 1 && spw_asks_for_help(argv[1]) ? stdout : stderr;
    fprintf(out, "usage: spillway bench WHAT [OPTION]...\n");
    for (int i = 0; i < BENCHES; i++) fprintf(out, "  %-10s %s\n", benches[i].name, benches[i].help);
    if (out == stdout) return SPW_OK;
    return argc > 1 ? spw_fail(SPW_EARG, "bench '%s' is unknown", argv[1])
                    : spw_fail(SPW_EARG, "bench what? see the list above");
}
