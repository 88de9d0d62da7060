#include "core/backend/cpu/widen.h"

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

// Where the workspace, after its first `bytes` bytes, has float32 copies of the floating tensors
// among `specs`, which become float32; -1 for other tensors.
std::vector<int64_t> place_copies(std::vector<TensorSpec>& specs, int64_t& bytes) {
  std::vector<int64_t> offsets;
  for (TensorSpec& spec : specs) {
    const bool is_copied = is_floating(spec.dtype);
    offsets.push_back(is_copied ? bytes : -1);
    if (!is_copied) continue;
    spec.dtype = DType::Float32;
    bytes += align_up(num_bytes(spec));
  }
  return offsets;
}

// Its workspace holds float32 results, and behind them what `kernel` needs.
template <typename T>
class RoundingKernel final : public Kernel {
 public:
  RoundingKernel(const PlanRequest& request, std::unique_ptr<Kernel> kernel)
      : outputs_(request.outputs.begin(), request.outputs.end()),
        wide_(outputs_.size()),
        kernel_(std::move(kernel)) {
    offsets_ = place_copies(outputs_, inner_offset_);
  }

  void run(const KernelArgs& args) override {
    char* workspace = static_cast<char*>(args.workspace);
    const auto is_rounded = [&](size_t k) {
      return args.outputs[k] != nullptr && offsets_[k] >= 0;
    };
    for (size_t k = 0; k < outputs_.size(); ++k) {
      wide_[k] = is_rounded(k) ? workspace + offsets_[k] : args.outputs[k];
    }
    kernel_->run({args.inputs, wide_, workspace + inner_offset_, args.stream});
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!is_rounded(k)) continue;
      const float* wide = static_cast<const float*>(wide_[k]);
      T* to = output<T>(args, k);
      parallel_for(size_of(outputs_[k]), kElementGrain, [&](int64_t begin, int64_t end) {
        narrow(wide + begin, to + begin, end - begin);
      });
    }
  }

  int64_t workspace_bytes() const override { return inner_offset_ + kernel_->workspace_bytes(); }
  std::string description() const override { return kernel_->description(); }

 private:
  std::vector<TensorSpec> outputs_;
  std::vector<int64_t> offsets_;
  std::vector<void*> wide_;
  std::unique_ptr<Kernel> kernel_;
  int64_t inner_offset_ = 0;
};

// Its workspace holds float32 copies of the inputs, and behind them what `kernel` needs.
template <typename T>
class WideningKernel final : public Kernel {
 public:
  WideningKernel(const PlanRequest& request, PlanFunction plan)
      : inputs_(request.inputs.begin(), request.inputs.end()), wide_(inputs_.size()) {
    offsets_ = place_copies(inputs_, inner_offset_);
    const std::vector<TensorSpec> outputs = in_float32(request.outputs);
    kernel_ = round_results(request, plan({request.op, request.attributes, inputs_, outputs}));
  }

  void run(const KernelArgs& args) override {
    char* workspace = static_cast<char*>(args.workspace);
    for (size_t k = 0; k < inputs_.size(); ++k) {
      wide_[k] = args.inputs[k];
      if (offsets_[k] < 0) continue;
      float* wide = reinterpret_cast<float*>(workspace + offsets_[k]);
      const T* from = input<T>(args, k);
      parallel_for(size_of(inputs_[k]), kElementGrain, [&](int64_t begin, int64_t end) {
        widen(from + begin, wide + begin, end - begin);
      });
      wide_[k] = wide;
    }
    kernel_->run({wide_, args.outputs, workspace + inner_offset_, args.stream});
  }

  int64_t workspace_bytes() const override { return inner_offset_ + kernel_->workspace_bytes(); }
  std::string description() const override { return kernel_->description() + " in float32"; }

 private:
  std::vector<TensorSpec> inputs_;
  std::vector<int64_t> offsets_;
  std::vector<const void*> wide_;
  std::unique_ptr<Kernel> kernel_;
  int64_t inner_offset_ = 0;
};

// Calls make with the type of the outputs.
template <typename Make>
std::unique_ptr<Kernel> make_narrow(const PlanRequest& request, const Make& make) {
  return with_type<Half, BFloat16>(request.outputs[0].dtype, make);
}

}  // namespace

std::vector<TensorSpec> in_float32(Specs specs) {
  std::vector<TensorSpec> wide(specs.begin(), specs.end());
  for (TensorSpec& spec : wide) {
    if (is_floating(spec.dtype)) spec.dtype = DType::Float32;
  }
  return wide;
}

std::unique_ptr<Kernel> round_results(const PlanRequest& request, std::unique_ptr<Kernel> kernel) {
  return make_narrow(request, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
    return std::make_unique<RoundingKernel<T>>(request, std::move(kernel));
  });
}

std::unique_ptr<Kernel> plan_in_float32(const PlanRequest& request, PlanFunction plan) {
  return make_narrow(request, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
    return std::make_unique<WideningKernel<T>>(request, plan);
  });
}

}  // namespace kerascnn::cpu
