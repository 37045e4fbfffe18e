# Builds the device code with whatever GPU compilers are present. Sourced by ./run, or run alone on a bare GPU machine:
#     bash kernels/build.sh [hip | verify | verify-amd | gemm | jax | jax-cuda | jax-amd | torch | torch-cuda | torch-amd]
#   hip          every kernel for every target whose compiler is there, and says which were not
#   verify       spillway-verify and spillway-bench-kernels, for NVIDIA where nvcc is, else for AMD: no CMake, no HDF5, no GSL
#   verify-amd   the same for AMD though nvcc is there: ROCm 6 or later, or clang-22 and HIP's headers (docs/install_rocm.md)
#   gemm         libspillway_gemm.so: the grouped GEMMs for NVIDIA, which kernels/bench/gemm_library.py calls from Python
#   jax          libspillway_jax.so, the CPU handlers that docs/jax.md describes; needs jaxlib's headers: of $SPW_PYTHON (python3) or $SPW_JAX_INCLUDE
#   jax-cuda     libspillway_jax_cuda.so, the same with the GPU handlers for NVIDIA; jax-amd: libspillway_jax_amd.so, for AMD
#   torch, torch-cuda, torch-amd   libspillway_torch.so, libspillway_torch_cuda.so, libspillway_torch_amd.so: what docs/torch.md calls; no PyTorch is needed
# Output below ${SPW_KERNELS_BUILD:-build/kernels}. Paths are relative to the project's root.
[ "$(basename -- "$0")" != build.sh ] || cd "$(dirname -- "$0")/.." || exit 3
. kernels/rocm.sh

# Files for one vendor; everything else is built for both. The library of dense products is chosen where programs are linked.
spw_kernels_amd="grouped_gemm_float8_mfma.hip grouped_gemm_float8_weights_mfma.hip grouped_gemm_fused_mfma.hip grouped_gemm_mxfp8_mfma.hip grouped_gemm_mfma.hip vendor_product_hipblaslt.hip"
spw_kernels_nvidia="grouped_gemm_activated_down_gradient_wgmma.hip grouped_gemm_activated_up_wgmma.hip grouped_gemm_float8_weights_wgmma.hip grouped_gemm_float8_wgmma.hip grouped_gemm_fused_wgmma.hip grouped_gemm_pingpong_wgmma.hip grouped_gemm_wgmma.hip tensor_map.c vendor_product_cublas.c"

# Files of kernels/ by pattern, less the names that follow it: paths without ending.
spw_kernels_files() {
    find kernels -name "$1" ! -name '*_none.c' ! -path 'kernels/emulate/*' ! -path 'kernels/experts/*.c' ! -path 'kernels/jax/*.c' ! -path 'kernels/torch/*.c' | sort | while read -r file; do
        case " $2 " in *" $(basename "$file") "*) ;; *) echo "${file%.*}" ;; esac
    done
}
spw_kernels_of_amd() { spw_kernels_files '*.hip' "$spw_kernels_nvidia vendor_product_hipblaslt.hip"; }
spw_kernels_of_nvidia() { spw_kernels_files '*.hip' "$spw_kernels_amd"; }

spw_activated="kernels/gemm/grouped_gemm_activated_down_gradient_wgmma kernels/gemm/grouped_gemm_activated_up_wgmma"

SPW_KERNELS_BUILD=${SPW_KERNELS_BUILD:-build/kernels}
spw_kernels_out() { mkdir -p "$SPW_KERNELS_BUILD/$1" && echo "$SPW_KERNELS_BUILD/$1"; }

# As CMakeLists.txt has them for our own C.
spw_kernels_warnings="-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wvla -Wno-missing-field-initializers"

# Runs the commands read from standard input, one a line, on ${SPW_JOBS:-2} processes.
spw_kernels_parallel() { xargs -r -P "${SPW_JOBS:-2}" -I{} sh -c '{}'; }

# An object that is newer than its source and every header.
spw_kernels_fresh() { [ "$1" -nt "$2" ] && [ -z "$(find base reference kernels -name '*.h' -newer "$1")" ]; }

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

# $@: kernels, all of them when none is named.
spw_kernels_cuda_objects() {
    out=$(spw_kernels_out sm_90a)
    for kernel in ${*:-$(spw_kernels_of_nvidia)}; do
        object=$out/$(basename "$kernel").hip.o
        spw_kernels_fresh "$object" "$kernel.hip" && continue
        echo "nvcc -x cu -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -lineinfo -Xcompiler -fPIC -I. -c $kernel.hip -o $object"
    done | spw_kernels_parallel
}

# Kernels with host code for AMD, an object for all targets. $1: ROCm's root, $2: its clang, then kernels, all of them when none is named.
spw_kernels_hip_objects() {
    out=$(spw_kernels_out hip) flags=$(spw_rocm_targets "$2" | sed 's/^/--offload-arch=/' | paste -sd' ')
    [ -d "$1/amdgcn/bitcode" ] || flags="$flags -nogpulib"
    root=$1 compiler=$2 && shift 2
    for kernel in ${*:-$(spw_kernels_of_amd) $(spw_kernels_hipblaslt "$root")}; do
        object=$out/$(basename "$kernel").hip.o
        spw_kernels_fresh "$object" "$kernel.hip" && continue
        echo "$compiler -x hip -DSPW_HIP --rocm-path=$root $flags -O3 -std=c++17 -fPIC -I. -Wall -Wextra -c $kernel.hip -o $object"
    done | spw_kernels_parallel
}
spw_kernels_hipblaslt() { [ ! -f "$1/include/hipblaslt/hipblaslt.h" ] || echo kernels/bench/vendor_product_hipblaslt; }

# One line on a hipcc like Debian's own: it calls clang-15, which knows neither gfx942 nor gfx950.
spw_kernels_old_hipcc() {
    version=$(hipcc --version 2>/dev/null | sed -n 's/^HIP version: *//p')
    [ -z "$version" ] || [ "${version%%.*}" -ge 6 ] || echo "hipcc $version is too old and not used: ROCm 6 or later would be right"
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
    spw_kernels_old_hipcc
    if root=$(spw_rocm_root) && clang=$(spw_rocm_clang "$root"); then
        spw_kernels_hip_objects "$root" "$clang" || return 1
        echo "host code for HIP $(spw_rocm_version "$root/include") ($(spw_rocm_targets "$clang" | paste -sd' ')): built by $clang"
    else
        echo "host code for HIP: not built"
    fi
}

# Compiles the host's C files and links both programs. $1: a name, $2: the compiler's flags, $3: files of the other vendor, $4: the library
# of dense products, $5: the kernels' objects, $6: how to link, $7: libraries
spw_kernels_programs() {
    out=$(spw_kernels_out "$1")
    below=$(find base reference -name '*.c' ! -name mpi_link.c | sed 's/\.c$//')
    host="$(spw_kernels_files '*.c' "$3") $4"
    for file in $host $below; do
        echo "${CC:-cc} -std=c11 -O3 -fopenmp -D_GNU_SOURCE -ffp-contract=off $spw_kernels_warnings -I. $2 -c $file.c -o $out/$(basename "$file").o"
    done | spw_kernels_parallel || return 1
    objects() { tr ' ' '\n' | grep . | while read -r file; do echo "$out/$(basename "$file").o"; done; }
    bench=$(echo "$host" | tr ' ' '\n' | grep '^kernels/bench/' | objects)
    shared=$({ echo "$host" | tr ' ' '\n' | grep -v -e '^kernels/bench/' -e '/verify$'; echo "$below"; } | objects)
    # shellcheck disable=SC2086 # lists of files and flags
    $6 -o "$SPW_KERNELS_BUILD/$1/spillway-verify" "$out/verify.o" $shared $5 $7 &&
        $6 -o "$SPW_KERNELS_BUILD/$1/spillway-bench-kernels" $bench $shared $5 $7
}

spw_kernels_verify() {
    command -v nvcc >/dev/null || { spw_kernels_verify_amd; return; }
    spw_kernels_cuda_objects || return 1
    spw_kernels_programs host "-isystem $(dirname "$(dirname "$(command -v nvcc)")")/include" "$spw_kernels_amd" "" \
        "$(ls "$SPW_KERNELS_BUILD"/sm_90a/*.o)" "nvcc" "-Xcompiler -fopenmp -lcublas -lm" || return 1
    ln -sf host/spillway-verify host/spillway-bench-kernels "$SPW_KERNELS_BUILD"
}

spw_kernels_verify_amd() {
    root=$(spw_rocm_root) && clang=$(spw_rocm_clang "$root") || return 3
    spw_kernels_hip_objects "$root" "$clang" || return 1
    dense=kernels/bench/vendor_product_none libraries="-L$root/lib -Wl,-rpath,$root/lib -lamdhip64 -lstdc++ -lm"
    [ -z "$(spw_kernels_hipblaslt "$root")" ] || { dense="" && libraries="$libraries -lhipblaslt"; }
    spw_kernels_programs hip-host "-DSPW_HIP -D__HIP_PLATFORM_AMD__ -isystem $root/include" "$spw_kernels_nvidia" "$dense" \
        "$(ls "$SPW_KERNELS_BUILD"/hip/*.o)" "${CC:-cc} -fopenmp" "$libraries"
}

# --- Handlers for JAX ---
spw_jax_host="base/memory base/status base/text reference/bf16 reference/dispatch reference/fp16 reference/grouped_gemm reference/grouped_gemm_plain
reference/matrix_product reference/swiglu reference/float8 kernels/experts/experts_call kernels/experts/experts_cpu kernels/experts/experts_float8_cpu
kernels/jax/jax_calls kernels/jax/jax_cpu kernels/jax/jax_experts kernels/jax/jax_frame kernels/jax/jax_meeting"
spw_jax_gpu_host="kernels/exchange/dispatch_gpu kernels/experts/experts_float8_gpu kernels/experts/experts_gpu kernels/gemm/grouped_gemm_fused kernels/gemm/grouped_gemm_gpu kernels/gemm/grouped_gemm_strides
kernels/gpu/device kernels/gpu/world kernels/gpu/world_link kernels/jax/jax_gpu kernels/jax/jax_gpu_group"
spw_jax_kernels="kernels/exchange/exchange_layout kernels/exchange/exchange_reduce kernels/exchange/exchange_return kernels/exchange/exchange_send
kernels/gemm/grouped_gemm_float8_naive kernels/gemm/grouped_gemm_naive kernels/gemm/grouped_gemm_tiled kernels/jax/jax_rows
kernels/local/combine kernels/local/float8_quantize kernels/local/float8_weights kernels/local/routing_plan kernels/local/row_sums"
spw_jax_kernels_nvidia="kernels/gemm/grouped_gemm_float8_weights_wgmma kernels/gemm/grouped_gemm_float8_wgmma kernels/gemm/grouped_gemm_pingpong_wgmma kernels/gemm/grouped_gemm_wgmma"
spw_jax_kernels_amd="kernels/gemm/grouped_gemm_float8_mfma kernels/gemm/grouped_gemm_float8_weights_mfma kernels/gemm/grouped_gemm_fused_mfma kernels/gemm/grouped_gemm_mfma kernels/gemm/grouped_gemm_mxfp8_mfma"

spw_jax_include() {
    [ -z "${SPW_JAX_INCLUDE:-}" ] || { echo "$SPW_JAX_INCLUDE"; return; }
    "${SPW_PYTHON:-python3}" -c 'import jaxlib, os; print(os.path.join(os.path.dirname(jaxlib.__file__), "include"))' 2>/dev/null && return
    echo "${SPW_PYTHON:-python3} has no jaxlib, whose headers the handlers need; pip install jax, or its folder include in SPW_JAX_INCLUDE, would be right" >&2
    return 3
}

# Compiles the host's C files and links them with kernels. $1: a name, $2: the compiler's flags, $3: files, $4: kernels, $5: where their
# objects are, $6: how to link, $7: libraries
spw_kernels_shared() {
    out=$(spw_kernels_out "$1") objects=""
    for file in $3; do
        object=$out/$(basename "$file").o objects="$objects $out/$(basename "$file").o"
        spw_kernels_fresh "$object" "$file.c" && continue
        echo "${CC:-cc} -std=c11 -O3 -fopenmp -fPIC -D_GNU_SOURCE -ffp-contract=off $spw_kernels_warnings -I. $2 -c $file.c -o $object"
    done >"$out/commands"
    spw_kernels_parallel <"$out/commands" || return 1
    for kernel in $4; do objects="$objects $5/$(basename "$kernel").hip.o"; done
    # shellcheck disable=SC2086 # lists of files and flags
    $6 -shared -o "$SPW_KERNELS_BUILD/lib$1.so" $objects $7 && echo "built $SPW_KERNELS_BUILD/lib$1.so"
}

# The same for GPUs, whose kernels are compiled first. $1: a name, $2: the compiler's flags, $3: files, $4: kernels, $5: more for the linker
spw_kernels_shared_cuda() {
    command -v nvcc >/dev/null || { echo "nvcc is absent" >&2; return 3; }
    # shellcheck disable=SC2086
    spw_kernels_cuda_objects $4 || return 1
    spw_kernels_shared "$1" "$2 -isystem $(dirname "$(dirname "$(command -v nvcc)")")/include" "$3" "$4" "$SPW_KERNELS_BUILD/sm_90a" \
        nvcc "${5:-} -Xcompiler -fopenmp -lm"
}

spw_kernels_shared_amd() {
    root=$(spw_rocm_root) && clang=$(spw_rocm_clang "$root") || return 3
    # shellcheck disable=SC2086
    spw_kernels_hip_objects "$root" "$clang" $4 || return 1
    spw_kernels_shared "$1" "$2 -DSPW_HIP -D__HIP_PLATFORM_AMD__ -isystem $root/include" "$3" "$4" "$SPW_KERNELS_BUILD/hip" \
        "${CC:-cc}" "-fopenmp -L$root/lib -Wl,-rpath,$root/lib -lamdhip64 -lstdc++ -lm"
}

# The grouped GEMMs for programs of Python, on NVIDIA: kernels/bench/gemm_library.py calls them.
spw_gemm_kernels="kernels/gemm/grouped_gemm_float8_naive kernels/gemm/grouped_gemm_naive kernels/gemm/grouped_gemm_tiled
kernels/gemm/grouped_gemm_fused_wgmma $spw_activated $spw_jax_kernels_nvidia"
spw_gemm_host="base/memory base/status base/text kernels/gpu/device kernels/gemm/grouped_gemm_fused kernels/gemm/grouped_gemm_gpu kernels/gemm/grouped_gemm_strides kernels/gpu/tensor_map"
spw_gemm_library() { spw_kernels_shared_cuda spillway_gemm "" "$spw_gemm_host" "$spw_gemm_kernels" "-Xlinker -z,defs"; }

# The header of XLA's interface.
spw_jax_flags() {
    include=$(spw_jax_include) || return 3
    echo "-fvisibility=hidden -isystem $include"
}

spw_jax_cpu() {
    flags=$(spw_jax_flags) || return 3
    spw_kernels_shared spillway_jax "$flags" "$spw_jax_host" "" "" "${CC:-cc}" "-Wl,-z,defs -fopenmp -lpthread -lm"
}

spw_jax_cuda() {
    flags=$(spw_jax_flags) || return 3
    spw_kernels_shared_cuda spillway_jax_cuda "$flags -DSPW_EXPERTS_GPU" "$spw_jax_host $spw_jax_gpu_host kernels/gpu/tensor_map" \
        "$spw_jax_kernels kernels/gemm/grouped_gemm_fused_wgmma $spw_activated $spw_jax_kernels_nvidia"
}

spw_jax_amd() {
    flags=$(spw_jax_flags) || return 3
    spw_kernels_shared_amd spillway_jax_amd "$flags -DSPW_EXPERTS_GPU" "$spw_jax_host $spw_jax_gpu_host" "$spw_jax_kernels $spw_jax_kernels_amd"
}

# --- PyTorch's operators ---
spw_torch_host="base/memory base/status base/text reference/bf16 reference/fp16 reference/grouped_gemm reference/grouped_gemm_plain
reference/matrix_product reference/swiglu reference/float8 kernels/experts/experts_call kernels/experts/experts_cpu kernels/experts/experts_float8_cpu kernels/torch/torch_call"
spw_torch_gpu_host="kernels/gemm/grouped_gemm_fused kernels/gemm/grouped_gemm_gpu kernels/gemm/grouped_gemm_strides kernels/gpu/device kernels/experts/experts_float8_gpu kernels/experts/experts_gpu"
spw_torch_kernels="kernels/gemm/grouped_gemm_float8_naive kernels/gemm/grouped_gemm_naive kernels/gemm/grouped_gemm_tiled
kernels/local/combine kernels/local/float8_quantize kernels/local/float8_weights kernels/local/routing_plan kernels/local/row_sums"

spw_torch_cpu() { spw_kernels_shared spillway_torch "" "$spw_torch_host" "" "" "${CC:-cc}" "-Wl,-z,defs -fopenmp -lm"; }

spw_torch_cuda() {
    spw_kernels_shared_cuda spillway_torch_cuda "-DSPW_EXPERTS_GPU" "$spw_torch_host $spw_torch_gpu_host kernels/gpu/tensor_map" \
        "$spw_torch_kernels kernels/gemm/grouped_gemm_fused_wgmma $spw_activated $spw_jax_kernels_nvidia" "-Xlinker -z,defs"
}

spw_torch_amd() {
    spw_kernels_shared_amd spillway_torch_amd "-DSPW_EXPERTS_GPU" "$spw_torch_host $spw_torch_gpu_host" \
        "$spw_torch_kernels $spw_jax_kernels_amd"
}

if [ "$(basename -- "$0")" = build.sh ]; then
    case ${1:-hip} in
    hip) spw_kernels_hip ;;
    verify) spw_kernels_verify ;;
    verify-amd) spw_kernels_verify_amd ;;
    gemm) spw_gemm_library ;;
    jax) spw_jax_cpu ;;
    jax-cuda) spw_jax_cuda ;;
    jax-amd) spw_jax_amd ;;
    torch) spw_torch_cpu ;;
    torch-cuda) spw_torch_cuda ;;
    torch-amd) spw_torch_amd ;;
    *) echo "usage: kernels/build.sh [hip | verify | verify-amd | gemm | jax | jax-cuda | jax-amd | torch | torch-cuda | torch-amd]" >&2 && exit 2 ;;
    esac
fi
