// CUDA C++ that is compiled while the program runs. NVRTC is opened on first use, as few programs
// need it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/compile_queue.h"

namespace kerascnn::cuda {

struct RuntimeKernel {
  CompileState state = CompileState::Unavailable;
  cudaKernel_t kernel = nullptr;  // for every device of that kind; null unless compiled
  std::string log;                // the compiler's messages, or why there are none
};

// A kernel that other threads may still be compiling. Copies are the same kernel.
class PendingKernel {
 public:
  class Impl;

  PendingKernel() = default;  // it has no kernel: get() may not be called
  explicit PendingKernel(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  // Waits, and loads the kernel into the driver, so it may not be called while a graph is captured.
  // What it returns stays as it is until the process ends.
  const RuntimeKernel& get() const;

 private:
  std::shared_ptr<Impl> impl_;
};

// Begins to compile `source` for the current device (compile_queue.h), once for each source,
// function, options and kind of device. `function` is a kernel in it, or an instance of a template.
// The options are NVRTC's; C++17 and the device's architecture are among them already.
PendingKernel start_compile(const std::string& source, const std::string& function,
                            const std::vector<std::string>& options = {});

// The same for devices of a compute capability, 90 for 9.0, with the code instead of the kernel.
// Throws LibraryError where NVRTC is not there or does not know devices that old.
std::shared_ptr<Compilation> start_compile_for(int compute_capability, const std::string& source,
                                               const std::string& function,
                                               const std::vector<std::string>& options);

// "NVRTC 13.0". Throws LibraryError where it is not there.
std::string nvrtc_version();

// Empty where NVRTC is there and knows the current device; otherwise the reason and the remedy.
std::string nvrtc_unavailable_reason();

}  // namespace kerascnn::cuda
