# Finds what the CUDA backend is built with: nvcc 13, and headers and libraries of the CUDA runtime, cuBLASLt,
# NVRTC, cuFFT, cuDNN 9 and cudnn-frontend. Each comes from Python's folders (the wheels) or from a system CUDA.
#
# Sets KERASCNN_CUDA_FOUND, KERASCNN_CUDA_REASON (why not), KERASCNN_CUDA_VERSION, KERASCNN_CUDNN_VERSION,
# KERASCNN_CUDA_ARCHITECTURE_LIST and KERASCNN_CUDA_RPATH, enables the language CUDA, and defines the target
# kerascnn_cuda_libraries.

set(KERASCNN_CUDA_FOUND OFF)
set(KERASCNN_CUDA_REASON "")
set(KERASCNN_CUDA_VERSION "")
set(KERASCNN_CUDNN_VERSION "")
set(KERASCNN_CUDA_ARCHITECTURE_LIST "")

# Ends this file with a reason: an error where CUDA was asked for, a record where it was not.
macro(kerascnn_no_cuda reason)
  set(KERASCNN_CUDA_REASON "${reason}")
  if(KERASCNN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "KERASCNN_CUDA=ON, but ${KERASCNN_CUDA_REASON}.")
  endif()
  return()
endmacro()

if(KERASCNN_CUDA STREQUAL "OFF")
  kerascnn_no_cuda("switched off by KERASCNN_CUDA=OFF")
endif()

# The compiler. The wheels' toolkit wins over the system's: pip put it there for this build.
list(TRANSFORM KERASCNN_PYTHON_SITES APPEND "/nvidia/cu13" OUTPUT_VARIABLE wheel_roots)
if(CMAKE_CUDA_COMPILER)
  set(KERASCNN_NVCC "${CMAKE_CUDA_COMPILER}" CACHE FILEPATH "CUDA compiler")
endif()
find_program(KERASCNN_NVCC nvcc PATHS ${wheel_roots} PATH_SUFFIXES bin NO_DEFAULT_PATH)
find_program(KERASCNN_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(KERASCNN_NVCC)
if(NOT KERASCNN_NVCC)
  kerascnn_no_cuda("no nvcc was found when kerascnn was built")
endif()
execute_process(COMMAND "${KERASCNN_NVCC}" --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
string(REGEX MATCH "V([0-9]+\\.[0-9]+\\.[0-9]+)" nvcc_version "${nvcc_version}")
set(nvcc_version "${CMAKE_MATCH_1}")
if(NOT nvcc_version MATCHES "^13\\.")
  kerascnn_no_cuda("${KERASCNN_NVCC} is version '${nvcc_version}' and CUDA 13 is needed")
endif()

# nvcc says itself where its toolkit is, also through wrapper scripts and links.
execute_process(COMMAND "${KERASCNN_NVCC}" --dryrun -x cu /dev/null -c -o /dev/null ERROR_VARIABLE dryrun OUTPUT_QUIET)
if(NOT dryrun MATCHES "#\\$ TOP=([^\r\n]*)")
  kerascnn_no_cuda("${KERASCNN_NVCC} --dryrun does not name its toolkit folder")
endif()
cmake_path(SET toolkit_root NORMALIZE "${CMAKE_MATCH_1}")

# Headers come from nvcc's own toolkit first, so that they match the compiler; libraries from the wheels
# first, because those are what an installed kerascnn loads.
set(toolkit_target "${toolkit_root}/targets/x86_64-linux")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(toolkit_target "${toolkit_root}/targets/sbsa-linux")
endif()
set(toolkit_includes "${toolkit_root}/include" "${toolkit_target}/include")
set(toolkit_libraries "${toolkit_root}/lib" "${toolkit_root}/lib64" "${toolkit_target}/lib")
list(TRANSFORM wheel_roots APPEND "/include" OUTPUT_VARIABLE wheel_includes)
list(TRANSFORM wheel_roots APPEND "/lib" OUTPUT_VARIABLE wheel_libraries)
list(TRANSFORM KERASCNN_PYTHON_SITES APPEND "/nvidia/cudnn/include" OUTPUT_VARIABLE cudnn_includes)
list(TRANSFORM KERASCNN_PYTHON_SITES APPEND "/nvidia/cudnn/lib" OUTPUT_VARIABLE cudnn_libraries)
list(TRANSFORM KERASCNN_PYTHON_SITES APPEND "/include" OUTPUT_VARIABLE frontend_includes)
list(TRANSFORM KERASCNN_PYTHON_PREFIXES APPEND "/include" OUTPUT_VARIABLE prefix_includes)

foreach(header IN ITEMS cuda_runtime.h cublasLt.h nvrtc.h cufft.h)
  string(MAKE_C_IDENTIFIER "KERASCNN_${header}_DIR" variable)
  find_path(${variable} ${header} HINTS ${toolkit_includes} ${wheel_includes})
  list(APPEND needed_headers ${header})
endforeach()
find_path(KERASCNN_cudnn_h_DIR cudnn.h HINTS ${cudnn_includes} ${toolkit_includes})
find_path(KERASCNN_cudnn_frontend_h_DIR cudnn_frontend.h
  HINTS ${frontend_includes} ${prefix_includes} ${toolkit_includes})
# Opened by name on first use: it has to be found at run time, but nothing links to it. (NVRTC is opened by name
# as well, but code of cudnn-frontend that compilers may keep calls it.)
set(opened_libraries libcufft.so.12)
foreach(library IN ITEMS libcudart.so.13 libcublasLt.so.13 libnvrtc.so.13 libcudnn.so.9 LISTS opened_libraries)
  string(MAKE_C_IDENTIFIER "KERASCNN_${library}" variable)
  find_library(${variable} ${library} HINTS ${wheel_libraries} ${cudnn_libraries} ${toolkit_libraries})
  list(APPEND needed_libraries ${library})
endforeach()

# Only for the profiler, which works on the CPU without it.
find_path(KERASCNN_cupti_h_DIR cupti.h
  HINTS ${toolkit_includes} ${wheel_includes} "${toolkit_root}/extras/CUPTI/include")
mark_as_advanced(KERASCNN_cupti_h_DIR)

set(missing "")
foreach(header IN LISTS needed_headers ITEMS cudnn.h cudnn_frontend.h)
  string(MAKE_C_IDENTIFIER "KERASCNN_${header}_DIR" variable)
  mark_as_advanced(${variable})
  if(${variable})
    list(APPEND include_dirs "${${variable}}")
  else()
    list(APPEND missing ${header})
  endif()
endforeach()
# libkerascnn is beside this library or, where that is a package of its own, in the next one. It is loaded already
# when kerascnn opens this one.
set(KERASCNN_CUDA_RPATH "$ORIGIN;$ORIGIN/../kerascnn;$ORIGIN/../nvidia/cu13/lib;$ORIGIN/../nvidia/cudnn/lib;$ORIGIN/../nvidia/nccl/lib")
foreach(library IN LISTS needed_libraries)
  string(MAKE_C_IDENTIFIER "KERASCNN_${library}" variable)
  mark_as_advanced(${variable})
  if(${variable})
    if(NOT library IN_LIST opened_libraries)
      list(APPEND libraries "${${variable}}")
    endif()
    cmake_path(GET ${variable} PARENT_PATH library_dir)
    # The wheels are found relative to the package at run time; a system CUDA has to be written down.
    if(NOT library_dir IN_LIST wheel_libraries AND NOT library_dir IN_LIST cudnn_libraries)
      list(APPEND KERASCNN_CUDA_RPATH "${library_dir}")
    endif()
  else()
    list(APPEND missing ${library})
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  kerascnn_no_cuda("nvcc ${nvcc_version} was found but not ${missing}")
endif()

# The wheels keep their libraries in lib where nvcc looks into lib64.
set(ENV{NVCC_APPEND_FLAGS} "-L${toolkit_root}/lib $ENV{NVCC_APPEND_FLAGS}")
if(KERASCNN_CUDA STREQUAL "AUTO")
  file(WRITE "${PROJECT_BINARY_DIR}/cuda_probe.cu" "__global__ void probe() {}\nint main() { probe<<<1, 1>>>(); }\n")
  execute_process(
    COMMAND "${KERASCNN_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -c cuda_probe.cu -o cuda_probe.o
    WORKING_DIRECTORY "${PROJECT_BINARY_DIR}"
    RESULT_VARIABLE probe_failed ERROR_VARIABLE probe_error OUTPUT_VARIABLE probe_error)
  if(probe_failed)
    string(REGEX REPLACE "[\r\n\"\\\\]+" " " probe_error "${probe_error}")
    string(SUBSTRING "${probe_error}" 0 200 probe_error)
    kerascnn_no_cuda("nvcc ${nvcc_version} can't compile with this C++ compiler: ${probe_error}")
  endif()
endif()

if(KERASCNN_CUDA_ARCHITECTURES STREQUAL "wheel")
  set(KERASCNN_CUDA_ARCHITECTURE_LIST 75-real 80-real 86-real 89-real 90-real 100-real 120)
elseif(KERASCNN_CUDA_ARCHITECTURES STREQUAL "development")
  execute_process(
    COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader --id=0
    OUTPUT_VARIABLE compute_capability ERROR_QUIET RESULT_VARIABLE no_gpu)
  if(compute_capability MATCHES "^([0-9]+)\\.([0-9]+)")
    set(KERASCNN_CUDA_ARCHITECTURE_LIST "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
  else()
    set(KERASCNN_CUDA_ARCHITECTURE_LIST 90)
  endif()
else()
  set(KERASCNN_CUDA_ARCHITECTURE_LIST ${KERASCNN_CUDA_ARCHITECTURES})
endif()

# Hopper's products of four warps are in code for 9.0a alone, which every GPU of compute capability 9.0 runs.
list(TRANSFORM KERASCNN_CUDA_ARCHITECTURE_LIST REPLACE "^90(-real)?$" "90a\\1")

set(CMAKE_CUDA_COMPILER "${KERASCNN_NVCC}")
set(CMAKE_CUDA_ARCHITECTURES "${KERASCNN_CUDA_ARCHITECTURE_LIST}")
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
endif()
enable_language(CUDA)
string(REPLACE "-O2" "-O3" CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE}")

file(STRINGS "${KERASCNN_cudnn_h_DIR}/cudnn_version.h" version_lines
  REGEX "^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) [0-9]+")
string(REGEX REPLACE "[^0-9;]+" "" version_lines "${version_lines}")
list(JOIN version_lines "." KERASCNN_CUDNN_VERSION)

add_library(kerascnn_cuda_libraries INTERFACE)
list(REMOVE_DUPLICATES include_dirs)
target_include_directories(kerascnn_cuda_libraries SYSTEM INTERFACE ${include_dirs})
target_link_libraries(kerascnn_cuda_libraries INTERFACE ${libraries})
if(KERASCNN_cupti_h_DIR)
  target_include_directories(kerascnn_cuda_libraries SYSTEM INTERFACE "${KERASCNN_cupti_h_DIR}")
  target_compile_definitions(kerascnn_cuda_libraries INTERFACE KERASCNN_WITH_CUPTI=1)
else()
  message(STATUS "kerascnn: no cupti.h: GPUs can't be profiled")
endif()
list(REMOVE_DUPLICATES KERASCNN_CUDA_RPATH)
set(KERASCNN_CUDA_VERSION "${nvcc_version}")
set(KERASCNN_CUDA_FOUND ON)
