# Debian packages of what Install.cmake installs: `cpack --config build/release/CPackConfig.cmake -G DEB` makes
#   libuct-mp        the transport, mp_info, the wrapper for MPICH
#   softhca          the emulated adapter with its fabrics, mp_sim
#   ucx-mp-openmpi   the wrapper for Open MPI, our module for it
# Dependencies on libraries are dpkg-shlibdeps' own: so packages fit the release of Debian that they are made on.
include_guard(GLOBAL)
if(NOT TARGET uct_mp OR UCX_MP_SANITIZE)
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ucx-mp)
set(CPACK_PACKAGE_CONTACT "ucx-mp <ucx-mp@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL transport adapter openmpi)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# libsofthca.so stands in for libibverbs in mp_sim.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/softhca)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
if(EXISTS /etc/os-release)
  file(STRINGS /etc/os-release release REGEX "^VERSION_ID=")
  string(REGEX REPLACE "[^0-9.]" "" release "${release}")
  string(APPEND CPACK_DEBIAN_PACKAGE_RELEASE "~deb${release}")
endif()
set(same "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

set(CPACK_DEBIAN_TRANSPORT_PACKAGE_NAME libuct-mp)
set(CPACK_DEBIAN_TRANSPORT_PACKAGE_SUGGESTS "softhca, ucx-mp-openmpi, mpich, ucx-utils, libucx-dev")
set(CPACK_COMPONENT_TRANSPORT_DESCRIPTION "multi-path InfiniBand transport for UCX
 Several adapters, ports and routes to every peer at once, for UCX from 1.13 to
 1.22: no fault of any of them is visible to the application.")

set(CPACK_DEBIAN_ADAPTER_PACKAGE_NAME softhca)
set(CPACK_DEBIAN_ADAPTER_PACKAGE_DEPENDS "opensm, ibsim-utils") # compute the routes of a fabric
set(CPACK_DEBIAN_ADAPTER_PACKAGE_SUGGESTS "ibverbs-utils, perftest, gnuplot-nox")
set(CPACK_COMPONENT_ADAPTER_DESCRIPTION "emulated InfiniBand adapter and fabric
 Unmodified verbs programs run on emulated adapters, without rights and without a
 kernel driver. Links can be slow, congested, or pulled in mid-run.")

set(CPACK_DEBIAN_OPENMPI_PACKAGE_NAME ucx-mp-openmpi)
set(CPACK_DEBIAN_OPENMPI_PACKAGE_DEPENDS "libuct-mp ${same}, openmpi-bin")
set(CPACK_DEBIAN_OPENMPI_PACKAGE_SUGGESTS softhca)
if(TARGET mca_pml_mp) # unlike libuct_mp.so it fits only the UCX that it was compiled with
  pkg_get_variable(ucx_version ucx-uct Version)
  if(NOT ucx_version)
    pkg_check_modules(UCX_PACKAGED QUIET ucx)
    set(ucx_version ${UCX_PACKAGED_VERSION})
  endif()
  if(ucx_version MATCHES "^([0-9]+)\\.([0-9]+)")
    math(EXPR next "${CMAKE_MATCH_2} + 1")
    string(APPEND CPACK_DEBIAN_OPENMPI_PACKAGE_DEPENDS
           ", libucx0 (>= ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}), libucx0 (<< ${CMAKE_MATCH_1}.${next})")
  endif()
endif()
set(CPACK_COMPONENT_OPENMPI_DESCRIPTION "Open MPI over the multi-path transport
 mpirun-mp starts an MPI job over libuct-mp, with the stock Open MPI.")
include(CPack)
