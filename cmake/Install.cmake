# What `cmake --install` puts where: any prefix, DESTDIR, and the whole may be moved afterwards, since everything finds the
# rest from where it is itself.
#   bin              softhca, mp_info, mp_sim, mpirun-mp, mpiexec-mp
#   lib[/<arch>]     libuct_mp.so, pkgconfig/ucx-mp.pc, cmake/ucx-mp
#   lib/ucx-mp       libsofthca.so, openmpi4 (or 5)/mca_*_mp.so, plugin (for UCX_PLUGIN_PATH): loaded by name, never linked
#   share/ucx-mp     fabrics, the wrappers with their parameter files, an example of ucx.conf
#   share/modules/modulefiles/ucx-mp/<version>   for `module load ucx-mp`; where Debian's environment-modules looks
include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Components are Debian packages (Packages.cmake): transport unless said otherwise.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME transport)
set(private_lib lib/ucx-mp)
set(data ${CMAKE_INSTALL_DATADIR}/ucx-mp)

install(TARGETS softhca LIBRARY DESTINATION ${private_lib} COMPONENT adapter)
install(TARGETS softhca_cmd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT adapter)
install(DIRECTORY config/fabrics DESTINATION ${data} COMPONENT adapter)
if(TARGET mp_sim) # finds the adapter under the name of the library that it stands in for
  set_target_properties(mp_sim PROPERTIES SOFTHCA_INSTALLED ON BUILD_RPATH ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/softhca
                                          INSTALL_RPATH "$ORIGIN/../${private_lib}/sim")
  install(TARGETS mp_sim RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT adapter)
  install(CODE "
    set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${private_lib}/sim\")
    file(MAKE_DIRECTORY \"\${folder}\")
    file(CREATE_LINK ../libsofthca.so \"\${folder}/libibverbs.so.1\" SYMBOLIC)" COMPONENT adapter)
endif()

# Manual pages: what the programs say of themselves.
function(ucx_mp_page component name program text)
  set(page ${PROJECT_BINARY_DIR}/man/${name}.1)
  add_custom_command(OUTPUT ${page} COMMAND ${UCX_MP_PYTHON} ${PROJECT_SOURCE_DIR}/cmake/man.py ${name} ${PROJECT_VERSION} ${text} ${page}
                                            ${program} DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/man.py VERBATIM)
  set_property(GLOBAL APPEND PROPERTY UCX_MP_PAGES ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
endfunction()
ucx_mp_page(adapter softhca $<TARGET_FILE:softhca_cmd> "emulated InfiniBand adapter and fabric" softhca_cmd)
if(TARGET mp_sim)
  ucx_mp_page(adapter mp_sim $<TARGET_FILE:mp_sim> "the multi-path transport on many nodes in virtual time" mp_sim)
endif()

if(TARGET uct_mp)
  target_include_directories(uct_mp INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS uct_mp EXPORT ucx-mp LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # UCX_PLUGIN_PATH (UCX 1.22 and later) looks for names that end like libucs.so.0.
  install(CODE "
    set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${private_lib}/plugin\")
    file(MAKE_DIRECTORY \"\${folder}\")
    file(CREATE_LINK ../../../${CMAKE_INSTALL_LIBDIR}/libuct_mp.so \"\${folder}/libuct_mp.so.0\" SYMBOLIC)" COMPONENT transport)
  install(TARGETS mp_info RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES uct_mp/api/uct_mp.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/uct_mp/api)
  install(FILES uct_mp/api/example.c DESTINATION ${CMAKE_INSTALL_DOCDIR})
  ucx_mp_page(transport mp_info $<TARGET_FILE:mp_info> "rails of this host, paths of running processes, a check of adapters" mp_info)
  foreach(wrapper openmpi/mpirun-mp mpich/mpiexec-mp)
    get_filename_component(folder ${wrapper} DIRECTORY)
    get_filename_component(name ${wrapper} NAME)
    set(component transport)
    if(folder STREQUAL openmpi)
      set(component openmpi)
    endif()
    install(PROGRAMS config/${wrapper} DESTINATION ${data}/${folder} COMPONENT ${component})
    install(CODE "
      file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
      file(CREATE_LINK ../${data}/${wrapper} \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/${name}\" SYMBOLIC)" COMPONENT ${component})
    ucx_mp_page(${component} ${name} ${PROJECT_SOURCE_DIR}/config/${wrapper} "an MPI job over the multi-path transport" ${PROJECT_SOURCE_DIR}/config/${wrapper})
  endforeach()
  install(FILES config/openmpi/mp.conf DESTINATION ${data}/openmpi COMPONENT openmpi)
  foreach(module mca_pml_mp mca_osc_mp mca_coll_mp)
    if(TARGET ${module})
      set_target_properties(${module} PROPERTIES INSTALL_RPATH "$ORIGIN") # osc/mp finds pml/mp beside itself
      install(TARGETS ${module} LIBRARY DESTINATION ${private_lib}/openmpi${UCX_MP_OMPI_SERIES} COMPONENT openmpi)
    endif()
  endforeach()

  install(FILES config/ucx.conf DESTINATION ${data})

  set(modules ${CMAKE_INSTALL_DATADIR}/modules/modulefiles/ucx-mp)
  string(REGEX REPLACE "[^/]+" ".." up_from_module ${modules})
  configure_file(config/modulefiles/ucx-mp.in ${PROJECT_BINARY_DIR}/modulefiles/ucx-mp/${PROJECT_VERSION} @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/modulefiles/ucx-mp/${PROJECT_VERSION} DESTINATION ${modules})

  string(REGEX REPLACE "[^/]+" ".." up ${CMAKE_INSTALL_LIBDIR})
  # The folder of the .pc file is below that of the library, whatever the prefix.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/ucx-mp.pc @ONLY CONTENT "libdir=\${pcfiledir}/..
includedir=\${libdir}/@up@/@CMAKE_INSTALL_INCLUDEDIR@
preload=\${libdir}/libuct_mp.so

Name: ucx-mp
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Libs: -L\${libdir} -luct_mp
Cflags: -I\${includedir}
")
  install(FILES ${PROJECT_BINARY_DIR}/ucx-mp.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  install(EXPORT ucx-mp NAMESPACE ucx-mp:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ucx-mp FILE ucx-mpConfig.cmake)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/ucx-mpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/ucx-mpConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ucx-mp)
endif()
install(FILES README.md CHANGELOG.md LICENSE uct_mp/PROTOCOL.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

get_property(pages GLOBAL PROPERTY UCX_MP_PAGES)
add_custom_target(man ALL DEPENDS ${pages})
