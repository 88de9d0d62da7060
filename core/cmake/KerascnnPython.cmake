# Finds Python where it is needed or can help: the extension needs it, and the wheels of oneDNN and of the
# CUDA toolchain lie in its folders.
#
# Sets KERASCNN_PYTHON_SITES: the folders that Python imports from. In an isolated pip build these are the
# build environment's and, after them, those of the environment that kerascnn is installed into.

if(KERASCNN_PYTHON)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module NumPy)
else()
  find_package(Python 3.10 QUIET COMPONENTS Interpreter)
endif()

set(KERASCNN_PYTHON_SITES "")
if(Python_EXECUTABLE)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c [[
import os, sys, sysconfig
folders = [*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
print(";".join(dict.fromkeys(f for f in folders if f and os.path.isdir(f))), end="")
]]
    OUTPUT_VARIABLE KERASCNN_PYTHON_SITES
    COMMAND_ERROR_IS_FATAL ANY)
endif()

# Prefixes of those folders (<prefix>/lib/pythonX.Y/site-packages), where wheels put shared data.
set(KERASCNN_PYTHON_PREFIXES "")
foreach(site IN LISTS KERASCNN_PYTHON_SITES)
  cmake_path(GET site FILENAME name)
  if(name MATCHES "^(site|dist)-packages$")
    set(prefix "${site}")
    foreach(level RANGE 1 3)
      cmake_path(GET prefix PARENT_PATH prefix)
    endforeach()
    list(APPEND KERASCNN_PYTHON_PREFIXES "${prefix}")
  endif()
endforeach()
list(REMOVE_DUPLICATES KERASCNN_PYTHON_PREFIXES)
