# Small functions for "one executable per source file".
include_guard(GLOBAL)

# Collects the C++ sources of folders (below the current source folder) in `out`; made again when files come or go.
function(ucx_mp_sources out)
  set(patterns)
  foreach(folder IN LISTS ARGN)
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  endforeach()
  file(GLOB_RECURSE found CONFIGURE_DEPENDS ${patterns})
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# A target name for a source file: its path below the current folder without suffix, / and - turned into _.
function(ucx_mp_target_name out source)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE name)
  cmake_path(REMOVE_EXTENSION name LAST_ONLY)
  string(REGEX REPLACE "[/-]" "_" name ${name})
  set(${out} ${name} PARENT_SCOPE)
endfunction()
