# Debian packages: the program with its manual, the shared library, and what is built against it. ./run deb makes them.
file(STRINGS ${PROJECT_SOURCE_DIR}/CHANGELOG.md SPW_RELEASED REGEX "^## ${PROJECT_VERSION} ")
string(REGEX REPLACE ".*\\((.*)\\)" "\\1" SPW_RELEASED "${SPW_RELEASED}")
execute_process(COMMAND date -u -R -d "${SPW_RELEASED}" OUTPUT_VARIABLE SPW_RELEASED_MAIL OUTPUT_STRIP_TRAILING_WHITESPACE)
set(SPW_MAINTAINER "The Spillway authors <spillway@localhost>" CACHE STRING "Who answers for the Debian packages")
set(SPW_SONAME ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(release ${PROJECT_VERSION}-1)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME spillway)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "planner of Mixture-of-Experts training jobs")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${SPW_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(about "Replays routing traces, which say which experts each token chose, and says
for capacity-factor and dropless schemes what each GPU must hold, what crosses
each link, which tokens are dropped and how long a step takes.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME spillway)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "bash-completion")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "${about}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libspillway${SPW_SONAME})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
file(CONFIGURE OUTPUT packaging/shlibs CONTENT "libspillway @SPW_SONAME@ libspillway@SPW_SONAME@ (>= @release@)\n")
file(CONFIGURE OUTPUT packaging/triggers CONTENT "activate-noawait ldconfig\n") # in the place of CPack's scripts
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/packaging/shlibs ${CMAKE_CURRENT_BINARY_DIR}/packaging/triggers)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "${about}
This package has the shared library.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libspillway-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
# pkg-config asks for what the static library needs, too, as soon as it is asked for flags.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libspillway${SPW_SONAME} (= ${release}), libgsl-dev, libhdf5-dev, libjansson-dev,\
 libyaml-dev, libdeflate-dev, libzip-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${about}
This package has the headers, the static library, a CMake package and
pkg-config's file.")

# Every package says whose it is and what changed; the program's has the documents and something to try.
include(GNUInstallDirs)
set(made ${CMAKE_CURRENT_BINARY_DIR}/packaging)
configure_file(${PROJECT_SOURCE_DIR}/packaging/copyright.in ${made}/copyright @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/packaging/changelog.Debian.in ${made}/changelog.Debian @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${made}/changelog COPYONLY)
execute_process(COMMAND sh -c "gzip -9 -n -k -f changelog changelog.Debian" WORKING_DIRECTORY ${made})
foreach(pair program:spillway library:libspillway${SPW_SONAME} development:libspillway-dev)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 component)
    list(GET pair 1 package)
    install(FILES ${made}/copyright ${made}/changelog.gz ${made}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
        COMPONENT ${component})
endforeach()
include(CPack)
