# Builds the device code with whatever GPU compilers are present. Sourced by ./run, or run alone on a bare GPU machine:
#     bash kernels/build.sh [hip | verify]
#   hip      every kernel for every target whose compiler is there, and says which were not
#   verify   spillway-verify and spillway-bench-kernels with nvcc and a C compiler: no CMake, no HDF5, no GSL
# Output below ${SPW_KERNELS_BUILD:-build/kernels}. Paths are relative to the project's root.

# Kernels of one vendor's matrix units, and what only they need; everything else is built for both.
spw_kernels_amd="grouped_gemm_mfma.hip"
spw_kernels_nvidia="grouped_gemm_swiglu_wgmma.hip grouped_gemm_wgmma.hip tensor_map.c"

# Files of kernels/ by pattern, less the names that follow it: paths without ending.
spw_kernels_files() {
    find kernels -name "$1" | sort | while read -r file; do
        case " $2 " in *" $(basename "$file") "*) ;; *) echo "${file%.*}" ;; esac
    done
}
spw_kernels_of_amd() { spw_kernels_files '*.hip' "$spw_kernels_nvidia"; }
spw_kernels_of_nvidia() { spw_kernels_files '*.hip' "$spw_kernels_amd"; }
# The C files of both programs, for NVIDIA.
spw_kernels_host() { spw_kernels_files '*.c' "" | grep -v '_none$'; }

SPW_KERNELS_BUILD=${SPW_KERNELS_BUILD:-build/kernels}
spw_kernels_out() { mkdir -p "$SPW_KERNELS_BUILD/$1" && echo "$SPW_KERNELS_BUILD/$1"; }

# Runs the commands read from standard input, one a line, on ${SPW_JOBS:-2} processes.
spw_kernels_parallel() { xargs -r -P "${SPW_JOBS:-2}" -I{} sh -c '{}'; }

# An object that is newer than its source and every header.
spw_kernels_fresh() { [ "$1" -nt "$2" ] && [ -z "$(find kernels -name '*.h' -newer "$1")" ]; }

# One code object a kernel file: device code alone, no HIP header and no device library.
spw_kernels_code_objects() {
    for target in "$@"; do
        out=$(spw_kernels_out "$target")
        for kernel in $(spw_kernels_of_amd); do
            object=$out/$(basename "$kernel").co
            spw_kernels_fresh "$object" "$kernel.hip" && continue
            echo "${SPW_CLANG:-clang++-22} -x hip -DGPU_NO_RUNTIME -nogpuinc -nogpulib --offload-arch=$target -O3 -std=c++17 -I. \
-Wall -Wextra -mcode-object-version=5 --cuda-device-only --no-gpu-bundle-output $kernel.hip -o $object"
        done
    done | spw_kernels_parallel
}

spw_kernels_cuda_objects() {
    out=$(spw_kernels_out sm_90a)
    for kernel in $(spw_kernels_of_nvidia); do
        object=$out/$(basename "$kernel").hip.o
        spw_kernels_fresh "$object" "$kernel.hip" && continue
        echo "nvcc -x cu -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -lineinfo -I. -c $kernel.hip -o $object"
    done | spw_kernels_parallel
}

# ROCm's own compiler, where a user has it: objects with host code.
spw_kernels_hipcc_objects() {
    for target in "$@"; do
        out=$(spw_kernels_out "hipcc-$target")
        for kernel in $(spw_kernels_of_amd); do
            echo "hipcc -DSPW_HIP --offload-arch=$target -O3 -std=c++17 -I. -c $kernel.hip -o $out/$(basename "$kernel").hip.o"
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
    below="$(find reference -name '*.c' | sed 's/\.c$//') base/file base/memory base/progress base/status"
    cuda=$(dirname "$(dirname "$(command -v nvcc)")")
    for file in $(spw_kernels_host) $below; do
        echo "${CC:-cc} -std=c11 -O3 -fopenmp -D_GNU_SOURCE -ffp-contract=off -Wall -Wextra -I. -isystem $cuda/include \
-c $file.c -o $out/$(basename "$file").o"
    done | spw_kernels_parallel || return 1
    objects() { while read -r file; do echo "$out/$(basename "$file").o"; done; }
    bench=$(spw_kernels_host | grep '^kernels/bench/' | objects)
    shared=$({ spw_kernels_host | grep -v -e '^kernels/bench/' -e '/verify$'; printf '%s\n' $below; } | objects)
    device=$(for kernel in $(spw_kernels_of_nvidia); do echo "$SPW_KERNELS_BUILD/sm_90a/$(basename "$kernel").hip.o"; done)
    # shellcheck disable=SC2086 # lists of files
    nvcc -o "$SPW_KERNELS_BUILD/spillway-verify" "$out/verify.o" $shared $device -Xcompiler -fopenmp -lm || return 1
    # shellcheck disable=SC2086
    nvcc -o "$SPW_KERNELS_BUILD/spillway-bench-kernels" $bench $shared $device -Xcompiler -fopenmp -lcublas -lm
}

if [ "$(basename -- "$0")" = build.sh ]; then
    cd "$(dirname -- "$0")/.." || exit 3
    case ${1:-hip} in
    hip) spw_kernels_hip ;;
    verify) spw_kernels_verify ;;
    *) echo "usage: kernels/build.sh [hip | verify]" >&2 && exit 2 ;;
    esac
fi
