// Libraries of CUDA that are opened on first use, so that programs that don't need one can do
// without.
#pragma once

#include <string>

namespace kerascnn::cuda {

class OpenedLibrary {
 public:
  // Opens "lib<name>.so.<version>". Throws LibraryError, which begins with what can't be done
  // without it and ends with the remedy. The library stays open until the process ends.
  OpenedLibrary(std::string name, int version, const std::string& what_fails);
  // Opens a file, or what the system finds by that name; `remedy` says how to install it.
  OpenedLibrary(std::string file, const std::string& what_fails, const std::string& remedy);

  // Throws LibraryError where the library has no such function.
  template <typename Function>
  void find(const char* function_name, Function& function) const {
    function = reinterpret_cast<Function>(address_of(function_name));
  }

 private:
  void* address_of(const char* function_name) const;

  std::string name_;
  void* handle_;
};

}  // namespace kerascnn::cuda
