# libspillway_jax.so: grouped GEMM, dispatch, combine and expert layers for JAX (docs/jax.md), for CPUs and for the GPUs of this build. Its sources are
# compiled once more, for a shared library. The header of XLA's interface comes with jaxlib: below SPW_JAX_INCLUDE, or where python3 has it, or
# in the virtual environment that the tests make.
if(NOT SPW_JAX_INCLUDE)
    execute_process(COMMAND python3 -c "import jaxlib, os; print(os.path.join(os.path.dirname(jaxlib.__file__), 'include'), end='')"
        OUTPUT_VARIABLE installed ERROR_QUIET)
    file(GLOB of_tests ${PROJECT_BINARY_DIR}/tests/oracle/jax_venv/lib/python3*/site-packages/jaxlib/include)
endif()
find_path(SPW_JAX_INCLUDE xla/ffi/api/c_api.h PATHS ${installed} ${of_tests} NO_DEFAULT_PATH DOC "The folder include of a jaxlib")
if(NOT SPW_JAX_INCLUDE)
    message(STATUS "The handlers for JAX are not built: no xla/ffi/api/c_api.h. pip install jax, or -DSPW_JAX_INCLUDE=.../jaxlib/include, "
        "would be right; their test installs jax and builds them by itself")
    return()
endif()

add_library(spillway_jax SHARED
    experts/experts_call.c experts/experts_cpu.c experts/experts_float8_cpu.c
    jax/jax_calls.c jax/jax_cpu.c jax/jax_experts.c jax/jax_frame.c jax/jax_meeting.c
    ../base/memory.c ../base/status.c ../base/text.c
    ../reference/bf16.c ../reference/dispatch.c ../reference/float8.c ../reference/fp16.c ../reference/grouped_gemm.c ../reference/grouped_gemm_plain.c ../reference/matrix_product.c
    ../reference/swiglu.c)
set_target_properties(spillway_jax PROPERTIES C_VISIBILITY_PRESET hidden)
target_include_directories(spillway_jax SYSTEM PRIVATE ${SPW_JAX_INCLUDE})
target_link_libraries(spillway_jax PRIVATE spw_flags OpenMP::OpenMP_C m)
if(SPW_GPU)
    set(kernels
        exchange/exchange_layout.hip exchange/exchange_reduce.hip exchange/exchange_return.hip exchange/exchange_send.hip
        gemm/grouped_gemm_float8_naive.hip gemm/grouped_gemm_naive.hip gemm/grouped_gemm_tiled.hip jax/jax_rows.hip
        local/combine.hip local/float8_quantize.hip local/float8_weights.hip local/routing_plan.hip local/row_sums.hip)
    if(SPW_CUDA)
        list(APPEND kernels
            gemm/grouped_gemm_activated_down_gradient_wgmma.hip gemm/grouped_gemm_activated_up_wgmma.hip
            gemm/grouped_gemm_float8_weights_wgmma.hip gemm/grouped_gemm_float8_wgmma.hip gemm/grouped_gemm_fused_wgmma.hip gemm/grouped_gemm_pingpong_wgmma.hip
            gemm/grouped_gemm_wgmma.hip)
        target_sources(spillway_jax PRIVATE gpu/tensor_map.c)
    else()
        list(APPEND kernels gemm/grouped_gemm_float8_mfma.hip gemm/grouped_gemm_float8_weights_mfma.hip gemm/grouped_gemm_fused_mfma.hip gemm/grouped_gemm_mfma.hip gemm/grouped_gemm_mxfp8_mfma.hip)
    endif()
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE ${SPW_GPU})
    set_target_properties(spillway_jax PROPERTIES ${SPW_GPU}_STANDARD 17 ${SPW_GPU}_STANDARD_REQUIRED ON)
    target_compile_definitions(spillway_jax PRIVATE SPW_EXPERTS_GPU)
    target_sources(spillway_jax PRIVATE
        ${kernels} exchange/dispatch_gpu.c experts/experts_float8_gpu.c experts/experts_gpu.c gemm/grouped_gemm_fused.c gemm/grouped_gemm_gpu.c gemm/grouped_gemm_strides.c gpu/device.c gpu/world.c gpu/world_link.c jax/jax_gpu.c jax/jax_gpu_group.c)
    target_link_libraries(spillway_jax PRIVATE ${SPW_GPU_LIBRARIES} ${CMAKE_DL_LIBS} stdc++)
endif()
