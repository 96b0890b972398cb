# CI builds everything once, without a compiler's cache. There libraries read the standard headers that most files include in a
# precompiled form, which takes a third of the compiler's time away. An include that is missing shows in every other build.
include_guard(GLOBAL)

# ucx_mp_precompiled(FOLDER): for the libraries that are made in FOLDER and below.
function(ucx_mp_precompiled folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    if(type MATCHES "^(STATIC|OBJECT)_LIBRARY$" AND sources MATCHES "[.]cc" AND NOT target STREQUAL "ucx_mp_standard")
      target_precompile_headers(${target} REUSE_FROM ucx_mp_standard)
      # GCC then forgets that these headers are the system's, and warns of code in them that it has made itself.
      target_compile_options(${target} PRIVATE -Wno-error=stringop-overread -Wno-error=stringop-overflow -Wno-error=array-bounds)
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    ucx_mp_precompiled(${below})
  endforeach()
endfunction()

# GCC 12, which is Debian 12's. With 14 one of these headers brings names that some files have of their own.
if(in_ci AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/standard.cc CONTENT "// Its precompiled headers are what it is for.\n")
  add_library(ucx_mp_standard OBJECT ${PROJECT_BINARY_DIR}/standard.cc)
  target_precompile_headers(ucx_mp_standard PRIVATE <algorithm> <array> <atomic> <bit> <chrono> <cstring> <deque> <functional>
                            <map> <memory> <mutex> <optional> <random> <span> <string> <unordered_map> <utility> <vector>)
  ucx_mp_precompiled(${PROJECT_SOURCE_DIR})
endif()
