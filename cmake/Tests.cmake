# Tests of one source file each.
include_guard(GLOBAL)
find_package(Boost 1.74 REQUIRED COMPONENTS unit_test_framework)

# <ucx_mp_places.h>: where the sources and the build are. Not on every command line: a compiler's cache would take no test from
# another folder.
set(UCX_MP_PLACES ${PROJECT_BINARY_DIR}/places)
file(CONFIGURE OUTPUT ${UCX_MP_PLACES}/ucx_mp_places.h @ONLY CONTENT "#pragma once
#define UCX_MP_SOURCE_DIR \"@PROJECT_SOURCE_DIR@\"
#define UCX_MP_BINARY_DIR \"@PROJECT_BINARY_DIR@\"
")

# ucx_mp_quick_to_build(TARGET): a test's own code, in a release build. The libraries that it links are optimized as always,
# not what it takes from headers; of the test a backtrace with lines is enough.
function(ucx_mp_quick_to_build target)
  if(NOT UCX_MP_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1 -g1>)
  endif()
endfunction()

# ucx_mp_boost_test(SOURCE ROOM LABEL TIMEOUT LIBRARIES...): the program ROOM_<path> of a source file below the current
# folder, with its path below that in the name, and the test ROOM.<path> that runs it. The file defines BOOST_TEST_MODULE
# before it includes <boost/test/unit_test.hpp>.
function(ucx_mp_boost_test source room label timeout)
  ucx_mp_target_name(name ${source})
  set(target ${room}_${name})
  add_executable(${target} ${source})
  target_compile_definitions(${target} PRIVATE BOOST_TEST_DYN_LINK)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${UCX_MP_PLACES})
  ucx_mp_quick_to_build(${target})
  target_link_libraries(${target} PRIVATE Boost::unit_test_framework Threads::Threads ${ARGN})
  add_test(NAME ${room}.${name} COMMAND ${target} --log_level=test_suite --report_level=short)
  set_tests_properties(${room}.${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout}
    ENVIRONMENT "PATH=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}:$ENV{PATH};UBSAN_OPTIONS=print_stacktrace=1")
endfunction()
