# The presets as they are, and beside them a GPU x900 that nobody sells: a cluster with ten times the figures of a B200, and fitted
# stacks of it that are younger than all others and come last by name. SECOND_STACK_SOURCES: what takes the place of the presets of
# sim/read, one source a kind.
set(SECOND_STACK_SOURCES "")
function(second_stack prefix folder from name) # then pairs of what is replaced in the copy
    set(made ${CMAKE_CURRENT_BINARY_DIR}/second_stack/${folder}/${name}.yaml)
    set(out ${CMAKE_CURRENT_BINARY_DIR}/second_stack/${folder}.c)
    file(READ ${PROJECT_SOURCE_DIR}/sim/${folder}/${from}.yaml text)
    while(ARGN)
        list(POP_FRONT ARGN old new)
        string(REGEX REPLACE "${old}" "${new}" text "${text}")
    endwhile()
    file(WRITE ${made}.new "${text}")
    configure_file(${made}.new ${made} COPYONLY)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/sim/${folder}/${from}.yaml)
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/sim/${folder}/*.yaml)
    add_custom_command(OUTPUT ${out}
        COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DPREFIX=${prefix} "-DFILES=${files};${made}"
                -P ${PROJECT_SOURCE_DIR}/sim/embed.cmake
        DEPENDS ${files} ${made} ${PROJECT_SOURCE_DIR}/sim/embed.cmake VERBATIM)
    list(APPEND SECOND_STACK_SOURCES ${out})
    set(SECOND_STACK_SOURCES ${SECOND_STACK_SOURCES} PARENT_SCOPE)
endfunction()

second_stack(spw_cluster clusters b200-8x8 x900-8x8 "name: b200-8x8" "name: x900-8x8" "gpu_generation: [a-z]+" "gpu_generation: other"
    "value: ([0-9.]+)e15" "value: \\1e16" "value: ([0-9.]+)e12" "value: \\1e13")
second_stack(spw_megatron megatron_stacks megatron-h200-2026-11 megatron-x900-2027-06 "name: megatron-h200-2026-11"
    "name: megatron-x900-2027-06" "cluster: h200-8x8" "cluster: x900-8x8\nrelease: \"9.0.0\"" "value: 0\\.8" "value: 0.4")
second_stack(spw_stack stacks maxtext-rocm-2026-05 xla-x900-2027-06 "name: [a-z0-9-]+" "name: xla-x900-2027-06"
    "clusters: [^\n]+" "clusters: \"x900-8x8\"")
second_stack(spw_time_stack time_stacks maxtext-rocm-2026-05 xla-x900-2027-06 "name: [a-z0-9-]+" "name: xla-x900-2027-06"
    "clusters: [^\n]+" "clusters: \"x900-8x8\"")
