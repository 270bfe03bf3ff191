# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

include(CMakePackageConfigHelpers)

set(superslm_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/superslm)
set(superslm_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# A wheel holds no symbolic links: it ships the library under its SONAME only, and pkg-config names that file. No
# loader looks into a wheel, so programs learn where it lies.
if(SKBUILD)
  set(superslm_namelink NAMELINK_SKIP)
  set(superslm_link "\${libdir}/$<TARGET_FILE_NAME:superslm_shared>")
  if(NOT WIN32)
    string(APPEND superslm_link " -Wl,-rpath,\${libdir}")
  endif()
else()
  set(superslm_namelink)
  set(superslm_link "-L\${libdir} -lsuperslm")
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/superslm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS superslm_shared EXPORT superslm_targets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${superslm_namelink}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(SUPERSLM_BUILD_STATIC)
  install(TARGETS superslm_static EXPORT superslm_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

install(EXPORT superslm_targets NAMESPACE superslm:: FILE superslm-targets.cmake DESTINATION ${superslm_cmake_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/superslm-config.cmake.in
  ${PROJECT_BINARY_DIR}/superslm-config.cmake INSTALL_DESTINATION ${superslm_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/superslm-config-version.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/superslm-config.cmake ${PROJECT_BINARY_DIR}/superslm-config-version.cmake
  DESTINATION ${superslm_cmake_dir})

# pkg-config finds the prefix from where its file lies, so the tree can be moved.
file(RELATIVE_PATH superslm_up "/${superslm_pkgconfig_dir}" "/")
function(superslm_install_pkgconfig name title link)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/superslm.pc.in ${PROJECT_BINARY_DIR}/${name}.pc.in @ONLY)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${name}.pc INPUT ${PROJECT_BINARY_DIR}/${name}.pc.in)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${superslm_pkgconfig_dir})
endfunction()
superslm_install_pkgconfig(superslm "SuperSLM" "${superslm_link}")
if(SUPERSLM_BUILD_STATIC)
  superslm_install_pkgconfig(superslm-static "SuperSLM (static)"
    "\${libdir}/$<TARGET_FILE_NAME:superslm_static>")
endif()
