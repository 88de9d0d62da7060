#include "core/backend/cuda/runtime/opened_library.h"

#include <dlfcn.h>

#include <utility>

#include "core/base/error.h"

namespace kerascnn::cuda {

OpenedLibrary::OpenedLibrary(std::string name, int version, const std::string& what_fails)
    : OpenedLibrary(message("lib", std::move(name), ".so.", version), what_fails,
                    "KERASCNN_CUDA=ON pip install \".[cuda13]\" in the folder of kerascnn's "
                    "sources, or pip install \"kerascnn[cuda13]\" once it is released "
                    "(docs/install.md)") {}

OpenedLibrary::OpenedLibrary(std::string file, const std::string& what_fails,
                             const std::string& remedy)
    : name_(std::move(file)), handle_(dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* error = dlerror();
  throw LibraryError(message(what_fails, ": ", name_, " can't be opened (",
                             error != nullptr ? error : "unknown error",
                             "); install it with: ", remedy));
}

void* OpenedLibrary::address_of(const char* function_name) const {
  void* address = dlsym(handle_, function_name);
  if (address == nullptr) throw LibraryError(message(name_, " has no function ", function_name));
  return address;
}

}  // namespace kerascnn::cuda
