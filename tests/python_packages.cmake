# Stops when the interpreter Python3_EXECUTABLE lacks one of the packages SPW_PYTHON_PACKAGES.
foreach(package ${SPW_PYTHON_PACKAGES})
    execute_process(COMMAND ${Python3_EXECUTABLE} -c "import ${package}" RESULT_VARIABLE missing ERROR_VARIABLE reason)
    if(NOT missing EQUAL 0)
        message(FATAL_ERROR "The tests need the Python package ${package}, which ${Python3_EXECUTABLE} cannot import:\n"
            "${reason}Install it (./run setup does so on Debian and Ubuntu), or build without tests: -DSPW_TESTS=OFF.")
    endif()
endforeach()
