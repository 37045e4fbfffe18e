# What CMake's language HIP asks of a ROCm root, for the root that kernels/rocm.sh makes of headers alone: a target that
# every program with code of HIP is linked with.
get_filename_component(_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET hip-lang::device)
    add_library(hip-lang::amdhip64 SHARED IMPORTED)
    set_target_properties(hip-lang::amdhip64 PROPERTIES IMPORTED_LOCATION "${_root}/lib/libamdhip64.so")
    add_library(hip-lang::device INTERFACE IMPORTED)
    set_target_properties(hip-lang::device PROPERTIES INTERFACE_LINK_LIBRARIES hip-lang::amdhip64)
endif()
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET "hip-lang::device")
unset(_root)
