# The options of the build, and the compiler flags that every library of it shares.

if(DEFINED SKBUILD)
  set(building_wheel ON)
  set(building_tests OFF)
else()
  set(building_wheel OFF)
  set(building_tests ${PROJECT_IS_TOP_LEVEL})
endif()

option(KERASCNN_PYTHON "Build the extension kerascnn._core and its type stub" ${building_wheel})
option(KERASCNN_TESTS "Build the C++ unit tests" ${building_tests})
option(KERASCNN_WERROR "Treat the warnings of core/ as errors" OFF)

# AUTO uses what is found and records why something is missing; ON makes a missing part an error.
set(KERASCNN_ONEDNN AUTO CACHE STRING "oneDNN kernels on the CPU: AUTO, ON or OFF")
set(KERASCNN_ONEDNN_ROOT "" CACHE PATH "Prefix of a oneDNN 3 installation (include/, lib/)")
set(KERASCNN_CUDA AUTO CACHE STRING "The CUDA backend: AUTO, ON or OFF")
set(KERASCNN_CUDA_ARCHITECTURES development CACHE STRING
    "'development' (this machine's GPU, else 90), 'wheel' (75 to 120 and PTX), or a CMake list")
set(KERASCNN_EXTRA_RPATH "" CACHE STRING
    "Absolute folders in which the built libraries also look for oneDNN and the CUDA libraries")
option(KERASCNN_BUNDLE_OPENMP "Put GCC's OpenMP library into the package, for wheels that others install" OFF)
set(KERASCNN_SANITIZE "" CACHE STRING "Sanitizers for core/ and its tests: address;undefined")
foreach(option IN ITEMS KERASCNN_ONEDNN KERASCNN_CUDA)
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  string(TOUPPER "${${option}}" ${option})
  if(${option} MATCHES "^(1|YES|TRUE)$")
    set(${option} ON)
  elseif(${option} MATCHES "^(0|NO|FALSE)$")
    set(${option} OFF)
  elseif(NOT ${option} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${option} is '${${option}}'; it must be AUTO, ON or OFF.")
  endif()
endforeach()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# All libraries share one folder, as they do in the installed package, so that dlopen through $ORIGIN
# finds the CUDA library in a build tree too.
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

if(building_wheel)
  set(KERASCNN_INSTALL_DIR kerascnn)
else()
  include(GNUInstallDirs)
  set(KERASCNN_INSTALL_DIR "${CMAKE_INSTALL_LIBDIR}")
endif()
set(KERASCNN_CUDA_INSTALL_DIR "${KERASCNN_INSTALL_DIR}" CACHE STRING
    "Folder below the prefix for the CUDA library: kerascnn's own, or that of a package of its own")

# From nothing, a build with precompiled headers and several sources for each compiler call takes half of the time. One
# source alone, or a build from a compiler cache, is quicker without, so this is for pip.
set(quick_build ${building_wheel})
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(quick_build OFF)
endif()
option(KERASCNN_QUICK_BUILD "Precompiled headers, and several sources for each compiler call" ${quick_build})

# The flags of every target. Contraction into fused multiply-adds is off because whether the compiler
# contracts depends on how it vectorized: kernels that want an FMA write one. Nothing here may depend on
# the machine that builds; kernels for newer instruction sets live in files named *_avx2.cpp and
# *_avx512.cpp and are chosen at run time.
add_library(kerascnn_flags INTERFACE)
target_compile_options(kerascnn_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-fno-math-errno;-fno-trapping-math;-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fno-semantic-interposition>
  # GCC 12 sees overlapping copies in std::string's operator+ where there are none (GCC bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${KERASCNN_WERROR}>>:-Werror>)
if(NOT KERASCNN_SANITIZE AND NOT APPLE)
  # A missing definition ends the link, not the first import.
  set(KERASCNN_SHARED_LINK_OPTIONS LINKER:--no-undefined)
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT KERASCNN_SANITIZE)
  # Some GCCs link libstdc++ statically by default. With a copy in each of our libraries beside the one that
  # NumPy brings, streams of one copy meet locales of another and the process crashes.
  target_link_options(kerascnn_flags INTERFACE
    "LINKER:--push-state,--no-as-needed" -l:libstdc++.so.6 LINKER:--pop-state)
endif()
# "#pragma GCC ivdep" is for GCC's vectorizer.
target_compile_options(kerascnn_flags INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang,AppleClang>>:-Wno-unknown-pragmas>)
foreach(sanitizer IN LISTS KERASCNN_SANITIZE)
  target_compile_options(kerascnn_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${sanitizer};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-g1>)
  target_link_options(kerascnn_flags INTERFACE -fsanitize=${sanitizer})
endforeach()
