// Launch geometry and kernel wrappers, computed in 64 bits on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "core/backend/backend.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {

constexpr int kThreads = 256;
// More blocks than any GPU runs at once; kernels loop over the rest (grid-stride loops).
constexpr int64_t kMaxBlocks = 65535;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline unsigned grid_for(int64_t items, int64_t items_per_block = kThreads) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(items, items_per_block), 1, kMaxBlocks));
}

// A kernel that is one function of its buffers; `function` owns what planning computed.
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(std::string description, std::function<void(const KernelArgs&)> function,
                 int64_t workspace_bytes, bool starts_early, int64_t num_partial_sums)
      : description_(std::move(description)),
        function_(std::move(function)),
        workspace_bytes_(workspace_bytes),
        starts_early_(starts_early),
        num_partial_sums_(num_partial_sums) {}

  void run(const KernelArgs& args) override { function_(args); }
  int64_t workspace_bytes() const override { return workspace_bytes_; }
  bool starts_early() const override { return starts_early_; }
  int64_t num_partial_sums() const override { return num_partial_sums_; }
  std::string description() const override { return description_; }

 private:
  std::string description_;
  std::function<void(const KernelArgs&)> function_;
  int64_t workspace_bytes_;
  bool starts_early_;
  int64_t num_partial_sums_;
};

inline std::unique_ptr<Kernel> make_kernel(std::string description,
                                           std::function<void(const KernelArgs&)> function,
                                           int64_t workspace_bytes = 0) {
  return std::make_unique<FunctionKernel>(std::move(description), std::move(function),
                                          workspace_bytes, false, 0);
}

// Of a function whose first launch, if there is one, is a kernel that begins with begin_kernel().
inline std::unique_ptr<Kernel> make_early_kernel(std::string description,
                                                 std::function<void(const KernelArgs&)> function,
                                                 int64_t workspace_bytes = 0,
                                                 int64_t num_partial_sums = 0) {
  return std::make_unique<FunctionKernel>(std::move(description), std::move(function),
                                          workspace_bytes, true, num_partial_sums);
}

// A ZeroFunction (stacked_kernel.h).
inline void zero_memory(void* data, int64_t bytes, void* stream) {
  check(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)),
        "cudaMemsetAsync");
}

// For begin_kernel(): bit i where load i of a kernel, which reads the inputs `loads[i]`, may come
// early.
inline uint32_t settled_loads(const KernelArgs& args,
                              std::initializer_list<std::initializer_list<unsigned>> loads) {
  uint32_t settled = 0;
  unsigned number = 0;
  for (const auto& inputs : loads) {
    uint32_t all = 1;
    for (unsigned input : inputs) all &= args.settled >> input;
    settled |= (all & 1) << number++;
  }
  return settled;
}

template <typename T>
const T* input(const KernelArgs& args, size_t index) {
  return static_cast<const T*>(args.inputs[index]);
}
template <typename T>
T* output(const KernelArgs& args, size_t index) {
  return static_cast<T*>(args.outputs[index]);
}

}  // namespace kerascnn::cuda
