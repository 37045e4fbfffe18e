# Where HIP's headers and library are. Sourced by build.sh. A root is a folder in the form of /opt/rocm: the first of
#   $ROCM_PATH, /opt/rocm          an installation of ROCm 6 or later
#   build/rocm                     made here, from headers of HIP 6 or later: $SPW_HIP_INCLUDE (which holds hip/hip_runtime.h), or those in the
#                                  PyPI wheel `triton`, which are fetched when SPW_FETCH is set; its libamdhip64 is the stand-in of kernels/emulate/,
#                                  with which programs link, say that there is no GPU, and run in the emulator
spw_rocm_wheel="triton==3.9.0" # HIP 7.1; MIT; 280 MB, of which the headers are 3

# "7.1" of the headers below a folder, or nothing.
spw_rocm_version() {
    sed -n 's/^#define HIP_VERSION_M[AI][JN]OR \([0-9]*\)$/\1/p' "$1/hip/hip_version.h" 2>/dev/null | paste -sd.
}
spw_rocm_new_enough() { version=$(spw_rocm_version "$1") && [ "${version%%.*}" -ge 6 ] 2>/dev/null; }

# The wheel's headers below build/rocm-headers.
spw_rocm_fetch() {
    headers=build/rocm-headers
    if [ ! -d $headers/hip ] && [ -n "${SPW_FETCH:-}" ]; then
        folder=$(mktemp -d)
        if "${SPW_PYTHON:-python3}" -m pip download -q --no-deps --only-binary :all: --platform manylinux_2_28_x86_64 \
            --python-version 3.11 -d "$folder" "$spw_rocm_wheel" >&2; then
            (cd "$folder" && "${SPW_PYTHON:-python3}" -m zipfile -e triton-*.whl . && cp -r triton/backends/amd/include headers)
            mkdir -p build && mv "$folder/headers" $headers
        fi
        rm -rf "$folder"
    fi
    [ -d $headers/hip ] && echo $headers
}

# Prints the root; the reason why there is none goes to standard error.
spw_rocm_root() {
    for root in ${ROCM_PATH:-} /opt/rocm; do
        spw_rocm_new_enough "$root/include" && echo "$root" && return
    done
    include=${SPW_HIP_INCLUDE:-$(spw_rocm_fetch)}
    if ! spw_rocm_new_enough "$include"; then
        echo "no headers of HIP 6 or later: docs/install_rocm.md says where they are" >&2
        return 1
    fi
    spw_rocm_make build/rocm "$(cd "$include" && pwd)" && echo "$PWD/build/rocm"
}

# What clang and CMake look for in a root, and the stand-in for the runtime.
spw_rocm_make() {
    mkdir -p "$1/lib/cmake/hip-lang" "$1/share/hip" || return 1
    ln -sfn "$2" "$1/include"
    version=$(spw_rocm_version "$2")
    printf 'HIP_VERSION_MAJOR=%s\nHIP_VERSION_MINOR=%s\nHIP_VERSION_PATCH=0\n' "${version%%.*}" "${version##*.}" >"$1/share/hip/version"
    cp kernels/emulate/hip-lang-config.cmake "$1/lib/cmake/hip-lang/"
    cat >"$1/toolchain.cmake" <<TEXT
set(CMAKE_HIP_COMPILER ${SPW_CLANG:-clang++-22})
set(CMAKE_HIP_COMPILER_ROCM_ROOT $PWD/$1)
set(CMAKE_HIP_FLAGS_INIT "--rocm-path=$PWD/$1 -nogpulib -Wno-unused-command-line-argument")
TEXT
    for source in hip_emulator hip_launch hip_runtime; do
        [ "$1/lib/libamdhip64.so" -nt kernels/emulate/$source.c ] || stale=yes
    done
    [ -z "${stale:-}" ] && return
    ${CC:-cc} -std=c11 -O2 -shared -fPIC -D_GNU_SOURCE -D__HIP_PLATFORM_AMD__ -Wall -Wextra -I. -isystem "$2" -o "$1/lib/libamdhip64.so" \
        -Wl,-soname,libamdhip64.so kernels/emulate/hip_*.c -lpthread
}

# ROCm's own clang, or clang-22.
spw_rocm_clang() {
    if [ -x "$1/llvm/bin/clang++" ]; then echo "$1/llvm/bin/clang++"; else echo "${SPW_CLANG:-clang++-22}"; fi
}

# Those targets that this clang knows: gfx950 is newer than ROCm 6's.
spw_rocm_targets() {
    for target in ${SPW_HIP_ARCHITECTURES:-gfx90a gfx942 gfx950}; do
        "$1" -x hip -nogpuinc -nogpulib --cuda-device-only "--offload-arch=$target" -E -o /dev/null /dev/null 2>/dev/null && echo "$target"
    done
}
