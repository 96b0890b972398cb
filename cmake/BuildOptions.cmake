# Compiler, warnings, sanitizers, output folders: what holds for every target.
include_guard(GLOBAL)

# Warnings are errors in CI. tests/run sets the option; $CI sets its default.
set(in_ci OFF)
if(DEFINED ENV{CI} AND NOT "$ENV{CI}" MATCHES "^(|0|false|no|off)$")
  set(in_ci ON)
endif()
option(UCX_MP_WERROR "Treat warnings as errors" ${in_ci})
set(UCX_MP_SANITIZE "" CACHE STRING "Value for -fsanitize=, e.g. address,undefined or thread; empty: none")

# The product is libuct_mp.so, and what it is built from and tested with (cmake/install-deps) has to be there: a test that is
# missing fails nothing. With this on, only what needs neither UCX nor Open MPI is built: the core, the adapter, their tests.
option(UCX_MP_CORE_ONLY "Build without UCX and Open MPI: no libuct_mp.so" OFF)
# ucx_mp_missing(WHAT): what the product needs is not there. One line that cmake does not wrap.
function(ucx_mp_missing what)
  message(FATAL_ERROR " ucx-mp: ${what}. Run cmake/install-deps, or configure with -DUCX_MP_CORE_ONLY=ON to build without UCX and Open MPI")
endfunction()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON) # gnu++20: UCX's headers use typeof
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# Release keeps assertions' cost out, but symbols in: most questions are asked of a release build.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

add_compile_options(-Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # Boost's macros for tests with data make templates, which it takes for a header's beside a file's own types.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
if(UCX_MP_WERROR)
  add_compile_options(-Werror)
endif()
if(UCX_MP_SANITIZE)
  add_compile_options(-fsanitize=${UCX_MP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=${UCX_MP_SANITIZE})
  if(UCX_MP_SANITIZE MATCHES "thread")
    add_compile_options(-Wno-tsan) # fences are not followed by it: a report around one must be read with that in mind
  endif()
endif()

# CI builds once, so a cache would only cost, unless the environment names one. And nobody asks what it has built for a
# variable: lines are enough for a backtrace.
find_program(CCACHE_PROGRAM ccache)
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  if(in_ci)
    set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
  elseif(CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
endif()

# Some 200 test programs have the same static libraries in them. lld links one in a third of the time of GNU ld, gold (which
# Debian 12 has with its binutils) in two thirds. Shared libraries are linked as ever.
find_program(UCX_MP_EXE_LINKER NAMES ld.lld ld.gold DOC "Linker of programs")
if(UCX_MP_EXE_LINKER MATCHES "ld[.](lld|gold)$" AND NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld")
  cmake_path(GET UCX_MP_EXE_LINKER EXTENSION LAST_ONLY linker) # .lld
  string(REPLACE "." "-fuse-ld=" linker "${linker}")
  string(APPEND CMAKE_EXE_LINKER_FLAGS " ${linker}")
endif()

# Every helper program and script of the project runs under the distribution's interpreter: its modules (pyverbs,
# mpi4py, numpy) belong to that one, not to whatever `python3` is first in PATH.
set(UCX_MP_PYTHON /usr/bin/python3 CACHE FILEPATH "Debian's own Python 3")

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
