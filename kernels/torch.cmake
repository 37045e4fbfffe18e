# libspillway_torch.so: the entry of PyTorch's operators (docs/torch.md), for CPUs and for the GPUs of this build. No PyTorch is needed. Its sources are
# compiled once more, for a shared library.
add_library(spillway_torch SHARED
    experts/experts_call.c experts/experts_cpu.c experts/experts_float8_cpu.c torch/torch_call.c
    ../base/memory.c ../base/status.c ../base/text.c
    ../reference/bf16.c ../reference/float8.c ../reference/fp16.c ../reference/grouped_gemm.c ../reference/grouped_gemm_plain.c ../reference/matrix_product.c ../reference/swiglu.c)
target_link_libraries(spillway_torch PRIVATE spw_flags OpenMP::OpenMP_C m)
if(SPW_GPU)
    set(kernels
        gemm/grouped_gemm_float8_naive.hip gemm/grouped_gemm_naive.hip gemm/grouped_gemm_tiled.hip
        local/combine.hip local/float8_quantize.hip local/float8_weights.hip local/routing_plan.hip local/row_sums.hip)
    if(SPW_CUDA)
        list(APPEND kernels
            gemm/grouped_gemm_activated_down_gradient_wgmma.hip gemm/grouped_gemm_activated_up_wgmma.hip
            gemm/grouped_gemm_float8_weights_wgmma.hip gemm/grouped_gemm_float8_wgmma.hip gemm/grouped_gemm_fused_wgmma.hip gemm/grouped_gemm_pingpong_wgmma.hip
            gemm/grouped_gemm_wgmma.hip)
        target_sources(spillway_torch PRIVATE gpu/tensor_map.c)
    else()
        list(APPEND kernels gemm/grouped_gemm_float8_mfma.hip gemm/grouped_gemm_float8_weights_mfma.hip gemm/grouped_gemm_fused_mfma.hip gemm/grouped_gemm_mfma.hip gemm/grouped_gemm_mxfp8_mfma.hip)
    endif()
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE ${SPW_GPU})
    set_target_properties(spillway_torch PROPERTIES ${SPW_GPU}_STANDARD 17 ${SPW_GPU}_STANDARD_REQUIRED ON)
    target_compile_definitions(spillway_torch PRIVATE SPW_EXPERTS_GPU)
    target_sources(spillway_torch PRIVATE ${kernels} gemm/grouped_gemm_fused.c gemm/grouped_gemm_gpu.c gemm/grouped_gemm_strides.c gpu/device.c experts/experts_float8_gpu.c experts/experts_gpu.c)
    target_link_libraries(spillway_torch PRIVATE ${SPW_GPU_LIBRARIES} ${CMAKE_DL_LIBS} stdc++)
endif()
