# Writes core_interface.h: the version and a checksum of the headers that libkerascnn and libkerascnn_cuda share.
# To be run when one of them has changed, as cmake -D VERSION=... -D FOLDER=... -D HEADERS="a;b" -D OUTPUT=... -P.

set(hashes "")
foreach(header IN LISTS HEADERS)
  file(SHA256 "${FOLDER}/${header}" hash)
  string(APPEND hashes "${header} ${hash} ")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING "${hash}" 0 12 hash)
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
// Version and checksum of the headers that libkerascnn and libkerascnn_cuda share. Made by WriteCoreInterface.cmake.
#pragma once

namespace kerascnn {

inline constexpr const char* kCoreInterface = "@VERSION@+@hash@";

}  // namespace kerascnn
]])
