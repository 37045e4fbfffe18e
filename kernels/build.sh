# Builds the device code with whatever GPU compilers are present. Sourced by ./run, or run alone on a bare GPU machine:
#     bash kernels/build.sh [hip | verify]
#   hip      every kernel for every target whose compiler is there, and says which were not
#   verify   spillway-verify and spillway-bench-kernels with nvcc and a C compiler: no CMake, no HDF5, no GSL
# Output below ${SPW_KERNELS_BUILD:-build/kernels}. Paths are relative to the project's root.

spw_kernels_portable="capacity combine combine_gradient exchange_layout exchange_ragged exchange_reduce exchange_send \
fan_out grouped_gemm_naive grouped_gemm_tiled links numbers ring router routing_plan swiglu swiglu_gradient token_rounding"
spw_kernels_amd="grouped_gemm_mfma"
spw_kernels_nvidia="grouped_gemm_swiglu_wgmma grouped_gemm_wgmma"
spw_kernels_host="bench bench_ceilings bench_device bench_exchange bench_gemm bench_layer bench_layer_clock \
bench_links bench_local bench_plain bench_ranks choices device device_pool dispatch_gpu grouped_gemm_gpu judge \
layer_dispatch layer_gpu layer_plain layer_ring link_curve nccl_library plain_exchange record record_rules routing \
tensor_map verify verify_device verify_dispatch verify_dispatch_checks verify_exchange verify_gemm verify_layer \
verify_layer_checks verify_local verify_made_up verify_plain verify_processes verify_record world world_link"

SPW_KERNELS_BUILD=${SPW_KERNELS_BUILD:-build/kernels}
spw_kernels_out() { mkdir -p "$SPW_KERNELS_BUILD/$1" && echo "$SPW_KERNELS_BUILD/$1"; }

# Runs the commands read from standard input, one a line, on ${SPW_JOBS:-2} processes.
spw_kernels_parallel() { xargs -r -P "${SPW_JOBS:-2}" -I{} sh -c '{}'; }

# One code object a kernel file: device code alone, no HIP header and no device library.
spw_kernels_code_objects() {
    for target in "$@"; do
        out=$(spw_kernels_out "$target")
        for kernel in $spw_kernels_portable $spw_kernels_amd; do
            [ "$out/$kernel.co" -nt "kernels/$kernel.hip" ] && [ -z "$(find kernels -name '*.h' -newer "$out/$kernel.co")" ] && continue
            echo "${SPW_CLANG:-clang++-22} -x hip -DGPU_NO_RUNTIME -nogpuinc -nogpulib --offload-arch=$target -O3 -std=c++17 -I. \
-Wall -Wextra -mcode-object-version=5 --cuda-device-only --no-gpu-bundle-output kernels/$kernel.hip -o $out/$kernel.co"
        done
    done | spw_kernels_parallel
}

spw_kernels_cuda_objects() {
    out=$(spw_kernels_out sm_90a)
    for kernel in $spw_kernels_portable $spw_kernels_nvidia; do
        [ "$out/$kernel.hip.o" -nt "kernels/$kernel.hip" ] && [ -z "$(find kernels -name '*.h' -newer "$out/$kernel.hip.o")" ] && continue
        echo "nvcc -x cu -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -lineinfo -I. -c kernels/$kernel.hip -o $out/$kernel.hip.o"
    done | spw_kernels_parallel
}

# ROCm's own compiler, where a user has it: objects with host code.
spw_kernels_hipcc_objects() {
    for target in "$@"; do
        out=$(spw_kernels_out "hipcc-$target")
        for kernel in $spw_kernels_portable $spw_kernels_amd; do
            echo "hipcc -DSPW_HIP --offload-arch=$target -O3 -std=c++17 -I. -c kernels/$kernel.hip -o $out/$kernel.hip.o"
        done
    done | spw_kernels_parallel
}

spw_kernels_hip() {
    if command -v "${SPW_CLANG:-clang++-22}" >/dev/null && command -v ld.lld-22 >/dev/null; then
        spw_kernels_code_objects gfx942 gfx950 gfx90a || return 1
        echo "gfx942 gfx950 gfx90a: built by ${SPW_CLANG:-clang++-22}"
    else
        echo "gfx942 gfx950 gfx90a: not built, clang-22 and lld-22 are absent"
    fi
    if command -v nvcc >/dev/null; then
        spw_kernels_cuda_objects || return 1
        echo "sm_90a: built by nvcc"
    else
        echo "sm_90a: not built, nvcc is absent"
    fi
    if command -v hipcc >/dev/null; then
        spw_kernels_hipcc_objects gfx90a gfx942 || return 1
        echo "gfx90a gfx942 with host code: built by hipcc"
    else
        echo "host code for HIP: not built, hipcc is absent"
    fi
}

spw_kernels_verify() {
    command -v nvcc >/dev/null || { echo "nvcc is absent"; return 3; }
    spw_kernels_cuda_objects || return 1
    out=$(spw_kernels_out host)
    reference=$(cd reference && find . -name '*.c' | sed 's/\.c$//')
    cuda=$(dirname "$(dirname "$(command -v nvcc)")")
    {
        for file in $spw_kernels_host; do echo "kernels/$file"; done
        for file in $reference; do echo "reference/$file"; done
        for file in file memory progress status; do echo "base/$file"; done
    } | while read -r file; do
        echo "${CC:-cc} -std=c11 -O3 -fopenmp -D_GNU_SOURCE -ffp-contract=off -Wall -Wextra -I. -isystem $cuda/include \
-c $file.c -o $out/$(basename "$file").o"
    done | spw_kernels_parallel || return 1
    device=$(for kernel in $spw_kernels_portable $spw_kernels_nvidia; do echo "$SPW_KERNELS_BUILD/sm_90a/$kernel.hip.o"; done)
    shared=$(for file in $spw_kernels_host; do case $file in bench* | verify) ;; *) echo "$out/$file.o" ;; esac; done)
    shared="$shared $(for file in $reference file memory progress status; do echo "$out/$(basename "$file").o"; done)"
    # shellcheck disable=SC2086 # lists of files
    nvcc -o "$SPW_KERNELS_BUILD/spillway-verify" "$out/verify.o" $shared $device -Xcompiler -fopenmp -lm || return 1
    # shellcheck disable=SC2086
    nvcc -o "$SPW_KERNELS_BUILD/spillway-bench-kernels" "$out"/bench*.o $shared $device -Xcompiler -fopenmp -lcublas -lm
}

if [ "$(basename -- "$0")" = build.sh ]; then
    cd "$(dirname -- "$0")/.." || exit 3
    case ${1:-hip} in
    hip) spw_kernels_hip ;;
    verify) spw_kernels_verify ;;
    *) echo "usage: kernels/build.sh [hip | verify]" >&2 && exit 2 ;;
    esac
fi
