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

template <typename T>
class WideningKernel final : public Kernel {
 public:
  WideningKernel(const PlanRequest& request, PlanFunction plan)
      : inputs_(request.inputs.begin(), request.inputs.end()),
        outputs_(request.outputs.begin(), request.outputs.end()),
        wide_inputs_(inputs_.size()),
        wide_outputs_(outputs_.size()) {
    input_offsets_ = place_copies(inputs_, workspace_);
    output_offsets_ = place_copies(outputs_, workspace_);
    kernel_ = plan({request.op, request.attributes, inputs_, outputs_, request.allow_tf32});
    inner_offset_ = workspace_;
    workspace_ += kernel_->workspace_bytes();
  }

  void run(const KernelArgs& args) override {
    char* workspace = static_cast<char*>(args.workspace);
    for (size_t k = 0; k < inputs_.size(); ++k) {
      wide_inputs_[k] = args.inputs[k];
      if (input_offsets_[k] < 0) continue;
      float* wide = reinterpret_cast<float*>(workspace + input_offsets_[k]);
      const T* from = input<T>(args, k);
      parallel_for(size_of(inputs_[k]), kElementGrain, [&](int64_t begin, int64_t end) {
        widen(from + begin, wide + begin, end - begin);
      });
      wide_inputs_[k] = wide;
    }
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const bool is_read = args.outputs[k] != nullptr;
      wide_outputs_[k] = is_read ? workspace + output_offsets_[k] : nullptr;
    }
    kernel_->run({wide_inputs_, wide_outputs_, workspace + inner_offset_, args.stream});
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (args.outputs[k] == nullptr) continue;
      const float* wide = static_cast<const float*>(wide_outputs_[k]);
      T* to = output<T>(args, k);
      parallel_for(size_of(outputs_[k]), kElementGrain, [&](int64_t begin, int64_t end) {
        narrow(wide + begin, to + begin, end - begin);
      });
    }
  }

  int64_t workspace_bytes() const override { return workspace_; }
  std::string description() const override { return kernel_->description() + " in float32"; }

 private:
  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> outputs_;
  std::vector<int64_t> input_offsets_;
  std::vector<int64_t> output_offsets_;
  std::vector<const void*> wide_inputs_;
  std::vector<void*> wide_outputs_;
  std::unique_ptr<Kernel> kernel_;
  int64_t inner_offset_ = 0;
  int64_t workspace_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> plan_in_float32(const PlanRequest& request, PlanFunction plan) {
  return with_type<Half, BFloat16>(request.outputs[0].dtype,
                                   [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
                                     return std::make_unique<WideningKernel<T>>(request, plan);
                                   });
}

}  // namespace kerascnn::cpu
