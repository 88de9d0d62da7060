// CUDA C++ compiled while the program runs. NVRTC is opened on first use, as few programs need it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace kerascnn::cuda {

struct RuntimeKernel {
  cudaKernel_t kernel = nullptr;  // null where compiling failed; for every device of that kind
  std::string log;                // the compiler's messages
};

// Compiles `source` for the current device, once for each source, function and kind of device.
// `function` is a kernel in it, or an instance of a template. Throws LibraryError where NVRTC is
// not there or the device is not among those it knows.
const RuntimeKernel& compile_kernel(const std::string& source, const std::string& function);

}  // namespace kerascnn::cuda
