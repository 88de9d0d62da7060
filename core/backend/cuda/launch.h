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
#include "core/base/ceil_div.h"

namespace kerascnn::cuda {

constexpr int kThreads = 256;
// More blocks than any GPU runs at once; kernels loop over the rest (grid-stride loops).
constexpr int64_t kMaxBlocks = 65535;

inline unsigned grid_for(int64_t items, int64_t items_per_block = kThreads) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(items, items_per_block), 1, kMaxBlocks));
}

// A kernel that is one function of its buffers; `function` owns what planning computed.
class FunctionKernel final : public Kernel {
 public:
  // See the functions of Kernel by these names.
  struct Traits {
    int64_t workspace_bytes = 0;
    bool starts_early = false;
    bool keeps_state = false;
  };

  FunctionKernel(std::string description, std::function<void(const KernelArgs&)> function,
                 const Traits& traits)
      : description_(std::move(description)), function_(std::move(function)), traits_(traits) {}

  void run(const KernelArgs& args) override { function_(args); }
  int64_t workspace_bytes() const override { return traits_.workspace_bytes; }
  bool starts_early() const override { return traits_.starts_early; }
  bool keeps_state() const override { return traits_.keeps_state; }
  std::string description() const override { return description_; }

 private:
  std::string description_;
  std::function<void(const KernelArgs&)> function_;
  Traits traits_;
};

// `keeps_state`: does the function own device memory that its launches write (a DeviceBuffer, or
// what a library holds)? See Kernel.
inline std::unique_ptr<Kernel> make_kernel(std::string description,
                                           std::function<void(const KernelArgs&)> function,
                                           int64_t workspace_bytes = 0, bool keeps_state = false) {
  return std::make_unique<FunctionKernel>(
      std::move(description), std::move(function),
      FunctionKernel::Traits{.workspace_bytes = workspace_bytes, .keeps_state = keeps_state});
}

// For a function whose first launch, if there is one, is a kernel that begins with begin_kernel().
inline std::unique_ptr<Kernel> make_early_kernel(std::string description,
                                                 std::function<void(const KernelArgs&)> function,
                                                 int64_t workspace_bytes = 0,
                                                 bool keeps_state = false) {
  return std::make_unique<FunctionKernel>(
      std::move(description), std::move(function),
      FunctionKernel::Traits{
          .workspace_bytes = workspace_bytes, .starts_early = true, .keeps_state = keeps_state});
}

// A kernel that makes partial sums. The function either adds them up, with the workspace, or leaves
// them: then its outputs are the stacks.
class SummingKernel final : public Kernel {
 public:
  using Function = std::function<void(const KernelArgs& args, bool adds_up)>;

  SummingKernel(std::string description, Function function, int64_t workspace_bytes,
                int64_t num_partial_sums)
      : description_(std::move(description)),
        function_(std::move(function)),
        workspace_bytes_(workspace_bytes),
        num_partial_sums_(num_partial_sums) {}

  void run(const KernelArgs& args) override { function_(args, true); }
  int64_t workspace_bytes() const override { return workspace_bytes_; }
  bool starts_early() const override { return true; }
  std::string description() const override { return description_; }
  int64_t num_partial_sums() const override { return num_partial_sums_; }
  std::unique_ptr<Kernel> leave_partial_sums() const override {
    return make_early_kernel(description_,
                             [launch = function_](const KernelArgs& args) { launch(args, false); });
  }

 private:
  std::string description_;
  Function function_;
  int64_t workspace_bytes_;
  int64_t num_partial_sums_;
};

// For a function whose first launch is a kernel that begins with begin_kernel(). `num_partial_sums`
// is 0 where it makes the whole sum at once.
inline std::unique_ptr<Kernel> make_summing_kernel(std::string description,
                                                   SummingKernel::Function function,
                                                   int64_t workspace_bytes,
                                                   int64_t num_partial_sums) {
  return std::make_unique<SummingKernel>(std::move(description), std::move(function),
                                         workspace_bytes, num_partial_sums);
}

inline void zero_memory(void* data, int64_t bytes, void* stream) {
  check(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)),
        "cudaMemsetAsync");
}

// For begin_kernel(): bit i where load i of a kernel, which reads the inputs `loads[i]`, may come
// early.
inline uint32_t settled_loads(const KernelArgs& args,
                              std::initializer_list<std::initializer_list<size_t>> loads) {
  uint32_t settled = 0;
  unsigned number = 0;
  for (const auto& inputs : loads) {
    uint32_t all = 1;
    for (size_t input : inputs) all &= args.settled >> input;
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
