# Finds oneDNN 3: KERASCNN_ONEDNN_ROOT, then CMAKE_PREFIX_PATH, then the wheels in Python's prefixes, then
# the system. Sets KERASCNN_ONEDNN_VERSION (empty when it is not used), KERASCNN_ONEDNN_REASON, and
# KERASCNN_ONEDNN_RPATH.

set(KERASCNN_ONEDNN_VERSION "")
set(KERASCNN_ONEDNN_REASON "")
set(KERASCNN_ONEDNN_RPATH "")

if(KERASCNN_ONEDNN STREQUAL "OFF")
  set(KERASCNN_ONEDNN_REASON "switched off by KERASCNN_ONEDNN=OFF")
  return()
endif()

if(KERASCNN_ONEDNN_ROOT)
  find_package(dnnl 3.2 CONFIG QUIET PATHS "${KERASCNN_ONEDNN_ROOT}" NO_DEFAULT_PATH)
else()
  find_package(dnnl 3.2 CONFIG QUIET HINTS ${KERASCNN_PYTHON_PREFIXES})
endif()

if(dnnl_FOUND)
  set(KERASCNN_ONEDNN_VERSION "${dnnl_VERSION}")
  get_target_property(library DNNL::dnnl LOCATION)
  cmake_path(GET library PARENT_PATH library_dir)
  # A oneDNN from Python's own prefix is found relative to the package at run time; any other place has to
  # be written down.
  cmake_path(GET library_dir PARENT_PATH library_prefix)
  if(NOT library_prefix IN_LIST KERASCNN_PYTHON_PREFIXES)
    set(KERASCNN_ONEDNN_RPATH "${library_dir}")
  endif()
else()
  set(KERASCNN_ONEDNN_REASON
      "oneDNN 3.2 or newer was not found when kerascnn was built (package onednn-devel-cpu-gomp, a system oneDNN, or KERASCNN_ONEDNN_ROOT)")
  if(KERASCNN_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "KERASCNN_ONEDNN=ON, but ${KERASCNN_ONEDNN_REASON}.")
  endif()
endif()
