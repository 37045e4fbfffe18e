# `./run emulate`: builds the AMD code objects and executes all of them in an emulator, on a machine without an AMD GPU. Sourced by
# ./run, or run alone:
#     TINYGRAD=<clone of tinygrad> bash kernels/emulate/emulate.sh [gfx942 gfx950] [--only NAME]
# Needs clang-22, lld-22, python3 with numpy (SPW_PYTHON names another python3). Exit status 77: something is absent.

spw_kernels_emulate() {
    if [ -z "${TINYGRAD:-}" ]; then
        echo "AMD code not executed: TINYGRAD does not name a clone of tinygrad (docs/validation_gpu.md says which commit)"
        return 77
    fi
    if ! command -v "${SPW_CLANG:-clang++-22}" >/dev/null; then
        echo "AMD code not executed: ${SPW_CLANG:-clang++-22} is absent"
        return 77
    fi
    spw_kernels_code_objects gfx942 gfx950 || return 1
    "${SPW_PYTHON:-python3}" kernels/emulate/emulate.py "${SPW_KERNELS_BUILD:-build/kernels}" "$@"
}

if [ "$(basename -- "$0")" = emulate.sh ]; then
    cd "$(dirname -- "$0")/../.." || exit 3
    . kernels/build.sh
    spw_kernels_emulate "$@"
fi
