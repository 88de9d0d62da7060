#include "core/backend/cpu/widen.h"

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

template <typename T>
class WideningKernel final : public Kernel {
 public:
  WideningKernel(const PlanRequest& request, PlanFunction plan)
      : specs_(request.inputs.begin(), request.inputs.end()),
        output_{DType::Float32, request.outputs[0].shape},
        wide_inputs_(request.inputs.size()) {
    for (TensorSpec& spec : specs_) spec.dtype = DType::Float32;
    kernel_ =
        plan({request.op, request.attributes, specs_, Specs(&output_, 1), request.allow_tf32});
    for (const TensorSpec& spec : specs_) {
      offsets_.push_back(workspace_);
      workspace_ += align_up(num_bytes(spec));
    }
    output_offset_ = workspace_;
    workspace_ += align_up(num_bytes(output_));
    inner_offset_ = workspace_;
    workspace_ += kernel_->workspace_bytes();
  }

  void run(const KernelArgs& args) override {
    char* workspace = static_cast<char*>(args.workspace);
    for (size_t k = 0; k < specs_.size(); ++k) {
      float* wide = reinterpret_cast<float*>(workspace + offsets_[k]);
      const T* from = input<T>(args, k);
      parallel_for(size_of(specs_[k]), kElementGrain, [&](int64_t begin, int64_t end) {
        widen(from + begin, wide + begin, end - begin);
      });
      wide_inputs_[k] = wide;
    }
    float* wide = reinterpret_cast<float*>(workspace + output_offset_);
    void* outputs[] = {wide};
    kernel_->run({wide_inputs_, outputs, workspace + inner_offset_, args.stream});
    T* to = output<T>(args, 0);
    parallel_for(size_of(output_), kElementGrain, [&](int64_t begin, int64_t end) {
      narrow(wide + begin, to + begin, end - begin);
    });
  }

  int64_t workspace_bytes() const override { return workspace_; }
  std::string description() const override { return kernel_->description() + " in float32"; }

 private:
  std::vector<TensorSpec> specs_;
  TensorSpec output_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<const void*> wide_inputs_;
  std::vector<int64_t> offsets_;
  int64_t output_offset_ = 0;
  int64_t inner_offset_ = 0;
  int64_t workspace_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> plan_in_float32(const PlanRequest& request, PlanFunction plan) {
  if (request.outputs[0].dtype == DType::Float16) {
    return std::make_unique<WideningKernel<Half>>(request, plan);
  }
  return std::make_unique<WideningKernel<BFloat16>>(request, plan);
}

}  // namespace kerascnn::cpu
