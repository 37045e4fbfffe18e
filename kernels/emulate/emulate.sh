# `./run emulate`: builds the AMD code objects, or whole programs, and executes them in an emulator, on a machine without an AMD GPU. Sourced
# by ./run, or run alone:
#     TINYGRAD=<clone of tinygrad> bash kernels/emulate/emulate.sh [gfx942 gfx950] [--only NAME]      every kernel, launched by Python
#     TINYGRAD=... bash kernels/emulate/emulate.sh --host [gfx942 gfx950] [-- ARGUMENT...]            host code too: spillway-verify
#     TINYGRAD=... bash kernels/emulate/emulate.sh --jax [gfx942 gfx950]                              the calls for JAX; SPW_JAX_INCLUDE or jaxlib
#     TINYGRAD=... bash kernels/emulate/emulate.sh --torch [gfx942 gfx950]                            the entry of PyTorch's operators
#     bash kernels/emulate/emulate.sh --host-check                                                    the host path, in seconds
# --host runs spillway-verify with the arguments, or `small` and `--ranks 2 --phases`. --host-check runs what needs no emulator, and one small
# kernel where TINYGRAD is. Needs clang-22, lld-22, python3 with numpy (SPW_PYTHON names another python3), for host code HIP's headers
# (docs/install_rocm.md). Exit status 77: something is absent.

spw_emulate_absent() {
    command -v "${SPW_CLANG:-clang++-22}" >/dev/null || { echo "AMD code not executed: ${SPW_CLANG:-clang++-22} is absent"; return 0; }
    "${SPW_PYTHON:-python3}" -c 'import numpy' 2>/dev/null || { echo "AMD code not executed: ${SPW_PYTHON:-python3} has no numpy; SPW_PYTHON names another"; return 0; }
    [ -z "${TINYGRAD:-}" ] || return 1
    echo "AMD code not executed: TINYGRAD does not name a clone of tinygrad (docs/validation_gpu.md says which commit)"
}

# The emulator serves a program: $1: target, then the program and its arguments.
spw_emulate_program() {
    target=$1 && shift
    "${SPW_PYTHON:-python3}" kernels/emulate/emulate_host.py --target "$target" --runtime "$(spw_rocm_root)/lib" -- "$@"
}

spw_emulate_host() {
    targets=""
    while [ $# -gt 0 ] && [ "$1" != -- ]; do targets="$targets $1" && shift; done
    [ $# -eq 0 ] || shift
    spw_emulate_absent && return 77
    spw_kernels_verify_amd || return
    for target in ${targets:-gfx942 gfx950}; do
        if [ $# -gt 0 ]; then
            spw_emulate_program "$target" "$SPW_KERNELS_BUILD/hip-host/spillway-verify" "$@" || return 1
        else
            spw_emulate_program "$target" "$SPW_KERNELS_BUILD/hip-host/spillway-verify" small || return 1
            spw_emulate_program "$target" "$SPW_KERNELS_BUILD/hip-host/spillway-verify" --ranks 2 --phases || return 1
        fi
    done
}

# Calls of Python by a library that is built for AMD. $1: jax or torch, then targets
spw_emulate_python() {
    calls=$1 && shift
    spw_emulate_absent && return 77
    "spw_${calls}_amd" || return
    for target in ${*:-gfx942 gfx950}; do
        spw_emulate_program "$target" "${SPW_PYTHON:-python3}" "kernels/emulate/emulate_$calls.py" "$SPW_KERNELS_BUILD/libspillway_${calls}_amd.so" || return 1
    done
}

# Links the check of the stand-in with what the programs are linked with.
spw_emulate_check_program() {
    root=$(spw_rocm_root) && out=$(spw_kernels_out hip-host) || return 1
    ${CC:-cc} -std=c11 -O1 -D_GNU_SOURCE -DSPW_HIP -D__HIP_PLATFORM_AMD__ -Wall -Wextra -I. -isystem "$root/include" tests/kernels/hip_check.c \
        "$out/device.o" "$out/status.o" "$out/text.o" "$SPW_KERNELS_BUILD/hip/numbers.hip.o" "-L$root/lib" "-Wl,-rpath,$root/lib" -lamdhip64 -o "$out/hip_check"
}

# A program that must find no GPU: exit status 3 and the reason.
spw_emulate_no_gpu() {
    status=0 && said=$("$@" 2>&1) || status=$?
    [ $status -eq 3 ] && [ "${said##*: }" = "no GPU" ] && return
    echo "$* without a GPU: exit status $status, \"$said\"; 3 and \"no GPU\" would be right" >&2
    return 1
}

spw_emulate_host_check() {
    command -v "${SPW_CLANG:-clang++-22}" >/dev/null || { echo "host path not checked: ${SPW_CLANG:-clang++-22} is absent"; return 77; }
    spw_rocm_root >/dev/null || { echo "host path not checked: no headers of HIP"; return 77; }
    spw_kernels_verify_amd && spw_emulate_check_program || return 1
    out=$(spw_kernels_out hip-host)
    for program in spillway-verify spillway-bench-kernels; do
        "$out/$program" --help | grep -q "^usage: $program" || { echo "$program --help fails" >&2 && return 1; }
        spw_emulate_no_gpu "$out/$program" || return 1
    done
    "$out/hip_check" none && spw_emulate_program gfx942 "$out/hip_check" runtime &&
        TINYGRAD="" spw_emulate_program gfx942 "$out/hip_check" failure || return 1
    if [ -z "${TINYGRAD:-}" ]; then
        echo "host path checked without a kernel: TINYGRAD does not name a clone of tinygrad"
        return
    fi
    for target in gfx942 gfx950; do spw_emulate_program $target "$out/hip_check" kernel || return 1; done
}

spw_emulate() {
    case ${1:-} in
    --host) shift && spw_emulate_host "$@" ;;
    --host-check) spw_emulate_host_check ;;
    --jax) shift && spw_emulate_python jax "$@" ;;
    --torch) shift && spw_emulate_python torch "$@" ;;
    *)
        spw_emulate_absent && return 77
        spw_kernels_code_objects gfx942 gfx950 || return 1
        "${SPW_PYTHON:-python3}" kernels/emulate/emulate.py "${SPW_KERNELS_BUILD:-build/kernels}" "$@"
        ;;
    esac
}

if [ "$(basename -- "$0")" = emulate.sh ]; then
    cd "$(dirname -- "$0")/../.." || exit 3
    . kernels/build.sh
    spw_emulate "$@"
fi
