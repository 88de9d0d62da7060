# What programs in C++ need beside the library: headers, and a CMake package with the target kerascnn::kerascnn.

include(CMakePackageConfigHelpers)
if(building_wheel)
  set(include_dir "${KERASCNN_INSTALL_DIR}/include")
  set(package_dir "${KERASCNN_INSTALL_DIR}/share/cmake/kerascnn")
else()
  set(include_dir "${CMAKE_INSTALL_INCLUDEDIR}")
  set(package_dir "${KERASCNN_INSTALL_DIR}/cmake/kerascnn")
endif()
install(FILES include/kerascnn/inference.h base/error.h base/dtype.h DESTINATION "${include_dir}/kerascnn")
configure_package_config_file(
  cmake/kerascnnConfig.cmake.in "${PROJECT_BINARY_DIR}/generated/kerascnnConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" PATH_VARS KERASCNN_INSTALL_DIR include_dir
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/generated/kerascnnConfigVersion.cmake"
  VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/generated/kerascnnConfig.cmake" "${PROJECT_BINARY_DIR}/generated/kerascnnConfigVersion.cmake"
  DESTINATION "${package_dir}")
