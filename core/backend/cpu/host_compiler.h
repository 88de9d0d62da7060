// Users' C++ sources, compiled with the compiler of this machine and loaded.
#pragma once

#include <string>

namespace kerascnn::cpu {

struct CompiledLibrary {
  void* handle = nullptr;  // of dlopen; null where compiling failed
  std::string log;         // the compiler's messages
};

// Once for each text; the library stays loaded. Throws DeviceError where there is no compiler or
// what it made can't be loaded; `remedy` ends that message.
const CompiledLibrary& compile_and_load(const std::string& source, const std::string& title,
                                        const std::string& remedy);

}  // namespace kerascnn::cpu
