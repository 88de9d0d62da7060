// Users' C++ sources, which the compiler of this machine compiles, and which are loaded.
#pragma once

#include <string>

namespace kerascnn::cpu {

struct CompiledLibrary {
  void* handle = nullptr;  // of dlopen; null where compiling failed
  std::string log;         // the compiler's messages
};

// Each text is compiled once; the library stays loaded. Throws DeviceError where there is no
// compiler or where its result can't be loaded; `remedy` ends that message.
const CompiledLibrary& compile_and_load(const std::string& source, const std::string& title,
                                        const std::string& remedy);

}  // namespace kerascnn::cpu
