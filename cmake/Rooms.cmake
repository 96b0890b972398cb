# The rooms of the transport as libraries, made from uct_mp/rooms.txt: who may not include a room does not link it either.
include_guard(GLOBAL)

# ucx_mp_rooms(LIBRARY ROOM...): a static library ucx_mp_<room> for each of these rooms that has sources, and LIBRARY, which
# stands for all of them. Each is also linked by itself, with nothing but the rooms that it may include, and VERBS_LIBRARIES if
# it may include those headers: what it uses beyond that fails the build.
function(ucx_mp_rooms library)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "VERBS_LIBRARIES")
  set(rules ${PROJECT_SOURCE_DIR}/uct_mp/rooms.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${rules})
  file(STRINGS ${rules} rooms REGEX "^room ")
  file(STRINGS ${rules} debts REGEX "^debt uct_mp/")
  file(STRINGS ${rules} verbs REGEX "^external infiniband/:")
  string(REGEX MATCHALL "[^ ]+" verbs "${verbs}")

  add_library(${library} INTERFACE)
  foreach(line IN LISTS rooms)
    if(NOT line MATCHES "^room ([^ :]+):(.*)$" OR NOT CMAKE_MATCH_1 IN_LIST arg_UNPARSED_ARGUMENTS)
      continue()
    endif()
    set(room ${CMAKE_MATCH_1})
    string(REGEX MATCHALL "[^ ]+" includes "${CMAKE_MATCH_2}")
    foreach(debt IN LISTS debts) # a circle that is still there
      if(debt MATCHES "^debt uct_mp/${room}/.* uct_mp/([a-z]+)/")
        list(APPEND includes ${CMAKE_MATCH_1})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES includes)
    list(REMOVE_ITEM includes ${room})

    ucx_mp_sources(sources ${room})
    if(NOT sources)
      continue() # headers alone, or to come
    endif()
    add_library(ucx_mp_${room} STATIC ${sources})
    target_include_directories(ucx_mp_${room} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(ucx_mp_${room} PUBLIC Threads::Threads)
    target_link_libraries(${library} INTERFACE ucx_mp_${room})
    list(APPEND made ${room})
    set(includes_of_${room} ${includes})
  endforeach()

  foreach(room IN LISTS made)
    set(below)
    foreach(include IN LISTS includes_of_${room})
      if(TARGET ucx_mp_${include})
        list(APPEND below ucx_mp_${include})
      endif()
    endforeach()
    target_link_libraries(ucx_mp_${room} PUBLIC ${below})
    if(NOT UCX_MP_SANITIZE) # whose run time comes with the program
      add_library(ucx_mp_${room}_alone MODULE $<TARGET_OBJECTS:ucx_mp_${room}>)
      target_link_libraries(ucx_mp_${room}_alone PRIVATE ${below} Threads::Threads)
      if(room IN_LIST verbs)
        target_link_libraries(ucx_mp_${room}_alone PRIVATE ${arg_VERBS_LIBRARIES})
      endif()
      # The rooms below come behind the verbs libraries.
      target_link_options(ucx_mp_${room}_alone PRIVATE -Wl,-z,defs -Wl,--no-as-needed)
      set_target_properties(ucx_mp_${room}_alone PROPERTIES LINKER_LANGUAGE CXX
                            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/alone)
    endif()
  endforeach()
endfunction()
