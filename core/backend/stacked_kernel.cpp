#include "core/backend/stacked_kernel.h"

#include "core/ops/partial_sums.h"

namespace kerascnn {
namespace {

class StackedKernel final : public Kernel {
 public:
  // `sum_bytes`: of each output without the other copies.
  StackedKernel(std::unique_ptr<Kernel> sum, std::vector<int64_t> sum_bytes, int64_t copies,
                ZeroFunction zero)
      : sum_(std::move(sum)), sum_bytes_(std::move(sum_bytes)), copies_(copies), zero_(zero) {}

  void run(const KernelArgs& args) override {
    sum_->run(args);
    for (size_t i = 0; i < sum_bytes_.size(); ++i) {
      const int64_t rest = (copies_ - 1) * sum_bytes_[i];
      if (args.outputs[i] == nullptr || rest == 0) continue;
      zero_(static_cast<char*>(args.outputs[i]) + sum_bytes_[i], rest, args.stream);
    }
  }

  int64_t workspace_bytes() const override { return sum_->workspace_bytes(); }
  bool starts_early() const override { return sum_->starts_early(); }
  bool keeps_state() const override { return sum_->keeps_state(); }
  std::string description() const override { return sum_->description() + " + zeros"; }

 private:
  std::unique_ptr<Kernel> sum_;
  std::vector<int64_t> sum_bytes_;
  int64_t copies_;
  ZeroFunction zero_;
};

}  // namespace

std::unique_ptr<Kernel> plan_stacked(const PlanRequest& request, PlanFunction plan,
                                     ZeroFunction zero) {
  const Attributes attributes = without_copies(request.attributes);
  const std::vector<TensorSpec> outputs = infer_outputs(request.op, attributes, request.inputs);
  std::vector<int64_t> sum_bytes;
  for (const TensorSpec& output : outputs) sum_bytes.push_back(num_bytes(output));
  auto sum =
      plan({request.op, attributes, request.inputs, outputs, request.allow_tf32, request.autotune});
  return std::make_unique<StackedKernel>(std::move(sum), std::move(sum_bytes),
                                         num_copies(request.op.name, request.attributes), zero);
}

}  // namespace kerascnn
